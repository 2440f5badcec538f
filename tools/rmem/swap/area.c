// SPDX-License-Identifier: MIT
/* The swap area on a device. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rmemswap.h"

extern char **environ;

static void path_of(const char *device, char path[RMEM_SWAP_NAME_SIZE + 8])
{
	snprintf(path, RMEM_SWAP_NAME_SIZE + 8, "/dev/%s", device);
}

bool area_used(const char *device, uint64_t *used)
{
	char line[512], name[256], path[RMEM_SWAP_NAME_SIZE + 8];
	FILE *swaps = fopen("/proc/swaps", "re");
	bool found = false;
	uint64_t kib;

	path_of(device, path);
	while (swaps && !found && fgets(line, sizeof(line), swaps))
		found = sscanf(line, "%255s %*s %*u %" SCNu64, name, &kib) == 2 && !strcmp(name, path);
	if (swaps)
		fclose(swaps);
	*used = found ? kib * 1024 : 0;
	return found;
}

/* Runs a program to its end. Returns its exit code, and its output if that is shorter than @size; or -1 after a message. */
static int run(char *const *words, char *output, size_t size)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int ends[2], status = -1, error;
	size_t all = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return fault("%s: %s", words[0], strerror(errno));
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
	/* SIGQUIT is blocked here: a thread waits for it. */
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	error = posix_spawnp(&pid, words[0], &files, &attr, words, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	close(ends[1]);
	while (!error && all < size && (n = read(ends[0], output + all, size - all)) > 0)
		all += n;
	close(ends[0]);
	if (error || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return fault("%s: %s", words[0], error ? strerror(error) : "it did not end well");
	if (all == size)
		return fault("%s: it says too much", words[0]);
	output[all] = 0;
	return WEXITSTATUS(status);
}

/* blkid and wipefs find nothing where they can't read. */
static int can_read(const char *path)
{
	static char buf[64 << 10];
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = -1;
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	off_t last = size > (off_t)sizeof(buf) ? size - (off_t)sizeof(buf) : 0;
	int error;

	if (size > 0 && pread(fd, buf, sizeof(buf), 0) > 0 && pread(fd, buf, sizeof(buf), last) > 0)
		ret = 0;
	error = size ? errno : ENODATA;
	if (fd >= 0)
		close(fd);
	errno = error;
	return ret;
}

/* The first word that is not "swap"; NULL: there is none. */
static const char *not_swap(char *words)
{
	char *rest, *word = strtok_r(words, " \n", &rest);

	while (word && !strcmp(word, "swap"))
		word = strtok_r(NULL, " \n", &rest);
	return word;
}

/*
 * wipefs names all signatures. blkid also knows some that have no magic number. But blkid ends with 2 both when it finds nothing
 * and when it finds several, so it can't be asked alone. -D: a partition is not judged by its entry in the partition table.
 */
int area_is_free(const char *name, const char *path)
{
	char *const wipefs[] = { "wipefs", "--noheadings", "--output", "TYPE", (char *)path, NULL };
	char *const blkid[] = { "blkid", "-p", "-D", "-o", "value", "-s", "TYPE", "-s", "PTTYPE", (char *)path, NULL };
	char all[512], one[512];
	const char *other;
	int code;

	if (can_read(path))
		return fault("device %s: %s can't be read: %s", name, path, strerror(errno));
	code = run(wipefs, all, sizeof(all));
	if (code)
		return fault("device %s: what %s holds can't be told: wipefs ended with %d", name, path, code);
	code = run(blkid, one, sizeof(one));
	if (code != 0 && code != 2)
		return fault("device %s: what %s holds can't be told: blkid -p ended with %d", name, path, code);
	other = not_swap(all);
	if (!other && (code == 2 ? !*one : !strcmp(one, "swap\n")))
		return 0;
	if (!other)
		other = not_swap(one);
	return fault("device %s: %s holds %s: name another disk, or empty this one: wipefs -a %s", name, path,
		     other ? other : "something that is not known", path);
}

/*
 * If the disk has failed, the device may owe it pages that nobody needs any more, and fails every flush until they are written or
 * discarded. mkswap flushes.
 */
static int make_area(char *path)
{
	char *const mkswap[] = { "mkswap", path, NULL }, *const blkdiscard[] = { "blkdiscard", "--force", path, NULL };
	char output[1024];

	return run(mkswap, output, sizeof(output)) &&
	       (run(blkdiscard, output, sizeof(output)) || run(mkswap, output, sizeof(output)));
}

int area_on(const struct conf_device *device)
{
	char path[RMEM_SWAP_NAME_SIZE + 8];
	int flags = SWAP_FLAG_PREFER | device->priority | (device->discard ? SWAP_FLAG_DISCARD : 0);
	uint64_t used;

	path_of(device->name, path);
	if (area_used(device->name, &used))
		return 0;
	if (area_is_free(device->name, path))
		return -1;
	if (make_area(path))
		return fault("device %s: mkswap %s failed", device->name, path);
	if (!swapon(path, flags))
		return 0;
	return fault("device %s: swapon %s: %s", device->name, path, strerror(errno));
}

/*
 * Returns 0 or an errno. EINVAL from swapoff() says that another process swaps the area off. This process waits for the other one,
 * as long as pages come back. If the other swapoff fails, the area is as it was, and is swapped off here.
 */
static int swap_off(const char *device, const char *path)
{
	const struct timespec pause = { .tv_nsec = 200000000 };
	int64_t since = now_ms();
	uint64_t used, least = UINT64_MAX;

	while (swapoff(path)) {
		int error = errno;

		if (error != EINVAL || now_ms() - since > SWAPOFF_PATIENCE_MS)
			return error;
		if (!area_used(device, &used))
			return 0;
		if (used < least) {
			least = used;
			since = now_ms();
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

pid_t area_off(const char *device)
{
	char path[RMEM_SWAP_NAME_SIZE + 8];
	sigset_t all, before;
	pid_t pid;

	path_of(device, path);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid = fork();
	if (pid)
		sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return fault("device %s: swapoff: %s", device, strerror(errno));
	if (pid)
		return pid;
	/* A signal would end the swapoff, and its handler is for the service alone. So are the open files. */
	close_range(STDERR_FILENO + 1, ~0U, 0);
	/* The swapoff brings pages in, so other pages may have to be written. */
	prctl(PR_SET_IO_FLUSHER, 0, 0, 0, 0);
	_exit(swap_off(device, path));
}
