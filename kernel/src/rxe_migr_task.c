// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The tasks of a queue pair, and the packets that wait for them: what a QP does
 * not do while it is held, and how it begins again.
 */

#include "rxe_migr_loc.h"

void rxe_migr_purge(struct rxe_qp *qp, struct sk_buff_head *pkts)
{
	struct sk_buff *skb;

	while ((skb = skb_dequeue(pkts))) {
		rxe_put(qp);
		kfree_skb(skb);
		ib_device_put(qp->ibqp.device);
	}
}

/*
 * Drop the requests that were received and not looked at, from the receiver's
 * task or while it is disabled. A purged packet is a lost packet, and the peer
 * sends it again. A READ whose answer is half sent is taken as answered: the
 * peer asks for the rest as it would after a loss, and finds the responder
 * resource.
 */
void rxe_migr_purge_requests(struct rxe_qp *qp)
{
	struct resp_res *res = qp->resp.res;

	rxe_migr_purge(qp, &qp->req_pkts);

	if (res) {
		u32 end = (res->last_psn + 1) & BTH_PSN_MASK;

		if (!res->replay && res->type == RXE_READ_MASK) {
			qp->resp.opcode = -1;
			if (psn_compare(end, qp->resp.psn) >= 0)
				qp->resp.psn = end;
		}
		qp->resp.res = NULL;
	}
	if (qp->resp.mr) {
		rxe_put(qp->resp.mr);
		qp->resp.mr = NULL;
	}
}

/* ------------------------------------------------------- held by a state -- */

/* A QP that has failed or was reset, or is being freed, flushes its queues. */
static bool rxe_migr_flushing(struct rxe_qp *qp)
{
	return qp_state(qp) == IB_QPS_ERR || qp_state(qp) == IB_QPS_RESET;
}

/*
 * What a QP that is held has in its queues is dropped, and will be sent again:
 * a QP of the same host, which may be the very one that is stopped here, does
 * not have more than some packets on their way, and these count until they
 * are freed.
 */

/* May the requester and the completer not run? From their task */
bool rxe_migr_hold_sender(struct rxe_qp *qp)
{
	unsigned long flags;
	bool hold;

	spin_lock_irqsave(&qp->state_lock, flags);
	switch (qp->migr_state) {
	case RXE_MIGR_QP_STOPPED:
		hold = qp->valid;
		break;
	case RXE_MIGR_QP_PAUSED:
	case RXE_MIGR_QP_RESUMING:
		hold = qp->valid && !rxe_migr_flushing(qp);
		break;
	default:
		hold = false;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (hold)
		rxe_migr_purge(qp, &qp->resp_pkts);

	return hold;
}

/*
 * May the responder not run? While RESUMING it may: a peer that sends to us
 * has accepted our RESUME, though its answer may be lost. What was sent to a
 * UC QP before its peer or itself stopped is not sent again. From its task
 */
bool rxe_migr_hold_receiver(struct rxe_qp *qp)
{
	unsigned long flags;
	bool hold;

	spin_lock_irqsave(&qp->state_lock, flags);
	switch (qp->migr_state) {
	case RXE_MIGR_QP_STOPPED:
		hold = qp->valid && !qp->migr.arriving;
		break;
	case RXE_MIGR_QP_PAUSED:
		hold = qp->valid && !rxe_migr_flushing(qp) &&
		       qp_type(qp) != IB_QPT_UC;
		break;
	default:
		hold = false;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (hold)
		rxe_migr_purge_requests(qp);

	return hold;
}

/* ------------------------------------------------------- beginning again -- */

/* Both tasks are disabled: one that is enabled while it runs, runs twice. */
void rxe_migr_enable(struct rxe_qp *qp)
{
	qp->migr.held = false;
	/* upstream leaves it disabled if it could not allocate these */
	if (!qp->attr.max_dest_rd_atomic || qp->resp.resources)
		rxe_enable_task(&qp->recv_task);
	rxe_enable_task(&qp->send_task);
	rxe_sched_task(&qp->recv_task);
	rxe_sched_task(&qp->send_task);
}

/*
 * Make the requester begin again at the oldest unacknowledged packet, with
 * fresh retry budgets: nothing of what was lost is the network's fault. The
 * QP's tasks are disabled.
 */
void rxe_migr_rewind(struct rxe_qp *qp)
{
	if (qp_type(qp) == IB_QPT_RC) {
		timer_delete_sync(&qp->retrans_timer);
		timer_delete_sync(&qp->rnr_nak_timer);
	}

	qp->req.wait_for_rnr_timer = 0;
	qp->req.wait_fence = 0;
	qp->req.wait_psn = 0;
	qp->need_req_skb = 0;
	qp->comp.timeout = 0;
	qp->comp.timeout_retry = 0;
	qp->comp.started_retry = 0;
	qp->comp.retry_cnt = qp->attr.retry_cnt;
	qp->comp.rnr_retry = qp->attr.rnr_retry;
	if (qp_type(qp) == IB_QPT_RC && qp_state(qp) >= IB_QPS_RTS &&
	    qp_state(qp) != IB_QPS_ERR)
		qp->req.need_retry = 1;
}
