// SPDX-License-Identifier: MIT
/* rmemd.conf. inih splits the lines; sections are our own business, since it cuts their names and shows no empty ones. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rmemd.h"

#define HEADROOM (UINT64_C(8) << 30)
#define GRACE_MS 5000
#define MAX_GRACE_MS 600000

struct parse {
	struct conf *conf;
	const char *path;
	FILE *file;
	int line;
	bool donor;		    /* the section is [donor] */
	struct conf_client *client; /* it is this client's */
	unsigned int seen;	    /* settings of this section, a bit each */
	bool seen_donor;
	char *why; /* the first reason; the rest of the file does not matter then */
};

static int wrong(struct parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int wrong(struct parse *p, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (!p->why && vasprintf(&p->why, format, ap) < 0)
		p->why = xstrdup("there is no memory");
	va_end(ap);
	return -1;
}

/* ------------------------------------------------------------------ values */

static int read_number(const char *text, uint64_t *number, const char **end)
{
	char *rest;

	errno = 0;
	*number = strtoull(text, &rest, 10);
	*end = rest;
	return !isdigit((unsigned char)*text) || errno ? -1 : 0;
}

static int read_size(struct parse *p, const char *text, void *to)
{
	static const char suffixes[] = "KMG";
	uint64_t size;
	const char *end, *suffix;
	unsigned int shift = 0;

	if (read_number(text, &size, &end))
		return wrong(p, "'%s' is no size: give bytes, or a number with K, M or G", text);
	suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
	if (suffix) {
		shift = 10 * (suffix - suffixes + 1);
		end++;
	}
	if (*end || size > UINT64_MAX >> shift)
		return wrong(p, "'%s' is no size: give bytes, or a number with K, M or G", text);
	*(uint64_t *)to = size << shift;
	return 0;
}

static int read_text(struct parse *p, const char *text, void *to)
{
	(void)p;
	free(*(char **)to);
	*(char **)to = xstrdup(text);
	return 0;
}

static int read_bool(struct parse *p, const char *text, void *to)
{
	if (strcmp(text, "yes") && strcmp(text, "no"))
		return wrong(p, "'%s' is neither yes nor no", text);
	*(bool *)to = !strcmp(text, "yes");
	return 0;
}

static int read_grace(struct parse *p, const char *text, void *to)
{
	const char *end;

	if (read_number(text, to, &end) || *end || !*(uint64_t *)to || *(uint64_t *)to > MAX_GRACE_MS)
		return wrong(p, "'%s' is no time in milliseconds: give 1 to %d", text, MAX_GRACE_MS);
	return 0;
}

static int read_address(struct parse *p, const char *text, void *to)
{
	struct in6_addr address;

	if (inet_pton(AF_INET, text, &address) != 1 && inet_pton(AF_INET6, text, &address) != 1)
		return wrong(p, "'%s' is no IP address", text);
	return read_text(p, text, to);
}

static int read_port(struct parse *p, const char *text, void *to)
{
	uint64_t port;
	const char *end;

	if (read_number(text, &port, &end) || *end || !port || port > UINT16_MAX)
		return wrong(p, "'%s' is no port: give 1 to 65535", text);
	return read_text(p, text, to);
}

/* @to is the client's key. */
static int read_key(struct parse *p, const char *text, void *to)
{
	char *why = NULL;

	if (!rmem_key_read(text, to, &why)) {
		p->client->has_key = true;
		return 0;
	}
	wrong(p, "%s", why ? why : text);
	free(why);
	return -1;
}

/* ------------------------------------------------------------------ settings */

struct setting {
	const char *name;
	int (*read)(struct parse *p, const char *text, void *to);
	size_t offset;
};

static const struct setting donor_settings[] = {
	{ "listen", read_address, offsetof(struct conf, listen) },
	{ "port", read_port, offsetof(struct conf, port) },
	{ "device", read_text, offsetof(struct conf, device) },
	{ "persist", read_text, offsetof(struct conf, persist) },
	{ "memory", read_size, offsetof(struct conf, memory) },
	{ "headroom", read_size, offsetof(struct conf, headroom) },
	{ "huge", read_bool, offsetof(struct conf, huge) },
	{ "socket", read_text, offsetof(struct conf, socket) },
	{ "grace", read_grace, offsetof(struct conf, grace_ms) },
	{ }
};

static const struct setting client_settings[] = {
	{ "key", read_key, offsetof(struct conf_client, key) },
	{ "quota", read_size, offsetof(struct conf_client, quota) },
	{ }
};

static int set(struct parse *p, const char *name, const char *value)
{
	const struct setting *settings = p->client ? client_settings : donor_settings;
	char *base = p->client ? (char *)p->client : (char *)p->conf;

	if (!p->client && !p->donor)
		return wrong(p, "'%s' is in no section: begin one by [donor] or [client NAME]", name);
	for (unsigned int i = 0; settings[i].name; i++) {
		if (strcmp(settings[i].name, name))
			continue;
		if (p->seen & 1u << i)
			return wrong(p, "%s: it was set before in this section", name);
		p->seen |= 1u << i;
		if (!*value)
			return wrong(p, "%s: it has no value", name);
		return settings[i].read(p, value, base + settings[i].offset);
	}
	return wrong(p, "%s: there is no such setting of a %s", name, p->client ? "client" : "donor");
}

/* inih wants 0 for an error, which it remembers. */
static int on_setting(void *arg, const char *section, const char *name, const char *value)
{
	(void)section;
	return set(arg, name, value) == 0;
}

/* ------------------------------------------------------------------ sections */

static int begin_client(struct parse *p, const char *name)
{
	struct conf_client *client;
	char padded[RMEM_NAME_SIZE] = "";

	if (strlen(name) >= sizeof(padded))
		return wrong(p, "a client's name has at most %zu characters", sizeof(padded) - 1);
	strcpy(padded, name);
	if (!*name || !rmem_name_good(padded))
		return wrong(p, "'%s' is no client's name: use letters, digits, and . _ -", name);
	if (conf_client(p->conf, name))
		return wrong(p, "[client %s] is there already, at line %d", name, conf_client(p->conf, name)->line);
	client = xcalloc(1, sizeof(*client));
	memcpy(client->name, padded, sizeof(padded));
	client->line = p->line;
	client->next = p->conf->clients;
	p->conf->clients = client;
	p->client = client;
	return 0;
}

static int begin_section(struct parse *p, const char *name)
{
	static const char client[] = "client ";

	p->donor = false;
	p->client = NULL;
	p->seen = 0;
	if (!strncmp(name, client, strlen(client)))
		return begin_client(p, name + strlen(client) + strspn(name + strlen(client), " "));
	if (strcmp(name, "donor"))
		return wrong(p, "[%s]: there is no such section: use [donor] or [client NAME]", name);
	if (p->seen_donor)
		return wrong(p, "[donor] is there already");
	p->donor = p->seen_donor = true;
	return 0;
}

/* inih's reader. It takes space at the start of a line for "the last value goes on", which we do not want. */
static char *next_line(char *line, int size, void *arg)
{
	struct parse *p = arg;
	char name[256], *text, *end;

	if (p->why || !fgets(line, size, p->file))
		return NULL;
	p->line++;
	if (!strchr(line, '\n') && !feof(p->file)) {
		wrong(p, "the line is too long");
		return NULL;
	}
	text = line + strspn(line, " \t");
	memmove(line, text, strlen(text) + 1);
	end = *line == '[' ? strchr(line, ']') : NULL;
	if (end) {
		snprintf(name, sizeof(name), "%.*s", (int)(end - line - 1), line + 1);
		begin_section(p, name);
	}
	return line;
}

/* ------------------------------------------------------------------ file */

static void set_defaults(struct conf *conf)
{
	*conf = (struct conf){ .headroom = HEADROOM, .grace_ms = GRACE_MS };
	conf->listen = xstrdup("::");
	conf->port = xstrdup(RMEM_PORT);
	conf->socket = xstrdup("/run/rmemd/rmemd.sock");
}

static void check_keys(struct parse *p)
{
	for (const struct conf_client *client = p->conf->clients; client && !p->why; client = client->next) {
		if (client->has_key)
			continue;
		p->line = client->line;
		wrong(p, "[client %s] has no key: add key = FILE", client->name);
	}
}

int conf_read(struct conf *conf, const char *path)
{
	struct parse p = { .conf = conf, .path = path, .file = fopen(path, "re") };
	int ret;

	set_defaults(conf);
	if (!p.file)
		return fault("%s: %s", path, strerror(errno));
	ret = ini_parse_stream(next_line, &p, on_setting, &p);
	if (!p.why && ferror(p.file))
		wrong(&p, "%s", strerror(errno));
	fclose(p.file);
	if (!p.why && ret) {
		p.line = ret;
		wrong(&p, "it is neither a section nor name = value");
	}
	if (!p.why)
		check_keys(&p);
	if (!p.why)
		return 0;
	fault("%s:%d: %s", path, p.line, p.why);
	free(p.why);
	return -1;
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
	struct parse p = { .conf = conf };
	const char *colon = strrchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0;
	bool brackets = length > 2 && text[0] == '[' && text[length - 1] == ']';
	char address[64] = "";

	if (!length || length >= sizeof(address))
		return fault("--listen %s: it is not ADDRESS:PORT", text);
	memcpy(address, text + brackets, length - 2 * brackets);
	if (strchr(address, ':') && !brackets)
		return fault("--listen %s: put brackets around an IPv6 address: [ADDRESS]:PORT", text);
	if (!read_address(&p, address, &conf->listen) && !read_port(&p, colon + 1, &conf->port))
		return 0;
	fault("--listen %s: %s", text, p.why);
	free(p.why);
	return -1;
}
