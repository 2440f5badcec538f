// SPDX-License-Identifier: MIT
/*
 * gone [--leave]: a queue pair leaves a tombstone, and then its device ends. What the number answers to its peer, without a
 * device and with the next device of the interface, whose first queue pair has the same number; and when its lease has ended.
 * With --leave it ends before the lease does.
 */
#include <arpa/inet.h>

#include "../../programs/dumps.h"
#include "migr.h"

#define THIRD "10.88.0.3"	/* where the queue pair has moved to */
#define FOURTH "10.88.0.4"	/* where its peer has moved to */
#define NEAR_TOO "10.88.0.9"	/* another address of this end's */

enum { LEASE = 3, PSN = 7, NEW_PSN = 0x100 };

static const migr_key key = { 4, 5, 6 };
static uint32_t qpn;
static uint8_t memory[4096];

/* ------------------------------------------------------- what the peer says -- */

static void put_gid(uint8_t *to, const char *address)
{
	union ibv_gid g = migr_gid(address);

	memcpy(to, &g, sizeof(g));
}

static void say(struct rxe_migr_hdr hdr, const char *from)
{
	struct frame f;

	migr_sign(&hdr, key);
	f = migr_frame(&hdr, from);
	wire_send_frame(&f);
}

static void say_plain(int opcode)
{
	say(migr_hdr(opcode, qpn, 1, PSN), NULL);
}

static struct packet request(void)
{
	return (struct packet){ .opcode = SEND_ONLY, .qpn = qpn, .psn = PSN, .ack = true, .len = 8 };
}

static void ask(void)
{
	struct packet p = request();

	wire_send(&p);
}

/* The queue pair says where it is now. */
static void say_moved(void)
{
	struct rxe_migr_hdr hdr = migr_hdr(RXE_MIGR_OPCODE_MOVED, qpn, 1, FAR_QPN);

	hdr.src_qpn = hdr.dest_qpn;
	put_gid(hdr.old_gid, NEAR);
	put_gid(hdr.new_gid, THIRD);
	say(hdr, THIRD);
}

/* The peer calls from where it is now. */
static void call_from_fourth(void)
{
	struct rxe_migr_hdr hdr = migr_hdr(RXE_MIGR_OPCODE_RESUME, qpn, 2, PSN);

	put_gid(hdr.new_gid, FOURTH);
	say(hdr, FOURTH);
}

/* ------------------------------------------------------------ what it hears -- */

/* The next packet is this answer, of the number, from NEAR. */
static struct rxe_migr_hdr answered(int opcode, const char *to)
{
	struct rxe_migr_hdr hdr, check;
	struct packet p;

	if (!wire_any(&p, PATIENCE * 1000))
		DIE("no opcode %#x comes", opcode);
	if (p.opcode != opcode)
		DIE("opcode %#x, PSN %u, where opcode %#x ought to come", p.opcode, p.psn, opcode);
	if (p.psn != PSN)
		DIE("question %u is answered", p.psn);
	CHECK(p.from == inet_addr(NEAR) && p.to == inet_addr(to) && p.qpn == FAR_QPN && p.ttl == 64);
	CHECK(p.len == sizeof(hdr));
	memcpy(&hdr, p.data, sizeof(hdr));
	check = hdr;
	migr_sign(&check, key);
	CHECK(!memcmp(&check, &hdr, sizeof(hdr)));
	CHECK(be32toh(hdr.src_qpn) == qpn && be32toh(hdr.epoch) == 1 && be32toh(hdr.psn) == PSN);
	return hdr;
}

static bool is_at(const uint8_t *place, const char *address)
{
	union ibv_gid g = migr_gid(address);

	return !memcmp(place, &g, sizeof(g));
}

static void stopped(void)
{
	struct rxe_migr_hdr hdr = answered(RXE_MIGR_OPCODE_NAK_STOPPED, FAR);

	CHECK(is_at(hdr.old_gid, NEAR) && is_at(hdr.new_gid, NEAR));
}

static void moved(const char *to)
{
	struct rxe_migr_hdr hdr = answered(RXE_MIGR_OPCODE_MOVED, to);

	CHECK(is_at(hdr.old_gid, NEAR) && is_at(hdr.new_gid, THIRD));
}

/* Packets that are no question of the peer's, whole and cut. The next answer is to what is asked after them. */
static void wrong_questions(void)
{
	struct rxe_migr_hdr hdr = migr_hdr(RXE_MIGR_OPCODE_RESUME, qpn, 1, PSN + 200);
	struct packet p;
	struct frame f;

	for (int i = 0; i < 6; i++) {
		p = request();
		p.psn += 100 + i;
		switch (i) {
		case 0: p.opcode |= UC; break;
		case 1: p.opcode = ACK; break;
		case 2: p.qpn++; break;
		case 3: p.from = inet_addr(THIRD); break;
		case 4: p.to = inet_addr(NEAR_TOO); break;
		}
		f = wire_frame(&p);
		f.at[f.len - 1] ^= i == 5;	/* the ICRC */
		wire_send_frame(&f);
	}
	f = migr_frame(&hdr, NULL);	/* without a MAC */
	wire_send_frame(&f);
	migr_sign(&hdr, key);
	p = request();
	p.psn += 300;
	for (int ours = 0; ours < 2; ours++) {
		f = ours ? migr_frame(&hdr, NULL) : wire_frame(&p);
		for (f.len -= 12; f.len >= FRAME_BTH; f.len -= 4) {
			wire_seal(&f);
			wire_send_frame(&f);
		}
	}
}

/* -------------------------------------------------------------------- parts -- */

/* A queue pair is stopped, and destroyed; then its device ends. */
static void bury(struct ibv_context *ctx)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	struct rxe_migr_status st;
	struct ibv_qp *qp;
	struct packet p;

	CHECK(pd && cq);
	migr_set_key(ctx, key);
	qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	qpn = qp->qp_num;
	migr_stop(ctx);
	migr_expect(RXE_MIGR_OPCODE_STOP, key);
	say_plain(RXE_MIGR_OPCODE_STOP_ACK);
	while (wire_any(&p, 100))
		CHECK(p.opcode == RXE_MIGR_OPCODE_STOP);
	IS(0, ibv_destroy_qp(qp));
	CHECK(migr_status(ctx, qpn, true, &st));
	IS(0, ibv_destroy_cq(cq));
	IS(0, ibv_dealloc_pd(pd));
	IS(0, ibv_close_device(ctx));
	IS(0, system("rdma link del rxe0"));
}

/* Nobody counts what is answered without a device. */
static void without_device(void)
{
	wrong_questions();
	ask();
	stopped();
	say_plain(RXE_MIGR_OPCODE_RESUME);
	stopped();
	say_plain(RXE_MIGR_OPCODE_STOP);
	CHECK(answered(RXE_MIGR_OPCODE_STOP_ACK, FAR).flags == htobe16(RXE_MIGR_FLAG_GONE | RXE_MIGR_FLAG_SQ_PSN));
	say_moved();
	say_plain(RXE_MIGR_OPCODE_RESUME);
	moved(FAR);
	call_from_fourth();
	moved(FOURTH);
}

/* The next device of the interface answers for the number. A queue pair that gets the number is not disturbed. */
static void next_device(void)
{
	struct packet p = { .opcode = WRITE_ONLY, .psn = NEW_PSN, .ack = true, .len = 8, .length = 8, .data = "written" };
	struct ibv_context *ctx;
	struct rxe_migr_status st;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	IS(0, system("rdma link add rxe0 type rxe netdev wire0\n"
		     "until cat /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null | grep -q 0a58:0001; do sleep 0.1; done"));
	ctx = open_device();
	find_gid(ctx, NEAR);
	CHECK(migr_status(ctx, qpn, true, &st));
	wrong_questions();
	ask();
	stopped();
	CHECK(migr_counter("sent_nak_stopped") == 1);

	CHECK((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	if (qp->qp_num != qpn)
		DIE("the next device gives number %u, not %u", qp->qp_num, qpn);
	IS(0, ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	wire_lead_from(qp, 4, NEW_PSN, NEW_PSN, IBV_QPS_RTS);
	p.qpn = qpn;
	p.rkey = mr->rkey;
	p.va = (uintptr_t)memory;
	wire_send(&p);
	CHECK(wire_expect(ACK, NEW_PSN).syndrome == ACKED && !memcmp(memory, p.data, p.len));
	/* a packet of the connection before */
	say_plain(RXE_MIGR_OPCODE_RESUME);
	moved(FAR);
	CHECK(!migr_status(ctx, qpn, false, &st));
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_dereg_mr(mr));
	IS(0, ibv_destroy_cq(cq));
	IS(0, ibv_dealloc_pd(pd));
	IS(0, ibv_close_device(ctx));
	IS(0, system("rdma link del rxe0"));
}

/* Each MOVED begins the lease anew. The number answers as long as that lasts, and not any longer. */
static void lease(void)
{
	struct packet p;
	double began;
	FILE *f;

	f = fopen("/sys/module/rdma_rxe/parameters/tombstone_lease", "w");
	CHECK(f && fprintf(f, "%d", LEASE) > 0 && !fclose(f));
	began = now();
	say_moved();
	do {
		ask();
		CHECK(now() - began < PATIENCE);
	} while (wire_any(&p, 500));
	if (now() - began - 0.5 < LEASE - 0.5)
		DIE("it answers for %.2f s, and not for %u s", now() - began - 0.5, LEASE);
}

int main(int argc, char **argv)
{
	(void)argv;
	bury(wire_open());
	if (argc > 1) {
		ask();
		stopped();
		return 0;
	}
	without_device();
	next_device();
	lease();
	return 0;
}
