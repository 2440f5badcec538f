// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "iface.h"
#include "netlink.h"
#include "proc.h"
#include "rdma.h"
#include "text.h"

/* ------------------------------------------------------------- programs -- */

static int tool_within(int limit_ms, const char *what, const char *todo, const char *const argv[])
{
	char *output = NULL;
	int ret = run_within(limit_ms, argv, &output);
	const char *line = output ? text_last_line(output) : "";

	if (ret == 127)
		fault("%s: it is not installed: apt-get install iproute2", argv[0]);
	else if (ret == RUN_LATE)
		fault("%s: it is not gone after %d s: perhaps a program stands in a verb of the device: end that "
		      "program", what, limit_ms / 1000);
	else if (ret)
		fault("%s: %.300s: %s", what, *line ? line : "it failed, and nobody says why", todo);
	free(output);
	return ret ? -1 : 0;
}

int tool(const char *what, const char *todo, const char *const argv[])
{
	return tool_within(-1, what, todo, argv);
}

json_t *iface_show(const char *ifname)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "-d", "link", "show", "dev", ifname, NULL });
	json_t *link = json_incref(json_array_get(list, 0));

	json_decref(list);
	return link;
}

bool ip_has_flag(const json_t *shown, const char *flag)
{
	json_t *value;
	size_t i;

	json_array_foreach(json_object_get(shown, "flags"), i, value)
		if (json_is_string(value) && !strcmp(json_string_value(value), flag))
			return true;
	return false;
}

/* ----------------------------------------------------------------- make -- */

const struct iface_type *iface_type(const char *name)
{
	static const struct iface_type types[] = {
		{ .name = "macvlan", .one = "a macvlan", .mode = "bridge", .has_mac = true },
		{ .name = "ipvlan", .one = "an ipvlan", .mode = "l2" },
		{ .name = "veth", .one = "a veth", .mode = "", .has_mac = true, .on_bridge = true },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

/* A MAC address for a port. It begins with fe, because a bridge takes the lowest address of its ports for its own. */
static void draw_port_mac(char mac[18])
{
	uint8_t byte[5] = { 0 };

	getrandom(byte, sizeof(byte), 0);
	snprintf(mac, 18, "fe:%02x:%02x:%02x:%02x:%02x", byte[0], byte[1], byte[2], byte[3], byte[4]);
}

/*
 * The words of ip that begin a command. If the interface has a port, the kernel chooses the port's name. The port has the MTU of
 * the bridge, because a smaller one would lower that of the bridge.
 */
static int begin_make(const struct iface *i, const char *port_mac, const char *port_mtu, const char *argv[])
{
	const char *const with_port[] = {
		"ip", "link", "add", "address", port_mac, "mtu", port_mtu, "master", i->parent, "up",
		"type", i->type->name, "peer", NULL,
	};
	const char *const without[] = { "ip", "link", "add", "link", i->parent, NULL };
	const char *const *words = i->type->on_bridge ? with_port : without;
	int n = 0;

	while (words[n]) {
		argv[n] = words[n];
		n++;
	}
	return n;
}

static int mtu_of(const char *ifname)
{
	json_t *link = iface_show(ifname);
	int mtu = json_integer_value(json_object_get(link, "mtu"));

	json_decref(link);
	return mtu;
}

int iface_make(const struct iface *i, int ns)
{
	int parents = i->type->on_bridge || !i->mtu ? mtu_of(i->parent) : 0, n, ret;
	char *path = xasprintf("/proc/%d/fd/%d", getpid(), ns), *mtu = xasprintf("%d", i->mtu ?: parents);
	char *port_mtu = xasprintf("%d", parents), port_mac[18];
	char *what = xasprintf("interface %s of type %s on %s", i->ifname, i->type->name, i->parent);
	const char *argv[32] = { NULL };

	draw_port_mac(port_mac);
	n = begin_make(i, port_mac, port_mtu, argv);
	argv[n++] = "name";
	argv[n++] = i->ifname;
	argv[n++] = "netns";
	argv[n++] = path;
	argv[n++] = "mtu";
	argv[n++] = mtu;
	if (i->mac) {
		argv[n++] = "address";
		argv[n++] = i->mac;
	}
	if (*i->type->mode) {
		argv[n++] = "type";
		argv[n++] = i->type->name;
		argv[n++] = "mode";
		argv[n++] = i->type->mode;
	}
	ret = tool(what, "the kernel must have that type, and the parent carry no other", argv);
	free(what);
	free(port_mtu);
	free(mtu);
	free(path);
	return ret;
}

int iface_add_addresses(const struct iface *i)
{
	for (size_t j = 0; j < i->addresses.n; j++) {
		const struct address *a = &i->addresses.address[j];
		struct nl_address nl = {
			.family = a->family, .addr = a->addr, .prefixlen = a->prefixlen, .ifindex = if_nametoindex(i->ifname),
		};
		int ret = nl_address_add(&nl);

		if (ret)
			return fault("address %s/%d: interface %s does not take it: %s: give another one", a->text,
				     a->prefixlen, i->ifname, strerror(-ret));
	}
	return 0;
}

int iface_up(const struct iface *i)
{
	char *what = xasprintf("interface %s", i->ifname);
	int ret = TOOL(what, "does another interface have this MAC address?", "ip", "link", "set", "dev", i->ifname, "up");

	free(what);
	return ret;
}

int iface_lo_up(void)
{
	return TOOL("interface lo", "see to it that the namespace has one", "ip", "link", "set", "dev", "lo", "up");
}

int iface_add_device(const struct iface *i)
{
	char *what = xasprintf("device %s", i->device);
	int ret = TOOL(what, "is the driver loaded? (modprobe rdma_rxe)", "rdma", "link", "add", i->device, "type", "rxe",
		       "netdev", i->ifname);

	free(what);
	return ret;
}

/* ------------------------------------------------------------ take away -- */

char *iface_of(const char *device)
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

char *iface_of_only_device(void)
{
	json_t *list = run_json((const char *const[]){ "rdma", "-j", "link", "show", NULL }), *port;
	const char *name, *found = NULL;
	char *only = NULL;
	int several = 0;
	size_t i;

	json_array_foreach(list, i, port) {
		name = json_string_value(json_object_get(port, "netdev"));
		if (name && found && strcmp(name, found))
			several = fault("this host has RDMA devices on several interfaces (%s, %s): give one of them with --parent",
					found, name);
		found = name ?: found;
	}
	if (found && !several)
		only = xstrdup(found);
	else if (!found)
		fault("this host has no RDMA device whose interface could be taken: give one with --parent");
	json_decref(list);
	return only;
}

bool iface_can_be_deleted(const char *ifname)
{
	json_t *link = iface_show(ifname), *info = json_object_get(link, "linkinfo");
	bool can = iface_type(json_string_value(json_object_get(info, "info_kind")) ?: "");

	json_decref(link);
	return can;
}

static int in_use(const char *device, pid_t pid, const char *name)
{
	return fault("device %s: process %d (%s) has it open: end that, or the container, first", device, pid, name);
}

/* A context may have no descriptor any more, as when only its rings are mapped. */
static int check_contexts(const char *device)
{
	json_t *list = rdma_resources("ctx"), *context;
	int ret = 0;
	size_t i;

	if (!list)
		return fault("device %s: rdma resource does not say who has it open: see to it that it works", device);
	json_array_foreach(list, i, context) {
		const char *name = json_string_value(json_object_get(context, "ifname"));

		if (name && !strcmp(name, device)) {
			ret = in_use(device, json_integer_value(json_object_get(context, "pid")),
				     json_string_value(json_object_get(context, "comm")) ?: "?");
			break;
		}
	}
	json_decref(list);
	return ret;
}

static int check_file(const struct proc_fd *fd, void *device)
{
	char its[64], *name;

	if (!S_ISCHR(fd->st.st_mode) || rdma_node(fd->st.st_rdev, its) != FILE_UVERBS || strcmp(its, device) ||
	    context_is_gone(fd->pid, fd->fd))
		return 0;
	name = proc_name(fd->pid);
	in_use(device, fd->pid, name);
	free(name);
	return -1;
}

/* An open file of the device holds it up even if the file has no context yet. */
int iface_check_unused(const char *device)
{
	return check_contexts(device) ?: proc_each_fd_of_all(check_file, (void *)device);
}

/*
 * In a deletion the kernel waits for whoever stands in a verb of the device, and the deletion can't be killed meanwhile. Somebody
 * may have opened the device since iface_check_unused(), or by a descriptor in a socket's queue, which that does not find.
 */
#define DELETE_MS	20000

int iface_delete_device(const char *device)
{
	const char *const argv[] = { "rdma", "link", "delete", device, NULL };
	char *what = xasprintf("device %s", device);
	int ret = tool_within(DELETE_MS, what, "nothing was taken away", argv);

	free(what);
	return ret;
}

int iface_delete(const char *ifname, const char *what, const char *todo)
{
	return tool_within(DELETE_MS, what, todo, (const char *const[]){ "ip", "link", "delete", "dev", ifname, NULL });
}

/* --------------------------------------------------------------- checks -- */

int iface_check_name(const char *what, const char *name, size_t max)
{
	static const char beginning[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

	if (!*name || !strchr(beginning, *name) || strlen(name) >= max ||
	    strspn(name + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(name + 1))
		return fault("%s %s: the name must be letters, digits and . _ -, %zu at most, and begin with a letter or digit",
			     what, name, max - 1);
	return 0;
}

int iface_check_parent_name(const char *name)
{
	if (!*name || *name == '-' || strlen(name) >= IFNAMSIZ)
		return fault("interface %s: no interface can have that name: --parent takes one that ip link shows", name);
	return 0;
}

static int check_bridge(const struct iface *i, const json_t *link, const char *where)
{
	json_t *info = json_object_get(link, "linkinfo"), *data = json_object_get(info, "info_data");

	if (strcmp(json_string_value(json_object_get(info, "info_kind")) ?: "", "bridge"))
		return fault("interface %s: it is no bridge%s, and %s needs one: take the bridge's name, or macvlan", i->parent,
			     where, i->type->one);
	if (json_integer_value(json_object_get(data, "vlan_filtering")))
		return fault("bridge %s: it filters VLANs%s, and godwit does not know which the %s is to be in: take another "
			     "bridge, or macvlan", i->parent, where, i->type->name);
	if (json_integer_value(json_object_get(data, "stp_state")))
		return fault("bridge %s: it has STP%s, so a new port lets nothing pass for some time: take another bridge, "
			     "or macvlan", i->parent, where);
	return 0;
}

int iface_check_parent(const struct iface *i, const char *where)
{
	json_t *link = iface_show(i->parent);
	int mtu = json_integer_value(json_object_get(link, "mtu")), ret = 0;

	if (!if_nametoindex(i->parent))
		ret = fault("interface %s: there is none of that name%s, for %s to lie on: name another one", i->parent, where,
			    i->ifname);
	else if (!link)
		ret = fault("interface %s: ip does not show it%s: see to it that ip -j works", i->parent, where);
	else if (!ip_has_flag(link, "UP"))
		ret = fault("interface %s: it is down%s, and %s is to lie on it: set it up (ip link set %s up)", i->parent, where,
			    i->ifname, i->parent);
	else if (i->type->on_bridge && check_bridge(i, link, where))
		ret = -1;
	else if (mtu < i->mtu)
		ret = fault("interface %s: its MTU%s is %d, and that of %s is %d: raise it%s", i->parent, where, mtu, i->ifname,
			    i->mtu, where);
	json_decref(link);
	return ret;
}

int iface_check_mac(const char *mac)
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

int iface_parse_address(struct iface *i, const char *text)
{
	const struct address *a;

	if (address_parse(&i->addresses, text))
		return -1;
	a = &i->addresses.address[i->addresses.n - 1];
	if (a->ifname[0] || a->prefixlen < 1)
		return fault("address %s: it is not of the form ADDRESS/LENGTH", text);
	return of_a_host(a) ? 0 : fault("address %s: it is not one that a host can have: give another one", text);
}
