// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <stdio.h>
#include <stdlib.h>
#include "godwit.h"
#include "podman.h"
#include "text.h"

int podman_version(void)
{
	const char *const argv[] = { "podman", "--version", NULL };
	int major = 0, minor = 0;
	char *text = NULL;

	if (run(argv, NULL, &text) || !text || sscanf(text_last_line(text), "podman version %d.%d", &major, &minor) != 2)
		major = minor = 0;
	free(text);
	return major * 100 + minor;
}

/* (timeout: podman may wait for a lock whose owner hangs) */
int podman_set_policy(json_t *container, const char *policy)
{
	const char *id = json_string_value(json_object_get(container, "id")) ?: "";
	const char *name = json_string_value(json_object_get(container, "name")) ?: "";
	char *option = xasprintf("--restart=%s", policy), *text = NULL;
	const char *const argv[] = { "timeout", "--kill-after=5", "20", "podman", "update", option, id, NULL };
	int ret = run(argv, NULL, &text);

	if (ret)
		fault("container %s: podman can't set its restart policy: %s: podman update %s %s", name,
		      text && *text ? text_last_line(text) : "it does not say why", option, name);
	free(text);
	free(option);
	return ret ? -1 : 0;
}

int podman_give_policy(json_t *container)
{
	const char *policy = json_string_value(json_object_get(container, "restart"));

	return policy && *policy ? podman_set_policy(container, policy) : 0;
}
