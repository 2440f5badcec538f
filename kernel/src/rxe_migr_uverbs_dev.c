// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The uverbs methods of a device, or of all: RXE_OBJECT_MIGR_DEVICE. */

#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include "rxe_migr_loc.h"

#include <rdma/uverbs_named_ioctl.h>

static void rxe_migr_qp_status(struct rxe_qp *qp, struct rxe_migr_status *st)
{
	union ib_gid sgid;

	lockdep_assert_held(&qp->state_lock);

	*st = (struct rxe_migr_status) {
		.qpn = qp_num(qp),
		.dest_qpn = qp->attr.dest_qp_num,
		.state = qp->migr_state,
		.flags = rxe_migr_peer_knows(qp) ?
			 RXE_MIGR_STATUS_PEER_KNOWS : 0,
		.epoch = qp->migr.epoch,
		.peer_epoch = qp->migr.peer_epoch,
		.deadline_ms = qp->migr.has_deadline ?
			jiffies_to_msecs(rxe_migr_left(qp->migr.deadline)) : 0,
	};
	rxe_migr_sgid(&qp->pri_av, &sgid);
	memcpy(st->sgid, sgid.raw, sizeof(st->sgid));
	memcpy(st->dgid, qp->pri_av.grh.dgid.raw, sizeof(st->dgid));
}

/* Fill entries with at most max of struct rxe_migr_status; returns how many there are. */
static unsigned int rxe_migr_status_fill(struct rxe_dev *rxe, void *entries,
					 unsigned int max)
{
	struct rxe_migr_status *st = entries;
	struct rxe_pool_elem *elem;
	unsigned long index;
	unsigned int n = 0;
	struct rxe_qp *qp;

	xa_for_each(&rxe->qp_pool.xa, index, elem) {
		qp = rxe_pool_get_index(&rxe->qp_pool, index);
		if (!qp)
			continue;
		spin_lock_irq(&qp->state_lock);
		if (qp->migr_state != RXE_MIGR_QP_RUNNING && n++ < max)
			rxe_migr_qp_status(qp, st++);
		spin_unlock_irq(&qp->state_lock);
		rxe_put(qp);
	}

	return n + rxe_migr_tomb_status(rxe, st, max - min(n, max));
}

static void rxe_migr_qp_call(struct rxe_qp *qp, struct rxe_migr_call *call)
{
	static const u32 answers[] = {
		[RXE_MIGR_CALL_NONE]	= RXE_MIGR_ANSWER_CAME,
		[RXE_MIGR_CALL_AWAITED]	= RXE_MIGR_ANSWER_AWAITED,
		[RXE_MIGR_CALL_CONFIRM]	= RXE_MIGR_ANSWER_CAME,
		[RXE_MIGR_CALL_MISSED]	= RXE_MIGR_ANSWER_MISSED,
	};

	lockdep_assert_held(&qp->state_lock);

	*call = (struct rxe_migr_call) {
		.qpn = qp_num(qp),
		.dest_qpn = qp->attr.dest_qp_num,
		.call_ns = qp->migr.call_ns,
		.answer = answers[qp->migr.call],
	};
	memcpy(call->dgid, qp->pri_av.grh.dgid.raw, sizeof(call->dgid));
}

/* As rxe_migr_status_fill(), with struct rxe_migr_call */
static unsigned int rxe_migr_calls_fill(struct rxe_dev *rxe, void *entries,
					unsigned int max)
{
	struct rxe_migr_call *call = entries;
	struct rxe_pool_elem *elem;
	unsigned long index;
	unsigned int n = 0;
	struct rxe_qp *qp;

	xa_for_each(&rxe->qp_pool.xa, index, elem) {
		qp = rxe_pool_get_index(&rxe->qp_pool, index);
		if (!qp)
			continue;
		spin_lock_irq(&qp->state_lock);
		if (qp->migr.call_ns &&
		    qp->migr_state != RXE_MIGR_QP_STOPPED && n++ < max)
			rxe_migr_qp_call(qp, call++);
		spin_unlock_irq(&qp->state_lock);
		rxe_put(qp);
	}

	return n;
}

#define RXE_MIGR_DEVICE_MAX 65536

/* Answer with all entries of a kind of the whole device. */
static int rxe_migr_device_answer(struct uverbs_attr_bundle *attrs, size_t size,
				  unsigned int (*fill)(struct rxe_dev *rxe,
						       void *entries,
						       unsigned int max))
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_buf in;
	void *entries = NULL;
	unsigned int max;
	u32 count;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.flags || in.reserved)
		return -EINVAL;

	max = in.addr ? min_t(u64, in.length / size, RXE_MIGR_DEVICE_MAX) : 0;
	if (max) {
		entries = kvcalloc(max, size, GFP_KERNEL_ACCOUNT);
		if (!entries)
			return -ENOMEM;
	}

	count = fill(to_rdev(uc->ibuc.device), entries, max);
	err = rxe_migr_answer_list(attrs, in.addr, entries, size, count, max);
	kvfree(entries);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_STATUS)(struct uverbs_attr_bundle *attrs)
{
	return rxe_migr_device_answer(attrs, sizeof(struct rxe_migr_status),
				      rxe_migr_status_fill);
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CALLS)(struct uverbs_attr_bundle *attrs)
{
	return rxe_migr_device_answer(attrs, sizeof(struct rxe_migr_call),
				      rxe_migr_calls_fill);
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_KEY)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_key in;
	u64 fingerprint;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (!err)
		err = rxe_migr_key_op(&in, &fingerprint);
	memzero_explicit(&in, sizeof(in));
	if (err || !uverbs_attr_is_valid(attrs, RXE_ATTR_MIGR_RESP))
		return err;

	return uverbs_copy_to(attrs, RXE_ATTR_MIGR_RESP, &fingerprint,
			      sizeof(fingerprint));
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_TAKEN)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_hint in;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);

	return err ?: rxe_migr_taken(to_rdev(uc->ibuc.device), &in);
}

DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_STATUS,
	RXE_MIGR_IN(struct rxe_migr_buf),
	RXE_MIGR_RESP(struct rxe_migr_dump, stop_ns));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_KEY,
	RXE_MIGR_IN(struct rxe_migr_key),
	UVERBS_ATTR_PTR_OUT(RXE_ATTR_MIGR_RESP, UVERBS_ATTR_TYPE(u64),
			    UA_OPTIONAL));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_TAKEN,
	RXE_MIGR_IN(struct rxe_migr_hint));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CALLS,
	RXE_MIGR_IN(struct rxe_migr_buf),
	RXE_MIGR_RESP(struct rxe_migr_dump, stop_ns));

DECLARE_UVERBS_GLOBAL_METHODS(RXE_OBJECT_MIGR_DEVICE,
	&UVERBS_METHOD(RXE_METHOD_MIGR_STATUS),
	&UVERBS_METHOD(RXE_METHOD_MIGR_KEY),
	&UVERBS_METHOD(RXE_METHOD_MIGR_TAKEN),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CALLS));

const struct uapi_definition rxe_migr_dev_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(RXE_OBJECT_MIGR_DEVICE),
	{}
};
