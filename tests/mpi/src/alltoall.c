// SPDX-License-Identifier: MIT
/*
 * alltoall ROUNDS SEED [STOP-FILE]: MPI ranks send data to each other that all can compute from the seed, by collectives,
 * messages and one-sided operations. Each rank compares what it receives with what it should receive, and sums it up. Rank 0
 * prints the sum of all, which is the same for the same ROUNDS, SEED and number of ranks. With STOP-FILE they begin again after
 * ROUNDS, until this file exists, and each time the sum must be the same.
 */
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE_MAX_	(48 << 10)
#define ADDS		4	/* to each rank's counter, in a round */

enum { BY_ALLTOALL, BY_MESSAGE, BY_PUT };

static int rank, ranks;
static uint64_t seed;
static uint64_t sum;		/* of what this rank received */
static uint8_t *out, *in;	/* SIZE_MAX_ bytes for each rank */

static void die(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "alltoall: rank %d: ", rank);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* The name of a piece of data: the operation, the round, the sender and the receiver. */
static uint64_t name_of(int how, int round, int from, int to)
{
	return mix(seed ^ mix((uint64_t)how << 60 ^ (uint64_t)round << 20 ^ from << 10 ^ to));
}

/* No bytes, some bytes, a size that UCX copies, and a size that UCX sends by rendezvous. */
static int size_of(uint64_t name)
{
	static const int limit[] = { 1, 64, 8 << 10, SIZE_MAX_ };

	return mix(name) % limit[name % 4];
}

static void fill(uint8_t *buf, uint64_t name)
{
	int size = size_of(name);

	for (int i = 0; i < size; i++)
		buf[i] = mix(name + i / 8) >> i % 8 * 8;
}

static void check(const uint8_t *buf, int size, int how, int round, int from)
{
	uint64_t name = name_of(how, round, from, rank), fnv = 0xcbf29ce484222325ull;

	if (size != size_of(name))
		die("round %d: %d bytes came from rank %d, not %d", round, size, from, size_of(name));
	for (int i = 0; i < size; i++) {
		if (buf[i] != (uint8_t)(mix(name + i / 8) >> i % 8 * 8))
			die("round %d: byte %d of %d from rank %d is wrong", round, i, size, from);
		fnv = (fnv ^ buf[i]) * 0x100000001b3ull;
	}
	sum += mix(fnv ^ name);
}

static void by_alltoall(int round)
{
	int to_size[ranks], from_size[ranks], at[ranks];

	for (int i = 0; i < ranks; i++) {
		uint64_t name = name_of(BY_ALLTOALL, round, rank, i);

		at[i] = i * SIZE_MAX_;
		to_size[i] = size_of(name);
		from_size[i] = size_of(name_of(BY_ALLTOALL, round, i, rank));
		fill(out + at[i], name);
	}
	memset(in, 0, (size_t)ranks * SIZE_MAX_);
	MPI_Alltoallv(out, to_size, at, MPI_BYTE, in, from_size, at, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		check(in + at[i], from_size[i], BY_ALLTOALL, round, i);
}

/* Messages are taken in the order in which they come. */
static void by_message(int round)
{
	MPI_Request sent[ranks];
	MPI_Status status;
	int size;

	for (int i = 0; i < ranks; i++) {
		uint64_t name = name_of(BY_MESSAGE, round, rank, i);

		fill(out + i * SIZE_MAX_, name);
		MPI_Isend(out + i * SIZE_MAX_, size_of(name), MPI_BYTE, i, round, MPI_COMM_WORLD, &sent[i]);
	}
	for (int i = 0; i < ranks; i++) {
		MPI_Recv(in, SIZE_MAX_, MPI_BYTE, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &size);
		check(in, size, BY_MESSAGE, round, status.MPI_SOURCE);
	}
	MPI_Waitall(ranks, sent, MPI_STATUSES_IGNORE);
}

/* Each rank's window: a piece of each rank, and behind them a counter and a place that is swapped. */
struct window {
	MPI_Win win;
	uint8_t *base;
	uint64_t *counter;	/* [0] is added to, [1] swapped */
	uint64_t adds;		/* that all ranks together have done to it */
};

static void window_open(struct window *w)
{
	MPI_Aint size = (MPI_Aint)ranks * SIZE_MAX_ + 2 * sizeof(uint64_t);

	MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w->base, &w->win);
	memset(w->base, 0, size);
	w->counter = (uint64_t *)(w->base + (size_t)ranks * SIZE_MAX_);
	w->adds = 0;
	MPI_Win_lock_all(0, w->win);
}

static void window_close(struct window *w)
{
	MPI_Win_unlock_all(w->win);
	MPI_Win_free(&w->win);
}

static void atomics(struct window *w, int round)
{
	MPI_Aint counter = (MPI_Aint)ranks * SIZE_MAX_;
	uint64_t one = 1, old[ADDS], mine = rank + 1, none = 0, was;
	int at;

	for (int i = 0; i < ranks; i++) {
		for (int k = 0; k < ADDS; k++)
			MPI_Fetch_and_op(&one, &old[k], MPI_UINT64_T, i, counter, MPI_SUM, w->win);
		MPI_Win_flush(i, w->win);
	}
	/* A value that no other rank swaps in this round. */
	at = (rank + round) % ranks;
	MPI_Compare_and_swap(&mine, &none, &was, MPI_UINT64_T, at, counter + 8, w->win);
	MPI_Win_flush(at, w->win);
	if (was)
		die("round %d: at rank %d it was taken by %llu", round, at, (unsigned long long)was);
	MPI_Compare_and_swap(&none, &mine, &was, MPI_UINT64_T, at, counter + 8, w->win);
	MPI_Win_flush(at, w->win);
	if (was != mine)
		die("round %d: at rank %d it was taken away by %llu", round, at, (unsigned long long)was);
	w->adds += (uint64_t)ranks * ADDS;
}

static void by_put(struct window *w, int round)
{
	for (int i = 0; i < ranks; i++) {
		uint64_t name = name_of(BY_PUT, round, rank, i);

		fill(out + i * SIZE_MAX_, name);
		MPI_Put(out + i * SIZE_MAX_, size_of(name), MPI_BYTE, i, (MPI_Aint)rank * SIZE_MAX_,
			size_of(name), MPI_BYTE, w->win);
	}
	atomics(w, round);
	MPI_Win_flush_all(w->win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(w->win);
	for (int i = 0; i < ranks; i++)
		check(w->base + i * SIZE_MAX_, size_of(name_of(BY_PUT, round, i, rank)), BY_PUT, round, i);
	if (w->counter[0] != w->adds)
		die("round %d: %llu was added, not %llu", round, (unsigned long long)w->counter[0],
		    (unsigned long long)w->adds);
	/* Nobody writes data of the next round before the data of this round is checked. */
	MPI_Barrier(MPI_COMM_WORLD);
}

static uint64_t all_rounds(int rounds)
{
	struct window w;
	uint64_t all;

	sum = 0;
	window_open(&w);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < rounds; i++) {
		by_alltoall(i);
		by_message(i);
		by_put(&w, i);
		if (rank == 0) {
			printf("round %d\n", i);
			fflush(stdout);
		}
	}
	window_close(&w);
	MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

static bool wanted(const char *stop_file)
{
	int go_on = stop_file && access(stop_file, F_OK);

	MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return go_on;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 0, times = 0;
	uint64_t first = 0, now;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (rounds <= 0 || argc < 3 || argc > 4)
		die("usage: alltoall ROUNDS SEED [STOP-FILE]");
	seed = strtoull(argv[2], NULL, 0);
	out = malloc((size_t)ranks * SIZE_MAX_);
	in = malloc((size_t)ranks * SIZE_MAX_);
	if (!out || !in)
		die("no memory");
	do {
		now = all_rounds(rounds);
		if (times++ && now != first)
			die("the sum was %016llx, it is %016llx", (unsigned long long)first,
			    (unsigned long long)now);
		first = now;
	} while (wanted(argv[3]));
	if (rank == 0)
		printf("%d ranks, %d rounds, seed %llu: sum %016llx\n", ranks, rounds,
		       (unsigned long long)seed, (unsigned long long)now);
	MPI_Finalize();
	return 0;
}
