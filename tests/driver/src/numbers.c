// SPDX-License-Identifier: MIT
/* numbers: makes 100 objects of each kind that has a number on the wire or in a key, and prints each: "KIND NUMBER". */
#include "../../programs/dumps.h"

enum { MANY = 100 };

int main(void)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	static char memory[64];
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_qp *qp;
	struct dump d;

	CHECK(pd && cq);
	for (int i = 0; i < MANY; i++) {
		CHECK((qp = ibv_create_qp(pd, &attr)));
		CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
		CHECK((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
		CHECK(ibv_create_srq(pd, &srq));
		printf("qp %u\nmr %u\nmw %u\n", qp->qp_num, mr->lkey >> 8, mw->rkey >> 8);
	}
	/* libibverbs does not show those of SRQs. */
	d = take(ctx, ibv_inspect_context);
	for (const struct rxe_migr_rec *rec = NULL; (rec = next(&d, rec));)
		if (type_of(rec) == RXE_MIGR_REC_SRQ)
			printf("srq %u\n", le32toh(((const struct rxe_migr_rec_srq *)rec)->srq_num));

	return 0;
}
