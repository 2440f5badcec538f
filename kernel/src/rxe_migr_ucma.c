// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The ids of a file of rdma_cm, and the events that wait in it. ucma shows them to
 * their process only, which knows them by pointers of its own. This file reads the
 * ids, and changes nothing but events and their count.
 */

#include <linux/delay.h>
#include <linux/file.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>
#include <rdma/rdma_user_cm.h>
#include "rxe_migr_loc.h"

#include <cma_priv.h>
#include "rxe_migr_ucma.h"	/* the structures of this kernel's ucma.c */

static void rxe_migr_cm_addr(u8 to[48], const struct sockaddr_storage *from)
{
	memcpy(to, from, rdma_addr_size((struct sockaddr *)from));
}

static void rxe_migr_cm_options(struct rxe_migr_cm_id *out,
				const struct rdma_id_private *id)
{
	if (id->reuseaddr)
		out->flags |= RXE_MIGR_CM_REUSEADDR;
	if (id->afonly)
		out->flags |= RXE_MIGR_CM_AFONLY;
	if (id->tos_set)
		out->flags |= RXE_MIGR_CM_TOS;
	if (id->timeout_set)
		out->flags |= RXE_MIGR_CM_ACK_TIMEOUT;
	out->tos = id->tos;
	out->ack_timeout = id->timeout;
}

/*
 * Has the CM heard the peer's DREQ, while rdma_cm has not? It will: the work that tells
 * it waits for handler_mutex.
 */
static bool rxe_migr_cm_is_late(const struct rdma_id_private *id)
{
	const struct ib_device *dev = READ_ONCE(id->id.device);

	lockdep_assert_held(&id->handler_mutex);

	return dev && dev->ops.driver_id == RDMA_DRIVER_RXE &&
	       id->id.qp_type != IB_QPT_UD && id->cm_id.ib &&
	       READ_ONCE(id->state) == RDMA_CM_CONNECT &&
	       READ_ONCE(id->cm_id.ib->state) == IB_CM_DREQ_RCVD;
}

static u32 rxe_migr_conn_state(const struct ib_cm_id *conn)
{
	/* rdma_cm has no cm_id before it connects, and after that has failed */
	if (!conn)
		return RXE_MIGR_CM_ENDED;

	switch (READ_ONCE(conn->state)) {
	case IB_CM_ESTABLISHED:
		return RXE_MIGR_CM_CONNECTED;
	case IB_CM_DREQ_RCVD:
		return RXE_MIGR_CM_LEFT;
	case IB_CM_IDLE:
		return RXE_MIGR_CM_ENDED;
	default:
		return RXE_MIGR_CM_BUSY;
	}
}

static u32 rxe_migr_cm_state(const struct rdma_id_private *id,
			     const struct ib_device *dev)
{
	switch (READ_ONCE(id->state)) {
	case RDMA_CM_IDLE:
		return RXE_MIGR_CM_IDLE;
	case RDMA_CM_ADDR_BOUND:
		return RXE_MIGR_CM_BOUND;
	case RDMA_CM_LISTEN:
		return RXE_MIGR_CM_LISTENING;
	case RDMA_CM_ADDR_RESOLVED:
		return RXE_MIGR_CM_ADDR_RESOLVED;
	case RDMA_CM_ROUTE_RESOLVED:
		return RXE_MIGR_CM_ROUTE_RESOLVED;
	case RDMA_CM_CONNECT:
	case RDMA_CM_DISCONNECT:
		if (!dev || dev->ops.driver_id != RDMA_DRIVER_RXE)
			return RXE_MIGR_CM_FOREIGN;
		if (id->id.qp_type == IB_QPT_UD)
			return RXE_MIGR_CM_DATAGRAM;
		return rxe_migr_conn_state(id->cm_id.ib);
	default:
		return RXE_MIGR_CM_BUSY;
	}
}

/* An id that has a connection to move */
static int rxe_migr_cm_conn(struct rxe_migr_cm_id *out,
			    const struct rdma_id_private *id,
			    struct rxe_dev *rxe, bool stop)
{
	const struct ib_cm_id *conn = id->cm_id.ib;
	struct rxe_qp *qp;
	unsigned long flags;
	int err = 0;

	out->comm_id = rxe_migr_wire_id(rxe, be32_to_cpu(conn->local_id));
	out->remote_comm_id = be32_to_cpu(conn->remote_id);

	qp = rxe_pool_get_index(&rxe->qp_pool, id->qp_num);
	if (!qp) {
		out->state = RXE_MIGR_CM_STRAY;
		return 0;
	}
	/* The QP does not go on while this holds its mutex. */
	mutex_lock(&qp->migr.mutex);
	spin_lock_irqsave(&qp->state_lock, flags);
	if (!rxe_migr_connected(qp) && !rxe_migr_failed(qp))
		out->state = RXE_MIGR_CM_STAND_IN;
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (stop && out->state != RXE_MIGR_CM_STAND_IN &&
	    READ_ONCE(qp->migr_state) == RXE_MIGR_QP_STOPPED)
		err = rxe_migr_stop_conn(qp, be32_to_cpu(conn->local_id),
					 out->remote_comm_id);
	mutex_unlock(&qp->migr.mutex);
	rxe_put(qp);

	return err;
}

/*
 * Take handler_mutex, which keeps the CM from changing the id. If the peer has left, the
 * file of the id has the event of that by then. False: the event did not come in a second.
 */
static bool rxe_migr_cm_lock(struct rdma_id_private *id)
{
	int tries = 50;

	mutex_lock(&id->handler_mutex);
	while (rxe_migr_cm_is_late(id) && tries--) {
		mutex_unlock(&id->handler_mutex);
		msleep(20);
		mutex_lock(&id->handler_mutex);
	}

	return !rxe_migr_cm_is_late(id);
}

/* An id that may be bound to a device */
static int rxe_migr_cm_bound(struct rxe_migr_cm_id *out,
			     struct rdma_id_private *id, bool stop)
{
	const struct rdma_addr *addr = &id->id.route.addr;
	struct ib_device *dev;
	bool whole = rxe_migr_cm_lock(id);
	int err = 0;

	dev = READ_ONCE(id->id.device);
	out->state = whole ? rxe_migr_cm_state(id, dev) : RXE_MIGR_CM_BUSY;
	out->ps = id->id.ps;
	out->qp_type = id->id.qp_type;
	out->qp_num = id->qp_num;
	rxe_migr_cm_options(out, id);
	rxe_migr_cm_addr(out->src_addr, &addr->src_addr);
	rxe_migr_cm_addr(out->dst_addr, &addr->dst_addr);
	if (dev)
		strscpy(out->device, dev_name(&dev->dev), sizeof(out->device));
	if (out->state == RXE_MIGR_CM_CONNECTED ||
	    out->state == RXE_MIGR_CM_LEFT)
		err = rxe_migr_cm_conn(out, id, to_rdev(dev), stop);
	mutex_unlock(&id->handler_mutex);

	return err;
}

/* Put the reference that rxe_migr_cm_ctxs() took. */
static void rxe_migr_cm_put(struct ucma_context *ctx)
{
	if (refcount_dec_and_test(&ctx->ref))
		complete(&ctx->comp);
}

/* Count the unread events of each context: ucma itself counts only those that were read. */
static void rxe_migr_cm_count(const struct ucma_file *ufile,
			      struct rxe_migr_cm_id *ids,
			      struct ucma_context **ctxs, unsigned int count)
{
	const struct ucma_event *event;
	unsigned int i;

	lockdep_assert_held(&ufile->mut);

	list_for_each_entry(event, &ufile->event_list, list) {
		cond_resched();
		for (i = 0; i < count; i++) {
			if (ctxs[i] != event->ctx)
				continue;
			ids[i].events_unread++;
			if (event->conn_req_ctx)
				ids[i].flags |= RXE_MIGR_CM_REQUESTED;
			break;
		}
	}
}

/*
 * The contexts of a file, each with a reference, as ucma takes it. ctxs has NULL for
 * a context that is being destroyed. Returns how many contexts there are.
 */
static unsigned int rxe_migr_cm_ctxs(struct ucma_file *ufile,
				     struct rxe_migr_cm_id *ids,
				     struct ucma_context **ctxs,
				     unsigned int max)
{
	struct rxe_migr_cm_id *first_id = ids;
	struct ucma_context **first = ctxs;
	struct ucma_context *ctx;
	unsigned int count = 0;

	mutex_lock(&ufile->mut);
	list_for_each_entry(ctx, &ufile->ctx_list, list) {
		if (count++ >= max)
			continue;
		memset(ids, 0, sizeof(*ids));
		ids->id = ctx->id;
		ids->uid = ctx->uid;
		ids->events_reported = ctx->events_reported;
		ids->backlog = atomic_read(&ctx->backlog);
		if (!list_empty(&ctx->mc_list))
			ids->flags |= RXE_MIGR_CM_MULTICAST;
		if (!refcount_inc_not_zero(&ctx->ref)) {
			ids->flags |= RXE_MIGR_CM_CLOSED;
			*ctxs = NULL;
		} else {
			*ctxs = ctx;
		}
		ids++;
		ctxs++;
	}
	rxe_migr_cm_count(ufile, first_id, first, min(count, max));
	mutex_unlock(&ufile->mut);

	return count;
}

/*
 * The ucma_file of a file, or -EINVAL: it is no file of rdma_cm, or its rdma_ucm was
 * built from other structures.
 */
static struct ucma_file *rxe_migr_cm_ufile(struct file *file)
{
	struct ucma_file *ufile = file->private_data;

	return rxe_migr_is_cm(file) && ufile->filp == file ? ufile :
							     ERR_PTR(-EINVAL);
}

/* Fill entries, struct rxe_migr_cm_id, with at most max ids; *count: how many there are. */
int rxe_migr_cm_ids(struct file *file, void *entries, unsigned int max,
		    unsigned int *count, u32 flags)
{
	struct ucma_file *ufile = rxe_migr_cm_ufile(file);
	struct rxe_migr_cm_id *ids = entries;
	struct ucma_context **ctxs;
	unsigned int i;
	int err = 0;

	if (IS_ERR(ufile))
		return PTR_ERR(ufile);

	ctxs = kvcalloc(max + 1, sizeof(*ctxs), GFP_KERNEL_ACCOUNT);
	if (!ctxs)
		return -ENOMEM;

	*count = rxe_migr_cm_ctxs(ufile, ids, ctxs, max);
	for (i = 0; i < min(*count, max); i++) {
		if (!ctxs[i])
			continue;
		err = err ?: rxe_migr_cm_bound(&ids[i],
				container_of(ctxs[i]->cm_id,
					     struct rdma_id_private, id),
				flags & RXE_MIGR_CM_LIST_STOP);
		rxe_migr_cm_put(ctxs[i]);
	}
	kvfree(ctxs);

	return err;
}

static struct ucma_context *rxe_migr_cm_find(struct ucma_file *ufile, u32 id)
{
	struct ucma_context *ctx;

	lockdep_assert_held(&ufile->mut);

	list_for_each_entry(ctx, &ufile->ctx_list, list)
		if (ctx->id == id)
			return ctx;

	return NULL;
}

/*
 * Set how many events of an id the process has read. librdmacm does not end an id
 * before the program has acknowledged so many.
 */
int rxe_migr_cm_refill(struct file *file, const struct rxe_migr_cm_refill *in)
{
	struct ucma_file *ufile = rxe_migr_cm_ufile(file);
	const struct ucma_event *event;
	struct ucma_context *ctx;
	int err = 0;

	if (IS_ERR(ufile))
		return PTR_ERR(ufile);

	mutex_lock(&ufile->mut);
	ctx = rxe_migr_cm_find(ufile, in->id);
	if (!ctx)
		err = -ENOENT;
	list_for_each_entry(event, &ufile->event_list, list)
		if (event->ctx == ctx)
			err = -EBUSY;
	if (!err)
		ctx->events_reported = in->events_reported;
	mutex_unlock(&ufile->mut);

	return err;
}

/* As rxe_migr_cm_ids(), with the unread events, struct rxe_migr_cm_event */
int rxe_migr_cm_events(struct file *file, void *entries, unsigned int max,
		       unsigned int *count, u32 flags)
{
	struct ucma_file *ufile = rxe_migr_cm_ufile(file);
	struct rxe_migr_cm_event *resp = entries;
	const struct ucma_event *event;

	*count = 0;
	if (IS_ERR(ufile))
		return PTR_ERR(ufile);

	BUILD_BUG_ON(sizeof(event->resp) != sizeof(*resp));

	mutex_lock(&ufile->mut);
	list_for_each_entry(event, &ufile->event_list, list)
		if (!event->conn_req_ctx && !event->mc && (*count)++ < max)
			memcpy(resp++, &event->resp, sizeof(*resp));
	mutex_unlock(&ufile->mut);

	return 0;
}

/* Add an event, as ucma does when the CM reports one. */
int rxe_migr_cm_report(struct file *file, const struct rxe_migr_cm_event *resp)
{
	struct ucma_file *ufile = rxe_migr_cm_ufile(file);
	struct ucma_event *event;
	struct ucma_context *ctx;

	if (IS_ERR(ufile))
		return PTR_ERR(ufile);

	/* rxe_migr_cm_events() lists no event that brings a new id or names a group */
	if (resp->event > RDMA_CM_EVENT_TIMEWAIT_EXIT ||
	    resp->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
	    resp->event == RDMA_CM_EVENT_MULTICAST_JOIN ||
	    resp->event == RDMA_CM_EVENT_MULTICAST_ERROR)
		return -EINVAL;

	event = kzalloc(sizeof(*event), GFP_KERNEL_ACCOUNT);
	if (!event)
		return -ENOMEM;

	mutex_lock(&ufile->mut);
	ctx = rxe_migr_cm_find(ufile, resp->id);
	if (ctx) {
		event->ctx = ctx;
		memcpy(&event->resp, resp, sizeof(*resp));
		event->resp.uid = ctx->uid;
		list_add_tail(&event->list, &ufile->event_list);
		wake_up_interruptible(&ufile->poll_wait);
	}
	mutex_unlock(&ufile->mut);
	if (!ctx)
		kfree(event);

	return ctx ? 0 : -ENOENT;
}
