// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "stray.h"

enum { SENDS = RECEIVES * RMEM_MSG_SIZE, DATA = SENDS + RMEM_SLOTS * RMEM_MSG_SIZE, ALL = DATA + DATA_SIZE };
enum { SEND_ID = 1000, REACH_ID = 2000 };

uint64_t connections;
bool link_events;
static struct rmem_port port; /* the first connection opens it */
static struct ibv_pd *pd;

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------ TCP */

int tcp_open(void)
{
	struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found;
	struct timeval limit = { .tv_sec = options.patience };
	int fd;

	if (getaddrinfo(options.host, options.port, &want, &found))
		fail("%s: no such host", options.host);
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		fail("socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, found->ai_addr, found->ai_addrlen)) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	connections++;
	return fd;
}

static bool get(int fd, void *buf, size_t size)
{
	return recv(fd, buf, size, MSG_WAITALL) == (ssize_t)size;
}

static bool give(int fd, const void *buf, size_t size)
{
	return send(fd, buf, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* ------------------------------------------------------------------ objects */

static void device_open(int fd)
{
	struct sockaddr_storage local;
	socklen_t size = sizeof(local);
	char *why = NULL;

	if (getsockname(fd, (struct sockaddr *)&local, &size) || rmem_port_of((struct sockaddr *)&local, NULL, &port, &why))
		fail("no RDMA device: %s", why ? why : strerror(errno));
	pd = ibv_alloc_pd(port.context);
	if (!pd)
		fail("no PD: %s", strerror(errno));
}

static void post_receive(struct link *l, unsigned int slot)
{
	struct ibv_sge sge = { (uintptr_t)l->buffers + slot * RMEM_MSG_SIZE, RMEM_MSG_SIZE, l->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };

	/* A broken queue pair receives nothing. */
	ibv_post_recv(l->qp, &wr, &bad);
}

static void objects_make(struct link *l)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2 * RMEM_SLOTS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};

	l->buffers = aligned_alloc(4096, ALL);
	l->data = l->buffers + DATA;
	l->channel = link_events ? ibv_create_comp_channel(port.context) : NULL;
	l->cq = ibv_create_cq(port.context, 2 * RMEM_SLOTS + RECEIVES, NULL, l->channel, 0);
	if (!l->buffers || !l->cq || (link_events && !l->channel))
		fail("no memory, or no CQ: %s", strerror(errno));
	memset(l->buffers, 0, ALL);
	l->mr = ibv_reg_mr(pd, l->buffers, ALL, IBV_ACCESS_LOCAL_WRITE);
	attr.send_cq = attr.recv_cq = l->cq;
	l->qp = ibv_create_qp(pd, &attr);
	if (!l->mr || !l->qp)
		fail("no MR, or no QP: %s", strerror(errno));
}

void link_close(struct link *l)
{
	if (!l->qp)
		return;
	ibv_destroy_qp(l->qp);
	ibv_dereg_mr(l->mr);
	ibv_destroy_cq(l->cq);
	if (l->channel)
		ibv_destroy_comp_channel(l->channel);
	free(l->buffers);
	l->qp = NULL;
}

/* ------------------------------------------------------------------ handshake */

static int begin(struct link *l, int fd, const struct who *who, const struct spoil *spoil)
{
	l->hello = (struct rmem_hello){ .magic = htole32(RMEM_MAGIC), .version = htole32(RMEM_VERSION) };
	memcpy(l->hello.client, who->name, strnlen(who->name, RMEM_NAME_SIZE - 1));
	rmem_random(l->hello.nonce, sizeof(l->hello.nonce));
	if (spoil && spoil->hello)
		spoil->hello(l);
	if (!give(fd, &l->hello, sizeof(l->hello)) || !get(fd, &l->challenge, sizeof(l->challenge)))
		return CLOSED;
	return le32toh(l->challenge.status);
}

static int prove(struct link *l, int fd, const struct who *who, const struct spoil *spoil)
{
	memset(&l->proof, 0, sizeof(l->proof));
	rmem_qp_describe(&port, l->qp, &l->proof.qp);
	if (spoil && spoil->qp)
		spoil->qp(l);
	rmem_mac_client(l->proof.mac, who->key, &l->hello, &l->challenge, &l->proof.qp);
	if (spoil && spoil->proof)
		spoil->proof(l);
	if (!give(fd, &l->proof, sizeof(l->proof)) || !get(fd, &l->welcome, sizeof(l->welcome)))
		return CLOSED;
	return le32toh(l->welcome.status);
}

/* Checks that the donor knows the key, too, and leads the queue pair to RTS. */
static void finish(struct link *l, const struct who *who)
{
	uint8_t mac[RMEM_MAC_SIZE];
	unsigned int i;
	int ret;

	rmem_mac_donor(mac, who->key, &l->hello, &l->challenge, &l->proof, &l->welcome);
	if (!rmem_mac_equal(mac, l->welcome.mac))
		fail("the welcome of %s has another MAC", who->name);
	ret = rmem_qp_connect(&port, l->qp, &l->proof.qp, &l->welcome.qp);
	if (ret)
		fail("connection of the queue pair: %s", strerror(-ret));
	for (i = 0; i < RECEIVES; i++)
		post_receive(l, i);
}

int link_shake(struct link *l, const struct who *who, const struct spoil *spoil)
{
	int fd = tcp_open(), status;

	memset(l, 0, sizeof(*l));
	if (fd < 0)
		return CLOSED;
	if (!pd)
		device_open(fd);
	objects_make(l);
	status = begin(l, fd, who, spoil);
	if (status == RMEM_OK)
		status = prove(l, fd, who, spoil);
	if (status == RMEM_OK)
		finish(l, who);
	else
		link_close(l);
	close(fd);
	return status;
}

void link_open(struct link *l, const struct who *who)
{
	int64_t end = now_ms() + options.patience * 1000LL;
	int status;

	/* The donor may have no place for another handshake just then. */
	while ((status = link_shake(l, who, NULL)) == CLOSED && now_ms() < end)
		usleep(20000);
	if (status != RMEM_OK)
		fail("%s is not welcome: status %d", who->name, status);
}

/* ------------------------------------------------------------------ messages */

static uint8_t *send_buffer(const struct link *l)
{
	return l->buffers + SENDS + l->sent % RMEM_SLOTS * RMEM_MSG_SIZE;
}

struct rmem_msg *link_message(struct link *l)
{
	return (struct rmem_msg *)send_buffer(l);
}

void link_send(struct link *l, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)send_buffer(l), size, l->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = SEND_ID, .sg_list = &sge, .num_sge = !!size, .opcode = IBV_WR_SEND };

	l->sent++;
	/* A broken queue pair takes nothing. Then there is no answer. */
	ibv_post_send(l->qp, &wr, &bad);
}

/* The next completion: false after this time. */
static bool complete(struct link *l, struct ibv_wc *wc, int64_t end)
{
	int n;

	while (!(n = ibv_poll_cq(l->cq, 1, wc))) {
		if (now_ms() >= end)
			return false;
		sched_yield();
	}
	if (n < 0)
		fail("the completion queue can't be read");
	return true;
}

const struct rmem_msg *link_receive(struct link *l, int64_t ms, uint32_t *size)
{
	static uint8_t message[RMEM_MSG_SIZE];
	int64_t end = now_ms() + ms;
	struct ibv_wc wc;

	while (complete(l, &wc, end)) {
		if (wc.status)
			return NULL;
		if (wc.wr_id >= RECEIVES)
			continue;
		memcpy(message, l->buffers + wc.wr_id * RMEM_MSG_SIZE, wc.byte_len);
		*size = wc.byte_len;
		post_receive(l, wc.wr_id);
		/* A notice may come at any time. */
		if (wc.byte_len >= sizeof(struct rmem_msg) && ((struct rmem_msg *)message)->id == 0)
			continue;
		l->received++;
		return (struct rmem_msg *)message;
	}
	return NULL;
}

const struct rmem_msg *link_ask(struct link *l, uint16_t type, const void *body, uint32_t size)
{
	struct rmem_msg *msg = link_message(l);
	const struct rmem_msg *answer;
	uint32_t got;

	*msg = (struct rmem_msg){ .type = htole16(type), .size = htole32(sizeof(*msg) + size), .id = htole64(++l->id) };
	if (size)
		memcpy(msg + 1, body, size);
	link_send(l, sizeof(*msg) + size);
	answer = link_receive(l, options.patience * 1000LL, &got);
	if (!answer)
		fail("there is no answer to a good request of type %u", type);
	if (got < sizeof(*answer) || le32toh(answer->size) != got || answer->id != htole64(l->id) ||
	    le16toh(answer->type) != (type | RMEM_ANSWER))
		fail("the answer to a request of type %u is not one: type %#x, size %u of %u", type, le16toh(answer->type),
		     le32toh(answer->size), got);
	return answer;
}

struct rmem_wire_region link_alloc(struct link *l, uint64_t tag, uint64_t size)
{
	struct rmem_alloc_request request = { .tag = htole64(tag), .size = htole64(size) };
	const struct rmem_msg *answer = link_ask(l, RMEM_ALLOC, &request, sizeof(request));
	struct rmem_wire_region region;

	if (answer->status || le32toh(answer->size) != sizeof(*answer) + sizeof(region))
		fail("no region of %llu bytes: status %u", (unsigned long long)size, le16toh(answer->status));
	memcpy(&region, answer + 1, sizeof(region));
	return region;
}

static void free_one(struct link *l, uint64_t tag, uint64_t txn)
{
	struct {
		struct rmem_queue_request request;
		struct rmem_wire_op op;
	} queue = { { .count = htole32(1) }, { .kind = htole32(RMEM_OP_FREE), .dst = tag } };
	struct rmem_go_request go = { .txn = htole64(txn), .count = htole64(1) };

	if (link_ask(l, RMEM_QUEUE, &queue, sizeof(queue))->status || link_ask(l, RMEM_GO, &go, sizeof(go))->status)
		fail("tag %llu can't be freed", (unsigned long long)le64toh(tag));
}

void link_free_all(struct link *l)
{
	uint64_t txn = le64toh(l->welcome.last_txn);
	struct rmem_list_request all = { 0 };
	const struct rmem_list_answer *list;
	const struct rmem_msg *answer;
	uint64_t tags[RMEM_LIST_MAX];
	uint32_t i, count;

	do {
		answer = link_ask(l, RMEM_LIST, &all, sizeof(all));
		list = (const void *)(answer + 1);
		count = answer->status ? UINT32_MAX : le32toh(list->count);
		if (count > RMEM_LIST_MAX)
			fail("LIST is refused, or has too many regions");
		for (i = 0; i < count; i++)
			tags[i] = list->regions[i].tag;
		for (i = 0; i < count; i++)
			free_one(l, tags[i], ++txn);
	} while (count);
}

enum ibv_wc_status link_reach(struct link *l, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey, uint32_t len)
{
	int64_t end = now_ms() + options.patience * 1000LL;
	struct ibv_sge sge = { (uintptr_t)l->data, len, l->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = REACH_ID, .sg_list = &sge, .num_sge = 1, .opcode = opcode };
	struct ibv_wc wc;

	if (opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_RDMA_WRITE) {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	} else {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = wr.wr.atomic.swap = 1;
	}
	if (ibv_post_send(l->qp, &wr, &bad))
		fail("a request can't be posted");
	while (complete(l, &wc, end))
		if (wc.wr_id == REACH_ID)
			return wc.status;
	fail("a one-sided request does not complete");
}
