// SPDX-License-Identifier: MIT
/*
 * A donor's thread: it connects the donor, waits until it is lost, and connects it again.
 *
 *	WAITS -> UP		an attempt has succeeded
 *	UP -> WAITS		the kernel says that it is lost, or has gone
 *	WAITS, UP -> AWAY	donor_leave(): it is drained; not if the kernel keeps it
 *	AWAY -> WAITS		donor_again(): the settings were read
 *	any -> ENDED		donor_end()
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rmemswap.h"

#define CONNECT_MS 5000
#define FIRST_PAUSE_MS 1000
#define LONGEST_PAUSE_MS 60000
#define STEADY_MS 60000 /* if a donor is lost sooner, its pause still grows: it may carry no page, and get slabs each second */

static void told(void)
{
	if (eventfd_write(service.wake, 1))
		say(LOG_ERR, "eventfd: %s", strerror(errno));
}

/* ------------------------------------------------------------------ an attempt, without the lock */

static int failed(struct donor *d, int ret, char *why)
{
	snprintf(d->why, sizeof(d->why), "%s", why ? why : strerror(-ret));
	free(why);
	return ret;
}

static int refused(struct donor *d, const char *what, int ret)
{
	snprintf(d->why, sizeof(d->why), "donor %s: %s: %.140s", d->conf->name, what, d->kernel.why);
	return ret;
}

/* -EBUSY: the kernel is still ending the lost connection. It keeps nothing of this attempt, and a later one succeeds. */
static int make_queue_pair(struct donor *d, struct rmem_handshake *h)
{
	struct rmem_port port;
	char *why = NULL;
	int ret;

	if (rmem_port_of((struct sockaddr *)&h->local, d->conf->rdma, &port, &why))
		return failed(d, -ENODEV, why);
	d->known = true;
	ret = kernel_donor_add(&d->kernel, d->device, d->conf->name, &port, &h->proof.qp);
	d->half = !ret;
	ibv_close_device(port.context);
	return ret ? refused(d, "a queue pair", ret) : 0;
}

static int pair_up(struct donor *d, struct rmem_handshake *h)
{
	const struct rmem_dest dest = {
		.host = d->conf->host, .service = d->conf->port, .client = d->conf->client, .key = d->conf->key,
	};
	char *why = NULL;
	int ret = rmem_greet(&dest, h, &why);

	if (ret)
		return failed(d, ret, why);
	ret = make_queue_pair(d, h);
	if (ret)
		return ret;
	ret = rmem_prove(&dest, h, &why);
	if (ret)
		return failed(d, ret, why);
	ret = kernel_donor_connect(&d->kernel, d->device, d->conf->name, &h->welcome);
	/* These two refuse the request, and the donor is unchanged. After any other error it is down, and keeps its counters. */
	d->half = ret == -EINVAL || ret == -EBUSY;
	return ret ? refused(d, "its connection", ret) : 0;
}

static void take_state(struct nlattr **attrs, void *arg)
{
	const char *device = attr_text(attrs, RMEM_SWAP_A_DEV), *name = attr_text(attrs, RMEM_SWAP_A_DONOR);
	struct donor *d = arg;

	if (device && name && !strcmp(device, d->device) && !strcmp(name, d->conf->name) && !attrs[RMEM_SWAP_A_SLAB_INDEX])
		d->told = attr_number(attrs, RMEM_SWAP_A_STATE);
}

/*
 * The kernel has the donor already. It may be up with our settings, and an event of an older connection has hidden that. It may be
 * half made, or have older settings, because it could not be removed when those ended: then the caller removes it now. If it is
 * leaving, the next attempt sees whether it has gone.
 */
static int is_there(struct donor *d)
{
	d->told = 0;
	if (kernel_status(&d->kernel, take_state, d))
		return refused(d, "its state", -EEXIST);
	if (d->told == RMEM_SWAP_UP && d->own)
		return 0;
	d->half = d->told == RMEM_SWAP_NEW || d->told == RMEM_SWAP_UP;
	return -EEXIST;
}

/* After DONOR_DEL: the kernel has removed the donor, or has no such donor, or no such device. */
static bool is_removed(int ret)
{
	return !ret || ret == -ENOENT || ret == -ENODEV;
}

/* Removes what the next attempt can't use. */
static void remove_half(struct donor *d)
{
	int ret = kernel_donor_del(&d->kernel, d->device, d->conf->name);

	if (is_removed(ret))
		d->known = false;
	else
		refused(d, "its old connection stays", -EEXIST);
	d->half = false;
}

static int attempt(struct donor *d)
{
	struct rmem_handshake h = { .fd = -1, .deadline = now_ms() + CONNECT_MS };
	int ret = pair_up(d, &h);

	if (h.fd >= 0)
		close(h.fd);
	if (ret == -EEXIST)
		ret = is_there(d);
	if (d->half)
		remove_half(d);
	return ret;
}

/* ------------------------------------------------------------------ the thread, with the lock */

/* The pause before the next attempt is twice as long. */
static void pause_attempts(struct donor *d)
{
	d->next = now_ms() + d->pause_ms;
	d->pause_ms = d->pause_ms * 2 < LONGEST_PAUSE_MS ? d->pause_ms * 2 : LONGEST_PAUSE_MS;
}

static void unlocked_attempt(struct donor *d)
{
	char before[sizeof(d->why)];
	int ret;

	d->lost = false;
	memcpy(before, d->why, sizeof(before));
	pthread_mutex_unlock(&service.lock);
	ret = attempt(d);
	pthread_mutex_lock(&service.lock);
	d->own |= !ret;
	if (!ret && !d->lost) {
		donor_up(d);
		*d->why = 0;
		say(LOG_INFO, "donor %s: connected, %s port %s", d->conf->name, d->conf->host, d->conf->port);
	} else {
		/* the same line again and again would fill the log */
		if (ret && strcmp(before, d->why))
			say(LOG_WARNING, "%s; it is tried again", d->why);
		pause_attempts(d);
	}
	told();
}

static void unlocked_leave(struct donor *d)
{
	int ret = 0;

	d->leave = false;
	if (d->known) {
		pthread_mutex_unlock(&service.lock);
		ret = kernel_donor_del(&d->kernel, d->device, d->conf->name);
		pthread_mutex_lock(&service.lock);
	}
	if (is_removed(ret)) {
		ret = 0;
		d->known = d->own = false;
		d->state = DONOR_AWAY;
	} else {
		/*
		 * The kernel keeps it. -EIO: it has pages that the disk does not take. -ETIMEDOUT: it has such pages, and does
		 * not answer. -EBUSY: an earlier DONOR_DEL has given up, and what becomes of the donor is not known yet.
		 */
		refused(d, "it can't be removed", ret);
		say(LOG_ERR, "%s", d->why);
	}
	d->left = ret;
	d->answered = true;
	told();
}

static void wait_until(struct donor *d, int64_t when)
{
	struct timespec t = { .tv_sec = when / 1000, .tv_nsec = when % 1000 * 1000000 };

	pthread_cond_timedwait(&d->changed, &service.lock, &t);
}

static void *run(void *arg)
{
	struct donor *d = arg;

	spare_memory();
	pthread_mutex_lock(&service.lock);
	for (;;) {
		if (d->leave)
			unlocked_leave(d);
		else if (d->end)
			break;
		else if (d->state == DONOR_WAITS && now_ms() >= d->next)
			unlocked_attempt(d);
		else if (d->state == DONOR_WAITS)
			wait_until(d, d->next);
		else
			pthread_cond_wait(&d->changed, &service.lock);
	}
	d->state = DONOR_ENDED;
	told();
	pthread_mutex_unlock(&service.lock);
	return NULL;
}

/* ------------------------------------------------------------------ what others ask of it */

static void make_condition(struct donor *d)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->changed, &attr);
	pthread_condattr_destroy(&attr);
}

static int start(struct donor *d)
{
	int ret = start_thread(&d->thread, run, d);

	return ret ? fault("donor %s: its thread: %s", d->conf->name, strerror(ret)) : 0;
}

struct donor *donor_start(const struct conf_donor *conf, const char *device, bool taken, bool up)
{
	struct donor *d = xcalloc(1, sizeof(*d));

	d->conf = conf_donor_copy(conf);
	snprintf(d->device, sizeof(d->device), "%s", device);
	d->asker = -1;
	d->known = d->own = taken;
	d->pause_ms = FIRST_PAUSE_MS;
	if (up)
		donor_up(d);
	make_condition(d);
	if (!kernel_open(&d->kernel) && !start(d))
		return d;
	kernel_close(&d->kernel);
	conf_donor_free(d->conf);
	pthread_cond_destroy(&d->changed);
	free(d);
	return NULL;
}

void donor_up(struct donor *d)
{
	d->state = DONOR_UP;
	d->since = now_ms();
}

void donor_lost(struct donor *d)
{
	d->lost = true;
	if (d->state != DONOR_UP)
		return;
	d->state = DONOR_WAITS;
	if (now_ms() - d->since >= STEADY_MS)
		d->pause_ms = FIRST_PAUSE_MS;
	pause_attempts(d);
	pthread_cond_signal(&d->changed);
}

void donor_leave(struct donor *d)
{
	d->leave = true;
	pthread_cond_signal(&d->changed);
}

void donor_end(struct donor *d)
{
	d->end = true;
	pthread_cond_signal(&d->changed);
}

void donor_again(struct donor *d)
{
	if (d->state != DONOR_AWAY && d->state != DONOR_WAITS)
		return;
	d->state = DONOR_WAITS;
	d->next = now_ms();
	d->pause_ms = FIRST_PAUSE_MS;
	*d->why = 0;
	pthread_cond_signal(&d->changed);
}

void donor_free(struct donor *d)
{
	pthread_join(d->thread, NULL);
	if (d->asker >= 0)
		control_answer(d->asker, d->left ? d->why : NULL);
	kernel_close(&d->kernel);
	conf_donor_free(d->conf);
	pthread_cond_destroy(&d->changed);
	free(d);
}
