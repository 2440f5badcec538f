// SPDX-License-Identifier: MIT
/*
 * The verbs objects of a connection. They are made for each connection, and given up for good when it breaks. All that is under
 * way on it ends then, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

#define SEND_DEPTH (DATA_DEPTH + RMEM_SLOTS + 1) /* data, messages, and a probe */

static int open_port(struct rmem *r, const struct sockaddr *local)
{
	struct ibv_port_attr attr;
	char *why = NULL;
	int ret;

	if (rmem_port_of(local, r->device, &r->port, &why)) {
		ret = fail(-ENODEV, "%s", why ? why : "no memory");
		free(why);
		r->port.context = NULL;
		return ret;
	}
	ret = ibv_query_port(r->port.context, r->port.num, &attr);
	if (ret)
		return fail(-ret, "%s: its port can't be asked: %s", ibv_get_device_name(r->port.context->device), strerror(ret));
	r->max_message = attr.max_msg_sz;
	return 0;
}

static int open_cq(struct rmem *r)
{
	int flags;

	r->channel = ibv_create_comp_channel(r->port.context);
	if (!r->channel)
		return -1;
	flags = fcntl(r->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(r->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -1;
	r->cq = ibv_create_cq(r->port.context, SEND_DEPTH + RECEIVES, NULL, r->channel, 0);
	return r->cq ? 0 : -1;
}

/* Atomic writes need the extended interface, whose operations are named here. ibv_post_send() still works. */
static int open_qp(struct rmem *r)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = r->cq, .recv_cq = r->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = r->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = SEND_DEPTH, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (r->port.atomic_write) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				      IBV_QP_EX_WITH_ATOMIC_WRITE;
	}
	r->qp = ibv_create_qp_ex(r->port.context, &attr);
	return r->qp ? 0 : -1;
}

static void reset_work(struct rmem *r)
{
	for (r->wrs = 0; r->wrs < DATA_DEPTH; r->wrs++)
		r->free_wrs[r->wrs] = r->wrs;
	memset(r->wr, 0, sizeof(r->wr));
	memset(r->slot, 0, sizeof(r->slot));
	r->unanswered = 0;
	r->probed = 0;
	r->noticed = false;
	r->early = false;
}

/* On failure device_close() frees everything that was made. */
int device_open(struct rmem *r, const struct sockaddr *local)
{
	int ret = open_port(r, local);

	if (ret)
		return ret;
	r->pd = ibv_alloc_pd(r->port.context);
	if (!r->pd || open_cq(r) || open_qp(r))
		return fail(errno ? -errno : -EIO, "%s: no queue pair: %s", ibv_get_device_name(r->port.context->device),
			    strerror(errno));
	ret = area_open(r);
	if (ret)
		return ret;
	reset_work(r);
	return 0;
}

int device_ready(struct rmem *r)
{
	for (unsigned int i = 0; i < RECEIVES; i++) {
		int ret = post_receive(r, i);

		if (ret)
			return ret;
	}
	return 0;
}

/* Another thread may be in poll() with this descriptor. It returns within a second. */
void device_close(struct rmem *r)
{
	while (r->polling)
		pthread_cond_wait(&r->changed, &r->lock);
	if (r->qp)
		ibv_destroy_qp(r->qp);
	memory_unregister_all(r);
	area_close(r);
	if (r->cq) {
		ibv_ack_cq_events(r->cq, r->events);
		ibv_destroy_cq(r->cq);
	}
	if (r->channel)
		ibv_destroy_comp_channel(r->channel);
	if (r->pd)
		ibv_dealloc_pd(r->pd);
	if (r->port.context)
		ibv_close_device(r->port.context);
	r->generation++;
	r->events = 0;
	r->qp = NULL;
	r->cq = NULL;
	r->channel = NULL;
	r->pd = NULL;
	memset(&r->port, 0, sizeof(r->port));
}

int post_receive(struct rmem *r, unsigned int index)
{
	struct ibv_sge sge = { (uintptr_t)receive_at(r, index), RMEM_MSG_SIZE, r->area_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = WR_RECEIVE | index, .sg_list = &sge, .num_sge = 1 }, *bad;
	int ret = ibv_post_recv(r->qp, &wr, &bad);

	if (!ret)
		return 0;
	connection_break(r, "a receive: %s", strerror(ret));
	return connection_down(r);
}

/* The queue has room: each caller first takes a struct wr, a struct slot, or the probe. */
int post(struct rmem *r, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int ret = ibv_post_send(r->qp, wr, &bad);

	if (!ret)
		return 0;
	connection_break(r, "a work request: %s", strerror(ret));
	return connection_down(r);
}

/* The memory of operations that end here belongs to the program again. */
static void requests_fail(struct rmem *r)
{
	for (struct slot *slot = r->slot; slot < r->slot + RMEM_SLOTS; slot++) {
		struct rmem_op *op = slot->wanted.op;

		*slot = (struct slot){ 0 };
		if (op)
			op_done(op, -ENOTCONN);
	}
	r->unanswered = 0;
	r->probed = 0;
	r->ask.count = 0;
}

/*
 * The thread that waits for the transaction can't do this, since another thread may have connected again before it runs. If the
 * queue is still here, nobody may add to it. Otherwise it would go with the transaction of another thread, and then once more.
 */
static void txn_broken(struct rmem *r)
{
	static const enum txn_state after[] = { [GO_QUEUE] = TXN_AGAIN, [GO_SENT] = TXN_DOUBT, [GO_FORGET] = TXN_OPEN };
	struct txn *t = &r->txn;

	if (t->state != TXN_GOING)
		return;
	t->state = after[t->go.phase];
	op_done(t->go.op, -ENOTCONN);
}

/*
 * The error state makes the receives complete, which wakes a thread that polls. Without its queue pair the device touches no
 * memory any more. So the memory of every operation that ends here belongs to the program again.
 */
void connection_break(struct rmem *r, const char *format, ...)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	va_list ap;

	if (!r->qp)
		return;
	va_start(ap, format);
	vsnprintf(r->down_why, sizeof(r->down_why), format, ap);
	va_end(ap);
	ibv_modify_qp(r->qp, &attr, IBV_QP_STATE);
	ibv_destroy_qp(r->qp);
	r->qp = NULL;
	r->generation++;
	if (r->state == UP)
		r->state = DOWN;
	requests_fail(r);
	data_fail(r);
	txn_broken(r);
	pthread_cond_broadcast(&r->changed);
}
