// SPDX-License-Identifier: MIT
/*
 * query_stopped: what ibv_query_qp() says of queue pairs that are asked whether they know the protocol, are stopped, or are
 * paused because their peer is stopped.
 *
 * Two contexts of this process: one is stopped; the other's queue pairs are connected to it. There is one
 * pair in each state. A thread queries all of them before, while one context is stopped, and after.
 * The answers must be the same, and the driver must say that what should be stopped and paused was. Each peer answers the stop,
 * and for a peer that has ended its host answers.
 */
#include <pthread.h>

#include "../../programs/dumps.h"

/* The state of a pair's end in the context that is stopped; the other end is in RTS, or the same. */
static const enum ibv_qp_state states[] = {
	IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR,
};
enum { PAIRS = sizeof(states) / sizeof(states[0]) };

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[PAIRS];
};
static struct end ends[2];

struct answer {
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
};

static void make(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 9, .max_send_sge = 2, .max_recv_sge = 3,
			 .max_inline_data = 40 },
	};

	e->ctx = open_device();
	find_gid(e->ctx, NULL);
	CHECK((e->pd = ibv_alloc_pd(e->ctx)) && (e->cq = ibv_create_cq(e->ctx, 10, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = e->cq;
	for (int i = 0; i < PAIRS; i++)
		CHECK((e->qp[i] = ibv_create_qp(e->pd, &init)));
}

static void lead_to(struct ibv_qp *qp, uint32_t to, enum ibv_qp_state last)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = to, .rq_psn = 0x123456, .sq_psn = 0x123456,
		.max_dest_rd_atomic = 5, .max_rd_atomic = 3, .min_rnr_timer = 14, .timeout = 11, .retry_cnt = 4,
		.rnr_retry = 2,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 9, .traffic_class = 16,
				      .flow_label = 0x54321 } },
	};

	lead(qp, a, last);
}

static void *query_all(void *answers)
{
	struct answer *a = answers;

	memset(a, 0, 2 * PAIRS * sizeof(*a));
	for (int e = 0; e < 2; e++)
		for (int i = 0; i < PAIRS; i++, a++)
			IS(0, ibv_query_qp(ends[e].qp[i], &a->attr, IBV_QP_DEST_QPN * 2 - 1, &a->init));
	return NULL;
}

static void query_in_thread(struct answer *answers)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, query_all, answers));
	pthread_join(thread, NULL);
}

static void compare_answers(const char *when, const struct answer *was, const struct answer *is)
{
	for (int e = 0; e < 2; e++)
		for (int i = 0; i < PAIRS; i++, was++, is++) {
			const struct ibv_qp_attr *a = &was->attr, *b = &is->attr;

			if (memcmp(was, is, sizeof(*was)))
				DIE("%s, end %d, pair %d: state %d, then %d; sq_psn 0x%x, 0x%x; rq_psn 0x%x, 0x%x; dest 0x%x, 0x%x; first difference at byte %d",
				    when, e, i, a->qp_state, b->qp_state, a->sq_psn, b->sq_psn, a->rq_psn, b->rq_psn,
				    a->dest_qp_num, b->dest_qp_num, (int)({ size_t n = 0;
					while (((char *)was)[n] == ((char *)is)[n]) n++; n; }));
		}
}

/* In what state the driver has a queue pair. */
static int migration_state(struct ibv_qp *qp)
{
	struct rxe_migr_status st[100];
	int count;

	IS(0, ibv_query_device_migration(ends[0].ctx, &count, st, 100));
	for (int i = 0; i < count; i++)
		if (st[i].qpn == qp->qp_num && !st[i].tombstone)
			return st[i].state;
	return RXE_MIGR_QP_RUNNING;
}

static bool connected(int i)
{
	return states[i] == IBV_QPS_RTR || states[i] == IBV_QPS_RTS || states[i] == IBV_QPS_SQD;
}

/* Waits until all connected peers of end 0 are in this state; those of end 1 must not change. */
static void await_state(int state)
{
	int wrong = 0;

	for (int try = 0; try < 6000; try++) {
		wrong = 0;
		for (int i = 0; i < PAIRS; i++)
			wrong += migration_state(ends[1].qp[i]) !=
				 (connected(i) ? state : RXE_MIGR_QP_RUNNING);
		if (!wrong)
			return;
		usleep(10000);
	}
	DIE("%d peers have not become %s", wrong, state == RXE_MIGR_QP_PAUSED ? "paused" : "running");
}

static unsigned int unknown_to(int e)
{
	struct rxe_migr_query query;

	IS(0, ibv_query_migration(ends[e].ctx, &query));
	CHECK(query.state == RXE_MIGR_CTX_RUNNING && query.num_qp == PAIRS && !query.num_resuming);
	return query.num_unknown;
}

static void await_answers(void)
{
	for (int try = 0; unknown_to(0); try++) {
		CHECK(try < 6000);
		usleep(10000);
	}
}

/* The peers of end 0 say that they know the protocol. Those of end 1, which were asked, know no more than before. */
static void ask_peers(unsigned int connections)
{
	struct rxe_migr_query query;

	CHECK(unknown_to(0) == connections && unknown_to(1) == connections);
	IS(0, ibv_ask_peers(ends[0].ctx, &query));
	CHECK(query.num_unknown == connections);
	await_answers();
	CHECK(unknown_to(1) == connections);
	IS(0, ibv_ask_peers(ends[0].ctx, &query));	/* there is nobody to ask */
	CHECK(!query.num_unknown);
	/* all anew; the peers may answer before the call is over, but not all */
	IS(0, ibv_ask_peers_anew(ends[0].ctx, &query));
	CHECK(query.num_unknown);
	await_answers();
	await_state(RXE_MIGR_QP_RUNNING);
}

/* All peers of end 0, which is stopped, have answered, or somebody has for them. */
static void await_nobody_silent(void)
{
	struct rxe_migr_query query;

	for (int try = 0; try < 6000; try++) {
		IS(0, ibv_query_migration(ends[0].ctx, &query));
		CHECK(query.state == RXE_MIGR_CTX_STOPPED);
		if (!query.num_silent)
			return;
		usleep(10000);
	}
	DIE("the peers of %u queue pairs are silent, for example that of %u", query.num_silent, query.silent_qpn);
}

int main(void)
{
	static struct answer before[2 * PAIRS], during[2 * PAIRS], after[2 * PAIRS];
	int count = 0, connections = 0, size = 1 << 20, i;
	void *dump = malloc(size);

	make(&ends[0]);
	make(&ends[1]);
	for (i = 0; i < PAIRS; i++) {
		lead_to(ends[0].qp[i], ends[1].qp[i]->qp_num, states[i]);
		lead_to(ends[1].qp[i], ends[0].qp[i]->qp_num, connected(i) ? IBV_QPS_RTS : states[i]);
		connections += connected(i);
	}
	query_in_thread(before);
	for (i = 0; i < PAIRS; i++)
		CHECK(before[i].attr.qp_state == states[i]);

	ask_peers(connections);
	query_in_thread(after);
	compare_answers("asked", before, after);

	for (int time = 0; time < 3; time++) {
		IS(0, ibv_dump_context(ends[0].ctx, &count, dump, size));
		await_state(RXE_MIGR_QP_PAUSED);
		await_nobody_silent();
		for (i = 0; i < PAIRS; i++)
			CHECK(migration_state(ends[0].qp[i]) == RXE_MIGR_QP_STOPPED);
		query_in_thread(during);
		compare_answers("stopped", before, during);

		IS(0, ibv_abort_context(ends[0].ctx));
		await_state(RXE_MIGR_QP_RUNNING);
		query_in_thread(after);
		compare_answers("gone on", before, after);
	}

	/* One peer has failed, and one is gone. */
	CHECK(!ibv_modify_qp(ends[1].qp[2], &(struct ibv_qp_attr) { .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
	IS(0, ibv_destroy_qp(ends[1].qp[3]));
	ends[1].qp[3] = NULL;
	IS(0, ibv_dump_context(ends[0].ctx, &count, dump, size));
	await_nobody_silent();

	for (int e = 0; e < 2; e++) {
		for (i = 0; i < PAIRS; i++)
			if (ends[e].qp[i])
				IS(0, ibv_destroy_qp(ends[e].qp[i]));
		CHECK(!ibv_destroy_cq(ends[e].cq) && !ibv_dealloc_pd(ends[e].pd) && !ibv_close_device(ends[e].ctx));
	}
	puts("the same before, during and after");
	return 0;
}
