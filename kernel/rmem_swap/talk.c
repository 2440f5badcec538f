// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a donor is asked (rmem/wire.h). The donor's workqueue asks, one request at a time, and waits as long as the queue pair
 * lives: a donor that moves answers late. The answers are not trusted: one that does not fit ends the connection.
 */

#include <linux/overflow.h>
#include <linux/sched/mm.h>

#include "rmem_swap.h"

#define SLAB_FLAG 1	/* RMEM_SLAB of librmem: the donor may evict it, and never keeps it on its disk */
#define MAX_ROUNDS 1024	/* of LIST, when all is freed */

struct answer {
	enum rmem_status status;
	const void *body;
	u32 size;
};

/* ------------------------------------------------------------------ asking */

/* The caller has put the request's body into d->out. This waits for two completions: of the SEND, and of the answer's RECV. */
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
	/* If the donor failed before reinit_completion(), nobody completes d->asked. If it fails later, rs_donor_fail() does. */
	if (test_bit(RS_FAILED, &d->flags))
		return -ENOTCONN;
	ret = rs_post_message(d, size);
	if (ret) {
		rs_donor_fail(d, "the queue pair does not take a message: %d", ret);
		return -ENOTCONN;
	}
	/* A donor may move for minutes. The task waits in TASK_IDLE, so that it is not reported as hung. */
	wait_for_completion_state(&d->asked, TASK_IDLE);
	if (test_bit(RS_FAILED, &d->flags))
		return -ENOTCONN;
	answer->status = le16_to_cpu(d->in->status);
	answer->body = rs_body_of(d->in);
	answer->size = le32_to_cpu(d->in->size) - sizeof(*d->in);
	return 0;
}

static int wrong_answer(struct rs_donor *d, const char *what)
{
	rs_donor_fail(d, "%s", what);
	return -EPROTO;
}

/* For a request whose answer never has a body. */
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
	struct rmem_alloc_request *request = rs_body_of(d->out);
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

/* The status does not matter: if the donor has taken the slab already, or never had it, it does not keep it for us either. */
int rs_talk_evicted(struct rs_donor *d, const struct rs_named *named)
{
	struct rmem_evict *request = rs_body_of(d->out);
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
	u32 size = fill_heat(d, rs_body_of(d->out));

	return ask_simply(d, RMEM_HEAT, size, &status);
}

/* ------------------------------------------------------------------ freeing */

/* Has the donor free all that is queued, except slabs that it has taken back since. A refusal is a fault of one of us. */
static int go(struct rs_donor *d, u32 count)
{
	struct rmem_go_request *request = rs_body_of(d->out);
	enum rmem_status status;
	int ret;

	/* No word, since we never send a transaction again. */
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

/* -EAGAIN: the donor has taken a region back meanwhile, so nothing is queued. */
static int free_queued(struct rs_donor *d, u32 count)
{
	struct rmem_queue_request *request = rs_body_of(d->out);
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

/* Frees the first of our regions. *@count is 0 if the donor has none. */
static int free_some(struct rs_donor *d, u32 *count)
{
	struct rmem_list_request *request = rs_body_of(d->out);
	struct rmem_queue_request *queue = rs_body_of(d->out);
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

/* A donor that evicts meanwhile, or goes on listing what was freed, must not hold us for ever: hence MAX_ROUNDS. */
int rs_talk_free_all(struct rs_donor *d)
{
	unsigned int rounds;
	u32 count;
	int ret;

	for (rounds = 0; rounds < MAX_ROUNDS; rounds++) {
		ret = free_some(d, &count);
		/* it may have to register what it lists, and goes on answering */
		WRITE_ONCE(d->steps, d->steps + 1);
		if (ret == -EAGAIN)
			continue;
		if (ret || !count)
			return ret;
	}
	return wrong_answer(d, "it does not free all");
}
