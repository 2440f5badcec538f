// SPDX-License-Identifier: MIT
/*
 * rmem-whole --host H --client C --key F [--transfers N | --seconds S] [--check]
 *
 * Recoverable memory of 72 MiB, of which each transaction writes all bytes: more than the donor's log has between two
 * checkpoints (64 MiB). Says "committed N" for what it has found, then "committing N" before each commit and "committed N" after
 * it. N grows by one, and decides about all bytes.
 *
 *   --check   recovers, compares all of the memory, and says "stored N" (0 if there is no memory)
 *
 * Also --port, --device, --tag, and --timeout (seconds until a commit gives up). Exits with 1 and one line if the memory has
 * bytes of two transactions, with 75 if the donor cannot be asked.
 */
#include <inttypes.h>
#include <string.h>

#include "recoverable.h"

#define SIZE ((size_t)72 << 20)
#define WORDS (SIZE / sizeof(uint64_t))
#define HEADER 4096 /* the library's */

static struct options o = { .memory.tag = 1, .count = 1, .threads = 1 };
static struct rvm *v;
static uint64_t *memory; /* word 0 has the number of the transaction */

static void say(const char *what, uint64_t number)
{
	printf("%s %" PRIu64 "\n", what, number);
	if (fflush(stdout))
		exit(EXIT_CANNOT_ASK);
}

/* All words are zeros before the first transaction. */
static uint64_t word(uint64_t number, uint64_t i)
{
	return i == 0 || number == 0 ? number : mix(number << 32 | i);
}

static void check(void)
{
	uint64_t number = memory[0];

	for (uint64_t i = 0; i < WORDS; i++)
		if (memory[i] != word(number, i))
			VIOLATION("it has transaction %" PRIu64 ", but not in byte %" PRIu64, number, i * sizeof(uint64_t));
}

static void change(uint64_t number)
{
	RVM(rvm_begin(v));
	set_range(v, memory, SIZE);
	for (uint64_t i = 0; i < WORDS; i++)
		memory[i] = word(number, i);
	say("committing", number);
	RVM(rvm_commit(v));
	say("committed", number);
}

static bool open_memory(void)
{
	v = memory_open(&o, 0);
	if (!v && !o.check)
		v = memory_open(&o, HEADER + SIZE);
	if (!v)
		return false;
	if (rvm_size(v) != SIZE)
		VIOLATION("the memory has %zu bytes", rvm_size(v));
	memory = rvm_base(v);
	check();
	return true;
}

int main(int argc, char **argv)
{
	bool there;

	options_parse(argc, argv, &o);
	there = open_memory();
	if (there && !o.check) {
		say("committed", memory[0]);
		for (uint64_t n = 0; !time_is_over(&o) && !(o.limit && n >= o.limit); n++)
			change(memory[0] + 1);
	}
	say("stored", there ? memory[0] : 0);
	if (v)
		memory_close(v);
	return 0;
}
