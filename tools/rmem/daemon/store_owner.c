// SPDX-License-Identifier: MIT
/*
 * The owners of regions, that is clients, by their names.
 */
#include <stdlib.h>
#include <string.h>
#include <rmem.h>
#include "store_internal.h"

#define REGIONS_MAX (3 * STORE_OWNER_REGIONS) /* a process has 65530 mappings, unless vm.max_map_count is higher */

static bool name_good(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = strnlen(name, RMEM_NAME_SIZE);

	return len && len < RMEM_NAME_SIZE && strspn(name, allowed) == len;
}

struct owner *store_owner(struct store *store, const char *name)
{
	struct owner *owner;

	for (owner = store->owners; owner; owner = owner->next)
		if (!strcmp(owner->name, name))
			return owner;
	owner = name_good(name) ? calloc(1, sizeof(*owner)) : NULL;
	if (!owner)
		return NULL;
	strcpy(owner->name, name);
	owner->store = store;
	owner->next_addr = ADDR_FIRST;
	*store->last_owner = owner;
	store->last_owner = &owner->next;
	return owner;
}

const char *owner_name(const struct owner *owner)
{
	return owner->name;
}

uint64_t owner_last_txn(const struct owner *owner)
{
	return owner->last_txn;
}

uint64_t owner_last_word(const struct owner *owner)
{
	return owner->last_word;
}

struct region *owner_regions(const struct owner *owner)
{
	return owner->count ? owner->by_tag[0] : NULL;
}

void owner_quota(struct owner *owner, uint64_t bytes)
{
	owner->quota = bytes;
}

int store_each_owner(struct store *store, int (*each)(struct owner *, void *), void *arg)
{
	int ret = 0;

	for (struct owner *o = store->owners; o && !ret; o = o->next)
		ret = each(o, arg);
	return ret;
}

uint64_t owner_used(const struct owner *owner)
{
	return owner->mapped;
}

uint64_t owner_memory(const struct owner *owner)
{
	uint64_t room = memory_room(owner->store), left = left_of(owner->quota, owner->mapped + queue_charge(owner->queue_room));

	return left < room ? left : room;
}

uint64_t owner_room(const struct owner *owner)
{
	size_t regions = 0;

	for (const struct owner *o = owner->store->owners; o; o = o->next)
		regions += o->count;
	return owner->count >= STORE_OWNER_REGIONS || regions >= REGIONS_MAX ? 0 : owner_memory(owner);
}
