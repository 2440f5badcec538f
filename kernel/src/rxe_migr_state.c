// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The states of a queue pair under migration, and what is asked of one. */

#include "rxe_migr_loc.h"

#define CREATE_TRACE_POINTS
#include "rxe_migr_trace.h"

/* --------------------------------------------------- the state of the QP -- */

/*
 * docs/PROTOCOL.md says when each transition happens. A state may follow
 * itself: packets are repeated.
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
 * A host that has just restored a thousand QPs, or works off what has waited,
 * answers late, and its programs post receives late. For this long after a QP
 * goes on, time-outs and RNR NAKs cost it no retry.
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

	if (!rxe_migr_is_arc(rxe_migr_arcs, from, to))
		return;

	if (to == RXE_MIGR_QP_RUNNING)
		rxe_migr_give_grace(qp);
	WRITE_ONCE(qp->migr_state, to);
	trace_rxe_migr_state(qp_num(qp), qp->migr.epoch, from, to);
}

/* --------------------------------------------- what is known of its peer -- */

/*
 * GOES     -> STOPPED	 STOP or NAK_STOPPED came
 * STOPPED  -> GOES	 RESUME or MOVED came, reset, refill
 * STOPPED  -> UNSURE	 UC, paused: RESUME or MOVED came, and is answered
 * STOPPED  -> OVERDUE	 the deadline passed
 * UNSURE   -> GOES	 the answer was heard, the deadline passed, this QP stops
 * UNSURE   -> STOPPED	 STOP or NAK_STOPPED came
 * OVERDUE  -> GOES	 RESUME or MOVED came, reset
 * OVERDUE  -> STOPPED	 STOP or NAK_STOPPED of a later epoch came
 *
 * Forbidden: GOES and UNSURE -> OVERDUE: only a stopped peer can be overdue.
 * GOES and OVERDUE -> UNSURE: the QP of such a peer is not paused, so it need not
 * know whether it is heard.
 */
static const u8 rxe_migr_peer_arcs[] = {
	[RXE_MIGR_PEER_GOES]	= BIT(RXE_MIGR_PEER_STOPPED),
	[RXE_MIGR_PEER_STOPPED]	= BIT(RXE_MIGR_PEER_GOES) |
				  BIT(RXE_MIGR_PEER_UNSURE) |
				  BIT(RXE_MIGR_PEER_OVERDUE),
	[RXE_MIGR_PEER_UNSURE]	= BIT(RXE_MIGR_PEER_GOES) |
				  BIT(RXE_MIGR_PEER_STOPPED),
	[RXE_MIGR_PEER_OVERDUE]	= BIT(RXE_MIGR_PEER_GOES) |
				  BIT(RXE_MIGR_PEER_STOPPED),
};

void rxe_migr_set_peer(struct rxe_qp *qp, enum rxe_migr_peer_state to)
{
	lockdep_assert_held(&qp->state_lock);

	if (rxe_migr_is_arc(rxe_migr_peer_arcs, qp->migr.peer, to))
		qp->migr.peer = to;
}

/* --------------------------------------------- what became of its RESUME -- */

/*
 * NONE     -> AWAITED	 the QP goes on, and calls its peer
 * AWAITED  -> NONE	 the answer came, STOP is sent, reset
 * AWAITED  -> CONFIRM	 UC: the answer came, and says that the peer waits
 * AWAITED  -> MISSED	 the QP failed, or its deadline passed
 * CONFIRM  -> NONE	 the peer was told, stops or is told no more, this QP stops
 *			 or fails, reset
 * CONFIRM  -> AWAITED	 the QP was stopped again, and goes on
 * MISSED   -> NONE	 reset, or the QP goes on without a peer
 * MISSED   -> AWAITED	 the QP was stopped again, and goes on
 *
 * Forbidden: NONE and MISSED -> CONFIRM: an answer to no call changes nothing.
 * NONE and CONFIRM -> MISSED: only an awaited answer can be missed.
 */
static const u8 rxe_migr_call_arcs[] = {
	[RXE_MIGR_CALL_NONE]	= BIT(RXE_MIGR_CALL_AWAITED),
	[RXE_MIGR_CALL_AWAITED]	= BIT(RXE_MIGR_CALL_NONE) |
				  BIT(RXE_MIGR_CALL_CONFIRM) |
				  BIT(RXE_MIGR_CALL_MISSED),
	[RXE_MIGR_CALL_CONFIRM]	= BIT(RXE_MIGR_CALL_NONE) |
				  BIT(RXE_MIGR_CALL_AWAITED),
	[RXE_MIGR_CALL_MISSED]	= BIT(RXE_MIGR_CALL_NONE) |
				  BIT(RXE_MIGR_CALL_AWAITED),
};

void rxe_migr_set_call(struct rxe_qp *qp, enum rxe_migr_call_state to)
{
	lockdep_assert_held(&qp->state_lock);

	if (rxe_migr_is_arc(rxe_migr_call_arcs, qp->migr.call, to))
		qp->migr.call = to;
}

/* ------------------------------------------ does it speak the protocol? -- */

/*
 * NEVER    -> HEARD	 a packet of it came, or the record of a dump says so
 * HEARD    -> ASKED	 QUERY asks anew
 * HEARD    -> TOLD	 STOP is sent, or sent with a new renewal
 * ASKED    -> HEARD	 a packet of it came
 * TOLD     -> HEARD	 it answered STOP, or called; or its host says GONE
 * TOLD     -> ASKED	 this QP goes on, and QUERY asks anew
 * any      -> NEVER	 reset
 *
 * Forbidden: NEVER and ASKED -> TOLD: of a peer that has not answered while this QP
 * ran, no answer to STOP is expected. NEVER -> ASKED: it counts as unknown already.
 */
static const u8 rxe_migr_speech_arcs[] = {
	[RXE_MIGR_SPEECH_NEVER]	= BIT(RXE_MIGR_SPEECH_HEARD),
	[RXE_MIGR_SPEECH_HEARD]	= BIT(RXE_MIGR_SPEECH_NEVER) |
				  BIT(RXE_MIGR_SPEECH_ASKED) |
				  BIT(RXE_MIGR_SPEECH_TOLD),
	[RXE_MIGR_SPEECH_ASKED]	= BIT(RXE_MIGR_SPEECH_NEVER) |
				  BIT(RXE_MIGR_SPEECH_HEARD),
	[RXE_MIGR_SPEECH_TOLD]	= BIT(RXE_MIGR_SPEECH_NEVER) |
				  BIT(RXE_MIGR_SPEECH_HEARD) |
				  BIT(RXE_MIGR_SPEECH_ASKED),
};

void rxe_migr_set_speech(struct rxe_qp *qp, enum rxe_migr_speech to)
{
	lockdep_assert_held(&qp->state_lock);

	if (rxe_migr_is_arc(rxe_migr_speech_arcs, qp->migr.speech, to))
		qp->migr.speech = to;
}

/* ------------------------------------------------- how it comes to rest -- */

/*
 * NONE     -> ARRIVING	 UC, with a peer: it stops
 * NONE     -> FULL	 UC, without a peer: it is hushed; another type: it is drained
 * NONE     -> ENDS	 a QP that was restored, or created since the stop, goes on
 * ARRIVING -> HUSHED	 it is hushed
 * HUSHED   -> FULL	 it is drained: all has arrived, or is waited for no longer
 * FULL     -> ENDS	 abort: it goes on
 * ENDS     -> NONE	 it is released, or before that a move of its peer is applied,
 *			 or it is destroyed
 *
 * Forbidden: ARRIVING -> FULL: the peer must be told first, or it would send on.
 * ARRIVING and HUSHED -> ENDS: all QPs of a context are drained before one goes on.
 * ENDS -> ARRIVING and FULL: all of them are released before one is stopped again.
 * FULL -> NONE: a QP that is destroyed while it is stopped stays at rest.
 */
static const u8 rxe_migr_rest_arcs[] = {
	[RXE_MIGR_REST_NONE]	 = BIT(RXE_MIGR_REST_ARRIVING) |
				   BIT(RXE_MIGR_REST_FULL) |
				   BIT(RXE_MIGR_REST_ENDS),
	[RXE_MIGR_REST_ARRIVING] = BIT(RXE_MIGR_REST_HUSHED),
	[RXE_MIGR_REST_HUSHED]	 = BIT(RXE_MIGR_REST_FULL),
	[RXE_MIGR_REST_FULL]	 = BIT(RXE_MIGR_REST_ENDS),
	[RXE_MIGR_REST_ENDS]	 = BIT(RXE_MIGR_REST_NONE),
};

/* Both locks are held, so one of them is enough to read it. */
void rxe_migr_set_rest(struct rxe_qp *qp, enum rxe_migr_rest to)
{
	lockdep_assert_held(&qp->migr.mutex);
	lockdep_assert_held(&qp->state_lock);

	if (rxe_migr_is_arc(rxe_migr_rest_arcs, qp->migr.rest, to))
		qp->migr.rest = to;
}

/* --------------------------------------------------- what is asked of it -- */

/* Does a time-out or an RNR NAK cost no retry now? From the completer */
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
 * Does the QP have a peer to talk to? The caller holds qp->state_lock, or has the
 * tasks disabled, or no verb can change the QP. (A QP of the kernel never stops,
 * but it waits for a peer that does.)
 */
bool rxe_migr_connected(struct rxe_qp *qp)
{
	return (qp_type(qp) == IB_QPT_RC || qp_type(qp) == IB_QPT_UC) &&
	       qp->valid &&
	       qp_state(qp) >= IB_QPS_RTR && qp_state(qp) != IB_QPS_ERR;
}

/* Did the QP have a peer before it failed? */
bool rxe_migr_failed(struct rxe_qp *qp)
{
	return (qp_type(qp) == IB_QPT_RC || qp_type(qp) == IB_QPT_UC) &&
	       qp->is_user && qp->valid && qp_state(qp) == IB_QPS_ERR &&
	       qp->attr.dest_qp_num;
}

struct rxe_ucontext *rxe_migr_qp_uctx(struct rxe_qp *qp)
{
	struct ib_uqp_object *uobj = qp->ibqp.uobject;

	return uobj ? to_ruc(uobj->uevent.uobject.context) : NULL;
}

/* The QP of the context with the lowest number >= *index, with a reference, or NULL */
struct rxe_qp *rxe_migr_next_qp(struct rxe_ucontext *uc, unsigned long *index)
{
	struct rxe_pool *pool = &to_rdev(uc->ibuc.device)->qp_pool;
	struct rxe_pool_elem *elem;
	struct rxe_qp *qp;

	xa_for_each_start(&pool->xa, *index, elem, *index) {
		qp = rxe_pool_get_index(pool, *index);
		if (!qp)
			continue;
		if (rxe_migr_qp_uctx(qp) == uc)
			return qp;
		rxe_put(qp);
	}

	return NULL;
}
