// SPDX-License-Identifier: MIT
/*
 * ioctl_fuzz [--seed N] [--calls N] [--restores N] [--least N] [--no-cap]: calls the driver's migration methods with random and
 * boundary arguments, on contexts with and without objects, from two threads, and restores changed dumps.
 *
 * A call must come back, and the kernel log tells the rest. A call with an attribute of a wrong length, without a needed
 * attribute, or with an unknown mandatory one must fail. With --no-cap no method may do anything: a valid call gives EPERM, and
 * any other call an error. Prints how often each error came, and how often each method was called with valid arguments. With
 * --least N it ends with 75 if a method was called less often than that.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/rxe_migrate.h>

#include "../../programs/random.h"

#define DIE(...) (fprintf(stderr, "ioctl_fuzz: " __VA_ARGS__), fputc('\n', stderr), exit(1))

enum { NUM_QP = 6, MEM_SIZE = 1 << 16, OUT_SIZE = 128, MAX_DUMP = 4 << 20, MAX_ERRNO = 134 };

static uint64_t seed, calls = 4000, restores = 150, least;
static bool no_cap;
static __thread bool spoil;		/* the next call */
static uint8_t *memory;			/* of MRs, and random arguments */
static int cm_file;			/* of librdmacm, with ids */
static uint32_t last_qpn;		/* of the queue pair that was made last */

/* ------------------------------------------------------------- randomness -- */

static uint64_t edge(void)
{
	return edge_of(64);
}

/* A good address, or one of the bad kinds. */
static uint64_t address(void)
{
	switch (below(8)) {
	case 0: return 0;
	case 1: return below(4096);
	case 2: return 0xffff800000000000ull + rnd() % (1ull << 40);
	case 3: return rnd();
	case 4: return (uintptr_t)memory + MEM_SIZE - below(16);	/* what begins there ends beyond our memory */
	default: return (uintptr_t)memory + below(MEM_SIZE / 2);
	}
}

/* ------------------------------------------------------------------ calls -- */

struct cmd {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[8];
};

/* An attribute of least to most bytes. An output may be longer. An attribute that is not MUST may be missing. */
struct length {
	uint16_t least, most;
	bool must;
};
#define MUST(type)	{ sizeof(type), sizeof(type), true }
#define GROWS(least)	{ least, 65535, true }

static const struct method {
	const char *name;
	uint16_t object, id;
	struct length in, out;
} methods[] = {
#define METHOD(object, name, ...)	{ #name, object, RXE_METHOD_MIGR_##name, __VA_ARGS__ }
	METHOD(RXE_OBJECT_MIGR, QUERY, { 4, 8, false }, GROWS(offsetof(struct rxe_migr_query, num_paused))),
	METHOD(RXE_OBJECT_MIGR, DUMP, MUST(struct rxe_migr_buf), GROWS(sizeof(struct rxe_migr_dump))),
	METHOD(RXE_OBJECT_MIGR, ABORT, { 8, 8, false }, { 0 }),
	METHOD(RXE_OBJECT_MIGR, BEGIN, MUST(struct rxe_migr_begin), { 0 }),
	METHOD(RXE_OBJECT_MIGR, HINT, MUST(struct rxe_migr_hint), { 0 }),
	METHOD(RXE_OBJECT_MIGR, REFILL, MUST(struct rxe_migr_buf), { 0 }),
	METHOD(RXE_OBJECT_MIGR, RESUME, MUST(struct rxe_migr_resume), { 0 }),
	METHOD(RXE_OBJECT_MIGR, EVENT_FD, MUST(int32_t), GROWS(sizeof(struct rxe_migr_event_fd))),
	METHOD(RXE_OBJECT_MIGR_DEVICE, STATUS, MUST(struct rxe_migr_buf), GROWS(sizeof(struct rxe_migr_dump))),
	METHOD(RXE_OBJECT_MIGR_DEVICE, KEY, MUST(struct rxe_migr_key), { 8, 8, false }),
	METHOD(RXE_OBJECT_MIGR_DEVICE, TAKEN, MUST(struct rxe_migr_hint), { 0 }),
	METHOD(RXE_OBJECT_MIGR_CM, CM_LIST, MUST(struct rxe_migr_cm_list), GROWS(sizeof(struct rxe_migr_dump))),
	METHOD(RXE_OBJECT_MIGR_CM, CM_ADOPT, MUST(struct rxe_migr_cm_adopt), { 0 }),
	METHOD(RXE_OBJECT_MIGR_CM, CM_CONNECT, MUST(struct rxe_migr_cm_connect), { 0 }),
	METHOD(RXE_OBJECT_MIGR_CM, CM_REFILL, MUST(struct rxe_migr_cm_refill), { 0 }),
	METHOD(RXE_OBJECT_MIGR_CM, CM_DEVICE, MUST(struct rxe_migr_cm_device), { sizeof(struct rxe_migr_cm_device),
	       sizeof(struct rxe_migr_cm_device), false }),
	METHOD(RXE_OBJECT_MIGR_CM, CM_EVENTS, MUST(struct rxe_migr_cm_list), GROWS(sizeof(struct rxe_migr_dump))),
	METHOD(RXE_OBJECT_MIGR_CM, CM_REPORT, MUST(struct rxe_migr_cm_report), { 0 }),
	METHOD(RXE_OBJECT_MIGR_DEVICE, CALLS, MUST(struct rxe_migr_buf), GROWS(sizeof(struct rxe_migr_dump))),
};
#define NUM_METHODS (sizeof(methods) / sizeof(methods[0]))

static struct {
	unsigned errors[MAX_ERRNO + 1];
	unsigned proper[NUM_METHODS];
	unsigned wrong;
} *came;				/* shared with the children */

static const struct method *method_of(const struct cmd *c)
{
	for (const struct method *m = methods; m < methods + NUM_METHODS; m++)
		if (m->object == c->hdr.object_id && m->id == c->hdr.method_id)
			return m;
	return NULL;
}

/* Must the driver, or uverbs before it, refuse this call because of its attributes? */
static bool is_wrong(const struct cmd *c)
{
	const struct method *m = method_of(c);
	bool in = false, out = false;

	for (unsigned i = 0; m && i < c->hdr.num_attrs; i++) {
		const struct ib_uverbs_attr *a = &c->attrs[i];
		const struct length *l = a->attr_id == RXE_ATTR_MIGR_IN ? &m->in :
					 a->attr_id == RXE_ATTR_MIGR_RESP ? &m->out : NULL;

		if (l && l->most) {
			if (a->len < l->least || a->len > l->most)
				return true;
			*(l == &m->in ? &in : &out) = true;
		} else if (a->flags & UVERBS_ATTR_F_MANDATORY) {
			return true;
		}
	}
	return !m || (m->in.must && !in) || (m->out.must && !out);
}

static int call(int fd, struct cmd *c)
{
	int err;

	c->hdr.length = sizeof(c->hdr) + c->hdr.num_attrs * sizeof(c->attrs[0]);
	err = ioctl(fd, RDMA_VERBS_IOCTL, c) ? errno : 0;
	__atomic_add_fetch(&came->errors[err <= MAX_ERRNO ? err : MAX_ERRNO], 1, __ATOMIC_RELAXED);
	if (is_wrong(c)) {
		__atomic_add_fetch(&came->wrong, 1, __ATOMIC_RELAXED);
		if (!err)
			DIE("method 0x%x of object 0x%x succeeds with attributes that are wrong", c->hdr.method_id,
			    c->hdr.object_id);
	}
	if (err > 133)
		DIE("method 0x%x of object 0x%x gives %d, no error of user space", c->hdr.method_id,
		    c->hdr.object_id, err);
	if (no_cap && !err)
		DIE("method 0x%x of object 0x%x succeeds without capability", c->hdr.method_id, c->hdr.object_id);
	return err;
}

static void attr(struct cmd *c, uint16_t id, const void *data, uint16_t len)
{
	struct ib_uverbs_attr *a = &c->attrs[c->hdr.num_attrs++];

	*a = (struct ib_uverbs_attr){ .attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY };
	if (len <= 8 && id == RXE_ATTR_MIGR_IN)
		memcpy(&a->data, data, len);
	else
		a->data = (uintptr_t)data;
}

/* One attribute gets a wrong length, or is removed, or one more is added. */
static void spoil_attrs(struct cmd *c)
{
	unsigned n = c->hdr.num_attrs;
	struct ib_uverbs_attr *a = &c->attrs[n ? below(n) : 0];
	const uint16_t lengths[] = { 0, 1, a->len - 1, a->len + 1, OUT_SIZE };

	switch (n ? below(4) : 3) {
	case 0:
	case 1: a->len = lengths[below(5)]; break;
	case 2: *a = c->attrs[--c->hdr.num_attrs]; break;
	case 3:
		c->attrs[c->hdr.num_attrs++] = (struct ib_uverbs_attr){
			.attr_id = below(2) ? RXE_ATTR_MIGR_IN + below(8) : edge(), .len = lengths[below(5)],
			.flags = UVERBS_ATTR_F_MANDATORY, .data = address(),
		};
	}
}

static int method(int fd, uint16_t object, uint16_t id, const void *in, uint16_t in_len, void *out,
		  uint16_t out_len)
{
	struct cmd c = { .hdr = { .object_id = object, .method_id = id, .driver_id = RDMA_DRIVER_RXE } };

	if (in)
		attr(&c, RXE_ATTR_MIGR_IN, in, in_len);
	if (out)
		attr(&c, RXE_ATTR_MIGR_RESP, out, out_len);
	if (spoil)
		spoil_attrs(&c);
	else
		__atomic_add_fetch(&came->proper[method_of(&c) - methods], 1, __ATOMIC_RELAXED);
	return call(fd, &c);
}

/* Random bytes for everything. */
static void noise(int fd)
{
	static const uint16_t lengths[] = { 0, 1, 4, 8, 16, 24, 40, 64, 4096, 65535 };
	struct cmd c = { .hdr = { .driver_id = below(16) ? RDMA_DRIVER_RXE : rnd() } };
	unsigned n = below(4), i;

	c.hdr.object_id = RXE_OBJECT_MIGR + below(8) / 7 * below(4) + below(3);
	c.hdr.method_id = RXE_METHOD_MIGR_QUERY + below(10);
	c.hdr.reserved1 = below(32) ? 0 : rnd();
	for (i = 0; i < n; i++) {
		c.attrs[i].attr_id = below(4) ? RXE_ATTR_MIGR_IN + i : edge();
		c.attrs[i].len = below(4) ? lengths[below(10)] : rnd();
		c.attrs[i].flags = below(4) ? UVERBS_ATTR_F_MANDATORY : rnd();
		c.attrs[i].data = below(2) ? address() : edge();
	}
	c.hdr.num_attrs = n;
	call(fd, &c);
}

/* Calls that a caller might make by mistake or on purpose: valid calls with bad fields. */
static void proper(int fd)
{
	static __thread uint64_t out[OUT_SIZE / 8];
	/* The driver may allocate much for a boundary length, which takes time. */
	struct rxe_migr_buf buf = { .addr = address(), .length = below(16) ? below(MEM_SIZE) : edge(),
				    .flags = below(4) ? below(4) : rnd(), .reserved = below(8) ? 0 : rnd() };
	struct rxe_migr_begin begin = { .session = edge(), .fd = below(2) ? fd : (int)edge(),
					.flags = below(4) ? 0 : rnd() };
	struct rxe_migr_hint hint = { .type = below(8), .index = edge(), .key = edge(),
				      .pid = below(2) ? 0 : (int)edge() };
	struct rxe_migr_resume resume = { .pid = below(2) ? 0 : (int)edge(), .reserved = below(8) ? 0 : rnd() };
	struct rxe_migr_key key = { .op = below(8), .reserved = below(8) ? 0 : rnd() };
	uint32_t query_flags = below(8) ? below(2) : rnd();
	uint64_t since = edge();
	const void *in[] = {
		[0] = below(2) ? &query_flags : NULL, [1] = &buf, [2] = below(4) ? NULL : &since, [3] = &begin, [4] = &hint,
		[5] = &buf, [6] = &resume,
	};
	static const uint16_t in_len[] = { sizeof(query_flags), sizeof(buf), sizeof(since), sizeof(begin), sizeof(hint),
					   sizeof(buf), sizeof(resume) };
	static const uint16_t out_len[] = { sizeof(struct rxe_migr_query), sizeof(struct rxe_migr_dump) };
	int event_fd = below(2) ? (int)below(16) : (int)edge(), err;
	struct rxe_migr_cm_list list = { .fd = below(4) ? cm_file : (int)edge(), .addr = address(),
					 .length = below(16) ? below(MEM_SIZE) : edge(),
					 .flags = below(8) ? below(2) : rnd() };
	struct rxe_migr_cm_adopt adopt = { .fd = below(4) ? cm_file : (int)edge(), .pid = below(2) ? 0 : (int)edge() };
	struct rxe_migr_cm_connect conn = { .qp_num = below(4) ? last_qpn - below(64) : edge(), .comm_id = edge(),
					    .remote_comm_id = edge(), .state = below(8) ? 5 + below(2) : rnd() };
	struct rxe_migr_cm_refill refill = { .fd = below(4) ? cm_file : (int)edge(), .id = below(4) ? below(4) : edge(),
					     .events_reported = edge(), .reserved = below(8) ? 0 : rnd() };
	struct rxe_migr_cm_report report = { .fd = below(4) ? cm_file : (int)edge(), .reserved = below(8) ? 0 : rnd(),
					     .event = { .uid = edge(), .id = below(4),
						       .event = below(4) ? below(18) : edge() } };
	struct rxe_migr_cm_device device = { .fd = below(4) ? cm_file : (int)edge(), .flags = below(8) ? below(2) : rnd(),
					     .index = below(2) ? below(8) : edge(), .reserved = below(8) ? 0 : rnd() };
	unsigned m = below(NUM_METHODS);

	spoil = below(6) == 0;
	if (m < 7)
		err = method(fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_QUERY + m, in[m], in_len[m], m < 2 ? out : NULL,
			     m < 2 ? out_len[m] : 0);
	else if (m == 7)
		err = method(fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_EVENT_FD, &event_fd, 4, out,
			     sizeof(struct rxe_migr_event_fd));
	else if (m == 8)
		err = method(fd, RXE_OBJECT_MIGR_DEVICE, RXE_METHOD_MIGR_STATUS, &buf, sizeof(buf), out,
			     sizeof(struct rxe_migr_dump));
	else if (m == 9)
		err = method(fd, RXE_OBJECT_MIGR_DEVICE, RXE_METHOD_MIGR_KEY, &key, sizeof(key), out, 8);
	else if (m == 10)
		err = method(fd, RXE_OBJECT_MIGR_DEVICE, RXE_METHOD_MIGR_TAKEN, &hint, sizeof(hint), NULL, 0);
	else if (m == 11)
		err = method(fd, RXE_OBJECT_MIGR_CM, RXE_METHOD_MIGR_CM_LIST, &list, sizeof(list), out,
			     sizeof(struct rxe_migr_dump));
	else if (m == 12)
		err = method(fd, RXE_OBJECT_MIGR_CM, RXE_METHOD_MIGR_CM_ADOPT, &adopt, sizeof(adopt), NULL, 0);
	else if (m == 13)
		err = method(fd, RXE_OBJECT_MIGR_CM, RXE_METHOD_MIGR_CM_CONNECT, &conn, sizeof(conn), NULL, 0);
	else if (m == 14)
		err = method(fd, RXE_OBJECT_MIGR_CM, RXE_METHOD_MIGR_CM_EVENTS, &list, sizeof(list), out,
			     sizeof(struct rxe_migr_dump));
	else if (m == 15)
		err = method(fd, RXE_OBJECT_MIGR_CM, RXE_METHOD_MIGR_CM_REPORT, &report, sizeof(report), NULL, 0);
	else if (m == 16)
		err = method(fd, RXE_OBJECT_MIGR_CM, RXE_METHOD_MIGR_CM_DEVICE, &device, sizeof(device),
			     below(2) ? out : NULL, sizeof(device));
	else if (m == 17)
		err = method(fd, RXE_OBJECT_MIGR_CM, RXE_METHOD_MIGR_CM_REFILL, &refill, sizeof(refill), NULL, 0);
	else
		err = method(fd, RXE_OBJECT_MIGR_DEVICE, RXE_METHOD_MIGR_CALLS, &buf, sizeof(buf), out,
			     sizeof(struct rxe_migr_dump));
	if (no_cap && err != EPERM && !spoil)
		DIE("proper call %u without capability gives %d (%s), not EPERM", m, err, strerror(err));
	spoil = false;
}

/* --------------------------------------------------------------- contexts -- */

struct context {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_qp *qp[NUM_QP];	/* two of a kind, the peer of each other */
};

static const enum ibv_qp_type qp_types[NUM_QP / 2] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

static union ibv_gid gid, group = { .raw = { 0xff, 0x0e, [15] = 7 } };
static int gid_index;

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;

	if (!ctx)
		DIE("no device");
	ibv_free_device_list(list);
	for (gid_index = 0; !ibv_query_gid(ctx, 1, gid_index, &gid); gid_index++)
		if (gid.raw[10] == 0xff && gid.raw[11] == 0xff)
			return ctx;
	DIE("no IPv4 GID");
}

/* Errors are allowed from here on, since the context may be in any state. */
static void connect_qp(struct ibv_qp *qp, uint32_t to)
{
	static const struct {
		int init, rtr, rts;
	} mask[] = {
		[IBV_QPT_RC] = { IBV_QP_ACCESS_FLAGS,
				 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC },
		[IBV_QPT_UC] = { IBV_QP_ACCESS_FLAGS,
				 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, 0 },
		[IBV_QPT_UD] = { IBV_QP_QKEY, 0, 0 },
	};
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = to,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 10, .retry_cnt = 2,
		.rnr_retry = 2, .rq_psn = 77, .sq_psn = 77,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 } },
	};

	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | mask[qp->qp_type].init);
	a.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qp, &a, IBV_QP_STATE | mask[qp->qp_type].rtr);
	a.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | mask[qp->qp_type].rts);
}

static void fill(struct context *x)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 2, .srq_limit = 2 } };
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1,
				  .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 } };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2,
						.max_recv_sge = 2, .max_inline_data = 64 },
	};
	unsigned i;

	x->pd = ibv_alloc_pd(x->ctx);
	x->channel = ibv_create_comp_channel(x->ctx);
	x->cq = ibv_create_cq(x->ctx, 200, NULL, x->channel, 0);
	if (!x->pd || !x->cq)
		return;
	x->mr = ibv_reg_mr(x->pd, memory, MEM_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	x->srq = ibv_create_srq(x->pd, &srq);
	x->ah = ibv_create_ah(x->pd, &ah);
	init.send_cq = init.recv_cq = x->cq;
	for (i = 0; i < NUM_QP; i++) {
		init.qp_type = qp_types[i / 2];
		init.srq = i % 2 ? x->srq : NULL;
		x->qp[i] = ibv_create_qp(x->pd, &init);
		last_qpn = x->qp[i] ? x->qp[i]->qp_num : last_qpn;
		if (x->qp[i] && init.qp_type == IBV_QPT_UD)
			ibv_attach_mcast(x->qp[i], &group, 0);
	}
	for (i = 0; i < NUM_QP; i++)
		if (x->qp[i] && x->qp[i ^ 1])
			connect_qp(x->qp[i], x->qp[i ^ 1]->qp_num);
}

static void use(struct context *x, unsigned n)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_IMM,
	};
	struct ibv_recv_wr *bad_recv;
	struct ibv_send_wr *bad_send;
	struct ibv_wc wc[8];

	while (n--) {
		struct ibv_qp *qp = x->qp[below(NUM_QP)];
		struct ibv_sge sge = { (uintptr_t)memory + below(256) * 8, 8 + below(4096), x->mr ? x->mr->lkey : 0 };
		struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 };
		struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = opcodes[below(5)],
					    .send_flags = IBV_SEND_SIGNALED };

		if (!qp || !x->mr)
			continue;
		if (qp->qp_type == IBV_QPT_UD) {
			if (!x->ah)
				continue;
			send.opcode = IBV_WR_SEND;
			send.wr.ud.ah = x->ah;
			send.wr.ud.remote_qpn = x->qp[NUM_QP - 1] ? x->qp[NUM_QP - 1]->qp_num : 0;
			send.wr.ud.remote_qkey = 1;
		} else if (send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			sge.length = 8;
			send.wr.atomic.remote_addr = (uintptr_t)memory + below(256) * 8;
			send.wr.atomic.rkey = x->mr->rkey;
		} else {
			send.wr.rdma.remote_addr = (uintptr_t)memory + below(4096);
			send.wr.rdma.rkey = x->mr->rkey;
		}
		if (below(3))
			ibv_post_send(qp, &send, &bad_send);
		else if (qp->srq)
			ibv_post_srq_recv(qp->srq, &recv, &bad_recv);
		else
			ibv_post_recv(qp, &recv, &bad_recv);
		if (below(4) == 0)
			ibv_poll_cq(x->cq, 8, wc);
		if (below(16) == 0)
			ibv_req_notify_cq(x->cq, 0);
	}
}

/* Not ibv_destroy_qp(), which waits for the events that REFILL says were reported. */
static void destroy_qp(struct context *x, struct ibv_qp *qp)
{
	struct ib_uverbs_destroy_qp_resp resp;
	struct cmd c = { .hdr = { .object_id = UVERBS_OBJECT_QP, .method_id = UVERBS_METHOD_QP_DESTROY,
				  .driver_id = RDMA_DRIVER_RXE, .num_attrs = 2 } };

	c.attrs[0] = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_DESTROY_QP_HANDLE, .data = qp->handle,
					      .flags = UVERBS_ATTR_F_MANDATORY };
	c.attrs[1] = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_DESTROY_QP_RESP, .len = sizeof(resp),
					      .data = (uintptr_t)&resp, .flags = UVERBS_ATTR_F_MANDATORY };
	c.hdr.length = sizeof(c.hdr) + 2 * sizeof(c.attrs[0]);
	if (ioctl(x->ctx->cmd_fd, RDMA_VERBS_IOCTL, &c))
		DIE("QP %u is not destroyed: %s", qp->qp_num, strerror(errno));
}

static void empty(struct context *x)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	for (unsigned i = 0; i < NUM_QP; i++)
		if (x->qp[i]) {
			ibv_query_qp(x->qp[i], &a, IBV_QP_STATE | IBV_QP_AV, &init);
			if (x->qp[i]->qp_type == IBV_QPT_UD)
				ibv_detach_mcast(x->qp[i], &group, 0);
			destroy_qp(x, x->qp[i]);
		}
	if (x->mr)
		ibv_dereg_mr(x->mr);
}

/* ----------------------------------------------------------------- rounds -- */

struct share {
	int fd;
	uint64_t calls;
	unsigned noise;		/* one in so many */
};

static void *other_thread(void *arg)
{
	const struct share *s = arg;

	rng = seed ^ 0x5555;
	for (unsigned i = 0; i < s->calls / 8; i++)
		(below(s->noise) ? proper : noise)(s->fd);
	return NULL;
}

/*
 * Calls on one context, which is used and emptied meanwhile. Without objects a call costs next to nothing, so each method gets
 * its number of calls there.
 */
static void abuse(bool objects)
{
	struct context x = { .ctx = open_device() };
	struct share s = { x.ctx->cmd_fd, objects ? calls : 13 * calls, objects ? 2 : 6 };
	pthread_t thread;

	if (objects)
		fill(&x);
	pthread_create(&thread, NULL, other_thread, &s);
	for (unsigned i = 0; i < s.calls / 4; i++) {
		(below(s.noise) ? proper : noise)(s.fd);
		if (objects && below(8) == 0)
			use(&x, 4);
	}
	pthread_join(thread, NULL);
	empty(&x);
}

static size_t dump(int fd, uint8_t *to, uint32_t flags)
{
	struct rxe_migr_buf buf = { .addr = (uintptr_t)to, .length = MAX_DUMP, .flags = flags };
	struct rxe_migr_dump resp = { 0 };
	int err = method(fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_DUMP, &buf, sizeof(buf), &resp, sizeof(resp));

	if (err)
		DIE("dump: %s", strerror(err));
	return resp.length;
}

static struct rxe_migr_rec *record_at(uint8_t *d, size_t at)
{
	return (void *)(d + at);
}

/* Where a record has the number of its object on the device; 0: nowhere. */
static size_t number_at(const struct rxe_migr_rec *rec)
{
	switch (le16toh(rec->type)) {
	case RXE_MIGR_REC_QP: return offsetof(struct rxe_migr_rec_qp, qpn);
	case RXE_MIGR_REC_SRQ: return offsetof(struct rxe_migr_rec_srq, srq_num);
	case RXE_MIGR_REC_AH: return offsetof(struct rxe_migr_rec_ah, ah_num);
	}
	return 0;
}

/*
 * A dump of a busy context fits a context that is filled in the same way, except for these numbers. Puts the numbers of that
 * context into the dump.
 */
static void fit(uint8_t *d, size_t length, int fd)
{
	static uint8_t own[MAX_DUMP];
	size_t own_length = dump(fd, own, 0);

	for (size_t at = 0; at < length; at += le32toh(record_at(d, at)->length)) {
		struct rxe_migr_rec *rec = record_at(d, at);
		size_t where = number_at(rec);

		for (size_t i = 0; where && i < own_length; i += le32toh(record_at(own, i)->length))
			if (record_at(own, i)->type == rec->type && record_at(own, i)->handle == rec->handle)
				memcpy(d + at + where, own + i + where, 4);
	}
}

/* A number of one, two or four bytes: another one, or one that is near. */
static void change_number(uint8_t *at, uint64_t value)
{
	size_t size = 1 << below(3);
	uint64_t old = 0;

	memcpy(&old, at, size);
	if (below(4) == 0)
		value = old + below(5) - 2;
	memcpy(at, &value, size);
}

#define CHANGES 12
#define GROWTH 8	/* of a dump, for one word of a ring that was zero */

/* A word of a ring that was zero becomes one that is saved. */
static uint8_t *some_word(uint8_t *d, size_t *length, struct rxe_migr_rec_ring *ring)
{
	uint32_t words = (1 << le32toh(ring->log2_elem_size)) / 8;
	uint64_t skip = (uint64_t)below(le32toh(ring->count)) * words + below(words);
	uint8_t *at = ring->data;
	uint64_t mask, bit;

	for (;;) {
		uint32_t group = words < RXE_MIGR_RING_WORDS ? words : RXE_MIGR_RING_WORDS;

		memcpy(&mask, at, sizeof(mask));
		mask = le64toh(mask);
		if (skip < group)
			break;
		skip -= group;
		at += 8 + 8 * __builtin_popcountll(mask);
	}
	bit = 1ULL << skip;
	if (!(mask & bit)) {
		uint64_t more = htole64(mask | bit);

		memcpy(at, &more, sizeof(more));
	}
	at += 8 + 8 * __builtin_popcountll(mask & (bit - 1));
	if (!(mask & bit)) {
		memmove(at + GROWTH, at, d + *length - at);
		memset(at, 0, GROWTH);
		*length += GROWTH;
		ring->hdr.length = htole32(le32toh(ring->hdr.length) + GROWTH);
	}
	return at;
}

/* The part of a dump that drives a QP: its own record from the requester on, or a WQE in one of its rings. */
static void change_qp(uint8_t *d, size_t *length)
{
	struct rxe_migr_rec_ring *ring;
	struct rxe_migr_rec *rec;
	uint32_t from;

	do {
		size_t pos = 0, skip = below(64);

		do {
			rec = (void *)(d + pos);
			pos += le32toh(rec->length);
		} while (skip-- && pos < *length);
	} while (le16toh(rec->type) != RXE_MIGR_REC_QP && le16toh(rec->type) != RXE_MIGR_REC_RING);

	from = offsetof(struct rxe_migr_rec_qp, req_psn);
	if (le16toh(rec->type) == RXE_MIGR_REC_QP) {
		change_number((uint8_t *)rec + from + below(le32toh(rec->length) - from - 3), edge());
		return;
	}
	ring = (void *)rec;
	if (le32toh(ring->count))
		change_number(some_word(d, length, ring) + below(2) * 4, edge());
}

static size_t change(uint8_t *d, size_t length)
{
	size_t at[4096];
	unsigned n = 0, k;

	for (k = below(2) * below(CHANGES); k; k--)
		change_qp(d, &length);
	for (size_t pos = 0; pos < length && n < 4096; pos += le32toh(((struct rxe_migr_rec *)(d + pos))->length))
		at[n++] = pos;
	for (k = below(4); k; k--) {
		struct rxe_migr_rec *rec = (void *)(d + at[below(n)]);
		size_t size = le32toh(rec->length);
		uint32_t field = below(size / 4) * 4, value = edge();

		switch (below(10)) {
		case 0: return below(length + 1);
		case 1: rec->length = htole32(edge()); return length;
		case 2: rec->type = htole16(below(20)); break;
		case 3: rec->flags = htole16(rnd()); break;
		case 4: rec->handle = htole32(edge()); break;
		case 5:
			if (size > sizeof(*rec))
				((uint8_t *)rec)[sizeof(*rec) + below(size - sizeof(*rec))] ^= 1 << below(8);
			break;
		default:
			/* ring indices and the like, more often than what lies in rings */
			field = field < 12 ? 12 : below(2) && field > 300 ? 12 + below(8) * 4 : field;
			if (field + 4 <= size)
				memcpy((uint8_t *)rec + field, &value, 4);
		}
	}
	return length;
}

static int refill(int fd, const uint8_t *d, size_t length)
{
	struct rxe_migr_buf buf = { .addr = (uintptr_t)d, .length = length };

	return method(fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_REFILL, &buf, sizeof(buf), NULL, 0);
}

/* Restores a changed dump into a new context, which is then used. An unchanged dump must fit. */
static void restore(const uint8_t *original, size_t length, bool changed)
{
	struct context x = { .ctx = open_device() };
	int fd = x.ctx->cmd_fd;
	struct rxe_migr_begin begin = { .session = 1 + below(3), .fd = fd };
	struct rxe_migr_resume resume = { 0 };
	uint8_t *d = malloc(length + CHANGES * GROWTH);
	size_t use_length;

	memcpy(d, original, length);
	if (method(fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_BEGIN, &begin, sizeof(begin), NULL, 0))
		DIE("begin: %s", strerror(errno));
	if (changed && below(4) == 0) {
		struct rxe_migr_hint hint = { .type = 1 + below(5), .index = edge(), .key = edge() };

		method(fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_HINT, &hint, sizeof(hint), NULL, 0);
	}
	fill(&x);
	fit(d, length, fd);
	use_length = changed ? change(d, length) : length;
	if (refill(fd, d, use_length) && !changed)
		DIE("an unchanged dump is refused");
	if (below(4) == 0)
		refill(fd, d, use_length);
	if (below(8)) {
		method(fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_RESUME, &resume, sizeof(resume), NULL, 0);
		use(&x, 20);
	}
	free(d);
	if (below(2)) {
		usleep(below(4) * 1000);	/* resumed work gets somewhere */
		empty(&x);
	}
}

/* librxe may crash, since it reads its rings at any index that they hold. Only the driver is tested. */
static void own_rings(int sig)
{
	(void)sig;
	_exit(0);
}

static void restore_many(void)
{
	uint8_t *d = malloc(MAX_DUMP);
	struct context x = { .ctx = open_device() };
	size_t length = 0;

	fill(&x);
	for (unsigned i = 0; i <= restores; i++) {
		if (i == 1)
			use(&x, 60);
		if (i <= 1) {
			length = dump(x.ctx->cmd_fd, d, RXE_MIGR_DUMP_STOP);
			method(x.ctx->cmd_fd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_ABORT, NULL, 0, NULL, 0);
		}
		/* A child process: the end of its file removes objects that can't be destroyed. */
		uint64_t s = rnd();
		pid_t pid = fork();
		int status;

		if (!pid) {
			rng = s;
			alarm(60);
			signal(SIGSEGV, own_rings);
			restore(d, length, i);
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			DIE("restore %u of seed %llu ended with status 0x%x", i, (unsigned long long)seed, status);
	}
	printf("%llu dumps were changed and restored, or refused\n", (unsigned long long)restores);
	empty(&x);
}

static void in_child(void (*round)(void), const char *name)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		rng = seed ^ (uintptr_t)name[0];
		alarm(600);
		round();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		DIE("%s: status 0x%x%s", name, status, WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ?
		    ": a call does not come back" : "");
	printf("%s: done\n", name);
	fflush(stdout);
}

static void abuse_empty(void)
{
	abuse(false);
}

static void abuse_filled(void)
{
	abuse(true);
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	if (syscall(SYS_capset, &hdr, none))
		DIE("capset: %s", strerror(errno));
}

static void open_cm_file(void)
{
	struct rdma_ucm_create_id_resp resp;
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		struct rdma_ucm_create_id cmd;
	} create = {
		.hdr = { .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = sizeof(create.cmd), .out = sizeof(resp) },
		.cmd = { .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC },
	};

	cm_file = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		if (write(cm_file, &create, sizeof(create)) != sizeof(create))
			DIE("no id of rdma_cm: %m");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", 1, 0, 's' }, { "calls", 1, 0, 'c' }, { "restores", 1, 0, 'r' },
		{ "least", 1, 0, 'l' }, { "no-cap", 0, 0, 'n' }, { 0 }
	};
	unsigned total = 0;
	int c;

	seed = time(NULL);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 'c')
			calls = strtoull(optarg, NULL, 0);
		else if (c == 'r')
			restores = strtoull(optarg, NULL, 0);
		else if (c == 'l')
			least = strtoull(optarg, NULL, 0);
		else if (c == 'n')
			no_cap = true;
		else
			return 2;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	came = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memory = mmap(NULL, MEM_SIZE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(memory + MEM_SIZE, 4096);
	open_cm_file();
	rng = seed;
	for (unsigned i = 0; i < MEM_SIZE; i += 8)
		*(uint64_t *)(memory + i) = edge();
	if (no_cap)
		drop_capabilities();
	in_child(abuse_empty, "empty context");
	in_child(abuse_filled, "used context");
	if (!no_cap)
		in_child(restore_many, "changed dumps");
	for (c = 0; c <= MAX_ERRNO; c++) {
		total += came->errors[c];
		if (came->errors[c])
			printf("%6u %s\n", came->errors[c], c ? strerror(c) : "success");
	}
	printf("%u calls, %u with wrong attributes; proper ones:\n", total, came->wrong);
	for (size_t i = 0; i < NUM_METHODS; i++)
		printf("%6u %s\n", came->proper[i], methods[i].name);
	for (size_t i = 0; i < NUM_METHODS; i++)
		if (came->proper[i] < least) {
			fprintf(stderr, "ioctl_fuzz: %s was called %u times, not %llu\n", methods[i].name, came->proper[i],
				(unsigned long long)least);
			return 75;	/* that is too few to tell */
		}
	return 0;
}
