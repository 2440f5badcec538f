// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What a container has changed in its own file system, for the archive that podman has made. podman's own part of it leaves out
 * changed files whose names the host has not, owners and modes of folders, and what is in a folder that was removed and made
 * again. And where the image has a link in place of a folder, podman at the destination follows the link out of the container.
 * So podman is told to leave the file system out, and we add it, in podman's form: rootfs-diff.tar is unpacked over the image,
 * then what deleted.files names is removed.
 *
 * The changes are what lies in the upper folder of the overlay (the kernel's Documentation/filesystems/overlayfs.rst).
 */
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "move.h"

#define DIFF_TAR	"rootfs-diff.tar"
#define DELETED		"deleted.files"
#define NAMES		"rootfs-names"
#define EMPTY		"rootfs-empty"

struct changes {
	const char *upper;	/* the overlay's folder of changes */
	FILE *names;		/* of what goes along, folders before what is in them; NULL: we only look */
	char **replaced;	/* folders in whose place the image has something else, or another one */
	size_t n_replaced;
	json_t *deleted;
};

/* ------------------------------------------------------------ what has changed -- */

static const char *layer(const struct move *m, const char *which)
{
	json_t *driver = json_object_get(m->container.inspected, "GraphDriver");

	return json_string_value(json_object_get(json_object_get(driver, "Data"), which)) ?: "";
}

static bool has_attribute(const FTSENT *e, const char *name)
{
	return lgetxattr(e->fts_accpath, name, NULL, 0) >= 0;
}

/* A folder with nothing of the image in it. */
static bool is_opaque(const FTSENT *e)
{
	char value[2];

	return lgetxattr(e->fts_accpath, "trusted.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

/* fts_number: nothing of the image is in the folder, or in one above it. */
static int look_at_folder(struct changes *c, FTSENT *e, const char *path)
{
	if (has_attribute(e, "trusted.overlay.redirect"))
		return fault("%s: its content lies elsewhere in the image (redirect_dir of overlays), which can't be moved yet", path);
	if (has_attribute(e, "system.posix_acl_default"))
		return fault("%s: it has a default ACL, which podman does not restore: setfacl -k", path);
	e->fts_number = e->fts_parent->fts_number || is_opaque(e);
	if (e->fts_number && !e->fts_parent->fts_number) {
		GROW(c->replaced, c->n_replaced);
		c->replaced[c->n_replaced++] = xstrdup(path);
	}
	return 0;
}

/* podman takes a link that leads above the root for an attack, though the root is where it ends in a container. */
static int look_at_link(const FTSENT *e, const char *path)
{
	char target[PATH_MAX], *name, *save;
	ssize_t n = readlink(e->fts_accpath, target, sizeof(target) - 1);
	int depth = e->fts_level - 1;

	target[n < 0 ? 0 : n] = '\0';
	if (target[0] == '/')
		return 0;
	for (name = strtok_r(target, "/", &save); name && depth >= 0; name = strtok_r(NULL, "/", &save))
		depth += !strcmp(name, "..") ? -1 : !!strcmp(name, ".");
	return depth < 0 ? fault("%s: this link leads above the root, and podman does not restore it", path) : 0;
}

static int note_deleted(struct changes *c, const char *path)
{
	return json_array_append_new(c->deleted, json_string(path)) ?
		fault("%s: it was deleted, and podman can't give its name, which is not UTF-8", path) : 0;
}

static int look_at(struct changes *c, FTSENT *e)
{
	const char *path = e->fts_path + strlen(c->upper);

	if (e->fts_level == 0 || e->fts_info == FTS_DP)
		return 0;
	if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS)	/* it may be gone while we only look */
		return c->names ? fault("%s: it can't be read: %s", path, strerror(e->fts_errno)) : 0;
	if (S_ISCHR(e->fts_statp->st_mode) && e->fts_statp->st_rdev == makedev(0, 0))
		return note_deleted(c, path);
	if ((e->fts_info == FTS_D && look_at_folder(c, e, path)) || (S_ISLNK(e->fts_statp->st_mode) && look_at_link(e, path)))
		return -1;
	if (c->names)
		fprintf(c->names, "%s%c", path + 1, '\0');
	return 0;
}

static int look_at_all(struct changes *c)
{
	char *const paths[] = { (char *)c->upper, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	int ret = fts ? 0 : fault("%s: %s", c->upper, strerror(errno));
	FTSENT *e;

	while (!ret && fts && (e = fts_read(fts)))
		ret = look_at(c, e);
	if (fts)
		fts_close(fts);
	return ret;
}

static void changes_free(struct changes *c)
{
	for (size_t i = 0; i < c->n_replaced; i++)
		free(c->replaced[i]);
	free(c->replaced);
	json_decref(c->deleted);
}

int container_look_at_rootfs(struct move *m)
{
	struct changes c = { .upper = layer(m, "UpperDir"), .deleted = json_array() };
	int ret = look_at_all(&c);

	changes_free(&c);
	return ret;
}

/* -------------------------------------------------------------- the archive -- */

/* tar ends with us. (Status 1 is that a file has changed meanwhile.) */
#define TAR "setpriv", "--pdeathsig", "KILL", "tar", "--force-local"

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
 * podman keeps what is in a folder, if a folder comes from the archive. An empty file takes the place of all that, and the
 * folder takes its place.
 */
static int archive_replaced(const struct changes *c, const char *images)
{
	char *diff = xasprintf("%s/" DIFF_TAR, images);
	int ret = 0;

	for (size_t i = 0; !ret && i < c->n_replaced; i++) {
		char *name = renamed(c->replaced[i]);
		const char *const argv[] = {
			TAR, "--append", "--format=posix", "--file", diff, "--directory", images, "--transform", name, EMPTY, NULL,
		};

		ret = run_or_fault(argv, "tar");
		free(name);
	}
	free(diff);
	return ret;
}

static int archive_names(const char *images, const char *root)
{
	char *diff = xasprintf("%s/" DIFF_TAR, images), *names = xasprintf("%s/" NAMES, images);
	const char *const argv[] = {
		TAR, "--append", "--format=posix", "--numeric-owner", "--xattrs", "--xattrs-include=user.*",
		"--xattrs-include=security.capability", "--xattrs-include=system.posix_acl_access", "--file", diff,
		"--directory", root, "--no-recursion", "--null", "--files-from", names, NULL,
	};
	int ret = run_or_fault(argv, "tar");

	free(diff);
	free(names);
	return ret;
}

static FILE *create(const char *images, const char *name)
{
	char *path = xasprintf("%s/%s", images, name);
	FILE *f = fopen(path, "we");

	if (!f)
		fault("%s can't be made: %s", path, strerror(errno));
	free(path);
	return f;
}

static int end_file(FILE *f)
{
	bool bad = f && ferror(f);

	return !f || fclose(f) || bad ? fault("a list of files can't be written: %s", strerror(errno)) : 0;
}

static int add_to(const char *archive, const char *images, const char *name)
{
	const char *const argv[] = { TAR, "--append", "--file", archive, "--directory", images, name, NULL };

	return run_or_fault(argv, "tar");
}

static int write_all(struct changes *c, const char *images)
{
	FILE *deleted;

	c->names = create(images, NAMES);
	if (!c->names)
		return -1;
	if (look_at_all(c)) {
		fclose(c->names);
		return -1;
	}
	if (end_file(c->names) || end_file(create(images, EMPTY)))
		return -1;
	deleted = create(images, DELETED);
	if (deleted)
		json_dumpf(c->deleted, deleted, 0);
	return end_file(deleted);
}

static void remove_lists(const char *images)
{
	static const char *const names[] = { DIFF_TAR, DELETED, NAMES, EMPTY };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = xasprintf("%s/%s", images, names[i]);

		unlink(path);
		free(path);
	}
}

/* In a child, which ends after it. */
static int archive(struct move *m, const void *arg, int sk)
{
	struct changes c = { .upper = layer(m, "UpperDir"), .deleted = json_array() };
	const char *to = arg;

	if (write_all(&c, m->images) || archive_replaced(&c, m->images) || archive_names(m->images, layer(m, "MergedDir")) ||
	    add_to(to, m->images, DIFF_TAR) || add_to(to, m->images, DELETED))
		return -1;
	slow_say(sk, "");
	return 0;
}

int container_archive_rootfs(struct move *m, const char *to)
{
	struct slow slow;
	int ret = slow_start(&slow, m, archive, to) ?: slow_hear(&slow, m, NULL, 0);

	slow_end(&slow);
	remove_lists(m->images);
	return ret;
}
