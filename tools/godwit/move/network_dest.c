// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The network of a container at the destination: its namespace, and the network of podman's that it is in. Then podman makes the
 * namespace, with an interface in the network, when it restores the container. What the container has beside that is laid into the
 * namespace before CRIU begins.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "agent.h"
#include "netns.h"
#include "podman.h"
#include "text.h"

/* ---------------------------------------------------------------- check -- */

/* The network must be the same, since the container keeps its address. The container may see the rest, too. */
static void check_properties(const char *name, json_t *theirs, json_t *ours, json_t *problems)
{
	static const char *const keys[] = { "driver", "subnets", "routes", "internal", "ipv6_enabled", "dns_enabled", "options",
					    "ipam_options" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		json_t *there = json_object_get(ours, keys[i]), *here = json_object_get(theirs, keys[i]);
		char *a = there ? json_dumps(there, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : NULL;
		char *b = here ? json_dumps(here, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : NULL;

		if (strcmp(a ?: "", b ?: ""))
			problem(problems, "network %s: it is another one there: \"%s\" is %.200s there, and %.200s here: podman network "
				"create it there as it is here", name, keys[i], a ?: "nothing", b ?: "nothing");
		free(a);
		free(b);
	}
}

/* Does a container here have this address in the network? */
static bool has_address(json_t *container, const char *address)
{
	json_t *interface, *subnet;
	const char *ifname;
	size_t i;

	json_object_foreach(json_object_get(container, "interfaces"), ifname, interface)
		json_array_foreach(json_object_get(interface, "subnets"), i, subnet)
			if (ip_text_is(container_fact(subnet, "ipnet"), address))
				return true;
	return false;
}

static void check_address(const char *name, json_t *containers, const char *address, json_t *problems)
{
	const char *id;
	json_t *other;

	json_object_foreach(containers, id, other)
		if (has_address(other, address))
			problem(problems, "network %s: container %s has the address %s there: give the one that moves another "
				"(podman run --ip)", name, container_fact(other, "name"), address);
}

/* podman and its conmon bind it, too, as long as the container runs. Gives errno, or 0. */
static int try_to_bind(const char *address, int port, bool udp)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = udp ? SOCK_DGRAM : SOCK_STREAM }, *ai;
	char *service = xasprintf("%d", port);
	int fd, on = !udp, v6only = 1, ret = getaddrinfo(*address ? address : "0.0.0.0", service, &hints, &ai);

	free(service);
	if (ret)
		return EADDRNOTAVAIL;
	fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
	if (fd < 0 || bind(fd, ai->ai_addr, ai->ai_addrlen))
		ret = errno;
	close_fd(&fd);
	freeaddrinfo(ai);
	return ret;
}

static void check_port(json_t *port, json_t *problems)
{
	const char *protocol = container_fact(port, "protocol"), *address = container_fact(port, "address");
	int number = json_integer_value(json_object_get(port, "port"));
	int error = is_one_of(protocol, "tcp udp") ? try_to_bind(address, number, !strcmp(protocol, "udp")) : 0;

	if (error == EADDRNOTAVAIL)
		problem(problems, "port %s:%d/%s, which the container publishes: %s is no address of that host: run the container with "
			"--publish without an address", address, number, protocol, address);
	else if (error)
		problem(problems, "port %s:%d/%s, which the container publishes: it can't be had there: %s: end what has it, or run "
			"the container with another", address, number, protocol, strerror(error));
}

void agent_check_network(json_t *network, json_t *problems)
{
	const char *name = container_fact(network, "name");
	json_t *here = podman_network(name), *item;
	size_t i;

	if (here)
		check_properties(name, json_object_get(network, "inspected"), here, problems);
	else if (podman_exists("network", name))
		problem(problems, "network %s: podman does not say within 20 s there what is in it: does it move or restore another "
			"container? try again", name);
	else
		problem(problems, "network %s: there is none of that name there: podman network create it there as it is here", name);
	json_array_foreach(json_object_get(network, "addresses"), i, item)
		check_address(name, json_object_get(here, "containers"), json_string_value(item) ?: "", problems);
	json_array_foreach(json_object_get(network, "ports"), i, item)
		check_port(item, problems);
	json_decref(here);
	fault_clear();
}

/* ----------------------------------------------------------------- make -- */

/*
 * First write down that the namespace is ours to remove, or which sysctls it had. netns_make() takes all back when it fails: then
 * nothing is ours.
 */
int agent_make_netns(struct agent *a)
{
	json_t *netns = json_object_get(a->container, "netns");

	if (netns_remember(netns))
		return -1;
	json_object_set_new(a->container, "has_netns", json_true());
	if (agent_save(a))
		return -1;
	if (netns_make(netns)) {
		json_object_del(a->container, "has_netns");
		return -1;
	}
	netns_drop_sysctls(netns);
	return agent_save(a);
}

/* The path in /run/netns of the namespace that podman has made: the runtime has opened it for CRIU. Free it. */
static char *find_netns(pid_t criu)
{
	char *folder = xasprintf("/proc/%d/fd", criu), *found = NULL;
	DIR *dir = opendir(folder);
	struct dirent *de;

	while (!found && dir && (de = readdir(dir))) {
		char *link = xasprintf("%s/%s", folder, de->d_name), path[PATH_MAX];
		ssize_t n = readlink(link, path, sizeof(path) - 1);

		path[n < 0 ? 0 : n] = '\0';
		if (netns_name(path))
			found = xstrdup(path);
		fault_clear();
		free(link);
	}
	if (dir)
		closedir(dir);
	free(folder);
	return found;
}

int agent_lay_netns(struct agent *a, pid_t criu)
{
	json_t *netns = json_object_get(a->container, "netns");
	char *path;

	if (!json_object_get(a->container, "network"))
		return 0;
	path = find_netns(criu);
	if (!path)
		return fault("container %s: its network namespace, which podman has made, is not among the files of CRIU's process",
			     container_fact(a->container, "name"));
	json_object_set_new(netns, "path", json_string(path));
	free(path);
	return agent_make_netns(a) ?: agent_check_nodes(a);
}
