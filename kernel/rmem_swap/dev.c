// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Devices: made, opened, removed. */

#include <linux/ctype.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/netlink.h>

#include "rmem_swap.h"

#define SLAB_MIN SZ_1M
#define SLAB_MAX SZ_1G
#define SLAB_DEFAULT SZ_1G
#define PAGES_MAX (1ULL << 31) /* 8 TiB; a bitmap's functions count in unsigned int */
#define BUFFERS_MAX (1 << 20)
#define BUFFERS_DEFAULT 4096

DEFINE_MUTEX(rs_devs_lock);
LIST_HEAD(rs_devs);

/* With a reference, or NULL */
struct rs_dev *rs_dev_find(const char *name)
{
	struct rs_dev *dev, *found = NULL;

	mutex_lock(&rs_devs_lock);
	list_for_each_entry(dev, &rs_devs, list) {
		if (strcmp(dev->name, name))
			continue;
		rs_dev_get(dev);
		found = dev;
		break;
	}
	mutex_unlock(&rs_devs_lock);
	return found;
}

/* ------------------------------------------------------------------ sysfs */

static struct rs_dev *of_device(struct device *device)
{
	return dev_to_disk(device)->private_data;
}

static ssize_t hot_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(of_device(device)->hot));
}

static ssize_t store(u32 *to, const char *buf, size_t count, u32 least, u32 most)
{
	u32 value;
	int ret = kstrtou32(buf, 0, &value);

	if (ret)
		return ret;
	if (value < least || value > most)
		return -EINVAL;
	WRITE_ONCE(*to, value);
	return count;
}

static ssize_t hot_store(struct device *device, struct device_attribute *attr, const char *buf, size_t count)
{
	return store(&of_device(device)->hot, buf, count, 0, U32_MAX);
}
static DEVICE_ATTR_RW(hot);

static ssize_t period_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(of_device(device)->period));
}

static ssize_t period_store(struct device *device, struct device_attribute *attr, const char *buf, size_t count)
{
	return store(&of_device(device)->period, buf, count, 100, 60000);
}
static DEVICE_ATTR_RW(period);

static ssize_t weight_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(of_device(device)->weight));
}

static ssize_t weight_store(struct device *device, struct device_attribute *attr, const char *buf, size_t count)
{
	return store(&of_device(device)->weight, buf, count, 1, 100);
}
static DEVICE_ATTR_RW(weight);

static ssize_t buffers_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", of_device(device)->n_buffers);
}
static DEVICE_ATTR_RO(buffers);

static ssize_t slab_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", of_device(device)->slab_size);
}
static DEVICE_ATTR_RO(slab);

static struct attribute *attrs[] = {
	&dev_attr_hot.attr, &dev_attr_period.attr, &dev_attr_weight.attr, &dev_attr_buffers.attr, &dev_attr_slab.attr, NULL
};
static const struct attribute_group group = { .name = "rmem", .attrs = attrs };
static const struct attribute_group *groups[] = { &group, NULL };

/* ------------------------------------------------------------------ the block device */

/* The block layer calls this with open_mutex held. */
static int open_dev(struct gendisk *disk, blk_mode_t mode)
{
	struct rs_dev *dev = disk->private_data;

	return dev->claimed ? -ENXIO : 0;
}

static const struct block_device_operations fops = {
	.owner = THIS_MODULE,
	.open = open_dev,
};

static int make_tags(struct rs_dev *dev)
{
	struct blk_mq_tag_set *tags = &dev->tags;

	tags->ops = &rs_mq_ops;
	tags->nr_maps = HCTX_TYPE_READ + 1;
	tags->nr_hw_queues = tags->nr_maps * min(num_online_cpus(), RS_QUEUES);
	/* Each queue has so many requests of its own. All of them together fit into a donor's send queue. */
	tags->queue_depth = RS_DEPTH / tags->nr_hw_queues;
	tags->numa_node = NUMA_NO_NODE;
	tags->cmd_size = sizeof(struct rs_io);
	/* STACKING: a CPU that goes offline does not wait for our requests, which may wait for a donor or for the disk. */
	tags->flags = BLK_MQ_F_BLOCKING | BLK_MQ_F_NO_SCHED_BY_DEFAULT | BLK_MQ_F_STACKING;
	return blk_mq_alloc_tag_set(tags);
}

static int make_gendisk(struct rs_dev *dev)
{
	struct queue_limits lim = {
		.features = BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA,
		.logical_block_size = RMEM_PAGE, .physical_block_size = RMEM_PAGE, .io_min = RMEM_PAGE,
		/* a request is one page, in one piece */
		.max_hw_sectors = RS_PAGE_SECTORS, .max_segments = 1, .max_segment_size = RMEM_PAGE,
		.dma_alignment = RMEM_PAGE - 1,
		.max_hw_discard_sectors = SLAB_MAX >> SECTOR_SHIFT, .discard_granularity = RMEM_PAGE,
	};
	struct gendisk *disk;
	int ret;

	ret = make_tags(dev);
	if (ret)
		return ret;
	disk = blk_mq_alloc_disk(&dev->tags, &lim, dev);
	if (IS_ERR(disk)) {
		blk_mq_free_tag_set(&dev->tags);
		return PTR_ERR(disk);
	}
	disk->fops = &fops;
	disk->private_data = dev;
	disk->flags |= GENHD_FL_NO_PART;
	strscpy(disk->disk_name, dev->name, sizeof(disk->disk_name));
	set_capacity(disk, dev->pages * RS_PAGE_SECTORS);
	dev->gendisk = disk;
	return 0;
}

/* ------------------------------------------------------------------ add */

/* A name has only letters, digits, '.', '-' and '_', so that it is a file's name, too, and /dev must not have it yet. */
static int check_name(const char *name, struct netlink_ext_ack *extack)
{
	char path[RMEM_SWAP_NAME_SIZE + 8];
	const char *c;
	dev_t taken;

	for (c = name; *c; c++)
		if (!isascii(*c) || !(isalnum(*c) || strchr(".-_", *c)))
			break;
	if (*c || !isalpha(name[0])) {
		NL_SET_ERR_MSG(extack, "a device's name is of letters, digits, and . - _, and begins with a letter");
		return -EINVAL;
	}
	snprintf(path, sizeof(path), "/dev/%s", name);
	if (!lookup_bdev(path, &taken)) {
		NL_SET_ERR_MSG(extack, "there is a block device of this name");
		return -EEXIST;
	}
	return 0;
}

static int check_config(const struct rs_dev_config *config, struct netlink_ext_ack *extack)
{
	u64 slab = config->slab;

	if (slab && (slab < SLAB_MIN || slab > SLAB_MAX || !is_power_of_2(slab))) {
		NL_SET_ERR_MSG(extack, "a slab is a power of two from 1 MiB to 1 GiB");
		return -EINVAL;
	}
	if (config->size % RMEM_PAGE) {
		NL_SET_ERR_MSG(extack, "the size is no multiple of 4096");
		return -EINVAL;
	}
	if (config->buffers > BUFFERS_MAX) {
		NL_SET_ERR_MSG(extack, "there are at most 1048576 buffers");
		return -EINVAL;
	}
	return check_name(config->name, extack);
}

static void init_dev(struct rs_dev *dev, const struct rs_dev_config *config)
{
	kref_init(&dev->ref);
	mutex_init(&dev->lock);
	strscpy(dev->name, config->name, sizeof(dev->name));
	dev->pages = config->size / RMEM_PAGE;
	dev->slab_size = config->slab ?: SLAB_DEFAULT;
	dev->slab_shift = ilog2(dev->slab_size / RMEM_PAGE);
	dev->hot = config->hot;
	dev->period = RS_PERIOD_DEFAULT;
	dev->weight = RS_WEIGHT_DEFAULT;
	spin_lock_init(&dev->pool_lock);
	INIT_LIST_HEAD(&dev->free_buffers);
	INIT_LIST_HEAD(&dev->starved);
	INIT_LIST_HEAD(&dev->again);
	INIT_WORK(&dev->again_work, rs_again_work);
	spin_lock_init(&dev->disk_lock);
	INIT_LIST_HEAD(&dev->pending);
	INIT_LIST_HEAD(&dev->flushes);
	INIT_LIST_HEAD(&dev->to_disk);
	INIT_LIST_HEAD(&dev->ios_to_disk);
	INIT_LIST_HEAD(&dev->reads);
	INIT_WORK(&dev->disk_work, rs_disk_work);
	INIT_WORK(&dev->read_work, rs_read_work);
	init_waitqueue_head(&dev->wait);
	INIT_LIST_HEAD(&dev->donors);
	INIT_DELAYED_WORK(&dev->tick, rs_tick);
	INIT_WORK(&dev->place_work, rs_place_work);
}

static int make_slabs(struct rs_dev *dev, struct netlink_ext_ack *extack)
{
	u64 n = DIV_ROUND_UP(dev->pages, 1ULL << dev->slab_shift);
	unsigned int i;

	if (n > RS_MAX_SLABS || dev->pages > PAGES_MAX) {
		NL_SET_ERR_MSG(extack, "the device would have more than 65536 slabs, or than 8 TiB");
		return -EINVAL;
	}
	dev->n_slabs = n;
	dev->slabs = kvcalloc(n, sizeof(*dev->slabs), GFP_KERNEL);
	if (!dev->slabs)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		spin_lock_init(&dev->slabs[i].lock);
	return 0;
}

static int make_disk_wqs(struct rs_dev *dev)
{
	dev->disk_wq = alloc_ordered_workqueue("rmem_swap-disk", WQ_MEM_RECLAIM);
	dev->read_wq = alloc_ordered_workqueue("rmem_swap-read", WQ_MEM_RECLAIM);
	return dev->disk_wq && dev->read_wq ? 0 : -ENOMEM;
}

/* Makes the device visible, at last, when nothing can fail any more. rs_devs_lock is held. */
static int publish(struct rs_dev *dev, struct netlink_ext_ack *extack)
{
	struct rs_dev *other;
	int ret;

	lockdep_assert_held(&rs_devs_lock);

	list_for_each_entry(other, &rs_devs, list) {
		if (strcmp(other->name, dev->name))
			continue;
		NL_SET_ERR_MSG(extack, "there is a device of this name");
		return -EEXIST;
	}
	ret = make_gendisk(dev);
	if (ret)
		return ret;
	ret = device_add_disk(NULL, dev->gendisk, groups);
	if (ret)
		return ret;
	/* Write throttling counts the writes to all donors together, so that one silent donor would hold up the others. */
	wbt_disable_default(dev->gendisk);
	/* The tick begins before anybody can find the device and remove it. */
	queue_delayed_work(rs_slow_wq, &dev->tick, msecs_to_jiffies(dev->period));
	list_add_tail(&dev->list, &rs_devs);
	return 0;
}

static int make(struct rs_dev *dev, const struct rs_dev_config *config, struct netlink_ext_ack *extack)
{
	int ret = rs_disk_open(dev, config->disk, extack);

	if (!ret)
		ret = make_slabs(dev, extack);
	if (!ret)
		ret = rs_pages_init(dev, config->buffers ?: BUFFERS_DEFAULT);
	if (!ret)
		ret = make_disk_wqs(dev);
	if (ret)
		return ret;
	mutex_lock(&rs_devs_lock);
	ret = publish(dev, extack);
	mutex_unlock(&rs_devs_lock);
	return ret;
}

int rs_dev_add(const struct rs_dev_config *config, struct netlink_ext_ack *extack)
{
	int ret = check_config(config, extack);
	struct rs_dev *dev;

	if (ret)
		return ret;
	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	init_dev(dev, config);
	rs_dev_get(dev);
	ret = make(dev, config, extack);
	if (ret) {
		rs_disk_close(dev);
		rs_dev_put(dev);
	}
	rs_dev_put(dev);
	return ret;
}

/* ------------------------------------------------------------------ remove */

static int claim(struct rs_dev *dev, struct netlink_ext_ack *extack)
{
	int ret = 0;

	mutex_lock(&dev->gendisk->open_mutex);
	if (disk_openers(dev->gendisk)) {
		NL_SET_ERR_MSG(extack, "somebody has the device open");
		ret = -EBUSY;
	} else if (dev->claimed) {
		NL_SET_ERR_MSG(extack, "the device is being removed already");
		ret = -EBUSY;
	} else {
		dev->claimed = true;
	}
	mutex_unlock(&dev->gendisk->open_mutex);
	return ret;
}

static void unclaim(struct rs_dev *dev)
{
	mutex_lock(&dev->gendisk->open_mutex);
	dev->claimed = false;
	mutex_unlock(&dev->gendisk->open_mutex);
}

static void set_phase(struct rs_dev *dev, enum rs_dev_phase phase)
{
	mutex_lock(&dev->lock);
	dev->phase = phase;
	mutex_unlock(&dev->lock);
}

/*
 * Call it when no donor is left, all buffers are free, and nobody can open the device any more. After this nobody can find the
 * device. The caller has a reference.
 */
static void del(struct rs_dev *dev)
{
	del_gendisk(dev->gendisk);
	cancel_delayed_work_sync(&dev->tick);
	cancel_work_sync(&dev->place_work);
	/* No request and no buffer is left, so these works do not queue themselves again. */
	cancel_work_sync(&dev->again_work);
	cancel_work_sync(&dev->disk_work);
	cancel_work_sync(&dev->read_work);
	mutex_lock(&rs_devs_lock);
	list_del(&dev->list);
	mutex_unlock(&rs_devs_lock);
	rs_disk_close(dev);
	rs_dev_put(dev);
}

/* -EINTR: the task is killed. The device stays, and so do all donors that have not left yet. */
int rs_dev_del(struct rs_dev *dev, bool force, struct netlink_ext_ack *extack)
{
	int ret = claim(dev, extack);

	if (ret)
		return ret;
	set_phase(dev, force ? RS_DEV_GOES : RS_DEV_CLOSED);
	ret = rs_disk_wait(dev);
	if (!ret)
		ret = rs_donors_leave(dev);
	/* The donors that left have taken buffers to save their pages. */
	if (!ret)
		ret = rs_pages_wait(dev);
	if (ret) {
		NL_SET_ERR_MSG(extack, "donors alone have pages of it, since the disk fails, or they do not answer: it stays");
		set_phase(dev, RS_DEV_STAYS);
		if (ret == -EINTR)
			rs_donors_stay(dev);
		unclaim(dev);
		return ret;
	}
	del(dev);
	return 0;
}

struct del_all {
	struct work_struct work;
	struct completion done;
};

static void del_all_work(struct work_struct *work)
{
	struct del_all *all = container_of(work, struct del_all, work);
	struct rs_dev *dev;
	struct file *disk;

	mutex_lock(&rs_devs_lock);
	while ((dev = list_first_entry_or_null(&rs_devs, struct rs_dev, list))) {
		rs_dev_get(dev);
		mutex_unlock(&rs_devs_lock);
		disk = get_file(dev->disk_file);
		if (!rs_dev_del(dev, true, NULL))
			rs_dev_put(dev);
		/* The last fput() of a worker closes the disk a moment later, when the module may be gone. */
		__fput_sync(disk);
		mutex_lock(&rs_devs_lock);
	}
	mutex_unlock(&rs_devs_lock);
	complete(&all->done);
}

/*
 * The module is being unloaded, so nobody has a device open. No signal reaches a worker, so all devices are removed. The task
 * waits in TASK_IDLE, as the disk may stand still.
 */
void rs_devs_del_all(void)
{
	struct del_all all;

	INIT_WORK_ONSTACK(&all.work, del_all_work);
	init_completion(&all.done);
	queue_work(rs_slow_wq, &all.work);
	wait_for_completion_state(&all.done, TASK_IDLE);
	flush_work(&all.work);
	destroy_work_on_stack(&all.work);
}
