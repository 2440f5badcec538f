// SPDX-License-Identifier: MIT
/*
 * A plugin for CRIU that leaves everything to the other plugins, and appends the name of each hook to the file $COUNT_FILE, or
 * /run/count, since runtimes of containers pass no variables on. With $COUNT_OWNS the file /dev/cpu_dma_latency of a process is
 * its own: it dumps the latency that the kernel keeps to, and asks for it again. With $COUNT_KILLS it kills each process except
 * this one before CRIU can freeze it, and waits until it is gone. With $COUNT_NAME images say that they were made with a plugin of
 * this name, and a restore finds it here. It then is off, as the CUDA plugin would be, if the images do not say so, or with
 * $COUNT_OFF.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <criu/criu-plugin.h>

/* CRIU's, which its header does not have */
int add_inventory_plugin(const char *name);
bool check_and_remove_inventory_plugin(const char *name, size_t n);

bool plugin_disabled; /* the CUDA plugin's name for it */

static int init(int stage)
{
	const char *name = getenv("COUNT_NAME");

	if (stage == CR_PLUGIN_STAGE__RESTORE)
		plugin_disabled = !name || !check_and_remove_inventory_plugin(name, strlen(name)) || getenv("COUNT_OFF");
	return name && stage == CR_PLUGIN_STAGE__DUMP ? add_inventory_plugin(name) : 0;
}

CR_PLUGIN_REGISTER("count", init, cr_plugin_dummy_exit)

static int count(const char *hook)
{
	const char *path = getenv("COUNT_FILE");
	int fd = open(path ? path : "/run/count", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		return -EIO;
	dprintf(fd, "%s\n", hook);
	close(fd);
	return -ENOTSUP;
}

#define COUNT(hook, ...)						\
	static int count_##hook(__VA_ARGS__)				\
	{								\
		return count(#hook);					\
	}								\
	CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__##hook, count_##hook)

#pragma GCC diagnostic ignored "-Wunused-parameter"
COUNT(DUMP_UNIX_SK, int fd, int id)
COUNT(RESTORE_UNIX_SK, int id)
COUNT(DUMP_EXT_MOUNT, char *mountpoint, int id)
COUNT(RESTORE_EXT_MOUNT, int id, char *mountpoint, char *old_root, int *is_file)
COUNT(DUMP_EXT_LINK, int index, int type, char *kind)
COUNT(HANDLE_DEVICE_VMA, int fd, const struct stat *stat)
COUNT(UPDATE_VMA_MAP, const char *path, const uint64_t addr, const uint64_t old, uint64_t *new, int *plugin_fd)
COUNT(RESUME_DEVICES_LATE, int pid)
COUNT(CHECKPOINT_DEVICES, int pid)

#define LATENCY "/dev/cpu_dma_latency"

static int image_of(int id, int flags)
{
	char name[32];

	snprintf(name, sizeof(name), "latency-%d.img", id);
	return openat(criu_get_image_dir(), name, flags | O_CLOEXEC, 0600);
}

static int dump_latency(int fd, int id)
{
	int32_t latency;
	int image = image_of(id, O_WRONLY | O_CREAT | O_EXCL);
	int ret = image >= 0 && pread(fd, &latency, sizeof(latency), 0) == sizeof(latency) &&
			  write(image, &latency, sizeof(latency)) == sizeof(latency) ? 0 : -EIO;

	close(image);
	return ret;
}

static int count_DUMP_EXT_FILE(int fd, int id)
{
	struct stat file, latency;
	int ret = count("DUMP_EXT_FILE");

	if (!getenv("COUNT_OWNS") || ret != -ENOTSUP)
		return ret;
	if (fstat(fd, &file) || stat(LATENCY, &latency))
		return -EIO;
	return S_ISCHR(file.st_mode) && file.st_rdev == latency.st_rdev ? dump_latency(fd, id) : ret;
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__DUMP_EXT_FILE, count_DUMP_EXT_FILE)

static int count_RESTORE_EXT_FILE(int id)
{
	int32_t latency;
	int ret = count("RESTORE_EXT_FILE");
	int image = getenv("COUNT_OWNS") && ret == -ENOTSUP ? image_of(id, O_RDONLY) : -1;

	if (image < 0)
		return ret;
	ret = open(LATENCY, O_RDWR);
	if (read(image, &latency, sizeof(latency)) != sizeof(latency) || write(ret, &latency, sizeof(latency)) != sizeof(latency))
		ret = -EIO;
	close(image);
	return ret;
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__RESTORE_EXT_FILE, count_RESTORE_EXT_FILE)

static int count_PAUSE_DEVICES(int pid)
{
	const char *kills = getenv("COUNT_KILLS");
	int i;

	if (kills && pid != atoi(kills)) {
		kill(pid, SIGKILL);
		for (i = 0; i < 10000 && !kill(pid, 0); i++)
			usleep(1000);
	}
	return count("PAUSE_DEVICES");
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__PAUSE_DEVICES, count_PAUSE_DEVICES)
