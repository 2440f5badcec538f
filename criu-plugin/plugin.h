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
#include "reasons.h"
#include "walk.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define RDMA_CM "/dev/infiniband/rdma_cm"

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
	"key: the driver has none: godwit key load, or, if this host never had one, godwit key set, the same on all hosts" OR_NO_KEY

/* Lines said from now on, also in forked processes, are known to this one. */
int error_share(void);

/* Pass the line on to who started CRIU, if there is one. Only once. */
void error_report(void);

/* ------------------------------------------------- array.c: one more of it -- */

/* A new, zeroed last element of an array, a new message, or NULL. */
void *append(void *array, size_t size, size_t count);
void *append_message(void *array, size_t *count,
		     const ProtobufCMessageDescriptor *descriptor);

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

/* -------------------------------------------------- records.c: one object -- */

/* A record as a message, to be freed with free_message(). NULL: no memory. */
RdmaRecordEntry *record_to_message(const struct rxe_migr_rec *rec);
void free_message(RdmaRecordEntry *entry);

/*
 * The record again, to be freed. NULL: the message is not whole. Its fields
 * fit their records' width, whatever the image held.
 */
struct rxe_migr_rec *message_to_record(const RdmaRecordEntry *entry);

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

/* ----------------------------------------------- device.c: devices, GIDs -- */

/* Do its driver and this plugin know the same records? */
int check_driver_version(const struct rxe_migr_query *query, const char *device);

/* The GID table of a context's device, as it is now. */
int read_device(struct ibv_context *ctx, const char *name,
		const char *node, RdmaDeviceEntry *device);
void free_device(RdmaDeviceEntry *device);

/* A context of any device here whose driver is ours, to ask that; or NULL. */
struct ibv_context *open_any_device(void);

bool has_gid(const RdmaDeviceEntry *device, const uint8_t raw[16]);

/* Does somebody want to give the word to go on? (commit.c) */
bool commit_is_asked(void);

/* ------------------------------------------------------ lock.c: CRIU's lock -- */

/* CRIU's lock of a network namespace lets RDMA's packets pass. */
void pass_lock(pid_t root);
void pass_lock_end(bool saved);
void forget_lock(pid_t root);	/* a restored tree's */

#endif /* RDMA_PLUGIN_H */
