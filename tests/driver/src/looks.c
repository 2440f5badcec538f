// SPDX-License-Identifier: MIT
/*
 * looks: a process makes and destroys objects as fast as it can, with three threads. Another process looks at its context, and
 * asks for the size of its dump, a thousand times. No call of the first process may fail, and it may leave nothing.
 * looks storm: the context is stopped and goes on all the time, under a running program, as in no checkpoint. The program's
 * calls may fail, but it may leave nothing, and may not hang.
 * looks churn: only the first process, until SIGTERM. Its first line is its PID.
 */
#include <fcntl.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../../programs/dumps.h"

enum { LOOKS = 1000, SMALL = 4096, LARGE = 64 << 20 };

static struct shared {
	volatile bool began, end, ended;
	volatile long rounds;
} *shared;

static struct ibv_context *ctx;

static bool storm;	/* its context is stopped, and goes on, meanwhile: calls that make or change something may fail */

#define MAY_FAIL(cond) CHECK((cond) || storm)

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index } },
	};

	if (storm)
		ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	else
		lead(qp, a, IBV_QPS_RTS);
}

/*
 * Binds a window of type 2, whose record says which QP it belongs to. The bind is waited for: upstream's look-up of a window that
 * is being deallocated may find freed memory (docs/LIMITS.md).
 */
static void bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED, .bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = { .mr = mr, .addr = (uintptr_t)mr->addr, .length = mr->length } },
	};

	struct ibv_wc wc = { 0 };
	int n = 0;

	if (ibv_post_send(qp, &wr, &bad)) {
		MAY_FAIL(false);
		return;
	}
	for (int i = 0; !n && i < 60000; i++, usleep(n ? 0 : 1000))
		CHECK((n = ibv_poll_cq(qp->send_cq, 1, &wc)) >= 0);
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
}

/* Everything that rxe has, each once. */
static void round_of_all(void *memory)
{
	/* If a channel is closed at the moment of a stop, ib_core leaves it until the end of the context. */
	struct ibv_comp_channel *channel = storm ? NULL : ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, channel, 0);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index } };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = { 16, 16, 1, 1, 0 } };
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, memory, SMALL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) : NULL;
	struct ibv_mw *mw = pd ? ibv_alloc_mw(pd, IBV_MW_TYPE_2) : NULL;
	struct ibv_srq *srq = pd ? ibv_create_srq(pd, &srq_attr) : NULL;
	struct ibv_ah *ah = pd ? ibv_create_ah(pd, &ah_attr) : NULL;
	struct ibv_qp *qp = pd && cq ? ibv_create_qp(pd, &attr) : NULL;

	MAY_FAIL(channel && cq && pd && mr && mw && srq && ah && qp);
	if (qp)
		to_rts(qp);
	if (qp && mw && mr)
		bind(qp, mw, mr);
	/* The window goes first, and the QP at once after it: a reader of the window's record still knows the QP. */
	IS(0, mw ? ibv_dealloc_mw(mw) : 0);
	IS(0, qp ? ibv_destroy_qp(qp) : 0);
	IS(0, ah ? ibv_destroy_ah(ah) : 0);
	IS(0, srq ? ibv_destroy_srq(srq) : 0);
	IS(0, mr ? ibv_dereg_mr(mr) : 0);
	IS(0, pd ? ibv_dealloc_pd(pd) : 0);
	IS(0, cq ? ibv_destroy_cq(cq) : 0);
	IS(0, channel ? ibv_destroy_comp_channel(channel) : 0);
}

static void *churn_all(void *memory)
{
	while (!shared->end) {
		round_of_all(memory);
		__atomic_add_fetch(&shared->rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* rdma-core's provider can't do this, but the driver can. */
static void give_to(struct ibv_mr *mr, const struct ibv_pd *pd)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_rereg_mr cmd;
	} to = {
		{ IB_USER_VERBS_CMD_REREG_MR, sizeof(to) / 4, sizeof(resp) / 4 },
		{ .response = (uintptr_t)&resp, .mr_handle = mr->handle, .flags = IBV_REREG_MR_CHANGE_PD,
		  .pd_handle = pd->handle },
	};

	CHECK(write(ctx->cmd_fd, &to, sizeof(to)) == sizeof(to));
}

/* A region whose pages take time, and a region that goes from PD to PD, one of which is destroyed. */
static void *churn_regions(void *memory)
{
	struct ibv_pd *first = ibv_alloc_pd(ctx), *second;
	struct ibv_mr *mr, *large;

	CHECK(first);
	CHECK((mr = ibv_reg_mr(first, memory, SMALL, IBV_ACCESS_LOCAL_WRITE)));
	shared->began = true;
	while (!shared->end) {
		MAY_FAIL((large = ibv_reg_mr(first, memory, LARGE, IBV_ACCESS_LOCAL_WRITE)));
		IS(0, large ? ibv_dereg_mr(large) : 0);
		MAY_FAIL((second = ibv_alloc_pd(ctx)));
		if (second && !storm) {
			give_to(mr, second);
			give_to(mr, first);
		}
		IS(0, second ? ibv_dealloc_pd(second) : 0);
	}
	IS(0, ibv_dereg_mr(mr));
	IS(0, ibv_dealloc_pd(first));
	return NULL;
}

static void churn(void)
{
	uint8_t *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t all[2], regions;

	CHECK(memory != MAP_FAILED);
	memset(memory, 1, LARGE);
	IS(0, pthread_create(&all[0], NULL, churn_all, memory));
	IS(0, pthread_create(&all[1], NULL, churn_all, memory + SMALL));
	IS(0, pthread_create(&regions, NULL, churn_regions, memory));
	IS(0, pthread_join(all[0], NULL));
	IS(0, pthread_join(all[1], NULL));
	IS(0, pthread_join(regions, NULL));
	printf("%ld rounds%s\n", shared->rounds, storm ? "" : ", and no call failed");
	fflush(stdout);
	shared->ended = true;
}

static void open_context(void)
{
	ctx = open_device();
	find_gid(ctx, NULL);
}

static void own(int ready)
{
	open_context();
	CHECK(write(ready, &ctx->cmd_fd, sizeof(ctx->cmd_fd)) == sizeof(ctx->cmd_fd));
	churn();
	for (;;)
		pause();
}

/* ------------------------------------------------------------------------ */

static void died(int sig)
{
	(void)sig;
	_exit(1);
}

static int files_in(const struct dump *d)
{
	const struct rxe_migr_rec *rec = NULL;
	int n = 0;

	while ((rec = next(d, rec)))
		n += type_of(rec) == RXE_MIGR_REC_ASYNC_FILE || type_of(rec) == RXE_MIGR_REC_COMP_CHANNEL;
	CHECK(!errno);
	return n;
}

static void look(struct ibv_context *attached, char *buf, size_t size)
{
	struct dump d = { .buf = buf, .size = size };
	struct rxe_migr_event_fd file;
	struct rxe_migr_query query;
	int room;

	IS(ENOSPC, ibv_dump_context(attached, &room, NULL, 0));
	CHECK(room > 0);
	IS(0, ibv_inspect_context(attached, &d.count, buf, size));
	CHECK(files_in(&d) >= 1);
	IS(0, ibv_query_migration(attached, &query));
	IS(ENOENT, ibv_query_event_fd(attached, 0, &file));
}

static void stop_and_go(struct ibv_context *attached)
{
	struct dump d = take(attached, ibv_dump_context);

	free(d.buf);
	IS(0, ibv_abort_context(attached));
}

static void looks(int times)
{
	static char buf[1 << 20];
	struct ibv_context *attached = start_owner(own);
	struct dump d;
	long before;

	/* the other process has printed the reason */
	signal(SIGCHLD, died);
	while (!shared->began)
		usleep(1000);
	for (int i = 0; i < times; i++) {
		before = shared->rounds;
		if (storm)
			stop_and_go(attached);
		else
			look(attached, buf, sizeof(buf));
		while (shared->rounds == before)
			usleep(100);
	}
	shared->end = true;
	while (!shared->ended)
		usleep(1000);
	d = take(attached, ibv_inspect_context);
	IS(1, files_in(&d));	/* the context's own */
	IS(2, d.count);		/* the records of this file, and of the context */
	free(d.buf);
	signal(SIGCHLD, SIG_DFL);
	end_owner(attached);
}

static void told(int sig)
{
	(void)sig;
	shared->end = true;
}

int main(int argc, char **argv)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	if (argc == 2 && !strcmp(argv[1], "churn")) {
		signal(SIGTERM, told);
		open_context();
		printf("%d\n", getpid());
		fflush(stdout);
		churn();
	} else if (argc == 2 && !strcmp(argv[1], "storm")) {
		storm = true;
		looks(LOOKS / 5);
	} else {
		looks(LOOKS);
	}
	return 0;
}
