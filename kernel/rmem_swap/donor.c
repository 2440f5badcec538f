// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Donors: a donor is added, connected, and then up until it is lost or removed. The donor's ordered workqueue does all of this
 * except the adding. So two works of one donor never run at the same time, and they need no lock against each other for its verbs
 * objects and its slabs.
 */

#include <linux/netlink.h>
#include <linux/sched/mm.h>
#include <linux/wait_bit.h>

#include "rmem_swap.h"

#define PATIENCE (10 * HZ) /* how long a command waits for a donor whose queue pair lives, but that is silent */

/*
 * NEW     -> UP	connected
 * NEW     -> DOWN	it could not be connected, or its RDMA device went
 * UP      -> DOWN	lost
 * any but LEAVING -> LEAVING	DONOR_DEL, DEV_DEL
 * LEAVING -> UP	it was UP, and has pages that the disk refuses; or it had some and did not answer in time; or the task that
 *		waited was killed
 *
 * Forbidden: DOWN -> UP: DONOR_ADD makes a new one that takes its place.
 */
static const u8 arcs[] = {
	[RMEM_SWAP_NEW]		= BIT(RMEM_SWAP_UP) | BIT(RMEM_SWAP_DOWN) | BIT(RMEM_SWAP_LEAVING),
	[RMEM_SWAP_UP]		= BIT(RMEM_SWAP_DOWN) | BIT(RMEM_SWAP_LEAVING),
	[RMEM_SWAP_DOWN]	= BIT(RMEM_SWAP_LEAVING),
	[RMEM_SWAP_LEAVING]	= BIT(RMEM_SWAP_UP),
};

#define ANY (BIT(RMEM_SWAP_NEW) | BIT(RMEM_SWAP_UP) | BIT(RMEM_SWAP_DOWN) | BIT(RMEM_SWAP_LEAVING))

/* Goes from one of the states in @from to @to. False if the donor is in another state, or arcs has no such arc. */
static bool set_state(struct rs_donor *d, u8 from, enum rmem_swap_donor_state to)
{
	unsigned long flags;
	bool ok;

	spin_lock_irqsave(&d->lock, flags);
	ok = BIT(d->state) & from && arcs[d->state] & BIT(to);
	if (ok)
		WRITE_ONCE(d->state, to);
	spin_unlock_irqrestore(&d->lock, flags);
	return ok;
}

/* ------------------------------------------------------------------ lifetime */

static atomic_t n_alive; /* donors that are not freed yet, of all devices */

void rs_donor_get(struct rs_donor *d)
{
	kref_get(&d->ref);
}

static void release(struct kref *ref)
{
	struct rs_donor *d = container_of(ref, struct rs_donor, ref);

	queue_work(rs_slow_wq, &d->free_work);
}

/* The donor's own workqueue may put the last reference. A workqueue can't destroy itself, so free_work runs on another one. */
void rs_donor_put(struct rs_donor *d)
{
	kref_put(&d->ref, release);
}

static void free_work(struct work_struct *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, free_work);
	struct rs_dev *dev = d->dev;

	destroy_workqueue(d->wq);
	kfree(d);
	rs_dev_put(dev);
	if (atomic_dec_and_test(&n_alive))
		wake_up_var(&n_alive);
}

/*
 * Waits until all donors are freed. Nobody can add one any more. The last free_work may not have returned yet. The caller destroys
 * that work's workqueue next, which waits until it has.
 */
void rs_donors_wait(void)
{
	wait_var_event(&n_alive, !atomic_read(&n_alive));
}

/* ------------------------------------------------------------------ lost */

static void lost_work(struct work_struct *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, lost_work);
	unsigned int noio = memalloc_noio_save();
	bool was_up = READ_ONCE(d->state) == RMEM_SWAP_UP;

	if (set_state(d, ANY, RMEM_SWAP_DOWN)) {
		rs_verbs_drain(d);
		rs_slabs_leave(d);
		rs_verbs_destroy(d);
		if (was_up) {
			rs_count_both(d, RS_LOST);
			rs_event(d->dev, RMEM_SWAP_DONOR_LOST, d, d->reason, NULL);
		}
	} else if (READ_ONCE(d->state) == RMEM_SWAP_DOWN) {
		rs_verbs_destroy(d);
	}
	memalloc_noio_restore(noio);
}

/* ------------------------------------------------------------------ connect */

/*
 * What this allocates may wait for memory, since no page waits for this: a donor has no slab before it is UP, the pages of a lost
 * donor were run again before another takes its place (lost_work, replace()), and the locks that are held meanwhile are those of
 * this queue pair alone. NOIO keeps it from writing pages out itself.
 */
static void connect_work(struct work_struct *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, connect_work);
	unsigned int noio = memalloc_noio_save();
	int ret = test_bit(RS_FAILED, &d->flags) || !d->ibdev ? -ENOTCONN : rs_verbs_connect(d);

	if (!ret)
		ret = rs_talk_free_all(d);
	if (!ret && test_bit(RS_FAILED, &d->flags))
		ret = -ENOTCONN;
	if (!ret && !set_state(d, BIT(RMEM_SWAP_NEW), RMEM_SWAP_UP))
		ret = -ECANCELED;
	if (ret)
		rs_donor_fail(d, "it could not be connected: %d", ret);
	else
		rs_event(d->dev, RMEM_SWAP_DONOR_UP, d, NULL, NULL);
	d->connect_ret = ret;
	complete_all(&d->connected);
	memalloc_noio_restore(noio);
}

/*
 * A command may hold up all of generic netlink. So a donor that does not answer in time is given up. A donor that goes on answering
 * is waited for as long as it takes, and so is the disk. -ETIMEDOUT: it has not answered in time. -EINTR: the task is killed
 */
static int wait_in_time(struct rs_donor *d, struct completion *done)
{
	unsigned int steps;
	long left;

	do {
		steps = READ_ONCE(d->steps);
		left = wait_for_completion_killable_timeout(done, PATIENCE);
		if (left)
			return left < 0 ? -EINTR : 0;
	} while (READ_ONCE(d->on_disk) || READ_ONCE(d->steps) != steps);
	return -ETIMEDOUT;
}

static void wait_or_fail(struct rs_donor *d, struct completion *done)
{
	int ret = wait_in_time(d, done);

	if (!ret)
		return;
	rs_donor_fail(d, "%s", ret == -EINTR ? "its command was killed" : "it did not answer in time");
	wait_for_completion(done);
}

static struct rs_donor *find_donor(struct rs_dev *dev, const char *name)
{
	struct rs_donor *d;

	lockdep_assert_held(&dev->lock);

	list_for_each_entry(d, &dev->donors, list)
		if (!strcmp(d->name, name))
			return d;
	return NULL;
}

static int begin_connect(struct rs_donor *d, const struct rs_donor_peer *peer, struct netlink_ext_ack *extack)
{
	if (d->state != RMEM_SWAP_NEW || d->connecting || test_bit(RS_FAILED, &d->flags)) {
		NL_SET_ERR_MSG(extack, "the donor is not one that was just added");
		return -EBUSY;
	}
	d->connecting = true;
	d->peer_qpn = peer->qpn;
	d->peer_psn = peer->psn;
	d->peer_mtu = peer->mtu;
	d->peer_gid = peer->gid;
	d->txn = peer->txn;
	queue_work(d->wq, &d->connect_work);
	return 0;
}

int rs_donor_connect(struct rs_dev *dev, const char *name, const struct rs_donor_peer *peer, struct netlink_ext_ack *extack)
{
	char reason[RS_REASON];
	struct rs_donor *d;
	int ret = -ENOENT;

	mutex_lock(&dev->lock);
	d = find_donor(dev, name);
	if (d) {
		ret = begin_connect(d, peer, extack);
		rs_donor_get(d);
	} else {
		NL_SET_ERR_MSG(extack, "the device has no such donor");
	}
	mutex_unlock(&dev->lock);
	if (!ret)
		wait_or_fail(d, &d->connected);
	if (!ret && d->connect_ret) {
		ret = d->connect_ret;
		rs_donor_reason(d, reason);
		NL_SET_ERR_MSG_FMT(extack, "%s", reason);
	}
	if (d)
		rs_donor_put(d);
	return ret;
}

/* ------------------------------------------------------------------ add, remove */

static struct rs_donor *alloc_donor(struct rs_dev *dev, const char *name)
{
	struct rs_donor *d = kzalloc(sizeof(*d), GFP_KERNEL);

	if (!d)
		return NULL;
	d->wq = alloc_ordered_workqueue("rmem_swap-donor", WQ_MEM_RECLAIM);
	if (!d->wq) {
		kfree(d);
		return NULL;
	}
	atomic_inc(&n_alive);
	kref_init(&d->ref);
	rs_dev_get(dev);
	d->dev = dev;
	strscpy(d->name, name, sizeof(d->name));
	spin_lock_init(&d->lock);
	d->state = RMEM_SWAP_NEW;
	INIT_LIST_HEAD(&d->on_ibdev);
	init_completion(&d->asked);
	init_completion(&d->connected);
	INIT_LIST_HEAD(&d->leavers);
	INIT_WORK(&d->free_work, free_work);
	return d;
}

/* A thread that waits until a donor has left. It lies on the thread's stack. */
struct leaver {
	struct list_head list;
	struct completion done;
	bool stays;		/* the donor stays after all, */
	u64 kept;		/* for so many pages */
};

static void wait_in_line(struct leaver *leaver, struct rs_donor *d)
{
	lockdep_assert_held(&d->dev->lock);

	leaver->stays = false;
	leaver->kept = 0;
	init_completion(&leaver->done);
	list_add_tail(&leaver->list, &d->leavers);
}

/* A leaver is gone as soon as it is told. */
static void tell_leavers(struct rs_donor *d, bool stays, u64 kept)
{
	struct leaver *leaver, *next;

	lockdep_assert_held(&d->dev->lock);

	list_for_each_entry_safe(leaver, next, &d->leavers, list) {
		list_del_init(&leaver->list);
		leaver->stays = stays;
		leaver->kept = kept;
		complete(&leaver->done);
	}
}

static void reopen_all(struct rs_donor *d)
{
	struct rs_dev *dev = d->dev;
	unsigned int i;

	for (i = 0; i < dev->n_slabs; i++)
		if (rs_slab_of(&dev->slabs[i], d, RS_MAPPED))
			rs_slab_reopen(&dev->slabs[i]);
}

/*
 * Does the donor stay? It does not if it is lost, or if the device goes. Otherwise it stays if it has pages that the disk does not
 * take, or if it lingers. A donor that stays is up again, and work that was put off while it was leaving is done now. A thread that
 * wants it to leave once more waits for dev->lock, and then for the next leave_work.
 */
static bool stays(struct rs_donor *d, u64 lost)
{
	struct rs_dev *dev = d->dev;
	bool stays;

	mutex_lock(&dev->lock);
	stays = (lost || d->lingers) && dev->phase != RS_DEV_GOES && !test_bit(RS_FAILED, &d->flags);
	d->gone = !stays;
	if (stays) {
		reopen_all(d);
		set_state(d, BIT(RMEM_SWAP_LEAVING), RMEM_SWAP_UP);
		queue_work(d->wq, &d->map_work);
		queue_work(d->wq, &d->notice_work);
		tell_leavers(d, true, lost);
	}
	mutex_unlock(&dev->lock);
	return stays;
}

static void leave(struct rs_donor *d)
{
	struct rs_dev *dev = d->dev;

	rs_slabs_leave(d);
	if (d->ibdev && d->connecting && !test_bit(RS_FAILED, &d->flags))
		rs_talk_free_all(d);
	rs_donor_fail(d, "it was removed");
	rs_verbs_destroy(d);
	mutex_lock(&dev->lock);
	list_del(&d->list);
	dev->n_donors--;
	mutex_unlock(&dev->lock);
	rs_event(dev, RMEM_SWAP_DONOR_GONE, d, NULL, NULL);
	mutex_lock(&dev->lock);
	tell_leavers(d, false, 0);
	mutex_unlock(&dev->lock);
	rs_donor_put(d);
}

static void leave_work(struct work_struct *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, leave_work);
	unsigned int noio = memalloc_noio_save();
	u64 lost = rs_save_all(d, rs_donor_evictions);

	if (!stays(d, lost)) {
		if (lost)
			rs_save_tell(d, lost);
		leave(d);
	}
	memalloc_noio_restore(noio);
}

static void init_works(struct rs_donor *d)
{
	INIT_WORK(&d->connect_work, connect_work);
	INIT_WORK(&d->map_work, rs_map_work);
	INIT_WORK(&d->room_work, rs_room_work);
	INIT_WORK(&d->notice_work, rs_notice_work);
	INIT_WORK(&d->lost_work, lost_work);
	INIT_WORK(&d->leave_work, leave_work);
}

/* @d replaces a donor of the same name that is down and whose connection has ended, and goes on with its counters. */
static int replace(struct rs_dev *dev, struct rs_donor *d, struct rs_donor **old, struct netlink_ext_ack *extack)
{
	*old = find_donor(dev, d->name);
	if (*old && READ_ONCE((*old)->state) != RMEM_SWAP_DOWN) {
		NL_SET_ERR_MSG(extack, "the device has this donor already");
		*old = NULL;
		return -EEXIST;
	}
	/* Until its last I/O has ended, the old donor goes on counting, and finds its slabs by the pointer to itself. */
	if (*old && READ_ONCE((*old)->ibdev)) {
		NL_SET_ERR_MSG(extack, "the donor's lost connection is still being ended: try again");
		*old = NULL;
		return -EBUSY;
	}
	if (!*old && dev->n_donors == RS_MAX_DONORS) {
		NL_SET_ERR_MSG(extack, "the device has as many donors as it can");
		return -ENOSPC;
	}
	if (*old) {
		memcpy(&d->stats, &(*old)->stats, sizeof(d->stats));
		list_del(&(*old)->list);
		dev->n_donors--;
	}
	return 0;
}

static int add(struct rs_dev *dev, struct rs_donor *d, struct netlink_ext_ack *extack)
{
	struct rs_donor *old = NULL;
	int ret;

	mutex_lock(&dev->lock);
	ret = dev->phase != RS_DEV_STAYS ? -ENODEV : replace(dev, d, &old, extack);
	if (!ret) {
		list_add_tail(&d->list, &dev->donors);
		dev->n_donors++;
		rs_donor_get(d);
	}
	mutex_unlock(&dev->lock);
	if (old)
		rs_donor_put(old);
	return ret;
}

/* The caller gets a reference to *@made. */
int rs_donor_add(struct rs_dev *dev, const char *name, const char *ibdev, u32 port, u32 gid_index, struct rs_donor **made,
		 struct netlink_ext_ack *extack)
{
	struct rs_donor *d = alloc_donor(dev, name);
	int ret;

	if (!d)
		return -ENOMEM;
	init_works(d);
	ret = rs_verbs_make(d, ibdev, port, gid_index, extack);
	if (!ret)
		ret = add(dev, d, extack);
	if (!ret) {
		*made = d;
		return 0;
	}
	/* The donor's workqueue destroys what was made. */
	rs_donor_fail(d, "it was not added");
	flush_work(&d->lost_work);
	rs_donor_put(d);
	return ret;
}

/* False if the donor is leaving already. */
static bool begin_leave(struct rs_donor *d)
{
	bool was_up = set_state(d, BIT(RMEM_SWAP_UP), RMEM_SWAP_LEAVING);

	lockdep_assert_held(&d->dev->lock);

	if (!was_up && !set_state(d, ANY, RMEM_SWAP_LEAVING))
		return false;
	d->was_up = was_up;
	WRITE_ONCE(d->lingers, false);
	queue_work(d->wq, &d->leave_work);
	return true;
}

/* May @d have the only copy of a page? Writes to the disk that are under way may still fail. */
static bool may_be_alone(struct rs_donor *d)
{
	struct rs_dev *dev = d->dev;

	return rs_alone(d, 0, dev->n_slabs) || !rs_disk_has(dev, rs_disk_seq(dev));
}

/* False: the donor was not up before, or it has begun to go for good. True: it is up again as soon as it answers. */
static bool linger(struct rs_donor *d)
{
	lockdep_assert_held(&d->dev->lock);

	if (d->state != RMEM_SWAP_LEAVING || !d->was_up || d->gone)
		return false;
	WRITE_ONCE(d->lingers, true);
	wake_up_all(&d->dev->wait);
	return true;
}

/* A command that waited for @d is killed. @d still leaves if another command, or DEV_DEL, waits for that. */
static void unwait(struct rs_donor *d, struct leaver *leaver)
{
	list_del_init(&leaver->list);
	if (list_empty(&d->leavers) && d->dev->phase == RS_DEV_STAYS)
		linger(d);
}

/*
 * As wait_or_fail(), but a donor that may alone have pages is not given up when it does not answer in time, since it may be moving.
 * It stays, and this returns -ETIMEDOUT. If the device goes, it is given up all the same. -EINTR: the task is killed, and no donor
 * is given up for that.
 */
static int wait_until_left(struct rs_donor *d, struct leaver *leaver)
{
	struct rs_dev *dev = d->dev;
	int ret = wait_in_time(d, &leaver->done);

	if (!ret)
		return 0;
	mutex_lock(&dev->lock);
	if (list_empty(&leaver->list)) {
		ret = 0; /* it was told just now */
	} else if (ret == -EINTR) {
		unwait(d, leaver);
	} else if (dev->phase != RS_DEV_GOES && may_be_alone(d) && linger(d)) {
		list_del_init(&leaver->list);
	} else {
		rs_donor_fail(d, "it did not answer in time");
		ret = 0;
	}
	mutex_unlock(&dev->lock);
	if (!ret)
		wait_for_completion(&leaver->done);
	return ret;
}

int rs_donor_del(struct rs_dev *dev, const char *name, struct netlink_ext_ack *extack)
{
	struct leaver leaver;
	struct rs_donor *d;
	int ret = 0;

	mutex_lock(&dev->lock);
	d = find_donor(dev, name);
	if (!d) {
		NL_SET_ERR_MSG(extack, "the device has no such donor");
		ret = -ENOENT;
	} else if (!begin_leave(d) && !d->gone) {
		NL_SET_ERR_MSG(extack, "the donor is being removed already");
		ret = -EBUSY;
	} else {
		wait_in_line(&leaver, d);
		rs_donor_get(d);
	}
	mutex_unlock(&dev->lock);
	if (ret)
		return ret;
	ret = wait_until_left(d, &leaver);
	if (leaver.stays && !leaver.kept)
		ret = -ETIMEDOUT; /* another command has waited for too long, so the donor stays */
	if (ret) {
		NL_SET_ERR_MSG(extack, "the donor does not answer, and it may alone have pages that the disk does not have: it stays");
	} else if (leaver.stays) {
		NL_SET_ERR_MSG_FMT(extack, "%llu pages are at this donor alone: the disk fails to write them", leaver.kept);
		ret = -EIO;
	}
	rs_donor_put(d);
	return ret;
}

/*
 * Has all donors leave. None is added meanwhile. -EIO: one stays, so others may stay or leave later. rs_dev.phase says when a
 * donor stays. -EINTR: the task is killed
 */
int rs_donors_leave(struct rs_dev *dev)
{
	struct leaver leaver;
	struct rs_donor *d;
	int ret = 0;

	mutex_lock(&dev->lock);
	list_for_each_entry(d, &dev->donors, list)
		begin_leave(d);
	while ((d = list_first_entry_or_null(&dev->donors, struct rs_donor, list))) {
		ret = -EIO;
		if (READ_ONCE(d->state) != RMEM_SWAP_LEAVING) /* it has said already that it stays */
			break;
		wait_in_line(&leaver, d);
		rs_donor_get(d);
		mutex_unlock(&dev->lock);
		ret = wait_until_left(d, &leaver);
		if (ret == -ETIMEDOUT || leaver.stays)
			ret = -EIO;
		rs_donor_put(d);
		mutex_lock(&dev->lock);
		if (ret)
			break;
	}
	mutex_unlock(&dev->lock);
	return ret;
}

/* DEV_DEL was killed, so the device stays, and so do the donors that were leaving for DEV_DEL. */
void rs_donors_stay(struct rs_dev *dev)
{
	struct rs_donor *d;

	mutex_lock(&dev->lock);
	list_for_each_entry(d, &dev->donors, list)
		if (list_empty(&d->leavers))
			linger(d);
	mutex_unlock(&dev->lock);
}
