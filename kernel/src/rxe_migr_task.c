// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The tasks of a queue pair, and the packets that wait for them. While a QP
 * waits, its tasks do nothing and its packets are purged; then it begins again.
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
 * Drop the requests that the responder has not looked at. Called from its task,
 * or while that is disabled. A purged packet is a lost packet: the peer sends it
 * again. A READ whose answer is half sent counts as answered: the peer asks for
 * the rest, as it would after a loss, and the responder resource is there.
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
}

/* ----------------------------------------------------- waiting in a state -- */

/* The tasks of a QP that has failed or was reset must flush its queues. */
static bool rxe_migr_flushing(struct rxe_qp *qp)
{
	return qp_state(qp) == IB_QPS_ERR || qp_state(qp) == IB_QPS_RESET;
}

/* A QP that has failed or was reset, and goes soon, flushes even while it is stopped. */
static bool rxe_migr_ending(struct rxe_qp *qp)
{
	return qp->migr.dead && rxe_migr_flushing(qp);
}

/*
 * A QP that waits purges its queues: rxe limits how many packets of a QP are on
 * their way, and counts each of them until it is freed. If both ends are on one
 * host, packets in the queue of the stopped QP would block the other end.
 */

/* Must the requester and the completer wait? Called from their task */
bool rxe_migr_sender_waits(struct rxe_qp *qp)
{
	unsigned long flags;
	bool wait;

	spin_lock_irqsave(&qp->state_lock, flags);
	switch (qp->migr_state) {
	case RXE_MIGR_QP_STOPPED:
		wait = qp->valid && !rxe_migr_ending(qp);
		break;
	case RXE_MIGR_QP_PAUSED:
	case RXE_MIGR_QP_RESUMING:
		wait = qp->valid && !rxe_migr_flushing(qp);
		break;
	default:
		wait = false;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (wait)
		rxe_migr_purge(qp, &qp->resp_pkts);

	return wait;
}

/*
 * Must the responder wait? Called from its task. It runs while RESUMING: a peer
 * that sends has accepted our RESUME, though the answer may be lost. The
 * responder of a UC QP also runs while PAUSED or arriving, since its peer does
 * not send again what it sent before.
 */
bool rxe_migr_receiver_waits(struct rxe_qp *qp)
{
	unsigned long flags;
	bool wait;

	spin_lock_irqsave(&qp->state_lock, flags);
	switch (qp->migr_state) {
	case RXE_MIGR_QP_STOPPED:
		wait = qp->valid && !rxe_migr_takes_in(qp) && !rxe_migr_ending(qp);
		break;
	case RXE_MIGR_QP_PAUSED:
		wait = qp->valid && !rxe_migr_flushing(qp) &&
		       qp_type(qp) != IB_QPT_UC;
		break;
	default:
		wait = false;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (wait)
		rxe_migr_purge_requests(qp);

	return wait;
}

/* ------------------------------------------------------- beginning again -- */

/* Afterwards neither task runs. Waits for the passes that they are in. */
void rxe_migr_disable(struct rxe_qp *qp)
{
	rxe_disable_task(&qp->recv_task);
	rxe_disable_task(&qp->send_task);
}

/*
 * Let the tasks run again. The caller has disabled both: a task that is enabled
 * while it runs would run twice.
 */
void rxe_migr_enable(struct rxe_qp *qp)
{
	unsigned long flags;

	/* a QP that ends while it is stopped stays at rest: its tasks only flush */
	spin_lock_irqsave(&qp->state_lock, flags);
	if (qp->migr.rest == RXE_MIGR_REST_ENDS)
		rxe_migr_set_rest(qp, RXE_MIGR_REST_NONE);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	/* upstream leaves the task disabled if it could not allocate resources */
	if (!qp->attr.max_dest_rd_atomic || qp->resp.resources)
		rxe_enable_task(&qp->recv_task);
	rxe_enable_task(&qp->send_task);
	rxe_sched_task(&qp->recv_task);
	rxe_sched_task(&qp->send_task);
}

/*
 * Make the requester begin again at the oldest unacknowledged packet. The retry
 * budgets are fresh, since the network has lost nothing. The QP's tasks are
 * disabled.
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
