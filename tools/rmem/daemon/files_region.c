// SPDX-License-Identifier: MIT
/*
 * The file of a region: its bytes, and a checksum of each page.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <rmem.h>
#include "files_internal.h"

#define SUM_OF_ZEROS 0xc71c0011u /* crc32 of a page of zeros. XORed with it their sum is 0, as it is where a file grows */

void name_of(char name[128], const struct region *region)
{
	snprintf(name, 128, "%s.%016" PRIx64 ".%" PRIx64, region->owner->name, region->tag, region->addr);
}

int region_fault(struct store *store, const char *name)
{
	return store_fault(&store->why, "%s/regions/%s: %s: see to the disk", store->path, name, strerror(errno));
}

/* Where the file has the sum of a page: behind the bytes of the region and the number of the checkpoint. */
uint64_t sum_at(const struct region *region, uint64_t page)
{
	return region->size + sizeof(uint64_t) + page * sizeof(uint32_t);
}

uint64_t file_size(const struct region *region)
{
	return sum_at(region, region->size / RMEM_PAGE);
}

uint32_t sum_of(const uint8_t *page)
{
	return crc32_z(0, page, RMEM_PAGE) ^ SUM_OF_ZEROS;
}

/* Sets the bits of the pages from @from to before @to. Makes *@bits if it is NULL. -1: there is no memory */
int set_bits(uint8_t **bits, const struct region *region, uint64_t from, uint64_t to)
{
	if (!*bits)
		*bits = calloc(region->size / RMEM_PAGE / 8 + 1, 1);
	for (; *bits && from < to; from++)
		(*bits)[from / 8] |= 1u << from % 8;
	return *bits ? 0 : -1;
}

bool has_bit(const uint8_t *bits, uint64_t page)
{
	return bits[page / 8] >> page % 8 & 1;
}

int page_damaged(struct store *store, const char *name, uint64_t page)
{
	return store_fault(&store->why, "%s/regions/%s: damaged in the page at byte %" PRIu64 ": put a copy of %s back",
			   store->path, name, page * RMEM_PAGE, store->path);
}

/* Compares sums of the file, from @page on, with the pages that were read to memory. */
static int check_sums(struct store *store, struct region *region, const char *name, uint64_t page, const uint32_t *sums,
		      uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (le32toh(sums[i]) == sum_of(region->mem + (page + i) * RMEM_PAGE))
			continue;
		if (!store->log.copying)
			return page_damaged(store, name, page + i);
		if (set_bits(&STORED(region)->suspect, region, page + i, page + i + 1))
			return store_fault(&store->why, "memory: there is none for %s: free some", name);
	}
	return 0;
}

/* Does @number belong to a checkpoint that began, as the log says, and did not end? */
static bool is_unended(const struct log *log, uint64_t number)
{
	return log->copying && number > log->copying && number <= log->lsn + 1;
}

/* Reads the file to memory. Returns 0, or -1 with errno or store->why. */
static int read_pages(struct store *store, struct region *region, const char *name, int fd)
{
	uint64_t pages = region->size / RMEM_PAGE, count, number;
	uint32_t sums[SUMS];

	if (read_all(fd, region->mem, region->size, 0) <= 0 || read_all(fd, &number, sizeof(number), region->size) <= 0)
		return -1;
	number = le64toh(number);
	if (is_unended(&store->log, number))
		STORED(region)->checkpoint = number;
	if (number != STORED(region)->checkpoint)
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

int each_region(struct store *store, int (*each)(struct store *, struct region *))
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

/* A checkpoint that did not end may have torn pages that the log writes over. Any other suspect page is damaged. */
void files_replayed(struct region *region, uint64_t addr, uint64_t len)
{
	uint8_t *suspect = STORED(region)->suspect;
	uint64_t page = (addr - region->addr) / RMEM_PAGE, last = (addr + len - 1 - region->addr) / RMEM_PAGE;

	for (; suspect && page <= last; page++)
		suspect[page / 8] &= ~(1u << page % 8);
}

static int end_replay(struct store *store, struct region *region)
{
	struct stored *stored = STORED(region);
	char name[128];
	int ret = 0;

	name_of(name, region);
	for (uint64_t page = 0; stored->suspect && !ret && page < region->size / RMEM_PAGE; page++)
		if (has_bit(stored->suspect, page))
			ret = page_damaged(store, name, page);
	free(stored->suspect);
	stored->suspect = NULL;
	return ret;
}

int files_end_replay(struct store *store)
{
	return each_region(store, end_replay);
}

int check_file(struct store *store, struct region *region)
{
	uint64_t number;
	char name[128];
	struct stat st;
	int fd, ret;

	if (!STORED(region)->has_file)
		return 0;
	name_of(name, region);
	fd = openat(store->regions, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ret = fd < 0 || fstat(fd, &st) || (uint64_t)st.st_size != file_size(region) ||
	      read_all(fd, &number, sizeof(number), region->size) <= 0 || le64toh(number) != STORED(region)->checkpoint;
	if (fd >= 0)
		close(fd);
	return ret ? -1 : 0;
}
