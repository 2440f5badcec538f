// SPDX-License-Identifier: GPL-2.0
/* What a process has open and mapped, as /proc and /sys tell it. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin.h"

/* ------------------------------------------------------------------ files -- */

static enum file_kind kind_at(int dir, const char *name, char node[NODE_LEN])
{
	char link[sizeof(EVENT_FILE)] = "";
	struct stat st;

	node[0] = '\0';
	if (stat_identity(dir, name, &st))
		return FILE_NOT_RDMA;
	if (S_ISCHR(st.st_mode))
		return device_kind(st.st_rdev, node);
	if (readlinkat(dir, name, link, sizeof(link)) == sizeof(EVENT_FILE) - 1 &&
	    !memcmp(link, EVENT_FILE, sizeof(EVENT_FILE) - 1))
		return FILE_EVENTS;
	return FILE_NOT_RDMA;
}

enum file_kind fd_kind(pid_t pid, int fd, char node[NODE_LEN])
{
	char path[64];

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	else
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return kind_at(AT_FDCWD, path, node);
}

/*
 * The process may have ended: CRIU accepts that children end while it looks for
 * them. If its files can't be read for another reason, a context among them is
 * found later, as one that nobody has stopped, and the dump fails.
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
	int ret = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return has_no_files(errno) ? 0 : fail("%s cannot be read: %m", path);
	while (!ret && (de = readdir(dir))) {
		if (!isdigit(de->d_name[0]))
			continue;
		kind = kind_at(dirfd(dir), de->d_name, node);
		if (kind != FILE_NOT_RDMA)
			ret = fn(pid, atoi(de->d_name), kind, node, arg);
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

bool same_file(int fd1, int fd2)
{
	return proc_same_file(getpid(), fd1, getpid(), fd2);
}

bool in_image_dir(const char *name)
{
	return !faccessat(criu_get_image_dir(), name, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* --------------------------------------------------------------- mappings -- */

static bool is_uverbs(const struct proc_map *map, char node[NODE_LEN])
{
	struct stat st;

	return !proc_map_stat(map, &st) && S_ISCHR(st.st_mode) &&
	       device_kind(st.st_rdev, node) == FILE_UVERBS;
}

/*
 * A file that is mapped. Most are mapped more than once. Device and inode do
 * not tell files apart: for a btrfs, /proc gives the same device for all
 * subvolumes.
 */
struct mapped_file {
	unsigned int	major, minor;
	unsigned long	inode;
	char		*path;
	int		mapping;	/* index of its first mapping */
};

static bool is_of(const struct mapped_file *f, const struct proc_map *map)
{
	return f->inode == map->inode && f->minor == map->minor &&
	       f->major == map->major && !strcmp(f->path, map->path ?: "");
}

struct reading {
	struct mapping	*mappings;
	int		count, room;
	struct mapped_file *files;
	int		num_files;
};

static bool make_room(struct reading *r)
{
	int room = r->room ? 2 * r->room : 64;
	struct mapping *m;
	struct mapped_file *f;

	if (r->count < r->room)
		return true;
	m = realloc(r->mappings, room * sizeof(*m));
	r->mappings = m ?: r->mappings;
	f = m ? realloc(r->files, room * sizeof(*f)) : NULL;
	r->files = f ?: r->files;
	if (f)
		r->room = room;
	return f;
}

/* Note in m which device it maps, asked once a file. False: no memory. */
static bool see_device(struct reading *r, const struct proc_map *map,
		       struct mapping *m)
{
	struct mapped_file *f;

	for (f = r->files; f < r->files + r->num_files && !is_of(f, map); f++)
		;
	if (f < r->files + r->num_files) {
		m->uverbs = r->mappings[f->mapping].uverbs;
		strcpy(m->node, r->mappings[f->mapping].node);
		return true;
	}
	m->uverbs = is_uverbs(map, m->node);
	*f = (struct mapped_file){
		.major = map->major, .minor = map->minor, .inode = map->inode,
		.path = strdup(map->path ?: ""), .mapping = m - r->mappings,
	};
	r->num_files += !!f->path;
	return f->path;
}

static bool add_mapping(struct reading *r, const struct proc_map *map)
{
	struct mapping *m;

	if (!make_room(r))
		return false;
	m = &r->mappings[r->count++];
	*m = (struct mapping){
		.start = map->start, .end = map->end, .pgoff = map->offset,
		.flags = map->flags,
	};
	return !map->inode || see_device(r, map, m);
}

int read_mappings(pid_t pid, struct mapping **mappings)
{
	char path[64], *line = NULL;
	struct reading r = {};
	struct proc_map map;
	bool memory = true;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	file = fopen(path, "re");
	if (!file)
		return fail("%s cannot be read: %m", path);
	while (memory && getline(&line, &size, file) > 0)
		memory = !proc_map_parse(pid, line, &map) || add_mapping(&r, &map);
	while (r.num_files)
		free(r.files[--r.num_files].path);
	free(r.files);
	free(line);
	fclose(file);
	if (!memory) {
		free(r.mappings);
		return fail("no memory");
	}
	*mappings = r.mappings;
	return r.count;
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
