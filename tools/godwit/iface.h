/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * An interface in the network namespace of a container, which lies on an interface of this host; and the RDMA device on it.
 */
#ifndef GODWIT_IFACE_H
#define GODWIT_IFACE_H

#include "address.h"
#include "godwit.h"
#include "ns.h"

struct iface_type {
	const char *name, *one;		/* one: "a macvlan" */
	const char *mode;		/* the only one that godwit makes; "": it has none */
	bool has_mac;			/* else it has its parent's */
	bool on_bridge;			/* its parent must be a bridge, and its other end becomes a port of the bridge */
};

/* The types of interface that godwit makes. NULL: this is none. */
const struct iface_type *iface_type(const char *name);

struct iface {
	const char *device, *ifname, *parent;
	const struct iface_type *type;
	const char *mac;		/* NULL: any, or its parent's */
	int mtu;			/* 0: its parent's */
	struct addresses addresses;
};

/* Run a program of iproute2's. what: the object that it works on; todo: what a person can do when that fails. -1 with fault(). */
int tool(const char *what, const char *todo, const char *const argv[]);

#define TOOL(what, todo, ...) tool(what, todo, (const char *const[]){ __VA_ARGS__, NULL })

/* What ip shows of an interface in this namespace, as JSON. NULL: ip shows no interface of that name. */
json_t *iface_show(const char *ifname);
bool ip_has_flag(const json_t *shown, const char *flag);	/* shown: an interface or a route, as ip shows it */

/* Call this in the namespace of its parent. The interface is made in ns, is down, and has no address. */
int iface_make(const struct iface *i, int ns);
/* These work in the namespace of the interface. -1 with fault(). */
int iface_add_addresses(const struct iface *i);
int iface_up(const struct iface *i);
int iface_add_device(const struct iface *i);
int iface_lo_up(void);
/* These wait for a while, and no longer, for whoever stands in a verb of the device. */
int iface_delete_device(const char *device);
int iface_delete(const char *ifname, const char *what, const char *todo);
bool iface_can_be_deleted(const char *ifname);	/* is it of a type that godwit makes? */
/* The interface of a device, if it lies in this namespace; to be freed. NULL: it does not. */
char *iface_of(const char *device);
/* The interface of the only device in this namespace, to be freed. NULL with fault(). */
char *iface_of_only_device(void);
/*
 * -1 with fault() if somebody has the device open: a deletion would take it from that process. This finds contexts and files of
 * the device, but no event files.
 */
int iface_check_unused(const char *device);

/* Do the kernel, ip and rdma all take it for a name? -1 with fault(). */
int iface_check_name(const char *what, const char *name, size_t max);
int iface_check_parent_name(const char *name);
/* Can the interface lie on its parent in this namespace? where: " here" or " there", for the message. -1 with fault(). */
int iface_check_parent(const struct iface *i, const char *where);
int iface_check_mac(const char *mac);
int iface_parse_address(struct iface *i, const char *text);	/* ADDRESS/LENGTH, of a host */

#endif /* GODWIT_IFACE_H */
