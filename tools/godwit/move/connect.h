/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The godwit at the destination, started there through ssh.
 */
#ifndef GODWIT_CONNECT_H
#define GODWIT_CONNECT_H

#include "wire.h"

struct dest {
	struct wire wire;	/* in: its answers; out: to it */
	pid_t ssh;
	const char *host;
	int64_t rtt_ns;		/* the shortest seen */
	json_t *hello;		/* what it said of itself */
	int64_t until;		/* a connection is waited for until then; 0: as long as it takes */
};

#define DEST_INIT { .wire = { -1, -1 }, .ssh = -1 }

/*
 * host: NULL is this one. command: the ssh command, words apart by blanks; NULL: ours. attach: the agent of
 * this move runs there already, take up the talk with it again. -1 with fault().
 */
int dest_connect(struct dest *dest, const char *host, const char *command, const char *id, bool attach);
/* The same in two steps: the connection is made while we do something else. */
int dest_start(struct dest *dest, const char *host, const char *command, const char *id, bool attach);
int dest_hello(struct dest *dest);
/* Measure the round trip. */
int dest_ping(struct dest *dest);
void dest_close(struct dest *dest);

/* Ask, and wait for the answer: an object, to be freed; NULL with fault(), also when it says "failed". */
json_t *dest_ask(struct dest *dest, json_t *question, int timeout_ms);
/* Turn a "failed" into a fault(). */
int dest_understand(const struct dest *dest, json_t *answer);

#endif /* GODWIT_CONNECT_H */
