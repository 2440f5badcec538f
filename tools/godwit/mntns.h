/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * A mount namespace that goes along with its process. It is a copy of the host's in which some mounts differ: the destination
 * makes a copy of its own, and in it the same differences. CRIU runs in the namespace at both ends, and dumps no mounts.
 *
 * The differences, in JSON:
 * {"slave": true, "shared": false,		propagation of the root mount
 *  "absent": [PATH, ...],			mounts of the host that it lacks, in the order in which they are unmounted
 *  "own": [{"point": PATH, "bind": PATH,	the host's file or folder bind is mounted on point. whole: the folder shows
 *           "folder": true, "whole": true,	all that the host has mounted below it
 *           "owner": [0, 0, 1023],		user, group and mode, if it is mounted on another place than its own
 *           "flags": 0},
 *          {"point": PATH, "tmpfs": "size=4k",	the folder root of a tmpfs with these options is mounted on point.
 *           "fs": 57, "dev": 57, "root": PATH,	fs: the number of the tmpfs in mountinfo; dev: by stat()
 *           "alone": true,			it is a folder of the host's that becomes a tmpfs
 *           "files": true, "flags": 0}, ...],	its files go along by this entry; false: by another one, which shows them
 *  "changed": [{"point": PATH, "flags": 1}, ...]}	mounts of the host whose flags (MOUNT_ATTR_...) differ
 */
#ifndef GODWIT_MNTNS_H
#define GODWIT_MNTNS_H

#include <jansson.h>
#include <stdint.h>
#include <sys/mount.h>
#include "mounts.h"

/* The flags of a mount that go along. */
#define MNTNS_FLAGS	(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR__ATIME | \
			 MOUNT_ATTR_NODIRATIME | MOUNT_ATTR_NOSYMFOLLOW)

struct mntns {
	bool own;		/* it is another one than ours; else the rest is empty */
	uint64_t id;
	struct mounts host, its;
	int *twin;		/* for each of its mounts: the index of the host's mount that it is a copy of, or -1 */
	json_t *differences;
};

/*
 * mntns.c: compare the namespace of process pid with ours. What can't be made elsewhere is added to problems.
 * -1 with fault().
 */
int mntns_read(pid_t pid, struct mntns *ns, json_t *problems);
void mntns_free(struct mntns *ns);

/* Where a file of the namespace is for us. */
enum place {
	PLACE_HERE,	/* at *path, which is to be freed */
	PLACE_ALONG,	/* in a tmpfs of the namespace's own */
	PLACE_OUTSIDE,	/* in this host's own namespace, in which it was opened: at *path */
	PLACE_UNKNOWN,	/* in no place that we know */
};

/* mount: of the file; name: its path in the namespace. */
enum place mntns_place(const struct mntns *ns, int mount, const char *name, char **path);
bool mntns_is_kernels(const char *path);	/* below /proc or /sys, where hosts differ */
/*
 * mntns_is_checked(): does this mount of the host's matter, if it lies below a folder that is mounted elsewhere?
 * mntns_find_bind(): is bind in "own", mounted on point or (NULL) anywhere?
 */
bool mntns_is_checked(const struct mount *mount);
bool mntns_find_bind(json_t *own, const char *bind, const char *point);
/* Is this very file of the host mounted there? (If another file takes its place on the host, the old one stays mounted.) */
bool mntns_binds(const struct mntns *ns, const char *file);

/*
 * mntns_make.c: make such a namespace here. It lasts as long as somebody has it open, or lives in it. -1 with fault(), and
 * nothing to close.
 */
struct mntns_made {
	int ns, root;
	int *tree;		/* for each tmpfs with files, in the order of "own": a mount of it that is attached nowhere */
	size_t trees;
};

#define MNTNS_MADE_INIT	{ .ns = -1, .root = -1 }

int mntns_make(json_t *differences, struct mntns_made *made);
void mntns_close(struct mntns_made *made);

/*
 * mntns_files.c. mntns_save(): write the files of the namespace's own tmpfs to images; a child of ours must do that, since it
 * enters namespaces. mntns_fill(): put the files into the new namespace. -1 with fault().
 */
uint64_t mntns_bytes(pid_t pid, json_t *differences);	/* that these files take up */
int mntns_save(pid_t pid, json_t *differences, const char *images);
int mntns_fill(const struct mntns_made *made, json_t *differences, const char *images);
/* Call each for all own mounts that have files, until it returns other than 0; return that. */
int mntns_each_with_files(json_t *differences, int (*each)(json_t *own, size_t number, void *arg), void *arg);

/*
 * Open the place of a mount, below this root or AT_FDCWD; -1 with errno. The kernel names places without symbolic links. So a
 * link in point was put there by somebody, would lead us to another place, and is an error.
 */
int mntns_open(int root, const char *point);
const char *mntns_error(void);	/* why mntns_open(), or what follows it, failed: by errno */
/* For open_tree(): a copy of the mount that a descriptor is in, from there on. The copy is attached nowhere. */
#define MNTNS_COPY_OF_FD	(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)

#endif /* GODWIT_MNTNS_H */
