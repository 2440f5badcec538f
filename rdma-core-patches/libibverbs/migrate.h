/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Checkpoint and restore of verbs contexts.
 *
 * Checkpoint, by a privileged process, of the contexts of a frozen one:
 *
 *	fd = pidfd_getfd(pidfd, N, 0);		the context's cmd_fd
 *	ctx = ibv_attach_context(fd);
 *	ibv_dump_context(ctx, &count, NULL, 0);	ENOSPC; count: bytes needed
 *	ibv_dump_context(ctx, &count, buf, length);	stops every QP, dumps
 *	...save buf...
 *	ibv_abort_context(ctx);			or end the process
 *	ibv_detach_context(ctx);
 *
 * Restore, on another host or the same:
 *
 *	ctx = ibv_open_restore_context(device, session);
 *	   ... IBV_RESTORE_CREATE of event files, in the order of ordinals;
 *	       then for each handle, rising from 0: CREATE if it is a PD's,
 *	       IBV_RESTORE_PLACEHOLDER if not; then all but MRs, each after
 *	       what it uses: IBV_RESTORE_DESTROY of the placeholder, CREATE ...
 *	ibv_restore_object(ctx, &obj, type, IBV_RESTORE_CREATE, &args, size);
 *	   ... mmap() of the rings, memory comes back ...
 *	   ... MRs in the same way; DESTROY of the placeholders left ...
 *	ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, records, length);
 *	ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, &args, size);
 *	ibv_detach_context(ctx);
 *
 * The calling process needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN in the
 * initial user namespace. All calls return 0 or an errno value; nothing is
 * half done after an error. A dump is a sequence of the records declared in
 * rdma/rxe_migrate.h.
 */
#ifndef INFINIBAND_MIGRATE_H
#define INFINIBAND_MIGRATE_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rxe_migrate.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Stop the context and write its records to dump. With dump NULL or length too
 * short: ENOSPC, *count is the number of bytes needed, and no state changes. On
 * success *count is the number of records, and a record header of zeros follows
 * them, as far as there is room. ENOKEY: this host has no key
 * (ibv_migration_key()), and allow_unsigned is not set.
 */
int ibv_dump_context(struct ibv_context *ctx, int *count, void *dump,
		     size_t length);

/* The same without stopping anything: the state may change while it is read. */
int ibv_inspect_context(struct ibv_context *ctx, int *count, void *dump,
			size_t length);

/* Let a context stopped by ibv_dump_context() go on in place. */
int ibv_abort_context(struct ibv_context *ctx);

/*
 * The same, unless the context was stopped or dumped again since now_ns of a query.
 * ESTALE: it was. For a caller that looks at the tasks after the query, and can't keep
 * another checkpoint of them from beginning meanwhile.
 */
int ibv_abort_older_dump(struct ibv_context *ctx, uint64_t since);

enum ibv_restore_cmd {
	IBV_RESTORE_CREATE,		/* args: struct ibv_restore_args */
	IBV_RESTORE_PLACEHOLDER,	/* takes the lowest free handle */
	IBV_RESTORE_DESTROY,		/* undoes CREATE or PLACEHOLDER */
	IBV_RESTORE_REFILL,		/* args: records, as dumped */
	IBV_RESTORE_RESUME,		/* args: whose context it is (pid); QPs call their peers */
};

/* object_type of ibv_restore_object(): enum rxe_migr_rec_type. */

/*
 * What CREATE and PLACEHOLDER allocate. DESTROY destroys the object and frees
 * this; free(3) frees this only, and the object lives on in its context.
 */
struct ibv_restored {
	uint32_t type;		/* enum rxe_migr_rec_type */
	uint32_t handle;	/* uverbs handle, or event file: 0 */
	int	 fd;		/* COMP_CHANNEL, ASYNC_FILE: the caller's, but
				 * DESTROY closes it unless the caller sets this
				 * to -1. Other types: -1
				 */
	uint64_t offset[2];	/* rings, for mmap(): CQ, SRQ: [0]; QP: send, receive */
	uint64_t size[2];	/* bytes, 0: there is no such ring */
};

/*
 * args of CREATE. The descriptors are the calling process's, and are of event
 * files of this context. -1 means none; 0 is a descriptor.
 */
struct ibv_restore_args {
	const void	*record;	/* as dumped */
	size_t		 record_length;	/* bytes that may be read there */
	int		 comp_channel_fd; /* CQ: if its record has a channel */
	int		 async_fd;	/* CQ, SRQ, QP; -1: the context's first */
	int		 pid;		/* MR: whose memory; RESUME: whose context; 0: the caller's */
	union ibv_gid	 sgid;		/* QP, AH: source GID here; zero: as recorded */
};

/*
 * Create, destroy, refill or resume. *object is struct ibv_restored.
 * length: of args. EEXIST: an identity in the record (QP number, MR key, ...)
 * is taken on this device. EINVAL: the record makes no sense. ENODEV: no GID
 * of this device equals the source GID. EBUSY: the lowest free handle is not
 * the record's. Otherwise the errno of the verb.
 */
int ibv_restore_object(struct ibv_context *ctx, void **object, int object_type,
		       int cmd, void *args, size_t length);

/*
 * A context for the calls of this header only, around the cmd_fd of another
 * process's context (pidfd_getfd(2)). NULL and errno: cmd_fd is still the
 * caller's. detach closes cmd_fd and async_fd, if that is not -1; objects
 * live as long as any process holds the context's file open.
 */
struct ibv_context *ibv_attach_context(int cmd_fd);
void ibv_detach_context(struct ibv_context *ctx);

/*
 * Open a context on device (its name, "rxe0") to restore objects into.
 * Contexts of one session, not 0, may map each other's rings. async_fd of
 * the result is its first asynchronous event file. NULL and errno: ENODEV, no
 * such device; EOPNOTSUPP, its driver can't migrate.
 */
struct ibv_context *ibv_open_restore_context(const char *device,
					     uint64_t session);

/*
 * The same on cmd_fd, a device file that the caller has just opened. It is for
 * a caller that sees the file under another name, or has no sysfs. NULL and
 * errno: cmd_fd is still the caller's, and is of no use but to be closed.
 */
struct ibv_context *ibv_begin_restore_context(int cmd_fd, uint64_t session);

int ibv_query_migration(struct ibv_context *ctx, struct rxe_migr_query *query);

/*
 * The same, and ask the peers that query->num_unknown counts whether they speak
 * the protocol. It does not wait for answers. Call it again until all have
 * answered, or for long enough: a peer with another driver never answers.
 */
int ibv_ask_peers(struct ibv_context *ctx, struct rxe_migr_query *query);

/*
 * The same, but ask all peers of QPs that run. A peer that spoke the protocol
 * before may have lost its key since, and counts as unknown until it answers.
 * Then go on with ibv_ask_peers().
 */
int ibv_ask_peers_anew(struct ibv_context *ctx, struct rxe_migr_query *query);

/*
 * As ibv_query_migration(), and ask the peers of a stopped context to wait
 * longer. Their answers show in query->wait_ns and query->num_silent of the next query. Without this
 * call peers wait for their pause_timeout, which begins at the stop.
 */
int ibv_renew_stop(struct ibv_context *ctx, struct rxe_migr_query *query);

/* Which event file of ctx is fd? ENOENT: none. */
int ibv_query_event_fd(struct ibv_context *ctx, int fd,
		       struct rxe_migr_event_fd *event_fd);

/*
 * The GIDs of all ports of the device, in the order of their indices, as
 * ibv_query_gid_table() gives them for a context that libibverbs has opened.
 * *count: how many there are. EINVAL: more than max. This needs no capability.
 */
int ibv_query_device_gids(struct ibv_context *ctx, int *count,
			  struct ibv_gid_entry *entries, int max);

/*
 * All QPs of the device that are stopped, paused or resuming, and tombstones.
 * *count: how many there are; ENOSPC: more than max, and status is not written.
 */
int ibv_query_device_migration(struct ibv_context *ctx, int *count,
			       struct rxe_migr_status *status, int max);

/*
 * All QPs of the device that were restored there, are not stopped again, and
 * have called their peers: when each called first, and whether the answer has
 * come. *count and ENOSPC as above.
 */
int ibv_query_device_calls(struct ibv_context *ctx, int *count,
			   struct rxe_migr_call *calls, int max);

/*
 * Would ibv_restore_object() find an identity taken on this device? EEXIST: it
 * would. type is of enum rxe_migr_hint_type, which says what the number is.
 */
int ibv_query_taken(struct ibv_context *ctx, uint32_t type, uint32_t number);

/*
 * The ids that a file of librdmacm has, in the order in which they came. ctx is
 * a context of any device. fd is a descriptor of the calling process for
 * /dev/infiniband/rdma_cm (EINVAL: it is not). *count: how many there are;
 * ENOSPC: more than max, and ids is not written. flags: enum
 * rxe_migr_cm_list_flags.
 */
int ibv_query_cm_ids(struct ibv_context *ctx, int fd, uint32_t flags,
		     int *count, struct rxe_migr_cm_id *ids, int max);

/*
 * Why an id cannot be moved, as it is now; NULL: it can. A reason that may be
 * gone in a moment ends with IBV_TRY_AGAIN.
 */
#define IBV_TRY_AGAIN "try again"
const char *ibv_cm_id_refusal(const struct rxe_migr_cm_id *id);

/*
 * An id is about to be connected anew, to a queue pair of ctx, which is being
 * restored. The driver plays the peer for the connection whose private data
 * begin with connect->cookie. ENOTCONN: ctx has no such queue pair, or it was
 * never connected.
 */
int ibv_expect_cm_connect(struct ibv_context *ctx,
			  const struct rxe_migr_cm_connect *connect);

/*
 * Set how many events of an id the process has read. EBUSY: some wait to be
 * read; ENOENT: the file has no such id.
 */
int ibv_refill_cm_id(struct ibv_context *ctx, int fd, uint32_t id,
		     uint32_t events_reported);

/*
 * The events that wait to be read from a file, the oldest first. count, max and
 * ENOSPC as for ibv_query_cm_ids().
 */
int ibv_query_cm_events(struct ibv_context *ctx, int fd, int *count,
			struct rxe_migr_cm_event *events, int max);

/* Add an event to those that wait. ENOENT: the file has no such id. */
int ibv_report_cm_event(struct ibv_context *ctx, int fd,
			const struct rxe_migr_cm_event *event);

/*
 * The index and GUID by which the process that has such a file knows ctx's
 * device. known gets them as they were before the call, and set changes them.
 * Both may be NULL.
 */
int ibv_cm_device(struct ibv_context *ctx, int fd,
		  struct rxe_migr_cm_device *known,
		  const struct rxe_migr_cm_device *set);

/*
 * Give such a file to a restored process. It was opened under other
 * credentials, so the kernel would not let the process use it. EINVAL as above;
 * ESRCH: no such process.
 */
int ibv_adopt_cm_file(struct ibv_context *ctx, int fd, int pid);

/*
 * Set or query the cluster's key; fingerprint may be NULL. Without a key no
 * context is stopped, and none begins to be restored, unless the driver's
 * parameter allow_unsigned is set.
 */
int ibv_migration_key(struct ibv_context *ctx, const struct rxe_migr_key *key,
		      uint64_t *fingerprint);

/*
 * Walk a dump: the first record with rec NULL, else the record after rec. NULL:
 * the dump has ended, or zeros end it (errno is 0), or what follows is
 * malformed (errno is EBADMSG).
 */
const struct rxe_migr_rec *ibv_next_record(const void *dump, size_t length,
					   const struct rxe_migr_rec *rec);

/*
 * For each record of a dump. If errno is EBADMSG afterwards, what follows the
 * last record is malformed.
 */
#define ibv_for_each_record(rec, dump, length)				\
	for ((rec) = ibv_next_record(dump, length, NULL); (rec);	\
	     (rec) = ibv_next_record(dump, length, rec))

/* How a field of a record is to be read, and shown. */
enum ibv_record_unit {
	IBV_RECORD_NUMBER,	/* up to 8 bytes, little-endian, as the next four are */
	IBV_RECORD_HEX,		/* an address, a key or flags */
	IBV_RECORD_HANDLE,	/* a handle or an ordinal; RXE_MIGR_NO_HANDLE: none */
	IBV_RECORD_QP_TYPE,	/* enum ibv_qp_type */
	IBV_RECORD_QP_STATE,	/* enum ibv_qp_state */
	IBV_RECORD_GID,		/* 16 bytes */
	IBV_RECORD_TEXT,	/* ends with a zero, or fills the field */
};

struct ibv_record_field {
	const char	*name;		/* "qp_state" */
	uint16_t	 offset;	/* from the beginning of the record */
	uint16_t	 size;		/* bytes */
	uint8_t		 unit;		/* enum ibv_record_unit */
	uint8_t		 is_main;	/* a person looks for it first */
};

struct ibv_record_kind {
	const char	*name;		/* "QP" */
	uint32_t	 size;		/* of its structure: a record is not shorter */
	uint32_t	 num_fields;
	const struct ibv_record_field *fields;	/* in the record's order */
};

/* What is in records of a type, enum rxe_migr_rec_type; NULL: it is not known. */
const struct ibv_record_kind *ibv_record_kind(unsigned int type);

/* The value of a record's field if it is a number, else 0. */
uint64_t ibv_record_number(const struct rxe_migr_rec *rec,
			   const struct ibv_record_field *field);

/*
 * Write the name of a record's object for people, "QP 17", to name, which has
 * size bytes. IBV_RECORD_NAME_LEN bytes are enough. Returns name.
 */
#define IBV_RECORD_NAME_LEN 96
const char *ibv_record_name(const struct rxe_migr_rec *rec, char *name,
			    size_t size);

/* The name of an object_id, enum uverbs_default_objects, of an OTHER record. */
const char *ibv_uverbs_object_str(uint32_t object_id);

/*
 * Why the object of a record cannot be moved, as far as the record says. NULL:
 * it can be moved, or the record may be skipped.
 */
const char *ibv_record_refusal(const struct rxe_migr_rec *rec);

/* A ring, as the record of its CQ, SRQ or QP says. */
struct ibv_record_ring {
	uint32_t	which;		/* enum rxe_migr_ring */
	uint32_t	handle;		/* of the CQ, SRQ or QP */
	uint64_t	offset;		/* for mmap(), on the dumped device */
};

/* The rings of a record's object. Returns their number: at most two. */
int ibv_record_rings(const struct rxe_migr_rec *rec,
		     struct ibv_record_ring rings[2]);

/*
 * The process whose memory an MR of a dump is, in the pid namespace of the
 * process that made the dump. 0: it has ended; -1: the dump does not say.
 */
int ibv_record_owner(const void *dump, size_t length,
		     const struct rxe_migr_rec_mr *mr);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MIGRATE_H */
