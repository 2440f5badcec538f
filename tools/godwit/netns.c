// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host.h"
#include "netlink.h"
#include "netns.h"
#include "proc.h"
#include "rdma.h"
#include "text.h"

#define TABLE		"godwit"
#define LOCK		"godwit-tcp"
#define GID_WAIT_MS	5000

/* The JSON, once it is known to make sense. Strings are the JSON's. */
struct netns {
	const char *path, *name;
	struct iface *iface;
	json_t **routes, **neighbours;	/* of each interface */
	size_t n;
	int ns, ours;
};

/* ------------------------------------------------------------- the JSON -- */

const char *netns_name(const char *path)
{
	static const char *const places[] = { "/run/netns/", "/var/run/netns/" };

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		if (!strncmp(path, places[i], strlen(places[i]))) {
			const char *name = path + strlen(places[i]);

			return iface_check_name("network namespace", name, 64) ? NULL : name;
		}
	fault("network namespace %s: it has no name in /run/netns: make one with ip netns add, and give it to the container", path);
	return NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static int parse_iface(struct iface *i, json_t *link)
{
	json_t *addresses = json_object_get(link, "addresses"), *text;
	const char *mode = text_of(link, "mode") ?: "";
	bool macvlan;
	size_t j;

	*i = (struct iface){
		.ifname = text_of(link, "ifname"), .type = text_of(link, "type"), .parent = text_of(link, "parent"),
		.mac = text_of(link, "mac"), .device = text_of(link, "device"),
		.mtu = json_integer_value(json_object_get(link, "mtu")),
	};
	if (!i->ifname || !i->type || !i->parent || i->mtu <= 0)
		return fault("network namespace: what it is to have makes no sense: use the same godwit at both ends");
	macvlan = !strcmp(i->type, "macvlan");
	if ((!macvlan && strcmp(i->type, "ipvlan")) || strcmp(mode, macvlan ? "bridge" : "l2") || !macvlan == !!i->mac)
		return fault("interface %s: such a %s can't be made: use the same godwit at both ends", i->ifname, i->type);
	if (iface_check_name("interface", i->ifname, IFNAMSIZ) || iface_check_parent(i->parent) ||
	    (i->mac && iface_check_mac(i->mac)) || (i->device && iface_check_name("device", i->device, 64)))
		return -1;
	json_array_foreach(addresses, j, text)
		if (iface_parse_address(i, json_string_value(text) ?: ""))
			return -1;
	return 0;
}

static bool is_address(const char *text, bool with_length)
{
	struct addresses list = { 0 };
	bool is = !address_parse(&list, text) && !list.address[0].ifname[0] &&
		  (list.address[0].prefixlen < 0 || with_length);

	addresses_free(&list);
	return is;
}

static int check_routes(json_t *routes)
{
	json_t *route;
	size_t i;

	json_array_foreach(routes, i, route) {
		const char *dst = text_of(route, "dst") ?: "", *gateway = text_of(route, "gateway");

		/* ("default" has the family of its gateway) */
		if ((gateway ? !is_address(gateway, false) : !strcmp(dst, "default")) ||
		    (strcmp(dst, "default") && !is_address(dst, true)))
			return fault("route %s: it makes no sense: use the same godwit at both ends", dst);
	}
	return 0;
}

static int check_neighbours(json_t *neighbours)
{
	json_t *neighbour;
	size_t i;

	json_array_foreach(neighbours, i, neighbour)
		if (!is_address(text_of(neighbour, "dst") ?: "", false) || iface_check_mac(text_of(neighbour, "mac") ?: ""))
			return fault("neighbours: they make no sense: use the same godwit at both ends");
	return 0;
}

static void netns_close(struct netns *n)
{
	for (size_t i = 0; i < n->n; i++)
		addresses_free(&n->iface[i].addresses);
	free(n->iface);
	free(n->routes);
	free(n->neighbours);
	close_fd(&n->ns);
	close_fd(&n->ours);
}

/* Its namespace need not be there. Close it in every case. */
static int netns_open(struct netns *n, json_t *json)
{
	json_t *links = json_object_get(json, "links"), *link;
	size_t i;

	*n = (struct netns){ .path = text_of(json, "path") ?: "", .ns = -1, .ours = -1 };
	n->name = netns_name(n->path);
	if (!n->name)
		return -1;
	n->iface = xcalloc(json_array_size(links), sizeof(*n->iface));
	n->routes = xcalloc(json_array_size(links), sizeof(*n->routes));
	n->neighbours = xcalloc(json_array_size(links), sizeof(*n->neighbours));
	json_array_foreach(links, i, link) {
		n->routes[i] = json_object_get(link, "routes");
		n->neighbours[i] = json_object_get(link, "neighbours");
		if (parse_iface(&n->iface[n->n++], link) || check_routes(n->routes[i]) || check_neighbours(n->neighbours[i]))
			return -1;
	}
	n->ours = ns_ours();
	if (n->ours < 0)
		return -1;
	n->ns = ns_open(n->path);
	if (n->ns < 0 && errno != ENOENT)
		return fault("network namespace %s: %s: take that file away", n->path,
			     errno == ENOTTY ? "it is none" : strerror(errno));
	return n->ns >= 0 && ns_same(n->ns, n->ours) ?
		fault("network namespace %s: it is this host's own, not a container's: take that name away", n->path) : 0;
}

/* The only way in, so that there is one way out. */
static int inside(struct netns *n, int (*work)(struct netns *n, void *arg), void *arg)
{
	int ret;

	if (n->ns < 0)
		return fault("network namespace %s: there is none: make it with ip netns add", n->path);
	if (ns_enter(n->ns))
		return -1;
	ret = work(n, arg);
	ns_come_back(n->ours);
	return ret;
}

static int open_inside(json_t *json, int (*work)(struct netns *n, void *arg))
{
	struct netns n;
	int ret = netns_open(&n, json) ?: inside(&n, work, NULL);

	netns_close(&n);
	return ret;
}

/* ---------------------------------------------------------------- check -- */

static void check_parent(const struct iface *i, json_t *problems)
{
	const char *const argv[] = { "ip", "-j", "link", "show", "dev", i->parent, NULL };
	json_t *list = if_nametoindex(i->parent) ? run_json(argv) : NULL, *parent = json_array_get(list, 0), *flag;
	json_int_t mtu = json_integer_value(json_object_get(parent, "mtu"));
	bool up = false;
	size_t j;

	json_array_foreach(json_object_get(parent, "flags"), j, flag)
		up |= json_is_string(flag) && !strcmp(json_string_value(flag), "UP");
	if (!list)
		problem(problems, "interface %s: there is none of that name there, for %s to lie on: name another one", i->parent,
			i->ifname);
	else if (!up)
		problem(problems, "interface %s: it is down there, and %s is to lie on it: set it up", i->parent, i->ifname);
	else if (mtu < i->mtu)
		problem(problems, "interface %s: its MTU there is %d, and that of %s is %d: raise it there", i->parent, (int)mtu,
			i->ifname, i->mtu);
	json_decref(list);
}

/* In the namespace that is called there: nothing has the MAC address, nor an address. */
static void check_taken(const struct iface *i, const char *there, json_t *problems)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "link", "show", NULL }), *link;
	size_t j;

	json_array_foreach(list, j, link)
		if (i->mac && !strcasecmp(text_of(link, "address") ?: "", i->mac))
			problem(problems, "interface %s: %s of %s has its MAC address %s there: give that one another", i->ifname,
				text_of(link, "ifname") ?: "?", there, i->mac);
	json_decref(list);
	for (j = 0; j < i->addresses.n; j++) {
		const struct address *a = &i->addresses.address[j];
		struct nl_address nl = { .family = a->family, .addr = a->addr };

		if (nl_address_find(&nl) == 0)
			problem(problems, "address %s: %s has it already: take it away there", a->text, there);
	}
}

static int check_inside(struct netns *n, void *problems)
{
	const char *const argv[] = { "nft", "list", "table", "netdev", TABLE, NULL };

	for (size_t i = 0; i < n->n; i++) {
		if (if_nametoindex(n->iface[i].ifname))
			problem(problems, "interface %s: %s has one of that name there: take it away there", n->iface[i].ifname,
				n->path);
		check_taken(&n->iface[i], n->path, problems);
	}
	if (run(argv, NULL, NULL) == 0)
		problem(problems, "nftables: %s has the table netdev " TABLE " there, of another move: end that, or delete the table",
			n->path);
	return 0;
}

void netns_check(json_t *json, json_t *problems)
{
	struct netns n;

	if (netns_open(&n, json) || host_check_nft())
		goto failed;
	for (size_t i = 0; i < n.n; i++) {
		const char *device = n.iface[i].device;

		check_parent(&n.iface[i], problems);
		check_taken(&n.iface[i], "the destination", problems);
		if (device && rdma_device_exists(device))
			problem(problems, "device %s: there is one of that name there: take it away there (godwit link del %s)",
				device, device);
	}
	if (n.ns < 0 || !inside(&n, check_inside, problems)) {
		netns_close(&n);
		return;
	}
failed:
	problem(problems, "%s", fault_text());
	fault_clear();
	netns_close(&n);
}

/* ----------------------------------------------------------- kept quiet -- */

/* Whatever its kind is: ARP too, and what the kernel sends of its own accord. The old one goes as the new one comes. */
static int keep_quiet(struct netns *n, void *arg)
{
	char *text = NULL, *output = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int ret;

	(void)arg;
	if (!f)
		return fault("guard: out of memory");
	fprintf(f, "add table netdev " TABLE "\ndelete table netdev " TABLE "\ntable netdev " TABLE " {\n");
	for (int in = 0; n->n && in < 2; in++) {
		fprintf(f, "chain %s { type filter hook %s devices = {", in ? "in" : "out", in ? "ingress" : "egress");
		for (size_t i = 0; i < n->n; i++)
			fprintf(f, "%s \"%s\"", i ? "," : "", n->iface[i].ifname);
		fprintf(f, " } priority -500; policy drop; }\n");
	}
	fprintf(f, "}\n");
	fclose(f);
	ret = run((const char *const[]){ "nft", "-f", "-", NULL }, text, &output);
	if (ret == 127)
		fault("nft: it is not installed: apt-get install nftables");
	else if (ret)
		fault("network namespace %s: nft can't guard it: %s", n->path, output && *output ? output : "it does not say why");
	free(output);
	free(text);
	return ret ? -1 : 0;
}

int netns_keep_quiet(json_t *json)
{
	return open_inside(json, keep_quiet);
}

static int set_neighbours(const struct netns *n, const char *state)
{
	json_t *neighbour;
	int ret = 0;
	size_t j;

	for (size_t i = 0; i < n->n; i++)
		json_array_foreach(n->neighbours[i], j, neighbour)
			ret = TOOL("neighbours", "take them away with ip neigh", "ip", "neigh", "replace", text_of(neighbour, "dst"),
				   "lladdr", text_of(neighbour, "mac"), "nud", state, "dev", n->iface[i].ifname) ?: ret;
	return ret;
}

static int end_quiet(struct netns *n, void *set)
{
	int ret = nl_table_delete(NFPROTO_NETDEV, TABLE);

	/* (from now on they can be asked) */
	if (set && set_neighbours(n, "stale"))
		return -1;
	return ret && ret != -ENOENT ?
		fault("network namespace %s: its guard can't be taken away (%s): ip netns exec %s nft delete table netdev " TABLE,
		      n->path, strerror(-ret), n->name) : 0;
}

int netns_end_quiet(json_t *json)
{
	bool made = json_object_get(json, "made");
	struct netns n;
	int ret = netns_open(&n, json) ?: inside(&n, end_quiet, made ? &n : NULL);

	netns_close(&n);
	return ret;
}

/*
 * What CRIU's lock does, but for RDMA's packets: a stopped queue pair answers, and its peers are asked to wait, as long as
 * it is held.
 */
static int lock_tcp(struct netns *n, void *arg)
{
	static const char text[] = "add table inet " LOCK "\ndelete table inet " LOCK "\ntable inet " LOCK " {\n"
		"chain output { type filter hook output priority -10; meta l4proto tcp drop; }\n"
		"chain input { type filter hook input priority -10; meta l4proto tcp drop; }\n}\n";

	(void)arg;
	return run((const char *const[]){ "nft", "-f", "-", NULL }, text, NULL) ?
		fault("network namespace %s: nft can't hold its TCP connections", n->path) : 0;
}

int netns_lock_tcp(json_t *json)
{
	return open_inside(json, lock_tcp);
}

static int unlock_tcp(struct netns *n, void *arg)
{
	int ret = nl_table_delete(NFPROTO_INET, LOCK);

	(void)arg;
	return ret && ret != -ENOENT ?
		fault("network namespace %s: its TCP connections stay locked (%s): ip netns exec %s nft delete table inet " LOCK,
		      n->path, strerror(-ret), n->name) : 0;
}

int netns_unlock_tcp(json_t *json)
{
	return open_inside(json, unlock_tcp);
}

static int announce(struct netns *n, void *arg)
{
	int ret = 0;

	(void)arg;
	for (size_t i = 0; i < n->n; i++) {
		struct addresses *list = &n->iface[i].addresses;

		for (size_t j = 0; j < list->n; j++)
			strcpy(list->address[j].here, n->iface[i].ifname);
		if (addresses_announce(list))
			ret = -1;
	}
	return ret;
}

int netns_announce(json_t *json)
{
	return open_inside(json, announce);
}

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
		return fault("interface %s in %s: it is not the one that was described: take it away", i->ifname, n->path);
	if (lies_on(i->device, i->ifname) && (iface_check_unused(i->device) || iface_delete_device(i->device)))
		return -1;
	what = xasprintf("interface %s in %s", i->ifname, n->path);
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

	/* (made: how many of them there are; NULL: all) */
	for (size_t i = made ? *(size_t *)made : n->n; i-- > 0;)
		if (remove_iface(n, &n->iface[i]))
			ret = -1;
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

static int remove_namespace(struct netns *n)
{
	char *what = xasprintf("network namespace %s", n->path);
	int ret = TOOL(what, "take it away with ip netns delete", "ip", "netns", "delete", n->name);

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

int netns_remove(json_t *json)
{
	struct netns n;
	int ret = netns_open(&n, json);

	if (!ret && n.ns >= 0) {
		ret = inside(&n, remove_ifaces, NULL);
		/* (one that was there before is somebody's) */
		if (ret > 0 && !json_is_false(json_object_get(json, "made")) && !in_use(&n))
			ret = remove_namespace(&n);
		else if (ret >= 0)
			ret = inside(&n, end_quiet, NULL) ?: inside(&n, unlock_tcp, NULL);
	}
	netns_close(&n);
	return ret;
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

/* A gateway may be reached by another route. */
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

/* The kernel adds it from a work item, and sysfs has no way to wait for it. */
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

/* All interfaces are down until they are quiet, and up before the first route. */
static int fill(struct netns *n, void *arg)
{
	if (iface_lo_up() || keep_quiet(n, arg))
		return -1;
	for (size_t i = 0; i < n->n; i++)
		if (iface_add_addresses(&n->iface[i]) || iface_up(&n->iface[i]))
			return -1;
	/* (for as long as they can't be asked) */
	if (add_routes(n, false) || add_routes(n, true) || set_neighbours(n, "permanent"))
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
	int ret = n->ns >= 0 ? inside(n, remove_ifaces, &made) : 0;

	if (ret >= 0 && namespace)
		ret = remove_namespace(n);
	else if (ret >= 0 && made == n->n)	/* (they become quiet last) */
		ret = inside(n, end_quiet, NULL);
	if (ret < 0)
		fprintf(stderr, "godwit: warning: network namespace %s: a part of it stays: take it away with ip netns delete\n",
			n->path);
}

int netns_make(json_t *json)
{
	size_t made = 0;
	struct netns n;
	bool namespace = false;
	int ret = netns_open(&n, json);

	if (ret)
		goto out;
	namespace = n.ns < 0;
	ret = (namespace ? make_namespace(&n) : 0) ?: make_ifaces(&n, &made) ?: inside(&n, fill, NULL);
	if (ret)
		take_back(&n, made, namespace);
	else
		json_object_set_new(json, "made", json_boolean(namespace));
out:
	netns_close(&n);
	return ret;
}
