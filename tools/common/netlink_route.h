/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Whether a route leads somewhere.
 */
#ifndef COMMON_NETLINK_ROUTE_H
#define COMMON_NETLINK_ROUTE_H

/*
 * Does a route lead from this interface to that address? 0: yes; otherwise a negative errno. The family, AF_INET or AF_INET6, says
 * how long addresses are. from: the local address that packets leave from; NULL: it is not here yet. *mtu: the MTU of the route
 * itself, or 0.
 */
int nl_route(int family, const void *to, const void *from, int ifindex, int *mtu);

#endif /* COMMON_NETLINK_ROUTE_H */
