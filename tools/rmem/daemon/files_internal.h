/* SPDX-License-Identifier: MIT */
/*
 * For files*.c. Functions that return int return 0, or -1 with store->why.
 */
#ifndef RMEMD_FILES_INTERNAL_H
#define RMEMD_FILES_INTERNAL_H

#include <dirent.h>

#include "files.h"
#include "store_internal.h"

#define INDEX "index.json"
#define SUMS 1024 /* at a time */

/* --------------------------------------------------------------- files.c */

int folder_fault(struct store *store, const char *name);
DIR *open_folder(int folder);
/* Calls @each for each file, until it returns non-zero, which is returned. Closes @dir. */
int each_name(struct store *store, DIR *dir, int (*each)(struct store *, const char *name, void *), void *arg);
/* The number of a log, or 0: it is none. */
uint64_t log_number(const char *name);
int write_index(struct store *store, uint64_t log);

/* -------------------------------------------------------- files_region.c */

/* Of its file, in regions/. An address is never used again, so a file is of one region for ever. */
void name_of(char name[128], const struct region *region);
int region_fault(struct store *store, const char *name);
/* Behind the bytes of a region: the number of the checkpoint, and the sums. */
uint64_t sum_at(const struct region *region, uint64_t page);
uint64_t file_size(const struct region *region);
uint32_t sum_of(const uint8_t *page);
int page_damaged(struct store *store, const char *name, uint64_t page);
/* @bits is made if it is not there. -1: no memory */
int set_bits(uint8_t **bits, const struct region *region, uint64_t from, uint64_t to);
bool has_bit(const uint8_t *bits, uint64_t page);
/* But slabs. */
int each_region(struct store *store, int (*each)(struct store *, struct region *));
/* Is the file there, as it was written last? -1, without store->why: no */
int check_file(struct store *store, struct region *region);

#endif
