// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A queue pair stops: it comes to rest, and its peer is told. */

#include "rxe_migr_loc.h"

/* After this no pass of the QP's tasks begins. rxe_migr_drain_qp() waits for running ones. */
void rxe_migr_stop_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);
	spin_lock_irqsave(&qp->state_lock, flags);
	if (qp->migr_state != RXE_MIGR_QP_STOPPED) {
		qp->migr.epoch++;
		/*
		 * If the last RESUME is unanswered, the peer may still know this
		 * QP by its earlier address.
		 */
		if (qp->migr.call != RXE_MIGR_CALL_AWAITED &&
		    qp->migr.call != RXE_MIGR_CALL_MISSED)
			rxe_migr_sgid(&qp->pri_av, &qp->migr.old_gid);
		if (qp_type(qp) == IB_QPT_UC && rxe_migr_connected(qp))
			rxe_migr_set_rest(qp, RXE_MIGR_REST_ARRIVING);
		spin_lock(&qp->req_pkts.lock);
		qp->migr.seen_psn = READ_ONCE(qp->resp.psn);
		spin_unlock(&qp->req_pkts.lock);
		if (qp->migr.call == RXE_MIGR_CALL_CONFIRM)
			rxe_migr_set_call(qp, RXE_MIGR_CALL_NONE);
		/* the answer to our next RESUME will tell whether it hears us */
		if (qp->migr.peer == RXE_MIGR_PEER_UNSURE)
			rxe_migr_set_peer(qp, RXE_MIGR_PEER_GOES);
		qp->migr.renewal_ns = 0;
		qp->migr.wait_ns = 0;
		if (qp->migr.peer != RXE_MIGR_PEER_STOPPED)
			qp->migr.last_known = false;	/* it was of an earlier stop */
		rxe_migr_set_state(qp, RXE_MIGR_QP_STOPPED);
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);
	mutex_unlock(&qp->migr.mutex);
}

/*
 * UC sends nothing again. So its peer is told of the stop at once, and this QP takes
 * what the peer sent before it paused: see rxe_migr_arrived().
 */
void rxe_migr_hush_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	if (qp_type(qp) != IB_QPT_UC)
		return;

	mutex_lock(&qp->migr.mutex);
	rxe_disable_task(&qp->send_task);
	spin_lock_irqsave(&qp->state_lock, flags);
	rxe_migr_set_rest(qp, rxe_migr_takes_in(qp) ? RXE_MIGR_REST_HUSHED :
						      RXE_MIGR_REST_FULL);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	mutex_unlock(&qp->migr.mutex);

	rxe_migr_announce_stop(qp);
}

/*
 * Has a stopped UC QP received all that its peer had sent? Packets that it dropped,
 * for want of a receive, count as received: seen_psn. If the peer was stopped long
 * before and its last PSN is not known, nothing is waited for.
 */
bool rxe_migr_arrived(struct rxe_qp *qp)
{
	struct rxe_migr_qp *m = &qp->migr;
	unsigned long flags;
	bool arrived, empty;
	u32 seen;

	spin_lock_irqsave(&qp->state_lock, flags);
	/* together: a packet that was seen is in the queue until it is processed */
	spin_lock(&qp->req_pkts.lock);
	empty = skb_queue_empty(&qp->req_pkts);
	seen = m->seen_psn;
	spin_unlock(&qp->req_pkts.lock);
	if (!rxe_migr_takes_in(qp) || !rxe_migr_connected(qp))
		arrived = true;
	else if (!empty)
		arrived = false;
	else if (m->last_known)
		arrived = psn_compare(READ_ONCE(qp->resp.psn), m->last_psn) >= 0 ||
			  psn_compare(seen, m->last_psn) >= 0;
	else
		arrived = m->peer == RXE_MIGR_PEER_STOPPED;
	spin_unlock_irqrestore(&qp->state_lock, flags);

	return arrived;
}

/*
 * Bring a stopped QP to rest: afterwards none of its tasks runs, no timer is armed,
 * and no packet is queued.
 */
void rxe_migr_drain_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);

	spin_lock_irqsave(&qp->state_lock, flags);
	rxe_migr_set_rest(qp, RXE_MIGR_REST_FULL);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	rxe_migr_disable(qp);

	if (qp_type(qp) == IB_QPT_RC) {
		timer_delete_sync(&qp->retrans_timer);
		timer_delete_sync(&qp->rnr_nak_timer);
	}

	rxe_migr_purge(qp, &qp->resp_pkts);
	rxe_migr_purge_requests(qp);

	mutex_unlock(&qp->migr.mutex);
}

/* ------------------------------------------------------ telling the peer -- */

/*
 * Give the next STOP a new renewal number. The answer to that STOP repeats the number,
 * so the peer has sent the answer later than now, and waits at least for the time that
 * it says, counted from now. For this, no number may be used twice, not even by a later
 * stop.
 */
static void rxe_migr_next_renewal(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	if (qp->migr.renewal < U16_MAX)
		qp->migr.renewal++;
	qp->migr.renewal_ns = ktime_get_ns();
	qp->migr.tries = 0;
	qp->migr.next_tx = jiffies + rxe_migr_first_wait(qp);
	qp->migr.stop_acked = false;
	if (qp->migr.speech == RXE_MIGR_SPEECH_HEARD)
		rxe_migr_set_speech(qp, RXE_MIGR_SPEECH_TOLD);
}

/* Tell the peer of the stop, so that it pauses even if it has nothing to send. */
void rxe_migr_announce_stop(struct rxe_qp *qp)
{
	unsigned long flags;
	bool connected;

	spin_lock_irqsave(&qp->state_lock, flags);
	rxe_migr_next_renewal(qp);
	if (qp->migr.call == RXE_MIGR_CALL_AWAITED)
		rxe_migr_set_call(qp, RXE_MIGR_CALL_NONE);
	qp->migr.has_deadline = false;	/* it was of a pause or resume before */
	connected = rxe_migr_connected(qp);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (!connected)
		return;

	rxe_migr_send(qp, RXE_MIGR_OPCODE_STOP);
	rxe_migr_kick(qp, rxe_migr_first_wait(qp));
}

/*
 * Ask the peer to wait for longer, once the stop was announced. A peer that has never
 * answered is asked, too: it may have heard of the stop, and its answers may be lost.
 */
void rxe_migr_renew_stop(struct rxe_qp *qp)
{
	unsigned long flags;
	bool renew;

	spin_lock_irqsave(&qp->state_lock, flags);
	renew = qp->migr_state == RXE_MIGR_QP_STOPPED &&
		rxe_migr_connected(qp) && qp->migr.renewal_ns &&
		qp->migr.renewal < U16_MAX;
	if (renew)
		rxe_migr_next_renewal(qp);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (!renew)
		return;

	rxe_migr_send(qp, RXE_MIGR_OPCODE_STOP);
	rxe_migr_kick(qp, rxe_migr_first_wait(qp));
}

/*
 * Until when does the peer of a stopped QP wait at least? A peer that has not
 * answered STOP may have heard of it by NAK_STOPPED. Its pause_timeout is taken to
 * be the one of this host.
 */
u64 rxe_migr_peer_waits(struct rxe_qp *qp, u64 stop_ns)
{
	u32 ms = rxe_migr_pause_ms();

	lockdep_assert_held(&qp->state_lock);

	if (qp->migr_state != RXE_MIGR_QP_STOPPED ||
	    qp->migr.speech == RXE_MIGR_SPEECH_NEVER || !rxe_migr_connected(qp))
		return U64_MAX;
	if (qp->migr.wait_ns)
		return qp->migr.wait_ns;

	return ms ? stop_ns + (u64)ms * NSEC_PER_MSEC : U64_MAX;
}
