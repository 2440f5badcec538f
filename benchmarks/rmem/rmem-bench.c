// SPDX-License-Identifier: MIT
/*
 * rmem-bench data --host H --client C --other C2 --key F [--ops N] [--rounds N]
 * rmem-bench commit --host H --client C --key F --clients N --pages N [--ops N]
 *
 * The clients are C1, C2…, with one key for all. A commit: the pages are put to a shadow, their copy is queued, and goes.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { PAGE = 4096, MOST_CLIENTS = 16, SHADOW = 2, REAL = 3 };

/* ------------------------------------------------------------------ commits */

struct committer {
	pthread_t thread;
	unsigned int number;
	int64_t *took;
};

static pthread_barrier_t ready;

static int commit(struct rmem *r, uint64_t real, uint64_t shadow, uint8_t *data, size_t size)
{
	int result = rmem_put(r, shadow, data, size);

	if (!result)
		result = rmem_cp(r, real, shadow, size);
	return result ? result : rmem_txn_go(r);
}

/* What is measured begins when all are connected, and what it has made is freed after all have ended. */
static void *committer(void *arg)
{
	struct committer *c = arg;
	size_t size = bench.pages * PAGE;
	uint8_t *data = aligned_alloc(PAGE, size);
	uint64_t shadow, real;
	char name[64];
	struct rmem *r;

	snprintf(name, sizeof(name), "%s%u", bench.client, c->number + 1);
	r = connect_as(name);
	memset(data, 1, size);
	if (rmem_alloc(r, SHADOW, size, 0, &shadow) || rmem_alloc(r, REAL, size, 0, &real) || rmem_register(r, data, size))
		die("a region");
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&ready);
	for (uint64_t i = 0; i < bench.ops; i++) {
		int64_t begun = now_ns();

		data[i % size]++;
		if (commit(r, real, shadow, data, size))
			die("commit");
		c->took[i] = now_ns() - begun;
	}
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&ready);
	if (rmem_free(r, SHADOW) || rmem_free(r, REAL) || rmem_txn_go(r))
		die("free");
	rmem_close(r);
	free(data);
	return NULL;
}

/* Before and behind what is measured it waits for a line of input, so that the donor's counters can be read. */
static void pause_for_line(const char *what)
{
	int c;

	printf("%s\n", what);
	fflush(stdout);
	while ((c = getchar()) != '\n' && c != EOF)
		;
}

static void bench_commit(void)
{
	struct committer committers[MOST_CLIENTS] = { 0 };
	int64_t begun, took, *all = calloc(bench.clients * bench.ops, sizeof(*all));

	pthread_barrier_init(&ready, NULL, bench.clients + 1);
	for (unsigned int i = 0; i < bench.clients; i++) {
		committers[i] = (struct committer){ .number = i, .took = all + i * bench.ops };
		if (pthread_create(&committers[i].thread, NULL, committer, &committers[i]))
			die("no thread");
	}
	pthread_barrier_wait(&ready);
	pause_for_line("ready");
	begun = now_ns();
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&ready);
	took = now_ns() - begun;
	pause_for_line("done");
	pthread_barrier_wait(&ready);
	for (unsigned int i = 0; i < bench.clients; i++)
		pthread_join(committers[i].thread, NULL);
	printf("commit %llu %llu %lld %lld %.1f\n", (unsigned long long)bench.clients, (unsigned long long)bench.pages,
	       (long long)median(all, bench.clients * bench.ops, 50) / 1000,
	       (long long)median(all, bench.clients * bench.ops, 99) / 1000,
	       bench.clients * bench.ops * 1e9 / took);
	free(all);
}

/* ------------------------------------------------------------------ the command line */

static void take_option(int option, const char *value)
{
	switch (option) {
	case 'h': bench.host = value; break;
	case 'c': bench.client = value; break;
	case 'k': bench.key = value; break;
	case 'O': bench.other = value; break;
	case 'o': bench.ops = strtoull(value, NULL, 0); break;
	case 'p': bench.pages = strtoull(value, NULL, 0); break;
	case 'n': bench.clients = strtoull(value, NULL, 0); break;
	case 'r': bench.rounds = strtoull(value, NULL, 0); break;
	default: exit(2);
	}
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "host", 1, NULL, 'h' }, { "client", 1, NULL, 'c' }, { "key", 1, NULL, 'k' }, { "other", 1, NULL, 'O' },
		{ "ops", 1, NULL, 'o' }, { "pages", 1, NULL, 'p' }, { "clients", 1, NULL, 'n' }, { "rounds", 1, NULL, 'r' }, { 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		take_option(option, optarg);
	if (optind + 1 != argc || !bench.host || !bench.client || !bench.key || !bench.ops || !bench.pages || !bench.clients ||
	    bench.clients > MOST_CLIENTS)
		return 2;
	if (!strcmp(argv[optind], "data") && bench.other)
		bench_data();
	else if (!strcmp(argv[optind], "commit"))
		bench_commit();
	else
		return 2;
	return 0;
}
