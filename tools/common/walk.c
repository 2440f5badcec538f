// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "walk.h"

static int each_number(const char *path, int (*each)(int, void *), void *arg)
{
	DIR *dir = opendir(path);
	struct dirent *de;
	int ret = 0;

	while (!ret && dir && (de = readdir(dir)))
		if (isdigit(de->d_name[0]))
			ret = each(atoi(de->d_name), arg);
	if (dir)
		closedir(dir);
	return ret;
}

int proc_each(int (*each)(pid_t, void *), void *arg)
{
	return each_number("/proc", each, arg);
}

int proc_each_thread(pid_t pid, int (*each)(pid_t, void *), void *arg)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	return each_number(path, each, arg);
}

struct children {
	pid_t pid;
	int (*each)(pid_t, void *);
	void *arg;
};

/* A thread that has ended meanwhile has no children. */
static int each_child_of(pid_t tid, void *arg)
{
	struct children *c = arg;
	int ret = 0, child;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", c->pid, tid);
	file = fopen(path, "re");
	while (!ret && file && fscanf(file, "%d", &child) == 1)
		ret = c->each(child, c->arg);
	if (file)
		fclose(file);
	return ret;
}

int proc_each_child(pid_t pid, int (*each)(pid_t, void *), void *arg)
{
	return proc_each_thread(pid, each_child_of, &(struct children){ pid, each, arg });
}

uint64_t proc_ns(pid_t pid, const char *kind)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kind);
	return stat(path, &st) ? 0 : st.st_ino;
}

struct pids {
	pid_t *pid;
	int n;
};

static int add_pid(pid_t pid, void *arg)
{
	struct pids *p = arg;
	pid_t *more = realloc(p->pid, (p->n + 1) * sizeof(*more));

	if (!more)
		return -1;
	p->pid = more;
	p->pid[p->n++] = pid;
	return 0;
}

int proc_read_tree(pid_t root, pid_t **pids)
{
	struct pids tree = { 0 };
	int ret = add_pid(root, &tree);

	for (int i = 0; !ret && i < tree.n; i++)
		ret = proc_each_child(tree.pid[i], add_pid, &tree);
	*pids = tree.pid;
	return ret ?: tree.n;
}

int stat_identity(int dir, const char *path, struct stat *st)
{
	struct statx sx;

	if (statx(dir, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &sx))
		return -1;
	*st = (struct stat){
		.st_dev = makedev(sx.stx_dev_major, sx.stx_dev_minor), .st_ino = sx.stx_ino, .st_mode = sx.stx_mode,
		.st_rdev = makedev(sx.stx_rdev_major, sx.stx_rdev_minor),
	};
	return 0;
}

int proc_get_fd(pid_t pid, int fd)
{
	int pidfd = pidfd_open(pid, 0), copy, saved;

	if (pidfd < 0)
		return -1;
	copy = pidfd_getfd(pidfd, fd, 0);
	saved = errno;
	close(pidfd);
	errno = saved;
	return copy;
}

bool proc_same_file(pid_t pid1, int fd1, pid_t pid2, int fd2)
{
	return proc_order_files(pid1, fd1, pid2, fd2) == 0;
}

int proc_order_files(pid_t pid1, int fd1, pid_t pid2, int fd2)
{
	long order = syscall(SYS_kcmp, pid1, pid2, KCMP_FILE, fd1, fd2);

	return order == 1 ? -1 : order != 0;
}

/* Read the number at *at, which must be followed by end, and move *at behind end. */
static bool number(char **at, int base, char end, uint64_t *value)
{
	char *stop;

	*value = strtoull(*at, &stop, base);
	if (stop == *at || *stop != end)
		return false;
	*at = stop + 1;
	return true;
}

/* A process has some thousand mappings, and sscanf() takes ten times as long as this function. */
bool proc_map_parse(pid_t pid, char *line, struct proc_map *map)
{
	uint64_t start, end, offset, major, minor, inode;
	char *at = line, *flags;

	line[strcspn(line, "\n")] = '\0';
	if (!number(&at, 16, '-', &start) || !number(&at, 16, ' ', &end))
		return false;
	flags = at;
	at += strcspn(at, " ");
	if (at - flags != 4 || !*at++ || !number(&at, 16, ' ', &offset) || !number(&at, 16, ':', &major) ||
	    !number(&at, 16, ' ', &minor) || !number(&at, 10, ' ', &inode))
		return false;
	at += strspn(at, " ");
	*map = (struct proc_map){
		.pid = pid, .start = start, .end = end, .offset = offset, .shared = flags[3] == 's',
		.flags = (flags[0] == 'r' ? MEMORY_READ : 0) | (flags[1] == 'w' ? MEMORY_WRITE : 0) |
			 (flags[3] == 's' ? MEMORY_SHARED : 0),
		.major = major, .minor = minor, .inode = inode, .path = *at ? at : NULL,
	};
	return true;
}

bool proc_map_same(const struct proc_map *a, const struct proc_map *b)
{
	return a->inode == b->inode && a->minor == b->minor && a->major == b->major &&
	       !strcmp(a->path ?: "", b->path ?: "");
}

void proc_map_path(const struct proc_map *map, char path[MAP_PATH_LEN])
{
	snprintf(path, MAP_PATH_LEN, "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, map->pid, map->start, map->end);
}

int proc_map_stat(const struct proc_map *map, struct stat *st)
{
	char path[MAP_PATH_LEN];

	proc_map_path(map, path);
	return stat(path, st);
}

/* The kernel's rule is in ib_access_writable(). */
unsigned int memory_needs(unsigned int access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND) ?
		MEMORY_WRITE : MEMORY_READ;
}

bool memory_is_mapped(const struct mapping *mapping, size_t n, uint64_t start, uint64_t length, unsigned int needs)
{
	uint64_t end = start + length;
	size_t low = 0, high = n, middle;

	/* the first mapping that ends behind the start */
	while (low < high) {
		middle = low + (high - low) / 2;
		if (mapping[middle].end <= start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; start < end && low < n && mapping[low].start <= start; low++) {
		if ((mapping[low].flags & needs) != needs)
			return false;
		start = mapping[low].end;
	}
	return start >= end;
}
