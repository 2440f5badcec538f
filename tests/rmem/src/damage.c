// SPDX-License-Identifier: MIT
/*
 * Damage that no crash makes is refused by name, and nothing is changed then; a torn end is no damage. What the disk has no room
 * for is refused, too, and the donor goes on.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rmem.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "store_internal.h"
#include "scenario.h"

#define FLIPS 60
#define CUTS 60
#define PAGES 16
#define TORN (3 * 4096 + 1000) /* of one_region() */

static struct shared *shared;
static char good[256], copy[256];
static uint64_t state;

static uint64_t die(uint64_t sides)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % sides;
}

static uint64_t disk_free; /* 0: enough, but for a moment now and then, so that the store makes room first */

int fstatvfs(int fd, struct statvfs *st)
{
	static unsigned int asked;
	bool full = ++asked % 16 == 0;

	(void)fd;
	*st = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096, .f_blocks = 1 << 30 };
	st->f_bavail = disk_free ? disk_free / 4096 : full ? 0 : 1 << 30;
	return 0;
}

static int failed(const char *what, const char *is)
{
	fprintf(stderr, "rmem-crash: broken: %s: %s\n", what, is);
	return 1;
}

void shell(const char *format, ...)
{
	char command[2000];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (!system(command))
		return;
	fprintf(stderr, "rmem-crash: failed: %s\n", command);
	exit(75);
}

static void copy_folder(void)
{
	shell("rm -rf %s && cp -a %s %s", copy, good, copy);
}

/* The path of the first file in this folder of the copy whose name has that beginning. */
static void path_of(char path[600], const char *folder, const char *beginning)
{
	char below[300];
	struct dirent *entry;
	DIR *dir;

	snprintf(below, sizeof(below), "%s/%s", copy, folder);
	dir = opendir(below);
	path[0] = '\0';
	while (dir && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, beginning, strlen(beginning)) && entry->d_name[0] != '.')
			snprintf(path, 600, "%s/%s", below, entry->d_name);
	if (dir)
		closedir(dir);
	if (!path[0])
		exit(75);
}

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_size;
}

static void flip(const char *path, off_t at, unsigned int bits)
{
	int fd = open(path, O_RDWR);
	unsigned char byte;

	if (fd < 0 || pread(fd, &byte, 1, at) != 1)
		exit(75);
	byte ^= bits;
	if (pwrite(fd, &byte, 1, at) != 1)
		exit(75);
	close(fd);
}

/* It is made if it is not there. @segment: 0 is the default */
static struct store *open_at(const char *dir, uint64_t segment, char **why)
{
	return store_open(&(struct store_options){ .dir = dir, .create = true, .segment = segment }, why);
}

/* The copy must be refused, in a text that has these words. */
static int refused(const char *what, const char *words, const char *more)
{
	char *why = NULL;
	struct store *store = open_at(copy, 0, &why);
	int ret = 0;

	if (store)
		ret = failed(what, "it is not refused");
	else if (!strstr(why, words) || !strstr(why, more) || strncmp(why, copy, strlen(copy)))
		ret = failed(what, why);
	if (store)
		store_close(store);
	free(why);
	return ret;
}

/* The copy must open, as the store was at some time since its last checkpoint; @whole: as it was in the end. */
static int accepted(const char *what, bool whole)
{
	uint64_t units = shared->units, acked = shared->acked, used = shared->used;
	char *why = NULL;
	struct store *store = open_at(copy, 0, &why);
	int ret;

	if (!store) {
		ret = failed(what, why);
		free(why);
		return ret;
	}
	shared->acked = whole ? units : 0;
	ret = model_resolve(shared, store) ? 0 : failed(what, shared->violation);
	store_close(store);
	shared->units = units;
	shared->acked = acked;
	shared->used = used;
	return ret;
}

static int flips(const char *log)
{
	int ret = 0;

	/* The last record only says that what is before it was synced. */
	for (unsigned int i = 0; i < FLIPS && !ret; i++) {
		off_t at = i < 32 ? (off_t)i : (off_t)die(size_of(log) - 136);
		unsigned int bits = 1 + die(255);

		/* Four bytes of the header are reserved. Its checksum covers them, too. */
		flip(log, at, bits);
		ret = refused("a flipped byte of the log", strrchr(log, '/'), "damaged at byte ");
		if (!ret)
			flip(log, at, bits);
	}
	return ret ?: accepted("a log whose flipped bytes are put right", true);
}

static int cuts(void)
{
	char log[600];
	int ret = 0;

	for (unsigned int i = 0; i < CUTS && !ret; i++) {
		off_t size;

		copy_folder();
		path_of(log, "", "log.");
		size = size_of(log);
		if (i % 2 && truncate(log, 32 + die(size - 31)))
			exit(75);
		/* Either the last record is torn, or a file system leaves zeros behind the end. */
		if (i % 2 == 0 && truncate(log, size - 136 - die(100)))
			exit(75);
		if (i % 4 == 0 && truncate(log, size + die(9000)))
			exit(75);
		ret = accepted("a torn end of the log", false);
	}
	return ret;
}

static int index_and_files(void)
{
	char path[600];
	int ret = 0;

	copy_folder();
	path_of(path, "", "index.json");
	for (off_t at = 0; at < size_of(path) && !ret; at++) {
		unsigned int bits = 1 + die(255);

		flip(path, at, bits);
		ret = refused("a flipped byte of the index", "/index.json: ", "damaged");
		if (!ret)
			flip(path, at, bits);
	}
	unlink(path);
	ret = ret ?: refused("no index", "/index.json: ", "missing");
	copy_folder();
	path_of(path, "", "log.");
	unlink(path);
	ret = ret ?: refused("no log", strrchr(path, '/'), "missing");
	copy_folder();
	path_of(path, "regions", "");
	if (truncate(path, size_of(path) - 1))
		exit(75);
	ret = ret ?: refused("a region of another size", strrchr(path, '/'), "damaged");
	unlink(path);
	return ret ?: refused("no region", strrchr(path, '/'), "missing");
}

/* Changes any byte of a region's file: of its pages, of their checksums, or of the checkpoint's number. */
static int region_flips(void)
{
	char path[600];
	int ret = 0;

	copy_folder();
	path_of(path, "regions", "");
	for (unsigned int i = 0; i < FLIPS && !ret; i++) {
		off_t at = i < FLIPS / 2 ? (off_t)die(size_of(path)) : size_of(path) - 1 - (off_t)i % 32;
		unsigned int bits = 1 + die(255);

		flip(path, at, bits);
		ret = refused("a flipped byte of a region", strrchr(path, '/'), "put a copy");
		if (!ret)
			flip(path, at, bits);
	}
	return ret ?: accepted("a region whose flipped bytes are put right", true);
}

/* Makes the log say that a checkpoint was begun. */
static void say_copying(void)
{
	int dir = open(copy, O_RDONLY | O_DIRECTORY);
	char path[600], *why = NULL;
	struct log log;

	path_of(path, "", "log.");
	if (dir < 0 || log_init(&log, dir, copy, &why) || log_open(&log, strtoull(strrchr(path, '.') + 1, NULL, 10)))
		exit(75);
	log_append(&log, &(struct log_entry){ .type = LOG_COPYING }, NULL);
	if (log_sync(&log))
		exit(75);
	log_end(&log);
	close(dir);
}

/* Makes a store of one region in the copy's place. The region's file has 1 in all bytes, the log has 2 for a part of a page. */
static int one_region(char path[600])
{
	struct region *region;
	struct store *store;
	char *why = NULL;

	shell("rm -rf %s", copy);
	store = open_at(copy, 1, &why);
	if (!store || store_alloc(store_owner(store, "one"), 1, PAGES * 4096, 0, &region) || store_sync(store, &why))
		return failed("an empty folder", why);
	path_of(path, "regions", "");
	shell("cp %s %s.old", path, copy);
	memset(region->mem, 1, region->size);
	if (store_flush(region->owner, region->addr, region->size) || store_sync(store, &why))
		return failed("a flush", why);
	store_close(store);
	store = open_at(copy, 0, &why);
	region = store ? region_of_tag(store_owner(store, "one"), 1) : NULL;
	if (!region)
		return failed("one region", why);
	memset(region->mem + TORN, 2, 100);
	if (store_flush(region->owner, region->addr + TORN, 100) || store_sync(store, &why))
		return failed("a flush of some bytes", why);
	store_close(store);
	return 0;
}

/* Without a checkpoint under way each page must be good. During a checkpoint, a page may be torn if the log has bytes for it. */
static int torn_pages(void)
{
	char path[600], *why = NULL;
	struct store *store;
	int ret;

	ret = one_region(path);
	flip(path, TORN, 0xff);
	ret = ret ?: refused("a flipped byte that the log has", strrchr(path, '/'), "damaged in the page at byte 12288");
	say_copying();
	flip(path, TORN + 4096, 0xff);
	ret = ret ?: refused("a flipped byte in a checkpoint", strrchr(path, '/'), "damaged in the page at byte 16384");
	flip(path, TORN + 4096, 0xff);
	if (ret)
		return ret;
	store = open_at(copy, 0, &why);
	if (!store)
		return failed("a torn page", why);
	for (uint64_t i = 0; i < PAGES * 4096 && !ret; i++)
		if (region_of_tag(store_owner(store, "one"), 1)->mem[i] != (i >= TORN && i < TORN + 100 ? 2 : 1))
			ret = failed("a torn page", "another byte");
	store_close(store);
	return ret;
}

/* A file that a later checkpoint has replaced. */
static int old_region(void)
{
	char path[600];
	int ret = one_region(path);

	shell("cp %s.old %s", copy, path);
	ret = ret ?: refused("an old region", strrchr(path, '/'), "older or newer than index.json");
	say_copying();
	return ret ?: refused("an old region in a checkpoint", strrchr(path, '/'), "older or newer than index.json");
}

/* A page changes on the disk while the store is open, and a part of it is written: that gives it no good checksum. */
static int changed_while_open(void)
{
	char path[600], *why = NULL;
	struct region *region;
	struct store *store;
	int ret = one_region(path);

	store = open_at(copy, 1, &why);
	region = store ? region_of_tag(store_owner(store, "one"), 1) : NULL;
	if (ret || !region)
		return failed("one region", why);
	flip(path, TORN + 4096, 0xff);
	memset(region->mem + TORN / 4096 * 4096 + 4096, 3, 8);
	if (store_flush(region->owner, region->addr + TORN / 4096 * 4096 + 4096, 8))
		return failed("a flush of a part of a page", why);
	if (!store_sync(store, &why))
		ret = failed("a page that changed while it was open", "it is given a checksum");
	else if (!strstr(why, "damaged in the page at byte 16384"))
		ret = failed("a page that changed while it was open", why);
	store_close(store);
	return ret;
}

/* Gives this descriptor to the file that has this path now. */
static void reopen(int fd, const char *path)
{
	int other = open(path, O_RDWR);

	if (other < 0)
		other = open(path, O_RDONLY | O_DIRECTORY);
	if (other < 0 || dup2(other, fd) < 0)
		exit(75);
	close(other);
}

/* A process is moved: its descriptors belong to other files then. @without: a file that did not come along; "": all did. */
static int moved(const char *without)
{
	char path[600], *why = NULL;
	enum rmem_status status;
	struct region *region;
	struct store *store;
	int ret = 0;

	copy_folder();
	store = open_at(copy, 0, &why);
	if (!store)
		return failed("a copy", why);
	shell("mv %s %s.1 && cp -a %s.1 %s", copy, copy, copy, copy);
	if (*without)
		shell("rm %s/%s", copy, without);
	path_of(path, "", "index.json");
	reopen(store->index, path);
	path_of(path, "", "log.");
	reopen(store->log.file.fd, path);
	reopen(store->dir, copy);
	snprintf(path, sizeof(path), "%s/regions", copy);
	reopen(store->regions, path);
	if (store_alloc(store_owner(store, "new"), 1, 1, 0, &region))
		exit(75);
	status = store_sync(store, &why);
	if (*without && (status == RMEM_OK || !strstr(why ?: "", "start rmemd there")))
		ret = failed("a move without all files", why ?: "it goes on");
	if (!*without && status)
		ret = failed("a move", why);
	free(why);
	store_close(store);
	shell("rm -rf %s.1", copy);
	return ret;
}

/* What a full disk has left behind the log's end is removed before anything else, which may need the room. */
static int dead_tail(void)
{
	char log[600], region[600];
	off_t size;

	copy_folder();
	path_of(log, "", "log.");
	path_of(region, "regions", "");
	size = size_of(log);
	if (truncate(log, size + 100000) || unlink(region))
		exit(75);
	if (refused("no region", strrchr(region, '/'), "missing"))
		return 1;
	return size_of(log) == size ? 0 : failed("a dead end of the log", "it stays");
}

/* The index of an earlier time beside the log of now. */
static int old_index(void)
{
	char path[600];
	struct region *region;
	struct store *store;
	char *why = NULL;

	copy_folder();
	shell("cp -a %s/index.json %s.index", copy, copy);
	store = open_at(copy, 0, &why);
	if (!store || store_alloc(store_owner(store, "new"), 1, 1, 0, &region) || store_sync(store, &why))
		return failed("a copy", why);
	if (refused("a second rmemd", "another rmemd", ""))
		return 1;
	store_close(store);
	path_of(path, "", "log.");
	shell("mv %s.index %s/index.json", copy, copy);
	return refused("an old index", "/index.json: ", strrchr(path, '/') + 1);
}

/* An index of before transactions had words is read all the same. */
static int index_without_words(void)
{
	struct store *store;
	char path[600], *why = NULL;
	off_t before;

	copy_folder();
	path_of(path, "", "index.json");
	before = size_of(path);
	shell("python3 - %s <<'EOF'\n"
	      "import re, sys, zlib\n"
	      "text = open(sys.argv[1]).read()\n"
	      "text = re.sub('\"last_word\":\"[0-9a-f]*\",', '', text[text.index('\"index\":') + 8:-2])\n"
	      "open(sys.argv[1], 'w').write('{\"crc32\":%%d,\"index\":%%s}\\n' %% (zlib.crc32(text.encode()), text))\n"
	      "EOF", path);
	if (size_of(path) >= before)
		return failed("an index without words", "it was not made");
	store = open_at(copy, 0, &why);
	if (!store)
		return failed("an index without words", why);
	store_close(store);
	return 0;
}

static enum rmem_status copies(struct owner *owner, uint64_t dst, uint64_t src, uint64_t len, unsigned int count)
{
	struct rmem_wire_op op = { .kind = RMEM_OP_CP, .dst = dst, .src = src, .len = len };
	enum rmem_status status = RMEM_OK;

	for (unsigned int i = 0; i < count && !status; i++)
		status = store_queue(owner, &op, 1);
	return status ?: store_go(owner, owner_last_txn(owner) + 1, 0, count);
}

static enum rmem_status frees(struct owner *owner, uint64_t tag)
{
	struct rmem_wire_op op = { .kind = RMEM_OP_FREE, .dst = tag };

	return store_queue(owner, &op, 1) ?: store_go(owner, owner_last_txn(owner) + 1, 0, 1);
}

/* On a disk with little room, only what frees room is accepted. */
static int fill(struct store *store)
{
	struct owner *owner = store_owner(store, ".full");
	struct region *a, *b, *c;
	char *why = NULL;

	if (store_alloc(owner, 1, 4 << 20, 0, &a) || store_alloc(owner, 2, 4 << 20, 0, &b))
		return failed("a disk with room", "no region");
	memset(a->mem, 'a', a->size);
	if (copies(owner, b->addr, a->addr, a->size, 257) != RMEM_FULL || store_queued(owner) || b->mem[0])
		return failed("a transaction of more than 1 GiB", "it is not refused, or something of it happened");
	disk_free = 20 << 20;
	if (store_flush(owner, a->addr, a->size) != RMEM_FULL || copies(owner, b->addr, a->addr, b->size, 1) != RMEM_FULL ||
	    store_queued(owner) || b->mem[0] || store_flush(owner, a->addr, 1 << 20))
		return failed("a disk with little room", "it takes too much, or too little");
	disk_free = 1 << 20;
	if (store_alloc(owner, 3, 4096, 0, &c) != RMEM_FULL || store_flush(owner, a->addr, 1) != RMEM_FULL || frees(owner, 2))
		return failed("a full disk", "it takes something, or frees nothing");
	disk_free = 0;
	if (store_alloc(owner, 3, 4096, 0, &c))
		return failed("a disk with room again", "no region");
	store_undo_alloc(c);
	return store_sync(store, &why) ? failed("a full disk", why) : 0;
}

static int full_disk(void)
{
	char *why = NULL;
	struct store *store;
	struct owner *owner;
	struct region *a;
	int ret;

	shell("rm -rf %s", copy);
	store = open_at(copy, 0, &why);
	ret = store ? fill(store) : failed("an empty folder", why);
	store_close(store);
	if (ret)
		return ret;
	store = open_at(copy, 0, &why);
	if (!store)
		return failed("after a full disk", why);
	owner = store_owner(store, ".full");
	a = region_of_tag(owner, 1);
	if (owner_last_txn(owner) != 1 || !a || a->mem[0] != 'a' || a->mem[(1 << 20) - 1] != 'a' || a->mem[1 << 20] ||
	    region_of_tag(owner, 2) || region_of_tag(owner, 3))
		ret = failed("after a full disk", "something else is there");
	store_close(store);
	return ret;
}

/* Queues so many entries, or as many as it takes. Returns how many. */
static uint64_t fill_queue(struct owner *owner, const struct rmem_wire_op ops[64], uint64_t count)
{
	uint64_t n = 0;

	while (n < count && !store_queue(owner, ops, 64))
		n += 64;
	return n;
}

/* One client can't use up what all need. */
static int limits(void)
{
	struct store_options options = { 0 };
	struct rmem_wire_op ops[64];
	char *why = NULL;
	struct store *store = store_open(&options, &why);
	struct owner *owner = store_owner(store, "many");
	struct rlimit files;
	struct region *region;
	uint64_t n = 0;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = 64;
	setrlimit(RLIMIT_NOFILE, &files);
	while (n < 20000 && !store_alloc(owner, n, 4096, 0, &region))
		n++;
	if (n != STORE_OWNER_REGIONS)
		return failed("many regions", "more or fewer than a client may have");
	for (unsigned int i = 0; i < 64; i++)
		ops[i] = (struct rmem_wire_op){ .kind = RMEM_OP_CP, .dst = region_of_tag(owner, 0)->addr,
						.src = region_of_tag(owner, 1)->addr, .len = 1 };
	/* The part of the queue that is not free takes what the client has left, and so no region can have that. */
	owner_quota(owner, owner_used(owner) + STORE_QUEUE_FREE);
	n = fill_queue(owner, ops, 8 << 20);
	if (n != 2 * STORE_QUEUE_FREE / 32 || owner_memory(owner))
		return failed("a long queue", "it takes more or less than the client's memory");
	/* Without a quota it becomes longer, and happens. */
	owner_quota(owner, 0);
	n += fill_queue(owner, ops, 1 << 20);
	region_of_tag(owner, 1)->mem[0] = 'q';
	if (n != store_queued(owner) || n != 3 << 20 || store_go(owner, 1, 0, n) || region_of_tag(owner, 0)->mem[0] != 'q' ||
	    owner_memory(owner) < 1 << 20)
		return failed("a long queue", "it does not happen");
	store_close(store);
	return 0;
}

/* A donor takes no transaction that would keep all others waiting, whether it persists (@dir) or not. */
static int too_many_records(const char *dir)
{
	struct rmem_wire_op ops[64];
	char *why = NULL;
	struct store *store;
	struct owner *owner;
	struct region *region;
	uint64_t n;

	shell("rm -rf %s", copy);
	store = open_at(dir, 0, &why);
	if (!store)
		return failed("many records", why);
	owner = store_owner(store, "many");
	if (store_alloc(owner, 1, 8192, 0, &region))
		return failed("many records", "there is no region");
	for (unsigned int i = 0; i < 64; i++)
		ops[i] = (struct rmem_wire_op){ .kind = RMEM_OP_CP, .dst = region->addr, .src = region->addr + 4096, .len = 1 };
	n = fill_queue(owner, ops, 4000000);
	if (n < 4000000 || store_go(owner, 1, 0, n) != RMEM_FULL || owner_last_txn(owner))
		return failed("many records", "they are not refused");
	n = fill_queue(owner, ops, 64);
	if (store_go(owner, 1, 0, n) || store_sync(store, &why))
		return failed("many records", "nothing can be done after them");
	store_close(store);
	return 0;
}

/* The same for what is not logged: all of a donor that does not persist, and slabs of one that does. (fill() has the rest.) */
static int too_much_to_copy(const char *dir)
{
	char *why = NULL;
	struct store *store;
	struct owner *owner;
	struct region *a, *b;

	shell("rm -rf %s", copy);
	store = open_at(dir, 0, &why);
	if (!store)
		return failed("much to copy", why);
	owner = store_owner(store, "much");
	if (store_alloc(owner, 1, 4 << 20, RMEM_SLAB, &a) || store_alloc(owner, 2, 4 << 20, RMEM_SLAB, &b))
		return failed("much to copy", "there is no slab");
	memset(a->mem, 'a', a->size);
	if (copies(owner, b->addr, a->addr, a->size, 257) != RMEM_FULL || store_queued(owner) || b->mem[0])
		return failed("much to copy", "it is not refused, or something of it happened");
	if (copies(owner, b->addr, a->addr, a->size, 256) || b->mem[0] != 'a')
		return failed("much to copy", "1 GiB is refused");
	store_close(store);
	return 0;
}

int damage_run(struct shared *sh, const char *folder, uint64_t seed)
{
	struct scenario scenario = { .shared = sh, .dir = good, .seed = seed, .turns = 40 };
	char log[600];
	int ret;

	shared = sh;
	state = seed;
	snprintf(good, sizeof(good), "%s/good", folder);
	snprintf(copy, sizeof(copy), "%s/copy", folder);
	/* This runs scenarios until one has two checkpoints, and a log of some size. */
	do {
		shell("rm -rf %s", good);
		memset(sh, 0, offsetof(struct shared, plan));
		if (scenario_run(&scenario))
			return failed("a scenario without a crash", sh->violation);
		scenario.seed++;
		copy_folder();
		path_of(log, "", "log.");
	} while (size_of(log) < 20000 || sh->checkpoints < 2);
	ret = flips(log) ?: cuts() ?: index_and_files() ?: region_flips() ?: torn_pages() ?: old_region() ?: changed_while_open() ?:
	      moved("") ?: moved("regions/*") ?: dead_tail() ?: old_index() ?: index_without_words() ?: full_disk() ?: limits() ?: too_many_records(copy) ?:
	      too_many_records(NULL) ?: too_much_to_copy(copy) ?: too_much_to_copy(NULL);
	if (!ret)
		printf("rmem-crash: damage: %d flips refused, %d torn ends accepted\n", FLIPS, CUTS);
	return ret;
}
