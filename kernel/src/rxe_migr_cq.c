// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues. */

#include "rxe_migr_loc.h"

void rxe_migr_dump_cq(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	struct ib_ucq_object *ucq = container_of(uobj, struct ib_ucq_object,
						 uevent.uobject);
	struct rxe_cq *cq = to_rcq(uobj->object);
	struct rxe_migr_rec_cq *rec;

	/* ib_resize_cq() swaps the ring under this lock */
	spin_lock_irq(&cq->cq_lock);
	rec = rxe_migr_put(sink, RXE_MIGR_REC_CQ, uobj->id, sizeof(*rec));
	if (rec) {
		rec->user_handle = cpu_to_le64(uobj->user_handle);
		rec->ring_offset = cpu_to_le64(rxe_migr_ring_offset(cq->queue));
		rec->cqe = cpu_to_le32(cq->queue->index_mask);
		rec->comp_channel =
			cpu_to_le32(rxe_migr_comp_ordinal(sink, &cq->ibcq));
		rec->async_file =
			cpu_to_le32(rxe_migr_async_ordinal(sink, &ucq->uevent));
		rec->comp_events = cpu_to_le32(ucq->comp_events_reported);
		rec->async_events = cpu_to_le32(ucq->uevent.events_reported);
		rec->notify = cq->notify;
	}

	rxe_migr_dump_ring(cq->queue, uobj->id, RXE_MIGR_RING_CQ, sink);
	spin_unlock_irq(&cq->cq_lock);
}

int rxe_migr_refill_cq(struct ib_uverbs_file *ufile,
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
	ucq->comp_events_reported = le32_to_cpu(rec->comp_events);
	ucq->uevent.events_reported = le32_to_cpu(rec->async_events);
	cq->notify = rec->notify;

	return 0;
}

int rxe_migr_refill_cq_ring(struct ib_uverbs_file *ufile,
			    const struct rxe_migr_rec_ring *rec, size_t length)
{
	struct ib_uobject *uobj = rxe_migr_ucq(ufile, &rec->hdr);
	struct rxe_cq *cq;
	int err;

	if (!uobj)
		return -EINVAL;

	cq = to_rcq(uobj->object);
	spin_lock_irq(&cq->cq_lock);
	err = rxe_migr_refill_queue(cq->queue, rec, length);
	spin_unlock_irq(&cq->cq_lock);

	return err;
}
