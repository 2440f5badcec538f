/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * Checkpoint and restore of rdma_rxe contexts: driver-private uverbs methods,
 * the records of a dump, and the packets that two drivers exchange.
 *
 * All methods are called by ioctl(RDMA_VERBS_IOCTL) on the file of a uverbs
 * context, and need CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN in the initial
 * user namespace. A method called without it fails with EPERM. DUMP with STOP, and
 * BEGIN, fail with ENOKEY on a host that has no key of the cluster, unless its
 * administrator has set the module parameter allow_unsigned.
 *
 *   Checkpoint                          Restore
 *     QUERY                               open, get context
 *     DUMP, no buffer: size               BEGIN
 *     DUMP, buffer: stop and dump         for each object by rising handle:
 *     ... save ...                          HINT, then its standard command
 *     close the context (moved away)      REFILL the records
 *     or ABORT (goes on in place)         RESUME
 *
 * Records are little-endian, packets big-endian. Neither has holes. A record and
 * a structure of a method grow at their tail only; a packet has a version.
 */
#ifndef RDMA_RXE_MIGRATE_H
#define RDMA_RXE_MIGRATE_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_verbs.h>

#ifndef UVERBS_ID_NS_SHIFT
#define UVERBS_ID_NS_SHIFT 12
#endif

/* 2: QUERY has ASK_ANEW, and a record's sq_psn may be RXE_MIGR_NO_PSN */
#define RXE_MIGR_ABI_VERSION	2

/* uverbs has room for eight methods of a driver in one object. */
enum rxe_migr_objects {
	RXE_OBJECT_MIGR = (1U << UVERBS_ID_NS_SHIFT),
	RXE_OBJECT_MIGR_DEVICE,
	RXE_OBJECT_MIGR_CM,
};

/* Methods of RXE_OBJECT_MIGR: about the context that the ioctl is made on */
enum rxe_migr_methods {
	RXE_METHOD_MIGR_QUERY = (1U << UVERBS_ID_NS_SHIFT),
	RXE_METHOD_MIGR_DUMP,
	RXE_METHOD_MIGR_ABORT,
	RXE_METHOD_MIGR_BEGIN,
	RXE_METHOD_MIGR_HINT,
	RXE_METHOD_MIGR_REFILL,
	RXE_METHOD_MIGR_RESUME,
	RXE_METHOD_MIGR_EVENT_FD,
};

/* Methods of RXE_OBJECT_MIGR_DEVICE: about its device; KEY about all devices */
enum rxe_migr_device_methods {
	RXE_METHOD_MIGR_STATUS = (1U << UVERBS_ID_NS_SHIFT),
	RXE_METHOD_MIGR_KEY,
	RXE_METHOD_MIGR_TAKEN,
	RXE_METHOD_MIGR_CALLS,
};

/*
 * Methods of RXE_OBJECT_MIGR_CM: about a file of /dev/infiniband/rdma_cm, which
 * belongs to no device; CM_CONNECT about a QP of the context
 */
enum rxe_migr_cm_methods {
	RXE_METHOD_MIGR_CM_LIST = (1U << UVERBS_ID_NS_SHIFT),
	RXE_METHOD_MIGR_CM_ADOPT,
	RXE_METHOD_MIGR_CM_CONNECT,
	RXE_METHOD_MIGR_CM_REFILL,
	RXE_METHOD_MIGR_CM_DEVICE,
	RXE_METHOD_MIGR_CM_EVENTS,
	RXE_METHOD_MIGR_CM_REPORT,
};

/* Every method has at most these two attributes. */
enum rxe_migr_attrs {
	RXE_ATTR_MIGR_IN = (1U << UVERBS_ID_NS_SHIFT),
	RXE_ATTR_MIGR_RESP,
};

/* Memory of the caller; a uverbs attribute itself is at most 64 KiB long. */
struct rxe_migr_buf {
	__aligned_u64 addr;
	__aligned_u64 length;
	__u32 flags;
	__u32 reserved;		/* 0 */
};

/* States of a context. */
enum rxe_migr_ctx_state {
	RXE_MIGR_CTX_RUNNING	= 0,
	RXE_MIGR_CTX_STOPPED	= 1,	/* dumped, waits for close or ABORT */
	RXE_MIGR_CTX_RESTORING	= 2,	/* between BEGIN and RESUME */
	RXE_MIGR_CTX_RESUMING	= 3,	/* some peer has not answered RESUME yet */
};

/* States of a queue pair; invisible to ibv_query_qp(). */
enum rxe_migr_qp_state {
	RXE_MIGR_QP_RUNNING	= 0,
	RXE_MIGR_QP_PAUSED	= 1,	/* the peer is stopped */
	RXE_MIGR_QP_RESUMING	= 2,	/* waits for the answer to RESUME */
	RXE_MIGR_QP_STOPPED	= 3,	/* being checkpointed or restored */
};

/*
 * QUERY: IN, optional, is enum rxe_migr_query_flags, 32 bits wide; RESP is
 * struct rxe_migr_query: the state before this call asked any peer.
 */
enum rxe_migr_query_flags {
	/*
	 * Ask the peers of num_unknown whether they speak the protocol. Neither
	 * end changes. QUERY does not wait for the answers: the next QUERY does
	 * not count the peers that have answered by then.
	 */
	RXE_MIGR_QUERY_ASK	= 1 << 0,
	/*
	 * If the context is stopped: ask its peers, once DUMP has told them of it,
	 * to wait for their pause_timeout from now on. They do, as long as their
	 * pause_max allows.
	 * QUERY does not wait for the answers: wait_ns and num_silent of the next
	 * QUERY have them.
	 */
	RXE_MIGR_QUERY_RENEW	= 1 << 1,
	/*
	 * Like ASK, but ask the peers of all running QPs: a peer that has spoken
	 * before may have lost its key since. It counts as unknown until it
	 * speaks again.
	 */
	RXE_MIGR_QUERY_ASK_ANEW	= 1 << 2,
};

struct rxe_migr_query {
	__u32 abi_version;
	__u32 state;		/* enum rxe_migr_ctx_state */
	__u32 context;		/* this context's number on its device */
	__u32 num_qp;
	__u32 num_resuming;	/* QPs whose RESUME is unanswered */
	__u32 num_failed;	/* QPs that failed before that answer came */
	__aligned_u64 stop_ns;	/* CLOCK_MONOTONIC: first QP stopped, 0 if never */
	__aligned_u64 resume_ns;/* last RESUME answered, 0 if never */
	__aligned_u64 now_ns;	/* CLOCK_MONOTONIC at this call */
	__u32 num_paused;	/* those of num_resuming whose peers are stopped, too */
	__u32 num_unknown;	/* running QPs whose peers have not spoken the protocol */
	__aligned_u64 wait_ns;	/* STOPPED: all peers that speak the protocol
				 * wait at least until then; ~0: they wait for
				 * ever, or there are none
				 */
	__u32 num_silent;	/* stopped QPs whose peers had answered all that
				 * they were asked before, and have not answered
				 * the last STOP, nor called since they heard it
				 */
	__u32 silent_qpn;	/* the number of one of them */
};

/*
 * DUMP: IN is struct rxe_migr_buf: where the records go; RESP is struct
 * rxe_migr_dump. If the buffer is missing (addr 0) or too short, DUMP fills
 * RESP, changes no state and fails with ENOSPC.
 */
enum rxe_migr_dump_flags {
	RXE_MIGR_DUMP_STOP	= 1 << 0,	/* stop the context in the same step */
};

struct rxe_migr_dump {
	__aligned_u64 length;	/* bytes needed, or written */
	__u32 count;		/* records */
	__u32 reserved;
	__aligned_u64 stop_ns;	/* CLOCK_MONOTONIC: first QP stopped */
};

/*
 * ABORT: IN, optional, is a __u64: now_ns of a QUERY; 0: any. ESTALE: the context was
 * dumped with STOP after that QUERY, so it is another checkpoint's now. An older
 * driver takes no attributes.
 */

/*
 * RESUME: IN is struct rxe_migr_resume. The file of the context gets the
 * credentials of the process pid, as if that process had opened the file: only
 * a caller with the file's credentials can write() to it.
 */
struct rxe_migr_resume {
	__s32 pid;		/* in the caller's pid namespace; 0: the caller */
	__u32 reserved;		/* 0 */
};

/* BEGIN: IN is struct rxe_migr_begin. Only on a context without objects. */
struct rxe_migr_begin {
	__aligned_u64 session;	/* contexts of one restore share it; not 0 */
	__s32 fd;		/* the descriptor this ioctl is made on */
	__u32 flags;		/* 0 */
};

/*
 * HINT: IN is struct rxe_migr_hint: the identity that the next object created
 * on this context takes. The standard command that creates this object uses up
 * the hint, also if the command fails. It fails with EEXIST if the identity is
 * taken. HINT fails with EINVAL if no object can have the identity.
 */
enum rxe_migr_hint_type {
	RXE_MIGR_HINT_QP	= 1,	/* index: QP number */
	RXE_MIGR_HINT_MR	= 2,	/* key: lkey and rkey; pid: whose memory */
	RXE_MIGR_HINT_SRQ	= 3,	/* index: SRQ number */
	RXE_MIGR_HINT_AH	= 4,	/* index: ah_num */
	RXE_MIGR_HINT_MW	= 5,	/* key: rkey */
};

/*
 * To register another process's memory needs CAP_SYS_PTRACE. It fails with
 * ENOMEM if more memory would be pinned than that process's RLIMIT_MEMLOCK
 * allows, unless the caller has CAP_IPC_LOCK.
 */
struct rxe_migr_hint {
	__u32 type;		/* enum rxe_migr_hint_type */
	__u32 index;
	__u32 key;
	__s32 pid;		/* in the caller's pid namespace; 0: the caller */
};

/*
 * TAKEN: IN is struct rxe_migr_hint, whose pid is 0. EEXIST: an object of the
 * device has this identity, so a create after such a HINT would fail.
 */

/*
 * REFILL: IN is struct rxe_migr_buf: whole records as dumped, with the handles
 * of this context. Called after the last modify of its QPs, with all records at
 * once or in parts; no event may come before the record of its object. After
 * ENOMEM the caller must give all records again, from the first. EMSGSIZE: a QP is
 * connected with a larger path MTU than the port takes, and the source's port took
 * larger packets.
 */

/*
 * EVENT_FD: IN is a __s32 descriptor in the caller's table, RESP is struct
 * rxe_migr_event_fd. ENOENT: it is no event file of this context.
 */
struct rxe_migr_event_fd {
	__u32 type;		/* RXE_MIGR_REC_COMP_CHANNEL or _ASYNC_FILE */
	__u32 handle;		/* as in the records of a dump */
};

/*
 * STATUS lists the QPs of the whole device that are not RUNNING, and the
 * tombstones. IN is struct rxe_migr_buf: where an array of struct
 * rxe_migr_status goes; RESP is struct rxe_migr_dump; ENOSPC as for DUMP.
 */
enum rxe_migr_status_flags {
	RXE_MIGR_STATUS_PEER_KNOWS = 1 << 0,	/* as RXE_MIGR_QP_PEER_KNOWS */
};

struct rxe_migr_status {
	__u32 qpn;
	__u32 dest_qpn;
	__u8  state;		/* enum rxe_migr_qp_state */
	__u8  tombstone;	/* the QP is gone, its number still answers */
	__u8  flags;		/* enum rxe_migr_status_flags */
	__u8  reserved;
	__u32 epoch;
	__u32 peer_epoch;
	__u32 deadline_ms;	/* until the QP's deadline or the lease ends; 0: none */
	__u8  sgid[16];
	__u8  dgid[16];
};

/*
 * CALLS lists the QPs of the whole device that were restored here, have called
 * their peers, and are not stopped again. IN is struct rxe_migr_buf: where an
 * array of struct rxe_migr_call goes; RESP is struct rxe_migr_dump; ENOSPC as for
 * DUMP.
 */
enum rxe_migr_answer {
	RXE_MIGR_ANSWER_CAME	= 0,
	RXE_MIGR_ANSWER_AWAITED	= 1,	/* the peer is called again and again */
	RXE_MIGR_ANSWER_MISSED	= 2,	/* the peer is called no more */
};

struct rxe_migr_call {
	__u32 qpn;
	__u32 dest_qpn;
	__aligned_u64 call_ns;	/* CLOCK_MONOTONIC: the first call */
	__u32 answer;		/* enum rxe_migr_answer */
	__u32 reserved;
	__u8  dgid[16];
};

/*
 * KEY: IN is struct rxe_migr_key: the cluster's key on this host, for all rxe
 * devices. RESP, optional, is a __u64: a fingerprint (0: no key is set).
 */
#define RXE_MIGR_KEY_LEN	32

enum rxe_migr_key_op {
	RXE_MIGR_KEY_QUERY	= 0,
	RXE_MIGR_KEY_SET	= 1,	/* the key in force stays valid as the old one */
	RXE_MIGR_KEY_CLEAR	= 2,	/* forgets both */
	RXE_MIGR_KEY_DROP_OLD	= 3,	/* accepts only the key in force */
	RXE_MIGR_KEY_ADD	= 4,	/* accepts this key, too, instead of an old one */
	RXE_MIGR_KEY_QUERY_OLD	= 5,	/* RESP is of the key that is only accepted */
};

struct rxe_migr_key {
	__u32 op;
	__u32 reserved;
	__u8  key[RXE_MIGR_KEY_LEN];
};

/*
 * CM_LIST lists the ids of a file. IN is struct rxe_migr_cm_list: the file (a
 * descriptor in the caller's table), and where an array of struct
 * rxe_migr_cm_id goes; RESP is struct rxe_migr_dump; ENOSPC as for DUMP.
 * EINVAL: the file is none of rdma_cm. E2BIG: it has more than 65536 ids. EEXIST,
 * with STOP: two ids name the same QP. EBUSY, with STOP: a QP is being restored.
 */
enum rxe_migr_cm_list_flags {
	/*
	 * The CM sends no message of a connection whose QP is stopped, and
	 * drops each that arrives, until the QP goes on or is destroyed.
	 */
	RXE_MIGR_CM_LIST_STOP	= 1 << 0,
};

struct rxe_migr_cm_list {
	__s32 fd;
	__u32 flags;		/* enum rxe_migr_cm_list_flags */
	__aligned_u64 addr;
	__aligned_u64 length;
};

enum rxe_migr_cm_flags {
	RXE_MIGR_CM_REUSEADDR	= 1 << 0,
	RXE_MIGR_CM_AFONLY	= 1 << 1,
	RXE_MIGR_CM_MULTICAST	= 1 << 2,	/* has joined a group */
	RXE_MIGR_CM_CLOSED	= 1 << 3,	/* its device was removed */
	RXE_MIGR_CM_TOS		= 1 << 4,	/* tos was set */
	RXE_MIGR_CM_ACK_TIMEOUT	= 1 << 5,	/* ack_timeout was set */
	RXE_MIGR_CM_REQUESTED	= 1 << 6,	/* a connection request is unread */
};

enum rxe_migr_cm_state {
	RXE_MIGR_CM_IDLE	= 0,
	RXE_MIGR_CM_BOUND	= 1,
	RXE_MIGR_CM_LISTENING	= 2,
	RXE_MIGR_CM_ADDR_RESOLVED = 3,
	RXE_MIGR_CM_ROUTE_RESOLVED = 4,
	RXE_MIGR_CM_CONNECTED	= 5,
	RXE_MIGR_CM_LEFT	= 6,	/* the peer has disconnected, this side not yet */
	RXE_MIGR_CM_ENDED	= 7,	/* disconnected, refused or failed */
	RXE_MIGR_CM_BUSY	= 8,	/* on its way from one of these to another */
	RXE_MIGR_CM_DATAGRAM	= 9,	/* of UD, which has no connection to move */
	RXE_MIGR_CM_FOREIGN	= 10,	/* of another driver's device */
	RXE_MIGR_CM_STRAY	= 11,	/* connected, but its QP is destroyed */
	RXE_MIGR_CM_STAND_IN	= 12,	/* connected, but the QP that it names is not */
};

struct rxe_migr_cm_id {
	__u32 id;		/* its number on this host */
	__u32 flags;		/* enum rxe_migr_cm_flags */
	__aligned_u64 uid;	/* librdmacm's own name for it */
	__u32 state;		/* enum rxe_migr_cm_state */
	__u32 ps;		/* port space, enum rdma_ucm_port_space */
	__u32 qp_type;
	__u32 qp_num;		/* of a connection, or 0 */
	__u32 events_reported;
	__u32 events_unread;
	__u32 backlog;		/* of an id that listens */
	__u32 comm_id;		/* CONNECTED, LEFT: communication ids of this */
	__u32 remote_comm_id;	/* end and of the peer, as the peer knows them */
	__u8  tos;
	__u8  ack_timeout;
	__u8  reserved[2];
	__u8  src_addr[48];	/* struct sockaddr_in, _in6 or _ib */
	__u8  dst_addr[48];
	char  device[64];	/* "" for an id that has none */
};

/*
 * CM_ADOPT: IN is struct rxe_migr_cm_adopt. The program that restores a process
 * has opened the file. The file gets the credentials of the process, as the
 * file of a context does by RESUME.
 */
struct rxe_migr_cm_adopt {
	__s32 fd;		/* a descriptor in the caller's table */
	__s32 pid;		/* in the caller's pid namespace; 0: the caller */
};

/*
 * CM_CONNECT: IN is struct rxe_migr_cm_connect. Called between BEGIN and RESUME,
 * before the caller connects an id to the peer of a QP of this context. The
 * driver itself answers the REQ whose private data begin with the cookie, and
 * the peer does not learn of the REQ. EEXIST: the QP has a connection already,
 * or another connection has these comm ids.
 */
struct rxe_migr_cm_connect {
	__u32 qp_num;
	__u32 comm_id;		/* as the peer knows them */
	__u32 remote_comm_id;
	__u32 state;		/* to get into: CONNECTED or LEFT */
	__u8  cookie[8];
};

/*
 * CM_REFILL: IN is struct rxe_migr_cm_refill: how many events of an id were
 * read. librdmacm and the kernel both count them. ENOENT: the file has no such
 * id. EBUSY: events of the id are unread.
 */
struct rxe_migr_cm_refill {
	__s32 fd;		/* a descriptor in the caller's table */
	__u32 id;
	__u32 events_reported;
	__u32 reserved;		/* 0 */
};

/*
 * CM_EVENTS lists the unread events of a file, the oldest first. It is called
 * like CM_LIST, with an array of struct rxe_migr_cm_event; flags is 0. It leaves
 * out events of multicast groups, and connection requests.
 */

/*
 * The same as struct rdma_ucm_event_resp, whose header can't be included together
 * with rdma_cma.h
 */
struct rxe_migr_cm_event {
	__aligned_u64 uid;
	__u32 id;
	__u32 event;
	__u32 status;
	__u8  rest[316];
};

/*
 * CM_REPORT: IN is struct rxe_migr_cm_report: one more event for an id of the
 * file. The event gets the uid of this id. ENOENT: the file has no such id.
 * EINVAL: the event is a CONNECT_REQUEST, which would have to bring a new id, or
 * an event of a multicast group.
 */
struct rxe_migr_cm_report {
	__s32 fd;		/* a descriptor in the caller's table */
	__u32 reserved;		/* 0 */
	struct rxe_migr_cm_event event;
};

/*
 * CM_DEVICE: IN is struct rxe_migr_cm_device: the GUID and index by which the
 * process of a file knows the device of the context that the ioctl is made on.
 * RESP, optional, is the same structure, with the values from before SET. A
 * process that has moved knows the GUIDs and indices of the host where it began,
 * and librdmacm looks up devices by them. ENOSPC: the file has too many devices,
 * or other values of this device were set already.
 */
enum rxe_migr_cm_device_flags {
	RXE_MIGR_CM_DEVICE_SET	= 1 << 0,
};

struct rxe_migr_cm_device {
	__s32 fd;		/* a descriptor in the caller's table */
	__u32 flags;		/* enum rxe_migr_cm_device_flags */
	__u32 index;
	__u32 reserved;		/* 0 */
	__u8  guid[8];
};

/* ------------------------------------------------------------- records -- */

/*
 * A dump is a sequence of records. If REFILL does not know the type of a record,
 * it fails with EOPNOTSUPP if the record has the MANDATORY flag, and else skips
 * the record.
 */
enum rxe_migr_rec_type {
	RXE_MIGR_REC_CONTEXT		= 1,
	RXE_MIGR_REC_ASYNC_FILE		= 2,
	RXE_MIGR_REC_COMP_CHANNEL	= 3,
	RXE_MIGR_REC_PD			= 4,
	RXE_MIGR_REC_MR			= 5,
	RXE_MIGR_REC_CQ			= 6,
	RXE_MIGR_REC_SRQ		= 7,
	RXE_MIGR_REC_QP			= 8,
	RXE_MIGR_REC_RESP_RES		= 9,	/* a responder resource of a QP */
	RXE_MIGR_REC_RECV_WQE		= 10,	/* the SRQ entry a QP has in hand */
	RXE_MIGR_REC_ALT_AV		= 11,
	RXE_MIGR_REC_RING		= 12,
	RXE_MIGR_REC_EVENT		= 13,	/* a pending event, oldest first */
	RXE_MIGR_REC_AH			= 14,
	RXE_MIGR_REC_MW			= 15,
	RXE_MIGR_REC_OTHER		= 16,	/* an object that cannot be moved */
	RXE_MIGR_REC_MCAST		= 17,	/* a multicast group of a QP */
	RXE_MIGR_REC_MR_OWNER		= 18,	/* of the MR record before it; not MANDATORY */
};

enum rxe_migr_rec_flags {
	RXE_MIGR_REC_MANDATORY		= 1 << 0,
};

#define RXE_MIGR_NO_HANDLE	0xffffffffU
#define RXE_MIGR_NO_PSN		0xffffffffU

struct rxe_migr_rec {
	__le16 type;
	__le16 flags;
	__le32 length;		/* of the whole record, this header included */
	__le32 handle;		/* uverbs handle; event files: their ordinal */
} __attribute__((packed));

struct rxe_migr_rec_context {
	struct rxe_migr_rec hdr;	/* handle: number on the device */
	__le32 abi_version;
	__le32 num_objects;
	char   device[64];
	__le64 stop_ns;
	__u8   active_mtu;	/* enum ib_mtu, of the device's port; 0: not known */
} __attribute__((packed));

struct rxe_migr_rec_event_file {	/* ASYNC_FILE, COMP_CHANNEL */
	struct rxe_migr_rec hdr;
	__le32 is_default;	/* the async file that came with the context */
} __attribute__((packed));

struct rxe_migr_rec_pd {
	struct rxe_migr_rec hdr;
} __attribute__((packed));

struct rxe_migr_rec_mr {
	struct rxe_migr_rec hdr;
	__le32 pd;
	__le32 key;		/* lkey and rkey */
	__le64 start;		/* user address */
	__le64 length;
	__le64 iova;
	__le32 access;
} __attribute__((packed));

/*
 * The process whose memory an MR has. If several processes share a context, any
 * of them may have registered the MR, and forked since. REFILL skips this record.
 */
struct rxe_migr_rec_mr_owner {
	struct rxe_migr_rec hdr;	/* handle: the MR */
	__le32 pid;		/* in the caller's pid namespace; 0: it has ended */
} __attribute__((packed));

struct rxe_migr_rec_cq {
	struct rxe_migr_rec hdr;
	__le64 user_handle;
	__le64 ring_offset;	/* for mmap(), on the device it was dumped from */
	__le32 cqe;
	__le32 comp_channel;	/* ordinal or RXE_MIGR_NO_HANDLE */
	__le32 comp_vector;
	__le32 async_file;	/* ordinal or RXE_MIGR_NO_HANDLE */
	__le32 comp_events;	/* completion events reported */
	__le32 async_events;	/* asynchronous events reported */
	__u8   notify;		/* enum ib_cq_notify_flags armed */
	__u8   reserved[3];
} __attribute__((packed));

struct rxe_migr_rec_srq {
	struct rxe_migr_rec hdr;
	__le64 user_handle;
	__le64 ring_offset;
	__le32 pd;
	__le32 srq_num;
	__le32 max_wr;
	__le32 max_sge;
	__le32 limit;
	__le32 async_file;
	__le32 async_events;
	__le32 error;
} __attribute__((packed));

enum rxe_migr_qp_flags {
	RXE_MIGR_QP_WAIT_FENCE		= 1 << 0,
	RXE_MIGR_QP_NEED_RD_ATOMIC	= 1 << 1,
	RXE_MIGR_QP_WAIT_PSN		= 1 << 2,
	RXE_MIGR_QP_DROP_MSG		= 1 << 3,
	RXE_MIGR_QP_SENT_PSN_NAK	= 1 << 4,
	RXE_MIGR_QP_RECV_WQE		= 1 << 5,	/* a receive is half done */
	RXE_MIGR_QP_PEER_STOPPED	= 1 << 6,
	RXE_MIGR_QP_PEER_KNOWS		= 1 << 7,	/* peer speaks this protocol */
};

struct rxe_migr_rec_qp {
	struct rxe_migr_rec hdr;
	__le64 user_handle;
	__le64 sq_offset;	/* rings, as ring_offset above */
	__le64 rq_offset;
	__le32 pd;
	__le32 send_cq;
	__le32 recv_cq;
	__le32 srq;		/* or RXE_MIGR_NO_HANDLE */
	__le32 async_file;
	__le32 async_events;
	/* identity and size */
	__le32 qpn;
	__u8   qp_type;		/* enum ib_qp_type */
	__u8   qp_state;	/* enum ib_qp_state, as the application sees it */
	__u8   sq_sig_all;
	__u8   owes_last_wqe;	/* in ERR, and LAST_WQE_REACHED is still to be said */
	__le32 max_send_wr;
	__le32 max_recv_wr;
	__le32 max_inline;
	__le16 max_send_sge;
	__le16 max_recv_sge;
	/* attributes */
	__le32 access_flags;
	__le32 qkey;
	__le32 dest_qpn;
	__le32 rq_psn;
	__le32 sq_psn;		/* or RXE_MIGR_NO_PSN: the QP has not been in RTS */
	__le16 pkey_index;
	__le16 src_port;	/* UDP */
	__u8   path_mtu;
	__u8   port_num;
	__u8   timeout;
	__u8   retry_cnt;
	__u8   rnr_retry;
	__u8   min_rnr_timer;
	__u8   max_rd_atomic;
	__u8   max_dest_rd_atomic;
	__le32 sq_draining;	/* 1 + index of the first WQE that waits, or 0 */
	__u8   en_sqd_async_notify;
	__u8   hop_limit;
	__u8   traffic_class;
	__le32 flow_label;
	__u8   sgid[16];
	__u8   dgid[16];
	/* requester and completer */
	__le32 req_psn;		/* next to be sent, or next to be sent for the */
	__le32 req_wqe_index;	/* first time: a restore begins again at comp_psn */
	__le32 req_noack_pkts;
	__le16 req_opcode;	/* 0xffff: none */
	__le16 req_rd_atomic;
	__le32 comp_psn;
	__le16 comp_opcode;
	__u8   comp_retry_cnt;
	__u8   comp_rnr_retry;
	/* responder */
	__le32 resp_msn;
	__le32 resp_psn;
	__le32 resp_ack_psn;
	__le16 resp_opcode;
	__u8   resp_status;
	__u8   flags;		/* enum rxe_migr_qp_flags */
	__le64 resp_va;
	__le64 resp_offset;
	__le32 resp_resid;
	__le32 resp_rkey;
	__le32 resp_length;
	__le16 res_head;
	__le16 num_res;
	/* the receive in hand */
	__le32 recv_resid;
	__le32 recv_cur_sge;
	__le32 recv_sge_offset;
	/* protocol */
	__le32 ssn;
	__le32 epoch;
	__le32 peer_epoch;
	__u8   old_gid[16];	/* our address that the peer last knew; 0: sgid */
} __attribute__((packed));

enum rxe_migr_res_type {
	RXE_MIGR_RES_READ		= 1,
	RXE_MIGR_RES_ATOMIC		= 2,
	RXE_MIGR_RES_ATOMIC_WRITE	= 3,
	RXE_MIGR_RES_FLUSH		= 4,
};

struct rxe_migr_rec_resp_res {
	struct rxe_migr_rec hdr;	/* handle: the QP */
	__le16 index;
	__u8   type;			/* enum rxe_migr_res_type */
	__u8   replay;
	__u8   state;
	__u8   flush_type;
	__u8   flush_level;
	__u8   reserved;
	__le32 first_psn;
	__le32 last_psn;
	__le32 cur_psn;
	__le32 rkey;
	__le32 length;
	__le32 resid;
	__le64 va;
	__le64 va_org;			/* ATOMIC: the value that was there */
} __attribute__((packed));

struct rxe_migr_sge {
	__le64 addr;
	__le32 length;
	__le32 lkey;
} __attribute__((packed));

struct rxe_migr_rec_recv_wqe {
	struct rxe_migr_rec hdr;	/* handle: the QP */
	__le64 wr_id;
	__le32 length;
	__le32 num_sge;
	struct rxe_migr_sge sge[];
} __attribute__((packed));

struct rxe_migr_rec_alt_av {
	struct rxe_migr_rec hdr;	/* handle: the QP */
	__u8   sgid[16];
	__u8   dgid[16];
	__le32 flow_label;
	__u8   hop_limit;
	__u8   traffic_class;
	__u8   port_num;
	__u8   timeout;
	__le16 pkey_index;
	__le16 reserved;
} __attribute__((packed));

enum rxe_migr_ring {
	RXE_MIGR_RING_CQ	= 1,
	RXE_MIGR_RING_SQ	= 2,
	RXE_MIGR_RING_RQ	= 3,
	RXE_MIGR_RING_SRQ	= 4,
};

/*
 * An element has 2^log2_elem_size bytes: groups of up to RXE_MIGR_RING_WORDS
 * 64-bit words. For each group, data has an __le64 whose bit i says that word i
 * is not zero, and then the words that are not zero, as they lie in memory. (Most
 * words of a ring are zero.)
 */
#define RXE_MIGR_RING_WORDS	64

struct rxe_migr_rec_ring {
	struct rxe_migr_rec hdr;	/* handle: the CQ, QP or SRQ */
	__le32 which;			/* enum rxe_migr_ring */
	__le32 log2_elem_size;
	__le32 index_mask;
	__le32 producer;		/* the shared indices ... */
	__le32 consumer;
	__le32 index;			/* ... and the driver's own copy */
	__le32 first;			/* element that data begins with */
	__le32 count;			/* elements in data; others become zero */
	__u8   data[];
} __attribute__((packed));

#define RXE_MIGR_EVENT_COMPLETION 0xffffffffu

struct rxe_migr_rec_event {
	struct rxe_migr_rec hdr;	/* handle: the CQ, QP or SRQ */
	__le32 file;			/* ordinal of the event file */
	__le32 object;			/* enum rxe_migr_rec_type of the object */
	__le32 event;			/* enum ib_event_type, or RXE_MIGR_EVENT_COMPLETION */
} __attribute__((packed));

struct rxe_migr_rec_ah {
	struct rxe_migr_rec hdr;
	__le64 user_handle;
	__le32 pd;
	__le32 ah_num;
	__u8   sgid[16];
	__u8   dgid[16];
	__le32 flow_label;
	__u8   hop_limit;
	__u8   traffic_class;
	__u8   port_num;
	__u8   dmac[6];
	__u8   reserved[3];
} __attribute__((packed));

struct rxe_migr_rec_mcast {
	struct rxe_migr_rec hdr;	/* handle: the QP */
	__u8   mgid[16];
	__le16 mlid;
	__le16 reserved;
} __attribute__((packed));

struct rxe_migr_rec_mw {
	struct rxe_migr_rec hdr;
	__le64 addr;
	__le64 length;
	__le32 pd;
	__le32 rkey;
	__le32 mr;		/* handle or RXE_MIGR_NO_HANDLE */
	__le32 qp;		/* handle or RXE_MIGR_NO_HANDLE */
	__le32 access;
	__u8   type;		/* enum ib_mw_type */
	__u8   state;
	__le16 reserved;
} __attribute__((packed));

struct rxe_migr_rec_other {
	struct rxe_migr_rec hdr;
	__le32 object_id;	/* enum uverbs_default_objects */
} __attribute__((packed));

/* --------------------------------------------------------------- packets -- */

/*
 * BTH opcodes from the range that the specification leaves to manufacturers
 * (InfiniBand vol. 1, 9.2: bits 7-5 are 110 or 111). NAK_STOPPED is one of them,
 * too, and no NAK code of an AETH. struct rxe_migr_hdr follows the BTH;
 * docs/PROTOCOL.md says what each packet has in it, and why.
 */
#define RXE_MIGR_OPCODE_STOP		0xc0
#define RXE_MIGR_OPCODE_STOP_ACK	0xc1
#define RXE_MIGR_OPCODE_RESUME		0xc2
#define RXE_MIGR_OPCODE_RESUME_ACK	0xc3
#define RXE_MIGR_OPCODE_NAK_STOPPED	0xc4
#define RXE_MIGR_OPCODE_MOVED		0xc5

/*
 * A UC QP does not send a lost packet again. So a paused UC peer that is called
 * does not send before it knows that its packets arrive. WAITS, in RESUME_ACK:
 * the peer waits until it is told so. HEARD, in RESUME, tells it: the answer to a
 * RESUME of this epoch has come.
 */
#define RXE_MIGR_FLAG_HEARD		0x0001
#define RXE_MIGR_FLAG_WAITS		0x0002
/* In any packet: sq_psn is valid, since the sender is, or was, in RTS. */
#define RXE_MIGR_FLAG_SQ_PSN		0x0004
/*
 * In STOP_ACK: the host has the key, but the QP is not connected any more, or has
 * moved away. The header's src_qpn, dest_qpn, rq_psn and sq_psn are those of the
 * STOP, crosswise, and psn is that of the STOP. renewal is 0 if the QP has moved.
 */
#define RXE_MIGR_FLAG_GONE		0x0008

/* The packets of version 1 had nothing between new_gid and mac. */
#define RXE_MIGR_WIRE_VERSION		2
#define RXE_MIGR_HDR_LEN_MIN		68
#define RXE_MIGR_MAC_LEN		16
#define RXE_MIGR_WAIT_FOREVER		0xffff

struct rxe_migr_hdr {
	__u8   version;
	__u8   opcode;		/* the same as in the BTH */
	__be16 flags;		/* RXE_MIGR_FLAG_* */
	__be32 src_qpn;		/* the sender's; from a tombstone: its QP's */
	__be32 dest_qpn;	/* the receiver's */
	__be32 epoch;		/* of the side that moves */
	__be32 psn;		/* STOP, RESUME, NAK_STOPPED: the first one that
				 * is not acknowledged, UC: the next to be sent;
				 * STOP_ACK: the last one received in order, UC:
				 * the next to be sent; RESUME_ACK: the last one
				 * received in order, for UC, too; from a
				 * tombstone: that of the packet it answers;
				 * MOVED to a tombstone: the peer's QP number
				 */
	__u8   old_gid[16];	/* where the side that moves was when its peer
				 * last heard of it; MOVED: where its tombstone
				 * is; RESUME that asks or has HEARD, NAK_STOPPED
				 * of a tombstone: equal to new_gid; STOP_ACK,
				 * RESUME_ACK: 0
				 */
	__u8   new_gid[16];	/* where the sender is; MOVED of a tombstone:
				 * where its QP is
				 */
	__be32 rq_psn;		/* the PSNs that the sender's queues began with, not */
	__be32 sq_psn;		/* those reached since; from a tombstone: its QP's */
	__be16 renewal;		/* STOP, NAK_STOPPED: one more each time that the
				 * peer is asked to wait anew; STOP_ACK, RESUME:
				 * the last renewal heard from the peer, 0: none
				 */
	__be16 wait;		/* STOP_ACK, RESUME: the sender waits at least so
				 * many seconds, or RXE_MIGR_WAIT_FOREVER
				 */
	__u8   mac[RXE_MIGR_MAC_LEN];
} __attribute__((packed));

/* ----------------------------------------------------------------- sizes -- */

/*
 * Each structure above, in its order. A structure that grows is listed with its
 * new size; docs/PROTOCOL.md says how large the record of an object may be.
 */
#ifdef __cplusplus
#define RXE_MIGR_SIZE(type, size) \
	static_assert(sizeof(type) == (size), #type " changed its size")
#else
#define RXE_MIGR_SIZE(type, size) \
	_Static_assert(sizeof(type) == (size), #type " changed its size")
#endif
RXE_MIGR_SIZE(struct rxe_migr_buf, 24);
RXE_MIGR_SIZE(struct rxe_migr_query, 72);
RXE_MIGR_SIZE(struct rxe_migr_dump, 24);
RXE_MIGR_SIZE(struct rxe_migr_resume, 8);
RXE_MIGR_SIZE(struct rxe_migr_begin, 16);
RXE_MIGR_SIZE(struct rxe_migr_hint, 16);
RXE_MIGR_SIZE(struct rxe_migr_event_fd, 8);
RXE_MIGR_SIZE(struct rxe_migr_status, 56);
RXE_MIGR_SIZE(struct rxe_migr_call, 40);
RXE_MIGR_SIZE(struct rxe_migr_key, 40);
RXE_MIGR_SIZE(struct rxe_migr_cm_list, 24);
RXE_MIGR_SIZE(struct rxe_migr_cm_id, 216);
RXE_MIGR_SIZE(struct rxe_migr_cm_adopt, 8);
RXE_MIGR_SIZE(struct rxe_migr_cm_connect, 24);
RXE_MIGR_SIZE(struct rxe_migr_cm_refill, 16);
RXE_MIGR_SIZE(struct rxe_migr_cm_event, 336);
RXE_MIGR_SIZE(struct rxe_migr_cm_report, 344);
RXE_MIGR_SIZE(struct rxe_migr_cm_device, 24);
RXE_MIGR_SIZE(struct rxe_migr_rec, 12);
RXE_MIGR_SIZE(struct rxe_migr_rec_context, 93);
RXE_MIGR_SIZE(struct rxe_migr_rec_event_file, 16);
RXE_MIGR_SIZE(struct rxe_migr_rec_pd, 12);
RXE_MIGR_SIZE(struct rxe_migr_rec_mr, 48);
RXE_MIGR_SIZE(struct rxe_migr_rec_mr_owner, 16);
RXE_MIGR_SIZE(struct rxe_migr_rec_cq, 56);
RXE_MIGR_SIZE(struct rxe_migr_rec_srq, 60);
RXE_MIGR_SIZE(struct rxe_migr_rec_qp, 271);
RXE_MIGR_SIZE(struct rxe_migr_rec_resp_res, 60);
RXE_MIGR_SIZE(struct rxe_migr_sge, 16);
RXE_MIGR_SIZE(struct rxe_migr_rec_recv_wqe, 28);
RXE_MIGR_SIZE(struct rxe_migr_rec_alt_av, 56);
RXE_MIGR_SIZE(struct rxe_migr_rec_ring, 44);
RXE_MIGR_SIZE(struct rxe_migr_rec_event, 24);
RXE_MIGR_SIZE(struct rxe_migr_rec_ah, 76);
RXE_MIGR_SIZE(struct rxe_migr_rec_mcast, 32);
RXE_MIGR_SIZE(struct rxe_migr_rec_mw, 52);
RXE_MIGR_SIZE(struct rxe_migr_rec_other, 16);
RXE_MIGR_SIZE(struct rxe_migr_hdr, 80);

#endif /* RDMA_RXE_MIGRATE_H */
