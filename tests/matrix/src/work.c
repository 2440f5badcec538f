// SPDX-License-Identifier: MIT
/* Requests, completions, events. Each request has a number; its message is made from that. */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "matrix.h"

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	enum ibv_wc_opcode wc_opcode;
} ops[] = {
	[SEND] = { "SEND", IBV_WR_SEND, IBV_WC_SEND },
	[SEND_IMM] = { "SEND_IMM", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND },
	[WRITE] = { "WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE },
	[WRITE_IMM] = { "WRITE_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE },
	[READ] = { "READ", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ },
	[FADD] = { "FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD },
	[CSWP] = { "CMP_SWAP", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP },
	[ATOMIC_WRITE] = { "ATOMIC_WRITE", IBV_WR_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE },
	[FLUSH] = { "FLUSH", IBV_WR_FLUSH, IBV_WC_FLUSH },
	[SEND_INV] = { "SEND_INV", IBV_WR_SEND_WITH_INV, IBV_WC_SEND },
};

/* Is there still time to wait? Sleeps for a moment. */
bool in_time(void)
{
	static time_t begin;

	if (!begin)
		begin = time(NULL);
	usleep(500);
	return time(NULL) - begin < us.limit;
}

/* --------------------------------------------------------------- requests -- */

void post_receives(struct cell *c, int count)
{
	struct end *e = &c->me;
	struct ibv_recv_wr *bad;
	struct ibv_sge sge = { .length = SLOT, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	while (count--) {
		wr.wr_id = e->posted++ % SLOTS;
		sge.addr = (uintptr_t)e->buf + (SLOTS + wr.wr_id) * SLOT;
		MUST(!(e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad)));
	}
}

/*
 * librxe 56.1 takes each SGE of a list to be as long as the first one, and takes no data from ibv_wr_set_inline_data_list(). It
 * also needs a flag that says that data is inline.
 */
static void set_data(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;
	struct ibv_sge halves[2] = { *sge, *sge };

	halves[0].length = halves[1].length = sge->length / 2;
	halves[1].addr += sge->length / 2;
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(qp, (void *)(uintptr_t)sge->addr, sge->length);
	else if (wr->wr_id % NUM_WAYS == TWO_SGES && sge->length > 8 && sge->length % 2 == 0)
		ibv_wr_set_sge_list(qp, 2, halves);
	else
		ibv_wr_set_sge(qp, sge->lkey, sge->addr, sge->length);
}

static void post_by_wr(struct cell *c, struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(c->me.qp);
	uint64_t at = wr->wr.rdma.remote_addr;
	uint32_t rkey = wr->wr.rdma.rkey;

	ibv_wr_start(qp);
	qp->wr_id = wr->wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED | wr->send_flags;
	switch (wr->opcode) {
	case IBV_WR_SEND: ibv_wr_send(qp); break;
	case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(qp, wr->imm_data); break;
	case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(qp, wr->invalidate_rkey); break;
	case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(qp, rkey, at); break;
	case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(qp, rkey, at, wr->imm_data); break;
	case IBV_WR_RDMA_READ: ibv_wr_rdma_read(qp, rkey, at); break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_WRITE:
		ibv_wr_atomic_write(qp, rkey, at, (void *)(uintptr_t)wr->sg_list->addr);
		break;
	case IBV_WR_FLUSH:
		ibv_wr_flush(qp, rkey, at, wr->sg_list->length, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		break;
	default: DIE("no such request");
	}
	if (c->type == UD)
		ibv_wr_set_ud_addr(qp, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	if (wr->opcode != IBV_WR_FLUSH && wr->opcode != IBV_WR_ATOMIC_WRITE)
		set_data(qp, wr);
	MUST(!ibv_wr_complete(qp));
}

void post(struct cell *c, enum op op)
{
	struct end *e = &c->me;
	uint32_t number = ++e->sent;
	uint8_t *p = e->buf + number % SLOTS * SLOT;
	uint64_t words = c->there.target + (SLOTS + 1) * SLOT;
	struct ibv_sge sge = {
		.addr = (uintptr_t)p, .length = message_len(c, op, number), .lkey = e->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = ops[op].opcode, .imm_data = htonl(number),
		.send_flags = (us.soliciting && has_receive(op) ? IBV_SEND_SOLICITED : 0) |
			      (goes_inline(c, op, number) ? IBV_SEND_INLINE : 0),
	};

	e->done[e->done_head % NUM(e->done)].op = op;
	e->done[e->done_head++ % NUM(e->done)].number = number;
	fill(p, sge.length, c, us.mover, number);
	switch (op) {
	case FADD:
	case CSWP:
		wr.wr.atomic.rkey = c->there.rkey;
		wr.wr.atomic.remote_addr = words + (op == CSWP ? 8 : 0);
		wr.wr.atomic.compare_add = op == FADD ? 1 : e->cswps;
		wr.wr.atomic.swap = e->cswps + 1;
		e->cswps += op == CSWP;
		break;
	case ATOMIC_WRITE:
		wr.wr.rdma.rkey = c->there.rkey;
		wr.wr.rdma.remote_addr = words + 16;
		break;
	case READ:
		wr.wr.rdma.rkey = c->there.rkey;
		wr.wr.rdma.remote_addr = c->there.target + SLOTS * SLOT;
		memset(p, 0, sge.length);
		break;
	case SEND_INV:
		wr.invalidate_rkey = c->there.window_rkey;
		break;
	case FLUSH: /* where the WRITE before it went */
		wr.wr.rdma.rkey = c->there.rkey;
		wr.wr.rdma.remote_addr = c->there.target + (number - 1) % SLOTS * SLOT;
		break;
	default:
		wr.wr.rdma.rkey = c->there.rkey;
		wr.wr.rdma.remote_addr = c->there.target + number % SLOTS * SLOT;
	}
	if (c->type == UD) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = c->there.qpn;
		wr.wr.ud.remote_qkey = 0x1234;
	}
	if (c->api == WR)
		post_by_wr(c, &wr);
	else
		MUST(!ibv_post_send(e->qp, &wr, &bad));
}

/* The other end posts this, as its next one. */
void expect(struct cell *c, enum op op)
{
	struct end *e = &c->me;

	e->inbound++;
	e->fadds_in += op == FADD;
	e->cswps_in += op == CSWP;
	if (!has_receive(op))
		return;
	e->due[e->due_head % NUM(e->due)].op = op;
	e->due[e->due_head++ % NUM(e->due)].number = e->inbound;
}

void bind_window(struct cell *c)
{
	struct end *e = &c->me;
	struct ibv_mw_bind_info info = {
		.mr = e->mr, .addr = (uintptr_t)e->buf + WINDOW * SLOT, .length = SLOT, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_mw_bind bind = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };
	struct ibv_send_wr *bad, wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = e->mw, .rkey = ibv_inc_rkey(e->mw->rkey), .bind_info = info },
	};
	struct ibv_wc wc;

	if (c->window == MW1) {
		MUST(!ibv_bind_mw(e->qp, e->mw, &bind));
	} else if (c->api == WR) {
		struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->qp);

		ibv_wr_start(qp);
		qp->wr_id = 1;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(qp, e->mw, wr.bind_mw.rkey, &info);
		MUST(!ibv_wr_complete(qp));
		e->mw->rkey = wr.bind_mw.rkey;
	} else {
		MUST(!ibv_post_send(e->qp, &wr, &bad));
		e->mw->rkey = wr.bind_mw.rkey;
	}
	while (!poll_send(c, &wc))
		MUST(in_time());
	if (wc.status)
		DIE("%s: its window is not bound: %s", cell_name(c), ibv_wc_status_str(wc.status));
	c->here.window = info.addr;
	c->here.window_rkey = e->mw->rkey;
}

void post_invalidation(struct cell *c)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = c->me.mw->rkey };
	struct ibv_qp_ex *qp;

	if (c->api != WR) {
		MUST(!ibv_post_send(c->me.qp, &wr, &bad));
		return;
	}
	qp = ibv_qp_to_qp_ex(c->me.qp);
	ibv_wr_start(qp);
	qp->wr_id = 0;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_local_inv(qp, c->me.mw->rkey);
	MUST(!ibv_wr_complete(qp));
}

void end_invalidation(struct cell *c)
{
	struct ibv_wc wc;

	while (!poll_send(c, &wc))
		MUST(in_time());
	if (wc.status || wc.opcode != IBV_WC_LOCAL_INV)
		DIE("%s: its window is not invalidated: %s", cell_name(c), ibv_wc_status_str(wc.status));
}

/* A READ into p, or a WRITE from p, at any address of the peer */
void post_one_sided(struct cell *c, enum ibv_wr_opcode opcode, const uint8_t *p, uint64_t at, uint32_t rkey, size_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p, .length = len, .lkey = c->me.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = at, .rkey = rkey } }, *bad;

	if (c->api == WR)
		post_by_wr(c, &wr);
	else
		MUST(!ibv_post_send(c->me.qp, &wr, &bad));
}

/* Waits for its completion, which must have this status. */
void end_one_sided(struct cell *c, enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	while (!poll_send(c, &wc))
		MUST(in_time());
	if (wc.status != status)
		DIE("%s: request %d for its memory: %s", cell_name(c), opcode, ibv_wc_status_str(wc.status));
}

/* The same with the buffer's first slot, and waits for it */
void one_sided(struct cell *c, enum ibv_wr_opcode opcode, uint64_t at, uint32_t rkey, size_t len,
	       enum ibv_wc_status status)
{
	post_one_sided(c, opcode, c->me.buf, at, rkey, len);
	end_one_sided(c, opcode, status);
}

/* ------------------------------------------------------------ completions -- */

bool poll_send(struct cell *c, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(c->me.scq, 1, wc);

	MUST(n >= 0);
	return n;
}

/* The kernel's bit, which rxe does not translate. */
#define RXE_WC_WITH_INV IBV_WC_IP_CSUM_OK

static bool poll_ex(struct ibv_cq_ex *cq, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = { };
	int ret = ibv_start_poll(cq, &attr);

	if (ret == ENOENT)
		return false;
	MUST(!ret);
	*wc = (struct ibv_wc){
		.wr_id = cq->wr_id, .status = cq->status, .opcode = ibv_wc_read_opcode(cq),
		.byte_len = ibv_wc_read_byte_len(cq), .wc_flags = ibv_wc_read_wc_flags(cq), .qp_num = ibv_wc_read_qp_num(cq),
	};
	if (wc->wc_flags & RXE_WC_WITH_INV)
		wc->invalidated_rkey = ibv_wc_read_invalidated_rkey(cq);
	else
		wc->imm_data = ibv_wc_read_imm_data(cq);
	ibv_end_poll(cq);
	return true;
}

bool poll_receive(struct cell *c, struct ibv_wc *wc)
{
	int n;

	if (c->me.rcq_ex)
		return poll_ex(c->me.rcq_ex, wc);
	n = ibv_poll_cq(c->me.rcq, 1, wc);
	MUST(n >= 0);
	return n;
}

/* The next request of this end is done, and as it should be. */
void end_send(struct cell *c)
{
	struct end *e = &c->me;
	uint32_t number = e->done[e->done_tail % NUM(e->done)].number;
	enum op op = e->done[e->done_tail++ % NUM(e->done)].op;
	uint8_t *p = e->buf + number % SLOTS * SLOT;
	struct ibv_wc wc;
	uint64_t word;

	while (!poll_send(c, &wc))
		if (!in_time())
			DIE("%s: %s %u is never done", cell_name(c), ops[op].name, number);
	if (wc.status || wc.wr_id != number || wc.opcode != ops[op].wc_opcode || wc.qp_num != e->qp->qp_num)
		DIE("%s: request %llu, opcode %d, QP %u: %s; %s %u is due", cell_name(c), (unsigned long long)wc.wr_id,
		    wc.opcode, wc.qp_num, ibv_wc_status_str(wc.status), ops[op].name, number);
	if (op == SEND_INV)
		c->invalidated = true;
	memcpy(&word, p, 8);
	if (op == READ && !is_filled(p, message_len(c, op, number), c, !us.mover, ~0))
		DIE("%s: READ %u got something else", cell_name(c), number);
	if (op == FADD && word != e->fadds++)
		DIE("%s: FETCH_ADD %u found %llu, not %u", cell_name(c), number, (unsigned long long)word, e->fadds - 1);
	if (op == CSWP && word != e->cswps - 1)
		DIE("%s: CMP_SWAP %u found %llu, not %u", cell_name(c), number, (unsigned long long)word, e->cswps - 1);
}

/* What the other end has written there */
void check_target(struct cell *c, enum op op, uint32_t number)
{
	uint8_t *target = c->me.buf + 2 * SLOTS * SLOT;
	uint8_t *p = op == ATOMIC_WRITE ? target + (SLOTS + 1) * SLOT + 16 : target + number % SLOTS * SLOT;

	if ((op == WRITE || op == WRITE_IMM || op == ATOMIC_WRITE) &&
	    !is_filled(p, message_len(c, op, number), c, !us.mover, number))
		DIE("%s: %s %u left something else", cell_name(c), ops[op].name, number);
}

/* What the other end's FETCH_ADDs, or its CMP_SWAPs, have made of their word */
uint64_t word(const struct cell *c, enum op op)
{
	uint64_t word;

	memcpy(&word, c->me.buf + ATOMICS * SLOT + (op == CSWP ? 8 : 0), 8);
	return word;
}

/* The next message of the other end has come, and as it was. */
void end_receive(struct cell *c)
{
	struct end *e = &c->me;
	uint32_t number = e->due[e->due_tail % NUM(e->due)].number;
	enum op op = e->due[e->due_tail++ % NUM(e->due)].op;
	unsigned int flags = op == SEND_INV ? RXE_WC_WITH_INV : op == SEND ? 0 : IBV_WC_WITH_IMM;
	uint32_t with = op == SEND_INV ? c->here.window_rkey : htonl(number);
	struct ibv_wc wc;
	uint8_t *p;
	size_t len = message_len(c, op, number), header = c->type == UD ? 40 : 0;

	while (!poll_receive(c, &wc))
		if (!in_time())
			DIE("%s: %s %u never comes", cell_name(c), ops[op].name, number);
	if (wc.status || wc.opcode != (op == WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
	    wc.byte_len != len + header || wc.qp_num != e->qp->qp_num || wc.wr_id >= SLOTS ||
	    (wc.wc_flags & (IBV_WC_WITH_IMM | RXE_WC_WITH_INV)) != flags || (flags && wc.imm_data != with))
		DIE("%s: message into %llu, opcode %d, length %u, flags %x, immediate %x: %s; %s %u is due, length %zu",
		    cell_name(c), (unsigned long long)wc.wr_id, wc.opcode, wc.byte_len, wc.wc_flags,
		    ntohl(wc.imm_data), ibv_wc_status_str(wc.status), ops[op].name, number, len + header);
	if (op == SEND_INV)
		c->invalidated = true;
	if (op == WRITE_IMM)
		return check_target(c, op, number);
	p = e->buf + (SLOTS + wc.wr_id) * SLOT + header;
	if (!is_filled(p, len, c, !us.mover, number))
		DIE("%s: %s %u holds something else", cell_name(c), ops[op].name, number);
}

/* ----------------------------------------------------------------- events -- */

struct ibv_cq *notified_cq(const struct cell *c)
{
	return c->notify == NT_SEND ? c->me.scq : c->me.rcq;
}

static void read_channel(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;
	struct cell *c;

	while (!ibv_get_cq_event(channel, &cq, &context)) {
		c = context;
		if (cq != notified_cq(c) || c->me.channel != channel)
			DIE("%s: an event of another CQ", cell_name(c));
		c->me.cq_events++;
		c->me.unacked++;
	}
	MUST(errno == EAGAIN);
}

/* Whose events: those of the context itself, of a cell, or (NULL) of the channel that cells share. */
static int find_events(struct epoll_event events[256])
{
	int n = epoll_wait(us.epoll, events, 256, 0);

	MUST(n >= 0 && n < 256);
	return n;
}

/* Reads the completion events that epoll tells of, and does not acknowledge them. */
void read_cq_events(void)
{
	struct epoll_event events[256];
	int i, n = find_events(events);

	for (i = 0; i < n; i++) {
		struct cell *c = events[i].data.ptr;

		if (events[i].data.ptr != us.ctx)
			read_channel(c ? c->me.channel : us.channel);
	}
}

static bool async_told(void)
{
	struct epoll_event events[256];
	int i, n = find_events(events);

	for (i = 0; i < n; i++)
		if (events[i].data.ptr == us.ctx)
			return true;
	return false;
}

/* Reads asynchronous events, if epoll tells of some */
void read_async(bool acknowledge)
{
	struct ibv_async_event event;
	struct cell *c;
	size_t len;

	if (!async_told())
		return;
	while (!ibv_get_async_event(us.ctx, &event)) {
		switch (event.event_type) {
		case IBV_EVENT_CQ_ERR: c = event.element.cq->cq_context; break;
		case IBV_EVENT_SRQ_ERR:
		case IBV_EVENT_SRQ_LIMIT_REACHED: c = event.element.srq->srq_context; break;
		case IBV_EVENT_PORT_ERR:
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_LID_CHANGE:
		case IBV_EVENT_PKEY_CHANGE:
		case IBV_EVENT_SM_CHANGE:
		case IBV_EVENT_GID_CHANGE:
		case IBV_EVENT_CLIENT_REREGISTER: ibv_ack_async_event(&event); continue;
		default: c = event.element.qp->qp_context;
		}
		/* One for each completion that found no room, until the queue pair fails. */
		len = event.event_type == IBV_EVENT_CQ_ERR ? 0 : strlen(c->me.async);
		snprintf(c->me.async + len, sizeof(c->me.async) - len, "<%s>", ibv_event_type_str(event.event_type));
		if (acknowledge || c->me.num_kept == NUM(c->me.kept))
			ibv_ack_async_event(&event);
		else
			c->me.kept[c->me.num_kept++] = event;
	}
	MUST(errno == EAGAIN);
}
