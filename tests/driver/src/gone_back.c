// SPDX-License-Identifier: MIT
/*
 * gone_back: a requester that is told RNR goes back and sends again. If it is stopped on its way, its record must say how far it
 * had been before, or a copy of it would take requests that its peer has seen for new ones: those that it holds in SQD.
 *
 * Two contexts of this process. The queue pair of one sends to the other's, which posts no receive, so nothing is ever done, and
 * how far the requester has been only grows.
 */
#include "../../programs/dumps.h"

enum {
	MESSAGES = 6, SIZE = 4096,	/* 96 packets; the driver sends 128 before it waits for an answer */
	STOPS = 200,
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void make(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	e->ctx = open_device();
	find_gid(e->ctx, NULL);
	CHECK((e->pd = ibv_alloc_pd(e->ctx)) && (e->cq = ibv_create_cq(e->ctx, 10, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = e->cq;
	CHECK((e->qp = ibv_create_qp(e->pd, &init)));
}

static void lead_to(struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .path_mtu = IBV_MTU_256, .dest_qp_num = to, .rq_psn = 100, .sq_psn = 100,
		.min_rnr_timer = 1, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index } },
	};

	lead(qp, a, IBV_QPS_RTS);
}

int main(void)
{
	static char data[SIZE];
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = SIZE };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	uint32_t far = 0, psn;
	struct ibv_mr *mr;
	struct end a, b;

	make(&a);
	make(&b);
	lead_to(a.qp, b.qp->qp_num);
	lead_to(b.qp, a.qp->qp_num);
	CHECK((mr = ibv_reg_mr(a.pd, data, SIZE, 0)));
	sge.lkey = mr->lkey;
	for (int i = 0; i < MESSAGES; i++)
		IS(0, ibv_post_send(a.qp, &wr, &bad));

	for (int i = 0; i < STOPS; i++) {
		struct dump d = take(a.ctx, ibv_dump_context);
		const struct rxe_migr_rec_qp *qp = (const void *)first_of(&d, RXE_MIGR_REC_QP);

		CHECK(qp);
		psn = le32toh(qp->req_psn);
		if (psn < far)
			DIE("stop %d: the requester was at PSN %u, and is at %u", i, far, psn);
		CHECK(le32toh(qp->comp_psn) == 100);
		far = psn;
		free(d.buf);
		IS(0, ibv_abort_context(a.ctx));
		await_peers(a.ctx);
	}
	printf("PSN %u, and never less than before\n", far);
	CHECK(far > 100);
	return 0;
}
