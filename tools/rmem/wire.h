/* SPDX-License-Identifier: MIT */
/*
 * What rmemd and its clients say to each other. All numbers are little-endian.
 *
 * First over TCP, one struct after the other, to know each other and to connect two RC queue pairs:
 *	client	rmem_hello
 *	donor	rmem_challenge		(to any name: who has no key learns nothing)
 *	client	rmem_proof		its queue pair
 *	donor	rmem_welcome		its own, already in RTS
 * Then TCP is closed. So a donor at rest has no TCP connection that would have to move with it.
 *
 * From then on each message is one SEND of at most RMEM_MSG_SIZE bytes: struct rmem_msg and a body by its type. The donor
 * answers each request of the client, in order, with the same id and RMEM_ANSWER set in its type. A client has at most
 * RMEM_SLOTS requests that are not answered; so many receives are posted at the donor. A notice of the donor has id 0;
 * the donor has one of them under way at a time, and a client posts RMEM_SLOTS + 1 receives.
 *
 * One client name has one connection; a new one, once it has proved itself, ends the old one and its queue.
 */
#ifndef RMEM_WIRE_H
#define RMEM_WIRE_H

#include <endian.h>
#include <stdint.h>

#define RMEM_MAGIC 0x4d454d52u /* "RMEM" */
#define RMEM_VERSION 1u
#define RMEM_PORT "7471"
#define RMEM_NAME_SIZE 64 /* with the 0 at its end */
#define RMEM_KEY_SIZE 32
#define RMEM_NONCE_SIZE 32
#define RMEM_MAC_SIZE 32
#define RMEM_PAGE 4096u
#define RMEM_MSG_SIZE 4096u
#define RMEM_SLOTS 32u

enum rmem_status {
	RMEM_OK = 0,
	RMEM_BAD_MESSAGE = 1,	/* the connection ends */
	RMEM_BAD_VERSION = 2,
	RMEM_DENIED = 3,	/* the name, the key, or the address of the queue pair */
	RMEM_FULL = 4,
	RMEM_DRAINING = 5,
	RMEM_NO_TAG = 6,
	RMEM_OTHER_SIZE = 7,	/* the tag has another size, or other flags */
	RMEM_OUT_OF_RANGE = 8,
	RMEM_OVERLAP = 9,
	RMEM_BAD_TXN = 10,	/* neither the last transaction nor the next; or not as many entries as said */
	RMEM_NOT_DURABLE = 11,	/* the donor's log failed */
	RMEM_EMPTY = 12,	/* a size or a queue of 0 */
};

/* ------------------------------------------------------------------ TCP */

struct rmem_hello {
	uint32_t magic;
	uint32_t version;
	char client[RMEM_NAME_SIZE]; /* padded with 0 */
	uint8_t nonce[RMEM_NONCE_SIZE];
};
_Static_assert(sizeof(struct rmem_hello) == 104, "wire");

struct rmem_challenge {
	uint32_t magic;
	uint32_t version;
	uint32_t status; /* RMEM_OK, or RMEM_BAD_VERSION and the end */
	uint32_t reserved;
	uint8_t nonce[RMEM_NONCE_SIZE];
};
_Static_assert(sizeof(struct rmem_challenge) == 48, "wire");

struct rmem_qp {
	uint8_t gid[16]; /* a client's: its address of the TCP connection, as the donor sees it; else it is denied */
	uint32_t qpn;
	uint32_t psn;
	uint32_t mtu; /* enum ibv_mtu: both take the smaller one */
	uint32_t reserved;
};
_Static_assert(sizeof(struct rmem_qp) == 32, "wire");

/* MACs are libsodium's crypto_auth() under the client's key, over a label of 16 bytes and all structs until there. */
#define RMEM_LABEL_CLIENT "rmem client v1\0\0"
#define RMEM_LABEL_DONOR "rmem donor v1\0\0\0"

struct rmem_proof {
	struct rmem_qp qp;
	uint8_t mac[RMEM_MAC_SIZE]; /* of RMEM_LABEL_CLIENT, hello, challenge, qp */
};
_Static_assert(sizeof(struct rmem_proof) == 64, "wire");

struct rmem_welcome {
	uint32_t status; /* RMEM_OK; or RMEM_DENIED, RMEM_FULL, RMEM_DRAINING, then the end, and all the rest is 0 */
	uint32_t persists; /* 1: the donor has a log */
	struct rmem_qp qp;
	uint8_t start[16]; /* at random, made at each start of rmemd: another one means that it has restarted */
	uint64_t last_txn; /* of this client */
	uint8_t mac[RMEM_MAC_SIZE]; /* of RMEM_LABEL_DONOR, hello, challenge, the proof, and all of this struct before it */
};
_Static_assert(sizeof(struct rmem_welcome) == 96, "wire");

/* ------------------------------------------------------------------ SEND */

enum rmem_type {
	RMEM_ALLOC = 1,	  /* rmem_alloc_request; answer rmem_wire_region */
	RMEM_LIST = 2,	  /* rmem_list_request; answer rmem_list_answer */
	RMEM_QUEUE = 3,	  /* rmem_queue_request; no body in the answer: all of it is queued, or nothing */
	RMEM_GO = 4,	  /* rmem_go_request; no body */
	RMEM_ABORT = 5,	  /* no body; none */
	RMEM_FLUSH = 6,	  /* rmem_range; none */
	RMEM_PING = 7,	  /* no body; none */
	RMEM_EVICTED = 8, /* rmem_evict: the client has let go of the slab that a notice named; none */
	RMEM_EVICT = 64,  /* the donor's notice: rmem_evict */
	RMEM_ANSWER = 0x8000,
};

struct rmem_msg {
	uint16_t type;
	uint16_t status; /* of an answer; if it is not RMEM_OK there is no body */
	uint32_t size;	 /* with this header */
	uint64_t id;
};
_Static_assert(sizeof(struct rmem_msg) == 16, "wire");

struct rmem_alloc_request {
	uint64_t tag;
	uint64_t size;
	uint32_t flags;
	uint32_t reserved;
};

struct rmem_wire_region {
	uint64_t tag;
	uint64_t addr;
	uint64_t size;
	uint32_t rkey;
	uint32_t flags;
};
_Static_assert(sizeof(struct rmem_wire_region) == 32, "wire");

struct rmem_list_request {
	uint64_t from; /* tags from this one on, in their order */
};

struct rmem_list_answer {
	uint32_t count;
	uint32_t more; /* 1: ask again, from the last tag + 1 */
	struct rmem_wire_region regions[];
};
#define RMEM_LIST_MAX ((RMEM_MSG_SIZE - sizeof(struct rmem_msg) - sizeof(struct rmem_list_answer)) / sizeof(struct rmem_wire_region))

enum rmem_op_kind {
	RMEM_OP_CP = 1,
	RMEM_OP_FREE = 2, /* tag; the rest is 0 */
};

struct rmem_wire_op {
	uint32_t kind;
	uint32_t reserved;
	uint64_t dst; /* or the tag */
	uint64_t src;
	uint64_t len;
};
_Static_assert(sizeof(struct rmem_wire_op) == 32, "wire");

struct rmem_queue_request {
	uint64_t first; /* how many entries are queued already */
	uint32_t count;
	uint32_t reserved;
	struct rmem_wire_op ops[];
};
#define RMEM_QUEUE_MAX ((RMEM_MSG_SIZE - sizeof(struct rmem_msg) - sizeof(struct rmem_queue_request)) / sizeof(struct rmem_wire_op))

/* Transactions of a client are numbered from 1. The last one again is answered as it was, and not done again. */
struct rmem_go_request {
	uint64_t txn;
	uint64_t count; /* entries that are queued */
};

struct rmem_range {
	uint64_t addr;
	uint64_t len;
};

struct rmem_evict {
	uint64_t tag;
	uint32_t grace_ms;
	uint32_t reserved;
};

#endif
