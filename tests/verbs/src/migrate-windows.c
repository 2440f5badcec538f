// SPDX-License-Identifier: MIT
/*
 * migrate-windows: a context with memory windows in every state, and with queued work requests that bind and invalidate them, is
 * dumped, killed and made again. A peer then does what each window allows, and what it does not allow. "close": the program then
 * ends without destroying anything. "failing": each allocation fails meanwhile.
 */
#include "../../programs/dumps.h"
#include "failing.h"

enum { PAGE = 4096, NUM = 7 };

/* What a QP is there for; each has a peer. */
enum { TYPE1, TYPE2, QUEUED, DONE, UNBOUND, OTHERS, FREE };

static struct shared {
	char	 memory[NUM * PAGE];	/* a page of the MR for each window */
	char	 message[PAGE];
	uint32_t qpn[2][NUM];		/* the owner's, the peer's */
	uint32_t rkey[NUM];		/* of the window of the same name */
} *shared;

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp[NUM];
};

static struct end peer;

static void make(struct end *e, uint32_t *qpn)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	e->ctx = open_device();
	find_gid(e->ctx, NULL);
	CHECK((e->pd = ibv_alloc_pd(e->ctx)));
	CHECK((e->cq = ibv_create_cq(e->ctx, 100, NULL, NULL, 0)));
	CHECK((e->mr = ibv_reg_mr(e->pd, shared, sizeof(*shared), IBV_ACCESS_LOCAL_WRITE |
				  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND)));
	init.send_cq = init.recv_cq = e->cq;
	for (int i = 0; i < NUM; i++) {
		CHECK((e->qp[i] = ibv_create_qp(e->pd, &init)));
		qpn[i] = e->qp[i]->qp_num;
	}
}

static void lead_to(struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = to,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .rq_psn = 9, .sq_psn = 9, .min_rnr_timer = 12,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index,
			     .hop_limit = 64 } },
	};

	lead(qp, a, IBV_QPS_RTS);
}

static struct ibv_wc await(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	for (int i = 0; i < 60000 && !(n = ibv_poll_cq(cq, 1, &wc)); i++)
		usleep(1000);
	CHECK(n == 1);
	return wc;
}

static void send(struct end *e, int i, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)shared->message, 64, e->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = opcode != IBV_WR_LOCAL_INV, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey,
	};

	IS(0, ibv_post_send(e->qp[i], &wr, &bad));
}

static void receive(struct end *e, int i)
{
	struct ibv_sge sge = { (uintptr_t)shared->message, 64, e->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	IS(0, ibv_post_recv(e->qp[i], &wr, &bad));
}

/* ----------------------------------------------------------- the owner -- */

static struct end here;
static struct ibv_mw *mw[NUM];

static struct ibv_mw_bind_info page_of(int i)
{
	return (struct ibv_mw_bind_info){ .mr = here.mr, .addr = (uintptr_t)shared->memory + i * PAGE + 8,
					  .length = PAGE - 8, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
}

static void bind_type2(int i)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };

	wr.bind_mw.mw = mw[i];
	wr.bind_mw.rkey = ibv_inc_rkey(mw[i]->rkey);
	wr.bind_mw.bind_info = page_of(i);
	IS(0, ibv_post_send(here.qp[i], &wr, &bad));
	mw[i]->rkey = wr.bind_mw.rkey;
}

static void own(int ready)
{
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	int i;

	make(&here, shared->qpn[0]);
	CHECK(ibv_reg_mr(here.pd, shared, sizeof(*shared), IBV_ACCESS_MW_BIND)); /* not to be written to */
	for (i = 0; i < NUM; i++) {
		CHECK((mw[i] = ibv_alloc_mw(here.pd, i == TYPE1 || i == UNBOUND ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2)));
		lead_to(here.qp[i], shared->qpn[1][i]);
		receive(&here, i);
	}
	bind.bind_info = page_of(TYPE1);
	IS(0, ibv_bind_mw(here.qp[TYPE1], mw[TYPE1], &bind));
	bind_type2(TYPE2);
	bind_type2(OTHERS);
	bind_type2(QUEUED);
	for (i = 0; i < 4; i++)
		CHECK(await(here.cq).status == IBV_WC_SUCCESS);

	/* The peers have no receive for these messages. What is behind QUEUED's waits for it, what is behind DONE's does not. */
	send(&here, QUEUED, IBV_WR_SEND, 0);
	send(&here, QUEUED, IBV_WR_LOCAL_INV, mw[QUEUED]->rkey);
	bind_type2(QUEUED);
	send(&here, DONE, IBV_WR_SEND, 0);
	bind_type2(DONE);

	for (i = 0; i < NUM; i++)
		shared->rkey[i] = mw[i]->rkey;
	CHECK(write(ready, &here.ctx->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

/* ------------------------------------------------------------ the peer -- */

/* Write into the page of window page with an rkey, through the QP i. */
static enum ibv_wc_status write_to(int i, int page, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)shared->message, 64, peer.mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED };
	char *at = shared->memory + page * PAGE + 100;
	enum ibv_wc_status status;

	memset(shared->message, 'a' + i, 64);
	memset(at, 0, 64);
	wr.wr.rdma.remote_addr = (uintptr_t)at;
	wr.wr.rdma.rkey = rkey;
	IS(0, ibv_post_send(peer.qp[i], &wr, &bad));
	status = await(peer.cq).status;
	CHECK(!memcmp(at, shared->message, 64) == (status == IBV_WC_SUCCESS));
	return status;
}

static struct rxe_migr_rec_mw *window(const struct dump *d, int i);

/* Waits until the work request that binds window i is done. */
static void await_bound(struct ibv_context *ctx, int i)
{
	bool bound = false;

	for (int n = 0; !bound; n++) {
		struct dump d = take(ctx, ibv_inspect_context);
		const struct rxe_migr_rec_mw *w = window(&d, i);

		bound = w->mr != htole32(RXE_MIGR_NO_HANDLE) && le32toh(w->rkey) == shared->rkey[i];
		free(d.buf);
		CHECK(n < 6000);
		usleep(10000);
	}
}

static void use_windows(struct ibv_context *ctx)
{
	uint32_t *rkey = shared->rkey;

	IS(IBV_WC_SUCCESS, (int)write_to(TYPE1, TYPE1, rkey[TYPE1]));
	IS(IBV_WC_SUCCESS, (int)write_to(TYPE2, TYPE2, rkey[TYPE2]));
	/* a window of type 2 works only through the QP that it is bound to, and one of either type only when it is bound */
	IS(IBV_WC_REM_ACCESS_ERR, (int)write_to(OTHERS, TYPE2, rkey[TYPE2]));
	IS(IBV_WC_REM_ACCESS_ERR, (int)write_to(UNBOUND, UNBOUND, rkey[UNBOUND]));

	send(&peer, TYPE2, IBV_WR_SEND_WITH_INV, rkey[TYPE2]);
	CHECK(await(peer.cq).status == IBV_WC_SUCCESS);
	IS(IBV_WC_REM_ACCESS_ERR, (int)write_to(TYPE2, TYPE2, rkey[TYPE2]));
	/* a free window stays free */
	send(&peer, FREE, IBV_WR_SEND_WITH_INV, rkey[FREE]);
	CHECK(await(peer.cq).status == IBV_WC_SUCCESS);

	/* the message arrives, and what waited behind it is done; what was done is not done again */
	for (int i = QUEUED; i <= DONE; i++) {
		receive(&peer, i);
		CHECK(await(peer.cq).status == IBV_WC_SUCCESS);
		await_bound(ctx, i);
		sleep(1);	/* time to do it again */
		IS(IBV_WC_SUCCESS, (int)write_to(i, i, rkey[i]));
	}
}

/* ------------------------------------------------------------- the dump -- */

static struct rxe_migr_rec_mw *window(const struct dump *d, int i)
{
	const struct rxe_migr_rec *rec = NULL;

	while ((rec = next(d, rec)))
		if (type_of(rec) == RXE_MIGR_REC_MW &&
		    le32toh(((const struct rxe_migr_rec_mw *)rec)->rkey) >> 8 == shared->rkey[i] >> 8)
			return (struct rxe_migr_rec_mw *)rec;
	DIE("window %d is not in the dump", i);
}

static void right(const struct dump *d)
{
	for (int i = 0; i < NUM; i++) {
		const struct rxe_migr_rec_mw *w = window(d, i);
		bool bound = i != UNBOUND && i != FREE, type1 = i == TYPE1 || i == UNBOUND;

		CHECK(w->type == (type1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2));
		CHECK((w->mr != htole32(RXE_MIGR_NO_HANDLE)) == bound);
		CHECK((w->qp != htole32(RXE_MIGR_NO_HANDLE)) == (bound && !type1));
		CHECK(le64toh(w->length) == (bound ? PAGE - 8 : 0));
		if (i != QUEUED) /* which has still its old key */
			CHECK(le32toh(w->rkey) == shared->rkey[i]);
	}
}

/* A record that no window could have is refused. */
static void refuse(struct ibv_context *ctx, const struct dump *d)
{
	const struct rxe_migr_rec_mw *t1 = window(d, TYPE1), *t2 = window(d, TYPE2), *free = window(d, FREE);
	const struct rxe_migr_rec *rec = NULL;
	uint32_t read_only = RXE_MIGR_NO_HANDLE;
	struct rxe_migr_rec_mw w;

	while ((rec = next(d, rec)))
		if (type_of(rec) == RXE_MIGR_REC_MR &&
		    !(le32toh(((const struct rxe_migr_rec_mr *)rec)->access) & IBV_ACCESS_LOCAL_WRITE))
			read_only = rec->handle;
	CHECK(read_only != RXE_MIGR_NO_HANDLE);
#define REFUSE(from, field, value) do { \
	w = *(from); \
	w.field = (value); \
	IS(EINVAL, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, &w, sizeof(w))); \
} while (0)
	REFUSE(t1, rkey, w.rkey ^ htole32(0x100));
	REFUSE(t1, type, IBV_MW_TYPE_2);
	REFUSE(t2, type, IBV_MW_TYPE_1);
	REFUSE(t2, type, 0);
	REFUSE(t1, state, 1);
	REFUSE(t2, state, 1);
	REFUSE(t2, state, 0);
	REFUSE(free, state, 2);
	REFUSE(t1, mr, htole32(RXE_MIGR_NO_HANDLE));
	REFUSE(t1, mr, t2->qp);
	REFUSE(t1, mr, htole32(1000));
	REFUSE(t1, mr, read_only);
	REFUSE(t1, qp, t2->qp);
	REFUSE(t2, qp, htole32(RXE_MIGR_NO_HANDLE));
	REFUSE(t2, qp, t2->mr);
	REFUSE(free, qp, t2->qp);
	REFUSE(free, mr, t2->mr);
	REFUSE(free, length, htole64(8));
	REFUSE(t1, length, 0);
	REFUSE(t1, length, htole64(-1ull));
	REFUSE(t1, length, htole64(sizeof(*shared)));
	REFUSE(t1, addr, 0);
	REFUSE(t1, addr, htole64(le64toh(w.addr) + sizeof(*shared)));
	REFUSE(t1, addr, htole64(-8ull));
	REFUSE(t1, access, htole32(1u << 31));
	REFUSE(t1, access, htole32(IBV_ACCESS_ZERO_BASED));
	REFUSE(t1, hdr.handle, t2->hdr.handle);
	REFUSE(t1, hdr.handle, t2->mr);
	w = *t1;
	w.hdr.length = htole32(sizeof(w) - 1);
	IS(EINVAL, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, &w, sizeof(w)));
	/* twice is as good as once */
	w = *t1;
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, &w, sizeof(w)));
	w = *t2;
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, &w, sizeof(w)));
}

/* A window holds its own MR only. A QP lets its windows go. */
static void end(struct ibv_context *ctx, const struct dump *d)
{
	static const uint16_t order[] = { RXE_MIGR_REC_QP, RXE_MIGR_REC_MW, RXE_MIGR_REC_MR };
	const struct rxe_migr_rec *rec = NULL;

	IS(EINVAL, destroy_recorded(ctx, first_of(d, RXE_MIGR_REC_MR)));
	for (int i = 0; i < 3; i++)
		for (rec = NULL; (rec = next(d, rec));)
			if (type_of(rec) == order[i])
				IS(0, destroy_recorded(ctx, rec));
}

static bool close_only, failing;

static void move_windows(void)
{
	struct dump first, second;
	struct ibv_context *ctx;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make(&peer, shared->qpn[1]);
	ctx = start_owner(own);
	for (int i = 0; i < NUM; i++)
		lead_to(peer.qp[i], shared->qpn[0][i]);
	await_bound(ctx, DONE);
	sleep(1);	/* messages are sent, and find no receive */
	if (failing)
		fail_allocations();
	first = take(ctx, ibv_dump_context);
	right(&first);
	end_owner(ctx);

	ctx = restore(&first, NULL);
	if (!failing)
		refuse(ctx, &first);
	second = take(ctx, ibv_inspect_context);
	CHECK(first.count == second.count && !compare(&first, &second));
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	if (failing)
		spare_allocations();
	await_peers(ctx);
	use_windows(ctx);
	if (!close_only)
		end(ctx, &second);
	ibv_detach_context(ctx);
}

int main(int argc, char **argv)
{
	close_only = argc > 1 && !strcmp(argv[1], "close");
	failing = argc > 1 && !strcmp(argv[1], "failing");
	if (failing) {
		sweep_allocations(move_windows);
		CHECK(allocations_failed() > NUM);
	} else {
		move_windows();
	}
	printf("%d windows are what they were\n", NUM);
	return 0;
}
