// SPDX-License-Identifier: MIT
/*
 * faults NAME: faults of upstream's rxe that ours does not have, one at a time. Ends with a line about what is wrong, or with 0.
 * All queue pairs are connected over the loopback, in this process.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "../../programs/dumps.h"

enum { PAGE = 4096, PAGES = 4 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static uint8_t *memory;
static struct ibv_mr *mr;

/* Two queue pairs, each the other's peer: 0 asks, 1 answers. */
struct pair {
	struct ibv_cq *cq[2], *recv_cq[2];
	struct ibv_qp *qp[2];
};

static void open_context(void)
{
	ctx = open_device();
	CHECK((pd = ibv_alloc_pd(ctx)));
	find_gid(ctx, NULL);
	CHECK(!posix_memalign((void **)&memory, PAGE, PAGES * PAGE));
	memset(memory, 0, PAGES * PAGE);
	CHECK((mr = ibv_reg_mr(pd, memory, PAGES * PAGE,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)));
}

static void connect_pair(struct pair *p, int access)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr a = {
			.port_num = 1, .qp_access_flags = access, .path_mtu = IBV_MTU_1024,
			.dest_qp_num = p->qp[!i]->qp_num, .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 31,
			.retry_cnt = 1, .rnr_retry = 7,
			.ah_attr = { .is_global = 1, .port_num = 1,
				     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 } },
		};

		lead(p->qp[i], a, IBV_QPS_RTS);
	}
}

static struct pair pair(enum ibv_qp_type type, int recv_cqe, int access)
{
	struct pair p;

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = type, .sq_sig_all = 1,
			.cap = { .max_send_wr = 300, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		};

		CHECK((p.cq[i] = init.send_cq = ibv_create_cq(ctx, 300, NULL, NULL, 0)));
		CHECK((p.recv_cq[i] = init.recv_cq = ibv_create_cq(ctx, recv_cqe, NULL, NULL, 0)));
		CHECK((p.qp[i] = ibv_create_qp(pd, &init)));
	}
	connect_pair(&p, access);
	return p;
}

static void destroy_pair(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		IS(0, ibv_destroy_qp(p->qp[i]));
		IS(0, ibv_destroy_cq(p->cq[i]));
		IS(0, ibv_destroy_cq(p->recv_cq[i]));
	}
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, size_t len, uint32_t rkey, const void *remote)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = len, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.opcode = opcode, .sg_list = &sge, .num_sge = len ? 1 : 0,
		.wr.rdma = { .remote_addr = (uintptr_t)remote, .rkey = rkey },
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	}
	IS(0, ibv_post_send(qp, &wr, &bad));
}

static void post_recv(struct ibv_qp *qp)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = PAGE, .lkey = mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	IS(0, ibv_post_recv(qp, &wr, &bad));
}

static enum ibv_wc_status completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1);
	return wc.status;
}

/* A region is deregistered while a queue pair whose CQ has overflowed is there. */
static void overflow(void)
{
	struct pair p = pair(IBV_QPT_RC, 1, IBV_ACCESS_REMOTE_WRITE);
	uint8_t *target;
	struct ibv_mr *target_mr;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;

	CHECK(!posix_memalign((void **)&target, PAGE, PAGE));
	CHECK((target_mr = ibv_reg_mr(pd, target, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	for (int i = 0; i < 4; i++)
		post_recv(p.qp[1]);
	for (int i = 0; i < 4; i++)
		post(p.qp[0], IBV_WR_RDMA_WRITE_WITH_IMM, 8, target_mr->rkey, target);
	do
		IS(0, ibv_query_qp(p.qp[1], &a, IBV_QP_STATE, &init));
	while (a.qp_state != IBV_QPS_ERR);
	IS(0, ibv_dereg_mr(target_mr));
	destroy_pair(&p);
}

static struct ibv_mw *bind_window(struct ibv_qp *qp, struct ibv_cq *cq, size_t from, size_t len, bool zero_based)
{
	int flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_BIND_MW };

	CHECK(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info) {
		.mr = mr, .addr = (uintptr_t)memory + from, .length = len,
		.mw_access_flags = flags | (zero_based ? IBV_ACCESS_ZERO_BASED : 0),
	};
	IS(0, ibv_post_send(qp, &wr, &bad));
	mw->rkey = wr.bind_mw.rkey;
	IS(IBV_WC_SUCCESS, completion(cq));
	return mw;
}

/* A peer accesses memory around a window, in the region that the window is bound to. */
static void window(void)
{
	static const struct { long from, len; } tries[] = {
		{ 0, 8 }, { 64, PAGE - 64 }, { PAGE - 8, 8 }, /* these are inside */
		{ -8, 8 }, { -8, 16 }, { PAGE - 8, 16 }, { PAGE, 8 }, { PAGE, PAGE }, { 2 * PAGE, 8 },
		{ -PAGE, 8 }, { -PAGE, 3 * PAGE },
	};
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	enum { INSIDE = 3 };

	for (unsigned int zero = 0; zero < 2; zero++)
		for (unsigned int o = 0; o < 3; o++)
			for (unsigned int t = 0; t < sizeof(tries) / sizeof(tries[0]); t++) {
				struct pair p = pair(IBV_QPT_RC, 8, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						     IBV_ACCESS_REMOTE_ATOMIC);
				struct ibv_mw *mw = bind_window(p.qp[1], p.cq[1], PAGE, PAGE, zero);
				uint8_t *begin = zero ? NULL : memory + PAGE;
				size_t len = opcodes[o] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : tries[t].len;
				bool right = t < INSIDE || (len == 8 && tries[t].from >= 0 && tries[t].from <= PAGE - 8);
				enum ibv_wc_status s;

				post(p.qp[0], opcodes[o], len, mw->rkey, begin + tries[t].from);
				s = completion(p.cq[0]);
				if (s != (right ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR))
					DIE("opcode %d, %zu bytes at %ld of %d, zero-based %u: %s", opcodes[o], len,
					    tries[t].from, PAGE, zero, ibv_wc_status_str(s));
				IS(0, ibv_dealloc_mw(mw));
				destroy_pair(&p);
			}
}

static int rnr_naks(void) /* that the device has received */
{
	char path[200];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/rcvd_rnr_err",
		 ibv_get_device_name(ctx->device));
	CHECK((f = fopen(path, "r")) && fscanf(f, "%d", &n) == 1);
	fclose(f);
	return n;
}

/* A queue pair with unanswered requests goes to RESET, and is used again. */
static void reset(void)
{
	struct pair p = pair(IBV_QPT_RC, 8, 0);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	int before = rnr_naks();

	for (int i = 0; i < 4; i++)
		post(p.qp[0], IBV_WR_SEND, 8, 0, NULL);
	while (rnr_naks() == before)
		;
	usleep(50000); /* a task that still runs hides the fault */
	for (int i = 0; i < 2; i++)
		IS(0, ibv_modify_qp(p.qp[i], &a, IBV_QP_STATE));
	connect_pair(&p, 0);
	post_recv(p.qp[1]);
	post(p.qp[0], IBV_WR_SEND, 8, 0, NULL);
	IS(IBV_WC_SUCCESS, completion(p.cq[0]));
	IS(IBV_WC_SUCCESS, completion(p.recv_cq[1]));
	destroy_pair(&p);
}

enum { MUCH = 512 << 20 };

/* Registers 512 MiB, which are the same 2 MiB again and again. */
static void register_much(int access)
{
	const size_t part = 2 << 20;
	int fd = memfd_create("faults", 0);

	CHECK(fd >= 0 && !ftruncate(fd, part));
	memory = mmap(NULL, MUCH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	for (size_t at = 0; at < MUCH; at += part)
		CHECK(mmap(memory + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
	CHECK((mr = ibv_reg_mr(pd, memory, MUCH, access)));
}

/* A program is killed that has 128 GiB to send. */
static void killed(void)
{
	int ready[2];
	char c;
	pid_t child;

	CHECK(!pipe(ready) && (child = fork()) >= 0);
	if (!child) {
		struct pair p;

		open_context();
		register_much(0);
		p = pair(IBV_QPT_UC, 8, 0);
		for (int i = 0; i < 256; i++)
			post(p.qp[0], IBV_WR_RDMA_WRITE, MUCH, 1, memory);
		CHECK(write(ready[1], "", 1) == 1);
		for (;;)
			pause();
	}
	CHECK(read(ready[0], &c, 1) == 1);
	CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
}

static int addresses(void) /* how many group addresses the host's links listen to */
{
	FILE *f = fopen("/proc/net/dev_mcast", "r");
	int n = 0;

	CHECK(f);
	for (int c; (c = getc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
}

static struct ibv_qp *datagrams(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr a = { .port_num = 1, .qkey = 1 };
	struct ibv_qp *qp;

	CHECK(cq && (qp = ibv_create_qp(pd, &init)));
	lead(qp, a, IBV_QPS_RTS);
	return qp;
}

static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 0x77 } };

/* The last member of a group leaves it. */
static void leave(void)
{
	struct ibv_qp *qp = datagrams();
	int before = addresses();

	IS(0, ibv_attach_mcast(qp, &group, 0));
	IS(before + 1, addresses());
	IS(0, ibv_detach_mcast(qp, &group, 0));
	IS(before, addresses());
	IS(0, ibv_destroy_qp(qp));
}

/* A member joins its group twice, with different LIDs, and leaves it twice. */
static void twice(void)
{
	struct ibv_qp *qp = datagrams();
	int before = addresses();

	for (int lid = 0; lid < 2; lid++)
		IS(0, ibv_attach_mcast(qp, &group, lid));
	IS(0, ibv_detach_mcast(qp, &group, 0));
	IS(before + 1, addresses());
	IS(0, ibv_detach_mcast(qp, &group, 1));
	IS(before, addresses());
	IS(0, ibv_destroy_qp(qp));
}

static void *come_and_go(void *arg)
{
	struct ibv_qp *qp = arg;

	for (int i = 0; i < 3000; i++) {
		IS(0, ibv_attach_mcast(qp, &group, 0));
		IS(0, ibv_detach_mcast(qp, &group, 0));
	}
	return NULL;
}

/* Two members join and leave all the time. */
static void members(void)
{
	int before = addresses();
	struct ibv_qp *qp[2];
	pthread_t thread[2];

	for (int i = 0; i < 2; i++) {
		qp[i] = datagrams();
		CHECK(!pthread_create(&thread[i], NULL, come_and_go, qp[i]));
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 2; i++)
		IS(0, ibv_destroy_qp(qp[i]));
	IS(before, addresses());
}

/* The program's device goes while the program has it open, and writes into a region that is newer than its queue pairs. */
static void device(void)
{
	enum { WRITES = 8, RECEIVES = 4 };
	struct ibv_qp *member = datagrams();
	struct pair p = pair(IBV_QPT_RC, 8, IBV_ACCESS_REMOTE_WRITE);
	enum ibv_wc_status last = IBV_WC_SUCCESS;
	char command[100];

	register_much(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	for (int i = 0; i < RECEIVES; i++)
		post_recv(p.qp[1]);
	for (int i = 0; i < WRITES; i++)
		post(p.qp[0], IBV_WR_RDMA_WRITE, MUCH, mr->rkey, memory);
	for (int lid = 0; lid < 2; lid++)
		IS(0, ibv_attach_mcast(member, &group, lid));

	snprintf(command, sizeof(command), "exec rdma link del %s", ibv_get_device_name(ctx->device));
	IS(0, system(command));

	/* The first writes may be done. */
	for (int i = 0; i < WRITES; i++) {
		enum ibv_wc_status s = completion(p.cq[0]);

		if (s != IBV_WC_SUCCESS || last != IBV_WC_SUCCESS)
			IS(IBV_WC_WR_FLUSH_ERR, s);
		last = s;
	}
	IS(IBV_WC_WR_FLUSH_ERR, last);
	for (int i = 0; i < RECEIVES; i++)
		IS(IBV_WC_WR_FLUSH_ERR, completion(p.recv_cq[1]));
}

static const char *argument;

/* A peer asks to invalidate a region whose key it knows. */
static void invalidate(void)
{
	struct pair p = pair(IBV_QPT_RC, 8, 0);
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = strtoul(argument, NULL, 0),
	};

	post_recv(p.qp[1]);
	IS(0, ibv_post_send(p.qp[0], &wr, &bad));
	IS(IBV_WC_REM_INV_REQ_ERR, completion(p.recv_cq[1]));
	destroy_pair(&p);
}

/* IPv6 is switched off, and a program sends from the GID that still exists. */
static void ipv6(void)
{
	struct pair p;

	for (gid_index = 0; gid.raw[0] != 0xfe; gid_index++)
		CHECK(!ibv_query_gid(ctx, 1, gid_index, &gid));
	gid_index--;
	gid = group; /* the kernel need not ask for a group's address */
	p = pair(IBV_QPT_UC, 8, 0);
	post(p.qp[0], IBV_WR_SEND, 8, 0, NULL);
	IS(IBV_WC_SUCCESS, completion(p.cq[0]));
	destroy_pair(&p);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } all[] = {
		{ "overflow", overflow }, { "window", window }, { "reset", reset }, { "killed", killed },
		{ "leave", leave }, { "twice", twice }, { "members", members }, { "device", device },
		{ "invalidate", invalidate }, { "ipv6", ipv6 },
	};

	argument = argc == 3 ? argv[2] : "";
	for (unsigned int i = 0; argc >= 2 && i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].name, argv[1])) {
			if (all[i].run != killed)
				open_context();
			all[i].run();
			return 0;
		}
	DIE("usage: faults overflow|window|reset|killed|leave|twice|members|device|invalidate KEY|ipv6");
}
