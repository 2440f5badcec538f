/* SPDX-License-Identifier: MIT */
/*
 * rmemd without its store: listening, connections, requests of clients and requests of the operator.
 *
 * One thread, one event loop (serve.c). A turn of the loop handles everything that is ready. Requests are done in memory, and
 * their answers are held back. settle() ends the turn: it syncs the store once, then sends the answers.
 */
#ifndef RMEMD_H
#define RMEMD_H

#include <event2/event.h>
#include <infiniband/verbs.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/common.h"
#include "../lib/rmem.h"
#include "../service/say.h"
#include <rmem/wire.h>
#include "store.h"

/* Exit codes, as rmemd(8) promises them. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1, /* the disk, the device, the address to listen on */
	EXIT_USAGE = 2,	 /* the command line, rmemd.conf */
};

/* ------------------------------------------------------------------ conf.c */

struct conf_client {
	char name[RMEM_NAME_SIZE];
	uint8_t key[RMEM_KEY_SIZE];
	uint64_t quota; /* 0: none */
	int line;	/* of its section */
	bool has_key;
	struct conf_client *next;
};

struct conf {
	char *listen, *port, *device, *persist, *socket;
	uint64_t memory, headroom;
	bool huge;
	uint64_t grace_ms;
	uint64_t spare;	/* slabs whose use is also asked for under pressure, and that may stay */
	uint64_t period_ms, weight; /* how often the host is looked at, and how much a look counts in the average, in per cent */
	struct conf_client *clients;
};

/* Returns 0, or -1 after a message. Call conf_free() also after a failure. */
int conf_read(struct conf *conf, const char *path);
void conf_free(struct conf *conf);
const struct conf_client *conf_client(const struct conf *conf, const char *name);
/* Takes ADDRESS:PORT or [ADDRESS]:PORT of the command line, in place of the file's. Returns 0, or -1 after a message. */
int conf_listen(struct conf *conf, const char *text);

/* ------------------------------------------------------------------ device.c */

/* An RDMA device that clients use, opened once. All completions of its clients come through one channel. */
struct device {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct event *completions, *async;
	struct device *next;
};

/*
 * Returns the device of a port that rmem_port_of() opened, or NULL after a message. port->context is then the context that all
 * clients of the device share.
 */
struct device *device_of(struct rmem_port *port);
void devices_close(void);

/* ------------------------------------------------------------------ client.c */

#define CLIENT_SENDS (RMEM_SLOTS + 1) /* an answer to each request, and a notice */
#define CLIENT_NOTICE RMEM_SLOTS      /* the buffer of the notice */

/* Work request ids: a receive has its slot, a send has WR_SEND plus its buffer, and the probe has WR_PROBE. */
#define WR_SEND 0x100
#define WR_PROBE 0x200

struct reply {
	uint8_t send, receive; /* slots */
	uint32_t size;
};

/*
 * Was the client asked how much it uses its slabs? QUIET: no. TO_ASK: no, but it will be asked as soon as it may get a notice.
 * ASKED: yes, and it has not answered yet. LATE: it has not answered in time, and is not asked again before it answers.
 */
enum heat { HEAT_QUIET, HEAT_TO_ASK, HEAT_ASKED, HEAT_LATE };

/*
 * A connection. client_close() ends it, and frees everything that it has of the device. The struct and its buffers stay until the
 * end of the turn, marked dead, for functions that are working on it.
 *
 * One of these is true of each receive slot: it is posted; a request waits in it for a send buffer; its answer is held back until
 * the end of the turn. So a client that does not take its answers is not heard any more, and costs no more memory.
 */
struct client {
	struct owner *owner;
	struct device *device;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *buffers_mr;
	uint8_t *buffers; /* RMEM_SLOTS receives, then CLIENT_SENDS sends, of RMEM_MSG_SIZE each */
	uint8_t key[RMEM_KEY_SIZE];
	char peer[64]; /* the address its handshake came from */

	struct {
		uint8_t slot;
		uint32_t size;
	} waiting[RMEM_SLOTS]; /* a ring */
	unsigned int first_waiting, n_waiting;
	uint8_t free_sends[RMEM_SLOTS];
	unsigned int n_free;
	struct reply replies[RMEM_SLOTS];
	unsigned int n_replies;
	unsigned int in_flight; /* work requests in the send queue */
	bool notice_busy;	/* one of them sends the notice's buffer */
	bool notice_waits;	/* a notice waits until the answers that are held back are sent */
	enum heat heat;
	int64_t heard;		/* ms; of the last completion */
	uint64_t requests;
	bool dead;
	struct client *next;
};

static inline uint8_t *receive_buffer(const struct client *c, unsigned int slot)
{
	return c->buffers + (size_t)slot * RMEM_MSG_SIZE;
}

static inline uint8_t *send_buffer(const struct client *c, unsigned int slot)
{
	return c->buffers + (size_t)(RMEM_SLOTS + slot) * RMEM_MSG_SIZE;
}

struct client *client_of(const struct owner *owner); /* the owner's live connection, or NULL */
/* Ends the name's old connection, and makes a new one, whose queue pair is in RTS. Returns NULL and *status after a message. */
struct client *client_open(const struct conf_client *conf, struct device *device, const struct rmem_port *port,
			   const struct rmem_qp *theirs, struct rmem_qp *mine, const char *peer, enum rmem_status *status);
void client_close(struct client *c, int priority, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Sends the answers that are held back. Call it when the store is synced. */
void client_answer(struct client *c);
/* Returns 0, or -1 if the buffer is not free or the client is gone. */
int client_notice(struct client *c, enum rmem_type type, const void *body, uint32_t body_size);
/* Sends something to a client that has been silent, to find out whether it is dead. */
void client_probe(struct client *c);
void clients_bury(void); /* frees the dead */
void clients_close(void);
/* Call it after rmemd.conf was read again. */
void clients_reload(void);

/* Lets the owner's connection @c reach a region. Returns 0, or -1 after a message. */
int client_register(struct client *c, struct region *region);
void client_unregister(struct region *region);
/* The store's region_gone(). */
void client_region_gone(struct region *region, void *arg);

/* ------------------------------------------------------------------ request.c */

/*
 * Does the request in a message of @size bytes, and writes the answer. Returns the answer's size. 0: the message is bad, and the
 * client is closed. Nothing in the message is trusted.
 */
uint32_t request_handle(struct client *c, const struct rmem_msg *msg, uint32_t size, struct rmem_msg *answer);
/* True: so much was registered in this turn that the turn must end. */
bool request_crowded(void);

/* ------------------------------------------------------------------ completions.c */

/* Handles what the client's queue pair has completed. */
void client_completions(struct client *c);
/* Does requests that the last turn has left. Returns true if there was one. */
bool client_resume(struct client *c);

/* ------------------------------------------------------------------ greet.c */

/* Takes over a TCP connection for the handshake. If too many are under way, one of the address that has most of them ends. */
void greet(int fd, const char *peer);
void greetings_close(void);

/* ------------------------------------------------------------------ evict.c */

/* Somebody who waits for an eviction. The struct stays in its place until told() was called, or evict_forget(). */
struct asker {
	void (*told)(void *arg, const char *how);
	void *arg;
};

/*
 * Takes a slab back. @asker (which may be NULL) is told when the slab is gone, perhaps before this returns. RMEM_NO_TAG: there is
 * no such slab. RMEM_FULL: another asker waits for it already.
 */
enum rmem_status evict(struct owner *owner, uint64_t tag, const struct asker *asker);
/*
 * evict_pressed() takes a slab back because the host needs memory. evict_relieved() says that this need has ended: the slabs that
 * only this need wanted, and that no client was asked for yet, stay.
 */
enum rmem_status evict_pressed(struct owner *owner, uint64_t tag);
void evict_relieved(void);
/*
 * The client says that it has let go of the slab. RMEM_NO_TAG: it was not asked for this one, but perhaps for another slab of
 * this tag.
 */
enum rmem_status evict_released(struct owner *owner, uint64_t tag, uint64_t addr);
/* Sends the client its next notice, of either kind, if the client may get one now. */
void evict_next(struct client *c);
/* Called when a region ends, perhaps by its owner's transaction. */
void evict_gone(const struct region *region);
/* Called at the end of a turn. If an eviction has ended without its owner's answer, its owner may be asked for the next slab. */
void evict_settle(void);
/* The owner has no connection any more: all slabs that are wanted from it are taken now. */
void evict_disconnected(struct owner *owner);
void evict_forget(const struct asker *asker);
void drain(void);
/* True: a client of this name is refused, since there is a drain and the name has no regions but slabs. */
bool drained(const char *name);
uint64_t evictions(void); /* under way */

/* ------------------------------------------------------------------ pressure.c */

void pressure_open(void);
void pressure_close(void);
/* Bytes that the host has left, as an average of the last seconds. */
uint64_t pressure_left(void);
/* A region of so many bytes is gone, or is new. */
void pressure_gave(uint64_t bytes);
void pressure_took(uint64_t bytes);
/* The bytes that ALLOCs of slabs of this owner could still get. */
uint64_t pressure_room(const struct owner *owner);
/* For evict.c: asks a client that is HEAT_TO_ASK and may get a notice. */
void pressure_ask(struct client *c);
/* The client answers. RMEM_NO_TAG: it was not asked, or is late. */
enum rmem_status pressure_heat(struct client *c, const struct rmem_heat *heat);

/* ------------------------------------------------------------------ control.c */

int control_open(const char *path);
void control_close(void);

/* ------------------------------------------------------------------ turn.c */

struct counters {
	uint64_t turns, requests, greetings, denied, connects, bad_messages, evictions;
	uint64_t pressure_rounds, heat_asked, heat_answered;
};

struct donor {
	struct conf conf;
	const char *conf_path;
	struct store *store;
	struct event_base *base;
	struct client *clients; /* live and dead */
	uint8_t start[16];	/* random, and another one at each start */
	int64_t started;	/* ms */
	bool draining;
	bool changed; /* the store has something to sync */
	uint64_t registered; /* bytes of regions, in this turn */
	bool ended;
	int exit_code;
	struct counters counters;
};

extern struct donor donor;

/* Everything done so far is durable when this returns. If the disk fails, rmemd ends here. */
void serve_sync(void);
/* The same also if nothing was changed, so that the folder names this host after a move. */
void serve_sync_unchanged(void);
void serve_end(int code);
/* accept() has failed with @err. True: the connection stays in the queue, so the socket would be readable again at once. */
bool accept_must_wait(int err);
struct event *event_or_die(evutil_socket_t fd, short what, event_callback_fn function, void *arg);

/* ------------------------------------------------------------------ serve.c */

int serve_open(void);
void serve(void); /* until the donor has ended */
void serve_close(void);

#endif
