// SPDX-License-Identifier: MIT
#include <dirent.h>
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
#include "files.h"
#include "store_internal.h"

#define INDEX "index.json"
#define INDEX_NEW "index.new"
#define FORMAT 2 /* 1 had no checksums of pages */
#define SUM_OF_ZEROS 0xc71c0011u /* crc32 of a page; without it the sum of such a page is 0, as a file has it that grows */
#define SUMS 1024 /* at a time */

static int folder_fault(struct store *store, const char *name)
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

int files_open(struct store *store)
{
	bool made = mkdir(store->path, 0700) == 0;

	if (!made && errno != EEXIST)
		return store_fault(&store->why, "%s: %s: make the folder above it", store->path, strerror(errno));
	store->dir = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->dir < 0)
		return store_fault(&store->why, "%s: %s: name a folder of rmemd's own", store->path, strerror(errno));
	if (flock(store->dir, LOCK_EX | LOCK_NB))
		return store_fault(&store->why, "%s: %s", store->path, errno == EWOULDBLOCK ?
				   "another rmemd uses it: end that one, or name another folder" : strerror(errno));
	if (made && sync_parent(store->path))
		return folder_fault(store, "..");
	if (mkdirat(store->dir, "regions", 0700) && errno != EEXIST)
		return folder_fault(store, "regions");
	store->regions = openat(store->dir, "regions", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return store->regions < 0 ? folder_fault(store, "regions") : 0;
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

static DIR *open_folder(int folder)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

/* Calls @each for each file, until it returns non-zero, which is returned. Closes @dir. */
static int each_name(struct store *store, DIR *dir, int (*each)(struct store *, const char *name, void *), void *arg)
{
	struct dirent *entry;
	int ret = 0;

	/* (a client's name, with which its files begin, may begin with a dot) */
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

/* The number of a log, or 0: it is none. */
static uint64_t log_number(const char *name)
{
	unsigned long long first;
	char back[64];

	if (sscanf(name, "log.%llu", &first) != 1)
		return 0;
	snprintf(back, sizeof(back), "log.%llu", first);
	return strcmp(back, name) ? 0 : first;
}

/* ---------------------------------------------------------------- index -- */

/* (numbers below 2^63 only; a tag is any number) */
static json_t *region_json(const struct region *region)
{
	char tag[17];

	snprintf(tag, sizeof(tag), "%016" PRIx64, region->tag);
	return json_pack("{s:s, s:I, s:I, s:I, s:I}", "tag", tag, "addr", (json_int_t)region->addr, "size",
			 (json_int_t)region->size, "flags", (json_int_t)region->flags, "checkpoint",
			 (json_int_t)HELD(region)->checkpoint);
}

static json_t *owner_json(const struct owner *owner)
{
	json_t *regions = json_array();
	int bad = 0;

	for (size_t i = 0; i < owner->count; i++)
		if (!(owner->by_tag[i]->flags & RMEM_SLAB))
			bad |= json_array_append_new(regions, region_json(owner->by_tag[i]));
	if (bad) {
		json_decref(regions);
		return NULL;
	}
	return json_pack("{s:s, s:I, s:I, s:o}", "name", owner->name, "last_txn", (json_int_t)owner->last_txn, "next",
			 (json_int_t)owner->next_addr, "regions", regions);
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

/* The text whose checksum is kept with it. */
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

static int write_index(struct store *store, uint64_t log)
{
	json_t *index = index_json(store, log);
	char *text = index ? index_text(index) : NULL, *all = NULL;
	int fd, size = text ? asprintf(&all, "{\"crc32\":%" PRIu32 ",\"index\":%s}\n", crc_of(text), text) : -1, ret;

	json_decref(index);
	free(text);
	if (size < 0)
		return store_fault(&store->why, "memory: there is none for %s/%s: free some", store->path, INDEX);
	/* (a file that is open and has no name could not be moved) */
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
	HELD(region)->has_file = true;
	HELD(region)->checkpoint = number;
	return *end ? -1 : 0;
}

static int read_owner(struct store *store, json_t *json)
{
	json_t *regions, *region;
	json_int_t last_txn, next;
	struct owner *owner;
	const char *name;
	size_t i;

	if (json_unpack(json, "{s:s, s:I, s:I, s:o}", "name", &name, "last_txn", &last_txn, "next", &next, "regions",
			&regions))
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
				   "or give an empty directory", store->path, INDEX, format, FORMAT);
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
	if (fd < 0)
		return each_file(store, store->dir, newer_log, log) ||
		       each_file(store, store->regions, region_without_index, NULL) ? -1 : 0;
	all = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
	close(fd);
	ret = all ? parse_index(store, all, log) : -1;
	json_decref(all);
	if (ret)
		return store_fault(&store->why, "%s/%s: damaged: put a copy of %s back", store->path, INDEX, store->path);
	return each_file(store, store->dir, newer_log, log) ? -1 : 1;
}

/* -------------------------------------------------------------- regions -- */

/* An address is never used again, so a file is of one region for ever. */
static void name_of(char name[128], const struct region *region)
{
	snprintf(name, 128, "%s.%016" PRIx64 ".%" PRIx64, region->owner->name, region->tag, region->addr);
}

static int region_fault(struct store *store, const char *name)
{
	return store_fault(&store->why, "%s/regions/%s: %s: see to the disk", store->path, name, strerror(errno));
}

/* Behind the bytes of a region: the number of the checkpoint, and the sums. */
static uint64_t sum_at(const struct region *region, uint64_t page)
{
	return region->size + sizeof(uint64_t) + page * sizeof(uint32_t);
}

static uint64_t file_size(const struct region *region)
{
	return sum_at(region, region->size / RMEM_PAGE);
}

static uint32_t sum_of(const uint8_t *page)
{
	return crc32_z(0, page, RMEM_PAGE) ^ SUM_OF_ZEROS;
}

/* @bits is made if it is not there. -1: no memory */
static int set_bits(uint8_t **bits, const struct region *region, uint64_t from, uint64_t to)
{
	if (!*bits)
		*bits = calloc(region->size / RMEM_PAGE / 8 + 1, 1);
	for (; *bits && from < to; from++)
		(*bits)[from / 8] |= 1u << from % 8;
	return *bits ? 0 : -1;
}

static bool has_bit(const uint8_t *bits, uint64_t page)
{
	return bits[page / 8] >> page % 8 & 1;
}

static int page_damaged(struct store *store, const char *name, uint64_t page)
{
	return store_fault(&store->why, "%s/regions/%s: damaged in the page at byte %" PRIu64 ": put a copy of %s back",
			   store->path, name, page * RMEM_PAGE, store->path);
}

/* The sums from @page on against memory, as it was read. */
static int check_sums(struct store *store, struct region *region, const char *name, uint64_t page, const uint32_t *sums,
		      uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (le32toh(sums[i]) == sum_of(region->mem + (page + i) * RMEM_PAGE))
			continue;
		if (!store->log.copying)
			return page_damaged(store, name, page + i);
		if (set_bits(&HELD(region)->suspect, region, page + i, page + i + 1))
			return store_fault(&store->why, "memory: there is none for %s: free some", name);
	}
	return 0;
}

/* Has the checkpoint of this number, which did not end, begun after the log said so? */
static bool is_unended(const struct log *log, uint64_t number)
{
	return log->copying && number > log->copying && number <= log->lsn + 1;
}

/* Into memory. 0, or -1 with errno or store->why. */
static int read_pages(struct store *store, struct region *region, const char *name, int fd)
{
	uint64_t pages = region->size / RMEM_PAGE, count, number;
	uint32_t sums[SUMS];

	if (read_all(fd, region->mem, region->size, 0) <= 0 || read_all(fd, &number, sizeof(number), region->size) <= 0)
		return -1;
	number = le64toh(number);
	if (is_unended(&store->log, number))
		HELD(region)->checkpoint = number;
	if (number != HELD(region)->checkpoint)
		return store_fault(&store->why, "%s/regions/%s: it is older or newer than %s: put a copy of %s back",
				   store->path, name, INDEX, store->path);
	for (uint64_t page = 0; page < pages; page += count) {
		count = pages - page < SUMS ? pages - page : SUMS;
		if (read_all(fd, sums, count * sizeof(*sums), sum_at(region, page)) <= 0 ||
		    check_sums(store, region, name, page, sums, count))
			return -1;
	}
	return 0;
}

static int read_file(struct store *store, struct region *region)
{
	char name[128];
	struct stat st;
	int fd, ret;

	name_of(name, region);
	fd = openat(store->regions, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return store_fault(&store->why, "%s/regions/%s: it is missing: put a copy of %s back", store->path, name,
				   store->path);
	if (fd < 0 || fstat(fd, &st))
		ret = -1;
	else if ((uint64_t)st.st_size != file_size(region))
		ret = store_fault(&store->why, "%s/regions/%s: damaged: it has %lld bytes, not %" PRIu64 ": put a copy of %s back",
				  store->path, name, (long long)st.st_size, file_size(region), store->path);
	else
		ret = read_pages(store, region, name, fd);
	if (ret)
		region_fault(store, name);
	if (fd >= 0)
		close(fd);
	return ret;
}

static int each_region(struct store *store, int (*each)(struct store *, struct region *))
{
	int ret = 0;

	for (struct owner *o = store->owners; o && !ret; o = o->next)
		for (size_t i = 0; i < o->count && !ret; i++)
			if (!(o->by_tag[i]->flags & RMEM_SLAB))
				ret = each(store, o->by_tag[i]);
	return ret;
}

int files_read_regions(struct store *store)
{
	return each_region(store, read_file);
}

/* The checkpoint that did not end may have torn these pages. A page that stays suspect is damaged. */
void files_replayed(struct region *region, uint64_t addr, uint64_t len)
{
	uint8_t *suspect = HELD(region)->suspect;
	uint64_t page = (addr - region->addr) / RMEM_PAGE, last = (addr + len - 1 - region->addr) / RMEM_PAGE;

	for (; suspect && page <= last; page++)
		suspect[page / 8] &= ~(1u << page % 8);
}

static int end_replay(struct store *store, struct region *region)
{
	struct held *held = HELD(region);
	char name[128];
	int ret = 0;

	name_of(name, region);
	for (uint64_t page = 0; held->suspect && !ret && page < region->size / RMEM_PAGE; page++)
		if (has_bit(held->suspect, page))
			ret = page_damaged(store, name, page);
	free(held->suspect);
	held->suspect = NULL;
	return ret;
}

int files_end_replay(struct store *store)
{
	return each_region(store, end_replay);
}

/* ---------------------------------------------------------------- moved -- */

/* Is the file there, as it was written last? */
static int check_file(struct store *store, struct region *region)
{
	uint64_t number;
	char name[128];
	struct stat st;
	int fd, ret;

	if (!HELD(region)->has_file)
		return 0;
	name_of(name, region);
	fd = openat(store->regions, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ret = fd < 0 || fstat(fd, &st) || (uint64_t)st.st_size != file_size(region) ||
	      read_all(fd, &number, sizeof(number), region->size) <= 0 || le64toh(number) != HELD(region)->checkpoint;
	if (fd >= 0)
		close(fd);
	return ret ? -1 : 0;
}

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

/* A look at one inode tells, as long as nothing has changed. */
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

/* ----------------------------------------------------------- checkpoint -- */

/* Where the log goes: the file of the last region stays open, for neighbours. */
struct target {
	struct store *store;
	struct region *region;
	int fd;
};

static int make_file(struct store *store, struct region *region)
{
	char name[128];
	int fd, ret = 0;

	if (HELD(region)->has_file)
		return 0;
	name_of(name, region);
	fd = openat(store->regions, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || ftruncate(fd, file_size(region)) || set_bits(&HELD(region)->dirty, region, 0, 0))
		ret = region_fault(store, name);
	if (fd >= 0)
		close(fd);
	HELD(region)->has_file = !ret;
	return ret;
}

static int target_open(struct target *target, struct region *region)
{
	char name[128];

	if (target->region == region)
		return 0;
	if (target->fd >= 0)
		close(target->fd);
	name_of(name, region);
	target->region = region;
	target->fd = openat(target->store->regions, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return target->fd < 0 ? region_fault(target->store, name) : 0;
}

/* A page of which a part is written: what stays of it gets a new sum, so it must fit the old one. */
static int check_page(struct store *store, struct region *region, int fd, uint64_t page)
{
	uint8_t data[RMEM_PAGE];
	char name[128];
	uint32_t sum;

	if (store->again || (HELD(region)->dirty && has_bit(HELD(region)->dirty, page)))
		return 0;
	name_of(name, region);
	if (read_all(fd, data, sizeof(data), page * RMEM_PAGE) <= 0 || read_all(fd, &sum, sizeof(sum), sum_at(region, page)) <= 0)
		return region_fault(store, name);
	return le32toh(sum) == sum_of(data) ? 0 : page_damaged(store, name, page);
}

static int check_parts(struct store *store, struct region *region, int fd, uint64_t from, uint64_t to)
{
	if (from % RMEM_PAGE && check_page(store, region, fd, from / RMEM_PAGE))
		return -1;
	return to % RMEM_PAGE ? check_page(store, region, fd, to / RMEM_PAGE) : 0;
}

static int copy_entry(const struct log_entry *entry, const void *payload, uint64_t at, void *arg)
{
	struct target *target = arg;
	struct store *store = target->store;
	struct owner *owner = entry->type == LOG_DATA ? store_owner(store, entry->owner) : NULL;
	struct region *region = owner ? region_at(owner, entry->addr, entry->size) : NULL;
	uint64_t from, to;
	char name[128];

	/* (a region that ended since is in no file) */
	(void)at;
	if (!region)
		return 0;
	if (target_open(target, region))
		return -1;
	from = entry->addr - region->addr;
	to = from + entry->size;
	if (check_parts(store, region, target->fd, from, to))
		return -1;
	if (!set_bits(&HELD(region)->dirty, region, from / RMEM_PAGE, (to - 1) / RMEM_PAGE + 1) &&
	    !write_all(target->fd, payload, entry->size, from))
		return 0;
	name_of(name, region);
	return region_fault(store, name);
}

/* The pages are read from the file, since clients may have put to memory what is not committed. */
static int write_sums(struct region *region, int fd)
{
	const uint8_t *dirty = HELD(region)->dirty;
	uint64_t pages = region->size / RMEM_PAGE, page = 0, number = htole64(HELD(region)->checkpoint);
	uint8_t data[RMEM_PAGE];
	uint32_t sums[SUMS];
	size_t n;

	while (page < pages) {
		for (n = 0; n < SUMS && page + n < pages && has_bit(dirty, page + n); n++) {
			if (read_all(fd, data, sizeof(data), (page + n) * RMEM_PAGE) <= 0)
				return -1;
			sums[n] = htole32(sum_of(data));
		}
		if (n && write_all(fd, sums, n * sizeof(*sums), sum_at(region, page)))
			return -1;
		page += n ? n : 1;
	}
	return write_all(fd, &number, sizeof(number), region->size);
}

static int sync_file(struct store *store, struct region *region)
{
	struct held *held = HELD(region);
	char name[128];
	int fd, ret = 0;

	if (!held->dirty)
		return 0;
	name_of(name, region);
	held->checkpoint = store->checkpoint;
	fd = openat(store->regions, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || write_sums(region, fd) || fsync(fd))
		ret = region_fault(store, name);
	if (fd >= 0)
		close(fd);
	free(held->dirty);
	held->dirty = NULL;
	return ret;
}

static int write_regions(struct store *store)
{
	struct target target = { .store = store, .fd = -1 };
	int ret;

	if (each_region(store, make_file))
		return -1;
	ret = log_each(&store->log, copy_entry, &target);
	if (target.fd >= 0)
		close(target.fd);
	if (ret || each_region(store, sync_file))
		return -1;
	return fsync(store->regions) ? folder_fault(store, "regions") : 0;
}

static int remove_log(struct store *store, const char *name, void *arg)
{
	uint64_t number = log_number(name);

	(void)arg;
	if (number && number != store->log.file.first)
		unlinkat(store->dir, name, 0);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
	char **name;
	size_t count;
};

static int remove_unnamed(struct store *store, const char *name, void *arg)
{
	struct names *names = arg;

	if (!bsearch(&name, names->name, names->count, sizeof(*names->name), compare_names))
		unlinkat(store->regions, name, 0);
	return 0;
}

/* (a folder that can't be read now, for want of a descriptor, is swept another time) */
static void sweep_folder(struct store *store, int folder, int (*each)(struct store *, const char *name, void *), void *arg)
{
	DIR *dir = open_folder(folder);

	if (dir)
		each_name(store, dir, each, arg);
}

/* What no index names. If it stays, it takes place and does no harm. */
static void sweep(struct store *store)
{
	struct names names = { 0 };
	size_t room = 0;

	sweep_folder(store, store->dir, remove_log, NULL);
	for (struct owner *o = store->owners; o; o = o->next)
		room += o->count;
	names.name = calloc(room + 1, sizeof(*names.name));
	for (struct owner *o = store->owners; o && names.name; o = o->next)
		for (size_t i = 0; i < o->count; i++) {
			char name[128];

			name_of(name, o->by_tag[i]);
			names.name[names.count] = strdup(name);
			if (!names.name[names.count])
				goto out;
			names.count++;
		}
	if (names.name) {
		qsort(names.name, names.count, sizeof(*names.name), compare_names);
		sweep_folder(store, store->regions, remove_unnamed, &names);
	}
out:
	for (size_t i = 0; i < names.count; i++)
		free(names.name[i]);
	free(names.name);
}

/* Durable before a file is written to: from then on a page that does not fit its sum may be a part of what was written. */
static int say_copying(struct log *log)
{
	if (log->file.fd < 0 || log->lsn < log->file.first || log->copying)
		return 0;
	log_append(log, &(struct log_entry){ .type = LOG_COPYING }, NULL);
	return log_sync(log);
}

static int checkpoint(struct store *store)
{
	struct log *log = &store->log;
	struct log_file file;
	uint64_t first;

	store->again = log->copying;
	if (say_copying(log))
		return -1;
	/* (a log in which nothing came keeps its name until it is replaced, and is not written over) */
	first = log->file.first > log->lsn ? log->file.first + 1 : log->lsn + 1;
	store->checkpoint = first;
	if (write_regions(store) || log_create(log, first, &file))
		return -1;
	if (fsync(store->dir) ? folder_fault(store, ".") : write_index(store, first)) {
		close(file.fd);
		return -1;
	}
	log_switch(log, &file);
	store->uncopied = 0;
	sweep(store);
	store->stats.checkpoints++;
	return 0;
}

int files_checkpoint(struct store *store)
{
	int ret = checkpoint(store);

	store->log.failed |= ret != 0;
	return ret;
}
