// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's own commands for ids of librdmacm (rdma_user_cm.h), and the events
 * that answer them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "restore_cm.h"

/* Values of rdma_cma.h, which can't be included beside the kernel's header */
enum cm_event {
	EVENT_ADDR_RESOLVED	= 0,
	EVENT_ADDR_ERROR	= 1,
	EVENT_ROUTE_RESOLVED	= 2,
	EVENT_CONNECT_RESPONSE	= 5,
	EVENT_DISCONNECTED	= 10,
};

#define EVENT_TIMEOUT 10000	/* ms */

/* -------------------------------------------------------------- one command -- */

#define COMMAND(type)							\
	struct {							\
		struct rdma_ucm_cmd_hdr hdr;				\
		struct type c;						\
	} __attribute__((packed, aligned(8)))

/* 0 or errno */
static int write_command(int fd, void *command, uint32_t number, size_t length,
			 uint16_t out)
{
	struct rdma_ucm_cmd_hdr *hdr = command;

	hdr->cmd = number;
	hdr->in = length - sizeof(*hdr);
	hdr->out = out;
	return write(fd, command, length) == (ssize_t)length ? 0 : errno;
}

#define RUN(fd, cmd, number, out) \
	write_command(fd, &(cmd), RDMA_USER_CM_CMD_##number, sizeof(cmd), out)

/* ---------------------------------------------------------------- addresses -- */

size_t address_size(const union address *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return sizeof(a->in);
	case AF_INET6:
		return sizeof(a->in6);
	default:
		return 0;
	}
}

static void address_text(const union address *a, char text[INET6_ADDRSTRLEN])
{
	strcpy(text, "?");
	if (a->sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &a->in.sin_addr, text, INET6_ADDRSTRLEN);
	else if (a->sa.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &a->in6.sin6_addr, text, INET6_ADDRSTRLEN);
}

/* ---------------------------------------------------------------------- ids -- */

int cm_create_id(int fd, const RdmaCmIdEntry *id, uint32_t *number)
{
	struct rdma_ucm_create_id_resp resp;
	COMMAND(rdma_ucm_create_id) cmd = { .c = {
		.uid = id->uid,
		.response = (uintptr_t)&resp,
		.ps = id->ps,
		.qp_type = id->qp_type,
	} };
	int err = RUN(fd, cmd, CREATE_ID, sizeof(resp));

	if (!err)
		*number = resp.id;
	return err;
}

int cm_destroy_id(int fd, uint32_t number)
{
	struct rdma_ucm_destroy_id_resp resp;
	COMMAND(rdma_ucm_destroy_id) cmd = { .c = {
		.response = (uintptr_t)&resp,
		.id = number,
	} };

	return RUN(fd, cmd, DESTROY_ID, sizeof(resp));
}

static int set_option(int fd, uint32_t id, uint32_t option, const void *value,
		      uint32_t length)
{
	COMMAND(rdma_ucm_set_option) cmd = { .c = {
		.optval = (uintptr_t)value,
		.id = id,
		.level = RDMA_OPTION_ID,
		.optname = option,
		.optlen = length,
	} };

	return RUN(fd, cmd, SET_OPTION, 0);
}

int cm_set_options(int fd, const RdmaCmIdEntry *id)
{
	uint8_t tos = id->tos, timeout = id->ack_timeout;
	int yes = 1, err = 0;

	if (id->flags & RXE_MIGR_CM_TOS)
		err = set_option(fd, id->id, RDMA_OPTION_ID_TOS, &tos, 1);
	if (!err && id->flags & RXE_MIGR_CM_ACK_TIMEOUT)
		err = set_option(fd, id->id, RDMA_OPTION_ID_ACK_TIMEOUT,
				 &timeout, 1);
	if (!err && id->flags & RXE_MIGR_CM_REUSEADDR)
		err = set_option(fd, id->id, RDMA_OPTION_ID_REUSEADDR, &yes,
				 sizeof(yes));
	if (!err && id->flags & RXE_MIGR_CM_AFONLY)
		err = set_option(fd, id->id, RDMA_OPTION_ID_AFONLY, &yes,
				 sizeof(yes));
	return err ? fail("id %u of librdmacm: its options cannot be set: %s",
			  id->id, strerror(err)) : 0;
}

int cm_bind(int fd, const RdmaCmIdEntry *id, const union address *at)
{
	COMMAND(rdma_ucm_bind) cmd = { .c.id = id->id };
	char text[INET6_ADDRSTRLEN];
	int err;

	cmd.c.addr_size = address_size(at);
	memcpy(&cmd.c.addr, &at->kernel, sizeof(cmd.c.addr));
	err = RUN(fd, cmd, BIND, 0);
	if (!err)
		return 0;
	address_text(at, text);
	return fail("id %u of librdmacm: it cannot be bound to %s, port %u, here: %s",
		    id->id, text, ntohs(at->in.sin_port), strerror(err));
}

int cm_listen(int fd, const RdmaCmIdEntry *id)
{
	COMMAND(rdma_ucm_listen) cmd = { .c = {
		.id = id->id,
		.backlog = id->backlog,
	} };
	int err = RUN(fd, cmd, LISTEN, 0);

	return err ? fail("id %u of librdmacm: it cannot listen here: %s", id->id,
			  strerror(err)) : 0;
}

/* ------------------------------------------------------------------- events -- */

static int next_event(int fd, const RdmaCmIdEntry *id,
		      struct rdma_ucm_event_resp *resp)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	COMMAND(rdma_ucm_get_event) cmd = { .c.response = (uintptr_t)resp };
	int ret, err;

	do {
		ret = poll(&pfd, 1, EVENT_TIMEOUT);
	} while (ret < 0 && errno == EINTR);
	if (ret <= 0)
		return fail("id %u of librdmacm: no word from the kernel: %s",
			    id->id, ret ? strerror(errno) : "timed out");
	err = RUN(fd, cmd, GET_EVENT, sizeof(*resp));
	return err ? fail("id %u of librdmacm: events cannot be read: %s", id->id,
			  strerror(err)) : 0;
}

/* Read the next event of the file, which must be this one. */
static int await(int fd, const RdmaCmIdEntry *id, enum cm_event expected)
{
	struct rdma_ucm_event_resp resp;

	if (next_event(fd, id, &resp))
		return -1;
	if (resp.id == id->id && resp.event == expected)
		return 0;
	return fail("id %u of librdmacm: event %u (status %d) where %u was to come",
		    id->id, resp.event, (int)resp.status, expected);
}

int cm_resolve_addr(int fd, const RdmaCmIdEntry *id, const union address *src,
		    const union address *dst)
{
	COMMAND(rdma_ucm_resolve_addr) cmd = { .c = {
		.id = id->id,
		.timeout_ms = EVENT_TIMEOUT / 2,
		.src_size = address_size(src),
		.dst_size = address_size(dst),
	} };
	struct rdma_ucm_event_resp resp;
	char text[INET6_ADDRSTRLEN];
	int err;

	memcpy(&cmd.c.src_addr, &src->kernel, sizeof(cmd.c.src_addr));
	memcpy(&cmd.c.dst_addr, &dst->kernel, sizeof(cmd.c.dst_addr));
	err = RUN(fd, cmd, RESOLVE_ADDR, 0);
	if (!err && next_event(fd, id, &resp))
		return -1;
	if (!err && resp.id == id->id && resp.event == EVENT_ADDR_ERROR)
		err = -(int)resp.status;
	if (!err && resp.id == id->id && resp.event == EVENT_ADDR_RESOLVED)
		return 0;
	address_text(dst, text);
	return fail("id %u of librdmacm: its peer's address %s cannot be resolved: %s",
		    id->id, text, err ? strerror(err) : "another event came");
}

int cm_resolve_route(int fd, const RdmaCmIdEntry *id)
{
	COMMAND(rdma_ucm_resolve_route) cmd = { .c = {
		.id = id->id,
		.timeout_ms = EVENT_TIMEOUT / 2,
	} };
	int err = RUN(fd, cmd, RESOLVE_ROUTE, 0);

	if (err)
		return fail("id %u of librdmacm: its route cannot be resolved: %s",
			    id->id, strerror(err));
	return await(fd, id, EVENT_ROUTE_RESOLVED);
}

int cm_connect(int fd, const RdmaCmIdEntry *id, const uint8_t cookie[8])
{
	COMMAND(rdma_ucm_connect) connect = { .c = {
		.id = id->id,
		.conn_param = {
			.qp_num = id->qp_num,
			.private_data_len = 8,
			.retry_count = 7,
			.rnr_retry_count = 7,
			.valid = 1,
		},
	} };
	COMMAND(rdma_ucm_accept) accept = { .c = {
		.uid = id->uid,
		.id = id->id,
	} };
	int err;

	memcpy(connect.c.conn_param.private_data, cookie, 8);
	err = RUN(fd, connect, CONNECT, 0);
	if (err)
		return fail("id %u of librdmacm: it cannot be connected: %s", id->id,
			    strerror(err));
	if (await(fd, id, EVENT_CONNECT_RESPONSE))
		return -1;
	err = RUN(fd, accept, ACCEPT, 0);
	if (err)
		return fail("id %u of librdmacm: its connection cannot be made: %s",
			    id->id, strerror(err));
	return id->state == RXE_MIGR_CM_LEFT ?
		await(fd, id, EVENT_DISCONNECTED) : 0;
}
