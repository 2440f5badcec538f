// SPDX-License-Identifier: MIT
/* Memory that the program registers while the connection is up, and unregisters at any time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

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
		if (wait_step(r, r->generation)) /* the connection is down: the thread that uses the memory wakes this one */
			pthread_cond_wait(&r->changed, &r->lock);
	take_out(r, m);
	return leave(r, 0);
}
