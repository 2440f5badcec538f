// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Volumes of a container, which are copied. podman makes them here before the container is frozen. tar puts their content into
 * them, with the owner and the mode of the volume itself, before podman restores the container.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "agent.h"
#include "podman.h"
#include "text.h"

/*
 * The volume may be empty, as the one at the source may be. By nocopy podman never puts the image's files into it. By an owner
 * podman never gives it to the image's. (tar gives it to its true owner.)
 */
static int make(const char *name)
{
	const char *const argv[] = { "podman", "volume", "create", "--opt", "nocopy", "--opt", "o=uid=0,gid=0", name, NULL };
	char *text = NULL;
	int ret = run(argv, NULL, &text);

	if (ret)
		ret = fault("volume %s: podman can't make it: %s", name, text && *text ? text_last_line(text) : "it does not say why");
	free(text);
	return ret;
}

/* Where podman has its content, as JSON. */
static json_t *place(const char *name)
{
	const char *const argv[] = { "podman", "volume", "inspect", "--format", "{{.Mountpoint}}", name, NULL };
	char *text = NULL;
	json_t *path = run(argv, NULL, &text) || !text ? NULL : path_json(text_last_line(text));

	free(text);
	if (!path)
		fault("volume %s: podman does not say where it is", name);
	return path;
}

/* When podman removes a volume, it forgets it first. So if that was cut off, files may be left. */
static int is_empty(const char *name, json_t *path)
{
	char *folder = path_from_json(path);
	DIR *d = opendir(folder);
	struct dirent *de;
	int ret = d ? 0 : fault("volume %s: %s can't be read: %s", name, folder, strerror(errno));

	while (!ret && d && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			ret = fault("volume %s: in %s there are files of an older one: podman volume rm %s", name, folder, name);
	if (d)
		closedir(d);
	free(folder);
	return ret;
}

/* It is written down first that the volume is ours to remove. If it could not be made, it is not ours. */
static int make_volume(struct agent *a, json_t *volume)
{
	const char *name = container_fact(volume, "volume");
	json_t *path;

	json_object_set_new(volume, "made", json_true());
	if (agent_save(a))
		return -1;
	if (make(name)) {
		json_object_del(volume, "made");
		return -1;
	}
	path = place(name);
	if (!path)
		return -1;
	if (is_empty(name, path)) {
		json_object_del(volume, "made");
		json_decref(path);
		return -1;
	}
	return json_object_set_new(volume, "place", path);
}

int agent_make_volumes(struct agent *a)
{
	json_t *volume;
	size_t i;

	json_array_foreach(json_object_get(a->container, "volumes"), i, volume)
		json_object_del(volume, "made");
	json_array_foreach(json_object_get(a->container, "volumes"), i, volume)
		if (json_object_get(volume, "volume") && make_volume(a, volume))
			return -1;
	return 0;
}

static int fill(const struct agent *a, json_t *volume)
{
	const char *name = container_fact(volume, "volume");
	char *file = xasprintf("%s/volume-%s.tar", a->images, name), *path = path_from_json(json_object_get(volume, "place"));
	const char *const argv[] = {
		"tar", "--extract", "--force-local", "--file", file, "--directory", path ?: "", "--numeric-owner", "--same-owner",
		"--preserve-permissions", "--acls", "--xattrs", "--xattrs-include=*", NULL,
	};
	char *text = NULL;
	int ret = run(argv, NULL, &text);

	if (ret)
		ret = fault("volume %s: tar can't write it: %s", name, text && *text ? text_last_line(text) : "it does not say why");
	free(text);
	free(path);
	free(file);
	return ret;
}

int agent_fill_volumes(const struct agent *a)
{
	json_t *volume;
	size_t i;

	json_array_foreach(json_object_get(a->container, "volumes"), i, volume)
		if (json_object_get(volume, "made") && fill(a, volume))
			return -1;
	return 0;
}

void agent_remove_volumes(struct agent *a)
{
	json_t *volume;
	size_t i;

	json_array_foreach(json_object_get(a->container, "volumes"), i, volume) {
		const char *name = container_fact(volume, "volume");
		const char *const rm[] = { "timeout", "--kill-after=5", "300", "podman", "volume", "rm", name, NULL };

		/* If we were killed, podman may not have made it. */
		if (json_object_get(volume, "made") && podman_exists("volume", name) && podman_remove(rm, "volume", name))
			agent_warn(a, fault_text());
		fault_clear();
	}
}
