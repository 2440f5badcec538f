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

static int rxe_migr_refill_completion(struct ib_cq *cq)
{
	const struct list_head *list = &cq->uobject->comp_list;
	const struct list_head *last = list->prev;

	if (!cq->cq_context)
		return -EINVAL;
	cq->comp_handler(cq, cq->cq_context);

	return rxe_migr_check_queued(list, last);
}

static int rxe_migr_queue_event(const struct list_head *list,
				void (*handler)(struct ib_event *ev, void *ctx),
				struct ib_event *ev, void *ctx)
{
	const struct list_head *last = list->prev;

	if (!handler)
		return -EINVAL;
	handler(ev, ctx);

	return rxe_migr_check_queued(list, last);
}

static int rxe_migr_refill_cq_event(struct ib_cq *cq, struct ib_event *ev)
{
	ev->device = cq->device;
	ev->element.cq = cq;

	return rxe_migr_queue_event(&cq->uobject->uevent.event_list,
				    cq->event_handler, ev, cq->cq_context);
}

static int rxe_migr_refill_qp_event(struct ib_qp *qp, struct ib_event *ev)
{
	ev->device = qp->device;
	ev->element.qp = qp;

	return rxe_migr_queue_event(&qp->uobject->uevent.event_list,
				    qp->event_handler, ev, qp->qp_context);
}

static int rxe_migr_refill_srq_event(struct ib_srq *srq, struct ib_event *ev)
{
	ev->device = srq->device;
	ev->element.srq = srq;

	return rxe_migr_queue_event(&srq->uobject->uevent.event_list,
				    srq->event_handler, ev, srq->srq_context);
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
			return rxe_migr_refill_completion(uobj->object);
		return rxe_migr_refill_cq_event(uobj->object, &ev);
	case RXE_MIGR_REC_QP:
		qp = rxe_migr_uqp(ufile, hdr);
		return qp ? rxe_migr_refill_qp_event(&qp->ibqp, &ev) : -EINVAL;
	case RXE_MIGR_REC_SRQ:
		srq = rxe_migr_usrq(ufile, hdr);
		return srq ? rxe_migr_refill_srq_event(&srq->ibsrq, &ev) :
			     -EINVAL;
	}

	return -EINVAL;
}
