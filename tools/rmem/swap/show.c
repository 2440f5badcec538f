// SPDX-License-Identifier: MIT
/* rmemswap status, top and drain. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rmemswap.h"
#include "standard.h"

/* The values that are shown, in this order. */
static const struct shown {
	int number;
	const char *name;
	bool text;
} shown[] = {
	{ RMEM_SWAP_A_DISK, "disk", true },
	{ RMEM_SWAP_A_STATE, "state", false },
	{ RMEM_SWAP_A_REASON, "reason", true },
	{ RMEM_SWAP_A_IBDEV, "rdma", true },
	{ RMEM_SWAP_A_QPN, "qpn", false },
	{ RMEM_SWAP_A_SIZE, "size", false },
	{ RMEM_SWAP_A_SLAB, "slab_size", false },
	{ RMEM_SWAP_A_HOT, "hot", false },
	{ RMEM_SWAP_A_BUFFERS, "buffers", false },
	{ RMEM_SWAP_A_SLABS, "slabs", false },
	{ RMEM_SWAP_A_PAGES, "pages", false },
	{ RMEM_SWAP_A_HEAT, "heat", false },
	{ RMEM_SWAP_A_ROOM, "room", false },
	{ RMEM_SWAP_A_STALLED, "stalled", false },
	{ RMEM_SWAP_A_WAITING, "waiting", false },
	{ RMEM_SWAP_A_OUT_REMOTE, "out_remote", false },
	{ RMEM_SWAP_A_OUT_DISK, "out_disk", false },
	{ RMEM_SWAP_A_IN_REMOTE, "in_remote", false },
	{ RMEM_SWAP_A_IN_DISK, "in_disk", false },
	{ RMEM_SWAP_A_IN_BUFFER, "in_buffer", false },
	{ RMEM_SWAP_A_MAPS, "maps", false },
	{ RMEM_SWAP_A_UNMAPS, "unmaps", false },
	{ RMEM_SWAP_A_EVICTIONS, "evictions", false },
	{ RMEM_SWAP_A_LOST, "lost", false },
	{ RMEM_SWAP_A_REQUEUED, "requeued", false },
	{ RMEM_SWAP_A_DISCARDED, "discarded", false },
	{ RMEM_SWAP_A_DISK_ERRORS, "disk_errors", false },
	{ RMEM_SWAP_A_BAD, "bad", false },
	{ }
};

static const char *const states[] = { "?", "new", "up", "down", "leaving" };

/* ------------------------------------------------------------------ the tree */

static json_t *value_of(const struct shown *s, struct nlattr **attrs)
{
	uint64_t number = attr_number(attrs, s->number);
	const char *text;

	if (s->number == RMEM_SWAP_A_STATE)
		return json_string(states[number < sizeof(states) / sizeof(*states) ? number : 0]);
	if (!s->text)
		return json_integer(number);
	text = attr_text(attrs, s->number);
	return json_string(text ? text : "");
}

static void add_values(json_t *object, struct nlattr **attrs)
{
	for (const struct shown *s = shown; s->name; s++)
		if (attrs[s->number] && !(s->text && !*(attr_text(attrs, s->number) ?: "")))
			json_object_set_new(object, s->name, value_of(s, attrs));
}

static json_t *device_named(json_t *devices, const char *name)
{
	json_t *device;
	size_t i;

	json_array_foreach(devices, i, device)
		if (!strcmp(json_string_value(json_object_get(device, "dev")), name))
			return device;
	device = json_pack("{s:s, s:b}", "dev", name, "swap", 0);
	json_array_append_new(devices, device);
	return device;
}

static void add_device(json_t *device, const char *name, struct nlattr **attrs)
{
	uint64_t used;

	add_values(device, attrs);
	json_object_set_new(device, "swap", json_boolean(area_used(name, &used)));
	if (used)
		json_object_set_new(device, "swap_used", json_integer(used));
	json_object_set_new(device, "donors", json_array());
	json_object_set_new(device, "hottest", json_array());
}

/* The kernel tells of a device first, then of its donors and slabs. */
static void add_message(struct nlattr **attrs, void *arg)
{
	const char *name = attr_text(attrs, RMEM_SWAP_A_DEV), *donor = attr_text(attrs, RMEM_SWAP_A_DONOR);
	json_t *device = name ? device_named(arg, name) : NULL, *part;

	if (!device)
		return;
	if (attrs[RMEM_SWAP_A_SLAB_INDEX]) {
		part = json_pack("{s:I, s:s*}", "slab", (json_int_t)attr_number(attrs, RMEM_SWAP_A_SLAB_INDEX), "donor", donor);
		add_values(part, attrs);
		json_array_append_new(json_object_get(device, "hottest"), part);
	} else if (donor) {
		part = json_pack("{s:s}", "donor", donor);
		add_values(part, attrs);
		json_array_append_new(json_object_get(device, "donors"), part);
	} else {
		add_device(device, name, attrs);
	}
}

static json_int_t heat(const json_t *slab)
{
	return json_integer_value(json_object_get(slab, "heat"));
}

static int hotter(const void *a, const void *b)
{
	json_int_t one = heat(*(json_t *const *)a), two = heat(*(json_t *const *)b);

	return one < two ? 1 : one > two ? -1 : 0;
}

/* The hottest one first. */
static void sort_slabs(json_t *device)
{
	json_t *slabs = json_object_get(device, "hottest"), **list;
	size_t n = json_array_size(slabs), i;

	list = xcalloc(n + 1, sizeof(*list));
	for (i = 0; i < n; i++)
		list[i] = json_incref(json_array_get(slabs, i));
	qsort(list, n, sizeof(*list), hotter);
	json_array_clear(slabs);
	for (i = 0; i < n; i++)
		json_array_append_new(slabs, list[i]);
	free(list);
}

json_t *status_json(struct kernel *k)
{
	json_t *devices = json_array(), *device;
	size_t i;

	if (kernel_status(k, add_message, devices)) {
		fault("rmem_swap: %s", k->why);
		json_decref(devices);
		return NULL;
	}
	json_array_foreach(devices, i, device)
		sort_slabs(device);
	return json_pack("{s:o}", "devices", devices);
}

/* ------------------------------------------------------------------ printing */

/* Prints key and value pairs as rdma(8) does. */
static void print_pairs(const char *indent, const json_t *object)
{
	const char *key;
	json_t *value;

	fputs(indent, stdout);
	json_object_foreach((json_t *)object, key, value) {
		if (json_is_array(value))
			continue;
		printf("%s ", key);
		if (json_is_string(value))
			printf("%s ", json_string_value(value));
		else if (json_is_integer(value))
			printf("%" JSON_INTEGER_FORMAT " ", json_integer_value(value));
		else
			fputs(json_is_true(value) ? "on " : "off ", stdout);
	}
	putchar('\n');
}

static void print_parts(const json_t *device, const char *list)
{
	json_t *part;
	size_t i;

	json_array_foreach(json_object_get(device, list), i, part)
		print_pairs("    ", part);
}

static void print_devices(const json_t *status, bool slabs)
{
	json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		print_pairs("", device);
		print_parts(device, "donors");
		if (slabs)
			print_parts(device, "hottest");
	}
}

static void print_json(const json_t *object, size_t flags)
{
	json_dumpf(object, stdout, flags);
	putchar('\n');
}

int status_command(bool json, bool slabs)
{
	struct kernel k;
	json_t *status;

	if (kernel_open(&k))
		return EXIT_FAILED;
	status = status_json(&k);
	kernel_close(&k);
	if (!status)
		return EXIT_FAILED;
	if (json)
		print_json(status, JSON_INDENT(2));
	else
		print_devices(status, slabs);
	json_decref(status);
	return end_output(say_as, EXIT_OK, EXIT_FAILED);
}

/* ------------------------------------------------------------------ top */

#define HOTTEST 10

static volatile sig_atomic_t ended;

static void on_signal(int signal)
{
	(void)signal;
	ended = 1;
}

static bool counts(const char *key)
{
	static const char *const keys[] = {
		"out_remote", "out_disk", "in_remote", "in_disk", "in_buffer", "maps", "unmaps", "evictions", "lost", "requeued",
		"discarded",
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (!strcmp(key, keys[i]))
			return true;
	return false;
}

static const json_t *same_one(const json_t *list, const json_t *one, const char *key)
{
	const char *name = json_string_value(json_object_get(one, key));
	json_t *other;
	size_t i;

	json_array_foreach((json_t *)list, i, other)
		if (name && !strcmp(name, json_string_value(json_object_get(other, key))))
			return other;
	return NULL;
}

/* Replaces the counters by their growth in a second. */
static json_t *rates(const json_t *now, const json_t *before, double seconds)
{
	json_t *object = json_object(), *value;
	const char *key;

	json_object_foreach((json_t *)now, key, value) {
		if (json_is_array(value))
			continue;
		if (!counts(key)) {
			json_object_set(object, key, value);
			continue;
		}
		json_object_set_new(object, key, json_integer((json_integer_value(value) -
			json_integer_value(json_object_get(before ? before : now, key))) / seconds));
	}
	return object;
}

static json_t *rates_of_device(const json_t *now, const json_t *before, double seconds)
{
	json_t *device = rates(now, before, seconds), *donors = json_array(), *hottest = json_array(), *part;
	size_t i;

	json_array_foreach(json_object_get(now, "donors"), i, part)
		json_array_append_new(donors, rates(part, same_one(json_object_get(before, "donors"), part, "donor"), seconds));
	json_array_foreach(json_object_get(now, "hottest"), i, part)
		if (i < HOTTEST)
			json_array_append(hottest, part);
	json_object_set_new(device, "donors", donors);
	json_object_set_new(device, "hottest", hottest);
	return device;
}

/* As status_json() */
static json_t *top_json(const json_t *now, const json_t *before, double seconds)
{
	json_t *devices = json_array(), *device;
	size_t i;

	json_array_foreach(json_object_get(now, "devices"), i, device)
		json_array_append_new(devices, rates_of_device(device, same_one(json_object_get(before, "devices"), device, "dev"),
							       seconds));
	return json_pack("{s:o}", "devices", devices);
}

static void print_top(const json_t *now, const json_t *before, double seconds, bool json)
{
	json_t *top = top_json(now, before, seconds);

	if (json) {
		print_json(top, JSON_COMPACT);
	} else {
		if (isatty(STDOUT_FILENO))
			fputs("\033[H\033[J", stdout);
		print_devices(top, true);
		putchar('\n');
	}
	json_decref(top);
}

int top_command(unsigned int interval, unsigned int count, bool json)
{
	json_t *before = NULL, *now = NULL;
	struct sigaction action = { .sa_handler = on_signal };
	int64_t then = 0;
	struct kernel k;
	int code = EXIT_OK;

	if (kernel_open(&k))
		return EXIT_FAILED;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	for (unsigned int i = 0; code == EXIT_OK && !ended && (!count || i <= count); i++) {
		int64_t t = now_ms();

		now = status_json(&k);
		if (!now)
			code = EXIT_FAILED;
		else if (before)
			print_top(now, before, (t - then) / 1000.0, json);
		json_decref(before);
		before = now;
		then = t;
		code = end_output(say_as, code, EXIT_FAILED);
		if (!count || i < count)
			sleep(interval); /* a signal ends it */
	}
	json_decref(before);
	kernel_close(&k);
	return code;
}

/* ------------------------------------------------------------------ drain */

/* A donor, and the device that has it; the device is empty if none has it. */
struct where {
	const char *donor;
	char device[RMEM_SWAP_NAME_SIZE];
	uint64_t slabs;
	bool json; /* how it is printed */
};

static void print_slabs(const struct where *where)
{
	json_t *line = json_pack("{s:s, s:I}", "donor", where->donor, "slabs", (json_int_t)where->slabs);

	if (where->json)
		print_json(line, JSON_COMPACT);
	else
		printf("donor %s slabs %" PRIu64 "\n", where->donor, where->slabs);
	json_decref(line);
	fflush(stdout);
}

static void print_drained(const struct where *where)
{
	json_t *line = json_pack("{s:s, s:b}", "donor", where->donor, "drained", 1);

	if (where->json)
		print_json(line, JSON_COMPACT);
	else
		printf("donor %s drained\n", where->donor);
	json_decref(line);
}

static void find(struct nlattr **attrs, void *arg)
{
	const char *device = attr_text(attrs, RMEM_SWAP_A_DEV), *donor = attr_text(attrs, RMEM_SWAP_A_DONOR);
	struct where *where = arg;

	if (!device || !donor || attrs[RMEM_SWAP_A_SLAB_INDEX] || strcmp(donor, where->donor))
		return;
	/* Two devices may have a donor of that name. */
	if (*where->device && strcmp(device, where->device))
		return;
	snprintf(where->device, sizeof(where->device), "%s", device);
	where->slabs = attr_number(attrs, RMEM_SWAP_A_SLABS);
}

static int connect_service(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sk = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sk < 0 || strlen(path) >= sizeof(address.sun_path))
		return -1;
	strcpy(address.sun_path, path);
	if (!connect(sk, (struct sockaddr *)&address, sizeof(address)))
		return sk;
	close(sk);
	return -1;
}

/* Until the service answers, prints each second how many slabs are left. */
static int wait_for_service(int sk, struct kernel *k, struct where *where)
{
	const struct timeval second = { .tv_sec = 1 };
	char answer[320] = "";
	ssize_t n;

	setsockopt(sk, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	while ((n = recv(sk, answer, sizeof(answer) - 1, 0)) < 0 && (errno == EAGAIN || errno == EINTR)) {
		where->slabs = 0;
		if (!kernel_status(k, find, where))
			print_slabs(where);
	}
	answer[n > 0 ? n : 0] = 0;
	answer[strcspn(answer, "\n")] = 0;
	if (!strcmp(answer, "ok"))
		return 0;
	return fault("donor %s: %s", where->donor, *answer ? answer : "rmemswap ended before it answered");
}

static int drain(struct kernel *k, struct where *where, const char *socket_path)
{
	int sk = connect_service(socket_path), ret;

	if (sk >= 0) {
		dprintf(sk, "drain %s\n", where->donor);
		ret = wait_for_service(sk, k, where);
		close(sk);
		return ret;
	}
	/* No service runs that would connect it again. */
	if (!*where->device)
		return fault("donor %s: rmem_swap has no such donor: rmemswap status lists them", where->donor);
	if (kernel_donor_del(k, where->device, where->donor))
		return fault("donor %s: %s", where->donor, k->why);
	return 0;
}

int drain_command(const char *donor, const char *socket_path, bool json)
{
	struct where where = { .donor = donor, .json = json };
	struct kernel k;
	int ret;

	if (kernel_open(&k))
		return EXIT_FAILED;
	ret = kernel_status(&k, find, &where);
	if (ret)
		fault("rmem_swap: %s", k.why);
	else if (*where.device)
		print_slabs(&where);
	if (!ret)
		ret = drain(&k, &where, socket_path);
	kernel_close(&k);
	if (!ret)
		print_drained(&where);
	return ret ? EXIT_FAILED : end_output(say_as, EXIT_OK, EXIT_FAILED);
}
