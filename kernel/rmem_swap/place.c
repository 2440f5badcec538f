// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Once a period: how hot each slab is, and to which donors hot slabs go. */

#include <linux/random.h>
#include <linux/sched/mm.h>

#include "rmem_swap.h"

#define PLACED_A_TURN 16

struct candidates {
	struct rs_donor *donors[RS_MAX_DONORS];
	unsigned int n;
};

/* ------------------------------------------------------------------ heat */

static bool is_hot(const struct rs_dev *dev, const struct rs_slab *slab)
{
	return READ_ONCE(slab->heat) > READ_ONCE(dev->hot) * 1000ULL;
}

/* The heat of a slab is in thousandths of a page I/O per second. */
static bool measure(struct rs_dev *dev, u32 period)
{
	u32 weight = READ_ONCE(dev->weight);
	struct rs_slab *slab;
	bool any = false;
	u64 now;

	for (slab = dev->slabs; slab < dev->slabs + dev->n_slabs; slab++) {
		now = div_u64(atomic_xchg(&slab->ios, 0) * 1000000ULL, period);
		WRITE_ONCE(slab->heat, div_u64(weight * now + (100 - weight) * slab->heat, 100));
		any |= is_hot(dev, slab) && READ_ONCE(slab->state) == RS_UNMAPPED;
	}
	return any;
}

static void tell_of_disk(struct rs_dev *dev)
{
	char reason[RS_REASON];
	int failed = atomic_xchg(&dev->disk_failed, 0);

	if (!failed)
		return;
	snprintf(reason, sizeof(reason), "%d pages could not be written", failed);
	rs_event(dev, RMEM_SWAP_DISK_ERROR, NULL, reason, NULL);
}

void rs_tick(struct work_struct *work)
{
	struct rs_dev *dev = container_of(to_delayed_work(work), struct rs_dev, tick);

	/* If the period was changed a moment ago, this heat is wrong once. */
	if (measure(dev, READ_ONCE(dev->period)))
		queue_work(rs_slow_wq, &dev->place_work);
	tell_of_disk(dev);
	queue_delayed_work(rs_slow_wq, &dev->tick, msecs_to_jiffies(READ_ONCE(dev->period)));
}

/* ------------------------------------------------------------------ power of two choices */

static bool may_have_more(struct rs_donor *d)
{
	return rs_donor_is_up(d) && !(READ_ONCE(d->shunned) && time_before(jiffies, READ_ONCE(d->shun_until)));
}

/* The donors that may get a slab, each with a reference: without slabs of ours or, if @holds, with some. */
static void gather(struct rs_dev *dev, bool holds, struct candidates *c)
{
	struct rs_donor *d;

	c->n = 0;
	mutex_lock(&dev->lock);
	list_for_each_entry(d, &dev->donors, list) {
		if (c->n == RS_MAX_DONORS || !may_have_more(d) || !!atomic_read(&d->n_slabs) != holds)
			continue;
		rs_donor_get(d);
		c->donors[c->n++] = d;
	}
	mutex_unlock(&dev->lock);
}

static struct rs_donor *draw(struct candidates *c)
{
	unsigned int i;
	struct rs_donor *d;

	if (!c->n)
		return NULL;
	i = get_random_u32_below(c->n);
	d = c->donors[i];
	c->donors[i] = c->donors[--c->n];
	return d;
}

static void drop(struct candidates *c)
{
	while (c->n)
		rs_donor_put(c->donors[--c->n]);
}

/* Two donors at random, each with a reference, first from those without slabs of ours. Returns how many. */
static unsigned int choose(struct rs_dev *dev, struct candidates *c, struct rs_donor *chosen[2])
{
	unsigned int n = 0;
	int holds;

	for (holds = 0; holds < 2 && n < 2; holds++) {
		gather(dev, holds, c);
		while (n < 2) {
			chosen[n] = draw(c);
			if (!chosen[n])
				break;
			n++;
		}
		drop(c);
	}
	return n;
}

/* The donor that has more room left; NULL if none has enough. */
static struct rs_donor *roomier(struct rs_donor *chosen[2], unsigned int n, u64 size)
{
	struct rs_donor *best = NULL;
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (!rs_donor_ask_room(chosen[i]) || READ_ONCE(chosen[i]->room) < size)
			continue;
		if (!best || READ_ONCE(chosen[i]->room) > READ_ONCE(best->room))
			best = chosen[i];
	}
	return best;
}

static bool place(struct rs_dev *dev, unsigned int index, struct candidates *c)
{
	struct rs_donor *chosen[2], *best;
	unsigned int n = choose(dev, c, chosen), i;
	bool placed = false;
	unsigned long flags;

	best = roomier(chosen, n, rs_slab_bytes(dev, index));
	if (best) {
		spin_lock_irqsave(&best->lock, flags);
		placed = best->state == RMEM_SWAP_UP && rs_slab_claim(&dev->slabs[index], best);
		if (placed)
			rs_donor_map(best);
		spin_unlock_irqrestore(&best->lock, flags);
	}
	for (i = 0; i < n; i++)
		rs_donor_put(chosen[i]);
	return placed;
}

void rs_place_work(struct work_struct *work)
{
	struct rs_dev *dev = container_of(work, struct rs_dev, place_work);
	unsigned int noio = memalloc_noio_save(), i, placed = 0;
	struct candidates c;

	for (i = 0; i < dev->n_slabs && placed < PLACED_A_TURN; i++) {
		if (READ_ONCE(dev->slabs[i].state) != RS_UNMAPPED || !is_hot(dev, &dev->slabs[i]))
			continue;
		if (!place(dev, i, &c))
			break;
		placed++;
	}
	memalloc_noio_restore(noio);
}
