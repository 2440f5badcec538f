// SPDX-License-Identifier: MIT
/* rmemd.conf. */
#include <arpa/inet.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "../service/settings.h"
#include "rmemd.h"

#define HEADROOM (UINT64_C(8) << 30)
#define GRACE_MS 5000
#define MAX_GRACE_MS 600000
#define SPARE 5
#define MAX_SPARE (RMEM_HEAT_MAX / 2)
#define PERIOD_MS 1000
#define MIN_PERIOD_MS 100
#define MAX_PERIOD_MS 10000
#define WEIGHT 20

/* ------------------------------------------------------------------ values */

static int read_grace(struct parse *p, const char *text, void *to)
{
	const char *end;

	if (settings_number(text, to, &end) || *end || !*(uint64_t *)to || *(uint64_t *)to > MAX_GRACE_MS)
		return settings_wrong(p, "'%s' is no time in milliseconds: give 1 to %d", text, MAX_GRACE_MS);
	return 0;
}

static int read_spare(struct parse *p, const char *text, void *to)
{
	const char *end;

	if (settings_number(text, to, &end) || *end || *(uint64_t *)to > MAX_SPARE)
		return settings_wrong(p, "'%s' is no number of slabs: give 0 to %u", text, MAX_SPARE);
	return 0;
}

static int read_period(struct parse *p, const char *text, void *to)
{
	const char *end;

	if (settings_number(text, to, &end) || *end || *(uint64_t *)to < MIN_PERIOD_MS || *(uint64_t *)to > MAX_PERIOD_MS)
		return settings_wrong(p, "'%s' is no time in milliseconds: give %d to %d", text, MIN_PERIOD_MS, MAX_PERIOD_MS);
	return 0;
}

static int read_weight(struct parse *p, const char *text, void *to)
{
	const char *end;

	if (settings_number(text, to, &end) || *end || !*(uint64_t *)to || *(uint64_t *)to > 100)
		return settings_wrong(p, "'%s' is no weight in per cent: give 1 to 100", text);
	return 0;
}

static int read_address(struct parse *p, const char *text, void *to)
{
	struct in6_addr address;

	if (inet_pton(AF_INET, text, &address) != 1 && inet_pton(AF_INET6, text, &address) != 1)
		return settings_wrong(p, "'%s' is no IP address", text);
	return settings_text(p, text, to);
}

/* @to is the client's key. */
static int read_key(struct parse *p, const char *text, void *to)
{
	struct conf_client *client = p->base;

	client->has_key = !settings_key(p, text, to);
	return client->has_key ? 0 : -1;
}

/* ------------------------------------------------------------------ settings */

static const struct setting donor_settings[] = {
	{ "listen", read_address, offsetof(struct conf, listen) },
	{ "port", settings_port, offsetof(struct conf, port) },
	{ "device", settings_text, offsetof(struct conf, device) },
	{ "persist", settings_text, offsetof(struct conf, persist) },
	{ "memory", settings_size, offsetof(struct conf, memory) },
	{ "headroom", settings_size, offsetof(struct conf, headroom) },
	{ "huge", settings_bool, offsetof(struct conf, huge) },
	{ "socket", settings_text, offsetof(struct conf, socket) },
	{ "grace", read_grace, offsetof(struct conf, grace_ms) },
	{ "spare", read_spare, offsetof(struct conf, spare) },
	{ "period", read_period, offsetof(struct conf, period_ms) },
	{ "weight", read_weight, offsetof(struct conf, weight) },
	{ }
};

static const struct setting client_settings[] = {
	{ "key", read_key, offsetof(struct conf_client, key) },
	{ "quota", settings_size, offsetof(struct conf_client, quota) },
	{ }
};

/* ------------------------------------------------------------------ sections */

/* Where the settings go while the file is read. */
struct reading {
	struct conf *conf;
	bool seen_donor;
};

static int begin_client(struct parse *p, const char *name)
{
	struct conf *conf = ((struct reading *)p->arg)->conf;
	struct conf_client *client;
	char padded[RMEM_NAME_SIZE] = "";

	if (strlen(name) >= sizeof(padded))
		return settings_wrong(p, "a client's name has at most %zu characters", sizeof(padded) - 1);
	strcpy(padded, name);
	if (!*name || !rmem_name_good(padded))
		return settings_wrong(p, "'%s' is no client's name: use letters, digits, and . _ -", name);
	if (conf_client(conf, name))
		return settings_wrong(p, "[client %s] is there already, at line %d", name, conf_client(conf, name)->line);
	client = xcalloc(1, sizeof(*client));
	memcpy(client->name, padded, sizeof(padded));
	client->line = p->line;
	client->next = conf->clients;
	conf->clients = client;
	p->settings = client_settings;
	p->base = client;
	p->kind = "client";
	return 0;
}

static int begin_section(struct parse *p, const char *section)
{
	struct reading *reading = p->arg;
	const char *client = settings_named(section, "client");

	if (client)
		return begin_client(p, client);
	if (strcmp(section, "donor"))
		return settings_wrong(p, "[%s]: there is no such section: use %s", section, p->sections);
	if (reading->seen_donor)
		return settings_wrong(p, "[donor] is there already");
	reading->seen_donor = true;
	p->settings = donor_settings;
	p->base = reading->conf;
	p->kind = "donor";
	return 0;
}

/* ------------------------------------------------------------------ file */

static void set_defaults(struct conf *conf)
{
	*conf = (struct conf){
		.headroom = HEADROOM, .grace_ms = GRACE_MS, .spare = SPARE, .period_ms = PERIOD_MS, .weight = WEIGHT,
	};
	conf->listen = xstrdup("::");
	conf->port = xstrdup(RMEM_PORT);
	conf->socket = xstrdup("/run/rmemd/rmemd.sock");
}

static void check_keys(struct parse *p, const struct conf *conf)
{
	for (const struct conf_client *client = conf->clients; client && !p->why; client = client->next) {
		if (client->has_key)
			continue;
		p->line = client->line;
		settings_wrong(p, "[client %s] has no key: add key = FILE", client->name);
	}
}

int conf_read(struct conf *conf, const char *path)
{
	struct reading reading = { .conf = conf };
	struct parse p = {
		.path = path, .begin = begin_section, .sections = "[donor] or [client NAME]", .arg = &reading,
	};

	set_defaults(conf);
	settings_read(&p);
	check_keys(&p, conf);
	return settings_end(&p);
}

void conf_free(struct conf *conf)
{
	struct conf_client *client;

	free(conf->listen);
	free(conf->port);
	free(conf->device);
	free(conf->persist);
	free(conf->socket);
	while ((client = conf->clients)) {
		conf->clients = client->next;
		sodium_memzero(client, sizeof(*client));
		free(client);
	}
	*conf = (struct conf){ 0 };
}

const struct conf_client *conf_client(const struct conf *conf, const char *name)
{
	for (const struct conf_client *client = conf->clients; client; client = client->next)
		if (!strcmp(client->name, name))
			return client;
	return NULL;
}

int conf_listen(struct conf *conf, const char *text)
{
	struct parse p = { .path = text };
	const char *colon = strrchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0;
	bool brackets = length > 2 && text[0] == '[' && text[length - 1] == ']';
	char address[64] = "";

	if (!length || length >= sizeof(address) || text[strlen(text) - 1] == ']')
		return fault("--listen %s: it is not ADDRESS:PORT", text);
	memcpy(address, text + brackets, length - 2 * brackets);
	if (strchr(address, ':') && !brackets)
		return fault("--listen %s: put brackets around an IPv6 address: [ADDRESS]:PORT", text);
	if (!read_address(&p, address, &conf->listen) && !settings_port(&p, colon + 1, &conf->port))
		return 0;
	fault("--listen %s: %s", text, p.why);
	free(p.why);
	return -1;
}
