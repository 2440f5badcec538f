/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The network namespace of a container, which moves with it: its interfaces, their addresses and routes, and the RDMA
 * devices on them. It is made anew at the destination, quiet, so that the network sees one of the two only. A namespace
 * that has no name in /run/netns is not moved. As JSON:
 *
 *	{ "path": "/run/netns/web", "made": true, "links": [ { "ifname": "rxe1", "type": "macvlan", "mode": "bridge",
 *	  "parent": "eth0", "mac": "02:00:00:00:00:01", "mtu": 9000, "addresses": ["10.78.0.1/24"],
 *	  "routes": [ { "dst": "default", "gateway": "10.78.0.254" } ], "device": "rxe1",
 *	  "neighbours": [ { "dst": "10.78.0.3", "mac": "02:00:00:00:00:03", "permanent": false } ] } ],
 *	  "sysctls": { "ipv4/tcp_rmem": "4096 131072 6291456" }, "changed": { "ipv4/ip_forward": "1" } }
 *
 * "changed" has the sysctls that differ from those of a new namespace, "sysctls" the others. "cookie" says which namespace it is,
 * since somebody may delete its name, or give the name to another: the functions then find it by a process in it. It belongs to
 * the host that has noted it: the source in describe(), the destination in remember() or make().
 *
 *	destination			source
 *					describe()
 *	check()
 *	remember(), make()
 *	... the container is restored ...	... it is frozen ...
 *					keep_quiet()
 *	end_quiet(), announce()
 *	... it runs ...
 *					remove()
 *
 * The namespace of a container in a network of podman's has a name, too, which podman draws anew: podman makes it when it restores
 * the container, and remember() and make() come after that, before CRIU begins. podman removes it, too. take_down() comes before
 * that, and remove() then finds no namespace of the name.
 *
 * A move that fails is undone by remove() at the destination, and end_quiet() at the source. Each function works in the
 * thread that calls it, and brings the thread back to its own namespace.
 */
#ifndef GODWIT_NETNS_H
#define GODWIT_NETNS_H

#include <jansson.h>
#include "iface.h"

/*
 * What a namespace has, to be made elsewhere. NULL with fault(): it has what can't be taken along, or is no network namespace.
 * parent: the interface there that all its interfaces will lie on; NULL: the one of the same name as here. podmans: the interface
 * that podman makes, which is left out: {"mac", "addresses": [without lengths]}; or NULL.
 */
json_t *netns_describe(const char *path, const char *parent, json_t *podmans);
/*
 * netns_sysctl.c: add its sysctls. Call it in the namespace, ns. Once netns_make() has set them, nobody needs them, and
 * netns_drop_sysctls() takes them out. netns_forget_sysctls() also takes out "before", for people: some are secrets.
 */
int netns_sysctls(json_t *netns, int ns);
void netns_drop_sysctls(json_t *netns);
void netns_forget_sysctls(json_t *netns);
/* Would this host take it? Adds strings to problems. */
void netns_check(json_t *netns, json_t *problems);
/*
 * Look at what is there before anything is made. netns gets "made": whether the namespace itself has to be made; and, if not,
 * "before": the sysctls that it has. Whoever writes netns down now can undo all by netns_remove(). -1 with fault().
 */
int netns_remember(json_t *netns);
/* After that: make it, quiet: nothing passes its interfaces. -1 with fault(): all of it is taken back. */
int netns_make(json_t *netns);
/* Nothing passes its interfaces any more; twice is no error. */
int netns_keep_quiet(json_t *netns);
/* The same, if podman is to remove the namespace, with the table that keeps it quiet: its interfaces are down. */
int netns_take_down(json_t *netns);
/* It is no error if it is not quiet. */
int netns_end_quiet(json_t *netns);
/* As addresses_announce(). */
int netns_announce(json_t *netns);
/* At the source, while the container is dumped and frozen: no TCP passes. It is no error to unlock what is not locked. */
int netns_lock_tcp(json_t *netns);
int netns_unlock_tcp(json_t *netns);
/*
 * Remove devices and interfaces; and the namespace, if nothing is left in it and it was not there before netns_make(). It is no
 * error if something is gone already. Another namespace that has the name now is left alone. A device that is in use stays, with
 * its interface: -1 with fault().
 */
int netns_remove(json_t *netns);
/* Is there none any more? A namespace that lost its name is there as long as a process is in it. */
bool netns_is_gone(json_t *netns);
/* -1 with fault(): it has lost its name, and how it gets it back. pid: a process in it. */
int netns_check_name(json_t *netns, pid_t pid);
/* podman has removed it: wait until its devices are gone. -1 with fault(): that takes too long. */
int netns_wait_gone(json_t *netns);

/* Its name, if path lies directly in /run/netns; or NULL with fault(). It is a part of path. */
const char *netns_name(const char *path);

#endif /* GODWIT_NETNS_H */
