// SPDX-License-Identifier: GPL-2.0
/*
 * Processes outside of the tree that have a context, or a file of librdmacm, of
 * the tree open, too. Such a context outlives the tree, and would stay stopped
 * for them for ever. godwit looks for them before it starts CRIU
 * (tools/godwit/holders.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dump.h"

/* An open file of a process. */
struct open_file {
	pid_t		pid;
	int		fd;
	enum file_kind	kind;
	char		node[NODE_LEN];
};

struct search {
	pid_t		*tree;
	int		num_tree;
	struct open_file *files;	/* of the tree, sorted by by_file() */
	uint32_t	num_files;
};

/* Open files of one device are compared by kcmp(2), which has an order. */
static int by_file(const void *a, const void *b)
{
	const struct open_file *x = a, *y = b;

	return strcmp(x->node, y->node) ?:
		proc_order_files(x->pid, x->fd, y->pid, y->fd);
}

static int add_file(pid_t pid, int fd, enum file_kind kind, const char *node,
		    void *arg)
{
	struct search *s = arg;
	struct open_file *file;

	if (kind != FILE_UVERBS && kind != FILE_RDMA_CM)
		return 0;
	file = append(&s->files, sizeof(*file), s->num_files);
	if (!file)
		return -1;
	*file = (struct open_file){ .pid = pid, .fd = fd, .kind = kind };
	strcpy(file->node, node);
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

static int refuse_outsider(pid_t pid, int fd, enum file_kind kind,
			   const char *node, void *arg)
{
	struct open_file its = { .pid = pid, .fd = fd, .kind = kind };
	const struct search *s = arg;
	const struct open_file *file;

	strcpy(its.node, node);
	file = bsearch(&its, s->files, s->num_files, sizeof(*file), by_file);
	if (!file || only_looks(pid))
		return 0;
	return fail("process %d, descriptor %d: " WHY_OUTSIDER, file->pid,
		    file->fd, pid, kind == FILE_UVERBS ?
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
	if (pid == getpid() || in_tree(arg, pid))
		return 0;
	return for_each_fd(pid, refuse_outsider, arg);
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
	s.num_tree = proc_read_tree(dump.root, &s.tree);
	ret = s.num_tree < 0 ? fail("no memory") : 0;
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
