/* SPDX-License-Identifier: MIT */
/*
 * One cell of the matrix is a queue pair at the mover and its peer, with everything that belongs to them, brought into some state
 * before the move. Both ends make the same cells from the same seed. The mover prints in a line what it finds, and the peer knows
 * what this line must say.
 */
#ifndef MATRIX_H
#define MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(cond) ((cond) ? (void)0 : DIE("%s:%d: not so: %s: %m", __FILE__, __LINE__, #cond))
#define NUM(array) (sizeof(array) / sizeof((array)[0]))

/* X(kind, its name) */
#define STATES(X) \
	X(RESET, "reset") X(INIT, "init") X(RTR, "rtr") X(RTS, "rts") X(SQD, "sqd") X(SQD_BEHIND, "sqd-behind") \
	X(SQD_BUSY, "sqd-busy") X(ERR, "err") X(ERR_UNPOLLED, "err-unpolled") X(RNR, "rnr-wait") X(RETRY, "retry") \
	X(READ_HALF, "read-half") X(ATOMIC_LOST, "atomic-lost") X(READ_LOST_IN, "read-lost-in") \
	X(ATOMIC_LOST_IN, "atomic-lost-in") X(SEND_HALF, "send-half") X(FLOW, "flow") X(OVERFLOW, "cq-overflow")
#define TYPES(X) X(RC, "rc") X(UC, "uc") X(UD, "ud")
#define RECEIVES(X) \
	X(RQ, "rq") X(SRQ, "srq") X(SRQ_ARMED, "srq-armed") X(SRQ_FIRED, "srq-fired") X(SRQ_UNACKED, "srq-unacked")
#define CQS(X) X(CQ_PLAIN, "cq") X(CQ_RESIZED, "cq-resized") X(CQ_EX, "cq-ex")
#define EVENTS(X) X(EV_NONE, "no-event") X(EV_ARMED, "armed") X(EV_FIRED, "fired") X(EV_UNACKED, "unacked")
#define NOTIFIES(X) X(NT_RECEIVE, "of-receives") X(NT_SOLICITED, "of-solicited") X(NT_SEND, "of-sends")
#define CHANNELS(X) X(CH_OWN, "channel") X(CH_SHARED, "shared-channel")
#define MEMORY(X) \
	X(ANON, "anon") X(THP, "thp") X(HUGETLB, "hugetlb") X(MEMFD, "memfd") X(SHARED, "shared") \
	X(PLAIN_FILE, "file") X(SHARED_FILE, "shared-file") X(UNLINKED, "unlinked") X(TWIN, "twin") X(REREG, "rereg") \
	X(REREG_PD, "rereg-pd") X(IOVA, "iova") X(BYTE, "1-byte") X(GIB, "1-gib")
#define WINDOWS(X) X(NO_MW, "no-mw") X(MW1, "mw1") X(MW2, "mw2")
#define APIS(X) X(POST_SEND, "post-send") X(WR, "wr")
#define GROUPS(X) X(NO_GROUP, "no-group") X(GROUP, "multicast")
#define ASYNCS(X) X(AS_NONE, "no-async") X(AS_UNREAD, "async-unread") X(AS_UNACKED, "async-unacked")

#define AS_ENUM(kind, name) kind,
enum state { STATES(AS_ENUM) NUM_STATES };
enum type { TYPES(AS_ENUM) NUM_TYPES };
enum receive { RECEIVES(AS_ENUM) NUM_RECEIVES };
enum cqs { CQS(AS_ENUM) NUM_CQS };
enum event { EVENTS(AS_ENUM) NUM_EVENTS };
enum notify { NOTIFIES(AS_ENUM) NUM_NOTIFIES };
enum channel { CHANNELS(AS_ENUM) NUM_CHANNELS };
enum memory { MEMORY(AS_ENUM) NUM_MEMORY };
enum window { WINDOWS(AS_ENUM) NUM_WINDOWS };
enum api { APIS(AS_ENUM) NUM_APIS };
enum group { GROUPS(AS_ENUM) NUM_GROUPS };
enum async { ASYNCS(AS_ENUM) NUM_ASYNCS };

enum op { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, FADD, CSWP, ATOMIC_WRITE, FLUSH, SEND_INV, NUM_OPS };

enum {
	SLOT = 8192,		/* the longest message; of UD MTU */
	SLOTS = 16,
	MTU = 1024,
	INLINE = 200,
	STOCK = 4,		/* entries of an SRQ that are never used up */
	OVERFLOWING = 6,	/* messages for a CQ with room for three */
	/* slots of a buffer behind those for messages */
	WELL = 3 * SLOTS, ATOMICS, WINDOW, WORDS, BUFFER,
};

/* What the peer must know of an end. */
struct address {
	uint32_t qpn;
	uint32_t rkey, memory_rkey, other_rkey, window_rkey;
	uint64_t target, memory, window;
};

struct end {
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	struct ibv_cq_ex *rcq_ex;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_mr *mr, *memory_mr, *other_mr;	/* other_mr: the second of TWIN, or moved out of REREG_PD's PD */
	struct ibv_mw *mw;
	uint8_t *buf;		/* SLOTS to send from, to receive into, for the peer; and the slots behind them */
	uint8_t *memory;	/* of the cell's kind */
	size_t memory_len;
	int memory_fd;
	off_t memory_at;	/* in the file */
	uint64_t iova;
	uint32_t posted;	/* receives */
	uint32_t sent, inbound;	/* the number of the last request of this end, of the other */
	struct { enum op op; uint32_t number; } due[4 * SLOTS], done[4 * SLOTS];
	uint32_t due_head, due_tail;	/* what will be received */
	uint32_t done_head, done_tail;	/* what will be completed */
	uint32_t fadds, cswps;	/* done at the peer */
	uint32_t round;		/* of words that flow into the peer's memory */
	uint32_t cq_events, unacked;
	char async[128];	/* the asynchronous events that came for it, in order */
	struct ibv_async_event kept[2];	/* read, and not acknowledged */
	int num_kept;
	uint32_t fadds_in, cswps_in;	/* that the other end has posted */
};

struct cell {
	int id;
	enum state state;
	enum type type;
	enum receive receive;
	enum cqs cqs;
	enum event event;
	enum notify notify;	/* of what its event tells */
	enum channel channel;
	enum memory memory;
	enum window window;
	enum api api;
	enum group group;
	enum async async;	/* event of its queue pair, or of its full CQ */
	enum op op;	/* of what is under way: the mover's, or in states _IN and SEND_HALF its peer's */

	struct end me;
	struct address here, there;
	bool invalidated;	/* its window */
	uint32_t unicast_qpn;	/* while the group is sent to */
};

/* What a process has once. */
struct process {
	bool mover;
	uint64_t seed;
	int peer;	/* TCP */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;	/* shared */
	int epoll;
	bool soliciting;	/* What it sends is solicited. */
	union ibv_gid gid, dgid;
	int gid_index;
	int limit;	/* seconds */
	struct cell *cells;
	int count;
};
extern struct process us;

#define EACH(c) for (struct cell *c = us.cells; c < us.cells + us.count; c++)

/* message.c */
/* For the new interface, a third of the requests has one SGE, a third has two, and a third has inline data. */
enum { ONE_SGE, TWO_SGES, INLINED, NUM_WAYS };
bool has_receive(enum op op);
bool can(const struct cell *c, enum op op);
bool goes_inline(const struct cell *c, enum op op, uint32_t number);
void fill(uint8_t *p, size_t len, const struct cell *c, bool by_mover, uint32_t number);
bool is_filled(const uint8_t *p, size_t len, const struct cell *c, bool by_mover, uint32_t number);
size_t message_len(const struct cell *c, enum op op, uint32_t number);

/* cells.c */
void make_cells(uint64_t seed, int total, int first, int count);
const char *cell_name(const struct cell *c);
bool receives(const struct cell *c);
bool holds(const struct cell *c);
bool behind(const struct cell *c);
bool flows_in(const struct cell *c);
bool in_file(const struct cell *c);
void count_kinds(uint64_t seed, int total, int least);

/* ends.c */
void open_device(const char *address);
void create_end(struct cell *c);
void destroy_end(struct cell *c);
void lead_to(struct cell *c, enum ibv_qp_state state);
void make_ah(struct cell *c, const union ibv_gid *dgid);

/* work.c */
void post_receives(struct cell *c, int count);
void post(struct cell *c, enum op op);
void expect(struct cell *c, enum op op);
void bind_window(struct cell *c);
void post_invalidation(struct cell *c);
void end_invalidation(struct cell *c);
bool poll_send(struct cell *c, struct ibv_wc *wc);
bool poll_receive(struct cell *c, struct ibv_wc *wc);
void end_send(struct cell *c);
void end_receive(struct cell *c);
void check_target(struct cell *c, enum op op, uint32_t number);
uint64_t word(const struct cell *c, enum op op);
void post_one_sided(struct cell *c, enum ibv_wr_opcode opcode, const uint8_t *p, uint64_t at, uint32_t rkey,
		    size_t len);
void end_one_sided(struct cell *c, enum ibv_wr_opcode opcode, enum ibv_wc_status status);
void one_sided(struct cell *c, enum ibv_wr_opcode opcode, uint64_t at, uint32_t rkey, size_t len,
	       enum ibv_wc_status status);
struct ibv_cq *notified_cq(const struct cell *c);
void read_cq_events(void);
void read_async(bool acknowledge);
bool in_time(void);

/* flow.c */
void flow_begins(void);
void flow_ends(void);

/* talk.c. meet() returns when both ends are there. connected(): a socket; host: NULL at the end that listens. */
int connected(const char *host);
void say(const void *data, size_t len);
void hear(void *data, size_t len);
void meet(void);

#endif /* MATRIX_H */
