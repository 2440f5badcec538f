/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What a move of a process would take along, and what stands in its way on this host.
 */
#ifndef GODWIT_PLAN_H
#define GODWIT_PLAN_H

#include <jansson.h>
#include <stdio.h>
#include "address.h"
#include "proc.h"
#include "rdma.h"

struct plan {
	struct tree tree;
	struct contexts contexts;
	struct proc_files files;
	struct proc_ends ends;
	uint64_t memory, in_ram; /* by tree_memory(), and the files of the tree's own tmpfs */
	size_t qps;
	struct ibv_context *driver;	/* for plan_cm(), until plan_fds() is done */
	bool cm;			/* it has a file of librdmacm */
	bool gone;		/* it has a file of verbs whose device is gone */
	bool rdma;		/* it holds contexts, or files of librdmacm */
	bool shell_job;		/* its session's leader stays behind */
	bool own_netns;
	struct mntns mntns;	/* if the tree has a mount namespace of its own */
	json_t *outside;	/* files that are opened outside of that namespace, here and there: {CRIU's KEY: path, ...} */
	bool contained;		/* see plan_make() */
	bool passing;		/* something stands in the way that may be gone in a moment */
	json_t *problems;	/* strings: each forbids the move */
	json_t *notes;		/* strings that are worth knowing */
	json_t *known_problems, *known_notes;	/* the same texts, as keys */
	json_t *objects;	/* all RDMA objects of the tree: see plan_object() */
	json_t *ptys;		/* numbers of pseudo-terminals that go along */
	json_t *watches;	/* watched files, needed there: pid, fd, path, mode; mount: it must be the root of a mount */
	json_t *leased;		/* paths of files on which the process has a lease, which ends when somebody opens them */
	json_t *locks;		/* locks that must be free there: pid, path, flock, write, start, length */
	/* addresses that must be free there: {KEY: {pid, fd, udp, address, port, v6only, shared (SO_REUSEPORT)}} */
	json_t *ports;
	json_t *names;		/* names of Unix sockets that must be free there: {name: [pid, fd]} */
	json_t *folders;	/* that must be there: {path: mode} */
	json_t *cm_ids;		/* numbers of ids of librdmacm */
	json_t *cm_peers;	/* peers that some of these ids must find again: pid, fd, id, address */
	json_t *cm_ports;	/* where some of them must be bound again: pid, fd, id, ps, address, port, reuseaddr, afonly */
	json_t *gids;		/* its source GIDs: {OLD: {"there": NEW, "mtu": of its interface here}}, by move_map_gids() */
	json_t *stock_peers;	/* GIDs of peers that live but do not speak our protocol */
	json_t *silent_peers;	/* GIDs of stock peers, and of peers that may be gone, of connections whose address moves along */
	const struct addresses *addresses;	/* that move along */
	json_t *units;		/* what systemd has said of units: plan_supervisor() */
};

/*
 * Look at all that the tree has. -1 with fault(): it can't be looked at. contained: a container moves; its runtime knows what
 * the container shares with the host, and its files and namespaces go along. addresses: those that move along. asked: what
 * plan_ask_peers() left, or no contexts.
 */
int plan_make(struct plan *plan, pid_t pid, bool contained, const struct addresses *addresses,
	      const struct contexts *asked);
void plan_free(struct plan *plan);

/* The plan as a question for the destination. */
json_t *plan_json(const struct plan *plan);

/*
 * plan_supervisor.c: would somebody start the program anew when the tree dies here? Gives whether a process of it is in a
 * container.
 */
bool plan_supervisor(struct plan *plan);
/* Who ends with a container of podman's: its conmon, then each podman that is connected to it. */
struct witnesses {
	pid_t *pid;
	size_t n;
	const char *unit;	/* the label by which podman names the unit of systemd that made the container, or "" */
};

/* Would systemd start it anew? who: "container NAME" */
void plan_witnesses(struct plan *plan, const char *who, const struct witnesses *w);
/* plan_ns.c: has the tree namespaces that CRIU does not make again? */
void plan_namespaces(struct plan *plan);
/* plan_mounts.c: does the tree's mount namespace, if it is not this host's, go along? -1 with fault(). */
int plan_mounts(struct plan *plan);
/* plan_watch.c: what does the tree watch by inotify and fanotify? */
int plan_watches(struct plan *plan);
/* plan_fd.c, once the plan has contexts: which descriptors of other files stand in the way? */
int plan_fds(struct plan *plan);
/*
 * plan_names.c: the tree's TCP and UDP sockets, the name of a Unix socket (copy: our descriptor of it), a folder that is open,
 * and the folders in which the processes are: which stand in the way, and what do they need there?
 */
int plan_inet(struct plan *plan);
void plan_unix_name(struct plan *plan, const struct proc_fd *fd, int copy);
void plan_folder(struct plan *plan, const char *path, const struct stat *st);
void plan_cwds(struct plan *plan);
/* plan_cm.c: look at a file of librdmacm, and its ids. */
void plan_cm(struct plan *plan, const struct proc_fd *fd);
/* The plan's ports, with the addresses that they get there. */
json_t *plan_cm_ports(const struct plan *plan);
/*
 * Note what files and ids of librdmacm lose if their device has another node GUID at host. guids: the node GUIDs of the host's
 * devices, by name. The contexts must have the names of their devices there already.
 */
void plan_cm_there(struct plan *plan, const char *host, json_t *guids);
/* plan_rdma.c, with plan_qp.c and plan_mr.c: list every RDMA object of the tree's contexts, with what stands in its way. */
int plan_rdma(struct plan *plan, const struct addresses *addresses, const struct contexts *asked);
/*
 * Ask the peers whether they speak our protocol. asked: the contexts of the process and its children as they were before the
 * question, for contexts_free(). -1 with fault().
 */
int plan_ask_peers(pid_t pid, struct contexts *asked);
/*
 * plan_object.c: add an object, as it is printed: {"object": "qp", "device": "rxe0", "context": 3, field: value, ...,
 * "moves": true}. c: its context; NULL: none that the tree has open. Takes fields over; the plan keeps the object.
 */
json_t *plan_object(struct plan *plan, const char *what, const struct context *c, json_t *fields);
/* The object can't move: the text is its reason, and a problem of the plan. */
void plan_stays(struct plan *plan, json_t *object, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The object moves, but: the text is a note of the object and of the plan. */
void plan_moves_but(struct plan *plan, json_t *object, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The line of an object, as godwit(1) says. */
void plan_print_object(FILE *f, json_t *object);

/*
 * plan_there.c: the numbers that a context's objects have on its device, and where its connections lead from the GIDs that
 * they get (gids: see struct plan):
 * {"device": "rxe0", "identities": [[enum rxe_migr_hint_type, number], ...],
 *  "flows": [{"qp": 17, "from": NEW, "to": GID, "mtu": 4096, "here": 4096}, ...]}
 * mtu: the path MTU; here: the largest path MTU that goes through its interface on this host. Flows that are alike count once.
 */
json_t *plan_context_json(const struct context *c, json_t *gids);
/* Processes that have pinned more than their RLIMIT_MEMLOCK: [{"pid": 17, "bytes": 131072, "limit": 65536}] */
json_t *plan_pinned(const struct plan *plan);
/*
 * An array of strings: the GIDs that the context's QPs and AHs send from, and those GIDs of its device that ids of librdmacm
 * are bound to. here: the device's GIDs, by gids_json().
 */
json_t *plan_context_gids(const struct context *c, json_t *here);

/* plan_say.c: what forbids the move, and what is worth knowing. The same text counts once. */
void plan_problem(struct plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));
void plan_note(struct plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* GODWIT_PLAN_H */
