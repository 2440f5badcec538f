// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "log.h"

#define BUFFER (4u << 20)
#define RECORD_MAGIC 0x474f4c52u /* "RLOG" */
#define HEADER_MAGIC "RMEMLOG1"

/* On disk, little-endian. */
struct header {
	char magic[8];
	uint64_t id;
	uint64_t first;
	uint32_t reserved;
	uint32_t crc; /* of all before it */
};
_Static_assert(sizeof(struct header) == LOG_HEADER_SIZE, "on disk");

/* The payload follows it, padded with 0 to a multiple of 8. */
struct record {
	uint32_t magic;
	uint32_t crc; /* of all behind it, with the payload and its padding */
	uint64_t id;  /* of the file */
	uint64_t lsn;
	uint64_t synced;
	uint8_t type;
	uint8_t more;
	uint8_t reserved[2];
	uint32_t size;
	uint64_t addr;
	uint64_t number;
	uint64_t length;
	uint32_t flags;
	uint32_t reserved2;
	char owner[RMEM_NAME_SIZE];
};
_Static_assert(sizeof(struct record) == 136, "on disk");
_Static_assert(BUFFER >= sizeof(struct record) + LOG_DATA_MAX, "a record fits");

int store_fault(char **why, const char *format, ...)
{
	va_list args;

	if (*why)
		return -1;
	va_start(args, format);
	if (vasprintf(why, format, args) < 0)
		*why = strdup("memory: there is none for a message"); /* NULL if there is none for this line either */
	va_end(args);
	return -1;
}

int write_all(int fd, const void *buf, size_t size, uint64_t at)
{
	while (size) {
		ssize_t done = pwrite(fd, buf, size, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			errno = done ? errno : EIO;
			return -1;
		}
		buf = (const char *)buf + done;
		size -= done;
		at += done;
	}
	return 0;
}

int read_all(int fd, void *buf, size_t size, uint64_t at)
{
	while (size) {
		ssize_t done = pread(fd, buf, size, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (!done)
			errno = EIO;
		if (done <= 0)
			return done;
		buf = (char *)buf + done;
		size -= done;
		at += done;
	}
	return 1;
}

static void name_of(char name[32], uint64_t first)
{
	snprintf(name, 32, "log.%llu", (unsigned long long)first);
}

static int file_fault(struct log *log, uint64_t first)
{
	return store_fault(log->why, "%s/log.%llu: %s: see to the disk", log->path, (unsigned long long)first,
			   strerror(errno));
}

int log_damaged(struct log *log, uint64_t at)
{
	return store_fault(log->why, "%s/log.%llu: damaged at byte %llu: put a copy of %s back", log->path,
			   (unsigned long long)log->file.first, (unsigned long long)at, log->path);
}

int log_init(struct log *log, int dir, const char *path, char **why)
{
	*log = (struct log){ .dir = dir, .path = path, .why = why, .file.fd = -1, .buf = malloc(BUFFER) };
	return log->buf ? 0 : store_fault(why, "memory: there is none for the log: free some");
}

void log_end(struct log *log)
{
	if (log->file.fd >= 0)
		close(log->file.fd);
	free(log->buf);
	log->buf = NULL;
	log->file.fd = -1;
}

/* ---------------------------------------------------------------- write -- */

static uint32_t crc_of(const struct record *record, size_t padded)
{
	const uint8_t *from = (const uint8_t *)record + offsetof(struct record, id);

	return crc32_z(0, from, sizeof(*record) - offsetof(struct record, id) + padded);
}

static size_t padded(uint32_t size)
{
	return ((size_t)size + 7) & ~(size_t)7;
}

uint64_t log_size(uint64_t len)
{
	/* The first record may be short, so that the others begin where a page does. The last record is padded. */
	return len + (len / LOG_DATA_MAX + 2) * (sizeof(struct record) + 8);
}

int log_create(struct log *log, uint64_t first, struct log_file *file)
{
	struct header header = { .magic = HEADER_MAGIC, .first = htole64(first) };
	char name[32];

	name_of(name, first);
	if (getrandom(&header.id, sizeof(header.id), 0) != sizeof(header.id))
		return file_fault(log, first);
	header.crc = htole32(crc32_z(0, (void *)&header, offsetof(struct header, crc)));
	*file = (struct log_file){ .id = le64toh(header.id), .first = first, .size = sizeof(header) };
	file->fd = openat(log->dir, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file->fd < 0)
		return file_fault(log, first);
	if (write_all(file->fd, &header, sizeof(header), 0) || fsync(file->fd)) {
		file_fault(log, first);
		close(file->fd);
		return -1;
	}
	return 0;
}

void log_switch(struct log *log, const struct log_file *file)
{
	if (log->file.fd >= 0)
		close(log->file.fd);
	log->file = *file;
	log->copying = 0;
	log->lsn = log->synced = file->first - 1;
}

static int write_buffer(struct log *log)
{
	size_t size = log->used;

	log->used = 0;
	if (log->failed)
		return -1;
	if (write_all(log->file.fd, log->buf, size, log->file.size)) {
		log->failed = true;
		return file_fault(log, log->file.first);
	}
	log->file.size += size;
	log->logged += size;
	return 0;
}

void *log_append(struct log *log, const struct log_entry *entry, const void *payload)
{
	size_t body = padded(entry->size);
	struct record *record;
	uint8_t *place;

	if (log->used + sizeof(*record) + body > BUFFER)
		write_buffer(log);
	record = (struct record *)(log->buf + log->used);
	place = (uint8_t *)(record + 1);
	*record = (struct record){
		.magic = htole32(RECORD_MAGIC), .id = htole64(log->file.id), .lsn = htole64(++log->lsn),
		.synced = htole64(log->synced), .type = entry->type, .more = entry->more, .size = htole32(entry->size),
		.addr = htole64(entry->addr), .number = htole64(entry->number), .length = htole64(entry->length),
		.flags = htole32(entry->flags),
	};
	if (entry->type == LOG_COPYING && !log->copying)
		log->copying = log->lsn;
	if (entry->owner)
		memcpy(record->owner, entry->owner, strnlen(entry->owner, RMEM_NAME_SIZE - 1));
	if (entry->size)
		memcpy(place, payload, entry->size);
	memset(place + entry->size, 0, body - entry->size);
	record->crc = htole32(crc_of(record, body));
	log->used += sizeof(*record) + body;
	return place;
}

int log_sync(struct log *log)
{
	if (write_buffer(log))
		return -1;
	if (fdatasync(log->file.fd)) {
		log->failed = true;
		return file_fault(log, log->file.first);
	}
	log->synced = log->lsn;
	return 0;
}

/* ----------------------------------------------------------------- read -- */

/* Reads a record to the buffer. Returns its padded size; 0: there is none; -1 with *log->why. @entry points into the buffer. */
static int64_t read_record(struct log *log, uint64_t at, uint64_t end, struct log_entry *entry)
{
	struct record *record = (struct record *)log->buf;
	uint32_t size;
	int ret;

	if (end - at < sizeof(*record))
		return 0;
	ret = read_all(log->file.fd, record, sizeof(*record), at);
	if (ret < 0)
		return file_fault(log, log->file.first);
	size = le32toh(record->size);
	if (!ret || le32toh(record->magic) != RECORD_MAGIC || le64toh(record->id) != log->file.id || size > LOG_DATA_MAX ||
	    end - at - sizeof(*record) < padded(size) || record->owner[RMEM_NAME_SIZE - 1])
		return 0;
	ret = read_all(log->file.fd, record + 1, padded(size), at + sizeof(*record));
	if (ret < 0)
		return file_fault(log, log->file.first);
	if (!ret || crc_of(record, padded(size)) != le32toh(record->crc))
		return 0;
	*entry = (struct log_entry){
		.type = record->type, .more = record->more, .flags = le32toh(record->flags), .size = size,
		.addr = le64toh(record->addr), .number = le64toh(record->number), .length = le64toh(record->length),
		.owner = record->owner, .lsn = le64toh(record->lsn), .synced = le64toh(record->synced),
	};
	return sizeof(*record) + padded(size);
}

/* The record @lsn is bad. Does a record behind it, from @at on, say that @lsn was synced? 1, 0, or -1 with *log->why. */
static int was_synced(struct log *log, uint64_t at, uint64_t end, uint64_t lsn)
{
	enum { STEP = 65536 };
	uint64_t *window = malloc(STEP);
	struct log_entry entry;
	int64_t ret = window ? 0 : store_fault(log->why, "memory: there is none to read the log: free some");

	/* Records lie at multiples of 8 bytes, and the first 8 bytes of a record are its magic and its crc. */
	for (; !ret && at < end; at += STEP) {
		uint64_t part = end - at < STEP ? end - at : STEP;

		if (read_all(log->file.fd, window, part, at) <= 0) {
			ret = file_fault(log, log->file.first);
			break;
		}
		for (uint64_t i = 0; ret >= 0 && i < part / 8; i++) {
			if (le32toh(((uint32_t *)window)[2 * i]) != RECORD_MAGIC)
				continue;
			ret = read_record(log, at + 8 * i, end, &entry);
			if (ret > 0 && entry.lsn > lsn && entry.synced >= lsn)
				goto out;
			ret = ret < 0 ? ret : 0;
		}
	}
out:
	free(window);
	return ret > 0 ? 1 : ret;
}

/* Records count up to the last whole one, but those of a transaction only if it is whole. */
static int find_end(struct log *log, uint64_t file_size)
{
	uint64_t at = sizeof(struct header), lsn = log->file.first - 1;
	struct log_entry entry;
	int64_t ret;

	log->file.size = at;
	log->lsn = lsn;
	while ((ret = read_record(log, at, file_size, &entry)) > 0 && entry.lsn == lsn + 1) {
		at += ret;
		lsn++;
		if (entry.type == LOG_COPYING && !log->copying)
			log->copying = lsn;
		if (!entry.more) {
			log->file.size = at;
			log->lsn = lsn;
		}
	}
	if (ret >= 0 && at < file_size)
		ret = was_synced(log, at, file_size, lsn + 1);
	else if (ret > 0)
		ret = 0;
	return ret > 0 ? log_damaged(log, at) : ret;
}

/*
 * If a sync has failed, its bytes can still be read until the host goes down, but no later sync writes them. Bytes that were read
 * here must not be lost after that, since a checkpoint copies them. So all of them are written once more.
 */
static int write_again(struct log *log)
{
	for (uint64_t at = 0, part; at < log->file.size; at += part) {
		part = log->file.size - at < BUFFER ? log->file.size - at : BUFFER;
		if (read_all(log->file.fd, log->buf, part, at) <= 0 || write_all(log->file.fd, log->buf, part, at))
			return -1;
	}
	return 0;
}

int log_open(struct log *log, uint64_t first)
{
	struct header header;
	char name[32];
	struct stat st;
	int ret;

	name_of(name, first);
	log->file = (struct log_file){ .first = first, .fd = openat(log->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW) };
	if (log->file.fd < 0 && errno == ENOENT)
		return store_fault(log->why, "%s/%s: it is missing: put a copy of %s back", log->path, name, log->path);
	if (log->file.fd < 0 || fstat(log->file.fd, &st))
		return file_fault(log, first);
	ret = read_all(log->file.fd, &header, sizeof(header), 0);
	if (ret < 0)
		return file_fault(log, first);
	if (!ret || memcmp(header.magic, HEADER_MAGIC, sizeof(header.magic)) || le64toh(header.first) != first ||
	    le32toh(header.crc) != crc32_z(0, (void *)&header, offsetof(struct header, crc)))
		return log_damaged(log, 0);
	log->file.id = le64toh(header.id);
	if (find_end(log, st.st_size))
		return -1;
	/* The part that does not count is cut off first: it may fill the disk, and the new log needs room. */
	if (((uint64_t)st.st_size > log->file.size && ftruncate(log->file.fd, log->file.size)) || write_again(log) ||
	    fsync(log->file.fd))
		return file_fault(log, first);
	log->synced = log->lsn;
	return 0;
}

int log_each(struct log *log, int (*each)(const struct log_entry *, const void *payload, uint64_t at, void *arg), void *arg)
{
	uint64_t at = sizeof(struct header);
	struct log_entry entry;
	int64_t ret;

	for (; log->file.fd >= 0 && at < log->file.size; at += ret) {
		ret = read_record(log, at, log->file.size, &entry);
		if (ret == 0)
			return log_damaged(log, at);
		if (ret < 0 || each(&entry, log->buf + sizeof(struct record), at, arg))
			return -1;
	}
	return 0;
}
