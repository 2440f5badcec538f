// SPDX-License-Identifier: MIT
/*
 * matrix [--total N] [--first N] [--count N] --seed SEED --gid ADDRESS [--then ADDRESS]
 *	--kinds | --members | --peer | HOST
 *
 * The mover connects to the peer at HOST. Both make cells --first to --first + --count of the --total that
 * the seed gives, connect their queue pairs, work on all, and bring the mover's into the state that the cell
 * names. The mover prints "drop QPN OPCODE" for each kind of packet that must not reach it then, and "ready".
 * On the peer's SIGUSR1 it goes on to the states, prints "loaded", and can be moved. On the next SIGUSR1 the
 * peer asks it what it found, compares it with what must be, and both work on all again and destroy
 * everything. ADDRESS is this end's own GID; after the move the other end's, --then, may be another.
 *
 * Verbs attach a queue pair to a group; that the host's IP is a member, too, is up to others: --members, until killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include "matrix.h"

#define PORT "18700"
#define LINE 512

#define EACH(c) for (struct cell *c = us.cells; c < us.cells + us.count; c++)

struct process us;
static volatile bool flowing = true;

/* -------------------------------------------------------------------- TCP -- */

static void say(const void *data, size_t len)
{
	MUST(send(us.peer, data, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void hear(void *data, size_t len)
{
	MUST(recv(us.peer, data, len, MSG_WAITALL) == (ssize_t)len);
}

/* Both are here. */
static void meet(void)
{
	char c = 'm';

	say(&c, 1);
	hear(&c, 1);
	MUST(c == 'm');
}

static int connected(const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE };
	struct addrinfo *info;
	int fd, one = 1, s;

	MUST(!getaddrinfo(host, PORT, &hints, &info));
	s = socket(AF_INET, SOCK_STREAM, 0);
	MUST(s >= 0);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (host) {
		MUST(!connect(s, info->ai_addr, info->ai_addrlen));
		fd = s;
	} else {
		MUST(!bind(s, info->ai_addr, info->ai_addrlen) && !listen(s, 1));
		fd = accept(s, NULL, NULL);
		MUST(fd >= 0);
		close(s);
	}
	freeaddrinfo(info);
	return fd;
}

/* ------------------------------------------------------------------- work -- */

/* Before the move, what can be done of it? */
static bool sends(const struct cell *c)
{
	return c->state > RTR;
}

static bool receives(const struct cell *c)
{
	return c->state >= RTR;
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

static bool fires_unread(const struct cell *c)
{
	return c->event == EV_FIRED;
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

static bool armed_limit(const struct cell *c)
{
	return c->receive == SRQ_ARMED;
}

typedef bool which_fn(const struct cell *c);

static const enum op all_ops[] = { SEND, WRITE, SEND_IMM, READ, FADD, CSWP, WRITE_IMM, ATOMIC_WRITE, FLUSH };
static const enum op one_send[] = { SEND }, two_sends[] = { SEND, SEND };

/*
 * The mover does these requests on the cells of "from", the peer on those of "to". If the mover is not to
 * poll, it leaves the last completion where it is.
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
			if (poll && in(c) && can(c, ops[i]) && has_receive(ops[i]))
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

static void *flow(void *arg)
{
	static const enum op ops[] = { WRITE, FADD, READ };
	size_t i;

	while (flowing) {
		EACH(c)
			for (i = 0; c->state == FLOW && i < NUM(ops); i++)
				post(c, ops[i]);
		EACH(c)
			for (i = 0; c->state == FLOW && i < NUM(ops); i++)
				end_send(c);
	}
	return arg;
}

static uint64_t word(const struct cell *c)
{
	uint64_t word;

	memcpy(&word, c->me.buf + (3 * SLOTS + 1) * SLOT, 8);
	return word;
}

/* Its last WRITE and all its FETCH_ADDs are there. */
static void flow_ends(pthread_t thread)
{
	struct { uint32_t sent, fadds; } mine, other;

	meet();
	flowing = false;
	MUST(!pthread_join(thread, NULL));
	EACH(c) {
		mine.sent = c->me.sent;
		mine.fadds = c->me.fadds;
		say(&mine, sizeof(mine));
	}
	EACH(c) {
		hear(&other, sizeof(other));
		if (c->state != FLOW)
			continue;
		c->me.inbound = other.sent;
		check_target(c, WRITE, other.sent - 2);
		if (word(c) != other.fadds)
			DIE("%s: %llu FETCH_ADDs are here, not %u", cell_name(c), (unsigned long long)word(c), other.fadds);
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

/* Which packets of the peer must get lost for its state? */
static int lost(const struct cell *c)
{
	switch (c->state) {
	case RETRY: return 0x11;	/* ACKNOWLEDGE */
	case READ_HALF: return 0x0f;	/* READ RESPONSE LAST */
	case ATOMIC_LOST: return 0x12;	/* ATOMIC ACKNOWLEDGE */
	default: return 0;
	}
}

/* What a cell has under way at the move */
static bool under_way(const struct cell *c, enum op *op)
{
	switch (c->state) {
	case SQD_BUSY:
	case RNR:
	case RETRY: *op = c->op; return true;
	case READ_HALF: *op = READ; return true;
	case ATOMIC_LOST: *op = FADD; return true;
	default: return false;
	}
}

/* Is a message that has come left in the CQ? */
static bool left_good(const struct cell *c)
{
	return fires(c) && c->state != ERR && !(c->state == ERR_UNPOLLED && c->receive == RQ);
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

static void load_mover(struct cell *c)
{
	uint8_t *p = c->me.buf + (c->me.sent + 1) % SLOTS * SLOT;
	enum op op;

	if (c->cqs == CQ_RESIZED)
		MUST(!ibv_resize_cq(c->me.rcq, 3 * SLOTS));
	switch (c->state) {
	case INIT:
		if (c->receive == RQ)
			post_receives(c, 2);
		break;
	case SQD:
		lead_to(c, IBV_QPS_SQD);
		break;
	case ERR:
	case ERR_UNPOLLED:
		if (left_good(c) != fires(c))
			end_receive(c);
		if (c->receive == RQ)
			post_receives(c, FLUSHED);
		lead_to(c, IBV_QPS_ERR);
		if (c->receive == RQ)
			flushed(c, 0, c->state == ERR ? FLUSHED : FLUSHED / 2);
		break;
	default:
		if (!under_way(c, &op))
			break;
		begin(c, op);
		/* (the last packet of a message of one packet is the ONLY one, which is not dropped) */
		while (op == READ && !is_filled(p, 16, c, false, ~0))
			MUST(in_time());
		if (c->state == SQD_BUSY)
			lead_to(c, IBV_QPS_SQD);
	}
}

static void load_peer(struct cell *c)
{
	enum op op;

	if (!under_way(c, &op))
		return;
	expect(c, op);
	if (c->state == RETRY)
		end_receive(c);
	while (op == FADD && word(c) != c->me.fadds_in)
		MUST(in_time());
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
	[SQD] = IBV_QPS_SQD, [SQD_BUSY] = IBV_QPS_SQD, [ERR] = IBV_QPS_ERR, [ERR_UNPOLLED] = IBV_QPS_ERR,
	[RNR] = IBV_QPS_RTS, [RETRY] = IBV_QPS_RTS, [READ_HALF] = IBV_QPS_RTS, [ATOMIC_LOST] = IBV_QPS_RTS,
	[FLOW] = IBV_QPS_RTS, [OVERFLOW] = IBV_QPS_ERR,
};

/* The mover's line of a cell */
static void found(struct cell *c, char line[LINE])
{
	struct ibv_srq_attr srq = { 0 };
	struct ibv_wc wc;
	int good = 0, bad = 0;

	if (c->me.srq)
		MUST(!ibv_query_srq(c->me.srq, &srq));
	while (c->me.due_tail != c->me.due_head && (c->state == OVERFLOW ? good < 3 : left_good(c) && !good)) {
		end_receive(c);
		good++;
	}
	if (c->state == ERR_UNPOLLED && c->receive == RQ)
		flushed(c, FLUSHED / 2, FLUSHED);
	while (poll_receive(c, &wc))
		bad++;
	while (c->state != FLOW && c->state < RNR && poll_send(c, &wc))
		bad++;
	snprintf(line, LINE, "qp=%d limit=%u events=%u async=%s good=%d bad=%d", qp_state(c), srq.srq_limit,
		 c->me.cq_events, c->me.async, good, bad);
}

/* What the peer knows that it must be */
static void expected(struct cell *c, char line[LINE])
{
	bool err = c->state == ERR || c->state == ERR_UNPOLLED;
	bool flushed = err && c->receive == RQ;

	snprintf(line, LINE, "qp=%d limit=%u events=%u async=%s%s%s%s good=%d bad=0", left_in[c->state],
		 c->receive == SRQ_ARMED ? STOCK - 1 : 0, fires(c) || (c->event == EV_ARMED && flushed),
		 limits(c) ? "<SRQ limit reached>" : "",
		 c->state == SQD ? "<send queue drained>" : "",
		 err && c->receive != RQ ? "<last WQE reached>" : "",
		 c->state == OVERFLOW ? "<CQ error>" : "",
		 c->state == OVERFLOW ? 3 : left_good(c));
}

static void compare(void)
{
	char line[LINE], other[LINE];
	int wrong = 0;

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
		ibv_ack_cq_events(c->me.rcq, c->me.unacked);
		c->me.unacked = 0;
		while (c->me.num_kept)
			ibv_ack_async_event(&c->me.kept[--c->me.num_kept]);
	}
}

/* What was under way is done. */
static void finish(void)
{
	enum op op;

	EACH(c)
		if (!us.mover && under_way(c, &op) && (c->state == RNR || c->state == SQD_BUSY))
			post_receives(c, 1);
	EACH(c) {
		if (!under_way(c, &op))
			continue;
		if (us.mover)
			end_send(c);
		else if (c->state == RNR || c->state == SQD_BUSY)
			end_receive(c);
		else
			check_target(c, op, c->me.inbound);
		while (us.mover && c->state == SQD_BUSY && !strstr(c->me.async, "drained")) {
			if (!in_time())
				DIE("%s: never drained", cell_name(c));
			read_async(true);
		}
	}
	meet();
}

static void revive(void)
{
	EACH(c) {
		/* (whom the mover's did not know yet knows it at its old address) */
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

/* ------------------------------------------------------- memory and windows -- */

static void place_in_memory(const struct cell *c, size_t *at, size_t *len)
{
	*at = c->memory == BYTE ? 0 : c->memory == GIB ? 777777777 + c->id : 4000 + c->id;
	*len = c->memory == BYTE ? 1 : 5000;
}

/* What the peer wrote is there. Of UC nobody knows when: it is not acknowledged, and the peer's word may be faster. */
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
		if (c->memory != MEMFD)
			continue;
		copy = malloc(len);
		MUST(copy && pread(c->me.memory_fd, copy, len, at) == (ssize_t)len);
		if (!is_filled(copy, len, c, false, number))
			DIE("%s: its file holds something else", cell_name(c));
		free(copy);
	}
}

/* The peer writes there, and reads it again. */
static void use_memory(which_fn *which, uint32_t number)
{
	size_t at, len;

	EACH(c) {
		if (c->type == UD || us.mover || !which(c))
			continue;
		place_in_memory(c, &at, &len);
		fill(c->me.buf, len, c, false, number);
		one_sided(c, IBV_WR_RDMA_WRITE, c->there.memory + at, c->there.memory_rkey, len);
		if (c->type == RC) {
			memset(c->me.buf, 0, len);
			one_sided(c, IBV_WR_RDMA_READ, c->there.memory + at, c->there.memory_rkey, len);
			if (!is_filled(c->me.buf, len, c, false, number))
				DIE("%s: its memory is read otherwise", cell_name(c));
		}
		if (c->window != NO_MW) {
			fill(c->me.buf, SLOT, c, false, number + 1);
			one_sided(c, IBV_WR_RDMA_WRITE, c->there.window, c->there.window_rkey, SLOT);
		}
	}
	meet();
	EACH(c) {
		if (us.mover && c->window != NO_MW && which(c) &&
		    !is_written(c, c->me.buf + 2 * SLOTS * SLOT, SLOT, number + 1))
			DIE("%s: its window leads elsewhere", cell_name(c));
	}
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

/* The peer sends to the groups of these. */
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
	return keeps(c) && fires(c);
}

static bool others(const struct cell *c)
{
	return !keeps(c);
}

static bool others_unacked(const struct cell *c)
{
	return others(c) && c->event == EV_UNACKED;
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
			MUST(!ibv_req_notify_cq(c->me.rcq, 0));
}

static void read_events(void)
{
	if (!us.mover)
		return;
	read_cq_events();
	read_async(false);
	EACH(c)
		while (keeps(c) && !strstr(c->me.async, c->state == SQD ? "drained" : c->state == OVERFLOW ? "CQ" : "WQE")) {
			MUST(in_time());
			read_async(false);
		}
}

/* First what is read, but not acknowledged, then what is not even read. */
static void raise_events(void)
{
	struct ibv_srq_attr attr = { 0 };

	EACH(c) {
		if (!c->me.srq || c->receive == SRQ)
			continue;
		attr.srq_limit = c->receive == SRQ_ARMED ? STOCK - 1 : STOCK + 1;
		MUST(!ibv_modify_srq(c->me.srq, &attr, IBV_SRQ_LIMIT));
	}
	exchange(one_send, 1, never, limits_unacked, true, true);
	arm_cqs(keeps);
	exchange(one_send, 1, never, keeps_fired, true, false);
	load_these(keeps);
	read_events();
	exchange(one_send, 1, never, limits_unread, true, true);
	arm_cqs(others);
	exchange(one_send, 1, never, others_unacked, true, false);
	if (us.mover)
		read_cq_events();
	exchange(one_send, 1, never, fires_unread, true, false);
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
		if (us.mover && lost(c))
			printf("drop %u %u\n", c->here.qpn, lost(c));
	puts("ready");
}

static void load(void)
{
	EACH(c)
		if (!us.mover && c->state == RETRY)
			post_receives(c, 1);
	wait_for_signal();
	load_these(others);
	meet();
	puts("loaded");
}

static void after(void)
{
	check_memory(receives, 0xffff0000);
	compare();
	finish();
	revive();
	if (!us.mover)
		EACH(c)
			if (c->type == UD)
				make_ah(c, &us.dgid);
	exchange(all_ops, NUM(all_ops), always, always, true, true);
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
		if (us.mover && c->me.cq_events != (c->event != EV_NONE))
			DIE("%s: %u events", cell_name(c), c->me.cq_events);
		ibv_ack_cq_events(c->me.rcq, c->me.unacked);
	}
	leave();
	EACH(c)
		destroy_end(c);
	MUST(!ibv_destroy_comp_channel(us.channel) && !ibv_dealloc_pd(us.pd) && !ibv_close_device(us.ctx));
	meet();
	printf("%d cells as they must be\n", us.count);
}

int main(int argc, char **argv)
{
	enum { TOTAL = 256, FIRST, COUNT, SEED, GID, THEN, KINDS, MEMBERS, PEER };
	static const struct option options[] = {
		{ "total", 1, NULL, TOTAL }, { "first", 1, NULL, FIRST }, { "count", 1, NULL, COUNT },
		{ "seed", 1, NULL, SEED }, { "gid", 1, NULL, GID }, { "then", 1, NULL, THEN },
		{ "kinds", 0, NULL, KINDS }, { "members", 0, NULL, MEMBERS }, { "peer", 0, NULL, PEER }, { 0 }
	};
	const char *gid = NULL, *then = NULL;
	int total = 200, first = 0, count = 200, opt;
	bool kinds = false, members = false, peer = false;
	pthread_t thread;
	sigset_t set;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case TOTAL: total = atoi(optarg); break;
		case FIRST: first = atoi(optarg); break;
		case COUNT: count = atoi(optarg); break;
		case SEED: us.seed = strtoull(optarg, NULL, 0); break;
		case GID: gid = optarg; break;
		case THEN: then = optarg; break;
		case KINDS: kinds = true; break;
		case MEMBERS: members = true; break;
		case PEER: peer = true; break;
		default: DIE("see the head of the source");
		}
	}
	if (kinds) {
		count_kinds(us.seed, total);
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
	MUST(!pthread_create(&thread, NULL, flow, NULL));
	wait_for_signal();
	flow_ends(thread);
	if (then)
		MUST(inet_pton(AF_INET, then, us.dgid.raw + 12) == 1);
	after();
	return 0;
}
