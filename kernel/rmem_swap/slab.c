// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Slabs: the state of each, and its references. */

#include <linux/bitmap.h>

#include "rmem_swap.h"

/*
 * UNMAPPED  -> MAPPING		placed: its donor's workqueue will ask for it
 * MAPPING   -> MAPPED		the donor has given memory
 * MAPPING   -> UNMAPPED	the donor has given none, or is lost or leaving
 * MAPPED    -> UNMAPPING	evicted, or the donor is lost or leaving: no new reference is taken
 * UNMAPPING -> UNMAPPED	no reference is left, all bits are cleared
 *
 * Forbidden: MAPPED -> UNMAPPED: somebody may hold a reference. MAPPING -> UNMAPPING: the same workqueue does both.
 */
static const u8 arcs[] = {
	[RS_UNMAPPED]	= BIT(RS_MAPPING),
	[RS_MAPPING]	= BIT(RS_MAPPED) | BIT(RS_UNMAPPED),
	[RS_MAPPED]	= BIT(RS_UNMAPPING),
	[RS_UNMAPPING]	= BIT(RS_UNMAPPED),
};

static void set_state(struct rs_slab *slab, enum rs_slab_state to)
{
	lockdep_assert_held(&slab->lock);

	if (WARN_ON_ONCE(!(arcs[slab->state] & BIT(to))))
		return;
	WRITE_ONCE(slab->state, to);
}

/* ------------------------------------------------------------------ references */

/* The page's bucket is locked, so interrupts are off. */
bool rs_slab_get(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;
	struct rs_slab *slab = &dev->slabs[io->index >> dev->slab_shift];
	bool ok;

	lockdep_assert_irqs_disabled();

	spin_lock(&slab->lock);
	ok = slab->state == RS_MAPPED && !test_bit(RS_FAILED, &slab->donor->flags) && !(io->buf && slab->closed);
	if (ok) {
		slab->refs++;
		slab->writers += !!io->buf;
		io->slab = slab;
		io->posted = jiffies;
		WRITE_ONCE(io->donor, slab->donor);
	}
	spin_unlock(&slab->lock);
	return ok;
}

void rs_slab_put(struct rs_io *io)
{
	struct rs_slab *slab = io->slab;
	unsigned long flags;
	bool wake;

	io->slab = NULL;
	WRITE_ONCE(io->donor, NULL);
	spin_lock_irqsave(&slab->lock, flags);
	slab->refs--;
	slab->writers -= !!io->buf;
	wake = (!slab->refs && slab->state == RS_UNMAPPING) || (!slab->writers && slab->closed);
	spin_unlock_irqrestore(&slab->lock, flags);
	if (wake)
		wake_up_all(&io->dev->wait);
}

static bool is_idle(struct rs_slab *slab)
{
	bool idle;

	spin_lock_irq(&slab->lock);
	idle = !slab->refs;
	spin_unlock_irq(&slab->lock);
	return idle;
}

/* ------------------------------------------------------------------ mapping: under its donor's lock, or from its workqueue */

/* Claims the slab for a donor that is up; false if the slab is not UNMAPPED. */
bool rs_slab_claim(struct rs_slab *slab, struct rs_donor *d)
{
	bool ok;

	lockdep_assert_held(&d->lock);

	spin_lock(&slab->lock);
	ok = slab->state == RS_UNMAPPED;
	if (ok) {
		set_state(slab, RS_MAPPING);
		slab->donor = d;
		atomic_inc(&d->n_slabs);
	}
	spin_unlock(&slab->lock);
	return ok;
}

bool rs_slab_of(struct rs_slab *slab, struct rs_donor *d, enum rs_slab_state state)
{
	unsigned long flags;
	bool ok;

	spin_lock_irqsave(&slab->lock, flags);
	ok = slab->state == state && slab->donor == d;
	spin_unlock_irqrestore(&slab->lock, flags);
	return ok;
}

void rs_slab_mapped(struct rs_slab *slab, u64 addr, u32 rkey)
{
	struct rs_donor *d = slab->donor;

	spin_lock_irq(&slab->lock);
	slab->addr = addr;
	slab->rkey = rkey;
	set_state(slab, RS_MAPPED);
	spin_unlock_irq(&slab->lock);
	rs_count_both(d, RS_MAPS);
}

static void forget(struct rs_slab *slab)
{
	struct rs_donor *d = slab->donor;

	spin_lock_irq(&slab->lock);
	set_state(slab, RS_UNMAPPED);
	slab->donor = NULL;
	slab->closed = false;
	spin_unlock_irq(&slab->lock);
	atomic_dec(&d->n_slabs);
}

void rs_slab_not_mapped(struct rs_slab *slab)
{
	forget(slab);
}

static bool is_unwritten(struct rs_slab *slab)
{
	bool unwritten;

	spin_lock_irq(&slab->lock);
	unwritten = !slab->writers;
	spin_unlock_irq(&slab->lock);
	return unwritten;
}

/* Pages that are written from now on go to the disk alone. Waits until no page is on its way to the donor, or the donor fails. */
void rs_slab_close(struct rs_slab *slab, struct rs_dev *dev)
{
	struct rs_donor *d = slab->donor;

	spin_lock_irq(&slab->lock);
	slab->closed = true;
	spin_unlock_irq(&slab->lock);
	wait_event_idle(dev->wait, is_unwritten(slab) || test_bit(RS_FAILED, &d->flags));
}

void rs_slab_reopen(struct rs_slab *slab)
{
	spin_lock_irq(&slab->lock);
	slab->closed = false;
	spin_unlock_irq(&slab->lock);
}

/*
 * Waits until no I/O is under way at the donor. If the queue pair fails, or has failed, the I/O is ended. The wait does not end
 * while the donor is silent and its queue pair lives.
 */
void rs_slab_unmap(struct rs_slab *slab, struct rs_dev *dev)
{
	unsigned int index = slab - dev->slabs;
	struct rs_donor *d = slab->donor;

	spin_lock_irq(&slab->lock);
	set_state(slab, RS_UNMAPPING);
	spin_unlock_irq(&slab->lock);

	wait_event_idle(dev->wait, is_idle(slab) || test_bit(RS_FAILED, &d->flags));
	if (test_bit(RS_FAILED, &d->flags))
		rs_verbs_drain(d);
	wait_event_idle(dev->wait, is_idle(slab));

	bitmap_clear(dev->remote, (u64)index << dev->slab_shift, rs_slab_pages(dev, index));
	forget(slab);
	rs_count_both(d, RS_UNMAPS);
}

/* Unmaps all slabs of a donor that is not up any more. From its workqueue */
void rs_slabs_leave(struct rs_donor *d)
{
	struct rs_dev *dev = d->dev;
	unsigned int i;

	for (i = 0; i < dev->n_slabs; i++) {
		if (rs_slab_of(&dev->slabs[i], d, RS_MAPPING))
			rs_slab_not_mapped(&dev->slabs[i]);
		else if (rs_slab_of(&dev->slabs[i], d, RS_MAPPED))
			rs_slab_unmap(&dev->slabs[i], dev);
	}
}

/* ------------------------------------------------------------------ sizes */

/* The last slab may be shorter. */
u64 rs_slab_pages(struct rs_dev *dev, unsigned int index)
{
	u64 first = (u64)index << dev->slab_shift;

	return min_t(u64, 1ULL << dev->slab_shift, dev->pages - first);
}

u64 rs_slab_bytes(struct rs_dev *dev, unsigned int index)
{
	return rs_slab_pages(dev, index) * RMEM_PAGE;
}
