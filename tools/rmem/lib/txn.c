// SPDX-License-Identifier: MIT
/*
 * Transactions. The queue stays here until the rmem_txn_go() that sends it is answered. So the queue survives the connection. The
 * donor forgets its own copy of the queue when the connection ends.
 *
 * A transaction that is under way needs no thread of its own: any thread that waits or looks calls txn_run() (see wait.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

#define WINDOW 8 /* messages of a transaction under way */

void txn_drop(struct rmem *r)
{
	free(r->txn.ops);
	r->txn.ops = NULL;
	r->txn.count = r->txn.room = 0;
	r->txn.state = TXN_OPEN;
}

bool txn_took_place(const struct rmem *r, uint64_t last, uint64_t word)
{
	return r->txn.state == TXN_DOUBT && last == r->txn.last + 1 && word == r->txn.word;
}

/* @last is the donor's last transaction. With @took_place it is the one in doubt. Otherwise the one in doubt did not take place. */
int txn_reconnected(struct rmem *r, bool restarted, bool took_place, uint64_t last)
{
	struct txn *t = &r->txn;

	if (took_place) {
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

/* The donor has done the transaction: the regions that it freed are gone. */
static void committed(struct rmem *r)
{
	struct txn *t = &r->txn;

	for (size_t i = 0; i < t->count; i++)
		if (le32toh(t->ops[i].kind) == RMEM_OP_FREE)
			region_remove(r, le64toh(t->ops[i].dst));
	t->last++;
	txn_drop(r);
	op_done(t->go.op, 0);
}

/*
 * The donor has refused the transaction, and nothing has happened. The donor's queue must become empty, as ours is, and until
 * then nobody adds to ours. If the connection breaks, that empties the donor's queue, too. A donor whose disk has failed ends, and
 * only its next start tells whether the transaction took place.
 */
static void refused(struct rmem *r)
{
	struct txn *t = &r->txn;

	op_refused(t->go.op, "the transaction", t->go.refused);
	if (t->go.refused == RMEM_NOT_DURABLE) {
		connection_break(r, "its disk failed");
		return;
	}
	txn_drop(r);
	t->state = TXN_GOING;
	t->go.phase = GO_FORGET;
}

/* The result counts when all messages are answered. */
static int message_answered(struct rmem *r, const struct answer *answer)
{
	struct txn *t = &r->txn;

	t->go.under_way--;
	if (t->go.phase == GO_FORGET) {
		t->state = TXN_OPEN;
		op_done(t->go.op, 0);
		return 0;
	}
	if (!t->go.refused)
		t->go.refused = answer->status;
	if (!t->go.under_way && t->go.refused)
		refused(r);
	else if (!t->go.under_way && t->go.phase == GO_SENT)
		committed(r);
	return 0;
}

static void send_message(struct rmem *r, uint16_t type, const void *body, size_t size)
{
	const struct wanted wanted = { .op = r->txn.go.op, .answered = message_answered };

	r->txn.go.under_way++;
	request_post_op(r, type, body, size, &wanted);
}

static void send_part(struct rmem *r)
{
	struct txn *t = &r->txn;
	union queue_body body;
	size_t size = queue_message(t, t->go.first, &body);

	t->go.first += le32toh(body.queue.count);
	send_message(r, RMEM_QUEUE, &body, size);
}

/* From now on the transaction may take place. GO has the number of entries, so it is refused if a part of the queue was. */
static void send_go(struct rmem *r)
{
	struct txn *t = &r->txn;
	struct rmem_go_request body = { .txn = htole64(t->last + 1), .count = htole64(t->count), .word = htole64(t->word) };

	t->go.phase = GO_SENT;
	send_message(r, RMEM_GO, &body, sizeof(body));
}

static bool send_next(struct rmem *r)
{
	struct txn *t = &r->txn;

	if (t->go.phase == GO_QUEUE && !t->go.refused) {
		if (t->go.first < t->count)
			send_part(r);
		else
			send_go(r);
		return true;
	}
	if (t->go.phase != GO_FORGET || t->go.under_way)
		return false;
	send_message(r, RMEM_ABORT, NULL, 0);
	return true;
}

/* GO follows the last part of the queue without a wait for answers. A connection that breaks in between ends the loop. */
void txn_run(struct rmem *r)
{
	while (r->txn.state == TXN_GOING && r->txn.go.under_way < WINDOW && request_possible(r) && send_next(r))
		;
}

/*
 * No other transaction may be under way. If it returns 0, @op has begun. If others shared @op, nobody could tell from its result
 * whether the transaction took place.
 */
static int go_or_say(struct rmem *r, struct rmem_op *op)
{
	struct txn *t = &r->txn;

	if (op->on_error)
		return fail(-EINVAL, "transaction: its rmem_op has on_error set: give it one of its own");
	if (t->state == TXN_COMMITTED) {
		t->state = TXN_OPEN;
		op_begin(op);
		op_done(op, 0);
		return 0;
	}
	if (t->state == TXN_FORGOTTEN) {
		t->state = TXN_OPEN;
		return fail(-ENODATA, "transaction: the donor restarted before it took place: it is forgotten");
	}
	if (!t->count)
		return fail(-ENODATA, "transaction: nothing is queued");
	op_begin(op);
	if (t->state == TXN_OPEN)
		rmem_random(&t->word, sizeof(t->word));
	t->state = TXN_GOING;
	t->go.phase = GO_QUEUE;
	t->go.op = op;
	t->go.first = 0;
	t->go.under_way = 0;
	t->go.refused = RMEM_OK;
	txn_run(r);
	return 0;
}

int rmem_txn_go_async(struct rmem *r, struct rmem_op *op)
{
	int ret = enter(r);

	if (ret)
		return ret;
	ret = txn_settle(r);
	return leave(r, ret ? ret : go_or_say(r, op));
}

int rmem_txn_go(struct rmem *r)
{
	struct rmem_op op = { 0 };
	int ret = enter(r);

	if (ret)
		return ret;
	ret = txn_settle(r);
	return leave_done(r, &op, ret ? ret : go_or_say(r, &op));
}

int rmem_txn_go_on(struct rmem *r, unsigned int connection)
{
	struct rmem_op op = { 0 };
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	while (!ret && r->generation == connection && r->txn.state == TXN_GOING)
		ret = wait_step(r, connection);
	if (r->generation != connection || r->state != UP)
		return leave(r, fail(-EREMCHG, "donor %s: the connection is another one, or down", r->host));
	return leave_done(r, &op, go_or_say(r, &op));
}

unsigned int rmem_connection(struct rmem *r)
{
	unsigned int generation;

	pthread_mutex_lock(&r->lock);
	generation = r->generation;
	pthread_mutex_unlock(&r->lock);
	return generation;
}

/* The donor has a queue only while a transaction is under way, so it need not be told. */
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
