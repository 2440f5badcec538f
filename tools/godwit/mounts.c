// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "godwit.h"
#include "mounts.h"

/* /proc writes a space, for example, as \040. */
static char *unescape(const char *text)
{
	char *plain = xstrdup(text), *to = plain;
	unsigned int code;

	for (; *text; to++)
		if (sscanf(text, "\\%3o", &code) == 1) {
			*to = code;
			text += 4;
		} else {
			*to = *text++;
		}
	*to = '\0';
	return plain;
}

/* The number of a group of propagation, from the optional fields: "shared:7 master:3". */
static int group(const char *fields, const char *kind)
{
	const char *at = strstr(fields, kind);

	return at ? atoi(at + strlen(kind)) : 0;
}

/* ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [shared:N master:N ...] - TYPE SOURCE SUPER; SOURCE may be empty. */
static bool parse(char *line, struct mount *mount)
{
	char *field[6], *type = strstr(line, " - "), *source, *super;
	unsigned int major, minor;

	if (!type)
		return false;
	*type = '\0';
	type += strlen(" - ");
	source = strchr(type, ' ');
	super = source ? strchr(source + 1, ' ') : NULL;
	for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++)
		field[i] = strsep(&line, " ");
	if (!super || !field[5] || sscanf(field[0], "%d", &mount->id) != 1 || sscanf(field[1], "%d", &mount->parent) != 1 ||
	    sscanf(field[2], "%u:%u", &major, &minor) != 2)
		return false;
	*source = '\0';
	mount->dev = makedev(major, minor);
	mount->root = unescape(field[3]);
	mount->point = unescape(field[4]);
	mount->options = xstrdup(field[5]);
	mount->shared = group(line ?: "", "shared:");
	mount->master = group(line ?: "", "master:");
	mount->type = xstrdup(type);
	mount->super = unescape(super + 1);
	mount->hidden = false;
	return true;
}

const char *path_below(const char *path, const char *prefix)
{
	size_t len = strlen(prefix);

	if (len == 1)
		return path[1] ? path : "";
	return !strncmp(path, prefix, len) && (!path[len] || path[len] == '/') ? path + len : NULL;
}

const struct mount *mounts_find(const struct mounts *mounts, int id)
{
	for (size_t i = 0; i < mounts->n; i++)
		if (mounts->mount[i].id == id)
			return &mounts->mount[i];
	return NULL;
}

/* Does one of its siblings, or of its children, cover it? (No two siblings have the same place.) */
static bool is_covered(const struct mounts *mounts, const struct mount *mount)
{
	for (size_t i = 0; i < mounts->n; i++) {
		const struct mount *other = &mounts->mount[i];

		if (other == mount)
			continue;
		if (other->parent == mount->id && !strcmp(other->point, mount->point))
			return true;
		if (other->parent == mount->parent && path_below(mount->point, other->point))
			return true;
	}
	return false;
}

/* A mount is hidden, too, if a sibling of a mount above it covers that one. */
static bool is_hidden(const struct mounts *mounts, const struct mount *mount)
{
	if (is_covered(mounts, mount))
		return true;
	for (const struct mount *m = mounts_find(mounts, mount->parent); m; m = mounts_find(mounts, m->parent)) {
		for (size_t i = 0; i < mounts->n; i++) {
			const struct mount *other = &mounts->mount[i];

			if (other != m && other->parent == m->parent && path_below(m->point, other->point))
				return true;
		}
		if (m->parent == m->id)
			break;
	}
	return false;
}

/* A mount that was moved may be older than its parent. */
static void put_parents_first(struct mounts *mounts)
{
	for (size_t i = 0, moved = 0; i < mounts->n; i++) {
		const struct mount *parent = mounts_find(mounts, mounts->mount[i].parent);
		size_t at = parent ? parent - mounts->mount : 0;

		if (at <= i) {
			moved = 0;
		} else if (moved++ < mounts->n) {	/* a list that was read while it changed may lead in a circle */
			struct mount late = mounts->mount[i];

			memmove(&mounts->mount[i], &mounts->mount[i + 1], (at - i) * sizeof(late));
			mounts->mount[at] = late;
			i--;
		}
	}
}

int mounts_read(pid_t pid, struct mounts *mounts)
{
	char *path = xasprintf("/proc/%d/mountinfo", pid), *text = read_file(path), *line, *save;

	*mounts = (struct mounts){ 0 };
	free(path);
	for (line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		struct mount mount;

		if (!parse(line, &mount)) {
			free(text);
			mounts_free(mounts);
			return fault("process %d: its list of mounts has a line that nobody understands", pid);
		}
		GROW(mounts->mount, mounts->n);
		mounts->mount[mounts->n++] = mount;
	}
	free(text);
	put_parents_first(mounts);
	for (size_t i = 0; i < mounts->n; i++)
		mounts->mount[i].hidden = is_hidden(mounts, &mounts->mount[i]);
	return mounts->n ? 0 : fault("process %d: its mounts can't be read: has it ended?", pid);
}

void mounts_free(struct mounts *mounts)
{
	for (size_t i = 0; i < mounts->n; i++) {
		free(mounts->mount[i].root);
		free(mounts->mount[i].point);
		free(mounts->mount[i].options);
		free(mounts->mount[i].type);
		free(mounts->mount[i].super);
	}
	free(mounts->mount);
	*mounts = (struct mounts){ 0 };
}

int mount_of(const char *path)
{
	struct statx sx;

	if (statx(AT_FDCWD, path, AT_NO_AUTOMOUNT, STATX_MNT_ID, &sx) || !(sx.stx_mask & STATX_MNT_ID))
		return -1;
	return sx.stx_mnt_id;
}
