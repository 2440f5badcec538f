// SPDX-License-Identifier: MIT
/*
 * Completions, and waiting for them. The library has no thread of its own for this. One of the threads that wait polls for all, and
 * the others sleep on rmem.changed. When the polling thread has what it wanted, it leaves, and another one takes its place.
 *
 * For that reason this file, request.c, txn.c, evict.c and heat.c call each other in a circle: a thread that waits for an answer
 * also handles the answers to other threads, and the donor's notices.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include "internal.h"

#define SPINS 20
#define BATCH 16
#define EVENTS 16

static void complete(struct rmem *r, const struct ibv_wc *wc)
{
	unsigned int index = wc->wr_id & ~(uint64_t)WR_KIND;

	if (wc->status == IBV_WC_REM_ACCESS_ERR)
		connection_break(r, "it refused an access: it has taken a slab, or a freed region is in use");
	else if (wc->status != IBV_WC_SUCCESS)
		connection_break(r, "%s", ibv_wc_status_str(wc->status));
	else if ((wc->wr_id & WR_KIND) == WR_SLOT)
		request_sent(r, index);
	else if ((wc->wr_id & WR_KIND) == WR_PROBE)
		probe_done(r);
	else if ((wc->wr_id & WR_KIND) == WR_RECEIVE)
		request_received(r, receive_at(r, index), wc->byte_len);
	else
		data_sent(r, index);
	if (r->qp && (wc->wr_id & WR_KIND) == WR_RECEIVE)
		post_receive(r, index);
}

/* Looks for a completion, @times times at most. */
static int look(const struct rmem *r, struct ibv_wc *wc, unsigned int times)
{
	struct ibv_cq *cq = r->cq;
	int n = 0;

	if (r->qp)
		while (times-- && !n)
			n = ibv_poll_cq(cq, BATCH, wc);
	return n;
}

static bool take_completions(struct rmem *r, unsigned int looks)
{
	struct ibv_wc wc[BATCH];
	int n = look(r, wc, looks);
	bool any = n;

	while (n > 0) {
		for (int i = 0; i < n && r->qp; i++)
			complete(r, &wc[i]);
		n = n == BATCH ? look(r, wc, 1) : 0;
	}
	if (n < 0)
		connection_break(r, "its completion queue fails");
	if (any) {
		r->heard = now_ms();
		r->looked = r->heard;
		pthread_cond_broadcast(&r->changed);
	}
	return any;
}

/* Arms the queue and looks once more, for what came before. A completion that comes after makes the descriptor readable. */
static bool arm(struct rmem *r)
{
	if (r->qp && ibv_req_notify_cq(r->cq, 0))
		connection_break(r, "its completion queue can't be armed");
	return take_completions(r, 1) || !r->qp;
}

static bool take_event(struct rmem *r)
{
	struct ibv_cq *cq;
	void *context;

	if (!r->channel || ibv_get_cq_event(r->channel, &cq, &context))
		return false;
	r->events++;
	return true;
}

static void take_events(struct rmem *r)
{
	while (take_event(r))
		;
}

static void poll_for_all(struct rmem *r)
{
	struct pollfd fd = { .events = POLLIN };

	if (take_completions(r, SPINS))
		return;
	r->polling = true;
	if (arm(r)) {
		/* This completion may have left an event, which ends a later poll() at once. Events take memory of the kernel. */
		if (++r->found_armed % EVENTS == 0)
			take_events(r);
	} else {
		fd.fd = r->channel->fd;
		pthread_mutex_unlock(&r->lock);
		poll(&fd, 1, TICK_MS);
		pthread_mutex_lock(&r->lock);
		take_event(r);
		take_completions(r, 1);
	}
	if (r->watched)
		arm(r);
	r->polling = false;
	pthread_cond_broadcast(&r->changed);
}

static void wait_for_other(struct rmem *r)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += TICK_MS / 1000;
	pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

/* Each put and get asks this. Mostly nothing is due, and one look is cheaper than the calls of four functions. */
static bool is_due(const struct rmem *r)
{
	return r->unanswered || r->txn.state == TXN_GOING || r->noticed || r->early || r->ask.count;
}

void do_what_is_due(struct rmem *r)
{
	if (!is_due(r))
		return;
	probe(r);
	requests_look(r);
	txn_run(r);
	evict_run(r);
}

int wait_step(struct rmem *r, unsigned int generation)
{
	if (r->generation == generation && r->qp) {
		if (r->polling)
			wait_for_other(r);
		else
			poll_for_all(r);
		do_what_is_due(r);
	}
	return r->generation == generation && r->qp ? 0 : connection_down(r);
}

void progress(struct rmem *r)
{
	take_completions(r, 1);
	r->looked = now_ms();
	do_what_is_due(r);
}

static int result_of(struct rmem *r, const struct rmem_op *op)
{
	if (op->result && op->status == OP_CONNECTS)
		return fail(op->result, "%s", r->connect_why);
	if (op->result && op->status)
		return answer_failed(r, op->refused, op->status);
	switch (op->result) {
	case 0:
		return 0;
	case -ENOTCONN:
		return connection_down(r);
	case -ETIMEDOUT:
		return request_late(r);
	case -EPROTO:
		return message_wrong(r);
	default:
		return fail(op->result, "%s", strerror(-op->result));
	}
}

int op_finish(struct rmem *r, struct rmem_op *op)
{
	unsigned int generation = r->generation;
	int ret;

	while (op->parts)
		if (op == r->connects || (wait_step(r, generation) && op->parts))
			pthread_cond_wait(&r->changed, &r->lock);
	ret = result_of(r, op);
	if (op->on_error)
		op_reset(op);
	return ret;
}

int leave_done(struct rmem *r, struct rmem_op *op, int ret)
{
	return leave(r, ret ? ret : op_finish(r, op));
}

int rmem_wait(struct rmem *r, struct rmem_op *op)
{
	pthread_mutex_lock(&r->lock);
	return leave(r, op_finish(r, op));
}

int rmem_test(struct rmem *r, struct rmem_op *op)
{
	pthread_mutex_lock(&r->lock);
	progress(r);
	return leave(r, op->parts ? -EAGAIN : op_finish(r, op));
}

/* The descriptor is another one after each rmem_reconnect(). */
int rmem_fd(struct rmem *r)
{
	int ret = enter(r);

	if (ret)
		return ret;
	r->watched = true;
	ret = r->channel->fd;
	arm(r);
	progress(r); /* arm() may have taken a notice, and no event comes for that any more */
	return leave(r, ret);
}

int rmem_poll(struct rmem *r)
{
	int ret = enter(r);

	if (ret)
		return ret;
	if (!r->polling) { /* otherwise the event wakes the thread that polls */
		take_events(r);
		if (r->watched)
			arm(r);
	}
	progress(r);
	return leave(r, r->qp ? 0 : connection_down(r));
}
