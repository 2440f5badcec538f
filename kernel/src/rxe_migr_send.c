// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Packets of the migration protocol: built and sent. docs/PROTOCOL.md has what each
 * of them says.
 */

#include "rxe_migr_loc.h"
#include "rxe_migr_trace.h"

/*
 * Write down with which PSNs the connection began. An earlier connection between
 * the same numbers and addresses began with other PSNs, so its packets are refused.
 */
void rxe_migr_bind(const struct rxe_qp *qp, struct rxe_migr_hdr *hdr)
{
	hdr->rq_psn = cpu_to_be32(qp->attr.rq_psn);
	if (!qp->migr.has_sq_psn)
		return;
	hdr->sq_psn = cpu_to_be32(qp->attr.sq_psn);
	hdr->flags |= cpu_to_be16(RXE_MIGR_FLAG_SQ_PSN);
}

/* Is hdr from the other end of the connection that mine is bound to? */
bool rxe_migr_is_bound(const struct rxe_migr_hdr *hdr,
		       const struct rxe_migr_hdr *mine)
{
	const __be16 has_sq_psn = cpu_to_be16(RXE_MIGR_FLAG_SQ_PSN);

	return (!(mine->flags & has_sq_psn) || hdr->rq_psn == mine->sq_psn) &&
	       (!(hdr->flags & has_sq_psn) || hdr->sq_psn == mine->rq_psn);
}

/* Add version, opcode and MAC to hdr. False: there is no key, and it must not be sent. */
static bool rxe_migr_finish(struct rxe_migr_hdr *hdr, u8 opcode)
{
	hdr->version = RXE_MIGR_WIRE_VERSION;
	hdr->opcode = opcode;

	return rxe_migr_sign(hdr);
}

/* Sign hdr, send it to av. The QP carrier lends its socket, and counts the packet. */
static int rxe_migr_send_from(struct rxe_qp *carrier, struct rxe_av *av,
			      u8 opcode, const struct rxe_migr_hdr *hdr)
{
	struct rxe_dev *rxe = to_rdev(carrier->ibqp.device);
	struct rxe_migr_hdr signed_hdr = *hdr;
	struct rxe_pkt_info pkt = {};
	struct sk_buff *skb;
	int err;

	if (!rxe_migr_finish(&signed_hdr, opcode))
		return -ENOKEY;

	switch (opcode) {
	case RXE_MIGR_OPCODE_STOP:
		rxe_counter_inc(rxe, RXE_CNT_SENT_STOP);
		break;
	case RXE_MIGR_OPCODE_RESUME:
		rxe_counter_inc(rxe, RXE_CNT_SENT_RESUME);
		break;
	case RXE_MIGR_OPCODE_NAK_STOPPED:
		rxe_counter_inc(rxe, RXE_CNT_SENT_NAK_STOPPED);
		break;
	case RXE_MIGR_OPCODE_MOVED:
		rxe_counter_inc(rxe, RXE_CNT_SENT_MOVED);
		break;
	}

	skb = rxe_init_packet(rxe, av, RXE_MIGR_PAYLEN, &pkt);
	if (!skb)
		return -ENOMEM;

	pkt.qp = carrier;
	rxe_migr_write(&pkt, &signed_hdr);

	err = rxe_prepare(av, &pkt, skb);
	if (err) {
		kfree_skb(skb);
		return err;
	}

	trace_rxe_migr_send(be32_to_cpu(hdr->src_qpn), opcode,
			    be32_to_cpu(hdr->epoch), pkt.psn);

	return rxe_xmit_packet(carrier, &pkt, skb);
}

/*
 * Is an answer to this QP's RESUME still awaited? Not if the QP was stopped again: it must
 * not send its new epoch in a RESUME.
 */
static bool rxe_migr_owes_resume(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	return qp->migr.call == RXE_MIGR_CALL_AWAITED &&
	       qp->migr_state != RXE_MIGR_QP_STOPPED;
}

/*
 * May the peer be asked whether it speaks the protocol? The question is a RESUME
 * that says nothing new: the peer answers it in any state, and does not change.
 */
bool rxe_migr_peer_is_unknown(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	return qp->migr_state == RXE_MIGR_QP_RUNNING &&
	       (qp->migr.speech == RXE_MIGR_SPEECH_NEVER ||
		qp->migr.speech == RXE_MIGR_SPEECH_ASKED) &&
	       rxe_migr_connected(qp);
}

/* Does the peer speak the protocol, as far as is known? */
bool rxe_migr_peer_knows(const struct rxe_qp *qp)
{
	return qp->migr.speech == RXE_MIGR_SPEECH_HEARD ||
	       qp->migr.speech == RXE_MIGR_SPEECH_TOLD;
}

/* Is this QP stopped, and has its peer, which should answer, not spoken since? */
bool rxe_migr_peer_is_silent(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	return qp->migr_state == RXE_MIGR_QP_STOPPED &&
	       qp->migr.speech == RXE_MIGR_SPEECH_TOLD &&
	       rxe_migr_connected(qp);
}

/*
 * Send by the GSI QP, which every device has. Use it if the QP is gone, or if the packet
 * goes to another address than the peer's: an RC QP would keep the route to that address.
 */
int rxe_migr_send_by_gsi(struct rxe_dev *rxe, struct rxe_av *av, u8 opcode,
			 const struct rxe_migr_hdr *hdr)
{
	struct rxe_qp *gsi = rxe_pool_get_index(&rxe->qp_pool,
						rxe->port.qp_gsi_index);
	int err;

	if (!gsi)
		return -ENODEV;

	err = rxe_migr_send_from(gsi, av, opcode, hdr);
	rxe_put(gsi);

	return err;
}

/*
 * Answer a packet by av, which leads from where the packet went to where it came from.
 * If the device is gone, hdr is signed and leaves by the way that the packet came, and no
 * counter counts it.
 */
void rxe_migr_answer(struct rxe_pkt_info *pkt, struct rxe_av *av, u8 opcode,
		     struct rxe_migr_hdr *hdr)
{
	if (pkt->rxe) {
		if (!rxe_migr_find_source(pkt->rxe, PKT_TO_SKB(pkt)->dev, av))
			rxe_migr_send_by_gsi(pkt->rxe, av, opcode, hdr);
	} else if (rxe_migr_finish(hdr, opcode)) {
		trace_rxe_migr_send(be32_to_cpu(hdr->src_qpn), opcode,
				    be32_to_cpu(hdr->epoch),
				    be32_to_cpu(hdr->psn) & BTH_PSN_MASK);
		rxe_migr_send_raw(PKT_TO_SKB(pkt), &av->grh, hdr);
	}
}

/*
 * A genuine STOP has come for a QP that has no connection any more, or that has
 * moved away. Say so, since the side that stopped could not tell that from a host
 * that is dead or has lost the key. If the QP has moved, the QP itself tells the peer
 * how long it waits, so this answer has renewal 0.
 */
void rxe_migr_send_gone(struct rxe_pkt_info *pkt,
			const struct rxe_migr_hdr *stop,
			const union ib_gid *from, const union ib_gid *to,
			bool moved)
{
	struct rxe_migr_hdr hdr = {
		.flags = cpu_to_be16(RXE_MIGR_FLAG_GONE | RXE_MIGR_FLAG_SQ_PSN),
		.src_qpn = stop->dest_qpn,
		.dest_qpn = stop->src_qpn,
		.epoch = stop->epoch,
		.psn = stop->psn,
		.rq_psn = stop->sq_psn,
		.sq_psn = stop->rq_psn,
		.renewal = moved ? 0 : stop->renewal,
		.wait = cpu_to_be16(RXE_MIGR_WAIT_FOREVER),
	};
	struct rxe_av av;

	if (memcmp(stop->new_gid, from->raw, sizeof(stop->new_gid)))
		return;

	rxe_migr_answer_av(pkt->rxe, &av, from, to);
	memcpy(hdr.new_gid, to->raw, sizeof(hdr.new_gid));
	rxe_migr_answer(pkt, &av, RXE_MIGR_OPCODE_STOP_ACK, &hdr);
}

/* Say for how long this QP waits, and which renewal of the peer it answers. */
static void rxe_migr_say_wait(struct rxe_qp *qp, struct rxe_migr_hdr *hdr)
{
	hdr->renewal = cpu_to_be16(qp->migr.peer == RXE_MIGR_PEER_STOPPED ?
				   qp->migr.peer_renewal : 0);
	hdr->wait = cpu_to_be16(rxe_migr_wait_s(qp));
}

/* May RESUME be sent? It calls the peer, confirms its answer, or asks whether it speaks. */
static bool rxe_migr_may_call(struct rxe_qp *qp)
{
	return rxe_migr_owes_resume(qp) ||
	       qp->migr.call == RXE_MIGR_CALL_CONFIRM ||
	       rxe_migr_peer_is_unknown(qp);
}

/* What this QP says with this opcode. The caller adds the numbers of both QPs. */
static void rxe_migr_fill(struct rxe_qp *qp, u8 opcode, struct rxe_migr_hdr *hdr)
{
	bool resume = opcode == RXE_MIGR_OPCODE_RESUME;
	bool uc = qp_type(qp) == IB_QPT_UC;
	union ib_gid gid;
	u32 epoch, psn;

	lockdep_assert_held(&qp->state_lock);

	rxe_migr_sgid(&qp->pri_av, &gid);
	memcpy(hdr->new_gid, gid.raw, sizeof(hdr->new_gid));
	rxe_migr_bind(qp, hdr);
	switch (opcode) {
	case RXE_MIGR_OPCODE_RESUME:
	case RXE_MIGR_OPCODE_STOP:
	case RXE_MIGR_OPCODE_NAK_STOPPED:
		epoch = qp->migr.epoch;
		psn = uc ? qp->req.psn : qp->comp.psn;
		hdr->renewal = cpu_to_be16(qp->migr.renewal);
		if (resume)
			rxe_migr_say_wait(qp, hdr);
		if (resume && qp->migr.call != RXE_MIGR_CALL_AWAITED)
			memcpy(hdr->old_gid, gid.raw, sizeof(hdr->old_gid));
		else
			memcpy(hdr->old_gid, qp->migr.old_gid.raw,
			       sizeof(hdr->old_gid));
		if (resume && qp->migr.call == RXE_MIGR_CALL_CONFIRM)
			hdr->flags |= cpu_to_be16(RXE_MIGR_FLAG_HEARD);
		break;
	case RXE_MIGR_OPCODE_STOP_ACK:
		epoch = qp->migr.stop_epoch;
		psn = uc ? qp->req.psn : qp->resp.psn - 1;
		rxe_migr_say_wait(qp, hdr);
		break;
	default:
		epoch = qp->migr.peer_epoch;
		psn = qp->resp.psn - 1;
		if (qp->migr.peer == RXE_MIGR_PEER_UNSURE)
			hdr->flags |= cpu_to_be16(RXE_MIGR_FLAG_WAITS);
	}
	hdr->epoch = cpu_to_be32(epoch);
	hdr->psn = cpu_to_be32(psn & BTH_PSN_MASK);
}

/*
 * Send a packet of ours to the QP's peer: to dgid, or if that is NULL to where the
 * peer is known to be. A lost packet is no error: what must arrive is repeated.
 */
int rxe_migr_send_to(struct rxe_qp *qp, u8 opcode, const union ib_gid *dgid)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_migr_hdr hdr = {};
	unsigned long flags;
	struct rxe_av av;

	spin_lock_irqsave(&qp->state_lock, flags);
	if (opcode == RXE_MIGR_OPCODE_RESUME && !rxe_migr_may_call(qp)) {
		spin_unlock_irqrestore(&qp->state_lock, flags);
		return 0;
	}
	av = qp->pri_av;
	rxe_migr_fill(qp, opcode, &hdr);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	hdr.src_qpn = cpu_to_be32(qp_num(qp));
	hdr.dest_qpn = cpu_to_be32(qp->attr.dest_qp_num);

	if (dgid && memcmp(dgid, av.grh.dgid.raw, sizeof(*dgid))) {
		rxe_migr_call_at(rxe, &av, dgid);
		return rxe_migr_send_by_gsi(rxe, &av, opcode, &hdr);
	}

	return rxe_migr_send_from(qp, &av, opcode, &hdr);
}

int rxe_migr_send(struct rxe_qp *qp, u8 opcode)
{
	return rxe_migr_send_to(qp, opcode, NULL);
}

/*
 * Tell the tombstones of this QP where it is now: a peer that has moved, too, may
 * call them. Nobody answers MOVED, so each later RESUME goes with another MOVED.
 */
void rxe_migr_send_moved(struct rxe_qp *qp)
{
	struct rxe_dev *rxe = to_rdev(qp->ibqp.device);
	struct rxe_migr_hdr hdr = {};
	union ib_gid was[2], gid;
	unsigned long flags;
	struct rxe_av av;
	int i;

	if (!rxe_migr_have_key())
		return;

	spin_lock_irqsave(&qp->state_lock, flags);
	if (!rxe_migr_owes_resume(qp)) {
		spin_unlock_irqrestore(&qp->state_lock, flags);
		return;
	}
	av = qp->pri_av;
	was[0] = qp->migr.old_gid;
	was[1] = qp->migr.last_gid;
	hdr.epoch = cpu_to_be32(qp->migr.epoch);
	hdr.psn = cpu_to_be32(qp->attr.dest_qp_num);
	rxe_migr_bind(qp, &hdr);
	spin_unlock_irqrestore(&qp->state_lock, flags);

	rxe_migr_sgid(&av, &gid);
	memcpy(hdr.new_gid, gid.raw, sizeof(hdr.new_gid));
	hdr.src_qpn = cpu_to_be32(qp_num(qp));
	hdr.dest_qpn = hdr.src_qpn;

	for (i = 0; i < ARRAY_SIZE(was); i++) {
		if (rdma_is_zero_gid(&was[i]) ||
		    !memcmp(&was[i], &gid, sizeof(gid)) ||
		    (i && !memcmp(&was[i], &was[0], sizeof(gid))))
			continue;
		memcpy(hdr.old_gid, was[i].raw, sizeof(hdr.old_gid));
		rxe_migr_call_at(rxe, &av, &was[i]);
		rxe_migr_send_by_gsi(rxe, &av, RXE_MIGR_OPCODE_MOVED, &hdr);
	}
}
