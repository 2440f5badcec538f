/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Migration of queue pairs: what the rest of the driver sees of it. rxe_migr_loc.h
 * lists its files, and which of them calls which. To read the code, begin with the
 * table of states in rxe_migr_state.c. Go on with rxe_migr_stop.c and rxe_migr_go.c,
 * then rxe_migr_rcv.c for the peer, and rxe_migr_ctx.c for a whole context.
 *
 * Locks, outermost first:
 *   ib_uverbs_file.hw_destroy_rwsem
 *		held for writing, while the program is frozen: no object of the
 *		context comes or goes; held for reading: nobody closes, stops or
 *		restores the context
 *   rxe_migr_qp.mutex
 *		a change of the QP that waits for its tasks
 *   rxe_srq.migr_mutex, rxe_cq.cq_lock, rxe_mw.lock
 *		the ring or the binding of the object
 *   rxe_migr_uctx.lock
 *		state, session, file and hint of the context
 *   rxe_qp.state_lock
 *		rxe_qp.migr_state and struct rxe_migr_qp
 *   rxe_qp.req_pkts.lock
 *		rxe_migr_qp.seen_psn
 *   rxe_migr_dev.conn_lock
 *		connections of the CM, struct rxe_migr_conn
 */
#ifndef RXE_MIGR_H
#define RXE_MIGR_H

#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/rxe_migrate.h>

struct rxe_dev;
struct rxe_mr;
struct rxe_mw;
struct rxe_pkt_info;
struct rxe_pool;
struct rxe_pool_elem;
struct rxe_qp;
struct rxe_ucontext;

/* A RESUME, or MOVED, that was accepted and is being applied */
struct rxe_migr_move {
	union ib_gid	gid;		/* where the peer is now */
	union ib_gid	old_gid;	/* where the peer says it was */
	u32		epoch;
	bool		told;		/* the tombstone said this, not the peer */
	bool		wired;		/* the peer itself called, from another device */
	bool		pending;
};

/* What this QP knows of its peer; rxe_migr_state.c has the legal arcs. */
enum rxe_migr_peer_state {
	RXE_MIGR_PEER_GOES,	/* it is not stopped, as far as is known */
	RXE_MIGR_PEER_STOPPED,	/* since its epoch stop_epoch */
	RXE_MIGR_PEER_UNSURE,	/* UC: it goes on, and may not hear this QP yet */
	RXE_MIGR_PEER_OVERDUE,	/* stopped until the deadline passed, perhaps still */
};

/* What became of our last RESUME; rxe_migr_state.c has the legal arcs. */
enum rxe_migr_call_state {
	RXE_MIGR_CALL_NONE,	/* the answer came, or nobody is called */
	RXE_MIGR_CALL_AWAITED,	/* unanswered: it is sent again */
	RXE_MIGR_CALL_CONFIRM,	/* UC: answered; the peer may wait until it is told so */
	RXE_MIGR_CALL_MISSED,	/* the QP failed, or gave up, before the answer came */
};

/* Does the peer speak the protocol? rxe_migr_state.c has the legal arcs. */
enum rxe_migr_speech {
	RXE_MIGR_SPEECH_NEVER,	/* it has never spoken */
	RXE_MIGR_SPEECH_HEARD,	/* it has spoken, and owes no answer that counts */
	RXE_MIGR_SPEECH_ASKED,	/* it was asked anew, and has not spoken since */
	RXE_MIGR_SPEECH_TOLD,	/* HEARD before our last STOP, and has not answered that */
};

/* How a QP comes to rest, and leaves it. rxe_migr_state.c has the legal arcs. */
enum rxe_migr_rest {
	RXE_MIGR_REST_NONE,	/* its migr_state alone says what its tasks do */
	RXE_MIGR_REST_ARRIVING,	/* UC, stopped: packets sent before may still come */
	RXE_MIGR_REST_HUSHED,	/* the same, and the requester is at rest */
	RXE_MIGR_REST_FULL,	/* stopped: both tasks are at rest */
	RXE_MIGR_REST_ENDS,	/* it goes on: its tasks wait for rxe_migr_release_qp() */
};

struct rxe_migr_qp {
	struct mutex		mutex;
	struct delayed_work	work;		/* rxe_migr_work() */
	enum rxe_migr_peer_state peer;
	enum rxe_migr_call_state call;
	enum rxe_migr_speech	speech;
	enum rxe_migr_rest	rest;		/* see rxe_migr_set_rest() */
	unsigned long		deadline;	/* jiffies, valid if has_deadline */
	unsigned long		wait_begin;	/* jiffies: when the wait for deadline began */
	u64			grace_end;	/* jiffies_64: until then a retry is free */
	u32			epoch;		/* how often this QP was stopped */
	u32			peer_epoch;	/* of the peer's last RESUME that was applied */
	u32			stop_epoch;	/* of the peer's last stop */
	u32			last_psn;	/* UC: what a peer at rest sends next */
	u32			seen_psn;	/* UC: the last PSN since the stop, plus one */
	u16			renewal;	/* number of our last STOP */
	u16			peer_renewal;	/* number of the peer's last STOP */
	u64			renewal_ns;	/* when our last STOP was first sent; 0: none since the stop */
	u64			wait_ns;	/* stopped: the peer waits until then; 0: unknown */
	u64			call_ns;	/* restored: when the peer was first called; 0: never */
	unsigned int		tries;		/* how often STOP or RESUME was sent again */
	unsigned long		next_tx;	/* jiffies: when it is sent again */
	union ib_gid		old_gid;	/* our address when the peer last answered or called */
	union ib_gid		last_gid;	/* our address before this QP was restored */
	union ib_gid		peer_old_gid;	/* old_gid of the peer's last RESUME */
	struct rxe_migr_move	move;

	/* flags that do not exclude each other */
	bool			has_deadline;
	bool			restored;	/* together with its connection */
	bool			has_sq_psn;	/* attr.sq_psn is of this connection */
	bool			stop_acked;	/* the peer has answered our last STOP */
	bool			last_known;	/* last_psn is valid */
	bool			ack_owed;	/* UC: the peer's STOP is to be answered */
	bool			gave_up;	/* RC: the QP failed at its deadline */
	bool			dead;		/* being destroyed: queue no work */
};

struct rxe_migr_uctx {
	spinlock_t		lock;
	u32			state;		/* enum rxe_migr_ctx_state */
	u64			session;
	u64			stop_ns;
	u64			dump_ns;	/* last DUMP with STOP */
	u64			resume_ns;
	struct file		*file;		/* no reference; see rxe_migr_owner_file() */
	struct rxe_migr_hint	hint;
	struct pid		*hint_pid;
	bool			has_hint;
	bool			flushed;	/* the device goes: all QPs are in error */
};

/* Of a device, and of its interface for a while after the device has ended: see rxe_ns.c */
struct rxe_migr_dev {
	struct xarray		tombs;		/* QP number -> struct rxe_migr_tomb */
	struct list_head	conns;		/* struct rxe_migr_conn */
	spinlock_t		conn_lock;
	struct delayed_work	*reap;		/* the namespace's */
};

/*
 * Opcodes of ours have a length but no mask: see rxe_rcv(). The code for the ICRC
 * takes struct rxe_migr_hdr for payload, whose length depends on the version.
 */
#define RXE_MIGR_HDR_OPCODE(op)						\
	[RXE_MIGR_OPCODE_##op] = {					\
		.name	= "RXE_MIGR_OPCODE_" #op,			\
		.length	= RXE_BTH_BYTES,				\
		.offset	= { [RXE_PAYLOAD] = RXE_BTH_BYTES },		\
	}
#define RXE_MIGR_OPCODES						\
	RXE_MIGR_HDR_OPCODE(STOP),					\
	RXE_MIGR_HDR_OPCODE(STOP_ACK),					\
	RXE_MIGR_HDR_OPCODE(RESUME),					\
	RXE_MIGR_HDR_OPCODE(RESUME_ACK),				\
	RXE_MIGR_HDR_OPCODE(NAK_STOPPED),				\
	RXE_MIGR_HDR_OPCODE(MOVED),

/* rxe_migr.c: lifetimes of devices, contexts and QPs */
void rxe_migr_dev_init(struct rxe_migr_dev *dev, struct delayed_work *reap);
/* The device has ended, and all its QPs: what does not outlive it is freed. */
void rxe_migr_dev_ends(struct rxe_migr_dev *dev);
/* Free what has had its time. Is there more, which has time left? */
bool rxe_migr_dev_reap(struct rxe_migr_dev *dev);
/* Free all. Packets may still be looking at it, under RCU. */
void rxe_migr_dev_cleanup(struct rxe_migr_dev *dev);
void rxe_migr_uctx_init(struct rxe_ucontext *uc);
void rxe_migr_uctx_cleanup(struct rxe_ucontext *uc);
void rxe_migr_qp_init(struct rxe_qp *qp, struct ib_udata *udata);
void rxe_migr_qp_destroy(struct rxe_qp *qp);
/* Before an MR, MW or AH is destroyed; uobj is NULL if it is the kernel's. May sleep if not. */
void rxe_migr_object_goes(const struct ib_uobject *uobj);

/*
 * The modify verb runs between these two, under rxe_migr_qp.mutex. If the QP is
 * stopped and does not go on soon, rxe_migr_modify_begin() fails and does not hold
 * the mutex.
 */
int rxe_migr_modify_begin(struct rxe_qp *qp);
void rxe_migr_modify_end(struct rxe_qp *qp, struct ib_qp_attr *attr, int mask);

/* rxe_migr_work.c: the module begins, and ends */
int rxe_migr_init(void);
void rxe_migr_exit(void);

/* rxe_migr_task.c: from a task of a QP whose migr_state is not RUNNING */
bool rxe_migr_sender_waits(struct rxe_qp *qp);
bool rxe_migr_receiver_waits(struct rxe_qp *qp);

/* rxe_migr_state.c: from the completer */
bool rxe_migr_in_grace(struct rxe_qp *qp);

/* rxe_migr_rcv.c: packets of ours; packets of a QP that is not RUNNING. From softirq */
void rxe_migr_rcv(struct rxe_pkt_info *pkt, struct sk_buff *skb);
void rxe_migr_rcv_orphan(struct rxe_migr_dev *dev, struct sk_buff *skb);
bool rxe_migr_rcv_drops(struct rxe_pkt_info *pkt, struct rxe_qp *qp);
/* The lock of qp->req_pkts is held. */
void rxe_migr_note_psn(struct rxe_qp *qp, u32 psn);

/* rxe_migr_tomb.c: packets for a QP that is gone. From softirq */
void rxe_migr_rcv_gone(struct rxe_pkt_info *pkt, u32 qpn);

/* rxe_migr_mad.c: packets of the CM. Takes rxe_migr_dev.conn_lock */
bool rxe_migr_send_mad(struct rxe_qp *gsi, struct rxe_pkt_info *pkt,
		       struct sk_buff *skb);
bool rxe_migr_rcv_mad(struct rxe_pkt_info *pkt, struct sk_buff *skb);

/* rxe_migr_hint.c: identities of objects, and what a hint says beside the index */
struct rxe_migr_wanted {
	bool		set;
	u32		key;
	struct pid	*pid;	/* whose memory; a reference until rxe_migr_unwant() */
};

u32 rxe_migr_first_index(const struct rxe_pool *pool);
void rxe_migr_want_index(struct rxe_pool_elem *elem, u32 type,
			 struct ib_udata *udata, struct rxe_migr_wanted *wanted);
void rxe_migr_want_qpn(struct rxe_qp *qp, const struct ib_qp_init_attr *init,
		       struct ib_udata *udata);
void rxe_migr_unwant(struct rxe_migr_wanted *wanted);
int rxe_migr_claim(struct rxe_pool *pool, struct rxe_pool_elem *elem,
		   gfp_t gfp);

/* rxe_migr_mr.c, rxe_migr_mw.c: objects with the keys and the memory that are wanted */
int rxe_migr_mr_init_user(struct rxe_dev *rxe, u64 start, u64 length,
			  int access, struct rxe_mr *mr,
			  const struct rxe_migr_wanted *wanted);
void rxe_migr_mw_init(struct rxe_mw *mw, const struct rxe_migr_wanted *wanted);

/* rxe_migr_file.c: rings of restored contexts. rxe_dev.pending_lock is held */
bool rxe_migr_may_map(struct ib_ucontext *by, struct ib_ucontext *owner);
bool rxe_migr_keep_ring(struct ib_ucontext *owner);
struct file *rxe_migr_owner_file(struct ib_ucontext *by,
				 struct ib_ucontext *owner);

/* rxe_migr_uverbs.c: the methods of rdma/rxe_migrate.h */
extern const struct uapi_definition rxe_migr_uverbs_defs[];

#endif /* RXE_MIGR_H */
