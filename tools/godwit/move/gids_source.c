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

int move_device(struct move *m, const char *text)
{
	char *rest = xstrdup(parse_text(text)), *old, *new;

	m->devices_asked = m->devices_asked ?: json_object();
	while ((new = strsep(&rest, ","))) {
		old = strsep(&new, "=");
		if (!*old || !new || !*new)
			return fault("--device %s: it is not of the form OLD=NEW", text);
		if (json_object_get(m->devices_asked, old))
			return fault("--device %s: %s was given before", text, old);
		json_object_set_new(m->devices_asked, old, json_string(new));
	}
	return 0;
}

static const char *device_asked(const struct move *m, const char *old)
{
	return json_string_value(json_object_get(m->devices_asked, old));
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
	const char *there = device_asked(m, c->device) ?: c->device;
	size_t i;

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

static bool has_device(const struct move *m, const char *name)
{
	for (size_t i = 0; i < m->plan.contexts.n; i++)
		if (!strcmp(m->plan.contexts.context[i].device, name))
			return true;
	return false;
}

void move_map_gids(struct move *m, json_t *problems)
{
	json_t *known = json_object(), *new;
	const char *old;

	for (size_t i = 0; i < m->plan.contexts.n; i++)
		map_context_gids(m, &m->plan.contexts.context[i], known, problems);
	json_decref(known);
	json_object_foreach(m->devices_asked, old, new)
		if (!has_device(m, old))
			json_array_append_new(problems, json_sprintf("--device %s=%s: the process has no device %s open",
								     old, json_string_value(new), old));
	json_object_foreach(m->gids_asked, old, new)
		if (!json_object_get(m->plan.gids, old))
			json_array_append_new(problems, json_sprintf("--gid %s=%s: the process sends from no such GID",
								     plain(old), plain(json_string_value(new))));
}

void move_map_devices(struct move *m)
{
	for (size_t i = 0; i < m->plan.contexts.n; i++) {
		struct context *c = &m->plan.contexts.context[i];
		const char *asked = device_asked(m, c->device);

		if (asked)
			snprintf(c->device, sizeof(c->device), "%s", asked);
	}
}

/* As the plugin reads it: "OLD=NEW,OLD=NEW" */
static void set_map(json_t *env, const char *variable, json_t *map)
{
	char *text = NULL, *longer;
	const char *old;
	json_t *new;

	json_object_foreach(map, old, new) {
		longer = xasprintf("%s%s%s=%s", text ?: "", text ? "," : "", old, json_string_value(new));
		free(text);
		text = longer;
	}
	if (text)
		json_object_set_new(env, variable, json_string(text));
	free(text);
}

json_t *move_plugin_env(const struct move *m)
{
	json_t *env = json_object(), *gids = json_object(), *entry;
	const char *old;

	json_object_foreach(m->plan.gids, old, entry) {
		const char *new = json_string_value(json_object_get(entry, "there"));

		if (new && strcmp(new, old))
			json_object_set_new(gids, old, json_string(new));
	}
	set_map(env, "GODWIT_SGID_MAP", gids);
	set_map(env, "GODWIT_DEVICE_MAP", m->devices_asked);
	json_decref(gids);
	return env;
}
