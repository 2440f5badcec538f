// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The network of a container at the source: its namespace, and the network of podman's that it is in.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "move.h"
#include "netns.h"
#include "podman.h"
#include "text.h"

/* ------------------------------------------------------- its namespace -- */

json_t *container_netns(const struct move *m)
{
	return json_object_get(m->container.facts, "netns");
}

struct others {
	const struct tree *tree;
	uint64_t netns;
	pid_t pid;
};

static int is_other(pid_t pid, void *arg)
{
	struct others *o = arg;

	o->pid = pid;
	return proc_ns(pid, "net") == o->netns && !tree_has(o->tree, pid);
}

/* A process that is not of the container would lose the network namespace when that moves. */
static void look_at_others(struct move *m)
{
	struct others o = { .tree = &m->plan.tree, .netns = proc_ns(m->process.pid, "net") };

	if (o.netns && proc_each(is_other, &o))
		plan_problem(&m->plan, "container %s: process %d, which is none of its own, is in its network namespace, which "
			     "goes along: end that", m->container.name, o.pid);
}

static bool has_device(json_t *netns, const char *device)
{
	json_t *link;
	size_t i;

	json_array_foreach(json_object_get(netns, "links"), i, link)
		if (!strcmp(container_fact(link, "device"), device))
			return true;
	return false;
}

/* Where namespaces share devices, the container may have one of this host open. That device's addresses stay here. */
static void look_at_devices(struct move *m, json_t *netns)
{
	for (size_t i = 0; i < m->plan.contexts.n; i++) {
		const struct context *c = &m->plan.contexts.context[i];

		if (*c->device && !has_device(netns, c->device))
			plan_problem(&m->plan, "container %s: process %d, descriptor %d: it has %s open, which is not in its "
				     "network namespace: give the container only devices that are (godwit link add)",
				     m->container.name, c->pid, c->fd, c->device);
	}
}

/* All that is in the namespace goes along, except podmans, the interface that podman makes again; NULL: there is none. */
static json_t *look_at_netns(struct move *m, const char *path, json_t *podmans)
{
	json_t *netns;

	look_at_others(m);
	netns = netns_describe(path, m->container.parent, podmans);
	if (netns)
		look_at_devices(m, netns);
	else
		plan_problem(&m->plan, "%s", fault_text());
	fault_clear();
	if (m->addresses.n)
		plan_problem(&m->plan, "address %s: the container has a network namespace of its own, which goes along with all "
			     "its addresses: leave --address out", m->addresses.address[0].text);
	return netns;
}

/* ---------------------------------------------------- a network of podman's -- */

json_t *container_network(const struct move *m)
{
	return json_object_get(m->container.facts, "network");
}

json_t *container_netns_left(const struct move *m)
{
	json_t *netns = container_netns(m);

	return netns && !netns_is_gone(netns) ? netns : NULL;
}

/* In the form [{"port": 8080, "protocol": "tcp", "address": of the host, or "", "inside": "80/tcp"}] */
static json_t *published(json_t *bindings)
{
	json_t *list = json_array(), *ports, *port;
	const char *inside;
	size_t i;

	json_object_foreach(bindings, inside, ports)
		json_array_foreach(ports, i, port)
			json_array_append_new(list, json_pack("{s:i, s:s, s:s, s:s}", "port", atoi(container_fact(port, "HostPort")),
				"protocol", (strchr(inside, '/') ?: "/tcp") + 1, "address", container_fact(port, "HostIp"), "inside", inside));
	return list;
}

/* Its addresses in the network. The container keeps them. */
static json_t *addresses_in(json_t *settings)
{
	static const char *const keys[] = { "IPAddress", "GlobalIPv6Address" };
	static const char *const more[] = { "SecondaryIPAddresses", "SecondaryIPv6Addresses" };
	json_t *list = json_array(), *other;
	size_t j;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (*container_fact(settings, keys[i]))
			json_array_append(list, json_object_get(settings, keys[i]));
		json_array_foreach(json_object_get(settings, more[i]), j, other)
			json_array_append_new(list, json_string(container_fact(other, "Addr")));
	}
	return list;
}

static bool is_loopback(const char *address)
{
	return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* Is it loopback, or an address of an interface that goes along? */
static bool goes_along(json_t *netns, const char *local)
{
	json_t *link, *address;
	size_t i, j;

	json_array_foreach(json_object_get(netns, "links"), i, link)
		json_array_foreach(json_object_get(link, "addresses"), j, address)
			if (ip_text_is(json_string_value(address), local))
				return true;
	return is_loopback(local);
}

/* Its other end finds this host by the host's address, which stays here. A connection of the container to itself can move. */
static int check_connection(const struct proc_inet *s, void *m)
{
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];

	if (s->udp || !s->remote_port || goes_along(container_netns(m), ip_text(&s->local, local)) || proc_inet_peer(s))
		return 0;
	return fault("process %d, descriptor %d: the TCP connection %s:%u - %s:%u is in podman's network, and can't move: close it "
		     "before, or use an address of an interface that goes along (godwit link add)", s->pid, s->fd, local,
		     s->local_port, ip_text(&s->remote, remote), s->remote_port);
}

int container_check_connections(const struct move *m)
{
	return container_network(m) ? proc_each_inet(&m->plan.tree, check_connection, (void *)m) : 0;
}

/* What podman has of the network, without what differs from host to host. NULL: it can't be moved. */
static json_t *inspect(struct move *m, const char *name)
{
	const char *driver, *ipam;
	json_t *network = podman_network(name);

	driver = container_fact(network, "driver");
	ipam = container_fact(json_object_get(network, "ipam_options"), "driver");
	json_object_del(network, "containers");
	if (!network)
		plan_problem(&m->plan, "network %s: podman does not say within 20 s what it is: does it move or restore another container? try "
			     "again", name);
	else if (strcmp(driver, "bridge"))
		plan_problem(&m->plan, "container %s: its network, %s, is of the kind %s, and only a bridge can be moved: run it in a bridge "
			     "network, or with --network ns:/run/netns/NAME", m->container.name, name, driver);
	else if (strcmp(ipam, "host-local"))
		plan_problem(&m->plan, "container %s: its address in its network, %s, does not come from podman (%s), and can't be moved: "
			     "run it in another network", m->container.name, name, ipam);
	else if (!strcmp(container_fact(json_object_get(network, "options"), "mode"), "unmanaged"))
		plan_problem(&m->plan, "container %s: the bridge of its network, %s, is not podman's (mode=unmanaged), and both hosts would "
			     "have its address in one LAN: run it in another network", m->container.name, name);
	else
		return network;
	json_decref(network);
	return NULL;
}

static json_t *look_at_podmans(struct move *m, json_t **netns)
{
	json_t *settings = json_object_get(m->container.inspected, "NetworkSettings"), *networks = json_object_get(settings, "Networks");
	json_t *bindings = json_object_get(json_object_get(m->container.inspected, "HostConfig"), "PortBindings");
	json_t *its, *inspected, *addresses, *podmans;
	const char *name = json_object_iter_key(json_object_iter(networks));

	if (json_object_size(networks) != 1) {
		plan_problem(&m->plan, "container %s: it is in %zu networks of podman's, and only one that is in a single network "
			     "can be moved: podman network disconnect", m->container.name, json_object_size(networks));
		return NULL;
	}
	inspected = inspect(m, name);
	if (!inspected)
		return NULL;
	its = json_object_get(networks, name);
	addresses = addresses_in(its);
	podmans = json_pack("{s:s, s:O}", "mac", container_fact(its, "MacAddress"), "addresses", addresses);
	*netns = look_at_netns(m, container_fact(settings, "SandboxKey"), podmans);
	json_decref(podmans);
	return json_pack("{s:s, s:o, s:o, s:o}", "name", name, "inspected", inspected, "addresses", addresses, "ports",
			 published(bindings));
}

/* ------------------------------------------------------------------ all -- */

/* In the host's network, only --address goes along. */
json_t *container_look_at_network(struct move *m, json_t **netns)
{
	const char *mode = container_fact(json_object_get(m->container.inspected, "HostConfig"), "NetworkMode");

	*netns = NULL;
	if (!strcmp(mode, "bridge"))
		return look_at_podmans(m, netns);
	if (!strncmp(mode, "ns:", 3))
		*netns = look_at_netns(m, mode + 3, NULL);
	else if (strcmp(mode, "host"))
		plan_problem(&m->plan, "container %s: its network is of the kind %s, which can't be moved: run it in a bridge network of "
			     "podman's, with --network ns:/run/netns/NAME, or with --network host", m->container.name, mode);
	return NULL;
}

/* Nobody tells clients where the container is now. */
void container_tell_network(const struct move *m)
{
	json_t *network = container_network(m), *item;
	size_t i;

	json_array_foreach(json_object_get(network, "ports"), i, item)
		if (!is_loopback(container_fact(item, "address")))
			report_beforehand("container %s: %s is reached at port %lld of %s after the move, and no longer here",
					  m->container.name, container_fact(item, "inside"),
					  (long long)json_integer_value(json_object_get(item, "port")), m->host);
	json_array_foreach(json_object_get(network, "addresses"), i, item)
		report_note("container %s: it keeps %s in network %s", m->container.name, json_string_value(item),
			    container_fact(network, "name"));
}
