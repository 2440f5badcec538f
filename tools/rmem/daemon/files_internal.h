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
/* Calls @each for each file until it returns non-zero, and returns that. Closes @dir. */
int each_name(struct store *store, DIR *dir, int (*each)(struct store *, const char *name, void *), void *arg);
/* The number in the name of a log, or 0 if it is the name of no log. */
uint64_t log_number(const char *name);
int write_index(struct store *store, uint64_t log);

/* -------------------------------------------------------- files_region.c */

/* The name of the region's file in regions/. An address is never used again, so a name belongs to one region for ever. */
void name_of(char name[128], const struct region *region);
int region_fault(struct store *store, const char *name);
/* Where the file has the sum of a page: behind the bytes of the region and the number of the checkpoint. */
uint64_t sum_at(const struct region *region, uint64_t page);
uint64_t file_size(const struct region *region);
uint32_t sum_of(const uint8_t *page);
int page_damaged(struct store *store, const char *name, uint64_t page);
/* Sets the bits of the pages from @from to before @to. Makes *@bits if it is NULL. -1: there is no memory */
int set_bits(uint8_t **bits, const struct region *region, uint64_t from, uint64_t to);
bool has_bit(const uint8_t *bits, uint64_t page);
/* Calls @each for each region that is not a slab, until it returns non-zero, and returns that. */
int each_region(struct store *store, int (*each)(struct store *, struct region *));
/* Is the region's file as it was written last? 0: yes, or the region has no file yet. -1, without store->why: no */
int check_file(struct store *store, struct region *region);

#endif
