// SPDX-License-Identifier: MIT
/*
 * rmem-heap [--faults | --signal] [--seed N] [--transactions N]
 *
 * The parts of librvm that need no network. Allocates and frees at random in transactions, a third of which is aborted. After
 * each transaction every block has its contents, boundary tags and lists agree, and an aborted transaction has changed no byte.
 * Then the heap is filled up and emptied, and wrong pointers are freed. At last ranges are announced that lie in each other, or
 * overlap. A transaction that is not aborted is ended without a commit, when the pages that a commit would send are looked at.
 */
#include <err.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rvm/internal.h"

#define MUST(cond) ((cond) ? (void)0 : errx(1, "seed %llu, line %d: not so: %s", (unsigned long long)seed, __LINE__, #cond))

enum { SIZE = 1 << 20, BLOCKS = 1000, BIG = 8000 };

struct allocated {
	uint8_t *p;
	size_t size;
	uint8_t fill;
};

static struct rvm memory = { .size = SIZE };
static struct allocated list[BLOCKS], before[BLOCKS];
static size_t n, n_before;
static uint8_t copy[SIZE];
static uint64_t seed = 1, state;
static unsigned int flags;

static uint64_t rnd(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static void write_block(const struct allocated *a)
{
	if (!flags)
		MUST(!rvm_set_range(&memory, a->p, a->size));
	memset(a->p, a->fill, a->size);
}

static void check_block(const struct allocated *a)
{
	for (size_t i = 0; i < a->size; i++)
		MUST(a->p[i] == a->fill);
}

static bool allocate(size_t size)
{
	struct allocated *a = &list[n];

	*a = (struct allocated){ .p = rvm_alloc(&memory, size), .size = size, .fill = rnd(256) };
	if (!a->p)
		return false;
	MUST((uintptr_t)a->p % 16 == 0);
	write_block(a);
	n++;
	return true;
}

static void release(size_t i)
{
	check_block(&list[i]);
	rvm_free(&memory, list[i].p);
	list[i] = list[--n];
}

static void check_all(void)
{
	size_t used;
	const char *bad = heap_check(&memory, &used);

	if (bad)
		errx(1, "seed %llu: %s", (unsigned long long)seed, bad);
	MUST(used == n);
	for (size_t i = 0; i < n; i++)
		check_block(&list[i]);
}

static void undo(void)
{
	MUST(!rvm_abort(&memory));
	MUST(!memcmp(copy, memory.mem, SIZE));
	memcpy(list, before, sizeof(list));
	n = n_before;
}

static void transaction(void)
{
	memcpy(copy, memory.mem, SIZE);
	memcpy(before, list, sizeof(list));
	n_before = n;
	MUST(!rvm_begin(&memory));
	for (size_t i = rnd(40); i > 0; i--) {
		if (n < BLOCKS && (n == 0 || rnd(20) < 11))
			allocate(rnd(rnd(8) ? 200 : BIG));
		else if (rnd(4))
			release(rnd(n));
		else
			write_block(&list[rnd(n)]);
	}
	if (rnd(3))
		txn_end(&memory);
	else
		undo();
}

static void fill_and_empty(void)
{
	size_t most = SIZE - RVM_PAGE - 32; /* one block's tags, and the end's */

	MUST(!rvm_begin(&memory));
	while (n)
		release(rnd(n));
	MUST(!rvm_alloc(&memory, most + 1) && !rvm_alloc(&memory, SIZE_MAX) && !rvm_alloc(&memory, SIZE_MAX - 15));
	MUST(allocate(most));
	MUST(!allocate(0));
	check_all();
	release(0);
	while (n < BLOCKS && allocate(rnd(BIG)))
		;
	check_all();
	while (n)
		release(rnd(n));
	MUST(allocate(most));
	release(0);
	check_all();
	txn_end(&memory);
}

/* A child that frees @p must say this, and end by SIGABRT. */
static void check_bad_free(void *p, const char *says)
{
	char line[200] = "";
	int fds[2], status;
	pid_t child;

	MUST(!pipe(fds));
	child = fork();
	MUST(child >= 0);
	if (!child) {
		dup2(fds[1], 2);
		memory.owner = gettid();
		rvm_free(&memory, p);
		_exit(0);
	}
	close(fds[1]);
	MUST(read(fds[0], line, sizeof(line) - 1) > 0);
	close(fds[0]);
	MUST(waitpid(child, &status, 0) == child);
	MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	MUST(strstr(line, says));
}

static void bad_frees(void)
{
	uint8_t *a, *b, *c, local[64];

	MUST(!rvm_begin(&memory));
	a = rvm_alloc(&memory, 100);
	b = rvm_alloc(&memory, 100);
	c = rvm_alloc(&memory, 100);
	MUST(a && b && c);
	rvm_free(&memory, NULL);
	check_bad_free(local, "not a pointer");
	check_bad_free(memory.mem, "not a pointer");
	check_bad_free(b + 8, "not a pointer");
	check_bad_free(b + 16, "not a pointer");
	rvm_free(&memory, b);
	check_bad_free(b, "freed already");
	rvm_free(&memory, a);
	check_bad_free(a, "freed already");
	check_bad_free(b, "freed already");
	MUST(!rvm_abort(&memory));
}

/* ------------------------------------------------------------------ ranges */

struct range {
	size_t from; /* of the memory's bytes */
	size_t size;
};

/* Neither begins or ends at a page. (It destroys the heap, which is not needed any more.) */
static const struct range outer = { 5000, 20000 }, inner = { 9500, 3000 }, later = { 20000, 15000 };

/* A range is written between two announcements, so that a copy that is made anew would be of changed bytes. */
static void announce_and_write(const struct range *range, uint8_t fill)
{
	MUST(!rvm_set_range(&memory, memory.mem + range->from, range->size));
	memset(memory.mem + range->from, fill, range->size);
}

/* All pages of the range are among those that a commit sends. */
static void check_sent(const struct range *range)
{
	size_t first = range->from / RVM_PAGE, last = (range->from + range->size - 1) / RVM_PAGE;
	struct run run;

	MUST(pages_run(&memory, first, &run));
	MUST(run.first == first && run.first + run.count > last);
}

static void two_ranges(const struct range *one, const struct range *other, bool commit)
{
	static uint8_t expected[SIZE];

	memcpy(expected, memory.mem, SIZE);
	MUST(!rvm_begin(&memory));
	announce_and_write(one, 0xa1 + commit);
	announce_and_write(other, 0xb1 + commit);
	if (commit) {
		memset(expected + one->from, 0xa1 + commit, one->size);
		memset(expected + other->from, 0xb1 + commit, other->size);
		check_sent(one);
		check_sent(other);
		txn_end(&memory);
	} else {
		MUST(!rvm_abort(&memory));
	}
	MUST(!memcmp(expected, memory.mem, SIZE));
}

static void nested_ranges(void)
{
	const struct range *pairs[][2] = {
		{ &outer, &inner }, { &inner, &outer }, { &outer, &later }, { &later, &outer }, { &outer, &outer },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		two_ranges(pairs[i][0], pairs[i][1], false);
		two_ranges(pairs[i][0], pairs[i][1], true);
	}
}

/* ------------------------------------------------------------------ stray writes */

/* A write outside of a transaction, or by another thread, raises SIGSEGV, also for a handler that was there before. */
static void check_stray_write(bool handled)
{
	int status;
	pid_t child = fork();

	MUST(child >= 0);
	if (!child) {
		if (!handled)
			signal(SIGSEGV, SIG_DFL);
		memory.mem[SIZE - 1] = 1;
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child);
	MUST(handled ? WIFEXITED(status) && WEXITSTATUS(status) == 7 : WIFSIGNALED(status));
}

static void on_segv(int sig)
{
	(void)sig;
	_exit(7);
}

static void write_deaf(bool ignored)
{
	struct rvm own = { .size = SIZE };
	sigset_t segv;

	MUST(freopen("/dev/null", "w", stderr));
	own.mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(own.mem != MAP_FAILED && !txn_open(&own) && !fault_open(&own, RVM_FAULTS));
	sigemptyset(&segv);
	sigaddset(&segv, SIGSEGV);
	if (ignored)
		signal(SIGSEGV, SIG_IGN);
	else
		sigprocmask(SIG_BLOCK, &segv, NULL);
	alarm(20);
	own.mem[SIZE - 1] = 1;
	_exit(0);
}

/* A stray write of a thread that takes no SIGSEGV ends the process, too, and does not hang. */
static void check_deaf_write(bool ignored)
{
	int status;
	pid_t child = fork();

	MUST(child >= 0);
	if (!child)
		write_deaf(ignored);
	MUST(waitpid(child, &status, 0) == child);
	MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void options(int argc, char **argv, unsigned long *transactions)
{
	static const struct option longs[] = { { "faults", no_argument, NULL, 'f' },
					       { "signal", no_argument, NULL, 's' },
					       { "seed", required_argument, NULL, 'S' },
					       { "transactions", required_argument, NULL, 't' },
					       { 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'f')
			flags = RVM_FAULTS;
		else if (c == 's')
			flags = RVM_FAULTS | RVM_SIGNAL;
		else if (c == 'S')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 't')
			*transactions = strtoul(optarg, NULL, 0);
		else
			errx(2, "heap [--faults | --signal] [--seed N] [--transactions N]");
	}
	state = seed * 0x9e3779b97f4a7c15ull + 1;
}

int main(int argc, char **argv)
{
	unsigned long transactions = 500;

	options(argc, argv, &transactions);
	memory.mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory.mem != MAP_FAILED);
	signal(SIGSEGV, on_segv);
	MUST(!txn_open(&memory) && !fault_open(&memory, flags));
	for (unsigned long i = 0; i < transactions; i++) {
		transaction();
		check_all();
	}
	fill_and_empty();
	bad_frees();
	nested_ranges();
	if (memory.way == FAULT_SIGNAL)
		check_stray_write(true);
	if (memory.way == FAULT_UFFD) {
		check_deaf_write(true);
		check_deaf_write(false);
	}
	printf("heap: %lu transactions, changes found by %s\n", transactions,
	       memory.way == FAULT_UFFD ? "userfaultfd" : memory.way == FAULT_SIGNAL ? "signals" : "rvm_set_range");
	fault_close(&memory);
	txn_close(&memory);
	return 0;
}
