/* SPDX-License-Identifier: GPL-2.0 */
/* Restore: what restore.c and the files that it uses share. */
#ifndef RDMA_RESTORE_H
#define RDMA_RESTORE_H

#include "plugin.h"

struct event_file {
	uint32_t	type;	/* RXE_MIGR_REC_COMP_CHANNEL or _ASYNC_FILE */
	uint32_t	handle;	/* ordinal */
};

/* --------------------------------------------------- node.c: device files -- */

struct node {
	char	name[NODE_LEN];	/* in /dev/infiniband of this host */
	dev_t	rdev;
	mode_t	mode;		/* as this host has it */
	uid_t	uid;
	gid_t	gid;
};

/* In CRIU: find the file of a device here, and that of rdma_cm. */
int find_node(const char *device, struct node *node);
int find_cm_node(struct node *node);

/* Open a node's file, in any mount namespace: a new descriptor, or -1. */
int open_node(const struct node *node, int flags);

/* -------------------------------------------------------- device.c: choices -- */

/* Open a context of our driver on a device, to restore into; or NULL. */
struct ibv_context *open_context_file(const char *device,
				      const struct node *node, uint64_t session);

/* The device here that takes the place of a device of the source, or NULL. */
const char *choose_device(const char *name);

/*
 * Choose the source GID that takes the place of the recorded one here. Zero:
 * the recorded one. source and here are the GID tables of both devices.
 */
int choose_gid(const RdmaDeviceEntry *source, const RdmaDeviceEntry *here,
	       const uint8_t recorded[16], union ibv_gid *gid);

/*
 * The index of the interface that has a GID of ctx's device, in the
 * interface's own network namespace; 0: there is none.
 */
uint32_t gid_interface(struct ibv_context *ctx, const union ibv_gid *gid);

/* ----------------------------------------------------------- what was saved -- */

/*
 * What the images say, and what was decided about it. All this is set before
 * the first task is forked, so it is the same in all tasks.
 */
struct saved_object {
	const struct rxe_migr_rec *rec;
	pid_t		pid;		/* MR: whose memory, by inner_pid() */
	union ibv_gid	sgid;		/* QP, AH: here; zero: as recorded */
};

struct saved_file {
	const struct rxe_migr_rec_event_file *rec;
	struct event_file file;
	uint32_t	slot;		/* in the shared table */
};

struct saved_ring {
	struct ibv_record_ring ring;
	uint32_t	slot;		/* in the shared table */
};

struct saved_context {
	const RdmaDeviceEntry *source;	/* its device there ... */
	const RdmaDeviceEntry *here;	/* ... and the one here ... */
	struct node	node;		/* ... and its file */
	struct records	records;	/* by type */
	struct saved_object *objects;	/* those with a handle, by handle */
	uint32_t	num_objects;
	uint32_t	num_handles;	/* the highest handle plus one */
	const struct saved_object **qps;	/* of these the QPs, by number */
	uint32_t	num_qps;
	struct saved_file *files;	/* event files, by ordinal */
	uint32_t	num_files;
	struct saved_ring *rings;	/* by offset */
	uint32_t	num_rings;
};

extern struct saved {
	RdmaInventoryEntry *inventory;	/* NULL: nothing to restore */
	struct saved_context *contexts;
	uint32_t	num_contexts;
	uint32_t	num_files;	/* slots, for all contexts */
	uint32_t	num_rings;
} saved;

/* restore_load.c: read and check the images, choose devices and addresses. */
int load_images(void);
const struct saved_object *find_object(const struct saved_context *c,
				       uint32_t handle);
const struct saved_object *find_qp(const struct saved_context *c, uint32_t qpn);
const struct saved_file *find_event_file(const struct saved_context *c,
					 uint32_t type, uint32_t handle);
/* The ring that this task had mapped there, and the record of the ring. */
const RdmaVmaEntry *find_vma(uint64_t start, uint64_t pgoff);
const struct saved_ring *find_ring(const RdmaVmaEntry *vma);

/* restore.c: what hooks.c calls; what a task asks for */
int restore_init(void);
int restore_file(int id);
int restore_mapping(uint64_t start, uint64_t pgoff, uint64_t *new_pgoff,
		    int *fd);

/*
 * restore_context.c: contexts, which CRIU and all tasks know. The first task
 * that needs a context makes it, with all objects but memory regions.
 */
int share_contexts(void);
int make_context(uint32_t n);
bool is_made(uint32_t n);
int open_made_context(uint32_t n);	/* a new descriptor, or -1 */
int open_made_file(const struct saved_file *file);
uint64_t made_ring(const struct saved_ring *ring);	/* for mmap() */

/* Say why an object could not be made. Returns -1. */
int creating_failed(const struct saved_context *c,
		    const struct rxe_migr_rec *rec, int err);

/* restore_cm.c: files of librdmacm */
int share_cm_files(void);
int restore_cm_file(int id);			/* -ENOTSUP: no such file */
typedef pid_t find_pid_fn(const void *arg, pid_t inner);
int adopt_cm_files(find_pid_fn *find, const void *arg,
		   struct ibv_context **ctx);

/*
 * restore_cm_id.c: make the ids of all these files. Each made_id has a
 * descriptor of the file of its id. driver is a context of any device; ctx are
 * the contexts that are being restored.
 */
struct made_id {
	const RdmaCmIdEntry *saved;
	int		fd;
	pid_t		pid;		/* the task that will have the file */
};
int check_cm_ids(void);		/* are they whole in the images? */
int make_cm_ids(struct ibv_context *driver, struct ibv_context **ctx,
		struct made_id *ids, size_t count);

/* late.c: whether peers still wait */
int check_time(void);
bool is_connected(const struct rxe_migr_rec_qp *qp);	/* any record may be given */

/* Is the peer in this checkpoint? Then it is stopped, and waits for nobody. */
bool is_among_us(const struct rxe_migr_rec_qp *qp);

/* A line about connections names the first few, and counts all. */
struct peers {
	char	text[256];
	size_t	length;
	unsigned int count;
};
void name_peer(struct peers *peers, const struct rxe_migr_rec_qp *qp);
const char *more_peers(const struct peers *peers);	/* what the line ends with */

/* route.c: warn of peers that no route leads to. owners: a task of each context */
int check_routes(const pid_t *owners, struct ibv_context **ctx);

/* store.c: descriptors that CRIU and all tasks can get */
int store_init(void);
int store_put(int fd);			/* its number, or -1 */
int store_get(int number);		/* a new descriptor, or -1 */
void store_drain(void);

/*
 * restore_finish.c: when memory is back, restore memory regions and contents,
 * then let contexts go on.
 */
int resume_late(int pid);

/*
 * commit.c: say that a restore begins, if somebody wants to know; wait for the
 * word to go on, if somebody wants to give it; then say that the tree goes on.
 */
int tell_begin(void);
int wait_for_commit(pid_t root);
void commit_goes(void);

#endif /* RDMA_RESTORE_H */
