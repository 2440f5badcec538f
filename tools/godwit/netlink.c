// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/inet_diag.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/net_namespace.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/unix_diag.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "netlink.h"

struct request {
	struct nlmsghdr head;
	char body[512];
};

static void *put(struct request *r, const void *data, size_t length)
{
	char *at = (char *)r + NLMSG_ALIGN(r->head.nlmsg_len);

	memcpy(at, data, length);
	r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + length;
	return at;
}

static void put_attr(struct request *r, int type, const void *data, size_t length)
{
	struct nlattr attr = { .nla_len = NLA_HDRLEN + length, .nla_type = type };

	put(r, &attr, sizeof(attr));
	put(r, data, length);
}

static struct request request(int type, int flags)
{
	return (struct request){ .head = {
		.nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags,
		.nlmsg_seq = 1,
	} };
}

static int nl_open(int protocol)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	return fd < 0 ? -errno : fd;
}

/* Read answers until the acknowledge or the end of a dump; each sees what comes before. */
static int receive(int fd, void (*each)(const struct nlmsghdr *, void *), void *arg)
{
	static char buf[65536] __attribute__((aligned(NLMSG_ALIGNTO)));

	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);
		const struct nlmsghdr *h;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		for (h = (void *)buf; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_ERROR)
				return ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (each)
				each(h, arg);
		}
	}
}

static int ask(int fd, const struct request *r, void (*each)(const struct nlmsghdr *, void *), void *arg)
{
	return send(fd, r, r->head.nlmsg_len, 0) < 0 ? -errno : receive(fd, each, arg);
}

static int talk(int protocol, const struct request *r, void (*each)(const struct nlmsghdr *, void *),
		void *arg)
{
	int fd = nl_open(protocol), ret;

	if (fd < 0)
		return fd;
	ret = ask(fd, r, each, arg);
	close(fd);
	return ret;
}

/* The first attribute of this type, of this length or more, from here to there; or NULL */
static const struct nlattr *find_between(const void *from, const void *to, int type, size_t length)
{
	const struct nlattr *attr = from;

	for (; (const void *)(attr + 1) <= to && attr->nla_len >= NLA_HDRLEN;
	     attr = (void *)((char *)attr + NLA_ALIGN(attr->nla_len)))
		if ((attr->nla_type & NLA_TYPE_MASK) == type && attr->nla_len >= NLA_HDRLEN + length)
			return attr;
	return NULL;
}

/* What is in the first one behind the header of a message; or NULL */
static const void *find_attr(const struct nlmsghdr *h, size_t header, int type, size_t length)
{
	const struct nlattr *attr = find_between((char *)NLMSG_DATA(h) + NLMSG_ALIGN(header),
						 (const char *)h + h->nlmsg_len, type, length);

	return attr ? attr + 1 : NULL;
}

/* ------------------------------------------------------------ addresses -- */

static size_t address_size(int family)
{
	return family == AF_INET ? 4 : 16;
}

static int address_change(const struct nl_address *a, int type, int flags)
{
	struct request r = request(type, NLM_F_ACK | flags);
	struct ifaddrmsg msg = {
		.ifa_family = a->family, .ifa_prefixlen = a->prefixlen, .ifa_index = a->ifindex,
		/* the other host has it still: no duplicate detection */
		.ifa_flags = a->family == AF_INET6 ? IFA_F_NODAD : 0,
	};

	put(&r, &msg, sizeof(msg));
	put_attr(&r, IFA_LOCAL, &a->addr, address_size(a->family));
	put_attr(&r, IFA_ADDRESS, &a->addr, address_size(a->family));
	return talk(NETLINK_ROUTE, &r, NULL, NULL);
}

int nl_address_add(const struct nl_address *address)
{
	return address_change(address, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
}

int nl_address_del(const struct nl_address *address)
{
	return address_change(address, RTM_DELADDR, 0);
}

static const void *local_address(const struct nlmsghdr *h)
{
	const struct ifaddrmsg *msg = NLMSG_DATA(h);
	const struct rtattr *attr = IFA_RTA(msg);
	int left = IFA_PAYLOAD(h);
	const void *addr = NULL;

	for (; RTA_OK(attr, left); attr = RTA_NEXT(attr, left))
		if (attr->rta_type == IFA_LOCAL || (attr->rta_type == IFA_ADDRESS && !addr))
			addr = RTA_DATA(attr);
	return addr;
}

struct address_list {
	struct nl_address *address;
	size_t n;
};

static void collect_address(const struct nlmsghdr *h, void *arg)
{
	const struct ifaddrmsg *msg = NLMSG_DATA(h);
	const void *addr = local_address(h);
	struct address_list *list = arg;
	struct nl_address *a;

	if (h->nlmsg_type != RTM_NEWADDR || !addr || (msg->ifa_family != AF_INET && msg->ifa_family != AF_INET6))
		return;
	GROW(list->address, list->n);
	a = &list->address[list->n++];
	*a = (struct nl_address){
		.family = msg->ifa_family, .prefixlen = msg->ifa_prefixlen, .ifindex = msg->ifa_index,
		.secondary = msg->ifa_flags & IFA_F_SECONDARY,
	};
	memcpy(&a->addr, addr, address_size(a->family));
}

ssize_t nl_addresses(int family, struct nl_address **addresses)
{
	struct request r = request(RTM_GETADDR, NLM_F_DUMP);
	struct ifaddrmsg msg = { .ifa_family = family };
	struct address_list list = { 0 };
	int ret;

	put(&r, &msg, sizeof(msg));
	ret = talk(NETLINK_ROUTE, &r, collect_address, &list);
	if (ret) {
		free(list.address);
		return ret;
	}
	*addresses = list.address;
	return list.n;
}

bool nl_same_address(const struct nl_address *a, const struct nl_address *b)
{
	return a->family == b->family && !memcmp(&a->addr, &b->addr, address_size(a->family));
}

bool nl_same_subnet(const struct nl_address *a, const struct nl_address *b)
{
	int bytes = a->prefixlen / 8, bits = a->prefixlen % 8;

	return a->family == b->family && !memcmp(&a->addr, &b->addr, bytes) &&
	       (!bits || (a->addr.s6_addr[bytes] ^ b->addr.s6_addr[bytes]) >> (8 - bits) == 0);
}

int nl_address_find(struct nl_address *address)
{
	struct nl_address *list;
	ssize_t n = nl_addresses(address->family, &list);
	int ret = n < 0 ? n : -ENOENT;

	for (ssize_t i = 0; ret == -ENOENT && i < n; i++)
		if (nl_same_address(&list[i], address)) {
			*address = list[i];
			ret = 0;
		}
	if (n >= 0)
		free(list);
	return ret;
}

bool nl_address_has_secondaries(const struct nl_address *address)
{
	struct nl_address *list;
	ssize_t n = address->family == AF_INET && !address->secondary ? nl_addresses(AF_INET, &list) : -1;
	bool has = false;

	for (ssize_t i = 0; i < n; i++)
		has |= list[i].secondary && list[i].ifindex == address->ifindex &&
		       nl_same_subnet(address, &list[i]) && !nl_same_address(address, &list[i]);
	if (n >= 0)
		free(list);
	return has;
}

struct nl_address nl_of_gid(const struct in6_addr *gid)
{
	struct nl_address a = { .family = AF_INET6, .addr = *gid };

	if (IN6_IS_ADDR_V4MAPPED(gid)) {
		a = (struct nl_address){ .family = AF_INET };
		memcpy(&a.addr, &gid->s6_addr[12], 4);
	}
	return a;
}

/* ----------------------------------------------------------- namespaces -- */

static void read_nsid(const struct nlmsghdr *h, void *arg)
{
	const void *id = find_attr(h, sizeof(struct rtgenmsg), NETNSA_NSID, sizeof(int));

	if (h->nlmsg_type == RTM_NEWNSID && id)
		memcpy(arg, id, sizeof(int));
}

int nl_nsid(int ns)
{
	struct request r = request(RTM_GETNSID, NLM_F_ACK);
	struct rtgenmsg msg = { .rtgen_family = AF_UNSPEC };
	int id = -1;

	put(&r, &msg, sizeof(msg));
	put_attr(&r, NETNSA_FD, &ns, sizeof(ns));
	return talk(NETLINK_ROUTE, &r, read_nsid, &id) ? -1 : id;
}

/* --------------------------------------------------------------- routes -- */

struct route {
	bool local;
	int ifindex;	/* 0: not told */
	int mtu;
};

static void read_route(const struct nlmsghdr *h, void *arg)
{
	const struct rtmsg *msg = NLMSG_DATA(h);
	const char *end = (const char *)h + h->nlmsg_len;
	const struct nlattr *metrics, *mtu;
	struct route *route = arg;
	const void *ifindex;

	if (h->nlmsg_type != RTM_NEWROUTE)
		return;
	route->local = msg->rtm_type == RTN_LOCAL;
	ifindex = find_attr(h, sizeof(*msg), RTA_OIF, sizeof(int));
	if (ifindex)
		memcpy(&route->ifindex, ifindex, sizeof(int));
	metrics = find_between(RTM_RTA(msg), end, RTA_METRICS, 0);
	mtu = metrics ? find_between(metrics + 1, (const char *)metrics + metrics->nla_len, RTAX_MTU, sizeof(int)) : NULL;
	if (mtu)
		memcpy(&route->mtu, mtu + 1, sizeof(int));
}

int nl_route(const struct nl_address *to, const struct nl_address *from, int ifindex, int *mtu)
{
	struct request r = request(RTM_GETROUTE, NLM_F_ACK);
	size_t size = address_size(to->family);
	struct rtmsg msg = {
		.rtm_family = to->family, .rtm_dst_len = 8 * size, .rtm_src_len = from ? 8 * size : 0,
		/* (without a route of this interface IPv4 takes for granted that the address is on its link) */
		.rtm_flags = to->family == AF_INET ? RTM_F_FIB_MATCH : 0,
	};
	struct route route = { 0 };
	int ret;

	put(&r, &msg, sizeof(msg));
	put_attr(&r, RTA_DST, &to->addr, size);
	if (from)
		put_attr(&r, RTA_SRC, &from->addr, size);
	put_attr(&r, RTA_OIF, &ifindex, sizeof(ifindex));
	ret = talk(NETLINK_ROUTE, &r, read_route, &route);
	if (ret)
		return ret;
	/* (IPv6 takes another interface where it must) */
	if (!route.local && route.ifindex && route.ifindex != ifindex)
		return -EHOSTUNREACH;
	*mtu = route.mtu;
	return 0;
}

/* ------------------------------------------------------------------ TCP -- */

struct victims {
	int family;
	struct in6_addr local;
	struct inet_diag_sockid *id;
	size_t n;
};

static void collect_victim(const struct nlmsghdr *h, void *arg)
{
	const struct inet_diag_msg *msg = NLMSG_DATA(h);
	struct victims *v = arg;

	if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || msg->idiag_family != v->family ||
	    memcmp(msg->id.idiag_src, &v->local, address_size(v->family)))
		return;
	GROW(v->id, v->n);
	v->id[v->n++] = msg->id;
}

static struct request diag_request(int type, int flags, int family, const struct inet_diag_sockid *id)
{
	struct request r = request(type, flags);
	struct inet_diag_req_v2 diag = {
		.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0U,
	};

	if (id)
		diag.id = *id;
	put(&r, &diag, sizeof(diag));
	return r;
}

int nl_tcp_destroy(int family, const struct in6_addr *local)
{
	struct victims v = { .family = family, .local = *local };
	struct request r = diag_request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family, NULL);
	int ret = talk(NETLINK_SOCK_DIAG, &r, collect_victim, &v);

	for (size_t i = 0; i < v.n; i++) {
		int error;

		r = diag_request(SOCK_DESTROY, NLM_F_ACK, family, &v.id[i]);
		error = talk(NETLINK_SOCK_DIAG, &r, NULL, NULL);
		if (error && error != -ENOENT)
			ret = error;
	}
	free(v.id);
	return ret;
}

/* --------------------------------------------------------- Unix sockets -- */

static void find_peer(const struct nlmsghdr *h, void *arg)
{
	const void *peer = find_attr(h, sizeof(struct unix_diag_msg), UNIX_DIAG_PEER, sizeof(uint32_t));

	if (peer)
		memcpy(arg, peer, sizeof(uint32_t));
}

/* The kernel tells of those of one network namespace only, the asking socket's. */
static int nl_open_beside(int sock, int protocol)
{
	int ours = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), its = ioctl(sock, SIOCGSKNS), fd;

	if (ours < 0 || its < 0 || setns(its, CLONE_NEWNET)) {
		fd = -errno;
	} else {
		fd = nl_open(protocol);
		if (setns(ours, CLONE_NEWNET))
			abort();
	}
	if (ours >= 0)
		close(ours);
	if (its >= 0)
		close(its);
	return fd;
}

uint32_t nl_unix_peer(int sock, uint32_t inode)
{
	struct request r = request(SOCK_DIAG_BY_FAMILY, NLM_F_ACK);
	struct unix_diag_req diag = {
		.sdiag_family = AF_UNIX, .udiag_states = ~0U, .udiag_ino = inode, .udiag_show = UDIAG_SHOW_PEER,
		.udiag_cookie = { ~0U, ~0U },
	};
	int fd = nl_open_beside(sock, NETLINK_SOCK_DIAG);
	uint32_t peer = 0;

	if (fd < 0)
		return 0;
	put(&r, &diag, sizeof(diag));
	ask(fd, &r, find_peer, &peer);
	close(fd);
	return peer;
}

/* ------------------------------------------------------------- nftables -- */

static struct request nft_request(int type, int flags, int family, int res_id)
{
	struct request r = request(type, flags);
	struct nfgenmsg msg = {
		.nfgen_family = family, .version = NFNETLINK_V0, .res_id = htons(res_id),
	};

	put(&r, &msg, sizeof(msg));
	return r;
}

#define TABLES_MAX 2

/*
 * All of them at once, or none. The socket is left to the end of the process: closed, it waits until no CPU
 * looks at the rules any more, and nobody runs meanwhile.
 */
static int change_tables(int type, const int *family, size_t n, const char *name)
{
	uint32_t no_flags = 0;
	struct request part[TABLES_MAX + 2];
	int fd = nl_open(NETLINK_NETFILTER);
	char batch[sizeof(part)];
	size_t length = 0;

	if (fd < 0)
		return fd;
	part[0] = nft_request(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	for (size_t i = 0; i < n; i++) {
		/* (one that fails is answered anyway, and first) */
		part[i + 1] = nft_request(NFNL_SUBSYS_NFTABLES << 8 | type,
					  i == n - 1 ? NLM_F_ACK : 0, family[i], 0);
		put_attr(&part[i + 1], NFTA_TABLE_NAME, name, strlen(name) + 1);
		if (type == NFT_MSG_NEWTABLE)
			put_attr(&part[i + 1], NFTA_TABLE_FLAGS, &no_flags, sizeof(no_flags));
	}
	part[n + 1] = nft_request(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	for (size_t i = 0; i < n + 2; i++) {
		memset(batch + length, 0, NLMSG_ALIGN(part[i].head.nlmsg_len));
		memcpy(batch + length, &part[i], part[i].head.nlmsg_len);
		length += NLMSG_ALIGN(part[i].head.nlmsg_len);
	}
	return send(fd, batch, length, 0) < 0 ? -errno : receive(fd, NULL, NULL);
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
	const char *name = find_attr(h, sizeof(struct nfgenmsg), NFTA_TABLE_NAME, 1);
	struct cut_names *c = arg;

	if (!name || strlen(name) < c->min || strncmp(name, c->whole, strlen(name)))
		return;
	GROW(c->name, c->n);
	c->name[c->n++] = xstrdup(name);
}

int nl_tables_delete_cut(int family, const char *name, size_t min)
{
	struct request r = nft_request(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE, NLM_F_DUMP, family, 0);
	struct cut_names c = { .whole = name, .min = min };
	int ret = talk(NETLINK_NETFILTER, &r, collect_cut, &c);

	for (size_t i = 0; i < c.n; i++) {
		ret = nl_table_delete(family, c.name[i]) ?: ret;
		free(c.name[i]);
	}
	free(c.name);
	return ret;
}
