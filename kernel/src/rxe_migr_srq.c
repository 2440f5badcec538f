// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Shared receive queues. */

#include "rxe_migr_loc.h"

static struct ib_uevent_object *rxe_migr_srq_uevent(struct ib_uobject *uobj)
{
	return &container_of(uobj, struct ib_usrq_object,
			     uevent.uobject)->uevent;
}

/* An entry that a QP has in hand is in the record of that QP. */
void rxe_migr_dump_srq(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	struct ib_uevent_object *uevent = rxe_migr_srq_uevent(uobj);
	struct rxe_srq *srq = to_rsrq(uobj->object);
	struct rxe_migr_rec_srq *rec;

	/* ib_modify_srq() swaps the ring under this lock */
	mutex_lock(&srq->migr_mutex);
	rec = rxe_migr_put(sink, RXE_MIGR_REC_SRQ, uobj->id, sizeof(*rec));
	if (rec) {
		rec->user_handle = cpu_to_le64(uobj->user_handle);
		rec->ring_offset =
			cpu_to_le64(rxe_migr_ring_offset(srq->rq.queue));
		rec->pd = cpu_to_le32(srq->ibsrq.pd->uobject->id);
		rec->srq_num = cpu_to_le32(srq->srq_num);
		rec->max_wr = cpu_to_le32(srq->rq.max_wr);
		rec->max_sge = cpu_to_le32(srq->rq.max_sge);
		rec->limit = cpu_to_le32(READ_ONCE(srq->limit));
		rec->async_file =
			cpu_to_le32(rxe_migr_async_ordinal(sink, uevent));
		rec->async_events = cpu_to_le32(uevent->events_reported);
		rec->error = cpu_to_le32(srq->error);
	}

	rxe_migr_dump_ring(srq->rq.queue, uobj->id, RXE_MIGR_RING_SRQ, sink);
	mutex_unlock(&srq->migr_mutex);
}

int rxe_migr_refill_srq(struct ib_uverbs_file *ufile,
			const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_srq *rec = (const void *)hdr;
	struct rxe_srq *srq = rxe_migr_usrq(ufile, hdr);

	if (length < sizeof(*rec) || !srq ||
	    le32_to_cpu(rec->srq_num) != srq->srq_num)
		return -EINVAL;

	/* any limit is safe: the number of entries is only compared with it */
	mutex_lock(&srq->migr_mutex);
	srq->limit = le32_to_cpu(rec->limit);
	rxe_migr_forget_uevents(&srq->ibsrq.uobject->uevent);
	srq->ibsrq.uobject->uevent.events_reported =
		le32_to_cpu(rec->async_events);
	srq->error = !!rec->error;
	mutex_unlock(&srq->migr_mutex);

	return 0;
}

int rxe_migr_refill_srq_ring(struct ib_uverbs_file *ufile,
			     const struct rxe_migr_rec_ring *rec, size_t length)
{
	struct rxe_srq *srq = rxe_migr_usrq(ufile, &rec->hdr);
	int err;

	if (!srq)
		return -EINVAL;

	mutex_lock(&srq->migr_mutex);
	err = rxe_migr_refill_queue(srq->rq.queue, rec, length);
	mutex_unlock(&srq->migr_mutex);

	return err;
}
