// SPDX-License-Identifier: MIT
/* The messages of requests: which requests a cell can do, and what is in the message with a number. */
#include "matrix.h"

bool has_receive(enum op op)
{
	return op == SEND || op == SEND_IMM || op == WRITE_IMM || op == SEND_INV;
}

bool can(const struct cell *c, enum op op)
{
	if (c->type == UD)
		return op <= SEND_IMM;
	if (c->type == UC)
		return op <= WRITE_IMM;
	/* These two are in the new interface only. */
	return c->api == WR || (op != ATOMIC_WRITE && op != FLUSH);
}

bool goes_inline(const struct cell *c, enum op op, uint32_t number)
{
	return c->api == WR && number % NUM_WAYS == INLINED && op <= WRITE_IMM && c->state != SEND_HALF;
}

/* The contents of the message with this number. */
void fill(uint8_t *p, size_t len, const struct cell *c, bool by_mover, uint32_t number)
{
	uint64_t x = us.seed ^ (uint64_t)c->id << 40 ^ (uint64_t)by_mover << 32 ^ number;
	size_t i;

	for (i = 0; i < len; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		p[i] = x >> 56;
	}
}

bool is_filled(const uint8_t *p, size_t len, const struct cell *c, bool by_mover, uint32_t number)
{
	uint8_t *expected = malloc(len);
	bool same;

	MUST(expected);
	fill(expected, len, c, by_mover, number);
	same = !memcmp(p, expected, len);
	free(expected);
	return same;
}

size_t message_len(const struct cell *c, enum op op, uint32_t number)
{
	if (op == FADD || op == CSWP || op == ATOMIC_WRITE)
		return 8;
	if (op == READ || (c->state == SEND_HALF && has_receive(op)))	/* of several packets */
		return 4 * MTU + (c->id * 7919u + number * 104729u) % (SLOT - 4 * MTU);
	if (op == FLUSH)	/* of what the WRITE before it wrote */
		return message_len(c, WRITE, number - 1);
	if (goes_inline(c, op, number))
		return 1 + (c->id * 7919u + number * 104729u) % INLINE;
	if (c->type == UD)
		return 1 + (c->id * 7919u + number * 104729u) % MTU;
	return 1 + (c->id * 7919u + number * 104729u) % SLOT;
}
