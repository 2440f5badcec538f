// SPDX-License-Identifier: GPL-2.0
/*
 * Device files. CRIU reads the number of a device on this host from the host's
 * sysfs. A task opens the file that has this number, whatever its name is in
 * the container: minors differ between hosts, and the files that CRIU has put
 * back into the container's /dev have the source's. If there is no such file,
 * the task makes it, under the name that libibverbs will look for. The control
 * group still says who may open it. A file is needed, since the mapping of a
 * ring that has no path could not be checkpointed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "restore.h"

static sem_t *lock;	/* one task at a time looks for a file, or makes it */

/* ----------------------------------------------------------------- in CRIU -- */

static int share_lock(void)
{
	sem_t *new;

	if (lock)
		return 0;
	new = share(sizeof(*new));
	if (!new || make_lock(new))
		return -1;
	lock = new;
	return 0;
}

static void set_access(struct node *node, const struct stat *st)
{
	node->mode = st->st_mode & 0777;
	node->uid = st->st_uid;
	node->gid = st->st_gid;
}

static int read_node(const char *path, struct node *node)
{
	char at[sizeof(NODES) + NODE_LEN + 1];
	FILE *file = fopen(path, "re");
	unsigned int major, minor;
	struct stat st;
	int got;

	if (!file)
		return fail("%s cannot be read: %m", path);
	got = fscanf(file, "%u:%u", &major, &minor);
	fclose(file);
	if (got != 2)
		return fail("%s makes no sense", path);
	node->rdev = makedev(major, minor);
	snprintf(at, sizeof(at), NODES "/%s", node->name);
	if (stat(at, &st))
		st = (struct stat){ .st_mode = 0600 };
	set_access(node, &st);
	return share_lock();
}

int find_node(const char *device, struct node *node)
{
	char path[sizeof(VERBS_CLASS) + NODE_LEN + 8];

	if (!device_node(device, node->name))
		return fail("%s: this host has no device file for it", device);
	snprintf(path, sizeof(path), VERBS_CLASS "/%s/dev", node->name);
	return read_node(path, node);
}

int find_cm_node(struct node *node)
{
	strcpy(node->name, "rdma_cm");
	if (access(RDMA_CM_NUMBER, F_OK))
		return fail("this host has no " NODES "/rdma_cm: modprobe rdma_ucm");
	return read_node(RDMA_CM_NUMBER, node);
}

/* ----------------------------------------------------------------- in a task -- */

static bool is_node(const struct node *node, const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == node->rdev;
}

/*
 * Find the node's file, whatever its name is, and copy this name to name. A
 * file that is being made, whose name begins with a dot, is skipped. The file
 * is opened by O_PATH only: the container may change names at any moment, and
 * no other file must be opened for use.
 */
static int find_file(int dir, const struct node *node, char name[NAME_MAX + 1])
{
	struct dirent *de;
	struct stat st;
	int fd, at = -1;
	DIR *entries;

	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	entries = fd < 0 ? NULL : fdopendir(fd);
	if (!entries) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while (at < 0 && (de = readdir(entries))) {
		if (de->d_name[0] == '.')
			continue;
		at = openat(dir, de->d_name, O_PATH | O_CLOEXEC);
		if (at < 0)
			continue;
		strcpy(name, de->d_name);
		if (!fstat(at, &st) && is_node(node, &st))
			break;
		close(at);
		at = -1;
	}
	closedir(entries);
	return at;
}

/*
 * Make the file with this host's number, and with the access rights that it has
 * on this host. A file of this name has the source's number, since CRIU has put
 * back what the container's /dev had: replace it, and keep its rights.
 */
static int put_file(int dir, const struct node *node)
{
	struct node as = *node;
	char new[NODE_LEN + 16];
	struct stat st;
	mode_t mask;
	int err;

	if (!fstatat(dir, node->name, &st, AT_SYMLINK_NOFOLLOW)) {
		if (!S_ISCHR(st.st_mode))
			return EEXIST;
		set_access(&as, &st);
	}
	snprintf(new, sizeof(new), ".%s.%d", node->name, getpid());
	/* A restore that was killed may have left this file. */
	unlinkat(dir, new, 0);
	mask = umask(0);
	err = mknodat(dir, new, S_IFCHR | as.mode, as.rdev) ? errno : 0;
	umask(mask);
	if (err)
		return err;
	if (!fchownat(dir, new, as.uid, as.gid, AT_SYMLINK_NOFOLLOW) &&
	    !renameat(dir, new, dir, node->name))
		return 0;
	err = errno;
	unlinkat(dir, new, 0);
	return err;
}

static int make_file(int dir, const struct node *node)
{
	const unsigned int number[] = { major(node->rdev), minor(node->rdev) };
	int err = put_file(dir, node);

	if (!err)
		return 0;
	if (err == EPERM)
		return fail(NODES "/%s is not there for the restored process, and its device control group lets nobody make it: that needs the rule 'c %u:%u rwm', as by podman run --device-cgroup-rule 'c %u:* rwm'",
			    node->name, number[0], number[1], number[0]);
	return fail(NODES "/%s is not there for the restored process, and cannot be made: %s: mknod " NODES "/%s c %u %u, in its container",
		    node->name, strerror(err), node->name, number[0], number[1]);
}

/* Open the file that was found, even if another file has its name by now. */
static int open_path(int at, int dir, const char *name, int flags)
{
	char path[32];
	int fd;

	flags |= O_CLOEXEC | O_NOCTTY;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	fd = open(path, flags);
	/* A container without /proc does not have this path. */
	return fd < 0 && errno == ENOENT ? openat(dir, name, flags) : fd;
}

static int open_file(int at, int dir, const char *name, const struct node *node,
		     int flags)
{
	const unsigned int number[] = { major(node->rdev), minor(node->rdev) };
	struct stat st;
	int fd;

	fd = open_path(at, dir, name, flags);
	if (fd < 0 && errno == EPERM)
		return fail(NODES "/%s cannot be opened: the device control group lacks the rule 'c %u:%u rw', as by podman run --device " NODES "/%s, or for any host --device-cgroup-rule 'c %u:* rwm'; or, with netns exclusive, it is another network namespace's",
			    name, number[0], number[1], name, number[0]);
	if (fd < 0)
		return fail(NODES "/%s cannot be opened: %m", name);
	if (!fstat(fd, &st) && is_node(node, &st))
		return fd;
	close(fd);
	return fail(NODES "/%s is not device %u:%u", name, number[0], number[1]);
}

static int find_or_make(int dir, const struct node *node,
			char name[NAME_MAX + 1])
{
	int at = find_file(dir, node, name);

	if (at >= 0)
		return at;
	if (make_file(dir, node))
		return -1;
	at = find_file(dir, node, name);
	if (at < 0)
		fail(NODES "/%s was made for the restored process, and is gone",
		     node->name);
	return at;
}

int open_node(const struct node *node, int flags)
{
	char name[NAME_MAX + 1];
	int dir, at, fd = -1;

	/* A link that the container made is not followed. */
	dir = open(NODES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return fail(NODES " cannot be read by the restored process: %m: its container needs it, with %s (c %u %u) in it",
			    node->name, major(node->rdev), minor(node->rdev));
	/*
	 * Two tasks that make the file at once would each replace the other's,
	 * and an open file that was replaced has no path.
	 */
	if (take_lock(lock, "another task does not get done with " NODES))
		goto close_dir;
	at = find_or_make(dir, node, name);
	if (at >= 0) {
		fd = open_file(at, dir, name, node, flags);
		close(at);
	}
	leave_lock(lock);
close_dir:
	close(dir);
	return fd;
}
