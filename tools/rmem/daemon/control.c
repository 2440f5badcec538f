// SPDX-License-Identifier: MIT
/* Requests of the operator: one JSON object a line over a Unix socket, and one line in answer to each. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rmemd.h"

#define CONNECTIONS 16
#define LINE_MAX_SIZE 4096

struct control {
	struct bufferevent *stream;
	bool waits; /* it waits for an eviction, and reads further lines after that */
	struct asker asker; /* of the eviction */
	bool ending; /* the peer sends no more requests, and still gets answers */
	struct control *next;
};

static int listener = -1;
static struct event *acceptable, *accept_later;
static char *socket_path;
static struct control *list;
static unsigned int connections;

/* ------------------------------------------------------------------ answers */

/* Tags and addresses have 64 bits. Not every reader of JSON keeps them in a number, so they are strings. */
static json_t *decimal(uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	return json_string(text);
}

static json_t *hexadecimal(uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%" PRIx64, number);
	return json_string(text);
}

static json_t *refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
static json_t *refuse(const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return json_pack("{s:b, s:s}", "ok", 0, "error", text);
}

/* @json is NULL if it could not be made. Without an answer the connection would wait for ever. */
static void answer(struct control *control, json_t *json)
{
	static const char failed[] = "{\"ok\":false,\"error\":\"no answer: it is no UTF-8, or memory is short\"}";
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	struct evbuffer *to = bufferevent_get_output(control->stream);

	if (evbuffer_add_printf(to, "%s\n", text ? text : failed) < 0)
		bufferevent_trigger_event(control->stream, BEV_EVENT_ERROR, BEV_TRIG_DEFER_CALLBACKS);
	free(text);
	json_decref(json);
}

/* If @part can't be added, frees it and *@array, which is NULL then, and returns -1: half a list would look like a whole one. */
static int append(json_t **array, json_t *part)
{
	if (!json_array_append_new(*array, part))
		return 0;
	json_decref(*array);
	*array = NULL;
	return -1;
}

/* ------------------------------------------------------------------ status, stats */

static unsigned int connected(void)
{
	unsigned int n = 0;

	for (const struct client *c = donor.clients; c; c = c->next)
		n += !c->dead;
	return n;
}

static json_t *status(void)
{
	const struct conf *conf = &donor.conf;
	struct store_stats s;

	store_stats(donor.store, &s);
	return json_pack("{s:b, s:s, s:s, s:s, s:s, s:s?, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ok", 1,
			 "state", donor.draining ? "draining" : "serving", "version", RMEM_PROGRAM_VERSION,
			 "listen", conf->listen, "port", conf->port, "device", conf->device, "persist", conf->persist,
			 "memory", (json_int_t)conf->memory, "headroom", (json_int_t)conf->headroom,
			 "grace", (json_int_t)conf->grace_ms, "spare", (json_int_t)conf->spare,
			 "period", (json_int_t)conf->period_ms, "weight", (json_int_t)conf->weight,
			 "uptime_s", (json_int_t)(now_ms() - donor.started) / 1000, "clients", (json_int_t)connected(),
			 "regions", (json_int_t)s.regions, "slabs", (json_int_t)s.slabs, "bytes", (json_int_t)s.bytes,
			 "free", (json_int_t)s.free, "evictions", (json_int_t)evictions(),
			 "host_free", (json_int_t)pressure_left());
}

static void do_status(struct control *control, const json_t *request)
{
	(void)request;
	answer(control, status());
}

static json_t *stats(void)
{
	const struct counters *n = &donor.counters;
	struct store_stats s;

	store_stats(donor.store, &s);
	return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ok", 1,
			 "turns", (json_int_t)n->turns, "requests", (json_int_t)n->requests,
			 "bad_messages", (json_int_t)n->bad_messages, "greetings", (json_int_t)n->greetings,
			 "denied", (json_int_t)n->denied, "connects", (json_int_t)n->connects,
			 "evicted", (json_int_t)n->evictions, "pressure_rounds", (json_int_t)n->pressure_rounds,
			 "heat_asked", (json_int_t)n->heat_asked, "heat_answered", (json_int_t)n->heat_answered, "txns", (json_int_t)s.txns, "copies", (json_int_t)s.copies,
			 "copied", (json_int_t)s.copied, "syncs", (json_int_t)s.syncs, "logged", (json_int_t)s.logged,
			 "checkpoints", (json_int_t)s.checkpoints, "replayed", (json_int_t)s.replayed);
}

static void do_stats(struct control *control, const json_t *request)
{
	(void)request;
	answer(control, stats());
}

/* ------------------------------------------------------------------ list */

static json_t *list_regions(const struct owner *owner, json_int_t *bytes)
{
	json_t *regions = json_array();
	int ret = 0;

	for (const struct region *region = owner_regions(owner); region && !ret; region = region->next) {
		*bytes += region->size;
		ret = append(&regions, json_pack("{s:o, s:o, s:I, s:s}", "tag", decimal(region->tag),
						 "addr", hexadecimal(region->addr), "size", (json_int_t)region->size,
						 "type", region->flags & RMEM_SLAB ? "slab" : "region"));
	}
	return regions;
}

static json_t *list_owner(const struct owner *owner)
{
	const struct conf_client *conf = conf_client(&donor.conf, owner_name(owner));
	const struct client *c = client_of(owner);
	json_int_t bytes = 0;
	json_t *regions = list_regions(owner, &bytes);
	json_t *json = json_pack("{s:s, s:b, s:I, s:I, s:o, s:I, s:o}", "client", owner_name(owner), "connected", c != NULL,
				 "bytes", bytes, "quota", (json_int_t)(conf ? conf->quota : 0),
				 "last_txn", decimal(owner_last_txn(owner)), "queued", (json_int_t)store_queued(owner),
				 "regions", regions);

	if (!json || !c)
		return json;
	json_object_set_new(json, "peer", json_string(c->peer));
	json_object_set_new(json, "device", json_string(ibv_get_device_name(c->device->context->device)));
	json_object_set_new(json, "qpn", json_integer(c->qp->qp_num));
	json_object_set_new(json, "requests", json_integer(c->requests));
	return json;
}

struct listing {
	const char *name; /* NULL: all */
	json_t *clients;
};

static int list_one(struct owner *owner, void *arg)
{
	struct listing *listing = arg;

	if (listing->name && strcmp(listing->name, owner_name(owner)))
		return 0;
	return append(&listing->clients, list_owner(owner));
}

static void do_list(struct control *control, const json_t *request)
{
	struct listing listing = { .name = json_string_value(json_object_get(request, "client")), .clients = json_array() };

	store_each_owner(donor.store, list_one, &listing);
	if (listing.name && listing.clients && !json_array_size(listing.clients)) {
		json_decref(listing.clients);
		answer(control, refuse("client %s: it has never been here", listing.name));
	} else {
		answer(control, json_pack("{s:b, s:o}", "ok", 1, "clients", listing.clients));
	}
}

/* ------------------------------------------------------------------ evict, drain */

struct search {
	const char *name;
	struct owner *owner;
};

/* store_owner() would make an owner if the name is new. */
static int find_one(struct owner *owner, void *arg)
{
	struct search *search = arg;

	if (!strcmp(search->name, owner_name(owner)))
		search->owner = owner;
	return search->owner != NULL;
}

static int read_tag(const json_t *json, uint64_t *tag)
{
	const char *text = json_string_value(json);
	char *end;

	if (!text || text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	*tag = strtoull(text, &end, 0);
	return errno || *end ? -1 : 0;
}

/* The answer comes when the slab is gone. */
static void evict_for(struct control *control, struct owner *owner, uint64_t tag)
{
	enum rmem_status status;

	control->waits = true;
	status = evict(owner, tag, &control->asker);
	if (status == RMEM_OK)
		return;
	control->waits = false;
	if (status == RMEM_FULL)
		answer(control, refuse("client %s: slab %" PRIu64 ": another rmemctl waits for it already",
				       owner_name(owner), tag));
	else
		answer(control, refuse("client %s: tag %" PRIu64 ": there is no such slab", owner_name(owner), tag));
}

static void do_evict(struct control *control, const json_t *request)
{
	struct search search = { .name = json_string_value(json_object_get(request, "client")) };
	uint64_t tag;

	if (!search.name || read_tag(json_object_get(request, "tag"), &tag)) {
		answer(control, refuse("evict: it needs a client and a tag, both strings"));
		return;
	}
	store_each_owner(donor.store, find_one, &search);
	if (search.owner)
		evict_for(control, search.owner, tag);
	else
		answer(control, refuse("client %s: it has never been here", search.name));
}

/* The loop reads the next line later, since the caller may be in the middle of a list. */
static void on_evicted(void *arg, const char *how)
{
	struct control *control = arg;

	answer(control, json_pack("{s:b, s:s}", "ok", 1, "how", how));
	control->waits = false;
	bufferevent_trigger(control->stream, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

static void do_drain(struct control *control, const json_t *request)
{
	drain();
	do_status(control, request);
}

/* ------------------------------------------------------------------ connections */

static const struct {
	const char *name;
	void (*handle)(struct control *control, const json_t *request); /* answers once, perhaps later */
} commands[] = {
	{ "status", do_status }, { "list", do_list }, { "evict", do_evict }, { "drain", do_drain }, { "stats", do_stats },
};

static void handle(struct control *control, const char *line)
{
	json_t *request = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
	const char *name = json_string_value(json_object_get(request, "command"));
	bool known = false;

	for (size_t i = 0; name && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, name))
			continue;
		known = true;
		commands[i].handle(control, request);
	}
	if (!known)
		answer(control, name ? refuse("%s: there is no such command", name) :
			       refuse("it is no JSON object with a command"));
	json_decref(request);
}

static void accept_more(void)
{
	if (acceptable && connections < CONNECTIONS && !evtimer_pending(accept_later, NULL))
		event_add(acceptable, NULL);
}

static void control_end(struct control *control)
{
	struct control **at = &list;

	while (*at != control)
		at = &(*at)->next;
	*at = control->next;
	evict_forget(&control->asker);
	bufferevent_free(control->stream);
	free(control);
	connections--;
	accept_more();
}

static void on_lines(struct bufferevent *stream, void *arg)
{
	struct control *control = arg;
	struct evbuffer *from = bufferevent_get_input(stream);
	char *line;

	while (!control->waits && (line = evbuffer_readln(from, NULL, EVBUFFER_EOL_LF))) {
		handle(control, line);
		free(line);
	}
	if (evbuffer_get_length(from) > LINE_MAX_SIZE)
		control_end(control);
}

static void on_end(struct bufferevent *stream, short what, void *arg)
{
	struct control *control = arg;

	control->ending = what & BEV_EVENT_EOF && (control->waits || evbuffer_get_length(bufferevent_get_output(stream)));
	if (control->ending)
		bufferevent_disable(stream, EV_READ);
	else
		control_end(control);
}

/* All is written. */
static void on_written(struct bufferevent *stream, void *arg)
{
	struct control *control = arg;

	(void)stream;
	if (control->ending && !control->waits)
		control_end(control);
}

static void on_accept_later(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	accept_more();
}

static void accept_failed(int err)
{
	const struct timeval second = { .tv_sec = 1 };

	if (!accept_must_wait(err))
		return;
	fault("%s: %s: no rmemctl for a second", socket_path, strerror(err));
	event_del(acceptable);
	event_add(accept_later, &second);
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg)
{
	int sk = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct control *control;

	(void)what, (void)arg;
	if (sk < 0) {
		accept_failed(errno);
		return;
	}
	control = xcalloc(1, sizeof(*control));
	control->stream = bufferevent_socket_new(donor.base, sk, BEV_OPT_CLOSE_ON_FREE);
	if (!control->stream) {
		close(sk);
		free(control);
		return;
	}
	control->asker = (struct asker){ .told = on_evicted, .arg = control };
	bufferevent_setcb(control->stream, on_lines, on_written, on_end, control);
	bufferevent_enable(control->stream, EV_READ | EV_WRITE);
	control->next = list;
	list = control;
	if (++connections >= CONNECTIONS)
		event_del(acceptable);
}

/* ------------------------------------------------------------------ socket */

/* Makes the socket's folder, but no folder above it. Under systemd the folder is there already. */
static void make_folder(const char *path)
{
	char *folder = xstrdup(path), *slash = strrchr(folder, '/');

	if (slash && slash != folder) {
		*slash = '\0';
		mkdir(folder, 0755);
	}
	free(folder);
}

/* Removes the socket that another rmemd has left. A live rmemd keeps its socket. */
static int bind_socket(const struct sockaddr_un *address)
{
	int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool alive = probe >= 0 && !connect(probe, (const struct sockaddr *)address, sizeof(*address));
	mode_t mask;
	int ret;

	if (probe >= 0)
		close(probe);
	if (alive) {
		errno = EADDRINUSE;
		return -1;
	}
	unlink(address->sun_path);
	mask = umask(0177);
	ret = bind(listener, (const struct sockaddr *)address, sizeof(*address));
	umask(mask);
	return ret;
}

int control_open(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof(address.sun_path))
		return fault("%s: a socket can't have such a long name", path);
	strcpy(address.sun_path, path);
	make_folder(path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind_socket(&address) || listen(listener, CONNECTIONS))
		return fault("%s: %s", path, strerror(errno));
	socket_path = xstrdup(path);
	acceptable = event_or_die(listener, EV_READ | EV_PERSIST, on_acceptable, NULL);
	accept_later = event_or_die(-1, 0, on_accept_later, NULL);
	event_add(acceptable, NULL);
	return 0;
}

void control_close(void)
{
	if (acceptable)
		event_free(acceptable);
	acceptable = NULL;
	while (list)
		control_end(list);
	if (accept_later)
		event_free(accept_later);
	accept_later = NULL;
	if (listener >= 0)
		close(listener);
	if (socket_path)
		unlink(socket_path);
	free(socket_path);
}
