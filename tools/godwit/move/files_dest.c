// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Files at the destination: does this host have what the process left? And the copied files (--copy), which the process takes
 * along.
 *
 * A copied file is written beside its place, and put into the place when all files have come, before CRIU opens it. The file that
 * was there keeps another name, and is put back if the move fails. The agent writes down what it is about to do, so that another
 * agent can go on if it is killed. At each moment the old file has one name or the other.
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
#include "text.h"

/* Its path, to be freed; NULL if it has none. */
static char *path_of(json_t *file)
{
	return path_from_json(json_object_get(file, "path"));
}

/* ------------------------------------------------------------ comparing -- */

/* On a network file system, this host may see another host's changes of a file only when it opens the file. */
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

/*
 * Is the file here what the process left? digest: of what it holds, if size and time do not tell; else "". Without mtime in
 * file, the process is frozen, and the file does not change any more.
 */
static int look_at(json_t *file, const char *path, int64_t deadline, char digest[DIGEST_TEXT])
{
	json_int_t size = json_integer_value(json_object_get(file, "size"));
	json_t *mtime = json_object_get(file, "mtime");
	mode_t mode = json_integer_value(json_object_get(file, "mode"));
	bool writable = json_is_true(json_object_get(file, "writable"));
	const char *what = content_advice(writable);
	struct stat st;

	digest[0] = '\0';
	if (!path)
		return fault("the source did not say which file it has");
	if (stat(path, &st))
		return fault("file %s: it is not there: %s", path, what);
	if (!is_as(&st, size, mtime))
		stat_anew(path, &st);
	/* A file that both hosts share may have grown since the source looked. */
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
	char digest[DIGEST_TEXT], *path = path_of(file);

	fault_clear();
	if (look_at(file, path, 0, digest))
		json_array_append_new(list, json_string(fault_text()));
	else if (digest[0])
		json_object_set_new(digests, json_string_value(json_object_get(file, "path")), json_string(digest));
	fault_clear();
	free(path);
}

int agent_compare(struct agent *a, json_t *file)
{
	const char *theirs = json_string_value(json_object_get(file, "digest"));
	char ours[DIGEST_TEXT], *path = path_of(file);
	int ret = look_at(file, path, a->deadline, ours);

	if (!ret && (!theirs || strcmp(ours, theirs)))
		ret = content_differs(path, json_is_true(json_object_get(file, "writable")));
	free(path);
	return ret;
}

/* -------------------------------------------------------------- copying -- */

/* The folder of a path that begins with /; to be freed. */
static char *folder_of(const char *path)
{
	size_t len = strrchr(path, '/') - path;

	return xasprintf("%.*s", (int)(len ? len : 1), path);
}

static int look_at_place(const char *path, uint64_t size)
{
	char *folder = folder_of(path);
	uint64_t space = images_space(folder);
	struct stat st;
	int ret = 0;

	if (stat(folder, &st) || !S_ISDIR(st.st_mode))
		ret = fault("file %s: there is no folder %s there: make it", path, folder);
	else if (access(folder, W_OK))
		ret = fault("file %s: %s can't be written to there: %s: leave --copy, or put the file elsewhere", path, folder,
			    strerror(errno));
	else if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
		ret = fault("file %s: what has this name there is no regular file: move it away", path);
	else if (space < size)
		ret = fault("file %s: %s has room for %llu MiB there, the file needs %llu: make room", path, folder,
			    (unsigned long long)space >> 20, (unsigned long long)size >> 20);
	free(folder);
	return ret;
}

static void check_copy(json_t *list, json_t *copy)
{
	char *path = path_of(copy);

	fault_clear();
	if (path && path[0] == '/' && look_at_place(path, json_integer_value(json_object_get(copy, "size"))))
		json_array_append_new(list, json_string(fault_text()));
	fault_clear();
	free(path);
}

void agent_check_files(json_t *message, json_t *list, json_t *digests)
{
	json_t *file;
	size_t i;

	json_array_foreach(json_object_get(message, "files"), i, file)
		check_file(list, digests, file);
	json_array_foreach(json_object_get(message, "copies"), i, file)
		check_copy(list, file);
}

/* The file beside the nth copied file's place: "new" is to come there, "old" was there. Free it. */
static char *beside(const struct agent *a, size_t n, const char *which)
{
	char *path = path_of(json_array_get(a->copied, n));
	char *folder = folder_of(path);
	char *name = xasprintf("%s/.godwit-%s-%zu.%s", folder, a->id, n, which);

	free(folder);
	free(path);
	return name;
}

char *agent_new_file(struct agent *a, const char *path)
{
	if (path[0] != '/') {
		fault("a file with an impossible name was sent");
		return NULL;
	}
	json_array_append_new(a->copied, json_pack("{s:o}", "path", path_json(path)));
	return agent_save(a) ? NULL : beside(a, json_array_size(a->copied) - 1, "new");
}

/*
 * Give a file another name; the first one may stay. (link() refuses a name that is in use. Without links in the file system the
 * file is renamed.)
 */
static int give_name(const char *file, const char *name)
{
	return link(file, name) && (errno == EEXIST || rename(file, name)) ? -1 : 0;
}

static void sync_folder_of(const char *path)
{
	char *folder = folder_of(path);
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		fsync(fd);
	close_fd(&fd);
	free(folder);
}

static int place(const struct agent *a, size_t n)
{
	json_t *copy = json_array_get(a->copied, n);
	char *path = path_of(copy), *new = beside(a, n, "new"), *old = beside(a, n, "old");
	int ret;

	if (json_is_true(json_object_get(copy, "was")))
		ret = give_name(path, old) ?: rename(new, path);
	else
		ret = give_name(new, path);
	if (ret)
		fault("file %s: it can't be put in its place: %s", path, strerror(errno));
	else if (unlink(new) && errno != ENOENT)
		ret = fault("file %s: %s can't be removed: %s", path, new, strerror(errno));
	sync_folder_of(path);
	free(path);
	free(new);
	free(old);
	return ret;
}

/* Write down of each copied file whether a file is in its place, and which inode the new file has. */
static int about_to_place(struct agent *a)
{
	json_t *copy;
	size_t n;

	json_array_foreach(a->copied, n, copy) {
		char *path = path_of(copy), *new = beside(a, n, "new");
		struct stat st, was;

		if (stat(new, &st))
			fault("file %s: %s: %s", path, new, strerror(errno));
		json_object_set_new(copy, "was", json_boolean(lstat(path, &was) == 0));
		json_object_set_new(copy, "inode", json_integer(st.st_ino));
		free(path);
		free(new);
	}
	return fault_is_set() ? -1 : agent_save(a);
}

int agent_place_files(struct agent *a)
{
	int ret = json_array_size(a->copied) ? about_to_place(a) : 0;

	for (size_t n = 0; !ret && n < json_array_size(a->copied); n++)
		ret = place(a, n);
	return ret;
}

/* Is the file in this place the copied file or the old file, or is there none? Any other one was put there by somebody else. */
static bool is_ours_to_replace(json_t *copy, const char *path, ino_t old)
{
	struct stat st;

	return lstat(path, &st) || st.st_ino == old ||
	       (json_int_t)st.st_ino == json_integer_value(json_object_get(copy, "inode"));
}

static void put_back(struct agent *a, size_t n)
{
	json_t *copy = json_array_get(a->copied, n);
	char *path = path_of(copy), *new = beside(a, n, "new"), *old = beside(a, n, "old");
	struct stat st;

	if (json_is_true(json_object_get(copy, "was")) && lstat(old, &st) == 0) {
		/* rename() does nothing if both are names of one file. */
		if (!is_ours_to_replace(copy, path, st.st_ino) || rename(old, path)) {
			fault("file %s: what was there before is %s now, and can't be put back: %s", path, old,
			      is_ours_to_replace(copy, path, st.st_ino) ? strerror(errno) : "another file has its name");
			agent_warn(a, fault_text());
			fault_clear();
		} else {
			unlink(old);
		}
	} else if (json_is_false(json_object_get(copy, "was")) && lstat(path, &st) == 0 &&
		   (json_int_t)st.st_ino == json_integer_value(json_object_get(copy, "inode"))) {
		unlink(path);
	}
	unlink(new);
	sync_folder_of(path);
	free(path);
	free(new);
	free(old);
}

void agent_take_back_files(struct agent *a)
{
	for (size_t n = json_array_size(a->copied); n-- > 0;)
		put_back(a, n);
	json_array_clear(a->copied);
}

void agent_keep_files(struct agent *a)
{
	for (size_t n = 0; n < json_array_size(a->copied); n++) {
		char *old = beside(a, n, "old");

		if (unlink(old) && errno != ENOENT) {
			fault("file %s: it can't be removed: %s", old, strerror(errno));
			agent_warn(a, fault_text());
			fault_clear();
		}
		free(old);
	}
	json_array_clear(a->copied);
}
