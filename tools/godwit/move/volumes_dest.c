// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Volumes of a container, which are copied. podman makes them here before the container is frozen. tar puts their content into
 * them, with the owner and the mode of the volume itself, and compares it, before podman restores the container.
 */
#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <stdio.h>
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

	return run_or_fault(argv, "volume %s: podman can't make it", name);
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

static bool has_made(json_t *state, const char *name)
{
	json_t *list = json_object_get(json_object_get(state, "container"), "volumes"), *volume;
	size_t i;

	json_array_foreach(list, i, volume)
		if (json_object_get(volume, "made") && !strcmp(container_fact(volume, "volume"), name))
			return true;
	return false;
}

/* A move that has not let its copy go may still remove it, and podman forgets a volume before the folder of that is gone. */
int agent_check_volume(const char *name, const char *id)
{
	json_t *all, *state;
	int ret = 0;
	size_t i;

	if (state_all(&all))
		ret = -1;
	json_array_foreach(all, i, state) {
		const char *other = json_string_value(json_object_get(state, "id"));
		enum stage stage = agent_stage_in(state);

		if (!ret && strcmp(other, id) && stage != STAGE_COMMITTED && stage != STAGE_RUNNING && has_made(state, name))
			ret = fault("volume %s: move %s has it there, and may just be removing it: wait until godwit status, there, "
				    "does not show that move any more; if it stays: there: godwit settle %s %s", name, other,
				    other, stage == STAGE_READY ? "commit, or abort" : "abort");
	}
	json_decref(all);
	return ret;
}

/* Somebody else may make one of the same name, so it is written down at once that this one is not ours, or not any more. */
static void disown(struct agent *a, json_t *volume)
{
	json_object_del(volume, "made");
	agent_save(a);
}

/*
 * First write down that the volume is ours to remove. If it can't be made, take that back. We write before we look at other moves:
 * if two begin at once, at least one sees what the other has written down.
 */
static int make_volume(struct agent *a, json_t *volume)
{
	const char *name = container_fact(volume, "volume");
	json_t *path;

	json_object_set_new(volume, "made", json_true());
	if (agent_save(a))
		return -1;
	if (agent_check_volume(name, a->id) || make(name)) {
		disown(a, volume);
		return -1;
	}
	path = place(name);
	if (!path)
		return -1;
	if (is_empty(name, path)) {
		disown(a, volume);
		json_decref(path);
		return -1;
	}
	return json_object_set_new(volume, "place", path);
}

int agent_make_volumes(struct agent *a)
{
	json_t *volume;
	size_t i;

	json_array_foreach(json_object_get(a->container, "volumes"), i, volume) {
		json_object_del(volume, "made");
		json_object_del(volume, "place");
	}
	json_array_foreach(json_object_get(a->container, "volumes"), i, volume)
		if (json_object_get(volume, "volume") && make_volume(a, volume))
			return -1;
	return 0;
}

/* The archive of a volume, what tar listed as it wrote that, what it lists of what has come of it, and the folder of the volume. */
struct copy {
	const char *name;
	char *archive, *sent, *here, *folder;
};

static int extract(const struct copy *c)
{
	const char *const argv[] = {
		"tar", "--extract", "--force-local", "--file", c->archive, "--directory", c->folder, "--numeric-owner", "--same-owner",
		"--preserve-permissions", "--acls", "--xattrs", "--xattrs-include=*", NULL,
	};

	return run_or_fault(argv, "volume %s: tar can't write it", c->name);
}

/*
 * As save_volume() in podman_source.c has listed it, perhaps in another time zone (--utc). tar reads no file for an archive in
 * /dev/null.
 */
static int list(const struct copy *c)
{
	const char *const argv[] = {
		"tar", "--create", "--verbose", "--verbose", "--full-time", "--utc", "--index-file", c->here, "--file", "/dev/null",
		"--directory", c->folder, "--numeric-owner", "--acls", "--xattrs", "--xattrs-include=*", "--sort=name", ".", NULL,
	};

	return run_or_fault(argv, "volume %s: tar can't list it", c->name);
}

/* fault(): the first line that differs. */
static int compare_lists(const struct copy *c)
{
	FILE *sent = fopen(c->sent, "re"), *here = fopen(c->here, "re");
	char *line = NULL, *other = NULL;
	size_t size = 0, other_size = 0;
	int ret = sent && here ? 0 : fault("volume %s: its lists can't be read: %s", c->name, strerror(errno));
	bool more, other_more;

	do {
		more = !ret && getline(&line, &size, sent) > 0;
		other_more = !ret && getline(&other, &other_size, here) > 0;
		if (more != other_more || (more && strcmp(line, other)))
			ret = fault("volume %s: it is not what was sent: %s", c->name, text_last_line(more ? line : other));
	} while (more && !ret);
	if (sent)
		fclose(sent);
	if (here)
		fclose(here);
	free(line);
	free(other);
	return ret;
}

/* tar compares what files hold, but no owner of a folder or link, and not whether there is more. The lists tell that. */
static int compare(const struct copy *c)
{
	const char *const argv[] = {
		"tar", "--compare", "--force-local", "--file", c->archive, "--directory", c->folder, "--numeric-owner", NULL,
	};

	return run_or_fault(argv, "volume %s: it is not what was sent", c->name) ?: list(c) ?: compare_lists(c);
}

static int fill(const struct agent *a, json_t *volume)
{
	struct copy c = { .name = container_fact(volume, "volume") };
	int ret;

	c.archive = xasprintf("%s/volume-%s.tar", a->images, c.name);
	c.sent = xasprintf("%s.list", c.archive);
	c.here = xasprintf("%s.here", c.archive);
	c.folder = path_from_json(json_object_get(volume, "place")) ?: xstrdup("");
	ret = extract(&c) ?: compare(&c);
	free(c.archive);
	free(c.sent);
	free(c.here);
	free(c.folder);
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

/* Remove what is in a folder. What can't be removed stays. 1: somebody wants to talk to us. */
static int empty(const struct agent *a, char *folder, bool polite)
{
	char *const paths[] = { folder, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	FTSENT *e;
	int ret = 0;

	while (!ret && fts && (e = fts_read(fts))) {
		if (e->fts_level > 0 && e->fts_info != FTS_D)
			remove(e->fts_accpath);
		ret = polite && agent_is_called(a, 0);
	}
	if (fts)
		fts_close(fts);
	return ret;
}

/* Somebody may have run another container with it meanwhile. Then podman does not remove it. */
static bool is_used(const char *name)
{
	char *filter = xasprintf("volume=%s", name), *text = NULL;
	const char *const argv[] = { "podman", "ps", "--all", "--quiet", "--filter", filter, NULL };
	bool used = run(argv, NULL, &text) || (text && *text);

	free(text);
	free(filter);
	return used;
}

/*
 * podman forgets a volume before it removes the files. So we remove them before: if we are killed, podman still has the volume, and
 * whoever goes on in our place finds it. (If we were killed earlier, podman may not have made it.)
 */
static int remove_volume(struct agent *a, json_t *volume, bool polite)
{
	const char *name = container_fact(volume, "volume");
	const char *const rm[] = { "timeout", "--kill-after=5", "300", "podman", "volume", "rm", name, NULL };
	char *folder = path_from_json(json_object_get(volume, "place"));
	int exists = podman_exists("volume", name), ret;

	fault_clear();
	ret = exists > 0 && folder && !is_used(name) ? empty(a, folder, polite) : 0;
	if (!ret && exists && run_or_fault(rm, "volume %s: podman can't remove it", name))
		agent_warn(a, fault_text());
	fault_clear();
	free(folder);
	return ret;
}

int agent_remove_volumes(struct agent *a, bool polite)
{
	json_t *volume;
	size_t i;

	podman_path();
	json_array_foreach(json_object_get(a->container, "volumes"), i, volume) {
		if (!json_object_get(volume, "made"))
			continue;
		if (remove_volume(a, volume, polite))
			return 1;
		disown(a, volume);
	}
	return 0;
}
