// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * A network namespace is made, and taken away.
 */
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "netns_open.h"
#include "proc.h"
#include "rdma.h"

#define GID_WAIT_MS	5000
#define GONE_WAIT_MS	5000

/* ------------------------------------------------------------ take away -- */

/* Is this device on this interface, here? */
static bool lies_on(const char *device, const char *ifname)
{
	char *of = device ? iface_of(device) : NULL;
	bool on = of && !strcmp(of, ifname);

	free(of);
	return on;
}

static int remove_iface(const struct netns *n, const struct iface *i)
{
	char *what;
	int ret;

	if (!if_nametoindex(i->ifname))
		return 0;
	if (!iface_can_be_deleted(i->ifname))
		return fault("interface %s in %s: it is not the one that was described: take it away", i->ifname, n->at);
	if (lies_on(i->device, i->ifname) && (iface_check_unused(i->device) || iface_delete_device(i->device)))
		return -1;
	what = xasprintf("interface %s in %s", i->ifname, n->at);
	ret = iface_delete(i->ifname, what, "take it away with ip link delete");
	free(what);
	return ret;
}

/* 1: no interface but lo is left */
static int remove_ifaces(struct netns *n, void *made)
{
	struct if_nameindex *list;
	bool empty = true;
	int ret = 0;

	/* made says how many interfaces were made. NULL means all. */
	for (size_t i = made ? *(size_t *)made : n->n; i-- > 0;)
		if (remove_iface(n, &n->iface[i]))
			ret = -1;
	inside_reset_sysctls(n);
	list = if_nameindex();
	for (size_t i = 0; list && list[i].if_index; i++)
		empty &= !strcmp(list[i].if_name, "lo");
	if (list)
		if_freenameindex(list);
	return ret ?: list && empty;
}

static int is_in(pid_t pid, void *ino)
{
	return proc_ns(pid, "net") == *(uint64_t *)ino;
}

/* One without its name ends with its last process. */
static int remove_namespace(struct netns *n)
{
	char *what = xasprintf("network namespace %s", n->path);
	int ret = netns_is_named(n) ? TOOL(what, "take it away with ip netns delete", "ip", "netns", "delete", n->name) : 0;

	free(what);
	return ret;
}

static bool in_use(const struct netns *n)
{
	struct stat st;
	uint64_t ino;

	if (fstat(n->ns, &st))
		return true;
	ino = st.st_ino;
	return proc_each(is_in, &ino);
}

/* fault(): this reason, and what is to be done then. */
static int stays(const struct netns *n, bool ours)
{
	char *why = xstrdup(fault_text());

	fault_clear();
	if (!ours)
		fault("network namespace %s: a part of the move stays in it: %s; then take the interface away, and: nsenter --net=%s "
		      "nft delete table netdev " NETNS_TABLE, n->at, why, n->at);
	else if (netns_is_named(n))
		fault("network namespace %s: it stays: %s; then: ip netns delete %s", n->path, why, n->name);
	else
		fault("network namespace %s, which has lost its name %s: it stays until its last process has ended: %s", n->at, n->name,
		      why);
	free(why);
	return -1;
}

int netns_remove(json_t *json)
{
	/* A namespace that was there before belongs to somebody. */
	bool ours = !json_is_false(json_object_get(json, "made"));
	struct netns n;
	int ret = netns_open(&n, json);

	if (!ret && n.ns >= 0) {
		ret = netns_inside(&n, remove_ifaces, NULL);
		if (ret < 0)
			stays(&n, ours);
		else if (ret > 0 && ours && netns_is_named(&n) && !in_use(&n))
			ret = remove_namespace(&n);
		else
			ret = netns_inside(&n, inside_end_quiet, NULL) ?: netns_inside(&n, inside_unlock_tcp, NULL);
	}
	netns_close(&n);
	return ret;
}

/* The kernel removes a namespace from a work item, and its devices with it. */
int netns_wait_gone(json_t *json)
{
	int64_t end = now_ns() + GONE_WAIT_MS * INT64_C(1000000);
	json_t *links = json_object_get(json, "links"), *link;
	size_t i;

	json_array_foreach(links, i, link) {
		const char *device = text_of(link, "device") ?: "";

		while (rdma_name_is_taken(device)) {
			if (now_ns() > end)
				return fault("device %s: it stays here, as does its network namespace: end who has that open, or: "
					     "godwit link del %s", device, device);
			poll(NULL, 0, 10);
		}
	}
	return 0;
}

/* ----------------------------------------------------------------- make -- */

static int add_route(const struct netns *n, const struct iface *i, json_t *route)
{
	const char *dst = text_of(route, "dst"), *gateway = text_of(route, "gateway");
	char *what = xasprintf("route %s in %s", dst, n->path);
	const char *family = strchr(dst, ':') || (gateway && strchr(gateway, ':')) ? "-6" : "-4";
	int ret = gateway ?
		TOOL(what, "can its gateway be reached?", "ip", family, "route", "add", dst, "via", gateway, "dev", i->ifname) :
		TOOL(what, "take it away at the source", "ip", family, "route", "add", dst, "dev", i->ifname);

	free(what);
	return ret;
}

/* Add the routes with a gateway, or those without. Those without come first: a gateway may be reached by one of them. */
static int add_routes(const struct netns *n, bool by_gateway)
{
	json_t *route;
	size_t j;

	for (size_t i = 0; i < n->n; i++)
		json_array_foreach(n->routes[i], j, route)
			if (by_gateway == !!text_of(route, "gateway") && add_route(n, &n->iface[i], route))
				return -1;
	return 0;
}

/* The kernel adds a GID from a work item, and sysfs has no way to wait for that. */
static int wait_gids(const struct iface *i)
{
	int64_t end = now_ns() + GID_WAIT_MS * INT64_C(1000000);

	for (;;) {
		struct gid *gids;
		size_t n = rdma_gids(i->device, &gids), found = 0;

		if (!n && fault_is_set())
			return -1;
		for (size_t j = 0; j < n; j++)
			found += gids[j].rocev2 && addresses_have(&i->addresses, &gids[j].gid);
		free(gids);
		if (found >= i->addresses.n)
			return 0;
		if (now_ns() > end)
			return fault("device %s: the GIDs of its addresses did not appear: is the driver ours?", i->device);
		poll(NULL, 0, 1);
	}
}

/* All interfaces are down until they are quiet and have their sysctls, and up before the first route. */
static int fill(struct netns *n, void *arg)
{
	if (inside_set_sysctls(n, arg) || iface_lo_up() || inside_keep_quiet(n, arg))
		return -1;
	for (size_t i = 0; i < n->n; i++)
		if (iface_add_addresses(&n->iface[i]) || iface_up(&n->iface[i]))
			return -1;
	/* The entries of neighbours are permanent as long as the kernel can't ask neighbours. */
	if (add_routes(n, false) || add_routes(n, true) || netns_set_neighbours(n, "permanent"))
		return -1;
	for (size_t i = 0; i < n->n; i++)
		if (n->iface[i].device && (iface_add_device(&n->iface[i]) || wait_gids(&n->iface[i])))
			return -1;
	return 0;
}

static int make_ifaces(const struct netns *n, size_t *made)
{
	for (*made = 0; *made < n->n; ++*made)
		if (iface_make(&n->iface[*made], n->ns))
			return -1;
	return 0;
}

static int make_namespace(struct netns *n)
{
	char *what = xasprintf("network namespace %s", n->path);
	int ret = TOOL(what, "see to it that ip netns add works", "ip", "netns", "add", n->name);

	free(what);
	if (ret)
		return ret;
	n->ns = ns_open(n->path);
	return n->ns < 0 ? fault("network namespace %s: it can't be opened: %s", n->path, strerror(errno)) : 0;
}

/* The reason is set already; what can't be taken back is told. */
static void take_back(struct netns *n, size_t made, bool namespace)
{
	int ret = n->ns >= 0 ? netns_inside(n, remove_ifaces, &made) : 0;

	if (ret >= 0 && namespace)
		ret = remove_namespace(n);
	else if (ret >= 0 && made == n->n)	/* the table that keeps them quiet comes after the last interface */
		ret = netns_inside(n, inside_end_quiet, NULL);
	if (ret < 0)
		fprintf(stderr, "godwit: warning: network namespace %s: a part of it stays: take it away with ip netns delete\n",
			n->path);
}

int netns_remember(json_t *json)
{
	struct netns n;
	int ret;

	json_object_del(json, "before");
	json_object_del(json, "cookie");
	ret = netns_open(&n, json);
	json_object_set_new(json, "made", json_boolean(n.ns < 0));
	if (!ret && n.ns >= 0) {
		json_object_set_new(json, "before", n.before = json_object());
		ret = netns_note(&n, json) ?: netns_inside(&n, inside_collect_sysctls, NULL);
	}
	netns_close(&n);
	return ret;
}

int netns_make(json_t *json)
{
	size_t made = 0;
	struct netns n;
	bool namespace = json_is_true(json_object_get(json, "made"));
	int ret = netns_open(&n, json);

	if (!ret && (namespace ? n.ns >= 0 : !netns_is_named(&n)))
		ret = fault("network namespace %s: somebody has just made it, or taken it away: try again", n.path);
	if (ret)
		goto out;
	ret = namespace ? make_namespace(&n) ?: netns_note(&n, json) : 0;
	ret = ret ?: make_ifaces(&n, &made) ?: netns_inside(&n, fill, NULL);
	if (ret)
		take_back(&n, made, namespace);
out:
	netns_close(&n);
	return ret;
}
