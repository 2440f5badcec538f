// SPDX-License-Identifier: GPL-2.0
/* What a process has open and mapped, as /proc and /sys tell it. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "plugin.h"

#define EVENT_FILE "anon_inode:[infinibandevent]"

/* ------------------------------------------------------------------ files -- */

/*
 * Devices are told apart by their number: a container may give them any name.
 * sysfs has ../../devices/.../infiniband_verbs/uverbs0 for it.
 */
enum file_kind device_kind(dev_t rdev, char node[NODE_LEN])
{
	char path[64], link[PATH_MAX], *name, *class;
	ssize_t len;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u", major(rdev),
		 minor(rdev));
	len = readlink(path, link, sizeof(link) - 1);
	if (len < 0)
		return FILE_NOT_RDMA;
	link[len] = '\0';

	name = strrchr(link, '/');
	if (!name)
		return FILE_NOT_RDMA;
	*name++ = '\0';
	class = strrchr(link, '/');
	if (!class || strlen(name) >= NODE_LEN)
		return FILE_NOT_RDMA;
	class++;

	strcpy(node, name);
	if (!strcmp(class, "infiniband_verbs"))
		return FILE_UVERBS;
	if (!strcmp(class, "infiniband_mad"))
		return FILE_OTHER_RDMA;
	if (!strcmp(class, "misc") && !strcmp(name, "rdma_cm"))
		return FILE_RDMA_CM;
	return FILE_NOT_RDMA;
}

int device_name(const char *node, char name[64])
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), VERBS_CLASS "/%s/ibdev", node);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (!fgets(name, 64, file))
		name[0] = '\0';
	fclose(file);
	name[strcspn(name, "\n")] = '\0';
	return 0;
}

enum file_kind fd_kind(pid_t pid, int fd, char node[NODE_LEN])
{
	char path[64], link[sizeof(EVENT_FILE)] = "";
	struct statx st;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	else
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	node[0] = '\0';
	/* (no file system's server is asked: it may be slow, or among the frozen) */
	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE, &st))
		return FILE_NOT_RDMA;
	if (S_ISCHR(st.stx_mode))
		return device_kind(makedev(st.stx_rdev_major, st.stx_rdev_minor),
				   node);
	if (readlink(path, link, sizeof(link)) == sizeof(EVENT_FILE) - 1 &&
	    !memcmp(link, EVENT_FILE, sizeof(EVENT_FILE) - 1))
		return FILE_EVENTS;
	return FILE_NOT_RDMA;
}

/*
 * It may have ended: CRIU knows that children do while it looks for them. What
 * cannot be read otherwise is found later, as a context that nobody has stopped.
 */
static bool has_no_files(int err)
{
	return err == ENOENT || err == ESRCH || err == EACCES;
}

int for_each_fd(pid_t pid, fd_fn *fn, void *arg)
{
	char path[64], node[NODE_LEN];
	enum file_kind kind;
	struct dirent *de;
	int ret = 0, fd;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return has_no_files(errno) ? 0 : fail("%s cannot be read: %m", path);
	while (!ret && (de = readdir(dir))) {
		if (!isdigit(de->d_name[0]))
			continue;
		fd = atoi(de->d_name);
		kind = fd_kind(pid, fd, node);
		if (kind != FILE_NOT_RDMA)
			ret = fn(pid, fd, kind, node, arg);
	}
	closedir(dir);
	return ret;
}

static int count_file(pid_t pid, int fd, enum file_kind kind, const char *node,
		      void *arg)
{
	(void)pid;
	(void)fd;
	(void)node;
	*(int *)arg += kind == FILE_UVERBS || kind == FILE_EVENTS ||
		       kind == FILE_RDMA_CM;
	return 0;
}

int count_files(pid_t pid)
{
	int count = 0;

	return for_each_fd(pid, count_file, &count) ? -1 : count;
}

int take_fd(pid_t pid, int fd)
{
	int pidfd, taken, saved;

	pidfd = syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return -1;
	taken = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	saved = errno;
	close(pidfd);
	errno = saved;
	return taken;
}

bool same_file(int fd1, int fd2)
{
	return !syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, fd1, fd2);
}

bool in_image_dir(const char *name)
{
	return !faccessat(criu_get_image_dir(), name, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* --------------------------------------------------------------- mappings -- */

/* Whose device? map_files leads to the file whatever its name is. */
static bool is_uverbs(pid_t pid, struct mapping *m)
{
	char path[96];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", pid,
		 (unsigned long long)m->start, (unsigned long long)m->end);
	return !stat(path, &st) && S_ISCHR(st.st_mode) &&
	       device_kind(st.st_rdev, m->node) == FILE_UVERBS;
}

/*
 * A file that is mapped, most of them more than once. Device and inode are not
 * enough: of a btrfs, /proc gives the same device for all subvolumes.
 */
struct mapped_file {
	unsigned int		major, minor;
	unsigned long long	inode;
	char			*path;
	int			mapping;	/* the first one of it */
};

static bool same_mapped(const struct mapped_file *a, const struct mapped_file *b)
{
	return a->inode == b->inode && a->minor == b->minor &&
	       a->major == b->major && !strcmp(a->path, b->path);
}

static void free_files(struct mapped_file *files, int count)
{
	while (count--)
		free(files[count].path);
	free(files);
}

int read_mappings(pid_t pid, struct mapping **mappings)
{
	unsigned long long start, end, pgoff;
	struct mapped_file file_of, *files = NULL, *f;
	struct mapping *array = NULL, *m;
	char path[64], flags[5], *line = NULL;
	int count = 0, room = 0, num_files = 0, at;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	file = fopen(path, "re");
	if (!file)
		return fail("%s cannot be read: %m", path);
	while (getline(&line, &size, file) > 0) {
		if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &start, &end,
			   flags, &pgoff, &file_of.major, &file_of.minor,
			   &file_of.inode, &at) != 7)
			continue;
		if (count == room) {
			room = room ? 2 * room : 64;
			m = realloc(array, room * sizeof(*m));
			f = m ? realloc(files, room * sizeof(*f)) : NULL;
			array = m ?: array;
			files = f ?: files;
			if (!f)
				goto no_memory;
		}
		m = &array[count];
		*m = (struct mapping){
			.start = start, .end = end, .pgoff = pgoff,
			.shared = flags[3] == 's',
		};
		file_of.path = line + at;
		file_of.mapping = count++;
		if (!file_of.inode)
			continue;
		for (f = files; f < files + num_files && !same_mapped(f, &file_of); f++)
			;
		if (f < files + num_files) {
			m->uverbs = array[f->mapping].uverbs;
			strcpy(m->node, array[f->mapping].node);
		} else {
			m->uverbs = is_uverbs(pid, m);
			file_of.path = strdup(file_of.path);
			if (!file_of.path)
				goto no_memory;
			files[num_files++] = file_of;
		}
	}
	free_files(files, num_files);
	free(line);
	fclose(file);
	*mappings = array;
	return count;
no_memory:
	free_files(files, num_files);
	free(line);
	fclose(file);
	free(array);
	return fail("no memory");
}

/* -------------------------------------------------------------- processes -- */

pid_t inner_pid(pid_t pid)
{
	char path[64], line[256], *last;
	pid_t inner = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "NSpid:", 6))
			continue;
		last = strrchr(line, '\t');
		if (last)
			inner = atoi(last);
		break;
	}
	fclose(file);
	return inner;
}

/* Append the children of a process's thread. */
static int read_children(const char *path, pid_t **pids, int count)
{
	FILE *file = fopen(path, "re");
	pid_t *more;
	int child;

	if (!file)
		return count;	/* the thread has ended */
	while (fscanf(file, "%d", &child) == 1) {
		more = realloc(*pids, (count + 1) * sizeof(*more));
		if (!more) {
			fclose(file);
			return fail("no memory");
		}
		*pids = more;
		more[count++] = child;
	}
	fclose(file);
	return count;
}

int read_tree(pid_t root, pid_t **pids)
{
	char path[sizeof("/proc//task//children") + 32 + NAME_MAX];
	struct dirent *de;
	int count = 1, i;
	DIR *dir;

	*pids = malloc(sizeof(**pids));
	if (!*pids)
		return fail("no memory");
	(*pids)[0] = root;

	for (i = 0; i >= 0 && i < count; i++) {
		snprintf(path, sizeof(path), "/proc/%d/task", (*pids)[i]);
		dir = opendir(path);
		if (!dir)
			continue;
		while (count > 0 && (de = readdir(dir))) {
			if (!isdigit(de->d_name[0]))
				continue;
			snprintf(path, sizeof(path), "/proc/%d/task/%s/children",
				 (*pids)[i], de->d_name);
			count = read_children(path, pids, count);
		}
		closedir(dir);
	}
	return count;
}
