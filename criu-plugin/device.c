// SPDX-License-Identifier: GPL-2.0
/*
 * Which device of this host takes the place of a device of the source, and
 * which GID takes the place of a source GID. GIDs are found by value, never by
 * index. Also, whether a device's driver and this plugin fit together.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "restore.h"

#define ROCE_V2 "RoCE v2"
#define MAX_GIDS 256	/* a QP's index of its GID has 8 bits */
#define TABLE 2000	/* entries to ask for; rxe's table has 1024 */

int check_driver_version(const struct rxe_migr_query *query, const char *device)
{
	if (query->abi_version == RXE_MIGR_ABI_VERSION)
		return 0;
	return fail("%s: " WHY_VERSION, device, query->abi_version,
		    RXE_MIGR_ABI_VERSION);
}

static int check_driver(struct ibv_context *ctx, const char *device)
{
	struct rxe_migr_query query;
	int ret = ibv_query_migration(ctx, &query);

	if (ret)
		return fail("%s: its driver does not say its version: %s", device,
			    strerror(ret));
	return check_driver_version(&query, device);
}

struct ibv_context *open_context_file(const char *device,
				      const struct node *node, uint64_t session)
{
	struct ibv_context *ctx;
	int fd;

	fd = open_node(node, O_RDWR);
	if (fd < 0)
		return NULL;
	ctx = ibv_begin_restore_context(fd, session);
	if (ctx && !check_driver(ctx, device))
		return ctx;
	if (ctx) {
		ibv_detach_context(ctx);
		return NULL;
	}
	if (errno == ENOKEY)
		fail(NO_KEY);
	else if (errno == EPERM)
		fail("%s: no context can be restored on it: " NO_CAPABILITY,
		     device);
	else
		fail("%s: no context can be restored on it: %m: is its driver Godwit's rdma_rxe?",
		     device);
	close(fd);
	return NULL;
}

/* ------------------------------------------------------------- GID table -- */

static const char *type_name(uint32_t type)
{
	return type == IBV_GID_TYPE_ROCE_V2 ? ROCE_V2 : "IB/RoCE v1";
}

static RdmaGidEntry *make_gid(const struct ibv_gid_entry *entry)
{
	RdmaGidEntry *gid = malloc(sizeof(*gid));
	char netdev[IF_NAMESIZE];

	if (!gid)
		return NULL;
	rdma_gid_entry__init(gid);
	gid->gid.data = malloc(16);
	gid->type = strdup(type_name(entry->gid_type));
	if (!gid->gid.data || !gid->type) {
		rdma_gid_entry__free_unpacked(gid, NULL);
		return NULL;
	}
	memcpy(gid->gid.data, entry->gid.raw, 16);
	gid->gid.len = 16;
	if (if_indextoname(entry->ndev_ifindex, netdev))
		gid->netdev = strdup(netdev);
	return gid;
}

/*
 * One call reads the whole table. Through sysfs it would take three files for
 * each slot, and most slots are empty. A restore waits for this.
 */
int read_device(struct ibv_context *ctx, const char *name, const char *node,
		RdmaDeviceEntry *device)
{
	struct ibv_gid_entry *entries = calloc(TABLE, sizeof(*entries));
	int i, count, ret;

	rdma_device_entry__init(device);
	device->name = strdup(name);
	device->node = strdup(node);
	if (!device->name || !device->node || !entries)
		goto no_memory;
	ret = ibv_query_device_gids(ctx, &count, entries, TABLE);
	if (ret) {
		ret = fail("%s: its GIDs cannot be read: %s", name, strerror(ret));
		goto out;
	}
	device->gids = calloc(count + 1, sizeof(*device->gids));
	if (!device->gids)
		goto no_memory;
	for (i = 0; i < count; i++) {
		if (entries[i].port_num != 1 || entries[i].gid_index >= MAX_GIDS)
			continue;
		device->gids[device->n_gids] = make_gid(&entries[i]);
		if (!device->gids[device->n_gids])
			goto no_memory;
		device->n_gids++;
	}
out:
	free(entries);
	return ret;
no_memory:
	free(entries);
	return fail("no memory");
}

uint32_t gid_interface(struct ibv_context *ctx, const union ibv_gid *gid)
{
	struct ibv_gid_entry *entries = calloc(TABLE, sizeof(*entries));
	uint32_t found = 0;
	int i, count;

	if (!entries || ibv_query_device_gids(ctx, &count, entries, TABLE))
		count = 0;
	for (i = 0; i < count && !found; i++)
		if (!memcmp(&entries[i].gid, gid, sizeof(*gid)))
			found = entries[i].ndev_ifindex;
	free(entries);
	return found;
}

void free_device(RdmaDeviceEntry *device)
{
	size_t i;

	for (i = 0; i < device->n_gids; i++)
		rdma_gid_entry__free_unpacked(device->gids[i], NULL);
	free(device->gids);
	free(device->name);
	free(device->node);
}

/* ----------------------------------------------------------------- choice -- */

/*
 * Copy to new what a setting "old=new,old=new" has for old. Returns its length;
 * 0: the setting has nothing for old.
 */
static size_t look_up(enum setting map, bool (*equal)(const char *, size_t,
						      const void *),
		      const void *old, char *new, size_t size)
{
	const char *at = setting(map), *is, *end;
	size_t length;

	for (; at && *at; at = *end ? end + 1 : end) {
		end = strchrnul(at, ',');
		is = memchr(at, '=', end - at);
		if (!is || !equal(at, is - at, old))
			continue;
		length = end - is - 1;
		if (length >= size)
			return 0;
		memcpy(new, is + 1, length);
		new[length] = '\0';
		return length;
	}
	return 0;
}

static bool same_name(const char *at, size_t length, const void *name)
{
	return strlen(name) == length && !memcmp(at, name, length);
}

struct ibv_context *open_any_device(void)
{
	struct ibv_context *ctx = NULL;
	bool no_key = false;
	struct dirent *de;
	DIR *dir;

	dir = opendir(RDMA_CLASS);
	while (dir && !ctx && (de = readdir(dir))) {
		if (de->d_name[0] == '.')
			continue;
		ctx = ibv_open_restore_context(de->d_name, 1);
		/* Only Godwit's driver says this. Another device may be another driver's. */
		no_key |= !ctx && errno == ENOKEY;
	}
	if (dir)
		closedir(dir);
	errno = no_key ? ENOKEY : ENODEV;
	return ctx;
}

/* The name of this host's device, if it has exactly one; or NULL. */
static const char *only_device(char name[64])
{
	struct dirent *de;
	int count = 0;
	DIR *dir;

	dir = opendir(RDMA_CLASS);
	if (!dir)
		return NULL;
	while ((de = readdir(dir))) {
		if (de->d_name[0] == '.')
			continue;
		if (!count++)
			snprintf(name, 64, "%.63s", de->d_name);
	}
	closedir(dir);
	return count == 1 ? name : NULL;
}

const char *choose_device(const char *source)
{
	static char name[64];

	if (look_up(DEVICE_MAP, same_name, source, name, sizeof(name))) {
		if (device_node(name, NULL))
			return name;
		fail("%s: this host has no device %s (device_map)", source,
		     name);
		return NULL;
	}
	if (device_node(source, NULL))
		return source;
	if (only_device(name))
		return name;
	fail("%s: this host has none of that name, and not exactly one other: say which, device_map = %s=NAME in " CONFIG_FILE,
	     source, source);
	return NULL;
}

static bool same_gid(const char *at, size_t length, const void *gid)
{
	char text[INET6_ADDRSTRLEN];
	uint8_t raw[16];

	if (length >= sizeof(text))
		return false;
	memcpy(text, at, length);
	text[length] = '\0';
	return inet_pton(AF_INET6, text, raw) == 1 && !memcmp(raw, gid, 16);
}

static const RdmaGidEntry *find_gid(const RdmaDeviceEntry *device,
				    const uint8_t raw[16])
{
	size_t i;

	for (i = 0; i < device->n_gids; i++)
		if (!memcmp(device->gids[i]->gid.data, raw, 16))
			return device->gids[i];
	return NULL;
}

/*
 * The kind of an address: IPv4, link-local or global. An address of another
 * kind can't take its place: it would reach nobody.
 */
static int scope(const uint8_t raw[16])
{
	const struct in6_addr *a = (const void *)raw;

	return IN6_IS_ADDR_V4MAPPED(a) ? 4 : IN6_IS_ADDR_LINKLOCAL(a) ? 1 : 6;
}

bool has_gid(const RdmaDeviceEntry *device, const uint8_t raw[16])
{
	return find_gid(device, raw);
}

/*
 * Choose the only GID of the same kind. If there are several, fail: they may be
 * of several networks, and a wrong choice would show only when the peer's
 * deadline has passed. godwit, which knows subnets and routes, says which.
 */
static int choose_only(const RdmaDeviceEntry *here, const char *type,
		       const uint8_t recorded[16], const char *old,
		       union ibv_gid *gid)
{
	char new[INET6_ADDRSTRLEN], other[INET6_ADDRSTRLEN];
	const uint8_t *found = NULL;
	size_t i;

	for (i = 0; i < here->n_gids; i++) {
		const uint8_t *raw = here->gids[i]->gid.data;

		if (strcmp(here->gids[i]->type, type) ||
		    scope(raw) != scope(recorded))
			continue;
		if (found && memcmp(found, raw, 16)) {
			inet_ntop(AF_INET6, found, new, sizeof(new));
			inet_ntop(AF_INET6, raw, other, sizeof(other));
			return fail("%s: both %s and %s may take the place of GID %s: say which, sgid_map = %s=GID in " CONFIG_FILE,
				    here->name, new, other, old, old);
		}
		found = raw;
	}
	if (!found)
		return fail("%s: no GID of the same kind as %s (%s): give it an address, or say which, sgid_map = %s=GID in " CONFIG_FILE,
			    here->name, old, type, old);
	memcpy(gid->raw, found, 16);
	inet_ntop(AF_INET6, found, new, sizeof(new));
	info("%s: GID %s takes the place of %s", here->name, new, old);
	return 0;
}

int choose_gid(const RdmaDeviceEntry *source, const RdmaDeviceEntry *here,
	       const uint8_t recorded[16], union ibv_gid *gid)
{
	char old[INET6_ADDRSTRLEN], new[INET6_ADDRSTRLEN];
	const RdmaGidEntry *known;

	memset(gid, 0, sizeof(*gid));
	if (!memcmp(recorded, gid->raw, 16))
		return 0;
	inet_ntop(AF_INET6, recorded, old, sizeof(old));
	if (look_up(SGID_MAP, same_gid, recorded, new, sizeof(new))) {
		if (inet_pton(AF_INET6, new, gid->raw) == 1 &&
		    find_gid(here, gid->raw))
			return 0;
		return fail("%s: GID %s, which is to take the place of %s, is none of this host's (sgid_map)",
			    here->name, new, old);
	}
	if (find_gid(here, recorded))
		return 0;
	known = find_gid(source, recorded);
	return choose_only(here, known ? known->type : ROCE_V2, recorded, old,
			   gid);
}
