// SPDX-License-Identifier: GPL-2.0
/*
 * Files of librdmacm. One without ids is a new one; but the kernel lets only
 * who opened it write() to it, and a task opens its files before CRIU has given
 * it its credentials. So it becomes the task's when these are as they will be,
 * with the driver's help.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin.h"

#define RDMA_CM "/dev/infiniband/rdma_cm"

/* ------------------------------------------------------------- checkpoint -- */

struct cm_file {
	int	fd;		/* ours */
	pid_t	pid;		/* of the tasks that have it open, the first */
};

static struct {
	struct ibv_context *ctx;	/* to ask its driver */
	struct cm_file	*files;
	uint32_t	num_files;
} cm;

static const struct cm_file *find_cm_file(int fd)
{
	uint32_t i;

	for (i = 0; i < cm.num_files; i++)
		if (same_file(cm.files[i].fd, fd))
			return &cm.files[i];
	return NULL;
}

static int check_ids(pid_t pid, int fd, int mine)
{
	int count, ret;

	if (!cm.ctx)
		cm.ctx = open_any_device();
	if (!cm.ctx)
		return fail("process %d has " RDMA_CM " open (file %d): no device here has Godwit's driver, which could tell whether it has connections",
			    pid, fd);
	ret = ibv_query_cm_ids(cm.ctx, mine, &count, NULL, 0);
	if (ret && ret != ENOSPC)
		return fail("process %d, " RDMA_CM " (file %d): the driver does not tell its ids: %s",
			    pid, fd, strerror(ret));
	if (count)
		return fail("process %d, " RDMA_CM " (file %d): ids of librdmacm, of which it has %d, cannot be moved yet: destroy them before",
			    pid, fd, count);
	return 0;
}

/* The tasks are frozen: its ids are all that it will have. */
int look_at_cm(pid_t pid, int fd)
{
	struct cm_file *file;
	int mine;

	mine = take_fd(pid, fd);
	if (mine < 0)
		return fail("file %d of process %d cannot be opened: %m", fd, pid);
	if (find_cm_file(mine)) {
		close(mine);
		return 0;
	}
	file = append(&cm.files, sizeof(*file), cm.num_files);
	if (!file || check_ids(pid, fd, mine)) {
		close(mine);
		return -1;
	}
	file->fd = mine;
	file->pid = pid;
	cm.num_files++;
	return 0;
}

static int need_cm(RdmaInventoryEntry *inventory)
{
	char **slot;

	if (inventory->n_cm_files > 1)
		return 0;
	slot = append(&inventory->needs, sizeof(*slot), inventory->n_needs);
	if (!slot)
		return -1;
	*slot = NEEDS_RDMA_CM;
	inventory->n_needs++;
	return 0;
}

int dump_cm_file(int fd, int id, RdmaInventoryEntry *inventory)
{
	const struct cm_file *file = find_cm_file(fd);
	RdmaCmFileEntry *entry;
	int flags;

	if (!file)
		return fail(RDMA_CM ": a file turned up after all were looked at");
	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return fail("the flags of a file cannot be read: %m");
	entry = append_message(&inventory->cm_files, &inventory->n_cm_files,
			       &rdma_cm_file_entry__descriptor);
	if (!entry || need_cm(inventory))
		return -1;
	entry->id = id;
	entry->flags = flags;
	entry->pid = inner_pid(file->pid);
	return write_inventory(inventory);
}

void end_cm(void)
{
	uint32_t i;

	for (i = 0; i < cm.num_files; i++)
		close(cm.files[i].fd);
	cm.num_files = 0;
	ibv_detach_context(cm.ctx);
	cm.ctx = NULL;
}

/* ---------------------------------------------------------------- restore -- */

static int *numbers;	/* in the store, as the inventory counts; all tasks share it */

int share_cm_files(void)
{
	size_t i, count = saved.inventory->n_cm_files;

	if (!count)
		return 0;
	cm.ctx = open_any_device();
	if (!cm.ctx)
		return fail(RDMA_CM ": a restored process can use it only with the help of Godwit's driver, of which there is no device here: rdma link add rxe0 type rxe netdev INTERFACE");
	end_cm();
	numbers = mmap(NULL, count * sizeof(*numbers), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (numbers == MAP_FAILED)
		return fail("no memory");
	for (i = 0; i < count; i++)
		numbers[i] = -1;
	return 0;
}

static int open_cm(uint32_t flags)
{
	char node[NODE_LEN];
	int fd;

	fd = open(RDMA_CM, (flags & O_ACCMODE) | O_CLOEXEC);
	if (fd < 0)
		return fail(RDMA_CM " cannot be opened: %m: is the module rdma_ucm loaded?");
	if (fd_kind(0, fd, node) != FILE_RDMA_CM)
		fail(RDMA_CM " is not that device here");
	else if (fcntl(fd, F_SETFL, flags))
		fail("the flags of a file cannot be set: %m");
	else
		return fd;
	close(fd);
	return -1;
}

/* CRIU takes over what is returned, and gives it its number. */
int restore_cm_file(int id)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	size_t i;
	int fd;

	for (i = 0; i < inventory->n_cm_files; i++)
		if (inventory->cm_files[i]->id == (uint32_t)id)
			break;
	if (i == inventory->n_cm_files)
		return -ENOTSUP;
	fd = open_cm(inventory->cm_files[i]->flags);
	if (fd < 0)
		return -1;
	numbers[i] = store_put(fd);
	if (numbers[i] >= 0)
		return fd;
	close(fd);
	return -1;
}

static int adopt(size_t i, pid_t pid)
{
	int fd, ret;

	if (numbers[i] < 0)
		return fail("no task has asked for file %u, of " RDMA_CM,
			    saved.inventory->cm_files[i]->id);
	fd = store_get(numbers[i]);
	if (fd < 0)
		return -1;
	ret = ibv_adopt_cm_file(cm.ctx, fd, pid);
	close(fd);
	return ret ? fail(RDMA_CM ": the file cannot be given to process %d: %s",
			  pid, strerror(ret)) : 0;
}

/* In CRIU, when the tasks have got their credentials. */
int adopt_cm_files(find_pid_fn *find, const void *arg)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	int ret = 0;
	pid_t pid;
	size_t i;

	if (!inventory->n_cm_files)
		return 0;
	cm.ctx = open_any_device();
	if (!cm.ctx)
		return fail(RDMA_CM ": no device here has Godwit's driver any more");
	for (i = 0; !ret && i < inventory->n_cm_files; i++) {
		pid = find(arg, inventory->cm_files[i]->pid);
		ret = pid < 0 ? -1 : adopt(i, pid);
	}
	end_cm();
	return ret;
}
