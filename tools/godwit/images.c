// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <linux/magic.h>
#include "images.h"
#include "proc.h"
#include "text.h"

#define PIECE	(256 * 1024)

/* ----------------------------------------------------------- the folder -- */

char *images_make(const char *base, const char *id)
{
	char *dir = xasprintf("%s/%s", base, id);

	if ((mkdir(base, 0700) && errno != EEXIST) || mkdir(dir, 0700)) {
		fault("images: %s can't be made: %s", dir, strerror(errno));
		free(dir);
		return NULL;
	}
	return dir;
}

int images_remove(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *de;

	if (!d)
		return errno == ENOENT ? 0 : fault("images: %s can't be removed: %s", dir, strerror(errno));
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			unlinkat(dirfd(d), de->d_name, 0);
	closedir(d);
	return rmdir(dir) ? fault("images: %s can't be removed: %s", dir, strerror(errno)) : 0;
}

/* The folder and its parent need not be there yet. */
static void file_system_of(const char *base, struct statfs *fs)
{
	char *path = xstrdup(base), *slash;

	memset(fs, 0, sizeof(*fs));
	while (statfs(path, fs) && (slash = strrchr(path, '/')) && path[1])
		slash[slash == path] = '\0';
	free(path);
}

bool images_in_memory(const char *base)
{
	struct statfs fs;

	file_system_of(base, &fs);
	return fs.f_type == TMPFS_MAGIC;
}

uint64_t images_space(const char *base)
{
	uint64_t space, left;
	struct statfs fs;

	file_system_of(base, &fs);
	space = (uint64_t)fs.f_bavail * fs.f_frsize;
	left = fs.f_type == TMPFS_MAGIC ? memory_free() : space;
	return space < left ? space : left;
}

bool images_beside(const char *base, const char *folder)
{
	struct statfs one, other;

	file_system_of(base, &one);
	file_system_of(folder, &other);
	return !memcmp(&one.f_fsid, &other.f_fsid, sizeof(one.f_fsid));
}

/* -------------------------------------------------------------- sending -- */

struct sending {
	const struct wire *wire;
	images_progress *progress;
	void *arg;
	uint64_t bytes;
};

static int send_data(struct sending *s, int fd, const char *name, uint64_t size)
{
	static char piece[PIECE];
	uint32_t crc = 0;

	while (size) {
		ssize_t n = read(fd, piece, size < PIECE ? size : PIECE);

		if (n <= 0)
			return fault("%s: %s", name, n ? strerror(errno) : "it became shorter");
		crc = crc32c(crc, piece, n);
		if (wire_send_data(s->wire, piece, n))
			return -1;
		size -= n;
		s->bytes += n;
		if (s->progress(s->arg, s->bytes))
			return -1;
	}
	return wire_send(s->wire, json_pack("{s:s, s:I}", "op", "file-end", "crc", (json_int_t)crc));
}

static int send_open(struct sending *s, int fd, const char *name, bool outside)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return fault("%s: %s", name, strerror(errno));
	if (wire_send(s->wire, json_pack("{s:s, s:o, s:I, s:i, s:i, s:i}", "op", "file",
					 outside ? "path" : "name", path_json(name), "size", (json_int_t)st.st_size,
					 "mode", (int)(st.st_mode & 07777), "uid", (int)st.st_uid,
					 "gid", (int)st.st_gid)))
		return -1;
	return send_data(s, fd, name, st.st_size);
}

static bool is_log(const char *name)
{
	size_t len = strlen(name);

	return (len > 4 && (!strcmp(name + len - 4, ".log") || !strcmp(name + len - 4, ".err"))) ||
	       !strncmp(name, "stats-", 6);
}

uint64_t images_size(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *de;
	uint64_t sum = 0;
	struct stat st;

	while (d && (de = readdir(d)))
		if (!is_log(de->d_name) && fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			sum += st.st_size;
	if (d)
		closedir(d);
	return sum;
}

int images_send(const struct wire *wire, const char *dir, images_progress *progress, void *arg,
		uint64_t *bytes)
{
	struct sending s = { .wire = wire, .progress = progress, .arg = arg };
	DIR *d = opendir(dir);
	struct dirent *de;
	int ret = d ? 0 : fault("images: %s: %s", dir, strerror(errno));

	while (!ret && d && (de = readdir(d))) {
		struct stat st;
		int fd;

		if (fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
		    is_log(de->d_name))
			continue;
		fd = openat(dirfd(d), de->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		ret = send_open(&s, fd, de->d_name, false);
		close_fd(&fd);
	}
	if (d)
		closedir(d);
	*bytes = s.bytes;
	return ret;
}

int images_send_file(const struct wire *wire, const char *path, images_progress *progress, void *arg)
{
	struct sending s = { .wire = wire, .progress = progress, .arg = arg };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret = send_open(&s, fd, path, true);

	close_fd(&fd);
	return ret;
}

/* ------------------------------------------------------------ receiving -- */

/* Does the name stay in its folder? */
static bool good_name(const char *name)
{
	return name && name[0] && name[0] != '.' && !strchr(name, '/');
}

char *images_path(const char *dir, const char *name)
{
	if (good_name(name))
		return xasprintf("%s/%s", dir, name);
	fault("a file with an impossible name was sent");
	return NULL;
}

static int open_new(const char *path, json_t *message)
{
	int mode = json_integer_value(json_object_get(message, "mode"));
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return fd;
	/* The owner is set first, because a change of the owner clears bits of the mode. */
	if (fchown(fd, json_integer_value(json_object_get(message, "uid")),
		   json_integer_value(json_object_get(message, "gid"))) ||
	    fchmod(fd, mode & 07777)) {
		close(fd);
		return -1;
	}
	return fd;
}

int incoming_begin(struct incoming *in, const char *file, json_t *message)
{
	char *path = path_from_json(json_object_get(message, "path"));

	incoming_drop(in);
	in->sync = path;
	in->name = path ?: xstrdup(file);
	in->fd = open_new(file, message);
	in->left = json_integer_value(json_object_get(message, "size"));
	in->crc = 0;
	return in->fd < 0 ? fault("%s can't be written: %s", in->name, strerror(errno)) : 0;
}

int incoming_data(struct incoming *in, const void *data, size_t length)
{
	const char *p = data;

	if (in->fd < 0 || length > in->left)
		return fault("more data came than its file is long");
	in->crc = crc32c(in->crc, data, length);
	in->left -= length;
	while (length) {
		ssize_t n = write(in->fd, p, length);

		if (n < 0)
			return fault("%s can't be written: %s", in->name, strerror(errno));
		p += n;
		length -= n;
	}
	return 0;
}

int incoming_end(struct incoming *in, json_t *message)
{
	uint32_t crc = json_integer_value(json_object_get(message, "crc"));

	if (in->fd < 0 || in->left || in->crc != crc)
		return fault("%s was damaged on its way", in->name ? in->name : "a file");
	if (in->sync && fsync(in->fd))
		return fault("%s can't be written: %s", in->name, strerror(errno));
	if (close(in->fd)) {
		in->fd = -1;
		return fault("%s can't be written: %s", in->name, strerror(errno));
	}
	in->fd = -1;
	incoming_drop(in);
	return 0;
}

void incoming_drop(struct incoming *in)
{
	close_fd(&in->fd);
	free(in->name);
	in->name = NULL;
}

/* ----------------------------------------------------- what CRIU left -- */

static bool explain_by_plugin(const char *dir)
{
	char *path = xasprintf("%s/rdma-error", dir);
	char *text = read_file(path);
	bool told = text && text[0];

	free(path);
	if (told) {
		fault_clear();
		fault("%s", text);
	}
	free(text);
	return told;
}

/* Does this line only say that something before it failed? */
static bool follows(const char *text, size_t length)
{
	static const char *const marks[] = { "FAILED", "failed with", "exited with", "killed by signal", "RPC" };

	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (memmem(text, length, marks[i], strlen(marks[i])))
			return true;
	return false;
}

/*
 * Which error of CRIU's log is the cause? CRIU goes on after some errors, so it need not be the first. CRIU reports the cause
 * again at each level, so it is not the last. It is the first of the last errors that stand together.
 */
#define TOGETHER	40	/* lines */

static void explain_by_log(const char *text)
{
	const char *found = NULL, *at = text, *what;
	int line = 0, last = 0;

	for (; at && *at; at = strchr(at, '\n'), at += !!at, line++) {
		size_t length = strcspn(at, "\n");

		what = memmem(at, length, "Error (", 7);
		what = what ? memmem(what, length - (what - at), "): ", 3) : NULL;
		if (!what)
			continue;
		if ((!found || line - last > TOGETHER) && !follows(what, length - (what - at)))
			found = what + 3;
		last = line;
	}
	if (found) {
		fault_clear();
		fault("criu: %.*s", (int)strcspn(found, "\n"), found);
	}
}

void images_explain(const char *dir, const char *log)
{
	char *path, *text;

	if (explain_by_plugin(dir))
		return;
	path = log[0] == '/' ? xstrdup(log) : xasprintf("%s/%s", dir, log);
	text = read_file(path);
	if (text)
		explain_by_log(text);
	free(text);
	free(path);
}

bool images_log_says(const char *dir, const char *log, const char *text)
{
	char *path = xasprintf("%s/%s", dir, log), *all = read_file(path);
	bool says = all && strstr(all, text);

	free(all);
	free(path);
	return says;
}

char *images_lock_table(const char *dir)
{
	static const char key[] = "CRIU run id = ";
	char *path = xasprintf("%s/dump.log", dir), *table = NULL;
	char *text = read_file(path);
	const char *at = text;

	/* CRIU prints its run id twice. The second one counts. */
	while (at && (at = strstr(at, key))) {
		at += sizeof(key) - 1;
		free(table);
		table = xasprintf("CRIU-%.*s", (int)strcspn(at, " \n"), at);
	}
	free(text);
	free(path);
	return table;
}
