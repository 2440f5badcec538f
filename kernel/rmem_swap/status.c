// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* RMEM_SWAP_STATUS: a dump of devices, their donors, their slabs. */

#include <linux/bitmap.h>
#include <net/genetlink.h>

#include "rmem_swap.h"

/* How far a dump is: the device, and what of it comes next. It is kept in netlink_callback.ctx. */
struct position {
	unsigned long dev;
	unsigned long part;	/* 0: itself; 1: donors; 2: slabs */
	unsigned long at;	/* which of them */
};

static_assert(sizeof(struct position) <= sizeof_field(struct netlink_callback, ctx));

/* enum rs_count and enum rmem_swap_attr have the counters in the same order. */
static_assert(RMEM_SWAP_A_OUT_REMOTE + RS_DISCARDED == RMEM_SWAP_A_DISCARDED);
static_assert(RMEM_SWAP_A_OUT_REMOTE + RS_LOST == RMEM_SWAP_A_LOST);

static int put_u64(struct sk_buff *skb, int attr, u64 value)
{
	return nla_put_u64_64bit(skb, attr, value, RMEM_SWAP_A_PAD);
}

static int put_counts(struct sk_buff *skb, struct rs_stats *stats)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i <= RS_DISCARDED && !ret; i++)
		ret = put_u64(skb, RMEM_SWAP_A_OUT_REMOTE + i, atomic64_read(&stats->n[i]));
	return ret;
}

static int put_donor_counts(struct sk_buff *skb, struct rs_stats *stats)
{
	static const u8 told[] = {
		RS_OUT_REMOTE, RS_IN_REMOTE, RS_MAPS, RS_UNMAPS, RS_EVICTIONS, RS_LOST, RS_REQUEUED,
	};
	unsigned int i;
	int ret = 0;

	for (i = 0; i < ARRAY_SIZE(told) && !ret; i++)
		ret = put_u64(skb, RMEM_SWAP_A_OUT_REMOTE + told[i], atomic64_read(&stats->n[told[i]]));
	return ret;
}

static u64 pages_of_slab(struct rs_dev *dev, unsigned int index)
{
	/* A slab has at least 256 pages, so it begins at a whole word of the bitmap. */
	return bitmap_weight(dev->remote + (((u64)index << dev->slab_shift) / BITS_PER_LONG), rs_slab_pages(dev, index));
}

static u64 pages_of_donor(struct rs_donor *d)
{
	struct rs_dev *dev = d->dev;
	unsigned int i;
	u64 n = 0;

	for (i = 0; i < dev->n_slabs; i++)
		if (rs_slab_of(&dev->slabs[i], d, RS_MAPPED))
			n += pages_of_slab(dev, i);
	return n;
}

static u32 mapped_slabs(struct rs_dev *dev)
{
	unsigned int i;
	u32 n = 0;

	for (i = 0; i < dev->n_slabs; i++)
		n += READ_ONCE(dev->slabs[i].state) == RS_MAPPED;
	return n;
}

/* ------------------------------------------------------------------ messages; dev->lock is held */

static int put_dev(struct sk_buff *skb, struct rs_dev *dev)
{
	if (put_u64(skb, RMEM_SWAP_A_SIZE, dev->pages * RMEM_PAGE) || put_u64(skb, RMEM_SWAP_A_SLAB, dev->slab_size) ||
	    nla_put_string(skb, RMEM_SWAP_A_DISK, dev->disk_path) ||
	    nla_put_u32(skb, RMEM_SWAP_A_HOT, READ_ONCE(dev->hot)) ||
	    nla_put_u32(skb, RMEM_SWAP_A_BUFFERS, dev->n_buffers) ||
	    nla_put_u32(skb, RMEM_SWAP_A_SLABS, mapped_slabs(dev)) || put_counts(skb, &dev->stats) ||
	    nla_put_u32(skb, RMEM_SWAP_A_WAITING, READ_ONCE(dev->n_pending)) ||
	    put_u64(skb, RMEM_SWAP_A_DISK_ERRORS, atomic64_read(&dev->stats.n[RS_DISK_ERRORS])) ||
	    put_u64(skb, RMEM_SWAP_A_BAD, bitmap_weight(dev->bad, dev->pages)))
		return -EMSGSIZE;
	return 0;
}

static int put_donor(struct sk_buff *skb, struct rs_donor *d)
{
	char reason[RS_REASON];

	rs_donor_reason(d, reason);
	if (nla_put_string(skb, RMEM_SWAP_A_DONOR, d->name) || nla_put_string(skb, RMEM_SWAP_A_IBDEV, d->ibdev_name) ||
	    nla_put_u32(skb, RMEM_SWAP_A_IBPORT, d->port) || nla_put_u32(skb, RMEM_SWAP_A_GID_INDEX, d->gid_index) ||
	    nla_put_u32(skb, RMEM_SWAP_A_QPN, d->qpn) || nla_put_u32(skb, RMEM_SWAP_A_STATE, READ_ONCE(d->state)) ||
	    nla_put_u32(skb, RMEM_SWAP_A_SLABS, atomic_read(&d->n_slabs)) ||
	    put_u64(skb, RMEM_SWAP_A_PAGES, pages_of_donor(d)) || put_u64(skb, RMEM_SWAP_A_ROOM, READ_ONCE(d->room)) ||
	    nla_put_u32(skb, RMEM_SWAP_A_STALLED, rs_stalled(d)) || put_donor_counts(skb, &d->stats) ||
	    (*reason && nla_put_string(skb, RMEM_SWAP_A_REASON, reason)))
		return -EMSGSIZE;
	return 0;
}

static int put_slab(struct sk_buff *skb, struct rs_dev *dev, unsigned int index)
{
	struct rs_slab *slab = &dev->slabs[index];
	char donor[RMEM_SWAP_DONOR_SIZE] = "";

	spin_lock_irq(&slab->lock);
	if (slab->state == RS_MAPPED)
		strscpy(donor, slab->donor->name, sizeof(donor));
	spin_unlock_irq(&slab->lock);
	if (nla_put_u32(skb, RMEM_SWAP_A_SLAB_INDEX, index) || put_u64(skb, RMEM_SWAP_A_HEAT, READ_ONCE(slab->heat)) ||
	    put_u64(skb, RMEM_SWAP_A_PAGES, pages_of_slab(dev, index)) ||
	    (*donor && nla_put_string(skb, RMEM_SWAP_A_DONOR, donor)))
		return -EMSGSIZE;
	return 0;
}

static int put_part(struct sk_buff *skb, struct rs_dev *dev, const struct position *at)
{
	struct rs_donor *d;
	unsigned long i = 0;

	if (at->part == 0)
		return put_dev(skb, dev);
	if (at->part == 2)
		return put_slab(skb, dev, at->at);
	list_for_each_entry(d, &dev->donors, list)
		if (i++ == at->at)
			return put_donor(skb, d);
	return 0;
}

/* ------------------------------------------------------------------ the dump */

static bool is_told(struct rs_dev *dev, unsigned int index)
{
	return READ_ONCE(dev->slabs[index].state) == RS_MAPPED || READ_ONCE(dev->slabs[index].heat) >= 1000;
}

/* Moves *@at on to the next part that exists, if it is not at one; false if the device has no more. */
static bool seek(struct rs_dev *dev, struct position *at)
{
	if (at->part == 0)
		return true;
	if (at->part == 1 && at->at < dev->n_donors)
		return true;
	if (at->part == 1) {
		at->part = 2;
		at->at = 0;
	}
	while (at->at < dev->n_slabs && !is_told(dev, at->at))
		at->at++;
	return at->at < dev->n_slabs;
}

static int put_message(struct sk_buff *skb, struct netlink_callback *cb, struct rs_dev *dev, const struct position *at)
{
	void *hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &rs_family, NLM_F_MULTI, RMEM_SWAP_STATUS);

	if (!hdr)
		return -EMSGSIZE;
	if (nla_put_string(skb, RMEM_SWAP_A_DEV, dev->name) || put_part(skb, dev, at)) {
		genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	return 0;
}

static int dump_dev(struct sk_buff *skb, struct netlink_callback *cb, struct rs_dev *dev, struct position *at)
{
	int ret = 0;

	mutex_lock(&dev->lock);
	while (!ret && seek(dev, at)) {
		ret = put_message(skb, cb, dev, at);
		if (ret)
			break;
		if (at->part == 0)
			at->part = 1;
		else
			at->at++;
	}
	mutex_unlock(&dev->lock);
	return ret;
}

int rs_nl_status(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct position *at = (struct position *)cb->ctx;
	const struct nlattr *only = genl_dumpit_info(cb)->info.attrs ? genl_dumpit_info(cb)->info.attrs[RMEM_SWAP_A_DEV] : NULL;
	struct rs_dev *dev;
	unsigned long i = 0;
	int ret = 0;

	mutex_lock(&rs_devs_lock);
	list_for_each_entry(dev, &rs_devs, list) {
		if (i++ < at->dev)
			continue;
		if (!only || !nla_strcmp(only, dev->name))
			ret = dump_dev(skb, cb, dev, at);
		if (ret)
			break;
		*at = (struct position){ .dev = at->dev + 1 };
	}
	mutex_unlock(&rs_devs_lock);
	return ret == -EMSGSIZE && skb->len ? skb->len : ret ?: skb->len;
}
