// SPDX-License-Identifier: GPL-2.0
/*
 * Processes outside of the tree that have a context, or a file of librdmacm, of
 * the tree open, too. Such a context outlives the tree, and would stay stopped
 * for them for ever. godwit looks for them before it starts CRIU
 * (tools/godwit/holders.c).
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "dump.h"

/* An open file of a process. */
struct open_file {
	pid_t		pid;
	int		fd;
	dev_t		rdev;
	enum file_kind	kind;
};

struct search {
	pid_t		*tree;
	int		num_tree;
	struct open_file *files;	/* of the tree, sorted by by_file() */
	uint32_t	num_files;
};

/* The number of the device whose file this is; 0: it is no device's. */
static dev_t device_number(int dir, const char *name)
{
	struct statx st;

	/* Do not ask the server of a file system: it may be slow or frozen. */
	if (statx(dir, name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) ||
	    !S_ISCHR(st.stx_mode))
		return 0;
	return makedev(st.stx_rdev_major, st.stx_rdev_minor);
}

/* Open files with one number are compared by kcmp(2), which has an order. */
static int by_file(const void *a, const void *b)
{
	const struct open_file *x = a, *y = b;

	if (x->rdev != y->rdev)
		return x->rdev < y->rdev ? -1 : 1;
	return proc_order_files(x->pid, x->fd, y->pid, y->fd);
}

static int add_file(pid_t pid, int fd, enum file_kind kind, const char *node,
		    void *arg)
{
	struct search *s = arg;
	struct open_file *file;
	char path[64];

	(void)node;
	if (kind != FILE_UVERBS && kind != FILE_RDMA_CM)
		return 0;
	file = append(&s->files, sizeof(*file), s->num_files);
	if (!file)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	*file = (struct open_file){ pid, fd, device_number(AT_FDCWD, path), kind };
	s->num_files++;
	return 0;
}

/*
 * Does the process have the file only while it looks at it? (Its program may
 * have been replaced since it was started.)
 */
static bool only_looks(pid_t pid)
{
	char path[64], exe[PATH_MAX], *deleted;
	const char *name;
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	length = readlink(path, exe, sizeof(exe) - 1);
	exe[length > 0 ? length : 0] = '\0';
	deleted = strstr(exe, " (deleted)");
	if (deleted)
		*deleted = '\0';
	name = strrchr(exe, '/');
	return name && (!strcmp(name, "/godwit") || !strcmp(name, "/criu"));
}

static int refuse_outsider(const struct search *s, const struct open_file *its)
{
	const struct open_file *file;

	file = bsearch(its, s->files, s->num_files, sizeof(*file), by_file);
	if (!file || only_looks(its->pid))
		return 0;
	return fail("process %d, descriptor %d: " WHY_OUTSIDER, file->pid,
		    file->fd, its->pid, file->kind == FILE_UVERBS ?
		    "context open" : "file of librdmacm open");
}

static bool in_tree(const struct search *s, pid_t pid)
{
	int i;

	for (i = 0; i < s->num_tree; i++)
		if (s->tree[i] == pid)
			return true;
	return false;
}

static int look_at(pid_t pid, void *arg)
{
	const struct search *s = arg;
	struct open_file file = { .pid = pid };
	struct dirent *de;
	char path[64];
	int ret = 0;
	DIR *dir;

	if (pid == getpid() || in_tree(s, pid))
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (!ret && dir && (de = readdir(dir))) {
		if (!isdigit(de->d_name[0]))
			continue;
		file.fd = atoi(de->d_name);
		file.rdev = device_number(dirfd(dir), de->d_name);
		if (file.rdev)
			ret = refuse_outsider(s, &file);
	}
	if (dir)
		closedir(dir);
	return ret;
}

/* The tree is frozen, so nobody else gets such a file from now on. */
int refuse_outsiders(void)
{
	static bool done;
	struct search s = {};
	int i, ret;

	if (done || getenv("GODWIT_HOLDS"))
		return 0;
	done = true;
	s.num_tree = read_tree(dump.root, &s.tree);
	ret = s.num_tree < 0 ? -1 : 0;
	for (i = 0; !ret && i < s.num_tree; i++)
		ret = for_each_fd(s.tree[i], add_file, &s);
	if (!ret && s.num_files) {
		qsort(s.files, s.num_files, sizeof(*s.files), by_file);
		ret = proc_each(look_at, &s);
	}
	free(s.files);
	free(s.tree);
	return ret;
}
