/* SPDX-License-Identifier: MIT */
/*
 * traffic: two ends exchange every kind of RC work, or of UC, both ways at once, and check each byte of it.
 *
 *   traffic.c          workers, and the main loop: time, signals, stalls, the result
 *   traffic_base.c     what all others call: violations, and the clock
 *   traffic_options.c  the command line
 *   traffic_data.c     what each message must be: both ends compute it from the seed
 *   traffic_verbs.c    objects, connection, tear-down
 *   traffic_send.c     posting, and checking of send completions
 *   traffic_recv.c     receives
 *
 * A worker is a thread with a context, a protection domain and completion queues of its own. The main
 * thread never touches a queue. Everything that both a worker and its forked child use lies in shared
 * memory.
 */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SERVER, CLIENT };
enum { EXACT = 0, VIOLATION = 1, STALLED = 2, UNUSABLE = 3 };	/* exit codes */

enum op {
	/* those that take a receive at the peer, in order */
	OP_SEND, OP_IMM, OP_INV, OP_WRITE, OP_WIMM, OP_ECHO,
	/* those that don't */
	OP_READ, OP_WREAD, OP_FADD, OP_COUNT, OP_CAS, OP_AWRITE, OP_FLUSH,
	NUM_OPS
};
#define MESSAGE_OPS	((1u << OP_READ) - 1)
#define DEFAULT_OPS	((1u << OP_AWRITE) - 1)
#define UC_OPS		(1u << OP_SEND | 1u << OP_IMM | 1u << OP_WRITE | 1u << OP_WIMM)
extern const char *const op_name[NUM_OPS];

enum { MAX_QPS = 1024, MAX_CONTEXTS = 4, NUM_MW = 2, MW_SIZE = 4096, NUM_SCRATCH = 2, MAX_SGE = 3, HOLES = 10 };
enum { SGE_GAP = 67, CANARY = 32 };

#define IMM_FIN		0xf19f19f1u
#define IMM_BYE		0xb4eb4eb4u

/* The client tells the server what both ends must agree on. */
struct shape {
	uint64_t magic;
	uint64_t seed;
	uint64_t messages;	/* per QP and direction; 0: until told */
	uint32_t qps;
	uint32_t depth;		/* work requests outstanding, per QP */
	uint32_t window;	/* receives, and slots for writes */
	uint32_t max_size;
	uint32_t ops;
	uint32_t seconds;	/* 0: until told */
	uint32_t rate;		/* messages per second and QP; 0: no limit */
	uint32_t fence;		/* per cent of messages with IBV_SEND_FENCE */
	uint32_t rnr;		/* keep receive queues short, now and then empty */
	uint32_t rnr_gap;	/* microseconds that they stay empty, at most */
	uint32_t uc;
	uint32_t timeout, retry_cnt, rnr_retry, rnr_timer, rd_atomic, mtu;
};

struct options {
	const char *peer;	/* NULL: we are the server */
	const char *device, *gid, *port, *go_file;
	unsigned stall;
	unsigned contexts;
	bool event, idle, rtr_only, holes, fork, srq, json;
};

/* What one end tells the other. */
struct side {
	union ibv_gid gid;
	uint32_t no_mw;		/* can't bind memory windows */
	uint32_t silent;	/* will not send messages: it stays in RTR */
};

struct qp_info {
	uint32_t qpn, psn, rkey, mw_rkey[NUM_MW];
	uint64_t base;		/* of what the peer may reach of this QP */
	uint64_t lib;		/* constant data, one for all QPs */
	uint64_t count;		/* a counter, one for all QPs */
	uint32_t common_rkey;	/* of these two */
};

/*
 * The beginning of the memory that the peer may reach. Each value is followed by its complement, because the peer may read while
 * this end writes.
 */
struct ctl {
	_Atomic uint64_t processed, not_processed;	/* messages checked */
	_Atomic uint64_t binds, not_binds;		/* memory windows bound */
	_Atomic uint64_t fin, not_fin;			/* our FIN is acknowledged */
	_Alignas(64) uint64_t fadd;
	_Alignas(64) uint64_t cas;
	_Alignas(64) uint64_t aword;
};
#define CTL_READ	offsetof(struct ctl, fadd)
#define CTL_TOLD	2048	/* UC: what the peer has told of its own */
#define CTL_SIZE	4096

/* A message as it must be. */
struct plan {
	enum op op;
	uint32_t len;		/* of what is sent or written with immediate */
	uint32_t wlen;		/* of the write before it */
	uint32_t imm;
	uint32_t off;		/* ECHO: in the receiver's library */
	bool fence, use_inline, unsignaled;
};

struct fin {
	uint64_t messages, bytes, fadds, fadd_sum, counts;
	uint64_t halted;	/* ended before its time */
	uint64_t pad[2];
};

/* Where the parts of a scattered buffer begin. */
struct cut {
	uint32_t n, at[MAX_SGE + 1];
};

enum check { CHECK_NONE, CHECK_DATA, CHECK_LIB, CHECK_VALUE, CHECK_COUNT, CHECK_CREDIT, CHECK_BIND, CHECK_FIN,
	     CHECK_BYE };

/* A posted send work request. */
struct wr {
	uint8_t opcode;		/* enum ibv_wr_opcode */
	uint8_t check;
	bool signaled;
	uint32_t len, off;
	uint64_t seq;		/* of its message, or of its operation */
	uint64_t want;		/* the value it must bring, or the number of its data */
	struct cut cut;
	uint8_t *buf;
};

enum phase { PH_IDLE, PH_SILENT, PH_RUN, PH_DRAIN, PH_RECKON, PH_FIN, PH_BYE, PH_DONE };
extern const char *const phase_name[];

#define MAX_BATCH	8

struct qp {
	unsigned idx;
	struct worker *w;
	struct ibv_qp *qp;
	struct qp_info here, there;
	struct side *peer;
	struct ctl *ctl;	/* begins what the peer may reach */
	uint8_t *slots, *scratch, *windows;
	uint8_t *tx, *rx;

	/* sender */
	_Atomic enum phase phase;
	struct wr *ring;
	unsigned ring_size;
	_Atomic uint64_t posted, completed;
	unsigned others;	/* outstanding ones that depth does not count */
	uint64_t opno;		/* next operation */
	_Atomic uint64_t seq;	/* next message */
	uint64_t processed, binds;	/* by the peer, as last read */
	bool credit_out, peer_fin;
	uint64_t told;		/* UC: how far we are, as the peer was told */
	unsigned torn;
	uint64_t invs;
	uint64_t fadds, fadd_sum, counts, count_seen, cas, aword;
	uint64_t scratch_no, scratch_done, bytes_sent, reads, atomics, fenced, inlined, ops[NUM_OPS];
	double tokens;
	uint64_t token_time;
	bool bye_lost;
	struct ibv_send_wr batch[MAX_BATCH];
	struct ibv_sge sge[MAX_BATCH][MAX_SGE];
	struct wr *batch_wr[MAX_BATCH];
	unsigned batched;

	/* receiver */
	bool in_child;
	_Atomic uint64_t rseq;	/* next expected message */
	uint64_t rposted, bytes_received, rinvs;
	uint64_t taken;		/* --srq: the buffer that the message came in */
	_Atomic bool fin_seen, bye_seen;
	struct fin fin;
	uint64_t rnr_until;
	_Atomic uint64_t to_bind;	/* memory windows that the peer invalidated */
	uint64_t bound;
	struct ibv_mw *mw[NUM_MW];

	/* since watch() last looked */
	uint64_t watched;
	int64_t watched_at;
	uint64_t last, longest;	/* completions: the last one, and the longest gap between two */
};

/* A clock that runs evenly when the process moves to a host that was booted at another time. */
struct clk {
	int64_t mono, real, now;
};

struct worker {
	unsigned idx;
	pthread_t thread;
	struct ibv_context *ctx;
	union ibv_gid gid;
	int gid_index;
	unsigned mtu;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq, *child_rcq;
	struct ibv_mr *tx_mr, *rx_mr, *reach_mr, *common_mr;
	uint8_t *tx, *rx, *reach;
	size_t tx_size, rx_size, reach_size;
	struct ibv_srq *srq;
	unsigned unacked_scq, unacked_rcq;
	struct clk clk;
	uint64_t last, longest;
	_Atomic bool kick_seen;
	uint64_t *pattern;
	/* --holes */
	struct ibv_pd *pds[HOLES];
	struct ibv_comp_channel *channels[HOLES];
	struct ibv_cq *cqs[HOLES];
	struct ibv_mr *mrs[HOLES];
	struct ibv_qp *qps[HOLES];
	struct ibv_srq *srqs[HOLES];
	struct ibv_mw *mws[HOLES];
	struct ibv_ah *ahs[HOLES];
	uint8_t *spare;
};

extern struct shape shape;
extern struct options opt;
extern unsigned role;
extern struct worker workers[];
extern struct qp *qps;			/* shared with the child */
extern struct side here, there;
extern uint8_t *common;			/* library and counter, for all contexts */
extern size_t common_size, lib_size, buf_size;
extern _Atomic bool *go, *halt;
extern unsigned created, destroyed;
extern bool is_child;

/* traffic_base.c */
_Noreturn void violation(const struct qp *q, const char *what, uint64_t seq, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
_Noreturn void unusable(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ns(struct clk *clk);

/* traffic_options.c */
void parse_options(int argc, char **argv);

/* traffic_data.c */
uint64_t draw(unsigned sender, unsigned qp, uint64_t no, unsigned salt);
struct plan plan_message(unsigned sender, unsigned qp, uint64_t seq);
uint32_t plan_size(uint64_t r);
struct cut plan_cut(uint64_t r, uint32_t len);
enum { DATA_SEND, DATA_WRITE, DATA_SCRATCH, DATA_LIB, SALT_OP, SALT_PLAN, SALT_TX, SALT_RX, SALT_RNR, SALT_CAS };
const uint8_t *pattern(uint64_t *room, unsigned sender, unsigned qp, uint64_t no, unsigned kind, uint32_t off,
		       uint32_t len);
void scatter(uint8_t *buf, const struct cut *cut, const void *data, uint32_t off, uint32_t len);
void gather(const uint8_t *buf, const struct cut *cut, void *data, uint32_t off, uint32_t len);
void check_data(const struct qp *q, const char *what, uint64_t seq, const uint8_t *buf, const struct cut *cut,
		const uint8_t *want, uint32_t len);
unsigned make_sges(struct ibv_sge *sge, uint8_t *buf, const struct cut *cut, uint32_t len, uint32_t lkey);

/* traffic_verbs.c */
void exchange(void);
void tear_down(void);
void modify_to_rts(struct qp *q);
void print_state(void);
void arm_limit(struct worker *w);
void check_async(void);

/* traffic_send.c */
void pump(struct qp *q);
void send_done(struct worker *w, const struct ibv_wc *wc);

/* traffic_recv.c */
void post_receives(struct qp *q);
void recv_done(struct worker *w, const struct ibv_wc *wc);

/* An index in a ring of completions and receives: which QP, and which entry. */
#define WR_ID(q, n)	((uint64_t)(q)->idx << 48 | (n))
#define WR_QP(id)	((unsigned)((id) >> 48))
#define WR_NO(id)	((id) & ((1ull << 48) - 1))

static inline void publish(_Atomic uint64_t *value, uint64_t v)
{
	atomic_store(&value[0], v);
	atomic_store(&value[1], ~v);
}

#endif
