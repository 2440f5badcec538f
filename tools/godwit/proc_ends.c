// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Who has a pipe, a socket or a character device open? All processes of the host are read for this, once.
 */
#include <stdlib.h>
#include "proc.h"

static int by_file(const void *a, const void *b)
{
	const struct proc_end *x = a, *y = b;

	if (x->type != y->type)
		return x->type < y->type ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return (x->fd > y->fd) - (x->fd < y->fd);
}

static int add_end(const struct proc_fd *fd, void *arg)
{
	struct proc_ends *all = arg;
	mode_t type = fd->st.st_mode & S_IFMT;

	if (type != S_IFIFO && type != S_IFSOCK && type != S_IFCHR)
		return 0;
	GROW(all->end, all->n);
	all->end[all->n++] = (struct proc_end){
		.type = type, .dev = fd->st.st_dev, .ino = fd->st.st_ino, .pid = fd->pid, .fd = fd->fd,
	};
	return 0;
}

static void read_all(struct proc_ends *all)
{
	proc_each_fd_of_all(add_end, all);
	if (all->n)
		qsort(all->end, all->n, sizeof(*all->end), by_file);
	all->read = true;
}

int proc_each_end(struct proc_ends *all, mode_t type, ino_t ino, int (*each)(const struct proc_end *, void *), void *arg)
{
	const struct proc_end first = { .type = type, .ino = ino };
	size_t low = 0, high;
	int ret = 0;

	if (!all->read)
		read_all(all);
	for (high = all->n; low < high;) {
		size_t middle = (low + high) / 2;

		if (by_file(&all->end[middle], &first) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; !ret && low < all->n && all->end[low].type == type && all->end[low].ino == ino; low++)
		ret = each(&all->end[low], arg);
	return ret;
}

void proc_ends_free(struct proc_ends *all)
{
	free(all->end);
	*all = (struct proc_ends){ 0 };
}
