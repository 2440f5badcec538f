/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The few requests to the kernel's network configuration that lie on the path where every millisecond
 * counts, so that no program is started for them. All give 0 or a negative errno.
 */
#ifndef GODWIT_NETLINK_H
#define GODWIT_NETLINK_H

#include <netinet/in.h>
#include "godwit.h"

struct nl_address {
	int family;
	struct in6_addr addr;	/* IPv4: the first 4 bytes */
	int prefixlen;
	int ifindex;
	bool secondary;
};

int nl_address_add(const struct nl_address *address);
int nl_address_del(const struct nl_address *address);
/* Fill in where this host has address->addr; -ENOENT: it doesn't. */
int nl_address_find(struct nl_address *address);
/* Does deleting this one take others along? (a primary address of IPv4 takes its secondaries) */
bool nl_address_has_secondaries(const struct nl_address *address);

/* Destroy every TCP socket that is bound to this local address, without a word to its peer's side. */
int nl_tcp_destroy(int family, const struct in6_addr *local);

/* The inode of the Unix socket that this one, of this inode, is connected to; 0: of none that is known. */
uint32_t nl_unix_peer(int sock, uint32_t inode);

/* nftables: delete the tables of this name, of inet and of arp; that there is none is no error. */
int nl_tables_delete(const char *name);
/* Wake them: tables made with "flags dormant" do nothing until then. */
int nl_tables_wake(const char *name);
/* All whose names are the beginning of this one, at least min bytes of it: CRIU cuts its tables' names. */
int nl_tables_delete_cut(int family, const char *name, size_t min);

#endif /* GODWIT_NETLINK_H */
