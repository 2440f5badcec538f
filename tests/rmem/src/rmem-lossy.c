// SPDX-License-Identifier: MIT
/*
 * LD_PRELOAD=build/tests/rmem-lossy.so: a disk below $LOSSY_DIR that forgets what was not synced.
 *
 * The files show every change, as a page cache does. Beside them the library keeps the durable part: a file's bytes after its
 * fsync() or fdatasync(), and a folder's names after its fsync(). Each later change is pending. Calls that change or sync are
 * counted. At call number $LOSSY_CRASH, whose own change is pending, too, the library throws a die, seeded with $LOSSY_SEED, for
 * each pending change: the change is kept, or lost, or a part of a write is kept, some sectors of 512 bytes or a prefix. The
 * library changes the folder accordingly, and ends the process with _exit(99). Or call number $LOSSY_FAIL fails with EIO, and the
 * crash comes soon after.
 *
 * Everything that exists when the process begins is durable. Limits: one thread; no write(), dup(), mmap(), O_APPEND, links, or
 * renames from one folder to another. Changes of names are independent of each other, which is worse than on file systems, but a
 * rename happens wholly or not at all, as file systems promise. A sector is whole, and synced data stays as it is.
 *
 * If $LOSSY_FAIL is odd, there is no memory for a text from then on.
 *
 * If $LOSSY_FAIL is a multiple of 3, no call fails. The next write to a file in a folder of a folder is lost later, in the
 * write-back. A sync of the same descriptor says so. After its close() only syncfs() does, as in Linux when the inode was dropped.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512
#define FDS 65536

struct node;

struct names {
	struct name {
		char *name;
		struct node *node;
	} *at;
	size_t count;
};

struct change {
	enum { WRITE, SIZE, LINK, UNLINK, RENAME } kind;
	uint64_t at, size;
	uint8_t *data;
	char *name, *to;
	struct node *node;
};

struct node {
	bool folder;
	struct node *parent;
	uint8_t *data; /* durable */
	size_t size;
	struct names now, durable;
	struct change *changes;
	size_t count;
};

static struct node root = { .folder = true };
static char top[PATH_MAX];
static struct node *nodes[FDS];
static uint64_t calls, syncs, crash_at, fail_at, state;
static int lost_by = -1; /* the descriptor whose write was lost */
static bool lost;	 /* the same, and the descriptor is closed */

/* Not static: a program may ask, by dlsym(). */
uint64_t lossy_calls(void);
uint64_t lossy_syncs(void);
void lossy_crash(void);

static int (*real_openat)(int, const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_mkdirat)(int, const char *, mode_t);

static void bad(const char *what)
{
	dprintf(2, "rmem-lossy: %s: the model has not got that\n", what);
	abort();
}

static char *copy(const char *text)
{
	return strcpy(malloc(strlen(text) + 1), text);
}

static uint64_t die(uint64_t sides)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % sides;
}

/* ---------------------------------------------------------------- model -- */

static struct name *find(struct names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (!strcmp(names->at[i].name, name))
			return &names->at[i];
	return NULL;
}

static void names_remove(struct names *names, const char *name)
{
	struct name *is = find(names, name);

	if (is)
		*is = names->at[--names->count];
}

static void names_set(struct names *names, const char *name, struct node *node)
{
	names_remove(names, name);
	names->at = reallocarray(names->at, names->count + 1, sizeof(*names->at));
	names->at[names->count++] = (struct name){ copy(name), node };
}

static void resize(struct node *node, size_t size)
{
	node->data = realloc(node->data, size + 1);
	if (size > node->size)
		memset(node->data + node->size, 0, size - node->size);
	node->size = size;
}

static void store_bytes(struct node *node, uint64_t at, const uint8_t *data, size_t size)
{
	if (at + size > node->size)
		resize(node, at + size);
	memcpy(node->data + at, data, size);
}

/* A change becomes durable. */
static void settle(struct node *node, const struct change *c)
{
	struct name *is;

	switch (c->kind) {
	case WRITE:
		store_bytes(node, c->at, c->data, c->size);
		break;
	case SIZE:
		resize(node, c->size);
		break;
	case LINK:
		names_set(&node->durable, c->name, c->node);
		break;
	case UNLINK:
	case RENAME:
		is = find(&node->durable, c->name);
		if (is && is->node == c->node)
			names_remove(&node->durable, c->name);
		if (c->kind == RENAME)
			names_set(&node->durable, c->to, c->node);
		break;
	}
}

static void settle_all(struct node *node)
{
	for (size_t i = 0; i < node->count; i++) {
		settle(node, &node->changes[i]);
		free(node->changes[i].data);
	}
	node->count = 0;
}

static void pend(struct node *node, struct change change)
{
	node->changes = reallocarray(node->changes, node->count + 1, sizeof(change));
	node->changes[node->count++] = change;
}

static struct node *new_node(struct node *parent, bool folder)
{
	struct node *node = calloc(1, sizeof(*node));

	node->folder = folder;
	node->parent = parent;
	return node;
}

static void load(struct node *node, const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char below[PATH_MAX];
		struct node *child;
		struct stat st;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(below, sizeof(below), "%.2000s/%s", path, entry->d_name);
		lstat(below, &st);
		if (S_ISLNK(st.st_mode))
			continue; /* not in the model, and gone after a crash */
		child = new_node(node, S_ISDIR(st.st_mode));
		names_set(&node->now, entry->d_name, child);
		names_set(&node->durable, entry->d_name, child);
		if (child->folder) {
			load(child, below);
		} else {
			int fd = real_openat(AT_FDCWD, below, O_RDONLY);

			resize(child, st.st_size);
			if (read(fd, child->data, child->size) != (ssize_t)child->size)
				bad("a file that can't be read");
			real_close(fd);
		}
	}
	if (dir)
		closedir(dir);
}

static void empty(const char *path, bool itself)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char below[PATH_MAX];

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(below, sizeof(below), "%.2000s/%s", path, entry->d_name);
		if (real_unlinkat(AT_FDCWD, below, 0))
			empty(below, true);
	}
	if (dir)
		closedir(dir);
	if (itself)
		real_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

static void save(struct node *node, const char *path)
{
	for (size_t i = 0; i < node->durable.count; i++) {
		struct node *child = node->durable.at[i].node;
		char below[PATH_MAX];

		snprintf(below, sizeof(below), "%.2000s/%s", path, node->durable.at[i].name);
		if (child->folder) {
			real_mkdirat(AT_FDCWD, below, 0700);
			save(child, below);
		} else {
			int fd = real_openat(AT_FDCWD, below, O_WRONLY | O_CREAT | O_TRUNC, 0600);

			if (fd < 0 || (child->size && real_pwrite(fd, child->data, child->size, 0) != (ssize_t)child->size))
				bad("a file that can't be written");
			real_close(fd);
		}
	}
}

/* ---------------------------------------------------------------- crash -- */

static void settle_part(struct node *node, const struct change *c)
{
	uint64_t until = die(c->size + 1), density = 1 + die(7);

	if (!die(3)) {
		store_bytes(node, c->at, c->data, until);
		return;
	}
	for (uint64_t at = 0; at < c->size;) {
		uint64_t part = SECTOR - (c->at + at) % SECTOR;

		if (part > c->size - at)
			part = c->size - at;
		if (die(8) < density)
			store_bytes(node, c->at + at, c->data + at, part);
		at += part;
	}
}

/* @mode: 0: all is lost, 1: all is kept, else each change has its own fate. */
static void decide(struct node *node, unsigned int mode)
{
	for (size_t i = 0; i < node->count; i++) {
		unsigned int fate = mode < 2 ? mode : die(4);

		if (fate > 1 && node->changes[i].kind == WRITE)
			settle_part(node, &node->changes[i]);
		else if (fate & 1)
			settle(node, &node->changes[i]);
	}
	node->count = 0;
}

static void decide_all(struct node *node, unsigned int mode)
{
	struct names both[] = { node->now, node->durable };

	/* A file that was unlinked meanwhile is only in durable. A file that was made meanwhile is only in now. */
	for (size_t i = 0; i < 2; i++)
		for (size_t j = 0; j < both[i].count; j++)
			decide_all(both[i].at[j].node, mode);
	for (size_t i = 0; i < node->count; i++)
		if (node->changes[i].node)
			decide_all(node->changes[i].node, mode);
	decide(node, mode);
}

void lossy_crash(void)
{
	decide_all(&root, die(8));
	empty(top, false);
	save(&root, top);
	_exit(99);
}

uint64_t lossy_calls(void)
{
	return calls;
}

uint64_t lossy_syncs(void)
{
	return syncs;
}

/* true: this call fails. */
static bool step(void)
{
	calls++;
	if (calls == crash_at)
		lossy_crash();
	if (calls != fail_at || fail_at % 3 == 0)
		return false;
	crash_at = calls + 1 + die(8); /* if the process goes on all the same */
	errno = EIO;
	return true;
}

/* ---------------------------------------------------------------- paths -- */

/* The folder in which a path ends, and its last name; NULL: none of ours. "" is the folder itself. */
static struct node *resolve(int dir, const char *path, char name[NAME_MAX + 1])
{
	struct node *node = dir >= 0 && dir < FDS ? nodes[dir] : NULL;
	size_t len = strlen(top);

	name[0] = '\0';
	if (path[0] == '/' || dir == AT_FDCWD) {
		if (strncmp(path, top, len) || (path[len] && path[len] != '/'))
			return NULL;
		node = &root;
		path += len;
	}
	while (node && *path) {
		size_t part = strcspn(path, "/");

		if (part && !(part == 1 && path[0] == '.')) {
			if (name[0]) {
				struct name *is = find(&node->now, name);

				node = is && is->node->folder ? is->node : NULL;
			}
			name[0] = '\0';
			if (part == 2 && !strncmp(path, "..", 2))
				node = node ? node->parent : NULL;
			else
				snprintf(name, NAME_MAX + 1, "%.*s", (int)part, path);
		}
		path += part + (path[part] == '/');
	}
	return node;
}

static struct node *child_of(struct node *folder, const char *name)
{
	struct name *is;

	if (!name[0])
		return folder;
	is = find(&folder->now, name);
	return is ? is->node : NULL;
}

static struct node *node_of(int fd)
{
	return fd >= 0 && fd < FDS ? nodes[fd] : NULL;
}

/* ---------------------------------------------------------------- calls -- */

__attribute__((constructor)) static void begin(void)
{
	const char *crash = getenv("LOSSY_CRASH"), *fail = getenv("LOSSY_FAIL"), *seed = getenv("LOSSY_SEED");
	const char *dir = getenv("LOSSY_DIR");

	real_openat = dlsym(RTLD_NEXT, "openat");
	real_close = dlsym(RTLD_NEXT, "close");
	real_pwrite = dlsym(RTLD_NEXT, "pwrite");
	real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
	real_fsync = dlsym(RTLD_NEXT, "fsync");
	real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
	real_renameat = dlsym(RTLD_NEXT, "renameat");
	real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
	real_mkdirat = dlsym(RTLD_NEXT, "mkdirat");
	if (!dir || !realpath(dir, top))
		bad("LOSSY_DIR");
	crash_at = crash ? strtoull(crash, NULL, 10) : 0;
	fail_at = fail ? strtoull(fail, NULL, 10) : 0;
	state = seed ? strtoull(seed, NULL, 10) * 2654435761u + 1 : 1;
	die(2);
	load(&root, top);
}

/* What an open() changes. -1: it fails. */
static int open_changes(struct node *folder, const char *name, int flags)
{
	struct node *node = child_of(folder, name);

	if (flags & (O_APPEND | O_TMPFILE) & ~O_DIRECTORY)
		bad("such an open()");
	if (!node && (flags & O_CREAT)) {
		node = new_node(folder, false);
		names_set(&folder->now, name, node);
		pend(folder, (struct change){ .kind = LINK, .name = copy(name), .node = node });
		if (step()) {
			names_remove(&folder->now, name);
			folder->count--;
			return -1;
		}
	} else if (node && (flags & O_TRUNC) && !(flags & O_EXCL)) {
		pend(node, (struct change){ .kind = SIZE });
		if (step()) {
			node->count--;
			return -1;
		}
	}
	return 0;
}

int openat(int dir, const char *path, int flags, ...)
{
	char name[NAME_MAX + 1];
	struct node *folder = resolve(dir, path, name), *node;
	mode_t mode = 0;
	va_list args;
	int fd;

	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if (!folder) {
		fd = real_openat(dir, path, flags, mode);
		if (fd >= 0 && fd < FDS)
			nodes[fd] = NULL;
		return fd;
	}
	if (open_changes(folder, name, flags))
		return -1;
	node = child_of(folder, name);
	fd = real_openat(dir, path, flags, mode);
	if (fd >= FDS || (fd >= 0 && !node))
		bad("a descriptor");
	if (fd >= 0)
		nodes[fd] = node;
	return fd;
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return openat(AT_FDCWD, path, flags, mode);
}

int close(int fd)
{
	if (fd >= 0 && fd < FDS)
		nodes[fd] = NULL;
	if (fd >= 0 && fd == lost_by) {
		lost_by = -1;
		lost = true;
	}
	return real_close(fd);
}

int closedir(DIR *dir)
{
	static int (*real)(DIR *);
	int fd = dirfd(dir);

	if (!real)
		real = dlsym(RTLD_NEXT, "closedir");
	if (fd >= 0 && fd < FDS)
		nodes[fd] = NULL;
	return real(dir);
}

static bool is_lost(const struct node *node)
{
	static bool was;

	if (was || !fail_at || fail_at % 3 || calls < fail_at || !node->parent->parent || !node->parent->parent->parent)
		return false;
	was = true;
	return true;
}

ssize_t pwrite(int fd, const void *buf, size_t size, off_t at)
{
	struct node *node = node_of(fd);
	uint8_t *data;

	if (!node)
		return real_pwrite(fd, buf, size, at);
	data = malloc(size + 1);
	memcpy(data, buf, size);
	pend(node, (struct change){ .kind = WRITE, .at = at, .size = size, .data = data });
	if (step())
		return -1; /* the data of a write that failed may be on the disk or not, like that of one that was not synced */
	if (is_lost(node)) {
		node->count--;
		lost_by = fd;
		return size;
	}
	return real_pwrite(fd, buf, size, at);
}

ssize_t write(int fd, const void *buf, size_t size)
{
	static ssize_t (*real)(int, const void *, size_t);

	if (!real)
		real = dlsym(RTLD_NEXT, "write");
	if (node_of(fd))
		bad("write()");
	return real(fd, buf, size);
}

int ftruncate(int fd, off_t size)
{
	struct node *node = node_of(fd);

	if (node) {
		pend(node, (struct change){ .kind = SIZE, .size = size });
		if (step()) {
			node->count--;
			return -1;
		}
	}
	return real_ftruncate(fd, size);
}

/* The real disk need not be waited for. What a failed sync has not written, no later sync writes either, as in Linux. */
static int sync_node(struct node *node, int fd)
{
	syncs++;
	if (step() || fd == lost_by) {
		lost_by = -1;
		decide(node, die(8));
		errno = EIO;
		return -1;
	}
	settle_all(node);
	return 0;
}

int fsync(int fd)
{
	struct node *node = node_of(fd);

	return node ? sync_node(node, fd) : real_fsync(fd);
}

int fdatasync(int fd)
{
	struct node *node = node_of(fd);

	return node ? sync_node(node, fd) : real_fdatasync(fd);
}

/* Tells of what was lost, and makes nothing else durable. */
int syncfs(int fd)
{
	if (!node_of(fd))
		bad("syncfs()");
	if (!step() && !lost)
		return 0;
	lost = false;
	errno = EIO;
	return -1;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	char name[NAME_MAX + 1], other[NAME_MAX + 1];
	struct node *folder = resolve(from_dir, from, name), *node;

	if (!folder)
		return real_renameat(from_dir, from, to_dir, to);
	if (resolve(to_dir, to, other) != folder)
		bad("a rename to another folder");
	node = child_of(folder, name);
	if (node) {
		pend(folder, (struct change){ .kind = RENAME, .name = copy(name), .to = copy(other), .node = node });
		if (step()) {
			folder->count--;
			return -1;
		}
		names_remove(&folder->now, name);
		names_set(&folder->now, other, node);
	}
	return real_renameat(from_dir, from, to_dir, to);
}

int rename(const char *from, const char *to)
{
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int dir, const char *path, int flags)
{
	char name[NAME_MAX + 1];
	struct node *folder = resolve(dir, path, name), *node;

	node = folder ? child_of(folder, name) : NULL;
	if (node) {
		pend(folder, (struct change){ .kind = UNLINK, .name = copy(name), .node = node });
		if (step()) {
			folder->count--;
			return -1;
		}
		names_remove(&folder->now, name);
	}
	return real_unlinkat(dir, path, flags);
}

int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
	char name[NAME_MAX + 1];
	struct node *folder = resolve(dir, path, name), *node;

	if (folder && !child_of(folder, name)) {
		node = new_node(folder, true);
		pend(folder, (struct change){ .kind = LINK, .name = copy(name), .node = node });
		names_set(&folder->now, name, node);
		if (step()) {
			folder->count--;
			names_remove(&folder->now, name);
			return -1;
		}
	}
	return real_mkdirat(dir, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

static bool speechless(void)
{
	return fail_at % 2 && calls >= fail_at;
}

int vasprintf(char **text, const char *format, va_list args)
{
	static int (*real)(char **, const char *, va_list);

	if (!real)
		real = dlsym(RTLD_NEXT, "vasprintf");
	return speechless() ? -1 : real(text, format, args);
}

char *strdup(const char *text)
{
	return speechless() ? NULL : copy(text);
}
