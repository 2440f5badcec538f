/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Which process has the memory of a region, and registers it again at the destination. The plugin and godwit both ask here.
 */
#ifndef COMMON_REGION_H
#define COMMON_REGION_H

#include <stdbool.h>
#include <sys/types.h>

enum region_fate {
	REGION_MOVES,
	REGION_STAYS,
	REGION_UNMAPPED,	/* it stays, too, but that may pass */
};

#define REGION_WHY_LEN	160

/*
 * The region belongs to its owner, the process that has registered it (ibv_record_owner()), if that still has all of its memory
 * mapped, with the access that the region needs. If the owner has ended (0), the region belongs to the first process that has the
 * context open and the memory mapped, shared. If the driver does not say who the owner is (-1), the region belongs to the first
 * that has the context open and the memory mapped: parents come before their children, and after fork() the parent keeps the
 * pages that were pinned.
 *
 * owner_stays: the owner is no process of the tree. find(): looks for the process among the owner, or, without one, among those
 * that have the context open; it must have all of the memory mapped, with all flags in needs (MEMORY_...). why: gets the reason if
 * the region does not move.
 */
enum region_fate region_fate(pid_t owner, bool owner_stays, unsigned int access, bool (*find)(unsigned int needs, void *arg),
			     void *arg, char why[REGION_WHY_LEN]);

#endif /* COMMON_REGION_H */
