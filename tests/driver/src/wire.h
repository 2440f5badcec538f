/* SPDX-License-Identifier: MIT */
/*
 * The other end of a wire whose near end is rxe0: whatever the driver sends comes here, packet by packet, and
 * whatever is sent from here is a packet of its peer, even one that no driver would send. Nothing gets lost
 * and nothing is sent again unless a test says so. Everything here ends the process with a line about what
 * was not so.
 *
 * tests/driver/wire.sh makes the near end.
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define NEAR "10.88.0.1"
#define FAR "10.88.0.2"

enum { PATIENCE = 60 };	/* seconds: whoever waits so long waits in vain, on any machine */

enum { FAR_QPN = 0x4711, MTU = 1024 };	/* the QP numbers here mean nothing; this is one of them */

enum opcode {
	SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM, WRITE_FIRST, WRITE_MIDDLE,
	WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM, READ, READ_ANSWER_FIRST, READ_ANSWER_MIDDLE,
	READ_ANSWER_LAST, READ_ANSWER, ACK, ATOMIC_ACK, CMP_SWAP, FETCH_ADD, FLUSH = 0x1c, ATOMIC_WRITE,
	UC = 0x20, UD = 0x60,
};

enum syndrome { ACKED = 0x1f, NAK_RNR = 0x21, NAK_PSN = 0x60, NAK_INVALID = 0x61, NAK_ACCESS = 0x62 };

enum { FLUSH_GLOBAL = 1, FLUSH_REGION = 1 << 4 };	/* bits of flush */

struct packet {
	uint8_t opcode;
	uint32_t qpn, psn;
	bool ack;			/* asked for */
	uint64_t va;			/* READ, WRITE, FLUSH, ATOMIC_WRITE, atomics */
	uint32_t rkey, length;
	uint64_t swap, compare;		/* atomics; swap: what FETCH_ADD adds, and what ATOMIC_ACK answers */
	uint32_t flush;
	uint8_t syndrome;		/* answers */
	uint32_t imm, qkey, src_qpn;
	uint32_t len;			/* of data */
	uint8_t data[2 * MTU];
	uint8_t ttl;			/* of what comes */
	uint32_t to;			/* addresses, in network order; 0: NEAR, FAR */
	uint32_t from;
};

/* A packet as it lies on the wire, from the Ethernet header to the ICRC, to be changed anywhere. */
enum { FRAME_IP = 14, FRAME_BTH = FRAME_IP + 28, FRAME_DATA = FRAME_BTH + 12, FRAME_ICRC = 4 };

struct frame {
	uint32_t len;
	uint8_t at[FRAME_DATA + 64 + 2 * MTU + 8];
};

/* The device, which is rxe0, with the wire laid on. */
struct ibv_context *wire_open(void);

/* No such wire: an interface of this host, and at this address, whoever is behind it. */
void wire_on(const char *interface, const uint8_t mac[6]);

/* No wire at all: a socket of UDP of this host's own address, for which nobody needs a capability. Only sends. */
void wire_by_udp(const char *from);

/* Take what comes next as it is. Is it of the migration protocol? */
bool wire_frame_of_ours(struct frame *f);

void wire_send(const struct packet *p);

/* That in steps. Sealing makes lengths and checksums fit f->len and what lies there. */
struct frame wire_frame(const struct packet *p);
void wire_seal(struct frame *f);
void wire_send_frame(const struct frame *f);

/* The next packet that the driver sends, but not those of the migration protocol. */
struct packet wire_next(void);

/* Any, those too, which have their header in data. False: none comes within this time. */
bool wire_any(struct packet *p, int ms);

/* That; it must be of this opcode and PSN. */
struct packet wire_expect(int opcode, uint32_t psn);

/* --------------------------------------------------- what such tests share -- */

/* A QP of this type, connected to FAR_QPN at FAR in RTS, both sides' first PSN 0. What is 0 in cap is 16. */
struct ibv_qp *wire_qp(struct ibv_pd *pd, enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_srq *srq,
		       int rd_atomic);

/* Leads it from RESET to RTS, as that does, from the address that find_gid() found last. */
void wire_lead(struct ibv_qp *qp, int rd_atomic);

/* That, to RTR or RTS, with these first PSNs. */
void wire_lead_from(struct ibv_qp *qp, int rd_atomic, uint32_t rq_psn, uint32_t sq_psn, enum ibv_qp_state last);

/* The next completion, of whatever status. */
struct ibv_wc wire_completion(struct ibv_cq *cq);

#endif
