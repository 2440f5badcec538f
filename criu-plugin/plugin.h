/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the plugin share. README.md describes the design. hooks.c
 * is the table of contents.
 *
 * Functions return 0, or -1 after they have said why, once, with fail().
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

/* --------------------------------------------------- criu.c: CRIU (4.1) itself -- */

/*
 * CRIU's own functions that plugins may call. No installed header declares
 * them. The weak ones came with 4.1: check_criu() fails if one is missing.
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

/* For a restore: would CRIU ask us after the CUDA plugin, and so not at all? */
int check_order(void);

/* Does CRIU send the images to a streamer (--stream)? For a dump */
bool criu_streams(void);

/* For a restore: do the images say with which plugins they were made? */
bool images_name_plugins(void);

/* ------------------------------------------------------- error.c: one line -- */

#define LOG_ERROR 1
#define LOG_WARN  2
#define LOG_INFO  3

#define warn(fmt, ...) \
	print_on_level(LOG_WARN, "Warn  (rdma): " fmt "\n", ##__VA_ARGS__)
#define info(fmt, ...) print_on_level(LOG_INFO, "rdma: " fmt "\n", ##__VA_ARGS__)

/*
 * Say in one line what failed, why, and what to do. Returns -1. Only the first
 * line goes to error_report().
 */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What to say when the driver returns ENOKEY */
#define NO_KEY \
	"key: the driver has none: godwit key load, or, if this host never had one, godwit key set, the same on all hosts" OR_NO_KEY

/* What to say when it returns EPERM. A restored task may lack the capability although CRIU has it. */
#define NO_CAPABILITY \
	"CAP_CHECKPOINT_RESTORE in the initial user namespace is missing: give it to CRIU, and give the process no user namespace of its own"

/* From now on this process and those that it forks share the first line. */
int error_share(void);

/* Pass the first line on, once: to GODWIT_ERROR_FD, or to file rdma-error. */
void error_report(void);

/* ------------------------------------------------- array.c: growing arrays -- */

/*
 * Append to an array, and return the new, zeroed element or the new message.
 * NULL: no memory.
 */
void *append(void *array, size_t size, size_t count);
void *append_message(void *array, size_t *count,
		     const ProtobufCMessageDescriptor *descriptor);

/* ----------------------------------------- share.c: what all tasks have -- */

/*
 * Zeroed memory that CRIU and all tasks have; or NULL. CRIU calls this before
 * it forks the first task. The memory is never freed.
 */
void *share(size_t size);

/* Make a lock in such memory. Nobody holds it yet. */
int make_lock(sem_t *lock);

/* Wait for a lock, for a time. stuck: what to say if a task keeps it. */
int take_lock(sem_t *lock, const char *stuck);
void leave_lock(sem_t *lock);

/* ----------------------------------------------------- config.c: settings -- */

#define CONFIG_FILE "/etc/godwit/criu.conf"

enum setting { DEVICE_MAP, SGID_MAP, LATE };

/* Read godwit-criu.conf(5), if it is there. Once. */
int load_config(void);

/* What the environment says, or else the file; NULL: neither does. */
const char *setting(enum setting which);

/* Does a restore fail if it comes too late for the peers? */
bool refuses_late(void);

/* -------------------------------------------------------- scan.c: processes -- */

/* The kind of an open file of a process; pid 0: our own. */
enum file_kind fd_kind(pid_t pid, int fd, char node[NODE_LEN]);

/* Call fn for each RDMA file of a process until it returns another value than 0. */
typedef int fd_fn(pid_t pid, int fd, enum file_kind kind, const char *node,
		  void *arg);
int for_each_fd(pid_t pid, fd_fn *fn, void *arg);

/* How many RDMA files a process has open, or -1. */
int count_files(pid_t pid);

/*
 * All mappings of a process, by rising address. Returns their number, or -1.
 * The caller frees them.
 */
int read_mappings(pid_t pid, struct mapping **mappings);

bool same_file(int fd1, int fd2);

/* The number of a process in its own pid namespace, or -1. */
pid_t inner_pid(pid_t pid);

/* Does the image directory hold this file? */
bool in_image_dir(const char *name);

/* -------------------------------------------------- records.c: one object -- */

/* A record as a message, to be freed with free_message(). NULL: no memory. */
RdmaRecordEntry *record_to_message(const struct rxe_migr_rec *rec);
void free_message(RdmaRecordEntry *entry);

/*
 * A message as a record, which the caller frees. NULL: no memory, or the
 * message is not whole, or a field in it does not fit its place in the record.
 */
struct rxe_migr_rec *message_to_record(const RdmaRecordEntry *entry);

/* ---------------------------------------------------------- image.c: files -- */

#define IMAGE_VERSION	1
#define INVENTORY	"rdma.img"
#define NEEDS_RDMA_CM	"rdma_cm"	/* older plugins lack this */
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
/* Add more to what write_inventory() has written: its repeated fields. */
int extend_inventory(const RdmaInventoryEntry *more);
RdmaInventoryEntry *read_inventory(void);

/* ----------------------------------------------- device.c: devices, GIDs -- */

/* Do the device's driver and this plugin know the same records? */
int check_driver_version(const struct rxe_migr_query *query, const char *device);

/* The GID table of a context's device, as it is now. */
int read_device(struct ibv_context *ctx, const char *name,
		const char *node, RdmaDeviceEntry *device);
void free_device(RdmaDeviceEntry *device);

/*
 * A context of any device here that has our driver, to call it. NULL: there is
 * none, or errno is ENOKEY.
 */
struct ibv_context *open_any_device(void);

bool has_gid(const RdmaDeviceEntry *device, const uint8_t raw[16]);

/* Does somebody want to give the word to go on? (commit.c) */
bool commit_is_asked(void);

/* ----------------------------------------------- netns.c: network namespaces -- */

/*
 * Open the network namespace of a process. *ns: -1 if it is our own. Returns -1
 * without a word, with errno, if it can't be opened.
 */
int open_other_netns(pid_t pid, int *ns);

/*
 * Enter the network namespace of a process, unless it is our own, and come back.
 * *own: what leave_netns() needs.
 */
int enter_netns(pid_t pid, int *own);
/*
 * Enter the network namespace that the runtime has given CRIU for its tasks, if there is
 * one. Call this while init() runs: CRIU closes the descriptor after that.
 */
int enter_given_netns(int *own);
int leave_netns(int own);

/* ------------------------------------------------------ lock.c: CRIU's lock -- */

/* Let RDMA's packets pass CRIU's lock of a network namespace. */
void pass_lock(pid_t root);
void pass_lock_end(bool saved);
void forget_lock(pid_t root);	/* after a restore */

#endif /* RDMA_PLUGIN_H */
