// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <rmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

struct step {
	uint8_t did, last, owner;
	uint64_t number; /* a tag, or a transaction */
	uint64_t addr, size;
};

struct is {
	bool there;
	uint64_t addr, size;
	uint8_t *bytes;
};

struct model {
	struct {
		uint64_t last_txn;
		struct is region[TAGS];
	} owner[OWNERS];
	char differs[300];
};

const char *owner_of(unsigned int i)
{
	static const char *const names[OWNERS] = { "anna", ".b.2", "carl_3" };

	return names[i];
}

void model_did(struct shared *shared, enum did did, bool last, unsigned int owner, uint64_t number, uint64_t addr,
	       uint64_t size, const void *bytes)
{
	struct step step = { did, last, owner, number, addr, size };
	uint64_t payload = did == DID_WRITE ? size : 0;

	if (shared->used + sizeof(step) + payload > PLAN_SIZE) {
		fprintf(stderr, "rmem-crash: the plan is full\n");
		exit(75);
	}
	memcpy(shared->plan + shared->used, &step, sizeof(step));
	if (payload)
		memcpy(shared->plan + shared->used + sizeof(step), bytes, payload);
	shared->used += sizeof(step) + payload;
	if (did == DID_ALLOC && addr + size > shared->next_top[owner])
		shared->next_top[owner] = addr + size;
	shared->units += last;
}

void model_acked(struct shared *shared)
{
	shared->acked = shared->units;
	memcpy(shared->top, shared->next_top, sizeof(shared->top));
}

/* Applies one step; returns the offset of the next one. */
static uint64_t apply(struct model *model, const struct shared *shared, uint64_t at, bool *last)
{
	struct step step;
	const uint8_t *bytes = shared->plan + at + sizeof(step);
	struct is *regions, *r;

	memcpy(&step, shared->plan + at, sizeof(step));
	regions = model->owner[step.owner].region;
	switch (step.did) {
	case DID_ALLOC:
		regions[step.number] = (struct is){ true, step.addr, step.size, calloc(1, step.size) };
		break;
	case DID_WRITE:
		for (r = regions; r < regions + TAGS; r++)
			if (r->there && step.addr >= r->addr && step.addr - r->addr < r->size)
				memcpy(r->bytes + (step.addr - r->addr), bytes, step.size);
		break;
	case DID_FREE:
		free(regions[step.number].bytes);
		regions[step.number] = (struct is){ 0 };
		break;
	case DID_TXN:
		model->owner[step.owner].last_txn = step.number;
		break;
	}
	*last = step.last;
	return at + sizeof(step) + (step.did == DID_WRITE ? step.size : 0);
}

static uint64_t apply_unit(struct model *model, const struct shared *shared, uint64_t at)
{
	bool last = false;

	while (!last)
		at = apply(model, shared, at, &last);
	return at;
}

static bool differs(struct model *model, const char *owner, uint64_t tag, const char *what, uint64_t is, uint64_t wanted)
{
	snprintf(model->differs, sizeof(model->differs), "%s, tag %" PRIu64 ": %s is %#" PRIx64 ", not %#" PRIx64, owner,
		 tag, what, is, wanted);
	return true;
}

static bool region_differs(struct model *model, const char *owner, uint64_t tag, const struct is *is,
			   const struct region *region)
{
	if (!region || !is->there)
		return !region != !is->there && differs(model, owner, tag, "whether it is there", region != NULL, is->there);
	if (region->addr != is->addr || region->size != is->size)
		return differs(model, owner, tag, "the address", region->addr, is->addr);
	for (uint64_t i = 0; i < is->size; i++)
		if (region->mem[i] != is->bytes[i])
			return differs(model, owner, tag, "the first other byte's offset", i, is->size);
	return false;
}

static bool store_differs(struct model *model, struct store *store)
{
	for (unsigned int i = 0; i < OWNERS; i++) {
		struct owner *owner = store_owner(store, owner_of(i));
		uint64_t count = 0;

		if (owner_last_txn(owner) != model->owner[i].last_txn)
			return differs(model, owner_of(i), 0, "the last transaction", owner_last_txn(owner),
				       model->owner[i].last_txn);
		if (owner_last_word(owner) != word_of(owner_last_txn(owner)))
			return differs(model, owner_of(i), 0, "its word", owner_last_word(owner), word_of(owner_last_txn(owner)));
		for (struct region *r = owner_regions(owner); r; r = r->next, count++)
			if (r->tag >= TAGS)
				return differs(model, owner_of(i), r->tag, "a tag", r->tag, TAGS);
		for (uint64_t tag = 0; tag < TAGS; tag++) {
			if (region_differs(model, owner_of(i), tag, &model->owner[i].region[tag], region_of_tag(owner, tag)))
				return true;
			count -= model->owner[i].region[tag].there;
		}
		if (count)
			return differs(model, owner_of(i), 0, "the list's surplus", count, 0);
	}
	return false;
}

static void model_free(struct model *model)
{
	for (unsigned int i = 0; i < OWNERS; i++)
		for (unsigned int tag = 0; tag < TAGS; tag++)
			free(model->owner[i].region[tag].bytes);
	free(model);
}

bool model_resolve(struct shared *shared, struct store *store)
{
	struct model *model = calloc(1, sizeof(*model));
	char first[300] = "";
	uint64_t at = 0, unit;
	bool other = true;

	for (unit = 0; unit < shared->acked; unit++)
		at = apply_unit(model, shared, at);
	for (;; unit++) {
		other = store_differs(model, store);
		if (!first[0])
			strcpy(first, model->differs);
		if (!other || unit == shared->units)
			break;
		at = apply_unit(model, shared, at);
	}
	if (other)
		snprintf(shared->violation, sizeof(shared->violation), "no state of %llu to %llu is it: %s",
			 (unsigned long long)shared->acked, (unsigned long long)shared->units, first);
	model_free(model);
	if (other)
		return false;
	shared->used = at;
	shared->units = unit;
	memcpy(shared->next_top, shared->top, sizeof(shared->top));
	for (unsigned int i = 0; i < OWNERS; i++)
		for (struct region *r = owner_regions(store_owner(store, owner_of(i))); r; r = r->next)
			if (r->addr + r->size > shared->next_top[i])
				shared->next_top[i] = r->addr + r->size;
	model_acked(shared);
	return true;
}
