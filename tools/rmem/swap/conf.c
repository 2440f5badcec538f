// SPDX-License-Identifier: MIT
/* rmemswap.conf. */
#include <ctype.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "../service/settings.h"
#include "rmemswap.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MAX_HOT 1000000
#define MIN_BUFFERS 16
#define MAX_BUFFERS 262144
#define MAX_PRIORITY 32767 /* swapon(2) */
#define PRIORITY 100

/* ------------------------------------------------------------------ values */

static int read_count(struct parse *p, const char *text, uint64_t least, uint64_t most, uint32_t *to)
{
	uint64_t number;
	const char *end;

	if (settings_number(text, &number, &end) || *end || number < least || number > most)
		return settings_wrong(p, "'%s': give %llu to %llu", text, (unsigned long long)least, (unsigned long long)most);
	*to = number;
	return 0;
}

static int read_hot(struct parse *p, const char *text, void *to)
{
	((struct conf_device *)p->base)->has_hot = true;
	return read_count(p, text, 0, MAX_HOT, to);
}

static int read_buffers(struct parse *p, const char *text, void *to)
{
	return read_count(p, text, MIN_BUFFERS, MAX_BUFFERS, to);
}

static int read_priority(struct parse *p, const char *text, void *to)
{
	return read_count(p, text, 0, MAX_PRIORITY, to);
}

static int read_device_size(struct parse *p, const char *text, void *to)
{
	uint64_t size;

	if (settings_size(p, text, &size))
		return -1;
	if (!size || size % RMEM_PAGE)
		return settings_wrong(p, "'%s' is no size of a device: give a multiple of %u", text, RMEM_PAGE);
	*(uint64_t *)to = size;
	return 0;
}

static int read_slab(struct parse *p, const char *text, void *to)
{
	uint64_t size;

	if (settings_size(p, text, &size))
		return -1;
	if (size < MIB || size > GIB || size & (size - 1))
		return settings_wrong(p, "'%s' is no size of a slab: give a power of two from 1M to 1G", text);
	*(uint64_t *)to = size;
	return 0;
}

static int read_use(struct parse *p, const char *text, void *to)
{
	if (strcmp(text, "swap") && strcmp(text, "block"))
		return settings_wrong(p, "'%s' is neither swap nor block", text);
	*(bool *)to = !strcmp(text, "block");
	return 0;
}

static int read_client(struct parse *p, const char *text, void *to)
{
	char padded[RMEM_NAME_SIZE] = "";

	if (strlen(text) < sizeof(padded))
		strcpy(padded, text);
	if (!*padded || !rmem_name_good(padded))
		return settings_wrong(p, "'%s' is no client's name: use at most %zu letters, digits, and . _ -", text,
				      sizeof(padded) - 1);
	memcpy(to, padded, sizeof(padded));
	return 0;
}

static int read_key(struct parse *p, const char *text, void *to)
{
	struct conf_donor *donor = p->base;

	donor->has_key = !settings_key(p, text, to);
	return donor->has_key ? 0 : -1;
}

static const struct setting device_settings[] = {
	{ "disk", settings_text, offsetof(struct conf_device, disk) },
	{ "size", read_device_size, offsetof(struct conf_device, size) },
	{ "slab", read_slab, offsetof(struct conf_device, slab) },
	{ "hot", read_hot, offsetof(struct conf_device, hot) },
	{ "buffers", read_buffers, offsetof(struct conf_device, buffers) },
	{ "priority", read_priority, offsetof(struct conf_device, priority) },
	{ "use", read_use, offsetof(struct conf_device, block) },
	{ "discard", settings_bool, offsetof(struct conf_device, discard) },
	{ }
};

static const struct setting donor_settings[] = {
	{ "host", settings_text, offsetof(struct conf_donor, host) },
	{ "port", settings_port, offsetof(struct conf_donor, port) },
	{ "client", read_client, offsetof(struct conf_donor, client) },
	{ "key", read_key, offsetof(struct conf_donor, key) },
	{ "device", settings_text, offsetof(struct conf_donor, device) },
	{ "rdma", settings_text, offsetof(struct conf_donor, rdma) },
	{ }
};

/* ------------------------------------------------------------------ sections */

static int take_name(struct parse *p, const char *name, char *to, size_t size)
{
	if (strlen(name) >= size)
		return settings_wrong(p, "a %s's name has at most %zu characters", p->kind, size - 1);
	strcpy(to, name);
	return 0;
}

/* The name is also a name in /dev. */
static bool device_name_good(const char *name)
{
	return isalpha((unsigned char)*name) &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")];
}

static bool donor_name_good(const char *name)
{
	char padded[RMEM_NAME_SIZE] = "";

	_Static_assert(RMEM_SWAP_DONOR_SIZE <= RMEM_NAME_SIZE, "a donor's name is checked as a client's");
	strcpy(padded, name);
	return *name && rmem_name_good(padded);
}

static int begin_device(struct parse *p, const char *name)
{
	struct conf *conf = p->arg;
	struct conf_device **at = &conf->devices, *device;

	if (conf_device(conf, name))
		return settings_wrong(p, "[device %s] is there already, at line %d", name, conf_device(conf, name)->line);
	device = xcalloc(1, sizeof(*device));
	while (*at)
		at = &(*at)->next;
	*at = device;
	device->line = p->line;
	device->priority = PRIORITY;
	p->settings = device_settings;
	p->base = device;
	p->kind = "device";
	if (!device_name_good(name))
		return settings_wrong(p, "'%s' is no device's name: use letters, digits, - and _, and a letter first", name);
	return take_name(p, name, device->name, sizeof(device->name));
}

static int begin_donor(struct parse *p, const char *name)
{
	struct conf *conf = p->arg;
	struct conf_donor **at = &conf->donors, *donor;

	if (conf_donor(conf, name))
		return settings_wrong(p, "[donor %s] is there already, at line %d", name, conf_donor(conf, name)->line);
	donor = xcalloc(1, sizeof(*donor));
	while (*at)
		at = &(*at)->next;
	*at = donor;
	donor->line = p->line;
	donor->port = xstrdup(RMEM_PORT);
	p->settings = donor_settings;
	p->base = donor;
	p->kind = "donor";
	if (take_name(p, name, donor->name, sizeof(donor->name)))
		return -1;
	if (!donor_name_good(name))
		return settings_wrong(p, "'%s' is no donor's name: use letters, digits, and . _ -", name);
	return 0;
}

static int begin_section(struct parse *p, const char *section)
{
	const char *device = settings_named(section, "device"), *donor = settings_named(section, "donor");

	if (device)
		return begin_device(p, device);
	if (donor)
		return begin_donor(p, donor);
	return settings_wrong(p, "[%s]: there is no such section: use %s", section, p->sections);
}

/* ------------------------------------------------------------------ the whole */

/*
 * Each client of a donor has one connection. Two devices with the same client would end each other's connection, again and again.
 */
static const struct conf_donor *twin(const struct conf *conf, const struct conf_donor *donor)
{
	for (const struct conf_donor *d = conf->donors; d != donor; d = d->next)
		if (!strcmp(d->host, donor->host) && !strcmp(d->port, donor->port) && !strcmp(d->client, donor->client))
			return d;
	return NULL;
}

static void check_donor(struct parse *p, const struct conf *conf, struct conf_donor *donor)
{
	p->line = donor->line;
	if (!donor->host)
		settings_wrong(p, "[donor %s] has no host: add host = NAME or ADDRESS", donor->name);
	else if (!*donor->client)
		settings_wrong(p, "[donor %s] has no client: add client = NAME, as its rmemd.conf has it", donor->name);
	else if (!donor->has_key)
		settings_wrong(p, "[donor %s] has no key: add key = FILE", donor->name);
	else if (twin(conf, donor))
		settings_wrong(p, "[donor %s] is the same client at the same host as [donor %s]: give it another client's name",
			       donor->name, twin(conf, donor)->name);
	else if (!donor->device && conf->devices->next)
		settings_wrong(p, "[donor %s]: say for which device: add device = NAME", donor->name);
	else if (!donor->device)
		donor->device = xstrdup(conf->devices->name);
	else if (!conf_device(conf, donor->device))
		settings_wrong(p, "[donor %s]: there is no [device %s]", donor->name, donor->device);
}

static void check(struct parse *p, const struct conf *conf)
{
	if (p->why)
		return;
	if (!conf->devices)
		settings_wrong(p, "there is no device: add [device NAME] and disk = FILE");
	for (const struct conf_device *device = conf->devices; device && !p->why; device = device->next) {
		p->line = device->line;
		if (!device->disk)
			settings_wrong(p, "[device %s] has no disk: add disk = FILE", device->name);
	}
	for (struct conf_donor *donor = conf->donors; donor && !p->why; donor = donor->next)
		check_donor(p, conf, donor);
}

int conf_read(struct conf *conf, const char *path)
{
	struct parse p = {
		.path = path, .begin = begin_section, .sections = "[device NAME] or [donor NAME]", .arg = conf,
	};

	memset(conf, 0, sizeof(*conf));
	settings_read(&p);
	check(&p, conf);
	return settings_end(&p);
}

struct conf_device *conf_device(const struct conf *conf, const char *name)
{
	for (struct conf_device *device = conf->devices; device; device = device->next)
		if (!strcmp(device->name, name))
			return device;
	return NULL;
}

struct conf_donor *conf_donor(const struct conf *conf, const char *name)
{
	for (struct conf_donor *donor = conf->donors; donor; donor = donor->next)
		if (!strcmp(donor->name, name))
			return donor;
	return NULL;
}

struct conf_donor *conf_donor_copy(const struct conf_donor *from)
{
	struct conf_donor *donor = xcalloc(1, sizeof(*donor));

	*donor = *from;
	donor->next = NULL;
	donor->host = xstrdup(from->host);
	donor->port = xstrdup(from->port);
	donor->device = xstrdup(from->device);
	donor->rdma = from->rdma ? xstrdup(from->rdma) : NULL;
	return donor;
}

bool conf_donor_same(const struct conf_donor *a, const struct conf_donor *b)
{
	return !strcmp(a->host, b->host) && !strcmp(a->port, b->port) && !strcmp(a->device, b->device) &&
	       !strcmp(a->client, b->client) && !strcmp(a->rdma ? a->rdma : "", b->rdma ? b->rdma : "") &&
	       !sodium_memcmp(a->key, b->key, sizeof(a->key));
}

void conf_donor_free(struct conf_donor *donor)
{
	free(donor->host);
	free(donor->port);
	free(donor->device);
	free(donor->rdma);
	sodium_memzero(donor, sizeof(*donor));
	free(donor);
}

void conf_device_drop(struct conf_device **at)
{
	struct conf_device *device = *at;

	*at = device->next;
	free(device->disk);
	free(device);
}

void conf_free(struct conf *conf)
{
	struct conf_donor *donor;

	while (conf->devices)
		conf_device_drop(&conf->devices);
	while ((donor = conf->donors)) {
		conf->donors = donor->next;
		conf_donor_free(donor);
	}
}
