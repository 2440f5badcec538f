// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Identities of objects: where a new device begins to count, and which numbers and
 * keys restored objects take.
 */

#include <linux/random.h>
#include <rdma/uverbs_ioctl.h>
#include "rxe_migr_loc.h"

static unsigned int first_number;
module_param(first_number, uint, 0444);
MODULE_PARM_DESC(first_number,
	"for tests: where a device begins with its numbers, or at the first it has (0: at random)");

/*
 * The first number that a new device gives to an object of this kind; the next ones
 * follow in turn. It is random, so that processes of several hosts, which move to
 * one, seldom have the same numbers.
 */
u32 rxe_migr_first_index(const struct rxe_pool *pool)
{
	switch (pool->type) {
	case RXE_TYPE_AH:
	case RXE_TYPE_SRQ:
	case RXE_TYPE_QP:
	case RXE_TYPE_MR:
	case RXE_TYPE_MW:
		return first_number ?
			clamp(first_number, pool->limit.min, pool->limit.max) :
			get_random_u32_inclusive(pool->limit.min,
						 pool->limit.max);
	default:
		return pool->limit.min;
	}
}

/* Forget the hint of a context. The caller holds uc->migr.lock. */
static struct pid *__rxe_migr_drop_hint(struct rxe_ucontext *uc)
{
	struct pid *pid = uc->migr.hint_pid;

	lockdep_assert_held(&uc->migr.lock);

	uc->migr.has_hint = false;
	uc->migr.hint_pid = NULL;

	return pid;
}

void rxe_migr_drop_hint(struct rxe_ucontext *uc)
{
	struct pid *pid;

	spin_lock(&uc->migr.lock);
	pid = __rxe_migr_drop_hint(uc);
	spin_unlock(&uc->migr.lock);

	put_pid(pid);
}

/* The pool that a hint is about, and the index in it; NULL if no object can have it */
static struct rxe_pool *rxe_migr_pool(struct rxe_dev *rxe,
				      const struct rxe_migr_hint *hint,
				      u32 *index)
{
	struct rxe_pool *pool;

	*index = hint->index;
	switch (hint->type) {
	case RXE_MIGR_HINT_QP:
		pool = &rxe->qp_pool;
		break;
	case RXE_MIGR_HINT_SRQ:
		pool = &rxe->srq_pool;
		break;
	case RXE_MIGR_HINT_AH:
		pool = &rxe->ah_pool;
		break;
	case RXE_MIGR_HINT_MR:
		pool = &rxe->mr_pool;
		*index = hint->key >> 8;
		break;
	case RXE_MIGR_HINT_MW:
		pool = &rxe->mw_pool;
		*index = hint->key >> 8;
		break;
	default:
		return NULL;
	}

	return *index < pool->limit.min || *index > pool->limit.max ? NULL :
								      pool;
}

/* On success the context owns the reference to pid, which may be NULL. */
int rxe_migr_set_hint(struct rxe_ucontext *uc, const struct rxe_migr_hint *in,
		      struct pid *pid)
{
	struct pid *old;
	u32 index;

	if (!rxe_migr_pool(to_rdev(uc->ibuc.device), in, &index))
		return -EINVAL;

	spin_lock(&uc->migr.lock);
	if (uc->migr.state != RXE_MIGR_CTX_RESTORING) {
		spin_unlock(&uc->migr.lock);
		return -EINVAL;
	}
	old = __rxe_migr_drop_hint(uc);
	uc->migr.hint = *in;
	uc->migr.hint_pid = pid;
	uc->migr.has_hint = true;
	spin_unlock(&uc->migr.lock);
	put_pid(old);

	return 0;
}

/*
 * Called before an object is added to its pool: spend the hint of its context. A
 * hint for another type is dropped, since its own command did not follow it. The
 * index goes into elem, the rest into *wanted, until rxe_migr_unwant().
 */
void rxe_migr_want_index(struct rxe_pool_elem *elem, u32 type,
			 struct ib_udata *udata, struct rxe_migr_wanted *wanted)
{
	struct rxe_ucontext *uc = rdma_udata_to_drv_context(udata,
						struct rxe_ucontext, ibuc);
	struct rxe_migr_hint hint;
	struct pid *pid;
	bool found;

	if (wanted)
		*wanted = (struct rxe_migr_wanted){};
	if (!uc)
		return;

	spin_lock(&uc->migr.lock);
	found = uc->migr.has_hint && uc->migr.hint.type == type &&
		uc->migr.state == RXE_MIGR_CTX_RESTORING;
	hint = uc->migr.hint;
	pid = __rxe_migr_drop_hint(uc);
	spin_unlock(&uc->migr.lock);

	if (found)
		rxe_migr_pool(to_rdev(uc->ibuc.device), &hint, &elem->index);
	if (found && wanted)
		*wanted = (struct rxe_migr_wanted){ true, hint.key, pid };
	else
		put_pid(pid);
}

/*
 * The same for a QP. The GSI QP of every device has the first number. No other QP has
 * it, so no QP that moves here finds its number taken by a GSI QP.
 */
void rxe_migr_want_qpn(struct rxe_qp *qp, const struct ib_qp_init_attr *init,
		       struct ib_udata *udata)
{
	if (init->qp_type == IB_QPT_GSI)
		qp->elem.index = RXE_MIN_QP_INDEX;
	else
		rxe_migr_want_index(&qp->elem, RXE_MIGR_HINT_QP, udata, NULL);
}

void rxe_migr_unwant(struct rxe_migr_wanted *wanted)
{
	put_pid(wanted->pid);
	wanted->pid = NULL;
}

/*
 * Give elem the index that it wants, in place of xa_alloc_cyclic(). It has no other
 * index even for a moment, since another restored object may want that one. Until
 * __rxe_finalize() the entry is reserved, and look-ups do not find it.
 */
int rxe_migr_claim(struct rxe_pool *pool, struct rxe_pool_elem *elem,
		   gfp_t gfp)
{
	int err = xa_insert(&pool->xa, elem->index, NULL, gfp);

	return err == -EBUSY ? -EEXIST : err;
}

/* xa_load() does not see reserved entries, and SRQs are never more than reserved. */
static bool rxe_migr_is_reserved(struct xarray *xa, u32 index)
{
	XA_STATE(xas, xa, index);
	void *entry;

	rcu_read_lock();
	do {
		xas_reset(&xas);
		entry = xas_load(&xas);
	} while (xa_is_retry(entry));
	rcu_read_unlock();

	return entry;
}

/* Would rxe_migr_claim() find this identity taken? */
int rxe_migr_taken(struct rxe_dev *rxe, const struct rxe_migr_hint *in)
{
	struct rxe_pool *pool;
	u32 index;

	pool = rxe_migr_pool(rxe, in, &index);
	if (in->pid || !pool)
		return -EINVAL;

	return rxe_migr_is_reserved(&pool->xa, index) ? -EEXIST : 0;
}
