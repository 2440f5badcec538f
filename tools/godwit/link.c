// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit link: a device of its own for a container, on an interface of its own in the container's network namespace.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "address.h"
#include "host.h"
#include "netlink.h"
#include "proc.h"
#include "rdma.h"
#include "text.h"

struct link {
	const char *device, *ifname, *parent, *type, *mac;
	const char *netns, *container;	/* one of them is given */
	struct addresses addresses;
	char *path;			/* of its network namespace, for people */
	int ns, ours;			/* its namespace and this host's */
};

/* ----------------------------------------------------------- namespaces -- */

/* This process goes there. It must come back: whatever it asks next, it asks there. */
static int enter(int ns)
{
	return setns(ns, CLONE_NEWNET) ? fault("network namespace: it can't be entered: %s", strerror(errno)) : 0;
}

static void come_back(const struct link *l)
{
	if (setns(l->ours, CLONE_NEWNET))
		abort();
}

static int open_ns(const char *path)
{
	int ns = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (ns >= 0 && ioctl(ns, NS_GET_NSTYPE) != CLONE_NEWNET) {
		close_fd(&ns);
		errno = ENOTTY;
	}
	return ns;
}

static bool same_ns(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int open_ours(struct link *l)
{
	l->ours = open_ns("/proc/self/ns/net");
	return l->ours < 0 ? fault("network namespace of this host: it can't be opened: %s", strerror(errno)) : 0;
}

/* Programs warn first, and say last what counts. */
static char *last_line(char *text)
{
	char *line = text + strlen(text);

	while (line > text && line[-1] == '\n')
		*--line = '\0';
	line = strrchr(text, '\n');
	return line ? line + 1 : text;
}

static int container_pid(const char *container)
{
	const char *const argv[] = { "podman", "inspect", "--type", "container", "--format", "{{.State.Pid}}", "--", container,
				     NULL };
	char *output = NULL, *line;
	int ret = run(argv, NULL, &output), pid;

	output = output ?: xstrdup("");
	line = last_line(output);
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
	l->ns = open_ns(l->path);
	if (l->ns < 0 && errno == ENOTTY)
		return fault("%s: it is no network namespace: make one with ip netns add", l->path);
	if (l->ns < 0)
		return fault("network namespace %s: %s: make it with ip netns add", l->path, strerror(errno));
	if (same_ns(l->ns, l->ours))
		return fault("network namespace %s: it is this host's own, not a container's: rdma link add makes devices in it",
			     l->path);
	return 0;
}

/* ------------------------------------------------------------- programs -- */

/* what: the object that it works on; todo: what a person can do when that fails */
static int tool(const char *what, const char *todo, const char *const argv[])
{
	char *output = NULL;
	int ret = run(argv, NULL, &output);
	const char *line = output ? last_line(output) : "";

	if (ret == 127)
		fault("%s: it is not installed: apt-get install iproute2", argv[0]);
	else if (ret)
		fault("%s: %.300s: %s", what, *line ? line : "it failed, and nobody says why", todo);
	free(output);
	return ret ? -1 : 0;
}

#define TOOL(what, todo, ...) tool(what, todo, (const char *const[]){ __VA_ARGS__, NULL })

/* ------------------------------------------------------------------ add -- */

static int make_interface(const struct link *l)
{
	char *ns = xasprintf("/proc/%d/fd/%d", getpid(), l->ns);
	char *what = xasprintf("interface %s of type %s on %s", l->ifname, l->type, l->parent);
	const char *argv[20] = { "ip", "link", "add", "link", l->parent, "name", l->ifname, "netns", ns };
	int n = 9, ret;

	if (l->mac) {
		argv[n++] = "address";
		argv[n++] = l->mac;
	}
	argv[n++] = "type";
	argv[n++] = l->type;
	argv[n++] = "mode";
	argv[n++] = strcmp(l->type, "ipvlan") ? "bridge" : "l2";
	/* (the kernel gives it the MTU of its parent) */
	ret = tool(what, "the kernel must have that type, and the parent carry no other", argv);
	free(what);
	free(ns);
	return ret;
}

/* In its namespace. */
static int add_addresses(const struct link *l, const char *what)
{
	for (size_t i = 0; i < l->addresses.n; i++) {
		const struct address *a = &l->addresses.address[i];
		struct nl_address nl = {
			.family = a->family, .addr = a->addr, .prefixlen = a->prefixlen, .ifindex = if_nametoindex(l->ifname),
		};
		int ret = nl_address_add(&nl);

		if (ret)
			return fault("address %s/%d: %s does not take it: %s: give another one", a->text, a->prefixlen, what,
				     strerror(-ret));
	}
	return 0;
}

/* In its namespace. lo comes last: who undoes the rest can't know what it was. */
static int fill(const struct link *l)
{
	char *what = xasprintf("interface %s", l->ifname), *device = xasprintf("device %s", l->device);
	int ret = -1;

	if (add_addresses(l, what) ||
	    TOOL(what, "does another interface have this MAC address?", "ip", "link", "set", "dev", l->ifname, "up") ||
	    TOOL(device, "is the driver loaded? (modprobe rdma_rxe)", "rdma", "link", "add", l->device, "type", "rxe", "netdev",
		 l->ifname))
		goto out;
	ret = TOOL("interface lo", "see to it that the namespace has one", "ip", "link", "set", "dev", "lo", "up");
	if (ret)
		TOOL(device, "take it away by hand", "rdma", "link", "delete", l->device);
out:
	free(device);
	free(what);
	return ret;
}

/* In its namespace; the reason for the failure is set. */
static void take_back(const struct link *l)
{
	if (TOOL("", "", "ip", "link", "delete", "dev", l->ifname))
		fprintf(stderr, "godwit: warning: interface %s: it stays in %s: take it away with ip link delete\n", l->ifname,
			l->path);
}

static int link_add(struct link *l)
{
	int ret;

	if (open_ours(l) || open_its(l))
		return -1;
	if (!if_nametoindex(l->parent))
		return fault("interface %s: this host has none of that name: --parent takes one that ip link shows", l->parent);
	if (rdma_device_exists(l->device))
		return fault("device %s: there is one of that name: take another name, or that one away (godwit link del %s)",
			     l->device, l->device);
	if (enter(l->ns))
		return -1;
	ret = if_nametoindex(l->ifname) ?
		fault("interface %s: %s has one of that name: give another one with --ifname", l->ifname, l->path) : 0;
	come_back(l);
	if (ret || make_interface(l))
		return -1;
	ret = enter(l->ns);
	if (ret)
		return ret;
	ret = fill(l);
	if (ret)
		take_back(l);
	come_back(l);
	return ret;
}

/* ------------------------------------------------------------------ del -- */

/* The interface of a device, if it lies in the namespace that this process is in; to be freed. NULL: it does not. */
static char *interface_of(const char *device)
{
	char *port = xasprintf("%s/1", device), *found = NULL;
	json_t *list = run_json((const char *const[]){ "rdma", "-j", "link", "show", port, NULL });
	const char *name = json_string_value(json_object_get(json_array_get(list, 0), "netdev"));

	if (name)
		found = xstrdup(name);
	json_decref(list);
	free(port);
	return found;
}

/* "macvlan"; to be freed. "": it is of no kind */
static char *kind_of(const char *ifname)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "-d", "link", "show", "dev", ifname, NULL });
	json_t *info = json_object_get(json_array_get(list, 0), "linkinfo");
	char *kind = xstrdup(json_string_value(json_object_get(info, "info_kind")) ?: "");

	json_decref(list);
	return kind;
}

struct search {
	struct link *l;
	char *ifname;
	ino_t *seen;	/* (all namespaces lie in one file system) */
	size_t n;
};

/* 1: it is there. The namespace stays open then. */
static int look_in(struct search *s, const char *path)
{
	int ns = open_ns(path);
	struct stat st;

	if (ns < 0)
		return 0;
	if (fstat(ns, &st))
		goto no;
	for (size_t i = 0; i < s->n; i++)
		if (s->seen[i] == st.st_ino)
			goto no;
	GROW(s->seen, s->n);
	s->seen[s->n++] = st.st_ino;
	if (setns(ns, CLONE_NEWNET))
		goto no;
	s->ifname = interface_of(s->l->device);
	come_back(s->l);
	if (!s->ifname)
		goto no;
	s->l->ns = ns;
	s->l->path = xstrdup(path);
	return 1;
no:
	close(ns);
	return 0;
}

static int look_at_process(pid_t pid, void *arg)
{
	char *path = xasprintf("/proc/%d/ns/net", pid);
	int found = look_in(arg, path);

	free(path);
	return found;
}

static int look_at_names(struct search *s)
{
	DIR *dir = opendir("/run/netns");
	struct dirent *de;
	int found = 0;

	while (!found && dir && (de = readdir(dir)))
		if (de->d_name[0] != '.') {
			char *path = xasprintf("/run/netns/%s", de->d_name);

			found = look_in(s, path);
			free(path);
		}
	if (dir)
		closedir(dir);
	return found;
}

/* This host's own comes first: what lies there is not ours to take. */
static char *find_interface(struct link *l)
{
	struct search s = { .l = l };

	if (!look_in(&s, "/proc/self/ns/net") && !look_at_names(&s) && !proc_each(look_at_process, &s)) {
		if (rdma_device_exists(l->device))
			fault("device %s: its interface lies in no network namespace that has a name or a process: rdma link delete %s",
			      l->device, l->device);
		else
			fault("device %s: there is none of that name: rdma link shows those that there are", l->device);
	}
	free(s.seen);
	return s.ifname;
}

/* In its namespace. The kernel would wait for whoever has it open, and nothing would end that. */
static int check_unused(const char *device)
{
	json_t *list = rdma_resources("ctx"), *context;
	size_t i;

	if (!list)
		return fault("device %s: rdma resource does not say who has it open: see to it that it works", device);
	json_array_foreach(list, i, context) {
		const char *name = json_string_value(json_object_get(context, "ifname"));

		if (name && !strcmp(name, device)) {
			fault("device %s: process %d (%s) has it open: end that, or the container, first", device,
			      (int)json_integer_value(json_object_get(context, "pid")),
			      json_string_value(json_object_get(context, "comm")) ?: "?");
			break;
		}
	}
	json_decref(list);
	return fault_is_set() ? -1 : 0;
}

/* In its namespace. */
static int take_away(const struct link *l, const char *ifname)
{
	char *device = xasprintf("device %s", l->device), *kind = kind_of(ifname);
	char *what = xasprintf("interface %s in %s", ifname, l->path);
	int ret;

	if (strcmp(kind, "macvlan") && strcmp(kind, "ipvlan"))
		ret = fault("device %s: %s, which it lies on, is no macvlan or ipvlan: rdma link delete %s", l->device, what,
			    l->device);
	else
		ret = TOOL(device, "nothing was taken away", "rdma", "link", "delete", l->device) ||
		      TOOL(what, "its device is gone; take it away with ip link delete", "ip", "link", "delete", "dev",
			   ifname) ? -1 : 0;
	free(what);
	free(kind);
	free(device);
	return ret;
}

static int link_del(struct link *l)
{
	char *ifname;
	int ret = -1;

	if (open_ours(l))
		return -1;
	ifname = find_interface(l);
	if (!ifname)
		return -1;
	if (same_ns(l->ns, l->ours)) {
		fault("device %s: %s, which it lies on, is an interface of this host, not of a container: rdma link delete %s",
		      l->device, ifname, l->device);
	} else if (!enter(l->ns)) {
		ret = check_unused(l->device) ?: take_away(l, ifname);
		come_back(l);
	}
	free(ifname);
	return ret;
}

/* ------------------------------------------------------------ arguments -- */

/* What the kernel, ip and rdma all take for a name, and nothing else. */
static int check_name(const char *what, const char *name, size_t max)
{
	static const char beginning[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

	if (!*name || !strchr(beginning, *name) || strlen(name) >= max ||
	    strspn(name + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(name + 1))
		return fault("%s %s: the name must be letters, digits and . _ -, %zu at most, and begin with a letter or digit",
			     what, name, max - 1);
	return 0;
}

static int check_mac(const char *mac)
{
	unsigned int byte[6];
	int end = -1;

	if (strlen(mac) != 17 || strspn(mac, "0123456789abcdefABCDEF:") != 17 ||
	    sscanf(mac, "%2x:%2x:%2x:%2x:%2x:%2x%n", &byte[0], &byte[1], &byte[2], &byte[3], &byte[4], &byte[5], &end) != 6 ||
	    end != 17)
		return fault("MAC address %s: it is not of the form 02:00:00:00:00:01", mac);
	if (byte[0] & 1 || !(byte[0] | byte[1] | byte[2] | byte[3] | byte[4] | byte[5]))
		return fault("MAC address %s: no interface can have it: begin with 02:", mac);
	return 0;
}

static bool of_a_host(const struct address *a)
{
	const uint8_t *byte = a->addr.s6_addr;

	if (a->family == AF_INET)
		return byte[0] != 0 && byte[0] != 127 && byte[0] < 224;
	return !IN6_IS_ADDR_UNSPECIFIED(&a->addr) && !IN6_IS_ADDR_LOOPBACK(&a->addr) && !IN6_IS_ADDR_MULTICAST(&a->addr) &&
	       !IN6_IS_ADDR_V4MAPPED(&a->addr);
}

static int add_address(struct link *l, const char *text)
{
	const struct address *a;

	if (address_parse(&l->addresses, text))
		return -1;
	a = &l->addresses.address[l->addresses.n - 1];
	if (a->ifname[0] || a->prefixlen < 1)
		return fault("address %s: it is not of the form ADDRESS/LENGTH", text);
	return of_a_host(a) ? 0 : fault("address %s: it is not one that a host can have: give another one", text);
}

static int check_arguments(const struct link *l)
{
	if (check_name("device", l->device, 64) || check_name("interface", l->ifname, IFNAMSIZ) ||
	    (l->mac && check_mac(l->mac)))
		return -1;
	if (!*l->parent || *l->parent == '-' || strlen(l->parent) >= IFNAMSIZ)
		return fault("interface %s: no interface can have that name: --parent takes one that ip link shows", l->parent);
	if (!strcmp(l->type, "veth"))
		return fault("type veth: godwit does not make these yet: take macvlan, or make one and use rdma link add");
	if (strcmp(l->type, "macvlan") && strcmp(l->type, "ipvlan"))
		return fault("type %s: there is none of that name: take macvlan or ipvlan", l->type);
	if (l->mac && !strcmp(l->type, "ipvlan"))
		return fault("type ipvlan: it has the MAC address of its parent: leave --mac out, or take macvlan");
	return 0;
}

static int parse_add(struct link *l, int argc, char **argv)
{
	static const struct option options[] = {
		{ "netns", required_argument, NULL, 'n' }, { "container", required_argument, NULL, 'c' },
		{ "parent", required_argument, NULL, 'p' }, { "type", required_argument, NULL, 't' },
		{ "address", required_argument, NULL, 'a' }, { "mac", required_argument, NULL, 'm' },
		{ "ifname", required_argument, NULL, 'i' }, { 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'n': l->netns = parse_text(optarg); break;
		case 'c': l->container = parse_text(optarg); break;
		case 'p': l->parent = parse_text(optarg); break;
		case 't': l->type = parse_text(optarg); break;
		case 'm': l->mac = parse_text(optarg); break;
		case 'i': l->ifname = parse_text(optarg); break;
		case 'a':
			if (add_address(l, parse_text(optarg)))
				return -1;
			break;
		default: usage();
		}
	if (optind != argc - 1 || !l->parent || !l->netns == !l->container)
		usage();
	l->device = parse_text(argv[optind]);
	l->ifname = l->ifname ?: l->device;
	return check_arguments(l);
}

static int parse_del(struct link *l, int argc, char **argv)
{
	if (argc != 2)
		usage();
	l->device = parse_text(argv[1]);
	return check_name("device", l->device, 64);
}

int cmd_link(int argc, char **argv)
{
	struct link l = { .type = "macvlan", .ns = -1, .ours = -1 };
	bool add = argc > 1 && !strcmp(argv[1], "add");
	int ret;

	if (!add && (argc < 2 || strcmp(argv[1], "del")))
		usage();
	if (add ? parse_add(&l, argc - 1, argv + 1) : parse_del(&l, argc - 1, argv + 1))
		return failed(EXIT_USAGE);
	if (host_check_root())
		return failed(EXIT_REFUSED);
	/* (interrupted, it would leave half of it; its programs can be interrupted: then all is undone) */
	hold_signals();
	ret = add ? link_add(&l) : link_del(&l);
	close_fd(&l.ns);
	close_fd(&l.ours);
	free(l.path);
	addresses_free(&l.addresses);
	return ret ? failed(EXIT_REFUSED) : EXIT_OK;
}
