// SPDX-License-Identifier: MIT
/*
 * A checkpoint: the log goes to the files of regions, and then there is a new log and a new index.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rmem.h>
#include "files_internal.h"

/* The file that the log is copied to. It stays open, since the next record is often of the same region. */
struct target {
	struct store *store;
	struct region *region;
	int fd;
};

static int make_file(struct store *store, struct region *region)
{
	char name[128];
	int fd, ret = 0;

	if (STORED(region)->has_file)
		return 0;
	name_of(name, region);
	fd = openat(store->regions, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || ftruncate(fd, file_size(region)) || set_bits(&STORED(region)->dirty, region, 0, 0))
		ret = region_fault(store, name);
	if (fd >= 0)
		close(fd);
	STORED(region)->has_file = !ret;
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

/* Only a part of this page will be written. The part that stays gets a new sum, too, so the page must fit its old sum before. */
static int check_page(struct store *store, struct region *region, int fd, uint64_t page)
{
	uint8_t data[RMEM_PAGE];
	char name[128];
	uint32_t sum;

	if (store->again || (STORED(region)->dirty && has_bit(STORED(region)->dirty, page)))
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

	(void)at;
	/* A region that has ended since this record was logged needs no file. */
	if (!region)
		return 0;
	if (target_open(target, region))
		return -1;
	from = entry->addr - region->addr;
	to = from + entry->size;
	if (check_parts(store, region, target->fd, from, to))
		return -1;
	if (!set_bits(&STORED(region)->dirty, region, from / RMEM_PAGE, (to - 1) / RMEM_PAGE + 1) &&
	    !write_all(target->fd, payload, entry->size, from))
		return 0;
	name_of(name, region);
	return region_fault(store, name);
}

/*
 * Pages are read from the file and not from memory, where clients may have put bytes that are not committed. Many pages are read
 * at a time, since the files may lie on another machine.
 */
#define CHUNK 64
static int write_sums(struct region *region, int fd)
{
	const uint8_t *dirty = STORED(region)->dirty;
	uint64_t pages = region->size / RMEM_PAGE, page = 0, number = htole64(STORED(region)->checkpoint);
	uint8_t data[CHUNK * RMEM_PAGE];
	uint32_t sums[CHUNK];
	size_t n;

	while (page < pages) {
		for (n = 0; n < CHUNK && page + n < pages && has_bit(dirty, page + n); n++)
			;
		if (n && read_all(fd, data, n * RMEM_PAGE, page * RMEM_PAGE) <= 0)
			return -1;
		for (size_t i = 0; i < n; i++)
			sums[i] = htole32(sum_of(data + i * RMEM_PAGE));
		if (n && write_all(fd, sums, n * sizeof(*sums), sum_at(region, page)))
			return -1;
		page += n ? n : 1;
	}
	return write_all(fd, &number, sizeof(number), region->size);
}

static int sync_file(struct store *store, struct region *region)
{
	struct stored *stored = STORED(region);
	char name[128];
	int fd, ret = 0;

	if (!stored->dirty)
		return 0;
	name_of(name, region);
	stored->checkpoint = store->checkpoint;
	fd = openat(store->regions, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || write_sums(region, fd) || fsync(fd))
		ret = region_fault(store, name);
	if (fd >= 0)
		close(fd);
	free(stored->dirty);
	stored->dirty = NULL;
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
	/*
	 * A file was closed between the writes and the sync. If the kernel has dropped its inode meanwhile, the sync knows of no
	 * write-back that has failed. The file system knows, since Linux 5.8.
	 */
	if (target.region && syncfs(store->regions))
		return folder_fault(store, "regions");
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

/* If the folder can't be opened now, since no descriptor is left, the folder is swept another time. */
static void sweep_folder(struct store *store, int folder, int (*each)(struct store *, const char *name, void *), void *arg)
{
	DIR *dir = open_folder(folder);

	if (dir)
		each_name(store, dir, each, arg);
}

/* Removes the files that the index does not name. A file that stays takes room and does no harm. */
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

/*
 * Logs LOG_COPYING. The record is durable before a file is written to. From then on, a page that does not fit its sum may be one
 * that the checkpoint has written in part.
 */
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
	/* The old log stays until the new index is there. If that log has no record, lsn + 1 is its number, and is skipped. */
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
