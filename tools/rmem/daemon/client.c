// SPDX-License-Identifier: MIT
/*
 * A client's connection: its objects of the device, and the messages to the client. completions.c has the messages from it.
 *
 * This file, evict.c and pressure.c call each other in a circle: a client has one buffer for notices, and the function that frees
 * it sends the next notice.
 */
#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rmemd.h"

#define SILENCE_MS 30000
#define BUFFERS_SIZE ((RMEM_SLOTS + CLIENT_SENDS) * RMEM_MSG_SIZE)
#define REGION_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct client *client_of(const struct owner *owner)
{
	for (struct client *c = donor.clients; c; c = c->next)
		if (!c->dead && c->owner == owner)
			return c;
	return NULL;
}

/* ------------------------------------------------------------------ regions */

int client_register(struct client *c, struct region *region)
{
	if (region->user)
		return 0;
	region->user = ibv_reg_mr_iova(c->pd, region->mem, region->size, region->addr, REGION_ACCESS);
	if (region->user)
		return 0;
	return fault("client %s: tag %ju: the device does not take a region of %ju bytes: %s", owner_name(c->owner),
		     (uintmax_t)region->tag, (uintmax_t)region->size, strerror(errno));
}

void client_unregister(struct region *region)
{
	int err = region->user ? ibv_dereg_mr(region->user) : 0;

	if (err)
		fault("client %s: tag %ju: its memory region can't be removed: %s", owner_name(region->owner),
		      (uintmax_t)region->tag, strerror(err));
	region->user = NULL;
}

void client_region_gone(struct region *region, void *arg)
{
	(void)arg;
	client_unregister(region);
	evict_gone(region);
	pressure_gave(region->size);
}

/* ------------------------------------------------------------------ sending, receiving */

static int post_receive(struct client *c, unsigned int slot)
{
	struct ibv_sge sge = { (uintptr_t)receive_buffer(c, slot), RMEM_MSG_SIZE, c->buffers_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(c->qp, &wr, &bad);
}

static int post_send(struct client *c, unsigned int slot, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)send_buffer(c, slot), size, c->buffers_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = WR_SEND + slot, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int err = ibv_post_send(c->qp, &wr, &bad);

	if (!err)
		c->in_flight++;
	return err;
}

/* The receive is posted first: the client may send its next request as soon as it has the answer. */
void client_answer(struct client *c)
{
	int err = 0;

	for (unsigned int i = 0; i < c->n_replies && !err; i++) {
		err = post_receive(c, c->replies[i].receive);
		if (!err)
			err = post_send(c, c->replies[i].send, c->replies[i].size);
	}
	c->n_replies = 0;
	if (err)
		client_close(c, LOG_WARNING, "its queue pair does not take an answer: %s", strerror(err));
	else if (c->notice_waits)
		evict_next(c);
}

int client_notice(struct client *c, enum rmem_type type, const void *body, uint32_t body_size)
{
	struct rmem_msg *msg = (struct rmem_msg *)send_buffer(c, CLIENT_NOTICE);
	uint32_t size = sizeof(*msg) + body_size;
	int err;

	if (c->dead || c->notice_busy)
		return -1;
	*msg = (struct rmem_msg){ .type = htole16(type), .size = htole32(size) };
	memcpy(msg + 1, body, body_size);
	err = post_send(c, CLIENT_NOTICE, size);
	c->notice_busy = !err;
	if (!err)
		return 0;
	client_close(c, LOG_WARNING, "its queue pair does not take a notice: %s", strerror(err));
	return -1;
}

/* A write of no bytes needs no address at the client, and the client's device acknowledges it. */
void client_probe(struct client *c)
{
	struct ibv_send_wr wr = { .wr_id = WR_PROBE, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	int err;

	/* work requests that are under way find out anyway whether the client is dead */
	if (c->dead || c->in_flight || now_ms() - c->heard < SILENCE_MS)
		return;
	err = ibv_post_send(c->qp, &wr, &bad);
	if (err)
		client_close(c, LOG_WARNING, "its queue pair does not take a probe: %s", strerror(err));
	else
		c->in_flight++;
}

/* ------------------------------------------------------------------ begin, end */

/* Each object is destroyed before the objects that it uses: a memory region in use can't be removed, nor a PD with regions. */
static void free_objects(struct client *c)
{
	const char *name = owner_name(c->owner);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	int err = 0;

	if (c->qp) {
		ibv_modify_qp(c->qp, &error, IBV_QP_STATE);
		err = ibv_destroy_qp(c->qp);
	}
	if (err)
		fault("client %s: its queue pair can't be destroyed: %s", name, strerror(err));
	for (struct region *region = owner_regions(c->owner); region; region = region->next)
		client_unregister(region);
	err = c->buffers_mr ? ibv_dereg_mr(c->buffers_mr) : 0;
	if (err)
		fault("client %s: its buffers can't be deregistered: %s", name, strerror(err));
	err = c->cq ? ibv_destroy_cq(c->cq) : 0;
	if (err)
		fault("client %s: its completion queue can't be destroyed: %s", name, strerror(err));
	err = c->pd ? ibv_dealloc_pd(c->pd) : 0;
	if (err)
		fault("client %s: its protection domain can't be freed: %s", name, strerror(err));
}

void client_close(struct client *c, int priority, const char *format, ...)
{
	char reason[512];
	va_list ap;

	if (c->dead)
		return;
	va_start(ap, format);
	vsnprintf(reason, sizeof(reason), format, ap);
	va_end(ap);
	say(priority, "client %s: %s: closed", owner_name(c->owner), reason);
	c->dead = true;
	c->n_replies = c->n_waiting = 0;
	free_objects(c);
	store_discard(c->owner);
	sodium_memzero(c->key, sizeof(c->key));
	evict_disconnected(c->owner);
}

void clients_bury(void)
{
	struct client **at = &donor.clients, *c;

	while ((c = *at)) {
		if (!c->dead) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c->buffers);
		free(c);
	}
}

static int make_objects(struct client *c)
{
	struct ibv_context *context = c->device->context;
	struct ibv_qp_init_attr attr = {
		.qp_context = c, .qp_type = IBV_QPT_RC, .sq_sig_all = 0,
		.cap = { .max_send_wr = CLIENT_SENDS + 1, .max_recv_wr = RMEM_SLOTS, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	c->buffers = aligned_alloc(RMEM_PAGE, BUFFERS_SIZE);
	if (!c->buffers)
		return fault("client %s: there is no memory for its messages", owner_name(c->owner));
	memset(c->buffers, 0, BUFFERS_SIZE);
	c->pd = ibv_alloc_pd(context);
	c->buffers_mr = c->pd ? ibv_reg_mr(c->pd, c->buffers, BUFFERS_SIZE, IBV_ACCESS_LOCAL_WRITE) : NULL;
	c->cq = c->buffers_mr ? ibv_create_cq(context, RMEM_SLOTS + CLIENT_SENDS + 1, c, c->device->channel, 0) : NULL;
	attr.send_cq = attr.recv_cq = c->cq;
	c->qp = c->cq ? ibv_create_qp(c->pd, &attr) : NULL;
	if (!c->qp)
		return fault("client %s: no queue pair on %s: %s", owner_name(c->owner),
			     ibv_get_device_name(context->device), strerror(errno));
	return 0;
}

static int connect_qp(struct client *c, const struct rmem_port *port, const struct rmem_qp *theirs, struct rmem_qp *mine)
{
	int err;

	rmem_qp_describe(port, c->qp, mine);
	err = -rmem_qp_connect(port, c->qp, mine, theirs);
	if (!err)
		err = ibv_req_notify_cq(c->cq, 0);
	for (unsigned int i = 0; i < RMEM_SLOTS && !err; i++)
		err = post_receive(c, i);
	return err ? fault("client %s: its queue pair can't be connected: %s", owner_name(c->owner), strerror(err)) : 0;
}

struct client *client_open(const struct conf_client *conf, struct device *device, const struct rmem_port *port,
			   const struct rmem_qp *theirs, struct rmem_qp *mine, const char *peer, enum rmem_status *status)
{
	struct owner *owner = store_owner(donor.store, conf->name);
	struct client *old = owner ? client_of(owner) : NULL, *c;

	*status = RMEM_FULL;
	if (!owner) {
		fault("client %s: there is no memory", conf->name);
		return NULL;
	}
	if (old)
		client_close(old, LOG_INFO, "a new connection takes its place");
	c = xcalloc(1, sizeof(*c));
	c->owner = owner;
	c->device = device;
	c->heard = now_ms();
	snprintf(c->peer, sizeof(c->peer), "%s", peer);
	memcpy(c->key, conf->key, sizeof(c->key));
	for (unsigned int i = 0; i < RMEM_SLOTS; i++)
		c->free_sends[c->n_free++] = i;
	if (make_objects(c) || connect_qp(c, port, theirs, mine)) {
		free_objects(c);
		free(c->buffers);
		free(c);
		return NULL;
	}
	owner_quota(owner, conf->quota);
	store_discard(owner);
	c->next = donor.clients;
	donor.clients = c;
	donor.counters.connects++;
	*status = RMEM_OK;
	say(LOG_INFO, "client %s: connected from %s, queue pair %u", conf->name, peer, c->qp->qp_num);
	return c;
}

void clients_close(void)
{
	for (struct client *c = donor.clients; c; c = c->next)
		client_close(c, LOG_INFO, "rmemd ends");
	clients_bury();
}

void clients_reload(void)
{
	for (struct client *c = donor.clients; c; c = c->next) {
		const struct conf_client *conf;

		if (c->dead)
			continue;
		conf = conf_client(&donor.conf, owner_name(c->owner));
		if (!conf)
			client_close(c, LOG_NOTICE, "rmemd.conf does not name it any more");
		else if (sodium_memcmp(c->key, conf->key, sizeof(c->key)))
			client_close(c, LOG_NOTICE, "its key has changed");
		else
			owner_quota(c->owner, conf->quota);
	}
}
