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

/* Sends what is in the slot, under a new id. */
static void send_slot(struct rmem *r, unsigned int index)
{
	struct slot *slot = &r->slot[index];
	struct rmem_msg *msg = (struct rmem_msg *)slot_at(r, index);
	struct ibv_sge sge = { (uintptr_t)msg, le32toh(msg->size), r->area_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = WR_SLOT | index, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	r->heard = now_ms();
	slot->id = ++r->next_id;
	slot->sending = true;
	slot->looked = r->heard;
	slot->took = 0;
	msg->id = htole64(slot->id);
	r->unanswered++;
	post(r, &wr); /* a failure to post is a failure of the message, too */
}

static void post_message(struct rmem *r, uint16_t type, const void *body, size_t size, const struct wanted *wanted)
{
	unsigned int index = free_slot(r);
	struct rmem_msg *msg = (struct rmem_msg *)slot_at(r, index);

	r->slot[index] = (struct slot){ .type = type, .wanted = *wanted };
	*msg = (struct rmem_msg){ .type = htole16(type), .size = htole32(sizeof(*msg) + size) };
	if (size)
		memcpy(msg + 1, body, size);
	send_slot(r, index);
}

void request_post(struct rmem *r, uint16_t type, const void *body, size_t size)
{
	post_message(r, type, body, size, &(struct wanted){ 0 });
}

void request_post_op(struct rmem *r, uint16_t type, const void *body, size_t size, const struct wanted *wanted)
{
	wanted->op->parts++;
	post_message(r, type, body, size, wanted);
}

int request_begin(struct rmem *r, uint16_t type, const void *body, size_t size, const struct wanted *wanted)
{
	unsigned int generation = r->generation;

	while (!request_possible(r))
		if (wait_step(r, generation))
			return -ENOTCONN;
	op_begin(wanted->op);
	request_post_op(r, type, body, size, wanted);
	op_done(wanted->op, 0);
	return 0;
}

/*
 * Three kinds of time do not count. The donor's host does not answer: either the donor moves, or the probe fails soon. This process
 * stands still: a thread that waits looks once a tick, so a longer step counts as two ticks. The message waits behind others: each
 * answer begins its time anew.
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
	if (!slot->wanted.op->result)
		slot->wanted.op->result = -ETIMEDOUT;
	connection_break(r, "it did not answer for %d s", r->request_ms / 1000);
}

/* The first message that is too late ends the connection, and so all others. */
void requests_look(struct rmem *r)
{
	int64_t now = r->unanswered ? now_ms() : 0;

	for (struct slot *slot = r->slot; r->unanswered && slot < r->slot + RMEM_SLOTS; slot++)
		if (slot->id && slot->wanted.op && too_late(r, slot, now))
			give_up(r, slot);
}

/* The message was sent. If its slot already holds a message that is to be sent again (ask_again()), sends that. */
void request_sent(struct rmem *r, unsigned int index)
{
	struct slot *slot = &r->slot[index];

	slot->sending = false;
	if (!slot->id && slot->wanted.op)
		send_slot(r, index);
}

/* The donor answers in order. So each answer shows that the donor goes on, and the time of the next message begins now. */
static void begin_time_anew(struct rmem *r)
{
	int64_t now = now_ms();

	for (struct slot *slot = r->slot; slot < r->slot + RMEM_SLOTS; slot++) {
		slot->looked = now;
		slot->took = 0;
	}
}

/* Sends the same message again from the same slot: now, or as soon as the device has sent the first one (request_sent()). */
static void ask_again(struct rmem *r, struct slot *slot, const struct slot *was)
{
	slot->type = was->type;
	slot->wanted = was->wanted;
	if (!slot->sending)
		send_slot(r, slot - r->slot);
}

static int use_answer(struct rmem *r, const struct answer *answer)
{
	const struct wanted *wanted = answer->wanted;

	if (answer->status && wanted->what)
		return op_refused(wanted->op, wanted->what, answer->status);
	return wanted->answered ? wanted->answered(r, answer) : 0;
}

static int answered(struct rmem *r, const struct rmem_msg *msg, size_t body)
{
	struct answer answer = { .status = le16toh(msg->status), .body = msg + 1, .size = body };
	struct slot *slot = r->slot, was;
	int ret;

	while (slot < r->slot + RMEM_SLOTS && slot->id != le64toh(msg->id))
		slot++;
	if (slot == r->slot + RMEM_SLOTS || le16toh(msg->type) != (slot->type | RMEM_ANSWER) || (msg->status && body) ||
	    (body && !slot->wanted.body))
		return -1;
	was = *slot;
	*slot = (struct slot){ .sending = was.sending };
	r->unanswered--;
	begin_time_anew(r);
	if (!was.wanted.op)
		return 0;
	answer.wanted = &was.wanted;
	ret = use_answer(r, &answer);
	if (ret == ASK_AGAIN)
		ask_again(r, slot, &was);
	else
		op_done(was.wanted.op, ret);
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
