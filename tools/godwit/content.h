/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The content of files. Two hosts have the same file if its content is the same. Size and time are a first look.
 */
#ifndef GODWIT_CONTENT_H
#define GODWIT_CONTENT_H

#include <jansson.h>
#include <sys/stat.h>
#include "godwit.h"

#define CHECK_BYTES_MS	10000	/* a host reads and digests at least so many bytes in a ms */
#define DIGEST_TEXT	65

/*
 * SHA-256, in hexadecimal, of the first size bytes of the file; of fewer, if it is shorter. -1 with fault(). deadline: of
 * now_ns(), or 0.
 */
int content_digest(const char *path, uint64_t size, int64_t deadline, char text[DIGEST_TEXT]);

/* The library takes its time when it is first used. Call this before the process is frozen. */
void content_warm_up(void);

/* Nanoseconds since 1970. */
int64_t content_time(const struct timespec *t);

/* fault("file PATH: it has other data there than here: ..."): both ends say it in these words. */
int content_differs(const char *path, bool writable);
/* What the operator can do about such a file. */
const char *content_advice(bool writable);

#endif /* GODWIT_CONTENT_H */
