// SPDX-License-Identifier: MIT
/* Registered memory: the library's own buffers, and memory that the program has registered (register.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "internal.h"

#define SLOTS_AT ((size_t)BUFFERS * BUFFER_SIZE)
#define RECEIVES_AT (SLOTS_AT + (size_t)RMEM_SLOTS * RMEM_MSG_SIZE)
#define AREA_SIZE (RECEIVES_AT + (size_t)RECEIVES * RMEM_MSG_SIZE)

uint8_t *buffer_at(const struct rmem *r, unsigned int index)
{
	return r->area + (size_t)index * BUFFER_SIZE;
}

uint8_t *slot_at(const struct rmem *r, unsigned int index)
{
	return r->area + SLOTS_AT + (size_t)index * RMEM_MSG_SIZE;
}

uint8_t *receive_at(const struct rmem *r, unsigned int index)
{
	return r->area + RECEIVES_AT + (size_t)index * RMEM_MSG_SIZE;
}

int area_open(struct rmem *r)
{
	void *area = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		return fail(-ENOMEM, "buffers: %s", strerror(errno));
	r->area = area;
	r->area_mr = ibv_reg_mr(r->pd, area, AREA_SIZE, IBV_ACCESS_LOCAL_WRITE);
	if (!r->area_mr)
		return fail(-errno, "buffers of %zu bytes: %s: raise the limit of locked memory (ulimit -l)", AREA_SIZE,
			    strerror(errno));
	for (r->buffers = 0; r->buffers < BUFFERS; r->buffers++)
		r->free_buffers[r->buffers] = r->buffers;
	return 0;
}

void area_close(struct rmem *r)
{
	if (r->area_mr)
		ibv_dereg_mr(r->area_mr);
	if (r->area)
		munmap(r->area, AREA_SIZE);
	r->area_mr = NULL;
	r->area = NULL;
}

void memory_register_all(struct rmem *r)
{
	for (struct memory *m = r->memory; m; m = m->next)
		m->mr = ibv_reg_mr(r->pd, m->start, m->size, IBV_ACCESS_LOCAL_WRITE);
}

void memory_unregister_all(struct rmem *r)
{
	for (struct memory *m = r->memory; m; m = m->next) {
		if (m->mr)
			ibv_dereg_mr(m->mr);
		m->mr = NULL;
	}
}

void memory_free(struct rmem *r)
{
	while (r->memory) {
		struct memory *m = r->memory;

		r->memory = m->next;
		free(m);
	}
}

/* No sum can overflow here: a range ends where its object ends. */
struct memory *memory_at(struct rmem *r, const void *start, size_t size)
{
	uintptr_t at = (uintptr_t)start;

	for (struct memory *m = r->memory; m; m = m->next) {
		uintptr_t from = (uintptr_t)m->start;

		if (m->mr && !m->leaving && at >= from && at - from <= m->size && size <= m->size - (at - from))
			return m;
	}
	return NULL;
}
