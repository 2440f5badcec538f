// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What begins and ends with a device, a context and a queue pair; and the modify
 * verb, during which the QP neither stops nor goes on, and no move of its peer is
 * applied.
 */

#include <rdma/uverbs_ioctl.h>
#include "rxe_migr_loc.h"

void rxe_migr_dev_init(struct rxe_migr_dev *dev, struct delayed_work *reap)
{
	xa_init(&dev->tombs);
	INIT_LIST_HEAD(&dev->conns);
	spin_lock_init(&dev->conn_lock);
	dev->reap = reap;
}

void rxe_migr_dev_ends(struct rxe_migr_dev *dev)
{
	rxe_migr_free_conns(dev, false);
}

bool rxe_migr_dev_reap(struct rxe_migr_dev *dev)
{
	bool tombs = rxe_migr_reap_tombs(dev);
	bool conns = rxe_migr_reap_conns(dev);

	return tombs || conns;
}

void rxe_migr_dev_cleanup(struct rxe_migr_dev *dev)
{
	rxe_migr_free_conns(dev, true);
	rxe_migr_free_tombs(dev);
}

void rxe_migr_uctx_init(struct rxe_ucontext *uc)
{
	memset(&uc->migr, 0, sizeof(uc->migr));
	spin_lock_init(&uc->migr.lock);
}

void rxe_migr_uctx_cleanup(struct rxe_ucontext *uc)
{
	rxe_migr_drop_hint(uc);

	spin_lock(&uc->migr.lock);
	uc->migr.file = NULL;
	uc->migr.session = 0;
	spin_unlock(&uc->migr.lock);

	rxe_migr_drop_rings(uc);
}

void rxe_migr_qp_init(struct rxe_qp *qp, struct ib_udata *udata)
{
	struct rxe_ucontext *uc = rdma_udata_to_drv_context(udata,
						struct rxe_ucontext, ibuc);

	mutex_init(&qp->migr.mutex);
	INIT_DELAYED_WORK(&qp->migr.work, rxe_migr_work);

	if (uc && READ_ONCE(uc->migr.state) == RXE_MIGR_CTX_RESTORING) {
		qp->migr_state = RXE_MIGR_QP_STOPPED;
		qp->migr.restored = true;
		qp->resp.said_last_wqe = 1;	/* the source may have said it */
	}
}

/* Is the device taken from a program that goes on? (Then ib_uverbs has forgotten it.) */
static bool rxe_migr_device_goes(const struct ib_uobject *uobj)
{
	return uobj && !rcu_access_pointer(uobj->ufile->device->ib_dev);
}

/* The program may poll until its work is done, so all of it ends in an error. */
static void rxe_migr_flush_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);
	rxe_migr_disable(qp);
	spin_lock_irqsave(&qp->state_lock, flags);
	qp->migr.dead = true;	/* it goes soon, with its context */
	qp->attr.qp_state = IB_QPS_ERR;
	spin_unlock_irqrestore(&qp->state_lock, flags);
	rxe_completer(qp);
	rxe_receiver(qp);
	rxe_migr_enable(qp);
	mutex_unlock(&qp->migr.mutex);
}

/*
 * An object of a program is about to be destroyed. When the device goes, the newest
 * objects go first. But a QP must not run on when its regions or addresses are gone.
 * (Verbs that began before may still run, but no new one begins.)
 */
void rxe_migr_object_goes(const struct ib_uobject *uobj)
{
	struct rxe_ucontext *uc;
	unsigned long index;
	struct rxe_qp *qp;

	if (!rxe_migr_device_goes(uobj))
		return;

	uc = to_ruc(uobj->context);
	if (uc->migr.flushed)
		return;
	uc->migr.flushed = true;
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_flush_qp(qp);
}

static const struct ib_uobject *rxe_migr_qp_uobj(const struct rxe_qp *qp)
{
	const struct ib_uqp_object *uobj = qp->ibqp.uobject;

	return uobj ? &uobj->uevent.uobject : NULL;
}

void rxe_migr_qp_destroy(struct rxe_qp *qp)
{
	unsigned long flags;

	rxe_migr_object_goes(rxe_migr_qp_uobj(qp));

	spin_lock_irqsave(&qp->state_lock, flags);
	qp->migr.dead = true;
	spin_unlock_irqrestore(&qp->state_lock, flags);

	cancel_delayed_work_sync(&qp->migr.work);

	/* tasks must run to purge packets, each of which has a reference to the QP */
	mutex_lock(&qp->migr.mutex);
	if (qp->migr_state != RXE_MIGR_QP_RUNNING ||
	    qp->migr.rest == RXE_MIGR_REST_ENDS) {
		rxe_migr_disable(qp);
		rxe_migr_enable(qp);
	}
	mutex_unlock(&qp->migr.mutex);

	rxe_migr_orphan_conn(qp);
	rxe_migr_bury(qp);
}

/*
 * Not if the context is stopped, or the QP is stopped and has not gone on yet. But a
 * restore modifies its stopped QPs into their states.
 */
static bool rxe_migr_may_modify(struct rxe_qp *qp)
{
	struct rxe_ucontext *uc = rxe_migr_qp_uctx(qp);
	u32 state = uc ? READ_ONCE(uc->migr.state) : RXE_MIGR_CTX_RUNNING;

	lockdep_assert_held(&qp->migr.mutex);

	return state == RXE_MIGR_CTX_RESTORING ||
	       (state != RXE_MIGR_CTX_STOPPED &&
		qp->migr_state != RXE_MIGR_QP_STOPPED);
}

/* So long a modify verb waits: after a checkpoint a program runs before its context does. */
#define RXE_MIGR_MODIFY_WAIT HZ

/*
 * The caller holds none of the locks that stopping and going on take, so it may sleep
 * here. A signal, or another checkpoint, has the program make the call anew: it would
 * not expect EINTR.
 */
int rxe_migr_modify_begin(struct rxe_qp *qp)
{
	unsigned long end = jiffies + RXE_MIGR_MODIFY_WAIT;

	mutex_lock(&qp->migr.mutex);
	while (!rxe_migr_may_modify(qp)) {
		mutex_unlock(&qp->migr.mutex);
		if (time_after(jiffies, end))
			return -EBUSY;
		if (signal_pending(current))
			return -ERESTARTNOINTR;
		schedule_timeout_interruptible(1);
		mutex_lock(&qp->migr.mutex);
	}

	return 0;
}

void rxe_migr_modify_end(struct rxe_qp *qp, struct ib_qp_attr *attr, int mask)
{
	unsigned long flags;

	if (mask & IB_QP_SQ_PSN) {
		spin_lock_irqsave(&qp->state_lock, flags);
		qp->migr.has_sq_psn = true;
		spin_unlock_irqrestore(&qp->state_lock, flags);
	}

	/* after RESET the QP has no peer to wait for */
	if ((mask & IB_QP_STATE) && attr->qp_state == IB_QPS_RESET) {
		spin_lock_irqsave(&qp->state_lock, flags);
		rxe_migr_set_peer(qp, RXE_MIGR_PEER_GOES);
		rxe_migr_set_speech(qp, RXE_MIGR_SPEECH_NEVER);
		qp->migr.has_sq_psn = false;
		qp->attr.rq_psn = 0;
		qp->attr.sq_psn = 0;
		/* no peer knows this QP by an earlier address any more */
		rxe_migr_set_call(qp, RXE_MIGR_CALL_NONE);
		qp->migr.ack_owed = false;
		qp->migr.move.pending = false;
		qp->migr.has_deadline = false;
		qp->migr.gave_up = false;
		qp->migr.restored = false;
		qp->migr.call_ns = 0;
		qp->migr.last_known = false;
		qp->migr.stop_acked = false;
		qp->migr.peer_epoch = 0;
		memset(&qp->migr.peer_old_gid, 0, sizeof(qp->migr.peer_old_gid));
		memset(&qp->migr.last_gid, 0, sizeof(qp->migr.last_gid));
		if (qp->migr_state != RXE_MIGR_QP_STOPPED)
			rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
		qp->migr.grace_end = 0;
		spin_unlock_irqrestore(&qp->state_lock, flags);
		rxe_migr_orphan_conn(qp);
	}
	mutex_unlock(&qp->migr.mutex);
}
