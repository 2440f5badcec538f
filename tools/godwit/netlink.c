// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/inet_diag.h>
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
#include "netlink_request.h"

/* ------------------------------------------------------------ addresses -- */

static size_t address_size(int family)
{
	return family == AF_INET ? 4 : 16;
}

static int address_change(const struct nl_address *a, int type, int flags)
{
	struct nl_request r = nl_request(type, NLM_F_ACK | flags);
	struct ifaddrmsg msg = {
		.ifa_family = a->family, .ifa_prefixlen = a->prefixlen, .ifa_index = a->ifindex,
		/* no duplicate detection: the other host still has the address */
		.ifa_flags = a->family == AF_INET6 ? IFA_F_NODAD : 0,
	};

	nl_put(&r, &msg, sizeof(msg));
	nl_put_attr(&r, IFA_LOCAL, &a->addr, address_size(a->family));
	nl_put_attr(&r, IFA_ADDRESS, &a->addr, address_size(a->family));
	return nl_talk(NETLINK_ROUTE, &r, NULL, NULL);
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
	struct nl_request r = nl_request(RTM_GETADDR, NLM_F_DUMP);
	struct ifaddrmsg msg = { .ifa_family = family };
	struct address_list list = { 0 };
	int ret;

	nl_put(&r, &msg, sizeof(msg));
	ret = nl_talk(NETLINK_ROUTE, &r, collect_address, &list);
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
	const void *id = nl_find_attr(h, sizeof(struct rtgenmsg), NETNSA_NSID, sizeof(int));

	if (h->nlmsg_type == RTM_NEWNSID && id)
		memcpy(arg, id, sizeof(int));
}

int nl_nsid(int ns)
{
	struct nl_request r = nl_request(RTM_GETNSID, NLM_F_ACK);
	struct rtgenmsg msg = { .rtgen_family = AF_UNSPEC };
	int id = -1;

	nl_put(&r, &msg, sizeof(msg));
	nl_put_attr(&r, NETNSA_FD, &ns, sizeof(ns));
	return nl_talk(NETLINK_ROUTE, &r, read_nsid, &id) ? -1 : id;
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

static struct nl_request diag_request(int type, int flags, int family, const struct inet_diag_sockid *id)
{
	struct nl_request r = nl_request(type, flags);
	struct inet_diag_req_v2 diag = {
		.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0U,
	};

	if (id)
		diag.id = *id;
	nl_put(&r, &diag, sizeof(diag));
	return r;
}

int nl_tcp_destroy(int family, const struct in6_addr *local)
{
	struct victims v = { .family = family, .local = *local };
	struct nl_request r = diag_request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family, NULL);
	int ret = nl_talk(NETLINK_SOCK_DIAG, &r, collect_victim, &v);

	for (size_t i = 0; i < v.n; i++) {
		int error;

		r = diag_request(SOCK_DESTROY, NLM_F_ACK, family, &v.id[i]);
		error = nl_talk(NETLINK_SOCK_DIAG, &r, NULL, NULL);
		if (error && error != -ENOENT)
			ret = error;
	}
	free(v.id);
	return ret;
}

/* --------------------------------------------------------- Unix sockets -- */

static void find_peer(const struct nlmsghdr *h, void *arg)
{
	const void *peer = nl_find_attr(h, sizeof(struct unix_diag_msg), UNIX_DIAG_PEER, sizeof(uint32_t));

	if (peer)
		memcpy(arg, peer, sizeof(uint32_t));
}

/*
 * The kernel tells only of Unix sockets in the network namespace of the netlink socket that asks. So open that socket in the
 * namespace of sock.
 */
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
	struct nl_request r = nl_request(SOCK_DIAG_BY_FAMILY, NLM_F_ACK);
	struct unix_diag_req diag = {
		.sdiag_family = AF_UNIX, .udiag_states = ~0U, .udiag_ino = inode, .udiag_show = UDIAG_SHOW_PEER,
		.udiag_cookie = { ~0U, ~0U },
	};
	int fd = nl_open_beside(sock, NETLINK_SOCK_DIAG);
	uint32_t peer = 0;

	if (fd < 0)
		return 0;
	nl_put(&r, &diag, sizeof(diag));
	nl_ask(fd, &r, find_peer, &peer);
	close(fd);
	return peer;
}
