// SPDX-License-Identifier: MIT
/*
 * migrate-chain peer MOVER IN OUT: connects to a QP at the address MOVER, and writes the file OUT.up when it can receive. It
 * sends that QP a message as soon as there is a file OUT.go, and ends when that file is gone. IN and OUT are files with the QP
 * numbers of the other end and of this end.
 * migrate-chain mover FROM FIRST SECOND PEER IN OUT GO: the other end. Its QP is dumped at FROM, and made again at FIRST, where
 * no answer must come. It is dumped there, and made again at SECOND. Then this end writes the file GO, gets the message, and
 * removes the file when it is done.
 */
#include <arpa/inet.h>
#include "../../programs/dumps.h"

enum { SIZE = 4096 };

static char *memory;
static char **args;

static void put_qpn(const char *file, uint32_t qpn)
{
	char name[200];
	FILE *f;

	snprintf(name, sizeof(name), "%s.new", file);
	f = fopen(name, "w");
	CHECK(f && fprintf(f, "%u\n", qpn) > 0 && !fclose(f) && !rename(name, file));
}

static uint32_t get_qpn(const char *file)
{
	uint32_t qpn;
	FILE *f;

	while (!(f = fopen(file, "r")))
		usleep(10000);
	CHECK(fscanf(f, "%u", &qpn) == 1);
	fclose(f);
	return qpn;
}

static union ibv_gid address(const char *text)
{
	union ibv_gid g = { .raw = { [10] = 0xff, [11] = 0xff } };

	CHECK(inet_pton(AF_INET, text, g.raw + 12) == 1);
	return g;
}

static struct ibv_qp *connected(struct ibv_context *ctx, const char *to, const char *in, const char *out,
				struct ibv_cq **cq, struct ibv_mr **mr)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_qp_init_attr init = { .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
						  .max_recv_sge = 1 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr a = {
		.port_num = 1, .path_mtu = IBV_MTU_1024, .rq_psn = 5, .sq_psn = 5,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = address(to),
			     .sgid_index = gid_index, .hop_limit = 64 } },
	};
	struct ibv_qp *qp;

	*cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	*mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = *cq;
	qp = ibv_create_qp(pd, &init);
	CHECK(*cq && *mr && qp);
	put_qpn(out, qp->qp_num);
	a.dest_qp_num = get_qpn(in);
	lead(qp, a, IBV_QPS_RTS);
	return qp;
}

static struct ibv_context *open_at(const char *local)
{
	struct ibv_context *ctx = open_device();

	find_gid(ctx, local);
	return ctx;
}

static void peer(const char *mover, const char *in, const char *out)
{
	struct ibv_sge sge = { .length = 8 };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc = {};
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char go[200];

	qp = connected(open_at(NULL), mover, in, out, &cq, &mr);
	snprintf(go, sizeof(go), "%s.up", out);
	put_qpn(go, qp->qp_num);
	snprintf(go, sizeof(go), "%s.go", out);
	while (access(go, F_OK))
		usleep(10000);
	strcpy(memory, "message");
	sge.addr = (uintptr_t)memory;
	sge.lkey = mr->lkey;
	IS(0, ibv_post_send(qp, &wr, &bad));
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	while (!access(go, F_OK)) /* until the other end needs no answers any more */
		usleep(10000);
}

static void own(int ready)
{
	struct ibv_context *ctx = open_at(args[0]);
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, 0 };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;

	qp = connected(ctx, args[3], args[4], args[5], &cq, &mr);
	sge.lkey = mr->lkey;
	IS(0, ibv_post_recv(qp, &wr, &bad));
	CHECK(write(ready, &ctx->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

static struct ibv_context *go_on_at(const struct dump *d, const char *where)
{
	union ibv_gid here = address(where);
	struct ibv_context *ctx = restore(d, &here);

	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	return ctx;
}

/* The one QP here that was restored has this answer to its call, which it made after that time and before now. */
static void answered(struct ibv_context *ctx, uint32_t answer, uint64_t after)
{
	struct rxe_migr_call call[2];
	struct rxe_migr_query query;
	int count;

	IS(0, ibv_query_device_calls(ctx, &count, call, 2));
	IS(0, ibv_query_migration(ctx, &query));
	CHECK(count == 1 && call->answer == answer);
	CHECK(call->call_ns > after && call->call_ns < query.now_ns);
}

static void mover(void)
{
	const union ibv_gid from = address(args[0]), there = address(args[1]);
	struct ibv_context *ctx = start_owner(own);
	const struct rxe_migr_rec_qp *qp;
	struct rxe_migr_query query;
	struct dump d;
	char up[200];

	snprintf(up, sizeof(up), "%s.up", args[4]);
	get_qpn(up);
	d = take(ctx, ibv_dump_context);
	sleep(1); /* the peer hears of it */
	end_owner(ctx);
	ctx = go_on_at(&d, args[1]);
	sleep(2);
	IS(0, ibv_query_migration(ctx, &query));
	CHECK(query.num_resuming == 1 && query.num_failed == 0);
	answered(ctx, RXE_MIGR_ANSWER_AWAITED, 0);

	d = take(ctx, ibv_dump_context);
	qp = (const void *)first_of(&d, RXE_MIGR_REC_QP);
	CHECK(!memcmp(qp->sgid, there.raw, sizeof(there)) && !memcmp(qp->old_gid, from.raw, sizeof(from)));
	ibv_detach_context(ctx);
	ctx = go_on_at(&d, args[2]);
	await_peers(ctx);
	answered(ctx, RXE_MIGR_ANSWER_CAME, query.now_ns);
	put_qpn(args[6], 0);
	for (int i = 0; i < 6000 && !*memory; i++)
		usleep(10000);
	CHECK(!strcmp(memory, "message"));
	/* a dump in place: after the answer the QP's old place is where it is now */
	d = take(ctx, ibv_dump_context);
	qp = (const void *)first_of(&d, RXE_MIGR_REC_QP);
	CHECK(!memcmp(qp->sgid, qp->old_gid, sizeof(qp->sgid)));
	IS(0, ibv_abort_context(ctx));
	await_peers(ctx);
	unlink(args[6]);
}

int main(int argc, char **argv)
{
	args = argv + 2;
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc == 5 && !strcmp(argv[1], "peer"))
		peer(args[0], args[1], args[2]);
	else if (argc == 9 && !strcmp(argv[1], "mover"))
		mover();
	else
		DIE("migrate-chain peer MOVER IN OUT | mover FROM FIRST SECOND PEER IN OUT GO");
	return 0;
}
