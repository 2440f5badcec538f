// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The open file of a restored context: which rings may be mapped through it, and
 * whose credentials it has. CRIU maps all rings of a process through one file, and
 * opens files before it gives the process its credentials.
 */

#include <linux/cred.h>
#include <linux/file.h>
#include "rxe_migr_loc.h"

/* ----------------------------------------------------------------- rings -- */

/*
 * May a ring of owner be mapped through the file of by? A process can have several
 * contexts on one device. So while the contexts of one session are restored, each
 * may map the rings of all, once for each process that shares them. The mapping gets
 * the file of the ring's owner.
 */
bool rxe_migr_may_map(struct ib_ucontext *by, struct ib_ucontext *owner)
{
	struct rxe_ucontext *b = to_ruc(by), *o = to_ruc(owner);

	if (by == owner)
		return true;

	return READ_ONCE(b->migr.state) == RXE_MIGR_CTX_RESTORING &&
	       READ_ONCE(o->migr.state) == RXE_MIGR_CTX_RESTORING &&
	       READ_ONCE(b->migr.session) == READ_ONCE(o->migr.session);
}

bool rxe_migr_keep_ring(struct ib_ucontext *owner)
{
	return READ_ONCE(to_ruc(owner)->migr.state) == RXE_MIGR_CTX_RESTORING;
}

/* The restore is over: take the rings off the list that rxe_migr_keep_ring() left there. */
void rxe_migr_drop_rings(struct rxe_ucontext *uc)
{
	struct rxe_dev *rxe = to_rdev(uc->ibuc.device);
	struct rxe_mmap_info *ip, *next;

	spin_lock_bh(&rxe->pending_lock);
	list_for_each_entry_safe(ip, next, &rxe->pending_mmaps, pending_mmaps)
		if (ip->context == &uc->ibuc)
			list_del_init(&ip->pending_mmaps);
	spin_unlock_bh(&rxe->pending_lock);
}

/*
 * The file that a mapping of the owner's ring must get, with a reference, or NULL if
 * the mapping has it already. The caller holds pending_lock, and the owner is not
 * freed before its rings are off the list.
 */
struct file *rxe_migr_owner_file(struct ib_ucontext *by,
				 struct ib_ucontext *owner)
{
	struct file *file;

	if (by == owner)
		return NULL;

	/* NULL if the file is being closed */
	file = get_file_active(&to_ruc(owner)->migr.file);

	return file ?: ERR_PTR(-ENXIO);
}

/* ----------------------------------------------------------- credentials -- */

/*
 * ib_uverbs and rdma_ucm refuse write() on a file unless the caller has the very
 * struct cred that opened it. librxe rings the doorbell by write(), and librdmacm
 * does everything by it. But CRIU opened a restored file, and in a restored process
 * each thread has a struct cred of its own, with equal contents. So the file gets
 * the cred of its process, and a thread writes with that cred if its own is equal.
 */
struct rxe_migr_fops {
	const struct file_operations	*stock;
	struct file_operations		ours;
};

static DEFINE_MUTEX(fops_mutex);
static struct rxe_migr_fops uverbs_fops;

static bool rxe_migr_cred_equal(const struct cred *a, const struct cred *b)
{
	return uid_eq(a->uid, b->uid) && uid_eq(a->suid, b->suid) &&
	       uid_eq(a->euid, b->euid) && uid_eq(a->fsuid, b->fsuid) &&
	       gid_eq(a->gid, b->gid) && gid_eq(a->sgid, b->sgid) &&
	       gid_eq(a->egid, b->egid) && gid_eq(a->fsgid, b->fsgid) &&
	       a->securebits == b->securebits && a->user_ns == b->user_ns &&
	       !memcmp(&a->cap_inheritable, &b->cap_inheritable,
		       sizeof(a->cap_inheritable)) &&
	       !memcmp(&a->cap_permitted, &b->cap_permitted,
		       sizeof(a->cap_permitted)) &&
	       !memcmp(&a->cap_effective, &b->cap_effective,
		       sizeof(a->cap_effective)) &&
	       !memcmp(&a->cap_bset, &b->cap_bset, sizeof(a->cap_bset)) &&
	       !memcmp(&a->cap_ambient, &b->cap_ambient,
		       sizeof(a->cap_ambient));
}

/* The credentials of a file, with a reference: they may be replaced at any time. */
static const struct cred *rxe_migr_file_cred(struct file *file)
{
	const struct cred *cred;

	rcu_read_lock();
	do {
		cred = get_cred_rcu(READ_ONCE(file->f_cred));
	} while (!cred);
	rcu_read_unlock();

	return cred;
}

ssize_t rxe_migr_write_as_owner(const struct file_operations *fops,
				struct file *file, const char __user *buf,
				size_t count, loff_t *pos)
{
	const struct cred *cred = rxe_migr_file_cred(file), *old;
	ssize_t ret = -EACCES;

	if (rxe_migr_cred_equal(current_cred(), cred)) {
		old = override_creds(cred);
		ret = fops->write(file, buf, count, pos);
		revert_creds(old);
	}
	put_cred(cred);

	return ret;
}

static ssize_t rxe_migr_write_uverbs(struct file *file, const char __user *buf,
				     size_t count, loff_t *pos)
{
	return rxe_migr_write_as_owner(uverbs_fops.stock, file, buf, count,
				       pos);
}

void rxe_migr_give_file(struct file *file, struct task_struct *task)
{
	const struct cred *old;

	old = xchg(&file->f_cred, get_task_cred(task));
	put_cred(old);
}

/*
 * Give the file of a context that is being restored to the process pid. The process
 * does not run yet, and the ioctl that calls this holds the file.
 */
int rxe_migr_adopt(struct rxe_ucontext *uc, struct pid *pid)
{
	struct file *file = uc->migr.file;
	struct task_struct *task;

	if (!file || !file->f_op->write)
		return -EINVAL;

	task = get_pid_task(pid, PIDTYPE_PID);
	if (!task)
		return -ESRCH;

	mutex_lock(&fops_mutex);
	if (!uverbs_fops.stock) {
		uverbs_fops.ours = *file->f_op;
		uverbs_fops.ours.owner = THIS_MODULE;
		uverbs_fops.ours.write = rxe_migr_write_uverbs;
		uverbs_fops.stock = file->f_op;
	}
	if (file->f_op == uverbs_fops.stock) {
		__module_get(THIS_MODULE);
		replace_fops(file, &uverbs_fops.ours);
	}
	rxe_migr_give_file(file, task);
	mutex_unlock(&fops_mutex);
	put_task_struct(task);

	return 0;
}
