/* SPDX-License-Identifier: MIT */
/*
 * The log: files of records. Each record has a checksum, and a number (lsn) that is one higher than the last record's.
 *
 * One file is in use at a time, log.<number of its first record>. The records of a transaction lie one behind the other, and all
 * but the last have @more set. They count only if the last one is there, too.
 *
 * After a power cut, any part of the records that were not synced may be there, also a later record without an earlier one.
 * So each record says up to which number all records were synced when it was made. A record that can't be read is damaged if a
 * later record says that it was synced. Otherwise the log ends there.
 *
 * Records contain bytes of clients, and a client may write bytes that look like a record. So each record has the random number
 * of its file.
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
	LOG_COMMIT = 4, /* number: the transaction, addr: its word (0: written by an older rmemd) */
	LOG_NEXT = 5,	/* addr: the next region's; lower addresses are never given again */
	LOG_CLOSED = 6, /* all records before this one are synced */
	LOG_COPYING = 7, /* the files of regions are written to after this */
};

struct log_entry {
	enum log_type type;
	bool more;
	uint32_t flags;
	uint32_t size; /* of the payload. log_append() makes lsn and synced itself */
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
	uint64_t size;	/* of the part that counts, without what is in the buffer */
};

struct log {
	int dir;
	const char *path; /* of the folder */
	struct log_file file;
	uint64_t lsn;	 /* of the last record */
	uint64_t synced; /* of the last durable one */
	uint64_t logged; /* bytes */
	uint64_t copying; /* the lsn of the first LOG_COPYING in the file in use; 0: it has none */
	uint8_t *buf;
	size_t used;
	char **why; /* where the first failure is written; nothing goes to disk after it */
	bool failed; /* there was a failure, even if there was no memory for *why */
};

/* All that can fail return 0, or -1 with *log->why. */
int log_init(struct log *log, int dir, const char *path, char **why);
void log_end(struct log *log);

/* Makes a new file. The file is durable, but its name in the folder is not yet. */
int log_create(struct log *log, uint64_t first, struct log_file *file);
/* Opens a log, finds the last record that counts, and cuts off everything behind it. */
int log_open(struct log *log, uint64_t first);
/* Goes on in another file. All records must be synced before. */
void log_switch(struct log *log, const struct log_file *file);

/* How many bytes of a file LOG_DATA records with @len bytes need at most. With 0: what any other record needs at most. */
uint64_t log_size(uint64_t len);
/* Returns the payload's copy in the buffer, which is there until the next call. */
void *log_append(struct log *log, const struct log_entry *entry, const void *payload);
int log_sync(struct log *log);

/* Calls @each for each record that counts, in order. If @each returns non-zero, with *log->why, this ends and returns -1. */
int log_each(struct log *log, int (*each)(const struct log_entry *, const void *payload, uint64_t at, void *arg), void *arg);
int log_damaged(struct log *log, uint64_t at);

#define LOG_HEADER_SIZE 32u

/* Keeps the first failure. Always returns -1. */
int store_fault(char **why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* 0, or -1 with errno. */
int write_all(int fd, const void *buf, size_t size, uint64_t at);
/* 1, 0 (the file ends before), or -1 with errno. */
int read_all(int fd, void *buf, size_t size, uint64_t at);

#endif
