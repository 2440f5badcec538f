// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What podman says of a container that is to move, and what of it can't be moved.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "host.h"
#include "move.h"
#include "podman.h"
#include "state.h"
#include "text.h"

/* ------------------------------------------------------------- looking up -- */

/* The value at a path such as "HostConfig.NetworkMode"; NULL: there is none. */
static json_t *find(json_t *object, const char *path)
{
	char *copy = xstrdup(path), *name, *save;

	for (name = strtok_r(copy, ".", &save); name && object; name = strtok_r(NULL, ".", &save))
		object = json_object_get(object, name);
	free(copy);
	return object;
}

static const char *find_text(json_t *object, const char *path)
{
	return json_string_value(find(object, path)) ?: "";
}

static int understand(struct move *m)
{
	const char *status = find_text(m->container.inspected, "State.Status");

	m->process.pid = json_integer_value(find(m->container.inspected, "State.Pid"));
	if (m->process.pid > 0 && !strcmp(status, "running"))
		return 0;
	return fault("container %s: it is %s: only one that runs can be moved", m->container.name, *status ? status : "dead");
}

int container_find(struct move *m)
{
	const char *const argv[] = { "podman", "container", "inspect", "--", m->container.name, NULL };
	json_t *list = run_json(argv);

	m->container.inspected = json_incref(json_array_get(list, 0));
	json_decref(list);
	if (m->container.inspected)
		return understand(m);
	if (podman_check("here"))
		return -1;
	return fault("container %s: podman, as root, knows none of that name: podman ps shows those that there are",
		     m->container.name);
}

/* ---------------------------------------------------------------- its cgroup -- */

/* A file of the container's control group; NULL: it is in none. Free it. */
static char *cgroup_file(const struct move *m, const char *name)
{
	char *cgroup = proc_cgroup(m->process.pid), *file = cgroup ? xasprintf("/sys/fs/cgroup%s/%s", cgroup, name) : NULL;

	free(cgroup);
	return file;
}

/*
 * CRIU freezes the control group until it has all tasks, and podman lets nobody pause the container meanwhile. Whoever froze it
 * before CRIU was started (then we know of no folder that it dumps to), or after the dump, has paused the container.
 */
void container_thaw(const struct move *m)
{
	char *path = m->container.dump && !m->shared->stop_sent ? cgroup_file(m, "cgroup.freeze") : NULL;
	FILE *f = path ? fopen(path, "we") : NULL;

	if (f) {
		fputs("0", f);
		fclose(f);
	}
	free(path);
}

int container_is_paused(const struct move *m)
{
	char *path = cgroup_file(m, "cgroup.freeze"), *text = path ? read_file(path) : NULL;
	bool paused = text && *text == '1';

	free(text);
	free(path);
	return paused ? fault("container %s: it was paused (podman pause) while it was frozen", m->container.name) : 0;
}

int container_is_whole(const struct move *m)
{
	char *path = cgroup_file(m, "cgroup.procs"), *text = path ? read_file(path) : NULL, *line, *save;
	int ret = 0;

	for (line = text ? strtok_r(text, "\n", &save) : NULL; line && !ret; line = strtok_r(NULL, "\n", &save))
		if (!tree_has(&m->plan.tree, atoi(line)))
			ret = fault("container %s: process %s in it is no child of its first one (podman exec?), and would not "
				    "go along: end it", m->container.name, line);
	free(text);
	free(path);
	return ret;
}

/* ------------------------------------------------------ what can't be moved -- */

/* Each path must have one of these values, or not be there. */
static const struct {
	const char *path, *values, *reason;
} conditions[] = {
	{ "Pod", "", "it belongs to a pod, and pods can't be moved yet" },
	{ "HostConfig.UsernsMode", "host", "it has a user namespace, which can't be moved yet: run it without --userns" },
	{ "HostConfig.PidMode", "private", "it shares its PID namespace: run it without --pid" },
	{ "HostConfig.IpcMode", "private shareable", "it shares its IPC namespace: run it without --ipc" },
	{ "HostConfig.Cgroups", "default", "it has no control group of its own: run it without --cgroups=disabled" },
	{ "Rootfs", "", "it runs from a folder, not from an image" },
	{ "GraphDriver.Name", "overlay", "podman's storage is no overlay (podman info), and can't be moved yet" },
};

static void refuse(struct move *m, const char *reason)
{
	plan_problem(&m->plan, "container %s: %s", m->container.name, reason);
}

static bool has_policy(json_t *inspected)
{
	const char *name = find_text(inspected, "HostConfig.RestartPolicy.Name");

	return *name && strcmp(name, "no");
}

/* As podman's --restart takes it; "": podman never starts it again. Free it. */
static char *restart_policy(json_t *inspected)
{
	const char *name = has_policy(inspected) ? find_text(inspected, "HostConfig.RestartPolicy.Name") : "";
	int retries = json_integer_value(find(inspected, "HostConfig.RestartPolicy.MaximumRetryCount"));

	return *name && retries ? xasprintf("%s:%d", name, retries) : xstrdup(name);
}

/* podman writes --no-healthcheck as a healthcheck, too: ["NONE"]. */
static bool has_healthcheck(json_t *inspected)
{
	const char *first = json_string_value(json_array_get(find(inspected, "Config.Healthcheck.Test"), 0));

	return first && *first && strcmp(first, "NONE");
}

/*
 * A move has brought it here, and its source was lost, or has not said "bye" yet. So it has no restart policy, and the next host
 * would never hear of that. Only a person knows that it does not run at the first host.
 */
static void look_at_last_move(struct move *m)
{
	const char *id = find_text(m->container.inspected, "Id");
	json_t *all, *state;
	size_t i;

	if (state_all(&all) || has_policy(m->container.inspected))
		json_array_clear(all);
	json_array_foreach(all, i, state) {
		const char *policy = find_text(state, "container.restart"), *move = find_text(state, "id");

		if (*policy && !find(state, "to") && !find(state, "container.policy_back") &&
		    is_one_of(find_text(state, "stage"), "committed running") && !strcmp(find_text(state, "container.id"), id))
			plan_problem(&m->plan, "container %s: move %s, which brought it here, is not over, and its restart policy "
				     "(%s) is not back: if it does not run at its source any more: godwit settle %s commit",
				     m->container.name, move, policy, move);
	}
	json_decref(all);
	fault_clear();
}

/* podman restores it into a control group of the same path, though systemd knows no such unit there, or runs another one. */
static void look_at_cgroup(struct move *m)
{
	char *cgroup = proc_cgroup(m->process.pid);

	if (cgroup && strstr(cgroup, "/libpod-payload-"))
		refuse(m, "its control group is inside of a unit's (--cgroups=split), which can't be moved: run it with --cgroups=no-conmon "
		       "(Quadlet: CgroupsMode=no-conmon)");
	free(cgroup);
}

static void look_at_conditions(struct move *m)
{
	json_t *inspected = m->container.inspected;

	for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++)
		if (!is_one_of(find_text(inspected, conditions[i].path), conditions[i].values))
			refuse(m, conditions[i].reason);
	if (json_is_true(find(inspected, "Config.Tty")))
		refuse(m, "it has a terminal, which can't be moved yet: run it without --tty");
	if (has_healthcheck(inspected))
		refuse(m, "it has a healthcheck, which can't be moved yet: run it with --no-healthcheck");
	if (json_is_true(find(inspected, "Config.SystemdMode")))
		refuse(m, "systemd runs in it, which can't be moved yet: run it with --systemd=false");
	if (json_is_true(find(inspected, "HostConfig.Privileged")) && has_policy(inspected))
		refuse(m, "it is privileged, and podman can't take its restart policy away without some of its devices: run it without "
		       "--privileged, or without --restart");
	if (json_array_size(find(inspected, "Dependencies")))
		refuse(m, "it depends on other containers, without which it can't be moved");
}

/* ---------------------------------------------------------------- its facts -- */

/*
 * The names of its secrets. podman has those that are files in Secrets. In Env it writes such a line, NAME=*******, in the place of
 * each variable that comes from a secret, and NAME is that of the secret.
 */
static json_t *secrets(struct move *m)
{
	json_t *files = find(m->container.inspected, "Config.Secrets"), *env = find(m->container.inspected, "Config.Env");
	json_t *list = json_array(), *item;
	size_t i;

	json_array_foreach(files, i, item)
		json_array_append_new(list, text_json(find_text(item, "Name")));
	json_array_foreach(env, i, item) {
		char *line = xstrdup(json_string_value(item) ?: ""), *end = strchr(line, '=');

		if (end && !strcmp(end, "=*******")) {
			*end = '\0';
			json_array_append_new(list, text_json(line));
		}
		free(line);
	}
	return list;
}

/* Does this rule of its device cgroup let the container open device files of this major number? */
static bool allows(json_t *rule, unsigned int number)
{
	const char *type = find_text(rule, "type"), *access = find_text(rule, "access");
	json_t *major = find(rule, "major");

	return json_is_true(find(rule, "allow")) && is_one_of(type, "a c") && strchr(access, 'r') && strchr(access, 'w') &&
	       (!major || json_number_value(major) < 0 || json_number_value(major) == number);
}

/* The minor numbers of those that it may open; -1: all. */
static json_t *minors(struct move *m, unsigned int number)
{
	/* Numbers are read as reals, because an infinite limit is too large for an integer of jansson. */
	json_t *spec = json_load_file(find_text(m->container.inspected, "OCIConfigPath"), JSON_DECODE_INT_AS_REAL, NULL);
	json_t *list = json_array(), *rule, *minor;
	size_t i;

	json_array_foreach(find(spec, "linux.resources.devices"), i, rule) {
		minor = find(rule, "minor");
		if (allows(rule, number))
			json_array_append_new(list, json_integer(minor ? json_number_value(minor) : -1));
	}
	json_decref(spec);
	return list;
}

/* device: NULL for a file of librdmacm */
static void add_node(struct move *m, json_t *list, const char *device, pid_t pid, int fd)
{
	char *path = xasprintf("/proc/%d/fd/%d", pid, fd);
	struct stat st;

	if (stat(path, &st) == 0)
		json_array_append_new(list, json_pack("{s:s*, s:i, s:i, s:o}", "device", device, "major", (int)major(st.st_rdev),
			"minor", (int)minor(st.st_rdev), "minors", minors(m, major(st.st_rdev))));
	free(path);
}

/* The device files that the container has open. All files of librdmacm are of one device. */
static json_t *nodes(struct move *m)
{
	json_t *list = json_array(), *object;
	size_t i;

	for (i = 0; i < m->plan.contexts.n; i++)
		add_node(m, list, m->plan.contexts.context[i].device, m->plan.contexts.context[i].pid,
			 m->plan.contexts.context[i].fd);
	json_array_foreach(m->plan.objects, i, object)
		if (!strcmp(find_text(object, "object"), "rdma_cm")) {
			add_node(m, list, NULL, json_integer_value(find(object, "pid")), json_integer_value(find(object, "fd")));
			break;
		}
	return list;
}

void container_facts(struct move *m)
{
	json_t *inspected = m->container.inspected;
	const char *runtime = find_text(inspected, "OCIRuntime");
	char *version = host_runtime_version(runtime), *restart = restart_policy(inspected);
	json_t *netns, *network = container_look_at_network(m, &netns);

	look_at_conditions(m);
	look_at_cgroup(m);
	container_look_at_witnesses(m, json_integer_value(find(inspected, "State.ConmonPid")),
				   find_text(inspected, "Config.Labels.PODMAN_SYSTEMD_UNIT"));
	look_at_last_move(m);
	if (podman_check("here"))
		plan_problem(&m->plan, "%s", fault_text());
	fault_clear();
	if (container_is_whole(m))
		plan_problem(&m->plan, "%s", fault_text());
	fault_clear();
	if (container_look_at_rootfs(m))
		plan_problem(&m->plan, "container %s: %s", m->container.name, fault_text());
	fault_clear();
	json_decref(m->container.facts);
	m->container.facts = json_pack("{s:s, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o*, s:o*, s:s, s:s}", "id",
		find_text(inspected, "Id"), "name", text_json(find_text(inspected, "Name")), "runtime", text_json(runtime),
		"runtime_version", text_json(version ?: ""), "image", text_json(find_text(inspected, "ImageName")), "image_id",
		find_text(inspected, "Image"), "volumes", container_volumes(m), "secrets", secrets(m), "nodes", nodes(m),
		"netns", netns, "network", network, "restart", restart, "apparmor", find_text(inspected, "AppArmorProfile"));
	free(restart);
	free(version);
	if (container_check_connections(m))
		plan_problem(&m->plan, "%s", fault_text());
	fault_clear();
}
