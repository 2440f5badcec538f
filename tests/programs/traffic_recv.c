// SPDX-License-Identifier: MIT
/* Receives: each must bring the message that is due, whole and unchanged. */
#include "traffic.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint8_t canary[CANARY] = { [0 ... CANARY - 1] = 0xc5 };

static uint8_t *slot(struct qp *q, uint64_t n)
{
	return q->slots + n % shape.window * buf_size;
}

/* With an SRQ any of its buffers brings any message. */
static uint8_t *buffer(struct qp *q, uint64_t n)
{
	return q->w->srq ? q->w->rx + q->taken * buf_size : q->rx + n % shape.window * buf_size;
}

static struct cut recv_cut(struct qp *q, uint64_t n)
{
	uint32_t size = shape.max_size > 128 ? shape.max_size : 128;
	uint64_t r = q->w->srq ? draw(role, 0, q->taken, SALT_RX) : draw(role, q->idx, n, SALT_RX);

	return plan_cut(r, size + CANARY);
}

static uint32_t slot_use(const struct plan *p)
{
	return p->op == OP_WRITE ? p->wlen : p->op == OP_WIMM ? p->len : 0;
}

/* Posts what is needed before the peer may send message n. */
static void prepare(struct qp *q, uint64_t n)
{
	struct plan p = plan_message(!role, q->idx, n);
	struct cut cut = recv_cut(q, n);

	memcpy(slot(q, n) + slot_use(&p), canary, CANARY);
	if (!q->w->srq)
		scatter(buffer(q, n), &cut, canary, p.op == OP_WIMM ? 0 : p.len, CANARY);
}

static void post_one(struct qp *q)
{
	uint64_t n = q->rposted++;
	struct cut cut = recv_cut(q, n);
	struct ibv_sge sge[MAX_SGE];
	struct ibv_recv_wr wr = { .wr_id = WR_ID(q, q->w->srq ? q->taken : n), .sg_list = sge }, *bad;
	int ret;

	if (q->w->srq)
		memset(buffer(q, n), canary[0], buf_size);
	wr.num_sge = make_sges(sge, buffer(q, n), &cut, cut.at[cut.n], q->w->rx_mr->lkey);
	ret = q->w->srq ? ibv_post_srq_recv(q->w->srq, &wr, &bad) : ibv_post_recv(q->qp, &wr, &bad);
	if (ret)
		violation(q, "ibv_post_recv", n, "expected 0, saw %d (%s)", ret, strerror(ret));
}

void post_receives(struct qp *q)
{
	uint64_t r, limit = q->rseq + shape.window;

	if (!q->rposted)
		for (uint64_t n = 0; n < shape.window; n++)
			prepare(q, n);
	if (shape.rnr && q->rposted) {
		r = draw(role, q->idx, q->rposted, SALT_RNR);
		if (q->rposted > q->rseq)
			return;
		if (!q->rnr_until && r % 4)
			q->rnr_until = q->w->clk.now + (r >> 8) % (1 + 1000ull * shape.rnr_gap);
		if (q->rnr_until > (uint64_t)q->w->clk.now)
			return;
		q->rnr_until = 0;
		limit = q->rposted + 1 + (r >> 2) % 4;
		if (limit > q->rseq + shape.window)
			limit = q->rseq + shape.window;
	}
	while (q->rposted < limit) {
		if (q->w->srq && q->rposted < shape.window)
			q->taken = (q->rx - q->w->rx) / buf_size + q->rposted;
		post_one(q);
	}
}

/* rxe marks an invalidation by the kernel's flag, which differs from that of libibverbs. */
enum { RXE_WC_WITH_INV = 1 << 2 };

static void check_message(struct qp *q, const struct plan *p, const struct ibv_wc *wc, uint64_t n)
{
	const char *what = op_name[p->op];
	struct cut cut = recv_cut(q, n), whole = { .n = 1 };
	unsigned flags = wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV | RXE_WC_WITH_INV);
	unsigned want_flags = p->op == OP_IMM || p->op == OP_WIMM ? IBV_WC_WITH_IMM :
			      p->op == OP_INV ? IBV_WC_WITH_INV : 0;
	enum ibv_wc_opcode opcode = p->op == OP_WIMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	unsigned m = q->rinvs % NUM_MW;
	uint64_t *room = q->w->pattern;
	uint8_t end[CANARY];

	if (flags & RXE_WC_WITH_INV)
		flags = (flags & ~RXE_WC_WITH_INV) | IBV_WC_WITH_INV;
	if (wc->opcode != opcode || flags != want_flags)
		violation(q, what, n, "expected completion opcode %d with flags %u, saw %d with %u", opcode,
			  want_flags, wc->opcode, flags);
	if (wc->byte_len != p->len)
		violation(q, what, n, "expected %u bytes, saw %u", p->len, wc->byte_len);
	if (want_flags == IBV_WC_WITH_IMM && be32toh(wc->imm_data) != p->imm)
		violation(q, what, n, "expected immediate 0x%x, saw 0x%x", p->imm, be32toh(wc->imm_data));
	if (want_flags == IBV_WC_WITH_INV && wc->invalidated_rkey != q->mw[m]->rkey)
		violation(q, what, n, "expected rkey 0x%x, saw 0x%x", q->mw[m]->rkey, wc->invalidated_rkey);

	if (p->op == OP_WRITE || p->op == OP_INV)
		check_data(q, "RDMA_WRITE", n, p->op == OP_INV ? q->windows + m * MW_SIZE : slot(q, n), &whole,
			   pattern(room, !role, q->idx, n, DATA_WRITE, 0, p->wlen), p->wlen);
	if (p->op == OP_WIMM)
		check_data(q, what, n, slot(q, n), &whole,
			   pattern(room, !role, q->idx, n, DATA_SEND, 0, p->len), p->len);
	else if (p->op == OP_ECHO)
		check_data(q, what, n, buffer(q, n), &cut, pattern(room, role, 0, 0, DATA_LIB, p->off, p->len),
			   p->len);
	else
		check_data(q, what, n, buffer(q, n), &cut,
			   pattern(room, !role, q->idx, n, DATA_SEND, 0, p->len), p->len);

	gather(buffer(q, n), &cut, end, p->op == OP_WIMM ? 0 : p->len, CANARY);
	if (memcmp(end, canary, CANARY) || memcmp(slot(q, n) + slot_use(p), canary, CANARY))
		violation(q, what, n, "expected nothing behind its end, saw something");
	q->bytes_received += p->len + (p->op == OP_WRITE || p->op == OP_INV ? p->wlen : 0);
	if (p->op == OP_INV) {
		q->rinvs++;
		atomic_fetch_add(&q->to_bind, 1);
	}
}

/* The peer's numbers must equal ours. All its atomics are done. */
static void check_fin(struct qp *q, const struct ibv_wc *wc, uint64_t n)
{
	struct cut cut = recv_cut(q, n);
	struct fin *fin = &q->fin;

	gather(buffer(q, n), &cut, fin, 0, sizeof(*fin));
	if (wc->byte_len != sizeof(*fin) || fin->messages != n || fin->bytes != q->bytes_received)
		violation(q, "FIN", n, "expected %" PRIu64 " messages of %" PRIu64 " bytes, saw %" PRIu64 " of %" PRIu64,
			  n, q->bytes_received, fin->messages, fin->bytes);
	if (q->ctl->fadd != fin->fadd_sum)
		violation(q, "FIN", n, "expected counter 0x%" PRIx64 " after %" PRIu64 " FETCH_ADDs, saw 0x%" PRIx64,
			  fin->fadd_sum, fin->fadds, q->ctl->fadd);
	if (shape.messages && n != shape.messages && !there.silent && !fin->halted)
		violation(q, "FIN", n, "expected %" PRIu64 " messages", shape.messages);
	q->fin_seen = true;
}

/* The queue pair that took a receive from the SRQ */
static struct qp *whose(struct worker *w, const struct ibv_wc *wc)
{
	unsigned i;

	for (i = w->idx; i < shape.qps; i += opt.contexts)
		if (qps[i].here.qpn == wc->qp_num)
			return &qps[i];
	violation(NULL, "receive completion", 0, "expected one of our QPs, saw 0x%x", wc->qp_num);
}

void recv_done(struct worker *w, const struct ibv_wc *wc)
{
	struct qp *q = w->srq ? whose(w, wc) : &qps[WR_QP(wc->wr_id)];
	uint64_t n = w->srq ? q->rseq : WR_NO(wc->wr_id);
	bool last = wc->opcode == IBV_WC_RECV && wc->wc_flags & IBV_WC_WITH_IMM;
	struct plan p;

	q->taken = WR_NO(wc->wr_id);
	if (WR_QP(wc->wr_id) >= shape.qps || q->w != w || (w->srq && q->taken * buf_size >= w->rx_size))
		violation(NULL, "receive completion", 0, "expected one of ours, saw wr_id 0x%" PRIx64, wc->wr_id);
	if (q->bye_lost)
		return;
	p = plan_message(!role, q->idx, n);
	if (wc->status != IBV_WC_SUCCESS)
		violation(q, op_name[p.op], n, "expected a receive, saw %s", ibv_wc_status_str(wc->status));
	if (n != q->rseq || wc->qp_num != q->here.qpn)
		violation(q, "receive", n, "expected the receive of message %" PRIu64 " on QP 0x%x, saw that of %" PRIu64 " on 0x%x",
			  q->rseq, q->here.qpn, n, wc->qp_num);
	if (q->bye_seen)
		violation(q, "receive", n, "expected nothing after BYE, saw completion opcode %d", wc->opcode);
	if (last && be32toh(wc->imm_data) == IMM_FIN && !q->fin_seen) {
		check_fin(q, wc, n);
	} else if (last && be32toh(wc->imm_data) == IMM_BYE && q->fin_seen) {
		q->bye_seen = true;
	} else {
		if (q->fin_seen)
			violation(q, "receive", n, "expected BYE, saw completion opcode %d", wc->opcode);
		check_message(q, &p, wc, n);
	}
	prepare(q, n + shape.window);
	q->rseq++;
	post_receives(q);
	publish(&q->ctl->processed, q->rseq);
}
