// SPDX-License-Identifier: MIT
/*
 * Both connections lead to the same donor, each with a queue pair, a completion queue with a channel and registered memory of
 * its own. The one by verbs does nothing but post, look at the queue as often as librmem does, arm it and wait.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tests/programs/stray.h"
#include "bench.h"

enum { MOST = 64 << 10, DEPTH = 16, SPINS = 20, BATCHES = 8 };

struct options options = { .port = RMEM_PORT, .patience = 60 };

static struct rmem *rmem;
static uint64_t addr;
static uint8_t *buffer;
static struct link raw;
static struct rmem_wire_region there;

void fail(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

/* ------------------------------------------------------------------ verbs alone */

static void raw_post(bool put, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)raw.data, size, raw.mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = le64toh(there.addr), .rkey = le32toh(there.rkey) },
	};

	if (ibv_post_send(raw.qp, &wr, &bad))
		fail("verbs: a request can't be posted");
}

static unsigned int raw_take(void)
{
	struct ibv_wc wc[DEPTH];
	int n = ibv_poll_cq(raw.cq, DEPTH, wc);

	for (int i = 0; i < n; i++)
		if (wc[i].status)
			fail("verbs: %s", ibv_wc_status_str(wc[i].status));
	if (n < 0)
		fail("verbs: the completion queue can't be read");
	return n;
}

static unsigned int raw_wait(void)
{
	struct ibv_cq *cq;
	void *context;
	unsigned int n;

	for (int i = 0; i < SPINS; i++) {
		n = raw_take();
		if (n)
			return n;
	}
	if (ibv_req_notify_cq(raw.cq, 0))
		fail("verbs: the completion queue can't be armed");
	n = raw_take();
	if (n)
		return n;
	if (ibv_get_cq_event(raw.channel, &cq, &context))
		fail("verbs: no event");
	ibv_ack_cq_events(cq, 1);
	return raw_take();
}

static void raw_do(bool put, uint32_t size, unsigned int depth, uint64_t n)
{
	uint64_t posted = 0, done = 0;

	while (done < n) {
		while (posted < n && posted - done < depth) {
			raw_post(put, size);
			posted++;
		}
		done += raw_wait();
	}
}

/* ------------------------------------------------------------------ librmem */

static int one(bool put, uint32_t size)
{
	return put ? rmem_put(rmem, addr, buffer, size) : rmem_get(rmem, buffer, addr, size);
}

static int begin(bool put, uint32_t size, struct rmem_op *op)
{
	return put ? rmem_put_async(rmem, addr, buffer, size, op) : rmem_get_async(rmem, buffer, addr, size, op);
}

static void rmem_do(bool put, uint32_t size, unsigned int depth, uint64_t n)
{
	struct rmem_op ops[DEPTH] = { 0 };

	if (depth == 1) {
		while (n--)
			if (one(put, size))
				die("put or get");
		return;
	}
	for (uint64_t i = 0; i < n + depth; i++) {
		if (i >= depth && rmem_wait(rmem, &ops[i % depth]))
			die("wait");
		if (i < n && begin(put, size, &ops[i % depth]))
			die("put or get");
	}
}

/* ------------------------------------------------------------------ rows */

typedef void work(bool put, uint32_t size, unsigned int depth, uint64_t n);

static int64_t timed(work *how, bool put, uint32_t size, unsigned int depth, uint64_t n)
{
	int64_t begun = now_ns();

	how(put, size, depth, n);
	return (now_ns() - begun) / (int64_t)n;
}

/*
 * A line for each pair of batches, which are so short that what else the machine does meets both. The two take turns to be first.
 */
static void row(uint64_t round, bool put, uint32_t size, unsigned int depth)
{
	static work *const ways[2] = { rmem_do, raw_do };
	uint64_t n = bench.ops / (size > 4096 ? 4 : 1) / BATCHES;
	int64_t took[2];

	n = (n / DEPTH + 1) * DEPTH;
	for (int i = 0; i < BATCHES; i++) {
		for (int k = 0; k < 2; k++) {
			int way = (i + k) % 2;

			took[way] = timed(ways[way], put, size, depth, n);
		}
		printf("data %llu %s %u %u %lld %lld\n", (unsigned long long)round, put ? "put" : "get", size, depth,
		       (long long)took[0], (long long)took[1]);
	}
	fflush(stdout);
}

void bench_data(void)
{
	static const uint32_t sizes[] = { 64, 512, 4096, 16384, MOST };
	struct who who = { .name = bench.other };
	char *why = NULL;

	options.host = bench.host;
	link_events = true;
	if (rmem_key_read(bench.key, who.key, &why))
		fail("%s", why);
	link_open(&raw, &who);
	there = link_alloc(&raw, 1, MOST);
	rmem = connect_as(bench.client);
	buffer = aligned_alloc(4096, MOST);
	if (!buffer || rmem_alloc(rmem, 1, MOST, 0, &addr) || rmem_register(rmem, buffer, MOST))
		die("a region");
	memset(buffer, 1, MOST);
	for (uint64_t round = 0; round < bench.rounds; round++)
		for (unsigned int i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			for (int way = 0; way < 4; way++)
				row(round, way & 1, sizes[i], way & 2 ? DEPTH : 1);
	link_close(&raw);
	rmem_close(rmem);
}
