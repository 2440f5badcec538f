/* SPDX-License-Identifier: MIT */
/*
 * rmem-bench: what remote memory takes, as a client measures it. Each line it prints is a measurement.
 *
 *	rmem-bench.c	the command line; commits
 *	bench_base.c	what both use: connections, times
 *	bench_data.c	put and get through librmem, and by verbs alone, in turn
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>

#include "rmem.h"

struct bench {
	const char *host, *client, *key, *other; /* the other client's name: verbs alone */
	uint64_t ops, pages, clients, rounds;
};
extern struct bench bench;

int64_t now_ns(void);
void die(const char *what) __attribute__((noreturn)); /* with rmem_error() */
struct rmem *connect_as(const char *client);
int64_t median(int64_t *of, uint64_t n, unsigned int percent);

/* data ROUND put|get SIZE DEPTH rmem-ns verbs-ns, for each operation */
void bench_data(void);

#endif
