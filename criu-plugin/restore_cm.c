// SPDX-License-Identifier: GPL-2.0
/*
 * Files of librdmacm. They are opened anew. But only a process with the
 * credentials with which such a file was opened can write() to it, and a task
 * opens its files before CRIU has given it its credentials. So when the tasks
 * have their credentials, the driver makes each file its task's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "restore.h"

static struct ibv_context *driver;	/* of any device, to call the driver */
static struct node cm_node;
static int *numbers;	/* in the store, in the inventory's order; all tasks have it */

/* otherwise: what to say if something else than the key is missing */
static int find_driver(const char *otherwise)
{
	if (driver)
		return 0;
	driver = open_any_device();
	if (driver)
		return 0;
	return errno == ENOKEY ? fail(NO_KEY) : fail(RDMA_CM ": %s", otherwise);
}

static void leave_driver(void)
{
	ibv_detach_context(driver);
	driver = NULL;
}

int share_cm_files(void)
{
	size_t i, count = saved.inventory->n_cm_files;

	if (!count)
		return 0;
	if (find_driver("a restored process can use it only with the help of Godwit's driver, of which there is no device here: rdma link add rxe0 type rxe netdev INTERFACE"))
		return -1;
	leave_driver();
	if (find_cm_node(&cm_node))
		return -1;
	numbers = share(count * sizeof(*numbers));
	if (!numbers)
		return -1;
	for (i = 0; i < count; i++)
		numbers[i] = -1;
	return 0;
}

static int open_cm(uint32_t flags)
{
	int fd = open_node(&cm_node, flags & O_ACCMODE);

	if (fd < 0 || !fcntl(fd, F_SETFL, flags))
		return fd;
	fail("the flags of a file cannot be set: %m");
	close(fd);
	return -1;
}

/* CRIU takes over the returned descriptor, and gives it the task's number. */
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
	ret = ibv_adopt_cm_file(driver, fd, pid);
	close(fd);
	return ret ? fail(RDMA_CM ": the file cannot be given to process %d: %s",
			  pid, strerror(ret)) : 0;
}

/* Add the ids of a file. Meanwhile the file is CRIU's. */
static int add_ids(size_t i, pid_t pid, struct made_id **ids, size_t *count)
{
	const RdmaCmFileEntry *file = saved.inventory->cm_files[i];
	struct made_id *made;
	size_t j;
	int fd;

	if (pid < 0 || adopt(i, getpid()))
		return -1;
	fd = store_get(numbers[i]);
	for (j = 0; fd >= 0 && j < file->n_ids; j++) {
		made = append(ids, sizeof(**ids), *count);
		if (!made)
			break;
		made->saved = file->ids[j];
		made->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		made->pid = pid;
		++*count;
	}
	if (fd >= 0)
		close(fd);
	return j < file->n_ids ? -1 : 0;
}

/* Make the ids of all files. */
static int make_ids(find_pid_fn *find, const void *arg, struct ibv_context **ctx)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	struct made_id *ids = NULL;
	size_t i, count = 0;
	int ret = 0;

	for (i = 0; !ret && i < inventory->n_cm_files; i++)
		if (inventory->cm_files[i]->n_ids)
			ret = add_ids(i, find(arg, inventory->cm_files[i]->pid),
				      &ids, &count);
	if (!ret)
		ret = make_cm_ids(driver, ctx, ids, count);
	while (count--)
		close(ids[count].fd);
	free(ids);
	return ret;
}

/* Give a file the events that its process has not read yet. */
static int report_events(size_t i)
{
	const RdmaCmFileEntry *file = saved.inventory->cm_files[i];
	struct rxe_migr_cm_event event;
	int fd, ret = 0;
	size_t j;

	fd = store_get(numbers[i]);
	if (fd < 0)
		return -1;
	for (j = 0; !ret && j < file->n_events; j++) {
		memcpy(&event, file->events[j].data, sizeof(event));
		ret = ibv_report_cm_event(driver, fd, &event);
		if (ret)
			fail("id %u of librdmacm: an event cannot be reported: %s",
			     event.id, strerror(ret));
	}
	close(fd);
	return ret ? -1 : 0;
}

/* librdmacm will look for devices by the GUIDs and indices that it knew. */
static int name_devices(size_t i, struct ibv_context **ctx)
{
	const RdmaCmFileEntry *file = saved.inventory->cm_files[i];
	struct rxe_migr_cm_device known = {};
	uint32_t n, d;
	int fd, ret = 0;

	fd = store_get(numbers[i]);
	if (fd < 0)
		return -1;
	for (d = 0; !ret && d < file->n_devices; d++) {
		for (n = 0; n < saved.num_contexts; n++)
			if (!strcmp(saved.contexts[n].source->name,
				    file->devices[d]->device))
				break;
		if (n == saved.num_contexts)
			continue;
		known.index = file->devices[d]->index;
		memcpy(known.guid, file->devices[d]->guid.data,
		       sizeof(known.guid));
		ret = ibv_cm_device(ctx[n], fd, NULL, &known);
		if (ret)
			fail("%s: the GUID by which its process knows it cannot be kept: %s",
			     saved.contexts[n].here->name, strerror(ret));
	}
	close(fd);
	return ret ? -1 : 0;
}

/* In CRIU, when the tasks have got their credentials. */
int adopt_cm_files(find_pid_fn *find, const void *arg, struct ibv_context **ctx)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	pid_t pid;
	size_t i;
	int ret;

	if (!inventory->n_cm_files)
		return 0;
	if (find_driver("no device here has Godwit's driver any more"))
		return -1;
	ret = make_ids(find, arg, ctx);
	for (i = 0; !ret && i < inventory->n_cm_files; i++) {
		pid = find(arg, inventory->cm_files[i]->pid);
		ret = pid < 0 || name_devices(i, ctx) || report_events(i) ?
			-1 : adopt(i, pid);
	}
	leave_driver();
	return ret;
}
