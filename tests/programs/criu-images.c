// SPDX-License-Identifier: MIT
/*
 * criu-images FOLDER [SEED]: records of every kind, full of random bytes, go into image files and come back unchanged. An image
 * is refused if any one byte is changed, or if it is cut anywhere. If all checksums fit the changed bytes, it is refused or read
 * as other records. A GID that is too short is refused. This is the plugin's code without CRIU.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "plugin.h"

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(cond) ((cond) ? (void)0 : DIE("line %d: not so: %s", __LINE__, #cond))

#define HEADER	24	/* before the body; its bytes from 16 to 19 are the body's CRC-32 */

static int dir;
static int lines, changes;

int criu_get_image_dir(void)
{
	return dir;
}

void print_on_level(unsigned int level, const char *format, ...)
{
	(void)level;
	(void)format;
	lines++;
}

/* Bytes of a record that belong to none of its fields: reserved. */
static const struct {
	uint16_t	type;
	size_t		size;
	size_t		reserved, length;
} types[] = {
#define TYPE(TYPE, name) { RXE_MIGR_REC_##TYPE, sizeof(struct rxe_migr_rec_##name), 0, 0 }
#define WITH_RESERVED(TYPE, name) { RXE_MIGR_REC_##TYPE, sizeof(struct rxe_migr_rec_##name), \
		offsetof(struct rxe_migr_rec_##name, reserved), \
		sizeof(((struct rxe_migr_rec_##name *)0)->reserved) }
	TYPE(ASYNC_FILE, event_file), TYPE(COMP_CHANNEL, event_file), TYPE(PD, pd), TYPE(MR, mr),
	WITH_RESERVED(CQ, cq), TYPE(SRQ, srq), TYPE(QP, qp), WITH_RESERVED(RESP_RES, resp_res),
	TYPE(RECV_WQE, recv_wqe), WITH_RESERVED(ALT_AV, alt_av), TYPE(RING, ring), TYPE(EVENT, event),
	WITH_RESERVED(AH, ah), WITH_RESERVED(MCAST, mcast), WITH_RESERVED(MW, mw),
	{ 999, sizeof(struct rxe_migr_rec), 0, 0 },	/* unknown */
};

static struct rxe_migr_rec *new_record(int kind, size_t rest)
{
	size_t size = types[kind].size + rest, i;
	struct rxe_migr_rec *rec = malloc(size);

	for (i = 0; i < size; i++)
		((uint8_t *)rec)[i] = 1 + random() % 255;
	memset((char *)rec + types[kind].reserved, 0, types[kind].length);
	rec->type = htole16(types[kind].type);
	rec->length = htole32(size);
	return rec;
}

static struct rxe_migr_rec *new_context(void)
{
	struct rxe_migr_rec_context *rec = calloc(1, sizeof(*rec));

	rec->hdr.type = htole16(RXE_MIGR_REC_CONTEXT);
	rec->hdr.length = htole32(sizeof(*rec));
	strcpy(rec->device, "rxe0");
	return &rec->hdr;
}

static void same(const struct records *a, const struct records *b)
{
	uint32_t i;

	MUST(a->count == b->count);
	for (i = 0; i < a->count; i++) {
		MUST(a->rec[i]->length == b->rec[i]->length);
		if (memcmp(a->rec[i], b->rec[i], le32toh(a->rec[i]->length)))
			DIE("a record of type %u came back different", le16toh(a->rec[i]->type));
	}
}

static void write_bytes(const char *name, const void *data, size_t size)
{
	int fd = openat(dir, name, O_WRONLY | O_TRUNC);

	MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
}

static void must_refuse(uint32_t n, const RdmaContextImageEntry *entry)
{
	struct records records;
	int before = lines;

	if (n == UINT32_MAX)
		MUST(!read_inventory());
	else
		MUST(read_context(n, entry, &records));
	MUST(lines == before + 1);
	changes++;
}

static uint8_t *read_bytes(const char *name, off_t *size)
{
	int fd = openat(dir, name, O_RDONLY);
	struct stat st;
	uint8_t *data;

	MUST(fd >= 0 && !fstat(fd, &st));
	data = malloc(st.st_size);
	MUST(read(fd, data, st.st_size) == st.st_size);
	close(fd);
	*size = st.st_size;
	return data;
}

/* Changes each byte, and cuts the image at many lengths: each time it is refused with one line. */
static void damage(const char *name, uint32_t n, const RdmaContextImageEntry *entry)
{
	off_t size, i;
	uint8_t *data = read_bytes(name, &size);

	for (i = 0; i < size; i++) {
		const uint8_t was = data[i];

		data[i] ^= 1 << random() % 8;
		write_bytes(name, data, size);
		must_refuse(n, entry);
		data[i] = was;
		if (i > 64 && i % 97)
			continue;
		write_bytes(name, data, i);
		must_refuse(n, entry);
	}
	free(data);
}

/* Whatever was read must be whole. This program is built so that a read beyond it is noticed. */
static void take(uint32_t n, const RdmaContextImageEntry *entry)
{
	int before = lines;

	if (n == UINT32_MAX) {
		RdmaInventoryEntry *inventory = read_inventory();

		MUST(lines == before + !inventory);
		if (inventory)
			rdma_inventory_entry__free_unpacked(inventory, NULL);
	} else {
		struct records records;
		uint32_t sum = 0;

		MUST(!!read_context(n, entry, &records) == lines - before);
		for (uint32_t i = 0; i < records.count; i++)
			sum = crc32_z(sum, (const void *)records.rec[i], le32toh(records.rec[i]->length));
		free_records(&records);
	}
	changes++;
}

/* Changes each byte of the body, and the checksums with it. */
static void forge(const char *name, uint32_t n, const RdmaContextImageEntry *entry)
{
	RdmaContextImageEntry known = *entry;
	off_t size, i;
	uint8_t *data = read_bytes(name, &size);

	for (i = HEADER; i < size; i++) {
		const uint8_t was = data[i];
		uint32_t crc;

		data[i] ^= 1 << random() % 8;
		known.crc = crc32_z(0, data + HEADER, size - HEADER);
		crc = htole32(known.crc);
		memcpy(data + 16, &crc, sizeof(crc));
		write_bytes(name, data, size);
		take(n, &known);
		data[i] = was;
	}
	free(data);
}

/* A device in the inventory has GIDs of 16 bytes. */
static void shorten(RdmaInventoryEntry *inventory, RdmaGidEntry *gid)
{
	size_t length;

	for (length = 0; length < 16; length += 15) {
		gid->gid.len = length;
		MUST(!write_inventory(inventory));
		must_refuse(UINT32_MAX, NULL);
	}
	gid->gid.len = 16;
	MUST(!write_inventory(inventory));
}

/* Files are added to an inventory that is written, one by one. The rest of it stays. */
static void extend(const RdmaInventoryEntry *inventory)
{
	RdmaInventoryEntry more = RDMA_INVENTORY_ENTRY__INIT, *read;
	RdmaFileEntry file = RDMA_FILE_ENTRY__INIT, *files = &file;
	RdmaCmFileEntry cm_file = RDMA_CM_FILE_ENTRY__INIT, *cm_files = &cm_file;

	more.version = inventory->version;
	more.files = &files;
	more.cm_files = &cm_files;
	for (file.id = 1; file.id <= 3; file.id++) {
		cm_file.id = 10 + file.id;
		more.n_files = 1;
		more.n_cm_files = 0;
		MUST(!extend_inventory(&more));
		more.n_files = 0;
		more.n_cm_files = 1;
		MUST(!extend_inventory(&more));
	}
	read = read_inventory();
	MUST(read && read->version == inventory->version && read->n_contexts == 1 && read->n_devices == 1);
	MUST(read->n_files == 3 && read->files[0]->id == 1 && read->files[2]->id == 3);
	MUST(read->n_cm_files == 3 && read->cm_files[0]->id == 11 && read->cm_files[2]->id == 13);
	MUST(read->n_needs == 1 && !strcmp(read->needs[0], inventory->needs[0]));
	MUST(read->has_stop_time && read->stop_time == inventory->stop_time);
	MUST(read->has_pause_timeout && read->pause_timeout == inventory->pause_timeout);
	rdma_inventory_entry__free_unpacked(read, NULL);
}

/* Each kind twice, once with data after it */
static struct records new_records(void)
{
	struct records records = { .rec = calloc(2 * ARRAY_SIZE(types) + 1, sizeof(*records.rec)) };

	records.rec[records.count++] = new_context();
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		records.rec[records.count++] = new_record(i, 0);
		records.rec[records.count++] = new_record(i, 300);
	}
	return records;
}

int main(int argc, char **argv)
{
	RdmaContextImageEntry entry = RDMA_CONTEXT_IMAGE_ENTRY__INIT, *entries = &entry;
	RdmaDeviceEntry device = RDMA_DEVICE_ENTRY__INIT, *devices = &device;
	RdmaGidEntry gids[] = { RDMA_GID_ENTRY__INIT, RDMA_GID_ENTRY__INIT }, *of_device[] = { &gids[0], &gids[1] };
	RdmaInventoryEntry inventory = RDMA_INVENTORY_ENTRY__INIT, *read;
	struct records records, back;
	char *needs = NEEDS_RDMA_CM;
	size_t i;

	MUST(argc >= 2);
	if (argc > 2)
		srandom(atoi(argv[2]));
	dir = open(argv[1], O_DIRECTORY | O_RDONLY);
	MUST(dir >= 0);

	records = new_records();
	MUST(!write_context(7, &records, &entry));
	MUST(!read_context(7, &entry, &back));
	same(&records, &back);
	free_records(&back);

	inventory.version = IMAGE_VERSION;
	inventory.contexts = (void *)&entries;
	inventory.n_contexts = 1;
	for (i = 0; i < ARRAY_SIZE(gids); i++) {
		gids[i].gid = (ProtobufCBinaryData){ 16, (uint8_t *)"an address of 16" };
		gids[i].type = "RoCE v2";
	}
	device.name = "rxe0";
	device.node = "uverbs0";
	device.gids = of_device;
	device.n_gids = ARRAY_SIZE(gids);
	inventory.devices = &devices;
	inventory.n_devices = 1;
	inventory.needs = &needs;
	inventory.n_needs = 1;
	inventory.has_stop_time = inventory.has_pause_timeout = true;
	inventory.stop_time = UINT64_MAX;
	inventory.pause_timeout = 60;
	MUST(!write_inventory(&inventory));
	read = read_inventory();
	MUST(read && read->n_contexts == 1 && read->contexts[0]->crc == entry.crc && !lines);
	rdma_inventory_entry__free_unpacked(read, NULL);
	shorten(&inventory, &gids[1]);
	extend(&inventory);

	damage("rdma-7.img", 7, &entry);
	damage(INVENTORY, UINT32_MAX, NULL);
	write_bytes(INVENTORY, "", 0);
	MUST(extend_inventory(&inventory) && lines == changes + 1);
	MUST(!write_context(7, &records, &entry) && !write_inventory(&inventory));
	extend(&inventory);
	forge("rdma-7.img", 7, &entry);
	forge(INVENTORY, UINT32_MAX, &entry);
	free_records(&records);
	printf("%d changes\n", changes);
	return 0;
}
