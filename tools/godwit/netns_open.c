// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * A network namespace as JSON. It is checked before anything is done with it. And the one place in which the namespace is
 * entered.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "netns_open.h"

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

static int parse_iface(struct iface *i, json_t *link)
{
	json_t *addresses = json_object_get(link, "addresses"), *text;
	const char *type = text_of(link, "type");
	size_t j;

	*i = (struct iface){
		.ifname = text_of(link, "ifname"), .type = iface_type(type ?: ""), .parent = text_of(link, "parent"),
		.mac = text_of(link, "mac"), .device = text_of(link, "device"),
		.mtu = json_integer_value(json_object_get(link, "mtu")),
	};
	if (!i->ifname || !type || !i->parent || i->mtu <= 0)
		return fault("network namespace: what it is to have makes no sense: use the same godwit at both ends");
	if (!i->type || strcmp(text_of(link, "mode") ?: "", i->type->mode) || i->type->has_mac != !!i->mac)
		return fault("interface %s: such a %s can't be made: use the same godwit at both ends", i->ifname, type);
	if (iface_check_name("interface", i->ifname, IFNAMSIZ) || iface_check_parent_name(i->parent) ||
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

		/* A "default" route has the family of its gateway. */
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

void netns_close(struct netns *n)
{
	for (size_t i = 0; i < n->n; i++)
		addresses_free(&n->iface[i].addresses);
	free(n->iface);
	free(n->routes);
	free(n->neighbours);
	free(n->at);
	close_fd(&n->ns);
	close_fd(&n->ours);
}

static int see_cookie(struct netns *n, void *cookie)
{
	return ns_cookie(cookie) ?
		fault("network namespace %s: the kernel does not say which it is: %s", n->at, strerror(errno)) : 0;
}

int netns_note(struct netns *n, json_t *json)
{
	uint64_t cookie;
	int ret = netns_inside(n, see_cookie, &cookie);

	return ret ?: json_object_set_new(json, "cookie", json_integer(cookie));
}

static bool has_cookie(void *noted)
{
	uint64_t cookie;

	return !ns_cookie(&cookie) && cookie == *(uint64_t *)noted;
}

/* Whoever deletes its name, or gives the name to another namespace, does not end the one that was noted: a process may be in it. */
static int find_noted(struct netns *n, uint64_t noted)
{
	uint64_t cookie;
	char *at;

	if (n->ns >= 0 && netns_inside(n, see_cookie, &cookie))
		return -1;
	if (n->ns >= 0 && cookie == noted)
		return 0;
	close_fd(&n->ns);
	n->ns = ns_find(n->ours, has_cookie, &noted, &at);
	if (n->ns >= 0) {
		free(n->at);
		n->at = at;
	}
	return 0;
}

bool netns_is_named(const struct netns *n)
{
	int ns = n->ns < 0 ? -1 : ns_open(n->path);
	bool same = ns >= 0 && ns_same(ns, n->ns);

	close_fd(&ns);
	return same;
}

/* The namespace need not be there. Call netns_close() in every case. */
int netns_open(struct netns *n, json_t *json)
{
	json_t *links = json_object_get(json, "links"), *noted = json_object_get(json, "cookie"), *link;
	size_t i;

	*n = (struct netns){ .path = text_of(json, "path") ?: "", .ns = -1, .ours = -1 };
	n->name = netns_name(n->path);
	if (!n->name)
		return -1;
	n->at = xstrdup(n->path);
	n->sysctls = json_object_get(json, "sysctls");
	n->changed = json_object_get(json, "changed");
	n->before = json_object_get(json, "before");
	if (!netns_sysctl_names(n->sysctls) || !netns_sysctl_names(n->changed) || !netns_sysctl_names(n->before))
		return fault("network namespace: its sysctls make no sense: use the same godwit at both ends");
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
	if (noted)
		return find_noted(n, json_integer_value(noted));
	if (n->ns < 0 && errno != ENOENT)
		return fault("network namespace %s: %s: take that file away", n->path,
			     errno == ENOTTY ? "it is none" : strerror(errno));
	if (n->ns >= 0 && ns_same(n->ns, n->ours))
		return fault("network namespace %s: it is this host's own, not a container's: take that name away", n->path);
	return 0;
}

/* The only way in, so that there is one way out. */
int netns_inside(struct netns *n, int (*work)(struct netns *n, void *arg), void *arg)
{
	int ret;

	if (n->ns < 0)
		return fault("network namespace %s: it is gone", n->path);
	if (ns_enter(n->ns))
		return -1;
	ret = work(n, arg);
	ns_come_back(n->ours);
	return ret;
}

int netns_open_inside(json_t *json, int (*work)(struct netns *n, void *arg))
{
	struct netns n;
	int ret = netns_open(&n, json) ?: netns_inside(&n, work, NULL);

	netns_close(&n);
	return ret;
}

bool netns_is_gone(json_t *json)
{
	struct netns n;
	bool gone = !netns_open(&n, json) && n.ns < 0;

	netns_close(&n);
	fault_clear();
	return gone;
}

int netns_check_name(json_t *json, pid_t pid)
{
	struct netns n;
	int ret = netns_open(&n, json);

	if (!ret && n.ns >= 0 && !netns_is_named(&n))
		ret = fault("network namespace %s: %s, and without that name the container can be neither moved nor started anew: %sip "
			    "netns attach %s %d", n.path, access(n.path, F_OK) ? "it has lost that name" : "another has that name now",
			    access(n.path, F_OK) ? "" : "take that away, then: ", n.name, pid);
	netns_close(&n);
	return ret;
}
