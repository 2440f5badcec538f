// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Open files of rdma_cm, /dev/infiniband/rdma_cm. A restored file gets the
 * credentials of its process, which knows devices by GUIDs and indices of another
 * host. rxe_migr_ucma.c has the ids.
 */

#include <linux/cred.h>
#include <linux/file.h>
#include <rdma/rdma_user_cm.h>
#include "rxe_migr_loc.h"

/* held while a file gets operations of ours, or an alias */
static DEFINE_MUTEX(cm_mutex);

/*
 * How many devices a file can have aliases for. librdmacm looks for the device of an
 * id by the GUID and index that it read on the host where the process began.
 */
#define RXE_MIGR_CM_DEVICES 8

struct rxe_migr_cm_alias {
	__be64	guid;			/* of a device of this host */
	__be64	known_guid;		/* what the process knows in its place */
	u32	known_index;
};

struct rxe_migr_cm_file {
	const struct file_operations *stock;
	struct file_operations	ours;
	struct rcu_head		rcu;
	unsigned int		num_aliases;	/* never gets smaller */
	struct rxe_migr_cm_alias aliases[RXE_MIGR_CM_DEVICES];
};

static ssize_t rxe_migr_write_cm(struct file *file, const char __user *buf,
				 size_t count, loff_t *pos);

/* NULL if the file has the operations that it was opened with. */
static struct rxe_migr_cm_file *rxe_migr_cm_file(const struct file *file)
{
	const struct file_operations *fops = READ_ONCE(file->f_op);

	return fops->write == rxe_migr_write_cm ?
		container_of(fops, struct rxe_migr_cm_file, ours) : NULL;
}

/* In an answer to the process, replace a device by the one that it knows. */
static void rxe_migr_cm_tell(const struct rxe_migr_cm_file *f, void __user *resp,
			     size_t size, size_t guid_at, size_t index_at)
{
	const struct rxe_migr_cm_alias *alias;
	unsigned int i, n;
	__be64 guid;

	/* pairs with rxe_migr_cm_device(), which fills in the alias first */
	n = smp_load_acquire(&f->num_aliases);

	if (size < guid_at + sizeof(guid) ||
	    copy_from_user(&guid, resp + guid_at, sizeof(guid)))
		return;

	for (i = 0; i < n; i++) {
		alias = &f->aliases[i];
		if (alias->guid != guid)
			continue;
		/* ucma has just written there: if this fails, the caller made it fail */
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
	ssize_t ret = rxe_migr_write_as_owner(f->stock, file, buf, count, pos);

	if (ret > 0)
		rxe_migr_cm_told(f, buf, count);

	return ret;
}

/* The operations of a file between its release and its end */
static const struct file_operations rxe_migr_cm_closed = {
	.owner = THIS_MODULE,
};

/* Only our operations hold a reference to rdma_ucm: put it after the file's release. */
static int rxe_migr_release_cm(struct inode *inode, struct file *file)
{
	struct rxe_migr_cm_file *f = rxe_migr_cm_file(file);
	int ret = f->stock->release(inode, file);

	module_put(f->stock->owner);
	file->f_op = &rxe_migr_cm_closed;
	kfree_rcu(f, rcu);

	return ret;
}

/* A file of rdma_ucm can be recognized only by the name of its write function. */
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

/* Give a file operations of ours, unless it has them. */
static struct rxe_migr_cm_file *rxe_migr_cm_replace(struct file *file)
{
	struct rxe_migr_cm_file *f = rxe_migr_cm_file(file);

	lockdep_assert_held(&cm_mutex);

	if (f)
		return f;
	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return NULL;

	f->stock = file->f_op;
	f->ours = *file->f_op;
	f->ours.owner = THIS_MODULE;
	f->ours.write = rxe_migr_write_cm;
	f->ours.release = rxe_migr_release_cm;
	__module_get(f->stock->owner);
	__module_get(THIS_MODULE);
	replace_fops(file, &f->ours);

	return f;
}

/*
 * Give a file of rdma_cm to the process pid, as rxe_migr_adopt() does with the file
 * of a context. The file keeps its original operations if the process has one thread,
 * which needs no others: RDMA_USER_CM_CMD_MIGRATE_ID takes only such files.
 */
int rxe_migr_adopt_cm(struct file *file, struct pid *pid)
{
	struct task_struct *task = get_pid_task(pid, PIDTYPE_PID);
	int err = 0;

	if (!task)
		return -ESRCH;

	mutex_lock(&cm_mutex);
	if (get_nr_threads(task) > 1 && !rxe_migr_cm_replace(file))
		err = -ENOMEM;
	else
		rxe_migr_give_file(file, task);
	mutex_unlock(&cm_mutex);
	put_task_struct(task);

	return err;
}

/*
 * Set the GUID and index by which the process of a file knows a device to *in. *out
 * gets the values from before.
 */
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

	mutex_lock(&cm_mutex);
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

	/* an alias is set once, since readers take no lock */
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
	mutex_unlock(&cm_mutex);

	return err;
}
