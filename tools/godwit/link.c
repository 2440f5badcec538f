// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit link: an RDMA device of its own for a container, on an interface of its own in the container's network namespace.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "host.h"
#include "iface.h"
#include "rdma.h"
#include "text.h"

struct link {
	struct iface iface;
	const char *netns, *container;	/* one of them is given */
	char *path;			/* of its network namespace, for people */
	char *parent;			/* if none is given */
	char *on;			/* the interface that the device is found on */
	int ns, ours;			/* its namespace and this host's */
};

/* ----------------------------------------------------------- namespaces -- */

static int open_ours(struct link *l)
{
	l->ours = ns_ours();
	return l->ours < 0 ? -1 : 0;
}

static int container_pid(const char *container)
{
	const char *const argv[] = { "podman", "inspect", "--type", "container", "--format", "{{.State.Pid}}", "--", container,
				     NULL };
	char *output = NULL, *line;
	int ret = run(argv, NULL, &output), pid;

	output = output ?: xstrdup("");
	line = text_last_line(output);
	pid = atoi(line);
	if (ret == 127)
		fault("podman: it is not installed: give --netns in place of --container");
	else if (ret)
		fault("container %s: podman does not know it: %s", container, line);
	else if (pid <= 0)
		fault("container %s: it does not run, so it has no network namespace: start it, or give --netns", container);
	free(output);
	return ret || pid <= 0 ? -1 : pid;
}

static int open_its(struct link *l)
{
	if (l->container) {
		int pid = container_pid(l->container);

		if (pid < 0)
			return -1;
		l->path = xasprintf("/proc/%d/ns/net", pid);
	} else {
		l->path = xstrdup(l->netns);
	}
	l->ns = ns_open(l->path);
	if (l->ns < 0 && errno == ENOTTY)
		return fault("%s: it is no network namespace: make one with ip netns add", l->path);
	if (l->ns < 0 && errno == ENOENT && !strchr(l->path, '/'))
		return fault("network namespace %s: give its path: /run/netns/%s", l->path, l->path);
	if (l->ns < 0)
		return fault("network namespace %s: %s%s", l->path, strerror(errno),
			     errno == ENOENT ? ": make it with ip netns add" : "");
	if (ns_same(l->ns, l->ours))
		return fault("network namespace %s: it is this host's own, not a container's: rdma link add makes devices in it",
			     l->path);
	return 0;
}

/* ------------------------------------------------------------------ add -- */

/* In the container's namespace. lo comes last: nobody could undo that, as nobody knows whether lo was up. */
static int fill(const struct link *l)
{
	int ret;

	if (iface_add_addresses(&l->iface) || iface_up(&l->iface) || iface_add_device(&l->iface))
		return -1;
	ret = iface_lo_up();
	if (ret)
		iface_delete_device(l->iface.device);
	return ret;
}

/* In the container's namespace. The fault() is set already. */
static void take_back(const struct link *l)
{
	if (iface_delete(l->iface.ifname, "", ""))
		fprintf(stderr, "godwit: warning: interface %s: it stays in %s: take it away with ip link delete\n", l->iface.ifname,
			l->path);
}

static int link_add(struct link *l)
{
	int ret;

	if (open_ours(l) || open_its(l))
		return -1;
	if (!l->iface.parent)
		l->iface.parent = l->parent = iface_of_only_device();
	if (!l->iface.parent)
		return -1;
	if (iface_check_parent(&l->iface, " here"))
		return -1;
	if (rdma_name_is_taken(l->iface.device))
		return fault("device %s: there is one of that name: take another name, or that one away (godwit link del %s)",
			     l->iface.device, l->iface.device);
	if (ns_enter(l->ns))
		return -1;
	ret = if_nametoindex(l->iface.ifname) ?
		fault("interface %s: %s has one of that name: give another one with --ifname", l->iface.ifname, l->path) : 0;
	ns_come_back(l->ours);
	if (ret || iface_make(&l->iface, l->ns))
		return -1;
	ret = ns_enter(l->ns);
	if (ret)
		return ret;
	ret = fill(l);
	if (ret)
		take_back(l);
	ns_come_back(l->ours);
	return ret;
}

/* ------------------------------------------------------------------ del -- */

/* In the namespace that we are in. */
static bool is_here(void *arg)
{
	struct link *l = arg;

	l->on = iface_of(l->iface.device);
	return l->on;
}

/* Open the namespace in which the device has its interface. An interface in this host's own is not ours to take. */
static int find_interface(struct link *l)
{
	const char *device = l->iface.device;

	if (is_here(l))
		return fault("device %s: %s, which it lies on, is an interface of this host, not of a container: rdma link delete %s",
			     device, l->on, device);
	l->ns = ns_find(l->ours, is_here, l, &l->path);
	if (l->ns >= 0)
		return 0;
	if (!rdma_name_is_taken(device))
		return fault("device %s: there is none of that name: rdma link shows those that there are", device);
	return fault("device %s: its interface lies in no network namespace that has a name or a process: rdma link delete %s", device,
		     device);
}

/* In the container's namespace. */
static int take_away(const struct link *l)
{
	char *what = xasprintf("interface %s in %s", l->on, l->path);
	int ret;

	if (iface_can_be_deleted(l->on))
		ret = iface_delete_device(l->iface.device) ?:
		      iface_delete(l->on, what, "its device is gone; take it away with ip link delete");
	else
		ret = fault("device %s: %s, which it lies on, is no macvlan, ipvlan or veth: rdma link delete %s", l->iface.device, what,
			    l->iface.device);
	free(what);
	return ret;
}

static int link_del(struct link *l)
{
	int ret;

	if (open_ours(l) || find_interface(l) || ns_enter(l->ns))
		return -1;
	ret = iface_check_unused(l->iface.device) ?: take_away(l);
	ns_come_back(l->ours);
	return ret;
}

/* ------------------------------------------------------------ arguments -- */

static int check_arguments(const struct link *l)
{
	const struct iface_type *type = l->iface.type;

	if (iface_check_name("device", l->iface.device, 64) || iface_check_name("interface", l->iface.ifname, IFNAMSIZ) ||
	    (l->iface.mac && iface_check_mac(l->iface.mac)) || (l->iface.parent && iface_check_parent_name(l->iface.parent)))
		return -1;
	if (l->iface.mac && !type->has_mac)
		return fault("type %s: it has the MAC address of its parent: leave --mac out, or take macvlan", type->name);
	if (type->on_bridge && !l->iface.parent)
		return fault("type %s: it lies on a bridge: give the bridge's name with --parent", type->name);
	return 0;
}

const struct option link_options[] = {
	{ "address", required_argument, NULL, 'a' },
	{ "container", required_argument, NULL, 'c' },
	{ "ifname", required_argument, NULL, 'i' },
	{ "mac", required_argument, NULL, 'm' },
	{ "netns", required_argument, NULL, 'n' },
	{ "parent", required_argument, NULL, 'p' },
	{ "type", required_argument, NULL, 't' },
	{ }
};

static int parse_add(struct link *l, int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "", link_options, NULL)) != -1)
		switch (c) {
		case 'n': l->netns = parse_text(optarg); break;
		case 'c': l->container = parse_text(optarg); break;
		case 'p': l->iface.parent = parse_text(optarg); break;
		case 'm': l->iface.mac = parse_text(optarg); break;
		case 'i': l->iface.ifname = parse_text(optarg); break;
		case 't':
			l->iface.type = iface_type(parse_text(optarg));
			if (!l->iface.type)
				return fault("type %s: there is none of that name: take macvlan, ipvlan or veth", optarg);
			break;
		case 'a':
			if (iface_parse_address(&l->iface, parse_text(optarg)))
				return -1;
			break;
		default: usage();
		}
	l->iface.device = parse_text(only_argument(argc, argv, optind, "device: give its NAME"));
	if (!l->netns == !l->container)
		wrong_usage("say in which network namespace: --netns PATH or --container ID%s", l->netns ? ", not both" : "");
	l->iface.ifname = l->iface.ifname ?: l->iface.device;
	return check_arguments(l);
}

static int parse_del(struct link *l, int argc, char **argv)
{
	l->iface.device = parse_text(only_argument(argc, argv, 1, "device: give its NAME"));
	return iface_check_name("device", l->iface.device, 64);
}

int cmd_link(int argc, char **argv)
{
	struct link l = { .iface.type = iface_type("macvlan"), .ns = -1, .ours = -1 };
	bool add = argc > 1 && !strcmp(argv[1], "add");
	int ret;

	if (!add && (argc < 2 || strcmp(argv[1], "del")))
		wrong_usage("link%s%s: say link add or link del", argc < 2 ? "" : " ", argc < 2 ? "" : argv[1]);
	if (add ? parse_add(&l, argc - 1, argv + 1) : parse_del(&l, argc - 1, argv + 1))
		return failed(EXIT_USAGE);
	if (host_check_root())
		return failed(EXIT_REFUSED);
	/* A signal to us would leave the work half done. A signal still ends the programs that we run, and then we undo all. */
	block_signals();
	ret = add ? link_add(&l) : link_del(&l);
	close_fd(&l.ns);
	close_fd(&l.ours);
	free(l.path);
	free(l.parent);
	free(l.on);
	addresses_free(&l.iface.addresses);
	return ret ? failed(EXIT_REFUSED) : EXIT_OK;
}
