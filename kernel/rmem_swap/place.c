// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Once a period: how hot each slab is, and to which donors hot slabs go. */

#include <linux/random.h>
#include <linux/sched/mm.h>

#include "rmem_swap.h"

#define PLACED_A_TURN 16

/* Those that are not drawn yet: first the donors without slabs of ours, then those with some. */
struct candidates {
	struct rs_donor *donors[RS_MAX_DONORS];
	unsigned int n;
	int holds; /* whom gather() gets next: 0, 1; 2: nobody */
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

	mutex_lock(&dev->lock);
	list_for_each_entry(d, &dev->donors, list) {
		if (c->n == RS_MAX_DONORS || !may_have_more(d) || !!atomic_read(&d->n_slabs) != holds)
			continue;
		rs_donor_get(d);
		c->donors[c->n++] = d;
	}
	mutex_unlock(&dev->lock);
}

static struct rs_donor *draw(struct rs_dev *dev, struct candidates *c)
{
	unsigned int i;
	struct rs_donor *d;

	while (!c->n && c->holds < 2)
		gather(dev, c->holds++, c);
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

/* The donor that has more room left; NULL if none has enough. @told: each has told its room. */
static struct rs_donor *roomier(struct rs_donor *chosen[2], unsigned int n, u64 size, bool *told)
{
	struct rs_donor *best = NULL;
	unsigned int i;

	*told = true;
	for (i = 0; i < n; i++) {
		if (!rs_donor_ask_room(chosen[i])) {
			*told = false;
			continue;
		}
		if (READ_ONCE(chosen[i]->room) < size)
			continue;
		if (!best || READ_ONCE(chosen[i]->room) > READ_ONCE(best->room))
			best = chosen[i];
	}
	return best;
}

static bool claim(struct rs_dev *dev, unsigned int index, struct rs_donor *d)
{
	unsigned long flags;
	bool claimed;

	spin_lock_irqsave(&d->lock, flags);
	claimed = d->state == RMEM_SWAP_UP && rs_slab_claim(&dev->slabs[index], d);
	if (claimed)
		rs_donor_map(d);
	spin_unlock_irqrestore(&d->lock, flags);
	return claimed;
}

/*
 * Two donors at random get the slab to choose from. If both say that they have no room for it, the next two do, so that full donors
 * without slabs do not keep it from the others. But a donor that says nothing takes a second, so then this turn is over.
 */
static bool place(struct rs_dev *dev, unsigned int index, struct candidates *c)
{
	struct rs_donor *chosen[2], *best = NULL;
	bool placed = false, told = true;
	unsigned int n, i;

	c->n = 0;
	c->holds = 0;
	while (!best && told) {
		for (n = 0; n < 2; n++) {
			chosen[n] = draw(dev, c);
			if (!chosen[n])
				break;
		}
		if (!n)
			break;
		best = roomier(chosen, n, rs_slab_bytes(dev, index), &told);
		placed = best && claim(dev, index, best);
		for (i = 0; i < n; i++)
			rs_donor_put(chosen[i]);
	}
	drop(c);
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
