// SPDX-License-Identifier: MIT
/*
 * rcv_fuzz [--seed N] [--packets N]: packets that are almost right, into the driver's receive path.
 *
 * The sender is the peer of queue pairs of every type and in every state, of stopped and paused ones, and of tombstones. It
 * listens to what the driver sends, and so knows which PSNs are expected and what is asked. Its packets have the right ICRC and,
 * mostly, the right MAC, since otherwise they would get no further. Queue pairs that have failed are made again. Three things
 * must be true: memory that no peer may write stays as it is, all objects can be destroyed in the end, and the driver's own
 * packets are well-formed. The kernel log tells the rest.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <time.h>

#include "../../programs/dumps.h"
#include "migr.h"
#include "../../programs/random.h"

#define GROUP "239.88.0.1"

enum { SLOTS = 24, SIZE = 16384, OPEN = 4096 };	/* no peer may write to the rest of memory */

static const migr_key key = { 7 };
static const char canary = 0x5a;

enum role { RUNS, WITH_SRQ, HALF_WAY, PAUSED, STOPPED, BURIED, ROLES };

static struct context {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr, *closed;
	struct ibv_mw *mw;
	bool stopped;
} contexts[3];	/* one that runs, one that is stopped now and then, one whose queue pairs end while it is stopped */

static struct slot {
	enum role role;
	enum ibv_qp_type type;
	struct context *c;
	struct ibv_qp *qp;	/* NULL: gone */
	uint32_t qpn;
	uint32_t epoch;		/* ours */
	uint32_t own_epoch;	/* its own, as far as we were told */
	uint32_t expects;	/* the PSN, as far as its answers tell */
	struct packet asked;	/* its last request; opcode 0xff: none */
} slots[SLOTS];

static uint8_t memory[SIZE] __attribute__((aligned(4096)));
static uint64_t sent, heard, made, kinds[256];

/* --------------------------------------------------------------- objects -- */

static void open_context(struct context *c)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 64, .max_sge = 2 } };
	enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_MW_BIND };

	memset(c, 0, sizeof(*c));
	c->ctx = open_device();
	CHECK((c->pd = ibv_alloc_pd(c->ctx)) && (c->cq = ibv_create_cq(c->ctx, 4096, NULL, NULL, 0)));
	CHECK((c->srq = ibv_create_srq(c->pd, &srq)));
	CHECK((c->mr = ibv_reg_mr(c->pd, memory, OPEN, ALL)));
	CHECK((c->closed = ibv_reg_mr(c->pd, memory + OPEN, SIZE - OPEN, IBV_ACCESS_REMOTE_READ)));
	CHECK((c->mw = ibv_alloc_mw(c->pd, IBV_MW_TYPE_2)));
}

static void close_context(struct context *c)
{
	IS(0, ibv_dealloc_mw(c->mw));
	IS(0, ibv_dereg_mr(c->mr));
	IS(0, ibv_dereg_mr(c->closed));
	IS(0, ibv_destroy_srq(c->srq));
	IS(0, ibv_destroy_cq(c->cq));
	IS(0, ibv_dealloc_pd(c->pd));
	IS(0, ibv_close_device(c->ctx));
}

static void send_frame(const struct frame *f)
{
	wire_send_frame(f);
	kinds[f->at[FRAME_BTH]]++;
	sent++;
}

static void say(struct slot *s, int opcode, uint32_t epoch)
{
	struct rxe_migr_hdr hdr = migr_hdr(opcode, s->qpn, epoch, 0);
	struct frame f;

	hdr.src_qpn = htobe32(FAR_QPN + (s - slots));
	migr_sign(&hdr, key);
	f = migr_frame(&hdr, NULL);
	send_frame(&f);
}

static void make(struct slot *s)
{
	struct ibv_qp_init_attr init = {
		.qp_type = s->type, .send_cq = s->c->cq, .recv_cq = s->c->cq, .sq_sig_all = 1,
		.srq = s->role == WITH_SRQ && s->type != IBV_QPT_UC ? s->c->srq : NULL,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2 },
	};
	struct ibv_qp_attr a = {
		.port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = FAR_QPN + (s - slots), .qkey = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				   IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_MW_BIND,
		.max_rd_atomic = 4, .max_dest_rd_atomic = below(5), .min_rnr_timer = 1,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
	};
	static const enum ibv_qp_state half_way[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQD, IBV_QPS_ERR };
	union ibv_gid group = migr_gid(GROUP);

	a.ah_attr.grh.dgid = migr_gid(FAR);
	CHECK((s->qp = ibv_create_qp(s->c->pd, &init)));
	s->qpn = s->qp->qp_num;
	s->expects = 0;
	s->epoch = s->own_epoch = 0;
	s->asked = (struct packet){ .opcode = 0xff };
	/* UD has no states but these. */
	lead(s->qp, a, s->role != HALF_WAY ? IBV_QPS_RTS : s->type == IBV_QPT_UD ? IBV_QPS_INIT : half_way[below(4)]);
	if (s->type == IBV_QPT_UD && s->role == RUNS)
		IS(0, ibv_attach_mcast(s->qp, &group, 0));
	if (s->role == PAUSED || s->c != contexts)
		say(s, RXE_MIGR_OPCODE_STOP, ++s->epoch);
	if (s->role != PAUSED && s->c != contexts)
		say(s, RXE_MIGR_OPCODE_RESUME, s->epoch);
	made++;
}

static void destroy(struct slot *s)
{
	union ibv_gid group = migr_gid(GROUP);

	if (!s->qp)
		return;
	if (s->type == IBV_QPT_UD && s->role == RUNS)
		IS(0, ibv_detach_mcast(s->qp, &group, 0));
	IS(0, ibv_destroy_qp(s->qp));
	s->qp = NULL;
}

/* A failed queue pair begins again. A stopped one can't be modified. */
static void mend(struct slot *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	if (!s->qp || s->c->stopped || s->role == HALF_WAY)
		return;
	IS(0, ibv_query_qp(s->qp, &a, IBV_QP_STATE, &init));
	if (a.qp_state == IBV_QPS_ERR || a.qp_state == IBV_QPS_SQE || !below(64)) {
		destroy(s);
		make(s);
	}
}

static void make_some(struct context *c)
{
	for (struct slot *s = slots; s < slots + SLOTS; s++)
		if (s->c == c) {
			destroy(s);
			make(s);
		}
}

/* The second context stops and goes on; the queue pairs of the third end, and leave tombstones. */
static void turn(void)
{
	if (contexts[1].stopped)
		IS(0, ibv_abort_context(contexts[1].ctx));
	else
		migr_stop(contexts[1].ctx);
	contexts[1].stopped = !contexts[1].stopped;
	for (struct slot *s = slots; s < slots + SLOTS; s++)
		if (s->c == contexts + 1 && contexts[1].stopped)
			s->own_epoch++;

	if (contexts[2].stopped) {
		close_context(contexts + 2);
		open_context(contexts + 2);
		make_some(contexts + 2);
		return;
	}
	migr_stop(contexts[2].ctx);
	contexts[2].stopped = true;
	for (struct slot *s = slots; s < slots + SLOTS; s++)
		if (s->c == contexts + 2) {
			s->own_epoch++;
			destroy(s);
		}
}

/* ------------------------------------------------------------ their work -- */

static struct ibv_ah *ah;

static void work(struct slot *s)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW,
	};
	struct ibv_sge sge = { (uintptr_t)memory + below(OPEN / 2), below(4) ? below(64) : below(OPEN / 2), s->c->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcodes[below(s->type == IBV_QPT_RC ? 8 : 4)] };
	struct ibv_recv_wr *bad_recv, recv = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc[16];

	if (!s->qp)
		return;
	if (s->qp->srq)
		ibv_post_srq_recv(s->qp->srq, &recv, &bad_recv);
	else
		ibv_post_recv(s->qp, &recv, &bad_recv);
	while (ibv_poll_cq(s->c->cq, 16, wc) > 0)
		;
	if (s->type == IBV_QPT_UD) {
		wr.opcode = IBV_WR_SEND;
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = FAR_QPN;
		wr.wr.ud.remote_qkey = 7;
		if (s->c != contexts)
			return;
	} else if (wr.opcode == IBV_WR_BIND_MW) {
		wr.bind_mw.mw = s->c->mw;
		wr.bind_mw.rkey = s->c->mw->rkey = ibv_inc_rkey(s->c->mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
			s->c->mr, (uintptr_t)memory, OPEN / 2, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = 4096;
	} else {
		wr.wr.rdma.remote_addr = 4096;
	}
	if (!below(8))
		wr.send_flags = IBV_SEND_FENCE;
	ibv_post_send(s->qp, &wr, &bad);
}

/* --------------------------------------------------------------- listening -- */

static void hear(void)
{
	struct packet p;

	while (wire_any(&p, 0)) {
		uint32_t n = p.qpn - FAR_QPN;
		struct slot *s = slots + n;
		int op = p.opcode & 0x1f;

		heard++;
		if (n >= SLOTS)
			continue;
		if (p.opcode >= RXE_MIGR_OPCODE_STOP) {
			const struct rxe_migr_hdr *hdr = (void *)p.data;

			if (hdr->opcode == RXE_MIGR_OPCODE_STOP || hdr->opcode == RXE_MIGR_OPCODE_RESUME)
				s->own_epoch = be32toh(hdr->epoch);
		} else if (op >= READ_ANSWER_FIRST && op <= ATOMIC_ACK) {
			/* A NAK of a sequence error has the PSN that is expected. */
			s->expects = p.psn + !(op == ACK && p.syndrome == NAK_PSN);
		} else {
			s->asked = p;
		}
	}
}

/* --------------------------------------------------------------- speaking -- */

static uint64_t near(uint64_t value, unsigned bits)
{
	switch (below(8)) {
	case 0: return value + below(5) - 2;
	case 1: return edge_of(bits);
	default: return value;
	}
}

static uint32_t some_key(struct slot *s)
{
	struct context *c = below(8) ? s->c : &contexts[below(3)];

	switch (below(8)) {
	case 0: return c->closed->rkey;
	case 1: return c->mw->rkey;
	case 2: return near(c->mr->rkey, 32);
	default: return c->mr->rkey;
	}
}

static uint32_t some_qpn(struct slot *s)
{
	switch (below(64)) {
	case 0: return 1;
	case 1: return 0;
	case 2: return 0xffffff;
	case 3: return edge_of(24) & 0xffffff;
	default: return s->qpn;
	}
}

static struct packet request(struct slot *s)
{
	static const uint8_t rc[] = { SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM, WRITE_FIRST,
				      WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM, READ, CMP_SWAP,
				      FETCH_ADD, FLUSH, ATOMIC_WRITE, 0x16, 0x17 };
	struct packet p = {
		.qpn = some_qpn(s), .psn = near(s->expects, 24), .ack = below(2), .rkey = some_key(s),
		.va = below(8) ? (uintptr_t)memory + below(8) * 8 : near((uintptr_t)memory + (below(2) ? OPEN : SIZE), 64),
		.swap = rnd(), .compare = below(2) ? 0 : rnd(), .flush = edge_of(32), .imm = some_key(s), .qkey = near(7, 32),
		.src_qpn = FAR_QPN,
	};
	bool whole;

	p.opcode = below(16) ? rc[below(sizeof(rc))] : below(256);
	if (s->type == IBV_QPT_UC)
		p.opcode = UC | (p.opcode & 15);
	if (s->type == IBV_QPT_UD)
		p.opcode = UD | (below(4) ? SEND_ONLY + below(2) : p.opcode & 31);
	whole = p.opcode % UC == SEND_FIRST || p.opcode % UC == SEND_MIDDLE || p.opcode % UC == WRITE_FIRST ||
		p.opcode % UC == WRITE_MIDDLE;
	p.len = whole && below(8) ? MTU : below(4) ? below(64) : below(sizeof(p.data) + 1);
	if (p.opcode == READ || p.opcode == FLUSH || p.opcode == ATOMIC_WRITE)
		p.len = p.opcode == ATOMIC_WRITE ? 8 : below(16) ? 0 : p.len;
	p.length = near(p.opcode == READ || p.opcode == FLUSH ? below(3 * MTU) :
			p.opcode % UC == WRITE_FIRST ? MTU + below(MTU) : p.len, 32);
	return p;
}

/* Answers to the last request, or to nothing. */
static struct packet answer(struct slot *s)
{
	static const uint8_t acks[] = { ACKED, ACKED, ACKED, NAK_RNR, NAK_PSN, NAK_INVALID, NAK_ACCESS, 0x63, 0x64, 0x1f, 0, 0x7f };
	const struct packet *q = &s->asked;
	struct packet p = {
		.opcode = ACK, .qpn = some_qpn(s), .psn = near(q->opcode == 0xff ? 0 : q->psn, 24),
		.syndrome = below(16) ? acks[below(sizeof(acks))] : rnd(), .swap = rnd(),
	};

	if (q->opcode == READ) {
		p.opcode = below(8) && q->length <= MTU ? READ_ANSWER : READ_ANSWER_FIRST + below(4);
		p.len = near(q->length < MTU ? q->length : MTU, 11);
		p.syndrome = below(8) ? ACKED : p.syndrome;
	} else if (q->opcode == CMP_SWAP || q->opcode == FETCH_ADD) {
		p.opcode = ATOMIC_ACK;
	}
	if (!below(8))
		p.opcode = READ_ANSWER_FIRST + below(6);
	if (p.len > sizeof(p.data))
		p.len = below(sizeof(p.data));
	return p;
}

/* To the GSI: datagrams of management, of the CM mostly. */
static struct packet mad(struct slot *s)
{
	struct packet p = { .opcode = UD | SEND_ONLY, .qpn = 1, .psn = rnd() & 0xffffff, .qkey = 0x80010000, .src_qpn = 1 };

	p.len = below(8) ? 256 : below(300);
	for (int i = 0; i < 256; i++)
		p.data[i] = below(4) ? 0 : rnd();
	p.data[0] = below(256) ? 1 : rnd();	/* otherwise the kernel logs it */
	p.data[1] = near(7, 8);		/* the CM's class */
	p.data[2] = near(2, 8);
	p.data[3] = near(3, 8);
	p.data[4] = p.data[5] = 0;
	p.data[16] = 0;
	p.data[17] = 0x10 + below(12);	/* REQ, MRA, REJ, ... */
	memcpy(p.data + 36, &(uint32_t){ htonl(s->qpn << 8) }, 4);
	return p;
}

static struct frame ours(struct slot *s)
{
	static const char *const places[] = { FAR, FAR, FAR, FAR, "10.88.0.3", "10.88.0.4", NEAR };
	int opcode = RXE_MIGR_OPCODE_STOP + below(6);
	bool reply = opcode == RXE_MIGR_OPCODE_STOP_ACK || opcode == RXE_MIGR_OPCODE_RESUME_ACK;
	struct rxe_migr_hdr hdr;
	const char *from = places[below(8) ? 0 : below(7)];
	union ibv_gid at;
	struct frame f;

	if (opcode == RXE_MIGR_OPCODE_STOP && !below(4))
		s->epoch++;
	hdr = migr_hdr(opcode, s->qpn, near(reply ? s->own_epoch : s->epoch, 32), near(s->expects, 24));
	hdr.src_qpn = htobe32(near(FAR_QPN + (s - slots), 24));
	at = migr_gid(below(8) ? from : places[below(7)]);
	memcpy(hdr.new_gid, &at, sizeof(at));
	at = migr_gid(places[below(8) ? 0 : below(7)]);
	memcpy(hdr.old_gid, &at, sizeof(at));
	if (opcode == RXE_MIGR_OPCODE_MOVED && !s->qp) {
		hdr.src_qpn = hdr.dest_qpn;
		hdr.psn = htobe32(FAR_QPN + (s - slots));
		at = migr_gid(NEAR);
		memcpy(hdr.old_gid, &at, sizeof(at));
	}
	if (!below(8))
		((uint8_t *)&hdr)[below(sizeof(hdr))] = rnd();
	if (below(8))
		migr_sign(&hdr, key);
	f = migr_frame(&hdr, from);
	if (hdr.opcode != opcode && below(2)) {
		f.at[FRAME_BTH] = opcode;
		wire_seal(&f);
	}
	return f;
}

/* Changes bits, bytes, or the length. */
static void bend(struct frame *f)
{
	for (unsigned n = 1 + below(3); n; n--) {
		unsigned headers = f->len - FRAME_BTH < 48 ? f->len - FRAME_BTH : 48;
		unsigned at = FRAME_BTH + (below(8) ? below(headers) : below(f->len - FRAME_BTH));

		switch (below(8)) {
		case 0: f->at[at] = rnd(); break;
		case 1: f->len = FRAME_BTH + below(f->len - FRAME_BTH) + 1; break;
		case 2:
			f->len += below(64);
			if (f->len > sizeof(f->at))
				f->len = sizeof(f->at);
			break;
		default: f->at[at] ^= 1 << below(8);
		}
	}
	if (below(32))
		wire_seal(f);
}

static void speak(void)
{
	struct slot *s = &slots[below(SLOTS)];
	struct packet p;
	struct frame f;

	switch (below(16)) {
	case 0: case 1: case 2: case 3:
		f = ours(s);
		break;
	case 4:
		p = mad(s);
		f = wire_frame(&p);
		break;
	case 5: case 6: case 7: case 8:
		p = answer(s);
		f = wire_frame(&p);
		break;
	case 9:
		p = request(s);
		p.to = inet_addr(below(4) ? GROUP : "10.88.0.9");
		if (below(4))
			p.opcode = UD | SEND_ONLY;
		p.qpn = below(8) ? 0xffffff : p.qpn;
		f = wire_frame(&p);
		break;
	default:
		p = request(s);
		f = wire_frame(&p);
	}
	if (!below(3))
		bend(&f);
	send_frame(&f);
}

static void make_all(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	memset(memory, canary, sizeof(memory));
	migr_set_key(wire_open(), key);
	for (int i = 0; i < 3; i++)
		open_context(contexts + i);
	to.grh.sgid_index = gid_index;
	to.grh.dgid = migr_gid(FAR);
	CHECK((ah = ibv_create_ah(contexts[0].pd, &to)));
	for (int i = 0; i < SLOTS; i++) {
		slots[i].role = i / 4;
		/* a UC queue pair waits a second when it stops, since nobody answers */
		slots[i].type = slots[i].role == BURIED && types[i % 4] == IBV_QPT_UC ? IBV_QPT_RC : types[i % 4];
		slots[i].c = contexts + (slots[i].role == STOPPED ? 1 : slots[i].role == BURIED ? 2 : 0);
		make(&slots[i]);
	}
}

/* ------------------------------------------------------------------- main -- */

int main(int argc, char **argv)
{
	static const struct option options[] = { { "seed", 1, 0, 's' }, { "packets", 1, 0, 'p' }, { 0 } };
	uint64_t seed = time(NULL), packets = 20000, used = 0;
	struct timespec began, ended;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 'p')
			packets = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	rng = seed;
	make_all();

	clock_gettime(CLOCK_MONOTONIC, &began);
	while (sent < packets) {
		speak();
		if (!below(8)) {
			hear();
			work(&slots[below(SLOTS)]);
		}
		if (!below(16))
			mend(&slots[below(SLOTS)]);
		if (!below(8192))
			turn();
		if (sent % 100000 == 0) {
			printf("%llu packets\n", (unsigned long long)sent);
			fflush(stdout);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &ended);

	for (struct slot *s = slots; s < slots + SLOTS; s++)
		destroy(s);
	IS(0, ibv_destroy_ah(ah));
	for (int i = 0; i < 3; i++)
		close_context(contexts + i);
	for (int i = OPEN; i < SIZE; i++)
		if (memory[i] != canary)
			DIE("byte %d of memory that no peer may write is %#x", i, memory[i]);
	for (int i = 0; i < 256; i++)
		used += !!kinds[i];
	printf("%llu packets of %llu opcodes, %.0f per second; %llu of the driver's; %llu queue pairs made\n",
	       (unsigned long long)sent, (unsigned long long)used,
	       sent / (ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9), (unsigned long long)heard,
	       (unsigned long long)made);
	/* If nearly nothing was heard of the driver, the packets did not get far enough to ask the question. */
	return heard > packets / 100 ? 0 : 75;
}
