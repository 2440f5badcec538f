// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The destination's side of files: is what is here what the process left?
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "agent.h"
#include "content.h"

static const char *text_of(json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* ------------------------------------------------------------ comparing -- */

/* What another host has changed of a file, this one's kernel may ask for only when it is opened. */
static void stat_anew(const char *path, struct stat *st)
{
	int fd = S_ISREG(st->st_mode) ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;

	if (fd >= 0)
		fstat(fd, st);
	close_fd(&fd);
}

static bool is_as(const struct stat *st, json_int_t size, json_t *mtime)
{
	return st->st_size == size && content_time(&st->st_mtim) == json_integer_value(mtime);
}

/* digest: what it holds, if a look at it does not tell; else "". Without a time the file is at rest at the source. */
static int look_at(json_t *file, int64_t deadline, char digest[DIGEST_TEXT])
{
	const char *path = text_of(file, "path");
	json_int_t size = json_integer_value(json_object_get(file, "size"));
	json_t *mtime = json_object_get(file, "mtime");
	mode_t mode = json_integer_value(json_object_get(file, "mode"));
	bool writable = json_is_true(json_object_get(file, "writable"));
	const char *what = content_advice(writable);
	struct stat st;

	digest[0] = '\0';
	if (!path || stat(path, &st))
		return fault("file %s: it is not there: %s", path, what);
	if (!is_as(&st, size, mtime))
		stat_anew(path, &st);
	/* (one that both share may have been written to since the source looked at it) */
	if (st.st_size < size || (st.st_size > size && !(writable && mtime)))
		return fault("file %s: it has %lld bytes there and %lld here: %s", path, (long long)st.st_size,
			     (long long)size, what);
	if ((st.st_mode ^ mode) & (S_IFMT | 07777))
		return fault("file %s: its mode is %o there and %o here: %s", path, st.st_mode & 07777, mode & 07777,
			     what);
	if (json_is_true(json_object_get(file, "shared")) || (mtime && is_as(&st, size, mtime)))
		return 0;
	return content_digest(path, size, deadline, digest);
}

static void check_file(json_t *list, json_t *digests, json_t *file)
{
	char digest[DIGEST_TEXT];

	fault_clear();
	if (look_at(file, 0, digest))
		json_array_append_new(list, json_string(fault_text()));
	else if (digest[0])
		json_object_set_new(digests, text_of(file, "path"), json_string(digest));
	fault_clear();
}

int agent_compare(struct agent *a, json_t *file)
{
	const char *theirs = text_of(file, "digest");
	char ours[DIGEST_TEXT];

	if (look_at(file, a->deadline, ours))
		return -1;
	if (!theirs || strcmp(ours, theirs))
		return content_differs(text_of(file, "path"), json_is_true(json_object_get(file, "writable")));
	return 0;
}

void agent_check_files(json_t *message, json_t *list, json_t *digests)
{
	json_t *file;
	size_t i;

	json_array_foreach(json_object_get(message, "files"), i, file)
		check_file(list, digests, file);
}
