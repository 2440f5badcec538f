// SPDX-License-Identifier: MIT
/* The devices of the settings: they are made, or taken over. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "rmemswap.h"

struct there {
	const char *device;
	bool found;
	char disk[256];
	uint64_t size, slab;
};

static void find_device(struct nlattr **attrs, void *arg)
{
	const char *device = attr_text(attrs, RMEM_SWAP_A_DEV), *disk = attr_text(attrs, RMEM_SWAP_A_DISK);
	struct there *there = arg;

	if (!device || strcmp(device, there->device) || attrs[RMEM_SWAP_A_DONOR] || attrs[RMEM_SWAP_A_SLAB_INDEX])
		return;
	there->found = true;
	snprintf(there->disk, sizeof(there->disk), "%s", disk ? disk : "");
	there->size = attr_number(attrs, RMEM_SWAP_A_SIZE);
	there->slab = attr_number(attrs, RMEM_SWAP_A_SLAB);
}

static bool same_disk(const char *a, const char *b)
{
	struct stat one, two;

	return !strcmp(a, b) || (!stat(a, &one) && !stat(b, &two) && S_ISBLK(one.st_mode) && S_ISBLK(two.st_mode) &&
				 one.st_rdev == two.st_rdev);
}

/* A device that exists was left by another rmemswap, and is taken over with its donors. */
static int take_device(struct kernel *k, struct conf_device *device, const struct there *there)
{
	if (!same_disk(device->disk, there->disk))
		return fault("device %s: it is there already, over another disk, %s, and stays as it is: name that one, or end it "
			     "first", device->name, there->disk);
	if ((device->size && device->size != there->size) || (device->slab && device->slab != there->slab))
		say(LOG_WARNING, "device %s: its size stays %" PRIu64 ", its slabs' %" PRIu64 " until it is made anew", device->name,
		    there->size, there->slab);
	if (device->size)
		device->size = there->size;
	if (device->slab)
		device->slab = there->slab;
	if (!device->block && area_on(device))
		return -1;
	/* If hot can't be set, the device is taken over all the same. */
	if (device->has_hot && kernel_dev_set_hot(k, device->name, device->hot))
		fault("device %s: hot: %s", device->name, k->why);
	device->taken = true;
	say(LOG_INFO, "device %s: it is there already, and is taken over", device->name);
	return 0;
}

static int make_device(struct kernel *k, struct conf_device *device)
{
	struct there there = { .device = device->name };

	if (kernel_status(k, find_device, &there))
		return fault("rmem_swap: %s", k->why);
	if (there.found)
		return take_device(k, device, &there);
	if (!device->block && area_is_free(device->name, device->disk))
		return -1;
	if (kernel_dev_add(k, device))
		return fault("device %s: %s", device->name, k->why);
	device->made = true;
	return device->block ? 0 : area_on(device);
}

static void unmake(struct kernel *k, const struct conf_device *device)
{
	uint64_t used;
	int status = 0;
	pid_t pid = !device->block && area_used(device->name, &used) ? area_off(device->name) : 0;

	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && status)
		fault("device %s: swapoff: %s", device->name, WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "it was killed");
	if (kernel_dev_del(k, device))
		fault("device %s: it can't be removed: %s", device->name, k->why);
}

int devices_make(struct kernel *k)
{
	struct conf_device *device, **at = &service.conf.devices;
	bool taken = false, bad = false;

	for (device = *at; device; device = device->next) {
		device->bad = make_device(k, device);
		bad |= device->bad;
		taken |= device->taken;
	}
	while ((device = *at)) {
		if (device->made && (taken ? device->bad : bad))
			unmake(k, device);
		if (taken && device->bad)
			conf_device_drop(at);
		else
			at = &device->next;
	}
	return bad && !taken ? -1 : 0;
}
