/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A swap device whose pages lie at donors of memory, behind RDMA, and on a disk. What its files share.
 *
 * Locks, each one taken inside of those above it:
 *
 *	rs_devs_lock		mutex	which devices there are
 *	rs_dev.lock		mutex	its donors, and whether it is being removed
 *	rs_ib_lock		mutex	which RDMA devices there are, and who has verbs objects on them
 *	rs_bucket.lock		spin	(irq) pages with a write under way, and their bits in remote, bad and owed
 *	rs_donor.lock		spin	(irq) its state, its notices
 *	rs_slab.lock		spin	(irq) its state, its references, its donor; inside of rs_bucket.lock or rs_donor.lock
 *	rs_dev.pool_lock	spin	(irq) free buffers, and who waits for one
 *	rs_dev.disk_lock	spin	(irq) what the disk has still to get
 *
 * I/O takes spin locks only. Verbs objects of a donor are made under rs_ib_lock. All other work that sleeps and concerns one
 * donor runs in the donor's own ordered workqueue, so that a donor that is silent for a minute, because it moves, holds up no
 * other donor. That workqueue waits for its donor, or for the disk, as an idle task (TASK_IDLE), which the kernel does not report
 * as hung.
 */
#ifndef RMEM_SWAP_LOC_H
#define RMEM_SWAP_LOC_H

#include <linux/bio.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/irq_poll.h>
#include <linux/irq_work.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rmem/swap.h>
#include <rmem/wire.h>

#define RS_PAGE_SECTORS (RMEM_PAGE >> SECTOR_SHIFT)
#define RS_DEPTH 2048		/* page I/Os under way at most, in all hardware queues together */
#define RS_QUEUES 8		/* hardware queues at most for reads, and as many for all else: 128 requests of each, or more */
#define RS_MAX_DONORS 64
#define RS_MAX_SLABS 65536
#define RS_RECVS (RMEM_SLOTS + 1)	/* receives that are posted for a donor */
#define RS_NOTICES 64		/* of one donor that wait at most; a sane donor has one notice under way */
#define RS_REASON 96
#define RS_HOT_DEFAULT 20
#define RS_PERIOD_DEFAULT 1000	/* ms */
#define RS_WEIGHT_DEFAULT 20	/* per cent */

static_assert(PAGE_SIZE == RMEM_PAGE);

/* Counters of a device, and most of them of each donor, too; in the order of their attributes. */
enum rs_count {
	RS_OUT_REMOTE, RS_OUT_DISK, RS_IN_REMOTE, RS_IN_DISK, RS_IN_BUFFER, RS_MAPS, RS_UNMAPS, RS_EVICTIONS, RS_LOST,
	RS_REQUEUED, RS_DISCARDED, RS_DISK_ERRORS, RS_COUNTS,
};

struct rs_stats {
	atomic64_t n[RS_COUNTS];
};

enum rs_slab_state { RS_UNMAPPED, RS_MAPPING, RS_MAPPED, RS_UNMAPPING };

struct rs_slab {
	spinlock_t lock;
	enum rs_slab_state state;	/* slab.c has its arcs */
	unsigned int refs;		/* I/O under way at the donor */
	unsigned int writers;		/* those of refs that write */
	bool closed;			/* while MAPPED: new writes go to the disk alone; reads still find what the donor has */
	struct rs_donor *donor;		/* NULL if UNMAPPED; the donor outlives the mapping */
	u64 addr;			/* while MAPPED, or there are references */
	u32 rkey;
	atomic_t ios;			/* page I/Os since the last tick */
	u64 heat;			/* page I/Os in 1000 seconds; the tick alone writes it */
};

/* A page with a write under way; page.c has the rules. The lock of its bucket protects all of it. */
struct rs_page {
	struct hlist_node node;		/* in its bucket, or in rs_dev.free_pages */
	u64 index;
	struct rs_buf *active;		/* its request is under way */
	struct rs_buf *ready;		/* newer than writing, and goes to the disk next */
	struct rs_buf *writing;		/* is being written to the disk */
	struct list_head waiting;	/* rs_buf.list: requests that come after the active one, in their order */
};

struct rs_bucket {
	spinlock_t lock;
	struct hlist_head pages;
};

/* The data of one write, until the disk has it. */
struct rs_buf {
	struct list_head list;		/* free; rs_page.waiting; or rs_dev.to_disk */
	struct list_head pending;	/* of rs_dev.pending, in the order of seq */
	u64 seq;
	struct rs_dev *dev;
	struct rs_page *page;
	struct page *data;
	struct rs_io *io;		/* its request, until that has ended */
	bool late;			/* its request, if it has one, ends when the disk has the data, not when the donor has */
	bool owed;			/* its request, or that of a buffer it replaced, has ended; under its bucket's lock */
	bool alone;			/* no donor has got it */
	bool unread;			/* it will get its data from the donor, and has none yet */
	bool fua;
	struct bio bio;
	struct bio_vec bvec;
};

/* A request of the block layer. */
struct rs_io {
	struct list_head list;		/* starved, again, flushes, ios_to_disk, or reads */
	struct rs_dev *dev;
	u64 index;			/* of its page */
	struct rs_slab *slab;		/* to which it holds a reference, while it is at the donor */
	struct rs_donor *donor;
	unsigned long posted;		/* jiffies */
	struct rs_buf *buf;		/* of a write */
	struct bio_vec bvec;		/* of a read or write: its memory */
	u64 seq;			/* of a flush: it waits for the buffers with a lower seq */
	bool fails;			/* of a flush: the disk lacks data of a request that had ended */
	u64 dma;
	struct ib_cqe cqe;
	struct bio bio;			/* of a read, a flush, a discard */
	blk_status_t status;
	bool saves;			/* it belongs to save.c, and to no request */
	bool ended;			/* if saves: it has ended */
};

/*
 *	RS_DEV_STAYS -> RS_DEV_CLOSED, RS_DEV_GOES	its removal begins
 *	RS_DEV_CLOSED, RS_DEV_GOES -> RS_DEV_STAYS	a donor stays, or the removal is killed, so the device stays
 *
 * A donor is added only to a device that stays. A donor that may alone have pages stays when the device is closed, and not when
 * the device goes.
 */
enum rs_dev_phase { RS_DEV_STAYS, RS_DEV_CLOSED, RS_DEV_GOES };

struct rs_dev {
	struct list_head list;		/* rs_devs */
	struct kref ref;
	struct mutex lock;
	char name[RMEM_SWAP_NAME_SIZE];
	enum rs_dev_phase phase;	/* under lock */
	bool claimed;			/* under gendisk->open_mutex: nobody can open it */
	struct gendisk *gendisk;
	struct blk_mq_tag_set tags;

	char *disk_path;
	struct file *disk_file;
	struct block_device *disk;

	u64 pages;
	u64 slab_size;
	unsigned int slab_shift;	/* pages in a slab */
	unsigned int n_slabs;
	struct rs_slab *slabs;
	unsigned long *remote;		/* a bit for each page: its donor has it */
	unsigned long *bad;		/* the disk does not have it, since a write failed */
	unsigned long *owed;		/* it is bad, and lacks data of a request that had ended */
	atomic64_t n_owed;		/* pages: while there are any, flushes fail */
	u32 hot;
	u32 period;	/* of a measurement, in ms */
	u32 weight;	/* of the newest one in a slab's heat, in per cent */
	struct rs_stats stats;
	atomic_t disk_failed;		/* pages, since the last event that told of this */

	unsigned int n_buckets;		/* a power of two */
	struct rs_bucket *buckets;

	spinlock_t pool_lock;
	unsigned int n_buffers, n_free;
	struct rs_buf *buffers;
	struct list_head free_buffers;
	struct rs_page *page_array;	/* as many as buffers: each page in use has a buffer */
	struct hlist_head free_pages;
	struct list_head starved;	/* rs_io.list: writes that wait for a buffer */
	struct list_head again;		/* rs_io.list: to be run anew, or to be posted */
	struct work_struct again_work;

	spinlock_t disk_lock;
	u64 seq;			/* of the next buffer */
	unsigned int n_pending;
	struct list_head pending;	/* buffers that the disk does not have yet */
	struct list_head flushes;	/* rs_io.list: they wait for some of these buffers */
	struct list_head to_disk;	/* rs_buf.list */
	struct list_head ios_to_disk;	/* rs_io.list: discards, and flushes that have waited */
	struct list_head reads;		/* rs_io.list: from the disk */
	struct workqueue_struct *disk_wq, *read_wq;	/* for disk_work alone, and for read_work alone */
	struct work_struct disk_work, read_work;

	wait_queue_head_t wait;		/* woken by the last put of a slab, free buffers, saved pages, donors that fail or talk */
	struct list_head donors;
	unsigned int n_donors;
	struct delayed_work tick;
	struct work_struct place_work;
};

/* A slab, as the donor names it. */
struct rs_named {
	u64 tag, addr;
	unsigned long until;	/* jiffies, of a notice: half-way to the time at which the donor takes the slab in any case */
};

enum { RS_FAILED };			/* rs_donor.flags */

struct rs_donor {
	struct list_head list;		/* rs_dev.donors */
	struct kref ref;
	struct rs_dev *dev;		/* holds a reference */
	char name[RMEM_SWAP_DONOR_SIZE];
	spinlock_t lock;
	enum rmem_swap_donor_state state;
	unsigned long flags;
	char reason[RS_REASON];		/* why it failed; written once, before RS_FAILED can be seen */
	bool connecting;
	bool on_disk;			/* its workqueue waits for the disk now */
	unsigned int steps;		/* of its workqueue, for the disk or a list of regions: while they grow, commands wait */
	struct rs_stats stats;
	atomic_t n_slabs;		/* that are mapped, or about to be */

	/* Verbs: made under rs_ib_lock, destroyed by the donor's workqueue. */
	struct rs_ibdev *ibdev;		/* NULL: there are none */
	struct list_head on_ibdev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	ib_comp_handler poll;		/* polls cq in a softirq */
	struct irq_work poll_work;
	struct ib_qp *qp;
	u8 port;
	u8 gid_index;
	bool drained;
	char ibdev_name[IB_DEVICE_NAME_MAX];
	u32 qpn, psn, mtu;
	union ib_gid gid;
	u32 peer_qpn, peer_psn, peer_mtu;
	union ib_gid peer_gid;

	/* Messages: one request at a time, from the donor's workqueue. */
	struct rs_recv *recvs;
	struct rmem_msg *out;
	u64 out_dma;
	struct ib_cqe out_cqe;
	struct rmem_msg *in;		/* a copy of the answer */
	atomic_t ask_left;		/* completions until it is answered */
	u16 ask_type;			/* 0: nothing is asked; under lock */
	u64 ask_id;
	struct completion asked;
	u64 txn;			/* number of the last transaction */

	/* Under lock: notices that are not handled yet. */
	struct rs_named evicts[RS_NOTICES];
	unsigned int first_evict, n_evicts;
	bool heat_asked;
	u32 heat_round, heat_count;
	u64 heat_tags[RMEM_HEAT_MAX];

	u64 room;			/* bytes that it has left, as it last said */
	unsigned int rooms;		/* how often it said so */
	unsigned long shun_until;	/* jiffies: until then it gets no slab: it has refused or evicted one */
	bool shunned;

	struct workqueue_struct *wq;
	struct work_struct connect_work, map_work, room_work, notice_work, lost_work, leave_work, free_work;
	struct completion connected;
	/* Under rs_dev.lock: */
	struct list_head leavers;	/* commands that wait until it has left, or stays */
	bool was_up;			/* before it was LEAVING */
	bool lingers;			/* no command waits any more until it has left: it is up again as soon as it answers */
	bool gone;			/* it leaves for good */
	int connect_ret;
};

static inline void rs_count(struct rs_stats *stats, enum rs_count what)
{
	atomic64_inc(&stats->n[what]);
}

static inline void rs_count_both(struct rs_donor *d, enum rs_count what)
{
	rs_count(&d->stats, what);
	rs_count(&d->dev->stats, what);
}

/* The kernel exports this function, and declares it in a header that lies outside of include/ (block/blk-wbt.h). */
#ifdef CONFIG_BLK_WBT
void wbt_disable_default(struct gendisk *disk);
#else
static inline void wbt_disable_default(struct gendisk *disk)
{
}
#endif

/* work.c */
extern struct workqueue_struct *rs_wq, *rs_slow_wq;
int rs_wqs_make(void);
void rs_wqs_destroy(void);

/* dev.c */
extern struct mutex rs_devs_lock;
extern struct list_head rs_devs;
struct rs_dev_config {
	const char *name, *disk;
	u64 size, slab;		/* 0: the default */
	u32 hot, buffers;
};
int rs_dev_add(const struct rs_dev_config *config, struct netlink_ext_ack *extack);
int rs_dev_del(struct rs_dev *dev, bool force, struct netlink_ext_ack *extack);
struct rs_dev *rs_dev_find(const char *name);
void rs_devs_del_all(void);

/* ref.c */
void rs_dev_get(struct rs_dev *dev);
void rs_dev_put(struct rs_dev *dev);

/* queue.c */
extern const struct blk_mq_ops rs_mq_ops;
void rs_again_work(struct work_struct *work);
u32 rs_stalled(struct rs_donor *d);

/* io.c */
void rs_io_end(struct rs_io *io, blk_status_t status);
void rs_io_again(struct rs_io *io);
struct rs_io *rs_io_take(struct list_head *list, spinlock_t *lock);

/* page.c */
int rs_pages_init(struct rs_dev *dev, u32 buffers);
void rs_pages_free(struct rs_dev *dev);
struct rs_buf *rs_buf_get(struct rs_io *io);
struct rs_buf *rs_buf_take(struct rs_dev *dev);
void rs_buf_put(struct rs_buf *buf);
int rs_pages_wait(struct rs_dev *dev);
struct rs_io *rs_starved(struct rs_dev *dev, struct rs_buf **buf);
struct rs_io *rs_page_write(struct rs_io *io, struct rs_buf *buf);
struct rs_io *rs_page_written(struct rs_io *io, bool ok);
void rs_page_on_disk(struct rs_buf *buf, blk_status_t status);
enum rs_source { RS_FROM_BUFFER, RS_FROM_DONOR, RS_FROM_DISK, RS_FROM_NOWHERE };
enum rs_source rs_page_read(struct rs_io *io);
bool rs_page_save(struct rs_io *io, struct rs_buf *buf);
void rs_save_ended(struct rs_io *io, bool ok);
void rs_page_saved(struct rs_io *io, struct rs_buf *buf);
void rs_pages_discard(struct rs_dev *dev, u64 first, u64 count);

/* disk.c; disk_lock is not held */
int rs_disk_open(struct rs_dev *dev, const char *path, struct netlink_ext_ack *extack);
void rs_disk_close(struct rs_dev *dev);
void rs_disk_pend(struct rs_buf *buf, struct rs_buf *instead_of);
void rs_disk_write(struct rs_buf *buf);
void rs_disk_read(struct rs_io *io);
void rs_disk_flush(struct rs_io *io);
void rs_disk_discard(struct rs_io *io);
u64 rs_disk_seq(struct rs_dev *dev);
bool rs_disk_has(struct rs_dev *dev, u64 seq);
int rs_disk_wait(struct rs_dev *dev);
void rs_disk_work(struct work_struct *work);
void rs_read_work(struct work_struct *work);

/* slab.c */
bool rs_slab_get(struct rs_io *io);
void rs_slab_put(struct rs_io *io);
void rs_slab_close(struct rs_slab *slab, struct rs_dev *dev);
void rs_slab_reopen(struct rs_slab *slab);
void rs_slab_unmap(struct rs_slab *slab, struct rs_dev *dev);
void rs_slabs_leave(struct rs_donor *d);
bool rs_slab_claim(struct rs_slab *slab, struct rs_donor *d);
bool rs_slab_of(struct rs_slab *slab, struct rs_donor *d, enum rs_slab_state state);
void rs_slab_mapped(struct rs_slab *slab, u64 addr, u32 rkey);
void rs_slab_not_mapped(struct rs_slab *slab);
u64 rs_slab_bytes(struct rs_dev *dev, unsigned int index);
u64 rs_slab_pages(struct rs_dev *dev, unsigned int index);
static inline u64 rs_slab_tag(const struct rs_dev *dev, const struct rs_slab *slab)
{
	return slab - dev->slabs + 1;
}

/* save.c; from the donor's workqueue */
u64 rs_save_all(struct rs_donor *d, void (*evictions)(struct rs_donor *d));
u64 rs_save_slab(struct rs_donor *d, unsigned int index, unsigned long until);
u64 rs_alone(struct rs_donor *d, unsigned int first, unsigned int end);
void rs_save_tell(struct rs_donor *d, u64 lost);

/* place.c */
void rs_tick(struct work_struct *work);
void rs_place_work(struct work_struct *work);

/* verbs.c */
int rs_verbs_register(void);
void rs_verbs_unregister(void);
int rs_verbs_make(struct rs_donor *d, const char *ibdev, u32 port, u32 gid_index, struct netlink_ext_ack *extack);
int rs_verbs_connect(struct rs_donor *d);
void rs_verbs_destroy(struct rs_donor *d);
void rs_post_all(struct rs_io *io);

/* donor.c */
struct rs_donor_peer {
	u32 qpn, psn, mtu;
	union ib_gid gid;
	u64 txn;
};
int rs_donor_add(struct rs_dev *dev, const char *name, const char *ibdev, u32 port, u32 gid_index, struct rs_donor **made,
		 struct netlink_ext_ack *extack);
int rs_donor_connect(struct rs_dev *dev, const char *name, const struct rs_donor_peer *peer, struct netlink_ext_ack *extack);
int rs_donor_del(struct rs_dev *dev, const char *name, struct netlink_ext_ack *extack);
int rs_donors_leave(struct rs_dev *dev);
void rs_donors_stay(struct rs_dev *dev);
void rs_donors_wait(void);
void rs_donor_get(struct rs_donor *d);
void rs_donor_put(struct rs_donor *d);

/* fail.c */
bool rs_donor_is_up(struct rs_donor *d);
__printf(2, 3) void rs_donor_fail(struct rs_donor *d, const char *format, ...);
void rs_donor_reason(struct rs_donor *d, char reason[RS_REASON]);
void rs_verbs_drain(struct rs_donor *d);

/* control.c */
void rs_donor_map(struct rs_donor *d);
bool rs_donor_ask_room(struct rs_donor *d);
void rs_map_work(struct work_struct *work);
void rs_room_work(struct work_struct *work);
void rs_donor_evictions(struct rs_donor *d);
void rs_notice_work(struct work_struct *work);

/* talk.c: from the donor's workqueue */
int rs_talk_alloc(struct rs_donor *d, u64 tag, u64 size, u64 *addr, u32 *rkey);
int rs_talk_free_all(struct rs_donor *d);
int rs_talk_room(struct rs_donor *d, u64 *left);
int rs_talk_evicted(struct rs_donor *d, const struct rs_named *named);
int rs_talk_heat(struct rs_donor *d);

/* message.c */
int rs_messages_make(struct rs_donor *d, struct ib_device *ib);
void rs_messages_free(struct rs_donor *d, struct ib_device *ib);
int rs_post_recvs(struct rs_donor *d);
int rs_post_message(struct rs_donor *d, u32 size);
static inline void *rs_body_of(struct rmem_msg *msg)
{
	return msg + 1;
}

/* nl.c */
int rs_nl_register(void);
void rs_nl_unregister(void);

/* status.c */
int rs_nl_status(struct sk_buff *skb, struct netlink_callback *cb);

/* event.c */
extern struct genl_family rs_family;
extern bool rs_registered;
void rs_event(struct rs_dev *dev, enum rmem_swap_what what, struct rs_donor *d, const char *reason, const struct rs_slab *slab);

#endif
