/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What a file holds. Two hosts have the same one if what is in it is the same: its size and its time are a first look.
 */
#ifndef GODWIT_CONTENT_H
#define GODWIT_CONTENT_H

#include <jansson.h>
#include <sys/stat.h>
#include "godwit.h"

#define CHECK_BYTES_MS	10000	/* bytes of files that a host reads and digests at least in a ms */
#define DIGEST_TEXT	65

/*
 * SHA-256, in hexadecimal, of the first size bytes of the file; of fewer, if it is shorter. -1 with fault(). deadline: of
 * now_ns(), or 0.
 */
int content_digest(const char *path, uint64_t size, int64_t deadline, char text[DIGEST_TEXT]);

/* The library takes its time when it is first used: not while a process stands still. */
void content_warm_up(void);

/* Nanoseconds since 1970. */
int64_t content_time(const struct timespec *t);

/* "file PATH: it has other data there than here: ...": with fault(). Each end says it in these words. */
int content_differs(const char *path, bool writable);
/* What to do about a file that is not there as it is here. */
const char *content_advice(bool writable);

#endif /* GODWIT_CONTENT_H */
