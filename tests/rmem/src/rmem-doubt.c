// SPDX-License-Identifier: MIT
/*
 * rmem-doubt [--seed N] [--transactions N]
 *
 * librvm with a donor in this process (fake_rmem.c). Transactions at random, whose connection breaks at random, and is gone for
 * longer than a commit waits. After a commit that failed the program writes more, commits again, or tries to abort. Whenever no
 * transaction is open any more, the donor must have what the memory has; and at any time what it had when a commit was called.
 *
 * Before that, memories that must not be made: where there is one already, whose region was not listed; and over the
 * reals, or the shadows, of another one. After it, transactions of others on the connection, which are not allowed: a commit
 * neither takes their result for its own, nor takes their answer away.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rvm.h"
#include "fake_rmem.h"

#define MUST(cond) ((cond) ? (void)0 : errx(1, "seed %llu, %lu transactions, line %d: not so: %s", (unsigned long long)seed, \
					    done, __LINE__, #cond))

enum { PAGE = 4096, PAGES = 9, SIZE = PAGES * PAGE, TAG = 5, TRIES = 40 };

static struct rvm *v;
static uint8_t (*page)[PAGE]; /* that the program may write to */
static uint8_t committed[SIZE]; /* what the donor must have if no commit is in doubt */
static uint8_t tried[TRIES][SIZE]; /* what it may have instead: the memory when a commit was called */
static unsigned int tries;
static uint64_t seed = 1, state;
static unsigned long done, more, refused, late;

static uint64_t rnd(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static uint8_t *memory(void)
{
	return (uint8_t *)rvm_base(v) - PAGE;
}

static bool donor_has(const uint8_t *bytes)
{
	return !memcmp(fake_region(TAG)->now, bytes, SIZE);
}

static bool donor_has_tried(void)
{
	for (unsigned int i = 0; i < tries; i++)
		if (donor_has(tried[i]))
			return true;
	return donor_has(committed);
}

static void write_some(void)
{
	for (uint64_t n = 1 + rnd(4); n; n--) {
		uint8_t *at = page[rnd(PAGES - 1)] + rnd(PAGE - 8);
		uint64_t value = rnd(UINT64_MAX);

		MUST(!rvm_set_range(v, at, 8));
		memcpy(at, &value, 8);
	}
}

static void misfortune(void)
{
	fake.breaks = rnd(4);
	fake.away = !rnd(2);
	fake.restarts = !rnd(3);
	fake.refuses = rnd(6) ? 0 : -ENOMEM;
}

static int commit(void)
{
	int ret;

	MUST(tries < TRIES);
	memcpy(tried[tries++], memory(), SIZE);
	ret = rvm_commit(v);
	MUST(ret == 0 || ret == -ENOTCONN || ret == -ENOMEM);
	MUST(donor_has_tried());
	return ret;
}

/* @late: a commit in doubt took place and is known to, but what was written since is not there. */
static bool aborted(void)
{
	int ret = rvm_abort(v);

	MUST(ret == 0 || ret == -EINPROGRESS);
	if (!ret)
		MUST(!memcmp(memory(), committed, SIZE));
	late += ret != 0;
	return !ret;
}

static void transaction(void)
{
	bool open = true;

	tries = 0;
	MUST(!rvm_begin(v));
	write_some();
	while (open) {
		if (tries < TRIES - 1)
			misfortune();
		else
			fake = (struct fake){ 0 };
		if (!rnd(5) && aborted())
			break;
		open = commit() != 0;
		refused += open;
		if (open && rnd(2)) {
			write_some();
			more++;
		}
	}
	MUST(donor_has(memory()));
	memcpy(committed, memory(), SIZE);
	done++;
}

static struct rvm *init(uint64_t tag, size_t size)
{
	const struct rvm_options o = { .tag = tag, .size = size, .timeout_ms = 1 };

	return rvm_init(NULL, &o);
}

static bool refuses(uint64_t tag, size_t size, int error)
{
	errno = 0;
	return !init(tag, size) && errno == error;
}

/* What the memory had before: a word in its second page. */
static void not_twice(void)
{
	v = init(TAG, SIZE);
	MUST(v && !rvm_begin(v));
	MUST(!rvm_set_range(v, rvm_base(v), 4));
	memcpy(rvm_base(v), "mine", 4);
	MUST(!rvm_commit(v));
	rvm_close(v);
	fake_region(TAG)->hidden = true;
	MUST(refuses(TAG, 0, ENOENT));
	MUST(refuses(TAG, SIZE, EAGAIN));
	MUST(refuses(TAG - 1, SIZE, EBADMSG));
	MUST(refuses(TAG + 1, SIZE, EBADMSG));
	/* After a restart its shadows are zeros, as they were when they were made: no transaction copies to them. */
	memset(fake_region(TAG + 1)->now, 0, SIZE);
	MUST(refuses(TAG + 1, SIZE, EBADMSG));
	v = init(TAG, SIZE);
	MUST(v && !memcmp(rvm_base(v), "mine", 4));
}

/* A transaction that is not librvm's. */
static int other(void)
{
	uint64_t a, b;

	MUST(!rmem_alloc(NULL, TAG + 10, PAGE, 0, &a) && !rmem_alloc(NULL, TAG + 11, PAGE, 0, &b) && !rmem_cp(NULL, a, b, PAGE));
	return rmem_txn_go_on(NULL, rmem_connection(NULL));
}

static void is_faster(void)
{
	MUST(rmem_txn_go_on(NULL, rmem_connection(NULL)) == -ENODATA);
	MUST(!other());
}

static void not_alone(void)
{
	fake = (struct fake){ .breaks = BREAKS_BEFORE_GO, .restarts = true, .meanwhile = is_faster };
	MUST(!rvm_begin(v));
	write_some();
	MUST(!rvm_commit(v) && donor_has(memory()));

	fake = (struct fake){ .breaks = BREAKS_AFTER_GO };
	MUST(other() == -ENOTCONN && !rmem_reconnect(NULL));
	fake.breaks = BREAKS_IN_PUT;
	MUST(!rvm_begin(v));
	write_some();
	MUST(rvm_commit(v) == -EBUSY);
	MUST(!rmem_txn_go_on(NULL, rmem_connection(NULL)));
	MUST(!rvm_commit(v) && donor_has(memory()));
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "seed", 1, NULL, 'S' }, { "transactions", 1, NULL, 't' }, { 0 } };
	unsigned long transactions = 200;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'S')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 't')
			transactions = strtoul(optarg, NULL, 0);
		else
			errx(2, "rmem-doubt [--seed N] [--transactions N]");
	}
	state = seed * 0x9e3779b97f4a7c15ull + 1;
	not_twice();
	page = rvm_base(v);
	memcpy(committed, memory(), SIZE);
	while (done < transactions)
		transaction();
	not_alone();
	printf("doubt: %lu transactions, %lu commits that failed, after %lu of them more was written; %lu aborts came too late\n",
	       done, refused, more, late);
	return more && late ? 0 : 75;
}
