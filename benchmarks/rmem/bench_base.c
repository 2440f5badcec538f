// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

struct bench bench = { .ops = 512, .pages = 1, .clients = 1, .rounds = 1 };

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void die(const char *what)
{
	fprintf(stderr, "rmem-bench: %s: %s\n", what, rmem_error());
	exit(1);
}

struct rmem *connect_as(const char *client)
{
	const char *reason = "";
	struct rmem_options options = { .host = bench.host, .client = client, .key_file = bench.key };
	struct rmem *r = rmem_connect(&options, &reason);

	if (r)
		return r;
	fprintf(stderr, "rmem-bench: %s: %s\n", client, reason);
	exit(1);
}

static int order(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

int64_t median(int64_t *of, uint64_t n, unsigned int percent)
{
	qsort(of, n, sizeof(*of), order);
	return of[(n - 1) * percent / 100];
}
