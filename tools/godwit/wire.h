/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What two godwits say to each other through the pipes of ssh: frames, which begin with a big-endian length and a type byte.
 * 'J' has a JSON object, 'D' a piece of the file that the last JSON object announced.
 */
#ifndef GODWIT_WIRE_H
#define GODWIT_WIRE_H

#include <jansson.h>
#include "godwit.h"

#define WIRE_VERSION	11
#define WIRE_MAX	(64 << 20)	/* both ends are root's: this limit is against an end that has gone wrong */

/* If a pipe takes no byte for so long, or gives none of a frame that has begun, the other end counts as gone. */
#define STALL_MS	20000

enum { WIRE_JSON = 'J', WIRE_DATA = 'D' };

/* The two directions of a connection; equal where it is a socket. */
struct wire {
	int in, out;
};

/* All of these give 0, or -1 with fault(). timeout_ms: for a frame to begin; -1: for ever. */
int wire_send(const struct wire *wire, json_t *message);	/* takes message over */
int wire_send_data(const struct wire *wire, const void *data, size_t length);
/* Between these two calls small frames are sent together: a small piece costs ssh as much as a large one. */
void wire_cork(void);
int wire_uncork(const struct wire *wire);
/* One frame. JSON: *message is to be freed with json_decref(). DATA: *message is NULL. */
int wire_receive(const struct wire *wire, json_t **message, void *data, size_t *length, int timeout_ms);

/* Is there something to read, or the end of the connection? */
bool wire_ready(const struct wire *wire, int timeout_ms);

uint32_t crc32c(uint32_t crc, const void *data, size_t length);

#endif /* GODWIT_WIRE_H */
