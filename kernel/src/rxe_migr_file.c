// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The open file of a restored context. CRIU maps all rings of a process through
 * one file, and opens files before it gives the process its credentials.
 */

#include <linux/cred.h>
#include <linux/file.h>
#include <rdma/rdma_user_cm.h>
#include "rxe_migr_loc.h"

/* ----------------------------------------------------------------- rings -- */

/*
 * A process can have several contexts on one device. So while contexts are
 * being restored, those of one session may map each other's rings, as often as
 * there are processes that share them, and the mapping is given the file of the
 * ring's owner.
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

/* The restore is over: what rxe_migr_keep_ring() left on the list goes. */
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
 * The file that a mapping of the owner's ring must have, with a reference, or
 * NULL if it has it already. The caller holds pending_lock: the owner is not
 * freed before its rings are off the list.
 */
struct file *rxe_migr_owner_file(struct ib_ucontext *by,
				 struct ib_ucontext *owner)
{
	struct file *file;

	if (by == owner)
		return NULL;

	/* NULL for a file that is being closed */
	file = get_file_active(&to_ruc(owner)->migr.file);

	return file ?: ERR_PTR(-ENXIO);
}

/* ----------------------------------------------------------- credentials -- */

/*
 * write() on a uverbs file, by which librxe rings the doorbell, is refused
 * unless the caller's credentials are the very object that opened the file; so
 * it is on one of rdma_cm, for all that librdmacm does. A restored file was
 * opened by CRIU, and of a restored process each thread has credentials of its
 * own, if equal ones. So the file is given those of its process, and a thread
 * writes with these, if they are equal to its own.
 */
struct rxe_migr_fops {
	const struct file_operations	*stock;
	struct file_operations		ours;
};

static DEFINE_MUTEX(fops_mutex);
static struct rxe_migr_fops uverbs_fops;

/*
 * Of one file of rdma_cm: besides, librdmacm looks for the device of an id by
 * the GUID and index that it read where the process began.
 */
#define RXE_MIGR_CM_DEVICES 8

struct rxe_migr_cm_alias {
	__be64	guid;			/* of a device here */
	__be64	known_guid;
	u32	known_index;
};

struct rxe_migr_cm_file {
	struct rxe_migr_fops	fops;
	struct rcu_head		rcu;
	unsigned int		num_aliases;	/* grows */
	struct rxe_migr_cm_alias aliases[RXE_MIGR_CM_DEVICES];
};

static ssize_t rxe_migr_write_cm(struct file *file, const char __user *buf,
				 size_t count, loff_t *pos);

/* NULL: it has the operations that it was opened with. */
static struct rxe_migr_cm_file *rxe_migr_cm_file(const struct file *file)
{
	const struct file_operations *fops = READ_ONCE(file->f_op);

	return fops->write == rxe_migr_write_cm ?
		container_of(fops, struct rxe_migr_cm_file, fops.ours) : NULL;
}

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

/* Of a file, with a reference: it may be given others at any time. */
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

static ssize_t rxe_migr_write_as_owner(const struct file_operations *fops,
				       struct file *file,
				       const char __user *buf, size_t count,
				       loff_t *pos)
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

/* A device in an answer to the caller becomes the one that it knows. */
static void rxe_migr_cm_tell(const struct rxe_migr_cm_file *f, void __user *resp,
			     size_t size, size_t guid_at, size_t index_at)
{
	const struct rxe_migr_cm_alias *alias;
	unsigned int i, n;
	__be64 guid;

	/* pairs with rxe_migr_cm_device(), which fills them in before */
	n = smp_load_acquire(&f->num_aliases);

	if (size < guid_at + sizeof(guid) ||
	    copy_from_user(&guid, resp + guid_at, sizeof(guid)))
		return;

	for (i = 0; i < n; i++) {
		alias = &f->aliases[i];
		if (alias->guid != guid)
			continue;
		/* (it was written to just now: what fails is the caller's doing) */
		if (copy_to_user(resp + guid_at, &alias->known_guid,
				 sizeof(guid)) ||
		    (size >= index_at + sizeof(u32) &&
		     copy_to_user(resp + index_at, &alias->known_index,
				  sizeof(u32))))
			return;
		return;
	}
}

static void rxe_migr_cm_told(const struct rxe_migr_cm_file *f,
			     const char __user *buf, size_t count)
{
	struct {
		struct rdma_ucm_cmd_hdr	hdr;
		struct rdma_ucm_query	query;
	} __packed cmd;
	void __user *resp;

	if (count < sizeof(cmd) || copy_from_user(&cmd, buf, sizeof(cmd)))
		return;
	resp = u64_to_user_ptr(cmd.query.response);

	if (cmd.hdr.cmd == RDMA_USER_CM_CMD_QUERY_ROUTE)
		rxe_migr_cm_tell(f, resp, cmd.hdr.out,
				 offsetof(struct rdma_ucm_query_route_resp,
					  node_guid),
				 offsetof(struct rdma_ucm_query_route_resp,
					  ibdev_index));
	else if (cmd.hdr.cmd == RDMA_USER_CM_CMD_QUERY &&
		 cmd.query.option != RDMA_USER_CM_QUERY_PATH)
		rxe_migr_cm_tell(f, resp, cmd.hdr.out,
				 offsetof(struct rdma_ucm_query_addr_resp,
					  node_guid),
				 offsetof(struct rdma_ucm_query_addr_resp,
					  ibdev_index));
}

static ssize_t rxe_migr_write_cm(struct file *file, const char __user *buf,
				 size_t count, loff_t *pos)
{
	const struct rxe_migr_cm_file *f = rxe_migr_cm_file(file);
	ssize_t ret = rxe_migr_write_as_owner(f->fops.stock, file, buf, count,
					      pos);

	if (ret > 0)
		rxe_migr_cm_told(f, buf, count);

	return ret;
}

/* For the moment between a file's release and its end. */
static const struct file_operations rxe_migr_cm_closed = {
	.owner = THIS_MODULE,
};

/* The reference to rdma_ucm is ours, which nothing else of rxe needs. */
static int rxe_migr_release_cm(struct inode *inode, struct file *file)
{
	struct rxe_migr_cm_file *f = rxe_migr_cm_file(file);
	int ret = f->fops.stock->release(inode, file);

	module_put(f->fops.stock->owner);
	file->f_op = &rxe_migr_cm_closed;
	kfree_rcu(f, rcu);

	return ret;
}

static void rxe_migr_give(struct file *file, struct task_struct *task)
{
	const struct cred *old;

	old = xchg(&file->f_cred, get_task_cred(task));
	put_cred(old);
}

/*
 * Make the file of a context that is being restored the task's own. Its tasks
 * don't run yet, and the caller holds the file by the ioctl that it makes.
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
	rxe_migr_give(file, task);
	mutex_unlock(&fops_mutex);
	put_task_struct(task);

	return 0;
}

/* rdma_ucm exports nothing to know its files by: the name of its code has to do. */
bool rxe_migr_is_cm(const struct file *file)
{
	const struct file_operations *fops = READ_ONCE(file->f_op);
	char name[KSYM_SYMBOL_LEN];

	if (fops->write == rxe_migr_write_cm)
		return true;
	if (!fops->write || !fops->release)
		return false;
	snprintf(name, sizeof(name), "%ps", fops->write);

	return !strcmp(name, "ucma_write") ||
	       !strcmp(name, "ucma_write [rdma_ucm]");
}

/* Give a file operations of ours, if it has not got them yet. */
static struct rxe_migr_cm_file *rxe_migr_cm_replace(struct file *file)
{
	struct rxe_migr_cm_file *f = rxe_migr_cm_file(file);

	lockdep_assert_held(&fops_mutex);

	if (f)
		return f;
	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return NULL;

	f->fops.stock = file->f_op;
	f->fops.ours = *file->f_op;
	f->fops.ours.owner = THIS_MODULE;
	f->fops.ours.write = rxe_migr_write_cm;
	f->fops.ours.release = rxe_migr_release_cm;
	__module_get(f->fops.stock->owner);
	__module_get(THIS_MODULE);
	replace_fops(file, &f->fops.ours);

	return f;
}

/*
 * The same for a file of rdma_cm. A process of one thread needs no other
 * file_operations, and MIGRATE_ID knows a file by these.
 */
int rxe_migr_adopt_cm(struct file *file, struct pid *pid)
{
	struct task_struct *task = get_pid_task(pid, PIDTYPE_PID);
	int err = 0;

	if (!task)
		return -ESRCH;

	mutex_lock(&fops_mutex);
	if (get_nr_threads(task) > 1 && !rxe_migr_cm_replace(file))
		err = -ENOMEM;
	else
		rxe_migr_give(file, task);
	mutex_unlock(&fops_mutex);
	put_task_struct(task);

	return err;
}

/* What a file's process knows a device by: it is told first, and then set. */
int rxe_migr_cm_device(struct file *file, struct rxe_dev *rxe,
		       const struct rxe_migr_cm_device *in,
		       struct rxe_migr_cm_device *out)
{
	__be64 guid = rxe->ib_dev.node_guid;
	struct rxe_migr_cm_alias *alias;
	struct rxe_migr_cm_file *f;
	unsigned int i = 0;
	int err = 0;

	out->index = rxe->ib_dev.index;
	memcpy(out->guid, &guid, sizeof(out->guid));

	mutex_lock(&fops_mutex);
	f = rxe_migr_cm_file(file);
	while (f && i < f->num_aliases && f->aliases[i].guid != guid)
		i++;
	if (f && i < f->num_aliases) {
		out->index = f->aliases[i].known_index;
		memcpy(out->guid, &f->aliases[i].known_guid,
		       sizeof(out->guid));
	}
	if (!(in->flags & RXE_MIGR_CM_DEVICE_SET) ||
	    (in->index == out->index &&
	     !memcmp(in->guid, out->guid, sizeof(in->guid))))
		goto unlock;

	/* once: who reads them takes no lock */
	err = f && (i < f->num_aliases || i == RXE_MIGR_CM_DEVICES) ? -ENOSPC :
								     0;
	if (!err && !f) {
		f = rxe_migr_cm_replace(file);
		err = f ? 0 : -ENOMEM;
	}
	if (!err) {
		alias = &f->aliases[f->num_aliases];
		alias->guid = guid;
		memcpy(&alias->known_guid, in->guid, sizeof(in->guid));
		alias->known_index = in->index;
		/* pairs with rxe_migr_cm_tell() */
		smp_store_release(&f->num_aliases, f->num_aliases + 1);
	}
unlock:
	mutex_unlock(&fops_mutex);

	return err;
}
