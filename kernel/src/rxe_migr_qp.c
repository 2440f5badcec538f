// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs, the receive that one has in hand, and its multicast groups.
 * rxe_migr_res.c has its responder resources.
 */

#include "rxe_migr_loc.h"

/* ------------------------------------------------------------------ dump -- */

/* Only the QP that took an entry from an SRQ still has it: see RXE_MIGR_REC_RECV_WQE. */
static void rxe_migr_dump_recv_wqe(struct rxe_qp *qp, u32 handle,
				   struct rxe_migr_sink *sink)
{
	struct rxe_recv_wqe *wqe = READ_ONCE(qp->resp.wqe);
	struct rxe_migr_rec_recv_wqe *rec;
	u32 i, n;

	if (!wqe || !qp->srq)
		return;

	n = min_t(u32, wqe->dma.num_sge, RXE_MAX_SGE);
	rec = rxe_migr_put(sink, RXE_MIGR_REC_RECV_WQE, handle,
			   struct_size(rec, sge, n));
	if (!rec)
		return;

	rec->wr_id = cpu_to_le64(wqe->wr_id);
	rec->length = cpu_to_le32(wqe->dma.length);
	rec->num_sge = cpu_to_le32(n);
	for (i = 0; i < n; i++) {
		rec->sge[i].addr = cpu_to_le64(wqe->dma.sge[i].addr);
		rec->sge[i].length = cpu_to_le32(wqe->dma.sge[i].length);
		rec->sge[i].lkey = cpu_to_le32(wqe->dma.sge[i].lkey);
	}
}

static u8 rxe_migr_qp_flags(const struct rxe_qp *qp)
{
	return (qp->req.wait_fence ? RXE_MIGR_QP_WAIT_FENCE : 0) |
	       (qp->req.need_rd_atomic ? RXE_MIGR_QP_NEED_RD_ATOMIC : 0) |
	       (qp->req.wait_psn ? RXE_MIGR_QP_WAIT_PSN : 0) |
	       (qp->resp.drop_msg ? RXE_MIGR_QP_DROP_MSG : 0) |
	       (qp->resp.sent_psn_nak ? RXE_MIGR_QP_SENT_PSN_NAK : 0) |
	       (qp->resp.wqe ? RXE_MIGR_QP_RECV_WQE : 0) |
	       (qp->migr.peer == RXE_MIGR_PEER_STOPPED ?
		RXE_MIGR_QP_PEER_STOPPED : 0) |
	       (rxe_migr_peer_knows(qp) ? RXE_MIGR_QP_PEER_KNOWS : 0);
}

static void rxe_migr_fill_objects(const struct rxe_migr_sink *sink,
				  struct ib_uqp_object *uqp, struct rxe_qp *qp,
				  struct rxe_migr_rec_qp *rec)
{
	rec->user_handle = cpu_to_le64(uqp->uevent.uobject.user_handle);
	rec->sq_offset = cpu_to_le64(rxe_migr_ring_offset(qp->sq.queue));
	rec->rq_offset = cpu_to_le64(rxe_migr_ring_offset(qp->rq.queue));
	rec->pd = cpu_to_le32(qp->ibqp.pd->uobject->id);
	rec->send_cq = cpu_to_le32(qp->ibqp.send_cq->uobject->uevent.uobject.id);
	rec->recv_cq = cpu_to_le32(qp->ibqp.recv_cq->uobject->uevent.uobject.id);
	rec->srq = cpu_to_le32(qp->ibqp.srq ?
			qp->ibqp.srq->uobject->uevent.uobject.id :
			RXE_MIGR_NO_HANDLE);
	rec->async_file =
		cpu_to_le32(rxe_migr_async_ordinal(sink, &uqp->uevent));
	rec->async_events = cpu_to_le32(uqp->uevent.events_reported);
}

static void rxe_migr_fill_attr(struct rxe_qp *qp, struct rxe_migr_rec_qp *rec)
{
	const struct ib_qp_attr *attr = &qp->attr;
	union ib_gid sgid;

	rec->qpn = cpu_to_le32(qp_num(qp));
	rec->qp_type = qp_type(qp);
	rec->qp_state = attr->qp_state;
	rec->sq_sig_all = qp->sq_sig_type == IB_SIGNAL_ALL_WR;
	rec->owes_last_wqe = qp->srq && attr->qp_state == IB_QPS_ERR &&
			     !qp->resp.said_last_wqe;
	rec->max_send_wr = cpu_to_le32(qp->sq.max_wr);
	rec->max_recv_wr = cpu_to_le32(qp->srq ? 0 : qp->rq.max_wr);
	rec->max_inline = cpu_to_le32(qp->sq.max_inline);
	rec->max_send_sge = cpu_to_le16(qp->sq.max_sge);
	rec->max_recv_sge = cpu_to_le16(qp->srq ? 0 : qp->rq.max_sge);

	rec->access_flags = cpu_to_le32(attr->qp_access_flags);
	rec->qkey = cpu_to_le32(attr->qkey);
	rec->dest_qpn = cpu_to_le32(attr->dest_qp_num);
	rec->rq_psn = cpu_to_le32(attr->rq_psn);
	rec->sq_psn = cpu_to_le32(qp->migr.has_sq_psn ? attr->sq_psn :
				  RXE_MIGR_NO_PSN);
	rec->pkey_index = cpu_to_le16(attr->pkey_index);
	rec->src_port = cpu_to_le16(qp->src_port);
	rec->path_mtu = attr->path_mtu;
	rec->port_num = attr->port_num;
	rec->timeout = attr->timeout;
	rec->retry_cnt = attr->retry_cnt;
	rec->rnr_retry = attr->rnr_retry;
	rec->min_rnr_timer = attr->min_rnr_timer;
	rec->max_rd_atomic = attr->max_rd_atomic;
	rec->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	rec->sq_draining = cpu_to_le32(attr->sq_draining ?
				       qp->req.drain_index + 1 : 0);
	rec->en_sqd_async_notify = attr->en_sqd_async_notify;
	rec->hop_limit = qp->pri_av.grh.hop_limit;
	rec->traffic_class = qp->pri_av.grh.traffic_class;
	rec->flow_label = cpu_to_le32(qp->pri_av.grh.flow_label);
	if (qp->pri_av.network_type) {
		rxe_migr_sgid(&qp->pri_av, &sgid);
		memcpy(rec->sgid, sgid.raw, sizeof(rec->sgid));
	}
	memcpy(rec->dgid, qp->pri_av.grh.dgid.raw, sizeof(rec->dgid));
}

static void rxe_migr_fill_work(struct rxe_qp *qp, u16 num_res,
			       struct rxe_migr_rec_qp *rec)
{
	/* the WQE stays in memory, but a running responder may be done with it */
	const struct rxe_recv_wqe *wqe = READ_ONCE(qp->resp.wqe);
	/* a requester that sends again had sent more before */
	bool back = qp->req.went_back && qp_state(qp) != IB_QPS_ERR;

	rec->req_psn = cpu_to_le32(back ? qp->req.retry_psn : qp->req.psn);
	rec->req_wqe_index = cpu_to_le32(back ? qp->req.retry_index :
						qp->req.wqe_index);
	rec->req_noack_pkts = cpu_to_le32(qp->req.noack_pkts);
	rec->req_opcode = cpu_to_le16(qp->req.opcode);
	rec->req_rd_atomic = cpu_to_le16(atomic_read(&qp->req.rd_atomic));
	rec->comp_psn = cpu_to_le32(qp->comp.psn);
	rec->comp_opcode = cpu_to_le16(qp->comp.opcode);
	rec->comp_retry_cnt = qp->comp.retry_cnt;
	rec->comp_rnr_retry = qp->comp.rnr_retry;

	rec->resp_msn = cpu_to_le32(qp->resp.msn);
	rec->resp_psn = cpu_to_le32(qp->resp.psn);
	rec->resp_ack_psn = cpu_to_le32(qp->resp.ack_psn);
	rec->resp_opcode = cpu_to_le16(qp->resp.opcode);
	rec->resp_status = qp->resp.status;
	rec->flags = rxe_migr_qp_flags(qp);
	rec->resp_va = cpu_to_le64(qp->resp.va);
	rec->resp_offset = cpu_to_le64(qp->resp.offset);
	rec->resp_resid = cpu_to_le32(qp->resp.resid);
	rec->resp_rkey = cpu_to_le32(qp->resp.rkey);
	rec->resp_length = cpu_to_le32(qp->resp.length);
	rec->res_head = cpu_to_le16(qp->resp.res_head);
	rec->num_res = cpu_to_le16(num_res);
	if (wqe) {
		rec->recv_resid = cpu_to_le32(wqe->dma.resid);
		rec->recv_cur_sge = cpu_to_le32(wqe->dma.cur_sge);
		rec->recv_sge_offset = cpu_to_le32(wqe->dma.sge_offset);
	}
	rec->ssn = cpu_to_le32(atomic_read(&qp->ssn));
	rec->epoch = cpu_to_le32(qp->migr.epoch);
	rec->peer_epoch = cpu_to_le32(qp->migr.peer_epoch);
	memcpy(rec->old_gid, qp->migr.old_gid.raw, sizeof(rec->old_gid));
}

static void rxe_migr_dump_mcast(struct ib_uqp_object *uqp,
				struct rxe_migr_sink *sink)
{
	struct ib_uverbs_mcast_entry *entry;
	struct rxe_migr_rec_mcast *rec;

	mutex_lock(&uqp->mcast_lock);
	list_for_each_entry(entry, &uqp->mcast_list, list) {
		rec = rxe_migr_put(sink, RXE_MIGR_REC_MCAST,
				   uqp->uevent.uobject.id, sizeof(*rec));
		if (!rec)
			continue;
		memcpy(rec->mgid, entry->gid.raw, sizeof(rec->mgid));
		rec->mlid = cpu_to_le16(entry->lid);
	}
	mutex_unlock(&uqp->mcast_lock);
}

void rxe_migr_dump_qp(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	struct ib_uqp_object *uqp = container_of(uobj, struct ib_uqp_object,
						 uevent.uobject);
	struct rxe_qp *qp = to_rqp(uobj->object);
	struct rxe_migr_rec_qp *rec;
	u8 types[RXE_MAX_QP_RD_ATOM];
	u16 i, n = 0, num_res = 0;

	mutex_lock(&qp->migr.mutex);

	if (qp->resp.resources)
		n = min_t(u16, qp->attr.max_dest_rd_atomic, ARRAY_SIZE(types));
	for (i = 0; i < n; i++) {
		types[i] = rxe_migr_res_type(READ_ONCE(qp->resp.resources[i].type));
		num_res += !!types[i];
	}

	rec = rxe_migr_put(sink, RXE_MIGR_REC_QP, uobj->id, sizeof(*rec));
	if (rec) {
		rxe_migr_fill_objects(sink, uqp, qp, rec);
		rxe_migr_fill_attr(qp, rec);
		rxe_migr_fill_work(qp, num_res, rec);
	}

	for (i = 0; i < n; i++)
		if (types[i])
			rxe_migr_dump_res(&qp->resp.resources[i], types[i],
					  uobj->id, i, sink);
	rxe_migr_dump_ring(qp->sq.queue, uobj->id, RXE_MIGR_RING_SQ, sink);
	rxe_migr_dump_ring(qp->rq.queue, uobj->id, RXE_MIGR_RING_RQ, sink);
	rxe_migr_dump_recv_wqe(qp, uobj->id, sink);

	mutex_unlock(&qp->migr.mutex);

	rxe_migr_dump_mcast(uqp, sink);
}

/* ---------------------------------------------------------------- refill -- */

/* The entry of an SRQ that a QP has in hand. Refilled before the QP, which needs it. */
int rxe_migr_refill_recv_wqe(struct ib_uverbs_file *ufile,
			     const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_recv_wqe *rec = (const void *)hdr;
	struct rxe_qp *qp = rxe_migr_uqp(ufile, hdr);
	struct rxe_recv_wqe *wqe;
	u32 i, n;

	if (length < sizeof(*rec) || !qp || !qp->srq)
		return -EINVAL;

	n = le32_to_cpu(rec->num_sge);
	if (n > qp->srq->rq.max_sge || n > RXE_MAX_SGE ||
	    length != struct_size(rec, sge, n))
		return -EINVAL;

	mutex_lock(&qp->migr.mutex);
	wqe = &qp->resp.srq_wqe.wqe;
	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = le64_to_cpu(rec->wr_id);
	wqe->dma.length = le32_to_cpu(rec->length);
	wqe->dma.num_sge = n;
	for (i = 0; i < n; i++) {
		wqe->dma.sge[i].addr = le64_to_cpu(rec->sge[i].addr);
		wqe->dma.sge[i].length = le32_to_cpu(rec->sge[i].length);
		wqe->dma.sge[i].lkey = le32_to_cpu(rec->sge[i].lkey);
	}
	mutex_unlock(&qp->migr.mutex);

	return 0;
}

/*
 * The receive in hand: where the next byte goes in it. If the QP has no SRQ, the
 * entry itself is still at the head of its ring.
 */
static int rxe_migr_refill_in_hand(struct rxe_qp *qp,
				   const struct rxe_migr_rec_qp *rec)
{
	u32 offset = le32_to_cpu(rec->recv_sge_offset);
	u32 resid = le32_to_cpu(rec->recv_resid);
	u32 cur = le32_to_cpu(rec->recv_cur_sge);
	struct rxe_recv_wqe *wqe;
	u32 num_sge;

	if (!(rec->flags & RXE_MIGR_QP_RECV_WQE)) {
		qp->resp.wqe = NULL;
		return 0;
	}

	if (!qp->srq) {
		wqe = queue_head(qp->rq.queue, QUEUE_TYPE_FROM_CLIENT);
		if (!wqe)
			return -EINVAL;
		num_sge = READ_ONCE(wqe->dma.num_sge);
		if (num_sge > qp->rq.max_sge || num_sge > RXE_MAX_SGE)
			return -EINVAL;
		memcpy(&qp->resp.srq_wqe, wqe,
		       sizeof(*wqe) + num_sge * sizeof(struct rxe_sge));
		qp->resp.srq_wqe.wqe.dma.num_sge = num_sge;
	}

	wqe = &qp->resp.srq_wqe.wqe;
	num_sge = wqe->dma.num_sge;
	if (resid > wqe->dma.length || cur > num_sge ||
	    (resid && cur >= num_sge))
		return -EINVAL;

	wqe->dma.resid = resid;
	wqe->dma.cur_sge = min(cur, num_sge ? num_sge - 1 : 0);
	wqe->dma.sge_offset = offset;
	qp->resp.wqe = wqe;

	return 0;
}

static int rxe_migr_opcode(__le16 le, int *opcode)
{
	s16 v = le16_to_cpu(le);

	if (v < -1 || v > 0xff)
		return -EINVAL;
	*opcode = v;

	return 0;
}

/*
 * Is the responder in the middle of a SEND? Then it needs the receive in hand, unless
 * the QP is in the error state.
 */
static bool rxe_migr_in_send(struct rxe_qp *qp, int resp_opcode)
{
	if (qp_state(qp) == IB_QPS_ERR)
		return false;

	switch (resp_opcode) {
	case IB_OPCODE_RC_SEND_FIRST:
	case IB_OPCODE_RC_SEND_MIDDLE:
		return qp_type(qp) == IB_QPT_RC;
	case IB_OPCODE_UC_SEND_FIRST:
	case IB_OPCODE_UC_SEND_MIDDLE:
		return qp_type(qp) == IB_QPT_UC;
	}

	return false;
}

static bool rxe_migr_no_sq_psn(const struct rxe_migr_rec_qp *rec)
{
	return le32_to_cpu(rec->sq_psn) == RXE_MIGR_NO_PSN;
}

/* modify gave the QP a source GID; can the recorded peer be reached from it? */
static bool rxe_migr_fits_path(const struct rxe_qp *qp,
			       const struct rxe_migr_rec_qp *rec)
{
	union ib_gid sgid;

	if (!qp->pri_av.network_type)
		return true;

	rxe_migr_sgid(&qp->pri_av, &sgid);
	return rxe_migr_same_family(rec->dgid, sgid.raw);
}

struct rxe_migr_opcodes {
	int req, comp, resp;
};

/* Can this QP be what the record says? */
static bool rxe_migr_fits_qp(struct rxe_qp *qp,
			     const struct rxe_migr_rec_qp *rec,
			     struct rxe_migr_opcodes *opcodes)
{
	u32 mask = qp->sq.queue->index_mask;

	if (rec->qp_type != qp_type(qp) || rec->qp_state != qp_state(qp) ||
	    le32_to_cpu(rec->qpn) != qp_num(qp) ||
	    le32_to_cpu(rec->req_wqe_index) > mask ||
	    le32_to_cpu(rec->sq_draining) > mask + 1 ||
	    le16_to_cpu(rec->req_rd_atomic) > qp->attr.max_rd_atomic ||
	    (le16_to_cpu(rec->res_head) &&
	     le16_to_cpu(rec->res_head) >= qp->attr.max_dest_rd_atomic) ||
	    rec->comp_retry_cnt > 7 || rec->comp_rnr_retry > 7 ||
	    rec->resp_status > IB_WC_GENERAL_ERR ||
	    (rxe_migr_no_sq_psn(rec) && qp_state(qp) >= IB_QPS_RTS &&
	     qp_state(qp) != IB_QPS_ERR) ||
	    rxe_migr_opcode(rec->req_opcode, &opcodes->req) ||
	    rxe_migr_opcode(rec->comp_opcode, &opcodes->comp) ||
	    rxe_migr_opcode(rec->resp_opcode, &opcodes->resp))
		return false;
	if (rxe_migr_in_send(qp, opcodes->resp) &&
	    !(rec->flags & RXE_MIGR_QP_RECV_WQE))
		return false;
	if (!rxe_migr_fits_path(qp, rec))
		return false;

	return opcodes->comp == -1 ||
	       opcodes->comp == IB_OPCODE_RC_RDMA_READ_RESPONSE_FIRST ||
	       opcodes->comp == IB_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE;
}

/*
 * modify was not asked to find the peer, which may be dead: name the peer here. It
 * also took the hop limit of the route to this host.
 */
static void rxe_migr_refill_path(struct rxe_qp *qp,
				 const struct rxe_migr_rec_qp *rec)
{
	union ib_gid dgid;

	if (!qp->pri_av.network_type)
		return;

	memcpy(dgid.raw, rec->dgid, sizeof(dgid.raw));
	rxe_migr_call_at(to_rdev(qp->ibqp.device), &qp->pri_av, &dgid);
	qp->pri_av.grh.hop_limit = rec->hop_limit;
}

static void rxe_migr_refill_attr(struct rxe_qp *qp,
				 const struct rxe_migr_rec_qp *rec)
{
	qp->attr.rq_psn = le32_to_cpu(rec->rq_psn) & BTH_PSN_MASK;
	qp->attr.sq_psn = rxe_migr_no_sq_psn(rec) ? 0 :
			  le32_to_cpu(rec->sq_psn) & BTH_PSN_MASK;
	qp->src_port = le16_to_cpu(rec->src_port);
	qp->attr.sq_draining = !!rec->sq_draining;
	if (rec->sq_draining)
		qp->req.drain_index = le32_to_cpu(rec->sq_draining) - 1;
	qp->attr.en_sqd_async_notify = rec->en_sqd_async_notify;
}

static void rxe_migr_refill_work(struct rxe_qp *qp,
				 const struct rxe_migr_rec_qp *rec,
				 const struct rxe_migr_opcodes *opcodes)
{
	qp->req.psn = le32_to_cpu(rec->req_psn) & BTH_PSN_MASK;
	qp->req.wqe_index = le32_to_cpu(rec->req_wqe_index);
	/* the restored requester begins at what is not acknowledged */
	qp->req.retry_psn = qp->req.psn;
	qp->req.retry_index = qp->req.wqe_index;
	qp->req.noack_pkts = le32_to_cpu(rec->req_noack_pkts);
	qp->req.opcode = opcodes->req;
	atomic_set(&qp->req.rd_atomic, le16_to_cpu(rec->req_rd_atomic));
	qp->req.wait_fence = !!(rec->flags & RXE_MIGR_QP_WAIT_FENCE);
	qp->req.need_rd_atomic = !!(rec->flags & RXE_MIGR_QP_NEED_RD_ATOMIC);
	qp->req.wait_psn = !!(rec->flags & RXE_MIGR_QP_WAIT_PSN);
	qp->comp.psn = le32_to_cpu(rec->comp_psn) & BTH_PSN_MASK;
	qp->req.went_back = qp_type(qp) == IB_QPT_RC &&
			    qp->req.psn != qp->comp.psn;
	qp->comp.opcode = opcodes->comp;
	qp->comp.retry_cnt = rec->comp_retry_cnt;
	qp->comp.rnr_retry = rec->comp_rnr_retry;

	qp->resp.msn = le32_to_cpu(rec->resp_msn);
	qp->resp.said_last_wqe = qp_state(qp) == IB_QPS_ERR &&
				 !rec->owes_last_wqe;
	qp->resp.psn = le32_to_cpu(rec->resp_psn) & BTH_PSN_MASK;
	qp->resp.ack_psn = le32_to_cpu(rec->resp_ack_psn) & BTH_PSN_MASK;
	qp->resp.opcode = opcodes->resp;
	qp->resp.status = rec->resp_status;
	qp->resp.drop_msg = !!(rec->flags & RXE_MIGR_QP_DROP_MSG);
	qp->resp.sent_psn_nak = !!(rec->flags & RXE_MIGR_QP_SENT_PSN_NAK);
	qp->resp.va = le64_to_cpu(rec->resp_va);
	qp->resp.offset = le64_to_cpu(rec->resp_offset);
	qp->resp.resid = le32_to_cpu(rec->resp_resid);
	qp->resp.rkey = le32_to_cpu(rec->resp_rkey);
	qp->resp.length = le32_to_cpu(rec->resp_length);
	qp->resp.res_head = le16_to_cpu(rec->res_head);
	atomic_set(&qp->ssn, le32_to_cpu(rec->ssn));
}

static void rxe_migr_refill_peer(struct rxe_qp *qp,
				 const struct rxe_migr_rec_qp *rec)
{
	spin_lock_irq(&qp->state_lock);
	/* a restore leads a QP that failed in RTR through RTS, to set its attributes */
	if (rxe_migr_no_sq_psn(rec))
		qp->migr.has_sq_psn = false;
	qp->migr.epoch = le32_to_cpu(rec->epoch);
	qp->migr.peer_epoch = le32_to_cpu(rec->peer_epoch);
	qp->migr.stop_epoch = qp->migr.peer_epoch;
	rxe_migr_set_peer(qp, rec->flags & RXE_MIGR_QP_PEER_STOPPED ?
			      RXE_MIGR_PEER_STOPPED : RXE_MIGR_PEER_GOES);
	rxe_migr_set_speech(qp, rec->flags & RXE_MIGR_QP_PEER_KNOWS ?
				RXE_MIGR_SPEECH_HEARD : RXE_MIGR_SPEECH_NEVER);
	memcpy(qp->migr.old_gid.raw,
	       memchr_inv(rec->old_gid, 0, sizeof(rec->old_gid)) ?
	       rec->old_gid : rec->sgid, sizeof(rec->sgid));
	memcpy(qp->migr.last_gid.raw, rec->sgid, sizeof(rec->sgid));
	spin_unlock_irq(&qp->state_lock);
}

int rxe_migr_refill_qp(struct ib_uverbs_file *ufile,
		       const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_qp *rec = (const void *)hdr;
	struct rxe_qp *qp = rxe_migr_uqp(ufile, hdr);
	struct rxe_migr_opcodes opcodes;
	struct ib_uqp_object *uqp;
	int err = -EINVAL;

	if (length < sizeof(*rec) || !qp)
		return -EINVAL;

	mutex_lock(&qp->migr.mutex);
	if (!rxe_migr_fits_qp(qp, rec, &opcodes))
		goto unlock;

	rxe_migr_disable(qp);

	err = rxe_migr_refill_in_hand(qp, rec);
	if (err)
		goto unlock;

	uqp = qp->ibqp.uobject;
	rxe_migr_forget_uevents(&uqp->uevent);
	uqp->uevent.events_reported = le32_to_cpu(rec->async_events);

	rxe_migr_refill_attr(qp, rec);
	rxe_migr_refill_path(qp, rec);
	rxe_migr_refill_work(qp, rec, &opcodes);
	rxe_migr_refill_peer(qp, rec);

unlock:
	mutex_unlock(&qp->migr.mutex);
	return err;
}

int rxe_migr_refill_qp_ring(struct ib_uverbs_file *ufile,
			    const struct rxe_migr_rec_ring *rec, size_t length)
{
	bool sq = le32_to_cpu(rec->which) == RXE_MIGR_RING_SQ;
	struct rxe_qp *qp = rxe_migr_uqp(ufile, &rec->hdr);

	if (!qp)
		return -EINVAL;

	return rxe_migr_refill_queue(sq ? qp->sq.queue : qp->rq.queue, rec,
				     length);
}
