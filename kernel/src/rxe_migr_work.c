// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The delayed work of a queue pair. It repeats STOP and RESUME, applies a move of
 * the peer, and ends the wait for the peer at its deadline.
 */

#include <linux/sched/mm.h>
#include <net/sock.h>
#include "rxe_migr_loc.h"

/*
 * How often STOP and RESUME with HEARD are repeated. Any other RESUME is repeated
 * until it is answered.
 */
#define RXE_MIGR_TRIES		8

/*
 * For QPs of the kernel. What such a QP sends may free memory, so it must go on, or
 * fail, even when no thread can be created: this queue has a rescuer. Work of
 * users' QPs does not run here, since it may wait for memory and block the rescuer.
 */
static struct workqueue_struct *rxe_migr_wq;

int rxe_migr_init(void)
{
	rxe_migr_wq = alloc_workqueue("rxe_migr", WQ_UNBOUND | WQ_MEM_RECLAIM,
				      0);
	return rxe_migr_wq ? 0 : -ENOMEM;
}

/* No QP is left, and each has waited for its work. */
void rxe_migr_exit(void)
{
	destroy_workqueue(rxe_migr_wq);
}

static struct workqueue_struct *rxe_migr_wq_of(const struct rxe_qp *qp)
{
	return qp->is_user ? system_unbound_wq : rxe_migr_wq;
}

/* How long to wait before a packet is sent once more */
static unsigned long rxe_migr_backoff(unsigned int tries)
{
	return min(RXE_MIGR_BACKOFF_MIN << min(tries, 10U),
		   RXE_MIGR_BACKOFF_MAX);
}

/*
 * How long to wait before a packet is sent a second time. All QPs of a context call
 * at once, and a host that many of them call needs time to answer: the same packets
 * again would only double its work. A peer of a UC QP is asked again soon, since
 * rxe_migr_stop_ctx() waits for it.
 */
unsigned long rxe_migr_first_wait(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	unsigned int qps = atomic_read(&rxe->qp_pool.num_elem);

	if (qp_type(qp) == IB_QPT_UC)
		return RXE_MIGR_BACKOFF_MIN;

	return min(RXE_MIGR_BACKOFF_MIN + msecs_to_jiffies(qps),
		   RXE_MIGR_BACKOFF_MAX);
}

/*
 * Run rxe_migr_work() after this delay, even if it was due at another time; at once,
 * if the peer has moved.
 */
void rxe_migr_kick(struct rxe_qp *qp, unsigned long delay)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->state_lock, flags);
	if (!qp->migr.dead)
		mod_delayed_work(rxe_migr_wq_of(qp), &qp->migr.work,
				 qp->migr.move.pending ? 0 : delay);
	spin_unlock_irqrestore(&qp->state_lock, flags);
}

/* Is there a move of the peer, and can this QP follow it now? */
static bool rxe_migr_take_move(struct rxe_qp *qp, struct rxe_migr_move *move)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->state_lock, flags);
	*move = qp->migr.move;
	qp->migr.move.pending = false;
	if (qp->migr_state == RXE_MIGR_QP_STOPPED)
		move->pending = false;	/* the peer will call again */
	spin_unlock_irqrestore(&qp->state_lock, flags);

	return move->pending;
}

/* The peer has moved, so it goes on, unless it has stopped again meanwhile. */
static void rxe_migr_peer_moved(struct rxe_qp *qp, u32 epoch)
{
	bool unsure = qp_type(qp) == IB_QPT_UC && rxe_migr_connected(qp) &&
		      qp->migr_state == RXE_MIGR_QP_PAUSED &&
		      qp->migr.call != RXE_MIGR_CALL_AWAITED;

	lockdep_assert_held(&qp->state_lock);

	if (qp->migr.peer == RXE_MIGR_PEER_STOPPED &&
	    rxe_migr_newer(qp->migr.stop_epoch, epoch))
		return;

	qp->migr.last_known = false;
	rxe_migr_set_peer(qp, unsure ? RXE_MIGR_PEER_UNSURE :
				       RXE_MIGR_PEER_GOES);
	rxe_migr_unpause(qp);
	if (qp->migr_state == RXE_MIGR_QP_RUNNING)
		rxe_migr_give_grace(qp);
}

/* Note where the peer is now. Is the peer to be answered? */
static bool rxe_migr_follow(struct rxe_qp *qp, const struct rxe_migr_move *move)
{
	bool awaited = qp->migr.call == RXE_MIGR_CALL_AWAITED;
	struct rxe_av *av = &qp->pri_av;

	lockdep_assert_held(&qp->state_lock);

	rxe_migr_call_at(to_rdev(qp->ibqp.device), av, &move->gid);
	/* its address moves along, and may still be one of this device's, too */
	if (move->wired)
		eth_zero_addr(av->dmac);
	qp->migr.peer_epoch = move->epoch;
	qp->migr.peer_old_gid = move->old_gid;
	rxe_migr_peer_moved(qp, move->epoch);
	if (!move->told)
		rxe_migr_sgid(av, &qp->migr.old_gid);
	if (awaited) {
		qp->migr.tries = 0;
		qp->migr.next_tx = jiffies;
	}

	/*
	 * Either the peer called us at this address and gets an answer, or it does
	 * not know this address yet: then our own RESUME, which is unanswered,
	 * tells it.
	 */
	return (!move->told || !awaited) && !qp->migr.gave_up;
}

/* The peer has moved: call it at its new address from now on. */
static void rxe_migr_apply_move(struct rxe_qp *qp)
{
	struct rxe_migr_move move;
	unsigned long flags;
	union ib_gid was;
	bool answer;

	mutex_lock(&qp->migr.mutex);
	if (!rxe_migr_take_move(qp, &move))
		goto unlock;

	rxe_migr_disable(qp);

	/* the peer asks again for the rest of a half-answered READ: its PSN must not look old */
	if (qp_type(qp) == IB_QPT_RC)
		rxe_migr_purge_requests(qp);
	rxe_migr_rewind(qp);

	spin_lock_irqsave(&qp->state_lock, flags);
	memcpy(was.raw, qp->pri_av.grh.dgid.raw, sizeof(was.raw));
	answer = rxe_migr_follow(qp, &move);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	sk_dst_reset(qp->sk->sk);
	if (memcmp(was.raw, move.gid.raw, sizeof(was.raw)))
		rxe_migr_move_conn(qp, &was);

	rxe_migr_enable(qp);
	if (answer)
		rxe_migr_send(qp, RXE_MIGR_OPCODE_RESUME_ACK);
unlock:
	mutex_unlock(&qp->migr.mutex);
}

/*
 * A peer of UC that stops waits for all that was sent to it before its STOP came.
 * Tell it the next PSN, once the requester is at rest.
 */
static void rxe_migr_ack_stop(struct rxe_qp *qp)
{
	unsigned long flags;
	bool owed;

	mutex_lock(&qp->migr.mutex);
	spin_lock_irqsave(&qp->state_lock, flags);
	owed = qp->migr.ack_owed && qp->migr.peer == RXE_MIGR_PEER_STOPPED &&
	       (qp->migr_state != RXE_MIGR_QP_STOPPED ||
		rxe_migr_is_hushed(qp));
	qp->migr.ack_owed = false;	/* if the answer is lost, STOP comes again */
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (owed && qp->migr.rest == RXE_MIGR_REST_NONE) {
		rxe_disable_task(&qp->send_task);
		rxe_enable_task(&qp->send_task);
		rxe_sched_task(&qp->send_task);
	}
	if (owed)
		rxe_migr_send(qp, RXE_MIGR_OPCODE_STOP_ACK);
	mutex_unlock(&qp->migr.mutex);
}

/* Our RESUME, if it is unanswered, is not repeated any more. */
static void rxe_migr_end_call(struct rxe_qp *qp)
{
	if (qp->migr.call == RXE_MIGR_CALL_AWAITED)
		rxe_migr_set_call(qp, RXE_MIGR_CALL_MISSED);
	else if (qp->migr.call == RXE_MIGR_CALL_CONFIRM)
		rxe_migr_set_call(qp, RXE_MIGR_CALL_NONE);
}

/* A move of the peer that was accepted, and is to be applied next, may end the wait. */
static bool rxe_migr_is_over(const struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	return qp->migr.has_deadline && !qp->migr.move.pending &&
	       time_after_eq(jiffies, qp->migr.deadline);
}

/*
 * The peer did not come back in time: the QP fails as if the peer were dead. The
 * oldest WQE ends with RETRY_EXC_ERR, and the rest is flushed. An idle QP goes to
 * the error state, since nothing else would tell its application. A UC QP sends
 * on, and nobody hears it.
 */
static void rxe_migr_give_up(struct rxe_qp *qp)
{
	struct rxe_send_wqe *wqe;
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);
	rxe_disable_task(&qp->send_task);

	spin_lock_irqsave(&qp->state_lock, flags);
	/* a packet that came meanwhile may have set a later deadline, or ends the wait */
	if (!rxe_migr_is_over(qp)) {
		spin_unlock_irqrestore(&qp->state_lock, flags);
		goto enable;
	}
	qp->migr.has_deadline = false;
	rxe_migr_end_call(qp);
	if (qp->migr_state != RXE_MIGR_QP_PAUSED &&
	    qp->migr_state != RXE_MIGR_QP_RESUMING) {
		spin_unlock_irqrestore(&qp->state_lock, flags);
		goto enable;
	}
	if (qp->migr.peer == RXE_MIGR_PEER_STOPPED)
		rxe_migr_set_peer(qp, RXE_MIGR_PEER_OVERDUE);
	else if (qp->migr.peer == RXE_MIGR_PEER_UNSURE)
		rxe_migr_set_peer(qp, RXE_MIGR_PEER_GOES);
	qp->migr.gave_up = qp_type(qp) == IB_QPT_RC;
	rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (qp_type(qp) != IB_QPT_RC)
		goto enable;

	/* called here, not by the task: the requester must begin nothing new */
	qp->req.need_retry = 0;
	wqe = queue_head(qp->sq.queue, QUEUE_TYPE_FROM_CLIENT);
	if (wqe) {
		rxe_counter_inc(to_rdev(qp->ibqp.device),
				RXE_CNT_RETRY_EXCEEDED);
		wqe->status = IB_WC_RETRY_EXC_ERR;
		wqe->state = wqe_state_error;
		rxe_completer(qp);
	}
	if (qp_state(qp) != IB_QPS_ERR)
		rxe_qp_error(qp);
enable:
	if (qp->migr.rest != RXE_MIGR_REST_ENDS) {
		rxe_enable_task(&qp->send_task);
		rxe_sched_task(&qp->send_task);
	}
	mutex_unlock(&qp->migr.mutex);
}

/*
 * A peer that never answered may have a driver without this protocol, and one that
 * did not answer this stop may have lost its key. Such a peer was not paused, so if
 * our address is still the same, this QP need not wait for it. It calls on until
 * the deadline all the same, since the peer may only be slow.
 * Calls that could not be sent do not count: see rxe_migr_call_again().
 */
static bool rxe_migr_peer_is_deaf(struct rxe_qp *qp)
{
	bool unheard = (qp->migr.speech == RXE_MIGR_SPEECH_TOLD &&
			!qp->migr.wait_ns) ||
		       qp->migr.speech == RXE_MIGR_SPEECH_ASKED;
	union ib_gid gid;

	lockdep_assert_held(&qp->state_lock);

	rxe_migr_sgid(&qp->pri_av, &gid);
	return qp->migr_state == RXE_MIGR_QP_RESUMING &&
	       (qp->migr.speech == RXE_MIGR_SPEECH_NEVER || unheard) &&
	       qp->migr.tries >= RXE_MIGR_TRIES &&
	       !memcmp(&gid, &qp->migr.old_gid, sizeof(gid));
}

/*
 * Repeat opcode; tries is how often it was repeated, this time included. Without a
 * key nothing is sent: that does not count as an unanswered call, and the next try
 * looks for a key again.
 */
static void rxe_migr_call_again(struct rxe_qp *qp, u8 opcode,
				unsigned int tries)
{
	struct rxe_migr_qp *m = &qp->migr;
	unsigned long flags;

	if (rxe_migr_send(qp, opcode) != -ENOKEY)
		return;

	spin_lock_irqsave(&qp->state_lock, flags);
	/* unless the count has begun anew meanwhile */
	if (m->tries == tries) {
		m->tries--;
		m->next_tx = jiffies + RXE_MIGR_BACKOFF_MAX;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);
}

/*
 * What does the QP repeat now, as its state is, until its peer answers? 0: nothing, or
 * no more. If the peer is deaf, the QP goes on, and calls it all the same. *seek is set
 * if the peer has not answered a call: it may have moved, too.
 */
static u8 rxe_migr_repeats(struct rxe_qp *qp, bool *seek)
{
	struct rxe_migr_qp *m = &qp->migr;

	lockdep_assert_held(&qp->state_lock);

	if (qp->migr_state == RXE_MIGR_QP_STOPPED)
		return !m->stop_acked && m->tries < RXE_MIGR_TRIES &&
		       rxe_migr_connected(qp) && m->renewal_ns ?
			RXE_MIGR_OPCODE_STOP : 0;

	if (m->call == RXE_MIGR_CALL_AWAITED) {
		if (rxe_migr_peer_is_deaf(qp)) {
			rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
			rxe_migr_note_resume(qp);
			rxe_sched_task(&qp->send_task);
		}
		*seek = m->tries;
		return RXE_MIGR_OPCODE_RESUME;
	}

	if (m->call == RXE_MIGR_CALL_CONFIRM) {
		if (m->tries < RXE_MIGR_TRIES)
			return RXE_MIGR_OPCODE_RESUME;
		rxe_migr_set_call(qp, RXE_MIGR_CALL_NONE);
	}

	return 0;
}

static void rxe_migr_run(struct rxe_qp *qp)
{
	struct rxe_migr_qp *m = &qp->migr;
	unsigned long flags, left, delay = 0;
	bool give_up, move, ack, alive, seek = false;
	unsigned int tries = 0;
	u8 opcode = 0;

	spin_lock_irqsave(&qp->state_lock, flags);
	move = m->move.pending;
	ack = m->ack_owed;
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (move)
		rxe_migr_apply_move(qp);
	if (ack)
		rxe_migr_ack_stop(qp);

	spin_lock_irqsave(&qp->state_lock, flags);
	alive = qp->valid && qp_state(qp) != IB_QPS_ERR &&
		qp_state(qp) != IB_QPS_RESET;
	give_up = alive && rxe_migr_is_over(qp);
	if (!alive) {
		rxe_migr_end_call(qp);
		m->has_deadline = false;
	} else if (!give_up) {	/* that is below, without the lock */
		opcode = rxe_migr_repeats(qp, &seek);
	}
	left = rxe_migr_left(m->next_tx);
	if (opcode && left) {
		delay = left;
		opcode = 0;
	} else if (opcode) {
		delay = rxe_migr_backoff(m->tries++);
		tries = m->tries;
		m->next_tx = jiffies + delay;
	}
	if (m->has_deadline && !give_up) {
		left = max(rxe_migr_left(m->deadline), 1UL);
		delay = delay ? min(delay, left) : left;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (give_up)
		rxe_migr_give_up(qp);
	if (opcode)
		rxe_migr_call_again(qp, opcode, tries);
	if (opcode && seek)
		rxe_migr_send_moved(qp);
	if (delay) {
		spin_lock_irqsave(&qp->state_lock, flags);
		if (!m->dead)	/* does nothing if a kick has queued it already */
			queue_delayed_work(rxe_migr_wq_of(qp), &m->work, delay);
		spin_unlock_irqrestore(&qp->state_lock, flags);
	}
}

void rxe_migr_work(struct work_struct *work)
{
	struct rxe_qp *qp = container_of(work, struct rxe_qp, migr.work.work);
	unsigned int reclaim;

	if (!sk_memalloc_socks() || qp->is_user) {
		rxe_migr_run(qp);
		return;
	}
	/* what the QP sends may free memory: it allocates from the reserves */
	reclaim = memalloc_noreclaim_save();
	rxe_migr_run(qp);
	memalloc_noreclaim_restore(reclaim);
}
