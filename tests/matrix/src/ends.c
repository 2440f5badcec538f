// SPDX-License-Identifier: MIT
/* The objects of a cell, its memory, and the way of its queue pair through its states. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "matrix.h"

enum {
	HUGE = 2 << 20, GIB_FILE = 4 << 20, SMALL = 64 << 10,
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
};

/* of: the cell whose completion channel it is, NULL for the shared one, the context for asynchronous events */
static void watch(int fd, void *of)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = of };

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	MUST(!epoll_ctl(us.epoll, EPOLL_CTL_ADD, fd, &event));
}

void open_device(const char *address)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_gid_entry entry;

	MUST(list && list[0]);
	us.ctx = ibv_open_device(list[0]);
	MUST(us.ctx);
	ibv_free_device_list(list);

	us.gid.raw[10] = us.gid.raw[11] = 0xff;
	MUST(inet_pton(AF_INET, address, us.gid.raw + 12) == 1);
	do
		MUST(!ibv_query_gid_ex(us.ctx, 1, us.gid_index, &entry, 0));
	while ((memcmp(&entry.gid, &us.gid, 16) || entry.gid_type != IBV_GID_TYPE_ROCE_V2) && ++us.gid_index);

	us.pd = ibv_alloc_pd(us.ctx);
	us.channel = ibv_create_comp_channel(us.ctx);
	us.epoll = epoll_create1(0);
	MUST(us.pd && us.channel && us.epoll >= 0);
	watch(us.ctx->async_fd, us.ctx);
	watch(us.channel->fd, NULL);
}

/* ----------------------------------------------------------------- memory -- */

static uint8_t *map(size_t len, int flags, int fd)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	MUST(p != MAP_FAILED);
	return p;
}

/* A GiB of addresses, backed by the pages of a small file again and again. */
static uint8_t *map_gib(int fd)
{
	uint8_t *p = mmap(NULL, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t at;

	MUST(p != MAP_FAILED);
	for (at = 0; at < 1 << 30; at += GIB_FILE)
		MUST(mmap(p + at, GIB_FILE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
	return p;
}

/* librxe has no ibv_rereg_mr(), but its kernel has. */
static void rereg(struct ibv_mr *mr, int flags, struct ibv_pd *pd, int access)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_rereg_mr body;
	} cmd = {
		.header = {
			.command = IB_USER_VERBS_CMD_REREG_MR, .in_words = sizeof(cmd) / 4,
			.out_words = sizeof(resp) / 4,
		},
		.body = {
			.response = (uintptr_t)&resp, .mr_handle = mr->handle, .flags = flags,
			.pd_handle = pd->handle, .access_flags = access,
		},
	};

	MUST(write(us.ctx->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd));
}

/* Does the mapping that begins there have a huge page? */
static bool is_huge(const uint8_t *p)
{
	char *line = NULL, begin[32];
	FILE *f = fopen("/proc/self/smaps", "r");
	bool here = false, huge = false;
	unsigned int kib;
	size_t size = 0;

	MUST(f);
	snprintf(begin, sizeof(begin), "%lx-", (unsigned long)p);
	while (getline(&line, &size, f) > 0) {
		if (!strncmp(line, begin, strlen(begin)))
			here = true;
		if (here && sscanf(line, "AnonHugePages: %u kB", &kib) == 1) {
			huge = kib;
			break;
		}
	}
	free(line);
	fclose(f);
	return huge;
}

static struct ibv_mr *reg(struct end *e, struct ibv_pd *pd, int access)
{
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, e->memory, e->memory_len, e->iova, access);

	MUST(mr);
	return mr;
}

static void map_memory(struct cell *c, enum memory kind)
{
	char unlinked[] = "/dev/shm/matrix-XXXXXX";
	struct end *e = &c->me;

	e->memory_fd = -1;
	e->memory_len = SMALL;
	switch (kind) {
	case THP:
		e->memory_len = HUGE;
		e->memory = map(2 * HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		e->memory += HUGE - (uintptr_t)e->memory % HUGE;
		MUST(!madvise(e->memory, HUGE, MADV_HUGEPAGE));
		e->memory[0] = 0;
		MUST(is_huge(e->memory) || (!madvise(e->memory, HUGE, MADV_COLLAPSE) && is_huge(e->memory)));
		break;
	case HUGETLB:
		e->memory_len = HUGE;
		e->memory = map(HUGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
		break;
	case GIB:
	case MEMFD:
		e->memory_fd = memfd_create("matrix", 0);
		MUST(e->memory_fd >= 0 && !ftruncate(e->memory_fd, c->memory == GIB ? GIB_FILE : SMALL));
		e->memory = c->memory == GIB ? map_gib(e->memory_fd) : map(SMALL, MAP_SHARED, e->memory_fd);
		e->memory_len = c->memory == GIB ? 1 << 30 : SMALL;
		break;
	case SHARED:
		e->memory = map(SMALL, MAP_SHARED | MAP_ANONYMOUS, -1);
		break;
	case PLAIN_FILE: /* one that both hosts have; what is written stays with the process */
		e->memory_fd = open("/proc/self/exe", O_RDONLY);
		e->memory = map(SMALL, MAP_PRIVATE, e->memory_fd);
		break;
	case SHARED_FILE: /* one for all such cells; godwit --copy takes it along (RDMA can't write to a file of 9p) */
		e->memory_fd = open("/dev/shm/matrix", O_RDWR | O_CREAT, 0600);
		e->memory_at = (c - us.cells) * SMALL;
		MUST(e->memory_fd >= 0 && !ftruncate(e->memory_fd, us.count * SMALL));
		e->memory = map(us.count * SMALL, MAP_SHARED, e->memory_fd) + e->memory_at;
		break;
	case UNLINKED:
		e->memory_fd = mkstemp(unlinked);
		MUST(e->memory_fd >= 0 && !unlink(unlinked) && !ftruncate(e->memory_fd, SMALL));
		e->memory = map(SMALL, MAP_SHARED, e->memory_fd);
		break;
	default:
		e->memory = map(SMALL, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	}
}

/* Makes the end's memory and its regions. The end may get a PD of its own here. */
static void create_memory(struct cell *c)
{
	enum memory kind = us.mover ? c->memory : ANON;
	struct end *e = &c->me;

	map_memory(c, kind);
	if (kind == BYTE) {
		e->memory += 4097;
		e->memory_len = 1;
	}
	e->iova = (uintptr_t)e->memory;
	if (kind == IOVA)
		e->iova = 0x7000000 + c->id * 0x100000 + (uintptr_t)e->memory % 4096;
	e->memory_mr = reg(e, us.pd, kind == REREG ? IBV_ACCESS_LOCAL_WRITE : ALL_ACCESS);
	switch (kind) {
	case REREG:
		rereg(e->memory_mr, IBV_REREG_MR_CHANGE_ACCESS, us.pd, ALL_ACCESS);
		break;
	case REREG_PD: /* moves the region into a PD that is younger, and another region out of that PD */
		e->pd = ibv_alloc_pd(us.ctx);
		MUST(e->pd);
		rereg(e->memory_mr, IBV_REREG_MR_CHANGE_PD, e->pd, 0);
		e->other_mr = reg(e, e->pd, ALL_ACCESS);
		rereg(e->other_mr, IBV_REREG_MR_CHANGE_PD, us.pd, 0);
		break;
	case TWIN:
		e->other_mr = reg(e, us.pd, ALL_ACCESS);
		break;
	default:
		break;
	}
}

/* ---------------------------------------------------------------- objects -- */

static struct ibv_qp *create_qp(struct cell *c, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = type, .qp_context = c, .send_cq = c->me.scq, .recv_cq = c->me.rcq, .srq = c->me.srq,
		.cap = { .max_send_wr = 2 * SLOTS, .max_recv_wr = 2 * SLOTS, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = c->me.pd, .sq_sig_all = 1,
	};

	if (c->api == WR) {
		init.cap.max_send_sge = 2;
		init.cap.max_inline_data = INLINE;
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
		if (type != IBV_QPT_UD)
			init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
		if (type != IBV_QPT_RC)
			return ibv_create_qp_ex(us.ctx, &init);
		init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE |
				       IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |
				       IBV_QP_EX_WITH_LOCAL_INV;
	}
	return ibv_create_qp_ex(us.ctx, &init);
}

static void create_cqs(struct cell *c)
{
	struct ibv_comp_channel *of_receives = NULL, *of_sends = NULL;
	struct end *e = &c->me;
	struct ibv_cq_init_attr_ex ex = {
		.cqe = 4 * SLOTS, .cq_context = c, .wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS & IBV_WC_STANDARD_FLAGS,
	};

	if (us.mover && c->event != EV_NONE && c->channel == CH_SHARED) {
		e->channel = us.channel;
	} else if (us.mover && c->event != EV_NONE) {
		e->channel = ibv_create_comp_channel(us.ctx);
		MUST(e->channel);
		watch(e->channel->fd, c);
	}
	if (c->notify != NT_SEND)
		of_receives = e->channel;
	else
		of_sends = e->channel;
	e->scq = ibv_create_cq(us.ctx, 4 * SLOTS, c, of_sends, 0);
	if (us.mover && c->cqs == CQ_EX) {
		ex.channel = of_receives;
		e->rcq_ex = ibv_create_cq_ex(us.ctx, &ex);
		MUST(e->rcq_ex);
		e->rcq = ibv_cq_ex_to_cq(e->rcq_ex);
	} else {
		e->rcq = ibv_create_cq(us.ctx, us.mover && c->state == OVERFLOW ? 3 :
				       us.mover && c->cqs == CQ_RESIZED ? 31 : 4 * SLOTS, c, of_receives, 0);
	}
	MUST(e->scq && e->rcq);
}

static const enum ibv_qp_type qp_types[] = { [RC] = IBV_QPT_RC, [UC] = IBV_QPT_UC, [UD] = IBV_QPT_UD };

void create_end(struct cell *c)
{
	struct ibv_srq_init_attr srq = { .srq_context = c, .attr = { .max_wr = 4 * SLOTS, .max_sge = 1 } };
	struct end *e = &c->me;
	size_t len = BUFFER * SLOT;

	e->pd = us.pd;
	create_memory(c);
	e->buf = map(len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	e->mr = ibv_reg_mr(e->pd, e->buf, len, ALL_ACCESS | IBV_ACCESS_FLUSH_GLOBAL);
	MUST(e->mr);
	fill(e->buf + WELL * SLOT, SLOT, c, us.mover, ~0);
	create_cqs(c);
	if (us.mover && c->receive != RQ) {
		e->srq = ibv_create_srq(e->pd, &srq);
		MUST(e->srq);
	}
	e->qp = create_qp(c, qp_types[c->type]);
	if (!e->qp)
		DIE("%s: no queue pair: %m", cell_name(c));
	if (us.mover && c->window != NO_MW) {
		e->mw = ibv_alloc_mw(e->pd, c->window == MW1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		MUST(e->mw);
	}
	c->here = (struct address){
		.qpn = e->qp->qp_num, .rkey = e->mr->rkey, .target = (uintptr_t)e->buf + 2 * SLOTS * SLOT,
		.memory_rkey = e->memory_mr->rkey, .memory = e->iova,
		.other_rkey = e->other_mr ? e->other_mr->rkey : 0,
	};
}

static void gone(struct cell *c, int ret, const char *what)
{
	if (ret)
		DIE("%s: destroying its %s: %s", cell_name(c), what, strerror(ret));
}

void destroy_end(struct cell *c)
{
	struct end *e = &c->me;

	if (e->mw)
		gone(c, ibv_dealloc_mw(e->mw), "window");
	gone(c, ibv_destroy_qp(e->qp), "queue pair");
	if (e->ah)
		gone(c, ibv_destroy_ah(e->ah), "address handle");
	if (e->srq)
		gone(c, ibv_destroy_srq(e->srq), "SRQ");
	gone(c, ibv_destroy_cq(e->scq), "send CQ");
	gone(c, ibv_destroy_cq(e->rcq), "receive CQ");
	if (e->channel && e->channel != us.channel)
		gone(c, ibv_destroy_comp_channel(e->channel), "channel");
	if (e->other_mr)
		gone(c, ibv_dereg_mr(e->other_mr), "second region");
	gone(c, ibv_dereg_mr(e->memory_mr), "region");
	gone(c, ibv_dereg_mr(e->mr), "region");
	if (e->pd != us.pd)
		gone(c, ibv_dealloc_pd(e->pd), "PD");
}

void make_ah(struct cell *c, const union ibv_gid *dgid)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = { .dgid = *dgid, .sgid_index = us.gid_index, .hop_limit = 64 },
	};

	if (c->me.ah)
		gone(c, ibv_destroy_ah(c->me.ah), "address handle");
	c->me.ah = ibv_create_ah(c->me.pd, &attr);
	if (!c->me.ah)
		DIE("%s: no address handle: %m", cell_name(c));
}

/* ----------------------------------------------------------------- states -- */

static void step(struct cell *c, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	int ret;

	attr->qp_state = state;
	ret = ibv_modify_qp(c->me.qp, attr, mask | IBV_QP_STATE);
	if (ret)
		DIE("%s: its queue pair does not get into state %d: %s", cell_name(c), state, strerror(ret));
}

/* From any state. */
void lead_to(struct cell *c, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {
		.port_num = 1, .qkey = 0x1234, .qp_access_flags = ALL_ACCESS | IBV_ACCESS_FLUSH_GLOBAL,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = c->there.qpn, .max_rd_atomic = 8, .max_dest_rd_atomic = 8,
		.min_rnr_timer = 28 /* 163 ms */, .timeout = 21 /* 9 s */, .retry_cnt = 7, .rnr_retry = 7,
		.rq_psn = c->id, .sq_psn = c->id, .en_sqd_async_notify = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			.grh = { .dgid = us.dgid, .sgid_index = us.gid_index, .hop_limit = 64 } },
	}, now;
	struct ibv_qp_init_attr init;

	if (state == IBV_QPS_ERR || state == IBV_QPS_RESET || state == IBV_QPS_SQD)
		return step(c, &attr, state, state == IBV_QPS_SQD ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0);

	MUST(!ibv_query_qp(c->me.qp, &now, IBV_QP_STATE, &init));
	if (now.qp_state == IBV_QPS_SQD)
		return step(c, &attr, state, 0);
	if (now.qp_state < IBV_QPS_INIT)
		step(c, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		     (c->type == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (state >= IBV_QPS_RTR && now.qp_state < IBV_QPS_RTR)
		step(c, &attr, IBV_QPS_RTR, c->type == UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		     IBV_QP_RQ_PSN | (c->type == RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	if (state >= IBV_QPS_RTS && now.qp_state < IBV_QPS_RTS)
		step(c, &attr, IBV_QPS_RTS, IBV_QP_SQ_PSN | (c->type == RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}
