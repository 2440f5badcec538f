// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "godwit.h"
#include "podman.h"
#include "text.h"

/*
 * 5.4 is the first whose update changes a restart policy and leaves the limits of the container as they are. (4.8 is the first
 * that gives its environment to the runtime.)
 */
enum { MAJOR = 5, MINOR = 4 };

int podman_check(const char *where)
{
	const char *const argv[] = { "podman", "--version", NULL };
	int major = 0, minor = 0, ret = 0;
	char *text = NULL;

	if (run(argv, NULL, &text) || !text || sscanf(text_last_line(text), "podman version %d.%d", &major, &minor) != 2)
		ret = fault("podman: it is not installed %s: apt-get install podman", where);
	else if (major < MAJOR || (major == MAJOR && minor < MINOR))
		ret = fault("podman: version %d.%d is too old %s: it takes %d.%d", major, minor, where, MAJOR, MINOR);
	free(text);
	return ret;
}

const char *container_fact(json_t *container, const char *key)
{
	return json_string_value(json_object_get(container, key)) ?: "";
}

void podman_path(void)
{
	static const char folders[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	const char *path = getenv("PATH");
	char *all = xasprintf("%s%s%s", path ?: "", path ? ":" : "", folders);

	if (!path || !strstr(path, folders))
		setenv("PATH", all, 1);
	free(all);
}

int podman_exists(const char *kind, const char *name)
{
	const char *const argv[] = { "podman", kind, "exists", name, NULL };
	int ret = run(argv, NULL, NULL);

	return ret == 0 ? 1 : ret == 1 ? 0 : fault("%s %s: podman can't tell there whether it has it: see to it", kind, name);
}

/* It waits for the locks of all containers. */
json_t *podman_network(const char *name)
{
	const char *const argv[] = { "timeout", "--kill-after=5", "20", "podman", "network", "inspect", "--", name, NULL };
	json_t *list = run_json(argv), *network = json_incref(json_array_get(list, 0));

	json_decref(list);
	return network;
}

/* podman may wait for a lock whose owner hangs, so podman runs under timeout. */
int podman_set_policy(json_t *container, const char *policy)
{
	const char *id = container_fact(container, "id"), *name = container_fact(container, "name");
	char *option = xasprintf("--restart=%s", policy), *text = NULL;
	const char *const argv[] = { "timeout", "--kill-after=5", "20", "podman", "update", option, id, NULL };
	int ret = run(argv, NULL, &text);

	/* Somebody has killed podman, or timeout. Without its policy the container would never be started again. */
	if (ret < 0 || ret == 128 + SIGKILL) {
		free(text);
		text = NULL;
		ret = run(argv, NULL, &text);
	}
	if (ret)
		fault("container %s: podman can't set its restart policy: %s: podman update %s %s", name,
		      text_why(text), option, name);
	free(text);
	free(option);
	return ret ? -1 : 0;
}

static int start(const char *id, const char *name, int code)
{
	const char *const argv[] = { "timeout", "--kill-after=5", "25", "podman", "start", id, NULL };
	char *text = NULL;

	if (run(argv, NULL, &text))
		fault("container %s: it ended with exit status %d while it had no restart policy, and podman can't start it again: %s: "
		      "podman start %s", name, code, text_why(text), name);
	else
		fault("container %s: it ended with exit status %d while it had no restart policy, and was started again after that",
		      name, code);
	free(text);
	return 1;
}

/*
 * podman starts a container again only if the container has its policy when it ends. If it ended before, we start it here, unless a
 * person has stopped or checkpointed it.
 */
static int start_ended(json_t *container, const char *policy)
{
	const char *id = container_fact(container, "id");
	const char *const argv[] = { "timeout", "--kill-after=5", "10", "podman", "container", "inspect", id, NULL };
	json_t *list = run_json(argv), *state = json_object_get(json_array_get(list, 0), "State");
	const char *status = container_fact(state, "Status");
	int code = json_integer_value(json_object_get(state, "ExitCode")), ret = 0;

	if ((!strcmp(status, "exited") || !strcmp(status, "stopped")) && !json_is_true(json_object_get(state, "StoppedByUser")) &&
	    !json_is_true(json_object_get(state, "Checkpointed")) &&
	    (code || strncmp(policy, "on-failure", strlen("on-failure"))))
		ret = start(id, container_fact(container, "name"), code);
	json_decref(list);
	return ret;
}

int podman_give_policy(json_t *container)
{
	const char *policy = container_fact(container, "restart");

	return *policy ? podman_set_policy(container, policy) ?: start_ended(container, policy) : 0;
}
