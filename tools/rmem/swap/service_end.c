// SPDX-License-Identifier: MIT
/*
 * The end of rmemswap run: one device after the other is swapped off, then everything is removed.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "service.h"

#define AGAIN_MS 5000 /* after a swapoff that failed */

/* The swapoff that runs, or is to be tried again. */
static struct {
	struct conf_device *device;
	_Atomic pid_t pid; /* the thread for SIGQUIT reads it */
	bool stop;	/* set by SIGTERM: a swapoff that fails is tried again. After SIGINT alone it is not */
	int64_t again;	/* when, ms; 0: it has not failed */
	struct conf_device *failed; /* the last one that failed, and that the log tells of */
	int64_t said;
	uint64_t least; /* the fewest bytes of the device that were left so far */
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

/* The unit is being stopped: devices that are off stay off, and on_progress() tries again. */
static void try_later(struct conf_device *device, const char *why)
{
	if (device != ending.failed)
		say(LOG_ERR, "device %s: swapoff: %s: it is tried again until it succeeds, or SIGQUIT ends me: free some memory",
		    device->name, why);
	sd_notifyf(0, "STATUS=device %s can't be swapped off yet: %s", device->name, why);
	ending.failed = device;
	ending.device = NULL;
	ending.again = now_ms() + AGAIN_MS;
}

static void stays(struct conf_device *device, const char *why)
{
	if (ending.stop) {
		try_later(device, why);
		return;
	}
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
	/* A second attempt must not look like progress. Otherwise systemd would wait for ever. */
	if (device != ending.failed) {
		say(LOG_INFO, "device %s: swapoff begins, %" PRIu64 " MiB", device->name, used >> 20);
		ending.least = used;
	}
	ending.said = now_ms();
	ending.pid = area_off(device->name);
	if (ending.pid < 0) {
		ending.pid = 0;
		stays(device, "no process can be made");
	}
}

/* SIGTERM, which stops the unit, or SIGINT of an operator. After a SIGINT this process may go on. */
void on_end(evutil_socket_t signal, short what, void *arg)
{
	(void)what, (void)arg;
	if (signal == SIGTERM && !ending.stop) {
		ending.stop = true;
		sd_notify(0, "STOPPING=1");
	}
	if (service.ending)
		return;
	service.ending = true;
	end_next();
}

void on_child(evutil_socket_t fd, short what, void *arg)
{
	struct conf_device *device = ending.device;
	pid_t pid = atomic_exchange(&ending.pid, 0); /* as soon as it is reaped, another process may get its number */
	int status;

	(void)fd, (void)what, (void)arg;
	if (!pid)
		return;
	if (waitpid(pid, &status, WNOHANG) != pid) {
		ending.pid = pid;
		return;
	}
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
	if (ending.again && now_ms() >= ending.again) {
		ending.again = 0;
		end_next();
	}
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

static void *leave(void *arg)
{
	sigset_t *quit = arg;
	int signal;
	pid_t pid;

	while (sigwait(quit, &signal))
		;
	say(LOG_WARNING, "ended by SIGQUIT: the devices stay as they are");
	pid = ending.pid;
	if (pid > 0)
		kill(pid, SIGKILL);
	control_forget();
	_exit(EXIT_LEFT);
}

/*
 * SIGQUIT has a thread of its own. The first thread may be waiting in the kernel, which removes a donor or a device and waits for
 * the disk. Or it may be waiting for the thread of a donor that waits there. The kernel ends such a wait when the process ends.
 */
int await_quit(void)
{
	static sigset_t quit;
	pthread_t thread;
	int ret;

	sigemptyset(&quit);
	sigaddset(&quit, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, &quit, NULL);
	ret = start_thread(&thread, leave, &quit);
	return ret ? fault("SIGQUIT: its thread: %s", strerror(ret)) : 0;
}
