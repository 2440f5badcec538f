// SPDX-License-Identifier: MIT
/* Objects, connection, tear-down. */
#include "traffic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x3154464152544447ull

static struct ibv_device **devices;

/* ------------------------------------------------------------- objects -- */

static void *made(void *object, const char *what)
{
	if (!object)
		unusable("no %s: %s", what, strerror(errno));
	created++;
	return object;
}

static void gone(int ret, const char *what)
{
	if (ret)
		violation(NULL, "destroy", 0, "%s: expected 0, saw %d (%s)", what, ret, strerror(ret));
	destroyed++;
}

static uint8_t *map(size_t size)
{
	int share = opt.fork ? MAP_SHARED : MAP_PRIVATE;
	uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, share | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		unusable("no memory: %s", strerror(errno));
	return p;
}

static void find_gid(struct worker *w)
{
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_port_attr port;
	union ibv_gid want;
	int i;

	if (ibv_query_port(w->ctx, 1, &port))
		unusable("ibv_query_port: %s", strerror(errno));
	w->mtu = port.active_mtu;
	w->gid_index = -1;
	if (opt.gid && !strchr(opt.gid, ':') && !strchr(opt.gid, '.')) {
		w->gid_index = atoi(opt.gid);
		if (ibv_query_gid(w->ctx, 1, w->gid_index, &w->gid))
			unusable("no GID %d", w->gid_index);
		return;
	}
	if (opt.gid && inet_pton(AF_INET6, opt.gid, &want) != 1) {
		memcpy(want.raw, v4, sizeof(v4));
		if (inet_pton(AF_INET, opt.gid, want.raw + 12) != 1)
			unusable("%s is no GID", opt.gid);
	}
	for (i = 0; i < port.gid_tbl_len && w->gid_index < 0; i++) {
		union ibv_gid gid;

		if (ibv_query_gid(w->ctx, 1, i, &gid))
			break;
		if (opt.gid ? !memcmp(&gid, &want, 16) : !memcmp(&gid, v4, sizeof(v4))) {
			w->gid = gid;
			w->gid_index = i;
		}
	}
	if (w->gid_index < 0)
		unusable("%s has no such GID", ibv_get_device_name(w->ctx->device));
}

static void open_context(struct worker *w)
{
	int flags;

	for (int i = 0; devices[i] && !w->ctx; i++)
		if (!opt.device || !strcmp(ibv_get_device_name(devices[i]), opt.device))
			w->ctx = made(ibv_open_device(devices[i]), "context");
	if (!w->ctx)
		unusable("no device %s", opt.device ? opt.device : "at all");
	flags = fcntl(w->ctx->async_fd, F_GETFL);
	fcntl(w->ctx->async_fd, F_SETFL, flags | O_NONBLOCK);
	find_gid(w);
}

static struct ibv_mr *reg(struct worker *w, void *p, size_t size, int access)
{
	return made(ibv_reg_mr(w->pd, p, size, access), "MR");
}

/*
 * With holes, ten of each kind are made and every other one is destroyed at once. The objects that traffic uses are among those
 * that are left.
 */
static void create_pd_and_cqs(struct worker *w, unsigned num)
{
	int send_size = num * (shape.depth + 16), recv_size = num * (shape.window + 2);
	unsigned i;

	if (!opt.holes) {
		w->pd = made(ibv_alloc_pd(w->ctx), "PD");
		w->channel = made(ibv_create_comp_channel(w->ctx), "channel");
		w->scq = made(ibv_create_cq(w->ctx, send_size, w, w->channel, 0), "CQ");
		w->rcq = made(ibv_create_cq(w->ctx, recv_size, w, w->channel, 0), "CQ");
		if (opt.fork)
			w->child_rcq = made(ibv_create_cq(w->ctx, recv_size, w, NULL, 0), "CQ");
		return;
	}
	for (i = 0; i < HOLES; i++) {
		w->pds[i] = made(ibv_alloc_pd(w->ctx), "PD");
		w->channels[i] = made(ibv_create_comp_channel(w->ctx), "channel");
	}
	for (i = 0; i < HOLES; i++)
		w->cqs[i] = made(ibv_create_cq(w->ctx, i == 1 ? send_size : recv_size, w,
					       w->channels[i <= 3 ? 1 : i | 1], 0), "CQ");
	for (i = 0; i < HOLES; i += 2) {
		gone(ibv_destroy_cq(w->cqs[i]), "CQ");
		gone(ibv_destroy_comp_channel(w->channels[i]), "channel");
		gone(ibv_dealloc_pd(w->pds[i]), "PD");
	}
	w->pd = w->pds[1];
	w->channel = w->channels[1];
	w->scq = w->cqs[1];
	w->rcq = w->cqs[3];
}

static void create_mrs(struct worker *w, unsigned num)
{
	int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	unsigned i;

	if (shape.ops & (1 << OP_FLUSH))
		remote |= IBV_ACCESS_FLUSH_GLOBAL;
	w->tx_size = num * (shape.depth + NUM_MW + 4) * buf_size;
	w->rx_size = num * shape.window * buf_size;
	w->reach_size = num * (CTL_SIZE + NUM_MW * MW_SIZE + (shape.window + NUM_SCRATCH) * buf_size);
	w->tx = map(w->tx_size);
	w->rx = map(w->rx_size);
	w->reach = map(w->reach_size);
	for (i = 0; opt.holes && i < HOLES; i++) {
		if (!w->spare)
			w->spare = map(HOLES * 4096);
		if (i == 1)
			w->tx_mr = w->mrs[i] = reg(w, w->tx, w->tx_size, IBV_ACCESS_LOCAL_WRITE);
		else if (i == 3)
			w->rx_mr = w->mrs[i] = reg(w, w->rx, w->rx_size, IBV_ACCESS_LOCAL_WRITE);
		else if (i == 5)
			w->reach_mr = w->mrs[i] = reg(w, w->reach, w->reach_size, remote);
		else if (i == 7)
			w->common_mr = w->mrs[i] = reg(w, common, common_size, remote);
		else
			w->mrs[i] = reg(w, w->spare + i * 4096, 4096, IBV_ACCESS_LOCAL_WRITE);
	}
	for (i = 0; opt.holes && i < HOLES; i += 2)
		gone(ibv_dereg_mr(w->mrs[i]), "MR");
	if (opt.holes)
		return;
	w->tx_mr = reg(w, w->tx, w->tx_size, IBV_ACCESS_LOCAL_WRITE);
	w->rx_mr = reg(w, w->rx, w->rx_size, IBV_ACCESS_LOCAL_WRITE);
	w->reach_mr = reg(w, w->reach, w->reach_size, remote);
	w->common_mr = reg(w, common, common_size, remote);
}

static struct ibv_srq *spare_srq(struct worker *w)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };

	return made(ibv_create_srq(w->pd, &attr), "SRQ");
}

/* Kinds of objects that traffic does not use, and others of the kinds that it uses. */
static void create_spares(struct worker *w)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .dgid = w->gid, .sgid_index = w->gid_index, .hop_limit = 64 },
	};
	unsigned i;

	for (i = 0; i < HOLES; i++) {
		w->srqs[i] = spare_srq(w);
		w->mws[i] = made(ibv_alloc_mw(w->pd, IBV_MW_TYPE_2), "MW");
		w->ahs[i] = made(ibv_create_ah(w->pd, &attr), "AH");
	}
	for (i = 0; i < HOLES; i += 2) {
		gone(ibv_destroy_srq(w->srqs[i]), "SRQ");
		gone(ibv_dealloc_mw(w->mws[i]), "MW");
		gone(ibv_destroy_ah(w->ahs[i]), "AH");
	}
}

/* An event comes when fewer receives than this are left. Each event that comes was armed, and each is armed again. */
void arm_limit(struct worker *w)
{
	struct ibv_srq_attr attr = { .srq_limit = shape.window / 2 };
	int ret = ibv_modify_srq(w->srq, &attr, IBV_SRQ_LIMIT);

	if (ret)
		unusable("no limit for the SRQ: %s", strerror(ret));
}

static void create_srq(struct worker *w, unsigned num)
{
	struct ibv_srq_init_attr attr = {
		.srq_context = w, .attr = { .max_wr = num * shape.window, .max_sge = MAX_SGE },
	};

	w->srq = made(ibv_create_srq(w->pd, &attr), "SRQ");
}

static struct ibv_qp *create_qp(struct worker *w, struct qp *q)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = q, .send_cq = w->scq, .recv_cq = q && q->in_child ? w->child_rcq : w->rcq,
		.srq = w->srq, .qp_type = shape.uc ? IBV_QPT_UC : IBV_QPT_RC, .pd = w->pd, .comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = shape.depth + NUM_MW + 4, .max_recv_wr = shape.window,
			 .max_send_sge = MAX_SGE, .max_recv_sge = MAX_SGE, .max_inline_data = 200 },
	};

	if (shape.ops & (1 << OP_AWRITE | 1 << OP_FLUSH)) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH;
	}
	return made(ibv_create_qp_ex(w->ctx, &attr), "QP");
}

static void init_qp(struct qp *q)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int ret;

	if (shape.ops & (1 << OP_FLUSH))
		attr.qp_access_flags |= IBV_ACCESS_FLUSH_GLOBAL;
	ret = ibv_modify_qp(q->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (ret)
		unusable("QP to INIT: %s", strerror(ret));
}

static void create_qps(struct worker *w)
{
	size_t reach = CTL_SIZE + NUM_MW * MW_SIZE + (shape.window + NUM_SCRATCH) * buf_size;
	unsigned i, k, n = 0;

	for (i = 0; opt.holes && i < HOLES; i++) {
		unsigned idx = i / 2 * opt.contexts + w->idx;

		w->qps[i] = create_qp(w, i % 2 && idx < shape.qps ? &qps[idx] : NULL);
	}
	for (i = 0; opt.holes && i < HOLES; i += 2)
		gone(ibv_destroy_qp(w->qps[i]), "QP");
	for (i = w->idx; i < shape.qps; i += opt.contexts, n++) {
		struct qp *q = &qps[i];
		uint8_t *p = w->reach + n * reach;

		q->w = w;
		q->peer = &there;
		q->qp = opt.holes ? w->qps[2 * n + 1] : create_qp(w, q);
		q->ring_size = shape.depth + NUM_MW + 4;
		q->ring = calloc(q->ring_size, sizeof(*q->ring));
		q->tx = w->tx + n * q->ring_size * buf_size;
		q->rx = w->rx + n * shape.window * buf_size;
		q->ctl = (struct ctl *)p;
		publish(&q->ctl->processed, 0);
		publish(&q->ctl->binds, 0);
		publish(&q->ctl->fin, 0);
		q->windows = p + CTL_SIZE;
		q->slots = q->windows + NUM_MW * MW_SIZE;
		q->scratch = q->slots + shape.window * buf_size;
		for (k = 0; k < NUM_MW && !here.no_mw; k++) {
			q->mw[k] = made(ibv_alloc_mw(w->pd, IBV_MW_TYPE_2), "MW");
			q->here.mw_rkey[k] = q->mw[k]->rkey;
		}
		q->to_bind = here.no_mw ? 0 : NUM_MW;
		q->here.qpn = q->qp->qp_num;
		q->here.psn = i % 4 == 1 ? 0xffffe0 : draw(role, i, 0, SALT_TX) & 0xffffff;
		q->here.rkey = w->reach_mr->rkey;
		q->here.base = (uintptr_t)p;
		q->here.lib = (uintptr_t)common;
		q->here.count = (uintptr_t)common + lib_size;
		q->here.common_rkey = w->common_mr->rkey;
		init_qp(q);
	}
}

static void create_all(void)
{
	uint64_t *room;
	unsigned i, n;

	devices = ibv_get_device_list(NULL);
	if (!devices)
		unusable("no devices");
	buf_size = (shape.max_size > 128 ? shape.max_size : 128) + CANARY + MAX_SGE * SGE_GAP;
	buf_size = (buf_size + 63) / 64 * 64;
	lib_size = shape.max_size > 1 << 19 ? 2 * shape.max_size : 1 << 20;
	common_size = lib_size + 4096;
	common = map(common_size);
	room = calloc(1, lib_size + 16);
	memcpy(common, pattern(room, role, 0, 0, DATA_LIB, 0, lib_size), lib_size);
	free(room);
	for (i = 0; i < opt.contexts; i++) {
		n = (shape.qps + opt.contexts - 1 - i) / opt.contexts;
		workers[i].idx = i;
		workers[i].pattern = malloc(buf_size + 32);
		open_context(&workers[i]);
		create_pd_and_cqs(&workers[i], n);
		create_mrs(&workers[i], n);
		if (opt.srq)
			create_srq(&workers[i], n);
		if (opt.holes)
			create_spares(&workers[i]);
		create_qps(&workers[i]);
	}
	ibv_free_device_list(devices);
	here.gid = workers[0].gid;
}

/* ---------------------------------------------------------- connection -- */

static void say(int fd, const void *p, size_t n)
{
	if (write(fd, p, n) != (ssize_t)n)
		unusable("the peer is gone: %s", strerror(errno));
}

static void hear(int fd, void *p, size_t n)
{
	while (n) {
		ssize_t got = read(fd, p, n);

		if (got <= 0)
			unusable("the peer is gone: %s", got ? strerror(errno) : "end of file");
		p = (char *)p + got;
		n -= got;
	}
}

static void barrier(int fd)
{
	char c = 'b';

	say(fd, &c, 1);
	hear(fd, &c, 1);
}

static int meet(void)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = opt.peer ? 0 : AI_PASSIVE }, *a;
	int one = 1, fd, ret = getaddrinfo(opt.peer, opt.port, &hints, &a), listener;

	if (ret)
		unusable("%s: %s", opt.peer ? opt.peer : opt.port, gai_strerror(ret));
	if (opt.peer) {
		for (int try = 0;; try++) {
			fd = socket(a->ai_family, SOCK_STREAM, 0);
			if (!connect(fd, a->ai_addr, a->ai_addrlen))
				break;
			if (errno != ECONNREFUSED || try == 100)
				unusable("%s: %s", opt.peer, strerror(errno));
			close(fd);
			usleep(100000);
		}
	} else {
		listener = socket(a->ai_family, SOCK_STREAM, 0);
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(listener, a->ai_addr, a->ai_addrlen) || listen(listener, 1))
			unusable("port %s: %s", opt.port, strerror(errno));
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			unusable("accept: %s", strerror(errno));
		close(listener);
	}
	freeaddrinfo(a);
	return fd;
}

static void modify_to_rtr(struct qp *q)
{
	unsigned mtu = shape.mtu;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = q->there.qpn, .rq_psn = q->there.psn,
		.max_dest_rd_atomic = shape.rd_atomic, .min_rnr_timer = shape.rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = there.gid, .sgid_index = q->w->gid_index, .hop_limit = 64 } },
	};
	int ret, mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (!shape.uc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	ret = ibv_modify_qp(q->qp, &attr, mask);
	if (ret)
		unusable("QP to RTR: %s", strerror(ret));
}

void modify_to_rts(struct qp *q)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = q->here.psn, .timeout = shape.timeout,
		.retry_cnt = shape.retry_cnt, .rnr_retry = shape.rnr_retry, .max_rd_atomic = shape.rd_atomic,
	};
	int ret, mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (!shape.uc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	ret = ibv_modify_qp(q->qp, &attr, mask);
	if (ret)
		unusable("QP to RTS: %s", strerror(ret));
}

/* Only this uses TCP: afterwards the two ends know each other by their QPs only. */
void exchange(void)
{
	int fd = meet();
	unsigned i;

	if (role == CLIENT) {
		shape.magic = MAGIC;
		say(fd, &shape, sizeof(shape));
	} else {
		hear(fd, &shape, sizeof(shape));
		if (shape.magic != MAGIC || shape.qps > MAX_QPS)
			unusable("the peer speaks another language");
	}
	if (shape.uc && (opt.fork || opt.rtr_only))
		unusable("UC goes without --fork and --rtr-only");
	if (opt.holes && shape.qps > HOLES / 2 * opt.contexts)
		unusable("with --holes there are %u QPs per context at most", HOLES / 2);
	here.no_mw = opt.rtr_only || opt.fork || !(shape.ops & (1 << OP_INV));
	here.silent = opt.rtr_only;
	for (i = 0; i < shape.qps; i++) {
		qps[i].idx = i;
		qps[i].in_child = opt.fork && i % 2;
	}
	create_all();
	say(fd, &here, sizeof(here));
	hear(fd, &there, sizeof(there));
	for (i = 0; i < shape.qps; i++)
		say(fd, &qps[i].here, sizeof(qps[i].here));
	for (i = 0; i < shape.qps; i++)
		hear(fd, &qps[i].there, sizeof(qps[i].there));
	if ((shape.ops & MESSAGE_OPS) == 1 << OP_INV && (here.no_mw || there.no_mw))
		unusable("nothing is left to send");
	if (!shape.mtu)
		shape.mtu = workers[0].mtu;
	for (i = 0; i < shape.qps; i++) {
		modify_to_rtr(&qps[i]);
		post_receives(&qps[i]);
	}
	for (i = 0; opt.srq && i < opt.contexts; i++)
		arm_limit(&workers[i]);
	barrier(fd);
	for (i = 0; i < shape.qps; i++) {
		if (!opt.rtr_only)
			modify_to_rts(&qps[i]);
		qps[i].phase = opt.rtr_only ? PH_SILENT : PH_IDLE;
	}
	barrier(fd);
	close(fd);
}

/* -------------------------------------------------------- events, end -- */

void check_async(void)
{
	for (unsigned i = 0; i < opt.contexts; i++) {
		struct ibv_async_event ev;

		while (!ibv_get_async_event(workers[i].ctx, &ev)) {
			enum ibv_event_type t = ev.event_type;

			ibv_ack_async_event(&ev);
			if (t == IBV_EVENT_SRQ_LIMIT_REACHED && ev.element.srq == workers[i].srq && opt.srq) {
				arm_limit(&workers[i]);
				continue;
			}
			if (t != IBV_EVENT_COMM_EST && t != IBV_EVENT_GID_CHANGE && t != IBV_EVENT_PORT_ACTIVE &&
			    t != IBV_EVENT_PORT_ERR && t != IBV_EVENT_LID_CHANGE && t != IBV_EVENT_SM_CHANGE)
				violation(NULL, "async event", 0, "expected none, saw %s", ibv_event_type_str(t));
		}
	}
}

void print_state(void)
{
	for (unsigned i = 0; i < shape.qps; i++) {
		struct qp *q = &qps[i];
		struct wr *wr = &q->ring[q->completed % q->ring_size];
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr a = { 0 };
		int ret;

		fprintf(stderr, "traffic: qp %u (0x%x) %s: posted %lu, completed %lu, messages sent %lu (peer checked %lu), received %lu",
			q->idx, q->here.qpn, phase_name[q->phase], q->posted, q->completed, q->seq, q->processed,
			q->rseq);
		if (q->posted > q->completed)
			fprintf(stderr, ", waits for %s of %u bytes, number %lu",
				ibv_wr_opcode_str(wr->opcode), wr->len, wr->seq);
		ret = ibv_query_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init);
		fprintf(stderr, "; ");
		if (ret)
			fprintf(stderr, "ibv_query_qp: %s\n", strerror(ret));
		else
			fprintf(stderr, "state %d, sq_psn 0x%x, rq_psn 0x%x, peer 0x%x\n", a.qp_state, a.sq_psn,
				a.rq_psn, a.dest_qp_num);
	}
}

/* Other objects take the holes, on whatever host the process is now. */
static void fill_holes(struct worker *w)
{
	for (unsigned i = 0; i < HOLES; i += 2) {
		w->pds[i] = made(ibv_alloc_pd(w->ctx), "PD");
		w->channels[i] = made(ibv_create_comp_channel(w->ctx), "channel");
		w->cqs[i] = made(ibv_create_cq(w->ctx, 4, w, w->channels[i], 0), "CQ");
		w->mrs[i] = reg(w, w->spare + i * 4096, 4096, IBV_ACCESS_LOCAL_WRITE);
		w->srqs[i] = spare_srq(w);
		w->mws[i] = made(ibv_alloc_mw(w->pd, IBV_MW_TYPE_2), "MW");
		w->qps[i] = create_qp(w, NULL);
	}
}

static void destroy_holes(struct worker *w)
{
	unsigned i;

	fill_holes(w);
	for (i = 1; i < HOLES; i += 2)
		gone(ibv_destroy_ah(w->ahs[i]), "AH");
	for (i = 0; i < HOLES; i++) {
		gone(ibv_destroy_qp(w->qps[i]), "QP");
		gone(ibv_destroy_srq(w->srqs[i]), "SRQ");
		gone(ibv_dealloc_mw(w->mws[i]), "MW");
	}
	if (w->srq)
		gone(ibv_destroy_srq(w->srq), "SRQ");
	for (i = 0; i < HOLES; i++) {
		gone(ibv_destroy_cq(w->cqs[i]), "CQ");
		gone(ibv_dereg_mr(w->mrs[i]), "MR");
	}
	for (i = 0; i < HOLES; i++) {
		gone(ibv_destroy_comp_channel(w->channels[i]), "channel");
		gone(ibv_dealloc_pd(w->pds[i]), "PD");
	}
}

static void destroy_plain(struct worker *w)
{
	for (unsigned i = w->idx; i < shape.qps; i += opt.contexts)
		gone(ibv_destroy_qp(qps[i].qp), "QP");
	gone(ibv_destroy_cq(w->scq), "CQ");
	gone(ibv_destroy_cq(w->rcq), "CQ");
	if (w->child_rcq)
		gone(ibv_destroy_cq(w->child_rcq), "CQ");
	if (w->srq)
		gone(ibv_destroy_srq(w->srq), "SRQ");
	gone(ibv_destroy_comp_channel(w->channel), "channel");
	gone(ibv_dereg_mr(w->tx_mr), "MR");
	gone(ibv_dereg_mr(w->rx_mr), "MR");
	gone(ibv_dereg_mr(w->reach_mr), "MR");
	gone(ibv_dereg_mr(w->common_mr), "MR");
	gone(ibv_dealloc_pd(w->pd), "PD");
}

void tear_down(void)
{
	for (unsigned i = 0; i < opt.contexts; i++) {
		struct worker *w = &workers[i];

		for (unsigned k = w->idx; k < shape.qps; k += opt.contexts)
			for (unsigned m = 0; m < NUM_MW; m++)
				if (qps[k].mw[m])
					gone(ibv_dealloc_mw(qps[k].mw[m]), "MW");
		if (w->unacked_scq)
			ibv_ack_cq_events(w->scq, w->unacked_scq);
		if (w->unacked_rcq)
			ibv_ack_cq_events(w->rcq, w->unacked_rcq);
		if (opt.holes)
			destroy_holes(w);
		else
			destroy_plain(w);
		gone(ibv_close_device(w->ctx), "context");
	}
	if (created != destroyed)
		violation(NULL, "destroy", 0, "expected %u objects, saw %u", created, destroyed);
}
