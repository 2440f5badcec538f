// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Can the CRIU plugin make the process's ids of librdmacm here? See plan_cm.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_user_cm.h>
#include "agent.h"
#include "host.h"
#include "text.h"

#define MAX_CM_ID (1 << 20) /* as the plugin has it */

/* Make an id by this file of librdmacm: the number that the kernel gives it, or -1. */
static int64_t next_cm_id(int fd)
{
	struct rdma_ucm_create_id_resp resp;
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		struct rdma_ucm_create_id create;
	} cmd = {
		{ RDMA_USER_CM_CMD_CREATE_ID, sizeof(cmd.create), sizeof(resp) },
		{ .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC },
	};

	return write(fd, &cmd, sizeof(cmd)) == sizeof(cmd) ? (int64_t)resp.id : -1;
}

/* The kernel numbers ids for the whole host and gives the lowest free number: a number that it leaves out is taken. */
static void check_cm_ids(json_t *list, json_t *ids)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	int64_t highest = -1, last = -1, number = 0;
	json_t *id;
	size_t i;

	json_array_foreach(ids, i, id)
		if (json_integer_value(id) > highest && json_integer_value(id) < MAX_CM_ID)
			highest = json_integer_value(id);
	while (fd >= 0 && last < highest && number >= 0) {
		number = next_cm_id(fd);
		json_array_foreach(ids, i, id)
			if (json_integer_value(id) > last && json_integer_value(id) < number)
				problem(list, "id %lld of librdmacm: the number is taken there: end what has it, or "
					"move elsewhere", (long long)json_integer_value(id));
		last = number;
	}
	if (fd < 0 || number < 0)
		problem(list, "/dev/infiniband/rdma_cm: %s: modprobe rdma_ucm", strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* A dead peer is one problem, however many ids are connected to it. */
static void check_cm_peers(json_t *list, json_t *peers)
{
	json_t *known = json_object(), *peer;
	size_t i;

	json_array_foreach(peers, i, peer) {
		const char *address = json_string_value(json_object_get(peer, "address"));
		int err;

		if (!address || json_object_get(known, address))
			continue;
		json_object_set_new(known, address, json_true());
		err = rdma_resolve(address);
		if (err)
			problem(list, "process %d, descriptor %d, id %lld of librdmacm: its peer's address %s cannot be "
				"resolved there: %s: is that host up?", (int)json_integer_value(json_object_get(peer, "pid")),
				(int)json_integer_value(json_object_get(peer, "fd")),
				(long long)json_integer_value(json_object_get(peer, "id")), address, strerror(err));
	}
	json_decref(known);
}

static int check_driver(const char *device, void *arg)
{
	(void)arg;
	return host_check_device(device) == 0;
}

/* A process that has only files of librdmacm needs our driver, too, on any device. */
void agent_check_cm(json_t *message, json_t *list)
{
	if (rdma_each_device(check_driver, NULL) <= 0)
		problem(list, "devices: no rxe device there has our driver, which rdma_cm needs: rdma link add "
			"rxe0 type rxe netdev INTERFACE");
	check_cm_ids(list, json_object_get(message, "cm_ids"));
	check_cm_peers(list, json_object_get(message, "cm_peers"));
	fault_clear();
}
