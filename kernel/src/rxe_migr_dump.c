// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Dump a context: the walk over its objects. Each kind of object has a file, with the
 * function that fills its record, and the function that reads the record again.
 * rxe_migr_refill.c walks over the records.
 */

#include "rxe_migr_loc.h"

/*
 * All objects that the context has now: event files, then the others, each in the
 * order of their creation. They stay in memory, but the program may destroy them.
 */
int rxe_migr_get_objects(struct ib_uverbs_file *ufile,
			 struct rxe_migr_uobjs *all)
{
	u32 room = 0, n = 256, files;
	struct ib_uobject *uobj;
	u32 type;

	all->object = NULL;
	while (n > room) {
		kvfree(all->object);
		room = n + n / 8;
		all->object = kvmalloc_array(room, sizeof(*all->object),
					     GFP_KERNEL_ACCOUNT);
		if (!all->object)
			return -ENOMEM;

		n = 0;
		files = 0;
		spin_lock_irq(&ufile->uobjects_lock);
		list_for_each_entry(uobj, &ufile->uobjects, list) {
			n++;
			files += rxe_migr_is_event_file(uobj, &type);
		}
		if (n <= room) {
			all->num = n;
			all->num_files = files;
			/* the list begins with the newest object */
			list_for_each_entry(uobj, &ufile->uobjects, list) {
				uverbs_uobject_get(uobj);
				if (rxe_migr_is_event_file(uobj, &type))
					all->object[--files] = uobj;
				else
					all->object[--n] = uobj;
			}
			n = all->num;
		}
		spin_unlock_irq(&ufile->uobjects_lock);
	}

	return 0;
}

void rxe_migr_put_objects(struct rxe_migr_uobjs *all)
{
	u32 i;

	for (i = 0; i < all->num; i++)
		uverbs_uobject_put(all->object[i]);
	kvfree(all->object);
}

static struct rxe_pool_elem *rxe_migr_elem(struct ib_uobject *uobj)
{
	switch (uobj->uapi_object->id) {
	case UVERBS_OBJECT_PD:
		return &to_rpd(uobj->object)->elem;
	case UVERBS_OBJECT_MR:
		return &to_rmr(uobj->object)->elem;
	case UVERBS_OBJECT_CQ:
		return &to_rcq(uobj->object)->elem;
	case UVERBS_OBJECT_SRQ:
		return &to_rsrq(uobj->object)->elem;
	case UVERBS_OBJECT_AH:
		return &to_rah(uobj->object)->elem;
	case UVERBS_OBJECT_QP:
		return &to_rqp(uobj->object)->elem;
	case UVERBS_OBJECT_MW:
		return &to_rmw(uobj->object)->elem;
	}

	return NULL;
}

static struct rxe_pool *rxe_migr_pool_of(struct rxe_dev *rxe, u16 object_id)
{
	switch (object_id) {
	case UVERBS_OBJECT_PD:
		return &rxe->pd_pool;
	case UVERBS_OBJECT_MR:
		return &rxe->mr_pool;
	case UVERBS_OBJECT_CQ:
		return &rxe->cq_pool;
	case UVERBS_OBJECT_SRQ:
		return &rxe->srq_pool;
	case UVERBS_OBJECT_AH:
		return &rxe->ah_pool;
	case UVERBS_OBJECT_QP:
		return &rxe->qp_pool;
	case UVERBS_OBJECT_MW:
		return &rxe->mw_pool;
	}

	return NULL;
}

/*
 * Take a reference to the driver's object, so that it can be read while its program
 * runs: a destroy waits in rxe_cleanup() until the reference is put. Returns NULL if the
 * object is being destroyed, or if the driver has no such object. A destroy sets usecnt
 * to -1 before rxe_cleanup() takes the object from its pool, under the lock that is held
 * here. usecnt is also -1 while a region is registered anew, so it is not looked at if
 * locked says that no object can be destroyed.
 */
static struct rxe_pool_elem *rxe_migr_ref(struct rxe_dev *rxe,
					  struct ib_uobject *uobj, bool locked)
{
	struct rxe_pool *pool = rxe_migr_pool_of(rxe, uobj->uapi_object->id);
	struct rxe_pool_elem *elem = NULL;
	unsigned long flags;

	if (!pool)
		return NULL;

	xa_lock_irqsave(&pool->xa, flags);
	if ((locked || atomic_read(&uobj->usecnt) != -1) && uobj->object) {
		elem = rxe_migr_elem(uobj);
		if (!__rxe_get(elem))
			elem = NULL;
	}
	xa_unlock_irqrestore(&pool->xa, flags);

	return elem;
}

static void rxe_migr_dump_referenced(struct ib_uobject *uobj,
				     struct rxe_migr_sink *sink)
{
	switch (uobj->uapi_object->id) {
	case UVERBS_OBJECT_PD:
		rxe_migr_dump_pd(uobj, sink);
		break;
	case UVERBS_OBJECT_MR:
		rxe_migr_dump_mr(uobj, sink);
		break;
	case UVERBS_OBJECT_CQ:
		rxe_migr_dump_cq(uobj, sink);
		break;
	case UVERBS_OBJECT_SRQ:
		rxe_migr_dump_srq(uobj, sink);
		break;
	case UVERBS_OBJECT_AH:
		rxe_migr_dump_ah(uobj, sink);
		break;
	case UVERBS_OBJECT_QP:
		rxe_migr_dump_qp(uobj, sink);
		break;
	case UVERBS_OBJECT_MW:
		rxe_migr_dump_mw(uobj, sink);
		break;
	}
}

static void rxe_migr_dump_object(struct rxe_dev *rxe, struct ib_uobject *uobj,
				 struct rxe_migr_sink *sink)
{
	struct rxe_pool_elem *elem;

	if (!rxe_migr_pool_of(rxe, uobj->uapi_object->id)) {
		rxe_migr_dump_other(uobj, sink);
		return;
	}

	elem = rxe_migr_ref(rxe, uobj, sink->all->locked);
	if (!elem)
		return;
	rxe_migr_dump_referenced(uobj, sink);
	__rxe_put(elem);
}

static void rxe_migr_dump_context(struct rxe_ucontext *uc,
				  struct rxe_migr_sink *sink)
{
	struct rxe_dev *rxe = to_rdev(uc->ibuc.device);
	struct rxe_migr_rec_context *rec;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_CONTEXT, uc->elem.index,
			   sizeof(*rec));
	if (!rec)
		return;

	rec->abi_version = cpu_to_le32(RXE_MIGR_ABI_VERSION);
	rec->num_objects = cpu_to_le32(sink->all->num);
	strscpy_pad(rec->device, dev_name(&rxe->ib_dev.dev),
		    sizeof(rec->device));
	rec->stop_ns = cpu_to_le64(READ_ONCE(uc->migr.stop_ns));
	rec->active_mtu = READ_ONCE(rxe->port.attr.active_mtu);
}

/* Records: the context, event files, other objects, and the events that wait in the files */
int rxe_migr_dump_ufile(struct ib_uverbs_file *ufile, struct rxe_ucontext *uc,
			struct rxe_migr_sink *sink)
{
	struct rxe_dev *rxe = to_rdev(uc->ibuc.device);
	const struct rxe_migr_uobjs *all = sink->all;
	u32 i;

	lockdep_assert_held(&ufile->hw_destroy_rwsem);

	rxe_migr_dump_context(uc, sink);

	for (i = 0; i < all->num_files; i++)
		rxe_migr_dump_event_file(ufile, all->object[i], sink);

	for (i = all->num_files; i < all->num; i++)
		rxe_migr_dump_object(rxe, all->object[i], sink);

	for (i = 0; i < all->num_files; i++)
		rxe_migr_dump_events(all->object[i], sink);

	return sink->length > sink->size ? -ENOSPC : 0;
}
