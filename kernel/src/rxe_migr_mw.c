// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Memory windows, and what they bind. At restore the verb takes the key from a hint. */

#include <rdma/uverbs_ioctl.h>
#include "rxe_migr_loc.h"

/* ------------------------------------------------------------------ dump -- */

/*
 * The QP that a window is bound to, or RXE_MIGR_NO_HANDLE. A QP that is destroyed
 * looks for its windows in their pool, and takes the lock of each: so the QP exists
 * as long as the window is in the pool and that lock is held.
 */
static u32 rxe_migr_mw_qp(struct rxe_mw *mw)
{
	struct xarray *mws = &mw->elem.pool->xa;
	u32 handle = RXE_MIGR_NO_HANDLE;
	unsigned long flags;

	lockdep_assert_held(&mw->lock);

	xa_lock_irqsave(mws, flags);
	if (mw->qp && xa_load(mws, mw->elem.index) == &mw->elem)
		handle = mw->qp->ibqp.uobject->uevent.uobject.id;
	xa_unlock_irqrestore(mws, flags);

	return handle;
}

void rxe_migr_dump_mw(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	struct rxe_mw *mw = to_rmw(uobj->object);
	struct rxe_migr_rec_mw *rec;
	struct ib_uobject *of_mr;
	u32 mr, qp;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_MW, uobj->id, sizeof(*rec));
	if (!rec)
		return;

	/*
	 * A window has a reference to its MR. The uobject may be missing: a program
	 * can guess the key of an MR that is just being registered.
	 */
	spin_lock_bh(&mw->lock);
	of_mr = mw->mr ? READ_ONCE(mw->mr->ibmr.uobject) : NULL;
	mr = of_mr ? of_mr->id : RXE_MIGR_NO_HANDLE;
	qp = rxe_migr_mw_qp(mw);
	rec->addr = cpu_to_le64(mw->addr);
	rec->length = cpu_to_le64(mw->length);
	rec->pd = cpu_to_le32(mw->ibmw.pd->uobject->id);
	rec->rkey = cpu_to_le32(mw->rkey);
	rec->mr = cpu_to_le32(mr);
	rec->qp = cpu_to_le32(qp);
	rec->access = cpu_to_le32(mw->access);
	rec->type = mw->ibmw.type;
	rec->state = mw->state;
	spin_unlock_bh(&mw->lock);
}

/* ---------------------------------------------------------------- refill -- */

/* Give a window its key. It is not finalized yet: no look-up finds it. */
void rxe_migr_mw_init(struct rxe_mw *mw, const struct rxe_migr_wanted *wanted)
{
	if (!wanted->set)
		return;

	mw->rkey = wanted->key;
	mw->ibmw.rkey = wanted->key;
}

/* May the window be bound like this? rxe_check_bind_mw() has the same rules. */
static bool rxe_migr_may_bind(struct rxe_mw *mw, struct rxe_mr *mr,
			      const struct rxe_migr_rec_mw *rec)
{
	u64 length = le64_to_cpu(rec->length), start;
	u32 access = le32_to_cpu(rec->access);

	if (mr_pd(mr) != rxe_mw_pd(mw) || mr->ibmr.type != IB_MR_TYPE_USER ||
	    mr->state != RXE_MR_STATE_VALID ||
	    !(mr->access & IB_ACCESS_MW_BIND) || (mr->access & IB_ZERO_BASED))
		return false;

	if ((access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC)) &&
	    !(mr->access & IB_ACCESS_LOCAL_WRITE))
		return false;

	if (!length || length > mr->ibmr.length)
		return false;
	if (access & IB_ZERO_BASED)
		return true;

	start = le64_to_cpu(rec->addr) - mr->ibmr.iova;
	return start <= mr->ibmr.length - length;
}

static bool rxe_migr_mw_valid(struct rxe_mw *mw, struct rxe_mr *mr,
			      struct rxe_qp *qp,
			      const struct rxe_migr_rec_mw *rec)
{
	bool has_mr = le32_to_cpu(rec->mr) != RXE_MIGR_NO_HANDLE;
	bool has_qp = le32_to_cpu(rec->qp) != RXE_MIGR_NO_HANDLE;
	u32 access = le32_to_cpu(rec->access);

	if (rec->type != mw->ibmw.type || has_mr != !!mr || has_qp != !!qp ||
	    le32_to_cpu(rec->rkey) >> 8 != mw->elem.index ||
	    access & ~RXE_ACCESS_SUPPORTED_MW)
		return false;

	if (mr ? !rxe_migr_may_bind(mw, mr, rec) : !!rec->length)
		return false;

	if (mw->ibmw.type == IB_MW_TYPE_1)
		return rec->state == RXE_MW_STATE_VALID && !qp &&
		       !(access & IB_ZERO_BASED);

	if (rec->state == RXE_MW_STATE_FREE)
		return !mr && !qp;

	return rec->state == RXE_MW_STATE_VALID && mr && qp &&
	       qp->pd == rxe_mw_pd(mw);
}

/* The MR and the QP that the record names must exist already. */
int rxe_migr_refill_mw(struct ib_uverbs_file *ufile,
		       const struct rxe_migr_rec *hdr, size_t length)
{
	struct ib_uobject *uobj = rxe_migr_uobj(ufile, le32_to_cpu(hdr->handle),
						UVERBS_OBJECT_MW);
	const struct rxe_migr_rec_mw *rec = (const void *)hdr;
	struct ib_uobject *mr_uobj, *qp_uobj;
	struct rxe_mr *mr, *old;
	struct rxe_mw *mw;
	struct rxe_qp *qp;

	if (length < sizeof(*rec) || !uobj)
		return -EINVAL;

	mr_uobj = rxe_migr_uobj(ufile, le32_to_cpu(rec->mr), UVERBS_OBJECT_MR);
	qp_uobj = rxe_migr_uobj(ufile, le32_to_cpu(rec->qp), UVERBS_OBJECT_QP);
	mr = mr_uobj ? to_rmr(mr_uobj->object) : NULL;
	qp = qp_uobj ? to_rqp(qp_uobj->object) : NULL;
	mw = to_rmw(uobj->object);
	if (!rxe_migr_mw_valid(mw, mr, qp, rec))
		return -EINVAL;

	if (mr) {
		rxe_get(mr);
		atomic_inc(&mr->num_mw);
	}

	spin_lock_bh(&mw->lock);
	old = mw->mr;
	mw->addr = le64_to_cpu(rec->addr);
	mw->length = le64_to_cpu(rec->length);
	mw->rkey = le32_to_cpu(rec->rkey);
	mw->mr = mr;
	mw->qp = qp;
	mw->access = le32_to_cpu(rec->access);
	mw->state = rec->state;
	spin_unlock_bh(&mw->lock);

	if (old) {
		atomic_dec(&old->num_mw);
		rxe_put(old);
	}

	return 0;
}
