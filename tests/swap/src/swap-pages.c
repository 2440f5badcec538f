// SPDX-License-Identifier: MIT
/*
 * swap-pages --mib N [OPTION...]
 *
 * Fills so much memory, then reads its pages at random, checks each byte, and writes every other page again, until SIGTERM. Then
 * it checks all pages, and ends with 0. It ends with 1 and one line as soon as a page is not what was written. All words of a
 * page are made from its number and its version.
 *
 *	--threads N	(4)
 *	--seed N
 *	--ops N		so many operations, in place of SIGTERM
 *	--block FILE	a block device, by O_DIRECT, in place of memory
 *	--errors N	so many reads or writes may fail (0). A read or write that failed is done again until it succeeds, for
 *			a minute at most.
 *
 * SIGUSR1: a line that says how many operations there were. The last line also says how long the longest operation took; the
 * first and the last look at all pages are not among them.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../programs/random.h"

#define PAGE 4096u
#define WORDS (PAGE / sizeof(uint64_t))
#define MAX_THREADS 64
#define LL(n) ((unsigned long long)(n))

static struct {
	unsigned long mib, threads;
	uint64_t seed, ops, errors;
	const char *block;
} options = { .threads = 4 };

static uint64_t pages;
static uint32_t *versions; /* of the pages; locked in memory */
static uint8_t *memory;	   /* NULL: the block device */
static int block = -1;
static atomic_bool stop;
static atomic_ullong done, errors, longest_ms;

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	va_list ap;

	/* This is never unlocked: only the first thread that fails says so. */
	pthread_mutex_lock(&once);
	printf("swap-pages: failed: operation %llu: ", LL(atomic_load(&done)));
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	_exit(1);
}

/* ------------------------------------------------------------------ a page */

static uint64_t word_of(uint64_t page, uint32_t version, unsigned int i)
{
	uint64_t x = (page << 32 | version) + i * 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	return x ^ (x >> 31);
}

/* Number and version are the first two words, for a person who looks for where a wrong page comes from. */
static void fill(uint64_t *words, uint64_t page, uint32_t version)
{
	words[0] = page;
	words[1] = version;
	for (unsigned int i = 2; i < WORDS; i++)
		words[i] = word_of(page, version, i);
}

static void check(const uint64_t *words, uint64_t page, uint32_t version)
{
	if (words[0] != page || words[1] != version)
		fail("page %llu: it is %llu of version %llu, and was written as version %u", LL(page), LL(words[0]),
		     LL(words[1]), version);
	for (unsigned int i = 2; i < WORDS; i++)
		if (words[i] != word_of(page, version, i))
			fail("page %llu, version %u: its word %u is %016llx, not %016llx", LL(page), version, i, LL(words[i]),
			     LL(word_of(page, version, i)));
}

/* ------------------------------------------------------------------ where it lies */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void count_error(const char *what, uint64_t page, ssize_t n)
{
	if (atomic_fetch_add(&errors, 1) >= options.errors)
		fail("page %llu: %s: %s", LL(page), what, n < 0 ? strerror(errno) : "it was cut short");
}

static void transfer(bool write, void *buf, uint64_t page)
{
	int64_t end = now_ms() + 60000;
	ssize_t n;

	for (;;) {
		n = write ? pwrite(block, buf, PAGE, page * PAGE) : pread(block, buf, PAGE, page * PAGE);
		if (n == PAGE)
			return;
		count_error(write ? "write" : "read", page, n);
		if (now_ms() > end)
			fail("page %llu: it fails for a minute: %s", LL(page), strerror(errno));
		usleep(100000);
	}
}

static uint64_t *look_at(uint64_t page, void *buf)
{
	if (memory)
		return (uint64_t *)(memory + page * PAGE);
	transfer(false, buf, page);
	return buf;
}

static void write_page(uint64_t page, void *buf, uint32_t version)
{
	uint64_t *words = memory ? (uint64_t *)(memory + page * PAGE) : buf;

	fill(words, page, version);
	if (!memory)
		transfer(true, buf, page);
	versions[page] = version;
}

static void *new_buffer(void)
{
	void *buf = NULL;

	if (!memory && (posix_memalign(&buf, PAGE, PAGE) || mlock(buf, PAGE)))
		fail("a buffer: %s", strerror(errno));
	return buf;
}

/* ------------------------------------------------------------------ threads: each has every so-many-th page */

static uint64_t own_pages(unsigned int thread)
{
	return (pages - thread + options.threads - 1) / options.threads;
}

static bool ended(void)
{
	return atomic_load(&stop) || (options.ops && atomic_load(&done) >= options.ops);
}

static void took(unsigned long long ms)
{
	unsigned long long longest = atomic_load(&longest_ms);

	while (ms > longest && !atomic_compare_exchange_weak(&longest_ms, &longest, ms))
		;
}

static void turn(unsigned int thread, void *buf)
{
	int64_t begun = now_ms();
	uint64_t page = below(own_pages(thread)) * options.threads + thread;

	check(look_at(page, buf), page, versions[page]);
	if (below(2))
		write_page(page, buf, versions[page] + 1);
	if (!memory && !below(256) && fdatasync(block))
		count_error("fdatasync", page, -1);
	took(now_ms() - begun);
	atomic_fetch_add(&done, 1);
}

/* All of its pages, from some place on. */
static void each_page(unsigned int thread, void *buf, bool write)
{
	uint64_t n = own_pages(thread), first = below(n);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t page = (first + i) % n * options.threads + thread;

		if (write)
			write_page(page, buf, 1);
		else
			check(look_at(page, buf), page, versions[page]);
	}
}

static pthread_barrier_t filled;

static void *work(void *arg)
{
	unsigned int thread = (uintptr_t)arg;
	void *buf = new_buffer();

	rng = options.seed + thread * 1000003;
	each_page(thread, buf, true);
	pthread_barrier_wait(&filled);
	while (!ended())
		turn(thread, buf);
	each_page(thread, buf, false);
	free(buf);
	return NULL;
}

/* ------------------------------------------------------------------ begin and end */

static void usage(void)
{
	fprintf(stderr, "usage: swap-pages --mib N [--threads N] [--seed N] [--ops N] [--block FILE] [--errors N]\n");
	exit(2);
}

static void take_options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "mib", 1, NULL, 'm' }, { "threads", 1, NULL, 't' }, { "seed", 1, NULL, 's' }, { "ops", 1, NULL, 'o' },
		{ "block", 1, NULL, 'b' }, { "errors", 1, NULL, 'e' }, { 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'm': options.mib = strtoul(optarg, NULL, 0); break;
		case 't': options.threads = strtoul(optarg, NULL, 0); break;
		case 's': options.seed = strtoull(optarg, NULL, 0); break;
		case 'o': options.ops = strtoull(optarg, NULL, 0); break;
		case 'b': options.block = optarg; break;
		case 'e': options.errors = strtoull(optarg, NULL, 0); break;
		default: usage();
		}
	}
	if (optind != argc || !options.mib || options.mib > 1 << 20 || !options.threads || options.threads > MAX_THREADS)
		usage();
}

static void *map(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		fail("%zu bytes: %s", size, strerror(errno));
	madvise(at, size, MADV_NOHUGEPAGE);
	return at;
}

static void open_all(void)
{
	pages = options.mib * (1048576 / PAGE);
	versions = map(pages * sizeof(*versions));
	if (mlock(versions, pages * sizeof(*versions)))
		fail("mlock: %s", strerror(errno));
	if (!options.block) {
		memory = map(pages * PAGE);
		return;
	}
	block = open(options.block, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (block < 0)
		fail("%s: %s", options.block, strerror(errno));
}

/* Until SIGTERM, or until a thread says that all have ended. */
static void *serve(void *arg)
{
	int signal;

	while (!sigwait(arg, &signal)) {
		if (signal == SIGTERM)
			atomic_store(&stop, true);
		else
			printf("swap-pages: %llu operations so far\n", LL(atomic_load(&done)));
		fflush(stdout);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS], server;
	static sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	take_options(argc, argv);
	open_all();
	pthread_barrier_init(&filled, NULL, options.threads + 1);
	if (pthread_create(&server, NULL, serve, &signals))
		fail("no thread");
	for (unsigned int i = 0; i < options.threads; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i))
			fail("no thread");
	pthread_barrier_wait(&filled);
	printf("swap-pages: %llu pages are filled\n", LL(pages));
	fflush(stdout);
	for (unsigned int i = 0; i < options.threads; i++)
		pthread_join(threads[i], NULL);
	printf("swap-pages: %llu pages, %llu operations, the longest took %llu ms, %llu errors, all as written\n", LL(pages),
	       LL(atomic_load(&done)), LL(atomic_load(&longest_ms)), LL(atomic_load(&errors)));
	return 0;
}
