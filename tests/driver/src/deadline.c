// SPDX-License-Identifier: MIT
/*
 * deadline [SECONDS]: what happens to queue pairs whose peer stops and does not come back in time, asks for more time, or comes
 * back too late; to a tombstone whose lease has ended; and to UC, which goes on when it knows that it is heard.
 */

#include "../../programs/dumps.h"
#include "migr.h"

enum {
	HEARD_MAX = 5,	/* s: UC waits to know that it is heard */
	GRACE = 5,	/* s: a time-out costs no retry */
};

#define ELSEWHERE "10.88.0.9"	/* another address of this end's */

static unsigned int limit = 6;	/* in seconds; the work before it takes milliseconds if the machine does not stand still */

static struct ibv_context *ctx;
static struct ibv_mr *mr;
static uint8_t memory[4096];

/* The work since began was done in this time. Otherwise the test can't tell. */
static void in_time(double began, unsigned int time)
{
	if (now() - began < time - 0.5)
		return;
	fprintf(stderr, "the machine stood still: it took %.1f s of %u s\n", now() - began, time);
	exit(75);
}

/*
 * A QP has waited for so long since began, or a little less: its deadline is in ticks, which may lag behind the clock when it
 * is set, if the machine does not let all CPUs run.
 */
static void waited(double began, unsigned int time)
{
	double passed = now() - began;

	if (passed >= time - 0.5)
		return;
	fprintf(stderr, "it waited for %.2f s, and not for %u s\n", passed, time);
	exit(1);
}

static void parameter(const char *name, int value)
{
	char path[100];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/module/rdma_rxe/parameters/%s", name);
	f = fopen(path, "w");
	CHECK(f && fprintf(f, "%d", value) > 0 && !fclose(f));
}

static struct ibv_pd *new_context(struct ibv_cq **cq)
{
	struct ibv_context *c = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(c);

	CHECK(pd && (*cq = ibv_create_cq(c, 64, NULL, NULL, 0)));
	return pd;
}

static void post(struct ibv_qp *qp, struct ibv_mr *region, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, region->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = id, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };

	IS(0, ibv_post_send(qp, &wr, &bad));
}

static void post_recv(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	IS(0, ibv_post_recv(qp, &wr, &bad));
}

static void say_with(int flags, int opcode, struct ibv_qp *qp, uint32_t epoch)
{
	struct rxe_migr_hdr hdr = migr_hdr(opcode, qp->qp_num, epoch, 0);
	struct frame f;

	hdr.flags |= htobe16(flags);
	f = migr_frame(&hdr, NULL);
	wire_send_frame(&f);
}

static void say(int opcode, struct ibv_qp *qp, uint32_t epoch)
{
	say_with(0, opcode, qp, epoch);
}

static void answered_with(int flags, int opcode, struct ibv_qp *qp, uint32_t epoch)
{
	struct rxe_migr_hdr hdr = migr_expect(opcode, NULL);

	CHECK(be32toh(hdr.src_qpn) == qp->qp_num && be32toh(hdr.epoch) == epoch);
	CHECK(be16toh(hdr.flags) == (flags | RXE_MIGR_FLAG_SQ_PSN));
}

static void answered(int opcode, struct ibv_qp *qp, uint32_t epoch)
{
	answered_with(0, opcode, qp, epoch);
}

/* The packet is counted, and does nothing else. */
static void refused(int opcode, struct ibv_qp *qp, uint32_t epoch)
{
	uint64_t before = migr_counter("migr_refused"), resumes = migr_counter("rcvd_resume");

	say(opcode, qp, epoch);
	CHECK(migr_counter("migr_refused") == before + 1 && migr_counter("rcvd_resume") == resumes);
}

static bool is_paused(struct ibv_qp *qp)
{
	struct rxe_migr_status st;

	return migr_status(ctx, qp->qp_num, false, &st) && st.state == RXE_MIGR_QP_PAUSED;
}

static enum ibv_qp_state state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	IS(0, ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

static void await_error(struct ibv_qp *qp)
{
	for (int i = 0; state(qp) != IBV_QPS_ERR; i++) {
		CHECK(i < PATIENCE * 1000);
		usleep(1000);
	}
}

static void ends(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wire_completion(cq);

	if (wc.wr_id != id || wc.status != status)
		DIE("work %u ends with %s, where %u ought to with %s", (unsigned)wc.wr_id, ibv_wc_status_str(wc.status),
		    (unsigned)id, ibv_wc_status_str(status));
}

/* The driver tells the CM where the peer is, even for a failed QP. A work item does that, so this waits for it. */
static void await_peer_epoch(struct ibv_qp *qp, uint32_t epoch)
{
	for (int i = 0; le32toh(migr_record(qp).peer_epoch) != epoch; i++) {
		CHECK(i < PATIENCE * 1000);
		usleep(1000);
	}
}

static void late(struct ibv_qp *qp, struct ibv_qp *back)
{
	refused(RXE_MIGR_OPCODE_RESUME, qp, 1);
	await_peer_epoch(qp, 1);
	for (int i = 0; i < 3; i++)
		refused(RXE_MIGR_OPCODE_RESUME, qp, 1);
	refused(RXE_MIGR_OPCODE_RESUME, qp, 2);
	await_peer_epoch(qp, 2);
	/* none of these was answered: the next packet is the answer to this one */
	say(RXE_MIGR_OPCODE_RESUME, back, 1);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, back, 1);
	CHECK(state(qp) == IBV_QPS_ERR);
}

/* A QP that was not answered, failed, and is connected again from another address says nothing of its old place. */
static void begins_anew(struct ibv_qp *qp)
{
	union ibv_gid here = migr_gid(ELSEWHERE);
	struct rxe_migr_hdr hdr;

	IS(0, ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	find_gid(qp->context, ELSEWHERE);
	wire_lead(qp, 4);
	find_gid(qp->context, NEAR);
	migr_stop(qp->context);
	hdr = migr_expect(RXE_MIGR_OPCODE_STOP, NULL);
	CHECK(be32toh(hdr.src_qpn) == qp->qp_num && be32toh(hdr.epoch) == 2);
	CHECK(!memcmp(hdr.old_gid, here.raw, sizeof(here)) && !memcmp(hdr.new_gid, here.raw, sizeof(here)));
	IS(0, ibv_abort_context(qp->context));
}

/* One task flushes the send queue, and another one the receive queue. */
static void flushed(struct ibv_cq *cq)
{
	for (int i = 0, sends = 1, recvs = 10; i < 5; i++) {
		struct ibv_wc wc = wire_completion(cq);

		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
		CHECK(wc.wr_id == (uint64_t)(wc.wr_id < 10 ? sends++ : recvs++));
	}
}

/* A QP that was stopped is not heard when it goes on. If it is reset and connected again after that, it is like a new one. */
static void unheard(void)
{
	struct ibv_cq *cq;
	struct ibv_pd *pd = new_context(&cq);
	struct ibv_mr *region = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	struct packet p;
	double began;

	CHECK(region);
	migr_stop(qp->context);
	answered(RXE_MIGR_OPCODE_STOP, qp, 1);
	say(RXE_MIGR_OPCODE_STOP_ACK, qp, 1);
	began = now();
	post(qp, region, 30);
	IS(0, ibv_abort_context(qp->context));
	answered(RXE_MIGR_OPCODE_RESUME, qp, 1);
	ends(cq, 30, IBV_WC_RETRY_EXC_ERR);
	waited(began, limit);
	await_error(qp);
	while (wire_any(&p, 1))	/* what it has called with */
		CHECK(migr_is_call(p.opcode));
	refused(RXE_MIGR_OPCODE_RESUME_ACK, qp, 1);
	refused(RXE_MIGR_OPCODE_RESUME, qp, 1);
	begins_anew(qp);
}

/* Their peers stop. Returns the time before the first does. */
static double stop_peers(struct ibv_qp *const qps[], int n)
{
	double began = now();

	for (int i = 0; i < n; i++) {
		bool paused;

		say(RXE_MIGR_OPCODE_STOP, qps[i], 1);
		answered(RXE_MIGR_OPCODE_STOP_ACK, qps[i], 1);
		paused = is_paused(qps[i]);
		in_time(began, limit);
		CHECK(paused);
	}
	return began;
}

static void pauses(void)
{
	struct ibv_cq *cq, *quiet;
	struct ibv_pd *pd = new_context(&cq);
	struct ibv_qp *busy, *idle, *back, *uc, *patient;
	struct packet p;
	double began;

	ctx = pd->context;
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	CHECK((quiet = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	busy = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	idle = wire_qp(pd, IBV_QPT_RC, quiet, NULL, 4);
	back = wire_qp(pd, IBV_QPT_RC, quiet, NULL, 4);
	uc = wire_qp(pd, IBV_QPT_UC, quiet, NULL, 0);
	patient = wire_qp(pd, IBV_QPT_RC, quiet, NULL, 4);

	post_recv(busy, 10);
	post_recv(busy, 11);
	for (int i = 0; i < 3; i++) {
		post(busy, mr, i);
		wire_expect(SEND_ONLY, i);
	}

	/* no deadline */
	parameter("pause_timeout", 0);
	say(RXE_MIGR_OPCODE_STOP, patient, 1);
	answered(RXE_MIGR_OPCODE_STOP_ACK, patient, 1);

	parameter("pause_timeout", limit);
	began = stop_peers((struct ibv_qp *[]){ busy, idle, back, uc }, 4);
	post(busy, mr, 3);
	post(uc, mr, 20);
	say(RXE_MIGR_OPCODE_RESUME, back, 1);
	in_time(began, limit);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, back, 1);

	ends(cq, 0, IBV_WC_RETRY_EXC_ERR);
	waited(began, limit);
	flushed(cq);
	await_error(busy);
	await_error(idle);
	p = wire_expect(UC | SEND_ONLY, 0);
	CHECK(p.len == 8);
	waited(began, limit);
	ends(quiet, 20, IBV_WC_SUCCESS);
	CHECK(state(back) == IBV_QPS_RTS && state(uc) == IBV_QPS_RTS && !is_paused(uc));
	CHECK(is_paused(patient) && state(patient) == IBV_QPS_RTS);

	late(busy, back);
	late(idle, back);
	say(RXE_MIGR_OPCODE_RESUME, uc, 1);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, uc, 1);
	say(RXE_MIGR_OPCODE_RESUME, patient, 1);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, patient, 1);

	unheard();
	IS(0, ibv_modify_qp(idle, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	CHECK(ibv_destroy_qp(idle) == 0 && ibv_destroy_qp(busy) == 0);
}

static void say_renewed(int opcode, struct ibv_qp *qp, uint32_t epoch, uint16_t renewal, uint16_t wait)
{
	struct rxe_migr_hdr hdr = migr_hdr(opcode, qp->qp_num, epoch, 0);
	struct frame f;

	hdr.renewal = htobe16(renewal);
	hdr.wait = htobe16(wait);
	f = migr_frame(&hdr, NULL);
	wire_send_frame(&f);
}

/* How long the QP says that it waits, in its answer to STOP. renewal: the last one that it has heard of. */
static unsigned int says_wait(struct ibv_qp *qp, uint16_t renewal)
{
	struct rxe_migr_hdr hdr = migr_expect(RXE_MIGR_OPCODE_STOP_ACK, NULL);

	CHECK(be32toh(hdr.src_qpn) == qp->qp_num && be16toh(hdr.renewal) == renewal);
	return be16toh(hdr.wait);
}

/* The QP's deadline is at most this many seconds after since. (The driver counts in ticks, and rounds up.) */
static void waits_no_longer(struct ibv_qp *qp, double since, double seconds)
{
	double passed = now() - since;
	struct rxe_migr_status st;

	CHECK(migr_status(ctx, qp->qp_num, false, &st) && st.state == RXE_MIGR_QP_PAUSED);
	CHECK(st.deadline_ms / 1000.0 <= seconds - passed + 0.05);
}

/* The same request comes again, and so does an older one: neither is answered by more time. */
static void gains_nothing(struct ibv_qp *qp, uint16_t renewal, double began, double paused)
{
	for (int older = 0; older < 2; older++) {
		say_renewed(RXE_MIGR_OPCODE_STOP, qp, 1, renewal - older, 0);
		in_time(began, limit);
		says_wait(qp, renewal);
	}
	waits_no_longer(qp, paused, limit);
	in_time(began, limit);
}

/* At last asking for more time is in vain: after most seconds the QP fails. renewal, said: of the last request */
static void in_vain(struct ibv_qp *qp, uint16_t renewal, double said, double began, unsigned int most)
{
	while (state(qp) != IBV_QPS_ERR) {
		CHECK(now() - began < most + PATIENCE);
		in_time(said, limit);
		said = now();
		say_renewed(RXE_MIGR_OPCODE_STOP, qp, 1, ++renewal, 0);
		usleep(20000);
	}
	in_time(said, limit);
	waited(began, most);
	for (struct packet p; wire_any(&p, 1);)
		;
}

/* UC has sent on, and nobody can undo that, not even with an older packet. */
static void goes_on(struct ibv_qp *uc, struct ibv_cq *cq, struct ibv_mr *region)
{
	uint64_t before;

	post(uc, region, 1);
	wire_expect(UC | SEND_ONLY, 0);
	ends(cq, 1, IBV_WC_SUCCESS);
	for (uint32_t epoch = 2; epoch; epoch--) {
		before = migr_counter("migr_refused");
		say_renewed(RXE_MIGR_OPCODE_STOP, uc, epoch, 2, 0);
		CHECK(migr_counter("migr_refused") == before + 1 && !is_paused(uc));
	}
	refused(RXE_MIGR_OPCODE_RESUME, uc, 1);
	say(RXE_MIGR_OPCODE_STOP, uc, 3);
	says_wait(uc, 0);
	CHECK(is_paused(uc));
	say(RXE_MIGR_OPCODE_RESUME, uc, 3);
	answered_with(RXE_MIGR_FLAG_WAITS, RXE_MIGR_OPCODE_RESUME_ACK, uc, 3);
	say_with(RXE_MIGR_FLAG_HEARD, RXE_MIGR_OPCODE_RESUME, uc, 3);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, uc, 3);
}

/*
 * A peer that is stopped for longer asks for more time, each time with a higher number. An old request that comes again gains
 * nothing, and nobody waits for longer than pause_max.
 */
static void extends(void)
{
	unsigned int most = 2 * limit, wait;
	struct ibv_cq *cq;
	struct ibv_pd *pd = new_context(&cq);
	struct ibv_mr *region = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *asked = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4), *again = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	struct ibv_qp *anew = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	struct ibv_qp *uc = wire_qp(pd, IBV_QPT_UC, cq, NULL, 0);
	uint32_t stops = 0;
	double began, paused, said, passed;
	uint16_t renewal = 5;

	CHECK(region);
	ctx = pd->context;
	parameter("pause_timeout", limit);
	parameter("pause_max", most);
	began = now();
	for (uint32_t epoch = 1; epoch <= 2; epoch++) {
		say_renewed(RXE_MIGR_OPCODE_STOP, uc, epoch, 1, 0);
		says_wait(uc, 1);
	}
	say_renewed(RXE_MIGR_OPCODE_STOP, again, 1, renewal, 0);
	wait = says_wait(again, renewal);
	CHECK(wait <= limit && wait + (now() - began) + 1 >= limit);
	said = now();
	say_renewed(RXE_MIGR_OPCODE_STOP, asked, 1, renewal, 0);
	says_wait(asked, renewal);
	in_time(said, limit);
	paused = now();

	/* for the QP's whole time, and a third more */
	while (passed = now() - began, passed < limit + limit / 3.0) {
		if (passed < limit / 2.0)
			gains_nothing(again, 5, began, paused);
		in_time(said, limit);
		said = now();
		say_renewed(RXE_MIGR_OPCODE_STOP, asked, 1, ++renewal, 0);
		wait = says_wait(asked, renewal);
		in_time(said, limit);
		CHECK(wait <= limit && wait <= most - (said - paused) + 0.05);
		passed = now() - began;
		CHECK(wait + 1.05 >= (limit < most - passed ? limit : most - passed));
		CHECK(is_paused(asked));
		/* the RESUME before this STOP was lost */
		say_renewed(RXE_MIGR_OPCODE_STOP, anew, ++stops, 1, 0);
		says_wait(anew, 1);
		CHECK(is_paused(anew));
		usleep(limit * 100000);
	}
	await_error(again);

	in_vain(asked, renewal, said, began, most);
	goes_on(uc, cq, region);
}

static uint64_t peers_wait(struct ibv_context *c)
{
	struct rxe_migr_query q;

	IS(0, ibv_query_migration(c, &q));
	return q.wait_ns;
}

static uint64_t now_ns(void)
{
	return now() * 1e9;
}

/* Returns when all packets that came before are processed. */
static void taken_in(struct ibv_qp *other, uint32_t epoch)
{
	say(RXE_MIGR_OPCODE_RESUME, other, epoch);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, other, epoch);
}

/* The context's peer waits for this many seconds, from some time between from and to. */
static void waits_from(struct ibv_context *c, uint64_t from, uint64_t to, unsigned int seconds)
{
	uint64_t until = peers_wait(c), length = seconds * 1000000000ull, slack = 1000000;

	CHECK(until + slack >= from + length && until <= to + length + slack);
}

/*
 * A peer that was stopped itself, and calls meanwhile, also says how long it waits, and is told the renewal, so that it waits on.
 * renewal: the last one, between from and to
 */
static void calls(struct ibv_qp *qp, uint16_t renewal, uint64_t from, uint64_t to)
{
	struct rxe_migr_hdr nak;

	say_renewed(RXE_MIGR_OPCODE_RESUME, qp, 2, renewal - 1, 6000);
	migr_expect(RXE_MIGR_OPCODE_NAK_STOPPED, NULL);
	waits_from(qp->context, from, to, 50);
	say_renewed(RXE_MIGR_OPCODE_RESUME, qp, 2, renewal, 60);
	nak = migr_expect(RXE_MIGR_OPCODE_NAK_STOPPED, NULL);
	CHECK(be16toh(nak.renewal) == renewal);
	waits_from(qp->context, from, to, 60);

	/* the peer may now be at a host with a shorter time */
	say_renewed(RXE_MIGR_OPCODE_RESUME, qp, 2, renewal, 30);
	migr_expect(RXE_MIGR_OPCODE_NAK_STOPPED, NULL);
	waits_from(qp->context, from, to, 30);
}

/* The stopped side knows until when its peer waits, by the peer's answers to its requests. */
static void asks(void)
{
	struct ibv_cq *cq, *own;
	struct ibv_pd *pd = new_context(&cq), *here = new_context(&own);
	struct ibv_qp *other = wire_qp(here, IBV_QPT_RC, own, NULL, 4), *qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	struct rxe_migr_hdr stop;
	struct rxe_migr_query q;
	uint64_t from, to;
	uint16_t first;

	ctx = here->context;
	parameter("pause_timeout", 1000);
	say(RXE_MIGR_OPCODE_STOP, other, 1);
	answered(RXE_MIGR_OPCODE_STOP_ACK, other, 1);
	say(RXE_MIGR_OPCODE_STOP, qp, 1);
	answered(RXE_MIGR_OPCODE_STOP_ACK, qp, 1);
	taken_in(qp, 1);
	CHECK(peers_wait(pd->context) == UINT64_MAX);

	/* before the peer has answered, and after that */
	from = now_ns();
	migr_stop(pd->context);
	to = now_ns();
	waits_from(pd->context, from, to, 1000);
	stop = migr_expect(RXE_MIGR_OPCODE_STOP, NULL);
	first = be16toh(stop.renewal);
	CHECK(first && !stop.wait);
	say_renewed(RXE_MIGR_OPCODE_STOP_ACK, qp, 1, first - 1, 77);
	say_renewed(RXE_MIGR_OPCODE_STOP_ACK, qp, 1, first, 40);
	taken_in(other, 1);
	waits_from(pd->context, from, to, 40);

	/* asked again: an earlier answer does not count, and neither does a shorter time */
	from = now_ns();
	IS(0, ibv_renew_stop(pd->context, &q));
	to = now_ns();
	do
		stop = migr_expect(RXE_MIGR_OPCODE_STOP, NULL);
	while (be16toh(stop.renewal) == first);
	CHECK(be16toh(stop.renewal) == first + 1 && be32toh(stop.epoch) == 1);
	say_renewed(RXE_MIGR_OPCODE_STOP_ACK, qp, 1, first, 5000);
	say_renewed(RXE_MIGR_OPCODE_STOP_ACK, qp, 1, first + 1, 50);
	say_renewed(RXE_MIGR_OPCODE_STOP_ACK, qp, 1, first + 1, 10);
	taken_in(other, 1);
	waits_from(pd->context, from, to, 50);

	calls(qp, first + 1, from, to);
	IS(0, ibv_abort_context(pd->context));
	CHECK(peers_wait(pd->context) == UINT64_MAX);
	IS(0, ibv_renew_stop(pd->context, &q));		/* of a context that is not stopped: nothing */
	for (struct packet p; wire_any(&p, 1);)
		CHECK(p.opcode != RXE_MIGR_OPCODE_STOP);
	IS(0, ibv_destroy_qp(qp));
}

static void lease(void)
{
	struct ibv_cq *cq, *own;
	struct ibv_pd *pd = new_context(&cq), *here = new_context(&own);
	struct ibv_qp *back = wire_qp(here, IBV_QPT_RC, own, NULL, 4), qp, *stopped;
	struct rxe_migr_status st;
	struct packet request = { .opcode = SEND_ONLY, .ack = true };
	bool buried;
	double began;

	parameter("tombstone_lease", limit);
	stopped = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	request.qpn = stopped->qp_num;
	qp = *stopped;
	say(RXE_MIGR_OPCODE_STOP, back, 1);
	answered(RXE_MIGR_OPCODE_STOP_ACK, back, 1);
	say(RXE_MIGR_OPCODE_RESUME, back, 1);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, back, 1);

	migr_stop(pd->context);
	answered(RXE_MIGR_OPCODE_STOP, &qp, 1);
	say(RXE_MIGR_OPCODE_STOP_ACK, &qp, 1);
	began = now();
	IS(0, ibv_destroy_qp(stopped));
	buried = migr_status(here->context, qp.qp_num, true, &st);
	in_time(began, limit);
	CHECK(buried && st.deadline_ms <= limit * 1000);
	wire_send(&request);
	in_time(began, limit);
	answered(RXE_MIGR_OPCODE_NAK_STOPPED, &qp, 1);
	say(RXE_MIGR_OPCODE_RESUME, &qp, 1);
	in_time(began, limit);
	answered(RXE_MIGR_OPCODE_NAK_STOPPED, &qp, 1);

	for (int i = 0; migr_status(here->context, qp.qp_num, true, &st) && st.deadline_ms; i++) {
		CHECK(i < PATIENCE * 1000);
		usleep(1000);
	}
	wire_send(&request);
	say(RXE_MIGR_OPCODE_RESUME, &qp, 1);
	/* these two were not answered: the next packet is the answer to this one */
	say(RXE_MIGR_OPCODE_RESUME, back, 1);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, back, 1);
}

static void lead_impatient(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = FAR_QPN, .timeout = 1, .retry_cnt = 0,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
	};

	a.ah_attr.grh.dgid = migr_gid(FAR);
	IS(0, ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	lead(qp, a, IBV_QPS_RTS);
}

/*
 * A QP whose time-out takes milliseconds, and that has no retry, gives a peer that has just gone on time to answer, and to post
 * receives, but not for ever. (Its packets come again and again meanwhile.)
 */
static void grace(void)
{
	struct ibv_cq *cq;
	struct ibv_pd *pd = new_context(&cq);
	struct ibv_mr *region = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp = wire_qp(pd, IBV_QPT_RC, cq, NULL, 0);
	struct packet p, ack = { .opcode = ACK, .syndrome = ACKED }, not_ready = { .opcode = ACK, .syndrome = NAK_RNR };
	struct ibv_wc wc;
	double began;

	CHECK(region);
	ctx = pd->context;
	ack.qpn = not_ready.qpn = qp->qp_num;
	for (int dead = 0; dead < 2; dead++) {
		lead_impatient(qp);
		say(RXE_MIGR_OPCODE_STOP, qp, 1);
		answered(RXE_MIGR_OPCODE_STOP_ACK, qp, 1);
		post(qp, region, dead);
		began = now();
		say(RXE_MIGR_OPCODE_RESUME, qp, 1);
		answered(RXE_MIGR_OPCODE_RESUME_ACK, qp, 1);
		for (int sent = 0; !dead && (sent < 10 || now() - began < 1); sent++) {
			wire_expect(SEND_ONLY, 0);
			if (sent < 3)
				wire_send(&not_ready);
			in_time(began, GRACE);
		}
		if (!dead) {
			IS(0, ibv_poll_cq(cq, 1, &wc));
			wire_send(&ack);
			in_time(began, GRACE);
		}
		ends(cq, dead, dead ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		if (dead)
			waited(began, GRACE);
		while (wire_any(&p, 100))
			;
	}
}

static int flags_of(const struct packet *p)
{
	return (p->data[2] << 8 | p->data[3]) ^ RXE_MIGR_FLAG_SQ_PSN;
}

/* A peer that goes on, is not sure to be heard, and stops again is waited for as usual. */
static void stops_again(struct ibv_qp *qp)
{
	double began;

	say(RXE_MIGR_OPCODE_STOP, qp, 3);
	answered(RXE_MIGR_OPCODE_STOP_ACK, qp, 3);
	say(RXE_MIGR_OPCODE_RESUME, qp, 3);
	answered_with(RXE_MIGR_FLAG_WAITS, RXE_MIGR_OPCODE_RESUME_ACK, qp, 3);
	say(RXE_MIGR_OPCODE_STOP, qp, 4);
	answered(RXE_MIGR_OPCODE_STOP_ACK, qp, 4);
	for (began = now(); now() - began < HEARD_MAX + 1; usleep(100000))
		CHECK(is_paused(qp));
	say(RXE_MIGR_OPCODE_RESUME, qp, 4);
	answered_with(RXE_MIGR_FLAG_WAITS, RXE_MIGR_OPCODE_RESUME_ACK, qp, 4);
	say_with(RXE_MIGR_FLAG_HEARD, RXE_MIGR_OPCODE_RESUME, qp, 4);
	answered(RXE_MIGR_OPCODE_RESUME_ACK, qp, 4);
}

/* A QP that calls says that it has heard, until it is answered. */
static void says_heard(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *region)
{
	int sent = 0, heard = 0, late = 0;
	struct packet p;

	migr_stop(qp->context);
	answered(RXE_MIGR_OPCODE_STOP, qp, 1);
	say(RXE_MIGR_OPCODE_STOP_ACK, qp, 1);
	post(qp, region, 3);
	IS(0, ibv_abort_context(qp->context));
	answered(RXE_MIGR_OPCODE_RESUME, qp, 1);
	say_with(RXE_MIGR_FLAG_WAITS, RXE_MIGR_OPCODE_RESUME_ACK, qp, 1);
	while (!sent || heard < 2) {
		CHECK(wire_any(&p, PATIENCE * 1000));
		sent += p.opcode == (UC | SEND_ONLY);
		heard += p.opcode == RXE_MIGR_OPCODE_RESUME && flags_of(&p) == RXE_MIGR_FLAG_HEARD;
	}
	say(RXE_MIGR_OPCODE_RESUME_ACK, qp, 1);
	while (wire_any(&p, 1))		/* what was on its way */
		;
	while (wire_any(&p, 1500))
		late++;
	CHECK(late < 3);
	ends(cq, 3, IBV_WC_SUCCESS);
}

/* UC: a QP's messages wait until it knows that the way to its peer is open, or for HEARD_MAX. */
static void unsure(void)
{
	struct ibv_cq *cq;
	struct ibv_pd *pd = new_context(&cq);
	struct ibv_mr *region = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp = wire_qp(pd, IBV_QPT_UC, cq, NULL, 0);
	int sent = 0, answers = 0;
	struct packet p;
	double began;

	CHECK(region);
	ctx = pd->context;
	parameter("pause_timeout", 24);
	for (uint32_t epoch = 1; epoch <= 2; epoch++) {
		say(RXE_MIGR_OPCODE_STOP, qp, epoch);
		answered(RXE_MIGR_OPCODE_STOP_ACK, qp, epoch);
		post(qp, region, epoch);
		began = now();
		for (int i = 0; i < 3; i++) {
			bool paused;

			say(RXE_MIGR_OPCODE_RESUME, qp, epoch);
			in_time(began, HEARD_MAX);
			answered_with(RXE_MIGR_FLAG_WAITS, RXE_MIGR_OPCODE_RESUME_ACK, qp, epoch);
			paused = is_paused(qp);
			in_time(began, HEARD_MAX);
			CHECK(paused);
		}
		if (epoch == 2) {
			wire_expect(UC | SEND_ONLY, 1);
			waited(began, HEARD_MAX);
		} else {
			say_with(RXE_MIGR_FLAG_HEARD, RXE_MIGR_OPCODE_RESUME, qp, epoch);
			while (!sent || !answers) {
				CHECK(wire_any(&p, PATIENCE * 1000));
				if (p.opcode == (UC | SEND_ONLY))
					sent++;
				else
					answers += p.opcode == RXE_MIGR_OPCODE_RESUME_ACK && !flags_of(&p);
			}
		}
		ends(cq, epoch, IBV_WC_SUCCESS);
		CHECK(!is_paused(qp));
		say(RXE_MIGR_OPCODE_RESUME, qp, epoch);
		answered(RXE_MIGR_OPCODE_RESUME_ACK, qp, epoch);
	}

	stops_again(qp);
	says_heard(qp, cq, region);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		limit = strtoul(argv[1], NULL, 0);
	if (limit > PATIENCE / 2)
		limit = PATIENCE / 2;
	wire_open();
	puts("pauses");
	pauses();
	puts("grace");
	grace();
	puts("unsure");
	unsure();
	puts("extends");
	extends();
	puts("asks");
	asks();
	puts("lease");
	lease();
	return 0;
}
