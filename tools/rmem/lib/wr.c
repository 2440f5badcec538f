// SPDX-License-Identifier: MIT
/* The end of one-sided work requests: each is a part of an operation, and gives back what it used. data.c begins them. */
#include <errno.h>
#include <string.h>
#include "internal.h"

static void release(struct rmem *r, unsigned int index, int error)
{
	struct wr *wr = &r->wr[index];

	if (wr->buffer >= 0)
		r->free_buffers[r->buffers++] = wr->buffer;
	if (wr->memory)
		wr->memory->busy--;
	region_drop(wr->region);
	op_done(wr->op, error);
	wr->op = NULL;
	r->free_wrs[r->wrs++] = index;
}

void data_sent(struct rmem *r, unsigned int index)
{
	struct wr *wr = &r->wr[index];

	if (wr->copy_to)
		memcpy(wr->copy_to, buffer_at(r, wr->buffer), wr->size);
	release(r, index, 0);
}

/* Called when the connection has broken. */
void data_fail(struct rmem *r)
{
	for (unsigned int i = 0; i < DATA_DEPTH; i++)
		if (r->wr[i].op)
			release(r, i, -ENOTCONN);
}
