// SPDX-License-Identifier: MIT
/*
 * The folder of a donor that persists, and the index in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <rmem.h>
#include "files_internal.h"

#define INDEX_NEW "index.new"
#define FORMAT 2 /* 1 had no checksums of pages */

int folder_fault(struct store *store, const char *name)
{
	return store_fault(&store->why, "%s/%s: %s: see to the disk", store->path, name, strerror(errno));
}

/* ----------------------------------------------------------------- open -- */

static int sync_parent(const char *path)
{
	char *parent = NULL;
	int fd = -1, ret = -1;

	if (asprintf(&parent, "%s/..", path) >= 0)
		fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		ret = fsync(fd);
		close(fd);
	}
	free(parent);
	return ret;
}

static int is_empty(struct store *store)
{
	return store_fault(&store->why, "%s: it has no regions: is it mounted? If it is to be new: rmemd --init", store->path);
}

int files_open(struct store *store)
{
	bool made = store->options.create && mkdir(store->path, 0700) == 0;

	if (store->options.create && !made && errno != EEXIST)
		return store_fault(&store->why, "%s: %s: make the folder above it", store->path, strerror(errno));
	store->dir = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->dir < 0)
		return store_fault(&store->why, "%s: %s: %s", store->path, strerror(errno), errno == ENOENT ?
				   "mount it; if it is to be new: rmemd --init" : "name a folder of rmemd's own");
	if (flock(store->dir, LOCK_EX | LOCK_NB))
		return store_fault(&store->why, "%s: %s", store->path, errno == EWOULDBLOCK ?
				   "another rmemd uses it: end that one, or name another folder" : strerror(errno));
	/* An earlier run may have made the folder and ended before this sync. A parent that can't be synced was made by others. */
	if (sync_parent(store->path) && (made || (errno != EACCES && errno != EINVAL)))
		return folder_fault(store, "..");
	if (store->options.create && mkdirat(store->dir, "regions", 0700) && errno != EEXIST)
		return folder_fault(store, "regions");
	store->regions = openat(store->dir, "regions", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (store->regions >= 0)
		return 0;
	return errno == ENOENT ? is_empty(store) : folder_fault(store, "regions");
}

void files_close(struct store *store)
{
	if (store->index >= 0)
		close(store->index);
	if (store->regions >= 0)
		close(store->regions);
	if (store->dir >= 0)
		close(store->dir);
}

DIR *open_folder(int folder)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

/* Calls @each for each file until it returns non-zero, and returns that. Closes @dir. */
int each_name(struct store *store, DIR *dir, int (*each)(struct store *, const char *name, void *), void *arg)
{
	struct dirent *entry;
	int ret = 0;

	/* Other names may begin with a dot, too: the name of a region's file begins with the name of its client. */
	while (!ret && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			ret = each(store, entry->d_name, arg);
	closedir(dir);
	return ret;
}

static int each_file(struct store *store, int folder, int (*each)(struct store *, const char *name, void *), void *arg)
{
	DIR *dir = open_folder(folder);

	return dir ? each_name(store, dir, each, arg) : folder_fault(store, ".");
}

/* The number in the name of a log, or 0 if it is the name of no log. */
uint64_t log_number(const char *name)
{
	unsigned long long first;
	char back[64];

	if (sscanf(name, "log.%llu", &first) != 1)
		return 0;
	snprintf(back, sizeof(back), "log.%llu", first);
	return strcmp(back, name) ? 0 : first;
}

/* ---------------------------------------------------------------- index -- */

/* Integers are below 2^63 here. A number of 64 bits is a string. */
static const char *hex(char text[17], uint64_t number)
{
	snprintf(text, 17, "%016" PRIx64, number);
	return text;
}

static json_t *region_json(const struct region *region)
{
	char tag[17];

	return json_pack("{s:s, s:I, s:I, s:I, s:I}", "tag", hex(tag, region->tag), "addr", (json_int_t)region->addr, "size",
			 (json_int_t)region->size, "flags", (json_int_t)region->flags, "checkpoint",
			 (json_int_t)STORED(region)->checkpoint);
}

static json_t *owner_json(const struct owner *owner)
{
	json_t *regions = json_array();
	char word[17];
	int bad = 0;

	for (size_t i = 0; i < owner->count; i++)
		if (!(owner->by_tag[i]->flags & RMEM_SLAB))
			bad |= json_array_append_new(regions, region_json(owner->by_tag[i]));
	if (bad) {
		json_decref(regions);
		return NULL;
	}
	return json_pack("{s:s, s:I, s:s, s:I, s:o}", "name", owner->name, "last_txn", (json_int_t)owner->last_txn, "last_word",
			 hex(word, owner->last_word), "next", (json_int_t)owner->next_addr, "regions", regions);
}

static json_t *index_json(const struct store *store, uint64_t log)
{
	json_t *owners = json_array();
	int bad = 0;

	for (const struct owner *o = store->owners; o; o = o->next)
		bad |= json_array_append_new(owners, owner_json(o));
	if (bad) {
		json_decref(owners);
		return NULL;
	}
	return json_pack("{s:i, s:I, s:o}", "format", FORMAT, "log", (json_int_t)log, "owners", owners);
}

/* The index as text. The file has a checksum of this text, too. */
static char *index_text(const json_t *index)
{
	return json_dumps(index, JSON_COMPACT | JSON_SORT_KEYS);
}

static uint32_t crc_of(const char *text)
{
	return crc32_z(0, (const void *)text, strlen(text));
}

static int set_index(struct store *store, int fd, const char *all)
{
	store->index = fd;
	store->index_crc = crc_of(all);
	return fstat(fd, &store->index_stat);
}

int write_index(struct store *store, uint64_t log)
{
	json_t *index = index_json(store, log);
	char *text = index ? index_text(index) : NULL, *all = NULL;
	int fd, size = text ? asprintf(&all, "{\"crc32\":%" PRIu32 ",\"index\":%s}\n", crc_of(text), text) : -1, ret;

	json_decref(index);
	free(text);
	if (size < 0)
		return store_fault(&store->why, "memory: there is none for %s/%s: free some", store->path, INDEX);
	/* The old file is closed before it loses its name: a process with an open file that has no name could not be moved. */
	if (store->index >= 0)
		close(store->index);
	store->index = -1;
	fd = openat(store->dir, INDEX_NEW, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	ret = fd < 0 || write_all(fd, all, size, 0) || fsync(fd) || renameat(store->dir, INDEX_NEW, store->dir, INDEX) ||
	      fsync(store->dir) || set_index(store, fd, all) ? folder_fault(store, INDEX) : 0;
	if (ret && fd >= 0 && fd != store->index)
		close(fd);
	free(all);
	return ret;
}

static int read_region(struct owner *owner, json_t *json)
{
	const char *tag;
	json_int_t addr, size, flags, number;
	struct region *region;
	char *end;

	if (json_unpack(json, "{s:s, s:I, s:I, s:I, s:I}", "tag", &tag, "addr", &addr, "size", &size, "flags", &flags,
			"checkpoint", &number))
		return -1;
	if (addr < 0 || size <= 0 || flags < 0 || flags > UINT32_MAX ||
	    region_restore(owner, strtoull(tag, &end, 16), addr, size, flags, &region))
		return -1;
	STORED(region)->has_file = true;
	STORED(region)->checkpoint = number;
	return *end ? -1 : 0;
}

static int read_owner(struct store *store, json_t *json)
{
	json_t *regions, *region;
	const char *name, *word = "0"; /* an older rmemd writes no word */
	json_int_t last_txn, next;
	struct owner *owner;
	size_t i;

	if (json_unpack(json, "{s:s, s:I, s?s, s:I, s:o}", "name", &name, "last_txn", &last_txn, "last_word", &word, "next",
			&next, "regions", &regions))
		return -1;
	owner = store_owner(store, name);
	if (!owner || last_txn < 0 || next < 0 || owner->count)
		return -1;
	json_array_foreach(regions, i, region)
		if (read_region(owner, region))
			return -1;
	if ((uint64_t)next < owner->next_addr)
		return -1;
	owner->next_addr = next;
	owner->last_txn = last_txn;
	owner->last_word = strtoull(word, NULL, 16);
	return 0;
}

static int parse_index(struct store *store, json_t *all, uint64_t *log)
{
	json_t *index, *owners, *owner;
	json_int_t crc, first;
	char *text;
	size_t i;
	int format, ret;

	if (json_unpack(all, "{s:I, s:o}", "crc32", &crc, "index", &index))
		return -1;
	text = index_text(index);
	ret = !text || crc_of(text) != crc;
	free(text);
	if (ret || json_unpack(index, "{s:i, s:I, s:o}", "format", &format, "log", &first, "owners", &owners) || first <= 0)
		return -1;
	if (format != FORMAT)
		return store_fault(&store->why, "%s/%s: its format is %d, and this rmemd reads %d: start the rmemd that wrote it, "
				   "or give another directory", store->path, INDEX, format, FORMAT);
	*log = first;
	json_array_foreach(owners, i, owner)
		if (read_owner(store, owner))
			return -1;
	return 0;
}

/* Is this a log with records that the index does not know of? */
static int newer_log(struct store *store, const char *name, void *log)
{
	struct stat st;

	if (log_number(name) <= *(uint64_t *)log || fstatat(store->dir, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    st.st_size <= LOG_HEADER_SIZE)
		return 0;
	return store_fault(&store->why, "%s/%s: it is older than %s, or missing: put a copy of %s back", store->path,
			   INDEX, name, store->path);
}

static int region_without_index(struct store *store, const char *name, void *arg)
{
	(void)arg;
	return store_fault(&store->why, "%s/%s: it is missing, but regions/%s is there: put a copy of %s back",
			   store->path, INDEX, name, store->path);
}

int files_read_index(struct store *store, uint64_t *log)
{
	int fd = openat(store->dir, INDEX, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), ret;
	json_t *all;

	*log = 0;
	if (fd < 0 && errno != ENOENT)
		return folder_fault(store, INDEX);
	if (fd < 0 && (each_file(store, store->dir, newer_log, log) ||
		       each_file(store, store->regions, region_without_index, NULL)))
		return -1;
	if (fd < 0)
		return store->options.create ? 0 : is_empty(store);
	all = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
	close(fd);
	ret = all ? parse_index(store, all, log) : -1;
	json_decref(all);
	if (ret)
		return store_fault(&store->why, "%s/%s: damaged: put a copy of %s back", store->path, INDEX, store->path);
	return each_file(store, store->dir, newer_log, log) ? -1 : 1;
}

/* ---------------------------------------------------------------- moved -- */

static bool is_index(const struct store *store, const struct stat *st)
{
	uint8_t part[4096];
	uint32_t crc = 0;

	for (off_t at = 0; at < st->st_size; at += sizeof(part)) {
		size_t size = st->st_size - at < (off_t)sizeof(part) ? (size_t)(st->st_size - at) : sizeof(part);

		if (read_all(store->index, part, size, at) <= 0)
			return false;
		crc = crc32_z(crc, part, size);
	}
	return crc == store->index_crc;
}

/* As long as the index file has not changed, one fstat() is enough. */
int files_check(struct store *store)
{
	const struct stat *was = &store->index_stat;
	struct stat st, log;

	if (fstat(store->index, &st))
		return folder_fault(store, INDEX);
	if (st.st_dev == was->st_dev && st.st_ino == was->st_ino && st.st_size == was->st_size &&
	    st.st_ctim.tv_sec == was->st_ctim.tv_sec && st.st_ctim.tv_nsec == was->st_ctim.tv_nsec)
		return 0;
	if (st.st_size != was->st_size || !is_index(store, &st) || fstat(store->log.file.fd, &log) ||
	    (uint64_t)log.st_size != store->log.file.size || each_region(store, check_file))
		return store_fault(&store->why, "%s: it is not the folder that this process wrote, which may be at another host: "
				   "start rmemd there", store->path);
	store->index_stat = st;
	return 0;
}
