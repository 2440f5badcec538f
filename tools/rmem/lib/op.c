// SPDX-License-Identifier: MIT
/*
 * Operations, which the program may wait for later (wait.c). An operation is done when all its parts are: work requests, messages
 * to the donor's process, and the call itself as long as it begins others.
 */
#include "internal.h"

void op_reset(struct rmem_op *op)
{
	op->result = 0;
	op->status = RMEM_OK;
	op->refused = NULL;
}

/* With on_error, several operations share the op, and it counts the parts of all of them. */
void op_begin(struct rmem_op *op)
{
	if (!op->on_error) {
		op_reset(op);
		op->parts = 0;
	}
	op->parts++;
	op->done = false;
}

/* The first failure counts. */
void op_done(struct rmem_op *op, int error)
{
	if (error && !op->result)
		op->result = error;
	if (!--op->parts)
		op->done = true;
}

void op_connected(struct rmem_op *op, int error)
{
	if (error && !op->result)
		op->status = OP_CONNECTS;
	op_done(op, error);
}

/* The donor has refused a part of @op. Other parts of @op may still be under way. Returns the first error. */
int op_refused(struct rmem_op *op, const char *what, unsigned int status)
{
	if (op->result)
		return op->result;
	rmem_status_text(status, &op->result);
	op->status = status;
	op->refused = what;
	return op->result;
}
