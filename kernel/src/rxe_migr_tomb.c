// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Tombstones: the number of a QP that was stopped and then destroyed goes on
 * answering for a while. A peer that has not heard STOP gets NAK_STOPPED, so that
 * it does not fail. A peer that has moved at the same time calls here, and gets
 * MOVED, which says where the QP is now: the QP has told its tombstone.
 *
 * Tombstones outlive their device. Packets that come for an interface without one have
 * pkt->rxe NULL. The next device of the interface has the tombstones of the last one.
 */

#include "rxe_migr_loc.h"

static unsigned int tombstone_lease = 60;
module_param(tombstone_lease, uint, 0644);
MODULE_PARM_DESC(tombstone_lease,
	"seconds for which the number of a moved QP answers (60; 0: not at all)");

struct rxe_migr_tomb {
	struct rcu_head		rcu;
	u32			qpn;
	u8			type;		/* the bits of opcodes for RC or UC */
	unsigned long		expires;
	struct rxe_av		av;
	struct rxe_migr_hdr	nak;
	spinlock_t		lock;
	struct rxe_migr_hdr	moved;		/* under lock; epoch 0: not known yet */
};

static unsigned long rxe_migr_lease_end(void)
{
	return jiffies + min(READ_ONCE(tombstone_lease), 86400U) * HZ;
}

/* Free the tombstones whose lease has ended. Are any left? */
bool rxe_migr_reap_tombs(struct rxe_migr_dev *dev)
{
	struct xarray *tombs = &dev->tombs;
	struct rxe_migr_tomb *tomb;
	unsigned long index;

	rcu_read_lock();
	xa_for_each(tombs, index, tomb)
		if (time_after_eq(jiffies, READ_ONCE(tomb->expires)) &&
		    xa_cmpxchg(tombs, index, tomb, NULL, 0) == tomb)
			kfree_rcu(tomb, rcu);
	rcu_read_unlock();

	return !xa_empty(tombs);
}

void rxe_migr_free_tombs(struct rxe_migr_dev *dev)
{
	struct rxe_migr_tomb *tomb;
	unsigned long index;

	xa_for_each(&dev->tombs, index, tomb)
		kfree_rcu(tomb, rcu);
	xa_destroy(&dev->tombs);
}

/* A QP that was stopped leaves a tombstone, but not one whose restore failed. */
void rxe_migr_bury(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_ucontext *uc = rxe_migr_qp_uctx(qp);
	struct rxe_migr_tomb *tomb, *old;
	union ib_gid gid;

	if (!uc || uc->migr.state != RXE_MIGR_CTX_STOPPED ||
	    !READ_ONCE(tombstone_lease) || !rxe_migr_connected(qp) ||
	    qp->migr.speech == RXE_MIGR_SPEECH_NEVER)
		return;

	tomb = kzalloc(sizeof(*tomb), GFP_KERNEL);
	if (!tomb)
		return;		/* STOP has told the peer */

	spin_lock_init(&tomb->lock);
	tomb->qpn = qp_num(qp);
	tomb->type = qp_type(qp) == IB_QPT_UC ? IB_OPCODE_UC : IB_OPCODE_RC;
	tomb->expires = rxe_migr_lease_end();
	tomb->av = qp->pri_av;
	rxe_migr_sgid(&qp->pri_av, &gid);
	memcpy(tomb->nak.old_gid, gid.raw, sizeof(gid.raw));
	memcpy(tomb->nak.new_gid, gid.raw, sizeof(gid.raw));
	tomb->nak.src_qpn = cpu_to_be32(qp_num(qp));
	tomb->nak.dest_qpn = cpu_to_be32(qp->attr.dest_qp_num);
	tomb->nak.epoch = cpu_to_be32(qp->migr.epoch);
	rxe_migr_bind(qp, &tomb->nak);

	old = xa_store(&rxe->migr->tombs, tomb->qpn, tomb, GFP_KERNEL);
	if (xa_is_err(old)) {
		kfree(tomb);
		return;
	}
	if (old)
		kfree_rcu(old, rcu);
	queue_delayed_work(system_unbound_wq, rxe->migr->reap, HZ);
}

/*
 * The QP is here again, and needs no tombstone. But a tombstone of this number may also
 * be that of the QP's peer, if the QP now has the address that its peer had. Then the QP
 * calls its own address, and the tombstone must answer.
 */
void rxe_migr_unbury(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_migr_tomb *tomb;
	union ib_gid gid;

	rxe_migr_sgid(&qp->pri_av, &gid);

	rcu_read_lock();
	tomb = xa_load(&rxe->migr->tombs, qp_num(qp));
	if (tomb &&
	    !memcmp(tomb->nak.old_gid, gid.raw, sizeof(gid.raw)) &&
	    be32_to_cpu(tomb->nak.dest_qpn) == qp->attr.dest_qp_num &&
	    memcmp(qp->pri_av.grh.dgid.raw, tomb->nak.old_gid,
		   sizeof(tomb->nak.old_gid)) &&
	    xa_cmpxchg(&rxe->migr->tombs, tomb->qpn, tomb, NULL, 0) == tomb)
		kfree_rcu(tomb, rcu);
	rcu_read_unlock();
}

static struct rxe_migr_tomb *rxe_migr_find_tomb(struct rxe_migr_dev *dev,
						u32 qpn)
{
	struct rxe_migr_tomb *tomb = xa_load(&dev->tombs, qpn);

	return tomb && time_before(jiffies, READ_ONCE(tomb->expires)) ?
	       tomb : NULL;
}

static bool rxe_migr_is_peer(const struct rxe_migr_tomb *tomb, const void *gid)
{
	return !memcmp(tomb->av.grh.dgid.raw, gid, sizeof(union ib_gid));
}

/* A request came for a QP that does not exist. Nothing of the packet is checked yet. */
void rxe_migr_ask_tomb(struct rxe_migr_dev *dev, struct rxe_pkt_info *pkt,
		       u32 qpn)
{
	struct sk_buff *skb = PKT_TO_SKB(pkt);
	struct rxe_migr_tomb *tomb;
	struct rxe_migr_hdr nak;
	union ib_gid from, to;
	struct rxe_av av;
	bool found;

	if (likely(xa_empty(&dev->tombs)) || !(pkt->mask & RXE_REQ_MASK))
		return;

	rxe_migr_packet_gids(skb, &from, &to);

	rcu_read_lock();
	tomb = rxe_migr_find_tomb(dev, qpn);
	found = tomb && rxe_migr_is_peer(tomb, &from) &&
		!memcmp(&to, tomb->nak.old_gid, sizeof(to)) &&
		(pkt->opcode & 0xe0) == tomb->type;
	if (found) {
		av = tomb->av;
		nak = tomb->nak;
	}
	rcu_read_unlock();
	if (!found || !pkey_match(bth_pkey(pkt), IB_DEFAULT_PKEY_FULL) ||
	    rxe_icrc_check(skb, pkt))
		return;

	nak.psn = cpu_to_be32(pkt->psn);
	rxe_migr_answer(pkt, &av, RXE_MIGR_OPCODE_NAK_STOPPED, &nak);
}

void rxe_migr_rcv_gone(struct rxe_pkt_info *pkt, u32 qpn)
{
	rxe_migr_ask_tomb(pkt->rxe->migr, pkt, qpn);
}

/*
 * The QP itself says where it is now. It repeats that until its peer has found it,
 * and each time the lease begins anew.
 */
static bool rxe_migr_learn_place(struct rxe_migr_tomb *tomb,
				 const struct rxe_migr_hdr *hdr,
				 const union ib_gid *from, bool authentic)
{
	u32 epoch = be32_to_cpu(hdr->epoch);
	unsigned long flags;

	if (!authentic || hdr->src_qpn != tomb->nak.src_qpn ||
	    hdr->psn != tomb->nak.dest_qpn ||
	    memcmp(hdr->new_gid, from, sizeof(hdr->new_gid)) ||
	    memcmp(hdr->old_gid, tomb->nak.old_gid, sizeof(hdr->old_gid)) ||
	    hdr->rq_psn != tomb->nak.rq_psn ||
	    (hdr->flags & tomb->nak.flags & cpu_to_be16(RXE_MIGR_FLAG_SQ_PSN) &&
	     hdr->sq_psn != tomb->nak.sq_psn) ||
	    rxe_migr_newer(be32_to_cpu(tomb->nak.epoch), epoch))
		return false;

	WRITE_ONCE(tomb->expires, rxe_migr_lease_end());
	spin_lock_irqsave(&tomb->lock, flags);
	if (!tomb->moved.epoch ||
	    rxe_migr_newer(epoch, be32_to_cpu(tomb->moved.epoch))) {
		tomb->moved = *hdr;
		tomb->moved.dest_qpn = tomb->nak.dest_qpn;
	}
	spin_unlock_irqrestore(&tomb->lock, flags);

	return true;
}

/* Is the packet from the other end of the connection that the tombstone's QP had? */
static bool rxe_migr_from_end(const struct rxe_migr_tomb *tomb,
			      const struct rxe_migr_hdr *hdr,
			      const union ib_gid *from)
{
	return hdr->src_qpn == tomb->nak.dest_qpn &&
	       !memcmp(hdr->new_gid, from, sizeof(hdr->new_gid)) &&
	       rxe_migr_is_bound(hdr, &tomb->nak);
}

/*
 * A packet of ours whose MAC was checked came for a number, and no QP takes it. Does
 * a tombstone take it? *found becomes true if there is one.
 */
bool rxe_migr_rcv_tomb(struct rxe_migr_dev *dev, struct rxe_pkt_info *pkt,
		       const struct rxe_migr_hdr *hdr,
		       const union ib_gid *from, const union ib_gid *to,
		       bool authentic, bool *found)
{
	u8 answer = 0, opcode = hdr->opcode;
	struct rxe_migr_hdr resp = {};
	struct rxe_migr_tomb *tomb;
	unsigned long flags;
	struct rxe_av av;
	bool taken = false, gone = false;

	rcu_read_lock();
	tomb = rxe_migr_find_tomb(dev, be32_to_cpu(hdr->dest_qpn));
	*found |= !!tomb;
	if (!tomb || memcmp(to, tomb->nak.old_gid, sizeof(*to)) ||
	    !rxe_migr_same_family(from->raw, to->raw))
		goto unlock;

	if (opcode == RXE_MIGR_OPCODE_MOVED) {
		taken = rxe_migr_learn_place(tomb, hdr, from, authentic);
	} else if (opcode == RXE_MIGR_OPCODE_STOP &&
		   rxe_migr_from_end(tomb, hdr, from) &&
		   rxe_migr_is_peer(tomb, from)) {
		taken = true;
		gone = true;
	} else if (opcode == RXE_MIGR_OPCODE_RESUME &&
		   rxe_migr_from_end(tomb, hdr, from) &&
		   (rxe_migr_is_peer(tomb, from) ||
		    (authentic && rxe_migr_is_peer(tomb, hdr->old_gid)))) {
		taken = true;
		av = tomb->av;
		spin_lock_irqsave(&tomb->lock, flags);
		if (tomb->moved.epoch) {
			answer = RXE_MIGR_OPCODE_MOVED;
			resp = tomb->moved;
		} else if (rxe_migr_is_peer(tomb, from)) {
			answer = RXE_MIGR_OPCODE_NAK_STOPPED;
			resp = tomb->nak;
		}
		spin_unlock_irqrestore(&tomb->lock, flags);
	}
unlock:
	rcu_read_unlock();

	if (gone)
		rxe_migr_send_gone(pkt, hdr, from, to, true);
	if (!answer)
		return taken;

	resp.psn = cpu_to_be32(pkt->psn);
	rxe_migr_call_at(pkt->rxe, &av, from);
	rxe_migr_answer(pkt, &av, answer, &resp);

	return taken;
}

/* Fill st with at most max tombstones; returns how many there are. */
unsigned int rxe_migr_tomb_status(struct rxe_dev *rxe,
				  struct rxe_migr_status *st, unsigned int max)
{
	struct rxe_migr_tomb *tomb;
	unsigned long index;
	unsigned int n = 0;

	rcu_read_lock();
	xa_for_each(&rxe->migr->tombs, index, tomb) {
		if (n++ >= max)
			continue;
		*st = (struct rxe_migr_status) {
			.qpn = tomb->qpn,
			.dest_qpn = be32_to_cpu(tomb->nak.dest_qpn),
			.state = RXE_MIGR_QP_STOPPED,
			.tombstone = 1,
			.epoch = be32_to_cpu(tomb->nak.epoch),
			.deadline_ms = jiffies_to_msecs(
				rxe_migr_left(READ_ONCE(tomb->expires))),
		};
		memcpy(st->sgid, tomb->nak.old_gid, sizeof(st->sgid));
		memcpy(st->dgid, tomb->av.grh.dgid.raw, sizeof(st->dgid));
		st++;
	}
	rcu_read_unlock();

	return n;
}
