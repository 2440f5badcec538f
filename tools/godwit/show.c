// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit show: the RDMA part of a checkpoint, as the CRIU plugin wrote it. Which fields there are is taken
 * from the messages' own descriptors.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>
#include "godwit.h"
#include "rdma.h"
#include "rdma.pb-c.h"
#include "records.h"
#include "text.h"

#define IMAGE_MAGIC	0x74776447

struct header {
	uint32_t magic, version;
	uint64_t length;
	uint32_t crc, reserved;
};

struct image {
	char *data;
	size_t length;
};

/* ------------------------------------------------------------- messages -- */

static json_t *message_json(const ProtobufCMessage *message);

static json_t *bytes_json(const ProtobufCBinaryData *bytes)
{
	char text[INET6_ADDRSTRLEN];
	json_t *json;
	char *hex;

	if (bytes->len == 16 && inet_ntop(AF_INET6, bytes->data, text, sizeof(text)))
		return json_string(text);
	hex = xcalloc(2, bytes->len + 1);
	for (size_t i = 0; i < bytes->len; i++)
		sprintf(hex + 2 * i, "%02x", bytes->data[i]);
	json = json_string(hex);
	free(hex);
	return json;
}

static size_t value_size(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_UINT64: return sizeof(uint64_t);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
	default: return sizeof(uint32_t);
	}
}

static json_t *value_json(ProtobufCType type, const void *at)
{
	switch (type) {
	case PROTOBUF_C_TYPE_UINT64: return json_integer(*(const uint64_t *)at);
	case PROTOBUF_C_TYPE_STRING: return text_json(*(char *const *)at);
	case PROTOBUF_C_TYPE_BYTES: return bytes_json(at);
	case PROTOBUF_C_TYPE_MESSAGE: return message_json(*(ProtobufCMessage *const *)at);
	default: return json_integer(*(const uint32_t *)at);
	}
}

static json_t *array_json(const ProtobufCFieldDescriptor *f, const char *items, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, value_json(f->type, items + i * value_size(f->type)));
	return array;
}

static bool present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *f)
{
	const char *base = (const char *)message;

	if (f->label != PROTOBUF_C_LABEL_OPTIONAL)
		return true;
	if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE)
		return *(void *const *)(base + f->offset);
	return *(const protobuf_c_boolean *)(base + f->quantifier_offset);
}

static json_t *message_json(const ProtobufCMessage *message)
{
	const char *base = (const char *)message;
	json_t *object = json_object();

	for (unsigned int i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &message->descriptor->fields[i];

		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			json_object_set_new(object, f->name, array_json(f, *(char *const *)(base + f->offset),
				*(const size_t *)(base + f->quantifier_offset)));
		else if (present(message, f))
			json_object_set_new(object, f->name, value_json(f->type, base + f->offset));
	}
	return object;
}

/* --------------------------------------------------------------- images -- */

/* The body of an image. */
static int read_image(const char *dir, const char *name, struct image *image)
{
	char *path = xasprintf("%s/%s", dir, name);
	FILE *f = fopen(path, "re");
	struct header h = { 0 };
	struct stat st;
	int ret = 0;

	*image = (struct image){ 0 };
	if (!f || fstat(fileno(f), &st))
		ret = fault("%s: %s", path, strerror(errno));
	else if (fread(&h, sizeof(h), 1, f) != 1 || le32toh(h.magic) != IMAGE_MAGIC)
		ret = fault("%s: it is no image of ours", path);
	else if (le64toh(h.length) != (uint64_t)st.st_size - sizeof(h))
		ret = fault("%s: it is truncated", path);
	if (!ret) {
		image->length = le64toh(h.length);
		image->data = xcalloc(1, image->length);
		if (image->length && fread(image->data, image->length, 1, f) != 1)
			ret = fault("%s: it can't be read", path);
		else if (crc32_z(0, (uint8_t *)image->data, image->length) != le32toh(h.crc))
			ret = fault("%s: it is damaged: its checksum is wrong", path);
	}
	if (f)
		fclose(f);
	free(path);
	if (ret) {
		free(image->data);
		image->data = NULL;
	}
	return ret;
}

static json_t *inventory_json(const char *dir)
{
	RdmaInventoryEntry *inventory;
	struct image image;
	json_t *json;

	if (read_image(dir, "rdma.img", &image))
		return NULL;
	inventory = rdma_inventory_entry__unpack(NULL, image.length, (uint8_t *)image.data);
	free(image.data);
	if (!inventory) {
		fault("%s/rdma.img: it makes no sense", dir);
		return NULL;
	}
	json = message_json(&inventory->base);
	rdma_inventory_entry__free_unpacked(inventory, NULL);
	return json;
}

/* A record: the fields of its inner message are put beside its type. */
static json_t *record_of(RdmaRecordEntry *entry)
{
	json_t *object = message_json(&entry->base), *value;
	const char *key;

	json_object_set_new(object, "type", json_string(record_kind_name(entry->type)));
	json_object_foreach(object, key, value)
		if (json_is_object(value)) {
			json_incref(value);
			json_object_del(object, key);
			json_object_update(object, value);
			json_decref(value);
			break;
		}
	return object;
}

static json_t *context_json(const char *dir, size_t n)
{
	char *name = xasprintf("rdma-%zu.img", n);
	json_t *array = json_array();
	struct image image;
	size_t at = 0;
	int ret = read_image(dir, name, &image);

	while (!ret && at + 4 <= image.length) {
		RdmaRecordEntry *entry = NULL;
		uint32_t length;

		memcpy(&length, image.data + at, 4);
		length = le32toh(length);
		at += 4;
		if (length <= image.length - at)
			entry = rdma_record_entry__unpack(NULL, length, (uint8_t *)image.data + at);
		if (!entry) {
			ret = fault("%s/%s: record %zu makes no sense", dir, name, json_array_size(array));
			break;
		}
		at += length;
		json_array_append_new(array, record_of(entry));
		rdma_record_entry__free_unpacked(entry, NULL);
	}
	free(image.data);
	free(name);
	if (ret) {
		json_decref(array);
		return NULL;
	}
	return array;
}

/* ------------------------------------------------------------ for people -- */

static void print_fields(json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value) {
		char *text;

		if (json_is_array(value))
			continue;
		text = json_is_string(value) ? xstrdup(json_string_value(value)) :
					       json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
		printf(" %s %s", key, text);
		free(text);
	}
	putchar('\n');
}

static void print_list(json_t *list, const char *what)
{
	json_t *object;
	size_t i;

	json_array_foreach(list, i, object) {
		printf("%s", what);
		print_fields(object);
	}
}

static void print(json_t *inventory, json_t *contexts, bool all)
{
	json_t *records, *record;
	size_t i, j;

	printf("checkpoint");
	print_fields(inventory);
	print_list(json_object_get(inventory, "devices"), "device");
	print_list(json_object_get(inventory, "tasks"), "process");
	json_array_foreach(contexts, i, records) {
		printf("context %zu, rdma-%zu.img\n", i, i);
		json_array_foreach(records, j, record)
			record_print_saved(stdout, record, all);
	}
}

const struct option show_options[] = {
	{ "all", no_argument, NULL, 'a' },
	{ "json", no_argument, NULL, 'j' },
	{ }
};

int cmd_show(int argc, char **argv)
{
	json_t *inventory, *contexts = json_array(), *records;
	bool json = false, all = false;
	const char *images;
	int c;

	while ((c = getopt_long(argc, argv, "ja", show_options, NULL)) != -1) {
		json |= c == 'j';
		all |= c == 'a';
		if (c == '?')
			usage();
	}
	images = only_argument(argc, argv, optind, "checkpoint: give its folder");
	inventory = inventory_json(images);
	if (!inventory)
		return failed_as(json, EXIT_REFUSED);
	for (size_t i = 0; i < json_array_size(json_object_get(inventory, "contexts")); i++) {
		records = context_json(images, i);
		if (!records)
			return failed_as(json, EXIT_REFUSED);
		json_array_append_new(contexts, records);
	}
	if (json) {
		json_object_set_new(inventory, "records", contexts);
		json_dumpf(inventory, stdout, JSON_INDENT(1));
		putchar('\n');
	} else {
		print(inventory, contexts, all);
	}
	return EXIT_OK;
}
