/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The godwit at the destination, started there through ssh.
 */
#ifndef GODWIT_CONNECT_H
#define GODWIT_CONNECT_H

#include "wire.h"

struct dest {
	struct wire wire;	/* in: what it says; out: what we say */
	pid_t ssh;
	const char *host;
	int64_t rtt_ns;		/* the shortest round trip seen */
	json_t *hello;		/* its first word */
	bool refused;		/* dest_ask(): it has answered, and the answer is "failed" */
	int64_t until;		/* we wait for the hello until then, of now_ns(), but for 1 s at least; 0: for 30 s */
};

#define DEST_INIT { .wire = { -1, -1 }, .ssh = -1 }

/*
 * host: NULL is this host. command: the ssh command, its words separated by blanks; NULL: ours. attach: the agent of this
 * move may run there already; take up the talk with it. -1 with fault().
 */
int dest_connect(struct dest *dest, const char *host, const char *command, const char *id, bool attach);
/* The same in two steps: the connection is made, and hello answered, while we do something else. */
int dest_start(struct dest *dest, const char *host, const char *command, const char *id, bool attach);
int dest_hello(struct dest *dest);
/* Measure the round trip. */
int dest_ping(struct dest *dest);
void dest_close(struct dest *dest);

/* Ask, and wait for the answer, which is to be freed. NULL with fault(): it says "failed" (dest->refused), or none came. */
json_t *dest_ask(struct dest *dest, json_t *question, int timeout_ms);
/*
 * After "abort", hear the answer: "aborted", or that it is too late. The destination may have sent other words before it heard
 * "abort": those are dropped. NULL: none came.
 */
json_t *dest_hear_aborted(struct dest *dest, int timeout_ms);
/* Turn a "failed" into a fault(). */
int dest_understand(const struct dest *dest, json_t *answer);

#endif /* GODWIT_CONNECT_H */
