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
	return (x->number > y->number) - (x->number < y->number);
}

static int by_holder(const void *a, const void *b)
{
	const struct proc_end *x = a, *y = b;

	return by_file(a, b) ?: (x->pid > y->pid) - (x->pid < y->pid) ?: (x->fd > y->fd) - (x->fd < y->fd);
}

static int add_end(const struct proc_fd *fd, void *arg)
{
	struct proc_ends *all = arg;
	mode_t type = fd->st.st_mode & S_IFMT;

	if (type != S_IFIFO && type != S_IFSOCK && type != S_IFCHR)
		return 0;
	GROW(all->end, all->n);
	all->end[all->n++] = (struct proc_end){
		.type = type, .number = type == S_IFCHR ? fd->st.st_rdev : fd->st.st_ino, .pid = fd->pid, .fd = fd->fd,
	};
	return 0;
}

static void read_all(struct proc_ends *all)
{
	proc_each_fd_of_all(add_end, all);
	if (all->n)
		qsort(all->end, all->n, sizeof(*all->end), by_holder);
	all->read = true;
}

int proc_each_end(struct proc_ends *all, mode_t type, uint64_t number, int (*each)(const struct proc_end *, void *), void *arg)
{
	const struct proc_end key = { .type = type, .number = number }, *at;
	int ret = 0;

	if (!all->read)
		read_all(all);
	at = all->n ? bsearch(&key, all->end, all->n, sizeof(key), by_file) : NULL;
	while (at && at > all->end && !by_file(at - 1, &key))
		at--;
	for (; !ret && at && at < all->end + all->n && !by_file(at, &key); at++)
		ret = each(at, arg);
	return ret;
}

void proc_ends_free(struct proc_ends *all)
{
	free(all->end);
	*all = (struct proc_ends){ 0 };
}
