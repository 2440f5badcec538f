// SPDX-License-Identifier: MIT
/*
 * Transactions. The queue stays here until the rmem_txn_go() that sends it is answered. So the queue survives the connection, at
 * whose end the donor forgets what was queued there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

#define WINDOW 8 /* queue messages under way */

void txn_drop(struct rmem *r)
{
	free(r->txn.ops);
	r->txn.ops = NULL;
	r->txn.count = r->txn.room = 0;
	r->txn.state = TXN_OPEN;
}

bool txn_took_place(const struct rmem *r, uint64_t last)
{
	return r->txn.state == TXN_DOUBT && last == r->txn.last + 1;
}

/* The donor has told its last transaction, @last. It is the one in doubt, or the one before it. */
int txn_reconnected(struct rmem *r, bool restarted, uint64_t last)
{
	struct txn *t = &r->txn;

	if (txn_took_place(r, last)) {
		txn_drop(r);
		t->state = TXN_COMMITTED;
	} else if (restarted && t->count) {
		txn_drop(r);
		t->state = TXN_FORGOTTEN;
	} else if (t->state == TXN_DOUBT) {
		if (last != t->last)
			return fail(-EPROTO, "client %s: another process uses this name: give each one its own", r->client);
		t->state = TXN_AGAIN;
	}
	t->last = last;
	return 0;
}

bool txn_frees(const struct rmem *r, uint64_t tag)
{
	for (size_t i = 0; i < r->txn.count; i++)
		if (le32toh(r->txn.ops[i].kind) == RMEM_OP_FREE && le64toh(r->txn.ops[i].dst) == tag)
			return true;
	return false;
}

int txn_settle(struct rmem *r)
{
	unsigned int generation = r->generation;

	while (r->txn.state == TXN_GOING)
		if (wait_step(r, generation))
			return -ENOTCONN;
	return 0;
}

static int add(struct rmem *r, uint32_t kind, uint64_t dst, uint64_t src, uint64_t len)
{
	struct txn *t = &r->txn;

	if (t->count == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		struct rmem_wire_op *ops = reallocarray(t->ops, room, sizeof(*ops));

		if (!ops)
			return fail(-ENOMEM, "transaction: no memory for %zu entries", room);
		t->ops = ops;
		t->room = room;
	}
	t->ops[t->count++] = (struct rmem_wire_op){
		.kind = htole32(kind), .dst = htole64(dst), .src = htole64(src), .len = htole64(len),
	};
	return 0;
}

/* Locks. If it returns 0, entries may be added to the queue. */
static int enter_open(struct rmem *r)
{
	int ret = enter(r);

	if (ret)
		return ret;
	ret = txn_settle(r);
	if (!ret && r->txn.state != TXN_OPEN)
		ret = fail(-EBUSY, "transaction: nobody has asked yet what became of the one before: rmem_txn_go()");
	return ret ? leave(r, ret) : 0;
}

static int check_copy(struct rmem *r, uint64_t dst, uint64_t src, size_t len)
{
	struct region *region;
	int ret = region_at(r, dst, len, &region);

	if (!ret)
		ret = region_at(r, src, len, &region);
	if (ret)
		return ret;
	if (!len || (dst < src ? src - dst < len : dst - src < len))
		return fail(-EINVAL, "copy: its ranges are empty, or overlap");
	return 0;
}

int rmem_cp(struct rmem *r, uint64_t dst, uint64_t src, size_t len)
{
	int ret = enter_open(r);

	if (ret)
		return ret;
	ret = check_copy(r, dst, src, len);
	return leave(r, ret ? ret : add(r, RMEM_OP_CP, dst, src, len));
}

int rmem_free(struct rmem *r, uint64_t tag)
{
	struct region *region;
	int ret = enter_open(r);

	if (ret)
		return ret;
	region = region_of(r, tag);
	if (!region || region->evicted)
		return leave(r, fail(-ENOENT, "region %llu: there is no such tag", (unsigned long long)tag));
	return leave(r, add(r, RMEM_OP_FREE, tag, 0, 0));
}

union queue_body {
	struct rmem_queue_request queue;
	uint8_t bytes[RMEM_MSG_SIZE];
};

static size_t queue_message(const struct txn *t, size_t first, union queue_body *body)
{
	struct rmem_queue_request *queue = &body->queue;
	size_t count = t->count - first < RMEM_QUEUE_MAX ? t->count - first : RMEM_QUEUE_MAX;

	*queue = (struct rmem_queue_request){ .first = htole64(first), .count = htole32(count) };
	memcpy(queue->ops, t->ops + first, count * sizeof(*queue->ops));
	return sizeof(*queue) + count * sizeof(*queue->ops);
}

/* If it returns 0, the transaction may take place from now on. */
static int begin_go(struct rmem *r, unsigned int generation, struct request *request)
{
	struct txn *t = &r->txn;
	struct rmem_go_request body = { .txn = htole64(t->last + 1), .count = htole64(t->count) };
	int ret = request_begin(r, generation, RMEM_GO, &body, sizeof(body), request);

	t->sent = !ret;
	return ret;
}

/*
 * Sends some messages at once, and waits for all of them. A failure of the connection counts first, then the first refusal.
 * Behind the last part of the queue goes RMEM_GO, without a wait for the answers: it has the number of entries, so it is refused if
 * one of the parts was.
 */
static int send_some(struct rmem *r, unsigned int generation, size_t *first)
{
	struct request requests[WINDOW + 1] = { 0 };
	union queue_body body;
	int begun = 0, ret = 0;

	while (!ret && begun < WINDOW && *first < r->txn.count) {
		size_t size = queue_message(&r->txn, *first, &body);

		ret = request_begin(r, generation, RMEM_QUEUE, &body, size, &requests[begun]);
		if (ret)
			break;
		begun++;
		*first += (size - sizeof(struct rmem_queue_request)) / sizeof(struct rmem_wire_op);
	}
	if (!ret && *first == r->txn.count) {
		ret = begin_go(r, generation, &requests[begun]);
		begun += !ret;
	}
	for (int i = 0; i < begun; i++) {
		int one = request_end(r, &requests[i]);

		/* A connection that breaks ends all requests. */
		if (one < 0)
			return one;
		ret = ret ? ret : one;
	}
	return ret;
}

/* The queue, and RMEM_GO. */
static int send_all(struct rmem *r, unsigned int generation)
{
	size_t first = 0;
	int ret = 0;

	while (!ret && first < r->txn.count)
		ret = send_some(r, generation, &first);
	return ret;
}

/* The donor has done the transaction: the regions that it freed are gone. */
static void committed(struct rmem *r)
{
	struct txn *t = &r->txn;

	for (size_t i = 0; i < t->count; i++)
		if (le32toh(t->ops[i].kind) == RMEM_OP_FREE)
			region_remove(r, le64toh(t->ops[i].dst));
	t->last++;
	txn_drop(r);
}

/* The donor has refused the transaction, and nothing has happened. The donor's queue must become empty, as ours is. */
static int refused(struct rmem *r, unsigned int generation, int status)
{
	txn_drop(r);
	r->txn.state = TXN_GOING; /* until the donor's queue is empty nobody adds to ours */
	r->txn.sent = false;
	/* A connection that breaks empties the donor's queue, too, and opens ours. */
	if (request_call(r, generation, RMEM_ABORT, NULL, 0, NULL, 0) >= 0)
		r->txn.state = TXN_OPEN;
	return answer_failed(r, "the transaction", status);
}

/* If a step returns less than 0, the connection is lost, and connection_break() has already set the state of the queue. */
static int go(struct rmem *r)
{
	struct txn *t = &r->txn;
	unsigned int generation = r->generation;
	int ret;

	t->state = TXN_GOING;
	t->sent = false;
	ret = send_all(r, generation);
	if (ret < 0)
		return ret;
	if (ret == RMEM_OK) {
		committed(r);
		return 0;
	}
	if (ret != RMEM_NOT_DURABLE)
		return refused(r, generation, ret);
	connection_break(r, "its disk failed");
	return answer_failed(r, "the transaction", ret);
}

/* No other thread may be in rmem_txn_go(). */
static int go_or_say(struct rmem *r)
{
	int ret;

	if (r->txn.state == TXN_COMMITTED) {
		r->txn.state = TXN_OPEN;
		return 0;
	}
	if (r->txn.state == TXN_FORGOTTEN) {
		r->txn.state = TXN_OPEN;
		return fail(-ENODATA, "transaction: the donor restarted before it took place: it is forgotten");
	}
	if (!r->txn.count)
		return fail(-ENODATA, "transaction: nothing is queued");
	ret = go(r);
	pthread_cond_broadcast(&r->changed);
	return ret;
}

int rmem_txn_go(struct rmem *r)
{
	int ret = enter(r);

	if (ret)
		return ret;
	ret = txn_settle(r);
	return leave(r, ret ? ret : go_or_say(r));
}

int rmem_txn_go_on(struct rmem *r, unsigned int connection)
{
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	while (!ret && r->generation == connection && r->txn.state == TXN_GOING)
		ret = wait_step(r, connection);
	if (r->generation != connection || !r->qp)
		return leave(r, fail(-EREMCHG, "donor %s: the connection is another one", r->host));
	return leave(r, go_or_say(r));
}

unsigned int rmem_connection(struct rmem *r)
{
	unsigned int generation;

	pthread_mutex_lock(&r->lock);
	generation = r->generation;
	pthread_mutex_unlock(&r->lock);
	return generation;
}

/* The donor has a queue only during rmem_txn_go(), so it need not be told. */
int rmem_txn_abort(struct rmem *r)
{
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	if (r->txn.state == TXN_GOING)
		ret = txn_settle(r);
	if (!ret && r->txn.state == TXN_DOUBT)
		ret = connection_down(r);
	if (!ret && r->txn.state == TXN_COMMITTED)
		ret = fail(-EALREADY, "transaction: the one that broke has taken place");
	if (ret != -ENOTCONN)
		txn_drop(r);
	return leave(r, ret);
}

uint64_t rmem_last_txn(struct rmem *r)
{
	uint64_t last;

	pthread_mutex_lock(&r->lock);
	last = r->txn.last;
	pthread_mutex_unlock(&r->lock);
	return last;
}
