// SPDX-License-Identifier: MIT
/*
 * rmem-slabs --host HOST --client NAME --key FILE [--slabs N] [--size MIB] [--hot] [--timeout MS]
 *
 * Puts 128 pages into each of N slabs (8) of MIB MiB (8), with tags from 1 on, and into a region of the same size, which is tag 0.
 * Until SIGTERM it gets pages of the slabs and checks them (--hot), or only polls. It says "evicted TAG" when a slab was taken.
 * At the end it checks all slabs that it still has, and says "stay N". It ends with 1 and one line if a byte is not what it must
 * be, or a call fails.
 */
#include <errno.h>
#include <getopt.h>
#include <rmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 128, MOST = 64 };

static struct rmem *rmem;
static uint64_t addresses[MOST + 1], size = 8 << 20;
static bool gone[MOST + 1];
static volatile sig_atomic_t stop;

static void fail(const char *what, uint64_t tag)
{
	fprintf(stderr, "rmem-slabs: failed: tag %llu: %s: %s\n", (unsigned long long)tag, what, rmem_error());
	exit(1);
}

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static void on_evict(const struct rmem_region *region, void *arg)
{
	(void)arg;
	gone[region->tag] = true;
	printf("evicted %llu\n", (unsigned long long)region->tag);
}

static void make_page(uint64_t *words, uint64_t tag, uint64_t page)
{
	for (uint64_t i = 0; i < PAGE / 8; i++)
		words[i] = tag << 48 ^ page << 16 ^ i;
}

/* The last page is at the end of the slab. */
static uint64_t address(uint64_t tag, uint64_t page)
{
	return addresses[tag] + (page + 1) * (size / PAGES) - PAGE;
}

static void fill(uint64_t tag)
{
	uint64_t words[PAGE / 8];

	if (rmem_alloc(rmem, tag, size, tag ? RMEM_SLAB : 0, &addresses[tag]))
		fail("alloc", tag);
	for (uint64_t page = 0; page < PAGES; page++) {
		make_page(words, tag, page);
		if (rmem_put(rmem, address(tag, page), words, PAGE))
			fail("put", tag);
	}
}

static void check_page(uint64_t tag, uint64_t page)
{
	uint64_t words[PAGE / 8], expected[PAGE / 8];
	int ret = rmem_get(rmem, words, address(tag, page), PAGE);

	/* The donor may just now have asked for the slab. The next call of the library is told so. */
	if (ret == -ESTALE && tag)
		return;
	if (ret)
		fail("get", tag);
	make_page(expected, tag, page);
	if (memcmp(words, expected, PAGE))
		fail("a page has other bytes", tag);
}

static void work(unsigned int slabs, bool hot)
{
	for (uint64_t n = 0; !stop; n++) {
		uint64_t tag = 1 + n % slabs;

		if (rmem_poll(rmem))
			fail("poll", 0);
		if (hot && !gone[tag])
			check_page(tag, n * 17 % PAGES);
		else
			usleep(10000);
	}
}

static void check_all(unsigned int slabs)
{
	unsigned int stay = 0;

	for (uint64_t tag = 0; tag <= slabs; tag++) {
		for (uint64_t page = 0; page < PAGES && !gone[tag]; page++)
			check_page(tag, page);
		stay += tag && !gone[tag];
	}
	printf("stay %u\n", stay);
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "host", 1, NULL, 'h' }, { "client", 1, NULL, 'c' }, { "key", 1, NULL, 'k' }, { "slabs", 1, NULL, 'n' },
		{ "size", 1, NULL, 's' }, { "hot", 0, NULL, 'H' }, { "timeout", 1, NULL, 't' }, { 0 },
	};
	struct rmem_options options = { 0 };
	unsigned int slabs = 8;
	bool hot = false;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'h': options.host = optarg; break;
		case 'c': options.client = optarg; break;
		case 'k': options.key_file = optarg; break;
		case 'n': slabs = strtoul(optarg, NULL, 0); break;
		case 's': size = strtoull(optarg, NULL, 0) << 20; break;
		case 'H': hot = true; break;
		case 't': options.timeout_ms = strtoul(optarg, NULL, 0); break;
		default: return 2;
		}
	}
	if (slabs > MOST || !slabs || !size)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGTERM, on_signal);
	rmem = rmem_connect(&options, NULL);
	if (!rmem)
		fail("connect", 0);
	rmem_on_evict(rmem, on_evict, NULL);
	for (uint64_t tag = 0; tag <= slabs; tag++)
		fill(tag);
	printf("filled\n");
	work(slabs, hot);
	check_all(slabs);
	rmem_close(rmem);
	return 0;
}
