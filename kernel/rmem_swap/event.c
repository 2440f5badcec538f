// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What rmemswap is told without asking: events, and the generic netlink family by which they go. nl.c sets the family's
 * requests when it registers the family, so that this file needs no other file of ours.
 */

#include <net/genetlink.h>

#include "rmem_swap.h"

static const struct genl_multicast_group groups[] = {
	{ .name = RMEM_SWAP_GROUP, .flags = GENL_MCAST_CAP_NET_ADMIN },
};

/* Requests run side by side, since one may wait for a donor that moves. */
struct genl_family rs_family __ro_after_init = {
	.name = RMEM_SWAP_FAMILY,
	.version = RMEM_SWAP_VERSION,
	.maxattr = RMEM_SWAP_A_MAX,
	.parallel_ops = true,
	.module = THIS_MODULE,
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

bool rs_registered; /* only then the family has group numbers of its own */

/* If there is no memory for the message, nobody is told. STATUS shows the state. */
void rs_event(struct rs_dev *dev, enum rmem_swap_what what, struct rs_donor *d, const char *reason, const struct rs_slab *slab)
{
	struct sk_buff *msg = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_NOWAIT | __GFP_NOWARN);
	void *hdr = msg && READ_ONCE(rs_registered) ? genlmsg_put(msg, 0, 0, &rs_family, 0, RMEM_SWAP_EVENT) : NULL;

	if (!hdr || nla_put_string(msg, RMEM_SWAP_A_DEV, dev->name) || nla_put_u32(msg, RMEM_SWAP_A_WHAT, what) ||
	    (d && nla_put_string(msg, RMEM_SWAP_A_DONOR, d->name)) ||
	    (reason && nla_put_string(msg, RMEM_SWAP_A_REASON, reason)) ||
	    (slab && nla_put_u32(msg, RMEM_SWAP_A_SLAB_INDEX, slab - dev->slabs))) {
		nlmsg_free(msg);
		return;
	}
	genlmsg_end(msg, hdr);
	genlmsg_multicast(&rs_family, msg, 0, 0, GFP_NOWAIT | __GFP_NOWARN);
}
