// SPDX-License-Identifier: MIT
/*
 * modify_stopped: a program that runs before its context goes on, as after a checkpoint, and modifies a queue pair. The verb waits
 * for the context, also when a signal comes. If the context stays stopped, the verb fails in the end.
 */
#include <pthread.h>
#include <signal.h>
#include "../../programs/dumps.h"

static struct ibv_qp *qp;

static struct caller {
	pthread_t thread;
	int result;
	volatile bool done;
} caller;

static struct ibv_context *make(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);

	CHECK(pd && (init.send_cq = init.recv_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0)));
	CHECK((qp = ibv_create_qp(pd, &init)));
	return ctx;
}

static int to_init(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void *call(void *unused)
{
	caller.result = to_init();
	caller.done = true;
	return unused;
}

static void ignore(int signal)
{
	(void)signal;
}

int main(void)
{
	struct ibv_context *ctx = make();
	struct dump d = take(ctx, ibv_dump_context);
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	double begin;

	CHECK(!sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = ignore }, NULL)); /* no SA_RESTART */
	begin = now();
	CHECK(!pthread_create(&caller.thread, NULL, call, NULL));
	usleep(100000);
	CHECK(!pthread_kill(caller.thread, SIGUSR1));
	usleep(100000);
	if (now() - begin < 0.9)
		CHECK(!caller.done);
	IS(0, ibv_abort_context(ctx));
	CHECK(!pthread_join(caller.thread, NULL));
	if (caller.result && now() - begin > 0.9) {
		fprintf(stderr, "modify_stopped: the machine is too slow\n");
		return 75;
	}
	IS(0, caller.result);
	IS(0, ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	CHECK(a.qp_state == IBV_QPS_INIT);

	free(d.buf);
	d = take(ctx, ibv_dump_context);
	begin = now();
	IS(EBUSY, to_init());
	CHECK(now() - begin >= 0.9);
	IS(0, ibv_abort_context(ctx));
	IS(0, to_init());
	puts("it waits for the context, for a second");
	return 0;
}
