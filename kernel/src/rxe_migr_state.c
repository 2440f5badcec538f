// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The states of a queue pair under migration, and what each of them holds. */

#include "rxe_migr_loc.h"

#define CREATE_TRACE_POINTS
#include "rxe_migr_trace.h"

/*
 * RUNNING  -> PAUSED	 the peer stopped (STOP, NAK_STOPPED)
 * RUNNING  -> STOPPED	 checkpoint
 * PAUSED   -> RUNNING	 the peer resumed (and of UC has heard our answer, or
 *			 is waited for no longer), the deadline passed, reset
 * PAUSED   -> RESUMING	 the peer resumed and still owes us an answer
 * PAUSED   -> STOPPED	 checkpoint
 * RESUMING -> RUNNING	 our RESUME was answered, the deadline passed, reset
 * RESUMING -> PAUSED	 the peer stopped
 * RESUMING -> STOPPED	 checkpoint
 * STOPPED  -> RUNNING	 abort or restore of a QP without a peer, reset
 * STOPPED  -> RESUMING	 abort or restore
 * STOPPED  -> PAUSED	 the same, and the peer is stopped
 *
 * Forbidden: RUNNING -> RESUMING: only a QP that was stopped owes a RESUME.
 * A state may follow itself: packets are repeated.
 */
static const u8 rxe_migr_arcs[] = {
	[RXE_MIGR_QP_RUNNING]	= BIT(RXE_MIGR_QP_PAUSED) |
				  BIT(RXE_MIGR_QP_STOPPED),
	[RXE_MIGR_QP_PAUSED]	= BIT(RXE_MIGR_QP_RUNNING) |
				  BIT(RXE_MIGR_QP_RESUMING) |
				  BIT(RXE_MIGR_QP_STOPPED),
	[RXE_MIGR_QP_RESUMING]	= BIT(RXE_MIGR_QP_RUNNING) |
				  BIT(RXE_MIGR_QP_PAUSED) |
				  BIT(RXE_MIGR_QP_STOPPED),
	[RXE_MIGR_QP_STOPPED]	= BIT(RXE_MIGR_QP_RUNNING) |
				  BIT(RXE_MIGR_QP_RESUMING) |
				  BIT(RXE_MIGR_QP_PAUSED),
};

/*
 * A host that has just restored a thousand QPs, or is full of what has waited,
 * answers late. For so long after a QP goes on what it has to send again costs
 * no retry.
 */
#define RXE_MIGR_GRACE (5 * HZ)

void rxe_migr_give_grace(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	qp->migr.grace_end = get_jiffies_64() + RXE_MIGR_GRACE;
}

void rxe_migr_set_state(struct rxe_qp *qp, enum rxe_migr_qp_state to)
{
	u8 from = qp->migr_state;

	lockdep_assert_held(&qp->state_lock);

	if (from == to)
		return;
	if (WARN_ON_ONCE(!(rxe_migr_arcs[from] & BIT(to))))
		return;

	if (to == RXE_MIGR_QP_RUNNING)
		rxe_migr_give_grace(qp);
	WRITE_ONCE(qp->migr_state, to);
	trace_rxe_migr_state(qp_num(qp), qp->migr.epoch, from, to);
}

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

/* Does it cost no retry to send again? From the completer, which is about to */
bool rxe_migr_in_grace(struct rxe_qp *qp)
{
	unsigned long flags;
	bool grace;

	spin_lock_irqsave(&qp->state_lock, flags);
	grace = time_before64(get_jiffies_64(), qp->migr.grace_end);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	return grace;
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
