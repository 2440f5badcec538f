// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* MADs of the kernel's CM: translated, redirected, answered. See rxe_migr_conn.c. */

#include <linux/random.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_mad.h>
#include <rdma/ibta_vol1_c12.h>
#include "rxe_migr_loc.h"

#include <cm_msgs.h>

/* A redirected packet: a bit of rxe_pkt_info.mask that no mask of opcodes has */
#define RXE_MIGR_DONE_MASK	BIT(31)

/* rdma_cm puts version, port and addresses before the private data of a program. */
#define RXE_MIGR_CMA_HDR_LEN	36

/* The MAD of the CM in a packet, or NULL */
static struct ib_mad_hdr *rxe_migr_cm_mad(struct rxe_pkt_info *pkt)
{
	struct ib_mad_hdr *mad = payload_addr(pkt);

	if (bth_qpn(pkt) != be32_to_cpu(IB_QP1) ||
	    payload_size(pkt) < sizeof(struct ib_mad) ||
	    mad->base_version != IB_MGMT_BASE_VERSION ||
	    mad->mgmt_class != IB_MGMT_CLASS_CM ||
	    mad->class_version != IB_CM_CLASS_VERSION)
		return NULL;

	return mad;
}

/* Does the MAD have both ids? All but REQ and SIDR have, at the offsets of MRA. */
static bool rxe_migr_has_ids(const struct ib_mad_hdr *mad)
{
	switch (mad->attr_id) {
	case CM_MRA_ATTR_ID:
	case CM_REJ_ATTR_ID:
	case CM_REP_ATTR_ID:
	case CM_RTU_ATTR_ID:
	case CM_DREQ_ATTR_ID:
	case CM_DREP_ATTR_ID:
	case CM_LAP_ATTR_ID:
	case CM_APR_ATTR_ID:
		return true;
	}

	return false;
}

static bool rxe_migr_ends(const struct ib_mad_hdr *mad)
{
	return mad->attr_id == CM_DREQ_ATTR_ID ||
	       mad->attr_id == CM_DREP_ATTR_ID;
}

/* --------------------------------------------------------------- sending -- */

/*
 * Turn a MAD into what the peer would answer: a REQ into a REP, a DREQ into a DREP.
 * If the peer had disconnected before the move, a RTU becomes its DREQ. False: there
 * is no answer.
 */
static bool rxe_migr_answer_mad(struct ib_mad_hdr *mad,
				const struct rxe_migr_conn *conn)
{
	struct cm_rep_msg *rep = (struct cm_rep_msg *)mad;
	struct cm_req_msg *req = (struct cm_req_msg *)mad;
	u8 depth = IBA_GET(CM_REQ_INITIATOR_DEPTH, req);
	u8 resources = IBA_GET(CM_REQ_RESPONDER_RESOURCES, req);
	u32 psn = IBA_GET(CM_REQ_STARTING_PSN, req);
	__be16 asked = mad->attr_id;

	if (asked == CM_REQ_ATTR_ID)
		mad->attr_id = CM_REP_ATTR_ID;
	else if (asked == CM_DREQ_ATTR_ID)
		mad->attr_id = CM_DREP_ATTR_ID;
	else if (asked == CM_RTU_ATTR_ID && conn->left)
		mad->attr_id = CM_DREQ_ATTR_ID;
	else
		return false;

	memset(mad + 1, 0, sizeof(struct ib_mad) - sizeof(*mad));
	IBA_SET(CM_REP_LOCAL_COMM_ID, rep, conn->remote_id);
	IBA_SET(CM_REP_REMOTE_COMM_ID, rep, conn->local_id);
	if (asked == CM_REQ_ATTR_ID) {
		IBA_SET(CM_REP_LOCAL_QPN, rep, conn->dest_qpn);
		IBA_SET(CM_REP_STARTING_PSN, rep, psn);
		IBA_SET(CM_REP_RESPONDER_RESOURCES, rep, depth);
		IBA_SET(CM_REP_INITIATOR_DEPTH, rep, resources);
		IBA_SET(CM_REP_RNR_RETRY_COUNT, rep, 7);
		/* the CM takes a GUID and QP number that it knows for a stale connection */
		IBA_SET(CM_REP_LOCAL_CA_GUID, rep, get_random_u64());
	} else if (asked == CM_RTU_ATTR_ID) {
		IBA_SET(CM_DREQ_REMOTE_QPN_EECN, (struct cm_dreq_msg *)mad,
			conn->qpn);
	}

	return true;
}

/* Swap the addresses, so that the packet comes from where it was to go. */
static void rxe_migr_turn_round(struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	if (skb->protocol == htons(ETH_P_IP))
		swap(ip_hdr(skb)->saddr, ip_hdr(skb)->daddr);
	else
		swap(ipv6_hdr(skb)->saddr, ipv6_hdr(skb)->daddr);
	pkt->mask |= RXE_LOOPBACK_MASK;
}

/* Send the same MAD to another address. */
static void rxe_migr_redirect_mad(struct rxe_qp *gsi, struct rxe_pkt_info *pkt,
				  struct rxe_av *av)
{
	struct rxe_pkt_info copy = {};
	struct sk_buff *skb;

	skb = rxe_init_packet(pkt->rxe, av, pkt->paylen, &copy);
	if (!skb)
		return;		/* the MAD counts as lost: one of the CMs repeats */

	memcpy(copy.hdr, pkt->hdr, pkt->paylen - RXE_ICRC_SIZE);
	copy.qp = gsi;
	copy.opcode = pkt->opcode;
	copy.paylen = pkt->paylen;
	copy.psn = pkt->psn;
	copy.mask |= (pkt->mask & ~RXE_LOOPBACK_MASK) | RXE_MIGR_DONE_MASK;

	if (rxe_prepare(av, &copy, skb))
		kfree_skb(skb);
	else
		rxe_xmit_packet(gsi, &copy, skb);
}

/*
 * Is this the REQ by which a restore connects? Any program can name any QP in a REQ,
 * so the REQ of a restore has a cookie in its private data.
 */
static bool rxe_migr_is_expected(const struct rxe_migr_conn *conn,
				 struct cm_req_msg *req)
{
	const u8 *data = IBA_GET_MEM_PTR(CM_REQ_PRIVATE_DATA, req);

	return conn->phase == RXE_MIGR_CONN_EXPECTED &&
	       !memcmp(data + RXE_MIGR_CMA_HDR_LEN, conn->cookie,
		       sizeof(conn->cookie));
}

/* The number of this end's QP, or of the peer's, in a MAD that leaves; -1: it has none */
static s64 rxe_migr_own_qpn(struct ib_mad_hdr *mad)
{
	return mad->attr_id == CM_REP_ATTR_ID ?
	       IBA_GET(CM_REP_LOCAL_QPN, (struct cm_rep_msg *)mad) : -1LL;
}

static s64 rxe_migr_peer_qpn(struct ib_mad_hdr *mad)
{
	return mad->attr_id == CM_DREQ_ATTR_ID ?
	       IBA_GET(CM_DREQ_REMOTE_QPN_EECN, (struct cm_dreq_msg *)mad) : -1LL;
}

/* Does the MAD name a QP of the connection, whose peer was at @to? */
static bool rxe_migr_names_qp(const struct rxe_migr_conn *conn,
			      struct ib_mad_hdr *mad, const union ib_gid *to)
{
	return conn->moved && !memcmp(&conn->was, to, sizeof(*to)) &&
	       ((!conn->gone && rxe_migr_own_qpn(mad) == conn->qpn) ||
		rxe_migr_peer_qpn(mad) == conn->dest_qpn);
}

/*
 * Is this the connection with the local id? Ids that were guessed may be those of a
 * connection with another host, or of another QP.
 */
static bool rxe_migr_has_local_id(const struct rxe_migr_conn *conn, u32 id,
				  struct ib_mad_hdr *mad,
				  const union ib_gid *to)
{
	s64 own = rxe_migr_own_qpn(mad), peer = rxe_migr_peer_qpn(mad);

	if (conn->ids == RXE_MIGR_IDS_UNKNOWN || conn->local_id != id)
		return false;
	if (conn->ids == RXE_MIGR_IDS_KNOWN)
		return true;

	return (!memcmp(&conn->was, to, sizeof(*to)) ||
		!memcmp(conn->av.grh.dgid.raw, to->raw, sizeof(*to))) &&
	       (own < 0 || own == conn->qpn) &&
	       (peer < 0 || peer == conn->dest_qpn);
}

/* The connection of a MAD that this host's CM sends to @to */
static struct rxe_migr_conn *
rxe_migr_find_sender(struct rxe_dev *rxe, struct ib_mad_hdr *mad,
		     const union ib_gid *to)
{
	struct cm_mra_msg *mra = (struct cm_mra_msg *)mad;
	struct cm_req_msg *req = (struct cm_req_msg *)mad;
	u32 id = IBA_GET(CM_MRA_LOCAL_COMM_ID, mra);
	struct rxe_migr_conn *conn;

	if (mad->attr_id == CM_REQ_ATTR_ID) {
		conn = rxe_migr_qp_conn(rxe, IBA_GET(CM_REQ_LOCAL_QPN, req));
		if (!conn || !rxe_migr_is_expected(conn, req))
			return NULL;
		conn->local_id = id;
		conn->ids = RXE_MIGR_IDS_KNOWN;
		return conn;
	}
	if (!rxe_migr_has_ids(mad))
		return NULL;

	rxe_migr_for_each_conn(conn, rxe)
		if (rxe_migr_has_local_id(conn, id, mad, to))
			return conn;

	/*
	 * The id is new: a DREQ names the QP of the peer, and a REP that is repeated,
	 * since the RTU was lost, names that of this end.
	 */
	rxe_migr_for_each_conn(conn, rxe)
		if (conn->ids != RXE_MIGR_IDS_KNOWN &&
		    rxe_migr_names_qp(conn, mad, to)) {
			rxe_migr_learn(conn, id,
				       IBA_GET(CM_MRA_REMOTE_COMM_ID, mra),
				       RXE_MIGR_IDS_GUESSED);
			return conn;
		}

	return NULL;
}

/* A packet is about to leave by the GSI QP. True: the caller must not send it. */
bool rxe_migr_send_mad(struct rxe_qp *gsi, struct rxe_pkt_info *pkt,
		       struct sk_buff *skb)
{
	struct rxe_dev *rxe = pkt->rxe;
	struct rxe_migr_conn *conn;
	struct ib_mad_hdr *mad;
	union ib_gid from, to;
	unsigned long flags;
	struct rxe_av av;
	bool done = false, redirect = false;

	/* any UD QP can send to a GSI QP; a redirected packet is not looked at again */
	if (likely(list_empty_careful(&rxe->migr->conns)) ||
	    qp_type(gsi) != IB_QPT_GSI || pkt->mask & RXE_MIGR_DONE_MASK)
		return false;
	mad = rxe_migr_cm_mad(pkt);
	if (!mad)
		return false;
	rxe_migr_packet_gids(skb, &from, &to);

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	conn = rxe_migr_find_sender(rxe, mad, &to);
	if (!conn)
		goto unlock;
	if (conn->phase == RXE_MIGR_CONN_STOPPED) {
		done = true;
	} else if (conn->phase == RXE_MIGR_CONN_EXPECTED) {
		done = !rxe_migr_answer_mad(mad, conn);
		if (!done)
			rxe_migr_turn_round(pkt, skb);
	} else {
		IBA_SET(CM_MRA_LOCAL_COMM_ID, (struct cm_mra_msg *)mad,
			conn->wire_id);
		if (rxe_migr_ends(mad))
			rxe_migr_conn_expire(rxe, conn);
		av = conn->av;
		redirect = conn->moved &&
			   memcmp(av.grh.dgid.raw, to.raw, sizeof(to.raw));
	}
unlock:
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);
	if (redirect)
		rxe_migr_redirect_mad(gsi, pkt, &av);

	return done || redirect;
}

/* ------------------------------------------------------------- receiving -- */

/*
 * Does the MAD come from the QP's own peer? Ids come from images, and might be those
 * of another connection. A DREQ names the QP, and may come before the RESUME that
 * tells the new address.
 */
static bool rxe_migr_says_peer(const struct rxe_migr_conn *conn,
			       struct ib_mad_hdr *mad, const union ib_gid *from)
{
	struct cm_dreq_msg *dreq = (struct cm_dreq_msg *)mad;

	if (mad->attr_id == CM_DREQ_ATTR_ID)
		return conn->qpn == IBA_GET(CM_DREQ_REMOTE_QPN_EECN, dreq);

	return !memcmp(&conn->peer, from, sizeof(*from));
}

/* The connection of a MAD that comes from @from */
static struct rxe_migr_conn *
rxe_migr_find_receiver(struct rxe_dev *rxe, struct ib_mad_hdr *mad,
		       const union ib_gid *from)
{
	struct cm_dreq_msg *dreq = (struct cm_dreq_msg *)mad;
	struct cm_mra_msg *mra = (struct cm_mra_msg *)mad;
	u32 id = IBA_GET(CM_MRA_REMOTE_COMM_ID, mra);
	u32 remote_id = IBA_GET(CM_MRA_LOCAL_COMM_ID, mra);
	struct rxe_migr_conn *conn;

	if (!rxe_migr_has_ids(mad))
		return NULL;

	/* A REP made here has local_id, not wire_id, and is not found. */
	rxe_migr_for_each_conn(conn, rxe)
		if (!conn->deaf && conn->remote_id == remote_id &&
		    conn->wire_id == id &&
		    (conn->ids != RXE_MIGR_IDS_UNKNOWN ||
		     conn->phase == RXE_MIGR_CONN_EXPECTED) &&
		    rxe_migr_says_peer(conn, mad, from))
			return conn;

	/* the id is new: a DREQ names the QP; the DREP is redirected by this entry */
	if (mad->attr_id == CM_DREQ_ATTR_ID) {
		conn = rxe_migr_qp_conn(rxe, IBA_GET(CM_DREQ_REMOTE_QPN_EECN,
						     dreq));
		if (conn && conn->moved && conn->ids != RXE_MIGR_IDS_KNOWN &&
		    !memcmp(conn->av.grh.dgid.raw, from->raw,
			    sizeof(from->raw))) {
			rxe_migr_learn(conn, id, remote_id,
				       RXE_MIGR_IDS_GUESSED);
			return conn;
		}
	}

	return NULL;
}

/* Have a copy of the packet that nobody else reads: it will be changed. */
static bool rxe_migr_own_packet(struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	ptrdiff_t at = pkt->hdr - skb->data;

	if (skb_unclone(skb, GFP_ATOMIC))
		return false;
	pkt->hdr = skb->data + at;

	return true;
}

/* A packet that was checked came for the GSI QP. Is it to be dropped? */
bool rxe_migr_rcv_mad(struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	struct rxe_dev *rxe = pkt->rxe;
	struct rxe_migr_conn *conn;
	struct ib_mad_hdr *mad;
	union ib_gid from, to;
	unsigned long flags;
	bool drop = false;

	if (likely(list_empty_careful(&rxe->migr->conns)))
		return false;
	if (!rxe_migr_cm_mad(pkt))
		return false;
	if (!rxe_migr_own_packet(pkt, skb))
		return true;
	mad = payload_addr(pkt);
	rxe_migr_packet_gids(skb, &from, &to);

	spin_lock_irqsave(&rxe->migr->conn_lock, flags);
	conn = rxe_migr_find_receiver(rxe, mad, &from);
	if (conn) {
		drop = conn->phase == RXE_MIGR_CONN_STOPPED ||
		       (conn->phase == RXE_MIGR_CONN_EXPECTED &&
			conn->local_id != conn->wire_id);
		if (!drop) {
			IBA_SET(CM_MRA_REMOTE_COMM_ID, (struct cm_mra_msg *)mad,
				conn->local_id);
			if (rxe_migr_ends(mad))
				rxe_migr_conn_expire(rxe, conn);
		}
	}
	spin_unlock_irqrestore(&rxe->migr->conn_lock, flags);

	return drop;
}
