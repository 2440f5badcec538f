/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The godwit at the destination, started there through ssh.
 */
#ifndef GODWIT_PEER_H
#define GODWIT_PEER_H

#include "wire.h"

struct peer {
	struct wire wire;	/* in: its answers; out: to it */
	pid_t ssh;
	const char *host;
	int64_t rtt_ns;		/* the shortest seen */
	json_t *hello;		/* what it said of itself */
	int64_t until;		/* a connection is waited for until then; 0: as long as it takes */
};

#define PEER_INIT { .wire = { -1, -1 }, .ssh = -1 }

/*
 * host: NULL is this one. command: the ssh command, words apart by blanks; NULL: ours. attach: the agent of
 * this move runs there already, take up the talk with it again. -1 with fault().
 */
int peer_connect(struct peer *peer, const char *host, const char *command, const char *id, bool attach);
/* The same in two steps: the connection is made while we do something else. */
int peer_start(struct peer *peer, const char *host, const char *command, const char *id, bool attach);
int peer_hello(struct peer *peer);
/* Measure the round trip. */
int peer_ping(struct peer *peer);
void peer_close(struct peer *peer);

/* Ask, and wait for the answer: an object, to be freed; NULL with fault(), also when it says "failed". */
json_t *peer_ask(struct peer *peer, json_t *question, int timeout_ms);
/* Turn a "failed" into a fault(). */
int peer_understand(const struct peer *peer, json_t *answer);

#endif /* GODWIT_PEER_H */
