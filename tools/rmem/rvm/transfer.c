// SPDX-License-Identifier: MIT
/* Puts or gets of which many are under way. They share one op: only the first failure counts. */
#include "internal.h"

enum {
	CHUNK = 1 << 20,
};

void transfer_put(struct transfer *t, struct rmem *r)
{
	*t = (struct transfer){ .r = r, .put = true, .op.on_error = true };
}

void transfer_get(struct transfer *t, struct rmem *r)
{
	*t = (struct transfer){ .r = r, .op.on_error = true };
}

static int begin(struct transfer *t, uint64_t remote, uint8_t *local, size_t len)
{
	return t->put ? rmem_put_async(t->r, remote, local, len, &t->op) : rmem_get_async(t->r, local, remote, len, &t->op);
}

void transfer_add(struct transfer *t, uint64_t remote, void *local, size_t len)
{
	for (size_t at = 0; at < len && !t->result; at += CHUNK)
		t->result = begin(t, remote + at, (uint8_t *)local + at, len - at < CHUNK ? len - at : CHUNK);
}

int transfer_end(struct transfer *t)
{
	int ret = rmem_wait(t->r, &t->op);

	return t->result ? t->result : ret;
}
