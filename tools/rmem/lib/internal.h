/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of librmem. One mutex, rmem.lock, protects everything of a connection. Every function here must be called
 * with it locked, unless it says otherwise. Only wait_step() unlocks it, so its caller must look at everything again.
 *
 * A connection that breaks gives up its queue pair at once (connection_break()). From then on the device writes to no memory, and
 * every operation under way is done, with -ENOTCONN. All other objects stay until rmem_reconnect() or rmem_close().
 */
#ifndef RMEM_INTERNAL_H
#define RMEM_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/common.h"

#pragma GCC visibility push(default)
#include "rmem.h"
#pragma GCC visibility pop

#define DATA_DEPTH 128u	/* one-sided work requests under way */
#define BUFFERS 32u
#define BUFFER_SIZE 32768u
#define RECEIVES (RMEM_SLOTS + 1)

/* Work request ids: those of data are an index; each other kind has a range of its own. */
#define WR_SLOT 0x1000u
#define WR_PROBE 0x2000u
#define WR_RECEIVE 0x3000u
#define WR_KIND 0xf000u

enum state {
	DOWN,
	CONNECTING, /* one thread connects; all others get -ENOTCONN */
	UP,
};

/* READs and WRITEs of a region. */
struct heat {
	uint64_t average; /* operations in 1000 seconds, until @since */
	uint64_t count;	  /* operations from @since on */
	int64_t since;
};

struct region {
	struct rmem_region known;
	struct heat heat;
	uint32_t rkey;
	unsigned int busy; /* transfers and work requests that use it */
	bool leaving;	   /* the donor wants it back: nothing new begins */
	bool noticed;	   /* the donor has sent a notice, and waits for our answer */
	bool evicted;	   /* the donor has it back; it stays in the table so that its range is -ESTALE */
	bool gone;	   /* in no table any more: freed when it is not busy */
};

struct table {
	struct region **by_tag;
	struct region **by_addr;
	size_t count;
	size_t room;
};

/* Memory that the program has registered. */
struct memory {
	struct memory *next;
	uint8_t *start;
	size_t size;
	struct ibv_mr *mr; /* NULL: the connection is down, or registering failed; then buffers are used */
	unsigned int busy;
	bool leaving;	   /* a thread waits in rmem_unregister() */
};

/* A one-sided work request. */
struct wr {
	struct rmem_op *op;
	struct region *region;
	struct memory *memory;
	int buffer;	/* -1: none */
	void *copy_to;	/* of a get through a buffer */
	size_t size;
};

/* A region that is asked for. */
struct alloc {
	uint64_t tag, size;
	uint32_t flags;
	uint64_t *addr;	 /* the program's */
	uint64_t let_go; /* the highest address of this tag that was given back to the donor meanwhile; 0: none */
};

struct answer {
	struct wanted *wanted;
	unsigned int status; /* an enum rmem_status */
	const void *body;
	size_t size;
};

#define ASK_AGAIN 1

/* What is done with the answer to a message. */
struct wanted {
	struct rmem_op *op; /* that this message is a part of; NULL: nobody wants the answer */
	const char *what;   /* what a refusal of the donor is about; NULL: @answered handles a refusal, too */
	/* Returns 0 if this part of @op is done, -errno if it has failed, or ASK_AGAIN. Posts no message. */
	int (*answered)(struct rmem *r, const struct answer *answer);
	bool body;	    /* the answer has one */
	union {
		struct alloc alloc;
		struct list *list;
	};
};

/* One of RMEM_SLOTS messages under way. The device owns its buffer until it was sent. The slot is taken until the answer comes. */
struct slot {
	uint64_t id;	/* 0: nothing to be answered */
	uint16_t type;
	bool sending;
	struct wanted wanted;
	int64_t looked; /* when a thread last checked whether the answer is late */
	int64_t took;	/* how much of the time until @looked counts for too_late() */
};

/*
 *	TXN_OPEN	-> TXN_GOING		rmem_txn_go(), rmem_txn_go_async()
 *	TXN_GOING	-> TXN_OPEN		answered
 *	TXN_GOING	-> TXN_AGAIN		broken before GO was sent
 *	TXN_GOING	-> TXN_DOUBT		broken
 *	TXN_DOUBT	-> TXN_COMMITTED, TXN_AGAIN, TXN_FORGOTTEN	rmem_reconnect()
 *	TXN_COMMITTED	-> TXN_OPEN		rmem_txn_go() or rmem_txn_abort() has said so
 *	TXN_AGAIN	-> TXN_GOING, TXN_OPEN	rmem_txn_go(), rmem_txn_abort()
 *	TXN_OPEN, TXN_AGAIN -> TXN_FORGOTTEN	a restart of the donor, if anything was queued
 *	TXN_FORGOTTEN	-> TXN_OPEN		rmem_txn_go() or rmem_txn_abort() has said so
 */
enum txn_state { TXN_OPEN, TXN_GOING, TXN_DOUBT, TXN_COMMITTED, TXN_AGAIN, TXN_FORGOTTEN };

struct txn {
	enum txn_state state;
	struct {	/* TXN_GOING */
		enum { GO_QUEUE, GO_SENT, GO_FORGET } phase; /* sending the queue; GO sent; the donor is to forget the queue */
		struct rmem_op *op;	/* the caller's */
		size_t first;		/* of the entries that were not sent yet */
		unsigned int under_way; /* messages */
		unsigned int refused;	/* the first refusal of the donor, an enum rmem_status */
	} go;
	struct rmem_wire_op *ops; /* kept until answered */
	size_t count, room;
	uint64_t last;		  /* committed */
	uint64_t word;		  /* random, of the transaction that goes, or broke */
};

struct rmem {
	pthread_mutex_t lock;
	pthread_cond_t changed;	 /* something is done, or nobody polls any more */
	enum state state;
	unsigned int generation; /* one more whenever a connection breaks or is made */
	bool polling;		 /* a thread is in poll(), without the lock */
	unsigned int events;	 /* taken, and acknowledged together before the queue is destroyed, since each call takes a mutex */
	unsigned int found_armed; /* how often there was a completion right after the queue was armed */
	bool watched;		 /* the program has the descriptor: always armed */
	int connect_ret;	 /* what the last rmem_connect() or rmem_reconnect() returned, */
	char connect_why[512];	 /* and the line that says why it failed */
	pthread_t connector;	 /* the thread that connects */
	bool has_connector;	 /* it was not joined yet */
	struct rmem_op *connects; /* the operation for which it connects; NULL: none */
	char down_why[512];	 /* why the connection is down: what broke it, or connect_why */

	char *host, *service, *device;
	char client[RMEM_NAME_SIZE];
	uint8_t key[RMEM_KEY_SIZE];
	int connect_ms, request_ms;
	uint8_t start[16];	 /* the donor's, from its welcome */
	bool known;		 /* @start is known */
	bool persists;		 /* that donor keeps regions over a restart */

	struct rmem_port port;
	uint32_t max_message;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;	 /* NULL: broken */

	uint8_t *area;		 /* buffers, then slots, then receives */
	struct ibv_mr *area_mr;
	struct memory *memory;
	unsigned int free_buffers[BUFFERS], buffers;
	unsigned int free_wrs[DATA_DEPTH], wrs;
	struct wr wr[DATA_DEPTH];

	struct slot slot[RMEM_SLOTS];
	unsigned int unanswered;
	uint64_t next_id;
	int64_t heard;		 /* when something last came from the donor's host, or a request went there */
	int64_t looked;		 /* when a thread last looked at completions, or found one */
	int64_t probed;		 /* 0: no probe is under way */

	struct table table;
	struct txn txn;

	void (*evicted)(const struct rmem_region *, void *);
	void *evicted_arg;
	bool noticed;		 /* some regions have @noticed set */
	bool early;		 /* a notice waits: the table is being read, or no slot is free. No other comes before our answer */
	uint64_t early_tag, early_addr;
	struct {
		uint32_t round;
		uint32_t count; /* 0: it was answered */
		uint64_t tags[RMEM_HEAT_MAX];
	} ask; /* for heat */
};

/* error.c: only connection_down(), answer_failed(), message_wrong() and leave() need the lock */
int fail(int ret, const char *format, ...) __attribute__((format(printf, 2, 3)));
int connection_down(struct rmem *r); /* -ENOTCONN */
int answer_failed(struct rmem *r, const char *what, unsigned int status);
int message_wrong(struct rmem *r); /* the connection was broken for that: -EPROTO */
int enter(struct rmem *r); /* locks; -ENOTCONN, and not locked, if the connection is not up */
int leave(struct rmem *r, int ret); /* unlocks; returns @ret */
int64_t now_ms(void);

/* device.c: the objects of a connection */
int device_open(struct rmem *r, const struct sockaddr *local);
int device_ready(struct rmem *r); /* the queue pair is in RTS: posts receives */
void device_close(struct rmem *r);
int post(struct rmem *r, struct ibv_send_wr *wr);
int post_receive(struct rmem *r, unsigned int index);
void connection_break(struct rmem *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* wait.c */
#define TICK_MS 1000
int wait_step(struct rmem *r, unsigned int generation); /* waits until something has changed, or a second; -ENOTCONN */
int op_finish(struct rmem *r, struct rmem_op *op); /* waits until it is done; returns its result */
int leave_done(struct rmem *r, struct rmem_op *op, int ret); /* the same, if @ret says that it has begun; unlocks */
void do_what_is_due(struct rmem *r); /* apart from completions */
void progress(struct rmem *r); /* does what can be done without waiting */

/* request.c */
bool request_possible(const struct rmem *r);
/* Posts a message. The caller has made sure that a slot is free. Nobody waits for the answer, or it ends a part of wanted->op. */
void request_post(struct rmem *r, uint16_t type, const void *body, size_t size);
void request_post_op(struct rmem *r, uint16_t type, const void *body, size_t size, const struct wanted *wanted);
/* Waits until a slot is free, and begins an operation of this message. -ENOTCONN: it has not begun */
int request_begin(struct rmem *r, uint16_t type, const void *body, size_t size, const struct wanted *wanted);
int request_late(struct rmem *r); /* -ETIMEDOUT */
void requests_look(struct rmem *r); /* breaks the connection if an answer is late */
void request_sent(struct rmem *r, unsigned int index);
void request_received(struct rmem *r, const uint8_t *data, size_t size);
void probe(struct rmem *r);
void probe_done(struct rmem *r);

/* table.c */
struct region *table_find(const struct table *t, uint64_t tag);
int table_put(struct table *t, const struct region *what); /* takes the place of the region that has this tag */
void table_free(struct table *t);
struct region *region_of(struct rmem *r, uint64_t tag);
int region_at(struct rmem *r, uint64_t addr, uint64_t len, struct region **region); /* -ERANGE, -ESTALE */
void region_drop(struct region *region); /* one user less; frees it if it is gone and not busy */
void region_remove(struct rmem *r, uint64_t tag);

/* region.c */
int regions_learn(struct rmem *r, bool restarted, bool took_place); /* did the transaction in doubt? */

/* buffer.c */
uint8_t *buffer_at(const struct rmem *r, unsigned int index);
uint8_t *slot_at(const struct rmem *r, unsigned int index);
uint8_t *receive_at(const struct rmem *r, unsigned int index);
int area_open(struct rmem *r);
void area_close(struct rmem *r);
void memory_register_all(struct rmem *r);
void memory_unregister_all(struct rmem *r);
void memory_free(struct rmem *r);
struct memory *memory_at(struct rmem *r, const void *start, size_t size);

/* op.c */
void op_begin(struct rmem_op *op); /* its first part, or one more of an op that several share */
void op_reset(struct rmem_op *op); /* nothing is known of it */
void op_done(struct rmem_op *op, int error); /* a part of it is done */
#define OP_CONNECTS UINT_MAX /* rmem_op.status: it could not connect, and rmem.connect_why says why */
void op_connected(struct rmem_op *op, int error);
int op_refused(struct rmem_op *op, const char *what, unsigned int status); /* returns its result */

/* wr.c: work requests of data */
void data_sent(struct rmem *r, unsigned int index);
void data_fail(struct rmem *r);

/* txn.c */
int txn_reconnected(struct rmem *r, bool restarted, bool took_place, uint64_t last);
void txn_drop(struct rmem *r);
bool txn_took_place(const struct rmem *r, uint64_t last, uint64_t word); /* did the one in doubt? @last: the donor's last one */
bool txn_frees(const struct rmem *r, uint64_t tag);
int txn_settle(struct rmem *r); /* waits until no transaction is under way. -ENOTCONN */
void txn_run(struct rmem *r); /* sends what can be sent */

/* evict.c */
void evict_notice(struct rmem *r, uint64_t tag, uint64_t addr);
void evict_early(struct rmem *r); /* handles a notice that waits, when the regions are learnt */
void evict_run(struct rmem *r);
void evict_taken(struct rmem *r, struct region *region); /* the donor gets the slab, or took it: tells the program, once */

/* heat.c */
void heat_count(struct region *region, int64_t now);
int heat_notice(struct rmem *r, const struct rmem_ask_heat *ask, size_t size); /* -1: it makes no sense */
void heat_run(struct rmem *r);

#endif
