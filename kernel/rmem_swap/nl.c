// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What rmemswap asks: the requests of the generic netlink family of rmem/swap.h. */

#include <net/genetlink.h>

#include "rmem_swap.h"

#define PATH_SIZE 256
#define MAX_24 0xffffff

/* queue pairs 0 and 1 are for management, 0xffffff is for multicast */
static const struct netlink_range_validation qpns = { .min = 2, .max = MAX_24 - 1 };

static const struct nla_policy policy[RMEM_SWAP_A_MAX + 1] = {
	[RMEM_SWAP_A_DEV] = { .type = NLA_NUL_STRING, .len = RMEM_SWAP_NAME_SIZE - 1 },
	[RMEM_SWAP_A_DONOR] = { .type = NLA_NUL_STRING, .len = RMEM_SWAP_DONOR_SIZE - 1 },
	[RMEM_SWAP_A_DISK] = { .type = NLA_NUL_STRING, .len = PATH_SIZE - 1 },
	[RMEM_SWAP_A_SIZE] = { .type = NLA_U64 },
	[RMEM_SWAP_A_SLAB] = { .type = NLA_U64 },
	[RMEM_SWAP_A_HOT] = { .type = NLA_U32 },
	[RMEM_SWAP_A_BUFFERS] = { .type = NLA_U32 },
	[RMEM_SWAP_A_IBDEV] = { .type = NLA_NUL_STRING, .len = IB_DEVICE_NAME_MAX - 1 },
	[RMEM_SWAP_A_IBPORT] = NLA_POLICY_RANGE(NLA_U32, 1, 255),
	[RMEM_SWAP_A_GID_INDEX] = NLA_POLICY_MAX(NLA_U32, 255),
	[RMEM_SWAP_A_QPN] = NLA_POLICY_FULL_RANGE(NLA_U32, &qpns),
	[RMEM_SWAP_A_PSN] = NLA_POLICY_MASK(NLA_U32, MAX_24),
	[RMEM_SWAP_A_MTU] = NLA_POLICY_RANGE(NLA_U32, IB_MTU_256, IB_MTU_4096),
	[RMEM_SWAP_A_GID] = NLA_POLICY_EXACT_LEN(sizeof(union ib_gid)),
	[RMEM_SWAP_A_TXN] = { .type = NLA_U64 },
	[RMEM_SWAP_A_FORCE] = { .type = NLA_FLAG },
};

/* ------------------------------------------------------------------ helpers */

static int need(struct genl_info *info, int attr)
{
	return GENL_REQ_ATTR_CHECK(info, attr) ? -EINVAL : 0;
}

static int need_all(struct genl_info *info, const u8 *list, unsigned int n)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = need(info, list[i]);
	return ret;
}

static u64 get_u64(struct genl_info *info, int attr)
{
	return info->attrs[attr] ? nla_get_u64(info->attrs[attr]) : 0;
}

static u32 get_u32(struct genl_info *info, int attr, u32 otherwise)
{
	return info->attrs[attr] ? nla_get_u32(info->attrs[attr]) : otherwise;
}

static const char *get_string(struct genl_info *info, int attr)
{
	return nla_data(info->attrs[attr]);
}

/* Gets the device that DEV names; end_request() puts it. */
static int get_dev(struct genl_info *info)
{
	int ret = need(info, RMEM_SWAP_A_DEV);

	if (ret)
		return ret;
	info->user_ptr[0] = rs_dev_find(get_string(info, RMEM_SWAP_A_DEV));
	if (info->user_ptr[0])
		return 0;
	NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[RMEM_SWAP_A_DEV], "there is no such device");
	return -ENODEV;
}

/* ------------------------------------------------------------------ requests */

/*
 * GENL_ADMIN_PERM asks for CAP_NET_ADMIN, the right to change a network. It takes more to open a disk by its path, and to choose
 * who gets the pages of all programs: CAP_SYS_ADMIN.
 */
static int check_right(const struct genl_split_ops *op, struct sk_buff *skb, struct genl_info *info)
{
	if (op->cmd == RMEM_SWAP_DEV_SET || netlink_capable(skb, CAP_SYS_ADMIN))
		return 0;
	NL_SET_ERR_MSG(info->extack, "this takes CAP_SYS_ADMIN, too");
	return -EPERM;
}

/* user_ptr[0] is NULL before this. STATUS is a dump, so this is not called for it. */
static int begin_request(const struct genl_split_ops *op, struct sk_buff *skb, struct genl_info *info)
{
	int ret = check_right(op, skb, info);

	return ret || op->cmd == RMEM_SWAP_DEV_ADD ? ret : get_dev(info);
}

static void end_request(const struct genl_split_ops *op, struct sk_buff *skb, struct genl_info *info)
{
	if (info->user_ptr[0])
		rs_dev_put(info->user_ptr[0]);
}

static int do_dev_add(struct sk_buff *skb, struct genl_info *info)
{
	static const u8 needed[] = { RMEM_SWAP_A_DEV, RMEM_SWAP_A_DISK };
	struct rs_dev_config config;
	int ret = need_all(info, needed, ARRAY_SIZE(needed));

	if (ret)
		return ret;
	config = (struct rs_dev_config){
		.name = get_string(info, RMEM_SWAP_A_DEV), .disk = get_string(info, RMEM_SWAP_A_DISK),
		.size = get_u64(info, RMEM_SWAP_A_SIZE), .slab = get_u64(info, RMEM_SWAP_A_SLAB),
		.hot = get_u32(info, RMEM_SWAP_A_HOT, RS_HOT_DEFAULT), .buffers = get_u32(info, RMEM_SWAP_A_BUFFERS, 0),
	};
	return rs_dev_add(&config, info->extack);
}

static int do_dev_del(struct sk_buff *skb, struct genl_info *info)
{
	return rs_dev_del(info->user_ptr[0], nla_get_flag(info->attrs[RMEM_SWAP_A_FORCE]), info->extack);
}

static int do_dev_set(struct sk_buff *skb, struct genl_info *info)
{
	struct rs_dev *dev = info->user_ptr[0];
	int ret = need(info, RMEM_SWAP_A_HOT);

	if (!ret)
		WRITE_ONCE(dev->hot, get_u32(info, RMEM_SWAP_A_HOT, 0));
	return ret;
}

static int answer_donor(struct genl_info *info, struct rs_donor *d)
{
	struct sk_buff *msg = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *hdr;

	if (!msg)
		return -ENOMEM;
	hdr = genlmsg_put_reply(msg, info, &rs_family, 0, RMEM_SWAP_DONOR_ADD);
	if (!hdr || nla_put_string(msg, RMEM_SWAP_A_DEV, d->dev->name) || nla_put_string(msg, RMEM_SWAP_A_DONOR, d->name) ||
	    nla_put_u32(msg, RMEM_SWAP_A_QPN, d->qpn) || nla_put_u32(msg, RMEM_SWAP_A_PSN, d->psn) ||
	    nla_put_u32(msg, RMEM_SWAP_A_MTU, d->mtu) || nla_put(msg, RMEM_SWAP_A_GID, sizeof(d->gid), &d->gid)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, hdr);
	return genlmsg_reply(msg, info);
}

static int do_donor_add(struct sk_buff *skb, struct genl_info *info)
{
	static const u8 needed[] = { RMEM_SWAP_A_DONOR, RMEM_SWAP_A_IBDEV, RMEM_SWAP_A_IBPORT, RMEM_SWAP_A_GID_INDEX };
	struct rs_donor *d = NULL;
	int ret = need_all(info, needed, ARRAY_SIZE(needed));

	if (!ret && !*get_string(info, RMEM_SWAP_A_DONOR)) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[RMEM_SWAP_A_DONOR], "a donor has a name");
		ret = -EINVAL;
	}
	if (!ret)
		ret = rs_donor_add(info->user_ptr[0], get_string(info, RMEM_SWAP_A_DONOR), get_string(info, RMEM_SWAP_A_IBDEV),
				   get_u32(info, RMEM_SWAP_A_IBPORT, 0), get_u32(info, RMEM_SWAP_A_GID_INDEX, 0), &d,
				   info->extack);
	if (!ret) {
		ret = answer_donor(info, d);
		rs_donor_put(d);
	}
	return ret;
}

static int read_peer(struct genl_info *info, struct rs_donor_peer *peer)
{
	static const u8 needed[] = {
		RMEM_SWAP_A_DONOR, RMEM_SWAP_A_QPN, RMEM_SWAP_A_PSN, RMEM_SWAP_A_GID, RMEM_SWAP_A_MTU, RMEM_SWAP_A_TXN,
	};
	int ret = need_all(info, needed, ARRAY_SIZE(needed));

	if (ret)
		return ret;
	peer->qpn = get_u32(info, RMEM_SWAP_A_QPN, 0);
	peer->psn = get_u32(info, RMEM_SWAP_A_PSN, 0);
	peer->mtu = get_u32(info, RMEM_SWAP_A_MTU, 0);
	peer->txn = get_u64(info, RMEM_SWAP_A_TXN);
	memcpy(&peer->gid, nla_data(info->attrs[RMEM_SWAP_A_GID]), sizeof(peer->gid));
	if (memchr_inv(&peer->gid, 0, sizeof(peer->gid)) && peer->gid.raw[0] != 0xff)
		return 0;
	NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[RMEM_SWAP_A_GID], "it is the GID of no host");
	return -EINVAL;
}

static int do_donor_connect(struct sk_buff *skb, struct genl_info *info)
{
	struct rs_donor_peer peer;
	int ret = read_peer(info, &peer);

	return ret ?: rs_donor_connect(info->user_ptr[0], get_string(info, RMEM_SWAP_A_DONOR), &peer, info->extack);
}

static int do_donor_del(struct sk_buff *skb, struct genl_info *info)
{
	int ret = need(info, RMEM_SWAP_A_DONOR);

	return ret ?: rs_donor_del(info->user_ptr[0], get_string(info, RMEM_SWAP_A_DONOR), info->extack);
}

/* ------------------------------------------------------------------ the family */

static const struct genl_small_ops ops[] = {
	{ .cmd = RMEM_SWAP_DEV_ADD, .flags = GENL_ADMIN_PERM, .doit = do_dev_add },
	{ .cmd = RMEM_SWAP_DEV_DEL, .flags = GENL_ADMIN_PERM, .doit = do_dev_del },
	{ .cmd = RMEM_SWAP_DEV_SET, .flags = GENL_ADMIN_PERM, .doit = do_dev_set },
	{ .cmd = RMEM_SWAP_DONOR_ADD, .flags = GENL_ADMIN_PERM, .doit = do_donor_add },
	{ .cmd = RMEM_SWAP_DONOR_CONNECT, .flags = GENL_ADMIN_PERM, .doit = do_donor_connect },
	{ .cmd = RMEM_SWAP_DONOR_DEL, .flags = GENL_ADMIN_PERM, .doit = do_donor_del },
	{ .cmd = RMEM_SWAP_STATUS, .flags = GENL_ADMIN_PERM, .dumpit = rs_nl_status },
};

/* From the module's init: after that, rs_family is read-only. */
int rs_nl_register(void)
{
	int ret;

	rs_family.policy = policy;
	rs_family.pre_doit = begin_request;
	rs_family.post_doit = end_request;
	rs_family.small_ops = ops;
	rs_family.n_small_ops = ARRAY_SIZE(ops);
	ret = genl_register_family(&rs_family);
	WRITE_ONCE(rs_registered, !ret);
	return ret;
}

void rs_nl_unregister(void)
{
	WRITE_ONCE(rs_registered, false);
	genl_unregister_family(&rs_family);
}
