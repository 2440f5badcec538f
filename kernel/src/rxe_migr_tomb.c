// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Tombstones: the number of a QP that was stopped and then destroyed goes on
 * answering NAK_STOPPED for a while, so that a peer that has not heard STOP
 * does not take silence for death.
 */

#include "rxe_migr_loc.h"

static unsigned int tombstone_lease = 60;
module_param(tombstone_lease, uint, 0644);
MODULE_PARM_DESC(tombstone_lease,
	"seconds for which the number of a moved QP answers (60; 0: not at all)");

struct rxe_migr_tomb {
	struct rcu_head		rcu;
	u32			qpn;
	unsigned long		expires;
	struct rxe_av		av;
	struct rxe_migr_hdr	nak;
};

static void rxe_migr_reap(struct work_struct *work)
{
	struct rxe_migr_dev *dev = container_of(work, struct rxe_migr_dev,
						reap.work);
	struct rxe_dev *rxe = container_of(dev, struct rxe_dev, migr);
	struct rxe_migr_tomb *tomb;
	unsigned long index;
	bool wait;

	rcu_read_lock();
	xa_for_each(&dev->tombs, index, tomb)
		if (time_after_eq(jiffies, tomb->expires) &&
		    xa_cmpxchg(&dev->tombs, index, tomb, NULL, 0) == tomb)
			kfree_rcu(tomb, rcu);
	rcu_read_unlock();

	wait = rxe_migr_reap_conns(rxe, false);
	if (wait || !xa_empty(&dev->tombs))
		queue_delayed_work(system_unbound_wq, &dev->reap, HZ);
}

void rxe_migr_dev_init(struct rxe_dev *rxe)
{
	xa_init(&rxe->migr.tombs);
	INIT_LIST_HEAD(&rxe->migr.conns);
	spin_lock_init(&rxe->migr.conn_lock);
	INIT_DELAYED_WORK(&rxe->migr.reap, rxe_migr_reap);
}

void rxe_migr_dev_cleanup(struct rxe_dev *rxe)
{
	struct rxe_migr_tomb *tomb;
	unsigned long index;

	/* no QP is left that could be buried */
	cancel_delayed_work_sync(&rxe->migr.reap);
	rxe_migr_reap_conns(rxe, true);
	xa_for_each(&rxe->migr.tombs, index, tomb)
		kfree_rcu(tomb, rcu);
	xa_destroy(&rxe->migr.tombs);
}

/* A QP that was stopped, not one whose restore failed, leaves a tombstone. */
void rxe_migr_bury(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_ucontext *uc = rxe_migr_qp_uctx(qp);
	unsigned int lease = READ_ONCE(tombstone_lease);
	struct rxe_migr_tomb *tomb, *old;
	union ib_gid gid;

	if (!uc || uc->migr.state != RXE_MIGR_CTX_STOPPED || !lease ||
	    !rxe_migr_connected(qp) || !qp->migr.peer_knows)
		return;

	tomb = kzalloc(sizeof(*tomb), GFP_KERNEL);
	if (!tomb)
		return;		/* the peer was told by STOP */

	tomb->qpn = qp_num(qp);
	tomb->expires = jiffies + min(lease, 86400U) * HZ;
	tomb->av = qp->pri_av;
	rxe_migr_sgid(&qp->pri_av, &gid);
	memcpy(tomb->nak.old_gid, gid.raw, sizeof(gid.raw));
	memcpy(tomb->nak.new_gid, gid.raw, sizeof(gid.raw));
	tomb->nak.src_qpn = cpu_to_be32(qp_num(qp));
	tomb->nak.dest_qpn = cpu_to_be32(qp->attr.dest_qp_num);
	tomb->nak.epoch = cpu_to_be32(qp->migr.epoch);

	old = xa_store(&rxe->migr.tombs, tomb->qpn, tomb, GFP_KERNEL);
	if (xa_is_err(old)) {
		kfree(tomb);
		return;
	}
	if (old)
		kfree_rcu(old, rcu);
	queue_delayed_work(system_unbound_wq, &rxe->migr.reap, HZ);
}

/* The number is in use again. */
void rxe_migr_unbury(struct rxe_dev *rxe, u32 qpn)
{
	struct rxe_migr_tomb *tomb = xa_erase(&rxe->migr.tombs, qpn);

	if (tomb)
		kfree_rcu(tomb, rcu);
}

/* A packet came for a QP that does not exist. */
void rxe_migr_rcv_gone(struct rxe_pkt_info *pkt, u32 qpn)
{
	struct sk_buff *skb = PKT_TO_SKB(pkt);
	struct rxe_dev *rxe = pkt->rxe;
	struct rxe_migr_tomb *tomb;
	struct rxe_migr_hdr nak;
	struct rxe_qp *carrier;
	union ib_gid from;
	struct rxe_av av;
	bool found;

	if (likely(xa_empty(&rxe->migr.tombs)) ||
	    !((pkt->mask & RXE_REQ_MASK) ||
	      pkt->opcode == RXE_MIGR_OPCODE_RESUME))
		return;

	if (skb->protocol == htons(ETH_P_IP))
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr,
				       (struct in6_addr *)&from);
	else
		memcpy(from.raw, &ipv6_hdr(skb)->saddr, sizeof(from.raw));

	rcu_read_lock();
	tomb = xa_load(&rxe->migr.tombs, qpn);
	found = tomb && time_before(jiffies, tomb->expires) &&
		!memcmp(tomb->av.grh.dgid.raw, from.raw, sizeof(from.raw));
	if (found) {
		av = tomb->av;
		nak = tomb->nak;
	}
	rcu_read_unlock();
	if (!found)
		return;

	/* the QP that every device has lends its socket */
	carrier = rxe_pool_get_index(&rxe->qp_pool, rxe->port.qp_gsi_index);
	if (!carrier)
		return;

	nak.psn = cpu_to_be32(pkt->psn);
	rxe_counter_inc(rxe, RXE_CNT_SENT_NAK_STOPPED);
	rxe_migr_send_from(carrier, &av, RXE_MIGR_OPCODE_NAK_STOPPED, &nak);
	rxe_put(carrier);
}

/* Fill st with at most max tombstones; returns how many there are. */
unsigned int rxe_migr_tomb_status(struct rxe_dev *rxe,
				  struct rxe_migr_status *st, unsigned int max)
{
	struct rxe_migr_tomb *tomb;
	unsigned long index;
	unsigned int n = 0;

	rcu_read_lock();
	xa_for_each(&rxe->migr.tombs, index, tomb) {
		if (n++ >= max)
			continue;
		*st = (struct rxe_migr_status) {
			.qpn = tomb->qpn,
			.dest_qpn = be32_to_cpu(tomb->nak.dest_qpn),
			.state = RXE_MIGR_QP_STOPPED,
			.tombstone = 1,
			.epoch = be32_to_cpu(tomb->nak.epoch),
			.deadline_ms = time_before(jiffies, tomb->expires) ?
				jiffies_to_msecs(tomb->expires - jiffies) : 0,
		};
		memcpy(st->sgid, tomb->nak.old_gid, sizeof(st->sgid));
		memcpy(st->dgid, tomb->av.grh.dgid.raw, sizeof(st->dgid));
		st++;
	}
	rcu_read_unlock();

	return n;
}
