// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Put back what verbs can't: the counterpart of rxe_migr_dump.c, in its order.
 * The records may come from anybody: nothing in them is trusted.
 */

#include <linux/unaligned.h>
#include "rxe_migr_loc.h"

struct ib_uobject *rxe_migr_uobj(struct ib_uverbs_file *ufile, u32 handle,
				 u16 object_id)
{
	struct ib_uobject *uobj = xa_load(&ufile->idr, handle);

	if (!uobj || !uobj->uapi_object || !uobj->object ||
	    uobj->uapi_object->id != object_id)
		return NULL;

	return uobj;
}

static struct ib_uobject *rxe_migr_ucq(struct ib_uverbs_file *ufile,
				       const struct rxe_migr_rec *hdr)
{
	return rxe_migr_uobj(ufile, le32_to_cpu(hdr->handle), UVERBS_OBJECT_CQ);
}

static struct rxe_qp *rxe_migr_uqp(struct ib_uverbs_file *ufile,
				   const struct rxe_migr_rec *hdr)
{
	struct ib_uobject *uobj = rxe_migr_uobj(ufile, le32_to_cpu(hdr->handle),
						UVERBS_OBJECT_QP);
	struct rxe_qp *qp = uobj ? to_rqp(uobj->object) : NULL;

	return qp && qp->migr_state == RXE_MIGR_QP_STOPPED ? qp : NULL;
}

/* ----------------------------------------------------------------- rings -- */

/* What is left of the record behind an element, or NULL */
static const void *rxe_migr_unpack_elem(u64 *to, size_t words,
					const void *from, const void *end)
{
	size_t i, n;
	u64 bits;

	for (; words; words -= n, to += n) {
		n = min_t(size_t, words, RXE_MIGR_RING_WORDS);
		if (end - from < sizeof(bits))
			return NULL;
		bits = get_unaligned_le64(from);
		from += sizeof(bits);
		if (fls64(bits) > n ||
		    end - from < hweight64(bits) * sizeof(*to))
			return NULL;
		for (i = 0; i < n; i++) {
			to[i] = 0;
			if (!(bits & BIT_ULL(i)))
				continue;
			memcpy(&to[i], from, sizeof(*to));
			from += sizeof(*to);
		}
	}

	return from;
}

static int rxe_migr_refill_queue(struct rxe_queue *q,
				 const struct rxe_migr_rec_ring *rec,
				 size_t length)
{
	u32 first = le32_to_cpu(rec->first), count = le32_to_cpu(rec->count);
	u32 index = le32_to_cpu(rec->index), i;
	const void *from = rec->data, *end = (const void *)rec + length;
	size_t words;

	if (!q || !q->ip)
		return -EINVAL;

	words = ((size_t)1 << q->log2_elem_size) / sizeof(u64);
	if (le32_to_cpu(rec->log2_elem_size) != q->log2_elem_size ||
	    le32_to_cpu(rec->index_mask) != q->index_mask ||
	    first > q->index_mask || index > q->index_mask ||
	    count > q->index_mask + 1)
		return -EINVAL;

	for (i = 0; i < count; i++) {
		from = rxe_migr_unpack_elem(queue_addr_from_index(q, first + i),
					    words, from, end);
		if (!from)
			return -EINVAL;
	}
	if (from != end)
		return -EINVAL;

	/* the client's index is whatever the client last wrote */
	q->index = index;
	if (q->type == QUEUE_TYPE_TO_CLIENT) {
		q->buf->producer_index = index;
		q->buf->consumer_index = le32_to_cpu(rec->consumer);
	} else {
		q->buf->producer_index = le32_to_cpu(rec->producer);
		q->buf->consumer_index = index;
	}

	return 0;
}

static int rxe_migr_refill_ring(struct ib_uverbs_file *ufile,
				const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_ring *rec = (const void *)hdr;
	struct ib_uobject *uobj;
	struct rxe_qp *qp;
	struct rxe_cq *cq;
	struct rxe_srq *srq;
	int err;

	if (length < sizeof(*rec))
		return -EINVAL;

	switch (le32_to_cpu(rec->which)) {
	case RXE_MIGR_RING_CQ:
		uobj = rxe_migr_ucq(ufile, hdr);
		if (!uobj)
			return -EINVAL;
		cq = to_rcq(uobj->object);
		spin_lock_irq(&cq->cq_lock);
		err = rxe_migr_refill_queue(cq->queue, rec, length);
		spin_unlock_irq(&cq->cq_lock);
		return err;
	case RXE_MIGR_RING_SQ:
		qp = rxe_migr_uqp(ufile, hdr);
		return qp ? rxe_migr_refill_queue(qp->sq.queue, rec, length) :
			    -EINVAL;
	case RXE_MIGR_RING_RQ:
		qp = rxe_migr_uqp(ufile, hdr);
		return qp ? rxe_migr_refill_queue(qp->rq.queue, rec, length) :
			    -EINVAL;
	case RXE_MIGR_RING_SRQ:
		srq = rxe_migr_usrq(ufile, hdr);
		if (!srq)
			return -EINVAL;
		mutex_lock(&srq->migr_mutex);
		err = rxe_migr_refill_queue(srq->rq.queue, rec, length);
		mutex_unlock(&srq->migr_mutex);
		return err;
	}

	return -EINVAL;
}

/* --------------------------------------------------------------- objects -- */

/* Of a REFILL before this one, which found no memory for another */
static void rxe_migr_forget_events(struct ib_uverbs_event_queue *queue,
				   struct list_head *list)
{
	struct ib_uverbs_event *ev, *next;

	if (!queue)
		return;

	spin_lock_irq(&queue->lock);
	list_for_each_entry_safe(ev, next, list, obj_list) {
		list_del(&ev->list);
		list_del(&ev->obj_list);
		kfree(ev);
	}
	spin_unlock_irq(&queue->lock);
}

void rxe_migr_forget_uevents(struct ib_uevent_object *uevent)
{
	if (uevent->event_file)
		rxe_migr_forget_events(&uevent->event_file->ev_queue,
				       &uevent->event_list);
}

static int rxe_migr_refill_cq(struct ib_uverbs_file *ufile,
			      const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_cq *rec = (const void *)hdr;
	struct ib_ucq_object *ucq;
	struct ib_uobject *uobj;
	struct rxe_cq *cq;

	uobj = rxe_migr_ucq(ufile, hdr);
	if (length < sizeof(*rec) || !uobj ||
	    rec->notify & ~IB_CQ_SOLICITED_MASK)
		return -EINVAL;

	ucq = container_of(uobj, struct ib_ucq_object, uevent.uobject);
	cq = to_rcq(uobj->object);
	rxe_migr_forget_events(cq->ibcq.cq_context, &ucq->comp_list);
	rxe_migr_forget_uevents(&ucq->uevent);
	cq->notify = rec->notify;
	ucq->comp_events_reported = le32_to_cpu(rec->comp_events);
	ucq->uevent.events_reported = le32_to_cpu(rec->async_events);

	return 0;
}

static int rxe_migr_res_mask(u8 type)
{
	switch (type) {
	case RXE_MIGR_RES_READ:
		return RXE_READ_MASK;
	case RXE_MIGR_RES_ATOMIC:
		return RXE_ATOMIC_MASK;
	case RXE_MIGR_RES_ATOMIC_WRITE:
		return RXE_ATOMIC_WRITE_MASK;
	case RXE_MIGR_RES_FLUSH:
		return RXE_FLUSH_MASK;
	}

	return 0;
}

static int rxe_migr_refill_res(struct ib_uverbs_file *ufile,
			       const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_resp_res *rec = (const void *)hdr;
	struct rxe_qp *qp = rxe_migr_uqp(ufile, hdr);
	struct resp_res *res;
	u16 index;
	int type;

	if (length < sizeof(*rec) || !qp)
		return -EINVAL;

	index = le16_to_cpu(rec->index);
	type = rxe_migr_res_mask(rec->type);

	mutex_lock(&qp->migr.mutex);
	if (!qp->resp.resources || index >= qp->attr.max_dest_rd_atomic ||
	    !type || rec->state > rdatm_res_state_replay) {
		mutex_unlock(&qp->migr.mutex);
		return -EINVAL;
	}

	res = &qp->resp.resources[index];
	memset(res, 0, sizeof(*res));
	res->type = type;
	res->replay = !!rec->replay;
	res->state = rec->state;
	res->first_psn = le32_to_cpu(rec->first_psn) & BTH_PSN_MASK;
	res->last_psn = le32_to_cpu(rec->last_psn) & BTH_PSN_MASK;
	res->cur_psn = le32_to_cpu(rec->cur_psn) & BTH_PSN_MASK;
	switch (type) {
	case RXE_READ_MASK:
		/* the MR is looked up and its range checked at each replay */
		res->read.rkey = le32_to_cpu(rec->rkey);
		res->read.length = le32_to_cpu(rec->length);
		res->read.resid = le32_to_cpu(rec->resid);
		res->read.va = le64_to_cpu(rec->va);
		res->read.va_org = le64_to_cpu(rec->va_org);
		break;
	case RXE_ATOMIC_MASK:
		res->atomic.orig_val = le64_to_cpu(rec->va_org);
		break;
	case RXE_FLUSH_MASK:
		res->flush.type = rec->flush_type;
		res->flush.level = rec->flush_level;
		res->flush.length = le32_to_cpu(rec->length);
		res->flush.va = le64_to_cpu(rec->va);
		break;
	}
	mutex_unlock(&qp->migr.mutex);

	return 0;
}

/*
 * The receive in hand: where in it the next byte goes. Without an SRQ the
 * entry itself is still at the head of the ring.
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
 * Is the responder in the middle of a SEND? It needs the receive in hand then,
 * which only the error state takes away.
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

static int rxe_migr_refill_qp(struct ib_uverbs_file *ufile,
			      const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_qp *rec = (const void *)hdr;
	int req_opcode, comp_opcode, resp_opcode, err;
	struct rxe_qp *qp = rxe_migr_uqp(ufile, hdr);
	struct ib_uqp_object *uqp;
	union ib_gid dgid;
	u32 mask;

	if (length < sizeof(*rec) || !qp)
		return -EINVAL;

	mutex_lock(&qp->migr.mutex);
	err = -EINVAL;
	mask = qp->sq.queue->index_mask;
	if (rec->qp_type != qp_type(qp) || rec->qp_state != qp_state(qp) ||
	    le32_to_cpu(rec->qpn) != qp_num(qp) ||
	    le32_to_cpu(rec->req_wqe_index) > mask ||
	    le32_to_cpu(rec->sq_draining) > mask + 1 ||
	    le16_to_cpu(rec->req_rd_atomic) > qp->attr.max_rd_atomic ||
	    (le16_to_cpu(rec->res_head) &&
	     le16_to_cpu(rec->res_head) >= qp->attr.max_dest_rd_atomic) ||
	    rec->comp_retry_cnt > 7 || rec->comp_rnr_retry > 7 ||
	    rec->resp_status > IB_WC_GENERAL_ERR ||
	    rxe_migr_opcode(rec->req_opcode, &req_opcode) ||
	    rxe_migr_opcode(rec->comp_opcode, &comp_opcode) ||
	    rxe_migr_opcode(rec->resp_opcode, &resp_opcode))
		goto unlock;
	if (rxe_migr_in_send(qp, resp_opcode) &&
	    !(rec->flags & RXE_MIGR_QP_RECV_WQE))
		goto unlock;
	if (comp_opcode != -1 &&
	    comp_opcode != IB_OPCODE_RC_RDMA_READ_RESPONSE_FIRST &&
	    comp_opcode != IB_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE)
		goto unlock;

	rxe_disable_task(&qp->recv_task);
	rxe_disable_task(&qp->send_task);

	err = rxe_migr_refill_in_hand(qp, rec);
	if (err)
		goto unlock;

	uqp = qp->ibqp.uobject;
	rxe_migr_forget_uevents(&uqp->uevent);
	uqp->uevent.events_reported = le32_to_cpu(rec->async_events);

	/* its path was made without looking for the peer, which may be dead */
	if (qp_state(qp) == IB_QPS_ERR) {
		memcpy(dgid.raw, rec->dgid, sizeof(dgid.raw));
		memcpy(qp->pri_av.grh.dgid.raw, dgid.raw, sizeof(dgid.raw));
		rdma_gid2ip((struct sockaddr *)&qp->pri_av.dgid_addr, &dgid);
	}

	qp->src_port = le16_to_cpu(rec->src_port);
	qp->attr.rq_psn = le32_to_cpu(rec->rq_psn) & BTH_PSN_MASK;
	qp->attr.sq_psn = le32_to_cpu(rec->sq_psn) & BTH_PSN_MASK;
	qp->attr.sq_draining = !!rec->sq_draining;
	if (rec->sq_draining)
		qp->req.drain_index = le32_to_cpu(rec->sq_draining) - 1;
	qp->attr.en_sqd_async_notify = rec->en_sqd_async_notify;

	qp->req.psn = le32_to_cpu(rec->req_psn) & BTH_PSN_MASK;
	qp->req.went_back = 0;
	qp->req.wqe_index = le32_to_cpu(rec->req_wqe_index);
	qp->req.noack_pkts = le32_to_cpu(rec->req_noack_pkts);
	qp->req.opcode = req_opcode;
	atomic_set(&qp->req.rd_atomic, le16_to_cpu(rec->req_rd_atomic));
	qp->req.wait_fence = !!(rec->flags & RXE_MIGR_QP_WAIT_FENCE);
	qp->req.need_rd_atomic = !!(rec->flags & RXE_MIGR_QP_NEED_RD_ATOMIC);
	qp->req.wait_psn = !!(rec->flags & RXE_MIGR_QP_WAIT_PSN);
	qp->comp.psn = le32_to_cpu(rec->comp_psn) & BTH_PSN_MASK;
	qp->comp.opcode = comp_opcode;
	qp->comp.retry_cnt = rec->comp_retry_cnt;
	qp->comp.rnr_retry = rec->comp_rnr_retry;

	qp->resp.msn = le32_to_cpu(rec->resp_msn);
	qp->resp.said_last_wqe = qp_state(qp) == IB_QPS_ERR;
	qp->resp.psn = le32_to_cpu(rec->resp_psn) & BTH_PSN_MASK;
	qp->resp.ack_psn = le32_to_cpu(rec->resp_ack_psn) & BTH_PSN_MASK;
	qp->resp.opcode = resp_opcode;
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

	spin_lock_irq(&qp->state_lock);
	qp->migr.epoch = le32_to_cpu(rec->epoch);
	qp->migr.peer_epoch = le32_to_cpu(rec->peer_epoch);
	qp->migr.stop_epoch = qp->migr.peer_epoch;
	qp->migr.peer_stopped = !!(rec->flags & RXE_MIGR_QP_PEER_STOPPED);
	qp->migr.peer_knows = !!(rec->flags & RXE_MIGR_QP_PEER_KNOWS);
	memcpy(qp->migr.old_gid.raw,
	       memchr_inv(rec->old_gid, 0, sizeof(rec->old_gid)) ?
	       rec->old_gid : rec->sgid, sizeof(rec->sgid));
	memcpy(qp->migr.last_gid.raw, rec->sgid, sizeof(rec->sgid));
	spin_unlock_irq(&qp->state_lock);

unlock:
	mutex_unlock(&qp->migr.mutex);
	return err;
}

/* The entry of an SRQ that a QP has in hand; before the record of the QP */
static int rxe_migr_refill_recv_wqe(struct ib_uverbs_file *ufile,
				    const struct rxe_migr_rec *hdr,
				    size_t length)
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

/* uverbs tells nobody that it had no memory for an event. */
static int rxe_migr_check_queued(const struct list_head *list,
				 const struct list_head *last)
{
	return list->prev == last ? -ENOMEM : 0;
}

static int rxe_migr_refill_completion(struct rxe_cq *cq)
{
	struct list_head *list = &cq->ibcq.uobject->comp_list;
	struct list_head *last = list->prev;

	if (!cq->ibcq.cq_context)
		return -EINVAL;
	cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);

	return rxe_migr_check_queued(list, last);
}

static int rxe_migr_refill_event(struct ib_uverbs_file *ufile,
				 const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_event *rec = (const void *)hdr;
	struct ib_uevent_object *uevent;
	struct list_head *last;
	struct ib_event ev = {};
	struct ib_uobject *uobj;
	struct rxe_srq *srq;
	struct rxe_qp *qp;
	struct rxe_cq *cq;
	u32 event;

	if (length < sizeof(*rec))
		return -EINVAL;

	event = le32_to_cpu(rec->event);
	if (event > IB_EVENT_WQ_FATAL &&
	    (event != RXE_MIGR_EVENT_COMPLETION ||
	     le32_to_cpu(rec->object) != RXE_MIGR_REC_CQ))
		return -EINVAL;
	ev.event = event;

	switch (le32_to_cpu(rec->object)) {
	case RXE_MIGR_REC_CQ:
		uobj = rxe_migr_ucq(ufile, hdr);
		if (!uobj)
			return -EINVAL;
		cq = to_rcq(uobj->object);
		if (event == RXE_MIGR_EVENT_COMPLETION)
			return rxe_migr_refill_completion(cq);
		uevent = &cq->ibcq.uobject->uevent;
		last = uevent->event_list.prev;
		ev.device = cq->ibcq.device;
		ev.element.cq = &cq->ibcq;
		cq->ibcq.event_handler(&ev, cq->ibcq.cq_context);
		break;
	case RXE_MIGR_REC_QP:
		qp = rxe_migr_uqp(ufile, hdr);
		if (!qp || !qp->ibqp.event_handler)
			return -EINVAL;
		uevent = &qp->ibqp.uobject->uevent;
		last = uevent->event_list.prev;
		ev.device = qp->ibqp.device;
		ev.element.qp = &qp->ibqp;
		qp->ibqp.event_handler(&ev, qp->ibqp.qp_context);
		break;
	case RXE_MIGR_REC_SRQ:
		srq = rxe_migr_usrq(ufile, hdr);
		if (!srq || !srq->ibsrq.event_handler)
			return -EINVAL;
		uevent = &srq->ibsrq.uobject->uevent;
		last = uevent->event_list.prev;
		ev.device = srq->ibsrq.device;
		ev.element.srq = &srq->ibsrq;
		srq->ibsrq.event_handler(&ev, srq->ibsrq.srq_context);
		break;
	default:
		return -EINVAL;
	}

	return rxe_migr_check_queued(&uevent->event_list, last);
}

/* What is applied before what: a QP's receive in hand lies in its ring. */
static const struct {
	u16 type;
	u8 pass;
	int (*refill)(struct ib_uverbs_file *ufile,
		      const struct rxe_migr_rec *hdr, size_t length);
} rxe_migr_refills[] = {
	{ RXE_MIGR_REC_RING,		0, rxe_migr_refill_ring },
	{ RXE_MIGR_REC_CQ,		0, rxe_migr_refill_cq },
	{ RXE_MIGR_REC_SRQ,		0, rxe_migr_refill_srq },
	{ RXE_MIGR_REC_AH,		0, rxe_migr_refill_ah },
	{ RXE_MIGR_REC_RECV_WQE,	0, rxe_migr_refill_recv_wqe },
	{ RXE_MIGR_REC_QP,		1, rxe_migr_refill_qp },
	{ RXE_MIGR_REC_RESP_RES,	1, rxe_migr_refill_res },
	{ RXE_MIGR_REC_MW,		1, rxe_migr_refill_mw },
	{ RXE_MIGR_REC_EVENT,		2, rxe_migr_refill_event },
	/* created by their verbs, nothing is left to do */
	{ RXE_MIGR_REC_CONTEXT,		3, NULL },
	{ RXE_MIGR_REC_ASYNC_FILE,	3, NULL },
	{ RXE_MIGR_REC_COMP_CHANNEL,	3, NULL },
	{ RXE_MIGR_REC_PD,		3, NULL },
	{ RXE_MIGR_REC_MR,		3, NULL },
	{ RXE_MIGR_REC_MCAST,		3, NULL },
};

#define RXE_MIGR_REFILL_PASSES 3

static int rxe_migr_refill_one(struct ib_uverbs_file *ufile,
			       const struct rxe_migr_rec *hdr, u8 pass)
{
	u16 type = le16_to_cpu(hdr->type);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rxe_migr_refills); i++) {
		if (rxe_migr_refills[i].type != type)
			continue;
		if (rxe_migr_refills[i].pass != pass)
			return 0;
		return rxe_migr_refills[i].refill(ufile, hdr,
						  le32_to_cpu(hdr->length));
	}

	return le16_to_cpu(hdr->flags) & RXE_MIGR_REC_MANDATORY ?
		-EOPNOTSUPP : 0;
}

int rxe_migr_refill_ufile(struct ib_uverbs_file *ufile, const void *buf,
			  size_t length)
{
	const struct rxe_migr_rec *hdr;
	size_t pos, rec_length;
	u8 pass;
	int err;

	lockdep_assert_held_write(&ufile->hw_destroy_rwsem);

	for (pass = 0; pass < RXE_MIGR_REFILL_PASSES; pass++) {
		for (pos = 0; pos < length; pos += rec_length) {
			hdr = buf + pos;
			if (length - pos < sizeof(*hdr))
				return -EINVAL;
			rec_length = le32_to_cpu(hdr->length);
			if (rec_length < sizeof(*hdr) ||
			    rec_length > length - pos)
				return -EINVAL;
			err = rxe_migr_refill_one(ufile, hdr, pass);
			if (err)
				return err;
			cond_resched();
		}
	}

	return 0;
}
