// SPDX-License-Identifier: MIT
/*
 * matrix [--total N] [--first N] [--count N] [--limit SECONDS] --seed SEED --gid ADDRESS [--then ADDRESS]
 *	--kinds LEAST | --members | --peer | HOST
 *
 * The mover connects to the peer at HOST. Both make cells --first to --first + --count of the --total that the seed gives,
 * connect their queue pairs, work on all, and bring the mover's queue pairs into the states of their cells. Both print "drop QPN
 * OPCODE" for each kind of packet that must not reach them then, and "ready". On SIGUSR1 the peer goes on to the states and
 * prints "loaded"; now the mover can be moved. On the next SIGUSR1 the peer asks the mover what it found, and compares this with
 * what must be. Then both work on all again and destroy everything. ADDRESS is this end's own GID. After the move that of the
 * other end may be --then.
 *
 * Anything that does not come within --limit (600) seconds of the first wait ends the program. --kinds counts the kinds of the
 * cells, and ends with 75 if one comes less often than LEAST.
 *
 * Verbs attach a queue pair to a group. The host's IP must be a member, too: --members makes it one, until killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "matrix.h"

#define LINE 512

struct process us;

/* ------------------------------------------------------------------- work -- */

/* Which cells can do what before the move? */
static bool sends(const struct cell *c)
{
	return c->state > RTR;
}

static bool always(const struct cell *c)
{
	(void)c;
	return true;
}

static bool never(const struct cell *c)
{
	(void)c;
	return false;
}

static bool fires(const struct cell *c)
{
	return c->event >= EV_FIRED;
}

/* Does its event report what it sends? */
static bool by_send(const struct cell *c)
{
	return c->notify == NT_SEND;
}

static bool fires_unread(const struct cell *c)
{
	return c->event == EV_FIRED && !by_send(c);
}

static bool fires_unread_by_send(const struct cell *c)
{
	return c->event == EV_FIRED && by_send(c);
}

static bool limits(const struct cell *c)
{
	return c->receive >= SRQ_FIRED;
}

static bool limits_unacked(const struct cell *c)
{
	return c->receive == SRQ_UNACKED;
}

static bool limits_unread(const struct cell *c)
{
	return c->receive == SRQ_FIRED;
}

static bool solicited(const struct cell *c)
{
	return c->notify == NT_SOLICITED;
}

static bool armed_limit(const struct cell *c)
{
	return c->receive == SRQ_ARMED;
}

typedef bool which_fn(const struct cell *c);

/* a FLUSH flushes what the WRITE before it wrote */
static const enum op all_ops[] = { SEND, WRITE, FLUSH, SEND_IMM, READ, FADD, CSWP, WRITE_IMM, ATOMIC_WRITE };
static const enum op one_send[] = { SEND }, two_sends[] = { SEND, SEND };

/*
 * The mover does these requests on the cells of "from", and the peer on those of "to". If the mover does not poll, it leaves the
 * last completions where they are.
 */
static void exchange(const enum op *ops, int count, which_fn *from, which_fn *to, bool post_them, bool poll)
{
	which_fn *out = us.mover ? from : to, *in = us.mover ? to : from;
	uint32_t number;
	int i;

	EACH(c)
		for (i = 0; i < count; i++)
			if (in(c) && can(c, ops[i]) && has_receive(ops[i]) && post_them)
				post_receives(c, 1);
	meet();
	EACH(c)
		for (i = 0; i < count; i++) {
			if (in(c) && can(c, ops[i]))
				expect(c, ops[i]);
			if (out(c) && can(c, ops[i]))
				post(c, ops[i]);
		}
	EACH(c)
		for (i = 0; i < count; i++) {
			if (out(c) && can(c, ops[i]))
				end_send(c);
			if ((poll || !us.mover) && in(c) && can(c, ops[i]) && has_receive(ops[i]))
				end_receive(c);
		}
	meet();
	EACH(c) {
		number = c->me.inbound;
		for (i = count - 1; i >= 0; i--)
			if (in(c) && can(c, ops[i]))
				check_target(c, ops[i], number--);
	}
}

/* ----------------------------------------------------------------- states -- */

static int qp_state(const struct cell *c)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(!ibv_query_qp(c->me.qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void begin(struct cell *c, enum op op)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr before, attr;

	MUST(!ibv_query_qp(c->me.qp, &before, IBV_QP_SQ_PSN, &init));
	post(c, op);
	do {
		MUST(in_time());
		MUST(!ibv_query_qp(c->me.qp, &attr, IBV_QP_SQ_PSN, &init));
	} while (attr.sq_psn == before.sq_psn);
}

/* Does the request that is under way belong to the peer? */
static bool inward(const struct cell *c)
{
	return c->state == READ_LOST_IN || c->state == ATOMIC_LOST_IN || c->state == SEND_HALF;
}

/* Which answers must get lost for its state, or for SEND_HALF which packet of the request? */
static int lost(const struct cell *c)
{
	switch (c->state) {
	case RETRY: return 0x11;	/* ACKNOWLEDGE */
	case READ_HALF:
	case READ_LOST_IN: return 0x0f;	/* READ RESPONSE LAST */
	case ATOMIC_LOST:
	case ATOMIC_LOST_IN:	/* ATOMIC ACKNOWLEDGE, READ RESPONSE ONLY */
		return c->op == FADD || c->op == CSWP ? 0x12 : 0x10;
	case SEND_HALF:	/* SEND LAST, with immediate data, with a key */
		return c->op == SEND ? 0x02 : c->op == SEND_IMM ? 0x03 : 0x16;
	default: return 0;
	}
}

/* Has this end begun something that is not done at the move? */
static bool begins(const struct cell *c)
{
	return (c->state == SQD_BUSY || c->state == RNR || lost(c)) && us.mover != inward(c);
}

/* Has the other end begun something that is not done at the move? */
static bool awaits(const struct cell *c)
{
	return (c->state == SQD_BUSY || c->state == RNR || lost(c)) && us.mover == inward(c);
}

/* How many messages that have come are left in the CQ? */
static int left_good(const struct cell *c)
{
	if (c->state == OVERFLOW)
		return 3;
	if (c->state == ERR || (c->state == ERR_UNPOLLED && c->receive == RQ))
		return 0;
	return (fires(c) && !by_send(c)) + (holds(c) ? NUM(two_sends) : 0) + (c->state == SEND_HALF);
}

/* Is its send queue drained before the move? */
static bool drained(const struct cell *c)
{
	return c->state == SQD || c->state == SQD_BEHIND;
}

enum { FLUSHED = 4 };

/* These receives are flushed, and no others before. */
static void flushed(struct cell *c, int from, int to)
{
	struct ibv_wc wc;
	int i;

	for (i = from; i < to; i++) {
		while (!poll_receive(c, &wc))
			if (!in_time())
				DIE("%s: receive %d is not flushed", cell_name(c), i);
		if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.wr_id != (c->me.posted - FLUSHED + i) % SLOTS)
			DIE("%s: receive %d: %s", cell_name(c), (int)wc.wr_id, ibv_wc_status_str(wc.status));
	}
}

/* The next requests are flushed, and no others before. */
static void flushed_sends(struct cell *c, int count)
{
	struct ibv_wc wc;
	uint32_t number;

	while (count--) {
		number = c->me.done[c->me.done_tail++ % NUM(c->me.done)].number;
		while (!poll_send(c, &wc))
			if (!in_time())
				DIE("%s: request %u is not flushed", cell_name(c), number);
		if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.wr_id != number || wc.qp_num != c->me.qp->qp_num)
			DIE("%s: request %u, %u is due: %s", cell_name(c), (uint32_t)wc.wr_id, number,
			    ibv_wc_status_str(wc.status));
	}
}

/* Where the other end's ATOMIC WRITEs go */
static uint8_t *atomic_word(const struct cell *c)
{
	return c->me.buf + ATOMICS * SLOT + 16;
}

/* The other end has this end's request, and has done it, if it can. */
static void load_request(struct cell *c)
{
	uint8_t *p = c->me.buf + (c->me.sent + 1) % SLOTS * SLOT;

	if (c->op == FLUSH) {
		post(c, WRITE);
		end_send(c);
	}
	begin(c, c->op);
	/* The last packet of a message of one packet is an ONLY packet, which is not dropped. */
	while (c->op == READ && !is_filled(p, 16, c, !us.mover, ~0))
		MUST(in_time());
}

/* Were its FETCH_ADDs, or CMP_SWAPs, each done once? (A repeated CMP_SWAP gives the other end another word.) */
static bool atomics_done(const struct cell *c)
{
	return (c->op != FADD || word(c, FADD) == c->me.fadds_in) && (c->op != CSWP || word(c, CSWP) == c->me.cswps_in);
}

/* All of a message is in the receive that was posted last, but for its last packet. */
static bool half_received(const struct cell *c)
{
	uint8_t *p = c->me.buf + (SLOTS + (c->me.posted - 1 - (c->me.srq ? STOCK : 0)) % SLOTS) * SLOT;
	size_t len = message_len(c, c->op, c->me.inbound);

	return is_filled(p, (len - 1) / MTU * MTU, c, !us.mover, c->me.inbound);
}

static void load_answer(struct cell *c)
{
	if (c->op == FLUSH)
		expect(c, WRITE);
	expect(c, c->op);
	if (c->state == RETRY)
		end_receive(c);
	while (!atomics_done(c) || (c->state == SEND_HALF && !half_received(c)))
		MUST(in_time());
	while (c->op == ATOMIC_WRITE && !is_filled(atomic_word(c), 8, c, !us.mover, c->me.inbound))
		MUST(in_time());
	/* If the request is done again, it writes there again. */
	if (c->op == ATOMIC_WRITE)
		memset(atomic_word(c), 0, 8);
}

static void load_mover(struct cell *c)
{
	int i, polled = c->state == ERR ? FLUSHED : FLUSHED / 2;

	switch (c->state) {
	case INIT:
		if (c->receive == RQ)
			post_receives(c, 2);
		break;
	case SQD:
	case SQD_BEHIND:
		lead_to(c, IBV_QPS_SQD);
		break;
	case ERR:
	case ERR_UNPOLLED:
		while (!left_good(c) && c->me.due_tail != c->me.due_head)
			end_receive(c);
		if (c->receive == RQ)
			post_receives(c, FLUSHED);
		/* The first of RC's are under way, since there is no receive for them. */
		for (i = 0; i < FLUSHED; i++) {
			if (i == (c->type == RC ? FLUSHED / 2 : 0))
				lead_to(c, IBV_QPS_ERR);
			post(c, SEND);
		}
		if (c->receive == RQ)
			flushed(c, 0, polled);
		flushed_sends(c, polled);
		break;
	case SQD_BUSY:
		load_request(c);
		lead_to(c, IBV_QPS_SQD);
		break;
	default:
		if (begins(c))
			load_request(c);
		if (awaits(c))
			load_answer(c);
	}
	if (behind(c))
		post(c, SEND);
	if (behind(c) && c->window == MW2)
		post_invalidation(c);
	/* The CQ is resized while it holds completions. */
	if (c->cqs == CQ_RESIZED)
		MUST(!ibv_resize_cq(c->me.rcq, 3 * SLOTS));
}

static void load_peer(struct cell *c)
{
	if (begins(c))
		load_request(c);
	if (awaits(c))
		load_answer(c);
	if (c->state == SQD_BEHIND)
		post_receives(c, 1);
	if (behind(c))
		expect(c, SEND);
	if (c->state == ERR || c->state == ERR_UNPOLLED)
		c->me.inbound += FLUSHED;	/* flushed requests have numbers, too */
}

/* Six messages for a CQ with room for three */
static void overflow(which_fn *which)
{
	struct ibv_wc wc;
	int i;

	EACH(c)
		if (which(c) && c->state == OVERFLOW && us.mover)
			post_receives(c, OVERFLOWING);
	meet();
	EACH(c)
		for (i = 0; which(c) && c->state == OVERFLOW && i < OVERFLOWING; i++) {
			if (us.mover)
				expect(c, SEND);
			else
				post(c, SEND);
		}
	EACH(c)
		while (which(c) && c->state == OVERFLOW && us.mover && qp_state(c) != IBV_QPS_ERR)
			MUST(in_time());
	meet();
	EACH(c) {
		if (us.mover || !which(c) || c->state != OVERFLOW)
			continue;
		lead_to(c, IBV_QPS_ERR);
		for (i = 0; i < OVERFLOWING; i++)
			while (!poll_send(c, &wc))
				MUST(in_time());
	}
	meet();
}

/* ----------------------------------------------------- what the move has left -- */

static const enum ibv_qp_state left_in[NUM_STATES] = {
	[RESET] = IBV_QPS_RESET, [INIT] = IBV_QPS_INIT, [RTR] = IBV_QPS_RTR, [RTS] = IBV_QPS_RTS,
	[SQD] = IBV_QPS_SQD, [SQD_BEHIND] = IBV_QPS_SQD, [SQD_BUSY] = IBV_QPS_SQD,
	[ERR] = IBV_QPS_ERR, [ERR_UNPOLLED] = IBV_QPS_ERR,
	[RNR] = IBV_QPS_RTS, [RETRY] = IBV_QPS_RTS, [READ_HALF] = IBV_QPS_RTS, [ATOMIC_LOST] = IBV_QPS_RTS,
	[READ_LOST_IN] = IBV_QPS_RTS, [ATOMIC_LOST_IN] = IBV_QPS_RTS, [SEND_HALF] = IBV_QPS_RTS, [FLOW] = IBV_QPS_RTS,
	[OVERFLOW] = IBV_QPS_ERR,
};

/* The mover's line of a cell */
static void found(struct cell *c, char line[LINE])
{
	struct ibv_srq_attr srq = { 0 };
	struct ibv_wc wc;
	int good = 0, bad = 0;

	if (c->me.srq)
		MUST(!ibv_query_srq(c->me.srq, &srq));
	while (c->me.due_tail != c->me.due_head && good < left_good(c)) {
		end_receive(c);
		good++;
	}
	if (c->state == ERR_UNPOLLED && c->receive == RQ)
		flushed(c, FLUSHED / 2, FLUSHED);
	if (c->state == ERR_UNPOLLED)
		flushed_sends(c, FLUSHED / 2);
	while (poll_receive(c, &wc))
		bad++;
	while (c->state != FLOW && c->state < RNR && poll_send(c, &wc))
		bad++;
	snprintf(line, LINE, "qp=%d limit=%u events=%u async=%s good=%d bad=%d", qp_state(c), srq.srq_limit,
		 c->me.cq_events, c->me.async, good, bad);
}

/* The line that the mover must have found, as the peer knows it */
static void expected(struct cell *c, char line[LINE])
{
	bool err = c->state == ERR || c->state == ERR_UNPOLLED;
	bool flushed = err && c->receive == RQ;

	snprintf(line, LINE, "qp=%d limit=%u events=%u async=%s%s%s%s good=%d bad=0", left_in[c->state],
		 c->receive == SRQ_ARMED ? STOCK - 1 : 0,
		 fires(c) || (c->event == EV_ARMED && ((flushed && c->notify == NT_RECEIVE) ||
						       (c->state == SEND_HALF && !by_send(c)))),
		 limits(c) ? "<SRQ limit reached>" : "",
		 drained(c) ? "<send queue drained>" : "",
		 err && c->receive != RQ ? "<last WQE reached>" : "",
		 c->state == OVERFLOW ? "<CQ error>" : "", left_good(c));
}

static void compare(void)
{
	char line[LINE], other[LINE];
	int wrong = 0;

	EACH(c)
		if (!us.mover && c->state == SEND_HALF)
			end_send(c);
	meet();
	if (us.mover) {
		read_cq_events();
		read_async(true);
	}
	EACH(c) {
		memset(line, 0, LINE);
		if (us.mover) {
			found(c, line);
			say(line, LINE);
			continue;
		}
		expected(c, line);
		hear(other, LINE);
		if (!strcmp(line, other))
			continue;
		fprintf(stderr, "%s: expected %s, found %s\n", cell_name(c), line, other);
		wrong++;
	}
	if (wrong)
		exit(1);
	meet();
	EACH(c) {
		ibv_ack_cq_events(notified_cq(c), c->me.unacked);
		c->me.unacked = 0;
		while (c->me.num_kept)
			ibv_ack_async_event(&c->me.kept[--c->me.num_kept]);
	}
}

/* The request that was under way is done, once. */
static void finish(void)
{
	struct ibv_wc wc;

	EACH(c)
		if (awaits(c) && (c->state == RNR || c->state == SQD_BUSY))
			post_receives(c, 1 + behind(c));
	EACH(c) {
		if (begins(c) && c->state != SEND_HALF)
			end_send(c);
		if (awaits(c) && (c->state == RNR || c->state == SQD_BUSY))
			end_receive(c);
		while (us.mover && c->state == SQD_BUSY && !strstr(c->me.async, "drained")) {
			if (!in_time())
				DIE("%s: never drained", cell_name(c));
			read_async(true);
		}
	}
	meet();
	EACH(c) {
		if (behind(c) && (us.mover ? poll_send(c, &wc) : poll_receive(c, &wc)))
			DIE("%s: what was posted in SQD is done there", cell_name(c));
		if (!awaits(c))
			continue;
		if (c->op == FLUSH)
			check_target(c, WRITE, c->me.inbound - 1);
		if (!atomics_done(c))
			DIE("%s: its FETCH_ADD or CMP_SWAP was not done once", cell_name(c));
		if (c->op == ATOMIC_WRITE && memcmp(atomic_word(c), (uint8_t[8]){ 0 }, 8))
			DIE("%s: its ATOMIC_WRITE was done again", cell_name(c));
	}
}

static void revive(void)
{
	EACH(c) {
		/* The mover's queue pair was not connected yet, so nobody told the peer of the mover's new address. */
		if (!us.mover && c->state <= INIT)
			lead_to(c, IBV_QPS_RESET);
		if (c->state == ERR || c->state == ERR_UNPOLLED || c->state == OVERFLOW) {
			lead_to(c, IBV_QPS_RESET);
			c->me.due_tail = c->me.due_head;
			c->me.done_tail = c->me.done_head;
			if (us.mover && c->state == OVERFLOW)	/* with room for all that comes next */
				MUST(!ibv_resize_cq(c->me.rcq, 3 * SLOTS));
		}
	}
	meet();
	EACH(c)
		if (qp_state(c) != IBV_QPS_RTS)
			lead_to(c, IBV_QPS_RTS);
	meet();
}

/* A request that was posted in SQD is done in RTS. */
static void finish_behind(void)
{
	EACH(c) {
		if (!behind(c))
			continue;
		if (us.mover)
			end_send(c);
		else
			end_receive(c);
		if (us.mover && c->window == MW2)
			end_invalidation(c);
		c->invalidated = c->window == MW2;
	}
}

/* ------------------------------------------------------- memory and windows -- */

enum { TWIN_AT = 16384 };	/* what goes through the second region */

static void place_in_memory(const struct cell *c, size_t *at, size_t *len)
{
	*at = c->memory == BYTE ? 0 : c->memory == GIB ? 777777777 + c->id : 4000 + c->id;
	*len = c->memory == BYTE ? 1 : 5000;
}

/* What the peer wrote is there. For UC nobody knows when: it is not acknowledged, and the peer's word may be faster. */
static bool is_written(const struct cell *c, const uint8_t *p, size_t len, uint32_t number)
{
	while (!is_filled(p, len, c, false, number))
		if (c->type != UC || !in_time())
			return false;
	return true;
}

static void check_memory(which_fn *which, uint32_t number)
{
	uint8_t *copy;
	size_t at, len;

	EACH(c) {
		if (c->type == UD || !us.mover || !which(c))
			continue;
		place_in_memory(c, &at, &len);
		if (!is_written(c, c->me.memory + at, len, number))
			DIE("%s: its memory holds something else", cell_name(c));
		if (c->memory == TWIN && !is_written(c, c->me.memory + TWIN_AT + at, len, number))
			DIE("%s: its second region leads elsewhere", cell_name(c));
		if (!in_file(c))
			continue;
		copy = malloc(len);
		MUST(copy && pread(c->me.memory_fd, copy, len, c->me.memory_at + at) == (ssize_t)len);
		if (!is_filled(copy, len, c, false, number))
			DIE("%s: its file holds something else", cell_name(c));
		free(copy);
	}
}

/* Does the flow leave what was written before it? */
static bool untouched(const struct cell *c)
{
	return receives(c) && !(flows_in(c) && c->memory == BYTE);
}

/* The peer writes there, and reads it again. */
static void use_region(struct cell *c, uint64_t at, uint32_t rkey, size_t len, uint32_t number)
{
	fill(c->me.buf, len, c, false, number);
	one_sided(c, IBV_WR_RDMA_WRITE, at, rkey, len, IBV_WC_SUCCESS);
	if (c->type != RC)
		return;
	memset(c->me.buf, 0, len);
	one_sided(c, IBV_WR_RDMA_READ, at, rkey, len, IBV_WC_SUCCESS);
	if (!is_filled(c->me.buf, len, c, false, number))
		DIE("%s: its memory is read otherwise", cell_name(c));
}

static void use_memory(which_fn *which, uint32_t number)
{
	size_t at, len;

	EACH(c) {
		if (c->type == UD || us.mover || !which(c))
			continue;
		place_in_memory(c, &at, &len);
		use_region(c, c->there.memory + at, c->there.memory_rkey, len, number);
		if (c->memory == TWIN)
			use_region(c, c->there.memory + TWIN_AT + at, c->there.other_rkey, len, number);
		if (c->window != NO_MW && !c->invalidated) {
			fill(c->me.buf, SLOT, c, false, number + 1);
			one_sided(c, IBV_WR_RDMA_WRITE, c->there.window, c->there.window_rkey, SLOT, IBV_WC_SUCCESS);
		}
	}
	meet();
	EACH(c) {
		if (us.mover && c->window != NO_MW && !c->invalidated && which(c) &&
		    !is_written(c, c->me.buf + WINDOW * SLOT, SLOT, number + 1))
			DIE("%s: its window leads elsewhere", cell_name(c));
	}
}

/*
 * The peer may not use a window that is invalidated, or a region that was moved out of the queue pair's PD. This is the last
 * request, since both queue pairs fail by it.
 */
static void try_forbidden(void)
{
	EACH(c) {
		if (us.mover || c->type != RC)
			continue;
		if (c->invalidated)
			one_sided(c, IBV_WR_RDMA_WRITE, c->there.window, c->there.window_rkey, 8, IBV_WC_REM_ACCESS_ERR);
		else if (c->memory == REREG_PD)
			one_sided(c, IBV_WR_RDMA_READ, c->there.memory, c->there.other_rkey, 8, IBV_WC_REM_ACCESS_ERR);
	}
	meet();
}

static union ibv_gid group(const struct cell *c)
{
	return (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 239, 0, c->id >> 8, c->id } };
}

static void join(void)
{
	union ibv_gid gid;

	EACH(c) {
		if (c->group != GROUP || !us.mover)
			continue;
		gid = group(c);
		MUST(!ibv_attach_mcast(c->me.qp, &gid, 0));
	}
}

static void leave(void)
{
	union ibv_gid gid;

	EACH(c) {
		if (c->group != GROUP || !us.mover)
			continue;
		gid = group(c);
		if (ibv_detach_mcast(c->me.qp, &gid, 0) || !ibv_detach_mcast(c->me.qp, &gid, 0))
			DIE("%s: was not attached once", cell_name(c));
	}
}

static bool groups(const struct cell *c)
{
	return c->group == GROUP;
}

static bool groups_receive(const struct cell *c)
{
	return groups(c) && receives(c);
}

static void be_members(void)
{
	struct ip_mreqn group_of = { 0 };
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	memcpy(&group_of.imr_address, us.gid.raw + 12, 4);
	EACH(c) {
		if (!groups(c))
			continue;
		memcpy(&group_of.imr_multiaddr, group(c).raw + 12, 4);
		if (setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group_of, sizeof(group_of)))
			DIE("%s: %m", cell_name(c));
	}
	puts("joined");
	pause();
}

/* The peer sends to the groups of these cells. */
static void send_to_groups(which_fn *which)
{
	enum { MULTICAST_QPN = 0xffffff };
	union ibv_gid gid;

	EACH(c) {
		if (us.mover || !groups(c))
			continue;
		gid = group(c);
		make_ah(c, &gid);
		c->unicast_qpn = c->there.qpn;
		c->there.qpn = MULTICAST_QPN;
	}
	exchange(one_send, 1, never, which, true, true);
	EACH(c) {
		if (us.mover || !groups(c))
			continue;
		make_ah(c, &us.dgid);
		c->there.qpn = c->unicast_qpn;
	}
}

/* ------------------------------------------------------------------ phases -- */

static void wait_for_signal(void)
{
	sigset_t set;
	int sig;

	fflush(stdout);
	if (!us.mover) {
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		MUST(!sigwait(&set, &sig));
	}
	meet();
}

static void connect_all(void)
{
	EACH(c) {
		create_end(c);
		if (c->me.srq)
			post_receives(c, STOCK);
	}
	join();
	say(&us.gid, sizeof(us.gid));
	hear(&us.dgid, sizeof(us.dgid));
	EACH(c)
		say(&c->here, sizeof(c->here));
	EACH(c)
		hear(&c->there, sizeof(c->there));
	EACH(c) {
		if (c->type == UD)
			make_ah(c, &us.dgid);
		if (us.mover && c->state <= RTR)
			lead_to(c, left_in[c->state]);
		else
			lead_to(c, IBV_QPS_RTS);
	}
	EACH(c)
		if (us.mover && c->window != NO_MW)
			bind_window(c);
	EACH(c)
		say(&c->here, sizeof(c->here));
	EACH(c)
		hear(&c->there, sizeof(c->there));
	meet();
}

/* Asynchronous events of these are read before the move, and acknowledged after it. */
static bool keeps(const struct cell *c)
{
	return c->async == AS_UNACKED;
}

static bool keeps_fired(const struct cell *c)
{
	return keeps(c) && fires(c) && !by_send(c);
}

static bool keeps_fired_by_send(const struct cell *c)
{
	return keeps(c) && fires(c) && by_send(c);
}

static bool others(const struct cell *c)
{
	return !keeps(c);
}

static bool others_unacked(const struct cell *c)
{
	return others(c) && c->event == EV_UNACKED && !by_send(c);
}

static bool others_unacked_by_send(const struct cell *c)
{
	return others(c) && c->event == EV_UNACKED && by_send(c);
}

static void load_these(which_fn *which)
{
	EACH(c) {
		if (!which(c))
			continue;
		if (us.mover)
			load_mover(c);
		else
			load_peer(c);
	}
	overflow(which);
}

static void arm_cqs(which_fn *which)
{
	EACH(c)
		if (us.mover && which(c) && c->event != EV_NONE)
			MUST(!ibv_req_notify_cq(notified_cq(c), solicited(c)));
}

/* Reads the completion events that are to be read before the move. */
static void await_cq_events(which_fn *which)
{
	if (!us.mover)
		return;
	read_cq_events();
	EACH(c)
		while (which(c) && c->event == EV_UNACKED && !c->me.cq_events) {
			MUST(in_time());
			read_cq_events();
		}
}

static void read_events(void)
{
	await_cq_events(keeps);
	if (!us.mover)
		return;
	read_async(false);
	EACH(c)
		while (keeps(c) && !strstr(c->me.async, drained(c) ? "drained" : c->state == OVERFLOW ? "CQ" : "WQE")) {
			MUST(in_time());
			read_async(false);
		}
}

/* Raises first the events that are to be read but not acknowledged, then those that are not even read. */
static void raise_events(void)
{
	struct ibv_srq_attr attr = { 0 };

	us.soliciting = true;
	exchange(two_sends, 2, never, holds, true, false);
	EACH(c) {
		if (!c->me.srq || c->receive == SRQ)
			continue;
		attr.srq_limit = c->receive == SRQ_ARMED ? STOCK - 1 : STOCK + 1;
		MUST(!ibv_modify_srq(c->me.srq, &attr, IBV_SRQ_LIMIT));
	}
	exchange(one_send, 1, never, limits_unacked, true, true);
	arm_cqs(keeps);
	exchange(one_send, 1, keeps_fired_by_send, keeps_fired, true, false);
	load_these(keeps);
	read_events();
	exchange(one_send, 1, never, limits_unread, true, true);
	arm_cqs(others);
	exchange(one_send, 1, others_unacked_by_send, others_unacked, true, false);
	await_cq_events(others);
	exchange(one_send, 1, fires_unread_by_send, fires_unread, true, false);
}

static void before(void)
{
	connect_all();
	exchange(all_ops, NUM(all_ops), sends, receives, true, true);
	send_to_groups(groups_receive);
	use_memory(receives, 0xffff0000);
	check_memory(receives, 0xffff0000);
	raise_events();
	EACH(c)
		if (lost(c) && (c->state == SEND_HALF ? awaits(c) : begins(c)))
			printf("drop %u %u\n", c->here.qpn, lost(c));
	puts("ready");
}

static void load(void)
{
	struct ibv_wc wc;

	EACH(c)
		if (c->state == (us.mover ? SEND_HALF : RETRY))
			post_receives(c, 1);
	wait_for_signal();
	load_these(others);
	meet();
	EACH(c)
		if (begins(c) && poll_send(c, &wc))
			DIE("%s: its request is done: %s", cell_name(c), ibv_wc_status_str(wc.status));
	puts("loaded");
}

/* No event came for messages that were not solicited. */
static void check_unsolicited(void)
{
	if (!us.mover)
		return;
	read_cq_events();
	EACH(c)
		if (solicited(c) && c->event == EV_ARMED && c->state != SEND_HALF && c->me.cq_events)
			DIE("%s: an event of what was not solicited", cell_name(c));
}

/* Address handles of a peer lead to the place where the other end is now. */
static void renew_ahs(bool moved)
{
	int remade = 0, kept = 0;

	EACH(c) {
		if (us.mover || c->type != UD)
			continue;
		if (moved)
			make_ah(c, &us.dgid);
		remade += moved;
		kept += !moved;
	}
	if (!us.mover)
		printf("address handles: %d remade, %d kept\n", remade, kept);
}

/* there: the other end has another address now. */
static void after(bool there)
{
	check_memory(untouched, 0xffff0000);
	compare();
	finish();
	revive();
	finish_behind();
	renew_ahs(there);
	us.soliciting = false;
	exchange(all_ops, NUM(all_ops), always, always, true, true);
	check_unsolicited();
	us.soliciting = true;
	exchange(one_send, 1, never, solicited, true, true);
	send_to_groups(groups);
	use_memory(always, 0xffff0002);
	check_memory(always, 0xffff0002);
	exchange(two_sends, 2, never, armed_limit, false, true);
	if (us.mover) {
		read_cq_events();
		read_async(true);
	}
	EACH(c) {
		if (us.mover && c->receive == SRQ_ARMED && !strstr(c->me.async, "SRQ limit"))
			DIE("%s: its limit is reached without an event", cell_name(c));
		while (us.mover && c->event != EV_NONE && !c->me.cq_events) {
			if (!in_time())
				DIE("%s: its event never comes", cell_name(c));
			read_cq_events();
		}
		if (us.mover && c->me.cq_events != (c->event != EV_NONE))
			DIE("%s: %u events", cell_name(c), c->me.cq_events);
		ibv_ack_cq_events(notified_cq(c), c->me.unacked);
	}
	try_forbidden();
	leave();
	EACH(c)
		destroy_end(c);
	MUST(!ibv_destroy_comp_channel(us.channel) && !ibv_dealloc_pd(us.pd) && !ibv_close_device(us.ctx));
	meet();
	printf("%d cells as they must be\n", us.count);
}

int main(int argc, char **argv)
{
	enum { TOTAL = 256, FIRST, COUNT, LIMIT, SEED, GID, THEN, KINDS, MEMBERS, PEER };
	static const struct option options[] = {
		{ "total", 1, NULL, TOTAL }, { "first", 1, NULL, FIRST }, { "count", 1, NULL, COUNT },
		{ "limit", 1, NULL, LIMIT }, { "seed", 1, NULL, SEED }, { "gid", 1, NULL, GID }, { "then", 1, NULL, THEN },
		{ "kinds", 1, NULL, KINDS }, { "members", 0, NULL, MEMBERS }, { "peer", 0, NULL, PEER }, { 0 }
	};
	const char *gid = NULL, *then = NULL;
	int total = 200, first = 0, count = 200, kinds = -1, opt;
	bool members = false, peer = false;
	union ibv_gid before_it;
	sigset_t set;

	us.limit = 600;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case TOTAL: total = atoi(optarg); break;
		case FIRST: first = atoi(optarg); break;
		case COUNT: count = atoi(optarg); break;
		case LIMIT: us.limit = atoi(optarg); break;
		case SEED: us.seed = strtoull(optarg, NULL, 0); break;
		case GID: gid = optarg; break;
		case THEN: then = optarg; break;
		case KINDS: kinds = atoi(optarg); break;
		case MEMBERS: members = true; break;
		case PEER: peer = true; break;
		default: DIE("see the head of the source");
		}
	}
	if (kinds >= 0) {
		count_kinds(us.seed, total, kinds);
		return 0;
	}
	if (!gid || (!peer && !members && optind != argc - 1))
		DIE("see the head of the source");
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);

	us.mover = !peer;
	make_cells(us.seed, total, first, count);
	open_device(gid);
	if (members)
		be_members();
	us.peer = connected(peer ? NULL : argv[optind]);
	before();
	load();
	flow_begins();
	wait_for_signal();
	flow_ends();
	before_it = us.dgid;
	if (then)
		MUST(inet_pton(AF_INET, then, us.dgid.raw + 12) == 1);
	after(memcmp(&us.dgid, &before_it, sizeof(before_it)));
	return 0;
}
