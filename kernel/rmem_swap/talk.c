// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages with a donor (rmem/wire.h). The donor's workqueue asks, one request at a time, and waits as long as the queue pair
 * lives: a donor that moves answers late. What the donor says is not trusted: what does not fit ends the connection.
 */

#include <linux/overflow.h>
#include <linux/sched/mm.h>

#include "rmem_swap.h"

#define SLAB_FLAG 1	/* RMEM_SLAB of librmem: the donor may evict it, and never keeps it on its disk */
#define MAX_ROUNDS 1024	/* of LIST, when all is freed */
#define MAX_GRACE_MS 60000

struct answer {
	enum rmem_status status;
	const void *body;
	u32 size;
};

static void *body_of(struct rmem_msg *msg)
{
	return msg + 1;
}

/* ------------------------------------------------------------------ receiving */

static const char *take_answer(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	const char *wrong = NULL;
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	if (!d->ask_type || le16_to_cpu(msg->type) != (d->ask_type | RMEM_ANSWER) || le64_to_cpu(msg->id) != d->ask_id) {
		wrong = "it answers what was not asked";
	} else if (msg->status && size != sizeof(*msg)) {
		wrong = "its refusal has a body";
	} else {
		d->ask_type = 0;
		memcpy(d->in, msg, size);
	}
	spin_unlock_irqrestore(&d->lock, flags);
	return wrong;
}

static const char *take_evict(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	struct rmem_evict *evict = body_of(msg);
	const char *wrong = NULL;
	u32 grace_ms;
	unsigned long flags;

	if (size != sizeof(*msg) + sizeof(*evict))
		return "its notice has a wrong length";
	grace_ms = min_t(u32, le32_to_cpu(evict->grace_ms), MAX_GRACE_MS);
	spin_lock_irqsave(&d->lock, flags);
	if (d->n_evicts == RS_NOTICES) {
		wrong = "it sends more notices than it may";
	} else {
		d->evicts[(d->first_evict + d->n_evicts) % RS_NOTICES] = (struct rs_named){
			.tag = le64_to_cpu(evict->tag), .addr = le64_to_cpu(evict->addr),
			.until = jiffies + msecs_to_jiffies(grace_ms) / 2,
		};
		WRITE_ONCE(d->n_evicts, d->n_evicts + 1);
	}
	spin_unlock_irqrestore(&d->lock, flags);
	return wrong;
}

/* (a newer question makes the older one void) */
static const char *take_ask_heat(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	struct rmem_ask_heat *ask = body_of(msg);
	unsigned long flags;
	u32 count, i;

	if (size < sizeof(*msg) + sizeof(*ask))
		return "its question has a wrong length";
	count = le32_to_cpu(ask->count);
	if (count > RMEM_HEAT_MAX || size != sizeof(*msg) + struct_size(ask, tags, count))
		return "its question has a wrong length";
	spin_lock_irqsave(&d->lock, flags);
	d->heat_asked = true;
	d->heat_round = le32_to_cpu(ask->round);
	d->heat_count = count;
	for (i = 0; i < count; i++)
		d->heat_tags[i] = le64_to_cpu(ask->tags[i]);
	spin_unlock_irqrestore(&d->lock, flags);
	return NULL;
}

static const char *take_notice(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	const char *wrong = "it sends an unknown notice";

	if (msg->id || msg->status)
		return "its notice has an id or a status";
	if (msg->type == cpu_to_le16(RMEM_EVICT))
		wrong = take_evict(d, msg, size);
	else if (msg->type == cpu_to_le16(RMEM_ASK_HEAT))
		wrong = take_ask_heat(d, msg, size);
	if (!wrong) {
		queue_work(d->wq, &d->notice_work);
		/* (the workqueue may be waiting for the disk) */
		wake_up_all(&d->dev->wait);
	}
	return wrong;
}

static void completed_one(struct rs_donor *d)
{
	if (atomic_dec_and_test(&d->ask_left))
		complete(&d->asked);
}

/* The receive is posted again before the answer is told: the next request may follow at once. */
void rs_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rs_recv *recv = container_of(wc->wr_cqe, struct rs_recv, cqe);
	struct rs_donor *d = recv->donor;
	struct rmem_msg *msg = recv->msg;
	const char *wrong = NULL;
	u32 size = wc->byte_len;
	bool answer;

	if (wc->status != IB_WC_SUCCESS) {
		rs_donor_fail(d, "RECV: %s", ib_wc_status_msg(wc->status));
		return;
	}
	ib_dma_sync_single_for_cpu(cq->device, recv->dma, RMEM_MSG_SIZE, DMA_FROM_DEVICE);
	if (size < sizeof(*msg) || size > RMEM_MSG_SIZE || le32_to_cpu(msg->size) != size || wc->opcode != IB_WC_RECV ||
	    wc->wc_flags & (IB_WC_WITH_IMM | IB_WC_WITH_INVALIDATE)) {
		rs_donor_fail(d, "its message is not as long as it says, or no plain SEND");
		return;
	}
	answer = le16_to_cpu(msg->type) & RMEM_ANSWER;
	wrong = answer ? take_answer(d, msg, size) : take_notice(d, msg, size);
	if (!wrong && rs_post_recv(d, recv))
		wrong = "a receive can't be posted";
	if (wrong)
		rs_donor_fail(d, "%s", wrong);
	else if (answer)
		completed_one(d);
}

void rs_sent_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rs_donor *d = container_of(wc->wr_cqe, struct rs_donor, out_cqe);

	if (wc->status != IB_WC_SUCCESS)
		rs_donor_fail(d, "SEND: %s", ib_wc_status_msg(wc->status));
	else
		completed_one(d);
}

/* RS_FAILED is set. */
void rs_talk_failed(struct rs_donor *d)
{
	complete(&d->asked);
}

/* ------------------------------------------------------------------ asking */

/* The body of the request is in d->out already. Two completions make an answer: that it was sent, and that it was answered. */
static int ask(struct rs_donor *d, enum rmem_type type, u32 body, struct answer *answer)
{
	u32 size = sizeof(*d->out) + body;
	int ret;

	*d->out = (struct rmem_msg){
		.type = cpu_to_le16(type), .size = cpu_to_le32(size), .id = cpu_to_le64(d->ask_id + 1),
	};
	reinit_completion(&d->asked);
	atomic_set(&d->ask_left, 2);
	spin_lock_irq(&d->lock);
	d->ask_type = type;
	d->ask_id++;
	spin_unlock_irq(&d->lock);
	/* (it failed before that, and nobody will complete it; or it fails after that, and is seen here or completes it) */
	if (test_bit(RS_FAILED, &d->flags))
		return -ENOTCONN;
	ret = rs_post_message(d, size);
	if (ret) {
		rs_donor_fail(d, "the queue pair does not take a message: %d", ret);
		return -ENOTCONN;
	}
	/* (idle: a donor may move for minutes, and that is no task that hangs) */
	wait_for_completion_state(&d->asked, TASK_IDLE);
	if (test_bit(RS_FAILED, &d->flags))
		return -ENOTCONN;
	answer->status = le16_to_cpu(d->in->status);
	answer->body = body_of(d->in);
	answer->size = le32_to_cpu(d->in->size) - sizeof(*d->in);
	return 0;
}

static int wrong_answer(struct rs_donor *d, const char *what)
{
	rs_donor_fail(d, "%s", what);
	return -EPROTO;
}

/* An answer that has no body in any case. */
static int ask_simply(struct rs_donor *d, enum rmem_type type, u32 body, enum rmem_status *status)
{
	struct answer answer;
	int ret = ask(d, type, body, &answer);

	if (ret)
		return ret;
	if (answer.size)
		return wrong_answer(d, "its answer has a body");
	*status = answer.status;
	return 0;
}

int rs_talk_alloc(struct rs_donor *d, u64 tag, u64 size, u64 *addr, u32 *rkey)
{
	struct rmem_alloc_request *request = body_of(d->out);
	const struct rmem_wire_region *region;
	struct answer answer;
	u64 end;
	int ret;

	*request = (struct rmem_alloc_request){
		.tag = cpu_to_le64(tag), .size = cpu_to_le64(size), .flags = cpu_to_le32(SLAB_FLAG),
	};
	ret = ask(d, RMEM_ALLOC, sizeof(*request), &answer);
	if (ret)
		return ret;
	if (answer.status != RMEM_OK)
		return -ENOSPC;
	region = answer.body;
	if (answer.size != sizeof(*region) || le64_to_cpu(region->tag) != tag || le64_to_cpu(region->size) != size ||
	    le32_to_cpu(region->flags) != SLAB_FLAG)
		return wrong_answer(d, "its region is not what was asked for");
	*addr = le64_to_cpu(region->addr);
	*rkey = le32_to_cpu(region->rkey);
	if (!*addr || *addr % RMEM_PAGE || check_add_overflow(*addr, size, &end))
		return wrong_answer(d, "its region has an impossible address");
	return 0;
}

int rs_talk_room(struct rs_donor *d, u64 *left)
{
	const struct rmem_room *room;
	struct answer answer;
	int ret = ask(d, RMEM_ROOM, 0, &answer);

	if (ret)
		return ret;
	if (answer.status != RMEM_OK) {
		*left = 0;
		return 0;
	}
	if (answer.size != sizeof(*room))
		return wrong_answer(d, "its room has a wrong length");
	room = answer.body;
	*left = le64_to_cpu(room->left);
	return 0;
}

/* (the donor may have taken the slab already, or not have meant it: whatever it answers, it does not have it for us) */
int rs_talk_evicted(struct rs_donor *d, const struct rs_named *named)
{
	struct rmem_evict *request = body_of(d->out);
	enum rmem_status status;

	*request = (struct rmem_evict){ .tag = cpu_to_le64(named->tag), .addr = cpu_to_le64(named->addr) };
	return ask_simply(d, RMEM_EVICTED, sizeof(*request), &status);
}

static u32 fill_heat(struct rs_donor *d, struct rmem_heat *request)
{
	struct rs_dev *dev = d->dev;
	u64 tags[RMEM_HEAT_MAX];
	struct rs_slab *slab;
	u32 count, i, n = 0;

	spin_lock_irq(&d->lock);
	d->heat_asked = false;
	count = d->heat_count;
	memcpy(tags, d->heat_tags, sizeof(tags));
	request->round = cpu_to_le32(d->heat_round);
	spin_unlock_irq(&d->lock);
	for (i = 0; i < count; i++) {
		if (!tags[i] || tags[i] > dev->n_slabs)
			continue;
		slab = &dev->slabs[tags[i] - 1];
		if (!rs_slab_of(slab, d, RS_MAPPED))
			continue;
		request->slabs[n++] = (struct rmem_slab_heat){
			.tag = cpu_to_le64(tags[i]), .heat = cpu_to_le64(READ_ONCE(slab->heat)),
		};
	}
	request->count = cpu_to_le32(n);
	return struct_size(request, slabs, n);
}

int rs_talk_heat(struct rs_donor *d)
{
	enum rmem_status status;
	u32 size = fill_heat(d, body_of(d->out));

	return ask_simply(d, RMEM_HEAT, size, &status);
}

/* ------------------------------------------------------------------ freeing */

/* What is queued at the donor already, and is not gone, would be an error of ours. */
static int go(struct rs_donor *d, u32 count)
{
	struct rmem_go_request *request = body_of(d->out);
	enum rmem_status status;
	int ret;

	*request = (struct rmem_go_request){ .txn = cpu_to_le64(d->txn + 1), .count = cpu_to_le64(count) };
	ret = ask_simply(d, RMEM_GO, sizeof(*request), &status);
	if (ret)
		return ret;
	if (status != RMEM_OK)
		return wrong_answer(d, "it does not commit");
	d->txn++;
	return 0;
}

static struct rmem_wire_op free_op(__le64 tag)
{
	return (struct rmem_wire_op){ .kind = cpu_to_le32(RMEM_OP_FREE), .dst = tag };
}

/* -EAGAIN: a tag is gone by itself, and so nothing is queued. */
static int free_queued(struct rs_donor *d, u32 count)
{
	struct rmem_queue_request *request = body_of(d->out);
	enum rmem_status status;
	int ret;

	request->first = 0;
	request->count = cpu_to_le32(count);
	request->reserved = 0;
	ret = ask_simply(d, RMEM_QUEUE, struct_size(request, ops, count), &status);
	if (ret)
		return ret;
	if (status == RMEM_NO_TAG)
		return -EAGAIN;
	if (status != RMEM_OK)
		return wrong_answer(d, "it does not free");
	return go(d, count);
}

int rs_talk_free(struct rs_donor *d, u64 tag)
{
	struct rmem_queue_request *request = body_of(d->out);
	int ret;

	request->ops[0] = free_op(cpu_to_le64(tag));
	ret = free_queued(d, 1);
	return ret == -EAGAIN ? 0 : ret;
}

static bool is_list(const struct answer *answer)
{
	const struct rmem_list_answer *list = answer->body;
	u32 count, i;

	if (answer->size < sizeof(*list))
		return false;
	count = le32_to_cpu(list->count);
	if (count > RMEM_LIST_MAX || answer->size != struct_size(list, regions, count))
		return false;
	for (i = 1; i < count; i++)
		if (le64_to_cpu(list->regions[i].tag) <= le64_to_cpu(list->regions[i - 1].tag))
			return false;
	return true;
}

/* The first regions of ours; 0 when there is none. */
static int free_some(struct rs_donor *d, u32 *count)
{
	struct rmem_list_request *request = body_of(d->out);
	struct rmem_queue_request *queue = body_of(d->out);
	const struct rmem_list_answer *list;
	struct answer answer;
	u32 i;
	int ret;

	request->from = 0;
	ret = ask(d, RMEM_LIST, sizeof(*request), &answer);
	if (ret)
		return ret;
	if (answer.status != RMEM_OK || !is_list(&answer))
		return wrong_answer(d, "its list of regions is wrong");
	list = answer.body;
	*count = min_t(u32, le32_to_cpu(list->count), RMEM_QUEUE_MAX);
	for (i = 0; i < *count; i++)
		queue->ops[i] = free_op(list->regions[i].tag);
	return *count ? free_queued(d, *count) : 0;
}

/* (a donor that may evict meanwhile, or goes on listing what was freed, does not hold us for ever) */
int rs_talk_free_all(struct rs_donor *d)
{
	unsigned int rounds;
	u32 count;
	int ret;

	for (rounds = 0; rounds < MAX_ROUNDS; rounds++) {
		ret = free_some(d, &count);
		if (ret == -EAGAIN)
			continue;
		if (ret || !count)
			return ret;
	}
	return wrong_answer(d, "it does not free all");
}
