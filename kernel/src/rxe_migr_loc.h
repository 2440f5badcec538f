/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Migration of queue pairs: what its files share. A file calls only files that are
 * listed before it, so there is no circle. rxe_ns.c, for network namespaces, is not
 * one of them: it calls some of these files, and only upstream's files call it.
 *
 * Each group says which locks its functions take or want. The order of locks is in
 * rxe_migr.h.
 */
#ifndef RXE_MIGR_LOC_H
#define RXE_MIGR_LOC_H

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_queue.h"
#include "uverbs.h"
#include "rdma_core.h"

/* ------------------------------------------------- a QP, and its packets -- */

/* rxe_migr_addr.c: addresses. No locks. */
void rxe_migr_sgid(const struct rxe_av *av, union ib_gid *gid);
bool rxe_migr_same_family(const u8 *gid, const u8 *other);
void rxe_migr_packet_gids(struct sk_buff *skb, union ib_gid *from,
			  union ib_gid *to);
void rxe_migr_call_at(struct rxe_dev *rxe, struct rxe_av *av,
		      const union ib_gid *gid);
int rxe_migr_find_source(struct rxe_dev *rxe, struct net_device *came_by,
			 struct rxe_av *av);
void rxe_migr_answer_av(struct rxe_dev *rxe, struct rxe_av *av,
			const union ib_gid *from, const union ib_gid *to);

/* rxe_migr_key.c: the cluster's key. Takes a spinlock of its own, from softirq, too. */
bool rxe_migr_have_key(void);
bool rxe_migr_speaks(void);
bool rxe_migr_sign(struct rxe_migr_hdr *hdr);
bool rxe_migr_verify(const struct rxe_migr_hdr *hdr, bool *authentic);
int rxe_migr_key_op(const struct rxe_migr_key *key, u64 *fingerprint);

/* Does the state change? Element from of arcs is a mask of the states that may follow it. */
static inline bool rxe_migr_is_arc(const u8 *arcs, u8 from, u8 to)
{
	return from != to && !WARN_ON_ONCE(!(arcs[from] & BIT(to)));
}

/* How many jiffies are left until end? It reads jiffies once: a CPU may stand still. */
static inline unsigned long rxe_migr_left(unsigned long end)
{
	unsigned long now = jiffies;

	return time_before(now, end) ? end - now : 0;
}

/* Is epoch a newer than b, in serial number arithmetic? */
static inline bool rxe_migr_newer(u32 a, u32 b)
{
	return (s32)(a - b) > 0;
}

/* Does the responder of a stopped QP still run? qp->state_lock is held. */
static inline bool rxe_migr_takes_in(const struct rxe_qp *qp)
{
	return qp->migr.rest == RXE_MIGR_REST_ARRIVING ||
	       qp->migr.rest == RXE_MIGR_REST_HUSHED;
}

/* Does the requester of a stopped QP run no more? qp->state_lock is held. */
static inline bool rxe_migr_is_hushed(const struct rxe_qp *qp)
{
	return qp->migr.rest == RXE_MIGR_REST_HUSHED ||
	       qp->migr.rest == RXE_MIGR_REST_FULL;
}

/* rxe_migr_state.c: the table of states. qp->state_lock is held. */
void rxe_migr_set_state(struct rxe_qp *qp, enum rxe_migr_qp_state to);
void rxe_migr_set_peer(struct rxe_qp *qp, enum rxe_migr_peer_state to);
void rxe_migr_set_call(struct rxe_qp *qp, enum rxe_migr_call_state to);
void rxe_migr_set_speech(struct rxe_qp *qp, enum rxe_migr_speech to);
/* qp->migr.mutex is held, too. */
void rxe_migr_set_rest(struct rxe_qp *qp, enum rxe_migr_rest to);
void rxe_migr_give_grace(struct rxe_qp *qp);
/* qp->state_lock is held, or nothing can change the QP: see rxe_migr_connected(). */
bool rxe_migr_connected(struct rxe_qp *qp);
bool rxe_migr_failed(struct rxe_qp *qp);
/* No locks. */
struct rxe_ucontext *rxe_migr_qp_uctx(struct rxe_qp *qp);
struct rxe_qp *rxe_migr_next_qp(struct rxe_ucontext *uc, unsigned long *index);

/* Each QP of the context. The body has a reference to it, and must not leave the loop. */
#define rxe_migr_for_each_qp(qp, index, uc)				\
	for ((index) = 0; ((qp) = rxe_migr_next_qp(uc, &(index)));	\
	     rxe_put(qp), (index)++)

/*
 * rxe_migr_task.c: the tasks of a QP, and packets that wait for them. Called from
 * the task, or while it is disabled under qp->migr.mutex. The last three are called
 * under that mutex only. rxe_migr_enable() takes qp->state_lock.
 */
void rxe_migr_purge(struct rxe_qp *qp, struct sk_buff_head *pkts);
void rxe_migr_purge_requests(struct rxe_qp *qp);
void rxe_migr_disable(struct rxe_qp *qp);
void rxe_migr_enable(struct rxe_qp *qp);
void rxe_migr_rewind(struct rxe_qp *qp);

/* rxe_migr_pause.c: a QP waits for its peer. qp->state_lock is held. */
u32 rxe_migr_pause_ms(void);
void rxe_migr_set_deadline(struct rxe_qp *qp);
void rxe_migr_extend_pause(struct rxe_qp *qp);
u16 rxe_migr_wait_s(const struct rxe_qp *qp);
void rxe_migr_pause_qp(struct rxe_qp *qp, u32 epoch);
void rxe_migr_unpause(struct rxe_qp *qp);
void rxe_migr_sure_qp(struct rxe_qp *qp);
void rxe_migr_note_resume(struct rxe_qp *qp);

/* rxe_migr_raw.c: a packet in memory, and one without a device. Under RCU. */
void rxe_migr_write(struct rxe_pkt_info *pkt, const struct rxe_migr_hdr *hdr);
void rxe_migr_send_raw(const struct sk_buff *in,
		       const struct rxe_global_route *grh,
		       const struct rxe_migr_hdr *hdr);

/* rxe_migr_send.c: packets that are sent. Takes qp->state_lock. */
#define RXE_MIGR_PAYLEN (RXE_BTH_BYTES + sizeof(struct rxe_migr_hdr) + \
			 RXE_ICRC_SIZE)
#define RXE_MIGR_PAYLEN_MIN (RXE_BTH_BYTES + RXE_MIGR_HDR_LEN_MIN + \
			     RXE_ICRC_SIZE)

int rxe_migr_send(struct rxe_qp *qp, u8 opcode);
int rxe_migr_send_to(struct rxe_qp *qp, u8 opcode, const union ib_gid *dgid);
void rxe_migr_send_moved(struct rxe_qp *qp);
void rxe_migr_answer(struct rxe_pkt_info *pkt, struct rxe_av *av, u8 opcode,
		     struct rxe_migr_hdr *hdr);
void rxe_migr_send_gone(struct rxe_pkt_info *pkt,
			const struct rxe_migr_hdr *stop,
			const union ib_gid *from, const union ib_gid *to,
			bool moved);
int rxe_migr_send_by_gsi(struct rxe_dev *rxe, struct rxe_av *av, u8 opcode,
			 const struct rxe_migr_hdr *hdr);
/* qp->state_lock is held, or the QP is being destroyed. */
void rxe_migr_bind(const struct rxe_qp *qp, struct rxe_migr_hdr *hdr);
bool rxe_migr_is_bound(const struct rxe_migr_hdr *hdr,
		       const struct rxe_migr_hdr *mine);
bool rxe_migr_peer_knows(const struct rxe_qp *qp);
bool rxe_migr_peer_is_unknown(struct rxe_qp *qp);
bool rxe_migr_peer_is_silent(struct rxe_qp *qp);

/*
 * rxe_migr_conn.c: connections of the CM. conn_lock protects them; it is held for
 * the first three functions, and taken by the others.
 */

/* How sure the three ids of an entry are. They never get less sure. */
enum rxe_migr_conn_ids {
	RXE_MIGR_IDS_UNKNOWN,	/* the CM has sent nothing yet, or was not listed */
	RXE_MIGR_IDS_GUESSED,	/* from a DREQ or REP: a later one may correct them */
	RXE_MIGR_IDS_KNOWN,
};

/* What becomes of the MADs of a connection. rxe_migr_set_conn() has the arcs. */
enum rxe_migr_conn_phase {
	RXE_MIGR_CONN_EXPECTED,	/* a restore connects it: they are answered here */
	RXE_MIGR_CONN_LIVE,	/* the QP runs here, or has run: ids are translated */
	RXE_MIGR_CONN_STOPPED,	/* the QP is stopped, or was destroyed so: dropped */
};

struct rxe_migr_conn {
	struct list_head	list;
	enum rxe_migr_conn_phase phase;
	u32			qpn;
	u32			dest_qpn;
	enum rxe_migr_conn_ids	ids;
	u32			local_id;	/* given by the CM of this host */
	u32			wire_id;	/* by which the peer knows this end */
	u32			remote_id;
	u8			cookie[8];	/* of the REQ by which a restore connects */
	union ib_gid		peer;		/* address of the QP's peer */
	union ib_gid		was;		/* moved: where our CM calls the peer */
	struct rxe_av		av;		/* moved: the peer's address now */
	unsigned long		expires;	/* valid if mortal */

	/* flags that do not exclude each other */
	bool			left;		/* the peer had disconnected before the move */
	bool			moved;		/* the peer has moved */
	bool			gone;		/* the QP is gone; its number may recur */
	bool			deaf;		/* the connection came back as another entry */
	bool			mortal;		/* the entry has a lease */
};

#define rxe_migr_for_each_conn(conn, rxe)				\
	list_for_each_entry(conn, &(rxe)->migr->conns, list)

void rxe_migr_conn_expire(struct rxe_dev *rxe, struct rxe_migr_conn *conn);
struct rxe_migr_conn *rxe_migr_qp_conn(struct rxe_dev *rxe, u32 qpn);
void rxe_migr_learn(struct rxe_migr_conn *conn, u32 local_id, u32 remote_id,
		    enum rxe_migr_conn_ids ids);
int rxe_migr_stop_conn(struct rxe_qp *qp, u32 local_id, u32 remote_id);
int rxe_migr_expect_conn(struct rxe_qp *qp,
			 const struct rxe_migr_cm_connect *in);
void rxe_migr_go_conn(struct rxe_qp *qp);
void rxe_migr_move_conn(struct rxe_qp *qp, const union ib_gid *was);
void rxe_migr_orphan_conn(struct rxe_qp *qp);
u32 rxe_migr_wire_id(struct rxe_dev *rxe, u32 local_id);
bool rxe_migr_reap_conns(struct rxe_migr_dev *dev);
void rxe_migr_free_conns(struct rxe_migr_dev *dev, bool all);

/* rxe_migr_mad.c: MADs of those connections. See rxe_migr.h. */

/*
 * rxe_migr_tomb.c: tombstones. RCU protects them, and a lock in each tombstone
 * protects what it learns later.
 */
void rxe_migr_bury(struct rxe_qp *qp);
void rxe_migr_unbury(struct rxe_qp *qp);
void rxe_migr_ask_tomb(struct rxe_migr_dev *dev, struct rxe_pkt_info *pkt,
		       u32 qpn);
bool rxe_migr_rcv_tomb(struct rxe_migr_dev *dev, struct rxe_pkt_info *pkt,
		       const struct rxe_migr_hdr *hdr,
		       const union ib_gid *from, const union ib_gid *to,
		       bool authentic, bool *found);
unsigned int rxe_migr_tomb_status(struct rxe_dev *rxe,
				  struct rxe_migr_status *st, unsigned int max);
bool rxe_migr_reap_tombs(struct rxe_migr_dev *dev);
void rxe_migr_free_tombs(struct rxe_migr_dev *dev);

/* rxe_migr_work.c: the delayed work of a QP. Takes qp->migr.mutex and state_lock. */
#define RXE_MIGR_BACKOFF_MIN	msecs_to_jiffies(10)
#define RXE_MIGR_BACKOFF_MAX	msecs_to_jiffies(500)

unsigned long rxe_migr_first_wait(struct rxe_qp *qp);
/* From softirq, too: takes state_lock alone. */
void rxe_migr_kick(struct rxe_qp *qp, unsigned long delay);
void rxe_migr_work(struct work_struct *work);

/* rxe_migr_stop.c: a QP stops. Takes qp->migr.mutex and state_lock. */
void rxe_migr_stop_qp(struct rxe_qp *qp);
void rxe_migr_hush_qp(struct rxe_qp *qp);
bool rxe_migr_arrived(struct rxe_qp *qp);
void rxe_migr_drain_qp(struct rxe_qp *qp);
void rxe_migr_announce_stop(struct rxe_qp *qp);
void rxe_migr_renew_stop(struct rxe_qp *qp);
/* qp->state_lock is held. */
u64 rxe_migr_peer_waits(struct rxe_qp *qp, u64 stop_ns);

/* rxe_migr_go.c: a QP goes on. Takes qp->migr.mutex and state_lock. */
void rxe_migr_go_qp(struct rxe_qp *qp);
void rxe_migr_release_qp(struct rxe_qp *qp);
/* qp->state_lock is held. */
void rxe_migr_resumed_qp(struct rxe_qp *qp, bool waits);

/* rxe_migr_rcv.c: packets that are received. See rxe_migr.h. */

/* ---------------------------------------------- a context, while restored -- */

/* rxe_migr_hint.c: identities of objects. Takes uc->migr.lock. */
int rxe_migr_taken(struct rxe_dev *rxe, const struct rxe_migr_hint *in);
int rxe_migr_set_hint(struct rxe_ucontext *uc, const struct rxe_migr_hint *in,
		      struct pid *pid);
void rxe_migr_drop_hint(struct rxe_ucontext *uc);

/* rxe_migr_file.c: a context's open file. Takes rxe->pending_lock, or a mutex of its own. */
void rxe_migr_drop_rings(struct rxe_ucontext *uc);
int rxe_migr_adopt(struct rxe_ucontext *uc, struct pid *pid);
ssize_t rxe_migr_write_as_owner(const struct file_operations *fops,
				struct file *file, const char __user *buf,
				size_t count, loff_t *pos);
void rxe_migr_give_file(struct file *file, struct task_struct *task);

/* rxe_migr.c: lifetimes of devices, contexts and QPs. See rxe_migr.h. */

/* ---------------------------------------------------- objects and records -- */

/*
 * ufile->hw_destroy_rwsem is held for all of these: for writing to refill, and to
 * stop and dump. It is held for reading to dump the context of a program that runs:
 * then the dump has a reference to one object after the other, and objects change
 * meanwhile.
 */

/* rxe_migr_rec.c: what all records share. */
struct rxe_migr_uobjs {
	struct ib_uobject	**object;
	u32			num;
	u32			num_files;	/* event files, the first ones */
	bool			locked;		/* hw_destroy_rwsem is held for writing */
};
struct rxe_migr_sink {
	const struct rxe_migr_uobjs *all;
	void	*buf;		/* NULL: only count */
	size_t	size;
	size_t	length;
	u32	count;
	const struct mm_struct *mm;	/* the last mm that was looked for ... */
	pid_t	pid;			/* ... and the process that has it, or 0 */
};
void *rxe_migr_put(struct rxe_migr_sink *sink, u16 type, u32 handle,
		   size_t length);
bool rxe_migr_is_event_file(const struct ib_uobject *uobj, u32 *type);
u32 rxe_migr_event_ordinal(const struct rxe_migr_sink *sink,
			   const struct ib_uobject *uobj);
u32 rxe_migr_async_ordinal(const struct rxe_migr_sink *sink,
			   const struct ib_uevent_object *uevent);
u32 rxe_migr_comp_ordinal(const struct rxe_migr_sink *sink,
			  const struct ib_cq *cq);
void rxe_migr_dump_other(struct ib_uobject *uobj, struct rxe_migr_sink *sink);
struct ib_uobject *rxe_migr_uobj(struct ib_uverbs_file *ufile, u32 handle,
				 u16 object_id);
struct ib_uobject *rxe_migr_ucq(struct ib_uverbs_file *ufile,
				const struct rxe_migr_rec *hdr);
struct rxe_qp *rxe_migr_uqp(struct ib_uverbs_file *ufile,
			    const struct rxe_migr_rec *hdr);
struct rxe_srq *rxe_migr_usrq(struct ib_uverbs_file *ufile,
			      const struct rxe_migr_rec *hdr);
void rxe_migr_forget_events(struct ib_uverbs_event_queue *queue,
			    struct list_head *list);
void rxe_migr_forget_uevents(struct ib_uevent_object *uevent);

/* rxe_migr_ring.c: rings. The lock of the object that has the ring is held. */
u64 rxe_migr_ring_offset(const struct rxe_queue *q);
void rxe_migr_dump_ring(struct rxe_queue *q, u32 handle, u32 which,
			struct rxe_migr_sink *sink);
int rxe_migr_refill_queue(struct rxe_queue *q,
			  const struct rxe_migr_rec_ring *rec, size_t length);

/* rxe_migr_pd.c. No locks. */
void rxe_migr_dump_pd(struct ib_uobject *uobj, struct rxe_migr_sink *sink);

/* rxe_migr_mr.c. Takes the lock of the pool of PDs. */
void rxe_migr_dump_mr(struct ib_uobject *uobj, struct rxe_migr_sink *sink);

/* rxe_migr_cq.c. Takes cq->cq_lock. */
void rxe_migr_dump_cq(struct ib_uobject *uobj, struct rxe_migr_sink *sink);
int rxe_migr_refill_cq(struct ib_uverbs_file *ufile,
		       const struct rxe_migr_rec *hdr, size_t length);
int rxe_migr_refill_cq_ring(struct ib_uverbs_file *ufile,
			    const struct rxe_migr_rec_ring *rec, size_t length);

/* rxe_migr_srq.c. Takes srq->migr_mutex. */
void rxe_migr_dump_srq(struct ib_uobject *uobj, struct rxe_migr_sink *sink);
int rxe_migr_refill_srq(struct ib_uverbs_file *ufile,
			const struct rxe_migr_rec *hdr, size_t length);
int rxe_migr_refill_srq_ring(struct ib_uverbs_file *ufile,
			     const struct rxe_migr_rec_ring *rec, size_t length);

/* rxe_migr_ah.c. No locks. */
void rxe_migr_dump_ah(struct ib_uobject *uobj, struct rxe_migr_sink *sink);
int rxe_migr_refill_ah(struct ib_uverbs_file *ufile,
		       const struct rxe_migr_rec *hdr, size_t length);

/* rxe_migr_res.c: responder resources of a QP. qp->migr.mutex is held; refill takes it itself. */
u8 rxe_migr_res_type(int type);
void rxe_migr_dump_res(const struct resp_res *res, u8 type, u32 handle,
		       u16 index, struct rxe_migr_sink *sink);
int rxe_migr_refill_res(struct ib_uverbs_file *ufile,
			const struct rxe_migr_rec *hdr, size_t length);

/* rxe_migr_qp.c. Takes qp->migr.mutex. */
void rxe_migr_dump_qp(struct ib_uobject *uobj, struct rxe_migr_sink *sink);
int rxe_migr_refill_qp(struct ib_uverbs_file *ufile,
		       const struct rxe_migr_rec *hdr, size_t length);
int rxe_migr_refill_recv_wqe(struct ib_uverbs_file *ufile,
			     const struct rxe_migr_rec *hdr, size_t length);
int rxe_migr_refill_qp_ring(struct ib_uverbs_file *ufile,
			    const struct rxe_migr_rec_ring *rec, size_t length);

/* rxe_migr_mw.c. Takes mw->lock. */
void rxe_migr_dump_mw(struct ib_uobject *uobj, struct rxe_migr_sink *sink);
int rxe_migr_refill_mw(struct ib_uverbs_file *ufile,
		       const struct rxe_migr_rec *hdr, size_t length);

/* rxe_migr_event.c: event files and their events. Takes the lock of their queue. */
void rxe_migr_dump_event_file(struct ib_uverbs_file *ufile,
			      struct ib_uobject *uobj,
			      struct rxe_migr_sink *sink);
void rxe_migr_dump_events(struct ib_uobject *uobj, struct rxe_migr_sink *sink);
int rxe_migr_refill_event(struct ib_uverbs_file *ufile,
			  const struct rxe_migr_rec *hdr, size_t length);

/* rxe_migr_dump.c: the walk over objects. */
int rxe_migr_get_objects(struct ib_uverbs_file *ufile,
			 struct rxe_migr_uobjs *all);
void rxe_migr_put_objects(struct rxe_migr_uobjs *all);
int rxe_migr_dump_ufile(struct ib_uverbs_file *ufile, struct rxe_ucontext *uc,
			struct rxe_migr_sink *sink);

/* rxe_migr_refill.c: the walk over records. */
int rxe_migr_refill_ufile(struct ib_uverbs_file *ufile, const void *buf,
			  size_t length);

/* --------------------------------------------------------------- rdma_cm -- */

/* rxe_migr_ucma_file.c: open files of rdma_cm. Takes a mutex of its own. */
int rxe_migr_adopt_cm(struct file *file, struct pid *pid);
bool rxe_migr_is_cm(const struct file *file);
int rxe_migr_cm_device(struct file *file, struct rxe_dev *rxe,
		       const struct rxe_migr_cm_device *in,
		       struct rxe_migr_cm_device *out);

/* rxe_migr_ucma.c: ids and events. Takes ucma's own mutex of the file, and of the id. */
int rxe_migr_cm_ids(struct file *file, void *entries, unsigned int max,
		    unsigned int *count, u32 flags);
int rxe_migr_cm_refill(struct file *file, const struct rxe_migr_cm_refill *in);
int rxe_migr_cm_events(struct file *file, void *entries, unsigned int max,
		       unsigned int *count, u32 flags);
int rxe_migr_cm_report(struct file *file,
		       const struct rxe_migr_cm_event *resp);

/* -------------------------------------------------------- uverbs methods -- */

/* rxe_migr_ctx.c: a whole context. ufile->hw_destroy_rwsem is held; to stop, for writing. */
void rxe_migr_set_ctx_state(struct rxe_ucontext *uc, u32 state);
void rxe_migr_go_ctx(struct rxe_ucontext *uc);
int rxe_migr_dump_ctx(struct ib_uverbs_file *ufile, struct rxe_ucontext *uc,
		      bool stop, struct rxe_migr_sink *sink, bool *did_stop);
int rxe_migr_unstop_ctx(struct rxe_ucontext *uc, u64 since);

/* rxe_migr_method.c: what methods share. No locks. */
#define RXE_MIGR_IN(type)						\
	UVERBS_ATTR_PTR_IN(RXE_ATTR_MIGR_IN, UVERBS_ATTR_TYPE(type),	\
			   UA_MANDATORY)
/* RESP may grow at its tail, so an older caller may have a shorter one. */
#define RXE_MIGR_RESP(type, last)					\
	UVERBS_ATTR_PTR_OUT(RXE_ATTR_MIGR_RESP,				\
			    UVERBS_ATTR_STRUCT(type, last), UA_MANDATORY)

struct rxe_ucontext *rxe_migr_caller(struct uverbs_attr_bundle *attrs);
int rxe_migr_answer_list(struct uverbs_attr_bundle *attrs, u64 addr,
			 const void *list, size_t size, u32 count,
			 unsigned int max);

/*
 * rxe_migr_uverbs_dev.c, rxe_migr_uverbs_cm.c and rxe_migr_uverbs.c: methods of a
 * device, of a file of rdma_cm, and of a context. Those of the last two files take
 * hw_destroy_rwsem where they need it.
 */
extern const struct uapi_definition rxe_migr_dev_defs[];
extern const struct uapi_definition rxe_migr_cm_defs[];

#endif /* RXE_MIGR_LOC_H */
