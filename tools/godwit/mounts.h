/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The mounts of a mount namespace, as /proc/PID/mountinfo lists them: parents and older ones first.
 */
#ifndef GODWIT_MOUNTS_H
#define GODWIT_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct mount {
	int id, parent;
	dev_t dev;
	char *root;		/* what of the file system is mounted */
	char *point;
	char *options;		/* of this mount, as in "ro,nosuid,relatime" */
	int shared, master;	/* groups of propagation, or 0 */
	char *type;
	char *super;		/* options of the file system */
	bool hidden;		/* another mount lies over it, so that no path leads to its root */
};

struct mounts {
	struct mount *mount;
	size_t n;
};

/* Of this process's namespace. -1 with fault(): it has ended. */
int mounts_read(pid_t pid, struct mounts *mounts);
void mounts_free(struct mounts *mounts);
const struct mount *mounts_find(const struct mounts *mounts, int id);	/* or NULL */
/* The mount of the file at this path, whether or not the namespace is ours; -1: there is no file. */
int mount_of(const char *path);
/* What of path comes after prefix, as "/x/y" or "", if prefix is path or a folder above it; else NULL. */
const char *path_below(const char *path, const char *prefix);

#endif /* GODWIT_MOUNTS_H */
