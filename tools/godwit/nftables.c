// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * nftables over netlink. Sets of rules are made by nft; on the path where every millisecond counts, tables are only woken and
 * deleted.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "netlink.h"
#include "netlink_request.h"

static struct nl_request nft_request(int type, int flags, int family, int res_id)
{
	struct nl_request r = nl_request(type, flags);
	struct nfgenmsg msg = {
		.nfgen_family = family, .version = NFNETLINK_V0, .res_id = htons(res_id),
	};

	nl_put(&r, &msg, sizeof(msg));
	return r;
}

#define TABLES_MAX 2

/*
 * Change all tables at once, or none. The socket stays open until godwit ends: closing it would wait until no CPU looks at the
 * rules any more, while the process that moves is frozen.
 */
static int change_tables(int type, const int *family, size_t n, const char *name)
{
	uint32_t no_flags = 0;
	struct nl_request part[TABLES_MAX + 2];
	int fd = nl_open(NETLINK_NETFILTER);
	char batch[sizeof(part)];
	size_t length = 0;

	if (fd < 0)
		return fd;
	part[0] = nft_request(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	for (size_t i = 0; i < n; i++) {
		/* If a part fails, the kernel answers it in any case, and before it acknowledges the last part. */
		part[i + 1] = nft_request(NFNL_SUBSYS_NFTABLES << 8 | type,
					  i == n - 1 ? NLM_F_ACK : 0, family[i], 0);
		nl_put_attr(&part[i + 1], NFTA_TABLE_NAME, name, strlen(name) + 1);
		if (type == NFT_MSG_NEWTABLE)
			nl_put_attr(&part[i + 1], NFTA_TABLE_FLAGS, &no_flags, sizeof(no_flags));
	}
	part[n + 1] = nft_request(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	for (size_t i = 0; i < n + 2; i++) {
		memset(batch + length, 0, NLMSG_ALIGN(part[i].head.nlmsg_len));
		memcpy(batch + length, &part[i], part[i].head.nlmsg_len);
		length += NLMSG_ALIGN(part[i].head.nlmsg_len);
	}
	return send(fd, batch, length, 0) < 0 ? -errno : nl_receive(fd, NULL, NULL);
}

int nl_table_delete(int family, const char *name)
{
	return change_tables(NFT_MSG_DELTABLE, &family, 1, name);
}

static const int families[TABLES_MAX] = { NFPROTO_INET, NFPROTO_ARP };

int nl_tables_wake(const char *name)
{
	return change_tables(NFT_MSG_NEWTABLE, families, TABLES_MAX, name);
}

int nl_tables_delete(const char *name)
{
	int ret = change_tables(NFT_MSG_DELTABLE, families, TABLES_MAX, name), failed = 0;

	if (ret == 0)
		return 0;
	for (size_t i = 0; i < TABLES_MAX; i++) {
		ret = nl_table_delete(families[i], name);
		if (ret && ret != -ENOENT)
			failed = ret;
	}
	return failed;
}

struct cut_names {
	const char *whole;
	size_t min;
	char **name;
	size_t n;
};

static void collect_cut(const struct nlmsghdr *h, void *arg)
{
	const char *name = nl_find_attr(h, sizeof(struct nfgenmsg), NFTA_TABLE_NAME, 1);
	struct cut_names *c = arg;

	if (!name || strlen(name) < c->min || strncmp(name, c->whole, strlen(name)))
		return;
	GROW(c->name, c->n);
	c->name[c->n++] = xstrdup(name);
}

int nl_tables_delete_cut(int family, const char *name, size_t min)
{
	struct nl_request r = nft_request(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE, NLM_F_DUMP, family, 0);
	struct cut_names c = { .whole = name, .min = min };
	int ret = nl_talk(NETLINK_NETFILTER, &r, collect_cut, &c);

	for (size_t i = 0; i < c.n; i++) {
		ret = nl_table_delete(family, c.name[i]) ?: ret;
		free(c.name[i]);
	}
	free(c.name);
	return ret;
}
