// SPDX-License-Identifier: MIT
/*
 * own_host: the peer of a queue pair has an address of the same device, so packets are looped back. Then it calls through the
 * wire, from the same address, while this device has that address still. Once the address has left, all goes to the wire.
 */
#include "../../programs/dumps.h"
#include "migr.h"

static struct ibv_context *ctx;

static bool have(const union ibv_gid *wanted)
{
	struct ibv_gid_entry entry;

	for (int i = 0; !ibv_query_gid_ex(ctx, 1, i, &entry, 0); i++)
		if (!memcmp(entry.gid.raw, wanted->raw, sizeof(wanted->raw)))
			return true;
	return false;
}

/* The device gets the address of the far end, or loses it. */
static void address(const char *command, bool here)
{
	union ibv_gid far = migr_gid(FAR);

	CHECK(!system(command));
	for (int i = 0; have(&far) != here; i++) {
		CHECK(i < PATIENCE * 1000);
		usleep(1000);
	}
}

static void say(int opcode, struct ibv_qp *qp)
{
	struct rxe_migr_hdr hdr = migr_hdr(opcode, qp->qp_num, 1, 0);
	struct frame f = migr_frame(&hdr, NULL);

	wire_send_frame(&f);
}

static void await_paused(struct ibv_qp *qp, bool paused)
{
	struct rxe_migr_status st;

	for (int i = 0; (migr_status(ctx, qp->qp_num, false, &st) && st.state == RXE_MIGR_QP_PAUSED) != paused; i++) {
		CHECK(i < PATIENCE * 1000);
		usleep(1000);
	}
}

int main(void)
{
	static uint8_t memory[64];
	struct ibv_sge sge = { (uintptr_t)memory, sizeof(memory), 0 };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	struct packet p, ack = { .opcode = ACK, .syndrome = ACKED };
	struct rxe_migr_hdr answer;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	ctx = wire_open();
	CHECK((pd = ibv_alloc_pd(ctx)));
	CHECK((cq = ibv_create_cq(ctx, 16, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	address("ip addr add " FAR "/24 dev wire0", true);
	qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);

	say(RXE_MIGR_OPCODE_STOP, qp);
	await_paused(qp, true);
	CHECK(!wire_any(&p, 500));	/* the answer is looped back */
	say(RXE_MIGR_OPCODE_RESUME, qp);
	await_paused(qp, false);
	address("ip addr del " FAR "/24 dev wire0", false);

	/* the first answer was lost; the call is repeated */
	say(RXE_MIGR_OPCODE_RESUME, qp);
	answer = migr_expect(RXE_MIGR_OPCODE_RESUME_ACK, NULL);
	CHECK(be32toh(answer.src_qpn) == qp->qp_num && be32toh(answer.epoch) == 1);
	sge.lkey = mr->lkey;
	IS(0, ibv_post_send(qp, &wr, &bad));
	wire_expect(SEND_ONLY, 0);
	ack.qpn = qp->qp_num;
	wire_send(&ack);
	CHECK(wire_completion(cq).status == IBV_WC_SUCCESS);
	puts("nothing is looped back any more");
	return 0;
}
