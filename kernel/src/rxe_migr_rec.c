// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the records of all objects share: room in a dump, the uobject of a record,
 * and event files. An event file has no handle: its ordinal, in the order of
 * creation, stands for it. This file calls none of the files of objects.
 */

#include "rxe_migr_loc.h"

/* Room for one more record, zeroed; NULL if there is no buffer, or it is full. */
void *rxe_migr_put(struct rxe_migr_sink *sink, u16 type, u32 handle,
		   size_t length)
{
	size_t at = sink->length;
	struct rxe_migr_rec *rec;

	sink->length += length;
	sink->count++;
	if (!sink->buf || sink->length > sink->size)
		return NULL;

	rec = sink->buf + at;
	memset(rec, 0, length);
	rec->type = cpu_to_le16(type);
	rec->flags = cpu_to_le16(RXE_MIGR_REC_MANDATORY);
	rec->length = cpu_to_le32(length);
	rec->handle = cpu_to_le32(handle);

	return rec;
}

bool rxe_migr_is_event_file(const struct ib_uobject *uobj, u32 *type)
{
	if (!uobj->uapi_object)
		return false;

	switch (uobj->uapi_object->id) {
	case UVERBS_OBJECT_ASYNC_EVENT:
		*type = RXE_MIGR_REC_ASYNC_FILE;
		return true;
	case UVERBS_OBJECT_COMP_CHANNEL:
		*type = RXE_MIGR_REC_COMP_CHANNEL;
		return true;
	}

	return false;
}

u32 rxe_migr_event_ordinal(const struct rxe_migr_sink *sink,
			   const struct ib_uobject *uobj)
{
	u32 i;

	for (i = 0; i < sink->all->num_files; i++)
		if (sink->all->object[i] == uobj)
			return i;

	return RXE_MIGR_NO_HANDLE;
}

u32 rxe_migr_async_ordinal(const struct rxe_migr_sink *sink,
			   const struct ib_uevent_object *uevent)
{
	return uevent->event_file ?
		rxe_migr_event_ordinal(sink, &uevent->event_file->uobj) :
		RXE_MIGR_NO_HANDLE;
}

u32 rxe_migr_comp_ordinal(const struct rxe_migr_sink *sink,
			  const struct ib_cq *cq)
{
	struct ib_uverbs_completion_event_file *file;

	if (!cq->cq_context)
		return RXE_MIGR_NO_HANDLE;

	file = container_of(cq->cq_context,
			    struct ib_uverbs_completion_event_file, ev_queue);
	return rxe_migr_event_ordinal(sink, &file->uobj);
}

void rxe_migr_dump_other(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	struct rxe_migr_rec_other *rec;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_OTHER, uobj->id, sizeof(*rec));
	if (rec)
		rec->object_id = cpu_to_le32(uobj->uapi_object->id);
}

struct ib_uobject *rxe_migr_uobj(struct ib_uverbs_file *ufile, u32 handle,
				 u16 object_id)
{
	struct ib_uobject *uobj = xa_load(&ufile->idr, handle);

	if (!uobj || !uobj->uapi_object || !uobj->object ||
	    uobj->uapi_object->id != object_id)
		return NULL;

	return uobj;
}

struct ib_uobject *rxe_migr_ucq(struct ib_uverbs_file *ufile,
				const struct rxe_migr_rec *hdr)
{
	return rxe_migr_uobj(ufile, le32_to_cpu(hdr->handle), UVERBS_OBJECT_CQ);
}

struct rxe_qp *rxe_migr_uqp(struct ib_uverbs_file *ufile,
			    const struct rxe_migr_rec *hdr)
{
	struct ib_uobject *uobj = rxe_migr_uobj(ufile, le32_to_cpu(hdr->handle),
						UVERBS_OBJECT_QP);
	struct rxe_qp *qp = uobj ? to_rqp(uobj->object) : NULL;

	return qp && qp->migr_state == RXE_MIGR_QP_STOPPED ? qp : NULL;
}

struct rxe_srq *rxe_migr_usrq(struct ib_uverbs_file *ufile,
			      const struct rxe_migr_rec *hdr)
{
	struct ib_uobject *uobj = rxe_migr_uobj(ufile, le32_to_cpu(hdr->handle),
						UVERBS_OBJECT_SRQ);

	return uobj ? to_rsrq(uobj->object) : NULL;
}

/* Drop events that an earlier REFILL queued before it found no memory for the next. */
void rxe_migr_forget_events(struct ib_uverbs_event_queue *queue,
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
