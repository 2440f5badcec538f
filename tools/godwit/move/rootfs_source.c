// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What a container has changed in its own file system, for the archive that podman has made. podman's own part of it leaves out
 * a changed file whose name the host has not, owners and modes of folders, and what is in a folder that was removed and made
 * again. And where the image has a link in place of a folder, podman at the destination follows the link out of the container.
 * So podman is told to leave the file system out, and we add it, in podman's form: rootfs-diff.tar is unpacked over the image,
 * then what deleted.files names is removed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "move.h"
#include "text.h"

#define DIFF_TAR	"rootfs-diff.tar"
#define DELETED		"deleted.files"
#define NAMES		"rootfs-names"
#define EMPTY		"rootfs-empty"

struct changes {
	const char *root, *images;
	json_t *names;		/* the keys: what goes into the archive, each with all folders above it */
	json_t *replaced;	/* of these, what takes the place of something else */
	json_t *deleted;
};

/* ------------------------------------------------------------ what has changed -- */

static const char *text_at(json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name)) ?: "";
}

/* The folder where podman has mounted the container's file system. Free it. */
static char *root_folder(const struct move *m)
{
	json_t *spec = json_load_file(text_at(m->container.inspected, "OCIConfigPath"), JSON_DECODE_INT_AS_REAL, NULL);
	char *root = xstrdup(text_at(json_object_get(spec, "root"), "path"));

	json_decref(spec);
	return root;
}

static bool is_there(const struct changes *c, const char *path)
{
	char *full = xasprintf("%s%s", c->root, path);
	struct stat st;
	bool there = lstat(full, &st) == 0;

	free(full);
	return there;
}

/* The folders above a name go along, so that none of them is what the image has there: a link. */
static void add_above(struct changes *c, const char *path)
{
	char *above = xstrdup(path), *slash;

	while ((slash = strrchr(above, '/')) && slash != above) {
		*slash = '\0';
		json_object_set_new(c->names, above, json_true());
	}
	free(above);
}

/* podman says of a folder that was removed and made again that it was deleted. */
static void add(struct changes *c, const char *path, bool deleted)
{
	add_above(c, path);
	if (deleted && !is_there(c, path)) {
		json_array_append_new(c->deleted, json_string(path));
		return;
	}
	json_object_set_new(c->names, path, json_true());
	if (deleted)
		json_array_append_new(c->replaced, json_string(path));
}

/* podman writes U+FFFD for bytes that are not UTF-8. */
static int add_all(struct changes *c, json_t *paths, bool deleted)
{
	json_t *path;
	size_t i;

	json_array_foreach(paths, i, path) {
		const char *text = json_string_value(path) ?: "";

		if (text[0] != '/' || strstr(text, "\xef\xbf\xbd"))
			return fault("%s in the container: podman can't give its name: rename or remove it", text);
		add(c, text, deleted);
	}
	return 0;
}

static int find_changes(const struct move *m, struct changes *c)
{
	const char *const argv[] = {
		"timeout", "--kill-after=5", "600", "podman", "diff", "--format", "json", text_at(m->container.facts, "id"), NULL,
	};
	json_t *diff = run_json(argv);
	int ret = diff ? 0 : fault("podman diff does not say what it has changed in its file system");

	ret = ret ?: add_all(c, json_object_get(diff, "changed"), false) ?: add_all(c, json_object_get(diff, "added"), false) ?:
	      add_all(c, json_object_get(diff, "deleted"), true);
	json_decref(diff);
	return ret;
}

/* -------------------------------------------------------------- the archive -- */

static int tar(const char *const argv[])
{
	char *text = NULL;
	int ret = run(argv, NULL, &text);

	if (ret)
		fault("its file system can't be archived: %s", text && *text ? text_last_line(text) : "tar does not say why");
	free(text);
	return ret ? -1 : 0;
}

static char *file_of(const struct changes *c, const char *name)
{
	return xasprintf("%s/%s", c->images, name);
}

/* For tar's --transform: this name in place of the whole one. Free it. */
static char *renamed(const char *path)
{
	static const char start[] = "flags=r;s|.*|";
	char *text = xcalloc(sizeof(start) + 2 * strlen(path) + 2, 1), *to = stpcpy(text, start);

	for (path++; *path; path++) {
		if (strchr("\\|&", *path))
			*to++ = '\\';
		*to++ = *path;
	}
	strcpy(to, "|");
	return text;
}

/*
 * podman keeps what is in a folder, if a folder comes from the archive, and so does not follow a link. An empty file takes the
 * place of all that, and the folder takes its place.
 */
static int archive_replaced(const struct changes *c, const char *archive)
{
	json_t *path;
	size_t i;

	json_array_foreach(c->replaced, i, path) {
		char *name = renamed(json_string_value(path));
		const char *const argv[] = {
			"tar", "--append", "--format=posix", "--file", archive, "--directory", c->images, "--transform", name, EMPTY,
			NULL,
		};
		int ret = tar(argv);

		free(name);
		if (ret)
			return -1;
	}
	return 0;
}

static int archive_names(const struct changes *c, const char *archive, const char *names)
{
	const char *const argv[] = {
		"tar", "--append", "--format=posix", "--numeric-owner", "--xattrs", "--xattrs-include=user.*",
		"--xattrs-include=security.capability", "--file", archive, "--directory", c->root, "--no-recursion", "--null",
		"--files-from", names, NULL,
	};

	return tar(argv);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Folders come before what is in them. */
static int write_names(const struct changes *c, const char *file)
{
	size_t n = 0, count = json_object_size(c->names);
	const char **sorted = xcalloc(count + 1, sizeof(*sorted)), *path;
	FILE *f = fopen(file, "we");
	json_t *value;

	json_object_foreach(c->names, path, value)
		sorted[n++] = path;
	qsort(sorted, count, sizeof(*sorted), by_name);
	for (n = 0; f && n < count; n++)
		fprintf(f, "%s%c", sorted[n] + 1, '\0');
	free(sorted);
	return !f || fclose(f) ? fault("%s can't be written: %s", file, strerror(errno)) : 0;
}

static int write_empty(const char *file)
{
	FILE *f = fopen(file, "we");

	return !f || fclose(f) ? fault("%s can't be written: %s", file, strerror(errno)) : 0;
}

static int write_deleted(const struct changes *c, const char *file)
{
	return json_dump_file(c->deleted, file, 0) ? fault("%s can't be written", file) : 0;
}

static int append(const struct changes *c, const char *archive, const char *name)
{
	const char *const argv[] = { "tar", "--append", "--file", archive, "--directory", c->images, name, NULL };

	return tar(argv);
}

static int archive_changes(const struct changes *c, const char *archive)
{
	char *diff = file_of(c, DIFF_TAR), *names = file_of(c, NAMES), *empty = file_of(c, EMPTY), *deleted = file_of(c, DELETED);
	int ret = 0;

	if (json_object_size(c->names))
		ret = write_empty(empty) ?: archive_replaced(c, diff) ?: write_names(c, names) ?: archive_names(c, diff, names) ?:
		      append(c, archive, DIFF_TAR);
	if (!ret && json_array_size(c->deleted))
		ret = write_deleted(c, deleted) ?: append(c, archive, DELETED);
	unlink(diff);
	unlink(names);
	unlink(empty);
	unlink(deleted);
	free(diff);
	free(names);
	free(empty);
	free(deleted);
	return ret;
}

/* In a child, which ends after it. */
static int archive(struct move *m, const void *arg, int sk)
{
	struct changes c = { .images = m->images, .names = json_object(), .replaced = json_array(), .deleted = json_array() };
	char *root = root_folder(m), *why;

	c.root = root;
	if (find_changes(m, &c) || archive_changes(&c, arg)) {
		why = xstrdup(fault_text());
		fault_clear();
		return fault("container %s: %s", m->container.name, why);
	}
	slow_say(sk, "");
	return 0;
}

int container_archive_rootfs(struct move *m, const char *to)
{
	struct slow slow;
	int ret = slow_start(&slow, m, archive, to) ?: slow_hear(&slow, m, NULL, 0);

	slow_end(&slow);
	return ret;
}
