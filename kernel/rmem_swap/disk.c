// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The disk below. Its bios lie in the buffer or the request that they are for, so that none is allocated. read_work submits reads,
 * and disk_work submits all others. The task that brings us a request must not submit a bio: it may hold a plug, or a list of bios
 * that are submitted when the task returns. A bio of ours on that list would wait for the task, and the task may wait for this bio.
 *
 * These works sleep while the disk takes no more. So each device has a workqueue for each of the two works, whose rescuer nothing
 * else waits for. A read need not keep its order with the other bios: a page with a buffer is read from the buffer, until the disk
 * has it.
 *
 * dev->pending has the buffers that the disk does not have yet, in the order in which their data was ready for the disk. A flush
 * waits until the disk has all buffers that were pending before the flush came. Then it has the disk flushed. A buffer that
 * replaces an older one of its page takes the older one's place here, too. If a write ends early and then fails on the disk, all
 * flushes fail until the page is written again or discarded. The same is true if a buffer fails that replaced the buffer of such a
 * write, even though its own request has not ended.
 *
 * This file and page.c call each other: a write and its end on the disk are one state machine.
 */

#include <linux/netlink.h>
#include <linux/sched/mm.h>

#include "rmem_swap.h"

static void submit_later(struct rs_dev *dev)
{
	queue_work(dev->disk_wq, &dev->disk_work);
}

/* ------------------------------------------------------------------ pending */

static bool is_flushed(struct rs_dev *dev, u64 seq)
{
	struct rs_buf *first = list_first_entry_or_null(&dev->pending, struct rs_buf, pending);

	lockdep_assert_held(&dev->disk_lock);

	return !first || first->seq >= seq;
}

/* @instead_of may be NULL. */
void rs_disk_pend(struct rs_buf *buf, struct rs_buf *instead_of)
{
	struct rs_dev *dev = buf->dev;
	unsigned long flags;

	spin_lock_irqsave(&dev->disk_lock, flags);
	buf->owed = !buf->late || (instead_of && instead_of->owed);
	if (instead_of) {
		buf->seq = instead_of->seq;
		list_replace_init(&instead_of->pending, &buf->pending);
	} else {
		buf->seq = dev->seq++;
		list_add_tail(&buf->pending, &dev->pending);
		dev->n_pending++;
	}
	spin_unlock_irqrestore(&dev->disk_lock, flags);
}

static void unpend(struct rs_buf *buf)
{
	struct rs_dev *dev = buf->dev;
	struct rs_io *io, *next;
	unsigned long flags;
	bool any = false;

	spin_lock_irqsave(&dev->disk_lock, flags);
	list_del_init(&buf->pending);
	dev->n_pending--;
	list_for_each_entry_safe(io, next, &dev->flushes, list) {
		if (!is_flushed(dev, io->seq))
			break;
		list_move_tail(&io->list, &dev->ios_to_disk);
		any = true;
	}
	spin_unlock_irqrestore(&dev->disk_lock, flags);
	if (any)
		submit_later(dev);
}

/* The buffers that are pending now have numbers below this. */
u64 rs_disk_seq(struct rs_dev *dev)
{
	u64 seq;

	spin_lock_irq(&dev->disk_lock);
	seq = dev->seq;
	spin_unlock_irq(&dev->disk_lock);
	return seq;
}

/* Does the disk have all buffers before @seq, or has it failed to write them? */
bool rs_disk_has(struct rs_dev *dev, u64 seq)
{
	bool has;

	spin_lock_irq(&dev->disk_lock);
	has = is_flushed(dev, seq);
	spin_unlock_irq(&dev->disk_lock);
	return has;
}

/* Waits until the disk has all that is pending now, or has failed to write it. -EINTR: the task is killed */
int rs_disk_wait(struct rs_dev *dev)
{
	u64 seq = rs_disk_seq(dev);

	return wait_event_killable(dev->wait, rs_disk_has(dev, seq)) ? -EINTR : 0;
}

/* ------------------------------------------------------------------ writes */

static void written(struct bio *bio)
{
	struct rs_buf *buf = bio->bi_private;
	struct rs_dev *dev = buf->dev;
	blk_status_t status = bio->bi_status;

	bio_uninit(bio);
	if (status) {
		rs_count(&dev->stats, RS_DISK_ERRORS);
		atomic_inc(&dev->disk_failed);
	} else if (buf->alone && buf->io) {
		/* A buffer of save.c has no request. */
		rs_count(&dev->stats, RS_OUT_DISK);
	}
	rs_page_on_disk(buf, status);
	unpend(buf);
	rs_buf_put(buf);
}

/* From any context; the bucket's lock is held. */
void rs_disk_write(struct rs_buf *buf)
{
	struct rs_dev *dev = buf->dev;
	unsigned long flags;

	spin_lock_irqsave(&dev->disk_lock, flags);
	list_add_tail(&buf->list, &dev->to_disk);
	spin_unlock_irqrestore(&dev->disk_lock, flags);
	submit_later(dev);
}

static void submit_write(struct rs_buf *buf)
{
	struct rs_dev *dev = buf->dev;
	blk_opf_t opf = REQ_OP_WRITE | (buf->fua ? REQ_FUA | REQ_SYNC : buf->late ? REQ_SYNC : 0);

	bio_init(&buf->bio, dev->disk, &buf->bvec, 1, opf);
	buf->bio.bi_iter.bi_sector = buf->page->index * RS_PAGE_SECTORS;
	buf->bio.bi_private = buf;
	buf->bio.bi_end_io = written;
	__bio_add_page(&buf->bio, buf->data, RMEM_PAGE, 0);
	submit_bio(&buf->bio);
}

/* ------------------------------------------------------------------ reads, flushes, discards */

static void io_done(struct bio *bio)
{
	struct rs_io *io = bio->bi_private;
	blk_status_t status = bio->bi_status;

	bio_uninit(bio);
	rs_io_end(io, status);
}

static void flush_done(struct bio *bio)
{
	struct rs_io *io = bio->bi_private;

	if (io->fails)
		bio->bi_status = BLK_STS_IOERR;
	io_done(bio);
}

static void init_bio(struct rs_io *io, struct bio_vec *table, blk_opf_t opf)
{
	bio_init(&io->bio, io->dev->disk, table, table ? 1 : 0, opf);
	io->bio.bi_private = io;
	io->bio.bi_end_io = io_done;
}

static void submit_read(struct rs_io *io)
{
	struct bio_vec at = io->bvec;

	init_bio(io, &io->bvec, REQ_OP_READ);
	io->bio.bi_iter.bi_sector = io->index * RS_PAGE_SECTORS;
	__bio_add_page(&io->bio, at.bv_page, at.bv_len, at.bv_offset);
	submit_bio(&io->bio);
}

/* The pages are counted before the disk is flushed: a page that is written again meanwhile may stay in the disk's cache. */
static void submit_flush(struct rs_io *io)
{
	io->fails = atomic64_read(&io->dev->n_owed);
	init_bio(io, NULL, REQ_OP_WRITE | REQ_PREFLUSH | REQ_SYNC);
	io->bio.bi_end_io = flush_done;
	submit_bio(&io->bio);
}

static void submit_discard(struct rs_io *io)
{
	init_bio(io, NULL, REQ_OP_DISCARD);
	io->bio.bi_iter.bi_sector = io->index * RS_PAGE_SECTORS;
	io->bio.bi_iter.bi_size = blk_rq_bytes(blk_mq_rq_from_pdu(io));
	submit_bio(&io->bio);
}

static void submit_io(struct rs_io *io)
{
	if (req_op(blk_mq_rq_from_pdu(io)) == REQ_OP_FLUSH)
		submit_flush(io);
	else
		submit_discard(io);
}

static void io_to_disk(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;

	spin_lock_irq(&dev->disk_lock);
	list_add_tail(&io->list, &dev->ios_to_disk);
	spin_unlock_irq(&dev->disk_lock);
	submit_later(dev);
}

void rs_disk_read(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;

	spin_lock_irq(&dev->disk_lock);
	list_add_tail(&io->list, &dev->reads);
	spin_unlock_irq(&dev->disk_lock);
	queue_work(dev->read_wq, &dev->read_work);
}

void rs_disk_flush(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;
	bool now;

	spin_lock_irq(&dev->disk_lock);
	io->seq = dev->seq;
	now = is_flushed(dev, io->seq);
	list_add_tail(&io->list, now ? &dev->ios_to_disk : &dev->flushes);
	spin_unlock_irq(&dev->disk_lock);
	if (now)
		submit_later(dev);
}

void rs_disk_discard(struct rs_io *io)
{
	if (bdev_max_discard_sectors(io->dev->disk))
		io_to_disk(io);
	else
		rs_io_end(io, BLK_STS_OK);
}

static struct rs_buf *next_write(struct rs_dev *dev)
{
	struct rs_buf *buf;

	spin_lock_irq(&dev->disk_lock);
	buf = list_first_entry_or_null(&dev->to_disk, struct rs_buf, list);
	if (buf)
		list_del_init(&buf->list);
	spin_unlock_irq(&dev->disk_lock);
	return buf;
}

/* One of each goes in turn. So a flush need not wait for all writes that wait, if the disk takes no more for now. */
void rs_disk_work(struct work_struct *work)
{
	struct rs_dev *dev = container_of(work, struct rs_dev, disk_work);
	unsigned int noio = memalloc_noio_save();
	struct blk_plug plug;
	struct rs_buf *buf;
	struct rs_io *io;

	blk_start_plug(&plug);
	do {
		io = rs_io_take(&dev->ios_to_disk, &dev->disk_lock);
		if (io)
			submit_io(io);
		buf = next_write(dev);
		if (buf)
			submit_write(buf);
	} while (io || buf);
	blk_finish_plug(&plug);
	memalloc_noio_restore(noio);
}

void rs_read_work(struct work_struct *work)
{
	struct rs_dev *dev = container_of(work, struct rs_dev, read_work);
	unsigned int noio = memalloc_noio_save();
	struct blk_plug plug;
	struct rs_io *io;

	blk_start_plug(&plug);
	while ((io = rs_io_take(&dev->reads, &dev->disk_lock)))
		submit_read(io);
	blk_finish_plug(&plug);
	memalloc_noio_restore(noio);
}

/* ------------------------------------------------------------------ open, close */

static int fits(struct rs_dev *dev, struct netlink_ext_ack *extack)
{
	u64 size = bdev_nr_bytes(dev->disk);

	if (bdev_logical_block_size(dev->disk) > RMEM_PAGE) {
		NL_SET_ERR_MSG(extack, "the disk has blocks of more than 4096 bytes");
		return -EINVAL;
	}
	if (dev->pages > size / RMEM_PAGE) {
		NL_SET_ERR_MSG(extack, "the disk is smaller than that");
		return -ENOSPC;
	}
	if (!dev->pages)
		dev->pages = size / RMEM_PAGE;
	if (!dev->pages) {
		NL_SET_ERR_MSG(extack, "the disk is empty");
		return -ENOSPC;
	}
	return 0;
}

int rs_disk_open(struct rs_dev *dev, const char *path, struct netlink_ext_ack *extack)
{
	int ret;

	dev->disk_path = kstrdup(path, GFP_KERNEL);
	if (!dev->disk_path)
		return -ENOMEM;
	dev->disk_file = bdev_file_open_by_path(path, BLK_OPEN_READ | BLK_OPEN_WRITE, dev, NULL);
	if (IS_ERR(dev->disk_file)) {
		ret = PTR_ERR(dev->disk_file);
		dev->disk_file = NULL;
		NL_SET_ERR_MSG(extack, "the disk can't be opened for this device alone");
		return ret;
	}
	dev->disk = file_bdev(dev->disk_file);
	return fits(dev, extack);
}

void rs_disk_close(struct rs_dev *dev)
{
	if (dev->disk_file)
		bdev_fput(dev->disk_file);
}
