/* SPDX-License-Identifier: MIT */
/*
 * What rmemd and its clients say to each other. All numbers are little-endian.
 *
 * First over TCP, one struct after the other, to know each other and to connect two RC queue pairs:
 *	client	rmem_hello
 *	donor	rmem_challenge		(for any name: a client without a key learns nothing)
 *	client	rmem_proof		its queue pair
 *	donor	rmem_welcome		its own, already in RTS
 * Then TCP is closed. So a donor at rest has no TCP connection that would have to move with it.
 *
 * From then on each message is one SEND of at most RMEM_MSG_SIZE bytes: struct rmem_msg and a body by its type. The donor
 * answers each request of the client, in order, with the same id and RMEM_ANSWER set in its type. A client has at most
 * RMEM_SLOTS requests that are not answered, and the donor posts so many receives. A notice of the donor has id 0. The donor
 * sends a client the next notice only when the last one was answered, its time of grace has ended, or its slab is freed. A client
 * posts RMEM_SLOTS + 1 receives.
 *
 * One client name has one connection. A new connection, once it has proved itself, ends the old connection and its queue.
 *
 * A client may be librmem, or the swap device in the kernel, whose handshake rmemswap makes in user space.
 */
#ifndef RMEM_WIRE_H
#define RMEM_WIRE_H

#ifdef __KERNEL__
#include <linux/types.h>
typedef __le16 rmem_le16;
typedef __le32 rmem_le32;
typedef __le64 rmem_le64;
#else
#include <endian.h>
#include <stdint.h>
typedef uint16_t rmem_le16;
typedef uint32_t rmem_le32;
typedef uint64_t rmem_le64;
#endif

#define RMEM_MAGIC 0x4d454d52u /* "RMEM" */
#define RMEM_VERSION 3u
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
	rmem_le32 magic;
	rmem_le32 version;
	char client[RMEM_NAME_SIZE]; /* padded with 0 */
	uint8_t nonce[RMEM_NONCE_SIZE];
};
_Static_assert(sizeof(struct rmem_hello) == 104, "wire");

struct rmem_challenge {
	rmem_le32 magic;
	rmem_le32 version;
	rmem_le32 status; /* RMEM_OK, or RMEM_BAD_VERSION and the end */
	rmem_le32 reserved;
	uint8_t nonce[RMEM_NONCE_SIZE];
};
_Static_assert(sizeof(struct rmem_challenge) == 48, "wire");

struct rmem_qp {
	uint8_t gid[16]; /* of a client: the address of its TCP connection, as the donor sees it; any other is denied */
	rmem_le32 qpn;
	rmem_le32 psn;
	rmem_le32 mtu; /* enum ibv_mtu: both take the smaller one */
	rmem_le32 reserved;
};
_Static_assert(sizeof(struct rmem_qp) == 32, "wire");

/* MACs are libsodium's crypto_auth() under the client's key, over a label of 16 bytes and all that was said before the MAC. */
#define RMEM_LABEL_CLIENT "rmem client v1\0\0"
#define RMEM_LABEL_DONOR "rmem donor v1\0\0\0"

struct rmem_proof {
	struct rmem_qp qp;
	uint8_t mac[RMEM_MAC_SIZE]; /* of RMEM_LABEL_CLIENT, hello, challenge, qp */
};
_Static_assert(sizeof(struct rmem_proof) == 64, "wire");

struct rmem_welcome {
	rmem_le32 status; /* RMEM_OK; or RMEM_DENIED, RMEM_FULL, RMEM_DRAINING, then the end, and all the rest is 0 */
	rmem_le32 persists; /* 1: the donor has a log */
	struct rmem_qp qp;
	uint8_t start[16]; /* random, made at each start of rmemd: if it is another one, rmemd has restarted */
	rmem_le64 last_txn; /* of this client */
	rmem_le64 last_word; /* of that transaction; 0: not known */
	uint8_t mac[RMEM_MAC_SIZE]; /* of RMEM_LABEL_DONOR, hello, challenge, the proof, and all of this struct before it */
};
_Static_assert(sizeof(struct rmem_welcome) == 104, "wire");

/* ------------------------------------------------------------------ SEND */

enum rmem_type {
	RMEM_ALLOC = 1,	  /* rmem_alloc_request; answer rmem_wire_region */
	RMEM_LIST = 2,	  /* rmem_list_request; answer rmem_list_answer. A region of an earlier connection has a key after that */
	RMEM_QUEUE = 3,	  /* rmem_queue_request; the answer has no body: all entries are queued, or none */
	RMEM_GO = 4,	  /* rmem_go_request; the answer has no body */
	RMEM_ABORT = 5,	  /* neither the request nor the answer has a body */
	RMEM_FLUSH = 6,	  /* rmem_range; the answer has no body */
	RMEM_PING = 7,	  /* neither the request nor the answer has a body */
	RMEM_EVICTED = 8, /* rmem_evict: the client has let go of the slab that a notice named; the answer has no body */
	RMEM_ROOM = 9,	  /* no body; answer rmem_room */
	RMEM_HEAT = 10,	  /* rmem_heat: what a notice asked for; the answer has no body. RMEM_NO_TAG: late, or not asked for */
	RMEM_EVICT = 64,  /* the donor's notice: rmem_evict */
	RMEM_ASK_HEAT = 65, /* the donor's notice: rmem_ask_heat */
	RMEM_ANSWER = 0x8000,
};

struct rmem_msg {
	rmem_le16 type;
	rmem_le16 status; /* of an answer; if it is not RMEM_OK there is no body */
	rmem_le32 size;	 /* with this header */
	rmem_le64 id;
};
_Static_assert(sizeof(struct rmem_msg) == 16, "wire");

struct rmem_alloc_request {
	rmem_le64 tag;
	rmem_le64 size;
	rmem_le32 flags;
	rmem_le32 reserved;
};
_Static_assert(sizeof(struct rmem_alloc_request) == 24, "wire");

struct rmem_wire_region {
	rmem_le64 tag;
	rmem_le64 addr;
	rmem_le64 size;
	rmem_le32 rkey;
	rmem_le32 flags;
};
_Static_assert(sizeof(struct rmem_wire_region) == 32, "wire");

struct rmem_list_request {
	rmem_le64 from; /* tags from this one on, in their order */
};
_Static_assert(sizeof(struct rmem_list_request) == 8, "wire");

struct rmem_list_answer {
	rmem_le32 count;
	rmem_le32 more; /* 1: ask again, from the last tag + 1 */
	struct rmem_wire_region regions[];
};
_Static_assert(sizeof(struct rmem_list_answer) == 8, "wire");
#define RMEM_LIST_MAX \
	((RMEM_MSG_SIZE - sizeof(struct rmem_msg) - sizeof(struct rmem_list_answer)) / sizeof(struct rmem_wire_region))

enum rmem_op_kind {
	RMEM_OP_CP = 1,
	RMEM_OP_FREE = 2, /* tag; the rest is 0 */
};

struct rmem_wire_op {
	rmem_le32 kind;
	rmem_le32 reserved;
	rmem_le64 dst; /* or the tag */
	rmem_le64 src;
	rmem_le64 len;
};
_Static_assert(sizeof(struct rmem_wire_op) == 32, "wire");

struct rmem_queue_request {
	rmem_le64 first; /* how many entries are queued already */
	rmem_le32 count;
	rmem_le32 reserved;
	struct rmem_wire_op ops[];
};
_Static_assert(sizeof(struct rmem_queue_request) == 16, "wire");
#define RMEM_QUEUE_MAX ((RMEM_MSG_SIZE - sizeof(struct rmem_msg) - sizeof(struct rmem_queue_request)) / sizeof(struct rmem_wire_op))

/*
 * Transactions of a client are numbered from 1. If the last one is sent again, with its word, it gets the same answer, and is not
 * done again. The word tells it from a transaction of another process of the same name, which may have taken its number.
 */
struct rmem_go_request {
	rmem_le64 txn;
	rmem_le64 count; /* entries that are queued */
	rmem_le64 word;	 /* random; 0 from a client that never sends a transaction again */
};
_Static_assert(sizeof(struct rmem_go_request) == 24, "wire");

struct rmem_range {
	rmem_le64 addr;
	rmem_le64 len;
};
_Static_assert(sizeof(struct rmem_range) == 16, "wire");

/*
 * Tag and address together name a slab: the tag may have been freed and allocated anew meanwhile, and then names another slab.
 * The notice of a slab follows the answer to its ALLOC. If a notice names a slab that the client does not have, the client says
 * at once that it has let go.
 */
struct rmem_evict {
	rmem_le64 tag;
	rmem_le64 addr;
	rmem_le32 grace_ms; /* of the notice; the client sends any number */
	rmem_le32 reserved; /* 0 */
};
_Static_assert(sizeof(struct rmem_evict) == 24, "wire");

/*
 * How many bytes this client's ALLOCs of slabs could still get: the least of what is left of the donor's memory, of the client's
 * quota, and of the host's memory above the headroom and its margin. The host's memory is taken as it is now or as an average,
 * whichever is less. The number is no promise.
 */
struct rmem_room {
	rmem_le64 left; /* 0 while the donor drains */
	rmem_le64 used; /* by this client's regions */
};
_Static_assert(sizeof(struct rmem_room) == 16, "wire");

/*
 * Before a donor evicts, it asks owners how much their slabs are used, since it sees nothing of READs and WRITEs. An owner
 * answers with RMEM_HEAT and the same round, within 2 seconds or the time of grace, whichever is less. The donor takes the heat
 * of a slab that the answer does not name as unknown, and ignores slabs that it did not ask for.
 */
#define RMEM_HEAT_MAX 64u
struct rmem_ask_heat {
	rmem_le32 round;
	rmem_le32 count; /* 1 to RMEM_HEAT_MAX */
	rmem_le64 tags[];
};
_Static_assert(sizeof(struct rmem_ask_heat) == 8, "wire");

struct rmem_slab_heat {
	rmem_le64 tag;
	rmem_le64 heat; /* READs and WRITEs in 1000 seconds; an average: each second, 0.2 of that second's and 0.8 of what it was */
};
_Static_assert(sizeof(struct rmem_slab_heat) == 16, "wire");

struct rmem_heat {
	rmem_le32 round;
	rmem_le32 count; /* at most RMEM_HEAT_MAX; the message is as long as this says */
	struct rmem_slab_heat slabs[];
};
_Static_assert(sizeof(struct rmem_heat) == 8, "wire");

#endif
