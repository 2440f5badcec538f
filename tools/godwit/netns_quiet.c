// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * A network namespace is kept quiet, and speaks again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "netlink.h"
#include "netns_open.h"

#define LOCK		"godwit-tcp"

/*
 * Drop every packet, of whatever kind: ARP, too, and what the kernel sends of its own accord. The new table replaces the old
 * one at once.
 */
int inside_keep_quiet(struct netns *n, void *arg)
{
	char *text = NULL, *output = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int ret;

	(void)arg;
	if (!f)
		return fault("nftables: out of memory");
	fprintf(f, "add table netdev " NETNS_TABLE "\ndelete table netdev " NETNS_TABLE "\ntable netdev " NETNS_TABLE " {\n");
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
		fault("network namespace %s: nft can't keep it quiet: %s", n->at,
		      output && *output ? output : "it does not say why");
	free(output);
	free(text);
	return ret ? -1 : 0;
}

int netns_keep_quiet(json_t *json)
{
	return netns_open_inside(json, inside_keep_quiet);
}

static int take_down(struct netns *n, void *arg)
{
	int ret = 0;

	(void)arg;
	for (size_t i = 0; i < n->n; i++) {
		const char *ifname = n->iface[i].ifname;
		char *what = xasprintf("interface %s in %s", ifname, n->at);

		if (if_nametoindex(ifname))
			ret = TOOL(what, "take it away with ip link delete", "ip", "link", "set", "dev", ifname, "down") ?: ret;
		free(what);
	}
	return ret;
}

int netns_take_down(json_t *json)
{
	struct netns n;
	int ret = netns_open(&n, json);

	if (!ret && n.ns >= 0)
		ret = netns_inside(&n, take_down, NULL);
	netns_close(&n);
	return ret;
}

int netns_set_neighbours(const struct netns *n, const char *state)
{
	json_t *neighbour;
	int ret = 0;
	size_t j;

	for (size_t i = 0; i < n->n; i++)
		json_array_foreach(n->neighbours[i], j, neighbour)
			ret = TOOL("neighbours", "take them away with ip neigh", "ip", "neigh", "replace", text_of(neighbour, "dst"),
				   "lladdr", text_of(neighbour, "mac"), "nud",
				   json_is_true(json_object_get(neighbour, "permanent")) ? "permanent" : state, "dev",
				   n->iface[i].ifname) ?: ret;
	return ret;
}

int inside_end_quiet(struct netns *n, void *set)
{
	int ret = nl_table_delete(NFPROTO_NETDEV, NETNS_TABLE);

	/* From now on the kernel may ask neighbours. */
	if (set && netns_set_neighbours(n, "stale"))
		return -1;
	return ret && ret != -ENOENT ?
		fault("network namespace %s: it stays quiet (%s): nsenter --net=%s nft delete table netdev " NETNS_TABLE,
		      n->at, strerror(-ret), n->at) : 0;
}

int netns_end_quiet(json_t *json)
{
	bool made = json_object_get(json, "made");
	struct netns n;
	int ret = netns_open(&n, json) ?: netns_inside(&n, inside_end_quiet, made ? &n : NULL);

	netns_close(&n);
	return ret;
}

/*
 * Do what CRIU's lock does, but let RDMA's packets pass: as long as the lock is held, stopped queue pairs must answer, and
 * peers must be asked to wait.
 */
static int lock_tcp(struct netns *n, void *arg)
{
	static const char text[] = "add table inet " LOCK "\ndelete table inet " LOCK "\ntable inet " LOCK " {\n"
		"chain output { type filter hook output priority -10; meta l4proto tcp drop; }\n"
		"chain input { type filter hook input priority -10; meta l4proto tcp drop; }\n}\n";

	(void)arg;
	return run((const char *const[]){ "nft", "-f", "-", NULL }, text, NULL) ?
		fault("network namespace %s: nft can't hold its TCP connections", n->at) : 0;
}

int netns_lock_tcp(json_t *json)
{
	return netns_open_inside(json, lock_tcp);
}

int inside_unlock_tcp(struct netns *n, void *arg)
{
	int ret = nl_table_delete(NFPROTO_INET, LOCK);

	(void)arg;
	return ret && ret != -ENOENT ?
		fault("network namespace %s: its TCP connections stay locked (%s): nsenter --net=%s nft delete table inet " LOCK,
		      n->at, strerror(-ret), n->at) : 0;
}

int netns_unlock_tcp(json_t *json)
{
	return netns_open_inside(json, inside_unlock_tcp);
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
	return netns_open_inside(json, announce);
}
