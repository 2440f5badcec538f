/* SPDX-License-Identifier: MIT */
/*
 * Shared by all programs that connect: keys and MACs, the RDMA device of an address, the way of a queue pair to RTS, and the
 * client's side of the handshake, which librmem and rmemswap use.
 */
#ifndef RMEM_COMMON_H
#define RMEM_COMMON_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include <rmem/wire.h>

/*
 * Reads a key: 64 hexadecimal digits and a newline. The file must belong to the reader (or root), and nobody else may have
 * access. Returns 0, or -1 and *@why: one line, which the caller frees.
 */
int rmem_key_read(const char *path, uint8_t key[RMEM_KEY_SIZE], char **why);

void rmem_mac_client(uint8_t mac[RMEM_MAC_SIZE], const uint8_t key[RMEM_KEY_SIZE], const struct rmem_hello *hello,
		     const struct rmem_challenge *challenge, const struct rmem_qp *qp);
void rmem_mac_donor(uint8_t mac[RMEM_MAC_SIZE], const uint8_t key[RMEM_KEY_SIZE], const struct rmem_hello *hello,
		    const struct rmem_challenge *challenge, const struct rmem_proof *proof, const struct rmem_welcome *welcome);
/* Compares in constant time. */
bool rmem_mac_equal(const uint8_t a[RMEM_MAC_SIZE], const uint8_t b[RMEM_MAC_SIZE]);
void rmem_random(void *buf, size_t size);
bool rmem_name_good(const char name[RMEM_NAME_SIZE]); /* 1 to 63 of [A-Za-z0-9._-], then a 0 */

/* The RDMA port that has an IP address as a RoCEv2 GID. */
struct rmem_port {
	struct ibv_context *context;
	uint8_t num;
	uint8_t gid_index;
	union ibv_gid gid;
	enum ibv_mtu mtu; /* active */
	bool atomic_write; /* the device has IBV_WR_ATOMIC_WRITE */
};

/* A RoCEv2 GID is an IPv6 address, or ::ffff: and an IPv4 address. Returns 0, or -1 if the text is neither address. */
int rmem_gid_of(const struct sockaddr *address, union ibv_gid *gid);

/*
 * Opens the device that has the address @local. If @device is not NULL, only the device of this name is tried. The caller closes
 * port->context. Returns 0, or -1 and *@why, which the caller frees.
 */
int rmem_port_of(const struct sockaddr *local, const char *device, struct rmem_port *port, char **why);

/* Fills in what the other side must know: the GID, the QP's number, a random start PSN and the MTU. */
void rmem_qp_describe(const struct rmem_port *port, const struct ibv_qp *qp, struct rmem_qp *mine);

/*
 * Leads the queue pair through INIT, RTR and RTS towards @theirs. @theirs comes from the network, so everything in it is checked.
 * The remote side may READ, WRITE and use atomics. If the peer does not answer, the connection ends by time-outs after some
 * seconds; a peer that is stopped, since it moves, answers. Returns 0 or -errno.
 */
int rmem_qp_connect(const struct rmem_port *port, struct ibv_qp *qp, const struct rmem_qp *mine, const struct rmem_qp *theirs);

int64_t rmem_now_ms(void); /* CLOCK_MONOTONIC */

/* @status is not RMEM_OK. Returns it in words, and stores it as -errno in *@error. */
const char *rmem_status_text(unsigned int status, int *error);

/* The donor that a client connects to, and who the client is. */
struct rmem_dest {
	const char *host, *service, *client;
	const uint8_t *key;
};

struct rmem_handshake {
	int fd;			       /* -1: none; the caller of rmem_greet() closes it */
	int64_t deadline;	       /* in rmem_now_ms(), for the whole handshake */
	struct sockaddr_storage local; /* the address that the donor sees; the queue pair must have it, too */
	struct rmem_hello hello;
	struct rmem_challenge challenge;
	struct rmem_proof proof;
	struct rmem_welcome welcome;
};

/*
 * First call rmem_greet(), which gets the donor's challenge. Then make a queue pair at the address h->local, and describe it in
 * h->proof.qp. Then call rmem_prove(), which gets the donor's welcome and checks its MAC. Both block at most until the deadline.
 * rmem_greet() puts the deadline off by the time that it takes to look up the host. Both return 0, or -errno and *@why, which the
 * caller frees.
 */
int rmem_greet(const struct rmem_dest *dest, struct rmem_handshake *h, char **why);
int rmem_prove(const struct rmem_dest *dest, struct rmem_handshake *h, char **why);

#endif
