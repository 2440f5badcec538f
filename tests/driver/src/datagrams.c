// SPDX-License-Identifier: MIT
/*
 * datagrams [CASE]: packets that come to UC and UD queue pairs after a message that was cut, by a loss or by a stop; packets that
 * come by multicast to a stopped queue pair; address handles, SRQs, and a half received entry of an SRQ under a dump; and packets
 * over IPv6 without a length.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <stddef.h>
#include <sys/socket.h>

#include "../../programs/dumps.h"
#include "migr.h"

enum { SIZE = 64 * MTU, QKEY = 7, DUMPS = 500, HOPS = 7, FIRST_ID = 0x7001, MAX_PARTS = 64 };

static struct ibv_context *ctx, *attached;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t *memory;
static uint32_t parts = 1;	/* of each receive */

/* Where part i of the first receive begins */
static uint32_t part(uint32_t i)
{
	return i < parts ? i * (4 * MTU / parts) : 4 * MTU;
}

static void post_receives(int count)
{
	struct ibv_sge sge[MAX_PARTS];
	struct ibv_recv_wr *bad, wr = { .sg_list = sge, .num_sge = parts };

	for (int i = 0; i < count; i++) {
		wr.wr_id = FIRST_ID + i;
		for (uint32_t j = 0; j < parts; j++)
			sge[j] = (struct ibv_sge){ (uintptr_t)memory + i * 4 * MTU + part(j), part(j + 1) - part(j), mr->lkey };
		IS(0, srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad));
	}
}

static struct dump stop(void)
{
	return take(attached, ibv_dump_context);
}

static void go_on(struct dump d)
{
	IS(0, ibv_abort_context(attached));
	free(d.buf);
}

/* -------------------------------------------------------------------- UC -- */

static void uc_send(int opcode, uint32_t psn, uint32_t imm, uint32_t len)
{
	struct packet p = { .opcode = UC | opcode, .qpn = qp->qp_num, .psn = psn, .imm = imm, .len = len, .rkey = mr->rkey,
			    .va = (uintptr_t)memory + SIZE / 2 };

	p.length = opcode == WRITE_FIRST ? 2 * MTU : len;
	memset(p.data, 0x77, len);
	wire_send(&p);
}

/* The first part of a message. The rest is lost, or comes while this side is stopped. */
static void cut(bool write, bool by_stop, struct ibv_srq *with)
{
	volatile uint8_t *lands = memory + (write ? SIZE / 2 : 0) + MTU - 1;
	struct ibv_wc wc;

	srq = with;
	qp = wire_qp(pd, IBV_QPT_UC, cq, srq, 0);
	memset(memory, 0, SIZE);
	post_receives(8);
	uc_send(write ? WRITE_FIRST : SEND_FIRST, 0, 0, MTU);
	for (int i = 0; *lands != 0x77; i++) {
		CHECK(i < PATIENCE * 1000);
		usleep(1000);
	}
	if (by_stop) {
		struct dump d = stop();

		uc_send(write ? WRITE_LAST : SEND_LAST, 1, 0, MTU);
		go_on(d);
	}
	/* The next message may be lost with it. Those after that may not. */
	for (int i = 0; i < 3; i++)
		uc_send(write ? WRITE_ONLY_IMM : SEND_ONLY_IMM, 2 + i, i, 64);
	do
		wc = wire_completion(cq);
	while (wc.status != IBV_WC_SUCCESS || (wc.imm_data == htonl(0)));
	CHECK(wc.imm_data == htonl(1) && wc.byte_len == 64);
	wc = wire_completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.imm_data == htonl(2) && wc.byte_len == 64);
	IS(0, ibv_destroy_qp(qp));
}

static struct ibv_srq *create_srq(uint32_t max_wr)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = max_wr, .max_sge = parts } };
	struct ibv_srq *s = ibv_create_srq(pd, &init);

	CHECK(s);
	return s;
}

static void uc_cut(void)
{
	for (int i = 0; i < 8; i++) {
		struct ibv_srq *with = i & 4 ? create_srq(31) : NULL;

		printf("\t%s cut by a %s, %s\n", i & 1 ? "WRITE" : "SEND", i & 2 ? "stop" : "loss", with ? "SRQ" : "RQ");
		cut(i & 1, i & 2, with);
		if (with)
			IS(0, ibv_destroy_srq(with));
	}
}

/* After a packet of a wrong length the message's receive is gone: the next packet finds none, however well it fits. */
static void uc_length(void)
{
	struct ibv_wc wc;

	srq = create_srq(31);
	qp = wire_qp(pd, IBV_QPT_UC, cq, srq, 0);
	post_receives(8);
	uc_send(SEND_FIRST, 0, 0, MTU);
	uc_send(SEND_MIDDLE, 1, 0, 100);
	wc = wire_completion(cq);
	CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR);
	uc_send(SEND_MIDDLE, 1, 0, MTU);
	uc_send(SEND_LAST, 2, 0, 100);
	uc_send(SEND_ONLY_IMM, 3, 3, 100);
	uc_send(SEND_ONLY_IMM, 4, 4, 100);
	wc = wire_completion(cq);
	if (wc.imm_data == htonl(3))
		wc = wire_completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.imm_data == htonl(4));
	IS(0, ibv_destroy_qp(qp));
	IS(0, ibv_destroy_srq(srq));
}

/* ------------------------------------------------------------- multicast -- */

/* A packet that comes while a queue pair is stopped is lost. The driver does not keep such packets without limit. */
static void multicast(void)
{
	struct packet p = { .opcode = UD | SEND_ONLY_IMM, .qpn = 0xffffff, .qkey = QKEY, .src_qpn = FAR_QPN, .len = 64,
			    .to = inet_addr("239.1.2.3") };
	struct ip_mreq join = { { p.to }, { inet_addr(NEAR) } };
	union ibv_gid group = gid;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ibv_wc wc;
	struct dump d;

	/* Without this the kernel takes nothing from the wire. */
	CHECK(fd >= 0 && !setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)));
	memcpy(group.raw + 12, &p.to, 4);
	srq = NULL;
	qp = wire_qp(pd, IBV_QPT_UD, cq, NULL, 0);
	IS(0, ibv_attach_mcast(qp, &group, 0));
	post_receives(8);
	p.imm = 1;
	wire_send(&p);
	wc = wire_completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.imm_data == htonl(1));
	d = stop();
	p.imm = 2;
	for (int i = 0; i < 5; i++)
		wire_send(&p);
	go_on(d);
	p.imm = 3;
	wire_send(&p);
	wc = wire_completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.imm_data == htonl(3));
	IS(0, ibv_detach_mcast(qp, &group, 0));
	IS(0, ibv_destroy_qp(qp));
	close(fd);
}

/* ------------------------------------------------------------------ IPv6 -- */

static void send_ipv6(const struct packet *p, bool sized)
{
	struct frame f = wire_frame_ipv6(p, sized);

	wire_send_frame(&f);
}

/* UDP lets a packet of length 0 pass, whatever comes with it. The driver reads that and no more, and finds the ICRC right. */
static void no_length(void)
{
	struct packet p = { .opcode = UD | SEND_ONLY_IMM, .qkey = QKEY, .src_qpn = FAR_QPN, .imm = 1, .len = 64 };
	struct packet mad = { .opcode = UD | SEND_ONLY, .qpn = 1, .qkey = 0x80010000, .src_qpn = 1, .len = 256,
			      .data = { 1, 7, 2, 3 } };	/* of the CM, but of no kind that it knows */
	struct ibv_wc wc;
	uint64_t before;

	srq = NULL;
	qp = wire_qp(pd, IBV_QPT_UD, cq, NULL, 0);
	p.qpn = qp->qp_num;
	post_receives(8);
	/* the interface's IPv6 begins a while after its carrier */
	for (int i = 0; !wire_completes(cq, &wc, 1000); i++) {
		CHECK(i < PATIENCE);
		send_ipv6(&p, true);
	}
	p.imm = 2;
	before = migr_counter("rcvd_pkts");
	send_ipv6(&mad, false);
	send_ipv6(&p, false);
	CHECK(migr_counter("rcvd_pkts") == before + 2);
	while (wc.imm_data == htonl(1))
		wc = wire_completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.imm_data == htonl(2));
	IS(0, ibv_destroy_qp(qp));
}

/* ------------------------------------------------------- address handles -- */

static union ibv_gid far_gid(void)
{
	union ibv_gid g = gid;

	CHECK(inet_pton(AF_INET, FAR, g.raw + 12) == 1);
	return g;
}

/* Sends one datagram, and tells its parent which context this is. */
static void own_ah(int ready)
{
	struct ibv_context *own = open_device();
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = far_gid(), .sgid_index = gid_index } };
	struct ibv_sge sge = { .length = 64 };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_wc wc;

	CHECK((pd = ibv_alloc_pd(own)) && (cq = ibv_create_cq(own, 16, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE)));
	CHECK((wr.wr.ud.ah = ibv_create_ah(pd, &to)));
	qp = wire_qp(pd, IBV_QPT_UD, cq, NULL, 0);
	sge.addr = (uintptr_t)memory;
	sge.lkey = mr->lkey;
	wr.wr.ud.remote_qpn = FAR_QPN;
	wr.wr.ud.remote_qkey = QKEY;
	IS(0, ibv_post_send(qp, &wr, &bad));
	wc = wire_completion(cq);
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(write(ready, &own->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

/* A restored handle keeps its hop limit, whatever hop limit a new handle would get on this host. */
static void ah_hops(void)
{
	struct dump before, after;
	struct ibv_context *its;
	struct packet p;

	CHECK(!system("ip route replace 10.88.0.0/24 dev wire0 src " NEAR " hoplimit 7"));
	its = start_owner(own_ah);
	p = wire_next();
	CHECK(p.opcode == (UD | SEND_ONLY) && p.ttl == HOPS);
	CHECK(!system("ip route replace 10.88.0.0/24 dev wire0 src " NEAR));
	before = take(its, ibv_dump_context);
	end_owner(its);
	its = restore(&before, NULL);
	after = take(its, ibv_inspect_context);
	CHECK(((const struct rxe_migr_rec_ah *)first_of(&before, RXE_MIGR_REC_AH))->hop_limit == HOPS);
	CHECK(((const struct rxe_migr_rec_ah *)first_of(&after, RXE_MIGR_REC_AH))->hop_limit == HOPS);
	IS(0, ibv_restore_object(its, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	ibv_detach_context(its);
}

/* ------------------------------------------------------------------ SRQs -- */

static bool enough;

static void *resize(void *arg)
{
	struct ibv_srq_attr attr = {};

	for (int i = 0; !__atomic_load_n(&enough, __ATOMIC_RELAXED); i++) {
		attr.max_wr = i % 2 ? 30 : 2000;
		IS(0, ibv_modify_srq(arg, &attr, IBV_SRQ_MAX_WR));
	}
	return NULL;
}

/* The length may differ each time that it is asked for. */
static struct dump take_changing(dump_fn *fn)
{
	struct dump d = {};
	int ret;

	while ((ret = fn(attached, &d.count, d.buf, d.size)) == ENOSPC) {
		d.size = d.count > (int)d.size ? d.count : (int)d.size;
		CHECK((d.buf = realloc(d.buf, d.size)));
	}
	IS(0, ret);
	return d;
}

/* If an SRQ is resized meanwhile, the dump has it as it was before, or as it is after. */
static void srq_resized(void)
{
	struct ibv_srq *s = create_srq(30);
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, resize, s));
	for (int i = 0; i < DUMPS; i++) {
		const struct rxe_migr_rec *rec = NULL;
		const struct rxe_migr_rec_srq *of;
		struct dump d = take_changing(i % 2 ? ibv_dump_context : ibv_inspect_context);
		unsigned int rings = 0;

		of = (const void *)first_of(&d, RXE_MIGR_REC_SRQ);
		while ((rec = next(&d, rec))) {
			const struct rxe_migr_rec_ring *ring = (const void *)rec;

			if (type_of(rec) != RXE_MIGR_REC_RING || le32toh(ring->which) != RXE_MIGR_RING_SRQ)
				continue;
			rings++;
			CHECK(ring->index_mask == of->max_wr && le32toh(ring->count) == le32toh(of->max_wr) + 1);
		}
		CHECK(rings == 1);
		if (i % 2)
			go_on(d);
		else
			free(d.buf);
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	IS(0, ibv_destroy_srq(s));
}

static void own_srq(int ready)
{
	struct ibv_context *own = open_device();

	CHECK((pd = ibv_alloc_pd(own)) && (cq = ibv_create_cq(own, 16, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE)));
	srq = create_srq(31);
	qp = wire_qp(pd, IBV_QPT_RC, cq, srq, 0);
	post_receives(2);
	CHECK(write(ready, &own->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

static bool has(const struct dump *d, int type)
{
	const struct rxe_migr_rec *rec = NULL;

	while ((rec = next(d, rec)))
		if (type_of(rec) == type)
			return true;
	return false;
}

/*
 * The first half of a message comes before the dump. The second half comes when the entry that it lands in is only in a dump. The
 * entry has as many parts as the device allows, and the message is cut within one of them.
 */
static void srq_in_hand(void)
{
	struct packet p = { .opcode = SEND_FIRST, .len = MTU };
	struct ibv_context *its;
	const struct rxe_migr_rec_recv_wqe *wqe;
	const struct rxe_queue_buf *ring;
	const struct ib_uverbs_wc *wc;
	const struct rxe_migr_rec *of;
	struct ibv_device_attr device;
	struct dump d, after;
	uint32_t size;

	IS(0, ibv_query_device(ctx, &device));
	parts = device.max_srq_sge;
	CHECK(parts > 1 && parts <= MAX_PARTS && MTU % (4 * MTU / parts));
	its = start_owner(own_srq);
	d = take(its, ibv_inspect_context);
	p.qpn = le32toh(((const struct rxe_migr_rec_qp *)first_of(&d, RXE_MIGR_REC_QP))->qpn);
	CHECK(!has(&d, RXE_MIGR_REC_RECV_WQE));
	wire_send(&p);
	for (int i = 0; !has(&d, RXE_MIGR_REC_RECV_WQE); i++) {
		CHECK(i < PATIENCE * 1000);
		usleep(1000);
		free(d.buf);
		d = take(its, ibv_inspect_context);
	}
	free(d.buf);
	d = take(its, ibv_dump_context);
	wqe = (const void *)first_of(&d, RXE_MIGR_REC_RECV_WQE);
	CHECK(le64toh(wqe->wr_id) == FIRST_ID && le32toh(wqe->length) == 4 * MTU && le32toh(wqe->num_sge) == parts);
	for (uint32_t i = 0; i < parts; i++)
		CHECK(le64toh(wqe->sge[i].addr) == (uintptr_t)memory + part(i) &&
		      le32toh(wqe->sge[i].length) == part(i + 1) - part(i));
	of = first_of(&d, RXE_MIGR_REC_QP);
	size = le32toh(of->length) + le32toh(wqe->hdr.length);
	printf("\ta QP with an entry of %u parts: %u bytes, at most 823\n", parts, size);
	CHECK(wqe->hdr.handle == of->handle && size <= 823);
	end_owner(its);

	memset(memory, 0, SIZE);
	its = restore(&d, NULL);
	after = take(its, ibv_inspect_context);
	ring = mmap(NULL, 4096, PROT_READ, MAP_SHARED, its->cmd_fd,
		    le64toh(((const struct rxe_migr_rec_cq *)first_of(&after, RXE_MIGR_REC_CQ))->ring_offset));
	CHECK(ring != MAP_FAILED);
	IS(0, ibv_restore_object(its, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	p = (struct packet){ .opcode = SEND_LAST, .qpn = p.qpn, .psn = 1, .ack = true, .len = 100 };
	memset(p.data, 0x77, p.len);
	wire_send(&p);
	CHECK(wire_expect(ACK, 1).syndrome == ACKED);
	CHECK(__atomic_load_n(&ring->producer_index, __ATOMIC_ACQUIRE) == 1);
	wc = (const void *)ring->data;
	CHECK(wc->status == IBV_WC_SUCCESS && wc->wr_id == FIRST_ID && wc->byte_len == MTU + 100 && wc->qp_num == p.qpn);
	for (int i = 0; i < SIZE; i++)
		CHECK(memory[i] == (i >= MTU && i < MTU + 100 ? 0x77 : 0));
	free(after.buf);
	free(d.buf);
	CHECK(!munmap((void *)ring, 4096));
	ibv_detach_context(its);
	parts = 1;
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "uc_cut", uc_cut }, { "multicast", multicast }, { "ah_hops", ah_hops }, { "srq_resized", srq_resized },
	{ "uc_length", uc_length }, { "srq_in_hand", srq_in_hand }, { "no_length", no_length },
};

int main(int argc, char **argv)
{
	int fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	ctx = wire_open();
	fd = fcntl(ctx->cmd_fd, F_DUPFD_CLOEXEC, 0);
	CHECK(fd >= 0 && (attached = ibv_attach_context(fd)));
	CHECK((pd = ibv_alloc_pd(ctx)));
	CHECK((cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 && strcmp(argv[1], cases[i].name))
			continue;
		puts(cases[i].name);
		cases[i].run();
	}
	return 0;
}
