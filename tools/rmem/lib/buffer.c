// SPDX-License-Identifier: MIT
/* Registered memory: the library's own buffers, and memory that the program registers. */
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

static bool overlaps(struct rmem *r, const void *buf, size_t size)
{
	uintptr_t at = (uintptr_t)buf;

	for (struct memory *m = r->memory; m; m = m->next) {
		uintptr_t from = (uintptr_t)m->start;

		if (at < from ? size > from - at : at - from < m->size)
			return true;
	}
	return false;
}

static int add(struct rmem *r, void *buf, size_t size)
{
	struct memory *m;

	if (!size || (uintptr_t)buf + size < (uintptr_t)buf)
		return fail(-EINVAL, "memory: it is empty: register at least a byte");
	if (overlaps(r, buf, size))
		return fail(-EBUSY, "memory %p: a part of it is registered already: unregister that first", buf);
	m = calloc(1, sizeof(*m));
	if (!m)
		return fail(-ENOMEM, "memory %p: no memory", buf);
	m->start = buf;
	m->size = size;
	m->mr = ibv_reg_mr(r->pd, buf, size, IBV_ACCESS_LOCAL_WRITE);
	if (!m->mr) {
		int error = errno;

		free(m);
		return fail(-error, "memory %p of %zu bytes: %s: is it writable, is the limit of locked memory high enough?", buf,
			    size, strerror(error));
	}
	m->next = r->memory;
	r->memory = m;
	return 0;
}

int rmem_register(struct rmem *r, void *buf, size_t size)
{
	int ret = enter(r);

	return ret ? ret : leave(r, add(r, buf, size));
}

static void take_out(struct rmem *r, struct memory *m)
{
	struct memory **at = &r->memory;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	if (m->mr)
		ibv_dereg_mr(m->mr);
	free(m);
}

/* This works also while the connection is down. */
int rmem_unregister(struct rmem *r, void *buf)
{
	struct memory *m;

	pthread_mutex_lock(&r->lock);
	for (m = r->memory; m && (m->start != buf || m->leaving); m = m->next)
		;
	if (!m)
		return leave(r, fail(-EINVAL, "memory %p: it is not registered", buf));
	m->leaving = true;
	while (m->busy)
		if (wait_step(r, r->generation)) /* then the thread that uses the memory says when it is done */
			pthread_cond_wait(&r->changed, &r->lock);
	take_out(r, m);
	return leave(r, 0);
}
