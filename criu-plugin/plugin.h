/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the plugin share. README.md is the design; hooks.c, the
 * table of contents.
 *
 * Functions return 0 or -1 and have then said why, once, with fail().
 */
#ifndef RDMA_PLUGIN_H
#define RDMA_PLUGIN_H

#include <limits.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#pragma GCC visibility push(default)	/* CRIU looks for CR_PLUGIN_DESC */
#include <criu/criu-plugin.h>
#pragma GCC visibility pop
#include <infiniband/migrate.h>

#include "rdma.pb-c.h"
#include "rdma_file.h"
#include "walk.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

struct event_file {
	uint32_t	type;	/* RXE_MIGR_REC_COMP_CHANNEL or _ASYNC_FILE */
	uint32_t	handle;	/* ordinal */
};

/* --------------------------------------------------- criu.c: CRIU (4.1) itself -- */

/*
 * CRIU's own functions that plugins may call, though no installed header says
 * so. Those that are weak came with 4.1: check_criu() has found them.
 */
extern void print_on_level(unsigned int level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
extern int add_inventory_plugin(const char *name) __attribute__((weak));
extern bool check_and_remove_inventory_plugin(const char *name, size_t n)
	__attribute__((weak));
extern int fdstore_add(int fd) __attribute__((weak));
extern int fdstore_get(int id) __attribute__((weak));

/* Is this the CRIU that the plugin is for? */
int check_criu(void);

/* ------------------------------------------------------- error.c: one line -- */

#define LOG_ERROR 1
#define LOG_WARN  2
#define LOG_INFO  3

#define warn(fmt, ...) \
	print_on_level(LOG_WARN, "Warn  (rdma): " fmt "\n", ##__VA_ARGS__)
#define info(fmt, ...) print_on_level(LOG_INFO, "rdma: " fmt "\n", ##__VA_ARGS__)

/* Say why it failed: what, why, what to do. The first line counts. -1. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ENOKEY of the driver */
#define NO_KEY \
	"key: the driver has none: godwit key load, or, if this host never had one, godwit key set, the same on all hosts; or, " \
	"on a network that you trust, write Y to /sys/module/rdma_rxe/parameters/allow_unsigned at all of them"

/* Lines said from now on, also in forked processes, are known to this one. */
int error_share(void);

/* Pass the line on to who started CRIU, if there is one. Only once. */
void error_report(void);

/* ----------------------------------------- share.c: what all tasks have -- */

/*
 * Zeroed memory that all tasks have, and CRIU itself, which calls this before
 * the first task is forked; or NULL. It is never freed.
 */
void *share(size_t size);

/* A lock in such memory, which nobody has yet. */
int make_lock(sem_t *lock);

/* Wait for it, for a time. stuck: what to say if another task does not leave it. */
int take_lock(sem_t *lock, const char *stuck);
void leave_lock(sem_t *lock);

/* ----------------------------------------------------- config.c: settings -- */

#define CONFIG_FILE "/etc/godwit/criu.conf"

enum setting { DEVICE_MAP, SGID_MAP, LATE };

/* Read godwit-criu.conf(5), if it is there. Once. */
int load_config(void);

/* What the environment says, or else the file; NULL: neither does. */
const char *setting(enum setting which);

/* A restore that comes too late for the peers ends. */
bool refuses_late(void);

/* -------------------------------------------------------- scan.c: processes -- */

/* The kind of an open file of a process; pid 0: our own. */
enum file_kind fd_kind(pid_t pid, int fd, char node[NODE_LEN]);

/* Call fn for each RDMA file of a process until it returns another value than 0. */
typedef int fd_fn(pid_t pid, int fd, enum file_kind kind, const char *node,
		  void *arg);
int for_each_fd(pid_t pid, fd_fn *fn, void *arg);

/* Its open RDMA files, or -1. */
int count_files(pid_t pid);

struct mapping {
	uint64_t	start;
	uint64_t	end;
	uint64_t	pgoff;		/* bytes */
	bool		shared;
	bool		uverbs;
	char		node[NODE_LEN];	/* of a uverbs device */
};

/* All mappings of a process by rising address, to be freed; their number or -1. */
int read_mappings(pid_t pid, struct mapping **mappings);

bool same_file(int fd1, int fd2);

/* Its number in its own pid namespace, or -1. */
pid_t inner_pid(pid_t pid);

/* A process and all its descendants, to be freed in any case; their number or -1. */
int read_tree(pid_t root, pid_t **pids);

/* Does the image directory hold this file? */
bool in_image_dir(const char *name);

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

/* -------------------------------------------------- records.c: one object -- */

/* A record as a message, to be freed with free_message(). NULL: no memory. */
RdmaRecordEntry *record_to_message(const struct rxe_migr_rec *rec);
void free_message(RdmaRecordEntry *entry);

/*
 * The record again, to be freed. NULL: the message is not whole. Its fields
 * fit their records' width, whatever the image held.
 */
struct rxe_migr_rec *message_to_record(const RdmaRecordEntry *entry);

/* For a name by ibv_record_name(3) */
#define NAME_LEN 96

/* ---------------------------------------------------------- image.c: files -- */

#define IMAGE_VERSION	1
#define INVENTORY	"rdma.img"
#define NEEDS_RDMA_CM	"rdma_cm"	/* what an older plugin does not know */
#define NEEDS_CM_ID	"rdma_cm_id"

/* One context as it lies in rdma-N.img: whole records, one after another. */
struct records {
	const struct rxe_migr_rec **rec;
	uint32_t	count;
};

int write_context(uint32_t n, const struct records *records,
		  RdmaContextImageEntry *entry);
int read_context(uint32_t n, const RdmaContextImageEntry *entry,
		 struct records *records);
void free_records(struct records *records);
int write_inventory(const RdmaInventoryEntry *inventory);
RdmaInventoryEntry *read_inventory(void);

/* ------------------------------------------------------ device.c: GIDs -- */

/* The GID table of a context's device, as it is now. */
int read_device(struct ibv_context *ctx, const char *name,
		const char *node, RdmaDeviceEntry *device);
void free_device(RdmaDeviceEntry *device);

/* A context of any device here whose driver is ours, to ask that; or NULL. */
struct ibv_context *open_any_device(void);

/* The device here that stands for one of the source, or NULL. */
const char *choose_device(const char *name);

/*
 * The source GID here of a QP that had this one: zero, if it is here too.
 * source and here: the two tables.
 */
int choose_gid(const RdmaDeviceEntry *source, const RdmaDeviceEntry *here,
	       const uint8_t recorded[16], union ibv_gid *gid);
bool has_gid(const RdmaDeviceEntry *device, const uint8_t raw[16]);

/* ---------------------------------------------------------------- dumping -- */

int refuse_predump(int pid);
int look_ahead(int pid);
int checkpoint(int pid);
int accept_mapping(const struct stat *st);
int dump_file(int fd, int id);
void dump_end(bool failed);

/* dump.c: a new, zeroed last element of an array, a new message, or NULL. */
void *append(void *array, size_t size, size_t count);
void *append_message(void *array, size_t *count,
		     const ProtobufCMessageDescriptor *descriptor);

/* dump.c: the context that has a queue pair, by its device and number, or -1. */
int find_qp_context(const char *device, uint32_t qp_num);

/* The nth context of the tree, and its device's name, or NULL. */
struct ibv_context *dumped_context(uint32_t n, const char **device);

/* watchdog.c: contexts come back to life if CRIU does not, or lets them live. */
int watchdog_start(void);
int watchdog_watch(pid_t pid);
void watchdog_leave(bool saved);

/* lock.c: CRIU's lock of a network namespace lets RDMA's packets pass. */
void pass_lock(pid_t root);
void pass_lock_end(void);
void forget_lock(pid_t root);	/* a restored tree's */

/* -------------------------------------------------------------- restoring -- */

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

/* saved.c: read and check the images, choose devices and addresses. */
int load_images(void);
const struct saved_object *find_object(const struct saved_context *c,
				       uint32_t handle);
const struct saved_file *find_event_file(const struct saved_context *c,
					 uint32_t type, uint32_t handle);

/* restore.c, rings.c: what a task asks for */
int restore_init(void);
int restore_file(int id);
int restore_mapping(uint64_t start, uint64_t pgoff, uint64_t *new_pgoff,
		    int *fd);

/*
 * context.c: contexts that all tasks know, and CRIU itself. The first task
 * that needs one makes it, with all it holds but memory regions.
 */
int share_contexts(void);
struct ibv_context *open_context_file(const char *device,
				      const struct node *node, uint64_t session);
int make_context(uint32_t n);
bool is_made(uint32_t n);
int open_made_context(uint32_t n);	/* a new descriptor, or -1 */
int open_made_file(const struct saved_file *file);
uint64_t made_ring(const struct saved_ring *ring);	/* for mmap() */

/* Say why an object could not be made. -1. */
int creating_failed(const struct saved_context *c,
		    const struct rxe_migr_rec *rec, int err);

/* cm.c: files of librdmacm, both ways */
int look_at_cm(pid_t pid, int fd);
int dump_cm_file(int fd, int id, RdmaInventoryEntry *inventory);
void end_cm(void);
int share_cm_files(void);
int restore_cm_file(int id);			/* -ENOTSUP: it is none */
typedef pid_t find_pid_fn(const void *arg, pid_t inner);
int adopt_cm_files(find_pid_fn *find, const void *arg,
		   struct ibv_context **ctx);

/*
 * cm_id.c: make the ids of all these files, each with one, by rising number.
 * driver is any context; ctx are those that are being restored.
 */
struct made_id {
	const RdmaCmIdEntry *saved;
	int		fd;
};
int check_cm_ids(void);		/* what the images say of them */
int make_cm_ids(struct ibv_context *driver, struct ibv_context **ctx,
		struct made_id *ids, size_t count);

/* late.c: when it was stopped, and whether peers still wait */
void note_time(RdmaInventoryEntry *inventory);
int check_time(void);

/* store.c: descriptors that all tasks can get at, and CRIU itself */
int store_init(void);
int store_put(int fd);			/* its number, or -1 */
int store_get(int number);		/* a new descriptor, or -1 */
void store_drain(void);

/* resume.c: memory regions and contents, once memory is back; then go on. */
int resume_late(int pid);

/* commit.c: wait for the word to go on, if anybody wants to have it; say that we do. */
bool commit_is_asked(void);
int wait_for_commit(pid_t root);
void commit_goes(void);

#endif /* RDMA_PLUGIN_H */
