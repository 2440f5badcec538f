// SPDX-License-Identifier: MIT
/*
 * wqe_fuzz [--seed N] [--seconds N]: posts work of all kinds on RC and UD queue pairs, while two threads change the send WQEs.
 *
 * They change one number of a WQE that the driver may be working on to a bad value and back, as fast as they can. So the driver
 * may use another value than it has checked. The kernel must live, and must be able to destroy the queue pairs; its log tells the
 * rest. At last a thread pretends that there is always more to be flushed.
 */
#include <getopt.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_user_rxe.h>

#include "../../programs/random.h"

#define DIE(...) (fprintf(stderr, "wqe_fuzz: " __VA_ARGS__), fputc('\n', stderr), exit(1))

enum { NUM_QP = 6, NUM_RC = 4, DEPTH = 16, NUM_SGE = 3, INLINE = 64, LOG2_WQE = 9, MEM_SIZE = 1 << 16, QKEY = 7 };

static uint64_t seed, seconds = 10;
static bool stop;
static struct rxe_queue_buf *rings[NUM_QP];
static unsigned num_rings;
static struct rxe_av own_av;			/* as an old provider puts it into a WQE */

/* ------------------------------------------------------------------ rings -- */

/* librxe tells nobody where its rings are. Only send queues have WQEs of this size. */
static void find_rings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long start;
	char line[512];

	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, "uverbs") || sscanf(line, "%lx", &start) != 1)
			continue;
		if (((struct rxe_queue_buf *)start)->log2_elem_size == LOG2_WQE && num_rings < NUM_QP)
			rings[num_rings++] = (void *)start;
	}
	fclose(f);
	if (num_rings != NUM_QP)
		DIE("%u rings of %u queue pairs", num_rings, NUM_QP);
}

#define AT(field) offsetof(struct rxe_send_wqe, field)

static const size_t often[] = {
	AT(dma.num_sge), AT(dma.cur_sge), AT(dma.sge_offset), AT(dma.resid), AT(dma.length), AT(wr.opcode),
	AT(wr.send_flags), AT(wr.wr.mw.length), AT(wr.wr.ud.ah_num), AT(wr.wr.ud.av.network_type) & ~3ul,
};

static uint32_t bad_value(size_t at)
{
	if (at == AT(wr.opcode) && below(4))
		return below(18);
	if (at == AT(wr.send_flags))
		return below(32);
	if (at == AT(state) || at == AT(wr.wr.ud.av.network_type) / 4 * 4)
		return below(6) << (at == AT(state) ? 0 : 8);
	if (at == AT(wr.wr.mw.length) || at == AT(wr.wr.ud.ah_num))
		return 0;
	return edge_of(32);
}

static void *scribble(void *arg)
{
	size_t from = AT(wr.opcode), to = AT(dma.sge) + NUM_SGE * sizeof(struct rxe_sge);

	rng = seed ^ *(const uint64_t *)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct rxe_queue_buf *ring = rings[below(NUM_QP)];
		uint32_t index = (__atomic_load_n(&ring->consumer_index, __ATOMIC_RELAXED) + below(3)) & ring->index_mask;
		struct rxe_send_wqe *wqe = (void *)(ring->data + ((size_t)index << LOG2_WQE));
		size_t at = below(4) ? often[below(sizeof(often) / sizeof(often[0]))] : from + below((to - from) / 4) * 4;
		uint32_t *p = (uint32_t *)((char *)wqe + at), bad = bad_value(at), good;

		if (at == AT(wr.wr.ud.ah_num) || at == (AT(wr.wr.ud.av.network_type) & ~3ul))
			wqe->wr.wr.ud.av = own_av;
		good = __atomic_load_n(p, __ATOMIC_RELAXED);
		for (unsigned n = below(400); n; n--) {
			__atomic_store_n(p, bad, __ATOMIC_RELAXED);
			__atomic_store_n(p, good, __ATOMIC_RELAXED);
		}
		if (below(16) == 0)
			__atomic_store_n(p, bad, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Fills the rings again and again: a driver that goes on until a ring is empty never ends. */
static void *refill(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		for (unsigned i = 0; i < NUM_QP; i++) {
			uint32_t cons = __atomic_load_n(&rings[i]->consumer_index, __ATOMIC_RELAXED);

			__atomic_store_n(&rings[i]->producer_index, (cons - 1) & rings[i]->index_mask, __ATOMIC_RELAXED);
		}
	return arg;
}

/* ------------------------------------------------------------------- work -- */

static uint8_t *memory;
static union ibv_gid gid;
static int gid_index;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_mw *mw;
static struct ibv_ah *ah;
static struct ibv_qp *qps[NUM_QP];

/* Errors are allowed from here on, since any work that a WQE describes may have been done. */
static void connect_qp(unsigned i)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RESET, .port_num = 1, .path_mtu = IBV_MTU_256, .qkey = QKEY,
		.dest_qp_num = qps[i ^ 1]->qp_num, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 8, .retry_cnt = 7,
		.rnr_retry = 2,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 } },
	};
	bool rc = i < NUM_RC;

	ibv_modify_qp(qps[i], &a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_INIT;
	ibv_modify_qp(qps[i], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (rc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qps[i], &a, !rc ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(qps[i], &a, !rc ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
		      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void set_up(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = DEPTH - 1, .max_recv_wr = DEPTH - 1, .max_send_sge = NUM_SGE,
			 .max_recv_sge = 1, .max_inline_data = INLINE },
	};
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	ctx = list && *list ? ibv_open_device(*list) : NULL;
	if (!ctx)
		DIE("no device");
	ibv_free_device_list(list);
	for (gid_index = 0; !ibv_query_gid(ctx, 1, gid_index, &gid); gid_index++)
		if (gid.raw[10] == 0xff && gid.raw[11] == 0xff)
			break;
	own_av = (struct rxe_av){ .port_num = 1, .network_type = RXE_NETWORK_TYPE_IPV4,
				  .grh = { .sgid_index = gid_index, .hop_limit = 4 } };
	own_av.sgid_addr._sockaddr_in.sin_family = AF_INET;
	memcpy(&own_av.sgid_addr._sockaddr_in.sin_addr, gid.raw + 12, 4);
	own_av.dgid_addr = own_av.sgid_addr;
	attr.grh = (struct ibv_global_route){ .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 };

	memory = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 4 * NUM_QP * DEPTH, NULL, NULL, 0);
	ah = ibv_create_ah(pd, &attr);
	mr = ibv_reg_mr(pd, memory, MEM_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	if (!cq || !ah || !mr || !mw)
		DIE("no object");
	init.send_cq = init.recv_cq = cq;
	for (unsigned i = 0; i < NUM_QP; i++) {
		init.qp_type = i < NUM_RC ? IBV_QPT_RC : IBV_QPT_UD;
		qps[i] = ibv_create_qp(pd, &init);
		if (!qps[i])
			DIE("no queue pair");
	}
	for (unsigned i = 0; i < NUM_QP; i++)
		connect_qp(i);
}

static void post(unsigned i)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct ibv_sge recv_sge = { (uintptr_t)memory, MEM_SIZE, mr->lkey }, sge[NUM_SGE];
	struct ibv_recv_wr *bad_recv, recv = { .sg_list = &recv_sge, .num_sge = 1 };
	struct ibv_send_wr *bad_send, send = { .sg_list = sge, .num_sge = NUM_SGE, .send_flags = IBV_SEND_SIGNALED };
	uint32_t length = i >= NUM_RC ? 16 : 1 + below(2048);

	ibv_post_recv(qps[i ^ 1], &recv, &bad_recv);
	if (i < NUM_RC && below(8) == 0) {
		struct ibv_mw_bind bind = {
			.bind_info = { .mr = mr, .addr = (uintptr_t)memory, .length = 64,
				       .mw_access_flags = IBV_ACCESS_REMOTE_READ },
		};

		ibv_bind_mw(qps[i], mw, &bind);
		return;
	}
	send.opcode = i < NUM_RC ? opcodes[below(sizeof(opcodes) / sizeof(opcodes[0]))] : IBV_WR_SEND;
	if (send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		send.num_sge = 1;
		length = 8;
		send.wr.atomic.remote_addr = (uintptr_t)memory;
		send.wr.atomic.rkey = mr->rkey;
	} else if (i < NUM_RC) {
		send.wr.rdma.remote_addr = (uintptr_t)memory;
		send.wr.rdma.rkey = mr->rkey;
	} else {
		send.wr.ud.ah = ah;
		send.wr.ud.remote_qpn = qps[i ^ 1]->qp_num;
		send.wr.ud.remote_qkey = QKEY;
	}
	if (send.opcode != IBV_WR_RDMA_READ && send.opcode != IBV_WR_ATOMIC_FETCH_AND_ADD && below(4) == 0) {
		send.send_flags |= IBV_SEND_INLINE;
		length = 1 + below(INLINE / NUM_SGE);
	}
	for (int n = 0; n < NUM_SGE; n++)
		sge[n] = (struct ibv_sge){ (uintptr_t)memory + below(MEM_SIZE / 2), length, mr->lkey };
	ibv_post_send(qps[i], &send, &bad_send);
}

static void reconnect(unsigned i)
{
	ibv_dealloc_mw(mw);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	if (!mw)
		DIE("no memory window");
	i &= ~1;
	connect_qp(i);
	connect_qp(i + 1);
}

static void work(void)
{
	uint64_t done = 0, failed = 0, again = 0;
	time_t end = time(NULL) + seconds;
	struct ibv_wc wc[16];
	bool broken[NUM_QP];

	while (time(NULL) < end) {
		memset(broken, 0, sizeof(broken));
		for (unsigned n = 0; n < 64; n++)
			post(below(NUM_QP));
		usleep(below(3) * 500);
		for (int n; (n = ibv_poll_cq(cq, 16, wc)) > 0; )
			while (n--) {
				done += !wc[n].status;
				failed += !!wc[n].status;
				for (unsigned i = 0; i < NUM_QP; i++)
					broken[i] |= wc[n].status && qps[i]->qp_num == wc[n].qp_num;
			}
		/* Pairs that wait for what never comes are connected again, too. */
		for (unsigned i = 0; i < NUM_QP; i += 2)
			if (broken[i] || broken[i + 1] || below(8) == 0) {
				reconnect(i);
				again++;
			}
	}
	printf("%llu done, %llu failed, connected %llu times\n", (unsigned long long)done, (unsigned long long)failed,
	       (unsigned long long)again);
	if (!done || !failed) {
		fprintf(stderr, "wqe_fuzz: nothing was done, or nothing was changed\n");
		exit(75);	/* so nothing was asked */
	}
}

static void flush(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	time_t end = time(NULL) + 3;

	while (time(NULL) < end)
		for (unsigned i = 0; i < NUM_QP; i++) {
			connect_qp(i);
			ibv_modify_qp(qps[i], &a, IBV_QP_STATE);
		}
}

static void with_threads(unsigned n, void *(*run)(void *), void (*meanwhile)(void))
{
	static const uint64_t salts[] = { 0x5555, 0xaaaa };
	pthread_t threads[2];

	stop = false;
	for (unsigned i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, run, (void *)&salts[i]);
	meanwhile();
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "seed", 1, 0, 's' }, { "seconds", 1, 0, 't' }, { 0 } };
	int c;

	seed = time(NULL);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 't')
			seconds = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	rng = seed;
	set_up();
	find_rings();
	with_threads(2, scribble, work);
	with_threads(1, refill, flush);
	for (unsigned i = 0; i < NUM_QP; i++)
		if (ibv_destroy_qp(qps[i]))
			DIE("queue pair %u is not destroyed", i);
	return 0;
}
