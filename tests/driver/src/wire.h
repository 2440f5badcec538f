/* SPDX-License-Identifier: MIT */
/*
 * The far end of a wire whose near end is rxe0. Whatever the driver sends comes here, packet by packet. Whatever is sent from
 * here is a packet of its peer, even one that no driver would send. Nothing gets lost and nothing is sent again unless a test
 * says so. Each function ends the process with a line if something is wrong.
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

/* Opens the device, which is rxe0, and the wire. */
struct ibv_context *wire_open(void);

/* Instead of a wire: an interface of this host, and whatever host has this MAC address. */
void wire_on(const char *interface, const uint8_t mac[6]);

/* Instead of a wire: a UDP socket of this host's own address, which needs no capability. It can only send. */
void wire_by_udp(const char *from);

/* Takes the next packet as it is. Does it belong to the migration protocol? */
bool wire_frame_of_ours(struct frame *f);

void wire_send(const struct packet *p);

/* The same in steps. Sealing makes lengths and checksums fit f->len and the contents. */
struct frame wire_frame(const struct packet *p);
void wire_seal(struct frame *f);
void wire_send_frame(const struct frame *f);

/* The same packet over IPv6, from a neighbour to all hosts of the link, without a UDP checksum. Not sized: UDP's length is 0. */
struct frame wire_frame_ipv6(const struct packet *p, bool sized);

/* The next packet that the driver sends, but not those of the migration protocol. */
struct packet wire_next(void);

/* Any packet, also those of the protocol, which have their header in data. False: none comes within this time. */
bool wire_any(struct packet *p, int ms);

/* The next packet, which must have this opcode and PSN. */
struct packet wire_expect(int opcode, uint32_t psn);

/* --------------------------------------------------- what such tests share -- */

/* A QP of this type, connected to FAR_QPN at FAR in RTS, with 0 as the first PSN of both sides. A 0 in cap stands for 16. */
struct ibv_qp *wire_qp(struct ibv_pd *pd, enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_srq *srq,
		       int rd_atomic);

/* Leads the QP from RESET to RTS in the same way, from the address that find_gid() found last. */
void wire_lead(struct ibv_qp *qp, int rd_atomic);

/* The same, to RTR or RTS, with these first PSNs. */
void wire_lead_from(struct ibv_qp *qp, int rd_atomic, uint32_t rq_psn, uint32_t sq_psn, enum ibv_qp_state last);

/* The next completion, of whatever status. False: none comes within this time. */
bool wire_completes(struct ibv_cq *cq, struct ibv_wc *wc, int ms);

/* The same, which must come. */
struct ibv_wc wire_completion(struct ibv_cq *cq);

#endif
