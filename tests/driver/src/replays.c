// SPDX-License-Identifier: MIT
/*
 * replays [CASE]: how the responder answers requests that come again, when nothing, or something else, came meanwhile. Each case
 * has a queue pair of its own. It ends with a request whose answer must be the next one, which shows that nothing else was
 * answered.
 */
#include <stddef.h>
#include <rdma/ib_user_verbs.h>

#include "../../programs/dumps.h"
#include "wire.h"

enum {
	SIZE = 8 * MTU,
	RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		 IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_MW_BIND,
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t memory[SIZE] __attribute__((aligned(4096)));
static uint32_t psn;	/* of the next request */

static struct packet request(int opcode, uint32_t offset, uint32_t length)
{
	return (struct packet){
		.opcode = opcode, .qpn = qp->qp_num, .psn = psn, .ack = true, .rkey = mr->rkey,
		.va = (uintptr_t)memory + offset, .length = length, .len = opcode == WRITE_ONLY ? length : 0,
	};
}

/* Its answer, or the answers of all its packets, must have these bytes. */
static void is_read(const struct packet *p, const uint8_t *data)
{
	uint32_t left = p->length, at = p->psn;
	int opcode;

	do {
		uint32_t len = left < MTU ? left : MTU;
		struct packet answer;

		opcode = left == p->length ? (len == left ? READ_ANSWER : READ_ANSWER_FIRST) :
			 len == left ? READ_ANSWER_LAST : READ_ANSWER_MIDDLE;
		answer = wire_expect(opcode, at++);
		CHECK(answer.len == len && !memcmp(answer.data, data, len));
		data += len;
		left -= len;
	} while (left);
}

static void refused(const struct packet *p, int syndrome)
{
	struct packet answer = wire_expect(ACK, p->psn);

	CHECK(answer.syndrome == syndrome);
}

/* A request of this length, whose answer comes next. */
static void write_of(uint32_t length)
{
	struct packet p = request(WRITE_ONLY, SIZE - MTU, length);

	wire_send(&p);
	refused(&p, ACKED);
	psn++;
}

static void nothing_else(void)
{
	write_of(8);
}

/* A replayed READ uses its own data. */
static void reads(void)
{
	struct packet p = request(READ, 16, 32), q;

	wire_send(&p);
	is_read(&p, memory + 16);
	psn++;
	write_of(0);
	wire_send(&p);
	is_read(&p, memory + 16);

	p = request(READ, 0, 0);
	p.rkey = 0;
	wire_send(&p);
	is_read(&p, memory);
	psn++;
	write_of(8);
	wire_send(&p);
	is_read(&p, memory);

	/* the whole, its end, the whole again */
	q = p = request(READ, 100, 3 * MTU);
	psn += 3;
	wire_send(&p);
	is_read(&p, memory + 100);
	q.psn += 2;
	q.va += 2 * MTU;
	q.length = MTU;
	wire_send(&q);
	wire_expect(READ_ANSWER_LAST, q.psn);
	wire_send(&p);
	is_read(&p, memory + 100);
	nothing_else();
}

/* A READ of nothing needs no key, and any key will do, each time. */
static void empty_reads(void)
{
	struct packet p = request(READ, 0, 0);

	p.rkey = 0x12345678;
	wire_send(&p);
	is_read(&p, memory);
	psn++;
	wire_send(&p);
	is_read(&p, memory);
	nothing_else();
}

/* No provider in use here has ibv_rereg_mr(). */
static void move_to(struct ibv_mr *region, struct ibv_pd *to)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_rereg_mr body;
	} cmd = {
		.header = {
			.command = IB_USER_VERBS_CMD_REREG_MR, .in_words = sizeof(cmd) / 4,
			.out_words = sizeof(resp) / 4,
		},
		.body = {
			.response = (uintptr_t)&resp, .mr_handle = region->handle, .flags = IBV_REREG_MR_CHANGE_PD,
			.pd_handle = to->handle,
		},
	};

	CHECK(write(ctx->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd));
}

/* A READ's region has moved to another protection domain when it comes again. */
static void other_domain(void)
{
	struct ibv_mr *own = mr, *passing = ibv_reg_mr(pd, memory, SIZE, RIGHTS);
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct packet p;

	CHECK(passing && other);
	mr = passing;
	p = request(READ, 0, 64);
	mr = own;
	wire_send(&p);
	is_read(&p, memory);
	psn++;
	move_to(passing, other);
	wire_send(&p);
	refused(&p, NAK_ACCESS);
	IS(0, ibv_dereg_mr(passing));
	IS(0, ibv_dealloc_pd(other));
}

/* Requests that are done once, and answered as often as they come. */
static void once(void)
{
	uint64_t *word = (uint64_t *)memory, was = *word;
	struct packet p = request(FETCH_ADD, 0, 0), answer;

	p.swap = 1;
	for (int i = 0; i < 3; i++) {
		wire_send(&p);
		answer = wire_expect(ATOMIC_ACK, p.psn);
		CHECK(answer.swap == was && *word == was + 1);
	}
	psn++;

	p = request(ATOMIC_WRITE, 0, 8);
	p.len = 8;
	memcpy(p.data, &was, 8);
	for (int i = 0; i < 3; i++) {
		*word = 5;
		wire_send(&p);
		wire_expect(READ_ANSWER, p.psn);
		CHECK(*word == (i ? 5 : was));
	}
	psn++;
	nothing_else();
}

/* A FLUSH is found again, with or without an older one in its place. */
static void flushes(void)
{
	struct packet p;

	for (int i = 0; i < 3; i++) {
		p = request(FLUSH, 0, SIZE);
		p.flush = FLUSH_GLOBAL;
		wire_send(&p);
		wire_expect(READ_ANSWER, p.psn);
		psn++;
		write_of(8);
		wire_send(&p);
		wire_expect(READ_ANSWER, p.psn);
	}
	nothing_else();
}

/*
 * A request with the PSN of an earlier request of another kind must not be taken for that request. Otherwise a READ takes the
 * fields of a FLUSH of a whole region, which nobody checks. Then the READ's address is a key and a length, and its length is an
 * address: those of a region that no peer may read.
 */
static void other_kinds(void)
{
	enum { SECRET = 0x10000000 };	/* an address that fits into a length */
	struct ibv_mr *secret = ibv_reg_mr_iova(pd, memory, SIZE, SECRET, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct packet p;

	CHECK(secret);
	p = request(FLUSH, 0, SECRET);
	p.va = (uint64_t)SIZE << 32 | secret->rkey;
	p.flush = FLUSH_GLOBAL | FLUSH_REGION;
	wire_send(&p);
	wire_expect(READ_ANSWER, p.psn);
	p = request(READ, 0, 64);
	p.va = SECRET;
	p.rkey = secret->rkey;
	wire_send(&p);	/* a key of no use here */
	psn++;
	write_of(8);

	/* an atomic in place of the READ would be answered with an address of this process */
	p = request(READ, 0, 8);
	wire_send(&p);
	is_read(&p, memory);
	p.opcode = FETCH_ADD;
	wire_send(&p);
	p.opcode = FLUSH;
	p.flush = FLUSH_GLOBAL;
	wire_send(&p);
	p.opcode = ATOMIC_WRITE;
	p.len = 8;
	wire_send(&p);
	psn++;
	nothing_else();
	IS(0, ibv_dereg_mr(secret));
}

static void bind_window(struct ibv_mw *mw, uint32_t rkey, int access)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_BIND_MW };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info.mr = mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)memory;
	wr.bind_mw.bind_info.length = MTU;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ | access;
	IS(0, ibv_post_send(qp, &wr, &bad));
	CHECK(wire_completion(cq).status == IBV_WC_SUCCESS);
}

/* A READ that comes again reads the same data or a part of it; through a window, nothing beyond the window. */
static void within(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct packet p;

	CHECK(mw);
	bind_window(mw, ibv_inc_rkey(mw->rkey), 0);
	p = request(READ, 0, MTU);
	p.rkey = ibv_inc_rkey(mw->rkey);
	wire_send(&p);
	is_read(&p, memory);
	psn++;
	p.va += MTU;
	p.length = 0;
	wire_send(&p);
	is_read(&p, memory);
	p.length = MTU;
	wire_send(&p);
	nothing_else();
	IS(0, ibv_dealloc_mw(mw));
}

/* The addresses of a window may begin at 0, each time that a READ comes. */
static void zero_based(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct packet p;

	CHECK(mw);
	bind_window(mw, ibv_inc_rkey(mw->rkey), IBV_ACCESS_ZERO_BASED);
	p = request(READ, 0, MTU - 100);
	p.rkey = ibv_inc_rkey(mw->rkey);
	p.va = 100;
	for (int i = 0; i < 3; i++) {
		wire_send(&p);
		is_read(&p, memory + 100);
	}
	psn++;

	/* but not more than was asked for, nor by an address of the region */
	p.va = 101;
	wire_send(&p);
	p.va = (uintptr_t)memory + 100;
	wire_send(&p);
	nothing_else();
	IS(0, ibv_dealloc_mw(mw));
}

/* A queue pair without responder resources answers nothing that needs one. */
static void no_resources(void)
{
	struct packet p = request(FLUSH, 0, SIZE);

	p.flush = FLUSH_GLOBAL;
	wire_send(&p);
	refused(&p, NAK_INVALID);
}

static const struct {
	const char *name;
	void (*run)(void);
	int rd_atomic;
} cases[] = {
	{ "reads", reads, 4 }, { "empty_reads", empty_reads, 4 }, { "other_domain", other_domain, 4 },
	{ "once", once, 4 }, { "flushes", flushes, 2 }, { "other_kinds", other_kinds, 4 }, { "within", within, 4 },
	{ "zero_based", zero_based, 4 }, { "no_resources", no_resources, 0 },
};

int main(int argc, char **argv)
{
	ctx = wire_open();
	CHECK((pd = ibv_alloc_pd(ctx)));
	CHECK((cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, RIGHTS)));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name))
			continue;
		puts(cases[i].name);
		fflush(stdout);
		for (int n = 0; n < SIZE; n++)
			memory[n] = n * 7 >> 2;
		psn = 0;
		qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, cases[i].rd_atomic);
		cases[i].run();
		IS(0, ibv_destroy_qp(qp));
	}
	return 0;
}
