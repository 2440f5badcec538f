// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A stopped queue pair goes on, here or where it was restored. */

#include "rxe_migr_loc.h"

/*
 * Let a stopped QP go on. Its peer, which was told of the stop or ran into it, is
 * called. The QP's tasks do not run before rxe_migr_release_qp().
 */
void rxe_migr_go_qp(struct rxe_qp *qp)
{
	unsigned long flags;
	bool call = false;

	mutex_lock(&qp->migr.mutex);

	/* the program runs, and is destroying the QP */
	if (READ_ONCE(qp->migr.dead)) {
		mutex_unlock(&qp->migr.mutex);
		return;
	}

	rxe_migr_disable(qp);
	rxe_migr_rewind(qp);
	rxe_migr_go_conn(qp);
	rxe_migr_unbury(qp);

	spin_lock_irqsave(&qp->state_lock, flags);
	rxe_migr_set_rest(qp, RXE_MIGR_REST_ENDS);
	if (qp->migr_state == RXE_MIGR_QP_STOPPED) {
		qp->migr.tries = 0;
		qp->migr.next_tx = jiffies + rxe_migr_first_wait(qp);
		call = rxe_migr_connected(qp);
		rxe_migr_set_call(qp, call ? RXE_MIGR_CALL_AWAITED :
					     RXE_MIGR_CALL_NONE);
		/* A QP that has no peer yet connects here: no connection moved. */
		qp->migr.restored &= call;
		qp->migr.call_ns = qp->migr.restored ? ktime_get_ns() : 0;
		if (qp->migr.peer == RXE_MIGR_PEER_STOPPED) {
			rxe_migr_set_state(qp, RXE_MIGR_QP_PAUSED);
			rxe_migr_set_deadline(qp);
		} else if (call) {
			rxe_migr_set_state(qp, RXE_MIGR_QP_RESUMING);
			rxe_migr_set_deadline(qp);
		} else {
			rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
			qp->migr.has_deadline = false;
		}
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);

	/*
	 * Under the mutex, so that no move of the peer is applied meanwhile:
	 * else the QP would keep the route to the peer's old address.
	 */
	if (call)
		rxe_migr_send(qp, RXE_MIGR_OPCODE_RESUME);

	mutex_unlock(&qp->migr.mutex);
}

void rxe_migr_release_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);
	/* unless a move of the peer was applied meanwhile: then the tasks run */
	if (qp->migr.rest == RXE_MIGR_REST_ENDS) {
		/* a modify verb may have enabled them */
		rxe_migr_disable(qp);
		rxe_migr_enable(qp);
	}
	mutex_unlock(&qp->migr.mutex);

	/* RUNNING: RESUME was answered already, but the QP goes on only now */
	spin_lock_irqsave(&qp->state_lock, flags);
	if (qp->migr_state == RXE_MIGR_QP_RUNNING && rxe_migr_connected(qp))
		rxe_migr_note_resume(qp);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	rxe_migr_kick(qp, rxe_migr_first_wait(qp));
}

/*
 * Our RESUME was answered. waits: the peer waits until it is told that the answer
 * has come. Answers to a repeated RESUME come in any order. From softirq.
 */
void rxe_migr_resumed_qp(struct rxe_qp *qp, bool waits)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);

	lockdep_assert_held(&qp->state_lock);

	if (!waits && qp->migr.call == RXE_MIGR_CALL_CONFIRM)
		rxe_migr_set_call(qp, RXE_MIGR_CALL_NONE);
	if (qp->migr.call != RXE_MIGR_CALL_AWAITED)
		return;

	rxe_migr_set_call(qp, waits ? RXE_MIGR_CALL_CONFIRM :
				      RXE_MIGR_CALL_NONE);
	qp->migr.tries = 0;
	qp->migr.next_tx = jiffies + RXE_MIGR_BACKOFF_MIN;
	rxe_migr_note_resume(qp);
	rxe_counter_inc(rxe, RXE_CNT_MIGR_RESUMES);

	if (qp->migr_state == RXE_MIGR_QP_RESUMING) {
		rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
	} else if (qp->migr_state == RXE_MIGR_QP_RUNNING) {
		/* the peer was still paused, and has lost what was sent to it */
		if (qp_type(qp) == IB_QPT_RC && qp_state(qp) >= IB_QPS_RTS &&
		    qp_state(qp) != IB_QPS_ERR)
			qp->req.need_retry = 1;
	} else {
		return;
	}
	qp->migr.has_deadline = false;
	rxe_sched_task(&qp->send_task);
}
