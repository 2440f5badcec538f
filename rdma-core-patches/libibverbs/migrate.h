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
 * Stop the context and write its records to dump. With dump NULL or length
 * too short: ENOSPC, *count is the number of bytes needed, and no state
 * changes. On success *count is the number of records, and a record header of
 * zeros, as far as there is room, ends them. ENOKEY: this host has no key, see
 * ibv_migration_key(), and may not do without.
 */
int ibv_dump_context(struct ibv_context *ctx, int *count, void *dump,
		     size_t length);

/* The same without stopping anything: the state may change while it is read. */
int ibv_inspect_context(struct ibv_context *ctx, int *count, void *dump,
			size_t length);

/* Let a context stopped by ibv_dump_context() go on in place. */
int ibv_abort_context(struct ibv_context *ctx);

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
	int	 fd;		/* COMP_CHANNEL, ASYNC_FILE: the caller's, but DESTROY
				 * closes it, unless set to -1; else -1
				 */
	uint64_t offset[2];	/* rings, for mmap(): CQ, SRQ: [0]; QP: send, receive */
	uint64_t size[2];	/* bytes, 0: there is no such ring */
};

/*
 * args of CREATE. Descriptors are the calling process's, of event files of
 * this context. Zero is not "none" for them, -1 is.
 */
struct ibv_restore_args {
	const void	*record;	/* as dumped */
	size_t		 record_length;	/* bytes that may be read there */
	int		 comp_channel_fd; /* CQ: if its record has a channel */
	int		 async_fd;	/* CQ, SRQ, QP; -1: the context's first */
	int		 pid;		/* MR: whose memory; RESUME: whose context; 0: the caller's */
	union ibv_gid	 sgid;		/* QP, AH: source GID here; zero: as recorded */
	union ibv_gid	 dgid;		/* QP: destination GID; zero: as recorded */
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
 * The same on cmd_fd, a device file that the caller has just opened, for whom
 * it may have another name, or sysfs not be there. NULL and errno: cmd_fd is
 * still the caller's, and no longer new.
 */
struct ibv_context *ibv_begin_restore_context(int cmd_fd, uint64_t session);

int ibv_query_migration(struct ibv_context *ctx, struct rxe_migr_query *query);

/*
 * The same, and ask the peers of query->num_unknown whether they speak the
 * protocol; nobody is waited for. Call it again until all have answered, or
 * long enough: a peer with another driver never does.
 */
int ibv_ask_peers(struct ibv_context *ctx, struct rxe_migr_query *query);

/*
 * The same, and ask all: who spoke the protocol before may have lost its key
 * since, and is unknown until it answers. Then go on with ibv_ask_peers().
 */
int ibv_ask_peers_anew(struct ibv_context *ctx, struct rxe_migr_query *query);

/*
 * The same, and ask the peers of a stopped context to wait for longer: who
 * answers shows in query->wait_ns of the next query. Without it they wait for
 * their pause_timeout, from the stop on.
 */
int ibv_renew_stop(struct ibv_context *ctx, struct rxe_migr_query *query);

/* Which event file of ctx is fd? ENOENT: none. */
int ibv_query_event_fd(struct ibv_context *ctx, int fd,
		       struct rxe_migr_event_fd *event_fd);

/*
 * The device's GIDs, all ports', in the order of their indices, as
 * ibv_query_gid_table() gives them for a context that libibverbs has opened.
 * *count: how many there are. EINVAL: more than max. This needs no capability.
 */
int ibv_query_device_gids(struct ibv_context *ctx, int *count,
			  struct ibv_gid_entry *entries, int max);

/*
 * All QPs of the device that are not plainly running, and tombstones. *count:
 * how many there are; ENOSPC: more than max, and status is not written.
 */
int ibv_query_device_migration(struct ibv_context *ctx, int *count,
			       struct rxe_migr_status *status, int max);

/*
 * All QPs of the device that were restored there and have called their peers:
 * when they did first, and whether the answer has come. As above.
 */
int ibv_query_device_calls(struct ibv_context *ctx, int *count,
			   struct rxe_migr_call *calls, int max);

/*
 * Would ibv_restore_object() find an identity taken on this device? EEXIST: it
 * would. type, and index or key: enum rxe_migr_hint_type.
 */
int ibv_query_taken(struct ibv_context *ctx, uint32_t type, uint32_t number);

/*
 * The ids that a file of librdmacm has, in the order in which they came, through
 * a context of any device. fd is a descriptor of the calling process, of
 * /dev/infiniband/rdma_cm (EINVAL: it is not). *count: how many there are;
 * ENOSPC: more than max, and ids is not written. flags: enum
 * rxe_migr_cm_list_flags.
 */
int ibv_query_cm_ids(struct ibv_context *ctx, int fd, uint32_t flags,
		     int *count, struct rxe_migr_cm_id *ids, int max);

/* Why an id cannot be moved, as it is now; NULL: it can. */
const char *ibv_cm_id_refusal(const struct rxe_migr_cm_id *id);

/*
 * An id is about to be connected anew, on ctx, which is being restored. The
 * driver plays the peer for the connection whose private data begin with
 * connect->cookie. ENOTCONN: ctx has no such queue pair, or without a peer.
 */
int ibv_expect_cm_connect(struct ibv_context *ctx,
			  const struct rxe_migr_cm_connect *connect);

/*
 * As many events of an id were read as the process knows of. EBUSY: some wait
 * to be read; ENOENT: the file has no such id.
 */
int ibv_refill_cm_id(struct ibv_context *ctx, int fd, uint32_t id,
		     uint32_t events_reported);

/*
 * The events that wait to be read from a file, the oldest first, as
 * ibv_query_cm_ids() lists ids.
 */
int ibv_query_cm_events(struct ibv_context *ctx, int fd, int *count,
			struct rxe_migr_cm_event *events, int max);

/* One more of them. ENOENT: the file has no such id. */
int ibv_report_cm_event(struct ibv_context *ctx, int fd,
			const struct rxe_migr_cm_event *event);

/*
 * By what the process that has such a file knows ctx's device: index and guid
 * are filled in (known) before they are set, or not (set NULL).
 */
int ibv_cm_device(struct ibv_context *ctx, int fd,
		  struct rxe_migr_cm_device *known,
		  const struct rxe_migr_cm_device *set);

/*
 * Make such a file that of a restored process, which the kernel would else not
 * let use it: it has been opened under other credentials. EINVAL as above;
 * ESRCH: no such process.
 */
int ibv_adopt_cm_file(struct ibv_context *ctx, int fd, int pid);

/*
 * The cluster's key; fingerprint may be NULL. Without one, unless the driver's
 * parameter allow_unsigned is set, no context is stopped, and none begins to be
 * restored.
 */
int ibv_migration_key(struct ibv_context *ctx, const struct rxe_migr_key *key,
		      uint64_t *fingerprint);

/*
 * Walk a dump: first record with rec NULL; NULL at the end, or at zeros behind
 * it, or when what follows is malformed (then errno is EBADMSG, else 0).
 */
const struct rxe_migr_rec *ibv_next_record(const void *dump, size_t length,
					   const struct rxe_migr_rec *rec);

/* All of them. Is errno EBADMSG afterwards, the dump ends in the middle. */
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

/* A field of a record, if it is a number. */
uint64_t ibv_record_number(const struct rxe_migr_rec *rec,
			   const struct ibv_record_field *field);

/*
 * An object for people, "QP 17", in name, of size bytes; this many are enough.
 * Returns name.
 */
#define IBV_RECORD_NAME_LEN 96
const char *ibv_record_name(const struct rxe_migr_rec *rec, char *name,
			    size_t size);

/* The kind of an object that OTHER stands for, enum uverbs_default_objects. */
const char *ibv_uverbs_object_str(uint32_t object_id);

/*
 * Why what the record is of cannot be moved, as far as the record says; NULL:
 * it can, or the record may be skipped.
 */
const char *ibv_record_refusal(const struct rxe_migr_rec *rec);

/* A ring, as the record of its CQ, SRQ or QP says. */
struct ibv_record_ring {
	uint32_t	which;		/* enum rxe_migr_ring */
	uint32_t	handle;		/* of the CQ, SRQ or QP */
	uint64_t	offset;		/* for mmap(), where it was dumped */
};

/* The rings that the object of this record has; their number: at most two. */
int ibv_record_rings(const struct rxe_migr_rec *rec,
		     struct ibv_record_ring rings[2]);

/*
 * The process whose memory an MR of a dump is, as the caller that had it made
 * counts processes. 0: it has ended; -1: the dump does not say.
 */
int ibv_record_owner(const void *dump, size_t length,
		     const struct rxe_migr_rec_mr *mr);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MIGRATE_H */
