/* SPDX-License-Identifier: MIT */
/*
 * The migration protocol as the far end of the wire speaks it (docs/PROTOCOL.md), right or wrong, and what the driver says of
 * itself. Nothing here is the driver's code: the MAC is computed from RFC 7693.
 */
#ifndef MIGR_H
#define MIGR_H

#include <infiniband/migrate.h>
#include "wire.h"

typedef uint8_t migr_key[RXE_MIGR_KEY_LEN];

/* BLAKE2s-128 of the header with this key; with NULL: zeros */
void migr_sign(struct rxe_migr_hdr *hdr, const uint8_t *key);

/* The GID of an IPv4 address. */
union ibv_gid migr_gid(const char *address);

/*
 * A header from FAR_QPN at FAR, which is also the old place, to this QP; not signed. The first PSN of both sides is 0. A STOP_ACK
 * answers the last STOP that came.
 */
struct rxe_migr_hdr migr_hdr(int opcode, uint32_t qpn, uint32_t epoch, uint32_t psn);

/* Sends it in a packet from this address (NULL: FAR). */
struct frame migr_frame(const struct rxe_migr_hdr *hdr, const char *from);

/* Packets that are repeated until they are answered. One more may come, which was on its way. */
bool migr_is_call(int opcode);

/* The next packet of the protocol, except repeated ones. It must be in order, for FAR_QPN, of a QP in RTS, and have this opcode. */
struct rxe_migr_hdr migr_expect(int opcode, const uint8_t *key);

/* One of rxe0's counters. */
uint64_t migr_counter(const char *name);

/* All of the protocol's */
struct migr_counts {
	uint64_t sent_stop, rcvd_stop, sent_nak_stopped, rcvd_nak_stopped, sent_resume, rcvd_resume, sent_moved, rcvd_moved,
		 migr_pauses, migr_resumes, migr_refused;
};

void migr_counters(struct migr_counts *c);

/* What STATUS says of this number. False: nothing, so the QP is RUNNING or gone. */
bool migr_status(struct ibv_context *ctx, uint32_t qpn, bool tombstone, struct rxe_migr_status *st);

/* The record of a QP, from a dump that stops nothing. */
struct rxe_migr_rec_qp migr_record(struct ibv_qp *qp);

/* Stops the context as a checkpoint does. */
void migr_stop(struct ibv_context *ctx);

void migr_set_key(struct ibv_context *ctx, const uint8_t *key);	/* NULL: none */

#endif
