// SPDX-License-Identifier: MIT
/*
 * Allocates regions, and takes slabs away.
 */
#include <rmem.h>
#include "store_internal.h"

static enum rmem_status may_alloc(struct owner *owner, uint64_t size, uint32_t flags)
{
	struct cost cost = { 0 };

	if (owner->next_addr > ADDR_END || size > ADDR_END - owner->next_addr)
		return RMEM_FULL;
	if ((owner->store->options.huge ? round_up(size, STRIDE) : size) > owner_room(owner))
		return RMEM_FULL;
	add_cost(&cost, 0, 0);
	/* The region's file needs a block for the number of its checkpoint, even while nothing else is in the file. */
	if (!(flags & RMEM_SLAB))
		cost.files += RMEM_PAGE;
	return may_log(owner->store, &cost, RESERVE);
}

enum rmem_status store_alloc(struct owner *owner, uint64_t tag, uint64_t size, uint32_t flags, struct region **region)
{
	enum rmem_status status;
	uint64_t addr = owner->next_addr;

	if (!size)
		return RMEM_EMPTY;
	*region = region_of_tag(owner, tag);
	if (*region) /* a region's size is rounded up to whole pages */
		return size <= (*region)->size && round_up(size, RMEM_PAGE) == (*region)->size && flags == (*region)->flags ?
		       RMEM_OK : RMEM_OTHER_SIZE;
	if (size > SIZE_MAX_REGION)
		return RMEM_FULL;
	size = round_up(size, RMEM_PAGE);
	status = may_alloc(owner, size, flags);
	if (status)
		return status;
	*region = region_make(owner, tag, addr, size, flags);
	if (!*region)
		return RMEM_FULL;
	if (!owner->store->path)
		return RMEM_OK;
	if (flags & RMEM_SLAB)
		owner_log(owner, (struct log_entry){ .type = LOG_NEXT, .addr = owner->next_addr }, NULL);
	else
		owner_log(owner, (struct log_entry){ .type = LOG_ALLOC, .addr = addr, .number = tag, .length = size,
		       .flags = flags }, NULL);
	return RMEM_OK;
}

void store_undo_alloc(struct region *region)
{
	if (is_logged(region))
		owner_log(region->owner, (struct log_entry){ .type = LOG_FREE, .number = region->tag }, NULL);
	region_end(region);
}

enum rmem_status store_evict(struct owner *owner, uint64_t tag)
{
	struct region *region = region_of_tag(owner, tag);

	if (!region || !(region->flags & RMEM_SLAB))
		return RMEM_NO_TAG;
	region_end(region);
	return RMEM_OK;
}
