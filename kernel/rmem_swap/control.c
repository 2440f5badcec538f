// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What is arranged with a donor that is up: slabs, its room, its notices. Its workqueue does that. */

#include <linux/sched/mm.h>

#include "rmem_swap.h"

#define SHUN (10 * HZ) /* how long a donor gets no new slab after it has evicted one, or had no room */

/* ------------------------------------------------------------------ mapping */

/* The caller holds d->lock, and the donor is up. */
void rs_donor_map(struct rs_donor *d)
{
	lockdep_assert_held(&d->lock);

	queue_work(d->wq, &d->map_work);
}

static void shun(struct rs_donor *d)
{
	WRITE_ONCE(d->shun_until, jiffies + SHUN);
	WRITE_ONCE(d->shunned, true);
}

static void map_one(struct rs_donor *d, unsigned int index)
{
	struct rs_dev *dev = d->dev;
	struct rs_slab *slab = &dev->slabs[index];
	u64 addr;
	u32 rkey;
	int ret = rs_talk_alloc(d, rs_slab_tag(dev, slab), rs_slab_bytes(dev, index), &addr, &rkey);

	if (ret) {
		shun(d);
		rs_slab_not_mapped(slab);
	} else {
		rs_slab_mapped(slab, addr, rkey);
	}
}

/* If the donor is lost or leaves before a claimed slab is mapped, rs_slabs_leave() drops the claim. */
void rs_map_work(struct work_struct *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, map_work);
	unsigned int noio = memalloc_noio_save(), i;

	for (i = 0; i < d->dev->n_slabs && rs_donor_is_up(d); i++)
		if (rs_slab_of(&d->dev->slabs[i], d, RS_MAPPING))
			map_one(d, i);
	memalloc_noio_restore(noio);
}

void rs_room_work(struct work_struct *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, room_work);
	unsigned int noio = memalloc_noio_save();
	u64 left;

	if (rs_donor_is_up(d) && !rs_talk_room(d, &left)) {
		WRITE_ONCE(d->room, left);
		WRITE_ONCE(d->rooms, d->rooms + 1);
		wake_up_all(&d->dev->wait);
	}
	memalloc_noio_restore(noio);
}

/* False: the donor has not told its room within a second, for example because it is moving. Then it counts as full. */
bool rs_donor_ask_room(struct rs_donor *d)
{
	unsigned int before = READ_ONCE(d->rooms);
	unsigned long flags;
	bool up;

	spin_lock_irqsave(&d->lock, flags);
	up = d->state == RMEM_SWAP_UP;
	if (up)
		queue_work(d->wq, &d->room_work);
	spin_unlock_irqrestore(&d->lock, flags);
	if (!up)
		return false;
	wait_event_timeout(d->dev->wait, READ_ONCE(d->rooms) != before || test_bit(RS_FAILED, &d->flags), HZ);
	return READ_ONCE(d->rooms) != before;
}

/* ------------------------------------------------------------------ notices */

static bool next_evict(struct rs_donor *d, struct rs_named *named)
{
	bool any;

	spin_lock_irq(&d->lock);
	any = d->n_evicts;
	if (any) {
		*named = d->evicts[d->first_evict];
		d->first_evict = (d->first_evict + 1) % RS_NOTICES;
		WRITE_ONCE(d->n_evicts, d->n_evicts - 1);
	}
	spin_unlock_irq(&d->lock);
	return any;
}

static struct rs_slab *find_slab(struct rs_donor *d, const struct rs_named *named)
{
	struct rs_dev *dev = d->dev;
	struct rs_slab *slab = named->tag && named->tag <= dev->n_slabs ? &dev->slabs[named->tag - 1] : NULL;

	return slab && rs_slab_of(slab, d, RS_MAPPED) && slab->addr == named->addr ? slab : NULL;
}

/* Saves the slab's pages, until @until at the latest, and then unmaps the slab, saved or not. */
static void unmap(struct rs_donor *d, struct rs_slab *slab, unsigned long until)
{
	unsigned int index = slab - d->dev->slabs;
	u64 lost;

	shun(d);
	lost = rs_save_slab(d, index, until);
	rs_slab_unmap(slab, d->dev);
	if (lost)
		rs_save_tell(d, lost);
}

/* We also answer for a slab that we do not have. Otherwise the donor would wait, and then take all slabs that it wants back. */
static void evict(struct rs_donor *d, const struct rs_named *named)
{
	struct rs_slab *slab = find_slab(d, named);

	if (slab)
		unmap(d, slab, named->until);
	if (rs_talk_evicted(d, named) || !slab)
		return;
	rs_count_both(d, RS_EVICTIONS);
	rs_event(d->dev, RMEM_SWAP_EVICTED, d, NULL, slab);
}

/* Handles the evictions of a donor that leaves, on its workqueue: its notice_work does nothing any more. */
void rs_donor_evictions(struct rs_donor *d)
{
	struct rs_named named;

	while (!test_bit(RS_FAILED, &d->flags) && next_evict(d, &named))
		evict(d, &named);
}

void rs_notice_work(struct work_struct *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, notice_work);
	unsigned int noio = memalloc_noio_save();
	struct rs_named named;

	if (rs_donor_is_up(d) && READ_ONCE(d->heat_asked))
		rs_talk_heat(d);
	while (rs_donor_is_up(d) && next_evict(d, &named))
		evict(d, &named);
	memalloc_noio_restore(noio);
}
