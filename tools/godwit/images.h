/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The folder of a checkpoint, and how its files get to another host: each announced by a JSON object,
 * then its data, then its checksum.
 */
#ifndef GODWIT_IMAGES_H
#define GODWIT_IMAGES_H

#include "wire.h"

#define IMAGES_DIR	"/var/lib/godwit"

/* Make BASE/ID, for root only; the name is to be freed. NULL with fault(). */
char *images_make(const char *base, const char *id);
/* Remove it with all it holds. */
int images_remove(const char *dir);
/* What can still be written below base, in bytes. */
uint64_t images_space(const char *base);

/* Called after each piece with the bytes so far; other than 0 stops it all. */
typedef int images_progress(void *arg, uint64_t bytes);

/* Send all images of dir, but no logs. */
int images_send(const struct wire *wire, const char *dir, images_progress *progress, void *arg,
		uint64_t *bytes);
/* How much that will be. */
uint64_t images_size(const char *dir);
/* Send one file that lies at path and is to lie at the same path there, as it is now. */
int images_send_file(const struct wire *wire, const char *path, images_progress *progress, void *arg);

/* The file that is being received. */
struct incoming {
	int fd;
	uint64_t left;
	uint32_t crc;
	bool sync;
	char *name;	/* for whom it concerns */
};

#define INCOMING_INIT { .fd = -1 }

/* DIR/NAME, if name is one that stays in its folder; to be freed. NULL with fault(). */
char *images_path(const char *dir, const char *name);

/* file: the new one to be written. One that is to lie elsewhere (path) is on its disk at the end. */
int incoming_begin(struct incoming *in, const char *file, json_t *message);
int incoming_data(struct incoming *in, const void *data, size_t length);
int incoming_end(struct incoming *in, json_t *message);
void incoming_drop(struct incoming *in);

/*
 * Make the fault() of what tells best why CRIU failed: the RDMA plugin's line, or the error in CRIU's log that
 * the last ones follow from; else leave it as it is. log: in the folder, or its path.
 */
void images_explain(const char *dir, const char *log);
/* The name of the nftables table with which CRIU locked the network in a dump to dir; or NULL. Free it. */
char *images_lock_table(const char *dir);

#endif /* GODWIT_IMAGES_H */
