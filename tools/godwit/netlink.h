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
	bool secondary;		/* IPv4: another of its subnet was there before; IPv6: temporary */
};

int nl_address_add(const struct nl_address *address);
int nl_address_del(const struct nl_address *address);
/* Fill in where this host has address->addr; -ENOENT: it doesn't. */
int nl_address_find(struct nl_address *address);
/* Does deleting this one take others along? (a primary address of IPv4 takes its secondaries) */
bool nl_address_has_secondaries(const struct nl_address *address);
/* All addresses of this host, of one family or, AF_UNSPEC, of both. Gives how many; free *list. */
ssize_t nl_addresses(int family, struct nl_address **list);
bool nl_same_address(const struct nl_address *a, const struct nl_address *b);
/* Is b in the subnet of a? */
bool nl_same_subnet(const struct nl_address *a, const struct nl_address *b);
/* The address that a GID of RoCE v2 stands for, without interface and prefix. */
struct nl_address nl_of_gid(const struct in6_addr *gid);

/* The number by which the network namespace of this process knows the namespace ns, as link_netnsid of ip; -1: it has none. */
int nl_nsid(int ns);

/* Destroy every TCP socket that is bound to this local address, without a word to its peer's side. */
int nl_tcp_destroy(int family, const struct in6_addr *local);

/* The inode of the Unix socket that sock, whose inode this is, is connected to; 0: none that is known. */
uint32_t nl_unix_peer(int sock, uint32_t inode);

/* nftables.c: delete the tables of this name, of inet and of arp; that there is none is no error. */
int nl_tables_delete(const char *name);
/* Delete the table of this family (NFPROTO_). -ENOENT: there is none. */
int nl_table_delete(int family, const char *name);
/* Wake them: tables made with "flags dormant" do nothing until then. */
int nl_tables_wake(const char *name);
/* Delete all tables whose names are the beginning of name, at least min bytes of it: CRIU cuts the names of its tables. */
int nl_tables_delete_cut(int family, const char *name, size_t min);

#endif /* GODWIT_NETLINK_H */
