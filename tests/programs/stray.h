/* SPDX-License-Identifier: MIT */
/*
 * rmem-stray: does everything to a donor that a client may not do.
 *
 *   rmem-stray.c      the command line; misuse of the handshake and of keys of memory
 *   stray_link.c      a connection as wire.h has it, open to misuse; benchmarks/rmem uses it, too
 *   stray_messages.c  random messages over good connections
 */
#ifndef STRAY_H
#define STRAY_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/common.h"
#include <rmem/wire.h>

struct who {
	const char *name;
	uint8_t key[RMEM_KEY_SIZE];
};

enum { CLOSED = -1, RECEIVES = RMEM_SLOTS + 1, DATA_SIZE = 64 << 10 };

struct link {
	struct rmem_hello hello;
	struct rmem_challenge challenge;
	struct rmem_proof proof;
	struct rmem_welcome welcome;
	struct ibv_comp_channel *channel; /* of the CQ, if link_events was set */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffers; /* RECEIVES, then RMEM_SLOTS sends, of RMEM_MSG_SIZE; then DATA_SIZE of data */
	uint8_t *data;
	uint64_t id; /* of the last request */
	uint64_t sent, received; /* messages */
};

/* What is done to a handshake: NULL, or a function that changes what is sent next. */
struct spoil {
	void (*hello)(struct link *l);
	void (*qp)(struct link *l);    /* before the MAC is made */
	void (*proof)(struct link *l); /* after that */
};

struct options {
	const char *host, *port;
	struct who client, other;
	uint64_t seed, messages, garbage;
	unsigned int patience;
};
extern struct options options;
extern uint64_t connections;
extern bool link_events; /* of links that are made: their completions make events */

void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
int64_t now_ms(void);

int tcp_open(void);
/* Returns an enum rmem_status of the challenge or the welcome, or CLOSED. The link is up only if it is RMEM_OK. */
int link_shake(struct link *l, const struct who *who, const struct spoil *spoil);
/* Opens a link that must come up. */
void link_open(struct link *l, const struct who *who);
void link_close(struct link *l);
/* The buffer of the next send. */
struct rmem_msg *link_message(struct link *l);
/* Sends so many bytes of it, whatever they say. */
void link_send(struct link *l, uint32_t size);
/* The next message; NULL: none within this time, or the connection is broken. Valid until the one after it. */
const struct rmem_msg *link_receive(struct link *l, int64_t ms, uint32_t *size);
/* A good request: its answer, which must come. */
const struct rmem_msg *link_ask(struct link *l, uint16_t type, const void *body, uint32_t size);
/* A one-sided operation between l->data and addr: returns the status of its completion. */
enum ibv_wc_status link_reach(struct link *l, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey, uint32_t len);
/* A region of this link's client. */
struct rmem_wire_region link_alloc(struct link *l, uint64_t tag, uint64_t size);
/* All regions of this link's client end. */
void link_free_all(struct link *l);

/* stray_messages.c */
void messages(void);

#endif
