/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * An IP address that moves along with a process. For a while both hosts have it, and the network must see one of them only.
 * So nftables tables keep it quiet: at the destination until the commit, at the source from the commit on.
 *
 *	destination			source
 *	keep_quiet()			keep_quiet(), asleep
 *	add(), wait_gids()
 *	... the process is restored ...	... the process is frozen ...
 *					quiet_now()
 *	end_quiet(), announce()
 *	... it runs ...
 *					del(), end_quiet()
 *
 * A move that fails is undone by kill_sockets(), del(), end_quiet() at the destination; by end_quiet(), announce() at the source.
 */
#ifndef GODWIT_ADDRESS_H
#define GODWIT_ADDRESS_H

#include <jansson.h>
#include <net/if.h>
#include <netinet/in.h>
#include "godwit.h"

struct address {
	int family;
	struct in6_addr addr;	/* IPv4: the first 4 bytes */
	int prefixlen;
	char ifname[IFNAMSIZ];	/* at the destination; "": as at the source */
	char here[IFNAMSIZ];	/* on this host, once checked or added */
	char text[INET6_ADDRSTRLEN];
	bool added;		/* by us, here */
};

struct addresses {
	struct address *address;
	size_t n;
};

/* ADDR/LEN%IFACE; LEN and IFACE may be left out where the source says them. -1 with fault(). */
int address_parse(struct addresses *list, const char *text);
void addresses_free(struct addresses *list);
/* Is this GID, IPv4 as mapped, one of the addresses? */
bool addresses_have(const struct addresses *list, const struct in6_addr *gid);
const struct address *addresses_find(const struct addresses *list, const struct in6_addr *gid);
json_t *addresses_json(const struct addresses *list);
int addresses_from_json(struct addresses *list, json_t *json);

/* Source: check that they are here and may be taken away; fill in lengths and interfaces that were left out. */
int addresses_check_source(struct addresses *list);
/* Destination: check that the interfaces are here, and the addresses are not. */
int addresses_check_destination(const struct addresses *list);

/* asleep: the tables do nothing until addresses_quiet_now() */
int addresses_keep_quiet(const struct addresses *list, const char *id, bool asleep);
int addresses_quiet_now(const struct addresses *list, const char *id);
int addresses_end_quiet(const struct addresses *list, const char *id);
int addresses_add(struct addresses *list);
/* Delete all; with added_only, only those that addresses_add() added. */
int addresses_del(struct addresses *list, bool added_only);
/* Wait until each has its GID, if its interface carries an RDMA device. */
int addresses_wait_gids(const struct addresses *list, int timeout_ms);
/* Tell the neighbours: gratuitous ARP, as a request and as a reply; unsolicited neighbour advertisements. */
int addresses_announce(const struct addresses *list);
/* Destroy the TCP sockets of addresses that addresses_add() added. */
int addresses_kill_sockets(const struct addresses *list);

/* As people write an address: IPv4 without ::ffff: */
const char *ip_text(const struct in6_addr *a, char text[INET6_ADDRSTRLEN]);
/* The address and a port, as bind() takes them. Gives their size. */
union ip_port {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};
socklen_t ip_port(const struct in6_addr *a, int port, union ip_port *to);
/* Is it this address, with a length behind it, as in 10.0.0.1/24? with_length may be NULL. */
bool ip_text_is(const char *with_length, const char *address);

#endif /* GODWIT_ADDRESS_H */
