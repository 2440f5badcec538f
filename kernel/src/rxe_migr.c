// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Stopping, pausing and resuming queue pairs. */

#include <linux/sched/mm.h>
#include <net/sock.h>
#include <rdma/uverbs_ioctl.h>
#include "rxe_migr_loc.h"

static unsigned int pause_timeout = 60;
module_param(pause_timeout, uint, 0644);
MODULE_PARM_DESC(pause_timeout,
	"seconds after which a QP whose peer is stopped fails (60; 0: never)");

static unsigned int pause_max = 600;
module_param(pause_max, uint, 0644);
MODULE_PARM_DESC(pause_max,
	"seconds for which a stopped peer that asks again is waited for (600)");

/* STOP is repeated so often, RESUME until it is answered. */
#define RXE_MIGR_TRIES		8
#define RXE_MIGR_BACKOFF_MIN	msecs_to_jiffies(10)
#define RXE_MIGR_BACKOFF_MAX	msecs_to_jiffies(500)
/* UC: so long a peer that goes on is waited for to say that it hears us. */
#define RXE_MIGR_HEARD_MAX	(5 * HZ)

static u32 rxe_migr_ms(unsigned int seconds)
{
	return min(seconds, U32_MAX / MSEC_PER_SEC) * MSEC_PER_SEC;
}

static u32 rxe_migr_pause_ms(void)
{
	return rxe_migr_ms(READ_ONCE(pause_timeout));
}

struct rxe_ucontext *rxe_migr_qp_uctx(struct rxe_qp *qp)
{
	struct ib_uqp_object *uobj = qp->ibqp.uobject;

	return uobj ? to_ruc(uobj->uevent.uobject.context) : NULL;
}

/* The context's QP of the lowest number from *index on, held, or NULL. */
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

/*
 * Is there a peer to talk to? The caller holds qp->state_lock or the tasks. (A
 * QP of the kernel never stops, and waits for a peer that does as any other.)
 */
bool rxe_migr_connected(struct rxe_qp *qp)
{
	return (qp_type(qp) == IB_QPT_RC || qp_type(qp) == IB_QPT_UC) &&
	       qp->valid &&
	       qp_state(qp) >= IB_QPS_RTR && qp_state(qp) != IB_QPS_ERR;
}

/* Was it, before it failed? */
bool rxe_migr_failed(struct rxe_qp *qp)
{
	return (qp_type(qp) == IB_QPT_RC || qp_type(qp) == IB_QPT_UC) &&
	       qp->is_user && qp->valid && qp_state(qp) == IB_QPS_ERR &&
	       qp->attr.dest_qp_num;
}

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

/* Both tasks are disabled: one that is enabled while it runs, runs twice. */
static void rxe_migr_enable(struct rxe_qp *qp)
{
	qp->migr.held = false;
	/* upstream leaves it disabled if it could not allocate these */
	if (!qp->attr.max_dest_rd_atomic || qp->resp.resources)
		rxe_enable_task(&qp->recv_task);
	rxe_enable_task(&qp->send_task);
	rxe_sched_task(&qp->recv_task);
	rxe_sched_task(&qp->send_task);
}

/* ------------------------------------------------------------ lifetimes -- */

/*
 * Of QPs of the kernel, which may free memory by what they send: a paused one
 * goes on, or fails, also where no thread can be made. Work of users does not
 * run here: it waits for memory as they do, and would hold the rescuer up.
 */
static struct workqueue_struct *rxe_migr_wq;

int rxe_migr_init(void)
{
	rxe_migr_wq = alloc_workqueue("rxe_migr", WQ_UNBOUND | WQ_MEM_RECLAIM,
				      0);
	return rxe_migr_wq ? 0 : -ENOMEM;
}

/* (no QP is left, and each has waited for its work) */
void rxe_migr_exit(void)
{
	destroy_workqueue(rxe_migr_wq);
}

static struct workqueue_struct *rxe_migr_wq_of(const struct rxe_qp *qp)
{
	return qp->is_user ? system_unbound_wq : rxe_migr_wq;
}

static void rxe_migr_work(struct work_struct *work);

void rxe_migr_qp_init(struct rxe_qp *qp, struct ib_udata *udata)
{
	struct rxe_ucontext *uc = rdma_udata_to_drv_context(udata,
						struct rxe_ucontext, ibuc);

	mutex_init(&qp->migr.mutex);
	INIT_DELAYED_WORK(&qp->migr.work, rxe_migr_work);

	if (uc && READ_ONCE(uc->migr.state) == RXE_MIGR_CTX_RESTORING) {
		qp->migr_state = RXE_MIGR_QP_STOPPED;
		qp->migr.restored = true;
		qp->resp.said_last_wqe = 1;	/* if at all, by the source */
	}
}

void rxe_migr_qp_destroy(struct rxe_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->state_lock, flags);
	qp->migr.dead = true;
	spin_unlock_irqrestore(&qp->state_lock, flags);

	cancel_delayed_work_sync(&qp->migr.work);

	/* packets that wait for the QP hold references to it: purge them */
	mutex_lock(&qp->migr.mutex);
	if (qp->migr_state != RXE_MIGR_QP_RUNNING || qp->migr.held) {
		rxe_disable_task(&qp->recv_task);
		rxe_disable_task(&qp->send_task);
		rxe_migr_enable(qp);
	}
	mutex_unlock(&qp->migr.mutex);

	rxe_migr_orphan_conn(qp);
	rxe_migr_bury(qp);
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

int rxe_migr_modify_begin(struct rxe_qp *qp)
{
	struct rxe_ucontext *uc = rxe_migr_qp_uctx(qp);
	u32 state;

	mutex_lock(&qp->migr.mutex);
	state = uc ? READ_ONCE(uc->migr.state) : RXE_MIGR_CTX_RUNNING;
	/* stopped, or its turn to go on has not come; as it is restored it may */
	if (state == RXE_MIGR_CTX_STOPPED ||
	    (qp->migr_state == RXE_MIGR_QP_STOPPED &&
	     state != RXE_MIGR_CTX_RESTORING)) {
		mutex_unlock(&qp->migr.mutex);
		return -EBUSY;
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

	/* a QP that starts anew has no peer to wait for */
	if ((mask & IB_QP_STATE) && attr->qp_state == IB_QPS_RESET) {
		spin_lock_irqsave(&qp->state_lock, flags);
		qp->migr.peer_stopped = false;
		qp->migr.peer_knows = false;
		qp->migr.has_sq_psn = false;
		qp->attr.rq_psn = 0;
		qp->attr.sq_psn = 0;
		qp->migr.resume_owed = false;
		qp->migr.heard_owed = false;
		qp->migr.unsure = false;
		qp->migr.ack_owed = false;
		qp->migr.move.pending = false;
		qp->migr.has_deadline = false;
		qp->migr.gave_up = false;
		qp->migr.sent_on = false;
		qp->migr.unheard = false;	/* nobody knows where we were */
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

/* -------------------------------------------------------------- stopping -- */

/* No pass of the QP's tasks begins after this; see rxe_migr_drain_qp(). */
void rxe_migr_stop_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);
	spin_lock_irqsave(&qp->state_lock, flags);
	if (qp->migr_state != RXE_MIGR_QP_STOPPED) {
		qp->migr.epoch++;
		/* unanswered, the peer may know us where we were before */
		if (!qp->migr.resume_owed && !qp->migr.unheard)
			rxe_migr_sgid(&qp->pri_av, &qp->migr.old_gid);
		qp->migr.arriving = qp_type(qp) == IB_QPT_UC &&
				    rxe_migr_connected(qp);
		qp->migr.seen_psn = READ_ONCE(qp->resp.psn);
		qp->migr.heard_owed = false;
		qp->migr.unsure = false;	/* our own RESUME will be answered */
		qp->migr.wait_ns = 0;
		if (!qp->migr.peer_stopped)
			qp->migr.last_known = false;	/* of a stop before */
		rxe_migr_set_state(qp, RXE_MIGR_QP_STOPPED);
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);
	mutex_unlock(&qp->migr.mutex);
}

/*
 * UC has nothing sent again: its peer is told at once, and what that one has
 * sent before it pauses is waited for. See rxe_migr_arrived().
 */
void rxe_migr_hush_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	if (qp_type(qp) != IB_QPT_UC)
		return;

	mutex_lock(&qp->migr.mutex);
	rxe_disable_task(&qp->send_task);
	spin_lock_irqsave(&qp->state_lock, flags);
	qp->migr.hushed = true;
	spin_unlock_irqrestore(&qp->state_lock, flags);
	mutex_unlock(&qp->migr.mutex);

	rxe_migr_announce_stop(qp);
}

/*
 * Has a stopped UC QP received all that its peer had sent? What it had to drop,
 * for want of a receive, was seen to come. How far a peer got that has long
 * been stopped itself is not known any more.
 */
bool rxe_migr_arrived(struct rxe_qp *qp)
{
	struct rxe_migr_qp *m = &qp->migr;
	unsigned long flags;
	bool arrived;

	spin_lock_irqsave(&qp->state_lock, flags);
	if (!m->arriving || !rxe_migr_connected(qp))
		arrived = true;
	else if (!skb_queue_empty_lockless(&qp->req_pkts))
		arrived = false;
	else if (m->last_known)
		arrived = psn_compare(READ_ONCE(qp->resp.psn), m->last_psn) >= 0 ||
			  psn_compare(m->seen_psn, m->last_psn) >= 0;
	else
		arrived = m->peer_stopped;
	spin_unlock_irqrestore(&qp->state_lock, flags);

	return arrived;
}

/*
 * Bring a stopped QP to rest: nothing of it runs, no timer is armed, no packet
 * is queued.
 */
void rxe_migr_drain_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);

	spin_lock_irqsave(&qp->state_lock, flags);
	qp->migr.arriving = false;
	spin_unlock_irqrestore(&qp->state_lock, flags);

	rxe_disable_task(&qp->recv_task);
	rxe_disable_task(&qp->send_task);

	if (qp_type(qp) == IB_QPT_RC) {
		timer_delete_sync(&qp->retrans_timer);
		timer_delete_sync(&qp->rnr_nak_timer);
	}

	rxe_migr_purge(qp, &qp->resp_pkts);
	rxe_migr_purge_requests(qp);

	mutex_unlock(&qp->migr.mutex);
}

/* How long to wait for an answer to what is said again */
static unsigned long rxe_migr_backoff(unsigned int tries)
{
	return min(RXE_MIGR_BACKOFF_MIN << min(tries, 10U),
		   RXE_MIGR_BACKOFF_MAX);
}

/*
 * And at first: all QPs of a context call at once, and a peer of many takes its
 * time. Said again meanwhile, all of it would take as long again. A UC peer is
 * waited for, see rxe_migr_stop().
 */
static unsigned long rxe_migr_first_wait(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	unsigned int qps = atomic_read(&rxe->qp_pool.num_elem);

	if (qp_type(qp) == IB_QPT_UC)
		return RXE_MIGR_BACKOFF_MIN;

	return min(RXE_MIGR_BACKOFF_MIN + msecs_to_jiffies(qps),
		   RXE_MIGR_BACKOFF_MAX);
}

/*
 * STOP is said until it is answered. An answer to this one was sent after now,
 * whenever it comes: what it says of the peer's time counts from now on. So no
 * number is used twice, in whatever stop.
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
}

/* Tell the peer, so that it pauses even if it has nothing to send. */
void rxe_migr_announce_stop(struct rxe_qp *qp)
{
	unsigned long flags;
	bool connected;

	spin_lock_irqsave(&qp->state_lock, flags);
	rxe_migr_next_renewal(qp);
	qp->migr.resume_owed = false;
	qp->migr.has_deadline = false;	/* of a pause or resume before */
	connected = rxe_migr_connected(qp);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (!connected)
		return;

	rxe_migr_send(qp, RXE_MIGR_OPCODE_STOP);
	rxe_migr_kick(qp, rxe_migr_first_wait(qp));
}

/*
 * Ask the peer to wait for longer. One that seems never to have spoken the
 * protocol may have been told of the stop, and its answers lost.
 */
void rxe_migr_renew_stop(struct rxe_qp *qp)
{
	unsigned long flags;
	bool renew;

	spin_lock_irqsave(&qp->state_lock, flags);
	renew = qp->migr_state == RXE_MIGR_QP_STOPPED &&
		rxe_migr_connected(qp) && qp->migr.renewal < U16_MAX;
	if (renew)
		rxe_migr_next_renewal(qp);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (!renew)
		return;

	rxe_migr_send(qp, RXE_MIGR_OPCODE_STOP);
	rxe_migr_kick(qp, rxe_migr_first_wait(qp));
}

/*
 * Until when, at least, does the peer of a stopped QP wait? One that has not
 * answered may have been told since the stop, by NAK_STOPPED; it is taken to be
 * as patient as this host.
 */
u64 rxe_migr_peer_waits(struct rxe_qp *qp, u64 stop_ns)
{
	u32 ms = rxe_migr_pause_ms();

	lockdep_assert_held(&qp->state_lock);

	if (qp->migr_state != RXE_MIGR_QP_STOPPED || !qp->migr.peer_knows ||
	    !rxe_migr_connected(qp))
		return U64_MAX;
	if (qp->migr.wait_ns)
		return qp->migr.wait_ns;

	return ms ? stop_ns + (u64)ms * NSEC_PER_MSEC : U64_MAX;
}

/* -------------------------------------------------------------- going on -- */

/*
 * Make the requester begin again at the oldest unacknowledged packet, with
 * fresh retry budgets: nothing of what was lost is the network's fault. The
 * QP's tasks are disabled.
 */
static void rxe_migr_rewind(struct rxe_qp *qp)
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

static void rxe_migr_set_deadline(struct rxe_qp *qp)
{
	u32 ms = rxe_migr_pause_ms();

	lockdep_assert_held(&qp->state_lock);

	/* not before: this tick has begun already */
	qp->migr.has_deadline = ms;
	qp->migr.wait_begin = jiffies;
	qp->migr.deadline = jiffies + msecs_to_jiffies(ms) + 1;
}

/* The peer is stopped still, and asks for more time. Never for less. From softirq. */
void rxe_migr_extend_pause(struct rxe_qp *qp)
{
	unsigned long end = jiffies + msecs_to_jiffies(rxe_migr_pause_ms()) + 1;
	unsigned long last = qp->migr.wait_begin +
			     msecs_to_jiffies(rxe_migr_ms(READ_ONCE(pause_max)));

	lockdep_assert_held(&qp->state_lock);

	if (time_after(end, last))
		end = last;
	/* (one that fails just now has none any more) */
	if (qp->migr.has_deadline && time_after(end, qp->migr.deadline))
		qp->migr.deadline = end;
}

/*
 * For so many seconds, at least, this QP waits for its peer; one that is stopped
 * itself, from when it goes on.
 */
u16 rxe_migr_wait_s(const struct rxe_qp *qp)
{
	u32 ms = rxe_migr_pause_ms();
	unsigned long left = 0;

	lockdep_assert_held(&qp->state_lock);

	if (qp->migr.has_deadline)
		left = time_before(jiffies, qp->migr.deadline) ?
		       (qp->migr.deadline - jiffies) / HZ : 0;
	else if (!ms)
		return RXE_MIGR_WAIT_FOREVER;
	else if (qp->migr_state == RXE_MIGR_QP_STOPPED)
		left = ms / MSEC_PER_SEC;

	return min(left, RXE_MIGR_WAIT_FOREVER - 1UL);
}

/* The last QP of a context to go on ends its blackout. */
static void rxe_migr_note_resume(struct rxe_qp *qp)
{
	struct rxe_ucontext *uc = rxe_migr_qp_uctx(qp);

	if (uc)
		WRITE_ONCE(uc->migr.resume_ns, ktime_get_ns());
}

/*
 * Let a stopped QP go on, here or where it was restored. The peer was told that
 * it was stopped, or met it so, and is called back. Nothing of the QP runs
 * before rxe_migr_release_qp().
 */
void rxe_migr_go_qp(struct rxe_qp *qp)
{
	unsigned long flags;
	bool resume = false;

	mutex_lock(&qp->migr.mutex);

	/* its program runs, and destroys it */
	if (READ_ONCE(qp->migr.dead)) {
		mutex_unlock(&qp->migr.mutex);
		return;
	}

	rxe_disable_task(&qp->recv_task);
	rxe_disable_task(&qp->send_task);
	qp->migr.held = true;
	rxe_migr_rewind(qp);
	rxe_migr_go_conn(qp);
	rxe_migr_unbury(qp);

	spin_lock_irqsave(&qp->state_lock, flags);
	qp->migr.hushed = false;
	if (qp->migr_state == RXE_MIGR_QP_STOPPED) {
		qp->migr.tries = 0;
		qp->migr.next_tx = jiffies + rxe_migr_first_wait(qp);
		qp->migr.resume_owed = rxe_migr_connected(qp);
		qp->migr.unheard = false;
		/* (one that has no peer yet connects here) */
		qp->migr.restored &= qp->migr.resume_owed;
		qp->migr.call_ns = qp->migr.restored ? ktime_get_ns() : 0;
		if (qp->migr.peer_stopped) {
			rxe_migr_set_state(qp, RXE_MIGR_QP_PAUSED);
			rxe_migr_set_deadline(qp);
		} else if (qp->migr.resume_owed) {
			rxe_migr_set_state(qp, RXE_MIGR_QP_RESUMING);
			rxe_migr_set_deadline(qp);
		} else {
			rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
			qp->migr.has_deadline = false;
		}
		resume = qp->migr.resume_owed;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);

	/* now, for the peer may move: this keeps the route to where it was */
	if (resume)
		rxe_migr_send(qp, RXE_MIGR_OPCODE_RESUME);

	mutex_unlock(&qp->migr.mutex);
}

void rxe_migr_release_qp(struct rxe_qp *qp)
{
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);
	/* unless the peer moved meanwhile: then they are enabled, and busy */
	if (qp->migr.held) {
		/* a modify verb may have enabled them, too */
		rxe_disable_task(&qp->recv_task);
		rxe_disable_task(&qp->send_task);
		rxe_migr_enable(qp);
	}
	mutex_unlock(&qp->migr.mutex);

	/* answered before it could go on */
	spin_lock_irqsave(&qp->state_lock, flags);
	if (qp->migr_state == RXE_MIGR_QP_RUNNING && rxe_migr_connected(qp))
		rxe_migr_note_resume(qp);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	rxe_migr_kick(qp, rxe_migr_first_wait(qp));
}

/* The peer is stopped since this epoch of its own. From softirq. */
void rxe_migr_pause_qp(struct rxe_qp *qp, u32 epoch)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	bool went_on = qp->migr_state == RXE_MIGR_QP_RUNNING ||
		       qp->migr_state == RXE_MIGR_QP_RESUMING ||
		       qp->migr.unsure;

	lockdep_assert_held(&qp->state_lock);

	qp->migr.peer_stopped = true;
	qp->migr.stop_epoch = epoch;
	qp->migr.sent_on = false;
	qp->migr.heard_owed = false;
	qp->migr.unsure = false;

	if (went_on) {
		rxe_migr_set_state(qp, RXE_MIGR_QP_PAUSED);
		rxe_migr_set_deadline(qp);
		rxe_counter_inc(rxe, RXE_CNT_MIGR_PAUSES);
		/* for what is queued, see rxe_migr_hold_receiver() */
		rxe_sched_task(&qp->recv_task);
		rxe_sched_task(&qp->send_task);
	}
}

/*
 * Our RESUME was answered. Does the peer wait to be told so? The answers to
 * repeated ones come in any order. From softirq.
 */
void rxe_migr_resumed_qp(struct rxe_qp *qp, bool waits)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);

	lockdep_assert_held(&qp->state_lock);

	if (!waits)
		qp->migr.heard_owed = false;
	if (!qp->migr.resume_owed)
		return;

	qp->migr.resume_owed = false;
	qp->migr.heard_owed = waits;
	qp->migr.tries = 0;
	qp->migr.next_tx = jiffies + RXE_MIGR_BACKOFF_MIN;
	rxe_migr_note_resume(qp);
	rxe_counter_inc(rxe, RXE_CNT_MIGR_RESUMES);

	if (qp->migr_state == RXE_MIGR_QP_RESUMING) {
		rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
	} else if (qp->migr_state == RXE_MIGR_QP_RUNNING) {
		/* what was sent to a peer that was still paused is lost */
		if (qp_type(qp) == IB_QPT_RC && qp_state(qp) >= IB_QPS_RTS &&
		    qp_state(qp) != IB_QPS_ERR)
			qp->req.need_retry = 1;
	} else {
		return;
	}
	qp->migr.has_deadline = false;
	rxe_sched_task(&qp->send_task);
}

/* ---------------------------------------------------------------- timers -- */

/*
 * Run rxe_migr_work() after this delay, whenever it was due before; at once, if
 * the peer has moved.
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

/* The peer goes on. */
static void rxe_migr_unpause(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	if (qp->migr_state != RXE_MIGR_QP_PAUSED)
		return;

	if (qp->migr.resume_owed) {
		rxe_migr_set_state(qp, RXE_MIGR_QP_RESUMING);
		rxe_migr_set_deadline(qp);
	} else if (qp->migr.unsure) {
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

/* What we answered has arrived, and so will what we send. From softirq. */
void rxe_migr_sure_qp(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	if (!qp->migr.unsure)
		return;

	qp->migr.unsure = false;
	rxe_migr_unpause(qp);
	rxe_sched_task(&qp->send_task);
}

/* The peer has moved: call it at its new address from now on. */
static void rxe_migr_apply_move(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_av *av = &qp->pri_av;
	struct rxe_migr_move move;
	unsigned long flags;
	union ib_gid was;
	bool answer;

	mutex_lock(&qp->migr.mutex);

	spin_lock_irqsave(&qp->state_lock, flags);
	move = qp->migr.move;
	qp->migr.move.pending = false;
	if (qp->migr_state == RXE_MIGR_QP_STOPPED)
		move.pending = false;	/* it will call again */
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (!move.pending)
		goto unlock;

	rxe_disable_task(&qp->recv_task);
	rxe_disable_task(&qp->send_task);

	rxe_migr_rewind(qp);

	spin_lock_irqsave(&qp->state_lock, flags);
	memcpy(was.raw, av->grh.dgid.raw, sizeof(was.raw));
	rxe_migr_call_at(rxe, av, &move.gid);
	qp->migr.peer_epoch = move.epoch;
	qp->migr.peer_old_gid = move.old_gid;
	/* unless it has stopped again meanwhile */
	if (!qp->migr.peer_stopped ||
	    (s32)(qp->migr.stop_epoch - move.epoch) <= 0) {
		qp->migr.peer_stopped = false;
		qp->migr.sent_on = false;
		qp->migr.last_known = false;
		qp->migr.unsure = qp_type(qp) == IB_QPT_UC &&
				  rxe_migr_connected(qp) &&
				  qp->migr_state == RXE_MIGR_QP_PAUSED &&
				  !qp->migr.resume_owed;
		rxe_migr_unpause(qp);
		if (qp->migr_state == RXE_MIGR_QP_RUNNING)
			rxe_migr_give_grace(qp);
	}
	/* it called us here; or else does not know that we are, and is called */
	answer = (!move.told || !qp->migr.resume_owed) && !qp->migr.gave_up;
	if (!move.told)
		rxe_migr_sgid(av, &qp->migr.old_gid);
	if (qp->migr.resume_owed) {
		qp->migr.tries = 0;
		qp->migr.next_tx = jiffies;
	}
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
 * A peer of UC waits for what was sent to it before its STOP came: say how far
 * that goes, once nothing more follows.
 */
static void rxe_migr_ack_stop(struct rxe_qp *qp)
{
	unsigned long flags;
	bool owed;

	mutex_lock(&qp->migr.mutex);
	spin_lock_irqsave(&qp->state_lock, flags);
	owed = qp->migr.ack_owed && qp->migr.peer_stopped &&
	       (qp->migr_state != RXE_MIGR_QP_STOPPED || qp->migr.hushed);
	qp->migr.ack_owed = false;	/* STOP is repeated */
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (owed && !qp->migr.hushed && !qp->migr.held) {
		rxe_disable_task(&qp->send_task);
		rxe_enable_task(&qp->send_task);
		rxe_sched_task(&qp->send_task);
	}
	if (owed)
		rxe_migr_send(qp, RXE_MIGR_OPCODE_STOP_ACK);
	mutex_unlock(&qp->migr.mutex);
}

/*
 * The peer did not come back: fail as for a dead one. The oldest WQE ends with
 * RETRY_EXC_ERR and the rest is flushed; an idle QP just goes to the error
 * state, since nobody else will ever tell. An unreliable one sends on, and
 * nobody hears it.
 */
static void rxe_migr_give_up(struct rxe_qp *qp)
{
	struct rxe_send_wqe *wqe;
	unsigned long flags;

	mutex_lock(&qp->migr.mutex);
	rxe_disable_task(&qp->send_task);

	spin_lock_irqsave(&qp->state_lock, flags);
	/* (a stop, or a call, that came meanwhile has given it another time) */
	if ((qp->migr_state != RXE_MIGR_QP_PAUSED &&
	     qp->migr_state != RXE_MIGR_QP_RESUMING) ||
	    qp->migr.has_deadline) {
		spin_unlock_irqrestore(&qp->state_lock, flags);
		goto enable;
	}
	qp->migr.sent_on = qp->migr.peer_stopped;
	qp->migr.peer_stopped = false;
	qp->migr.resume_owed = false;
	qp->migr.unsure = false;
	qp->migr.has_deadline = false;
	qp->migr.gave_up = qp_type(qp) == IB_QPT_RC;
	rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (qp_type(qp) != IB_QPT_RC)
		goto enable;

	/* the completer itself, lest the requester begins something new */
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
	if (!qp->migr.held) {
		rxe_enable_task(&qp->send_task);
		rxe_sched_task(&qp->send_task);
	}
	mutex_unlock(&qp->migr.mutex);
}

/*
 * A peer that never answered anything may have a driver without this protocol.
 * It was not paused then, and if our address is the old one, it need not be
 * waited for. It is called all the same until the deadline: it may be far away.
 * Only calls that were sent count, see rxe_migr_call_again().
 */
static bool rxe_migr_peer_is_deaf(struct rxe_qp *qp)
{
	union ib_gid gid;

	lockdep_assert_held(&qp->state_lock);

	rxe_migr_sgid(&qp->pri_av, &gid);
	return qp->migr_state == RXE_MIGR_QP_RESUMING &&
	       !qp->migr.peer_knows && qp->migr.tries >= RXE_MIGR_TRIES &&
	       !memcmp(&gid, &qp->migr.old_gid, sizeof(gid));
}

/*
 * Say this for the time that tries counts. Without a key nothing is said: that
 * is no call which nobody answered, and a key is looked for now and then.
 */
static void rxe_migr_call_again(struct rxe_qp *qp, u8 opcode,
				unsigned int tries)
{
	struct rxe_migr_qp *m = &qp->migr;
	unsigned long flags;

	if (rxe_migr_send(qp, opcode) != -ENOKEY)
		return;

	spin_lock_irqsave(&qp->state_lock, flags);
	/* unless they are counted anew meanwhile */
	if (m->tries == tries) {
		m->tries--;
		m->next_tx = jiffies + RXE_MIGR_BACKOFF_MAX;
	}
	spin_unlock_irqrestore(&qp->state_lock, flags);
}

static void rxe_migr_run(struct rxe_qp *qp)
{
	struct rxe_migr_qp *m = &qp->migr;
	unsigned long flags, delay = 0;
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
	give_up = alive && m->has_deadline &&
		  time_after_eq(jiffies, m->deadline);
	if (!alive || give_up) {
		/* (this may be done again before anybody asks) */
		m->unheard |= m->resume_owed;
		m->resume_owed = false;
		m->heard_owed = false;
		m->has_deadline = false;
	} else if (qp->migr_state == RXE_MIGR_QP_STOPPED) {
		if (!m->stop_acked && m->tries < RXE_MIGR_TRIES &&
		    rxe_migr_connected(qp) && m->epoch)
			opcode = RXE_MIGR_OPCODE_STOP;
	} else if (m->resume_owed) {
		if (rxe_migr_peer_is_deaf(qp)) {
			rxe_migr_set_state(qp, RXE_MIGR_QP_RUNNING);
			rxe_migr_note_resume(qp);
			rxe_sched_task(&qp->send_task);
		}
		opcode = RXE_MIGR_OPCODE_RESUME;
		seek = m->tries;	/* the peer has moved, too, perhaps */
	} else if (m->heard_owed) {
		if (m->tries < RXE_MIGR_TRIES)
			opcode = RXE_MIGR_OPCODE_RESUME;
		else
			m->heard_owed = false;
	}
	if (opcode && time_before(jiffies, m->next_tx)) {
		delay = m->next_tx - jiffies;
		opcode = 0;
	} else if (opcode) {
		delay = rxe_migr_backoff(m->tries++);
		tries = m->tries;
		m->next_tx = jiffies + delay;
	}
	if (m->has_deadline) {
		unsigned long left = m->deadline - jiffies;

		delay = delay ? min(delay, max(left, 1UL)) : max(left, 1UL);
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
		if (!m->dead)	/* unless it was queued meanwhile, to run now */
			queue_delayed_work(rxe_migr_wq_of(qp), &m->work, delay);
		spin_unlock_irqrestore(&qp->state_lock, flags);
	}
}

static void rxe_migr_work(struct work_struct *work)
{
	struct rxe_qp *qp = container_of(work, struct rxe_qp, migr.work.work);
	unsigned int reclaim;

	if (!sk_memalloc_socks() || qp->is_user) {
		rxe_migr_run(qp);
		return;
	}
	/* (what it sends then may free memory) */
	reclaim = memalloc_noreclaim_save();
	rxe_migr_run(qp);
	memalloc_noreclaim_restore(reclaim);
}
