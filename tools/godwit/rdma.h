/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * RDMA devices of this host, and the contexts that a process tree holds on them.
 */
#ifndef GODWIT_RDMA_H
#define GODWIT_RDMA_H

#include <infiniband/migrate.h>
#include <jansson.h>
#include <netinet/in.h>
#include "godwit.h"
#include "proc.h"
#include "rdma_file.h"

/* Who has a file of the tree open. outsider: a process that is not of the tree and has it open or mapped, too; 0: none. */
struct holders {
	struct { pid_t pid; int fd; } *holder;
	size_t n;
	pid_t outsider;
};

/* An open context of the tree. If several descriptors share it, it is listed once. */
struct context {
	pid_t pid;		/* whose descriptor it is, the first of them */
	int fd;
	struct stat st;		/* its file's, which its rings have, too */
	int slot;		/* how many contexts came before, in this tree */
	char device[64];	/* "rxe0"; "" if the device is not known */
	struct holders holders;	/* all of them, the first included */
	bool ours;		/* the driver speaks our protocol */
	bool asked;		/* contexts_ask_peers() has asked its peers */
	struct rxe_migr_query query;
	void *dump;		/* records, by contexts_inspect() */
	size_t length;
	const struct rxe_migr_rec_qp **qp; /* the QPs of the dump, sorted by number */
	size_t qps;
	struct in6_addr *cm_gid; /* addresses that ids of librdmacm on its device are bound to, by plan_cm() */
	size_t cm_gids;
	int own_fd;		/* a descriptor of ours, by contexts_keep_open(); or -1 */
};

struct contexts {
	struct context *context;
	size_t n;
};

/* An event file that the tree has open. */
struct event_file {
	struct holders holders;
	const struct context *context;	/* NULL: of none that the tree has open */
	struct rxe_migr_event_fd file;
};

struct event_files {
	struct event_file *file;
	size_t n;
};

/* contexts.c: those whose device is there */
int contexts_find(const struct tree *tree, struct contexts *list);
/* Is the device of this file, FILE_UVERBS, gone? Only our driver tells. */
bool context_is_gone(pid_t pid, int fd);
/* Read their records; nothing is stopped. */
int contexts_inspect(struct contexts *list);
/* The queue pair of this number in the records of a context, or NULL. */
const struct rxe_migr_rec_qp *context_qp(const struct context *c, uint32_t qpn);
/* "running", "stopped", ..., as of the last query. */
const char *context_state(const struct context *c);
void contexts_free(struct contexts *list);
/* Keep them from ending with their processes, until contexts_free(); -1 with fault(). */
int contexts_keep_open(struct contexts *list);

/* A handle on one; NULL with errno. It keeps the context alive: ibv_detach_context() soon. */
struct ibv_context *context_attach(const struct context *context);
/* Ask anew for the states of all; -1 with fault(). */
int contexts_query(struct contexts *list);
/* Until when their peers wait at least, as the driver said last; a time of now_ns(), INT64_MAX: for ever. */
int64_t contexts_peers_wait(const struct contexts *list);
/* The first that a peer has not answered since the stop, although it had answered before: its query.num_silent. Or NULL. */
const struct context *contexts_silent(const struct contexts *list);
/*
 * Asks the peers of all contexts to wait for longer. The next contexts_query() shows until when they do, and which have not
 * answered.
 */
void contexts_renew(struct contexts *list);
/* Ask all peers whether they speak our protocol, and give them time; the records tell who has answered. */
void contexts_ask_peers(struct contexts *list);
/* All contexts that are stopped go on where they are. Tries all; -1 with fault(): one did not. */
int contexts_abort(struct contexts *list);

/* holder_list.c */
void holders_add(struct holders *holders, const struct proc_fd *fd);
/* Is this a descriptor of the same open file? */
bool holders_have(const struct holders *holders, const struct proc_fd *fd);

/* holders.c: the event files of the tree. They point into list, which must stay where it is meanwhile. */
int event_files_find(const struct tree *tree, const struct contexts *list, struct event_files *files);
void event_files_free(struct event_files *files);
/* The rings of all contexts, by their offsets in the devices' files. */
struct rings {
	struct ring {
		uint64_t offset;
		size_t context;
	} *ring;
	size_t n;
};
void rings_collect(const struct contexts *list, struct rings *rings);
void rings_free(struct rings *rings);
/* The ring of this device (NULL: of any) at this offset, or NULL. */
const struct ring *rings_find(const struct rings *rings, const struct contexts *list, const char *device,
			      uint64_t offset);

/* Find processes outside of the tree that have one of all these open or mapped, too. */
void find_outsiders(const struct tree *tree, struct contexts *list, struct event_files *files,
		    const struct rings *rings);
/* A process outside of the tree that has the same open file, of a character device, as this descriptor; 0: none. */
pid_t find_outsider(const struct tree *tree, struct proc_ends *ends, const struct proc_fd *fd);

/* rdma.c: the kind of a character device. FILE_UVERBS: device gets the name of its RDMA device, "rxe0", or "". */
enum file_kind rdma_node(dev_t rdev, char device[64]);

/*
 * rdma_cm.c: the ids of a file of librdmacm, to be freed. *ids must be NULL before. Gives their number, or -1 with fault().
 * *driver: the device that is asked. If it is NULL, any is opened, for the caller to close.
 */
int rdma_cm_ids(struct ibv_context **driver, pid_t pid, int fd, struct rxe_migr_cm_id **ids);

/*
 * Does librdmacm find this address? (The plugin must find the peer of an id.) 0 (also if it is link-local) or an errno: ETIMEDOUT:
 * not within this time.
 */
int rdma_resolve(const char *address, int wait_ms);
/*
 * Would librdmacm bind an id of this port space to this address and port? (IPv4 as ::ffff:10.77.0.1.) 0 or an errno:
 * EADDRINUSE: another id has both; EADDRNOTAVAIL: one of the two is bound to any address; or this host has no such address.
 */
struct cm_port {
	int ps, port;
	bool reuseaddr, afonly;	/* as by rdma_set_option() */
};
int rdma_try_bind(const struct in6_addr *address, const struct cm_port *port);

/* rdma.c: call each for every RDMA device of the kind rxe; stops when it returns other than 0. */
int rdma_each_device(int (*each)(const char *device, void *arg), void *arg);
/* Live objects of one kind on all devices, from `rdma resource show`; NULL: it could not tell. */
json_t *rdma_resources(const char *kind);
bool rdma_device_exists(const char *device);
/*
 * The same, but also of a device that only another network namespace shows: a name belongs to one device of a host. Such a device
 * has a node here. One that is being removed has none, and still exists.
 */
bool rdma_name_is_taken(const char *device);
/* Is it an rxe device, and does our network namespace have it? */
bool rdma_is_rxe(const char *device);
/* Open it to ask the driver something about the whole device; NULL with fault(). */
struct ibv_context *rdma_open(const char *device);

/* The GIDs of a device's port 1, and the interface of each. "" and 0: it is in another network namespace. */
struct gid {
	struct in6_addr gid;
	char ifname[16];
	int ifindex;
	bool own;		/* the device lies on it */
	bool rocev2;
};

size_t rdma_gids(const char *device, struct gid **gids);

/* The interface that a device lies on. "": it is in another network namespace, or there is no such device. */
void rdma_netdev(const char *device, char ifname[16]);
/* Does a device that lies on own send from this interface: own itself, or one above that, such as a VLAN? own: may be "". */
bool rdma_sends_from(const char *own, const char *ifname);

#define NODE_GUID 20	/* "5054:00ff:fe12:3456" */

/* Its node GUID, as sysfs has it, or "". */
void rdma_node_guid(const char *device, char guid[NODE_GUID]);
bool rdma_on_interface(const char *ifname);
bool rdma_has_gid(const char *ifname, const struct in6_addr *gid);

/*
 * The fingerprints of this host's keys: of the one that signs, 0: none is set; and of one that is accepted, too, 0: none. -1
 * with fault(): the driver can't be asked. (It can be asked by any of its devices.)
 */
int rdma_key_fingerprints(uint64_t fingerprints[2]);

const char *rdma_qp_type(unsigned int type);
const char *rdma_qp_state(unsigned int state);

#endif /* GODWIT_RDMA_H */
