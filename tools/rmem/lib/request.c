// SPDX-License-Identifier: MIT
/*
 * Messages to the donor's process, and its answers. At most RMEM_SLOTS messages wait for an answer. Each message is one SEND.
 *
 * This file is part of the circle that wait.c tells of.
 */
#include <errno.h>
#include <string.h>
#include "internal.h"

#define SILENCE_MS 5000

static int free_slot(const struct rmem *r)
{
	for (unsigned int i = 0; i < RMEM_SLOTS; i++)
		if (!r->slot[i].id && !r->slot[i].sending)
			return i;
	return -1;
}

bool request_possible(const struct rmem *r)
{
	return r->qp && free_slot(r) >= 0;
}

static void post_message(struct rmem *r, uint16_t type, const void *body, size_t size, struct request *request,
			 struct rmem_op *op)
{
	unsigned int index = free_slot(r);
	struct slot *slot = &r->slot[index];
	struct rmem_msg *msg = (struct rmem_msg *)slot_at(r, index);
	struct ibv_sge sge = { (uintptr_t)msg, sizeof(*msg) + size, r->area_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = WR_SLOT | index, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	r->heard = now_ms();
	*slot = (struct slot){
		.id = ++r->next_id, .type = type, .sending = true, .request = request, .op = op, .looked = r->heard,
	};
	*msg = (struct rmem_msg){ .type = htole16(type), .size = htole32(sge.length), .id = htole64(slot->id) };
	if (size)
		memcpy(msg + 1, body, size);
	r->unanswered++;
	post(r, &wr); /* a failure to post is a failure of the request, too */
}

void request_post(struct rmem *r, uint16_t type, const void *body, size_t size)
{
	post_message(r, type, body, size, NULL, NULL);
}

void request_post_op(struct rmem *r, uint16_t type, const void *body, size_t size, struct rmem_op *op)
{
	op->parts++;
	post_message(r, type, body, size, NULL, op);
}

int request_room(struct rmem *r, unsigned int generation)
{
	while (r->generation == generation && !request_possible(r))
		if (wait_step(r, generation))
			return -ENOTCONN;
	return r->generation == generation ? 0 : connection_down(r);
}

int request_begin(struct rmem *r, unsigned int generation, uint16_t type, const void *body, size_t size,
		  struct request *request)
{
	int ret = request_room(r, generation);

	if (ret)
		return ret;
	request->generation = generation;
	post_message(r, type, body, size, request, NULL);
	return 0;
}

/*
 * The time in which the donor's host itself does not answer does not count: either the donor moves, or the probe fails soon. The
 * time in which this process stood still does not count either: a thread that waits looks once a tick. Nor does the time in which
 * the message waits behind others.
 */
static bool too_late(const struct rmem *r, struct slot *slot, int64_t now)
{
	int64_t step = (r->probed ? r->probed : now) - slot->looked;

	slot->looked = now;
	if (step > 0 && !slot->sending)
		slot->took += step < 2 * TICK_MS ? step : 2 * TICK_MS;
	return slot->took > r->request_ms;
}

int request_late(struct rmem *r)
{
	return fail(-ETIMEDOUT, "donor %s: its host is there, but rmemd did not answer for %d s: look at its log", r->host,
		    r->request_ms / 1000);
}

static void give_up(struct rmem *r, struct slot *slot)
{
	if (slot->request)
		slot->request->error = -ETIMEDOUT;
	else if (!slot->op->result)
		slot->op->result = -ETIMEDOUT;
	connection_break(r, "it did not answer for %d s", r->request_ms / 1000);
}

/* The first message that is too late ends the connection, and so all others. */
void requests_look(struct rmem *r)
{
	int64_t now = r->unanswered ? now_ms() : 0;

	for (struct slot *slot = r->slot; r->unanswered && slot < r->slot + RMEM_SLOTS; slot++)
		if (slot->id && (slot->request || slot->op) && too_late(r, slot, now))
			give_up(r, slot);
}

int request_end(struct rmem *r, struct request *request)
{
	while (!request->done)
		wait_step(r, request->generation);
	if (request->error == -ETIMEDOUT)
		return request_late(r);
	if (request->error || r->generation != request->generation)
		return connection_down(r);
	return request->status;
}

void request_sent(struct rmem *r, unsigned int index)
{
	r->slot[index].sending = false;
}

/* The donor answers in order. So each answer shows that the donor goes on, and the next message has its time from now on. */
static void begin_time_anew(struct rmem *r)
{
	int64_t now = now_ms();

	for (struct slot *slot = r->slot; slot < r->slot + RMEM_SLOTS; slot++) {
		slot->looked = now;
		slot->took = 0;
	}
}

static void op_answered(struct rmem *r, struct rmem_op *op, uint16_t type, unsigned int status)
{
	if (type != RMEM_FLUSH)
		txn_answered(r, status);
	else if (status)
		op_refused(op, "a flush", status);
	op_done(op, 0);
}

static int request_answered(struct request *request, const struct rmem_msg *msg, size_t body)
{
	if (body > request->room)
		return -1;
	if (body)
		memcpy(request->answer, msg + 1, body);
	request->size = body;
	request->status = le16toh(msg->status);
	request->done = true;
	return 0;
}

static int answered(struct rmem *r, const struct rmem_msg *msg, size_t body)
{
	struct slot *slot = r->slot, was;

	while (slot < r->slot + RMEM_SLOTS && slot->id != le64toh(msg->id))
		slot++;
	if (slot == r->slot + RMEM_SLOTS || le16toh(msg->type) != (slot->type | RMEM_ANSWER) || (msg->status && body))
		return -1;
	if (slot->request ? request_answered(slot->request, msg, body) : body != 0)
		return -1;
	was = *slot;
	*slot = (struct slot){ .sending = was.sending };
	r->unanswered--;
	begin_time_anew(r);
	if (was.op)
		op_answered(r, was.op, was.type, le16toh(msg->status));
	return 0;
}

static int noticed(struct rmem *r, const struct rmem_msg *msg, size_t body)
{
	const struct rmem_evict *evict = (const struct rmem_evict *)(msg + 1);

	if (le16toh(msg->type) == RMEM_ASK_HEAT)
		return heat_notice(r, (const struct rmem_ask_heat *)evict, body);
	if (le16toh(msg->type) != RMEM_EVICT || body != sizeof(*evict))
		return -1;
	evict_notice(r, le64toh(evict->tag), le64toh(evict->addr));
	return 0;
}

void request_received(struct rmem *r, const uint8_t *data, size_t size)
{
	const struct rmem_msg *msg = (const struct rmem_msg *)data;
	int ret = -1;

	if (size >= sizeof(*msg) && le32toh(msg->size) == size) {
		if (!msg->id)
			ret = noticed(r, msg, size - sizeof(*msg));
		else
			ret = answered(r, msg, size - sizeof(*msg));
	}
	if (ret)
		connection_break(r, "it sent a message that makes no sense");
}

/*
 * An acknowledged SEND says nothing about the donor after that. If rmemd ends now, neither an answer nor an error comes. So after
 * some seconds of silence an empty RDMA WRITE, the probe, asks whether the queue pair still exists, and fails if it does not.
 * While the donor moves, the probe waits like every other work request.
 */
void probe(struct rmem *r)
{
	struct ibv_send_wr wr = { .wr_id = WR_PROBE, .opcode = IBV_WR_RDMA_WRITE };

	if (!r->qp || !r->unanswered || r->probed || now_ms() - r->heard < SILENCE_MS)
		return;
	r->probed = now_ms();
	post(r, &wr);
}

void probe_done(struct rmem *r)
{
	r->probed = 0;
}
