// SPDX-License-Identifier: MIT
/*
 * migrate sizes | sweep | may | must-not | again [BITS] | failed | silent BITS | mtu | failing | together
 * Calls the verbs extension on a context that a child process owns. Prints what is wrong and exits 1.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <rdma/rdma_user_cm.h>
#include "../../programs/dumps.h"
#include "failing.h"

enum { PAGE = 4096, SIZE = 4 * PAGE };
static char *memory; /* of the MR: shared, so that it is the same in both processes */

/* ---------------------------------------------------------- the owner -- */

static int other_bits;

static void lead_to(struct ibv_qp *qp, uint32_t dest, enum ibv_qp_state last)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .rq_psn = 0x111111, .sq_psn = 0x111111,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 2, .min_rnr_timer = 12, .timeout = 18, .retry_cnt = 5,
		.rnr_retry = 6,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index,
			.hop_limit = 64, .traffic_class = 8, .flow_label = 0x12345 } },
	};

	lead(qp, a, last);
}

enum { QPS = 9, MORE_QPS = 3 }; /* of own(), of own_more() */

/* Objects without a peer that must answer: an SRQ with its limit armed, address handles, UD and UC, a group. */
static void own_more(struct ibv_pd *pd, struct ibv_cq *cq, const struct ibv_mr *mr)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 50, .max_sge = 3 } };
	struct ibv_srq_attr limit = { .srq_limit = 7 };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1,
				  .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 9,
					   .traffic_class = 4, .flow_label = 0x54321 } };
	union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 9 } };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 5, .max_recv_wr = 5, .max_send_sge = 1, .max_recv_sge = 1 },
		.send_cq = cq, .recv_cq = cq, .sq_sig_all = 1,
	};
	struct ibv_qp_attr a = {
		.port_num = 1, .qkey = 0x1234567, .path_mtu = IBV_MTU_512, .rq_psn = 0x222222, .sq_psn = 0x222222,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .ah_attr = to,
	};
	struct ibv_ah *ah[4];
	struct ibv_srq *srq;
	struct ibv_qp *qp[MORE_QPS];
	struct ibv_recv_wr *bad;
	struct ibv_send_wr *bad_send;

	CHECK((srq = ibv_create_srq(pd, &srq_init)) && !ibv_destroy_srq(srq));
	CHECK((srq = ibv_create_srq(pd, &srq_init)));
	IS(0, ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	for (int i = 0; i < 20; i++) {
		struct ibv_sge sge[] = { { (uintptr_t)memory + PAGE, 64, mr->lkey }, { (uintptr_t)memory + 128, 8, mr->lkey } };
		struct ibv_recv_wr wr = { .wr_id = 1000 + i, .sg_list = sge, .num_sge = 1 + i % 2 };
		IS(0, ibv_post_srq_recv(srq, &wr, &bad));
	}
	for (int i = 0; i < 4; i++)
		CHECK((ah[i] = ibv_create_ah(pd, &to)));
	IS(0, ibv_destroy_ah(ah[0]));
	IS(0, ibv_destroy_ah(ah[2]));
	for (int i = 0; i < MORE_QPS; i++) {
		init.qp_type = i ? IBV_QPT_UC : IBV_QPT_UD;
		init.srq = i == 1 ? srq : NULL;
		CHECK((qp[i] = ibv_create_qp(pd, &init)));
	}
	lead(qp[0], a, IBV_QPS_RTS);
	IS(0, ibv_attach_mcast(qp[0], &group, 0));
	for (int i = 1; i < MORE_QPS; i++) {
		a.dest_qp_num = qp[3 - i]->qp_num;
		lead(qp[i], a, IBV_QPS_RTS);
	}
	for (int i = 0; i < MORE_QPS; i++) {
		struct ibv_sge sge = { (uintptr_t)memory + 256, 32, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
		wr.wr.ud.ah = ah[1];
		wr.wr.ud.remote_qpn = qp[0]->qp_num;
		wr.wr.ud.remote_qkey = a.qkey;
		IS(0, ibv_post_send(qp[i], &wr, &bad_send)); /* to nobody, into the SRQ, to nobody */
	}
}

/* All sends arrive. Their CQ is that of both QPs, and each send has one completion at each end. */
static void own_work(struct ibv_qp *from, struct ibv_qp *to, struct ibv_cq *cq, struct ibv_mr *mr)
{
	struct ibv_recv_wr *bad;
	struct ibv_send_wr *bad_send;
	struct ibv_wc wc;

	for (int i = 0; i < 5; i++) {
		struct ibv_sge sge = { (uintptr_t)memory + PAGE + 256 * i, 256, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = 100 + i, .sg_list = &sge, .num_sge = 1 };
		IS(0, ibv_post_recv(to, &wr, &bad));
	}
	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge = { (uintptr_t)memory + 128, 32, mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
		IS(0, ibv_post_send(from, &wr, &bad_send));
	}
	for (int i = 0; i < 4;) /* of six completions, two stay */
		i += ibv_poll_cq(cq, 1, &wc);
}

/*
 * QPs in every state. Those from RTR on have a peer in RTS, and the pair 3, 6 has talked. Handles have holes, so that some
 * objects have lower handles than the objects that they use.
 */
static void own(int ready)
{
	struct ibv_context *ctx = open_device();
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd[10];
	struct ibv_mr *mr;
	struct ibv_cq *cq, *other;
	struct ibv_qp *qp[10];
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 20, .max_recv_wr = 30, .max_send_sge = 2, .max_recv_sge = 1,
			 .max_inline_data = 40 },
		.qp_type = IBV_QPT_RC,
	};
	int i;

	find_gid(ctx, NULL);
	for (i = 0; i < 10; i++)
		CHECK((pd[i] = ibv_alloc_pd(ctx)));
	for (i = 0; i < 10; i += 2)
		IS(0, ibv_dealloc_pd(pd[i]));
	channel = ibv_create_comp_channel(ctx);
	cq = ibv_create_cq(ctx, 100, (void *)0x1234, channel, 0);
	other = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	mr = ibv_reg_mr(pd[9], memory + 64, SIZE - 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(channel && cq && other && mr);
	init.send_cq = cq;
	init.recv_cq = cq;
	for (i = 0; i < 10; i++) {
		init.sq_sig_all = i & 1;
		CHECK((qp[i] = ibv_create_qp(pd[9 - 2 * (i % 3)], &init)));
		init.send_cq = init.recv_cq = other;
	}
	ibv_destroy_qp(qp[9]); /* another hole */
	lead_to(qp[1], 0, IBV_QPS_INIT);
	for (i = 0; i < 3; i++) {
		static const int peer[] = { 7, 6, 8 };
		lead_to(qp[2 + i], qp[peer[i]]->qp_num, IBV_QPS_RTR + i);
		lead_to(qp[peer[i]], qp[2 + i]->qp_num, IBV_QPS_RTS);
	}
	gid.raw[15] ^= other_bits; /* its peer is at another address than all others' */
	lead_to(qp[5], qp[0]->qp_num, IBV_QPS_ERR);

	own_work(qp[3], qp[6], other, mr);
	IS(0, ibv_req_notify_cq(cq, 0));
	gid.raw[15] ^= other_bits;
	own_more(pd[9], other, mr);
	CHECK(write(ready, &ctx->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

/* ---------------------------------------------------------------- dumps -- */

/* The owner's completions are there: two that it left, three sends of own_more(), and the messages that came into the SRQ. */
static bool settled(struct ibv_context *ctx)
{
	struct dump d = take(ctx, ibv_inspect_context);
	const struct rxe_migr_rec *rec = NULL;
	unsigned int there = 0;

	while ((rec = next(&d, rec))) {
		const struct rxe_migr_rec_ring *ring = (const void *)rec;

		if (type_of(rec) == RXE_MIGR_REC_RING && le32toh(ring->which) == RXE_MIGR_RING_CQ)
			there += le32toh(ring->count);
	}
	free(d.buf);
	CHECK(there <= 6);
	return there == 6;
}

static struct ibv_context *start(void)
{
	struct ibv_context *ctx = start_owner(own);

	for (int i = 0; !settled(ctx); i++) {
		CHECK(i < 6000);
		usleep(10000);
	}
	return ctx;
}

static int max_srq_sge(void)
{
	struct ibv_context *ctx = open_device();
	struct ibv_device_attr attr;

	IS(0, ibv_query_device(ctx, &attr));
	IS(0, ibv_close_device(ctx));
	return attr.max_srq_sge;
}

static void sizes(void)
{
	static const struct { const char *name; uint32_t most; } published[] = {
		[RXE_MIGR_REC_PD] = { "PD", 12 }, [RXE_MIGR_REC_MR] = { "MR", 48 },
		[RXE_MIGR_REC_CQ] = { "CQ", 64 }, [RXE_MIGR_REC_SRQ] = { "SRQ", 68 },
		[RXE_MIGR_REC_QP] = { "QP", 271 },
	};
	struct ibv_context *ctx = start();
	struct dump d = take(ctx, ibv_dump_context);
	const struct rxe_migr_rec *rec = NULL;
	int seen[RXE_MIGR_REC_QP + 1] = {}, count = 0;
	size_t most;

	while ((rec = next(&d, rec))) {
		uint16_t type = type_of(rec);

		count++;
		if (type > RXE_MIGR_REC_QP || !published[type].name)
			continue;
		if (!seen[type]++)
			printf("%s: %u bytes, at most %u\n", published[type].name, le32toh(rec->length),
			       published[type].most);
		CHECK(le32toh(rec->length) <= published[type].most);
	}
	CHECK(!errno);
	CHECK(count == d.count);
	CHECK(seen[RXE_MIGR_REC_PD] == 5 && seen[RXE_MIGR_REC_MR] == 1 && seen[RXE_MIGR_REC_CQ] == 2);
	CHECK(seen[RXE_MIGR_REC_QP] == QPS + MORE_QPS && seen[RXE_MIGR_REC_SRQ] == 1);
	/* with the SRQ's entry that a QP has in hand, at most; tests/driver/022-uc-multicast-srq has one */
	CHECK((most = max_srq_sge()) > 1);
	most = sizeof(struct rxe_migr_rec_qp) + sizeof(struct rxe_migr_rec_recv_wqe) + most * sizeof(struct rxe_migr_sge);
	printf("QP with an SRQ's entry: %zu bytes, at most 823\n", most);
	CHECK(most <= 823);
	CHECK(sizeof(struct rxe_migr_rec_srq) <= 68);
	end_owner(ctx);
}

/* Every length that is too short, then one that is long enough. Before the last one nothing changes. */
static void sweep(void)
{
	struct ibv_context *ctx = start();
	struct rxe_migr_query before, after;
	int count, need;
	char *buf;

	IS(EINVAL, ibv_abort_context(ctx));
	IS(0, ibv_query_migration(ctx, &before));
	CHECK(before.num_qp == QPS + MORE_QPS && before.stop_ns == 0);
	IS(ENOSPC, ibv_dump_context(ctx, &need, NULL, 0));
	IS(ENOSPC, ibv_dump_context(ctx, &count, NULL, 1 << 20));
	CHECK(count == need);
	buf = malloc(need + 16);
	memset(buf, 0x55, need + 16);
	for (int length = 0; length < need; length += length < 400 ? 1 : need / 50) {
		IS(ENOSPC, ibv_dump_context(ctx, &count, buf, length));
		CHECK(count == need);
	}
	IS(ENOSPC, ibv_dump_context(ctx, &count, buf, need - 1));
	for (int i = 0; i < need + 16; i++)
		CHECK(buf[i] == 0x55);
	IS(0, ibv_query_migration(ctx, &after));
	CHECK(after.state == before.state && after.stop_ns == 0);
	/* The context is stopped only if the length is enough, and is let go again, since the dump fails. */
	IS(EFAULT, ibv_dump_context(ctx, &count, (void *)8, need));
	CHECK(state_of(ctx) != RXE_MIGR_CTX_STOPPED);

	IS(0, ibv_inspect_context(ctx, &count, buf, need));
	IS(0, ibv_query_migration(ctx, &after));
	CHECK(after.state != RXE_MIGR_CTX_STOPPED && count < need);

	memset(buf, 0x55, need + 16);
	IS(0, ibv_dump_context(ctx, &count, buf, need));
	for (int i = 0; i < 16; i++)
		CHECK(buf[need + i] == 0x55);
	CHECK(state_of(ctx) == RXE_MIGR_CTX_STOPPED);
	/* Who saw the first dump only does not undo the second one, which finds the context stopped. */
	IS(0, ibv_query_migration(ctx, &before));
	IS(0, ibv_dump_context(ctx, &count, buf, need));
	IS(ESTALE, ibv_abort_older_dump(ctx, before.now_ns));
	IS(0, ibv_query_migration(ctx, &after));
	CHECK(after.state == RXE_MIGR_CTX_STOPPED && after.stop_ns == before.stop_ns);
	IS(0, ibv_abort_older_dump(ctx, after.now_ns));
	await_peers(ctx);
	/* Nor does it undo another stop. */
	IS(EINVAL, ibv_abort_older_dump(ctx, after.now_ns));
	IS(0, ibv_dump_context(ctx, &count, buf, need));
	IS(ESTALE, ibv_abort_older_dump(ctx, after.now_ns));
	CHECK(state_of(ctx) == RXE_MIGR_CTX_STOPPED);
	IS(0, ibv_abort_context(ctx));
	await_peers(ctx);
	CHECK(state_of(ctx) == RXE_MIGR_CTX_RUNNING);
	IS(EINVAL, ibv_abort_context(ctx));
	end_owner(ctx);
}

/* A dump with changed lengths is never read beyond its end. */
static void damage(const struct dump *good)
{
	size_t size = (good->size + PAGE - 1) / PAGE * PAGE;
	char *page = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct dump d = { .buf = page + size - good->size, .size = good->size };
	const struct rxe_migr_rec *rec;
	int bad = 0;

	CHECK(page != MAP_FAILED && !mprotect(page + size, PAGE, PROT_NONE));
	srandom(1);
	for (int i = 0; i < 2000; i++) {
		memcpy(d.buf, good->buf, d.size);
		for (int j = 0; j < 20; j++)
			d.buf[random() % (j ? d.size : 300)] = random();
		rec = NULL;
		while ((rec = next(&d, rec)))
			CHECK((char *)rec + le32toh(rec->length) <= d.buf + d.size);
		bad += errno == EBADMSG;
	}
	CHECK(bad > 100);
	munmap(page, size + PAGE);
}

/* The whole table, as libibverbs reads it; anybody may ask. */
static void check_gids(struct ibv_context *ctx)
{
	struct ibv_gid_entry want[100], got[100];
	int n = ibv_query_gid_table(ctx, want, 100, 0), count;

	CHECK(n > 1);
	IS(0, ibv_query_device_gids(ctx, &count, got, 100));
	CHECK(count == n);
	CHECK(!memcmp(want, got, n * sizeof(*want)));
	IS(EINVAL, ibv_query_device_gids(ctx, &count, got, 1));
	IS(EINVAL, ibv_query_device_gids(ctx, &count, got, -1));
}

static void capability(int want)
{
	struct ibv_context *ctx = open_device(), *restore;
	struct rxe_migr_key key = { .op = RXE_MIGR_KEY_QUERY };
	struct rxe_migr_query query;
	struct rxe_migr_cm_device device = { 0 };
	struct rxe_migr_event_fd event_fd;
	struct ibv_restore_args args = { .comp_channel_fd = -1, .async_fd = -1 };
	struct rxe_migr_rec_pd pd = { .hdr = { htole16(RXE_MIGR_REC_PD), 0, htole32(sizeof(pd)), 0 } };
	uint64_t print;
	char buf[1 << 16];
	void *object = NULL;
	int count;

	args.record = &pd;
	args.record_length = sizeof(pd);
	IS(want, ibv_query_migration(ctx, &query));
	IS(want, ibv_ask_peers(ctx, &query));
	IS(want, ibv_ask_peers_anew(ctx, &query));
	IS(want, ibv_renew_stop(ctx, &query));
	IS(want, ibv_query_event_fd(ctx, ctx->async_fd, &event_fd));
	IS(want ?: EBADF, ibv_query_cm_ids(ctx, -1, 0, &count, NULL, 0));
	IS(want ?: EBADF, ibv_query_cm_events(ctx, -1, &count, NULL, 0));
	IS(want ?: EBADF, ibv_adopt_cm_file(ctx, -1, 0));
	IS(want ?: EBADF, ibv_refill_cm_id(ctx, -1, 0, 0));
	IS(want ?: EBADF, ibv_report_cm_event(ctx, -1, &(struct rxe_migr_cm_event){ 0 }));
	IS(want ?: EBADF, ibv_cm_device(ctx, -1, &device, NULL));
	IS(want ?: EBADF, ibv_cm_device(ctx, -1, NULL, &device));
	IS(want ?: EINVAL, ibv_expect_cm_connect(ctx, &(struct rxe_migr_cm_connect){ 0 }));
	IS(want, ibv_query_device_migration(ctx, &count, (void *)buf, 100));
	IS(want, ibv_query_device_calls(ctx, &count, (void *)buf, 100));
	check_gids(ctx);
	IS(want, ibv_migration_key(ctx, &key, &print));
	IS(want ?: ENOSPC, ibv_inspect_context(ctx, &count, NULL, 0));
	IS(want, ibv_dump_context(ctx, &count, buf, sizeof(buf)));
	IS(want, ibv_abort_context(ctx));
	IS(want ?: EINVAL, ibv_abort_older_dump(ctx, 0));
	IS(want ?: EINVAL, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, &pd, sizeof(pd)));
	IS(want ?: EINVAL, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	restore = ibv_open_restore_context(ibv_get_device_name(ctx->device), 1);
	CHECK(!restore == !!want);
	CHECK(restore || errno == want);
	if (!restore)
		return;
	IS(ENOENT, ibv_query_event_fd(ctx, restore->async_fd, &event_fd));
	IS(ENOENT, ibv_query_event_fd(ctx, 0, &event_fd));
	IS(EBADF, ibv_query_event_fd(ctx, 999, &event_fd));
	IS(0, ibv_restore_object(restore, &object, RXE_MIGR_REC_PD, IBV_RESTORE_CREATE, &args, sizeof(args)));
	IS(EBUSY, ibv_restore_object(restore, &object, RXE_MIGR_REC_PD, IBV_RESTORE_CREATE, &args, sizeof(args)));
	IS(EBUSY, ibv_dump_context(restore, &count, buf, sizeof(buf)));
	IS(0, ibv_restore_object(restore, &object, 0, IBV_RESTORE_DESTROY, NULL, 0));
	CHECK(!object);
	ibv_detach_context(restore);
	CHECK(!ibv_open_restore_context("rxe77", 1) && errno == ENODEV);
	CHECK(!ibv_open_restore_context(ibv_get_device_name(ctx->device), 0) && errno == EINVAL);
}

/* -------------------------------------------------------------- restore -- */

static int try(struct ibv_context *ctx, void *rec, int type)
{
	struct ibv_restore_args args = {
		.record = rec, .record_length = le32toh(((struct rxe_migr_rec *)rec)->length),
		.comp_channel_fd = -1, .async_fd = -1,
	};
	void *object = NULL;
	int ret = ibv_restore_object(ctx, &object, type, IBV_RESTORE_CREATE, &args, sizeof(args));

	CHECK(!ret == !!object);
	if (object)
		IS(0, ibv_restore_object(ctx, &object, 0, IBV_RESTORE_DESTROY, NULL, 0));
	return ret;
}

/* Objects that must not be created, and leave nothing behind. The owner still has all its identities. */
static void refuse(const struct dump *d)
{
	struct ibv_context *ctx = ibv_open_restore_context("rxe0", 3);
	struct rxe_migr_rec_cq cq = *(const struct rxe_migr_rec_cq *)first_of(d, RXE_MIGR_REC_CQ);
	struct rxe_migr_rec_qp qp = *(const struct rxe_migr_rec_qp *)first_of(d, RXE_MIGR_REC_QP);
	struct rxe_migr_rec_mr mr = *(const struct rxe_migr_rec_mr *)first_of(d, RXE_MIGR_REC_MR);
	const struct rxe_migr_rec *rec = NULL;
	struct rxe_migr_query query;
	void *pd;

	while ((rec = next(d, rec))) /* one that is connected */
		if (type_of(rec) == RXE_MIGR_REC_QP && ((struct rxe_migr_rec_qp *)rec)->qp_state == IBV_QPS_RTS)
			qp = *(const struct rxe_migr_rec_qp *)rec;
	IS(0, ibv_restore_object(ctx, &pd, 0, IBV_RESTORE_PLACEHOLDER, NULL, 0));
	cq.hdr.handle = htole32(1);
	IS(EBADF, try(ctx, &cq, RXE_MIGR_REC_CQ)); /* it has a channel */
	cq.comp_channel = htole32(RXE_MIGR_NO_HANDLE);
	create(ctx, &cq.hdr, -1, NULL);

	mr.pd = qp.pd = htole32(0);
	qp.send_cq = qp.recv_cq = htole32(1);
	mr.hdr.handle = qp.hdr.handle = htole32(2);
	IS(EEXIST, try(ctx, &mr, RXE_MIGR_REC_MR));
	IS(EEXIST, try(ctx, &qp, RXE_MIGR_REC_QP));
	qp.qpn = htole32(5000);
	IS(0, try(ctx, &qp, RXE_MIGR_REC_QP));
	IS(EINVAL, try(ctx, &qp, RXE_MIGR_REC_MR));
	IS(EINVAL, try(ctx, &qp, 99));
	IS(EINVAL, try(ctx, &qp, -1));
	qp.hdr.length = htole32(sizeof(qp) - 1);
	IS(EINVAL, try(ctx, &qp, RXE_MIGR_REC_QP));
	qp.hdr.length = htole32(sizeof(qp));
	qp.hdr.handle = htole32(3);
	IS(EBUSY, try(ctx, &qp, RXE_MIGR_REC_QP));
	qp.hdr.handle = htole32(2);
	qp.sgid[15] ^= 0x80;
	IS(ENODEV, try(ctx, &qp, RXE_MIGR_REC_QP));
	qp.sgid[15] ^= 0x80;
	qp.qp_state = IBV_QPS_SQE;
	IS(EINVAL, try(ctx, &qp, RXE_MIGR_REC_QP));
	mr.start = htole64(8);
	mr.iova = htole64(8);
	mr.key = htole32(0x300055);
	CHECK(try(ctx, &mr, RXE_MIGR_REC_MR));
	IS(0, ibv_query_migration(ctx, &query));
	CHECK(query.num_qp == 0);
	ibv_detach_context(ctx);
}

/* A new context that has the same records, and is stopped. */
static struct ibv_context *same_again(const struct dump *first)
{
	struct ibv_context *ctx = restore(first, NULL);
	struct dump second = take(ctx, ibv_inspect_context);

	CHECK(first->count == second.count);
	CHECK(!compare(first, &second));
	return ctx;
}

static void again(void)
{
	struct ibv_context *ctx = start();
	struct dump first = take(ctx, ibv_dump_context);

	damage(&first);
	refuse(&first);
	end_owner(ctx);
	ctx = same_again(&first);
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	await_peers(ctx);
	printf("%d records are the same; all peers have answered\n", first.count);
	ibv_detach_context(ctx);
}

/* -------------------------------------------------------- failed in RTR -- */

static uint32_t *numbers; /* shared: of the QP that fails, and of its peer */

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_context *ctx = open_device();
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
	};
	struct ibv_qp *qp;

	find_gid(ctx, NULL);
	init.send_cq = init.recv_cq = ibv_create_cq(ctx, 2, NULL, NULL, 0);
	CHECK((qp = ibv_create_qp(ibv_alloc_pd(ctx), &init)));
	return qp;
}

static void own_failed(int ready)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp *qp = make_qp(IBV_QPT_RC);

	numbers[0] = qp->qp_num;
	lead_to(qp, numbers[1], IBV_QPS_RTR);
	IS(0, ibv_modify_qp(qp, &a, IBV_QP_STATE));
	CHECK(write(ready, &qp->context->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

/* A QP that failed in RTR has no sq_psn. Its peer's RESUME is believed all the same, also after a move: the CM relies on that. */
static void failed_in_rtr(void)
{
	struct rxe_migr_query query;
	struct ibv_context *ctx;
	struct ibv_qp *peer;
	struct dump d;

	numbers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	peer = make_qp(IBV_QPT_RC);
	numbers[1] = peer->qp_num;
	ctx = start_owner(own_failed);
	lead_to(peer, numbers[0], IBV_QPS_RTS);

	d = take(ctx, ibv_dump_context);
	end_owner(ctx);
	ctx = restore(&d, NULL);
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	IS(0, ibv_ask_peers(peer->context, &query));
	for (int i = 0; query.num_unknown; i++) {
		CHECK(i < 3000);
		usleep(10000);
		IS(0, ibv_query_migration(peer->context, &query));
	}
	ibv_detach_context(ctx);
}

/* --------------------------------------------------------------- silent -- */

static void own_silent(int ready)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC);
	struct ibv_qp_init_attr init = { .cap = { .max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1 },
					 .send_cq = qp->send_cq, .recv_cq = qp->recv_cq };

	gid.raw[15] ^= other_bits;
	lead_to(qp, 77, IBV_QPS_RTR);
	for (int last = IBV_QPS_RTS; last <= IBV_QPS_SQD; last++) {
		init.qp_type = last == IBV_QPS_RTS ? IBV_QPT_RC : IBV_QPT_UC;
		CHECK((qp = ibv_create_qp(qp->pd, &init)));
		lead_to(qp, 77, last);
	}
	CHECK(write(ready, &qp->context->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

/* Nobody answers for the address of the peers any more when the queue pairs are made again. */
static void peers_silent(void)
{
	struct ibv_context *ctx = start_owner(own_silent);
	struct dump first = take(ctx, ibv_dump_context);

	end_owner(ctx);
	CHECK(!system("ip neigh flush dev eth0 nud permanent"));
	ctx = same_again(&first);
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	ibv_detach_context(ctx);
}

/* -------------------------------------------------------------- path MTU -- */

static int refill_port(struct ibv_context *ctx, struct rxe_migr_rec_context port, enum ibv_mtu mtu)
{
	port.active_mtu = mtu;
	return ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, &port, sizeof(port));
}

/*
 * The port takes 1024 bytes. A larger path MTU is refused if the source's port took more than that, and only then: a program may
 * ask for a path MTU that it never uses.
 */
static void large_mtu(void)
{
	struct ibv_context *ctx = start();
	struct dump d = take(ctx, ibv_dump_context);
	const struct rxe_migr_rec *rec = NULL;
	struct rxe_migr_rec_context port = *(const struct rxe_migr_rec_context *)first_of(&d, RXE_MIGR_REC_CONTEXT);

	CHECK(port.active_mtu == IBV_MTU_1024);
	end_owner(ctx);
	ctx = restore(&d, NULL);
	IS(0, refill_port(ctx, port, IBV_MTU_4096));
	ibv_detach_context(ctx);

	while ((rec = next(&d, rec)))
		if (type_of(rec) == RXE_MIGR_REC_QP && ((const struct rxe_migr_rec_qp *)rec)->qp_state == IBV_QPS_RTS)
			((struct rxe_migr_rec_qp *)rec)->path_mtu = IBV_MTU_2048;
	ctx = restore(&d, NULL);
	IS(0, refill_port(ctx, port, 0));
	IS(EMSGSIZE, refill_port(ctx, port, IBV_MTU_2048));
	IS(EMSGSIZE, refill_port(ctx, port, IBV_MTU_4096));
	ibv_detach_context(ctx);
}

/* -------------------------------------------------------------- failing -- */

static bool has_tombstone(struct ibv_context *ctx, uint32_t qpn)
{
	static struct rxe_migr_status qp[8192];	/* each round leaves some tombstones */
	int count;

	IS(0, ibv_query_device_migration(ctx, &count, qp, sizeof(qp) / sizeof(qp[0])));
	for (int i = 0; i < count; i++)
		if (qp[i].tombstone && qp[i].qpn == qpn)
			return true;
	return false;
}

/* Each connection of a stopped context leaves a tombstone, if there is memory for it, and ends in any case. */
static void bury(struct ibv_context *ctx, const struct dump *d)
{
	const struct rxe_migr_rec *rec = NULL;
	int connected = 0;

	while ((rec = next(d, rec))) {
		const struct rxe_migr_rec_qp *qp = (const void *)rec;
		int before = allocations_tolerated();

		if (type_of(rec) != RXE_MIGR_REC_QP || qp->qp_type != IBV_QPT_RC)
			continue;
		IS(0, destroy_recorded(ctx, rec));
		if (qp->qp_state < IBV_QPS_RTR || qp->qp_state > IBV_QPS_SQD)
			continue;
		connected++;
		CHECK(has_tombstone(ctx, le32toh(qp->qpn)) || allocations_tolerated() > before);
	}
	CHECK(connected == 6);
}

static int cm_file(struct rdma_ucm_create_id_resp *resp)
{
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		struct rdma_ucm_create_id cmd;
	} create = {
		.hdr = { .cmd = RDMA_USER_CM_CMD_CREATE_ID, .in = sizeof(create.cmd), .out = sizeof(*resp) },
		.cmd = { .uid = 77, .response = (uintptr_t)resp, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC },
	};
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0 && write(fd, &create, sizeof(create)) == sizeof(create));
	return fd;
}

static void *wait_for_end(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Questions to a file of librdmacm, and changes of it. Each change is made once, however often there was no memory for it. */
static void cm_methods(struct ibv_context *ctx)
{
	enum { ADDR_ERROR = 1 };	/* of enum rdma_cm_event_type */
	struct rxe_migr_cm_device known, set = { .flags = RXE_MIGR_CM_DEVICE_SET, .index = 9, .guid = "another" };
	struct rxe_migr_cm_event event = { .event = ADDR_ERROR }, events[4];
	struct rdma_ucm_create_id_resp id, other;
	struct rxe_migr_cm_id ids[4];
	pthread_t thread;
	int fd, count;

	fd = cm_file(&id);
	IS(0, ibv_query_cm_ids(ctx, fd, 0, &count, ids, 4));
	CHECK(count == 1 && ids[0].id == id.id && ids[0].uid == 77);
	IS(0, ibv_refill_cm_id(ctx, fd, id.id, 1));
	event.id = id.id;
	IS(0, ibv_report_cm_event(ctx, fd, &event));
	IS(0, ibv_query_cm_events(ctx, fd, &count, events, 4));
	CHECK(count == 1 && events[0].event == ADDR_ERROR && events[0].uid == 77);
	IS(0, ibv_cm_device(ctx, fd, NULL, &set));
	IS(0, ibv_cm_device(ctx, fd, &known, NULL));
	CHECK(known.index == 9 && !memcmp(known.guid, set.guid, sizeof(set.guid)));

	/* The file of a process with several threads gets operations of the driver. */
	fd = cm_file(&other);
	CHECK(!pthread_create(&thread, NULL, wait_for_end, NULL));
	IS(0, ibv_adopt_cm_file(ctx, fd, 0));
	IS(0, ibv_query_cm_ids(ctx, fd, 0, &count, ids, 4));
	CHECK(count == 1 && ids[0].id == other.id);
}

/* A connection of the CM is expected for a QP that is restored. */
static void expect(struct ibv_context *ctx, const struct dump *d)
{
	struct rxe_migr_cm_connect connect = { .comm_id = getpid(), .remote_comm_id = getpid(),
					       .state = RXE_MIGR_CM_CONNECTED };
	const struct rxe_migr_rec *rec = NULL;

	while ((rec = next(d, rec))) {
		const struct rxe_migr_rec_qp *qp = (const void *)rec;

		if (type_of(rec) != RXE_MIGR_REC_QP || qp->qp_type != IBV_QPT_RC || qp->qp_state != IBV_QPS_RTS)
			continue;
		connect.qp_num = le32toh(qp->qpn);
		IS(0, ibv_expect_cm_connect(ctx, &connect));
		IS(EEXIST, ibv_expect_cm_connect(ctx, &connect));
		return;
	}
	DIE("no QP is connected");
}

/* Like again(), with everything else that the driver needs memory for. */
static void without_memory(void)
{
	struct ibv_context *ctx = start();
	struct dump first;

	fail_allocations();
	free(take(ctx, ibv_dump_context).buf);
	IS(0, ibv_abort_context(ctx));
	await_peers(ctx);
	first = take(ctx, ibv_dump_context);
	cm_methods(ctx);
	bury(ctx, &first);
	end_owner(ctx);
	ctx = same_again(&first);
	expect(ctx, &first);

	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	await_peers(ctx);
	spare_allocations();
	ibv_detach_context(ctx);
	CHECK(allocations_failed() > first.count);
}

/*
 * Two contexts are restored at once. Each has every second one of the keys that the device would give to new windows next. After
 * the last number of a window comes the first one.
 */
static void together(void)
{
	enum { WINDOWS = 2000, LAST = 1 << 20, NUMBERS = 1 << 19 };
	struct ibv_pd *other_pd = ibv_alloc_pd(open_device());
	struct ibv_mw *mw = other_pd ? ibv_alloc_mw(other_pd, IBV_MW_TYPE_2) : NULL;
	struct rxe_migr_rec_pd pd = { .hdr = { htole16(RXE_MIGR_REC_PD), 0, htole32(sizeof(pd)), 0 } };
	struct rxe_migr_rec_mw rec = {
		.hdr = { htole16(RXE_MIGR_REC_MW), 0, htole32(sizeof(rec)), 0 },
		.mr = htole32(RXE_MIGR_NO_HANDLE), .qp = htole32(RXE_MIGR_NO_HANDLE),
		.type = IBV_MW_TYPE_2,
	};
	int ready[2], go[2], status;
	uint32_t first;
	char byte;

	CHECK(mw && !pipe(ready) && !pipe(go));
	first = (mw->rkey >> 8) + 1;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			struct ibv_context *ctx = ibv_open_restore_context("rxe0", 8 + i);

			CHECK(ctx);
			close(go[1]);
			create(ctx, &pd.hdr, -1, NULL);
			CHECK(write(ready[1], "", 1) == 1);
			close(ready[1]);
			CHECK(!read(go[0], &byte, 1));
			for (uint32_t k = 0; k < WINDOWS; k++) {
				uint32_t number = first + 2 * k + i;

				number -= number > LAST ? NUMBERS : 0;
				rec.hdr.handle = htole32(1 + k);
				rec.rkey = htole32(number << 8 | 0x55);
				create(ctx, &rec.hdr, -1, NULL);
			}
			ibv_detach_context(ctx);
			exit(0);
		}
	}
	close(ready[1]);
	CHECK(read(ready[0], &byte, 1) == 1 && read(ready[0], &byte, 1) == 1);
	close(go[1]);
	for (int i = 0; i < 2; i++)
		CHECK(wait(&status) > 0 && !status);
	printf("%d windows have their keys\n", 2 * WINDOWS);
}

int main(int argc, char **argv)
{
	const char *what = argc >= 2 ? argv[1] : "";

	other_bits = argc >= 3 ? atoi(argv[2]) : 0; /* that differ in the address of one QP's peer */
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!strcmp(what, "sizes"))
		sizes();
	else if (!strcmp(what, "sweep"))
		sweep();
	else if (!strcmp(what, "may"))
		capability(0);
	else if (!strcmp(what, "must-not"))
		capability(EPERM);
	else if (!strcmp(what, "again"))
		again();
	else if (!strcmp(what, "failed"))
		failed_in_rtr();
	else if (!strcmp(what, "silent"))
		peers_silent();
	else if (!strcmp(what, "mtu"))
		large_mtu();
	else if (!strcmp(what, "failing"))
		sweep_allocations(without_memory);
	else if (!strcmp(what, "together"))
		together();
	else
		DIE("migrate sizes | sweep | may | must-not | again [BITS] | failed | silent BITS | mtu | failing | together");
	return 0;
}
