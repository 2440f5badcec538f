// SPDX-License-Identifier: GPL-2.0
/*
 * Image files. Each is a header and a body. The header has the body's length
 * and CRC-32. The inventory has the length and CRC-32 of all other files, which
 * shows that all are of one checkpoint. CRC-32 finds every flipped byte and
 * every burst of up to 32 bits. It does not stop anybody from forging an image,
 * but whoever can write images decides what runs anyway.
 *
 * A file appears under its name when it is whole. The inventory grows after that.
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

/*
 * A file that is being written. Each piece is written at once: a large buffer
 * would need new pages, and a checkpoint would wait for them.
 */
struct out {
	const char	*name;
	char		new[48];
	int		fd;
	struct header	header;
};

static int not_written(const struct out *out)
{
	return fail("%s cannot be written: %m", out->name);
}

static int begin_file(struct out *out, const char *name)
{
	*out = (struct out){ .name = name };
	snprintf(out->new, sizeof(out->new), "%s.new", name);
	out->fd = openat(criu_get_image_dir(), out->new,
			 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	/* room for the header */
	if (out->fd < 0 || write_all(out->fd, &out->header, sizeof(out->header)))
		return not_written(out);
	return 0;
}

static int put(struct out *out, const void *data, size_t length)
{
	out->header.crc = crc32_z(out->header.crc, data, length);
	out->header.length += length;
	return write_all(out->fd, data, length) ? not_written(out) : 0;
}

static int write_header(struct out *out)
{
	struct header header = {
		.magic = htole32(IMAGE_MAGIC),
		.version = htole32(IMAGE_VERSION),
		.length = htole64(out->header.length),
		.crc = htole32(out->header.crc),
	};

	return lseek(out->fd, 0, SEEK_SET) ? -1 :
		write_all(out->fd, &header, sizeof(header));
}

/* Write the header, unless something has failed before, and close the file. */
static int finish_file(struct out *out, int failed)
{
	int ret = failed;

	if (!ret && write_header(out))
		ret = not_written(out);
	if (out->fd >= 0 && close(out->fd) && !ret)
		ret = not_written(out);
	return ret;
}

/* Give the file its name; or, if something has failed, remove it. */
static int end_file(struct out *out, int failed)
{
	int dir = criu_get_image_dir(), ret = finish_file(out, failed);

	if (!ret && renameat(dir, out->new, dir, out->name))
		ret = not_written(out);
	if (ret)
		unlinkat(dir, out->new, 0);
	return ret;
}

/* Memory that each record uses in turn. */
struct room {
	uint8_t	*data;
	size_t	size;
};

static int make_room(struct room *room, size_t size)
{
	uint8_t *data;

	if (size <= room->size)
		return 0;
	data = realloc(room->data, size);
	if (!data)
		return fail("no memory");
	room->data = data;
	room->size = size;
	return 0;
}

static int put_record(struct out *out, struct room *room,
		      const struct rxe_migr_rec *rec)
{
	RdmaRecordEntry *entry = record_to_message(rec);
	uint32_t length;
	int ret;

	if (!entry)
		return fail("no memory");
	length = rdma_record_entry__get_packed_size(entry);
	ret = make_room(room, sizeof(length) + length);
	if (!ret) {
		memcpy(room->data, &(uint32_t){ htole32(length) }, sizeof(length));
		rdma_record_entry__pack(entry, room->data + sizeof(length));
		ret = put(out, room->data, sizeof(length) + length);
	}
	free_message(entry);
	return ret;
}

int write_context(uint32_t n, const struct records *records,
		  RdmaContextImageEntry *entry)
{
	struct room room = {};
	struct out out;
	char name[32];
	uint32_t i;
	int ret;

	context_name(n, name);
	ret = begin_file(&out, name);
	for (i = 0; !ret && i < records->count; i++)
		ret = put_record(&out, &room, records->rec[i]);
	free(room.data);
	entry->crc = out.header.crc;
	entry->records = records->count;
	entry->length = sizeof(struct header) + out.header.length;
	return end_file(&out, ret);
}

static struct out written;	/* the inventory, as far as it is written */

static int put_inventory(struct out *out, const RdmaInventoryEntry *inventory)
{
	size_t length = rdma_inventory_entry__get_packed_size(inventory);
	uint8_t *data = malloc(length ? length : 1);
	int ret;

	if (!data)
		return fail("no memory");
	rdma_inventory_entry__pack(inventory, data);
	ret = put(out, data, length);
	free(data);
	return ret;
}

int write_inventory(const RdmaInventoryEntry *inventory)
{
	int ret = begin_file(&written, INVENTORY);

	if (!ret)
		ret = put_inventory(&written, inventory);
	return end_file(&written, ret);
}

/* To protobuf, messages one behind the other are one message. */
int extend_inventory(const RdmaInventoryEntry *more)
{
	struct out *out = &written;
	off_t end = sizeof(struct header) + out->header.length;
	int ret;

	out->fd = openat(criu_get_image_dir(), INVENTORY, O_WRONLY | O_CLOEXEC);
	if (out->fd < 0)
		return not_written(out);
	ret = lseek(out->fd, 0, SEEK_END) == end ? put_inventory(out, more) :
	      fail("%s has changed since it was written: take the checkpoint again",
		   out->name);
	return finish_file(out, ret);
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

/* A file that is being read. */
struct in {
	const char	*name;
	int		fd;
	struct header	header;
	uint64_t	left;		/* of the body */
	uint32_t	crc;		/* of the bytes read so far */
};

static int check_header(struct in *in)
{
	struct header *header = &in->header;
	struct stat st;

	if (fstat(in->fd, &st))
		return fail("%s cannot be read: %m", in->name);
	if ((uint64_t)st.st_size < sizeof(*header))
		return fail("%s is truncated: take the checkpoint again", in->name);
	if (read_all(in->fd, header, sizeof(*header)))
		return fail("%s cannot be read: %m", in->name);
	if (le32toh(header->magic) != IMAGE_MAGIC || header->reserved)
		return fail("%s is damaged: its header is none of ours", in->name);
	if (le32toh(header->version) != IMAGE_VERSION)
		return fail("%s has version %u, and this plugin reads %u: use the plugin that wrote it",
			    in->name, le32toh(header->version), IMAGE_VERSION);
	in->left = st.st_size - sizeof(*header);
	if (le64toh(header->length) != in->left)
		return fail("%s is truncated or damaged: %llu bytes and not the %llu that its header says",
			    in->name, (unsigned long long)in->left,
			    (unsigned long long)le64toh(header->length));
	return 0;
}

static int open_file(struct in *in, const char *name)
{
	*in = (struct in){ .name = name };
	in->fd = openat(criu_get_image_dir(), name, O_RDONLY | O_CLOEXEC);
	if (in->fd < 0)
		return fail("%s cannot be read: %m", name);
	if (!check_header(in))
		return 0;
	close(in->fd);
	return -1;
}

/*
 * Says nothing if it fails: in a damaged file a record may seem to be longer
 * than the rest. close_file() then says that the checksum is wrong.
 */
static int get(struct in *in, void *data, size_t length)
{
	if (length > in->left || read_all(in->fd, data, length))
		return -1;
	in->left -= length;
	in->crc = crc32_z(in->crc, data, length);
	return 0;
}

/*
 * Read the rest. Returns 0 if the whole file is as it was written. Only then
 * may the caller use what it has read.
 */
static int close_file(struct in *in)
{
	uint8_t rest[4096];
	int ret = 0;

	while (!ret && in->left)
		ret = get(in, rest, in->left < sizeof(rest) ? in->left : sizeof(rest));
	if (ret)
		fail("%s cannot be read: %m", in->name);
	else if (in->crc != le32toh(in->header.crc))
		ret = fail("%s is damaged: its checksum is wrong", in->name);
	close(in->fd);
	return ret;
}

/* The next record, or NULL. */
static const struct rxe_migr_rec *get_record(struct in *in, struct room *room)
{
	struct rxe_migr_rec *rec;
	RdmaRecordEntry *entry;
	uint32_t length;

	if (get(in, &length, sizeof(length)))
		return NULL;
	length = le32toh(length);
	if (length > in->left || make_room(room, length) ||
	    get(in, room->data, length))
		return NULL;
	entry = rdma_record_entry__unpack(NULL, length, room->data);
	rec = entry ? message_to_record(entry) : NULL;
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
	const struct rxe_migr_rec *rec = NULL;
	struct room room = {};
	char name[32];
	struct in in;
	int ret;

	*records = (struct records){};
	context_name(n, name);
	if (open_file(&in, name))
		return -1;
	records->rec = calloc(entry->records, sizeof(*records->rec));
	if (entry->records && !records->rec) {
		close(in.fd);
		return fail("no memory");
	}
	while (records->count < entry->records &&
	       (rec = get_record(&in, &room)))
		records->rec[records->count++] = rec;
	free(room.data);
	ret = close_file(&in);
	if (!ret && (in.crc != entry->crc ||
		     sizeof(struct header) + le64toh(in.header.length) != entry->length))
		ret = fail("%s is not of the same checkpoint as %s", name, INVENTORY);
	if (!ret && records->count < entry->records)
		ret = fail("%s: record %u makes no sense", name, records->count);
	if (ret)
		free_records(records);
	return ret;
}

static int check_gids(const RdmaInventoryEntry *inventory)
{
	const RdmaDeviceEntry *device;
	size_t i, j;

	for (i = 0; i < inventory->n_devices; i++) {
		device = inventory->devices[i];
		for (j = 0; j < device->n_gids; j++)
			if (device->gids[j]->gid.len != 16)
				return fail("%s: a GID of %s is not whole",
					    INVENTORY, device->name);
	}
	return 0;
}

RdmaInventoryEntry *read_inventory(void)
{
	RdmaInventoryEntry *inventory = NULL;
	uint8_t *data;
	size_t length;
	struct in in;
	int ret;

	if (open_file(&in, INVENTORY))
		return NULL;
	length = in.left;
	data = malloc(length ? length : 1);
	if (!data || get(&in, data, length))
		fail(data ? "%s cannot be read" : "%s: no memory", INVENTORY);
	ret = close_file(&in);
	if (!ret && data) {
		inventory = rdma_inventory_entry__unpack(NULL, length, data);
		if (!inventory)
			fail("%s makes no sense", INVENTORY);
	}
	free(data);
	if (inventory && check_gids(inventory)) {
		rdma_inventory_entry__free_unpacked(inventory, NULL);
		inventory = NULL;
	}
	return inventory;
}
