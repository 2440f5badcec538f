// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Pages that a donor has, and the disk has not, since it failed to write them. Before their slab is unmapped in an orderly way
 * they are read back and written to the disk again:
 *
 *	1. the slab is closed: what is written there from now on goes to the disk alone, so these pages can only become fewer;
 *	2. the disk has all that was under way to it, or has failed to write it;
 *	3. each page in remote and bad goes from the donor into a buffer, and the buffer to the disk;
 *	4. the disk has, or has not, got these.
 *
 * What is in remote and bad then is lost when the slab is unmapped.
 */

#include <linux/bitmap.h>

#include "rmem_swap.h"

static unsigned long time_left(unsigned long until)
{
	return time_before(jiffies, until) ? until - jiffies : 0;
}

static void wait_for_disk(struct rs_donor *d, unsigned long until)
{
	WRITE_ONCE(d->on_disk, true);
	rs_disk_wait(d, time_left(until));
	WRITE_ONCE(d->steps, d->steps + 1);
	WRITE_ONCE(d->on_disk, false);
}

static struct rs_buf *wait_for_buffer(struct rs_donor *d, unsigned long until)
{
	struct rs_buf *buf = NULL;

	WRITE_ONCE(d->on_disk, true);
	wait_event_idle_timeout(d->dev->wait, (buf = rs_buf_take(d->dev)) || test_bit(RS_FAILED, &d->flags), time_left(until));
	WRITE_ONCE(d->steps, d->steps + 1);
	WRITE_ONCE(d->on_disk, false);
	return buf;
}

/* The last use of @io, which is gone then. Reads find the page in its buffer from here on, whatever becomes of the donor. */
void rs_save_ended(struct rs_io *io, bool ok)
{
	struct rs_dev *dev = io->dev;

	if (ok)
		rs_page_read_back(io);
	io->status = ok ? BLK_STS_OK : BLK_STS_IOERR;
	/* pairs with has_ended() */
	smp_store_release(&io->ended, true);
	wake_up_all(&dev->wait);
}

static bool has_ended(const struct rs_io *io)
{
	/* pairs with rs_save_ended(): status comes before */
	return smp_load_acquire(&io->ended);
}

static void save_page(struct rs_donor *d, u64 index, struct rs_buf *buf)
{
	struct rs_dev *dev = d->dev;
	struct rs_io io = { .dev = dev, .index = index, .saves = true };

	bvec_set_page(&io.bvec, buf->data, RMEM_PAGE, 0);
	if (!rs_page_save(&io, buf)) {
		rs_buf_put(buf);
		return;
	}
	rs_post_all(&io);
	wait_event_idle(dev->wait, has_ended(&io) || test_bit(RS_FAILED, &d->flags));
	if (!has_ended(&io))
		rs_verbs_drain(d);
	wait_event_idle(dev->wait, has_ended(&io));
	rs_page_saved(&io, buf);
}

static void save_slab(struct rs_donor *d, unsigned int index, unsigned long until)
{
	struct rs_dev *dev = d->dev;
	unsigned long first = (unsigned long)index << dev->slab_shift, end = first + rs_slab_pages(dev, index), at;
	struct rs_buf *buf;

	for (at = find_next_and_bit(dev->remote, dev->bad, end, first); at < end;
	     at = find_next_and_bit(dev->remote, dev->bad, end, at + 1)) {
		if (test_bit(RS_FAILED, &d->flags) || !time_left(until))
			return;
		buf = wait_for_buffer(d, until);
		if (!buf)
			return;
		save_page(d, at, buf);
	}
}

static u64 count_lost(struct rs_dev *dev, unsigned int index)
{
	/* (a slab begins at a whole word of the bitmap) */
	unsigned long word = ((unsigned long)index << dev->slab_shift) / BITS_PER_LONG;

	return bitmap_weight_and(dev->remote + word, dev->bad + word, rs_slab_pages(dev, index));
}

static bool has_any(struct rs_donor *d, unsigned int first, unsigned int end)
{
	unsigned int i;

	for (i = first; i < end; i++)
		if (rs_slab_of(&d->dev->slabs[i], d, RS_MAPPED))
			return true;
	return false;
}

/* The donor's slabs from @first to before @end are closed afterwards. Returns how many pages are lost if they are unmapped now. */
u64 rs_save(struct rs_donor *d, unsigned int first, unsigned int end, unsigned long timeout)
{
	struct rs_dev *dev = d->dev;
	unsigned long until = jiffies + timeout;
	unsigned int i;
	u64 lost = 0;

	/* (the disk is not waited for when nothing of the donor goes there) */
	if (test_bit(RS_FAILED, &d->flags) || !has_any(d, first, end))
		return 0;
	for (i = first; i < end; i++)
		if (rs_slab_of(&dev->slabs[i], d, RS_MAPPED))
			rs_slab_close(&dev->slabs[i], dev);
	wait_for_disk(d, until);
	for (i = first; i < end; i++)
		if (rs_slab_of(&dev->slabs[i], d, RS_MAPPED))
			save_slab(d, i, until);
	wait_for_disk(d, until);
	for (i = first; i < end; i++)
		if (rs_slab_of(&dev->slabs[i], d, RS_MAPPED))
			lost += count_lost(dev, i);
	return lost;
}

void rs_save_tell(struct rs_donor *d, u64 lost)
{
	char reason[RS_REASON];

	snprintf(reason, sizeof(reason), "%llu pages are lost: the disk did not take them, donor %.24s has gone", lost, d->name);
	rs_event(d->dev, RMEM_SWAP_DISK_ERROR, NULL, reason, NULL);
}
