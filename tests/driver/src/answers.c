// SPDX-License-Identifier: MIT
/*
 * answers [CASE]: what the requester does when answers are lost, late, refused, or meant for other requests. Each case has a
 * queue pair of its own.
 */
#include <poll.h>
#include <stddef.h>

#include "../../programs/dumps.h"
#include "wire.h"

enum {
	SIZE = 4 * MTU,
	FAR_KEY = 0x1234,
	MANY = 5,	/* times that a request is put off */
	BIND = 0x1000,	/* no opcode of a packet */
	RING = 32,	/* entries in the send queue's ring, that has room for 16 */
	LATE = 12,	/* messages that are sent again while a NAK comes */
};

static const uint64_t far_va = 0x7f0000001000;

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t memory[SIZE] __attribute__((aligned(4096)));

/* Posts all the named requests at once. */
static void post(const int *what, int count)
{
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(q);
	for (int i = 0; i < count; i++) {
		uint64_t va = far_va + i * MTU;

		q->wr_id = what[i];
		q->wr_flags = 0;
		switch (what[i]) {
		case SEND_ONLY:
			ibv_wr_send(q);
			ibv_wr_set_sge(q, mr->lkey, (uintptr_t)memory, 64);
			break;
		case READ:
			ibv_wr_rdma_read(q, FAR_KEY, va);
			ibv_wr_set_sge(q, mr->lkey, (uintptr_t)memory, 64);
			break;
		case FETCH_ADD:
			ibv_wr_atomic_fetch_add(q, FAR_KEY, va, 1);
			ibv_wr_set_sge(q, mr->lkey, (uintptr_t)memory, 8);
			break;
		case ATOMIC_WRITE:
			ibv_wr_atomic_write(q, FAR_KEY, va, memory);
			break;
		case FLUSH:
			ibv_wr_flush(q, FAR_KEY, va, MTU, FLUSH_GLOBAL, IBV_FLUSH_RANGE);
			break;
		}
	}
	IS(0, ibv_wr_complete(q));
}

#define POST(...) do { \
	const int what_[] = { __VA_ARGS__ }; \
	post(what_, sizeof(what_) / sizeof(int)); \
} while (0)

static void answer(int opcode, uint32_t psn, int syndrome)
{
	struct packet p = { .opcode = opcode, .qpn = qp->qp_num, .psn = psn, .syndrome = syndrome };

	if (opcode == READ_ANSWER) {
		p.len = 64;
		memset(p.data, 0x5a, p.len);
	}
	p.swap = 0x123456789abcdef0;
	wire_send(&p);
}

static void completes(int what, int status)
{
	struct ibv_wc wc = wire_completion(cq);

	if ((int)wc.wr_id != what || (int)wc.status != status)
		DIE("%#x completes with %s, not %#x with %s", (int)wc.wr_id, ibv_wc_status_str(wc.status), what,
		    ibv_wc_status_str(status));
}

#define SAME(field) do { \
	if (a->field != b->field) \
		DIE("opcode %#x is sent again with %s %#llx, not %#llx", a->opcode, #field, \
		    (unsigned long long)b->field, (unsigned long long)a->field); \
} while (0)

static void same_packet(const struct packet *a, const struct packet *b)
{
	SAME(opcode);
	SAME(qpn);
	SAME(psn);
	SAME(ack);
	SAME(va);
	SAME(rkey);
	SAME(length);
	SAME(swap);
	SAME(compare);
	SAME(flush);
	SAME(imm);
	SAME(ttl);
	SAME(to);
	SAME(from);
	SAME(len);
	CHECK(!memcmp(a->data, b->data, a->len));
}

/* A request that is sent again is the same as before. */
static void same_again(void)
{
	static const int kinds[] = { ATOMIC_WRITE, FLUSH, FETCH_ADD, READ };
	struct packet first, p;

	for (int i = 0; i < 4; i++) {
		post(&kinds[i], 1);
		first = wire_expect(kinds[i], i);
		CHECK(first.va == far_va && first.rkey == FAR_KEY);
		/* A field without meaning must hold nothing of the kernel's memory. */
		CHECK(kinds[i] != FETCH_ADD || first.compare == 0);
		answer(ACK, i, NAK_PSN);
		p = wire_expect(kinds[i], i);
		same_packet(&first, &p);
		if (kinds[i] == FETCH_ADD) {
			answer(ATOMIC_ACK, i, ACKED);
		} else {
			struct packet a = { .opcode = READ_ANSWER, .qpn = qp->qp_num, .psn = i, .syndrome = ACKED };

			a.len = kinds[i] == READ ? 64 : 0;
			wire_send(&a);
		}
		completes(kinds[i], IBV_WC_SUCCESS);
	}
}

/* A request that a later acknowledge completes does not count as under way any more. */
static void credit_back(void)
{
	POST(ATOMIC_WRITE, SEND_ONLY);
	wire_expect(ATOMIC_WRITE, 0);
	wire_expect(SEND_ONLY, 1);
	answer(ACK, 1, ACKED);
	completes(ATOMIC_WRITE, IBV_WC_SUCCESS);
	completes(SEND_ONLY, IBV_WC_SUCCESS);
	POST(READ);
	wire_expect(READ, 2);
}

/* There are never more FLUSHes under way than the peer has room for, whatever comes meanwhile. */
static void flush_credit(void)
{
	struct packet done = { .opcode = READ_ANSWER, .qpn = qp->qp_num, .psn = 0, .syndrome = ACKED };

	POST(FLUSH, FLUSH, READ);
	for (int i = 0; i < MANY; i++) {
		wire_expect(FLUSH, 0);
		answer(ACK, 0, NAK_RNR);
	}
	wire_expect(FLUSH, 0);
	wire_send(&done);
	completes(FLUSH, IBV_WC_SUCCESS);
	wire_expect(FLUSH, 1);
	done.psn = 1;
	wire_send(&done);
	completes(FLUSH, IBV_WC_SUCCESS);
	wire_expect(READ, 2);
}

/* The answer to another request ends the queue pair, and no work is reported as done. */
static void no_answer(int to, int wrong)
{
	POST(to);
	wire_expect(to, 0);
	answer(wrong, 0, ACKED);
	completes(to, to == SEND_ONLY && wrong == READ_ANSWER ? IBV_WC_FATAL_ERR : IBV_WC_BAD_RESP_ERR);
}

static void atomic_for_send(void) { no_answer(SEND_ONLY, ATOMIC_ACK); }
static void atomic_for_read(void) { no_answer(READ, ATOMIC_ACK); }
static void atomic_for_flush(void) { no_answer(FLUSH, ATOMIC_ACK); }
static void read_for_send(void) { no_answer(SEND_ONLY, READ_ANSWER); }

/* An acknowledge is not the answer that a READ or an ATOMIC waits for. */
static void acknowledged(void)
{
	POST(READ, FETCH_ADD, SEND_ONLY);
	wire_expect(READ, 0);
	wire_expect(FETCH_ADD, 1);
	wire_expect(SEND_ONLY, 2);
	answer(ACK, 0, ACKED);
	answer(READ_ANSWER, 0, ACKED);
	completes(READ, IBV_WC_SUCCESS);
	CHECK(memory[0] == 0x5a && memory[63] == 0x5a);
	answer(ACK, 1, ACKED);
	answer(ATOMIC_ACK, 1, ACKED);
	completes(FETCH_ADD, IBV_WC_SUCCESS);
	CHECK(*(uint64_t *)memory == 0x123456789abcdef0);
	answer(ACK, 2, ACKED);
	completes(SEND_ONLY, IBV_WC_SUCCESS);
}

/*
 * The peer has done all requests except the last, and says so while all are sent again. Nothing else comes from the peer.
 * Requests that are sent again then stay on the wire.
 */
static void early_nak(int status, int before, int syndrome)
{
	int what[LATE], ends = before == READ ? 0 : LATE - 1;

	for (int i = 0; i < LATE; i++)
		what[i] = SEND_ONLY;
	what[0] = before;
	post(what, LATE);
	for (int i = 0; i < LATE; i++)
		wire_expect(what[i], i);
	answer(ACK, 0, NAK_PSN);
	answer(ACK, LATE - 1, syndrome);
	for (int i = 0; i < ends; i++)
		completes(what[i], IBV_WC_SUCCESS);
	completes(what[ends], status);
	for (int i = ends + 1; i < LATE; i++)
		completes(what[i], IBV_WC_WR_FLUSH_ERR);
}

static void early_access(void) { early_nak(IBV_WC_REM_ACCESS_ERR, SEND_ONLY, NAK_ACCESS); }
static void early_invalid(void) { early_nak(IBV_WC_REM_INV_REQ_ERR, SEND_ONLY, NAK_INVALID); }

/* A queue pair that never had to send anything again, and whose ring has come round, begins nothing in SQD. */
static void drained(void)
{
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_SQD };
	struct packet p;

	for (int i = 0; i < RING - 4; i++) {
		POST(SEND_ONLY);
		wire_expect(SEND_ONLY, i);
		answer(ACK, i, ACKED);
		completes(SEND_ONLY, IBV_WC_SUCCESS);
	}
	/* There is room for one under way. */
	POST(READ, READ, READ, READ, READ, READ);
	wire_expect(READ, RING - 4);
	IS(0, ibv_modify_qp(qp, &to, IBV_QP_STATE));
	answer(READ_ANSWER, RING - 4, ACKED);
	completes(READ, IBV_WC_SUCCESS);
	CHECK(!wire_any(&p, 300));
	to.qp_state = IBV_QPS_RTS;
	to.cur_qp_state = IBV_QPS_SQD;
	IS(0, ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_CUR_STATE));
	for (int i = 1; i < 6; i++) {
		wire_expect(READ, RING - 4 + i);
		answer(READ_ANSWER, RING - 4 + i, ACKED);
		completes(READ, IBV_WC_SUCCESS);
	}
}

static void send_and_bind(struct ibv_mr *region)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(qp);

	CHECK(mw);
	ibv_wr_start(q);
	q->wr_id = SEND_ONLY;
	q->wr_flags = 0;
	ibv_wr_send(q);
	ibv_wr_set_sge(q, mr->lkey, (uintptr_t)memory, 64);
	q->wr_id = BIND;
	ibv_wr_bind_mw(q, mw, ibv_inc_rkey(mw->rkey), &(struct ibv_mw_bind_info){ region, (uintptr_t)memory, 64, 0 });
	IS(0, ibv_wr_complete(q));
}

static void is_drained(void)
{
	struct pollfd poll_fd = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	do {	/* the port has events of its own */
		CHECK(poll(&poll_fd, 1, PATIENCE * 1000) == 1);
		IS(0, ibv_get_async_event(ctx, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_SQ_DRAINED || event.element.qp != qp);
}

/*
 * The last request that begins before SQD needs no packet. SQ_DRAINED still comes. Nothing shows that the BIND has begun, and if
 * it has not, it waits for RTS. Then ask again.
 */
static void drained_local(void)
{
	struct ibv_mr *region = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_qp_attr to = { .en_sqd_async_notify = 1 };
	struct ibv_wc wc;

	CHECK(region);
	for (int i = 0; i < 10; i++) {
		send_and_bind(region);
		wire_expect(SEND_ONLY, i);
		to.qp_state = IBV_QPS_SQD;
		IS(0, ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
		answer(ACK, i, ACKED);
		completes(SEND_ONLY, IBV_WC_SUCCESS);
		if (wire_completes(cq, &wc, 1000)) {
			CHECK(wc.wr_id == BIND && wc.status == IBV_WC_SUCCESS);
			is_drained();
			return;
		}
		is_drained();
		to.qp_state = IBV_QPS_RTS;
		to.cur_qp_state = IBV_QPS_SQD;
		IS(0, ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_CUR_STATE));
		completes(BIND, IBV_WC_SUCCESS);
	}
	fprintf(stderr, "10 times the BIND had not begun before SQD\n");
	exit(75);
}

static const struct {
	const char *name;
	void (*run)(void);
	int rd_atomic;
} cases[] = {
	{ "same_again", same_again, 4 }, { "credit_back", credit_back, 1 }, { "flush_credit", flush_credit, 1 },
	{ "acknowledged", acknowledged, 4 }, { "atomic_for_send", atomic_for_send, 4 },
	{ "atomic_for_read", atomic_for_read, 4 }, { "atomic_for_flush", atomic_for_flush, 4 },
	{ "read_for_send", read_for_send, 4 }, { "early_access", early_access, 4 }, { "early_invalid", early_invalid, 4 },
	{ "drained", drained, 1 }, { "drained_local", drained_local, 4 },
};

int main(int argc, char **argv)
{
	ctx = wire_open();
	CHECK((pd = ibv_alloc_pd(ctx)));
	CHECK((cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE)));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name))
			continue;
		puts(cases[i].name);
		fflush(stdout);
		memset(memory, 0, SIZE);
		for (struct packet p; wire_any(&p, 1);)		/* what the last request has sent again */
			;
		qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, cases[i].rd_atomic);
		cases[i].run();
		IS(0, ibv_destroy_qp(qp));
	}
	return 0;
}
