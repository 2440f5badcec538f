// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The uverbs methods of a file of rdma_cm: RXE_OBJECT_MIGR_CM. */

#include <linux/file.h>
#include <linux/sched/task.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include "rxe_migr_loc.h"

#include <rdma/uverbs_named_ioctl.h>

#define RXE_MIGR_CM_MAX 65536

/* Answer with what a file of rdma_cm has: ids or events. */
static int rxe_migr_cm_answer(struct uverbs_attr_bundle *attrs, size_t size,
			      u32 known_flags,
			      int (*list)(struct file *file, void *entries,
					  unsigned int max, unsigned int *count,
					  u32 flags))
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_cm_list in;
	unsigned int count, max;
	void *entries = NULL;
	struct file *file;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.flags & ~known_flags)
		return -EINVAL;

	max = in.addr ? min_t(u64, in.length / size, RXE_MIGR_CM_MAX) : 0;
	if (max) {
		entries = kvcalloc(max, size, GFP_KERNEL_ACCOUNT);
		if (!entries)
			return -ENOMEM;
	}

	file = fget(in.fd);
	err = file ? list(file, entries, max, &count, in.flags) : -EBADF;
	if (file)
		fput(file);
	if (!err)
		err = count > RXE_MIGR_CM_MAX ? -E2BIG :
			rxe_migr_answer_list(attrs, in.addr, entries, size,
					     count, max);
	kvfree(entries);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CM_LIST)(struct uverbs_attr_bundle *attrs)
{
	return rxe_migr_cm_answer(attrs, sizeof(struct rxe_migr_cm_id),
				  RXE_MIGR_CM_LIST_STOP, rxe_migr_cm_ids);
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CM_EVENTS)(struct uverbs_attr_bundle *attrs)
{
	return rxe_migr_cm_answer(attrs, sizeof(struct rxe_migr_cm_event),
				  0, rxe_migr_cm_events);
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CM_ADOPT)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_cm_adopt in;
	struct file *file;
	struct pid *pid;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.pid < 0)
		return -EINVAL;

	file = fget(in.fd);
	if (!file)
		return -EBADF;
	pid = in.pid ? find_get_pid(in.pid) : get_pid(task_pid(current));
	if (!pid)
		err = -ESRCH;
	else if (!rxe_migr_is_cm(file))
		err = -EINVAL;
	else
		err = rxe_migr_adopt_cm(file, pid);
	put_pid(pid);
	fput(file);

	return err;
}

/* A QP of the context, with a reference, or NULL */
static struct rxe_qp *rxe_migr_find_qp(struct rxe_ucontext *uc, u32 qpn)
{
	struct rxe_qp *qp;

	qp = rxe_pool_get_index(&to_rdev(uc->ibuc.device)->qp_pool, qpn);
	if (qp && rxe_migr_qp_uctx(qp) != uc) {
		rxe_put(qp);
		return NULL;
	}

	return qp;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CM_CONNECT)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_cm_connect in;
	struct rxe_qp *qp;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.state != RXE_MIGR_CM_CONNECTED && in.state != RXE_MIGR_CM_LEFT)
		return -EINVAL;

	/* This keeps objects from being destroyed, and the context from being resumed. */
	down_write(&attrs->ufile->hw_destroy_rwsem);
	qp = rxe_migr_find_qp(uc, in.qp_num);
	if (uc->migr.state != RXE_MIGR_CTX_RESTORING)
		err = -EINVAL;
	else if (!qp || !(rxe_migr_connected(qp) || rxe_migr_failed(qp)))
		err = -ENOTCONN;
	else
		err = rxe_migr_expect_conn(qp, &in);
	if (qp)
		rxe_put(qp);
	up_write(&attrs->ufile->hw_destroy_rwsem);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CM_REFILL)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_cm_refill in;
	struct file *file;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.reserved)
		return -EINVAL;

	file = fget(in.fd);
	if (!file)
		return -EBADF;
	err = rxe_migr_cm_refill(file, &in);
	fput(file);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CM_REPORT)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_cm_report in;
	struct file *file;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.reserved)
		return -EINVAL;

	file = fget(in.fd);
	if (!file)
		return -EBADF;
	err = rxe_migr_cm_report(file, &in.event);
	fput(file);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_CM_DEVICE)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_cm_device in, out = {};
	struct file *file;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.reserved || in.flags & ~RXE_MIGR_CM_DEVICE_SET)
		return -EINVAL;

	file = fget(in.fd);
	if (!file)
		return -EBADF;
	out.fd = in.fd;
	err = rxe_migr_is_cm(file) ?
		rxe_migr_cm_device(file, to_rdev(uc->ibuc.device), &in, &out) :
		-EINVAL;
	fput(file);
	if (err || !uverbs_attr_is_valid(attrs, RXE_ATTR_MIGR_RESP))
		return err;

	return uverbs_copy_to(attrs, RXE_ATTR_MIGR_RESP, &out, sizeof(out));
}

DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CM_LIST,
	RXE_MIGR_IN(struct rxe_migr_cm_list),
	RXE_MIGR_RESP(struct rxe_migr_dump, stop_ns));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CM_ADOPT,
	RXE_MIGR_IN(struct rxe_migr_cm_adopt));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CM_CONNECT,
	RXE_MIGR_IN(struct rxe_migr_cm_connect));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CM_REFILL,
	RXE_MIGR_IN(struct rxe_migr_cm_refill));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CM_EVENTS,
	RXE_MIGR_IN(struct rxe_migr_cm_list),
	RXE_MIGR_RESP(struct rxe_migr_dump, stop_ns));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CM_REPORT,
	RXE_MIGR_IN(struct rxe_migr_cm_report));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_CM_DEVICE,
	RXE_MIGR_IN(struct rxe_migr_cm_device),
	UVERBS_ATTR_PTR_OUT(RXE_ATTR_MIGR_RESP,
			    UVERBS_ATTR_TYPE(struct rxe_migr_cm_device),
			    UA_OPTIONAL));

DECLARE_UVERBS_GLOBAL_METHODS(RXE_OBJECT_MIGR_CM,
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_LIST),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_ADOPT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_CONNECT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_REFILL),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_DEVICE),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_EVENTS),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_REPORT));

const struct uapi_definition rxe_migr_cm_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(RXE_OBJECT_MIGR_CM),
	{}
};
