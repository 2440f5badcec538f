// SPDX-License-Identifier: MIT
/*
 * rmemswap run: makes the devices, swaps to them, has the donors connected, and undoes all of it at its end.
 */
#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "service.h"

#define LOOK_S 60	 /* events may get lost, so the kernel is asked this often */
#define PROGRESS_S 1

struct service service = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = -1 };

static struct event *event_or_die(evutil_socket_t fd, short what, event_callback_fn function)
{
	struct event *event = event_new(service.base, fd, what, function, NULL);

	if (event && !event_add(event, NULL))
		return event;
	say(LOG_CRIT, "memory: there is none left");
	_exit(EXIT_FAILED);
}

/* ------------------------------------------------------------------ SIGHUP */

static bool same_text(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

/* Settings that can't change while the device exists stay as they were, and a line says so. */
static void reload_devices(struct conf *conf)
{
	for (struct conf_device *old = service.conf.devices; old; old = old->next) {
		struct conf_device *new = conf_device(conf, old->name);

		if (!new || !same_text(old->disk, new->disk) || old->size != new->size || old->slab != new->slab ||
		    old->buffers != new->buffers || old->block != new->block || old->priority != new->priority ||
		    old->discard != new->discard)
			say(LOG_WARNING, "device %s: only hot can change without a restart; the rest stays as it was", old->name);
		if (!new || !new->has_hot || (old->has_hot && old->hot == new->hot))
			continue;
		if (kernel_dev_set_hot(&service.requests, old->name, new->hot)) {
			fault("device %s: hot: %s", old->name, service.requests.why);
			continue;
		}
		old->hot = new->hot;
		old->has_hot = true;
	}
	for (struct conf_device *new = conf->devices; new; new = new->next)
		if (!conf_device(&service.conf, new->name))
			say(LOG_WARNING, "device %s: it is made at the next start", new->name);
}

static void reload_donors(struct conf *conf)
{
	struct conf_donor *donors = service.conf.donors;

	service.conf.donors = conf->donors;
	conf->donors = donors;
	for (struct donor *d = service.donors; d; d = d->next_donor) {
		struct conf_donor *new = conf_donor(&service.conf, d->conf->name);

		if (new && conf_donor_same(d->conf, new)) {
			donor_again(d);
		} else {
			donor_leave(d);
			donor_end(d);
		}
	}
	start_donors();
}

static void on_reload(evutil_socket_t fd, short what, void *arg)
{
	struct conf conf;

	(void)fd, (void)what, (void)arg;
	if (!service.ending && !conf_read(&conf, service.conf_path)) {
		pthread_mutex_lock(&service.lock);
		reload_devices(&conf);
		reload_donors(&conf);
		pthread_mutex_unlock(&service.lock);
		say(LOG_INFO, "%s was read again", service.conf_path);
	}
	if (!service.ending)
		conf_free(&conf);
}

/* ------------------------------------------------------------------ the begin */

static int make_events(void)
{
	const struct timeval look_each = { .tv_sec = LOOK_S }, progress_each = { .tv_sec = PROGRESS_S };
	struct event *event;

	service.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	service.base = event_base_new();
	if (service.wake < 0 || !service.base)
		return fault("events: %s", strerror(errno));
	if (await_quit())
		return -1;
	event_or_die(service.wake, EV_READ | EV_PERSIST, on_wake);
	event_or_die(nl_socket_get_fd(service.events.sk), EV_READ | EV_PERSIST, on_events);
	event_or_die(SIGTERM, EV_SIGNAL | EV_PERSIST, on_end);
	event_or_die(SIGINT, EV_SIGNAL | EV_PERSIST, on_end);
	event_or_die(SIGHUP, EV_SIGNAL | EV_PERSIST, on_reload);
	event_or_die(SIGCHLD, EV_SIGNAL | EV_PERSIST, on_child);
	event = event_or_die(-1, EV_PERSIST, on_look);
	event_add(event, &look_each);
	event = event_or_die(-1, EV_PERSIST, on_progress);
	event_add(event, &progress_each);
	return 0;
}

static int serve(void)
{
	begin_donors();
	sd_notify(0, "READY=1");
	say(LOG_INFO, "ready");
	event_base_dispatch(service.base);
	return service.exit_code;
}

static int begin(const char *socket_path)
{
	if (kernel_open(&service.requests) || kernel_open(&service.events) || kernel_listen(&service.events) ||
	    control_open(socket_path) || make_events())
		return -1;
	control_listen(service.base, service_asked);
	return devices_make(&service.requests);
}

int service_run(const char *conf_path, const char *socket_path)
{
	int code = EXIT_FAILED;

	if (geteuid()) {
		fault("run: it must run as root");
		return EXIT_FAILED;
	}
	if (lock_memory() || sodium_init() < 0)
		return EXIT_FAILED;
	service.conf_path = conf_path;
	if (conf_read(&service.conf, conf_path))
		code = EXIT_USAGE;
	else if (!begin(socket_path))
		code = serve();
	control_close();
	kernel_close(&service.events);
	kernel_close(&service.requests);
	conf_free(&service.conf);
	return code;
}
