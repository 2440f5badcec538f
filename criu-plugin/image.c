// SPDX-License-Identifier: GPL-2.0
/*
 * Image files. Each is a header and a body that the header's length and CRC-32
 * cover; the inventory repeats both for the others, so that all belong
 * together. CRC-32 finds every flipped byte and every burst of up to 32 bits;
 * it keeps nobody from forging an image, but who writes images decides what
 * runs anyway.
 *
 * A file appears under its name when it is whole.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "plugin.h"

#define IMAGE_MAGIC	0x74776447	/* "Gdwt" */

struct header {
	uint32_t	magic;		/* all little-endian */
	uint32_t	version;
	uint64_t	length;		/* of the body */
	uint32_t	crc;		/* of the body */
	uint32_t	reserved;
};
_Static_assert(sizeof(struct header) == 24, "the header has holes");

struct body {
	uint8_t	*data;
	size_t	length;
	size_t	room;
};

static uint8_t *add(struct body *body, size_t length)
{
	size_t room = body->room ? body->room : 4096;
	uint8_t *data;

	while (room < body->length + length)
		room *= 2;
	if (room != body->room) {
		data = realloc(body->data, room);
		if (!data)
			return NULL;
		body->data = data;
		body->room = room;
	}
	data = body->data + body->length;
	body->length += length;
	return data;
}

static void context_name(uint32_t n, char name[32])
{
	snprintf(name, 32, "rdma-%u.img", n);
}

/* ---------------------------------------------------------------- writing -- */

static int write_all(int fd, const void *data, size_t length)
{
	ssize_t done;

	while (length) {
		done = write(fd, data, length);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			errno = done ? errno : EIO;
			return -1;
		}
		data = (const char *)data + done;
		length -= done;
	}
	return 0;
}

static int write_file(const char *name, const struct body *body, uint32_t *crc)
{
	int dir = criu_get_image_dir(), fd, ret;
	struct header header;
	char new[48];

	*crc = crc32_z(0, body->data, body->length);
	header = (struct header){
		.magic = htole32(IMAGE_MAGIC),
		.version = htole32(IMAGE_VERSION),
		.length = htole64(body->length),
		.crc = htole32(*crc),
	};
	snprintf(new, sizeof(new), "%s.new", name);
	fd = openat(dir, new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail("%s cannot be written: %m", name);
	ret = write_all(fd, &header, sizeof(header));
	if (!ret)
		ret = write_all(fd, body->data, body->length);
	if (close(fd))
		ret = -1;
	if (!ret)
		ret = renameat(dir, new, dir, name);
	if (ret) {
		fail("%s cannot be written: %m", name);
		unlinkat(dir, new, 0);
	}
	return ret;
}

static bool add_record(struct body *body, const struct rxe_migr_rec *rec)
{
	RdmaRecordEntry *entry = record_to_message(rec);
	uint32_t length;
	uint8_t *at;

	if (!entry)
		return false;
	length = rdma_record_entry__get_packed_size(entry);
	at = add(body, sizeof(length) + length);
	if (at) {
		memcpy(at, &(uint32_t){ htole32(length) }, sizeof(length));
		rdma_record_entry__pack(entry, at + sizeof(length));
	}
	free_message(entry);
	return at;
}

int write_context(uint32_t n, const struct records *records,
		  RdmaContextImageEntry *entry)
{
	struct body body = {};
	char name[32];
	int ret = -1;
	uint32_t i;

	context_name(n, name);
	for (i = 0; i < records->count; i++) {
		if (!add_record(&body, records->rec[i])) {
			fail("no memory");
			goto free;
		}
	}
	ret = write_file(name, &body, &entry->crc);
	entry->records = records->count;
	entry->length = sizeof(struct header) + body.length;
free:
	free(body.data);
	return ret;
}

int write_inventory(const RdmaInventoryEntry *inventory)
{
	struct body body = {};
	uint32_t crc;
	uint8_t *at;
	int ret;

	at = add(&body, rdma_inventory_entry__get_packed_size(inventory));
	if (!at)
		return fail("no memory");
	rdma_inventory_entry__pack(inventory, at);
	ret = write_file(INVENTORY, &body, &crc);
	free(body.data);
	return ret;
}

/* ---------------------------------------------------------------- reading -- */

static int read_all(int fd, void *data, size_t length)
{
	ssize_t done;

	while (length) {
		done = read(fd, data, length);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			errno = done ? errno : EIO;
			return -1;
		}
		data = (char *)data + done;
		length -= done;
	}
	return 0;
}

/* The body of a file whose header is right, by its descriptor. */
static int read_body(int fd, const char *name, struct body *body, uint32_t *crc)
{
	struct header header;
	struct stat st;

	if (fstat(fd, &st))
		return fail("%s cannot be read: %m", name);
	if ((uint64_t)st.st_size < sizeof(header))
		return fail("%s is truncated: take the checkpoint again", name);
	if (read_all(fd, &header, sizeof(header)))
		return fail("%s cannot be read: %m", name);
	if (le32toh(header.magic) != IMAGE_MAGIC || header.reserved)
		return fail("%s is damaged: its header is none of ours", name);
	if (le32toh(header.version) != IMAGE_VERSION)
		return fail("%s has version %u, and this plugin reads %u: use the plugin that wrote it",
			    name, le32toh(header.version), IMAGE_VERSION);
	body->length = st.st_size - sizeof(header);
	if (le64toh(header.length) != body->length)
		return fail("%s is truncated or damaged: %llu bytes and not the %llu that its header says",
			    name, (unsigned long long)body->length,
			    (unsigned long long)le64toh(header.length));
	body->data = malloc(body->length ? body->length : 1);
	if (!body->data)
		return fail("no memory");
	if (read_all(fd, body->data, body->length)) {
		fail("%s cannot be read: %m", name);
		goto free;
	}
	*crc = crc32_z(0, body->data, body->length);
	if (*crc != le32toh(header.crc)) {
		fail("%s is damaged: its checksum is wrong", name);
		goto free;
	}
	return 0;
free:
	free(body->data);
	return -1;
}

static int read_file(const char *name, struct body *body, uint32_t *crc)
{
	int fd, ret;

	fd = openat(criu_get_image_dir(), name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail("%s cannot be read: %m", name);
	ret = read_body(fd, name, body, crc);
	close(fd);
	return ret;
}

/* The record at *at, which goes on behind it; NULL: there is none. */
static const struct rxe_migr_rec *next_record(const struct body *body, size_t *at)
{
	struct rxe_migr_rec *rec = NULL;
	RdmaRecordEntry *entry;
	uint32_t length;

	if (body->length - *at < sizeof(length))
		return NULL;
	memcpy(&length, body->data + *at, sizeof(length));
	length = le32toh(length);
	*at += sizeof(length);
	if (body->length - *at < length)
		return NULL;
	entry = rdma_record_entry__unpack(NULL, length, body->data + *at);
	*at += length;
	if (entry)
		rec = message_to_record(entry);
	free_message(entry);
	return rec;
}

void free_records(struct records *records)
{
	uint32_t i;

	for (i = 0; i < records->count; i++)
		free((void *)records->rec[i]);
	free(records->rec);
	*records = (struct records){};
}

int read_context(uint32_t n, const RdmaContextImageEntry *entry,
		 struct records *records)
{
	struct body body;
	char name[32];
	size_t at = 0;
	uint32_t crc;

	*records = (struct records){};
	context_name(n, name);
	if (read_file(name, &body, &crc))
		return -1;
	if (crc != entry->crc || sizeof(struct header) + body.length != entry->length) {
		fail("%s is not of the same checkpoint as %s", name, INVENTORY);
		goto free;
	}
	records->rec = calloc(entry->records, sizeof(*records->rec));
	if (entry->records && !records->rec) {
		fail("no memory");
		goto free;
	}
	while (records->count < entry->records) {
		records->rec[records->count] = next_record(&body, &at);
		if (!records->rec[records->count]) {
			fail("%s: record %u makes no sense", name, records->count);
			free_records(records);
			goto free;
		}
		records->count++;
	}
	free(body.data);
	return 0;
free:
	free(body.data);
	return -1;
}

RdmaInventoryEntry *read_inventory(void)
{
	RdmaInventoryEntry *inventory;
	struct body body;
	uint32_t crc;

	if (read_file(INVENTORY, &body, &crc))
		return NULL;
	inventory = rdma_inventory_entry__unpack(NULL, body.length, body.data);
	free(body.data);
	if (!inventory)
		fail("%s makes no sense", INVENTORY);
	return inventory;
}
