// SPDX-License-Identifier: MIT
/* Posting, and checking of send completions. */
#include "traffic.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_INLINE = 200 };

static unsigned room(const struct qp *q)
{
	unsigned out = q->posted - q->completed - q->others;

	return out < shape.depth ? shape.depth - out : 0;
}

static void flush(struct qp *q)
{
	struct ibv_send_wr *bad;
	unsigned i;
	int ret;

	if (!q->batched)
		return;
	for (i = 0; i < q->batched; i++)
		q->batch[i].next = i + 1 < q->batched ? &q->batch[i + 1] : NULL;
	ret = ibv_post_send(q->qp, q->batch, &bad);
	if (ret)
		violation(q, "ibv_post_send", q->posted, "expected 0, saw %d (%s)", ret, strerror(ret));
	for (i = 0; i < q->batched; i++)
		if (q->batch[i].send_flags & IBV_SEND_INLINE)
			memset(q->batch_wr[i]->buf, 0xee, MAX_INLINE);	/* ours again at once */
	q->batched = 0;
}

static struct wr *next_wr(struct qp *q, enum ibv_wr_opcode opcode, enum check check, uint64_t seq)
{
	unsigned slot = q->posted % q->ring_size;
	struct wr *wr = &q->ring[slot];

	*wr = (struct wr){ .opcode = opcode, .check = check, .seq = seq, .signaled = true,
			   .buf = q->tx + slot * buf_size };
	return wr;
}

static struct ibv_send_wr *stage(struct qp *q, struct wr *wr)
{
	struct ibv_send_wr *b;

	if (q->batched == MAX_BATCH)
		flush(q);
	q->batch_wr[q->batched] = wr;
	b = &q->batch[q->batched];
	memset(b, 0, sizeof(*b));
	b->wr_id = WR_ID(q, q->posted);
	b->opcode = wr->opcode;
	b->send_flags = wr->signaled ? IBV_SEND_SIGNALED : 0;
	b->sg_list = q->sge[q->batched];
	b->num_sge = make_sges(b->sg_list, wr->buf, &wr->cut, wr->len, q->w->tx_mr->lkey);
	q->batched++;
	q->posted++;
	return b;
}

static struct cut draw_cut(struct qp *q, uint32_t len)
{
	return plan_cut(draw(role, q->idx, q->posted, SALT_TX), len);
}

static struct ibv_send_wr *stage_data(struct qp *q, struct wr *wr, unsigned kind, uint64_t no, uint32_t len)
{
	const uint8_t *data = pattern(q->w->pattern, role, q->idx, no, kind, 0, len);

	wr->len = len;
	wr->cut = draw_cut(q, len);
	scatter(wr->buf, &wr->cut, data, 0, len);
	return stage(q, wr);
}

static void target(struct ibv_send_wr *b, uint64_t addr, uint32_t rkey)
{
	b->wr.rdma.remote_addr = addr;
	b->wr.rdma.rkey = rkey;
}

static struct ibv_send_wr *stage_read(struct qp *q, struct wr *wr, uint64_t addr, uint32_t rkey, uint32_t len)
{
	struct ibv_send_wr *b;

	wr->len = len;
	wr->cut = draw_cut(q, len);
	b = stage(q, wr);
	target(b, addr, rkey);
	return b;
}

static void stage_value_read(struct qp *q, uint64_t seq, size_t offset, uint64_t want)
{
	struct wr *wr = next_wr(q, IBV_WR_RDMA_READ, CHECK_VALUE, seq);

	wr->want = want;
	stage_read(q, wr, q->there.base + offset, q->there.rkey, 8);
}

/* How far the peer is. A READ asks, because a peer in RTR can't tell. */
static void ask_credit(struct qp *q)
{
	struct wr *wr = next_wr(q, IBV_WR_RDMA_READ, CHECK_CREDIT, q->seq);

	if (q->credit_out || shape.uc)
		return;
	q->credit_out = true;
	q->others++;
	wr->cut = (struct cut){ .n = 1, .at = { 0, CTL_READ } };
	wr->len = CTL_READ;
	target(stage(q, wr), q->there.base, q->there.rkey);
}

/* UC has no READ, so this end tells how far it is. */
static void tell_credit(struct qp *q)
{
	uint64_t far = q->rseq + atomic_load(&q->ctl->fin);
	struct wr *wr = next_wr(q, IBV_WR_RDMA_WRITE, CHECK_CREDIT, far);

	if (q->credit_out || q->told == far)
		return;
	q->told = far;
	q->credit_out = true;
	q->others++;
	wr->cut = (struct cut){ .n = 1, .at = { 0, CTL_READ } };
	wr->len = CTL_READ;
	memcpy(wr->buf, q->ctl, CTL_READ);
	target(stage(q, wr), q->there.base + CTL_TOLD, q->there.rkey);
}

/* ------------------------------------------------------------ messages -- */

static uint64_t slot_at(struct qp *q, uint64_t seq)
{
	return q->there.base + CTL_SIZE + NUM_MW * MW_SIZE + seq % shape.window * buf_size;
}

static void stage_write_before(struct qp *q, const struct plan *p)
{
	struct wr *wr = next_wr(q, IBV_WR_RDMA_WRITE, CHECK_NONE, q->seq);
	struct ibv_send_wr *b;

	wr->signaled = !p->unsignaled;
	b = stage_data(q, wr, DATA_WRITE, q->seq, p->wlen);
	if (p->op == OP_WRITE) {
		target(b, slot_at(q, q->seq), q->there.rkey);
	} else {
		unsigned m = q->invs % NUM_MW;
		uint32_t base = q->there.mw_rkey[m], key = base + 1 + q->invs / NUM_MW;

		target(b, q->there.base + CTL_SIZE + m * MW_SIZE, (base & ~0xffu) | (key & 0xff));
	}
}

static struct ibv_send_wr *stage_echo(struct qp *q, const struct plan *p)
{
	struct wr *wr = next_wr(q, IBV_WR_RDMA_READ, CHECK_LIB, q->seq);
	struct wr *read = wr;
	struct cut cut;

	/* The fenced SEND sends what the READ has brought, from the place where the READ has put it. */
	wr->buf = q->tx + (q->posted + 1) % q->ring_size * buf_size;
	wr->off = p->off;
	stage_read(q, wr, q->there.lib + p->off, q->there.common_rkey, p->len);
	q->reads++;
	cut = read->cut;
	wr = next_wr(q, IBV_WR_SEND, CHECK_NONE, q->seq);
	wr->len = p->len;
	wr->cut = cut;
	return stage(q, wr);
}

static bool send_message(struct qp *q, unsigned *which)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[OP_SEND] = IBV_WR_SEND, [OP_IMM] = IBV_WR_SEND_WITH_IMM, [OP_INV] = IBV_WR_SEND_WITH_INV,
		[OP_WRITE] = IBV_WR_SEND, [OP_WIMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct plan p = plan_message(role, q->idx, q->seq);
	struct ibv_send_wr *b;

	*which = p.op;
	if (q->seq >= q->processed + shape.window || room(q) < 2)
		return false;
	if (p.op == OP_INV && q->invs >= q->binds) {
		ask_credit(q);
		return false;
	}
	if (p.op == OP_WRITE || p.op == OP_INV)
		stage_write_before(q, &p);
	if (p.op == OP_ECHO)
		b = stage_echo(q, &p);
	else
		b = stage_data(q, next_wr(q, opcodes[p.op], CHECK_NONE, q->seq), DATA_SEND, q->seq, p.len);
	if (p.op == OP_IMM || p.op == OP_WIMM)
		b->imm_data = htobe32(p.imm);
	if (p.op == OP_WIMM)
		target(b, slot_at(q, q->seq), q->there.rkey);
	if (p.op == OP_INV) {
		unsigned m = q->invs % NUM_MW;
		uint32_t base = q->there.mw_rkey[m], key = base + 1 + q->invs++ / NUM_MW;

		b->invalidate_rkey = (base & ~0xffu) | (key & 0xff);
	}
	if (p.fence) {
		b->send_flags |= IBV_SEND_FENCE;
		q->fenced++;
	}
	if (p.use_inline && p.len <= MAX_INLINE) {
		b->send_flags |= IBV_SEND_INLINE;
		q->inlined++;
	}
	if (q->seq % 3 == 0)
		b->send_flags |= IBV_SEND_SOLICITED;
	q->bytes_sent += p.len + (p.op == OP_WRITE || p.op == OP_INV ? p.wlen : 0);
	q->seq++;
	return true;
}

/* ----------------------------------------------------------- one-sided -- */

static void stage_atomic(struct qp *q, struct wr *wr, uint64_t addr, uint32_t rkey, uint64_t compare_add,
			 uint64_t swap)
{
	struct ibv_send_wr *b;

	wr->len = 8;
	wr->cut = (struct cut){ .n = 1, .at = { 0, 8 } };
	b = stage(q, wr);
	b->wr.atomic.remote_addr = addr;
	b->wr.atomic.rkey = rkey;
	b->wr.atomic.compare_add = compare_add;
	b->wr.atomic.swap = swap;
	q->atomics++;
}

static void fetch_add(struct qp *q, uint64_t r)
{
	struct wr *wr = next_wr(q, IBV_WR_ATOMIC_FETCH_AND_ADD, CHECK_VALUE, q->opno);

	wr->want = q->fadd_sum;
	stage_atomic(q, wr, q->there.base + offsetof(struct ctl, fadd), q->there.rkey, r, 0);
	q->fadds++;
	q->fadd_sum += r;
}

/* A counter that all QPs share: it must grow, and in the end equal the number of these operations. */
static void count(struct qp *q)
{
	stage_atomic(q, next_wr(q, IBV_WR_ATOMIC_FETCH_AND_ADD, CHECK_COUNT, q->opno), q->there.count,
		     q->there.common_rkey, 1, 0);
	q->counts++;
}

static void compare_swap(struct qp *q, uint64_t r)
{
	struct wr *wr = next_wr(q, IBV_WR_ATOMIC_CMP_AND_SWP, CHECK_VALUE, q->opno);
	bool fits = r % 4 != 0;

	wr->want = q->cas;
	stage_atomic(q, wr, q->there.base + offsetof(struct ctl, cas), q->there.rkey, fits ? q->cas : ~q->cas, r);
	if (fits)
		q->cas = r;
}

static bool write_read(struct qp *q, uint64_t r, bool with_flush)
{
	uint64_t no = q->scratch_no, at;
	struct ibv_qp_ex *qpx;
	struct wr *wr;

	if (no - q->scratch_done >= NUM_SCRATCH || room(q) < 3)
		return false;
	at = slot_at(q, 0) + (shape.window + no % NUM_SCRATCH) * buf_size;
	target(stage_data(q, next_wr(q, IBV_WR_RDMA_WRITE, CHECK_NONE, q->opno), DATA_SCRATCH, no, plan_size(r)),
	       at, q->there.rkey);
	if (with_flush) {
		flush(q);
		next_wr(q, IBV_WR_FLUSH, CHECK_NONE, q->opno);
		qpx = ibv_qp_to_qp_ex(q->qp);
		ibv_wr_start(qpx);
		qpx->wr_id = WR_ID(q, q->posted++);
		qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_flush(qpx, q->there.rkey, at, plan_size(r), IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		if (ibv_wr_complete(qpx))
			violation(q, "ibv_wr_complete", q->posted, "expected 0");
	}
	wr = next_wr(q, IBV_WR_RDMA_READ, CHECK_DATA, q->opno);
	wr->want = no;
	stage_read(q, wr, at, q->there.rkey, plan_size(r));
	q->reads++;
	q->scratch_no++;
	return true;
}

static bool atomic_write(struct qp *q, uint64_t r)
{
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(q->qp);

	/* A READ that is repeated brings the data of that later time. */
	if (q->posted != q->completed || room(q) < 2)
		return false;
	next_wr(q, IBV_WR_ATOMIC_WRITE, CHECK_NONE, q->opno);
	ibv_wr_start(qpx);
	qpx->wr_id = WR_ID(q, q->posted++);
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qpx, q->there.rkey, q->there.base + offsetof(struct ctl, aword), &r);
	if (ibv_wr_complete(qpx))
		violation(q, "ibv_wr_complete", q->posted, "expected 0");
	stage_value_read(q, q->opno, offsetof(struct ctl, aword), r);
	return true;
}

static bool one_sided(struct qp *q, uint64_t r, unsigned *which)
{
	uint32_t ops = shape.ops & ~MESSAGE_OPS, len;
	unsigned k = r % __builtin_popcount(ops), op;
	struct wr *wr;

	for (op = OP_READ; !(ops >> op & 1) || k--; op++)
		;
	*which = op;
	r = draw(role, q->idx, q->opno, SALT_CAS);
	switch (op) {
	case OP_READ:
		len = plan_size(r);
		wr = next_wr(q, IBV_WR_RDMA_READ, CHECK_LIB, q->opno);
		wr->off = (r >> 16) % (lib_size - len);
		stage_read(q, wr, q->there.lib + wr->off, q->there.common_rkey, len);
		q->reads++;
		return true;
	case OP_WREAD:
		return write_read(q, r, false);
	case OP_FLUSH:
		return write_read(q, r, true);
	case OP_FADD:
		fetch_add(q, r);
		return true;
	case OP_COUNT:
		count(q);
		return true;
	case OP_CAS:
		compare_swap(q, r);
		return true;
	default:
		return atomic_write(q, r);
	}
}

/* --------------------------------------------------------------- phases -- */

static bool paced(struct qp *q)
{
	double more;

	if (!shape.rate)
		return true;
	more = (double)(q->w->clk.now - (int64_t)q->token_time) * shape.rate / 1e9;
	q->token_time = q->w->clk.now;
	q->tokens = q->tokens + more < shape.depth ? q->tokens + more : shape.depth;
	return q->tokens >= 1;
}

static void run(struct qp *q)
{
	bool messages = shape.ops & MESSAGE_OPS, others = shape.ops & ~MESSAGE_OPS;

	while (room(q)) {
		uint64_t r = draw(role, q->idx, q->opno, SALT_OP);
		unsigned op;
		bool done;

		if (*halt || (shape.messages && q->seq == shape.messages) ||
		    (!shape.messages && !shape.seconds && q->fin_seen)) {
			q->phase = PH_DRAIN;
			break;
		}
		if (!paced(q))
			break;
		if (messages && (!others || r % 100 < 60))
			done = send_message(q, &op);
		else
			done = one_sided(q, r >> 8, &op);
		if (!done)
			break;
		q->ops[op]++;
		q->opno++;
		q->tokens -= 1;
	}
	if (q->seq - q->processed > shape.window / 2)
		ask_credit(q);
}

static void send_last(struct qp *q, uint32_t imm, enum check check)
{
	struct wr *wr = next_wr(q, IBV_WR_SEND_WITH_IMM, check, q->seq);
	struct fin fin = { .messages = q->seq, .bytes = q->bytes_sent, .fadds = q->fadds,
			   .fadd_sum = q->fadd_sum, .counts = q->counts, .halted = *halt };

	q->others++;
	wr->len = sizeof(fin);
	wr->cut = draw_cut(q, wr->len);
	scatter(wr->buf, &wr->cut, &fin, 0, wr->len);
	stage(q, wr)->imm_data = htobe32(imm);
}

static void bind_windows(struct qp *q)
{
	while (q->bound < q->to_bind) {
		unsigned m = q->bound % NUM_MW;
		struct ibv_send_wr *b = stage(q, next_wr(q, IBV_WR_BIND_MW, CHECK_BIND, q->bound));
		uint32_t key = q->here.mw_rkey[m] + 1 + q->bound / NUM_MW;

		b->bind_mw.mw = q->mw[m];
		b->bind_mw.rkey = (q->here.mw_rkey[m] & ~0xffu) | (key & 0xff);
		b->bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = q->w->reach_mr, .addr = (uintptr_t)q->windows + m * MW_SIZE, .length = MW_SIZE,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
		};
		flush(q);	/* before the key changes: the bind takes the window's old key */
		q->mw[m]->rkey = b->bind_mw.rkey;
		q->others++;
		q->bound++;
	}
}

/*
 * The end: all work is done, and our counters at the peer are read and right. Then this end sends FIN with its numbers, which the
 * peer checks. The server is done when the client has said BYE. The client says BYE when it has the server's FIN and has read
 * that its own acknowledge has arrived. So nothing but the BYE itself is outstanding when one of them goes.
 */
static void finish(struct qp *q)
{
	bool idle = q->posted == q->completed;

	switch (q->phase) {
	case PH_DRAIN:
		if (!idle)
			break;
		if (q->fadds)
			stage_value_read(q, q->opno, offsetof(struct ctl, fadd), q->fadd_sum);
		if (q->cas)
			stage_value_read(q, q->opno, offsetof(struct ctl, cas), q->cas);
		q->phase = PH_RECKON;
		break;
	case PH_RECKON:
		if (!idle)
			break;
		if (q->seq < q->processed + shape.window) {
			send_last(q, IMM_FIN, CHECK_FIN);
			q->phase = PH_FIN;
		} else {
			ask_credit(q);
		}
		break;
	case PH_FIN:
		if (!idle || !atomic_load(&q->ctl->fin))
			break;
		if (role == SERVER) {
			if (q->bye_seen)
				q->phase = PH_DONE;
		} else if (q->fin_seen) {
			if (q->peer_fin && q->seq + 1 < q->processed + shape.window) {
				send_last(q, IMM_BYE, CHECK_BYE);
				q->phase = PH_BYE;
			} else {
				ask_credit(q);
			}
		}
		break;
	default:
		break;
	}
}

/* How far the peer is. Returns false if the value was read while the peer wrote it. */
static bool see_credit(struct qp *q, const void *from)
{
	uint64_t v[6];

	memcpy(v, from, sizeof(v));
	if (v[0] != ~v[1] || v[2] != ~v[3] || v[4] != ~v[5])
		return false;
	if (v[0] < q->processed || v[0] > q->seq + 2)
		violation(q, "credit", q->seq, "expected %" PRIu64 " to %" PRIu64 " messages, saw %" PRIu64,
			  q->processed, q->seq, v[0]);
	if (v[2] < q->binds || v[2] > q->invs + NUM_MW)
		violation(q, "credit", q->seq, "expected %" PRIu64 " to %" PRIu64 " windows, saw %" PRIu64,
			  q->binds, q->invs + NUM_MW, v[2]);
	q->processed = v[0];
	q->binds = v[2];
	q->peer_fin = v[4];
	return true;
}

void pump(struct qp *q)
{
	enum phase phase;

	switch (q->phase) {
	case PH_DONE:
		return;
	case PH_SILENT:
		if (!q->fin_seen)
			return;
		modify_to_rts(q);
		q->phase = PH_DRAIN;
		break;
	case PH_IDLE:
		bind_windows(q);
		if (!*go && !q->rseq)
			return;
		*go = true;	/* woken by the peer */
		q->phase = PH_RUN;
		q->last = q->w->last = 0;
		q->token_time = q->w->clk.now;
		break;
	default:
		break;
	}
	bind_windows(q);
	if (shape.uc) {
		see_credit(q, (uint8_t *)q->ctl + CTL_TOLD);
		tell_credit(q);
	}
	if (q->phase == PH_RUN)
		run(q);
	do {	/* a phase without work of its own has no completion to wait for */
		phase = q->phase;
		finish(q);
	} while (q->phase != phase);
	flush(q);
}

/* --------------------------------------------------------- completions -- */

static void retire(struct qp *q, struct wr *wr)
{
	const uint8_t *want = NULL;
	uint64_t got = 0;

	if (wr->len == 8)
		gather(wr->buf, &wr->cut, &got, 0, 8);
	switch (wr->check) {
	case CHECK_DATA:
		want = pattern(q->w->pattern, role, q->idx, wr->want, DATA_SCRATCH, 0, wr->len);
		check_data(q, "RDMA_READ of what was written", wr->seq, wr->buf, &wr->cut, want, wr->len);
		q->scratch_done++;
		break;
	case CHECK_LIB:
		want = pattern(q->w->pattern, !role, 0, 0, DATA_LIB, wr->off, wr->len);
		check_data(q, "RDMA_READ", wr->seq, wr->buf, &wr->cut, want, wr->len);
		break;
	case CHECK_VALUE:
		if (got != wr->want)
			violation(q, ibv_wr_opcode_str(wr->opcode), wr->seq,
				  "expected value 0x%" PRIx64 ", saw 0x%" PRIx64, wr->want, got);
		break;
	case CHECK_COUNT:
		if (got < q->count_seen)
			violation(q, "FETCH_ADD of the common counter", wr->seq,
				  "expected %" PRIu64 " or more, saw %" PRIu64, q->count_seen, got);
		q->count_seen = got + 1;
		break;
	case CHECK_CREDIT:
		q->credit_out = false;
		if (shape.uc)
			break;
		if (see_credit(q, wr->buf))
			q->torn = 0;
		else if (++q->torn > 1000)
			violation(q, "credit", wr->seq, "expected values with complements");
		break;
	case CHECK_BIND:
		publish(&q->ctl->binds, q->ctl->binds + 1);
		break;
	case CHECK_FIN:
		publish(&q->ctl->fin, 1);
		break;
	case CHECK_BYE:
		q->phase = PH_DONE;
		break;
	default:
		break;
	}
	if (wr->check >= CHECK_CREDIT)
		q->others--;
	q->completed++;
}

static enum ibv_wc_opcode completes_as(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_FLUSH:
		return IBV_WC_FLUSH;
	case IBV_WR_ATOMIC_WRITE:
		return IBV_WC_ATOMIC_WRITE;
	default:
		return IBV_WC_SEND;
	}
}

void send_done(struct worker *w, const struct ibv_wc *wc)
{
	struct qp *q = &qps[WR_QP(wc->wr_id)];
	struct wr *wr;

	if (WR_QP(wc->wr_id) >= shape.qps || q->w != w)
		violation(NULL, "send completion", 0, "expected one of ours, saw wr_id 0x%" PRIx64, wc->wr_id);
	while (q->completed < q->posted && !q->ring[q->completed % q->ring_size].signaled)
		retire(q, &q->ring[q->completed % q->ring_size]);
	wr = &q->ring[q->completed % q->ring_size];
	if (q->completed == q->posted || WR_NO(wc->wr_id) != q->completed)
		violation(q, ibv_wr_opcode_str(wr->opcode), wr->seq,
			  "expected the completion of work request %" PRIu64 " of %" PRIu64 ", saw that of %llu",
			  q->completed, q->posted, WR_NO(wc->wr_id));
	if (wc->status != IBV_WC_SUCCESS && wr->check == CHECK_BYE) {
		q->bye_lost = true;	/* the server had all it needed to go */
		retire(q, wr);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS)
		violation(q, ibv_wr_opcode_str(wr->opcode), wr->seq, "expected success, saw %s",
			  ibv_wc_status_str(wc->status));
	if (wc->opcode != completes_as(wr->opcode) || wc->qp_num != q->here.qpn)
		violation(q, ibv_wr_opcode_str(wr->opcode), wr->seq,
			  "expected completion opcode %d on QP 0x%x, saw %d on 0x%x", completes_as(wr->opcode),
			  q->here.qpn, wc->opcode, wc->qp_num);
	if (wr->opcode == IBV_WR_RDMA_READ && wc->byte_len != wr->len)
		violation(q, ibv_wr_opcode_str(wr->opcode), wr->seq, "expected %u bytes, saw %u", wr->len,
			  wc->byte_len);
	retire(q, wr);
}
