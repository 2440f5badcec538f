/* SPDX-License-Identifier: MIT */
/* Random numbers for the fuzzers; a seed gives the same numbers again. Each thread has its own. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

static __thread uint64_t rng;

static inline uint64_t rnd(void)
{
	uint64_t x = rng += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline uint64_t below(uint64_t n)
{
	return rnd() % n;
}

/* A number near a power of two of so many bits, or any. */
static inline uint64_t edge_of(unsigned bits)
{
	switch (below(4)) {
	case 0: return below(32);
	case 1: return (1ull << below(bits)) + below(5) - 2;
	case 2: return -below(32);
	default: return rnd();
	}
}

#endif /* RANDOM_H */
