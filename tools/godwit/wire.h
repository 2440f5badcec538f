/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What two godwits say to each other, through the pipes of ssh: frames of a big-endian length and a type
 * byte. 'J' carries a JSON object, 'D' a piece of the file that the last JSON object announced.
 */
#ifndef GODWIT_WIRE_H
#define GODWIT_WIRE_H

#include <jansson.h>
#include "godwit.h"

#define WIRE_VERSION	3
#define WIRE_MAX	(64 << 20)	/* both ends are root's: this is against a peer that talks no sense */

/* How long a pipe may take no byte, or give none of what has begun, before we call the other end gone. */
#define STALL_MS	20000

enum { WIRE_JSON = 'J', WIRE_DATA = 'D' };

/* The two directions of a connection; equal where it is a socket. */
struct wire {
	int in, out;
};

/* All of these give 0, or -1 with fault(). timeout_ms: -1 waits for ever, for a frame to begin. */
int wire_send(const struct wire *wire, json_t *message);	/* takes message over */
int wire_send_data(const struct wire *wire, const void *data, size_t length);
/* Between these two, what is sent waits for more of it: small pieces cost ssh as much as large ones. */
void wire_cork(void);
int wire_uncork(const struct wire *wire);
/* One frame. JSON: *message is to be freed with json_decref(). DATA: *message is NULL. */
int wire_receive(const struct wire *wire, json_t **message, void *data, size_t *length, int timeout_ms);

/* Does the connection have something to read, or its end? */
bool wire_ready(const struct wire *wire, int timeout_ms);

uint32_t crc32c(uint32_t crc, const void *data, size_t length);

#endif /* GODWIT_WIRE_H */
