// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Packets of the migration protocol: received, checked, acted upon. */

#include "rxe_migr_loc.h"
#include "rxe_migr_trace.h"

/* Has the peer stopped after this epoch, and not gone on since, as far as is known? */
static bool rxe_migr_stopped_since(const struct rxe_qp *qp, u32 epoch)
{
	return (qp->migr.peer == RXE_MIGR_PEER_STOPPED ||
		qp->migr.peer == RXE_MIGR_PEER_OVERDUE) &&
	       rxe_migr_newer(qp->migr.stop_epoch, epoch);
}

/*
 * The peer has stopped: pause. Or it is still stopped, and asks this QP to wait for
 * longer: then the packet has a higher renewal number. False: the packet is old.
 */
static bool rxe_migr_note_stop(struct rxe_qp *qp, const struct rxe_migr_hdr *hdr)
{
	u32 epoch = be32_to_cpu(hdr->epoch);
	u16 renewal = be16_to_cpu(hdr->renewal);
	bool stopped = qp->migr.peer == RXE_MIGR_PEER_STOPPED;
	bool same = stopped && epoch == qp->migr.stop_epoch;
	bool news = !same || renewal > qp->migr.peer_renewal;

	if (!rxe_migr_newer(epoch, qp->migr.peer_epoch) ||
	    rxe_migr_stopped_since(qp, epoch) ||
	    (qp->migr.peer == RXE_MIGR_PEER_OVERDUE &&
	     epoch == qp->migr.stop_epoch))
		return false;

	/* it may be old, and does not say that the peer has heard our own STOP */
	if (qp->migr.speech != RXE_MIGR_SPEECH_TOLD)
		rxe_migr_set_speech(qp, RXE_MIGR_SPEECH_HEARD);
	rxe_migr_pause_qp(qp, epoch);
	if (news) {
		/* if this QP waits since an earlier stop, little time may be left */
		rxe_migr_extend_pause(qp);
		qp->migr.peer_renewal = renewal;
	}

	return true;
}

/*
 * The peer of a stopped QP has spoken. Was it told of our last STOP? What it said before
 * may come late, or be sent again by somebody else. A peer that is gone stays so.
 */
static void rxe_migr_note_answer(struct rxe_qp *qp,
				 const struct rxe_migr_hdr *hdr, bool gone)
{
	if (gone || qp->migr.speech != RXE_MIGR_SPEECH_TOLD ||
	    be16_to_cpu(hdr->renewal) == qp->migr.renewal)
		rxe_migr_set_speech(qp, RXE_MIGR_SPEECH_HEARD);
}

/*
 * The peer says for how long it waits for this QP, from the renewal on that the
 * packet names. Answers to a repeated STOP come in any order, so only a later time
 * counts. A RESUME always counts: its sender may have moved to a host that waits
 * for less.
 */
static void rxe_migr_note_wait(struct rxe_qp *qp, const struct rxe_migr_hdr *hdr)
{
	u16 wait = be16_to_cpu(hdr->wait);
	u64 until = wait == RXE_MIGR_WAIT_FOREVER ? U64_MAX :
		    qp->migr.renewal_ns + wait * (u64)NSEC_PER_SEC;

	/* between the stop and its first STOP, renewal is of the stop before, if any */
	if (qp->migr_state != RXE_MIGR_QP_STOPPED || !qp->migr.renewal_ns ||
	    be16_to_cpu(hdr->renewal) != qp->migr.renewal)
		return;

	/* RESUME does not count: only STOP_ACK says how far a UC peer has sent. */
	if (hdr->opcode == RXE_MIGR_OPCODE_STOP_ACK)
		qp->migr.stop_acked = true;
	if (hdr->opcode == RXE_MIGR_OPCODE_RESUME ||
	    until > qp->migr.wait_ns || qp->migr.wait_ns == U64_MAX)
		qp->migr.wait_ns = until;
}

/*
 * The peer says that it moves away from gid. Was it there? This QP knows the peer
 * at one address. If the answer to the peer's last RESUME was lost, the peer names
 * the address before that one, as it did in that RESUME.
 */
static bool rxe_migr_was_at(const struct rxe_qp *qp, const u8 *gid)
{
	const union ib_gid *before = &qp->migr.peer_old_gid;

	return !memcmp(gid, qp->pri_av.grh.dgid.raw, sizeof(before->raw)) ||
	       (!rdma_is_zero_gid(before) &&
		!memcmp(gid, before->raw, sizeof(before->raw)));
}

/* Remember where the peer is, until rxe_migr_work() applies it. */
static void rxe_migr_note_move(struct rxe_qp *qp,
			       const struct rxe_migr_hdr *hdr, bool wired)
{
	struct rxe_migr_move *move = &qp->migr.move;
	u32 epoch = be32_to_cpu(hdr->epoch);

	rxe_migr_set_speech(qp, RXE_MIGR_SPEECH_HEARD);
	if (move->pending && !rxe_migr_newer(epoch, move->epoch))
		return;

	memcpy(move->gid.raw, hdr->new_gid, sizeof(move->gid.raw));
	memcpy(move->old_gid.raw, hdr->old_gid, sizeof(move->old_gid.raw));
	move->epoch = epoch;
	move->told = hdr->opcode == RXE_MIGR_OPCODE_MOVED;
	move->wired = wired;
	move->pending = true;
}

/* Has the peer moved in this epoch, and this QP does not know that move yet? */
static bool rxe_migr_new_move(const struct rxe_qp *qp, u32 epoch)
{
	return rxe_migr_newer(epoch, qp->migr.peer_epoch) &&
	       !rxe_migr_stopped_since(qp, epoch);
}

/*
 * The peer goes on, perhaps at another address. The move is applied in process
 * context, and answered then; a repeated RESUME is answered at once. Returns the
 * opcode of the answer, 0 if there is none yet, or a negative error for a packet
 * that is refused. A RESUME past the deadline is refused, as the peer has nobody to
 * talk to any more; its address is noted for the CM all the same.
 */
static int rxe_migr_rcv_resume(struct rxe_qp *qp,
			       const struct rxe_migr_hdr *hdr, bool authentic,
			       bool wired)
{
	bool same = !memcmp(hdr->new_gid, qp->pri_av.grh.dgid.raw,
			    sizeof(hdr->new_gid));
	u32 epoch = be32_to_cpu(hdr->epoch);

	if (same && epoch == qp->migr.peer_epoch) {
		if (qp->migr.gave_up)
			return -ETIMEDOUT;
		if (hdr->flags & cpu_to_be16(RXE_MIGR_FLAG_HEARD))
			rxe_migr_sure_qp(qp);
		return qp->migr_state == RXE_MIGR_QP_STOPPED ?
			RXE_MIGR_OPCODE_NAK_STOPPED : RXE_MIGR_OPCODE_RESUME_ACK;
	}

	if (!rxe_migr_new_move(qp, epoch))
		return -ESTALE;

	/* only a sender that has the cluster's key can redirect a connection */
	if (!same && (!authentic || !rxe_migr_was_at(qp, hdr->old_gid)))
		return -EPERM;

	if (qp->migr_state == RXE_MIGR_QP_STOPPED) {
		rxe_migr_note_answer(qp, hdr, false);
		rxe_migr_note_wait(qp, hdr);
		return qp->migr.gave_up ? -ETIMEDOUT :
					  RXE_MIGR_OPCODE_NAK_STOPPED;
	}

	rxe_migr_note_move(qp, hdr, wired);

	return qp->migr.gave_up ? -ETIMEDOUT : 0;
}

/*
 * This QP called the tombstone of its peer, which answers where the peer is. Take
 * the answer for the RESUME that the peer sent to our old address.
 */
static int rxe_migr_rcv_moved(struct rxe_qp *qp,
			      const struct rxe_migr_hdr *hdr,
			      const union ib_gid *from, bool authentic)
{
	if (memcmp(hdr->old_gid, from->raw, sizeof(hdr->old_gid)) ||
	    memcmp(qp->pri_av.grh.dgid.raw, from->raw, sizeof(from->raw)) ||
	    !rxe_migr_same_family(hdr->new_gid, from->raw))
		return -EINVAL;
	if (!authentic)
		return -EPERM;
	if (!rxe_migr_new_move(qp, be32_to_cpu(hdr->epoch)))
		return -ESTALE;

	if (qp->migr_state != RXE_MIGR_QP_STOPPED)
		rxe_migr_note_move(qp, hdr, false);

	return 0;
}

/*
 * A QP that has moved to the address where its peer was, and has the same number as
 * its peer, receives its own RESUME. (The RESUME of a QP that is connected to
 * itself has the same address twice.)
 */
static bool rxe_migr_is_own(struct rxe_qp *qp, const struct rxe_migr_hdr *hdr)
{
	union ib_gid mine;

	rxe_migr_sgid(&qp->pri_av, &mine);

	return hdr->opcode == RXE_MIGR_OPCODE_RESUME &&
	       be32_to_cpu(hdr->src_qpn) == qp_num(qp) &&
	       !memcmp(hdr->new_gid, &mine, sizeof(mine)) &&
	       memcmp(hdr->old_gid, hdr->new_gid, sizeof(hdr->old_gid));
}

/* UC: the peer is at rest, and this is the PSN that it will send next. */
static void rxe_migr_note_last(struct rxe_qp *qp,
			       const struct rxe_migr_hdr *hdr)
{
	u32 psn = be32_to_cpu(hdr->psn) & BTH_PSN_MASK;

	if (qp->migr.last_known && psn_compare(psn, qp->migr.last_psn) < 0)
		return;		/* a later packet has overtaken this one */
	qp->migr.last_psn = psn;
	qp->migr.last_known = true;
}

/* A UC QP answers only when its requester is at rest: see rxe_migr_ack_stop(). */
static int rxe_migr_rcv_stop(struct rxe_qp *qp, const struct rxe_migr_hdr *hdr)
{
	if (!rxe_migr_note_stop(qp, hdr))
		return -ESTALE;
	if (qp_type(qp) != IB_QPT_UC)
		return RXE_MIGR_OPCODE_STOP_ACK;

	rxe_migr_note_last(qp, hdr);
	qp->migr.ack_owed = true;

	return 0;
}

static int rxe_migr_rcv_stop_ack(struct rxe_qp *qp,
				 const struct rxe_migr_hdr *hdr)
{
	bool gone = !!(hdr->flags & cpu_to_be16(RXE_MIGR_FLAG_GONE));

	if (be32_to_cpu(hdr->epoch) != qp->migr.epoch)
		return -ESTALE;
	/* a peer that has not spoken yet may be about to connect */
	if (gone && qp->migr.speech != RXE_MIGR_SPEECH_TOLD)
		return 0;

	rxe_migr_note_answer(qp, hdr, gone);
	rxe_migr_note_wait(qp, hdr);
	if (!gone)
		rxe_migr_note_last(qp, hdr);

	return 0;
}

/*
 * Can the peer be as far as its RESUME_ACK says? It has what it acknowledged, and nothing
 * that was never sent. Else this QP was restored from an old dump: the dump was restored
 * before, or the QP went on after it. What this QP sends next would have PSNs that the
 * peer has seen, and be acknowledged as repeated. So it believes no answer, and fails at
 * its deadline.
 */
static bool rxe_migr_is_possible(struct rxe_qp *qp,
				 const struct rxe_migr_hdr *hdr)
{
	u32 sent = qp->req.went_back ? qp->req.retry_psn : qp->req.psn;
	u32 next = be32_to_cpu(hdr->psn) + 1;

	/* a running requester changes all of these, and checks each answer itself */
	if (qp_type(qp) != IB_QPT_RC ||
	    qp->migr.call != RXE_MIGR_CALL_AWAITED ||
	    qp->migr_state == RXE_MIGR_QP_RUNNING)
		return true;
	/* in RTR it has sent nothing */
	if (!qp->migr.has_sq_psn)
		return !psn_compare(next, be32_to_cpu(hdr->rq_psn));

	return psn_compare(next, qp->comp.psn) >= 0 &&
	       psn_compare(next, sent) <= 0;
}

static int rxe_migr_rcv_resume_ack(struct rxe_qp *qp,
				   const struct rxe_migr_hdr *hdr)
{
	if (be32_to_cpu(hdr->epoch) != qp->migr.epoch)
		return -ESTALE;

	rxe_migr_set_speech(qp, RXE_MIGR_SPEECH_HEARD);
	if (!rxe_migr_is_possible(qp, hdr))
		return -ESTALE;
	rxe_migr_resumed_qp(qp, !!(hdr->flags &
				   cpu_to_be16(RXE_MIGR_FLAG_WAITS)));

	return qp->migr.call == RXE_MIGR_CALL_CONFIRM ?
		RXE_MIGR_OPCODE_RESUME : 0;
}

/*
 * Is the packet of this QP's connection, and does it come from its peer? A RESUME may come
 * from another address. rxe_migr_rcv_moved() checks where a MOVED comes from.
 */
static int rxe_migr_check(struct rxe_qp *qp, const struct rxe_migr_hdr *hdr,
			  const union ib_gid *from)
{
	struct rxe_migr_hdr mine = {};

	/* a QP that gave up waiting does not answer GONE, so the peer's move goes back */
	if (!rxe_migr_connected(qp) && !qp->migr.gave_up &&
	    hdr->opcode == RXE_MIGR_OPCODE_STOP)
		return -ENOTCONN;

	rxe_migr_bind(qp, &mine);
	/*
	 * The MAC covers new_gid, so nobody can reflect our own packets. A QP that
	 * has failed still takes RESUME, since the CM must learn of the move.
	 */
	if ((!rxe_migr_connected(qp) &&
	     (hdr->opcode != RXE_MIGR_OPCODE_RESUME || !rxe_migr_failed(qp))) ||
	    be32_to_cpu(hdr->src_qpn) != qp->attr.dest_qp_num ||
	    !rxe_migr_is_bound(hdr, &mine) ||
	    rxe_migr_is_own(qp, hdr))
		return -EINVAL;

	if (hdr->opcode == RXE_MIGR_OPCODE_MOVED)
		return 0;
	if (memcmp(hdr->new_gid, from->raw, sizeof(hdr->new_gid)))
		return -EINVAL;
	if (hdr->opcode != RXE_MIGR_OPCODE_RESUME &&
	    memcmp(from->raw, qp->pri_av.grh.dgid.raw, sizeof(from->raw)))
		return -EINVAL;

	return 0;
}

/*
 * Act on a packet whose MAC was checked. authentic: its sender has the key. wired: it
 * was not looped back, so its sender is on another device. Returns the opcode of the
 * answer, 0, or a negative error if the packet is refused.
 */
static int rxe_migr_act(struct rxe_qp *qp, const struct rxe_migr_hdr *hdr,
			const union ib_gid *from, bool authentic, bool wired)
{
	int err;

	lockdep_assert_held(&qp->state_lock);

	err = rxe_migr_check(qp, hdr, from);
	if (err)
		return err;

	switch (hdr->opcode) {
	case RXE_MIGR_OPCODE_STOP:
		return rxe_migr_rcv_stop(qp, hdr);
	case RXE_MIGR_OPCODE_STOP_ACK:
		return rxe_migr_rcv_stop_ack(qp, hdr);
	case RXE_MIGR_OPCODE_NAK_STOPPED:
		return rxe_migr_note_stop(qp, hdr) ? 0 : -ESTALE;
	case RXE_MIGR_OPCODE_RESUME:
		return rxe_migr_rcv_resume(qp, hdr, authentic, wired);
	case RXE_MIGR_OPCODE_RESUME_ACK:
		return rxe_migr_rcv_resume_ack(qp, hdr);
	case RXE_MIGR_OPCODE_MOVED:
		return rxe_migr_rcv_moved(qp, hdr, from, authentic);
	}

	return -EINVAL;
}

static int rxe_migr_rcv_qp(struct rxe_qp *qp, const struct rxe_migr_hdr *hdr,
			   const union ib_gid *from, const union ib_gid *to,
			   bool authentic, bool wired)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	unsigned long flags;
	union ib_gid mine;
	int ret;

	rxe_migr_sgid(&qp->pri_av, &mine);
	if (memcmp(to, &mine, sizeof(mine)))
		return -EINVAL;

	spin_lock_irqsave(&qp->state_lock, flags);
	ret = rxe_migr_act(qp, hdr, from, authentic, wired);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	if (ret == -ETIMEDOUT)
		rxe_migr_kick(qp, 0);
	if (ret < 0)
		return ret;

	switch (hdr->opcode) {
	case RXE_MIGR_OPCODE_STOP:
		rxe_counter_inc(rxe, RXE_CNT_RCVD_STOP);
		break;
	case RXE_MIGR_OPCODE_NAK_STOPPED:
		rxe_counter_inc(rxe, RXE_CNT_RCVD_NAK_STOPPED);
		break;
	case RXE_MIGR_OPCODE_RESUME:
		rxe_counter_inc(rxe, RXE_CNT_RCVD_RESUME);
		break;
	case RXE_MIGR_OPCODE_MOVED:
		rxe_counter_inc(rxe, RXE_CNT_RCVD_MOVED);
		break;
	}
	/* the work applies a move, keeps a deadline, or sends a packet again */
	if (hdr->opcode != RXE_MIGR_OPCODE_STOP_ACK &&
	    (hdr->opcode != RXE_MIGR_OPCODE_RESUME_ACK || ret > 0))
		rxe_migr_kick(qp, 0);
	/* to where the packet came from: the QP may not know that address */
	if (ret > 0)
		rxe_migr_send_to(qp, ret, from);

	return ret;
}

static u16 rxe_migr_flags_of(u8 opcode)
{
	switch (opcode) {
	case RXE_MIGR_OPCODE_RESUME:
		return RXE_MIGR_FLAG_SQ_PSN | RXE_MIGR_FLAG_HEARD;
	case RXE_MIGR_OPCODE_RESUME_ACK:
		return RXE_MIGR_FLAG_SQ_PSN | RXE_MIGR_FLAG_WAITS;
	case RXE_MIGR_OPCODE_STOP_ACK:
		return RXE_MIGR_FLAG_SQ_PSN | RXE_MIGR_FLAG_GONE;
	}

	return RXE_MIGR_FLAG_SQ_PSN;
}

/*
 * The header of a packet of ours that is whole, or NULL. One of another version may be
 * shorter or longer.
 */
static struct rxe_migr_hdr *rxe_migr_whole(struct rxe_pkt_info *pkt,
					   struct sk_buff *skb)
{
	struct rxe_migr_hdr *hdr;

	if (pkt->opcode < RXE_MIGR_OPCODE_STOP ||
	    pkt->opcode > RXE_MIGR_OPCODE_MOVED)
		return NULL;

	if (pkt->paylen < RXE_MIGR_PAYLEN_MIN || bth_tver(pkt) != BTH_TVER ||
	    bth_pad(pkt) || rxe_icrc_check(skb, pkt))
		return NULL;

	hdr = (struct rxe_migr_hdr *)(pkt->hdr + RXE_BTH_BYTES);
	if (hdr->version == RXE_MIGR_WIRE_VERSION &&
	    pkt->paylen < RXE_MIGR_PAYLEN)
		return NULL;
	trace_rxe_migr_rcv(bth_qpn(pkt), pkt->opcode, be32_to_cpu(hdr->epoch),
			   pkt->psn);

	return hdr;
}

/* Are its form and its MAC right? */
static bool rxe_migr_is_genuine(struct rxe_pkt_info *pkt,
				const struct rxe_migr_hdr *hdr, bool *authentic)
{
	return hdr->version == RXE_MIGR_WIRE_VERSION &&
	       !(be16_to_cpu(hdr->flags) & ~rxe_migr_flags_of(pkt->opcode)) &&
	       hdr->opcode == pkt->opcode &&
	       be32_to_cpu(hdr->dest_qpn) == bth_qpn(pkt) &&
	       (be32_to_cpu(hdr->psn) & BTH_PSN_MASK) == pkt->psn &&
	       pkey_match(bth_pkey(pkt), IB_DEFAULT_PKEY_FULL) &&
	       rxe_migr_verify(hdr, authentic);
}

/*
 * A packet whose opcode the specification does not define. It is freed by the
 * caller.
 */
void rxe_migr_rcv(struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	struct rxe_dev *rxe = pkt->rxe;
	struct rxe_migr_hdr *hdr;
	union ib_gid from, to;
	struct rxe_qp *qp;
	bool authentic, tomb = false;
	int ret = -ENOTCONN;
	u32 qpn;

	hdr = rxe_migr_whole(pkt, skb);
	if (!hdr)
		return;
	qpn = bth_qpn(pkt);
	if (!rxe_migr_is_genuine(pkt, hdr, &authentic))
		goto refuse;

	rxe_migr_packet_gids(skb, &from, &to);

	qp = rxe_pool_get_index(&rxe->qp_pool, qpn);
	if (qp) {
		ret = rxe_migr_rcv_qp(qp, hdr, &from, &to, authentic,
				      !(pkt->mask & RXE_LOOPBACK_MASK));
		rxe_put(qp);
	}
	/* it may be for a QP that had this number before */
	if ((ret == -EINVAL || ret == -ENOTCONN) &&
	    rxe_migr_rcv_tomb(rxe->migr, pkt, hdr, &from, &to, authentic,
			      &tomb))
		return;
	if (ret == -ENOTCONN && !tomb && hdr->opcode == RXE_MIGR_OPCODE_STOP) {
		rxe_migr_send_gone(pkt, hdr, &from, &to, false);
		return;
	}
	if (ret >= 0 || (!qp && !tomb))
		return;
refuse:
	rxe_counter_inc(rxe, RXE_CNT_MIGR_REFUSED);
	trace_rxe_migr_refuse(qpn, pkt->opcode, be32_to_cpu(hdr->epoch),
			      pkt->psn);
}

/*
 * A UDP packet has come for an interface that has no device any more. Only tombstones
 * can answer it. The caller frees it, and holds the RCU read lock.
 */
void rxe_migr_rcv_orphan(struct rxe_migr_dev *dev, struct sk_buff *skb)
{
	struct rxe_pkt_info *pkt = SKB_TO_PKT(skb);
	const struct rxe_migr_hdr *hdr;
	bool authentic, tomb = false;
	union ib_gid from, to;

	if (xa_empty(&dev->tombs) || skb_linearize(skb) ||
	    skb->len < sizeof(struct udphdr) + RXE_BTH_BYTES)
		return;

	*pkt = (struct rxe_pkt_info) {
		.hdr = (u8 *)(udp_hdr(skb) + 1),
		.paylen = skb->len - sizeof(struct udphdr),
	};
	pkt->opcode = bth_opcode(pkt);
	pkt->psn = bth_psn(pkt);
	pkt->mask = rxe_opcode[pkt->opcode].mask;
	if (pkt->mask && rxe_opcode[pkt->opcode].length) {
		if (bth_tver(pkt) == BTH_TVER &&
		    pkt->paylen >= header_size(pkt) + bth_pad(pkt) +
				   RXE_ICRC_SIZE)
			rxe_migr_ask_tomb(dev, pkt, bth_qpn(pkt));
		return;
	}

	hdr = rxe_migr_whole(pkt, skb);
	if (!hdr || !rxe_migr_is_genuine(pkt, hdr, &authentic))
		return;
	rxe_migr_packet_gids(skb, &from, &to);
	rxe_migr_rcv_tomb(dev, pkt, hdr, &from, &to, authentic, &tomb);
}

/*
 * An ordinary packet has come for a QP that is not RUNNING. Must it be dropped? Only
 * a peer that knows the protocol is sent NAK_STOPPED: another peer would fail by it,
 * but survives silence. The ICRC is checked first, since nobody has checked it yet,
 * and a damaged packet must change nothing.
 */
bool rxe_migr_rcv_drops(struct rxe_pkt_info *pkt, struct rxe_qp *qp)
{
	unsigned long flags;
	bool drop, nak;

	if (rxe_icrc_check(PKT_TO_SKB(pkt), pkt))
		return true;

	spin_lock_irqsave(&qp->state_lock, flags);
	drop = (qp->migr_state == RXE_MIGR_QP_STOPPED && !rxe_migr_takes_in(qp)) ||
	       (qp->migr_state == RXE_MIGR_QP_PAUSED &&
		qp_type(qp) != IB_QPT_UC);
	nak = drop && qp->migr_state == RXE_MIGR_QP_STOPPED &&
	      qp->migr.speech != RXE_MIGR_SPEECH_NEVER &&
	      (pkt->mask & RXE_REQ_MASK) && rxe_migr_connected(qp);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	if (nak)
		rxe_migr_send(qp, RXE_MIGR_OPCODE_NAK_STOPPED);

	return drop;
}

/*
 * A request comes into the queue of a QP that is not RUNNING, or finds no room there.
 * It counts as seen from then on, and no earlier: see rxe_migr_arrived().
 */
void rxe_migr_note_psn(struct rxe_qp *qp, u32 psn)
{
	lockdep_assert_held(&qp->req_pkts.lock);

	if (qp_type(qp) == IB_QPT_UC &&
	    psn_compare(psn + 1, qp->migr.seen_psn) > 0)
		qp->migr.seen_psn = (psn + 1) & BTH_PSN_MASK;
}
