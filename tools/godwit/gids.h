/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The GIDs of RDMA devices, at both hosts; and which GID takes the place of one that stays behind.
 */
#ifndef GODWIT_GIDS_H
#define GODWIT_GIDS_H

#include <jansson.h>
#include <netinet/in.h>
#include "address.h"

/*
 * The GIDs of RoCE v2 that a device has, each once:
 * [{"gid": "::ffff:10.99.0.2", "interface": "eth0.5", "own": false, "prefix": 24, "secondary": false, "mtu": 1500}].
 * own: the interface is the one that the device lies on, not a VLAN of that; prefix: -1 if it is no address of this host.
 */
json_t *gids_json(const char *device);
/* One of them, by its text; or NULL. */
json_t *gids_find(json_t *gids, const char *gid);
/*
 * The GID there, of a device of host, that takes the place of an old GID here: the only one in the same subnet. NULL with
 * fault().
 */
const char *gids_choose(json_t *here, json_t *there, const char *old, const char *host, const char *device);

/* OLD=NEW of the command line, as IPv4 or IPv6 addresses, into an object of GIDs. -1 with fault(). */
int gids_parse(json_t *map, const char *text);

/* The MTU of an interface; 0: there is none of that name. */
int interface_mtu(const char *ifname);
/* How many bytes a packet may have beyond its path MTU, as the driver counts. */
#define PATH_MTU_HEADERS 80
/* The largest path MTU, in bytes, that goes through an interface or route with this MTU. */
int path_mtu_within(int mtu);

#endif /* GODWIT_GIDS_H */
