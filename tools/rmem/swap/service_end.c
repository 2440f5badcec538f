// SPDX-License-Identifier: MIT
/*
 * The end of rmemswap run: one device after the other is swapped off, then everything is removed.
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>

#include "service.h"

/* The swapoff that runs. */
static struct {
	struct conf_device *device;
	pid_t pid;
	int64_t said;
	uint64_t least; /* the fewest bytes that were left so far */
} ending;

/* The kernel has the donors leave when it removes their device. If the device stays, they stay. */
static void donors_end(void)
{
	struct donor *d;

	for (d = service.donors; d; d = d->next_donor)
		donor_end(d);
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
	donors_end();
	pthread_mutex_unlock(&service.lock);
	for (const struct conf_device *device = service.conf.devices; device; device = device->next)
		if (kernel_dev_del(&service.requests, device))
			ret = fault("device %s: it can't be removed: %s", device->name, service.requests.why);
	return ret;
}

/* Devices that were swapped off before another one failed are swapped to again, since this process goes on. */
static void swap_again(void)
{
	for (struct conf_device *device = service.conf.devices; device; device = device->next) {
		if (device->off && !area_on(device))
			say(LOG_INFO, "device %s: it is swapped to again", device->name);
		device->off = false;
	}
}

static void stays(const struct conf_device *device, const char *why)
{
	say(LOG_ERR, "device %s: swapoff: %s: it stays, and so do I: free some memory and end me again", device->name, why);
	sd_notifyf(0, "STATUS=device %s can't be swapped off: %s", device->name, why);
	service.ending = false;
	ending.device = NULL;
	swap_again();
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
		service.exit_code = remove_devices() ? EXIT_FAILED : EXIT_OK;
		event_base_loopbreak(service.base);
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

void on_end(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	if (service.ending)
		return;
	service.ending = true;
	sd_notify(0, "STOPPING=1");
	end_next();
}

void on_child(evutil_socket_t fd, short what, void *arg)
{
	struct conf_device *device = ending.device;
	int status;

	(void)fd, (void)what, (void)arg;
	if (!ending.pid || waitpid(ending.pid, &status, WNOHANG) != ending.pid)
		return;
	ending.pid = 0;
	if (WIFEXITED(status) && !WEXITSTATUS(status)) {
		say(LOG_INFO, "device %s: swapoff has ended", device->name);
		device->off = true;
		end_next();
	} else {
		stays(device, WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "it was killed, as memory is short");
	}
}

void on_progress(evutil_socket_t fd, short what, void *arg)
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

void on_leave(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
	say(LOG_WARNING, "ended by SIGQUIT: the devices stay as they are");
	if (ending.pid)
		kill(ending.pid, SIGKILL);
	service.exit_code = EXIT_LEFT;
	event_base_loopbreak(service.base);
}
