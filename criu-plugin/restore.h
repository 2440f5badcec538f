/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The wing of restore: what restore.c, which tasks ask, and the files
 * restore_*.c share.
 */
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

/* In CRIU: the file of a device, and rdma_cm. */
int find_node(const char *device, struct node *node);
int find_cm_node(struct node *node);

/* In any mount namespace: a new descriptor, or -1. */
int open_node(const struct node *node, int flags);

/* -------------------------------------------------------- device.c: choices -- */

/* A new context on it, of our driver, that is to be filled; or NULL. */
struct ibv_context *open_context_file(const char *device,
				      const struct node *node, uint64_t session);

/* The device here that stands for one of the source, or NULL. */
const char *choose_device(const char *name);

/*
 * The source GID here of a QP that had this one: zero, if it is here too.
 * source and here: the two tables.
 */
int choose_gid(const RdmaDeviceEntry *source, const RdmaDeviceEntry *here,
	       const uint8_t recorded[16], union ibv_gid *gid);

/* ----------------------------------------------------------- what was saved -- */

/*
 * What the images say, and what was decided about it, before the first task is
 * forked: the same in all tasks.
 */
struct saved_object {
	const struct rxe_migr_rec *rec;
	pid_t		pid;		/* MR: whose memory; inner number */
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
	uint32_t	num_handles;	/* the highest, and one */
	struct saved_file *files;	/* event files, by ordinal */
	uint32_t	num_files;
	struct saved_ring *rings;
	uint32_t	num_rings;
};

extern struct saved {
	RdmaInventoryEntry *inventory;	/* NULL: nothing to restore */
	struct saved_context *contexts;
	uint32_t	num_contexts;
	uint32_t	num_files;	/* of all contexts: slots */
	uint32_t	num_rings;
} saved;

/* restore_load.c: read and check the images, choose devices and addresses. */
int load_images(void);
const struct saved_object *find_object(const struct saved_context *c,
				       uint32_t handle);
const struct saved_file *find_event_file(const struct saved_context *c,
					 uint32_t type, uint32_t handle);

/* restore.c: what hooks.c calls; what a task asks for */
int restore_init(void);
int restore_file(int id);
int restore_mapping(uint64_t start, uint64_t pgoff, uint64_t *new_pgoff,
		    int *fd);

/*
 * restore_context.c: contexts that all tasks know, and CRIU itself. The first task
 * that needs one makes it, with all it holds but memory regions.
 */
int share_contexts(void);
int make_context(uint32_t n);
bool is_made(uint32_t n);
int open_made_context(uint32_t n);	/* a new descriptor, or -1 */
int open_made_file(const struct saved_file *file);
uint64_t made_ring(const struct saved_ring *ring);	/* for mmap() */

/* Say why an object could not be made. -1. */
int creating_failed(const struct saved_context *c,
		    const struct rxe_migr_rec *rec, int err);

/* restore_cm.c: files of librdmacm */
int share_cm_files(void);
int restore_cm_file(int id);			/* -ENOTSUP: it is none */
typedef pid_t find_pid_fn(const void *arg, pid_t inner);
int adopt_cm_files(find_pid_fn *find, const void *arg,
		   struct ibv_context **ctx);

/*
 * restore_cm_id.c: make the ids of all these files, each with one, by rising number.
 * driver is any context; ctx are those that are being restored.
 */
struct made_id {
	const RdmaCmIdEntry *saved;
	int		fd;
};
int check_cm_ids(void);		/* what the images say of them */
int make_cm_ids(struct ibv_context *driver, struct ibv_context **ctx,
		struct made_id *ids, size_t count);

/* late.c: whether peers still wait */
int check_time(void);

/* store.c: descriptors that all tasks can get at, and CRIU itself */
int store_init(void);
int store_put(int fd);			/* its number, or -1 */
int store_get(int number);		/* a new descriptor, or -1 */
void store_drain(void);

/* restore_finish.c: memory regions and contents, once memory is back; then go on. */
int resume_late(int pid);

/* commit.c: wait for the word to go on, if anybody wants to have it; say that we do. */
int wait_for_commit(pid_t root);
void commit_goes(void);

#endif /* RDMA_RESTORE_H */
