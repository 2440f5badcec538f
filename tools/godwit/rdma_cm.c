// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What librdmacm and the driver know of ids of librdmacm, and of addresses for these.
 */
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "address.h"
#include "rdma.h"

static int open_driver(const char *device, void *arg)
{
	struct ibv_context **driver = arg;

	*driver = rdma_open(device);
	return *driver ? 1 : -1;
}

static int query(struct ibv_context *driver, int fd, struct rxe_migr_cm_id **ids)
{
	int count, room = 0, ret;

	/* The process runs, so there may be more ids by the next call. */
	while ((ret = ibv_query_cm_ids(driver, fd, 0, &count, *ids, room)) == ENOSPC) {
		room = count + 16;
		free(*ids);
		*ids = xcalloc(room, sizeof(**ids));
	}
	return !ret ? count : fault("device %s: its driver does not tell the ids of rdma_cm: %s",
				    ibv_get_device_name(driver->device), strerror(ret));
}

int rdma_cm_ids(struct ibv_context **driver, pid_t pid, int fd, struct rxe_migr_cm_id **ids)
{
	int copy = proc_get_fd(pid, fd), ret;

	if (copy < 0)
		return fault("process %d, descriptor %d: it can't be looked at: %s", pid, fd, strerror(errno));
	if (!*driver && !rdma_each_device(open_driver, driver))
		fault("no device here has our driver, which tells the ids of rdma_cm");
	ret = *driver ? query(*driver, copy, ids) : -1;
	close(copy);
	return ret;
}

static int bind_id(struct rdma_cm_id *id, const struct in6_addr *address, const struct cm_port *port)
{
	union ip_port at;
	int yes = 1;

	ip_port(address, port->port, &at);
	if ((port->reuseaddr && rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes))) ||
	    (port->afonly && rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof(yes))) ||
	    rdma_bind_addr(id, &at.sa))
		return errno;
	return 0;
}

int rdma_try_bind(const struct in6_addr *address, const struct cm_port *port)
{
	struct rdma_cm_id *id;
	int err;

	if (rdma_create_id(NULL, &id, NULL, port->ps))
		return errno;
	err = bind_id(id, address, port);
	rdma_destroy_id(id);
	return err;
}

int rdma_resolve(const char *address, int wait_ms)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST };
	struct addrinfo *info;
	struct rdma_cm_id *id;
	int err = 0;

	/* Only the plugin knows on which link a link-local address is: on the link of the id's device. */
	if (!strncasecmp(address, "fe80:", 5))
		return 0;
	if (getaddrinfo(address, NULL, &hints, &info))
		return EINVAL;
	/* Without an event channel rdma_resolve_addr() waits for the answer. */
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP)) {
		err = errno;
	} else {
		if (rdma_resolve_addr(id, NULL, info->ai_addr, wait_ms))
			err = errno;
		rdma_destroy_id(id);
	}
	freeaddrinfo(info);
	return err;
}
