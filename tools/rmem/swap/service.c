// SPDX-License-Identifier: MIT
/*
 * rmemswap run: makes the devices, swaps to them, has the donors connected, and undoes all of it at its end.
 *
 * Memory may be short at any time, and this process's own memory may be swapped to its own device. The kernel never waits for
 * this process, so nothing here can stop the kernel. But a lost donor can come back soon only if this process's memory is there.
 * So all of it is locked, the heap and the stacks are allocated at the start and kept, and system calls start no write-back
 * (spare_memory()).
 */
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "rmemswap.h"

#define HEAP_SIZE (2 << 20)
#define LOOK_S 60	 /* events may get lost, so the kernel is asked this often */
#define PROGRESS_S 1

struct service service = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = -1 };

static struct event_base *base;
static struct kernel requests, events;
static int exit_code;

/* The end: one device after the other is swapped off, then everything is removed. */
static struct {
	bool begun;
	struct conf_device *device; /* whose swapoff runs */
	pid_t pid;
	int64_t said;
	uint64_t least; /* bytes that were left */
} ending;

void spare_memory(void)
{
	/* A kernel before 5.6, or a process without the capability, goes on without this. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
}

static int lock_memory(void)
{
	void *heap;

	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, -1);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return fault("memory can't be locked: %s: be root, or raise ulimit -l", strerror(errno));
	heap = xcalloc(1, HEAP_SIZE);
	free(heap);
	spare_memory();
	return 0;
}

static struct event *event_or_die(evutil_socket_t fd, short what, event_callback_fn function)
{
	struct event *event = event_new(base, fd, what, function, NULL);

	if (event && !event_add(event, NULL))
		return event;
	say(LOG_CRIT, "memory: there is none left");
	_exit(EXIT_FAILED);
}

/* ------------------------------------------------------------------ donors */

static struct donor *donor_of(const char *name)
{
	for (struct donor *d = service.donors; d; d = d->next_donor)
		if (name && !strcmp(d->conf->name, name))
			return d;
	return NULL;
}

/* The donor that the kernel tells of. (Another device may have a donor of that name, which is not in the settings any more.) */
static struct donor *donor_told(struct nlattr **attrs)
{
	const char *device = attr_text(attrs, RMEM_SWAP_A_DEV), *name = attr_text(attrs, RMEM_SWAP_A_DONOR);
	struct donor *d = donor_of(name);

	return d && device && !strcmp(d->device, device) ? d : NULL;
}

/* Each donor of the settings has a thread, unless an older thread for that name has not ended yet, or its device was not made. */
static void start_donors(void)
{
	struct donor *d;

	if (ending.begun)
		return;
	for (const struct conf_donor *conf = service.conf.donors; conf; conf = conf->next) {
		if (donor_of(conf->name) || !conf_device(&service.conf, conf->device))
			continue;
		d = donor_start(conf, conf->device, false, false);
		if (!d)
			continue;
		d->next_donor = service.donors;
		service.donors = d;
	}
}

/* The kernel tells of a donor, which may be another one than this process thinks. */
static void look_at(struct nlattr **attrs, void *arg)
{
	struct donor *d = donor_told(attrs);
	uint64_t state = attr_number(attrs, RMEM_SWAP_A_STATE);

	(void)arg;
	if (!d || attrs[RMEM_SWAP_A_SLAB_INDEX])
		return;
	if (state == RMEM_SWAP_DOWN && d->state == DONOR_UP)
		donor_lost(d);
	else if (state == RMEM_SWAP_UP && d->state == DONOR_WAITS && d->own)
		d->state = DONOR_UP;
}

static void look(void)
{
	pthread_mutex_lock(&service.lock);
	if (kernel_status(&requests, look_at, NULL))
		say(LOG_WARNING, "rmem_swap: %s", requests.why);
	pthread_mutex_unlock(&service.lock);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	look();
}

static void tell_state(void)
{
	unsigned int up = 0, all = 0;

	for (const struct donor *d = service.donors; d; d = d->next_donor) {
		all++;
		up += d->state == DONOR_UP;
	}
	if (!ending.begun)
		sd_notifyf(0, "STATUS=%u of %u donors are connected", up, all);
}

/* A thread has a result: its donor has left or stays, or the thread has ended. Then donor_free() answers the operator who asked. */
static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct donor **at = &service.donors, *d;
	eventfd_t n;

	(void)what, (void)arg;
	eventfd_read(fd, &n);
	pthread_mutex_lock(&service.lock);
	while ((d = *at)) {
		if (d->asker >= 0 && d->answered) {
			control_answer(d->asker, d->left ? d->why : NULL);
			d->asker = -1;
		}
		if (d->state != DONOR_ENDED) {
			at = &d->next_donor;
			continue;
		}
		*at = d->next_donor;
		pthread_mutex_unlock(&service.lock);
		donor_free(d);
		pthread_mutex_lock(&service.lock);
		at = &service.donors; /* nobody else changes the list */
	}
	start_donors();
	tell_state();
	pthread_mutex_unlock(&service.lock);
}

/* ------------------------------------------------------------------ events of the kernel */

static void heard(struct nlattr **attrs, void *arg)
{
	const char *donor = attr_text(attrs, RMEM_SWAP_A_DONOR), *reason = attr_text(attrs, RMEM_SWAP_A_REASON);
	const char *device = attr_text(attrs, RMEM_SWAP_A_DEV);
	struct donor *d = donor_told(attrs);

	(void)arg;
	switch (attr_number(attrs, RMEM_SWAP_A_WHAT)) {
	case RMEM_SWAP_DONOR_LOST:
		say(LOG_WARNING, "donor %s: lost%s%s; its pages come from the disk", donor ? donor : "?", reason ? ": " : "",
		    reason ? reason : "");
		if (d)
			donor_lost(d);
		break;
	case RMEM_SWAP_DISK_ERROR:
		say(LOG_ERR, "device %s: its disk fails%s%s: what the disk does not have is lost when its donor is",
		    device ? device : "?", reason ? ": " : "", reason ? reason : "");
		break;
	}
	/* Slabs that a donor takes back are counted, and rmemswap status shows the count. */
}

static void on_events(evutil_socket_t fd, short what, void *arg)
{
	int ret;

	(void)fd, (void)what, (void)arg;
	pthread_mutex_lock(&service.lock);
	ret = kernel_events(&events, heard, NULL);
	tell_state();
	pthread_mutex_unlock(&service.lock);
	if (ret)
		look();
}

/* ------------------------------------------------------------------ the operator */

void service_asked(int fd, char *line)
{
	static const char word[] = "drain ";
	struct donor *d;

	pthread_mutex_lock(&service.lock);
	d = strncmp(line, word, strlen(word)) ? NULL : donor_of(line + strlen(word));
	if (!d || d->asker >= 0 || d->end) {
		control_answer(fd, !d ? "there is no such donor" : "it is leaving already");
	} else {
		d->asker = fd;
		d->answered = false;
		donor_leave(d, false);
		say(LOG_INFO, "donor %s: it is drained", d->conf->name);
	}
	pthread_mutex_unlock(&service.lock);
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
		    old->buffers != new->buffers || old->block != new->block || old->priority != new->priority)
			say(LOG_WARNING, "device %s: only hot can change without a restart; the rest stays as it was", old->name);
		if (!new || !new->has_hot || (old->has_hot && old->hot == new->hot))
			continue;
		if (kernel_dev_set_hot(&requests, old->name, new->hot)) {
			fault("device %s: hot: %s", old->name, requests.why);
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

		if (!new || !conf_donor_same(d->conf, new))
			donor_leave(d, true);
		else
			donor_again(d);
	}
	start_donors();
}

static void on_reload(evutil_socket_t fd, short what, void *arg)
{
	struct conf conf;

	(void)fd, (void)what, (void)arg;
	if (!ending.begun && !conf_read(&conf, service.conf_path)) {
		pthread_mutex_lock(&service.lock);
		reload_devices(&conf);
		reload_donors(&conf);
		pthread_mutex_unlock(&service.lock);
		say(LOG_INFO, "%s was read again", service.conf_path);
	}
	if (!ending.begun)
		conf_free(&conf);
}

/* ------------------------------------------------------------------ the end */

static void donors_leave(void)
{
	struct donor *d;

	for (d = service.donors; d; d = d->next_donor)
		donor_leave(d, true);
	while ((d = service.donors)) {
		service.donors = d->next_donor;
		pthread_mutex_unlock(&service.lock);
		donor_free(d); /* waits for its thread */
		pthread_mutex_lock(&service.lock);
	}
}

static int remove_devices(void)
{
	int ret = 0;

	pthread_mutex_lock(&service.lock);
	donors_leave();
	pthread_mutex_unlock(&service.lock);
	for (const struct conf_device *device = service.conf.devices; device; device = device->next)
		if (kernel_dev_del(&requests, device->name))
			ret = fault("device %s: it can't be removed: %s", device->name, requests.why);
	return ret;
}

static void stays(const struct conf_device *device, const char *why)
{
	say(LOG_ERR, "device %s: swapoff: %s: it stays, and so do I: free some memory and end me again", device->name, why);
	sd_notifyf(0, "STATUS=device %s can't be swapped off: %s", device->name, why);
	ending.begun = false;
	ending.device = NULL;
	pthread_mutex_lock(&service.lock);
	start_donors();
	pthread_mutex_unlock(&service.lock);
}

/* Begins the swapoff of the next device that is swapped to. If there is none, everything else is removed. */
static void end_next(void)
{
	struct conf_device *device = ending.device ? ending.device->next : service.conf.devices;
	uint64_t used;

	while (device && (device->block || !area_used(device->name, &used)))
		device = device->next;
	ending.device = device;
	if (!device) {
		exit_code = remove_devices() ? EXIT_FAILED : EXIT_OK;
		event_base_loopbreak(base);
		return;
	}
	say(LOG_INFO, "device %s: swapoff begins, %" PRIu64 " MiB", device->name, used >> 20);
	ending.said = now_ms();
	ending.least = UINT64_MAX;
	ending.pid = area_off(device->name);
	if (ending.pid < 0) {
		ending.pid = 0;
		stays(device, "no process can be made");
	}
}

static void on_end(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	if (ending.begun)
		return;
	ending.begun = true;
	sd_notify(0, "STOPPING=1");
	end_next();
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
	struct conf_device *device = ending.device;
	int status;

	(void)fd, (void)what, (void)arg;
	if (!ending.pid || waitpid(ending.pid, &status, WNOHANG) != ending.pid)
		return;
	ending.pid = 0;
	if (WIFEXITED(status) && !WEXITSTATUS(status)) {
		say(LOG_INFO, "device %s: swapoff has ended", device->name);
		end_next();
	} else {
		stays(device, WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "it was killed, as memory is short");
	}
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
	uint64_t used;

	(void)fd, (void)what, (void)arg;
	if (!ending.pid || !area_used(ending.device->name, &used))
		return;
	sd_notifyf(0, "STATUS=device %s: swapoff, %" PRIu64 " MiB are left", ending.device->name, used >> 20);
	/* Other programs may cause more writes meanwhile. */
	if (used < ending.least) {
		ending.least = used;
		sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%d", SWAPOFF_PATIENCE_MS * 1000);
	}
	if (now_ms() - ending.said < 5000)
		return;
	ending.said = now_ms();
	say(LOG_INFO, "device %s: swapoff, %" PRIu64 " MiB are left", ending.device->name, used >> 20);
}

static void on_leave(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	say(LOG_WARNING, "ended by SIGQUIT: the devices stay as they are");
	if (ending.pid)
		kill(ending.pid, SIGKILL);
	exit_code = EXIT_LEFT;
	event_base_loopbreak(base);
}

/* ------------------------------------------------------------------ the begin */

struct found {
	char device[RMEM_SWAP_NAME_SIZE], donor[RMEM_SWAP_DONOR_SIZE];
	uint64_t state;
	struct found *next;
};

static void find_donor(struct nlattr **attrs, void *arg)
{
	const char *device = attr_text(attrs, RMEM_SWAP_A_DEV), *donor = attr_text(attrs, RMEM_SWAP_A_DONOR);
	struct found **list = arg, *found;

	if (!device || !donor || attrs[RMEM_SWAP_A_SLAB_INDEX] || !conf_device(&service.conf, device))
		return;
	found = xcalloc(1, sizeof(*found));
	snprintf(found->device, sizeof(found->device), "%s", device);
	snprintf(found->donor, sizeof(found->donor), "%s", donor);
	found->state = attr_number(attrs, RMEM_SWAP_A_STATE);
	found->next = *list;
	*list = found;
}

/* Donors that are not in the settings any more are removed, and so is one that is half made. The others stay connected. */
static void take_over(const struct found *found)
{
	const struct conf_donor *conf = conf_donor(&service.conf, found->donor);
	struct donor *d = NULL;

	if (conf && !strcmp(conf->device, found->device) && found->state != RMEM_SWAP_NEW)
		d = donor_start(conf, found->device, true, found->state == RMEM_SWAP_UP);
	else if (kernel_donor_del(&requests, found->device, found->donor))
		fault("donor %s: it can't be removed: %s", found->donor, requests.why);
	if (!d)
		return;
	if (found->state == RMEM_SWAP_UP)
		say(LOG_INFO, "donor %s: its connection is kept as it was, whatever %s says of it now", found->donor, service.conf_path);
	d->next_donor = service.donors;
	service.donors = d;
}

static void begin_donors(void)
{
	struct found *list = NULL, *found;

	pthread_mutex_lock(&service.lock);
	if (kernel_status(&requests, find_donor, &list))
		say(LOG_WARNING, "rmem_swap: %s", requests.why);
	while ((found = list)) {
		take_over(found);
		list = found->next;
		free(found);
	}
	start_donors();
	pthread_mutex_unlock(&service.lock);
}

static int make_events(void)
{
	const struct timeval look_each = { .tv_sec = LOOK_S }, progress_each = { .tv_sec = PROGRESS_S };
	struct event *event;

	service.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	base = event_base_new();
	if (service.wake < 0 || !base)
		return fault("events: %s", strerror(errno));
	event_or_die(service.wake, EV_READ | EV_PERSIST, on_wake);
	event_or_die(nl_socket_get_fd(events.sk), EV_READ | EV_PERSIST, on_events);
	event_or_die(SIGTERM, EV_SIGNAL | EV_PERSIST, on_end);
	event_or_die(SIGINT, EV_SIGNAL | EV_PERSIST, on_end);
	event_or_die(SIGHUP, EV_SIGNAL | EV_PERSIST, on_reload);
	event_or_die(SIGQUIT, EV_SIGNAL | EV_PERSIST, on_leave);
	event_or_die(SIGCHLD, EV_SIGNAL | EV_PERSIST, on_child);
	event = event_or_die(-1, EV_PERSIST, on_look);
	event_add(event, &look_each);
	event = event_or_die(-1, EV_PERSIST, on_progress);
	event_add(event, &progress_each);
	return 0;
}

/* The loop handles signals, and no other thread takes one. */
static int serve(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	begin_donors();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	sd_notify(0, "READY=1");
	say(LOG_INFO, "ready");
	event_base_dispatch(base);
	return exit_code;
}

static int begin(const char *socket_path)
{
	if (kernel_open(&requests) || kernel_open(&events) || kernel_listen(&events) || control_open(socket_path) ||
	    make_events())
		return -1;
	control_listen(base);
	return devices_make(&requests);
}

int service_run(const char *conf_path, const char *socket_path)
{
	int code = EXIT_FAILED;

	if (lock_memory() || sodium_init() < 0)
		return EXIT_FAILED;
	service.conf_path = conf_path;
	if (conf_read(&service.conf, conf_path))
		code = EXIT_USAGE;
	else if (!begin(socket_path))
		code = serve();
	control_close();
	kernel_close(&events);
	kernel_close(&requests);
	/* SIGQUIT leaves threads that use it. */
	if (code != EXIT_LEFT)
		conf_free(&service.conf);
	return code;
}
