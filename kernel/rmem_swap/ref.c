// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * References to a device. The list of devices holds one, and so do each donor and each request of netlink. The device is freed
 * when the last one is put.
 */

#include "rmem_swap.h"

void rs_dev_get(struct rs_dev *dev)
{
	kref_get(&dev->ref);
}

static void release(struct kref *ref)
{
	struct rs_dev *dev = container_of(ref, struct rs_dev, ref);

	if (dev->gendisk) {
		put_disk(dev->gendisk);
		blk_mq_free_tag_set(&dev->tags);
	}
	if (dev->read_wq)
		destroy_workqueue(dev->read_wq);
	if (dev->disk_wq)
		destroy_workqueue(dev->disk_wq);
	rs_pages_free(dev);
	kvfree(dev->slabs);
	kfree(dev->disk_path);
	kfree(dev);
}

void rs_dev_put(struct rs_dev *dev)
{
	kref_put(&dev->ref, release);
}
