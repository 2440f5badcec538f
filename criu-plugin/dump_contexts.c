// SPDX-License-Identifier: GPL-2.0
/*
 * The contexts of the tree. The plugin looks at each while its task runs, stops
 * and dumps it in one step when all tasks are frozen, and lets it go on if the
 * checkpoint fails.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dump.h"

int find_device(struct ibv_context *ctx, const char *node)
{
	RdmaDeviceEntry *device;
	char name[64];
	uint32_t i;

	for (i = 0; i < dump.num_devices; i++)
		if (!strcmp(dump.devices[i].node, node))
			return i;
	if (device_name(node, name))
		return fail(VERBS_CLASS "/%s/ibdev cannot be read: %m", node);
	if (!name[0])
		return fail(VERBS_CLASS "/%s/ibdev is empty", node);
	device = append(&dump.devices, sizeof(*device), dump.num_devices);
	if (!device || read_device(ctx, name, node, device))
		return -1;
	return dump.num_devices++;
}

/* A dump may grow by so many bytes after its size was asked for. */
#define ROOM_SLACK	4096
/* Only so many bytes get their pages beforehand: most of the largest size stays unused. */
#define ROOM_POPULATED	(16 << 20)

static void populate(void *buf, size_t size)
{
	uintptr_t page = sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)buf + page - 1) & -page;
	uintptr_t end = ((uintptr_t)buf + size) & -page;

	if (end > start + ROOM_POPULATED)
		end = start + ROOM_POPULATED;
	if (end > start)
		madvise((void *)start, end - start, MADV_POPULATE_WRITE);
}

/*
 * Get memory for the largest dump, with its first pages: the driver would wait
 * for each page while the context is stopped. If there is no memory now,
 * stop_context() asks again.
 */
int get_room_ahead(struct ibv_context *ctx)
{
	int size, ret;
	void *buf;

	ret = ibv_dump_context(ctx, &size, NULL, 0);
	if (ret == ENOKEY)
		return fail(NO_KEY);
	if (ret != ENOSPC || (size_t)size <= dump.room_size)
		return 0;
	buf = realloc(dump.room, size + ROOM_SLACK);
	if (!buf)
		return 0;
	dump.room = buf;
	dump.room_size = size + ROOM_SLACK;
	populate(dump.room, dump.room_size);
	return 0;
}

/* ----------------------------------------------------------------- stopping -- */

static int by_number(const void *a, const void *b)
{
	const struct rxe_migr_rec_qp *const *x = a, *const *y = b;
	uint32_t n1 = le32toh((*x)->qpn), n2 = le32toh((*y)->qpn);

	return (n1 > n2) - (n1 < n2);
}

static int collect_qps(struct dumped_context *c)
{
	struct rxe_migr_rec_qp **slot;
	uint32_t i;

	for (i = 0; i < c->records.count; i++) {
		if (le16toh(c->records.rec[i]->type) != RXE_MIGR_REC_QP)
			continue;
		slot = append(&c->qps, sizeof(*slot), c->num_qps);
		if (!slot)
			return -1;
		*slot = (void *)c->records.rec[i];
		c->num_qps++;
	}
	if (c->num_qps)
		qsort(c->qps, c->num_qps, sizeof(*c->qps), by_number);
	return 0;
}

static int collect_records(struct dumped_context *c, uint32_t count)
{
	const char *device = dump.devices[c->device].name;
	const struct rxe_migr_rec *rec = NULL, **slot;
	char name[IBV_RECORD_NAME_LEN];
	unsigned int type;
	const char *refusal;

	while (count--) {
		rec = ibv_next_record(c->buf, c->size, rec);
		if (!rec)
			return fail("%s: the driver's dump makes no sense", device);
		type = le16toh(rec->type);
		if (type == RXE_MIGR_REC_MR_OWNER)
			continue;	/* not for the images: see region_fate() */
		refusal = ibv_record_refusal(rec);
		if (refusal)
			return fail("%s: %s: %s", device,
				    ibv_record_name(rec, name, sizeof(name)), refusal);
		slot = append(&c->records.rec, sizeof(*slot), c->records.count);
		if (!slot)
			return -1;
		*slot = rec;
		c->records.count++;
	}
	return collect_qps(c);
}

/*
 * Stop the context and take its records. The number of bytes that they need may
 * change until the context is stopped.
 */
static int stop_context(struct dumped_context *c)
{
	const char *device = dump.devices[c->device].name;
	struct rxe_migr_query query;
	bool running;
	size_t size = 0;
	int count, ret;
	void *buf;

	ret = ibv_query_migration(c->ctx, &query);
	if (ret == EPERM)
		return fail("%s: this context cannot be dumped: " NO_CAPABILITY,
			    device);
	if (ret)
		return fail("%s: its driver cannot dump this context (%s): is it Godwit's rdma_rxe?",
			    device, strerror(ret));
	if (query.state == RXE_MIGR_CTX_RESTORING)
		return fail("%s: the context is just being restored", device);
	if (check_driver_version(&query, device))
		return -1;

	/* If this fails, a tree that was stopped before stays stopped. */
	running = query.state != RXE_MIGR_CTX_STOPPED;
	c->buf = dump.room;
	size = dump.room_size;
	dump.room = NULL;
	dump.room_size = 0;
	ret = ibv_dump_context(c->ctx, &count, c->buf, size);
	while (ret == ENOSPC) {
		size = count + ROOM_SLACK;
		buf = realloc(c->buf, size);
		if (!buf)
			return fail("no memory");
		c->buf = buf;
		ret = ibv_dump_context(c->ctx, &count, c->buf, size);
	}
	if (ret == ENOKEY)	/* the key was cleared just now */
		return fail(NO_KEY);
	if (ret)
		return fail("%s: the context cannot be stopped: %s", device,
			    strerror(ret));
	c->stopped = running;
	if (!ibv_query_migration(c->ctx, &query) && query.stop_ns &&
	    (!dump.stop_ns || query.stop_ns < dump.stop_ns))
		dump.stop_ns = query.stop_ns;
	c->size = size;
	return collect_records(c, count);
}

/* mine: our copy of the task's descriptor, which stays the caller's if it fails */
static struct dumped_context *add_context(pid_t pid, int fd, int mine,
					  const char *node)
{
	struct rxe_migr_query query;
	struct dumped_context *c;
	struct ibv_context *ctx;
	int device;

	ctx = ibv_attach_context(mine);
	if (!ctx) {
		fail("no memory");
		return NULL;
	}
	/* The node may be another device's by now. */
	if (ibv_query_migration(ctx, &query) == EIO)
		device = fail("process %d, descriptor %d: " WHY_GONE, pid, fd);
	else
		device = find_device(ctx, node);
	c = device < 0 ? NULL :
	    append(&dump.contexts, sizeof(*c), dump.num_contexts);
	if (!c) {
		free(ctx);
		return NULL;
	}
	c->ctx = ctx;
	c->device = device;
	strcpy(c->node, node);
	dump.num_contexts++;
	return c;
}

/* The index of the context of a descriptor, or -1. */
int find_context(int fd)
{
	uint32_t i;

	for (i = 0; i < dump.num_contexts; i++)
		if (same_file(dump.contexts[i].ctx->cmd_fd, fd))
			return i;
	return -1;
}

int open_context(struct dumped_task *task, int fd, const char *node)
{
	struct dumped_context *c;
	uint32_t *slot;
	int mine, n, ret = 0;

	mine = proc_get_fd(task->pid, fd);
	if (mine < 0)
		return fail("file %d of process %d cannot be opened: %m", fd,
			    task->pid);
	n = find_context(mine);
	if (n >= 0) {
		close(mine);
	} else {
		n = dump.num_contexts;
		c = add_context(task->pid, fd, mine, node);
		if (!c) {
			close(mine);
			return -1;
		}
		ret = stop_context(c);
	}
	slot = append(&task->contexts, sizeof(*slot), task->num_contexts);
	if (!slot)
		return -1;
	*slot = n;
	task->num_contexts++;
	return ret;
}

/* --------------------------------------------------------------- afterwards -- */

/*
 * All QPs of the device that are stopped, paused or resuming, and tombstones.
 * Returns how many, or -1; 0 also if there are more than the driver lists. The
 * caller frees them.
 */
static int read_status(struct ibv_context *ctx, struct rxe_migr_status **status)
{
	struct rxe_migr_status *more;
	int count, room = 0, ret;

	*status = NULL;
	while ((ret = ibv_query_device_migration(ctx, &count, *status, room)) == ENOSPC) {
		if (room > count)	/* more than the driver lists */
			return 0;
		room = count + 64;
		more = realloc(*status, room * sizeof(*more));
		if (!more)
			return fail("no memory");
		*status = more;
	}
	return ret ? fail("the states of the QPs cannot be read: %s",
			  strerror(ret)) : count;
}

/* The QP of this number in the context's records, or NULL. */
static struct rxe_migr_rec_qp *recorded_qp(const struct dumped_context *c,
					   uint32_t qp_num)
{
	struct rxe_migr_rec_qp qp = { .qpn = htole32(qp_num) }, *key = &qp, **found;

	found = c->num_qps ? bsearch(&key, c->qps, c->num_qps, sizeof(*c->qps),
				     by_number) : NULL;
	return found ? *found : NULL;
}

static void note_answer(uint32_t device, uint32_t qp_num)
{
	struct rxe_migr_rec_qp *qp;
	uint32_t i;

	for (i = 0; i < dump.num_contexts; i++) {
		if (dump.contexts[i].device != device)
			continue;
		qp = recorded_qp(&dump.contexts[i], qp_num);
		if (qp)
			qp->flags |= RXE_MIGR_QP_PEER_KNOWS;
	}
}

/*
 * The driver says STOP when a dump is complete (for UC, before). Note which
 * peers have answered since: a restore waits longer for these than for peers
 * that may not speak the protocol at all.
 */
int note_answers(uint32_t device)
{
	struct rxe_migr_status *status;
	uint32_t i;
	int n;

	for (i = 0; i < dump.num_contexts; i++)
		if (dump.contexts[i].device == device)
			break;
	if (i == dump.num_contexts)
		return 0;	/* closed since the plugin looked at it */
	n = read_status(dump.contexts[i].ctx, &status);
	for (i = 0; n > 0 && i < (uint32_t)n; i++)
		if (!status[i].tombstone &&
		    status[i].flags & RXE_MIGR_STATUS_PEER_KNOWS)
			note_answer(device, status[i].qpn);
	free(status);
	return n < 0 ? -1 : 0;
}

int find_qp_context(const char *device, uint32_t qp_num)
{
	const struct dumped_context *c;
	uint32_t i;

	for (i = 0; i < dump.num_contexts; i++) {
		c = &dump.contexts[i];
		if (!strcmp(dump.devices[c->device].name, device) &&
		    recorded_qp(c, qp_num))
			return i;
	}
	return -1;
}

struct ibv_context *dumped_context(uint32_t n, const char **device)
{
	if (n >= dump.num_contexts)
		return NULL;
	*device = dump.devices[dump.contexts[n].device].name;
	return dump.contexts[n].ctx;
}

/* Called before CRIU lets go of the tasks. */
void end_contexts(bool failed)
{
	struct dumped_context *c;
	uint32_t i;
	int ret;

	for (i = 0; i < dump.num_contexts; i++) {
		c = &dump.contexts[i];
		ret = failed && c->stopped ? ibv_abort_context(c->ctx) : 0;
		if (ret)
			fail("%s: the context can't go on: %s",
			     dump.devices[c->device].name, strerror(ret));
		ibv_detach_context(c->ctx);
	}
}
