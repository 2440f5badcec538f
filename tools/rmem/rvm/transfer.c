// SPDX-License-Identifier: MIT
/* Puts or gets of which many are under way. */
#include <string.h>

#include "internal.h"

enum {
	CHUNK = 1 << 20,
};

static int begin_put(struct transfer *t, uint64_t remote, uint8_t *local, size_t len, struct rmem_op *op)
{
	return rmem_put_async(t->r, remote, local, len, op);
}

static int begin_get(struct transfer *t, uint64_t remote, uint8_t *local, size_t len, struct rmem_op *op)
{
	return rmem_get_async(t->r, local, remote, len, op);
}

void transfer_put(struct transfer *t, struct rmem *r)
{
	*t = (struct transfer){ .r = r, .begin = begin_put };
}

void transfer_get(struct transfer *t, struct rmem *r)
{
	*t = (struct transfer){ .r = r, .begin = begin_get };
}

static void failed(struct transfer *t, int ret)
{
	if (!t->result)
		t->result = ret;
}

static void wait_oldest(struct transfer *t)
{
	failed(t, rmem_wait(t->r, &t->ops[t->ended++ % TRANSFER_DEPTH]));
}

static void add_chunk(struct transfer *t, uint64_t remote, uint8_t *local, size_t len)
{
	struct rmem_op *op = &t->ops[t->begun % TRANSFER_DEPTH];
	int ret;

	if (t->begun - t->ended == TRANSFER_DEPTH)
		wait_oldest(t);
	if (t->result)
		return;
	memset(op, 0, sizeof(*op));
	ret = t->begin(t, remote, local, len, op);
	if (ret)
		failed(t, ret);
	else
		t->begun++;
}

void transfer_add(struct transfer *t, uint64_t remote, void *local, size_t len)
{
	for (size_t at = 0; at < len && !t->result; at += CHUNK)
		add_chunk(t, remote + at, (uint8_t *)local + at, len - at < CHUNK ? len - at : CHUNK);
}

int transfer_end(struct transfer *t)
{
	while (t->ended != t->begun)
		wait_oldest(t);
	return t->result;
}
