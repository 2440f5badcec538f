// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Pages with a write under way, and where a read finds its data.
 *
 * A write copies its data into a buffer and is done with the request's memory. The buffer lives until the disk has the data.
 * As long as a page has a buffer, it has an entry in a hash table; its bucket's lock orders all that happens to the page:
 *
 *	waiting -> active -> (ready ->) writing -> free
 *
 * active	One at a time. If the slab is mapped, the donor gets the data by an RDMA WRITE. Then, or at once if the slab is
 *		not mapped, the buffer goes on to the disk. The request ends before that if the donor has the data and the
 *		request is no FUA; else it is *late*: it stays active until the disk has the data. Requests that come meanwhile
 *		wait in their order.
 * writing	One at a time, so two writes of a page never reach the disk in the wrong order.
 * ready	Goes to the disk after the writing one. A newer buffer takes its place, also among the buffers that a flush waits
 *		for, and the older one is freed. The older one can't be late: a late buffer is active, and no newer buffer gets
 *		past the active one.
 *
 * The page's bit in dev->remote says that the donor has the data of the newest write that has ended, or of a newer write that is
 * under way:
 *	- it is cleared when a write becomes active, before its RDMA WRITE is posted;
 *	- it is set when the RDMA WRITE has completed, and before the reference to the slab is put;
 *	- a slab is unmapped in this order: its state changes, so that no new reference is taken; the last reference is put; its
 *	  bits are cleared. So no bit outlives a mapping. (For this, a mapping needs no generation number.)
 *
 * The page's bit in dev->bad says that the disk failed to write the page, and has old or torn data. The next write that succeeds
 * clears it, and so does a discard. If the disk lacks data of a request that had ended, the bit in dev->owed is set as well, and
 * flushes fail.
 *
 * A read looks, under the bucket's lock:
 *	1. If the page has an entry: its newest buffer. If the buffer's request has not ended, read and write are concurrent, and
 *	   the read may get old or new data.
 *	2. If the slab is mapped and the bit in dev->remote is set: RDMA READ, with a reference to the slab. A write that comes
 *	   meanwhile is concurrent. The read takes the reference before it tests the bit: else the slab could be unmapped, and
 *	   mapped at another donor, between the two.
 *	3. Else the disk. If the page is bad, the read is an error.
 * If an RDMA READ fails, because the donor is lost, the read begins anew at 1.
 *
 * What can meet:
 *	write, write		in their order at the donor, since one is active; in their order on the disk, as above.
 *	write, its donor lost	the write becomes late, and ends with what the disk says. The page's bit stays clear.
 *	write, unmap		the write holds a reference. The unmapping waits for it, and clears the bit that the write set.
 *	unmap, disk not done	reads find the buffer, by 1.
 *	unmap, disk failed	If a write ended early and then failed on the disk, the page is bad, but its donor still has it.
 *				It is saved before an orderly unmapping (save.c). If that fails, or the donor is lost, nobody has
 *				the page: reads fail, as on a disk that fails.
 *	save, anything		A page that is being saved has an active buffer, which is *unread* until the donor has been read.
 *				Until then reads go on at 2. Writes wait. The bit stays set, as the buffer gets the donor's copy.
 *	write, disk failed	if the write is late, its request fails. The page is bad. If the request had ended, the page is
 *				owed, too. If it has a ready buffer, that is written all the same.
 *	discard, anything	clears all bits if the page has no entry. If it has one, the data is newer than the discard, or
 *				concurrent, and the page owes only what is written after the discard. Data on its way to the disk
 *				may arrive there after the discard: a page that was discarded may have any contents.
 *
 * This file and disk.c call each other: a write and its end on the disk are one state machine.
 */

#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/mm.h>

#include "rmem_swap.h"

#define MIN_BUCKETS 16
#define MAX_BUCKETS 4096

static struct rs_bucket *bucket_of(struct rs_dev *dev, u64 index)
{
	return &dev->buckets[hash_64(index, ilog2(dev->n_buckets))];
}

static struct rs_page *find_page(struct rs_bucket *bucket, u64 index)
{
	struct rs_page *page;

	lockdep_assert_held(&bucket->lock);

	hlist_for_each_entry(page, &bucket->pages, node)
		if (page->index == index)
			return page;
	return NULL;
}

/* ------------------------------------------------------------------ buffers */

/* NULL: no buffer is free. The request waits in line, and rs_starved() gives it one. */
struct rs_buf *rs_buf_get(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;
	struct rs_buf *buf = NULL;
	unsigned long flags;

	spin_lock_irqsave(&dev->pool_lock, flags);
	if (list_empty(&dev->starved))
		buf = list_first_entry_or_null(&dev->free_buffers, struct rs_buf, list);
	if (buf) {
		list_del_init(&buf->list);
		dev->n_free--;
	} else {
		list_add_tail(&io->list, &dev->starved);
	}
	spin_unlock_irqrestore(&dev->pool_lock, flags);
	return buf;
}

/* Takes a free buffer, ahead of writes that wait for one. NULL: none is free. */
struct rs_buf *rs_buf_take(struct rs_dev *dev)
{
	struct rs_buf *buf;

	spin_lock_irq(&dev->pool_lock);
	buf = list_first_entry_or_null(&dev->free_buffers, struct rs_buf, list);
	if (buf) {
		list_del_init(&buf->list);
		dev->n_free--;
	}
	spin_unlock_irq(&dev->pool_lock);
	return buf;
}

/* The first request that waits for a buffer, with a buffer for it; NULL if no request waits, or no buffer is free. */
struct rs_io *rs_starved(struct rs_dev *dev, struct rs_buf **buf)
{
	struct rs_io *io = NULL;
	unsigned long flags;

	spin_lock_irqsave(&dev->pool_lock, flags);
	*buf = list_first_entry_or_null(&dev->free_buffers, struct rs_buf, list);
	if (*buf)
		io = list_first_entry_or_null(&dev->starved, struct rs_io, list);
	if (io) {
		list_del_init(&io->list);
		list_del_init(&(*buf)->list);
		dev->n_free--;
	}
	spin_unlock_irqrestore(&dev->pool_lock, flags);
	return io;
}

/*
 * Nobody uses the buffer after this, nor the device, if it is being removed: the thread that waits for all buffers takes the
 * lock, and then the device may be freed.
 */
void rs_buf_put(struct rs_buf *buf)
{
	struct rs_dev *dev = buf->dev;
	unsigned long flags;

	buf->page = NULL;
	buf->io = NULL;
	spin_lock_irqsave(&dev->pool_lock, flags);
	list_add(&buf->list, &dev->free_buffers);
	dev->n_free++;
	if (!list_empty(&dev->starved))
		queue_work(rs_wq, &dev->again_work);
	wake_up_all(&dev->wait);
	spin_unlock_irqrestore(&dev->pool_lock, flags);
}

static bool all_free(struct rs_dev *dev)
{
	bool all;

	spin_lock_irq(&dev->pool_lock);
	all = dev->n_free == dev->n_buffers;
	spin_unlock_irq(&dev->pool_lock);
	return all;
}

/* Waits until all buffers are free. No request is under way that could take one. -EINTR: the task is killed */
int rs_pages_wait(struct rs_dev *dev)
{
	return wait_event_killable(dev->wait, all_free(dev)) ? -EINTR : 0;
}

/* A free entry exists: there are as many as buffers, each page in use has a buffer, and the new page's buffer was free. */
static struct rs_page *new_page(struct rs_dev *dev, struct rs_bucket *bucket, u64 index)
{
	struct rs_page *page;

	lockdep_assert_held(&bucket->lock);

	spin_lock(&dev->pool_lock);
	page = hlist_entry(dev->free_pages.first, struct rs_page, node);
	hlist_del(&page->node);
	spin_unlock(&dev->pool_lock);
	page->index = index;
	hlist_add_head(&page->node, &bucket->pages);
	return page;
}

static void put_page_if_idle(struct rs_dev *dev, struct rs_page *page)
{
	if (page->active || page->ready || page->writing || !list_empty(&page->waiting))
		return;
	hlist_del(&page->node);
	spin_lock(&dev->pool_lock);
	hlist_add_head(&page->node, &dev->free_pages);
	spin_unlock(&dev->pool_lock);
}

/* ------------------------------------------------------------------ writing */

static void to_disk(struct rs_page *page, struct rs_buf *buf)
{
	struct rs_buf *older = page->ready;

	rs_disk_pend(buf, older);
	if (!page->writing) {
		page->writing = buf;
		rs_disk_write(buf);
		return;
	}
	page->ready = buf;
	if (older)
		rs_buf_put(older);
}

/*
 * If no buffer of the page is active, the next one that waits becomes active. Returns a request whose RDMA WRITE the caller must
 * post without the lock, or NULL.
 */
static struct rs_io *run_page(struct rs_dev *dev, struct rs_page *page)
{
	struct rs_buf *buf = list_first_entry_or_null(&page->waiting, struct rs_buf, list);

	if (page->active || !buf)
		return NULL;
	list_del_init(&buf->list);
	page->active = buf;
	clear_bit(page->index, dev->remote);
	if (rs_slab_get(buf->io))
		return buf->io;
	buf->late = buf->alone = true;
	to_disk(page, buf);
	return NULL;
}

struct rs_io *rs_page_write(struct rs_io *io, struct rs_buf *buf)
{
	struct rs_dev *dev = io->dev;
	struct rs_bucket *bucket = bucket_of(dev, io->index);
	struct rs_page *page;
	struct rs_io *post;
	unsigned long flags;

	memcpy_from_bvec(page_address(buf->data), &io->bvec);
	io->buf = buf;
	buf->io = io;
	buf->fua = blk_mq_rq_from_pdu(io)->cmd_flags & REQ_FUA;
	buf->late = buf->fua;
	buf->alone = false;

	spin_lock_irqsave(&bucket->lock, flags);
	page = find_page(bucket, io->index);
	if (!page)
		page = new_page(dev, bucket, io->index);
	buf->page = page;
	list_add_tail(&buf->list, &page->waiting);
	post = run_page(dev, page);
	spin_unlock_irqrestore(&bucket->lock, flags);
	return post;
}

/* The RDMA WRITE has completed, or has failed. Returns a request that the caller must post, or NULL. */
struct rs_io *rs_page_written(struct rs_io *io, bool ok)
{
	struct rs_dev *dev = io->dev;
	struct rs_bucket *bucket = bucket_of(dev, io->index);
	struct rs_buf *buf = io->buf;
	struct rs_page *page = buf->page;
	struct rs_io *post = NULL;
	unsigned long flags;
	bool late;

	spin_lock_irqsave(&bucket->lock, flags);
	if (ok)
		set_bit(io->index, dev->remote);
	else
		buf->late = buf->alone = true;
	late = buf->late;
	if (!late) {
		page->active = NULL;
		buf->io = NULL;
	}
	to_disk(page, buf);
	/* The buffer is pending already. A thread that waits for the last reference to the slab waits for the disk next. */
	rs_slab_put(io);
	if (!late)
		post = run_page(dev, page);
	spin_unlock_irqrestore(&bucket->lock, flags);
	/* A flush that comes after the end of the request waits for the buffer, which is pending already. */
	if (!late)
		rs_io_end(io, BLK_STS_OK);
	return post;
}

/* The disk lacks data of the page. */
static void set_bad(struct rs_buf *buf)
{
	struct rs_dev *dev = buf->dev;

	set_bit(buf->page->index, dev->bad);
	if (buf->owed && !test_and_set_bit(buf->page->index, dev->owed))
		atomic64_inc(&dev->n_owed);
}

/* The disk has the page, or need not have it. */
static void clear_bad(struct rs_dev *dev, u64 index)
{
	if (!test_bit(index, dev->bad))
		return;
	clear_bit(index, dev->bad);
	if (test_and_clear_bit(index, dev->owed))
		atomic64_dec(&dev->n_owed);
}

/* A write to the disk has ended. From any context; the caller puts the buffer. */
void rs_page_on_disk(struct rs_buf *buf, blk_status_t status)
{
	struct rs_dev *dev = buf->dev;
	struct rs_page *page = buf->page;
	struct rs_bucket *bucket = bucket_of(dev, page->index);
	struct rs_io *io = buf->late ? buf->io : NULL, *post;
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	if (status)
		set_bad(buf);
	else
		clear_bad(dev, page->index);
	if (buf->late)
		page->active = NULL;
	page->writing = page->ready;
	page->ready = NULL;
	if (page->writing)
		rs_disk_write(page->writing);
	post = run_page(dev, page);
	put_page_if_idle(dev, page);
	spin_unlock_irqrestore(&bucket->lock, flags);

	if (io)
		rs_io_end(io, status);
	if (post)
		rs_io_again(post);
}

/* ------------------------------------------------------------------ reading */

static struct rs_buf *newest(struct rs_page *page)
{
	if (!list_empty(&page->waiting))
		return list_last_entry(&page->waiting, struct rs_buf, list);
	return page->active ?: page->ready ?: page->writing;
}

/* Does the donor have the page? If so, @io gets a reference to the slab. */
static bool get_remote(struct rs_io *io)
{
	if (!rs_slab_get(io))
		return false;
	if (test_bit(io->index, io->dev->remote))
		return true;
	rs_slab_put(io);
	return false;
}

/* RS_FROM_BUFFER: @io has the data already. RS_FROM_DONOR: @io has a reference to the slab. */
enum rs_source rs_page_read(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;
	struct rs_bucket *bucket = bucket_of(dev, io->index);
	enum rs_source source = RS_FROM_DISK;
	struct rs_page *page;
	struct rs_buf *buf;
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	page = find_page(bucket, io->index);
	buf = page ? newest(page) : NULL;
	if (buf && !buf->unread) {
		memcpy_to_bvec(&io->bvec, page_address(buf->data));
		source = RS_FROM_BUFFER;
	} else if (get_remote(io)) {
		source = RS_FROM_DONOR;
	} else if (test_bit(io->index, dev->bad)) {
		source = RS_FROM_NOWHERE;
	}
	spin_unlock_irqrestore(&bucket->lock, flags);
	return source;
}

/* ------------------------------------------------------------------ saving */

/*
 * @io has the memory of @buf, which was free, and reads the page from the donor into it next. False if there is nothing to save
 * any more, for example since the page was written anew meanwhile.
 */
bool rs_page_save(struct rs_io *io, struct rs_buf *buf)
{
	struct rs_dev *dev = io->dev;
	struct rs_bucket *bucket = bucket_of(dev, io->index);
	unsigned long flags;
	bool ok;

	spin_lock_irqsave(&bucket->lock, flags);
	ok = !find_page(bucket, io->index) && test_bit(io->index, dev->bad) && get_remote(io);
	if (ok) {
		buf->late = true;
		buf->fua = true;
		buf->alone = false;
		buf->unread = true;
		buf->page = new_page(dev, bucket, io->index);
		buf->page->active = buf;
	}
	spin_unlock_irqrestore(&bucket->lock, flags);
	return ok;
}

/* The donor has been read: the data is in the buffer. */
static void read_back(struct rs_io *io)
{
	struct rs_bucket *bucket = bucket_of(io->dev, io->index);
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	find_page(bucket, io->index)->active->unread = false;
	spin_unlock_irqrestore(&bucket->lock, flags);
}

/* @io may be gone after this. If @ok, reads find the page in its buffer from now on, whatever becomes of the donor. */
void rs_save_ended(struct rs_io *io, bool ok)
{
	struct rs_dev *dev = io->dev;

	if (ok)
		read_back(io);
	io->status = ok ? BLK_STS_OK : BLK_STS_IOERR;
	/* pairs with has_ended() in save.c */
	smp_store_release(&io->ended, true);
	wake_up_all(&dev->wait);
}

/* The donor has been read, or has failed. */
void rs_page_saved(struct rs_io *io, struct rs_buf *buf)
{
	struct rs_dev *dev = io->dev;
	struct rs_bucket *bucket = bucket_of(dev, io->index);
	struct rs_page *page = buf->page;
	struct rs_io *post = NULL;
	unsigned long flags;

	spin_lock_irqsave(&bucket->lock, flags);
	rs_slab_put(io);
	if (io->status) {
		buf->unread = false;
		page->active = NULL;
		post = run_page(dev, page);
		put_page_if_idle(dev, page);
	} else {
		to_disk(page, buf);
	}
	spin_unlock_irqrestore(&bucket->lock, flags);
	if (io->status)
		rs_buf_put(buf);
	if (post)
		rs_io_again(post);
}

/* ------------------------------------------------------------------ discarding */

/* No flush fails any more because of data from before the discard, even if the write of this data to the disk fails later. */
static void forget_owed(struct rs_dev *dev, struct rs_page *page)
{
	if (page->writing)
		page->writing->owed = false;
	if (page->ready)
		page->ready->owed = false;
	if (test_and_clear_bit(page->index, dev->owed))
		atomic64_dec(&dev->n_owed);
}

static void discard(struct rs_dev *dev, u64 index)
{
	struct rs_bucket *bucket = bucket_of(dev, index);
	struct rs_page *page;

	spin_lock_irq(&bucket->lock);
	page = find_page(bucket, index);
	if (page) {
		forget_owed(dev, page);
	} else {
		clear_bit(index, dev->remote);
		clear_bad(dev, index);
	}
	spin_unlock_irq(&bucket->lock);
}

/* A page whose data is on its way to the disk may have neither bit: its slab was unmapped, or the page has newer data. */
static void forget_pending(struct rs_dev *dev, u64 first, u64 end)
{
	struct rs_bucket *bucket;
	struct rs_page *page;

	if (end - first < dev->n_buckets) {
		for (; first < end; first++) {
			discard(dev, first);
			cond_resched();
		}
		return;
	}
	for (bucket = dev->buckets; bucket < dev->buckets + dev->n_buckets; bucket++) {
		spin_lock_irq(&bucket->lock);
		hlist_for_each_entry(page, &bucket->pages, node)
			if (page->index >= first && page->index < end)
				forget_owed(dev, page);
		spin_unlock_irq(&bucket->lock);
		cond_resched();
	}
}

void rs_pages_discard(struct rs_dev *dev, u64 first, u64 count)
{
	u64 end = first + count;
	u64 index;

	for (index = find_next_or_bit(dev->remote, dev->bad, end, first); index < end;
	     index = find_next_or_bit(dev->remote, dev->bad, end, index + 1)) {
		discard(dev, index);
		cond_resched();
	}
	if (READ_ONCE(dev->n_pending))
		forget_pending(dev, first, end);
	atomic64_add(count, &dev->stats.n[RS_DISCARDED]);
}

/* ------------------------------------------------------------------ memory */

static int make_buffer(struct rs_dev *dev, unsigned int i)
{
	struct rs_buf *buf = &dev->buffers[i];
	struct rs_page *page = &dev->page_array[i];

	buf->data = alloc_page(GFP_KERNEL);
	if (!buf->data)
		return -ENOMEM;
	buf->dev = dev;
	INIT_LIST_HEAD(&buf->pending);
	list_add_tail(&buf->list, &dev->free_buffers);
	dev->n_free++;
	INIT_LIST_HEAD(&page->waiting);
	hlist_add_head(&page->node, &dev->free_pages);
	return 0;
}

/* rs_pages_free() frees what this has made, also if it fails. */
int rs_pages_init(struct rs_dev *dev, u32 buffers)
{
	unsigned int i;
	int ret = 0;

	dev->n_buffers = buffers;
	dev->n_buckets = clamp_t(unsigned int, roundup_pow_of_two(buffers), MIN_BUCKETS, MAX_BUCKETS);
	dev->buffers = kvcalloc(buffers, sizeof(*dev->buffers), GFP_KERNEL);
	dev->page_array = kvcalloc(buffers, sizeof(*dev->page_array), GFP_KERNEL);
	dev->buckets = kvcalloc(dev->n_buckets, sizeof(*dev->buckets), GFP_KERNEL);
	dev->remote = kvcalloc(BITS_TO_LONGS(dev->pages), sizeof(long), GFP_KERNEL);
	dev->bad = kvcalloc(BITS_TO_LONGS(dev->pages), sizeof(long), GFP_KERNEL);
	dev->owed = kvcalloc(BITS_TO_LONGS(dev->pages), sizeof(long), GFP_KERNEL);
	if (!dev->buffers || !dev->page_array || !dev->buckets || !dev->remote || !dev->bad || !dev->owed)
		return -ENOMEM;
	for (i = 0; i < dev->n_buckets; i++)
		spin_lock_init(&dev->buckets[i].lock);
	for (i = 0; i < buffers && !ret; i++)
		ret = make_buffer(dev, i);
	return ret;
}

void rs_pages_free(struct rs_dev *dev)
{
	unsigned int i;

	for (i = 0; dev->buffers && i < dev->n_buffers; i++)
		if (dev->buffers[i].data)
			__free_page(dev->buffers[i].data);
	kvfree(dev->owed);
	kvfree(dev->bad);
	kvfree(dev->remote);
	kvfree(dev->buckets);
	kvfree(dev->page_array);
	kvfree(dev->buffers);
}
