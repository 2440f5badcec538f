// SPDX-License-Identifier: MIT
/*
 * One-sided transfers. Each is cut into work requests. If the local memory is registered, a work request has at most the size of
 * the device's largest message. Otherwise it has the size of a buffer.
 *
 * When a WRITE has completed, every later reader sees its bytes, on any device. A client's memory has only two kinds of readers.
 * Its own READs are executed by the transport after the WRITE (IBA, volume 1, 9.5, transaction ordering). The copies and flushes
 * of rmemd are asked for by a SEND, and the same chapter orders its receipt behind the WRITE. So no READ has to follow a WRITE.
 */
#include <errno.h>
#include <string.h>
#include "internal.h"

#define QUIET_MS 100

struct transfer {
	enum ibv_wr_opcode opcode;
	uint64_t remote;
	uint8_t *local;
	size_t left;
	uint64_t value; /* of an atomic write */
	struct region *region;
	struct memory *memory; /* NULL: the data goes through buffers */
	struct rmem_op *op;
	unsigned int generation;
	int64_t now; /* when it began, or when it last had to wait */
	bool waited; /* it unlocked while it waited, so another thread had the lock */
};

static int wait_for_room(struct rmem *r, struct transfer *t)
{
	bool buffer = !t->memory && t->opcode != IBV_WR_ATOMIC_WRITE;

	while (!r->wrs || (buffer && !r->buffers)) {
		t->waited = true;
		if (wait_step(r, t->generation))
			return -ENOTCONN;
		t->now = now_ms();
	}
	return r->generation == t->generation && r->qp ? 0 : connection_down(r);
}

static void post_write8(struct rmem *r, const struct transfer *t, unsigned int index)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(r->qp);
	int ret;

	ibv_wr_start(qp);
	qp->wr_id = index;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qp, t->region->rkey, t->remote, &t->value);
	ret = ibv_wr_complete(qp);
	if (ret)
		connection_break(r, "an atomic write: %s", strerror(ret));
}

static void post_part(struct rmem *r, const struct transfer *t, struct wr *wr, unsigned int index)
{
	struct ibv_sge sge = { (uintptr_t)t->local, wr->size, t->memory ? t->memory->mr->lkey : r->area_mr->lkey };
	struct ibv_send_wr send = {
		.wr_id = index, .sg_list = &sge, .num_sge = 1, .opcode = t->opcode,
		.wr.rdma = { .remote_addr = t->remote, .rkey = t->region->rkey },
	};

	if (!t->memory) {
		wr->buffer = r->free_buffers[--r->buffers];
		sge.addr = (uintptr_t)buffer_at(r, wr->buffer);
		if (t->opcode == IBV_WR_RDMA_WRITE)
			memcpy(buffer_at(r, wr->buffer), t->local, wr->size);
		else
			wr->copy_to = t->local;
	}
	post(r, &send);
}

/* The caller has made sure that there is room. If posting fails, the connection breaks, and so this part ends, too. */
static void begin_part(struct rmem *r, struct transfer *t)
{
	unsigned int index = r->free_wrs[--r->wrs];
	size_t most = t->memory ? r->max_message : BUFFER_SIZE;
	size_t size = t->left < most ? t->left : most;
	struct wr *wr = &r->wr[index];

	*wr = (struct wr){
		.op = t->op, .region = t->region, .memory = t->memory, .buffer = -1,
		.size = size,
	};
	t->op->parts++;
	t->region->busy++;
	heat_count(t->region, t->now);
	if (t->memory)
		t->memory->busy++;
	if (t->opcode == IBV_WR_ATOMIC_WRITE)
		post_write8(r, t, index);
	else
		post_part(r, t, wr, index);
	t->remote += size;
	t->local += t->local ? size : 0;
	t->left -= size;
}

/* The transfer itself also holds its region, its memory and its operation, until all its parts have begun. */
static int begin(struct rmem *r, struct transfer *t)
{
	bool begun = false;
	int ret = region_at(r, t->remote, t->left, &t->region);

	if (ret)
		return ret;
	if (t->opcode == IBV_WR_ATOMIC_WRITE && !r->port.atomic_write)
		return fail(-EOPNOTSUPP, "%s: it has no atomic writes: use rmem_put()",
			    ibv_get_device_name(r->port.context->device));
	t->generation = r->generation;
	t->memory = t->opcode == IBV_WR_ATOMIC_WRITE ? NULL : memory_at(r, t->local, t->left);
	op_begin(t->op);
	t->region->busy++;
	if (t->memory)
		t->memory->busy++;
	for (; t->left && !ret; begun = true) {
		ret = wait_for_room(r, t);
		if (ret)
			break;
		begin_part(r, t);
	}
	if (t->memory)
		t->memory->busy--;
	region_drop(t->region);
	op_done(t->op, begun ? ret : 0);
	/* While this waited, parts that ended have woken threads, but this still held the operation, the region and the memory. */
	if (t->waited)
		pthread_cond_broadcast(&r->changed);
	return begun ? 0 : ret;
}

static int transfer(struct rmem *r, struct transfer *t, bool wait)
{
	int ret = enter(r);

	if (ret)
		return ret;
	/* A program that transfers rarely may never wait, so completions are looked at here. Other programs look when they wait. */
	t->now = now_ms();
	if (t->now - r->looked >= QUIET_MS)
		progress(r);
	else
		do_what_is_due(r);
	ret = r->qp ? begin(r, t) : connection_down(r);
	return wait ? leave_done(r, t->op, ret) : leave(r, ret);
}

int rmem_put_async(struct rmem *r, uint64_t dst, const void *src, size_t len, struct rmem_op *op)
{
	/* The local memory of a WRITE is only read. */
	return transfer(r, &(struct transfer){ .opcode = IBV_WR_RDMA_WRITE, .remote = dst, .local = (uint8_t *)src, .left = len,
					       .op = op }, false);
}

int rmem_get_async(struct rmem *r, void *dst, uint64_t src, size_t len, struct rmem_op *op)
{
	return transfer(r, &(struct transfer){ .opcode = IBV_WR_RDMA_READ, .remote = src, .local = dst, .left = len,
					       .op = op }, false);
}

int rmem_put(struct rmem *r, uint64_t dst, const void *src, size_t len)
{
	struct rmem_op op = { 0 };

	return transfer(r, &(struct transfer){ .opcode = IBV_WR_RDMA_WRITE, .remote = dst, .local = (uint8_t *)src, .left = len,
					       .op = &op }, true);
}

int rmem_get(struct rmem *r, void *dst, uint64_t src, size_t len)
{
	struct rmem_op op = { 0 };

	return transfer(r, &(struct transfer){ .opcode = IBV_WR_RDMA_READ, .remote = src, .local = dst, .left = len,
					       .op = &op }, true);
}

static int put8(struct rmem *r, uint64_t dst, uint64_t value, struct rmem_op *op, bool wait)
{
	if (dst % 8)
		return fail(-EINVAL, "range 0x%llx: it is no multiple of 8", (unsigned long long)dst);
	return transfer(r, &(struct transfer){ .opcode = IBV_WR_ATOMIC_WRITE, .remote = dst, .left = 8, .value = value,
					       .op = op }, wait);
}

int rmem_put8_async(struct rmem *r, uint64_t dst, uint64_t value, struct rmem_op *op)
{
	return put8(r, dst, value, op, false);
}

int rmem_put8(struct rmem *r, uint64_t dst, uint64_t value)
{
	struct rmem_op op = { 0 };

	return put8(r, dst, value, &op, true);
}

/* The donor has executed all earlier WRITEs when this message arrives, so the flush includes all puts that have returned. */
static int flush(struct rmem *r, uint64_t addr, size_t len, struct rmem_op *op)
{
	const struct rmem_range body = { .addr = htole64(addr), .len = htole64(len) };
	const struct wanted wanted = { .op = op, .what = "a flush" };
	struct region *region;
	int ret = region_at(r, addr, len, &region);

	return ret ? ret : request_begin(r, RMEM_FLUSH, &body, sizeof(body), &wanted);
}

int rmem_flush_async(struct rmem *r, uint64_t addr, size_t len, struct rmem_op *op)
{
	int ret = enter(r);

	return ret ? ret : leave(r, flush(r, addr, len, op));
}

int rmem_flush(struct rmem *r, uint64_t addr, size_t len)
{
	struct rmem_op op = { 0 };
	int ret = enter(r);

	return ret ? ret : leave_done(r, &op, flush(r, addr, len, &op));
}
