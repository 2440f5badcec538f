/* SPDX-License-Identifier: MIT */
/* What programs that test librvm share: options, the connection, the memory, and how they end. */
#ifndef RECOVERABLE_H
#define RECOVERABLE_H

#include <rvm.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	EXIT_VIOLATION = 1,
	EXIT_USAGE = 2,
	EXIT_CANNOT_ASK = 75,
};

#define VIOLATION(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(EXIT_VIOLATION))

struct options {
	struct rmem_options donor;
	struct rvm_options memory;
	uint64_t count;	  /* --accounts, --keys */
	uint64_t threads;
	uint64_t seconds; /* 0: until @limit */
	uint64_t limit;	  /* --transfers, --operations; 0: until @seconds are over */
	uint64_t seed;	  /* 0: at random */
	bool check;
};

/* All programs know all options. */
void options_parse(int argc, char **argv, struct options *o);

/* Connects and recovers. @size: of the memory if there is none, else 0. NULL: there is none. Otherwise it exits. */
struct rvm *memory_open(struct options *o, size_t size);
void memory_close(struct rvm *v);

/* The call must return 0. A failure of the connection ends the program with EXIT_CANNOT_ASK, another one as a violation. */
#define RVM(call) rvm_must(call, #call)
void rvm_must(int ret, const char *call);
void set_range(struct rvm *v, void *p, size_t size); /* nothing with --faults */

bool time_is_over(const struct options *o);
uint64_t mix(uint64_t x); /* a hash */
uint64_t rnd(uint64_t *state, uint64_t below);

#endif
