// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "rdma.h"

/* ------------------------------------------------------------- contexts -- */

enum file_kind rdma_node(dev_t rdev, char device[64])
{
	char node[NODE_LEN];
	enum file_kind kind = device_kind(rdev, node);

	device[0] = '\0';
	if (kind == FILE_UVERBS)
		device_name(node, device);
	return kind;
}

static int add_context(const struct proc_fd *fd, void *arg)
{
	struct contexts *list = arg;
	struct context *c;
	char device[64];

	if (!S_ISCHR(fd->st.st_mode) || rdma_node(fd->st.st_rdev, device) != FILE_UVERBS)
		return 0;
	for (size_t i = 0; i < list->n; i++)
		if (holders_have(&list->context[i].holders, fd)) {
			holders_add(&list->context[i].holders, fd);
			return 0;
		}
	GROW(list->context, list->n);
	c = &list->context[list->n];
	*c = (struct context){ .pid = fd->pid, .fd = fd->fd, .slot = list->n++, .held = -1 };
	strcpy(c->device, device);
	holders_add(&c->holders, fd);
	return 0;
}

int contexts_find(const struct tree *tree, struct contexts *list)
{
	*list = (struct contexts){ 0 };
	return proc_each_fd(tree, add_context, list);
}

void contexts_free(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		free(list->context[i].dump);
		free(list->context[i].holders.holder);
		free(list->context[i].cm_gid);
		close_fd(&list->context[i].held);
	}
	free(list->context);
	*list = (struct contexts){ 0 };
}

int contexts_hold(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];

		c->held = proc_get_fd(c->pid, c->fd);
		if (c->held < 0)
			return fault("process %d, descriptor %d: its context can't be held: %s", c->pid, c->fd,
				     strerror(errno));
	}
	return 0;
}

struct ibv_context *context_attach(const struct context *context)
{
	int fd = proc_get_fd(context->pid, context->fd);
	struct ibv_context *ctx = fd < 0 ? NULL : ibv_attach_context(fd);

	if (!ctx && fd >= 0)
		close(fd);
	return ctx;
}

static int inspect(struct context *c, struct ibv_context *ctx)
{
	int size = 0, count, ret;

	ret = ibv_query_migration(ctx, &c->query);
	if (ret)
		return ret;
	c->ours = true;
	/* (it may grow between the two calls: it runs) */
	for (int tries = 0; tries < 10; tries++) {
		count = size;
		ret = ibv_inspect_context(ctx, &count, c->dump, size);
		if (ret != ENOSPC)
			break;
		size = count + 4096;
		c->dump = xrealloc(c->dump, size);
	}
	c->length = ret ? 0 : size;
	return ret;
}

/* The length of a dump is that of its records, not that of the buffer. */
static void trim(struct context *c)
{
	const struct rxe_migr_rec *rec;
	size_t used = 0;

	ibv_for_each_record(rec, c->dump, c->length)
		used += le32toh(rec->length);
	c->length = used;
}

int contexts_inspect(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);
		int ret = ctx ? inspect(c, ctx) : errno;

		if (ctx)
			ibv_detach_context(ctx);
		if (ret && c->ours)
			return fault("process %d, descriptor %d: the driver does not show its RDMA objects: %s",
				     c->pid, c->fd, strerror(ret));
		if (ret == EPERM || ret == EACCES)
			return fault("process %d: not permitted: godwit needs CAP_SYS_ADMIN", c->pid);
		if (c->ours)
			trim(c);
	}
	return 0;
}

int contexts_query(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);
		int ret = ctx ? ibv_query_migration(ctx, &c->query) : errno;

		if (ctx)
			ibv_detach_context(ctx);
		if (ret)
			return fault("process %d, descriptor %d: the driver does not tell its state: %s",
				     c->pid, c->fd, strerror(ret));
	}
	return 0;
}

int64_t contexts_peers_wait(const struct contexts *list)
{
	int64_t until = INT64_MAX;

	for (size_t i = 0; i < list->n; i++)
		if (list->context[i].query.wait_ns < (uint64_t)until)
			until = list->context[i].query.wait_ns;
	return until;
}

void contexts_renew(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);

		if (!ctx || ibv_renew_stop(ctx, &c->query))
			c->query.wait_ns = UINT64_MAX;
		if (ctx)
			ibv_detach_context(ctx);
	}
}

#define ASK_LAST_MS 1280

void contexts_ask_peers(struct contexts *list)
{
	/* (all of them first, then each time those that have not answered; 2.5 s in all) */
	for (int wait = 10;; wait *= 2) {
		size_t unknown = 0;

		for (size_t i = 0; i < list->n; i++) {
			struct context *c = &list->context[i];
			struct ibv_context *ctx = c->ours ? context_attach(c) : NULL;

			if (ctx && (c->asked ? ibv_ask_peers : ibv_ask_peers_anew)(ctx, &c->query) == 0) {
				unknown += c->query.num_unknown;
				c->asked = true;
			} else if (c->ours) {
				unknown++;
			}
			if (ctx)
				ibv_detach_context(ctx);
		}
		if (!unknown || wait > ASK_LAST_MS)
			return;
		poll(NULL, 0, wait);
	}
}

int contexts_abort(struct contexts *list)
{
	int failures = 0;

	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);
		int ret = 0;

		c->ours = ctx && ibv_query_migration(ctx, &c->query) == 0;
		if (c->ours && c->query.state == RXE_MIGR_CTX_STOPPED)
			ret = ibv_abort_context(ctx);
		/* (the CRIU plugin tries the same: it may have been faster) */
		if (ret && ibv_query_migration(ctx, &c->query) == 0 &&
		    c->query.state == RXE_MIGR_CTX_STOPPED) {
			fault("process %d, descriptor %d: its connections can't be set going again: %s",
			      c->pid, c->fd, strerror(ret));
			failures++;
		}
		if (ctx)
			ibv_detach_context(ctx);
	}
	return failures ? -1 : 0;
}

/* -------------------------------------------------------------- devices -- */

/* One that is being removed, and waits for those who have it open, has no node any more. */
static bool has_node(const char *device)
{
	DIR *dir = opendir(VERBS_CLASS);
	struct dirent *de;
	char of[64] = "";

	while (dir && strcmp(of, device) && (de = readdir(dir)))
		device_name(de->d_name, of);
	if (dir)
		closedir(dir);
	return !strcmp(of, device);
}

/* Only rxe's devices know our methods; others are none of our business. */
static bool is_rxe(const char *device)
{
	char *path = xasprintf("/sys/class/infiniband/%s/parent", device);
	bool rxe = access(path, R_OK) == 0;

	free(path);
	return rxe && has_node(device);
}

int rdma_each_device(int (*each)(const char *device, void *arg), void *arg)
{
	DIR *dir = opendir("/sys/class/infiniband");
	struct dirent *de;
	int ret = 0;

	while (!ret && dir && (de = readdir(dir)))
		if (de->d_name[0] != '.' && is_rxe(de->d_name))
			ret = each(de->d_name, arg);
	if (dir)
		closedir(dir);
	return ret;
}

bool rdma_device_exists(const char *device)
{
	char *path = xasprintf("/sys/class/infiniband/%s", device);
	bool exists = device[0] && access(path, F_OK) == 0;

	free(path);
	return exists;
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
		return 0;	/* any other speaks for the driver as well */
	ret = ibv_migration_key(ctx, &key, &fingerprints[0]) ?: ibv_migration_key(ctx, &old, &fingerprints[1]);
	ibv_close_device(ctx);
	return ret ? fault("device %s: its driver has no cluster key: %s", device, strerror(ret)) : 1;
}

int rdma_key_fingerprints(uint64_t fingerprints[2])
{
	int ret;

	fingerprints[0] = fingerprints[1] = 0;
	ret = rdma_each_device(keys_of, fingerprints);
	if (ret > 0) {
		fault_clear();	/* of devices before that can't be opened */
		return 0;
	}
	return ret < 0 || fault_is_set() ? -1 :
	       fault("no rxe device here, so the driver's key is not known: add one");
}

/* -------------------------------------------------------------- rdma_cm -- */

struct cm_question {
	int fd, count;
	struct rxe_migr_cm_id *ids;
};

static int ask_for_ids(const char *device, void *arg)
{
	struct cm_question *q = arg;
	struct ibv_context *ctx = rdma_open(device);
	int room = 0, ret;

	if (!ctx)
		return -1;
	/* (there may be more of them by the next call: it runs) */
	while ((ret = ibv_query_cm_ids(ctx, q->fd, 0, &q->count, q->ids, room)) == ENOSPC) {
		room = q->count + 16;
		free(q->ids);
		q->ids = xcalloc(room, sizeof(*q->ids));
	}
	ibv_close_device(ctx);
	return ret ? fault("device %s: its driver does not tell the ids of rdma_cm: %s", device, strerror(ret)) : 1;
}

int rdma_cm_ids(pid_t pid, int fd, struct rxe_migr_cm_id **ids)
{
	struct cm_question q = { .fd = proc_get_fd(pid, fd) };
	int ret;

	if (q.fd < 0)
		return fault("process %d, descriptor %d: it can't be looked at: %s", pid, fd, strerror(errno));
	ret = rdma_each_device(ask_for_ids, &q);
	close(q.fd);
	*ids = q.ids;
	if (ret == 0)
		return fault("no device here has our driver, which tells the ids of rdma_cm");
	return ret < 0 ? -1 : q.count;
}

#define RESOLVE_MS 4000 /* ARP gives up after three seconds */

int rdma_resolve(const char *address)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST };
	struct addrinfo *info;
	struct rdma_cm_id *id;
	int err = 0;

	/* (which link it is of, the plugin knows, by the device) */
	if (!strncasecmp(address, "fe80:", 5))
		return 0;
	if (getaddrinfo(address, NULL, &hints, &info))
		return EINVAL;
	/* (without an event channel it waits for the answer) */
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP)) {
		err = errno;
	} else {
		if (rdma_resolve_addr(id, NULL, info->ai_addr, RESOLVE_MS))
			err = errno;
		rdma_destroy_id(id);
	}
	freeaddrinfo(info);
	return err;
}

/* ----------------------------------------------------------------- GIDs -- */

size_t rdma_gids(const char *device, struct gid **gids)
{
	struct ibv_context *ctx = rdma_open(device);
	struct ibv_gid_entry *entries = NULL;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
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
	for (i = 0; i < n; i++) {
		struct gid *gid = &(*gids)[i];

		memcpy(&gid->gid, &entries[i].gid, sizeof(gid->gid));
		gid->rocev2 = entries[i].gid_type == IBV_GID_TYPE_ROCE_V2;
		if_indextoname(entries[i].ndev_ifindex, gid->ifname);
	}
	free(entries);
	return n > 0 ? n : 0;
}

void rdma_netdev(const char *device, char ifname[16])
{
	char *path = xasprintf("/sys/class/infiniband/%s/parent", device);
	char *text = read_file(path);

	snprintf(ifname, 16, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ?: "");
	free(text);
	free(path);
}

void rdma_node_guid(const char *device, char guid[NODE_GUID])
{
	char *path = xasprintf("/sys/class/infiniband/%s/node_guid", device);
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
