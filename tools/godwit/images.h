/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The folder of a checkpoint, and how its files get to another host: for each a JSON object announces it; then come its data,
 * then its checksum.
 */
#ifndef GODWIT_IMAGES_H
#define GODWIT_IMAGES_H

#include "wire.h"

#define IMAGES_DIR	"/var/lib/godwit"

/* Make BASE/ID, for root only. Its name, to be freed; NULL with fault(). */
char *images_make(const char *base, const char *id);
/* Remove it with all it holds. */
int images_remove(const char *dir);
/* How many bytes can still be written below base; if base is in memory, not more than is free of that. */
uint64_t images_space(const char *base);
bool images_in_memory(const char *base);
bool images_beside(const char *base, const char *folder);	/* on one file system */

/* Called after each piece with the bytes so far; other than 0 stops it all. */
typedef int images_progress(void *arg, uint64_t bytes);

/* Send all images of dir, but no logs. */
int images_send(const struct wire *wire, const char *dir, images_progress *progress, void *arg,
		uint64_t *bytes);
/* How many bytes that will be. */
uint64_t images_size(const char *dir);
/* Send a file, as it is now, that is to lie at the same path there. */
int images_send_file(const struct wire *wire, const char *path, images_progress *progress, void *arg);

/* The file that is being received. */
struct incoming {
	int fd;
	uint64_t left;
	uint32_t crc;
	bool sync;
	char *name;	/* for messages */
};

#define INCOMING_INIT { .fd = -1 }

/* DIR/NAME, to be freed; NULL with fault() if name leads out of the folder. */
char *images_path(const char *dir, const char *name);

/* file: the file to be written. A file that has a path of its own is synced to its disk at the end. */
int incoming_begin(struct incoming *in, const char *file, json_t *message);
int incoming_data(struct incoming *in, const void *data, size_t length);
int incoming_end(struct incoming *in, json_t *message);
void incoming_drop(struct incoming *in);

/*
 * fault(): why CRIU failed, as the RDMA plugin says in its file rdma-error; or else the line of CRIU's log with the error that
 * caused the last ones. If there is neither, the fault() stays as it is. log: its name in the folder, or its path.
 */
void images_explain(const char *dir, const char *log);
/* Does this log of CRIU's have this text? */
bool images_log_says(const char *dir, const char *log, const char *text);
/* The name of the nftables table with which CRIU locked the network in a dump to dir; or NULL. Free it. */
char *images_lock_table(const char *dir);

#endif /* GODWIT_IMAGES_H */
