// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include "netlink_request.h"
#include "netlink_route.h"

struct route {
	bool local;
	int ifindex;	/* 0: the kernel did not say */
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
	ifindex = nl_find_attr(h, sizeof(*msg), RTA_OIF, sizeof(int));
	if (ifindex)
		memcpy(&route->ifindex, ifindex, sizeof(int));
	metrics = nl_find_between(RTM_RTA(msg), end, RTA_METRICS, 0);
	mtu = metrics ? nl_find_between(metrics + 1, (const char *)metrics + metrics->nla_len, RTAX_MTU, sizeof(int)) : NULL;
	if (mtu)
		memcpy(&route->mtu, mtu + 1, sizeof(int));
}

int nl_route(int family, const void *to, const void *from, int ifindex, int *mtu)
{
	struct nl_request r = nl_request(RTM_GETROUTE, NLM_F_ACK);
	size_t size = family == AF_INET ? 4 : 16;
	struct rtmsg msg = {
		.rtm_family = family, .rtm_dst_len = 8 * size, .rtm_src_len = from ? 8 * size : 0,
		/* Without this flag, where there is no route, IPv4 takes the address for one on the interface's link. */
		.rtm_flags = family == AF_INET ? RTM_F_FIB_MATCH : 0,
	};
	struct route route = { 0 };
	int ret;

	nl_put(&r, &msg, sizeof(msg));
	nl_put_attr(&r, RTA_DST, to, size);
	if (from)
		nl_put_attr(&r, RTA_SRC, from, size);
	nl_put_attr(&r, RTA_OIF, &ifindex, sizeof(ifindex));
	ret = nl_talk(NETLINK_ROUTE, &r, read_route, &route);
	if (ret)
		return ret;
	/* IPv6 may answer with a route of another interface. */
	if (!route.local && route.ifindex && route.ifindex != ifindex)
		return -EHOSTUNREACH;
	*mtu = route.mtu;
	return 0;
}
