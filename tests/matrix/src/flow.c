// SPDX-License-Identifier: MIT
/*
 * Traffic that goes on during the whole move: WRITEs, FETCH_ADDs and READs of both ends of cells in FLOW; and WRITEs of the peer
 * into the memory of all cells whose peer has nothing else to do. Each of these WRITEs puts a word behind the word before it. So
 * in the end the last word that has come is there, and so are the many words before it.
 */
#include <pthread.h>
#include <unistd.h>

#include "matrix.h"

enum {
	LOG_AT = 28672, LOG_WORDS = 4096,	/* behind what use_memory() writes */
	WINDOW_WORDS = SLOT / 8,
};

static volatile bool flowing = true;
static pthread_t thread;
static const enum op ops[] = { WRITE, FADD, READ };

static uint64_t word_of(const struct cell *c, uint32_t round)
{
	return (uint64_t)round << 32 | c->id;
}

static size_t log_at(const struct cell *c)
{
	return c->memory == BYTE ? 0 : c->memory == GIB ? 777777777 + LOG_AT : LOG_AT;
}

static void post_words(struct cell *c)
{
	uint32_t round = ++c->me.round, rkey = c->there.memory_rkey;
	uint64_t word = word_of(c, round), at = c->there.memory + log_at(c);
	uint8_t *p = c->me.buf + WORDS * SLOT;

	if (c->memory == TWIN && round % 2)
		rkey = c->there.other_rkey;
	if (c->memory == BYTE)
		word = (uint8_t)round;
	else
		at += round % LOG_WORDS * 8;
	memcpy(p, &word, 8);
	post_one_sided(c, IBV_WR_RDMA_WRITE, p, at, rkey, c->memory == BYTE ? 1 : 8);
	if (c->window == NO_MW)
		return;
	memcpy(p + 8, &word, 8);
	post_one_sided(c, IBV_WR_RDMA_WRITE, p + 8, c->there.window + round % WINDOW_WORDS * 8,
		       c->there.window_rkey, 8);
}

static void end_words(struct cell *c)
{
	end_one_sided(c, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS);
	if (c->window != NO_MW)
		end_one_sided(c, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS);
}

static void *flow(void *arg)
{
	size_t i;

	while (flowing) {
		EACH(c)
			for (i = 0; c->state == FLOW && i < NUM(ops); i++)
				post(c, ops[i]);
		EACH(c)
			if (flows_in(c) && !us.mover)
				post_words(c);
		EACH(c) {
			for (i = 0; c->state == FLOW && i < NUM(ops); i++)
				end_send(c);
			if (flows_in(c) && !us.mover)
				end_words(c);
		}
	}
	return arg;
}

void flow_begins(void)
{
	MUST(!pthread_create(&thread, NULL, flow, NULL));
}

/* After so many rounds, each place has the word of the last round that went there. (Words of UC may still be on their way.) */
static void check_words(const struct cell *c, const uint8_t *p, uint32_t words, uint32_t rounds, const char *what)
{
	uint32_t round = rounds < words ? 1 : rounds - words + 1;
	uint64_t word, there;

	for (; round <= rounds; round++) {
		word = word_of(c, round);
		do
			memcpy(&there, p + round % words * 8, 8);
		while (there != word && c->type == UC && in_time());
		if (there != word)
			DIE("%s: of %u rounds, %s has %llx of round %u", cell_name(c), rounds, what,
			    (unsigned long long)there, round);
	}
}

static void check_log(const struct cell *c, uint32_t rounds)
{
	const uint8_t *p = c->me.memory + log_at(c);
	uint8_t *copy;

	if (c->memory == BYTE) {
		while (*p != (uint8_t)rounds)
			if (c->type != UC || !in_time())
				DIE("%s: of %u rounds, %u is there", cell_name(c), rounds, *p);
		return;
	}
	check_words(c, p, LOG_WORDS, rounds, "its memory");
	if (c->window != NO_MW)
		check_words(c, c->me.buf + WINDOW * SLOT, WINDOW_WORDS, rounds, "its window");
	if (!in_file(c))
		return;
	copy = malloc(LOG_WORDS * 8);
	MUST(copy && pread(c->me.memory_fd, copy, LOG_WORDS * 8, c->me.memory_at + LOG_AT) == LOG_WORDS * 8);
	check_words(c, copy, LOG_WORDS, rounds, "its file");
	free(copy);
}

/* Its last WRITE, all its FETCH_ADDs and all its words are there. */
void flow_ends(void)
{
	struct { uint32_t sent, fadds, round; } mine, other;

	meet();
	flowing = false;
	MUST(!pthread_join(thread, NULL));
	EACH(c) {
		mine.sent = c->me.sent;
		mine.fadds = c->me.fadds;
		mine.round = c->me.round;
		say(&mine, sizeof(mine));
	}
	EACH(c) {
		hear(&other, sizeof(other));
		if (us.mover && flows_in(c))
			check_log(c, other.round);
		if (c->state != FLOW)
			continue;
		c->me.inbound = other.sent;
		check_target(c, WRITE, other.sent - 2);
		if (word(c, FADD) != other.fadds)
			DIE("%s: %llu FETCH_ADDs are here, not %u", cell_name(c), (unsigned long long)word(c, FADD),
			    other.fadds);
	}
}
