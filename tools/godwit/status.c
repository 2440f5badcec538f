// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit status: which queue pairs of this host's devices do not plainly run, which peers have not answered connections that
 * have moved here, and which moves from and to this host are not over.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "host.h"
#include "netns.h"
#include "rdma.h"
#include "state.h"

struct status {
	json_t *qps, *devices;
	json_t *unanswered;		/* calls of connections that have moved here */
	size_t called, answered;
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

static int query_qps(struct ibv_context *ctx, int *count, void *list, int max)
{
	return ibv_query_device_migration(ctx, count, list, max);
}

static int query_calls(struct ibv_context *ctx, int *count, void *list, int max)
{
	return ibv_query_device_calls(ctx, count, list, max);
}

/* Read a whole list of the driver; each entry has this size. Free it. NULL, with *err: the driver does not tell. */
static void *read_all(struct ibv_context *ctx, int (*query)(struct ibv_context *, int *, void *, int), size_t size, int *count,
		      int *err)
{
	void *list = NULL;
	int room = 0;

	/* There may be more entries by the next call. */
	for (int tries = 0; tries < 10; tries++) {
		*count = 0;
		*err = query(ctx, count, list, room);
		if (*err != ENOSPC)
			break;
		room = *count + 16;
		list = xrealloc(list, room * size);
	}
	if (!*err)
		return list;
	*count = 0;
	free(list);
	return NULL;
}

static int add_qps(struct status *status, const char *device, struct ibv_context *ctx)
{
	struct rxe_migr_status *list;
	int count, err;

	list = read_all(ctx, query_qps, sizeof(*list), &count, &err);
	for (int i = 0; i < count; i++)
		json_array_append_new(status->qps, status_json(device, &list[i]));
	free(list);
	return err;
}

/* A time of CLOCK_MONOTONIC, by the wall clock. */
static void wall_clock(uint64_t ns, char text[32])
{
	struct timespec now;
	time_t seconds;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	seconds = now.tv_sec - (now_ns() - (int64_t)ns) / 1000000000;
	gmtime_r(&seconds, &tm);
	strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static json_t *call_json(const char *device, const struct rxe_migr_call *c)
{
	char dgid[INET6_ADDRSTRLEN], since[32];

	inet_ntop(AF_INET6, c->dgid, dgid, sizeof(dgid));
	wall_clock(c->call_ns, since);
	return json_pack("{s:s, s:I, s:s, s:I, s:s, s:s}", "dgid", dgid, "rqpn", (json_int_t)c->dest_qpn,
			 "ifname", device, "lqpn", (json_int_t)c->qpn,
			 "answer", c->answer == RXE_MIGR_ANSWER_AWAITED ? "awaited" : "missed", "since", since);
}

/* An older driver does not know the question, and has no calls. */
static int add_calls(struct status *status, const char *device, struct ibv_context *ctx)
{
	struct rxe_migr_call *list;
	int count, err;

	list = read_all(ctx, query_calls, sizeof(*list), &count, &err);
	for (int i = 0; i < count; i++)
		if (list[i].answer == RXE_MIGR_ANSWER_CAME)
			status->answered++;
		else
			json_array_append_new(status->unanswered, call_json(device, &list[i]));
	status->called += count;
	free(list);
	return err == EOPNOTSUPP ? 0 : err;
}

static int add_device(const char *device, void *arg)
{
	struct status *status = arg;
	struct ibv_context *ctx = rdma_open(device);
	int ret;

	if (!ctx)
		return -1;
	ret = add_qps(status, device, ctx) ?: add_calls(status, device, ctx);
	json_object_set_new(status->devices, device, ret ? json_string(strerror(ret)) : json_true());
	ibv_close_device(ctx);
	return 0;
}

/* Where namespaces do not share devices, nobody here can open those of others. */
static int add_other(const char *node, const char *device, void *arg)
{
	struct status *status = arg;

	(void)node;
	if (!rdma_device_exists(device))
		json_object_set_new(status->devices, device, json_string("it belongs to another network namespace (netns exclusive): "
				    "ip netns exec NAME godwit status"));
	return 0;
}

/* A line for each object. The first member is printed with this name. */
static void print_list(json_t *list, const char *first)
{
	json_t *object, *value;
	const char *key;
	size_t i;

	json_array_foreach(list, i, object) {
		const char *name = first;

		json_object_foreach(object, key, value) {
			printf("%s%s ", name ? "" : " ", name ?: key);
			if (json_is_string(value))
				printf("%s", json_string_value(value));
			else
				printf("%lld", (long long)json_integer_value(value));
			name = NULL;
		}
		putchar('\n');
	}
}

static void print(const struct status *status, json_t *moves)
{
	const char *device;
	json_t *value, *object;
	size_t i;

	json_object_foreach(status->devices, device, value)
		if (json_is_string(value))
			printf("link %s: it is not known what moves: %s\n", device,
			       json_string_value(value));
	print_list(status->qps, "link");
	print_list(status->unanswered, "peer");
	if (status->called)
		printf("%zu of %zu peers answered\n", status->answered, status->called);
	json_array_foreach(moves, i, object)
		printf("move %s pid %lld %s\n", json_string_value(json_object_get(object, "id")),
		       (long long)json_integer_value(json_object_get(object, "pid")),
		       json_string_value(json_object_get(object, "stage")));
}

static void leave_out_sysctls(json_t *moves)
{
	json_t *move;
	size_t i;

	json_array_foreach(moves, i, move)
		netns_forget_sysctls(json_object_get(json_object_get(move, "container"), "netns"));
}

const struct option status_options[] = { { "json", no_argument, NULL, 'j' }, { } };

int cmd_status(int argc, char **argv)
{
	struct status status = { .qps = json_array(), .devices = json_object(), .unanswered = json_array() };
	bool json = false;
	json_t *moves;
	int c, ret;

	while ((c = getopt_long(argc, argv, "j", status_options, NULL)) != -1) {
		json |= c == 'j';
		if (c == '?')
			usage();
	}
	if (optind != argc)
		wrong_usage("'%s': status takes no argument", argv[optind]);
	if (host_check_root() || rdma_each_device(add_device, &status) || each_node(add_other, &status))
		return failed_as(json, EXIT_REFUSED);
	ret = state_all(&moves);
	leave_out_sysctls(moves);
	if (json) {
		json_t *all = json_pack("{s:O, s:O, s:{s:I, s:I}, s:O, s:O}", "devices", status.devices,
					"qps", status.qps, "peers", "called", (json_int_t)status.called,
					"answered", (json_int_t)status.answered,
					"unanswered", status.unanswered, "moves", moves);

		json_dumpf(all, stdout, JSON_INDENT(1));
		putchar('\n');
		json_decref(all);
	} else {
		print(&status, moves);
	}
	return ret ? failed(EXIT_REFUSED) : EXIT_OK;
}
