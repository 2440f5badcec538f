// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The destination says whether it would take a container, and prepares for it while the container still runs at the source.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "agent.h"
#include "host.h"
#include "netns.h"
#include "podman.h"
#include "text.h"

/* ---------------------------------------------------------------- check -- */

/* A check that failed adds its fault() to problems, once. */
static void note(json_t *problems, int failed)
{
	json_t *text = failed ? text_json(fault_text()) : NULL, *other;
	size_t i;

	fault_clear();
	json_array_foreach(problems, i, other)
		if (text && json_equal(text, other)) {
			json_decref(text);
			return;
		}
	if (text)
		json_array_append_new(problems, text);
}

/* The number in a line such as "crun version 1.21". */
static const char *number_of(const char *line)
{
	const char *at = strstr(line, "version ");

	return at ? at + strlen("version ") : line;
}

static int check_runtime(json_t *container)
{
	const char *runtime = container_fact(container, "runtime"), *version = container_fact(container, "runtime_version");
	char *here = host_runtime_version(runtime);
	int ret = 0;

	if (!here)
		ret = fault("runtime %s: it is not installed there: install version %s", runtime, number_of(version));
	else if (strcmp(here, version))
		ret = fault("runtime %s: version %s is here, %s there: install the same", runtime, number_of(version),
			    number_of(here));
	free(here);
	return ret;
}

static int check_image(json_t *container, json_t *message)
{
	const char *image = container_fact(container, "image"), *id = container_fact(container, "image_id"), *name = *image ? image : id;
	const char *const argv[] = { "podman", "image", "inspect", "--format", "{{.Id}} {{.GraphDriver.Data.UpperDir}}", name, NULL };
	char *text = NULL, *line, *layer;
	int ret = run(argv, NULL, &text);

	line = text ? text_last_line(text) : "";
	layer = strchr(line, ' ');
	if (layer)
		*layer++ = '\0';
	if (ret || !*line)
		ret = fault("image %s: it is not there: podman save %s | ssh HOST podman load", name, name);
	else if (strcmp(line, id))
		ret = fault("image %s: another one has that name there, %.12s, not %.12s: podman save %s | ssh HOST podman "
			    "load", name, line, id, name);
	else if (layer && *layer == '/')	/* else the storage is no overlay */
		ret = agent_check_storage(message, layer);
	free(text);
	return ret;
}

static int check_absent(json_t *container)
{
	const char *name = container_fact(container, "name");
	int is = container_check_id(container) ?: podman_exists("container", name);

	return is > 0 ? fault("container %s: another one has that name there: podman rm %s, or podman rename it", name, name) : is;
}

static int check_volume(json_t *volume)
{
	const char *name = json_string_value(json_object_get(volume, "volume"));
	char *path = name ? NULL : path_from_json(json_object_get(volume, "path"));
	int ret = name ? agent_check_volume(name, "") ?: podman_exists("volume", name) : 0;

	if (ret > 0)
		ret = fault("volume %s: one of that name is there: podman volume rm %s, if nobody needs it", name, name);
	else if (!name && (!path || access(path, F_OK)))
		ret = fault("%s, at %s in the container: --shared has it, but it is not there: mount it", path ?: "?",
			    container_fact(volume, "destination"));
	free(path);
	return ret;
}

/* podman reads them when it restores the container, and also when it starts it, or another program in it. */
static int check_secret(const char *name)
{
	int is = *name && *name != '-' ? podman_exists("secret", name) : 0;

	return is ? is < 0 : fault("secret %s: it is not there: podman secret create %s FILE, with the same content as here", name, name);
}

#define APPARMOR_LIST	"/sys/kernel/security/apparmor/profiles"

/* Each line of the list is as "containers-default-0.62.2 (enforce)". */
static bool is_profile(const char *list, const char *name)
{
	for (const char *line = list; line && *line; line = strchr(line, '\n'), line += !!line)
		if (!strncmp(line, name, strlen(name)) && !strncmp(line + strlen(name), " (", 2))
			return true;
	return false;
}

/* podman loads its own profile when it starts a container, and not when it restores one. */
static int check_apparmor(json_t *container)
{
	const char *profile = container_fact(container, "apparmor");
	char *enabled, *list;
	int ret = 0;

	if (!*profile || !strcmp(profile, "unconfined"))
		return 0;
	enabled = read_file("/sys/module/apparmor/parameters/enabled");
	list = read_file(APPARMOR_LIST);
	if (!enabled || *enabled != 'Y')
		ret = fault("AppArmor: the container has the profile %s, and AppArmor is not enabled there: enable it there, or run the "
			    "container with --security-opt apparmor=unconfined", profile);
	else if (!list)
		ret = fault("AppArmor: " APPARMOR_LIST " can't be read there: mount securityfs");
	else if (!is_profile(list, profile))
		ret = fault("AppArmor: the container's profile %s is not loaded there: podman run --rm IMAGE COMMAND, there, loads podman's "
			    "own profile; apparmor_parser loads another", profile);
	free(list);
	free(enabled);
	return ret;
}

void agent_check_container(json_t *message, json_t *problems)
{
	json_t *container = json_object_get(message, "container");
	json_t *netns = json_object_get(container, "netns"), *volume, *secret, *node;
	size_t i;

	podman_path();
	/* The plugin keeps the tasks frozen until the commit, also without RDMA. */
	note(problems, host_check_plugin());
	note(problems, check_runtime(container));
	note(problems, check_apparmor(container));
	if (netns)
		netns_check(netns, problems);
	if (podman_check("there")) {
		note(problems, -1);
		return;
	}
	if (json_object_get(container, "network"))
		agent_check_network(json_object_get(container, "network"), problems);
	note(problems, check_image(container, message));
	note(problems, check_absent(container));
	json_array_foreach(json_object_get(container, "volumes"), i, volume)
		note(problems, check_volume(volume));
	json_array_foreach(json_object_get(container, "secrets"), i, secret)
		note(problems, check_secret(json_string_value(secret) ?: ""));
	/* The other devices may be made only when the move begins. */
	json_array_foreach(json_object_get(container, "nodes"), i, node)
		if (!json_object_get(node, "device"))
			note(problems, agent_check_node(node));
}

/* -------------------------------------------------------------- prepare -- */

/* Names from the wire become arguments of podman: none may look like an option. */
static bool makes_sense(json_t *container)
{
	static const char *const names[] = { "name", "runtime" };
	const char *id = container_fact(container, "id");
	json_t *volume;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!*container_fact(container, names[i]) || *container_fact(container, names[i]) == '-')
			return false;
	json_array_foreach(json_object_get(container, "volumes"), i, volume)
		if (*container_fact(volume, "volume") == '-' || strchr(container_fact(volume, "volume"), '/'))
			return false;
	return strlen(id) == 64 && strspn(id, "0123456789abcdef") == 64;
}

int agent_prepare_container(struct agent *a)
{
	bool later = json_object_get(a->container, "network");	/* agent_lay_netns() */

	podman_path();
	json_object_del(a->container, "begun");
	json_object_del(a->container, "has_netns");
	if (!makes_sense(a->container))
		return fault("the container of the move makes no sense: use the same godwit at both ends");
	if (!later && json_object_get(a->container, "netns") && agent_make_netns(a))
		return -1;
	if (!later && agent_check_nodes(a))
		return -1;
	return agent_make_volumes(a);
}
