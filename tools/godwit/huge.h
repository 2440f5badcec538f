/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Huge pages (hugetlbfs): how many a process tree has, and how many are free on this host.
 */
#ifndef GODWIT_HUGE_H
#define GODWIT_HUGE_H

#include <jansson.h>
#include <stdint.h>
#include "proc.h"

#define HUGE_DIR "/sys/kernel/mm/hugepages/hugepages-%llukB"

/* Bytes, by the size of the pages, of mappings that have no file with a name: {"2097152": 6291456} */
json_t *huge_used(const struct tree *tree);
/* How many pages of this size somebody may still map. */
uint64_t huge_free(uint64_t size);

#endif /* GODWIT_HUGE_H */
