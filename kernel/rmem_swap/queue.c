// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests of the block layer. Each read and write is of one page (max_hw_sectors), so none crosses slabs.
 *
 * A request is started once, when it comes. If it has to wait, it waits on a list of ours. No request fails because it
 * takes long. If a donor is silent for good, its queue pair fails after some seconds, and then its requests go to the
 * disk. While its queue pair lives, requests wait, since the donor may be moving.
 */

#include <linux/sched/mm.h>

#include "rmem_swap.h"

static void run_read(struct rs_io *io)
{
	struct rs_stats *stats = &io->dev->stats;

	switch (rs_page_read(io)) {
	case RS_FROM_BUFFER:
		rs_count(stats, RS_IN_BUFFER);
		rs_io_end(io, BLK_STS_OK);
		break;
	case RS_FROM_DONOR:
		rs_post_all(io);
		break;
	case RS_FROM_DISK:
		rs_count(stats, RS_IN_DISK);
		rs_disk_read(io);
		break;
	case RS_FROM_NOWHERE:
		rs_io_end(io, BLK_STS_IOERR);
		break;
	}
}

static void run_write(struct rs_io *io)
{
	struct rs_buf *buf = rs_buf_get(io);

	if (buf)
		rs_post_all(rs_page_write(io, buf));
}

static void run_discard(struct rs_io *io)
{
	struct request *rq = blk_mq_rq_from_pdu(io);

	rs_pages_discard(io->dev, io->index, blk_rq_sectors(rq) / RS_PAGE_SECTORS);
	rs_disk_discard(io);
}

static bool take_memory(struct rs_io *io)
{
	struct request *rq = blk_mq_rq_from_pdu(io);

	io->bvec = bio_iovec(rq->bio);
	return blk_rq_bytes(rq) == RMEM_PAGE && io->bvec.bv_len == RMEM_PAGE;
}

static void run(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;
	enum req_op op = req_op(blk_mq_rq_from_pdu(io));

	switch (op) {
	case REQ_OP_READ:
	case REQ_OP_WRITE:
		if (!take_memory(io)) {
			rs_io_end(io, BLK_STS_IOERR);
			break;
		}
		atomic_inc(&dev->slabs[io->index >> dev->slab_shift].ios);
		if (op == REQ_OP_READ)
			run_read(io);
		else
			run_write(io);
		break;
	case REQ_OP_FLUSH:
		rs_disk_flush(io);
		break;
	case REQ_OP_DISCARD:
		run_discard(io);
		break;
	default:
		rs_io_end(io, BLK_STS_NOTSUPP);
	}
}

/* A discard of many pages may sleep, so the tags have BLK_MQ_F_BLOCKING. */
static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	struct request *rq = data->rq;
	struct rs_io *io = blk_mq_rq_to_pdu(rq);
	unsigned int noio = memalloc_noio_save();

	io->dev = rq->q->queuedata;
	io->index = blk_rq_pos(rq) / RS_PAGE_SECTORS;
	io->slab = NULL;
	WRITE_ONCE(io->donor, NULL);
	io->buf = NULL;
	io->saves = false;
	INIT_LIST_HEAD(&io->list);
	blk_mq_start_request(rq);
	run(io);
	memalloc_noio_restore(noio);
	return BLK_STS_OK;
}

static void complete_rq(struct request *rq)
{
	struct rs_io *io = blk_mq_rq_to_pdu(rq);

	blk_mq_end_request(rq, io->status);
}

static enum blk_eh_timer_return timed_out(struct request *rq)
{
	return BLK_EH_RESET_TIMER;
}

/*
 * When a flush of the disk ends, it may end a flush of ours, under the lock of the
 * disk's flush queue. So lockdep gets another class for the locks of our queues.
 */
static struct lock_class_key flush_key;

static int init_hctx(struct blk_mq_hw_ctx *hctx, void *data, unsigned int index)
{
	blk_mq_hctx_set_fq_lock_class(hctx, &flush_key);
	return 0;
}

/*
 * Reads have hardware queues of their own, and so tags of their own. Writes may wait for a buffer or for the disk, with all of
 * their tags, and no read waits for them.
 */
static void map_queues(struct blk_mq_tag_set *tags)
{
	unsigned int queues = tags->nr_hw_queues / tags->nr_maps, type;

	for (type = 0; type < tags->nr_maps; type++) {
		tags->map[type].nr_queues = queues;
		tags->map[type].queue_offset = type * queues;
		blk_mq_map_queues(&tags->map[type]);
	}
}

const struct blk_mq_ops rs_mq_ops = {
	.queue_rq = queue_rq,
	.map_queues = map_queues,
	.init_hctx = init_hctx,
	.complete = complete_rq,
	.timeout = timed_out,
};

void rs_again_work(struct work_struct *work)
{
	struct rs_dev *dev = container_of(work, struct rs_dev, again_work);
	unsigned int noio = memalloc_noio_save();
	struct rs_buf *buf;
	struct rs_io *io;

	while ((io = rs_io_take(&dev->again, &dev->pool_lock))) {
		if (io->slab)
			rs_post_all(io);
		else
			run_read(io);
	}
	while ((io = rs_starved(dev, &buf)))
		rs_post_all(rs_page_write(io, buf));
	memalloc_noio_restore(noio);
}

/* ------------------------------------------------------------------ status */

struct stalled {
	struct rs_donor *donor;
	u32 count;
};

static bool count_stalled(struct request *rq, void *data)
{
	struct stalled *stalled = data;
	struct rs_io *io = blk_mq_rq_to_pdu(rq);

	if (READ_ONCE(io->donor) == stalled->donor && time_after(jiffies, READ_ONCE(io->posted) + HZ))
		stalled->count++;
	return true;
}

u32 rs_stalled(struct rs_donor *d)
{
	struct stalled stalled = { .donor = d };

	blk_mq_tagset_busy_iter(&d->dev->tags, count_stalled, &stalled);
	return stalled.count;
}
