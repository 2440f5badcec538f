// SPDX-License-Identifier: MIT
/*
 * The handshake over TCP. An unknown name gets a random key. So it fails at the proof, like a wrong key, and nobody can find out
 * names.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rmemd.h"

#define GREETINGS 64 /* at a time */
#define LIMIT_S 10
#define SELDOM_MS 5000

struct greeting {
	int fd;
	char peer[64];
	struct event *readable, *limit;
	bool challenged; /* the proof comes next */
	size_t got;	 /* of the struct that is being read */
	struct rmem_hello hello;
	struct rmem_challenge challenge;
	struct rmem_proof proof;
	uint8_t key[RMEM_KEY_SIZE];
	struct greeting *next;
};

static struct greeting *list; /* the newest first */

static void greeting_end(struct greeting *g)
{
	struct greeting **at = &list;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	event_free(g->readable);
	event_free(g->limit);
	close(g->fd);
	sodium_memzero(g, sizeof(*g));
	free(g);
}

/* A new connection's buffer has room for what we say. */
static int tell(struct greeting *g, const void *data, size_t size)
{
	return send(g->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size ? 0 : -1;
}

/* The name from the network, or "?" if it is no client's name, since it may not be printable then. */
static const char *name_of(const struct greeting *g)
{
	return rmem_name_good(g->hello.client) ? g->hello.client : "?";
}

/* Anybody can cause these messages, so they are printed once in a while only. Otherwise they would fill the log. */
static bool may_say(int64_t *last)
{
	int64_t now = now_ms();

	if (*last && now - *last < SELDOM_MS)
		return false;
	*last = now;
	return true;
}

static void say_refused(const struct greeting *g, const char *why)
{
	static int64_t last;

	if (may_say(&last))
		say(LOG_INFO, "%s: refused: %s", g->peer, why);
}

/* ------------------------------------------------------------------ hello */

static void look_up_key(struct greeting *g)
{
	const struct conf_client *conf = rmem_name_good(g->hello.client) ? conf_client(&donor.conf, g->hello.client) : NULL;

	rmem_random(g->key, sizeof(g->key));
	if (conf)
		memcpy(g->key, conf->key, sizeof(g->key));
}

/* Does the handshake go on? */
static bool challenge(struct greeting *g)
{
	enum rmem_status status = RMEM_OK;

	if (le32toh(g->hello.magic) != RMEM_MAGIC) {
		say_refused(g, "it does not speak our protocol");
		return false;
	}
	if (le32toh(g->hello.version) != RMEM_VERSION)
		status = RMEM_BAD_VERSION;
	g->challenge = (struct rmem_challenge){
		.magic = htole32(RMEM_MAGIC), .version = htole32(RMEM_VERSION), .status = htole32(status),
	};
	if (status == RMEM_OK)
		rmem_random(g->challenge.nonce, sizeof(g->challenge.nonce));
	else
		say_refused(g, "it has another version");
	look_up_key(g);
	g->challenged = true;
	return !tell(g, &g->challenge, sizeof(g->challenge)) && status == RMEM_OK;
}

/* ------------------------------------------------------------------ proof */

/* The key may have changed since the hello: the present rmemd.conf counts. */
static bool proven(const struct greeting *g, const struct conf_client *conf)
{
	uint8_t mac[RMEM_MAC_SIZE];
	bool equal;

	rmem_mac_client(mac, g->key, &g->hello, &g->challenge, &g->proof.qp);
	equal = rmem_mac_equal(mac, g->proof.mac) && conf && !sodium_memcmp(g->key, conf->key, sizeof(g->key));
	sodium_memzero(mac, sizeof(mac));
	return equal;
}

/*
 * The client's queue pair must have the address of its TCP connection. So no client can aim our queue pair at another host, and
 * the device need not look for a neighbour, which takes time.
 */
static bool from_peer(const struct greeting *g)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t size = sizeof(peer);
	union ibv_gid gid;

	return !getpeername(g->fd, (struct sockaddr *)&peer, &size) && !rmem_gid_of((struct sockaddr *)&peer, &gid) &&
	       !memcmp(g->proof.qp.gid, gid.raw, sizeof(gid.raw));
}

/* The RDMA port with the address that the client has connected to. */
static struct device *local_device(const struct greeting *g, struct rmem_port *port)
{
	struct sockaddr_storage local = { 0 };
	socklen_t size = sizeof(local);
	char *why = NULL;

	if (getsockname(g->fd, (struct sockaddr *)&local, &size)) {
		fault("client %s: %s", name_of(g), strerror(errno));
		return NULL;
	}
	if (!rmem_port_of((struct sockaddr *)&local, donor.conf.device, port, &why))
		return device_of(port);
	fault("client %s: %s", name_of(g), why ? why : "no RDMA device");
	free(why);
	return NULL;
}

static enum rmem_status may_enter(const struct greeting *g, const struct conf_client *conf)
{
	static int64_t last;

	if (!proven(g, conf)) {
		donor.counters.denied++;
		if (may_say(&last))
			say(LOG_WARNING, "%s: client %s is denied: the name or the key is wrong", g->peer, name_of(g));
		return RMEM_DENIED;
	}
	if (!from_peer(g)) {
		donor.counters.denied++;
		say(LOG_WARNING, "%s: client %s is denied: its queue pair has another address than its TCP connection: "
		    "is there NAT between?", g->peer, conf->name);
		return RMEM_DENIED;
	}
	if (!drained(conf->name))
		return RMEM_OK;
	say(LOG_INFO, "%s: client %s is refused: rmemd is being drained, and it has nothing here", g->peer, conf->name);
	return RMEM_DRAINING;
}

static struct client *welcome_client(struct greeting *g, struct rmem_welcome *welcome)
{
	const struct conf_client *conf = conf_client(&donor.conf, g->hello.client);
	enum rmem_status status = may_enter(g, conf);
	struct device *device = NULL;
	struct rmem_port port = { 0 };
	struct client *c = NULL;

	if (status == RMEM_OK) {
		status = RMEM_FULL;
		device = local_device(g, &port);
	}
	if (device)
		c = client_open(conf, device, &port, &g->proof.qp, &welcome->qp, g->peer, &status);
	if (!c)
		*welcome = (struct rmem_welcome){ .status = htole32(status) };
	return c;
}

static void answer_proof(struct greeting *g)
{
	struct rmem_welcome welcome = { 0 };
	struct client *c = welcome_client(g, &welcome);

	if (!c) {
		tell(g, &welcome, sizeof(welcome));
		return;
	}
	/* The welcome says that the client's last transaction is durable, also if it was done in this very turn. */
	serve_sync();
	welcome.status = htole32(RMEM_OK);
	welcome.persists = htole32(donor.conf.persist != NULL);
	memcpy(welcome.start, donor.start, sizeof(welcome.start));
	welcome.last_txn = htole64(owner_last_txn(c->owner));
	welcome.last_word = htole64(owner_last_word(c->owner));
	rmem_mac_donor(welcome.mac, g->key, &g->hello, &g->challenge, &g->proof, &welcome);
	if (tell(g, &welcome, sizeof(welcome)))
		client_close(c, LOG_INFO, "it went away during the handshake");
}

/* ------------------------------------------------------------------ connection */

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct greeting *g = arg;
	uint8_t *to = g->challenged ? (uint8_t *)&g->proof : (uint8_t *)&g->hello;
	size_t size = g->challenged ? sizeof(g->proof) : sizeof(g->hello);
	ssize_t n = recv(fd, to + g->got, size - g->got, MSG_DONTWAIT);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		greeting_end(g);
		return;
	}
	g->got += n;
	if (g->got < size)
		return;
	g->got = 0;
	if (g->challenged)
		answer_proof(g);
	else if (challenge(g))
		return;
	greeting_end(g);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	greeting_end(arg);
}

static unsigned int greetings_of(const char *peer)
{
	unsigned int n = 0;

	for (const struct greeting *g = list; g; g = g->next)
		n += !strcmp(g->peer, peer);
	return n;
}

/*
 * Ends the oldest handshake of the address that has the most of them. So an address that only opens connections ends its own
 * handshakes. A handshake takes two round trips, so the oldest one is the least likely to go on.
 */
static void make_room(void)
{
	struct greeting *last = NULL;
	unsigned int n = 0, most = 0;

	for (struct greeting *g = list; g; g = g->next, n++) {
		unsigned int of_peer = greetings_of(g->peer);

		if (of_peer >= most) {
			most = of_peer;
			last = g;
		}
	}
	if (n >= GREETINGS)
		greeting_end(last);
}

void greet(int fd, const char *peer)
{
	struct greeting *g = xcalloc(1, sizeof(*g));
	const struct timeval limit = { .tv_sec = LIMIT_S };

	make_room();
	g->fd = fd;
	snprintf(g->peer, sizeof(g->peer), "%s", peer);
	g->readable = event_or_die(fd, EV_READ | EV_PERSIST, on_readable, g);
	g->limit = event_or_die(-1, 0, on_limit, g);
	event_add(g->readable, NULL);
	event_add(g->limit, &limit);
	g->next = list;
	list = g;
	donor.counters.greetings++;
}

void greetings_close(void)
{
	while (list)
		greeting_end(list);
}
