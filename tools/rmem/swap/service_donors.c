// SPDX-License-Identifier: MIT
/*
 * The donors of rmemswap run: which there are, what the kernel tells of them, and what the operator wants of one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <systemd/sd-daemon.h>

#include "service.h"

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
void start_donors(void)
{
	struct donor *d;

	if (service.ending)
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

/* The kernel tells the state of a donor, which may be another one than this process thinks. */
static void look_at(struct nlattr **attrs, void *arg)
{
	struct donor *d = donor_told(attrs);
	uint64_t state = attr_number(attrs, RMEM_SWAP_A_STATE);

	(void)arg;
	if (!d || attrs[RMEM_SWAP_A_SLAB_INDEX])
		return;
	d->listed = true;
	if (state == RMEM_SWAP_DOWN && d->state == DONOR_UP)
		donor_lost(d);
	else if (state == RMEM_SWAP_UP && d->state == DONOR_WAITS && d->own)
		donor_up(d);
}

static void look(void)
{
	struct donor *d;

	pthread_mutex_lock(&service.lock);
	for (d = service.donors; d; d = d->next_donor)
		d->listed = false;
	if (kernel_status(&service.requests, look_at, NULL)) {
		say(LOG_WARNING, "rmem_swap: %s", service.requests.why);
	} else {
		for (d = service.donors; d; d = d->next_donor)
			if (d->state == DONOR_UP && !d->listed)
				donor_lost(d);
	}
	pthread_mutex_unlock(&service.lock);
}

void on_look(evutil_socket_t fd, short what, void *arg)
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
	if (!service.ending)
		sd_notifyf(0, "STATUS=%u of %u donors are connected", up, all);
}

/* A thread has a result: its donor has left or stays, or the thread has ended. Then donor_free() answers the operator who asked. */
void on_wake(evutil_socket_t fd, short what, void *arg)
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
		at = &service.donors; /* only this thread changes the list */
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
		/* fallthrough */
	case RMEM_SWAP_DONOR_GONE:
		/* If this process has removed the donor, its state becomes AWAY in any case. */
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

void on_events(evutil_socket_t fd, short what, void *arg)
{
	int ret;

	(void)fd, (void)what, (void)arg;
	pthread_mutex_lock(&service.lock);
	ret = kernel_events(&service.events, heard, NULL);
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
		donor_leave(d);
		say(LOG_INFO, "donor %s: it is drained", d->conf->name);
	}
	pthread_mutex_unlock(&service.lock);
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
	else if (kernel_donor_del(&service.requests, found->device, found->donor))
		fault("donor %s: it can't be removed: %s", found->donor, service.requests.why);
	if (!d)
		return;
	if (found->state == RMEM_SWAP_UP)
		say(LOG_INFO, "donor %s: its connection is kept as it was, whatever %s says of it now", found->donor, service.conf_path);
	d->next_donor = service.donors;
	service.donors = d;
}

void begin_donors(void)
{
	struct found *list = NULL, *found;

	pthread_mutex_lock(&service.lock);
	if (kernel_status(&service.requests, find_donor, &list))
		say(LOG_WARNING, "rmem_swap: %s", service.requests.why);
	while ((found = list)) {
		take_over(found);
		list = found->next;
		free(found);
	}
	start_donors();
	pthread_mutex_unlock(&service.lock);
}
