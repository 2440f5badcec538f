// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions. At restore the verb registers a region with the keys and the memory
 * that its hint names; nothing is left to refill.
 */

#include <linux/kthread.h>
#include <linux/mmu_context.h>
#include <linux/overflow.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include "rxe_migr_loc.h"

/* ------------------------------------------------------------------ dump -- */

/*
 * A program that runs may give the region another PD and destroy the old one. The old
 * PD can't leave its pool while the pool's lock is held.
 */
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

static void rxe_migr_dump_user_mr(struct ib_uobject *uobj,
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

/* The process that has this memory, or 0. Most regions have the owner of the region before. */
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
		/* a kernel thread only borrows an mm */
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

void rxe_migr_dump_mr(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	if (to_rmr(uobj->object)->ibmr.type != IB_MR_TYPE_USER) {
		rxe_migr_dump_other(uobj, sink);
		return;
	}

	rxe_migr_dump_user_mr(uobj, sink);
	rxe_migr_dump_mr_owner(uobj, sink);
}

/* ----------------------------------------------------------- registering -- */

struct rxe_migr_pin {
	struct work_struct	work;
	struct mm_struct	*mm;
	struct rxe_dev		*rxe;
	struct rxe_mr		*mr;
	u64			start;
	u64			length;
	int			access;
	int			err;
};

static void rxe_migr_pin_work(struct work_struct *work)
{
	struct rxe_migr_pin *pin = container_of(work, typeof(*pin), work);

	kthread_use_mm(pin->mm);
	pin->err = rxe_mr_init_user(pin->rxe, pin->start, pin->length,
				    pin->access, pin->mr);
	kthread_unuse_mm(pin->mm);
}

/*
 * Check the memory's owner against its RLIMIT_MEMLOCK, unless the caller has
 * CAP_IPC_LOCK. ib_umem_get() can't check that: it runs in a kernel thread here, which
 * has no limit.
 */
static int rxe_migr_check_memlock(const struct rxe_migr_pin *pin,
				  unsigned long limit)
{
	u64 end, pages;

	if (check_add_overflow(pin->start, pin->length, &end) ||
	    end > PAGE_ALIGN_DOWN(U64_MAX))
		return -EINVAL;
	pages = (PAGE_ALIGN(end) - PAGE_ALIGN_DOWN(pin->start)) >> PAGE_SHIFT;
	if (!capable(CAP_IPC_LOCK) &&
	    pages + atomic64_read(&pin->mm->pinned_vm) > limit >> PAGE_SHIFT)
		return -ENOMEM;

	return 0;
}

/* Register memory of the process pid: in a thread, since ib_umem_get() pins current->mm. */
static int rxe_migr_pin(struct rxe_migr_pin *pin, struct pid *pid)
{
	struct task_struct *task;
	unsigned long limit;
	int err;

	task = get_pid_task(pid, PIDTYPE_PID);
	if (!task)
		return -ESRCH;
	pin->mm = get_task_mm(task);
	limit = task_rlimit(task, RLIMIT_MEMLOCK);
	put_task_struct(task);
	if (!pin->mm)
		return -ESRCH;
	/* the right that ptrace() asks for to write to this memory */
	if (pin->mm != current->mm &&
	    !ns_capable(pin->mm->user_ns, CAP_SYS_PTRACE)) {
		mmput(pin->mm);
		return -EPERM;
	}
	err = rxe_migr_check_memlock(pin, limit);
	if (err) {
		mmput(pin->mm);
		return err;
	}

	INIT_WORK_ONSTACK(&pin->work, rxe_migr_pin_work);
	queue_work(system_unbound_wq, &pin->work);
	flush_work(&pin->work);
	destroy_work_on_stack(&pin->work);
	mmput(pin->mm);

	return pin->err;
}

/* rxe_mr_init_user() with the keys and the memory that a hint asks for */
int rxe_migr_mr_init_user(struct rxe_dev *rxe, u64 start, u64 length,
			  int access, struct rxe_mr *mr,
			  const struct rxe_migr_wanted *wanted)
{
	struct rxe_migr_pin pin = {
		.rxe = rxe, .mr = mr,
		.start = start, .length = length, .access = access,
	};
	int err;

	err = wanted->pid ? rxe_migr_pin(&pin, wanted->pid) :
			    rxe_mr_init_user(rxe, start, length, access, mr);
	if (err || !wanted->set)
		return err;

	mr->lkey = wanted->key;
	mr->rkey = wanted->key;
	mr->ibmr.lkey = wanted->key;
	mr->ibmr.rkey = wanted->key;

	return 0;
}
