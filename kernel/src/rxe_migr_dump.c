// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Records of a context's objects. rxe_migr_refill.c reads them, in this order. */

#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/unaligned.h>
#include "rxe_migr_loc.h"

/* Room for one more record, zeroed; NULL if only its size is asked for. */
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

/* --------------------------------------------------------------- objects -- */

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

/*
 * All objects that the context has now, in the order of their creation, event
 * files first. Each stays in memory, but its program may destroy it.
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
			/* the last that was made is the first in the list */
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
 * Hold the driver's object, so that it can be read while its program runs: who
 * destroys it waits in rxe_cleanup() until it is put. What is being destroyed
 * is not held: usecnt is -1 before rxe_cleanup() takes the object from its
 * pool, under the lock that is held here. (It is -1, too, while a region is
 * registered anew; but where the set of objects is locked, none is destroyed.)
 * NULL, too, if the driver has no such object.
 */
static struct rxe_pool_elem *rxe_migr_hold(struct rxe_dev *rxe,
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

/* ----------------------------------------------------------- event files -- */

/* Event files have no handle: they are numbered in the order of creation. */
struct ib_uobject *rxe_migr_event_file(struct ib_uverbs_file *ufile,
				       u32 ordinal)
{
	struct ib_uobject *uobj;
	u32 type;

	list_for_each_entry_reverse(uobj, &ufile->uobjects, list)
		if (rxe_migr_is_event_file(uobj, &type) && !ordinal--)
			return uobj;

	return NULL;
}

static u32 rxe_migr_event_ordinal(const struct rxe_migr_sink *sink,
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

static u32 rxe_migr_comp_ordinal(const struct rxe_migr_sink *sink,
				 const struct ib_cq *cq)
{
	struct ib_uverbs_completion_event_file *file;

	if (!cq->cq_context)
		return RXE_MIGR_NO_HANDLE;

	file = container_of(cq->cq_context,
			    struct ib_uverbs_completion_event_file, ev_queue);
	return rxe_migr_event_ordinal(sink, &file->uobj);
}

static void rxe_migr_dump_event_file(struct ib_uverbs_file *ufile,
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

/* Whose user_handle is this? Events name their object by it, not by handle. */
static u32 rxe_migr_event_object(struct ib_uverbs_event *ev,
				 const struct rxe_migr_sink *sink, u32 *handle)
{
	u32 i;

	for (i = sink->all->num_files; i < sink->all->num; i++) {
		struct ib_uobject *uobj = sink->all->object[i];
		struct ib_uevent_object *uevent =
			container_of(uobj, struct ib_uevent_object, uobject);

		*handle = uobj->id;
		switch (uobj->uapi_object->id) {
		case UVERBS_OBJECT_CQ:
			if (ev->counter == &container_of(uevent,
					struct ib_ucq_object,
					uevent)->comp_events_reported ||
			    ev->counter == &uevent->events_reported)
				return RXE_MIGR_REC_CQ;
			break;
		case UVERBS_OBJECT_QP:
			if (ev->counter == &uevent->events_reported)
				return RXE_MIGR_REC_QP;
			break;
		case UVERBS_OBJECT_SRQ:
			if (ev->counter == &uevent->events_reported)
				return RXE_MIGR_REC_SRQ;
			break;
		}
	}

	return 0;
}

/* Events that the application has not read yet, oldest first */
static void rxe_migr_dump_events(struct ib_uobject *uobj,
				 struct rxe_migr_sink *sink)
{
	bool async = uobj->uapi_object->id == UVERBS_OBJECT_ASYNC_EVENT;
	struct ib_uverbs_event_queue *queue = async ?
		&container_of(uobj, struct ib_uverbs_async_event_file,
			      uobj)->ev_queue :
		&container_of(uobj, struct ib_uverbs_completion_event_file,
			      uobj)->ev_queue;
	struct rxe_migr_rec_event *rec;
	struct ib_uverbs_event *ev;
	u32 object, handle;

	spin_lock_irq(&queue->lock);
	list_for_each_entry(ev, &queue->event_list, list) {
		/* events of the port are the new host's own business */
		if (!ev->counter)
			continue;
		object = rxe_migr_event_object(ev, sink, &handle);
		if (!object)
			continue;
		rec = rxe_migr_put(sink, RXE_MIGR_REC_EVENT, handle,
				   sizeof(*rec));
		if (!rec)
			continue;
		rec->file = cpu_to_le32(rxe_migr_event_ordinal(sink, uobj));
		rec->object = cpu_to_le32(object);
		rec->event = cpu_to_le32(async ? ev->desc.async.event_type :
					 RXE_MIGR_EVENT_COMPLETION);
	}
	spin_unlock_irq(&queue->lock);
}

/* ----------------------------------------------------------------- rings -- */

/*
 * An element, as rxe_migr_rec_ring says: most of its words are zero. The
 * application may write to it meanwhile, so each word is read once.
 */
static void *rxe_migr_pack_elem(void *to, const u64 *from, size_t words)
{
	size_t i, n;
	void *mask;
	u64 word, bits;

	for (; words; words -= n, from += n) {
		n = min_t(size_t, words, RXE_MIGR_RING_WORDS);
		mask = to;
		to += sizeof(u64);
		bits = 0;
		for (i = 0; i < n; i++) {
			word = READ_ONCE(from[i]);
			if (!word)
				continue;
			bits |= BIT_ULL(i);
			memcpy(to, &word, sizeof(word));
			to += sizeof(word);
		}
		put_unaligned_le64(bits, mask);
	}

	return to;
}

/*
 * The application may be half-way through filling an element behind the
 * producer index, so all of a send or receive ring is taken; of a CQ, which
 * the driver fills, only what is in use.
 */
void rxe_migr_dump_ring(struct rxe_queue *q, u32 handle, u32 which,
			struct rxe_migr_sink *sink)
{
	struct rxe_migr_rec_ring *rec;
	u32 first = 0, count, i;
	size_t words, most;
	void *to;

	if (!q)
		return;

	words = ((size_t)1 << q->log2_elem_size) / sizeof(u64);
	count = q->index_mask + 1;
	if (which == RXE_MIGR_RING_CQ) {
		first = READ_ONCE(q->buf->consumer_index) & q->index_mask;
		count = (q->index - first) & q->index_mask;
	}

	rec = rxe_migr_put(sink, RXE_MIGR_REC_RING, handle, sizeof(*rec));
	most = count * (words + DIV_ROUND_UP(words, RXE_MIGR_RING_WORDS)) *
	       sizeof(u64);
	if (!rec || most > sink->size - sink->length) {
		sink->length += most;
		return;
	}

	rec->which = cpu_to_le32(which);
	rec->log2_elem_size = cpu_to_le32(q->log2_elem_size);
	rec->index_mask = cpu_to_le32(q->index_mask);
	rec->producer = cpu_to_le32(READ_ONCE(q->buf->producer_index));
	rec->consumer = cpu_to_le32(READ_ONCE(q->buf->consumer_index));
	rec->index = cpu_to_le32(q->index);
	rec->first = cpu_to_le32(first);
	rec->count = cpu_to_le32(count);
	to = rec->data;
	for (i = 0; i < count; i++)
		to = rxe_migr_pack_elem(to, queue_addr_from_index(q, first + i),
					words);
	sink->length += to - (void *)rec->data;
	rec->hdr.length = cpu_to_le32(to - (void *)rec);
}

u64 rxe_migr_ring_offset(const struct rxe_queue *q)
{
	return q && q->ip ? q->ip->info.offset : 0;
}

/* --------------------------------------------------------------- records -- */

/* A region may get another PD, and its old one may be destroyed, meanwhile. */
static u32 rxe_migr_mr_pd(struct rxe_mr *mr)
{
	struct xarray *pds = &to_rdev(mr->ibmr.device)->pd_pool.xa;
	unsigned long flags;
	u32 handle;

	xa_lock_irqsave(pds, flags);
	handle = READ_ONCE(mr->ibmr.pd)->uobject->id;
	xa_unlock_irqrestore(pds, flags);

	return handle;
}

static void rxe_migr_dump_mr(struct ib_uobject *uobj,
			     struct rxe_migr_sink *sink)
{
	struct rxe_mr *mr = to_rmr(uobj->object);
	struct rxe_migr_rec_mr *rec;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_MR, uobj->id, sizeof(*rec));
	if (!rec)
		return;

	rec->pd = cpu_to_le32(rxe_migr_mr_pd(mr));
	rec->key = cpu_to_le32(mr->rkey);
	rec->start = cpu_to_le64(mr->umem ? mr->umem->address : 0);
	rec->length = cpu_to_le64(mr->ibmr.length);
	rec->iova = cpu_to_le64(mr->ibmr.iova);
	rec->access = cpu_to_le32(mr->access);
}

/* The process that has this memory, or 0. Most regions have that of the last. */
static pid_t rxe_migr_mm_pid(const struct mm_struct *mm,
			     struct rxe_migr_sink *sink)
{
	struct task_struct *p, *t;

	if (sink->mm == mm)
		return sink->pid;

	sink->mm = mm;
	sink->pid = 0;
	rcu_read_lock();
	for_each_process_thread(p, t) {
		/* a kernel thread only borrows it */
		if (READ_ONCE(t->mm) != mm || t->flags & PF_KTHREAD)
			continue;
		sink->pid = task_tgid_vnr(t);
		goto out;
	}
out:
	rcu_read_unlock();

	return sink->pid;
}

static void rxe_migr_dump_mr_owner(struct ib_uobject *uobj,
				   struct rxe_migr_sink *sink)
{
	const struct ib_umem *umem = to_rmr(uobj->object)->umem;
	struct rxe_migr_rec_mr_owner *rec;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_MR_OWNER, uobj->id, sizeof(*rec));
	if (!rec)
		return;

	rec->hdr.flags = 0;
	rec->pid = cpu_to_le32(umem ? rxe_migr_mm_pid(umem->owning_mm, sink) : 0);
}

static void rxe_migr_dump_cq(struct ib_uobject *uobj,
			     struct rxe_migr_sink *sink)
{
	struct ib_ucq_object *ucq = container_of(uobj, struct ib_ucq_object,
						 uevent.uobject);
	struct rxe_cq *cq = to_rcq(uobj->object);
	struct rxe_migr_rec_cq *rec;

	/* against ib_resize_cq(), which swaps the ring */
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

static u8 rxe_migr_res_type(int type)
{
	switch (type) {
	case RXE_READ_MASK:
		return RXE_MIGR_RES_READ;
	case RXE_ATOMIC_MASK:
		return RXE_MIGR_RES_ATOMIC;
	case RXE_ATOMIC_WRITE_MASK:
		return RXE_MIGR_RES_ATOMIC_WRITE;
	case RXE_FLUSH_MASK:
		return RXE_MIGR_RES_FLUSH;
	}

	return 0;
}

/* type is what res->type was: of a live QP it changes. */
static void rxe_migr_dump_res(const struct resp_res *res, u8 type, u32 handle,
			      u16 index, struct rxe_migr_sink *sink)
{
	struct rxe_migr_rec_resp_res *rec;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_RESP_RES, handle, sizeof(*rec));
	if (!rec)
		return;

	rec->index = cpu_to_le16(index);
	rec->type = type;
	rec->replay = res->replay;
	rec->state = res->state;
	rec->first_psn = cpu_to_le32(res->first_psn);
	rec->last_psn = cpu_to_le32(res->last_psn);
	rec->cur_psn = cpu_to_le32(res->cur_psn);
	switch (type) {
	case RXE_MIGR_RES_READ:
		rec->rkey = cpu_to_le32(res->read.rkey);
		rec->length = cpu_to_le32(res->read.length);
		rec->resid = cpu_to_le32(res->read.resid);
		rec->va = cpu_to_le64(res->read.va);
		rec->va_org = cpu_to_le64(res->read.va_org);
		break;
	case RXE_MIGR_RES_ATOMIC:
		rec->va_org = cpu_to_le64(res->atomic.orig_val);
		break;
	case RXE_MIGR_RES_FLUSH:
		rec->flush_type = res->flush.type;
		rec->flush_level = res->flush.level;
		rec->length = cpu_to_le32(res->flush.length);
		rec->va = cpu_to_le64(res->flush.va);
		break;
	}
}

/* Of an SRQ only the QP that took the entry knows it; see RECV_WQE. */
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
	       (qp->migr.peer_stopped ? RXE_MIGR_QP_PEER_STOPPED : 0) |
	       (qp->migr.peer_knows ? RXE_MIGR_QP_PEER_KNOWS : 0);
}

static void rxe_migr_fill_qp(const struct rxe_migr_sink *sink,
			     struct ib_uqp_object *uqp, struct rxe_qp *qp,
			     u16 num_res, struct rxe_migr_rec_qp *rec)
{
	const struct ib_qp_attr *attr = &qp->attr;
	/* a slot of a ring: it stays, but a live responder is done with it */
	const struct rxe_recv_wqe *wqe = READ_ONCE(qp->resp.wqe);
	union ib_gid sgid;

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

	rec->qpn = cpu_to_le32(qp_num(qp));
	rec->qp_type = qp_type(qp);
	rec->qp_state = attr->qp_state;
	rec->sq_sig_all = qp->sq_sig_type == IB_SIGNAL_ALL_WR;
	rec->max_send_wr = cpu_to_le32(qp->sq.max_wr);
	rec->max_recv_wr = cpu_to_le32(qp->srq ? 0 : qp->rq.max_wr);
	rec->max_inline = cpu_to_le32(qp->sq.max_inline);
	rec->max_send_sge = cpu_to_le16(qp->sq.max_sge);
	rec->max_recv_sge = cpu_to_le16(qp->srq ? 0 : qp->rq.max_sge);

	rec->access_flags = cpu_to_le32(attr->qp_access_flags);
	rec->qkey = cpu_to_le32(attr->qkey);
	rec->dest_qpn = cpu_to_le32(attr->dest_qp_num);
	rec->rq_psn = cpu_to_le32(attr->rq_psn);
	rec->sq_psn = cpu_to_le32(attr->sq_psn);
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

	rec->req_psn = cpu_to_le32(qp->req.psn);
	rec->req_wqe_index = cpu_to_le32(qp->req.wqe_index);
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

static void rxe_migr_dump_qp(struct ib_uobject *uobj,
			     struct rxe_migr_sink *sink)
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
	if (rec)
		rxe_migr_fill_qp(sink, uqp, qp, num_res, rec);

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

void rxe_migr_dump_other(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	struct rxe_migr_rec_other *rec;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_OTHER, uobj->id, sizeof(*rec));
	if (rec)
		rec->object_id = cpu_to_le32(uobj->uapi_object->id);
}

static void rxe_migr_dump_held(struct ib_uobject *uobj,
			       struct rxe_migr_sink *sink)
{
	switch (uobj->uapi_object->id) {
	case UVERBS_OBJECT_PD:
		rxe_migr_put(sink, RXE_MIGR_REC_PD, uobj->id,
			     sizeof(struct rxe_migr_rec_pd));
		break;
	case UVERBS_OBJECT_MR:
		if (to_rmr(uobj->object)->ibmr.type == IB_MR_TYPE_USER) {
			rxe_migr_dump_mr(uobj, sink);
			rxe_migr_dump_mr_owner(uobj, sink);
		} else {
			rxe_migr_dump_other(uobj, sink);
		}
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

	elem = rxe_migr_hold(rxe, uobj, sink->all->locked);
	if (!elem)
		return;
	rxe_migr_dump_held(uobj, sink);
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
}

/* The context, event files as created, objects as created, pending events */
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
