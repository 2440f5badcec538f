// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the devices and GIDs of the process become at the destination.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gids.h"
#include "move.h"
#include "text.h"

/* The NEW of this OLD in the map of devices, up to a comma or its end; or NULL. */
static const char *device_asked(const struct move *m, const char *old, size_t len)
{
	for (const char *at = m->device_map; at && *at; at = strchr(at, ','), at += !!at)
		if (!strncmp(at, old, len) && at[len] == '=')
			return at + len + 1;
	return NULL;
}

int move_device(struct move *m, const char *text)
{
	const char *pair = parse_text(text);

	do {
		size_t len = strcspn(pair, ","), old = strcspn(pair, "=");

		if (!old || old + 1 >= len)
			return fault("--device %s: it is not of the form OLD=NEW", text);
		if (device_asked(m, pair, old))
			return fault("--device %s: %.*s was given before", text, (int)old, pair);
		m->device_map = xasprintf("%s%s%.*s", m->device_map ?: "", m->device_map ? "," : "", (int)len, pair);
		pair += len;
	} while (*pair++ == ',');
	return 0;
}

/* The name that a device of ours has there. */
static void device_there(const struct move *m, const char *device, char there[64])
{
	const char *asked = device_asked(m, device, strlen(device)) ?: device;

	snprintf(there, 64, "%.*s", (int)strcspn(asked, ","), asked);
}

/* As the operator writes a GID: IPv4 without ::ffff: */
static const char *plain(const char *gid)
{
	return strncmp(gid, "::ffff:", 7) ? gid : gid + 7;
}

/* What becomes of a GID of ours, on a device there that has these GIDs? NULL with fault(). */
static const char *gid_there(const struct move *m, json_t *here, json_t *gids, const char *old, const char *device)
{
	const char *asked = json_string_value(json_object_get(m->gids_asked, old));
	const char *new = asked ?: old;
	struct in6_addr gid;

	if (inet_pton(AF_INET6, new, &gid) != 1 || addresses_have(&m->addresses, &gid) || gids_find(gids, new))
		return new;
	if (!asked)
		return gids_choose(here, gids, old, m->host, device);
	fault("%s: --gid %s=%s: %s there has no such GID", m->host, plain(old), plain(new), device);
	return NULL;
}

/* The GIDs of a device here; known: {device: GIDs}. */
static json_t *gids_here(json_t *known, const char *device)
{
	if (!json_object_get(known, device))
		json_object_set_new(known, device, gids_json(device));
	return json_object_get(known, device);
}

/* What the GIDs of one context become on its device there. (If there is no such device, the destination says so itself.) */
static void map_context_gids(struct move *m, const struct context *c, json_t *known, json_t *problems)
{
	json_t *here = gids_here(known, c->device), *old = plan_context_gids(c, here), *gids, *text;
	char there[64];
	size_t i;

	device_there(m, c->device, there);
	gids = json_object_get(json_object_get(m->dest.hello, "devices"), there);
	json_array_foreach(old, i, text) {
		const char *name = json_string_value(text), *new;

		if (!gids || json_object_get(m->plan.gids, name))
			continue;
		new = gid_there(m, here, gids, name, there);
		m->gids_change |= new && strcmp(name, new);
		json_object_set_new(m->plan.gids, name, json_pack("{s:s*, s:O*}", "there", new, "mtu",
				    json_object_get(gids_find(here, name), "mtu")));
		if (!new)
			json_array_append_new(problems, json_string(fault_text()));
		fault_clear();
	}
	json_decref(old);
}

static bool has_device(const struct move *m, const char *name, size_t len)
{
	for (size_t i = 0; i < m->plan.contexts.n; i++) {
		const char *device = m->plan.contexts.context[i].device;

		if (strlen(device) == len && !strncmp(device, name, len))
			return true;
	}
	return false;
}

static void refuse_unused_devices(const struct move *m, json_t *problems)
{
	for (const char *at = m->device_map; at; at = strchr(at, ','), at += !!at) {
		int old = strcspn(at, "=");

		if (!has_device(m, at, old))
			json_array_append_new(problems, json_sprintf("--device %.*s: the process has no device %.*s open",
								     (int)strcspn(at, ","), at, old, at));
	}
}

void move_map_gids(struct move *m, json_t *problems)
{
	json_t *known = json_object(), *new;
	const char *old;

	for (size_t i = 0; i < m->plan.contexts.n; i++)
		map_context_gids(m, &m->plan.contexts.context[i], known, problems);
	json_decref(known);
	refuse_unused_devices(m, problems);
	json_object_foreach(m->gids_asked, old, new)
		if (!json_object_get(m->plan.gids, old))
			json_array_append_new(problems, json_sprintf("--gid %s=%s: the process sends from no such GID",
								     plain(old), plain(json_string_value(new))));
}

void move_map_devices(struct move *m)
{
	for (size_t i = 0; i < m->plan.contexts.n; i++) {
		char there[64];

		device_there(m, m->plan.contexts.context[i].device, there);
		strcpy(m->plan.contexts.context[i].device, there);
	}
}

/* "OLD=NEW,OLD=NEW" */
char *move_gid_map_text(json_t *gids)
{
	char *text = xstrdup("");
	const char *old;
	json_t *entry;

	json_object_foreach(gids, old, entry) {
		const char *new = json_string_value(json_object_get(entry, "there"));
		char *longer;

		if (!new || !strcmp(new, old))
			continue;
		longer = xasprintf("%s%s%s=%s", text, *text ? "," : "", old, new);
		free(text);
		text = longer;
	}
	return text;
}
