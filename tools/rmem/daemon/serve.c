// SPDX-License-Identifier: MIT
/* The event loop: the address that clients connect to, signals, and the end of each turn. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "rmemd.h"

#define PROBE_S 5  /* how often silent clients are looked for */
#define FOLLOW_S 1 /* how often rmemd looks whether it has moved to another host */

static int listener = -1;
static struct event *acceptable, *accept_later, *probe, *follow, *signals[3];

/* ------------------------------------------------------------------ accepting */

/* An IPv4 address is written as such, also for a socket of both families. */
static void peer_text(const struct sockaddr_storage *address, char *text, size_t size)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;

	snprintf(text, size, "?");
	if (address->ss_family == AF_INET)
		inet_ntop(AF_INET, &four->sin_addr, text, size);
	else if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, text, size);
	else if (address->ss_family == AF_INET6)
		inet_ntop(AF_INET6, &six->sin6_addr, text, size);
}

static void on_accept_later(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	event_add(acceptable, NULL);
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval second = { .tv_sec = 1 };
	struct sockaddr_storage address = { 0 };
	socklen_t size = sizeof(address);
	int sk = accept4(fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
	char peer[INET6_ADDRSTRLEN];

	(void)what, (void)arg;
	if (sk >= 0) {
		peer_text(&address, peer, sizeof(peer));
		greet(sk, peer);
		return;
	}
	if (!accept_must_wait(errno))
		return;
	fault("listening socket: %s: no handshakes for a second", strerror(errno));
	event_del(acceptable);
	event_add(accept_later, &second);
}

static int listen_at(const struct addrinfo *ai)
{
	int one = 1, off = 0;

	listener = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener < 0)
		return -1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ai->ai_family == AF_INET6)
		setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	return bind(listener, ai->ai_addr, ai->ai_addrlen) || listen(listener, SOMAXCONN) ? -1 : 0;
}

static int open_listener(void)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
	};
	const struct conf *conf = &donor.conf;
	const char *address = conf->listen;
	struct addrinfo *ai;
	int ret, err;

	/* On a kernel without IPv6, 0.0.0.0 stands for all addresses. */
	if (!strcmp(address, "::") && access("/proc/net/if_inet6", F_OK))
		address = "0.0.0.0";
	err = getaddrinfo(address, conf->port, &hints, &ai);
	if (err)
		return fault("%s port %s: %s", address, conf->port, gai_strerror(err));
	ret = listen_at(ai);
	err = errno;
	freeaddrinfo(ai);
	if (ret)
		return fault("%s port %s: %s", address, conf->port, strerror(err));
	acceptable = event_or_die(listener, EV_READ | EV_PERSIST, on_acceptable, NULL);
	accept_later = event_or_die(-1, 0, on_accept_later, NULL);
	event_add(acceptable, NULL);
	return 0;
}

/* ------------------------------------------------------------------ signals, timers */

static void on_end(evutil_socket_t sig, short what, void *arg)
{
	(void)what, (void)arg;
	say(LOG_INFO, "SIG%s: ending", sigabbrev_np(sig));
	serve_end(EXIT_OK);
}

/* Clients, their quotas, and the time of grace change. The rest stays as it was at the start. */
static void reload(void)
{
	struct conf fresh;

	if (conf_read(&fresh, donor.conf_path)) {
		fault("%s: it was not read again: the settings stay as they were", donor.conf_path);
	} else {
		struct conf_client *old = donor.conf.clients;

		donor.conf.clients = fresh.clients;
		donor.conf.grace_ms = fresh.grace_ms;
		fresh.clients = old;
		clients_reload();
		say(LOG_INFO, "%s: read again", donor.conf_path);
	}
	conf_free(&fresh);
}

static void on_reload(evutil_socket_t sig, short what, void *arg)
{
	struct timespec now;

	(void)sig, (void)what, (void)arg;
	/* systemd ignores a time before its signal, so milliseconds would not do. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld%06ld", (long long)now.tv_sec, now.tv_nsec / 1000);
	reload();
	sd_notify(0, "READY=1");
}

static void on_probe(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	for (struct client *c = donor.clients; c; c = c->next)
		client_probe(c);
}

static void on_follow(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	serve_sync_unchanged();
}

static void open_signals(void)
{
	signals[0] = event_or_die(SIGTERM, EV_SIGNAL | EV_PERSIST, on_end, NULL);
	signals[1] = event_or_die(SIGINT, EV_SIGNAL | EV_PERSIST, on_end, NULL);
	signals[2] = event_or_die(SIGHUP, EV_SIGNAL | EV_PERSIST, on_reload, NULL);
	for (unsigned int i = 0; i < 3; i++)
		event_add(signals[i], NULL);
}

/* ------------------------------------------------------------------ loop */

int serve_open(void)
{
	const struct timeval probe_time = { .tv_sec = PROBE_S }, follow_time = { .tv_sec = FOLLOW_S };

	signal(SIGPIPE, SIG_IGN);
	donor.base = event_base_new();
	if (!donor.base)
		return fault("event loop: it can't be made");
	open_signals();
	probe = event_or_die(-1, EV_PERSIST, on_probe, NULL);
	event_add(probe, &probe_time);
	follow = event_or_die(-1, EV_PERSIST, on_follow, NULL);
	event_add(follow, &follow_time);
	pressure_open();
	if (open_listener())
		return -1;
	return control_open(donor.conf.socket);
}

/* The end of a turn: one sync for everything that was done in it, and only then the answers. */
static void settle(void)
{
	evict_settle();
	serve_sync();
	for (struct client *c = donor.clients; c; c = c->next)
		if (!c->dead)
			client_answer(c);
	/* if client_answer() has closed a client, the slabs that were wanted from this client were taken */
	serve_sync();
	clients_bury();
	donor.registered = 0;
	donor.counters.turns++;
}

/* Handles requests that the last turn has left. True: there were some, so settle() must follow once more. */
static bool resume(void)
{
	bool any = false;

	for (struct client *c = donor.clients; c; c = c->next)
		any |= client_resume(c);
	return any;
}

void serve(void)
{
	while (!donor.ended) {
		if (event_base_loop(donor.base, EVLOOP_ONCE) < 0) {
			fault("event loop: %s", strerror(errno));
			serve_end(EXIT_FAILED);
		}
		do
			settle();
		while (resume());
	}
}

static void free_event(struct event **event)
{
	if (*event)
		event_free(*event);
	*event = NULL;
}

/* Call it also if serve_open() has failed in the middle. */
void serve_close(void)
{
	free_event(&acceptable);
	if (donor.base) {
		greetings_close();
		clients_close();
		control_close();
		devices_close();
	}
	free_event(&accept_later);
	free_event(&probe);
	free_event(&follow);
	pressure_close();
	for (unsigned int i = 0; i < 3; i++)
		free_event(&signals[i]);
	if (listener >= 0)
		close(listener);
	if (donor.base)
		event_base_free(donor.base);
}
