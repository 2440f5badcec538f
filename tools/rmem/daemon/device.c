// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "rmemd.h"

#define EVENTS_A_TURN 64 /* what is left makes the descriptor readable again */

static struct device *devices;

static void on_completions(evutil_socket_t fd, short what, void *arg)
{
	struct device *device = arg;
	struct ibv_cq *cq;
	void *c;
	int n = 0;

	(void)fd, (void)what;
	while (!ibv_get_cq_event(device->channel, &cq, &c)) {
		/* Acknowledge it at once: ibv_destroy_cq() waits for that, and this client may be closed in a moment. */
		ibv_ack_cq_events(cq, 1);
		client_completions(c);
		if (++n == EVENTS_A_TURN)
			return;
	}
	if (errno != EAGAIN && errno != EINTR) {
		fault("device %s: its completion channel: %s", ibv_get_device_name(device->context->device),
		      strerror(errno));
		serve_end(EXIT_FAILED);
	}
}

static void handle_async(struct device *device, struct ibv_async_event *event)
{
	const char *name = ibv_get_device_name(device->context->device), *text = ibv_event_type_str(event->event_type);
	struct client *c = NULL;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		c = event->element.qp->qp_context;
		break;
	case IBV_EVENT_CQ_ERR:
		c = event->element.cq->cq_context;
		break;
	default:
		break;
	}
	/* Acknowledge it first: ibv_destroy_qp() and ibv_destroy_cq() wait for that. */
	ibv_ack_async_event(event);
	if (c)
		client_close(c, LOG_WARNING, "%s", text);
	if (event->event_type != IBV_EVENT_DEVICE_FATAL)
		return;
	say(LOG_CRIT, "device %s: %s: it is gone, and all connections with it", name, text);
	serve_end(EXIT_FAILED);
}

static void on_async(evutil_socket_t fd, short what, void *arg)
{
	struct device *device = arg;
	struct ibv_async_event event;

	(void)fd, (void)what;
	while (!ibv_get_async_event(device->context, &event))
		handle_async(device, &event);
}

static int unblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static struct device *device_add(struct ibv_context *context)
{
	struct device *device = xcalloc(1, sizeof(*device));
	const char *name = ibv_get_device_name(context->device);

	device->context = context;
	device->channel = ibv_create_comp_channel(context);
	if (!device->channel || unblock(device->channel->fd) || unblock(context->async_fd)) {
		fault("device %s: no completion channel: %s", name, strerror(errno));
		if (device->channel)
			ibv_destroy_comp_channel(device->channel);
		ibv_close_device(context);
		free(device);
		return NULL;
	}
	device->completions = event_or_die(device->channel->fd, EV_READ | EV_PERSIST, on_completions, device);
	device->async = event_or_die(context->async_fd, EV_READ | EV_PERSIST, on_async, device);
	event_add(device->completions, NULL);
	event_add(device->async, NULL);
	device->next = devices;
	devices = device;
	say(LOG_INFO, "device %s: opened", name);
	return device;
}

struct device *device_of(struct rmem_port *port)
{
	const char *name = ibv_get_device_name(port->context->device);

	for (struct device *device = devices; device; device = device->next) {
		if (strcmp(ibv_get_device_name(device->context->device), name))
			continue;
		ibv_close_device(port->context);
		port->context = device->context;
		return device;
	}
	return device_add(port->context);
}

void devices_close(void)
{
	struct device *device;

	while ((device = devices)) {
		devices = device->next;
		event_free(device->completions);
		event_free(device->async);
		ibv_destroy_comp_channel(device->channel);
		ibv_close_device(device->context);
		free(device);
	}
}
