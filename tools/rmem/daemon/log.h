/* SPDX-License-Identifier: MIT */
/*
 * The log: files of records, each with a number (lsn) one higher than the last, and a checksum.
 *
 * One file is in use at a time, log.<number of its first record>. Records that belong together, a transaction's, lie one
 * behind the other, and all but the last are marked LOG_MORE: they count only if the last one is there, too.
 *
 * What a power cut leaves of records that were not synced may be any part of them, also a later one without an earlier one.
 * So each record says up to which number all was synced when it was made. A record that can't be read is damage if a later
 * one says that it was synced, and else the end of the log.
 *
 * Records lie beside bytes of clients, who may write there what looks like a record. So each has its file's random number.
 */
#ifndef RMEMD_LOG_H
#define RMEMD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rmem/wire.h>

#define LOG_DATA_MAX (1u << 20)

enum log_type {
	LOG_DATA = 1,	/* addr, and the bytes */
	LOG_ALLOC = 2,	/* addr, number: the tag, length, flags */
	LOG_FREE = 3,	/* number: the tag */
	LOG_COMMIT = 4, /* number: the transaction */
	LOG_NEXT = 5,	/* addr: of the next region; those below it are never given again */
	LOG_CLOSED = 6, /* all before it is synced */
	LOG_COPYING = 7, /* from here on the files of regions were written to */
};

struct log_entry {
	enum log_type type;
	bool more;
	uint32_t flags;
	uint32_t size; /* of the payload; log_append() makes the rest */
	uint64_t addr;
	uint64_t number;
	uint64_t length;
	const char *owner;
	uint64_t lsn;
	uint64_t synced;
};

struct log_file {
	int fd;
	uint64_t id;	/* random */
	uint64_t first; /* lsn */
	uint64_t size;	/* without the buffer, and without what counts not */
};

struct log {
	int dir;
	const char *path; /* of the folder */
	struct log_file file;
	uint64_t lsn;	 /* of the last record */
	uint64_t synced; /* of the last durable one */
	uint64_t logged; /* bytes */
	uint64_t copying; /* the first LOG_COPYING of the file in use; 0: it has none */
	uint8_t *buf;
	size_t used;
	char **why; /* where the first failure is written; nothing goes to disk after it */
	bool failed; /* the same, also if there was no memory for words */
};

/* All that can fail return 0, or -1 with *log->why. */
int log_init(struct log *log, int dir, const char *path, char **why);
void log_end(struct log *log);

/* A new file, durable but for its name in the folder. */
int log_create(struct log *log, uint64_t first, struct log_file *file);
/* Opens it and finds the end of what counts; what is behind it goes. */
int log_open(struct log *log, uint64_t first);
/* Goes on in another file; all is synced. */
void log_switch(struct log *log, const struct log_file *file);

/* So many bytes of a file do LOG_DATA records with @len bytes need at most, or any record with none. */
uint64_t log_size(uint64_t len);
/* Returns where the payload's copy is, until the next call. */
void *log_append(struct log *log, const struct log_entry *entry, const void *payload);
int log_sync(struct log *log);

/* What counts, in order; until @each returns non-zero, which is -1 with *log->why. */
int log_each(struct log *log, int (*each)(const struct log_entry *, const void *payload, uint64_t at, void *arg), void *arg);
int log_damaged(struct log *log, uint64_t at);

#define LOG_HEADER_SIZE 32u

/* Keeps the first. Always -1. */
int store_fault(char **why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* 0, or -1 with errno. */
int write_all(int fd, const void *buf, size_t size, uint64_t at);
/* 1, 0 (the file ends before), or -1 with errno. */
int read_all(int fd, void *buf, size_t size, uint64_t at);

#endif
