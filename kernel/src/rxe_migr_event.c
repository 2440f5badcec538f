// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Event files, and the events in them that the application has not read yet. */

#include "rxe_migr_loc.h"

/* ------------------------------------------------------------------ dump -- */

void rxe_migr_dump_event_file(struct ib_uverbs_file *ufile,
			      struct ib_uobject *uobj,
			      struct rxe_migr_sink *sink)
{
	struct rxe_migr_rec_event_file *rec;
	u32 type;

	rxe_migr_is_event_file(uobj, &type);
	rec = rxe_migr_put(sink, type, rxe_migr_event_ordinal(sink, uobj),
			   sizeof(*rec));
	if (!rec)
		return;

	rec->is_default = cpu_to_le32(type == RXE_MIGR_REC_ASYNC_FILE &&
			container_of(uobj, struct ib_uverbs_async_event_file,
				     uobj) == ufile->default_async_file);
}

/*
 * The type and handle of the object to which an event belongs, or 0. The event points to
 * a counter of its object, and the object exists: uverbs takes its events out of the queue
 * before it frees it. The lock of the queue is held.
 */
static u32 rxe_migr_event_object(const struct ib_uverbs_event *ev, bool async,
				 u32 *handle)
{
	const struct ib_uevent_object *uevent = async ?
		container_of(ev->counter, struct ib_uevent_object,
			     events_reported) :
		&container_of(ev->counter, struct ib_ucq_object,
			      comp_events_reported)->uevent;

	*handle = uevent->uobject.id;
	switch (uevent->uobject.uapi_object->id) {
	case UVERBS_OBJECT_CQ:
		return RXE_MIGR_REC_CQ;
	case UVERBS_OBJECT_QP:
		return RXE_MIGR_REC_QP;
	case UVERBS_OBJECT_SRQ:
		return RXE_MIGR_REC_SRQ;
	}

	return 0;
}

/* Events that the application has not read yet, oldest first */
void rxe_migr_dump_events(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	bool async = uobj->uapi_object->id == UVERBS_OBJECT_ASYNC_EVENT;
	struct ib_uverbs_event_queue *queue = async ?
		&container_of(uobj, struct ib_uverbs_async_event_file,
			      uobj)->ev_queue :
		&container_of(uobj, struct ib_uverbs_completion_event_file,
			      uobj)->ev_queue;
	u32 file = rxe_migr_event_ordinal(sink, uobj);
	struct rxe_migr_rec_event *rec;
	struct ib_uverbs_event *ev;
	u32 object, handle;

	spin_lock_irq(&queue->lock);
	list_for_each_entry(ev, &queue->event_list, list) {
		/* an event of the port: the destination has its own */
		if (!ev->counter)
			continue;
		object = rxe_migr_event_object(ev, async, &handle);
		if (!object)
			continue;
		rec = rxe_migr_put(sink, RXE_MIGR_REC_EVENT, handle,
				   sizeof(*rec));
		if (!rec)
			continue;
		rec->file = cpu_to_le32(file);
		rec->object = cpu_to_le32(object);
		rec->event = cpu_to_le32(async ? ev->desc.async.event_type :
					 RXE_MIGR_EVENT_COMPLETION);
	}
	spin_unlock_irq(&queue->lock);
}

/* ---------------------------------------------------------------- refill -- */

/* If uverbs finds no memory for an event, it drops the event and says nothing. */
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

static int rxe_migr_refill_cq_event(struct rxe_cq *cq, struct ib_event *ev)
{
	struct list_head *list = &cq->ibcq.uobject->uevent.event_list;
	struct list_head *last = list->prev;

	ev->device = cq->ibcq.device;
	ev->element.cq = &cq->ibcq;
	cq->ibcq.event_handler(ev, cq->ibcq.cq_context);

	return rxe_migr_check_queued(list, last);
}

static int rxe_migr_refill_qp_event(struct rxe_qp *qp, struct ib_event *ev)
{
	struct list_head *list = &qp->ibqp.uobject->uevent.event_list;
	struct list_head *last = list->prev;

	if (!qp->ibqp.event_handler)
		return -EINVAL;
	ev->device = qp->ibqp.device;
	ev->element.qp = &qp->ibqp;
	qp->ibqp.event_handler(ev, qp->ibqp.qp_context);

	return rxe_migr_check_queued(list, last);
}

static int rxe_migr_refill_srq_event(struct rxe_srq *srq, struct ib_event *ev)
{
	struct list_head *list = &srq->ibsrq.uobject->uevent.event_list;
	struct list_head *last = list->prev;

	if (!srq->ibsrq.event_handler)
		return -EINVAL;
	ev->device = srq->ibsrq.device;
	ev->element.srq = &srq->ibsrq;
	srq->ibsrq.event_handler(ev, srq->ibsrq.srq_context);

	return rxe_migr_check_queued(list, last);
}

int rxe_migr_refill_event(struct ib_uverbs_file *ufile,
			  const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_event *rec = (const void *)hdr;
	struct ib_event ev = {};
	struct ib_uobject *uobj;
	struct rxe_srq *srq;
	struct rxe_qp *qp;
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
		if (event == RXE_MIGR_EVENT_COMPLETION)
			return rxe_migr_refill_completion(to_rcq(uobj->object));
		return rxe_migr_refill_cq_event(to_rcq(uobj->object), &ev);
	case RXE_MIGR_REC_QP:
		qp = rxe_migr_uqp(ufile, hdr);
		return qp ? rxe_migr_refill_qp_event(qp, &ev) : -EINVAL;
	case RXE_MIGR_REC_SRQ:
		srq = rxe_migr_usrq(ufile, hdr);
		return srq ? rxe_migr_refill_srq_event(srq, &ev) : -EINVAL;
	}

	return -EINVAL;
}
