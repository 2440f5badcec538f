// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Pages that a donor has, but not the disk, which failed to write them. Before their slab is unmapped in an orderly way, these
 * pages are read back and written to the disk again, in two passes of three steps:
 *
 *	1. wait until the disk has all that is under way to it, or has failed to write it;
 *	2. read each page in remote and bad from the donor into a buffer, and write the buffer to the disk;
 *	3. wait until the disk has these pages, or has failed to write them.
 *
 * In the first pass the slab is open: the donor takes what is written, so that no write fails while the disk fails. If the disk
 * has got all pages, the slab is closed: later writes go to the disk alone, so that pages in remote and bad can only become
 * fewer. The second pass saves the pages that have come meanwhile. If the disk has not got all pages, the donor stays. (An
 * eviction takes place in any case, and so does its second pass.)
 *
 * Pages that are still in remote and bad after that are lost when the slab is unmapped.
 */

#include <linux/bitmap.h>

#include "rmem_swap.h"

static unsigned long time_left(unsigned long until)
{
	return time_before(jiffies, until) ? until - jiffies : 0;
}

/* What is saved, and until when. */
struct saving {
	struct rs_donor *d;
	unsigned int first, end;	/* slabs, before the last */
	bool limited;
	unsigned long until;		/* jiffies, if limited */
	void (*evictions)(struct rs_donor *d);	/* handles evictions while the donor leaves; else NULL */
};

static unsigned long patience(const struct saving *s)
{
	return s->limited ? time_left(s->until) : MAX_SCHEDULE_TIMEOUT;
}

static bool is_over(const struct saving *s)
{
	return test_bit(RS_FAILED, &s->d->flags) || !patience(s) || (s->evictions && READ_ONCE(s->d->lingers));
}

/* ------------------------------------------------------------------ waiting for the disk */

/*
 * Does the donor take a slab back? The time of grace does not become longer because the disk stands still. So while all slabs
 * are being saved, evictions are handled in between.
 */
static bool is_asked(const struct saving *s)
{
	return s->evictions && READ_ONCE(s->d->n_evicts);
}

static void begin_wait(const struct saving *s)
{
	WRITE_ONCE(s->d->on_disk, true);
}

static void end_wait(const struct saving *s)
{
	WRITE_ONCE(s->d->steps, s->d->steps + 1);
	WRITE_ONCE(s->d->on_disk, false);
}

/* Waits until the disk has all that was pending when this began, or has failed to write it. */
static void wait_for_disk(const struct saving *s)
{
	struct rs_dev *dev = s->d->dev;
	u64 seq = rs_disk_seq(dev);

	while (!rs_disk_has(dev, seq) && !is_over(s)) {
		begin_wait(s);
		wait_event_idle_timeout(dev->wait, rs_disk_has(dev, seq) || is_over(s) || is_asked(s), patience(s));
		end_wait(s);
		if (is_asked(s))
			s->evictions(s->d);
	}
}

/* A free buffer; NULL if is_over() comes first */
static struct rs_buf *wait_for_buffer(const struct saving *s)
{
	struct rs_dev *dev = s->d->dev;
	struct rs_buf *buf = NULL;

	while (!buf && !is_over(s)) {
		begin_wait(s);
		wait_event_idle_timeout(dev->wait, (buf = rs_buf_take(dev)) || is_over(s) || is_asked(s), patience(s));
		end_wait(s);
		if (!buf && is_asked(s))
			s->evictions(s->d);
	}
	return buf;
}

/* ------------------------------------------------------------------ a page, a slab, all */

static bool has_ended(const struct rs_io *io)
{
	/* pairs with rs_save_ended() in page.c: status comes before */
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

static void save_slab(const struct saving *s, unsigned int index)
{
	struct rs_dev *dev = s->d->dev;
	unsigned long first = (unsigned long)index << dev->slab_shift, end = first + rs_slab_pages(dev, index), at;
	struct rs_buf *buf;

	for (at = find_next_and_bit(dev->remote, dev->bad, end, first); at < end && !is_over(s);
	     at = find_next_and_bit(dev->remote, dev->bad, end, at + 1)) {
		buf = wait_for_buffer(s);
		if (!buf)
			return;
		save_page(s->d, at, buf);
	}
}

static u64 count_alone(struct rs_dev *dev, unsigned int index)
{
	/* A slab begins at a whole word of the bitmap. */
	unsigned long word = ((unsigned long)index << dev->slab_shift) / BITS_PER_LONG;

	return bitmap_weight_and(dev->remote + word, dev->bad + word, rs_slab_pages(dev, index));
}

/* How many pages of these slabs are at this donor alone; they are lost if the slabs are unmapped now. */
u64 rs_alone(struct rs_donor *d, unsigned int first, unsigned int end)
{
	unsigned int i;
	u64 n = 0;

	for (i = first; i < end; i++)
		if (rs_slab_of(&d->dev->slabs[i], d, RS_MAPPED))
			n += count_alone(d->dev, i);
	return n;
}

/* A donor that leaves may take slabs back meanwhile, and must not wait for longer than the time of grace. */
static u64 pass(const struct saving *s)
{
	struct rs_donor *d = s->d;
	unsigned int i;

	wait_for_disk(s);
	for (i = s->first; i < s->end && !is_over(s); i++) {
		if (s->evictions)
			s->evictions(d);
		if (rs_slab_of(&d->dev->slabs[i], d, RS_MAPPED))
			save_slab(s, i);
	}
	if (!is_over(s))
		wait_for_disk(s);
	return rs_alone(d, s->first, s->end);
}

static void close_slabs(const struct saving *s)
{
	struct rs_dev *dev = s->d->dev;
	unsigned int i;

	for (i = s->first; i < s->end; i++)
		if (rs_slab_of(&dev->slabs[i], s->d, RS_MAPPED))
			rs_slab_close(&dev->slabs[i], dev);
}

static bool has_any(const struct saving *s)
{
	struct rs_dev *dev = s->d->dev;
	unsigned int i;

	for (i = s->first; i < s->end; i++)
		if (rs_slab_of(&dev->slabs[i], s->d, RS_MAPPED))
			return true;
	return false;
}

/*
 * Saves all slabs of a donor that leaves; @evictions handles those that it takes back meanwhile. Returns how many pages are lost
 * if the slabs are unmapped now. The slabs are closed for the second pass. This waits for the disk as long as it takes: what is on
 * its way to a disk that stands still may fail there later, and then the donor alone has it.
 */
u64 rs_save_all(struct rs_donor *d, void (*evictions)(struct rs_donor *d))
{
	struct saving s = { .d = d, .end = d->dev->n_slabs, .evictions = evictions };
	u64 alone;

	/* Nothing of this donor goes to the disk, so do not wait for the disk. */
	if (test_bit(RS_FAILED, &d->flags) || !has_any(&s))
		return 0;
	alone = pass(&s);
	if (alone || is_over(&s))
		return alone;
	close_slabs(&s);
	return pass(&s);
}

/* Saves a slab that the donor takes back, and closes it. Returns how many pages are lost when it is unmapped now. */
u64 rs_save_slab(struct rs_donor *d, unsigned int index, unsigned long until)
{
	struct saving s = {
		.d = d, .first = index, .end = index + 1, .limited = true, .until = jiffies + time_left(until) / 2,
	};

	if (!test_bit(RS_FAILED, &d->flags))
		pass(&s);
	s.until = until;
	close_slabs(&s);
	return test_bit(RS_FAILED, &d->flags) ? 0 : pass(&s);
}

void rs_save_tell(struct rs_donor *d, u64 lost)
{
	char reason[RS_REASON];

	snprintf(reason, sizeof(reason), "%llu pages are lost: the disk did not take them, donor %.24s has gone", lost, d->name);
	rs_event(d->dev, RMEM_SWAP_DISK_ERROR, NULL, reason, NULL);
}
