// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The descriptors that a process tree has of one open file.
 */
#include "rdma.h"

void holders_add(struct holders *h, const struct proc_fd *fd)
{
	GROW(h->holder, h->n);
	h->holder[h->n].pid = fd->pid;
	h->holder[h->n++].fd = fd->fd;
}

bool holders_have(const struct holders *h, const struct proc_fd *fd)
{
	return proc_same_file(h->holder[0].pid, h->holder[0].fd, fd->pid, fd->fd);
}
