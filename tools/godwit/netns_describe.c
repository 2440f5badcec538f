// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What a network namespace has. Whatever netns_make() would not make again is refused by its name.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "netlink.h"
#include "netns.h"
#include "rdma.h"

struct view {
	const char *path, *parent;
	int ns, ours;
	int host;		/* link_netnsid of interfaces whose parent is in this host's namespace */
	json_t *podmans;	/* the interface that podman makes there itself; or NULL */
	char left_out[IFNAMSIZ];	/* its name */
	json_t *links;		/* as netns_make() takes them */
};

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key)) ?: "";
}

static bool one_of(const char *const *list, const char *text)
{
	while (*list && strcmp(*list, text))
		list++;
	return *list;
}

/* A key of an object that is none of these; or NULL */
static const char *other_key(json_t *object, const char *const *known)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value)
		if (!one_of(known, key))
			return key;
	return NULL;
}

static json_t *find_link(const struct view *v, const char *ifname)
{
	json_t *link;
	size_t i;

	json_array_foreach(v->links, i, link)
		if (!strcmp(text_of(link, "ifname"), ifname))
			return link;
	return NULL;
}

/* ----------------------------------------------------------- interfaces -- */

/* Refuse what a person has set on the interface, and would miss there. */
static int check_settings(const struct view *v, json_t *link, const char *ifname)
{
	static const char *const qdiscs[] = { "noqueue", "noop", NULL };
	json_t *info = json_object_get(json_object_get(link, "linkinfo"), "info_data");

	if (!ip_has_flag(link, "UP"))
		return fault("interface %s in %s: it is down: set it up, or take it away", ifname, v->path);
	if (*text_of(link, "master"))
		return fault("interface %s in %s: it is a part of %s, which can't be moved: take it out", ifname, v->path,
			     text_of(link, "master"));
	if (!one_of(qdiscs, text_of(link, "qdisc")))
		return fault("interface %s in %s: it has the queueing discipline %s, which can't be moved: take it away (tc)",
			     ifname, v->path, text_of(link, "qdisc"));
	if (json_object_get(info, "private") || json_object_get(info, "vepa"))
		return fault("interface %s in %s: its ipvlan is private or vepa: only one of the kind bridge can be moved",
			     ifname, v->path);
	return iface_check_name("interface", ifname, IFNAMSIZ);
}

/* The parent must lie in this host's own namespace, which is asked for its name. */
static int find_parent(const struct view *v, json_t *link, const char *ifname, char parent[IFNAMSIZ])
{
	json_t *nsid = json_object_get(link, "link_netnsid"), *index = json_object_get(link, "link_index");

	if (!json_is_integer(index) || !json_is_integer(nsid) || json_integer_value(nsid) != v->host)
		return fault("interface %s in %s: the interface that it lies on is not in this host's own namespace: "
			     "make it again on one that is", ifname, v->path);
	ns_come_back(v->ours);
	parent = if_indextoname(json_integer_value(index), parent);
	if (ns_enter(v->ns))
		return -1;
	return parent ? 0 : fault("interface %s in %s: the interface that it lies on is gone: make it again", ifname, v->path);
}

/* What a person has set on the port of a bridge; NULL: nothing that can be told. */
static const char *port_setting(json_t *port)
{
	static const char *const on[] = { "learning", "flood", "mcast_flood", "bcast_flood", NULL };
	json_t *data = json_object_get(json_object_get(port, "linkinfo"), "info_slave_data"), *value;
	const char *key;

	if (!ip_has_flag(port, "UP"))
		return "down";
	if (strcmp(text_of(port, "qdisc"), "noqueue"))
		return text_of(port, "qdisc");
	json_object_foreach(data, key, value)
		if (json_is_boolean(value) && json_is_true(value) != one_of(on, key))
			return key;
	if (strcmp(text_of(data, "state"), "forwarding"))
		return "state";
	if (strcmp(text_of(data, "group_fwd_mask_str"), "0x0"))
		return "group_fwd_mask";
	if (json_integer_value(json_object_get(data, "multicast_router")) != 1)
		return "mcast_router";
	return json_object_get(data, "backup_port") ? "backup_port" : NULL;
}

/*
 * Is it a port as iface_make() makes them? In this host's own namespace. Puts the bridge in the port's place. The bridge is
 * checked before the port's settings, because a bridge that is down or has STP changes the state of its ports.
 */
static int look_at_port(const struct view *v, const struct iface_type *type, const char *ifname, char port[IFNAMSIZ])
{
	json_t *link = iface_show(port);
	const char *bridge = text_of(link, "master"), *setting = port_setting(link);
	struct iface i = { .ifname = ifname, .type = type, .parent = bridge };
	int ret = 0;

	if (!*bridge || strcmp(text_of(json_object_get(link, "linkinfo"), "info_slave_kind"), "bridge"))
		ret = fault("interface %s in %s: its other end, %s, is no port of a bridge, and such a veth can't be moved: make it one",
			    ifname, v->path, port);
	else if (iface_check_parent(&i, " here"))
		ret = -1;
	else if (setting)
		ret = fault("interface %s in %s: its other end, %s, is a port with a setting of its own (%s), which can't be moved: "
			    "change it back", ifname, v->path, port, setting);
	snprintf(port, IFNAMSIZ, "%s", bridge);
	json_decref(link);
	return ret;
}

static int find_bridge(const struct view *v, const struct iface_type *type, const char *ifname, char port[IFNAMSIZ])
{
	int ret;

	ns_come_back(v->ours);
	ret = look_at_port(v, type, ifname, port);
	return ns_enter(v->ns) ?: ret;
}

static int add_link(struct view *v, json_t *link)
{
	json_t *info = json_object_get(link, "linkinfo"), *its;
	const char *kind = text_of(info, "info_kind"), *ifname = text_of(link, "ifname");
	const char *mode = text_of(json_object_get(info, "info_data"), "mode");
	const struct iface_type *type = iface_type(kind);
	char parent[IFNAMSIZ] = "";

	if (!type)
		return fault("interface %s in %s: it is of type %s, and only a macvlan, ipvlan or veth can be moved: use one "
			     "(godwit link add), or take it away", ifname, v->path, *kind ? kind : text_of(link, "link_type"));
	if (strcmp(mode, type->mode))
		return fault("interface %s in %s: it is %s of mode %s, and only mode %s can be moved: make it again", ifname,
			     v->path, type->one, mode, type->mode);
	if (check_settings(v, link, ifname) || find_parent(v, link, ifname, parent) ||
	    (type->on_bridge && find_bridge(v, type, ifname, parent)))
		return -1;
	its = json_pack("{ss ss ss ss sI s[] s[] s[]}", "ifname", ifname, "type", kind, "mode", mode, "parent",
			v->parent ?: parent, "mtu", json_integer_value(json_object_get(link, "mtu")), "addresses", "routes",
			"neighbours");
	if (type->has_mac)
		json_object_set(its, "mac", json_object_get(link, "address"));
	json_array_append_new(v->links, its);
	return 0;
}

/* podman makes it again, with its addresses and routes. */
static bool is_podmans(struct view *v, json_t *link)
{
	if (!v->podmans || strcmp(text_of(link, "address"), text_of(v->podmans, "mac")))
		return false;
	snprintf(v->left_out, sizeof(v->left_out), "%s", text_of(link, "ifname"));
	return true;
}

static int add_links(struct view *v)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "-d", "link", "show", NULL }), *link;
	int ret = 0;
	size_t i;

	if (!list)
		return fault("network namespace %s: ip does not show its interfaces: see to it that ip -j works", v->path);
	json_array_foreach(list, i, link)
		if (!ret && strcmp(text_of(link, "ifname"), "lo") && !is_podmans(v, link))
			ret = add_link(v, link);
	json_decref(list);
	if (!ret && v->podmans && !*v->left_out)
		ret = fault("network namespace %s: no interface has the MAC address %s, which podman gave one: start the container anew",
			    v->path, text_of(v->podmans, "mac"));
	return ret;
}

/* ------------------------------------------------------------ addresses -- */

/* Why it can't be moved; NULL: it can. */
static const char *odd_address(json_t *a, bool on_link)
{
	static const char *const known[] = { "family", "local", "prefixlen", "broadcast", "scope", "label", "secondary", "nodad",
					     "protocol", "valid_life_time", "preferred_life_time", NULL };
	const char *other = other_key(a, known);

	if (other)
		return strcmp(other, "address") ? other : "one with a peer";
	if (!on_link)
		return "not of a macvlan, ipvlan or veth";
	return strcmp(text_of(a, "scope"), "global") ? "not of global scope" : NULL;
}

/* On the interface that podman makes: has podman given it? */
static int check_podmans_address(const struct view *v, const char *local)
{
	json_t *address;
	size_t i;

	json_array_foreach(json_object_get(v->podmans, "addresses"), i, address)
		if (!strcmp(json_string_value(address) ?: "", local))
			return 0;
	return fault("address %s of interface %s in %s: podman, which makes that interface there, did not give it, and such a one can't "
		     "be moved: take it away", local, v->left_out, v->path);
}

static int add_address(struct view *v, const char *ifname, json_t *a)
{
	const char *scope = text_of(a, "scope"), *local = text_of(a, "local");
	bool ipv6 = !strcmp(text_of(a, "family"), "inet6");
	json_t *link = find_link(v, ifname);
	const char *odd = odd_address(a, link);
	char *text;

	if (!strcmp(ifname, "lo") && !strcmp(scope, "host"))
		return 0;
	/* The kernel gives the interface such an address there, too. */
	if (ipv6 && !strcmp(scope, "link") && !strcmp(text_of(a, "protocol"), "kernel_ll"))
		return 0;
	if (!strcmp(ifname, v->left_out))
		return check_podmans_address(v, local);
	if (json_object_get(a, "dynamic"))
		return fault("address %s of interface %s in %s: it was given for a time, by a router or DHCP: give one that stays, "
			     "and set net.ipv6.conf.%s.accept_ra=0 there", local, ifname, v->path, ifname);
	if (odd)
		return fault("address %s of interface %s in %s: it is %s, and such a one can't be moved: take it away", local,
			     ifname, v->path, odd);
	text = xasprintf("%s/%d", local, (int)json_integer_value(json_object_get(a, "prefixlen")));
	json_array_append_new(json_object_get(link, "addresses"), json_string(text));
	free(text);
	return 0;
}

static int add_addresses(struct view *v)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "addr", "show", NULL }), *of, *address;
	size_t i, j;
	int ret = 0;

	if (!list)
		return fault("network namespace %s: ip does not show its addresses: see to it that ip -j works", v->path);
	json_array_foreach(list, i, of)
		json_array_foreach(json_object_get(of, "addr_info"), j, address)
			if (!ret && json_object_size(address))
				ret = add_address(v, text_of(of, "ifname"), address);
	json_decref(list);
	return ret;
}

/* --------------------------------------------------------------- routes -- */

/* Why it can't be made by its destination and gateway alone; NULL: it can. */
static const char *odd_route(json_t *route, bool ipv6)
{
	static const char *const known[] = { "dst", "gateway", "dev", "protocol", "scope", "flags", "metric", "pref", NULL };
	static const char *const by_people[] = { "", "boot", "static", NULL };
	const char *scope = text_of(route, "scope");
	json_t *metric = json_object_get(route, "metric");
	bool gateway = json_object_get(route, "gateway");

	if (other_key(route, known))
		return other_key(route, known);
	if (!one_of(by_people, text_of(route, "protocol")))
		return "a protocol";
	if (json_array_size(json_object_get(route, "flags")) > ip_has_flag(route, "linkdown"))
		return "flags";
	if (metric && (!ipv6 || json_integer_value(metric) != 1024))
		return "a metric";
	if (*text_of(route, "pref") && strcmp(text_of(route, "pref"), "medium"))
		return "a preference";
	return strcmp(scope, ipv6 || gateway ? "" : "link") ? "a scope" : NULL;
}

static int add_route(struct view *v, json_t *route, bool ipv6)
{
	const char *dst = text_of(route, "dst"), *gateway = text_of(route, "gateway");
	json_t *link = find_link(v, text_of(route, "dev")), *its;
	const char *odd = odd_route(route, ipv6);

	if (!strcmp(text_of(route, "protocol"), "kernel"))
		return 0;
	if (odd || !link)
		return fault("route %s in %s: it has %s of its own, and only a destination and a gateway can be moved: make it "
			     "again without", dst, v->path, odd ?: "an interface");
	/* A default route without a gateway is written as a prefix, so that the route shows its family. */
	if (!*gateway && !strcmp(dst, "default"))
		dst = ipv6 ? "::/0" : "0.0.0.0/0";
	its = json_pack("{ss}", "dst", dst);
	if (*gateway)
		json_object_set_new(its, "gateway", json_string(gateway));
	json_array_append_new(json_object_get(link, "routes"), its);
	return 0;
}

/* On the interface that podman makes: podman's own are static. */
static int check_podmans_route(const struct view *v, json_t *route)
{
	const char *protocol = text_of(route, "protocol");

	if (*protocol && strcmp(protocol, "boot"))
		return 0;
	return fault("route %s of interface %s in %s: it is not of podman, which makes that interface there, and such a one can't be "
		     "moved: take it away", text_of(route, "dst"), v->left_out, v->path);
}

static int add_routes(struct view *v, const char *family)
{
	const char *const argv[] = { "ip", "-j", family, "route", "show", "table", "main", NULL };
	json_t *list = run_json(argv), *route;
	int ret = 0;
	size_t i;

	if (!list)
		return fault("network namespace %s: ip does not show its routes: see to it that ip -j %s works", v->path, family);
	json_array_foreach(list, i, route)
		if (!ret && *v->left_out && !strcmp(text_of(route, "dev"), v->left_out))
			ret = check_podmans_route(v, route);
		else if (!ret)
			ret = add_route(v, route, !strcmp(family, "-6"));
	json_decref(list);
	return ret;
}

/* ----------------------------------------------------------- neighbours -- */

static bool is_permanent(json_t *neighbour)
{
	json_t *state;
	size_t i;

	json_array_foreach(json_object_get(neighbour, "state"), i, state)
		if (!strcmp(json_string_value(state) ?: "", "PERMANENT"))
			return true;
	return false;
}

/* The neighbours of a connection must be known where it is restored, since nobody can be asked there yet. */
static void add_neighbour(struct view *v, json_t *neighbour)
{
	const char *mac = text_of(neighbour, "lladdr");
	json_t *link = find_link(v, text_of(neighbour, "dev"));

	if (link && *mac && !iface_check_mac(mac))
		json_array_append_new(json_object_get(link, "neighbours"),
				      json_pack("{ss, ss, sb}", "dst", text_of(neighbour, "dst"), "mac", mac, "permanent",
						is_permanent(neighbour)));
	fault_clear();
}

static int add_neighbours(struct view *v)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "neigh", "show", NULL }), *neighbour;
	size_t i;

	if (!list)
		return fault("network namespace %s: ip does not show its neighbours: see to it that ip -j works", v->path);
	json_array_foreach(list, i, neighbour)
		add_neighbour(v, neighbour);
	json_decref(list);
	return 0;
}

/* -------------------------------------------------------------- devices -- */

/* Even if namespaces share devices, rdma shows a device's interface only in the namespace that the interface is in. */
static int add_device(struct view *v, json_t *device)
{
	const char *name = text_of(device, "ifname"), *ifname = text_of(device, "netdev");
	json_t *link = find_link(v, ifname);

	if (!*ifname)
		return 0;
	if (!link || !rdma_is_rxe(name) || json_object_get(link, "device"))
		return fault("device %s in %s: it is not the one rxe device of an interface that can be moved: take it away", name, v->path);
	json_object_set_new(link, "device", json_string(name));
	return iface_check_name("device", name, 64);
}

static int add_devices(struct view *v)
{
	json_t *list = run_json((const char *const[]){ "rdma", "-j", "link", "show", NULL }), *device;
	int ret = 0;
	size_t i;

	if (!list)
		return fault("network namespace %s: rdma does not show its devices: see to it that rdma -j link works", v->path);
	json_array_foreach(list, i, device)
		if (!ret)
			ret = add_device(v, device);
	json_decref(list);
	return ret;
}

/* ---------------------------------------------------------------- other -- */

static int check_rules(struct view *v, const char *family)
{
	static const char *const tables[] = { "local", "main", "default", NULL };
	json_t *list = run_json((const char *const[]){ "ip", "-j", family, "rule", "show", NULL }), *rule;
	int ret = list ? 0 : fault("network namespace %s: ip does not show its routing rules: see to it that ip -j %s works",
				   v->path, family);
	size_t i;

	json_array_foreach(list, i, rule) {
		int priority = json_integer_value(json_object_get(rule, "priority"));
		const char *table = text_of(rule, "table");

		if (!ret && (!one_of(tables, table) || json_object_size(rule) != 3 || strcmp(text_of(rule, "src"), "all") ||
			     (priority && priority != 32766 && priority != 32767)))
			ret = fault("routing rule %d in %s: such rules can't be moved: take it away", priority, v->path);
	}
	json_decref(list);
	return ret;
}

/*
 * Tables of base chains that have no rules and accept everything do nothing, so they pass, and are not made at the
 * destination. CRIU leaves such ones where its lock was made by iptables, `table ip filter` and `table ip6 filter`.
 */
static int check_nft(struct view *v)
{
	json_t *answer = run_json((const char *const[]){ "nft", "-j", "list", "ruleset", NULL }), *object, *value;
	int ret = answer ? 0 : fault("network namespace %s: nft does not show its tables: apt-get install nftables", v->path);
	const char *kind;
	size_t i;

	json_array_foreach(json_object_get(answer, "nftables"), i, object) {
		kind = json_object_iter_key(json_object_iter(object));
		value = json_object_get(object, kind);
		if (!ret && strcmp(kind, "metainfo") && strcmp(kind, "table") &&
		    (strcmp(kind, "chain") || strcmp(text_of(value, "policy"), "accept")))
			ret = fault("nftables in %s: it has the table %s %s, which is not empty, and tables can't be moved: take it away",
				    v->path, text_of(value, "family"), text_of(value, "table"));
	}
	json_decref(answer);
	return ret;
}

/* nft does not show these. The kernel lists a table from the time when somebody first looked at it, until the namespace ends. */
static int check_legacy(struct view *v)
{
	static const char *const lists[] = { "ip_tables_names", "ip6_tables_names", "arp_tables_names" };
	int ret = 0;

	for (size_t i = 0; !ret && i < sizeof(lists) / sizeof(*lists); i++) {
		char *path = xasprintf("/proc/thread-self/net/%s", lists[i]), *names = read_file(path);

		if (names && *names)
			ret = fault("iptables-legacy in %s: it has the table %.*s (%s), and such tables can't be moved: make the namespace "
				    "again, and use nft there", v->path, (int)strcspn(names, "\n"), names, lists[i]);
		free(names);
		free(path);
	}
	return ret;
}

/* Filters lie in qdiscs, also those of interfaces that have no queue. */
static int check_qdiscs(struct view *v)
{
	static const char *const plain[] = { "noqueue", "noop", NULL };
	json_t *list = run_json((const char *const[]){ "tc", "-j", "qdisc", "show", NULL }), *qdisc;
	int ret = list ? 0 : fault("network namespace %s: tc does not show its queues: see to it that tc -j works", v->path);
	size_t i;

	json_array_foreach(list, i, qdisc)
		if (!ret && !one_of(plain, text_of(qdisc, "kind")))
			ret = fault("interface %s in %s: it has the queueing discipline %s, which can't be moved: take it away (tc)",
				    text_of(qdisc, "dev"), v->path, text_of(qdisc, "kind"));
	json_decref(list);
	return ret;
}

/* If ip fails, the kernel has no IPsec. */
static int check_ipsec(struct view *v)
{
	static const char *const kinds[] = { "state", "policy" };
	int ret = 0;

	for (size_t i = 0; !ret && i < sizeof(kinds) / sizeof(*kinds); i++) {
		char *text = NULL;

		if (run((const char *const[]){ "ip", "xfrm", kinds[i], NULL }, NULL, &text) == 0 && text && *text)
			ret = fault("IPsec in %s: ip xfrm %s shows something, and such can't be moved: take it away", v->path, kinds[i]);
		free(text);
	}
	return ret;
}

static int check_proxies(struct view *v)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "neigh", "show", "proxy", NULL });
	json_t *first = json_array_get(list, 0);
	int ret = first ? fault("interface %s in %s: it answers for %s (ip neigh show proxy), which can't be moved: take that away",
				text_of(first, "dev"), v->path, text_of(first, "dst")) : 0;

	json_decref(list);
	return ret;
}

/* For netns_open() at this host */
static int note(const struct view *v, json_t *netns)
{
	uint64_t cookie;

	if (ns_cookie(&cookie))
		return fault("network namespace %s: the kernel does not say which it is: %s", v->path, strerror(errno));
	return json_object_set_new(netns, "cookie", json_integer(cookie));
}

/* In its namespace. */
static int look(struct view *v, json_t *netns)
{
	v->host = nl_nsid(v->ours);
	return add_links(v) || add_addresses(v) || add_routes(v, "-4") || add_routes(v, "-6") || add_neighbours(v) || add_devices(v) ||
	       check_rules(v, "-4") || check_rules(v, "-6") || check_nft(v) || check_legacy(v) || check_qdiscs(v) || check_ipsec(v) ||
	       check_proxies(v) || netns_sysctls(netns, v->ns) || note(v, netns) ? -1 : 0;
}

static int look_inside(struct view *v, json_t *netns)
{
	int ret;

	if (ns_same(v->ns, v->ours))
		return fault("network namespace %s: it is this host's own: use --network host", v->path);
	if (ns_enter(v->ns))
		return -1;
	ret = look(v, netns);
	ns_come_back(v->ours);
	return ret;
}

json_t *netns_describe(const char *path, const char *parent, json_t *podmans)
{
	struct view v = { .path = path, .parent = parent, .podmans = podmans, .ns = -1, .ours = -1, .links = json_array() };
	const char *name = netns_name(path);
	json_t *netns = NULL;

	if (!name || (parent && iface_check_parent_name(parent)))
		goto out;
	v.ns = ns_open(path);
	if (v.ns < 0) {
		fault("network namespace %s: %s: give the container one that ip netns shows", path,
		      errno == ENOTTY ? "it is none" : strerror(errno));
		goto out;
	}
	v.ours = ns_ours();
	netns = json_pack("{ss+ sO}", "path", "/run/netns/", name, "links", v.links);
	if (v.ours < 0 || look_inside(&v, netns)) {
		json_decref(netns);
		netns = NULL;
	}
out:
	json_decref(v.links);
	close_fd(&v.ours);
	close_fd(&v.ns);
	return netns;
}
