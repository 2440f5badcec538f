// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connections of the kernel's CM across moves. The CM numbers connections itself, by
 * communication ids, and nobody can choose them. So where a connection was restored,
 * ids are translated in the MADs that pass the GSI QP.
 *
 *   source	while the QP of a connection is stopped, and after it was
 *		destroyed, no MAD of the connection gets through
 *   destination	the CM connects anew, and is answered here; once the QP goes on,
 *		ids are translated
 *   peer	the CM still sends MADs to the address that it knows: they are
 *		redirected to where the QP's peer is
 *
 * This file follows what happens to QPs; rxe_migr_mad.c handles the MADs.
 */

#include "rxe_migr_loc.h"

/*
 * EXPECTED -> LIVE	 the QP goes on
 * LIVE     -> STOPPED	 checkpoint
 * STOPPED  -> LIVE	 abort
 *
 * Forbidden: EXPECTED -> STOPPED: what is being restored is not stopped.
 */
static const u8 rxe_migr_conn_arcs[] = {
	[RXE_MIGR_CONN_EXPECTED] = BIT(RXE_MIGR_CONN_LIVE),
	[RXE_MIGR_CONN_LIVE]	 = BIT(RXE_MIGR_CONN_STOPPED),
	[RXE_MIGR_CONN_STOPPED]	 = BIT(RXE_MIGR_CONN_LIVE),
};

static void rxe_migr_set_conn(struct rxe_dev *rxe, struct rxe_migr_conn *conn,
			      enum rxe_migr_conn_phase to)
{
	lockdep_assert_held(&rxe->migr->conn_lock);

	if (rxe_migr_is_arc(rxe_migr_conn_arcs, conn->phase, to))
		conn->phase = to;
}

/* The CM sends a DREQ 15 times, 8.6 s apart; this is longer. */
#define RXE_MIGR_CONN_LEASE	(180 * HZ)

void rxe_migr_conn_expire(struct rxe_dev *rxe, struct rxe_migr_conn *conn)
{
	if (conn->mortal)
		return;
	conn->mortal = true;
	conn->expires = jiffies + RXE_MIGR_CONN_LEASE;
	queue_delayed_work(system_unbound_wq, rxe->migr->reap, HZ);
}

/* Free connections whose lease has ended. Does another one have a lease? */
bool rxe_migr_reap_conns(struct rxe_migr_dev *dev)
{
	struct rxe_migr_conn *conn, *next;
	unsigned long flags;
	bool wait = false;

	spin_lock_irqsave(&dev->conn_lock, flags);
	list_for_each_entry_safe(conn, next, &dev->conns, list) {
		if (conn->mortal && conn->gone &&
		    time_after_eq(jiffies, conn->expires)) {
			list_del(&conn->list);
			kfree(conn);
		} else {
			wait |= conn->mortal;
		}
	}
	spin_unlock_irqrestore(&dev->conn_lock, flags);

	return wait;
}

/*
 * Free the connections of a device that ends: all of them, or those which no later
 * device of the interface needs. The CM has forgotten the connections of a device that
 * has ended, so there are no ids to translate. But it would answer a MAD of a connection
 * that has moved away, so that the peer would not ask where it is any more.
 */
void rxe_migr_free_conns(struct rxe_migr_dev *dev, bool all)
{
	struct rxe_migr_conn *conn, *next;
	unsigned long flags;

	spin_lock_irqsave(&dev->conn_lock, flags);
	list_for_each_entry_safe(conn, next, &dev->conns, list) {
		if (!all && conn->mortal && conn->gone &&
		    conn->phase == RXE_MIGR_CONN_STOPPED)
			continue;
		list_del(&conn->list);
		kfree(conn);
	}
	spin_unlock_irqrestore(&dev->conn_lock, flags);
}

/* The connection of a live QP */
struct rxe_migr_conn *rxe_migr_qp_conn(struct rxe_dev *rxe, u32 qpn)
{
	struct rxe_migr_conn *conn;

	lockdep_assert_held(&rxe->migr->conn_lock);

	rxe_migr_for_each_conn(conn, rxe)
		if (conn->qpn == qpn && !conn->gone)
			return conn;

	return NULL;
}

static struct rxe_migr_conn *rxe_migr_new_conn(struct rxe_qp *qp,
					       enum rxe_migr_conn_phase phase,
					       gfp_t gfp)
{
	struct rxe_migr_conn *conn = kzalloc(sizeof(*conn), gfp);

	if (conn) {
		conn->phase = phase;
		conn->qpn = qp_num(qp);
		conn->dest_qpn = qp->attr.dest_qp_num;
		memcpy(conn->peer.raw, qp->pri_av.grh.dgid.raw,
		       sizeof(conn->peer.raw));
	}

	return conn;
}

void rxe_migr_learn(struct rxe_migr_conn *conn, u32 local_id, u32 remote_id,
		    enum rxe_migr_conn_ids ids)
{
	if (WARN_ON_ONCE(conn->ids == RXE_MIGR_IDS_KNOWN))
		return;

	conn->local_id = local_id;
	conn->wire_id = local_id;
	conn->remote_id = remote_id;
	conn->ids = ids;
}

/* The QP is stopped, and so is its connection: the CM gave it these ids. */
int rxe_migr_stop_conn(struct rxe_qp *qp, u32 local_id, u32 remote_id)
{
	struct rxe_migr_conn *conn, *fresh =
		rxe_migr_new_conn(qp, RXE_MIGR_CONN_LIVE, GFP_KERNEL);
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	unsigned long flags;
	int err = 0;

	if (!fresh)
		return -ENOMEM;

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	conn = rxe_migr_qp_conn(rxe, qp_num(qp));
	if (!conn) {
		conn = fresh;
		fresh = NULL;
		list_add(&conn->list, &rxe->migr->conns);
	}
	if (conn->phase == RXE_MIGR_CONN_EXPECTED) {
		err = -EBUSY;	/* it is being restored */
		goto unlock;
	}
	if (conn->ids != RXE_MIGR_IDS_KNOWN)
		rxe_migr_learn(conn, local_id, remote_id, RXE_MIGR_IDS_KNOWN);
	/*
	 * When a program connects, it may name any QP: that of another program, or
	 * one for two connections.
	 */
	if (conn->local_id != local_id)
		err = -EEXIST;
	else if (READ_ONCE(qp->migr.dead))
		err = -ENOTCONN;
	else
		rxe_migr_set_conn(rxe, conn, RXE_MIGR_CONN_STOPPED);
unlock:
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);
	kfree(fresh);

	return err;
}

/* The CM is about to connect this QP, which was connected elsewhere. */
int rxe_migr_expect_conn(struct rxe_qp *qp,
			 const struct rxe_migr_cm_connect *in)
{
	struct rxe_migr_conn *conn, *fresh =
		rxe_migr_new_conn(qp, RXE_MIGR_CONN_EXPECTED, GFP_KERNEL);
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	unsigned long flags;
	int err = 0;

	if (!fresh)
		return -ENOMEM;
	fresh->wire_id = in->comm_id;
	fresh->remote_id = in->remote_comm_id;
	fresh->left = in->state == RXE_MIGR_CM_LEFT;
	memcpy(fresh->cookie, in->cookie, sizeof(fresh->cookie));

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	rxe_migr_for_each_conn(conn, rxe)
		if (!conn->gone && (conn->qpn == fresh->qpn ||
				    (conn->ids != RXE_MIGR_IDS_UNKNOWN &&
				     conn->wire_id == fresh->wire_id &&
				     conn->remote_id == fresh->remote_id)))
			err = -EEXIST;
	if (!err) {
		/* an earlier connection with these ids was here: it gets no MADs any more */
		rxe_migr_for_each_conn(conn, rxe)
			if (conn->wire_id == fresh->wire_id &&
			    conn->remote_id == fresh->remote_id)
				conn->deaf = true;
		list_add(&fresh->list, &rxe->migr->conns);
		fresh = NULL;
	}
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);
	kfree(fresh);

	return err;
}

/* The QP goes on, here or restored: a connection that needs no translation is forgotten. */
void rxe_migr_go_conn(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_migr_conn *conn;
	unsigned long flags;

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	conn = rxe_migr_qp_conn(rxe, qp_num(qp));
	if (conn && !conn->moved && conn->local_id == conn->wire_id) {
		list_del(&conn->list);
		kfree(conn);
	} else if (conn) {
		rxe_migr_set_conn(rxe, conn, RXE_MIGR_CONN_LIVE);
	}
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);
}

/* The QP's peer has moved away from @was. */
void rxe_migr_move_conn(struct rxe_qp *qp, const union ib_gid *was)
{
	struct rxe_migr_conn *conn, *fresh =
		rxe_migr_new_conn(qp, RXE_MIGR_CONN_LIVE, GFP_KERNEL);
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	unsigned long flags;

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	conn = rxe_migr_qp_conn(rxe, qp_num(qp));
	if (!conn && fresh) {
		conn = fresh;
		fresh = NULL;
		list_add(&conn->list, &rxe->migr->conns);
	}
	if (conn) {
		if (!conn->moved)
			conn->was = *was;
		conn->moved = true;
		memcpy(conn->peer.raw, qp->pri_av.grh.dgid.raw,
		       sizeof(conn->peer.raw));
		conn->av = qp->pri_av;
	}
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);
	kfree(fresh);
}

/*
 * The QP is destroyed or reset, and the program may end the connection later. An entry
 * by which MADs are translated stays until a DREQ or DREP has passed; any other
 * gets its lease now.
 */
void rxe_migr_orphan_conn(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_migr_conn *conn;
	unsigned long flags;

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	conn = rxe_migr_qp_conn(rxe, qp_num(qp));
	if (conn) {
		conn->gone = true;
		if (conn->mortal || conn->phase != RXE_MIGR_CONN_LIVE ||
		    conn->ids == RXE_MIGR_IDS_UNKNOWN ||
		    conn->local_id == conn->wire_id) {
			conn->mortal = false;
			rxe_migr_conn_expire(rxe, conn);
		}
	}
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);
}

/* The id by which the peer knows a connection: an earlier host may have given it. */
u32 rxe_migr_wire_id(struct rxe_dev *rxe, u32 local_id)
{
	struct rxe_migr_conn *conn;
	unsigned long flags;
	u32 id = local_id;

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	rxe_migr_for_each_conn(conn, rxe)
		if (conn->ids != RXE_MIGR_IDS_UNKNOWN &&
		    conn->local_id == local_id)
			id = conn->wire_id;
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);

	return id;
}
