// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The uverbs methods of rdma/rxe_migrate.h. */

#include <linux/file.h>
#include <linux/sched/task.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include "rxe_migr_loc.h"

#include <rdma/uverbs_named_ioctl.h>

/* The context of a caller that may checkpoint and restore. */
static struct rxe_ucontext *rxe_migr_caller(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibuc;

	if (!checkpoint_restore_ns_capable(&init_user_ns))
		return ERR_PTR(-EPERM);

	ibuc = ib_uverbs_get_ucontext_file(attrs->ufile);
	if (IS_ERR(ibuc))
		return ERR_CAST(ibuc);

	return to_ruc(ibuc);
}

static void rxe_migr_set_ctx_state(struct rxe_ucontext *uc, u32 state)
{
	spin_lock(&uc->migr.lock);
	WRITE_ONCE(uc->migr.state, state);
	spin_unlock(&uc->migr.lock);
}

/* Does the application wait for the peer's answer? */
static bool rxe_migr_is_resuming(struct rxe_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);

	return qp->migr.resume_owed && qp_state(qp) != IB_QPS_ERR &&
	       (qp->migr_state == RXE_MIGR_QP_RESUMING ||
		qp->migr_state == RXE_MIGR_QP_PAUSED);
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	struct rxe_migr_query resp = {};
	unsigned long index;
	struct rxe_qp *qp;
	bool unknown, stopped;
	u32 flags;
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	err = uverbs_get_flags32(&flags, attrs, RXE_ATTR_MIGR_IN,
				 RXE_MIGR_QUERY_ASK | RXE_MIGR_QUERY_RENEW);
	if (err)
		return err;

	resp.wait_ns = U64_MAX;
	stopped = READ_ONCE(uc->migr.state) == RXE_MIGR_CTX_STOPPED;
	rxe_migr_for_each_qp(qp, index, uc) {
		spin_lock_irq(&qp->state_lock);
		unknown = rxe_migr_peer_is_unknown(qp);
		resp.num_unknown += unknown;
		resp.num_qp++;
		resp.num_resuming += rxe_migr_is_resuming(qp);
		resp.num_paused += rxe_migr_is_resuming(qp) &&
			qp->migr_state == RXE_MIGR_QP_PAUSED;
		resp.num_failed += qp->migr.unheard &&
				   qp_state(qp) == IB_QPS_ERR;
		if (stopped)
			resp.wait_ns = min(resp.wait_ns,
				rxe_migr_peer_waits(qp, uc->migr.stop_ns));
		spin_unlock_irq(&qp->state_lock);
		if (unknown && (flags & RXE_MIGR_QUERY_ASK))
			rxe_migr_send(qp, RXE_MIGR_OPCODE_RESUME);
		if (stopped && (flags & RXE_MIGR_QUERY_RENEW))
			rxe_migr_renew_stop(qp);
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
 * Let every stopped QP of the context go on. All peers are called before the
 * first QP is busy with what has waited, lest the last one waits for that.
 */
static void rxe_migr_go(struct rxe_ucontext *uc)
{
	unsigned long index;
	struct rxe_qp *qp;

	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_go_qp(qp);
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_release_qp(qp);
}

/*
 * How long to wait for what is on its way to UC QPs: time for a STOP that comes
 * through at the seventh try. A peer with another driver never answers.
 */
#define RXE_MIGR_ARRIVAL HZ

/*
 * All QPs are marked before the first is waited for, so that the whole context
 * stops at one time. The peers are told only once the dump is complete, but
 * those of UC, which must come to rest first.
 */
static void rxe_migr_stop(struct rxe_ucontext *uc)
{
	unsigned long index, end;
	struct rxe_qp *qp;

	WRITE_ONCE(uc->migr.stop_ns, ktime_get_ns());
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_stop_qp(qp);
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_hush_qp(qp);
	end = jiffies + RXE_MIGR_ARRIVAL;
	rxe_migr_for_each_qp(qp, index, uc)
		while (!rxe_migr_arrived(qp) && time_before(jiffies, end))
			usleep_range(200, 400);
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_drain_qp(qp);
}

/* Events come in while the size is asked for; leave room for some. */
#define RXE_MIGR_SLACK (16 * sizeof(struct rxe_migr_rec_event))

static int rxe_migr_dump_locked(struct ib_uverbs_file *ufile,
				struct rxe_ucontext *uc, bool stop,
				struct rxe_migr_sink *sink, bool *did_stop)
{
	bool stopped = uc->migr.state == RXE_MIGR_CTX_STOPPED;
	struct rxe_migr_sink count = { .all = sink->all };
	unsigned long index;
	struct rxe_qp *qp;
	int err;

	if (stop && uc->migr.state == RXE_MIGR_CTX_RESTORING)
		return -EBUSY;

	rxe_migr_dump_ufile(ufile, uc, &count);
	sink->length = count.length + RXE_MIGR_SLACK;
	sink->count = count.count;
	if (sink->length > sink->size)
		return -ENOSPC;

	/* what is not needed is not allocated; an SRQ may grow meanwhile */
	sink->size = min(sink->size, 2 * count.length + SZ_64K);
	sink->buf = kvmalloc(sink->size, GFP_KERNEL_ACCOUNT);
	if (!sink->buf)
		return -ENOMEM;

	/* it may have been cleared while the lock was waited for */
	if (stop && !stopped && !rxe_migr_speaks())
		return -ENOKEY;

	/* modify verbs that come now find the context stopped */
	if (stop && !stopped) {
		rxe_migr_set_ctx_state(uc, RXE_MIGR_CTX_STOPPED);
		rxe_migr_stop(uc);
		*did_stop = true;
	}

	sink->length = 0;
	sink->count = 0;
	err = rxe_migr_dump_ufile(ufile, uc, sink);

	if (*did_stop && !err)
		rxe_migr_for_each_qp(qp, index, uc)
			if (qp_type(qp) != IB_QPT_UC)
				rxe_migr_announce_stop(qp);

	return err;
}

/* Undo a stop, if there was one: peers may have heard of it. */
static int rxe_migr_unstop(struct rxe_ucontext *uc)
{
	bool stopped;

	spin_lock(&uc->migr.lock);
	stopped = uc->migr.state == RXE_MIGR_CTX_STOPPED;
	if (stopped)
		WRITE_ONCE(uc->migr.state, RXE_MIGR_CTX_RESUMING);
	spin_unlock(&uc->migr.lock);
	if (!stopped)
		return -EINVAL;

	rxe_migr_go(uc);

	return 0;
}

/*
 * A running program never waits for who looks at its context: ib_core only
 * tries to get hw_destroy_rwsem when an object is made, and says EIO if it is
 * taken for writing, or is going to be. A program whose context is stopped is
 * frozen, but it runs while the size of its dump is asked for.
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
	write = stop && sink.size;	/* nothing is stopped without room for it */
	rxe_migr_lock(ufile, write);
	all.locked = write;
	err = rxe_migr_get_objects(ufile, &all);
	if (!err)
		err = rxe_migr_dump_locked(ufile, uc, stop, &sink, &did_stop);
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
		rxe_migr_unstop(uc);
	rxe_migr_put_objects(&all);
	rxe_migr_unlock(ufile, write);
	kvfree(sink.buf);

	return err;
}

static int UVERBS_HANDLER(RXE_METHOD_MIGR_ABORT)(struct uverbs_attr_bundle *attrs)
{
	struct rxe_ucontext *uc = rxe_migr_caller(attrs);
	int err;

	if (IS_ERR(uc))
		return PTR_ERR(uc);

	/* its program may run again already, if its checkpoint broke off */
	rxe_migr_lock(attrs->ufile, false);
	err = rxe_migr_unstop(uc);
	rxe_migr_unlock(attrs->ufile, false);

	return err;
}

/* Only event files, which come with the context, may exist. */
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
	/* not RESUME: by then the source's task may have been ended */
	if (!rxe_migr_speaks())
		return -ENOKEY;

	file = fget(in.fd);
	if (!file)
		return -EBADF;
	/* this ioctl's own file, whose private_data is the ufile */
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
		rxe_migr_go(uc);
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

static void rxe_migr_qp_status(struct rxe_qp *qp, struct rxe_migr_status *st)
{
	union ib_gid sgid;

	lockdep_assert_held(&qp->state_lock);

	*st = (struct rxe_migr_status) {
		.qpn = qp_num(qp),
		.dest_qpn = qp->attr.dest_qp_num,
		.state = qp->migr_state,
		.flags = qp->migr.peer_knows ? RXE_MIGR_STATUS_PEER_KNOWS : 0,
		.epoch = qp->migr.epoch,
		.peer_epoch = qp->migr.peer_epoch,
		.deadline_ms = qp->migr.has_deadline &&
			time_before(jiffies, qp->migr.deadline) ?
			jiffies_to_msecs(qp->migr.deadline - jiffies) : 0,
	};
	rxe_migr_sgid(&qp->pri_av, &sgid);
	memcpy(st->sgid, sgid.raw, sizeof(st->sgid));
	memcpy(st->dgid, qp->pri_av.grh.dgid.raw, sizeof(st->dgid));
}

/* Fill st with at most max entries; returns how many there are. */
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
	lockdep_assert_held(&qp->state_lock);

	*call = (struct rxe_migr_call) {
		.qpn = qp_num(qp),
		.dest_qpn = qp->attr.dest_qp_num,
		.call_ns = qp->migr.call_ns,
		.answer = qp->migr.resume_owed ? RXE_MIGR_ANSWER_AWAITED :
			  qp->migr.unheard ? RXE_MIGR_ANSWER_MISSED :
					     RXE_MIGR_ANSWER_CAME,
	};
	memcpy(call->dgid, qp->pri_av.grh.dgid.raw, sizeof(call->dgid));
}

/* The same of calls */
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

/* A list that the caller gave room for max elements, of which there are count. */
static int rxe_migr_answer_list(struct uverbs_attr_bundle *attrs, u64 addr,
				const void *list, size_t size, u32 count,
				unsigned int max)
{
	struct rxe_migr_dump resp = { .count = count, .length = count * size };
	int err = count > max ? -ENOSPC : 0, err2;

	if (!err && count &&
	    copy_to_user(u64_to_user_ptr(addr), list, resp.length))
		return -EFAULT;

	err2 = uverbs_copy_to_struct_or_zero(attrs, RXE_ATTR_MIGR_RESP, &resp,
					     sizeof(resp));

	return err ?: err2;
}

#define RXE_MIGR_DEVICE_MAX 65536

/* What there is of a kind on the whole device */
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

#define RXE_MIGR_CM_MAX 65536

/* What a file of librdmacm has, of one kind. */
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

/* With a reference, or NULL. */
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

	/* nothing is destroyed or resumed meanwhile */
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

#define RXE_MIGR_IN(type)						\
	UVERBS_ATTR_PTR_IN(RXE_ATTR_MIGR_IN, UVERBS_ATTR_TYPE(type),	\
			   UA_MANDATORY)
/* may grow at the tail, and be shorter in an older caller */
#define RXE_MIGR_RESP(type, last)					\
	UVERBS_ATTR_PTR_OUT(RXE_ATTR_MIGR_RESP,				\
			    UVERBS_ATTR_STRUCT(type, last), UA_MANDATORY)

DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_QUERY,
	UVERBS_ATTR_FLAGS_IN(RXE_ATTR_MIGR_IN, enum rxe_migr_query_flags,
			     UA_OPTIONAL),
	RXE_MIGR_RESP(struct rxe_migr_query, now_ns));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_DUMP,
	RXE_MIGR_IN(struct rxe_migr_buf),
	RXE_MIGR_RESP(struct rxe_migr_dump, stop_ns));
DECLARE_UVERBS_NAMED_METHOD(RXE_METHOD_MIGR_ABORT);
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

DECLARE_UVERBS_GLOBAL_METHODS(RXE_OBJECT_MIGR,
	&UVERBS_METHOD(RXE_METHOD_MIGR_QUERY),
	&UVERBS_METHOD(RXE_METHOD_MIGR_DUMP),
	&UVERBS_METHOD(RXE_METHOD_MIGR_ABORT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_BEGIN),
	&UVERBS_METHOD(RXE_METHOD_MIGR_HINT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_REFILL),
	&UVERBS_METHOD(RXE_METHOD_MIGR_RESUME),
	&UVERBS_METHOD(RXE_METHOD_MIGR_EVENT_FD));

DECLARE_UVERBS_GLOBAL_METHODS(RXE_OBJECT_MIGR_DEVICE,
	&UVERBS_METHOD(RXE_METHOD_MIGR_STATUS),
	&UVERBS_METHOD(RXE_METHOD_MIGR_KEY),
	&UVERBS_METHOD(RXE_METHOD_MIGR_TAKEN),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CALLS));

DECLARE_UVERBS_GLOBAL_METHODS(RXE_OBJECT_MIGR_CM,
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_LIST),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_ADOPT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_CONNECT),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_REFILL),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_DEVICE),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_EVENTS),
	&UVERBS_METHOD(RXE_METHOD_MIGR_CM_REPORT));

const struct uapi_definition rxe_migr_uverbs_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(RXE_OBJECT_MIGR),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(RXE_OBJECT_MIGR_DEVICE),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(RXE_OBJECT_MIGR_CM),
	{}
};
