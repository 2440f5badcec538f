// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The uverbs methods of a context: RXE_OBJECT_MIGR of rdma/rxe_migrate.h, which
 * says in which order they are called.
 */

#include <linux/file.h>
#include <linux/sched/task.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include "rxe_migr_loc.h"

#include <rdma/uverbs_named_ioctl.h>

/* Does the QP still wait, since its RESUME is unanswered? */
static bool rxe_migr_is_resuming(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	return qp->migr.call == RXE_MIGR_CALL_AWAITED &&
	       qp_state(qp) != IB_QPS_ERR &&
	       (qp->migr_state == RXE_MIGR_QP_RESUMING ||
		qp->migr_state == RXE_MIGR_QP_PAUSED);
}

/*
 * Did the QP fail before its RESUME was answered? In the error state it takes no
 * answer, but its work notes only later that the answer is missed. A QP that gives up
 * notes this before it is in the error state.
 */
static bool rxe_migr_has_missed(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	return (qp->migr.call == RXE_MIGR_CALL_AWAITED ||
		qp->migr.call == RXE_MIGR_CALL_MISSED) &&
	       (qp_state(qp) == IB_QPS_ERR || qp->migr.gave_up);
}

/* Add one QP to the answer, and send what the caller asks for. */
static void rxe_migr_query_qp(const struct rxe_ucontext *uc, struct rxe_qp *qp,
			      bool stopped, u32 flags,
			      struct rxe_migr_query *resp)
{
	bool unknown;

	spin_lock_irq(&qp->state_lock);
	if (qp->migr_state == RXE_MIGR_QP_RUNNING &&
	    qp->migr.speech != RXE_MIGR_SPEECH_NEVER &&
	    (flags & RXE_MIGR_QUERY_ASK_ANEW))
		rxe_migr_set_speech(qp, RXE_MIGR_SPEECH_ASKED);
	unknown = rxe_migr_peer_is_unknown(qp);
	resp->num_unknown += unknown;
	resp->num_qp++;
	resp->num_resuming += rxe_migr_is_resuming(qp);
	resp->num_paused += rxe_migr_is_resuming(qp) &&
			    qp->migr_state == RXE_MIGR_QP_PAUSED;
	resp->num_failed += rxe_migr_has_missed(qp);
	if (stopped)
		resp->wait_ns = min(resp->wait_ns,
				    rxe_migr_peer_waits(qp, uc->migr.stop_ns));
	if (stopped && rxe_migr_peer_is_silent(qp)) {
		resp->num_silent++;
		resp->silent_qpn = qp_num(qp);
	}
	spin_unlock_irq(&qp->state_lock);

	if (unknown && (flags & (RXE_MIGR_QUERY_ASK | RXE_MIGR_QUERY_ASK_ANEW)))
		rxe_migr_send(qp, RXE_MIGR_OPCODE_RESUME);
	if (stopped && (flags & RXE_MIGR_QUERY_RENEW))
		rxe_migr_renew_stop(qp);
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_query resp = {};
	unsigned long index;
	struct rxe_qp *qp;
	bool stopped;
	u32 flags;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_get_flags32(&flags, attrs, RXE_ATTR_MIGR_IN,
				 RXE_MIGR_QUERY_ASK | RXE_MIGR_QUERY_RENEW |
				 RXE_MIGR_QUERY_ASK_ANEW);
	if (err)
		return err;

	resp.wait_ns = U64_MAX;
	stopped = READ_ONCE(uc->migr.state) == RXE_MIGR_CTX_STOPPED;
	rxe_migr_for_each_qp(qp, index, uc) {
		rxe_migr_query_qp(uc, qp, stopped, flags, &resp);
		cond_resched();
	}
	spin_lock(&uc->migr.lock);
	if (uc->migr.state == RXE_MIGR_CTX_RESUMING && !resp.num_resuming)
		WRITE_ONCE(uc->migr.state, RXE_MIGR_CTX_RUNNING);
	spin_unlock(&uc->migr.lock);

	resp.abi_version = RXE_MIGR_ABI_VERSION;
	resp.state = READ_ONCE(uc->migr.state);
	resp.context = uc->elem.index;
	resp.stop_ns = READ_ONCE(uc->migr.stop_ns);
	resp.resume_ns = READ_ONCE(uc->migr.resume_ns);
	resp.now_ns = ktime_get_ns();

	return uverbs_copy_to_struct_or_zero(attrs, RXE_ATTR_MIGR_RESP, &resp,
					     sizeof(resp));
}

/*
 * A program that runs must not notice that its context is looked at. When it creates
 * an object, ib_core only tries to get hw_destroy_rwsem, and the verb fails with EIO
 * if somebody holds it for writing or waits for that. So it is held for writing only
 * while the program is frozen. The program runs while the size of its dump is asked
 * for.
 */
static void rxe_migr_lock(struct ib_uverbs_file *ufile, bool write)
{
	if (write)
		down_write(&ufile->hw_destroy_rwsem);
	else
		down_read(&ufile->hw_destroy_rwsem);
}

static void rxe_migr_unlock(struct ib_uverbs_file *ufile, bool write)
{
	if (write)
		up_write(&ufile->hw_destroy_rwsem);
	else
		up_read(&ufile->hw_destroy_rwsem);
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_DUMP)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct ib_uverbs_file *ufile = attrs->ufile;
	struct rxe_migr_uobjs all = {};
	struct rxe_migr_sink sink = { .all = &all };
	struct rxe_migr_dump resp = {};
	bool stop, write, did_stop = false;
	struct rxe_migr_buf in;
	int err, err2;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.reserved || in.flags & ~RXE_MIGR_DUMP_STOP)
		return -EINVAL;

	sink.size = in.addr ? min_t(u64, in.length, INT_MAX) : 0;

	stop = in.flags & RXE_MIGR_DUMP_STOP;
	if (stop && !rxe_migr_speaks())
		return -ENOKEY;
	write = stop && sink.size;	/* without a buffer nothing is stopped */
	rxe_migr_lock(ufile, write);
	all.locked = write;
	err = rxe_migr_get_objects(ufile, &all);
	if (!err)
		err = rxe_migr_dump_ctx(ufile, uc, stop, &sink, &did_stop);
	resp.length = sink.length;
	resp.count = sink.count;
	resp.stop_ns = uc->migr.stop_ns;
	if (!err && copy_to_user(u64_to_user_ptr(in.addr), sink.buf,
				 sink.length))
		err = -EFAULT;
	if (!err || err == -ENOSPC) {
		err2 = uverbs_copy_to_struct_or_zero(attrs, RXE_ATTR_MIGR_RESP,
						     &resp, sizeof(resp));
		if (!err)
			err = err2;
	}
	if (err && did_stop)
		rxe_migr_unstop_ctx(uc, 0);
	rxe_migr_put_objects(&all);
	rxe_migr_unlock(ufile, write);
	kvfree(sink.buf);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_ABORT)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	u64 since = 0;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&since, attrs, RXE_ATTR_MIGR_IN);
	if (err && err != -ENOENT)
		return err;

	/* for reading: if a checkpoint broke off, the program may run already */
	rxe_migr_lock(attrs->ufile, false);
	err = rxe_migr_unstop_ctx(uc, since);
	rxe_migr_unlock(attrs->ufile, false);

	return err;
}

/* Has the context no objects but event files, which come with it? */
static bool rxe_migr_is_fresh(struct ib_uverbs_file *ufile)
{
	struct ib_uobject *uobj;
	u32 type;

	list_for_each_entry(uobj, &ufile->uobjects, list)
		if (!rxe_migr_is_event_file(uobj, &type))
			return false;

	return true;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_BEGIN)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_begin in;
	struct file *file;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (!in.session || in.flags)
		return -EINVAL;
	/* RESUME would be too late: the source's task may have ended by then */
	if (!rxe_migr_speaks())
		return -ENOKEY;

	file = fget(in.fd);
	if (!file)
		return -EBADF;
	/* it must be the file of this ioctl: its private_data is the ufile */
	if (file->private_data != attrs->ufile) {
		fput(file);
		return -EBADF;
	}

	down_write(&attrs->ufile->hw_destroy_rwsem);
	spin_lock(&uc->migr.lock);
	if (uc->migr.state != RXE_MIGR_CTX_RUNNING ||
	    !rxe_migr_is_fresh(attrs->ufile)) {
		err = -EBUSY;
	} else {
		uc->migr.session = in.session;
		uc->migr.file = file;
		WRITE_ONCE(uc->migr.state, RXE_MIGR_CTX_RESTORING);
	}
	spin_unlock(&uc->migr.lock);
	up_write(&attrs->ufile->hw_destroy_rwsem);
	fput(file);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_HINT)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_hint in;
	struct pid *pid = NULL;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.pid < 0 || (in.pid && in.type != RXE_MIGR_HINT_MR))
		return -EINVAL;

	if (in.pid) {
		pid = find_get_pid(in.pid);
		if (!pid)
			return -ESRCH;
	}

	err = rxe_migr_set_hint(uc, &in, pid);
	if (err)
		put_pid(pid);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_REFILL)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_buf in;
	void *buf;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.flags || in.reserved || !in.length || in.length > INT_MAX)
		return -EINVAL;

	buf = kvmalloc(in.length, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!buf)
		return -ENOMEM;
	if (copy_from_user(buf, u64_to_user_ptr(in.addr), in.length)) {
		kvfree(buf);
		return -EFAULT;
	}

	down_write(&attrs->ufile->hw_destroy_rwsem);
	err = uc->migr.state == RXE_MIGR_CTX_RESTORING ?
		rxe_migr_refill_ufile(attrs->ufile, buf, in.length) : -EINVAL;
	up_write(&attrs->ufile->hw_destroy_rwsem);
	kvfree(buf);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_RESUME)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_resume in;
	struct pid *pid;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&in, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;
	if (in.reserved || in.pid < 0)
		return -EINVAL;

	pid = in.pid ? find_get_pid(in.pid) : get_pid(task_pid(current));
	if (!pid)
		return -ESRCH;

	down_write(&attrs->ufile->hw_destroy_rwsem);
	err = uc->migr.state == RXE_MIGR_CTX_RESTORING ?
		rxe_migr_adopt(uc, pid) : -EINVAL;
	if (!err) {
		rxe_migr_drop_hint(uc);
		rxe_migr_set_ctx_state(uc, RXE_MIGR_CTX_RESUMING);
		rxe_migr_drop_rings(uc);
		rxe_migr_go_ctx(uc);
	}
	up_write(&attrs->ufile->hw_destroy_rwsem);
	put_pid(pid);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_EVENT_FD)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_event_fd resp = {};
	struct ib_uobject *uobj;
	struct file *file;
	s32 fd;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_copy_from(&fd, attrs, RXE_ATTR_MIGR_IN);
	if (err)
		return err;

	file = fget(fd);
	if (!file)
		return -EBADF;

	err = -ENOENT;
	spin_lock_irq(&attrs->ufile->uobjects_lock);
	list_for_each_entry_reverse(uobj, &attrs->ufile->uobjects, list) {
		if (!rxe_migr_is_event_file(uobj, &resp.type))
			continue;
		if (file->private_data == uobj) {
			err = 0;
			break;
		}
		resp.handle++;
	}
	spin_unlock_irq(&attrs->ufile->uobjects_lock);
	fput(file);
	if (err)
		return err;

	return uverbs_copy_to_struct_or_zero(attrs, RXE_ATTR_MIGR_RESP, &resp,
					     sizeof(resp));
}

DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_QUERY,
	UVERBS_ATTR_FLAGS_IN(RXE_ATTR_MIGR_IN, enum rxe_migr_query_flags,
			     UA_OPTIONAL),
	RXE_MIGR_RESP(struct rxe_migr_query, now_ns));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_DUMP,
	RXE_MIGR_IN(struct rxe_migr_buf),
	RXE_MIGR_RESP(struct rxe_migr_dump, stop_ns));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_ABORT,
	UVERBS_ATTR_PTR_IN(RXE_ATTR_MIGR_IN, UVERBS_ATTR_TYPE(u64), UA_OPTIONAL));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_BEGIN,
	RXE_MIGR_IN(struct rxe_migr_begin));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_HINT,
	RXE_MIGR_IN(struct rxe_migr_hint));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_REFILL,
	RXE_MIGR_IN(struct rxe_migr_buf));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_RESUME,
	RXE_MIGR_IN(struct rxe_migr_resume));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_EVENT_FD,
	RXE_MIGR_IN(s32),
	RXE_MIGR_RESP(struct rxe_migr_event_fd, handle));

DECLARE_UVERBS_GLOBAL_METHODS(RXE_OBJECT_MIGR,
	&UVERBS_METHOD(RXE_METHOD_MIGR_QUERY),
	&UVERBS_METHOD(RXE_METHOD_MIGR_DUMP),
	&UVERBS_METHOD(RXE_METHOD_MIGR_ABORT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_BEGIN),
	&UVERBS_METHOD(RXE_METHOD_MIGR_HINT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_REFILL),
	&UVERBS_METHOD(RXE_METHOD_MIGR_RESUME),
	&UVERBS_METHOD(RXE_METHOD_MIGR_EVENT_FD));

const struct uapi_definition rxe_migr_uverbs_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(RXE_OBJECT_MIGR),
	UAPI_DEF_CHAIN(rxe_migr_dev_defs),
	UAPI_DEF_CHAIN(rxe_migr_cm_defs),
	{}
};
