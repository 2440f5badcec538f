// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Would a connection go on from this host? There must be a route to its peer from the interface of its address, and packets as
 * long as its path MTU must pass there. Without this check a missing route would show only after the decision, and too long
 * packets, which are dropped, would never show.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include "agent.h"
#include "gids.h"
#include "netlink.h"
#include "netlink_route.h"
#include "text.h"

/* Where a connection's packets leave. */
struct way {
	const struct address *moves;	/* the address, if it moves along; NULL: it is here */
	struct nl_address from, to;
	const char *ifname;
	char from_text[INET6_ADDRSTRLEN], to_text[INET6_ADDRSTRLEN];
};

static int find_way(const struct addresses *moving, const struct device_here *d, json_t *flow, struct way *way)
{
	const char *from = json_string_value(json_object_get(flow, "from"));
	const char *to = json_string_value(json_object_get(flow, "to"));
	struct in6_addr source, peer;

	if (!from || !to || inet_pton(AF_INET6, from, &source) != 1 || inet_pton(AF_INET6, to, &peer) != 1)
		return fault("a connection of the move makes no sense");
	*way = (struct way){ .moves = addresses_find(moving, &source), .from = nl_of_gid(&source), .to = nl_of_gid(&peer) };
	ip_text(&source, way->from_text);
	ip_text(&peer, way->to_text);
	if (way->moves) {
		way->ifname = way->moves->ifname;
		way->from.prefixlen = way->moves->prefixlen;
		return rdma_sends_from(d->own, way->ifname) ? 0 :
			fault("address %s: it goes to %s, which is not an interface of %s: give --address %s/%d%%INTERFACE",
			      way->from_text, way->ifname, d->name, way->from_text, way->from.prefixlen);
	}
	way->ifname = json_string_value(json_object_get(gids_find(d->gids, from), "interface"));
	return way->ifname && *way->ifname ? 0 : fault("GID %s: %s has it no more", way->from_text, d->name);
}

int agent_flow(const struct addresses *moving, const struct device_here *d, json_t *flow)
{
	unsigned int qpn = json_integer_value(json_object_get(flow, "qp"));
	int path_mtu = json_integer_value(json_object_get(flow, "mtu"));
	int here = json_integer_value(json_object_get(flow, "here"));
	int mtu, route_mtu = 0, ret = 0;
	struct way way;

	if (find_way(moving, d, flow, &way))
		return -1;
	/* An address that moves along brings the route to its own subnet. */
	if (!way.moves || !nl_same_subnet(&way.from, &way.to))
		ret = nl_route(way.to.family, &way.to.addr, way.moves ? NULL : &way.from.addr, if_nametoindex(way.ifname),
			       &route_mtu);
	if (ret)
		return fault("%s, QP %u: from %s on %s there is no route to its peer %s (%s): add one, or give --gid or "
			     "--address", d->name, qpn, way.from_text, way.ifname, way.to_text, strerror(-ret));
	mtu = interface_mtu(way.ifname);
	if (route_mtu && route_mtu < mtu)
		mtu = route_mtu;
	/* If such packets do not pass at the source either, none was ever sent. */
	if (path_mtu > path_mtu_within(mtu) && here > path_mtu_within(mtu))
		return fault("%s, QP %u: its path MTU is %d, and from %s to %s, with an MTU of %d, %d is the most: set that MTU to "
			     "%d or more, or connect with a smaller path MTU", d->name, qpn, path_mtu, way.ifname, way.to_text,
			     mtu, path_mtu_within(mtu), path_mtu + PATH_MTU_HEADERS);
	return 0;
}

/* ----------------------------------------------------------- neighbours -- */

/* The IPv4 addresses of this host; n < 0: they are not known. */
struct own {
	struct nl_address *address;
	ssize_t n;
};

/* Has the interface an address by which the kernel asks for the MAC address of this one? */
static bool can_ask(const struct own *own, int ifindex, const struct nl_address *peer)
{
	bool can = own->n < 0;	/* nobody knows: the restore will tell */

	for (ssize_t i = 0; i < own->n; i++)
		can |= own->address[i].ifindex == ifindex && !own->address[i].secondary &&
		       nl_same_subnet(&own->address[i], peer);
	return can;
}

static bool is_known(const char *address, const char *ifname)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "neigh", "show", "to", address, "dev", ifname, NULL });
	bool known = json_object_get(json_array_get(list, 0), "lladdr");

	json_decref(list);
	return known;
}

static void check_neighbour(const struct own *own, const struct address *moves, json_t *peer, const char *address,
			    json_t *problems)
{
	struct nl_address from = { .family = AF_INET, .addr = moves->addr, .prefixlen = moves->prefixlen };
	struct nl_address to = { .family = AF_INET };

	if (moves->family != AF_INET || inet_pton(AF_INET, address, &to.addr) != 1 || !nl_same_subnet(&from, &to) ||
	    can_ask(own, if_nametoindex(moves->ifname), &to) || is_known(address, moves->ifname))
		return;
	problem(problems, "process %d, descriptor %d, id %lld of librdmacm: %s there has no other address in the subnet of %s, and "
		"needs one to find the id's peer, %s, before the commit: ip address add ADDRESS/%d dev %s, there",
		(int)json_integer_value(json_object_get(peer, "pid")), (int)json_integer_value(json_object_get(peer, "fd")),
		(long long)json_integer_value(json_object_get(peer, "id")), moves->ifname, moves->text, address, moves->prefixlen,
		moves->ifname);
}

/* A program may be connected to itself. Nobody asks for an address that the host has. */
static bool comes_along(const struct addresses *moving, const char *address)
{
	for (size_t i = 0; i < moving->n; i++)
		if (!strcmp(moving->address[i].text, address))
			return true;
	return false;
}

void agent_check_neighbours(const struct addresses *moving, json_t *peers, json_t *problems)
{
	json_t *known = json_object(), *peer;
	struct own own = { 0 };
	size_t i;

	own.n = nl_addresses(AF_INET, &own.address);
	json_array_foreach(peers, i, peer) {
		const char *address = json_string_value(json_object_get(peer, "address"));

		if (!address || json_object_get(known, address) || comes_along(moving, address))
			continue;
		json_object_set_new(known, address, json_true());
		for (size_t n = 0; n < moving->n; n++)
			check_neighbour(&own, &moving->address[n], peer, address, problems);
	}
	free(own.address);
	json_decref(known);
}
