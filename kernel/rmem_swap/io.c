// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A request of the block layer ends, or is handed back to queue.c, which runs it again. And requests that wait on a list. */

#include "rmem_swap.h"

void rs_io_end(struct rs_io *io, blk_status_t status)
{
	io->status = status;
	blk_mq_complete_request(blk_mq_rq_from_pdu(io));
}

/* again_work will post the request, if it holds a reference to its slab, or else run it anew. */
void rs_io_again(struct rs_io *io)
{
	struct rs_dev *dev = io->dev;
	unsigned long flags;

	spin_lock_irqsave(&dev->pool_lock, flags);
	list_add_tail(&io->list, &dev->again);
	spin_unlock_irqrestore(&dev->pool_lock, flags);
	queue_work(rs_wq, &dev->again_work);
}

/* Takes the first request off @list, which @lock protects. NULL: no request waits there. */
struct rs_io *rs_io_take(struct list_head *list, spinlock_t *lock)
{
	struct rs_io *io;

	spin_lock_irq(lock);
	io = list_first_entry_or_null(list, struct rs_io, list);
	if (io)
		list_del_init(&io->list);
	spin_unlock_irq(lock);
	return io;
}
