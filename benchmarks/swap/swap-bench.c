// SPDX-License-Identifier: MIT
/*
 * swap-bench KIND --mib N --limit FILE [--ops N] [--seed N]
 *
 * Fills so much memory, and sets FILE, its cgroup's memory.max, to one half of that. Then it uses the memory, as KIND says, and
 * checks all words of each page that it looks at. A line:
 *
 *	swap-bench: KIND NS P50-NS P99-NS FAULTS	all of it took NS, of which so many major faults
 *
 *	fault	three in four pages are written out first, and then there is memory for all; OPS of those are touched, in an order
 *		of chance
 *	cache	OPS times a quarter of a page is looked at, or in one of 20 cases written; nine in ten go to a fifth of the pages
 *	scan	all pages in their order, OPS times
 *	walk	each page is a node of a graph with eight edges; OPS steps, each along an edge of chance
 *
 * P50 and P99 are of a single touch, by "fault" alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../../tests/programs/random.h"

#define PAGE 4096u
#define WORDS (PAGE / sizeof(uint64_t))
#define QUARTER (WORDS / 4)
#define EDGES 8

static struct {
	const char *kind, *limit;
	uint64_t mib, ops, seed;
} options = { .ops = 1 };

static uint64_t pages, *memory;
static uint32_t *versions; /* of quarters of pages; locked in memory */
static uint64_t *touches;  /* ns; locked, too */

static void die(const char *what)
{
	fprintf(stderr, "swap-bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ------------------------------------------------------------------ pages */

static uint64_t word_of(uint64_t quarter, uint64_t version, unsigned int i)
{
	return (quarter << 32 | version << 8 | i) * 0x9e3779b97f4a7c15ull;
}

static uint64_t *quarter_at(uint64_t quarter)
{
	return memory + quarter * QUARTER;
}

/*
 * The edges of a node follow from its number, which is in the upper bits. All the same the walk looks at the node's page before
 * it goes along an edge.
 */
static uint64_t edge(uint64_t page, unsigned int i)
{
	return (word_of(page, 0, i) >> 40) % pages;
}

static void fill(uint64_t quarter)
{
	uint64_t *words = quarter_at(quarter);

	for (unsigned int i = 0; i < QUARTER; i++)
		words[i] = word_of(quarter, versions[quarter], i);
}

static void check(uint64_t quarter)
{
	const uint64_t *words = quarter_at(quarter);

	for (unsigned int i = 0; i < QUARTER; i++) {
		if (words[i] == word_of(quarter, versions[quarter], i))
			continue;
		fprintf(stderr, "swap-bench: page %llu is wrong\n", (unsigned long long)(quarter / 4));
		exit(1);
	}
}

static void check_page(uint64_t page)
{
	for (unsigned int i = 0; i < 4; i++)
		check(page * 4 + i);
}

static bool is_here(uint64_t page)
{
	unsigned char here;

	if (mincore((uint8_t *)memory + page * PAGE, PAGE, &here))
		die("mincore");
	return here & 1;
}

static void set_limit(const char *text)
{
	int fd = open(options.limit, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die(options.limit);
	close(fd);
}

static void set_part(unsigned int part)
{
	char text[32];

	snprintf(text, sizeof(text), "%lluK", (unsigned long long)options.mib * 1024 / part);
	set_limit(text);
}

/* ------------------------------------------------------------------ kinds */

static uint64_t n_touches;

static void fault(void)
{
	uint64_t *order = calloc(pages, sizeof(*order)), at, page;
	int64_t begun;

	for (uint64_t i = 0; i < pages; i++)
		order[i] = i;
	set_part(4);
	set_limit("max");
	for (uint64_t i = 0; i < pages && n_touches < options.ops; i++) {
		at = i + below(pages - i);
		page = order[at];
		order[at] = order[i];
		if (is_here(page))
			continue;
		begun = now_ns();
		*(volatile uint64_t *)quarter_at(page * 4);
		touches[n_touches++] = now_ns() - begun;
		check_page(page);
	}
	free(order);
}

static void cache(void)
{
	for (uint64_t i = 0; i < options.ops; i++) {
		uint64_t quarter = below(10) ? below(pages * 4 / 5) : below(pages * 4);

		check(quarter);
		if (below(20))
			continue;
		versions[quarter]++;
		fill(quarter);
	}
}

static void scan(void)
{
	for (uint64_t i = 0; i < options.ops; i++)
		for (uint64_t page = 0; page < pages; page++)
			check_page(page);
}

static void walk(void)
{
	uint64_t page = below(pages);

	for (uint64_t i = 0; i < options.ops; i++) {
		check_page(page);
		page = edge(page, below(EDGES));
	}
}

static const struct kind {
	const char *name;
	void (*run)(void);
} kinds[] = { { "fault", fault }, { "cache", cache }, { "scan", scan }, { "walk", walk }, { NULL, NULL } };

/* ------------------------------------------------------------------ begin and end */

static void *map(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		die("memory");
	madvise(at, size, MADV_NOHUGEPAGE);
	return at;
}

static void *map_locked(size_t size)
{
	void *at = map(size);

	if (mlock(at, size))
		die("mlock");
	return at;
}

static int order_of(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static unsigned long long percentile(unsigned int percent)
{
	if (!n_touches)
		return 0;
	qsort(touches, n_touches, sizeof(*touches), order_of);
	return touches[(n_touches - 1) * percent / 100];
}

static long major_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_majflt;
}

static void usage(void)
{
	fprintf(stderr, "usage: swap-bench fault|cache|scan|walk --mib N --limit FILE [--ops N] [--seed N]\n");
	exit(2);
}

static const struct kind *take_options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "mib", 1, NULL, 'm' }, { "ops", 1, NULL, 'o' }, { "seed", 1, NULL, 's' }, { "limit", 1, NULL, 'l' }, { 0 },
	};
	const struct kind *kind = kinds;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'm': options.mib = strtoull(optarg, NULL, 0); break;
		case 'o': options.ops = strtoull(optarg, NULL, 0); break;
		case 's': options.seed = strtoull(optarg, NULL, 0); break;
		case 'l': options.limit = optarg; break;
		default: usage();
		}
	}
	while (optind < argc && kind->name && strcmp(kind->name, argv[optind]))
		kind++;
	if (optind + 1 != argc || !kind->name || !options.limit || !options.mib || options.mib > 1 << 16)
		usage();
	return kind;
}

int main(int argc, char **argv)
{
	const struct kind *kind = take_options(argc, argv);
	int64_t took;
	long faults;

	rng = options.seed;
	pages = options.mib << 8;
	memory = map(pages * PAGE);
	versions = map_locked(pages * 4 * sizeof(*versions));
	touches = map_locked(pages * sizeof(*touches));
	for (uint64_t quarter = 0; quarter < pages * 4; quarter++)
		fill(quarter);
	set_part(2);
	faults = major_faults();
	took = now_ns();
	kind->run();
	took = now_ns() - took;
	printf("swap-bench: %s %lld %llu %llu %ld\n", kind->name, (long long)took, percentile(50), percentile(99),
	       major_faults() - faults);
	return 0;
}
