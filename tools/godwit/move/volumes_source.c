// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The volumes and folders of a container at the source: which go along, and which can't.
 */
#include <stdlib.h>
#include <string.h>
#include "move.h"
#include "podman.h"
#include "text.h"

/* Is it a mount, or limited, by the options that it was made with? Gives such an option, or NULL. */
static const char *mount_option(json_t *options)
{
	bool owner = json_object_get(options, "UID") || json_object_get(options, "GID");	/* they lie in "o", too */
	const char *key;
	json_t *value;

	json_object_foreach(options, key, value)
		if (!is_one_of(key, owner ? "UID GID nocopy copy o" : "nocopy copy"))
			return key;
	return NULL;
}

/* The destination would make a folder of its own in the place of NFS, or of another folder. */
static bool volume_is_plain(struct move *m, const char *name, const char *destination)
{
	const char *const argv[] = { "podman", "volume", "inspect", name, NULL };
	json_t *list = run_json(argv), *inspected = json_array_get(list, 0);
	const char *driver = container_fact(inspected, "Driver"), *option = mount_option(json_object_get(inspected, "Options"));
	bool plain = !strcmp(driver, "local") && !option;

	if (!inspected)
		plan_problem(&m->plan, "volume %s, at %s in the container: podman does not say what it is: see to it", name, destination);
	else if (!plain)
		plan_problem(&m->plan, "volume %s, at %s in the container: it was made with %s %s, and only one without can be copied: "
			     "mount the same at both hosts, and give the container that folder, with --shared", name, destination,
			     option ? "the option" : "the driver", option ?: driver);
	json_decref(list);
	return plain;
}

/* What another container writes while we copy might be copied half. One that is paused may go on. */
static bool is_ours_alone(struct move *m, const char *name)
{
	char *filter = xasprintf("volume=%s", name);
	const char *const argv[] = { "podman", "ps", "--all", "--no-trunc", "--filter", filter, "--format", "json", NULL };
	json_t *list = run_json(argv), *user;
	bool alone = list;
	size_t i;

	if (!list)
		plan_problem(&m->plan, "volume %s: podman does not say which containers have it: see to it", name);
	json_array_foreach(list, i, user) {
		const char *other = json_string_value(json_array_get(json_object_get(user, "Names"), 0)) ?: "?";

		if (!is_one_of(container_fact(user, "State"), "running paused stopping") ||
		    !strcmp(container_fact(user, "Id"), container_fact(m->container.inspected, "Id")))
			continue;
		plan_problem(&m->plan, "volume %s: container %s has it, too, and may write to it while it is copied: podman stop %s",
			     name, other, other);
		alone = false;
	}
	json_decref(list);
	free(filter);
	return alone;
}

/* Bytes on the disk. */
static json_t *size_of(const char *folder)
{
	/* The operator waits for this. An unknown size only leaves out a check. */
	const char *const argv[] = { "timeout", "60", "du", "--summarize", "--block-size=1", "--", folder, NULL };
	char *text = NULL;
	json_t *size = json_integer(run(argv, NULL, &text) < 0 || !text ? 0 : strtoll(text_last_line(text), NULL, 10));

	free(text);
	return size;
}

uint64_t container_volumes_size(const struct move *m)
{
	json_t *list = json_object_get(m->container.facts, "volumes"), *fact;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(list, i, fact)
		sum += json_integer_value(json_object_get(fact, "bytes"));
	return sum;
}

/* The operator says whether the destination has the content (--shared), or we bring it there (--copy-volume). */
static json_t *volume(struct move *m, json_t *mount)
{
	const char *name = container_fact(mount, "Name"), *source = container_fact(mount, "Source");
	const char *destination = container_fact(mount, "Destination");
	char *real = realpath(source, NULL);	/* the paths of --shared are real ones, too */
	json_t *fact = NULL;

	if (!strcmp(container_fact(mount, "Type"), "volume")) {
		if (!paths_list(&m->volumes, name))
			plan_problem(&m->plan, "volume %s, at %s in the container: its content is on this host: give "
				     "--copy-volume %s", name, destination, name);
		else if (volume_is_plain(m, name, destination) && is_ours_alone(m, name))
			fact = json_pack("{s:o, s:o, s:o, s:o}", "volume", text_json(name), "destination", text_json(destination),
					 "source", path_json(source), "bytes", size_of(source));
	} else if (real && paths_cover(&m->share, real)) {
		fact = json_pack("{s:o, s:o}", "path", path_json(source), "destination", text_json(destination));
	} else {
		plan_problem(&m->plan, "%s, at %s in the container: if both hosts have the same there, on shared storage, give "
			     "--shared %s; else it can't be moved", source, destination, source);
	}
	free(real);
	return fact;
}

/* A container may have a volume in several places. */
static bool has_volume(json_t *list, json_t *name)
{
	json_t *fact;
	size_t i;

	json_array_foreach(list, i, fact)
		if (json_equal(json_object_get(fact, "volume"), name))
			return true;
	return false;
}

json_t *container_volumes(struct move *m)
{
	json_t *mounts = json_object_get(m->container.inspected, "Mounts"), *list = json_array(), *mount, *fact;
	size_t i;

	json_array_foreach(mounts, i, mount) {
		fact = has_volume(list, json_object_get(mount, "Name")) ? NULL : volume(m, mount);
		if (fact)
			json_array_append_new(list, fact);
	}
	return list;
}
