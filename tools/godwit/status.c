// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit status: what is not plainly running on this host's devices, and what is held here for a source.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host.h"
#include "peer.h"
#include "rdma.h"
#include "state.h"

struct status {
	json_t *qps, *devices;
};

static const char *state_name(const struct rxe_migr_status *s)
{
	static const char *const names[] = {
		[RXE_MIGR_QP_RUNNING] = "RUNNING", [RXE_MIGR_QP_PAUSED] = "PAUSED",
		[RXE_MIGR_QP_RESUMING] = "RESUMING", [RXE_MIGR_QP_STOPPED] = "STOPPED",
	};

	if (s->tombstone)
		return "TOMBSTONE";
	return s->state < sizeof(names) / sizeof(*names) ? names[s->state] : "?";
}

static json_t *status_json(const char *device, const struct rxe_migr_status *s)
{
	char sgid[INET6_ADDRSTRLEN], dgid[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, s->sgid, sgid, sizeof(sgid));
	inet_ntop(AF_INET6, s->dgid, dgid, sizeof(dgid));
	return json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:s, s:s}", "ifname", device,
			 "lqpn", (json_int_t)s->qpn, "rqpn", (json_int_t)s->dest_qpn,
			 "state", state_name(s), "epoch", (json_int_t)s->epoch,
			 "peer_epoch", (json_int_t)s->peer_epoch, "deadline_ms", (json_int_t)s->deadline_ms,
			 "sgid", sgid, "dgid", dgid);
}

static int add_device(const char *device, void *arg)
{
	struct status *status = arg;
	struct rxe_migr_status *list = NULL;
	struct ibv_context *ctx = rdma_open(device);
	int count = 0, room = 0, ret;

	if (!ctx)
		return -1;
	for (int tries = 0; tries < 10; tries++) {
		count = 0;
		ret = ibv_query_device_migration(ctx, &count, list, room);
		if (ret != ENOSPC)
			break;
		room = count + 16;
		list = xrealloc(list, room * sizeof(*list));
	}
	ibv_close_device(ctx);
	json_object_set_new(status->devices, device, ret ? json_string(strerror(ret)) : json_true());
	for (int i = 0; !ret && i < count; i++)
		json_array_append_new(status->qps, status_json(device, &list[i]));
	free(list);
	return 0;
}

static void print(const struct status *status, json_t *held)
{
	const char *device;
	json_t *value, *object;
	size_t i;

	json_object_foreach(status->devices, device, value)
		if (json_is_string(value))
			printf("link %s: its driver does not know how to move: %s\n", device,
			       json_string_value(value));
	json_array_foreach(status->qps, i, object) {
		const char *key;

		json_object_foreach(object, key, value) {
			if (!strcmp(key, "ifname"))
				printf("link %s", json_string_value(value));
			else if (json_is_string(value))
				printf(" %s %s", key, json_string_value(value));
			else
				printf(" %s %lld", key, (long long)json_integer_value(value));
		}
		putchar('\n');
	}
	json_array_foreach(held, i, object)
		printf("move %s pid %lld %s\n", json_string_value(json_object_get(object, "id")),
		       (long long)json_integer_value(json_object_get(object, "pid")),
		       json_string_value(json_object_get(object, "stage")));
}

int cmd_status(int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { } };
	struct status status = { json_array(), json_object() };
	bool json = false;
	json_t *held;
	int c, ret;

	while ((c = getopt_long(argc, argv, "j", options, NULL)) != -1) {
		json |= c == 'j';
		if (c == '?')
			usage();
	}
	if (optind != argc)
		usage();
	if (host_check_root() || rdma_each_device(add_device, &status))
		return failed(EXIT_REFUSED);
	ret = state_all(&held);
	if (json) {
		json_t *all = json_pack("{s:O, s:O, s:O}", "devices", status.devices, "qps", status.qps,
					"moves", held);

		json_dumpf(all, stdout, JSON_INDENT(1));
		putchar('\n');
		json_decref(all);
	} else {
		print(&status, held);
	}
	return ret ? failed(EXIT_REFUSED) : EXIT_OK;
}
