// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The RDMA devices of this host: which there are, their GIDs, and the driver's key.
 */
#include <errno.h>
#include <net/if.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "netlink_request.h"
#include "rdma.h"
#include "reasons.h"

enum file_kind rdma_node(dev_t rdev, char device[64])
{
	char node[NODE_LEN];
	enum file_kind kind = device_kind(rdev, node);

	device[0] = '\0';
	if (kind == FILE_UVERBS)
		device_name(node, device);
	return kind;
}

/* -------------------------------------------------------------- devices -- */

struct device {
	char name[64];
	uint32_t number;	/* the kernel's */
};

struct devices {
	struct device *device;
	size_t n;
};

static void add_device(const struct nlmsghdr *h, void *arg)
{
	const char *name = nl_find_attr(h, 0, RDMA_NLDEV_ATTR_DEV_NAME, 1);
	const void *number = nl_find_attr(h, 0, RDMA_NLDEV_ATTR_DEV_INDEX, sizeof(uint32_t));
	struct devices *list = arg;

	if (!name || !number)
		return;
	GROW(list->device, list->n);
	snprintf(list->device[list->n].name, sizeof(list->device->name), "%s", name);
	memcpy(&list->device[list->n++].number, number, sizeof(uint32_t));
}

/*
 * List the devices of the network namespace that we are in; the caller frees the list. (/sys shows the devices of the namespace in
 * which it was mounted.)
 */
static struct devices list_devices(void)
{
	struct nl_request r = nl_request(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET), NLM_F_DUMP);
	struct devices list = { 0 };

	if (nl_talk(NETLINK_RDMA, &r, add_device, &list))
		list.n = 0;
	return list;
}

static bool find_device(const char *name, struct device *device)
{
	struct devices list = list_devices();
	bool found = false;

	for (size_t i = 0; !found && i < list.n; i++) {
		*device = list.device[i];
		found = !strcmp(device->name, name);
	}
	free(list.device);
	return found;
}

/* Ask about a device by this command. */
static void ask(const struct device *device, int command, int type, const void *data, size_t length,
		void (*each)(const struct nlmsghdr *, void *), void *arg)
{
	struct nl_request r = nl_request(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), NLM_F_ACK);

	nl_put_attr(&r, RDMA_NLDEV_ATTR_DEV_INDEX, &device->number, sizeof(device->number));
	nl_put_attr(&r, type, data, length);
	nl_talk(NETLINK_RDMA, &r, each, arg);
}

static void read_driver(const struct nlmsghdr *h, void *driver)
{
	const void *id = nl_find_attr(h, 0, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, sizeof(uint32_t));

	if (id)
		memcpy(driver, id, sizeof(uint32_t));
}

/* Only rxe's devices know our methods; others are none of our business. */
static bool is_rxe(const struct device *device)
{
	uint32_t driver = RDMA_DRIVER_UNKNOWN;

	/* A device that is being removed may wait for a verb that a program has called. It has no node any more. */
	if (device_node(device->name, NULL))
		ask(device, RDMA_NLDEV_CMD_GET_CHARDEV, RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs", sizeof("uverbs"), read_driver,
		    &driver);
	return driver == RDMA_DRIVER_RXE;
}

bool rdma_is_rxe(const char *name)
{
	struct device device;

	return find_device(name, &device) && is_rxe(&device);
}

bool rdma_device_exists(const char *device)
{
	char *path = xasprintf(RDMA_CLASS "/%s", device);
	bool exists = device[0] && access(path, F_OK) == 0;

	free(path);
	return exists;
}

int rdma_each_device(int (*each)(const char *device, void *arg), void *arg)
{
	struct devices list = list_devices();
	int ret = 0;

	for (size_t i = 0; !ret && i < list.n; i++)
		if (rdma_device_exists(list.device[i].name) && is_rxe(&list.device[i]))
			ret = each(list.device[i].name, arg);
	free(list.device);
	return ret;
}

bool rdma_name_is_taken(const char *device)
{
	return rdma_device_exists(device) || device_node(device, NULL);
}

json_t *rdma_resources(const char *kind)
{
	const char *const argv[] = { "rdma", "-j", "-d", "resource", "show", kind, NULL };

	return run_json(argv);
}

struct ibv_context *rdma_open(const char *device)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d;
	struct ibv_context *ctx = NULL;

	for (d = list; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), device))
			break;
	if (d && *d)
		ctx = ibv_open_device(*d);
	if (!d || !*d)
		fault("device %s: libibverbs does not know it", device);
	else if (!ctx)
		fault("device %s: it can't be opened: %s", device, strerror(errno));
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static int keys_of(const char *device, void *arg)
{
	struct ibv_context *ctx = rdma_open(device);
	struct rxe_migr_key key = { .op = RXE_MIGR_KEY_QUERY }, old = { .op = RXE_MIGR_KEY_QUERY_OLD };
	uint64_t *fingerprints = arg;
	int ret;

	if (!ctx)
		return 0;	/* any other device speaks for the driver as well */
	ret = ibv_migration_key(ctx, &key, &fingerprints[0]) ?: ibv_migration_key(ctx, &old, &fingerprints[1]);
	ibv_close_device(ctx);
	if (!ret)
		return 1;
	return fault("device %s: its driver has no cluster key: %s%s", device, strerror(ret),
		     ret == EOPNOTSUPP ? ": " LOAD_OURS : "");
}

int rdma_key_fingerprints(uint64_t fingerprints[2])
{
	int ret;

	fingerprints[0] = fingerprints[1] = 0;
	ret = rdma_each_device(keys_of, fingerprints);
	if (ret > 0) {
		fault_clear();	/* of earlier devices, which can't be opened */
		return 0;
	}
	return ret < 0 || fault_is_set() ? -1 :
	       fault("no rxe device here, so the driver's key is not known: add one");
}

/* ----------------------------------------------------------------- GIDs -- */

static void read_netdev(const struct nlmsghdr *h, void *ifname)
{
	const char *name = nl_find_attr(h, 0, RDMA_NLDEV_ATTR_NDEV_NAME, 1);

	if (name)
		snprintf(ifname, IFNAMSIZ, "%s", name);
}

/* The kernel names an interface only to those who are in its namespace. In /sys it does so to all. */
void rdma_netdev(const char *device, char ifname[16])
{
	const uint32_t port = 1;
	struct device its;

	ifname[0] = '\0';
	if (find_device(device, &its))
		ask(&its, RDMA_NLDEV_CMD_PORT_GET, RDMA_NLDEV_ATTR_PORT_INDEX, &port, sizeof(port), read_netdev, ifname);
}

bool rdma_sends_from(const char *own, const char *ifname)
{
	char *path;
	bool above;

	if (!*own || !strcmp(ifname, own))
		return *own;
	path = xasprintf("/sys/class/net/%s/lower_%s", ifname, own);
	above = access(path, F_OK) == 0;
	free(path);
	return above;
}

/*
 * A GID on this interface. One above the device's own may be in another namespace, and its number may be that of another
 * interface here.
 */
static struct gid on_interface(uint32_t ifindex, const char *own)
{
	struct gid gid = { 0 };

	if (!if_indextoname(ifindex, gid.ifname) || !rdma_sends_from(own, gid.ifname))
		return (struct gid){ 0 };
	gid.ifindex = ifindex;
	gid.own = !strcmp(gid.ifname, own);
	return gid;
}

size_t rdma_gids(const char *device, struct gid **gids)
{
	struct ibv_context *ctx = rdma_open(device);
	struct ibv_gid_entry *entries = NULL;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	char own[IFNAMSIZ];
	ssize_t i, n = 0;

	*gids = NULL;
	if (!ctx)
		return 0;
	if (!ibv_query_device(ctx, &attr) && !ibv_query_port(ctx, 1, &port)) {
		size_t max = attr.phys_port_cnt * port.gid_tbl_len;

		entries = xcalloc(max, sizeof(*entries));
		n = ibv_query_gid_table(ctx, entries, max, 0);
	}
	ibv_close_device(ctx);
	if (n > 0)
		*gids = xcalloc(n, sizeof(**gids));
	rdma_netdev(device, own);
	for (i = 0; i < n; i++) {
		struct gid *gid = &(*gids)[i];

		*gid = i && entries[i].ndev_ifindex == entries[i - 1].ndev_ifindex ? gid[-1] :
		       on_interface(entries[i].ndev_ifindex, own);
		memcpy(&gid->gid, &entries[i].gid, sizeof(gid->gid));
		gid->rocev2 = entries[i].gid_type == IBV_GID_TYPE_ROCE_V2;
	}
	free(entries);
	return n > 0 ? n : 0;
}

void rdma_node_guid(const char *device, char guid[NODE_GUID])
{
	char *path = xasprintf(RDMA_CLASS "/%s/node_guid", device);
	char *text = read_file(path);

	snprintf(guid, NODE_GUID, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ?: "");
	free(text);
	free(path);
}

struct gid_search {
	const char *ifname;
	const struct in6_addr *gid;	/* NULL: any */
};

static int has_gid(const char *device, void *arg)
{
	const struct gid_search *s = arg;
	struct gid *gids;
	size_t i, n = rdma_gids(device, &gids);

	for (i = 0; i < n; i++)
		if (!strcmp(gids[i].ifname, s->ifname) &&
		    (!s->gid || !memcmp(&gids[i].gid, s->gid, sizeof(*s->gid))))
			break;
	free(gids);
	return i < n;
}

bool rdma_on_interface(const char *ifname)
{
	return rdma_each_device(has_gid, &(struct gid_search){ ifname, NULL }) == 1;
}

bool rdma_has_gid(const char *ifname, const struct in6_addr *gid)
{
	return rdma_each_device(has_gid, &(struct gid_search){ ifname, gid }) == 1;
}

const char *rdma_qp_type(unsigned int type)
{
	switch (type) {
	case IBV_QPT_RC: return "RC";
	case IBV_QPT_UC: return "UC";
	case IBV_QPT_UD: return "UD";
	case IBV_QPT_RAW_PACKET: return "RAW";
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV: return "XRC";
	}
	return "unknown";
}

const char *rdma_qp_state(unsigned int state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < sizeof(names) / sizeof(*names) ? names[state] : "unknown";
}
