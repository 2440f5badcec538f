// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A queue pair waits for its peer, and for how long. */

#include "rxe_migr_loc.h"

static unsigned int pause_timeout = 60;
module_param(pause_timeout, uint, 0644);
MODULE_PARM_DESC(pause_timeout,
	"seconds after which a QP whose peer is stopped fails (60; 0: never)");

static unsigned int pause_max = 600;
module_param(pause_max, uint, 0644);
MODULE_PARM_DESC(pause_max,
	"seconds for which a stopped peer that asks again is waited for (600)");

/* UC: after its move a peer has this long to say that it hears us. */
#define RXE_MIGR_HEARD_MAX	(5 * HZ)

static u32 rxe_migr_ms(unsigned int seconds)
{
	return min(seconds, U32_MAX / MSEC_PER_SEC) * MSEC_PER_SEC;
}

u32 rxe_migr_pause_ms(void)
{
	return rxe_migr_ms(READ_ONCE(pause_timeout));
}

void rxe_migr_set_deadline(struct rxe_qp *qp)
{
	u32 ms = rxe_migr_pause_ms();

	lockdep_assert_held(&qp->state_lock);

	/* one tick more, since the current one has begun already */
	qp->migr.has_deadline = ms;
	qp->migr.wait_begin = jiffies;
	qp->migr.deadline = jiffies + msecs_to_jiffies(ms) + 1;
}

/*
 * The peer is still stopped, and asks this QP to wait for longer. A deadline never
 * gets earlier. From softirq.
 */
void rxe_migr_extend_pause(struct rxe_qp *qp)
{
	unsigned long end = jiffies + msecs_to_jiffies(rxe_migr_pause_ms()) + 1;
	unsigned long last = qp->migr.wait_begin +
			     msecs_to_jiffies(rxe_migr_ms(READ_ONCE(pause_max)));

	lockdep_assert_held(&qp->state_lock);

	if (time_after(end, last))
		end = last;
	/* A QP that waits for ever, or has failed, has no deadline. */
	if (qp->migr.has_deadline && time_after(end, qp->migr.deadline))
		qp->migr.deadline = end;
}

/*
 * How many seconds this QP waits for its peer at least. A QP that is stopped itself
 * counts them from when it goes on.
 */
u16 rxe_migr_wait_s(const struct rxe_qp *qp)
{
	u32 ms = rxe_migr_pause_ms();
	unsigned long left = 0;

	lockdep_assert_held(&qp->state_lock);

	if (qp->migr.has_deadline)
		left = rxe_migr_left(qp->migr.deadline) / HZ;
	else if (!ms)
		return RXE_MIGR_WAIT_FOREVER;
	else if (qp->migr_state == RXE_MIGR_QP_STOPPED)
		left = ms / MSEC_PER_SEC;

	return min(left, RXE_MIGR_WAIT_FOREVER - 1UL);
}

/* The peer has stopped; epoch is the number of that stop. From softirq. */
void rxe_migr_pause_qp(struct rxe_qp *qp, u32 epoch)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	bool went_on = qp->migr_state == RXE_MIGR_QP_RUNNING ||
		       qp->migr_state == RXE_MIGR_QP_RESUMING ||
		       qp->migr.peer == RXE_MIGR_PEER_UNSURE;

	lockdep_assert_held(&qp->state_lock);

	rxe_migr_set_peer(qp, RXE_MIGR_PEER_STOPPED);
	qp->migr.stop_epoch = epoch;
	if (qp->migr.call == RXE_MIGR_CALL_CONFIRM)
		rxe_migr_set_call(qp, RXE_MIGR_CALL_NONE);

	if (went_on) {
		rxe_migr_set_state(qp, RXE_MIGR_QP_PAUSED);
		rxe_migr_set_deadline(qp);
		rxe_counter_inc(rxe, RXE_CNT_MIGR_PAUSES);
		/* the tasks purge what is queued: see rxe_migr_receiver_waits() */
		rxe_sched_task(&qp->recv_task);
		rxe_sched_task(&qp->send_task);
	}
}

/*
 * The peer goes on. So does this QP, unless its own RESUME is not answered yet, or
 * its UC peer may not hear it yet.
 */
void rxe_migr_unpause(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	if (qp->migr_state != RXE_MIGR_QP_PAUSED)
		return;

	if (qp->migr.call == RXE_MIGR_CALL_AWAITED) {
		rxe_migr_set_state(qp, RXE_MIGR_QP_RESUMING);
		rxe_migr_set_deadline(qp);
	} else if (qp->migr.peer == RXE_MIGR_PEER_UNSURE) {
		rxe_migr_set_deadline(qp);
		if (!qp->migr.has_deadline ||
		    time_after(qp->migr.deadline, jiffies + RXE_MIGR_HEARD_MAX))
			qp->migr.deadline = jiffies + RXE_MIGR_HEARD_MAX;
		qp->migr.has_deadline = true;
	} else {
		rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
		qp->migr.has_deadline = false;
	}
}

/* UC: the peer has heard our answer, so it hears what we send. From softirq. */
void rxe_migr_sure_qp(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	if (qp->migr.peer != RXE_MIGR_PEER_UNSURE)
		return;

	rxe_migr_set_peer(qp, RXE_MIGR_PEER_GOES);
	rxe_migr_unpause(qp);
	rxe_sched_task(&qp->send_task);
}

/* The last QP that goes on ends the blackout of its context. */
void rxe_migr_note_resume(struct rxe_qp *qp)
{
	struct rxe_ucontext *uc = rxe_migr_qp_uctx(qp);

	if (uc)
		WRITE_ONCE(uc->migr.resume_ns, ktime_get_ns());
}
