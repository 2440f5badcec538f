// SPDX-License-Identifier: MIT
/* Connects, once or again: a handshake over TCP, a queue pair, and the donor's list of regions. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "internal.h"

#define CONNECT_MS 10000
#define REQUEST_MS 60000 /* a donor that is moved live is silent for seconds; see also too_late() */

/* ------------------------------------------------------------------ the handshake, without the lock */

/* Returns @ret. rmem_error() says what went wrong. */
static int told(int ret, char *why)
{
	if (ret)
		fail(ret, "%s", why ? why : "handshake: no memory");
	free(why);
	return ret;
}

static struct rmem_dest dest_of(const struct rmem *r)
{
	return (struct rmem_dest){ .host = r->host, .service = r->service, .client = r->client, .key = r->key };
}

static int greet(struct rmem *r, struct rmem_handshake *h)
{
	const struct rmem_dest dest = dest_of(r);
	char *why = NULL;
	int ret;

	h->deadline = now_ms() + r->connect_ms;
	ret = rmem_greet(&dest, h, &why);
	return told(ret, why);
}

static int prove(struct rmem *r, struct rmem_handshake *h)
{
	const struct rmem_dest dest = dest_of(r);
	char *why = NULL;
	int ret = rmem_prove(&dest, h, &why);

	return told(ret, why);
}

/* ------------------------------------------------------------------ connecting */

static int unlocked(struct rmem *r, struct rmem_handshake *h, int (*step)(struct rmem *, struct rmem_handshake *))
{
	int ret;

	pthread_mutex_unlock(&r->lock);
	ret = step(r, h);
	pthread_mutex_lock(&r->lock);
	return ret;
}

static int pair_up(struct rmem *r, struct rmem_handshake *h)
{
	int ret = unlocked(r, h, greet);

	if (ret)
		return ret;
	ret = device_open(r, (struct sockaddr *)&h->local);
	if (ret)
		return ret;
	rmem_qp_describe(&r->port, r->qp, &h->proof.qp);
	ret = unlocked(r, h, prove);
	if (ret)
		return ret;
	ret = rmem_qp_connect(&r->port, r->qp, &h->proof.qp, &h->welcome.qp);
	if (ret)
		return fail(ret, "donor %s: its queue pair can't be connected: %s: can both hosts' RDMA devices reach each other?",
			    r->host, strerror(-ret));
	return device_ready(r);
}

/*
 * Does the donor lack a transaction that this client knows to be committed? That is no fault after the restart of a donor that does
 * not persist. Otherwise the donor runs on an older copy of its folder, or is an older copy itself. Then nothing is taken over from
 * it, so that the right donor can still come back.
 */
static int check_age(const struct rmem *r, bool restarted, const struct rmem_welcome *welcome)
{
	unsigned long long last = le64toh(welcome->last_txn);

	if (!r->known || last >= r->txn.last || (restarted && !(r->persists && welcome->persists)))
		return 0;
	return fail(-EPROTO, "donor %s: it has gone back: its last transaction is %llu, and was %llu: is its folder an older copy?",
		    r->host, last, (unsigned long long)r->txn.last);
}

/* The new table replaces the old one only when nothing more can fail. */
static int learn(struct rmem *r, const struct rmem_welcome *welcome)
{
	bool restarted = r->known && memcmp(r->start, welcome->start, sizeof(r->start));
	uint64_t last = le64toh(welcome->last_txn);
	bool took_place = txn_took_place(r, last, le64toh(welcome->last_word));
	int ret = check_age(r, restarted, welcome);

	if (ret)
		return ret;
	r->request_ms = r->connect_ms;
	ret = regions_learn(r, restarted, took_place);
	r->request_ms = r->connect_ms > REQUEST_MS ? r->connect_ms : REQUEST_MS;
	if (!ret)
		ret = txn_reconnected(r, restarted, took_place, last);
	if (ret || !restarted)
		return ret;
	return fail(-ESTALE, "donor %s: it has restarted: %s", r->host, welcome->persists ?
		    "what was put since the last commit or flush is lost" : "all regions are gone: allocate them anew");
}

/*
 * If the connection breaks while the table is read, the state becomes DOWN. A restart of the donor is forgotten then, so that the
 * next connection reports it.
 */
static void connection_up(struct rmem *r)
{
	struct rmem_handshake h = { .fd = -1 };
	unsigned int generation;
	int ret;

	r->state = CONNECTING;
	device_close(r);
	generation = r->generation;
	ret = pair_up(r, &h);
	if (!ret)
		ret = learn(r, &h.welcome);
	if (h.fd >= 0)
		close(h.fd);
	if (!ret && !r->qp)
		ret = connection_down(r);
	r->connect_ret = ret;
	if (ret)
		snprintf(r->connect_why, sizeof(r->connect_why), "%s", rmem_error());
	if ((!ret || ret == -ESTALE) && r->qp) {
		memory_register_all(r); /* not before: it may take longer than the donor waits in the handshake */
		memcpy(r->start, h.welcome.start, sizeof(r->start));
		r->persists = h.welcome.persists;
		r->known = true;
		r->state = UP;
	} else {
		if (r->generation == generation) /* otherwise connection_break() has set down_why */
			snprintf(r->down_why, sizeof(r->down_why), "%s", r->connect_why);
		device_close(r);
		r->state = DOWN;
	}
	pthread_cond_broadcast(&r->changed);
}

int rmem_reconnect(struct rmem *r)
{
	bool other = false;
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	while (r->state == CONNECTING) {
		pthread_cond_wait(&r->changed, &r->lock);
		other = true;
	}
	if (r->state == DOWN && !other)
		connection_up(r);
	else if (!other)
		return leave(r, 0);
	ret = r->connect_ret;
	return leave(r, ret ? fail(ret, "%s", r->connect_why) : 0);
}

/* ------------------------------------------------------------------ without a wait */

/*
 * A thread connects, since looking up a name can't be done in parts. It is the only one of the library's own. The program's
 * signals are not for this thread.
 */
static void *connects(void *arg)
{
	struct rmem *r = arg;
	struct rmem_op *op;

	pthread_mutex_lock(&r->lock);
	connection_up(r);
	op = r->connects;
	r->connects = NULL;
	op_connected(op, r->connect_ret);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* The state is not CONNECTING, so the thread of an earlier call has nothing more to do. */
static void join(struct rmem *r)
{
	if (r->has_connector)
		pthread_join(r->connector, NULL);
	r->has_connector = false;
}

static int begin_thread(struct rmem *r, struct rmem_op *op)
{
	sigset_t all, before;
	int ret;

	join(r);
	r->connects = op;
	op_begin(op);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&r->connector, NULL, connects, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	r->has_connector = !ret;
	if (!ret) {
		r->state = CONNECTING;
		return 0;
	}
	r->connects = NULL;
	op_done(op, 0);
	return fail(-ret, "donor %s: no thread to connect with: %s", r->host, strerror(ret));
}

int rmem_reconnect_async(struct rmem *r, struct rmem_op *op)
{
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	if (r->state == CONNECTING) {
		ret = fail(-EALREADY, "donor %s: it is being connected already", r->host);
	} else if (r->state == DOWN) {
		ret = begin_thread(r, op);
	} else {
		op_begin(op);
		op_done(op, 0);
	}
	return leave(r, ret);
}

/* ------------------------------------------------------------------ making and ending it */

static int copy_strings(struct rmem *r, const struct rmem_options *options)
{
	r->host = strdup(options->host);
	r->service = strdup(options->port ?: RMEM_PORT);
	r->device = options->device ? strdup(options->device) : NULL;
	if (!r->host || !r->service || (options->device && !r->device))
		return fail(-ENOMEM, "connection: no memory");
	return 0;
}

static int take_options(struct rmem *r, const struct rmem_options *options)
{
	char *why = NULL;
	int ret;

	if (!options->host || !options->client || !options->key_file)
		return fail(-EINVAL, "options: host, client and key_file are needed");
	if (strlen(options->client) < sizeof(r->client))
		strcpy(r->client, options->client);
	if (!rmem_name_good(r->client))
		return fail(-EINVAL, "client '%s': at most %d of letters, digits, '.', '_' and '-'", options->client,
			    RMEM_NAME_SIZE - 1);
	ret = copy_strings(r, options);
	if (ret)
		return ret;
	r->connect_ms = options->timeout_ms && options->timeout_ms < INT32_MAX ? options->timeout_ms : CONNECT_MS;
	if (rmem_key_read(options->key_file, r->key, &why))
		ret = fail(-EINVAL, "%s", why ? why : "key: no memory");
	free(why);
	return ret;
}

static void make_lock(struct rmem *r)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &attr);
	pthread_condattr_destroy(&attr);
}

static struct rmem *make(const struct rmem_options *options, struct rmem_op *op)
{
	struct rmem *r = calloc(1, sizeof(*r));
	int ret;

	if (!r) {
		errno = -fail(-ENOMEM, "connection: no memory");
		return NULL;
	}
	make_lock(r);
	ret = take_options(r, options);
	if (!ret)
		ret = op ? rmem_reconnect_async(r, op) : rmem_reconnect(r);
	if (!ret)
		return r;
	rmem_close(r);
	errno = -ret;
	return NULL;
}

struct rmem *rmem_connect(const struct rmem_options *options, const char **reason)
{
	struct rmem *r = make(options, NULL);

	if (!r && reason)
		*reason = rmem_error();
	return r;
}

struct rmem *rmem_connect_async(const struct rmem_options *options, struct rmem_op *op)
{
	return make(options, op);
}

void rmem_close(struct rmem *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	while (r->state == CONNECTING)
		pthread_cond_wait(&r->changed, &r->lock);
	join(r);
	connection_break(r, "closed");
	device_close(r);
	pthread_mutex_unlock(&r->lock);
	table_free(&r->table);
	memory_free(r);
	txn_drop(r);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r->host);
	free(r->service);
	free(r->device);
	explicit_bzero(r, sizeof(*r));
	free(r);
}
