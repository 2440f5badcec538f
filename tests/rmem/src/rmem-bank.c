// SPDX-License-Identifier: MIT
/*
 * rmem-bank --host H --client C --key F [--accounts N] [--threads T] [--seconds S | --transfers N] [--faults | --signal]
 * [--check]
 *
 * Accounts in recoverable memory, and transfers between two of them at random, of which one in eight is aborted. The sum of
 * all accounts does not change. Says "committed N" after each commit; N grows by one, and is stored with the accounts.
 *
 *   --check   recovers, verifies all accounts, and says "stored N" (0 if there is no bank): N is not less than the last
 *             N said, and not more than that plus the number of threads
 *
 * Also --port, --device, --tag, --seed, and --timeout (seconds until a commit gives up). Exits with 1 and one line if
 * something is wrong with the accounts, with 75 if the donor cannot be asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "recoverable.h"

enum {
	MONEY = 1000,	 /* of each account at first */
	CHECK_EACH = 256, /* transfers */
	SCRATCH = 3000,	 /* bytes that a transaction allocates before it aborts */
};

struct account {
	int64_t balance;
	uint64_t changes;
	uint64_t checksum;
};

struct bank {
	uint64_t accounts;
	uint64_t committed;
	struct account account[];
};

static struct options o = { .memory.tag = 1, .count = 1000, .threads = 1 };
static struct rvm *v;
static struct bank *bank;
static pthread_mutex_t said = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t rounds;

static uint64_t checksum(const struct account *a)
{
	return mix(mix(mix(a - bank->account) + a->balance) + a->changes);
}

static void change(struct account *a, int64_t amount)
{
	set_range(v, a, sizeof(*a));
	a->balance += amount;
	a->changes++;
	a->checksum = checksum(a);
}

/* Call it within a transaction, or when no other thread runs. */
static void check_bank(void)
{
	int64_t sum = 0;

	for (uint64_t i = 0; i < bank->accounts; i++) {
		const struct account *a = &bank->account[i];

		if (a->checksum != checksum(a))
			VIOLATION("account %" PRIu64 ": its checksum is wrong, at commit %" PRIu64, i, bank->committed);
		sum += a->balance;
	}
	if (sum != (int64_t)bank->accounts * MONEY)
		VIOLATION("the sum is %" PRId64 " and not %" PRIu64 ", at commit %" PRIu64, sum, bank->accounts * MONEY,
			  bank->committed);
}

static size_t bank_size(uint64_t accounts)
{
	return sizeof(struct bank) + accounts * sizeof(struct account);
}

static size_t memory_size(void)
{
	return (bank_size(o.count) + (1 << 20)) & ~(size_t)4095;
}

static void make_bank(void)
{
	RVM(rvm_begin(v));
	bank = rvm_alloc(v, bank_size(o.count));
	if (!bank)
		VIOLATION("rvm_alloc: %s", strerror(errno));
	set_range(v, bank, bank_size(o.count));
	bank->accounts = o.count;
	bank->committed = 0;
	for (uint64_t i = 0; i < o.count; i++) {
		bank->account[i] = (struct account){ .balance = MONEY };
		bank->account[i].checksum = checksum(&bank->account[i]);
	}
	RVM(rvm_set_root(v, bank));
	RVM(rvm_commit(v));
}

static bool open_bank(void)
{
	v = memory_open(&o, 0);
	if (!v && !o.check)
		v = memory_open(&o, memory_size());
	if (!v)
		return false;
	bank = rvm_root(v);
	if (!bank && !o.check)
		make_bank();
	if (!bank)
		return false;
	if (bank_size(bank->accounts) > rvm_size(v))
		VIOLATION("the bank has %" PRIu64 " accounts", bank->accounts);
	check_bank();
	return true;
}

/* The next commit waits for this one's line, so that the lines come in the order of commits. */
static void commit(void)
{
	char line[40];
	int len;

	set_range(v, &bank->committed, sizeof(bank->committed));
	bank->committed++;
	pthread_mutex_lock(&said);
	len = sprintf(line, "committed %" PRIu64 "\n", bank->committed);
	RVM(rvm_commit(v));
	if (write(1, line, len) != len)
		exit(EXIT_CANNOT_ASK);
	pthread_mutex_unlock(&said);
}

static void abort_it(const struct account *a, const struct account *b, const struct account was[2])
{
	void *scratch = rvm_alloc(v, SCRATCH);

	if (!scratch)
		VIOLATION("rvm_alloc: %s: what was aborted is still allocated", strerror(errno));
	set_range(v, scratch, SCRATCH);
	memset(scratch, 0xa5, SCRATCH);
	RVM(rvm_abort(v));
	/* Another thread may have changed the accounts since. In a transaction none can, and .changes says whether one has. */
	RVM(rvm_begin(v));
	if ((a->changes == was[0].changes && memcmp(a, &was[0], sizeof(*a))) ||
	    (b->changes == was[1].changes && memcmp(b, &was[1], sizeof(*b))) || a->changes < was[0].changes ||
	    b->changes < was[1].changes)
		VIOLATION("a transaction was aborted and not undone, at commit %" PRIu64, bank->committed);
	RVM(rvm_abort(v));
}

static void transfer(uint64_t *state)
{
	struct account *a = &bank->account[rnd(state, bank->accounts)], *b = &bank->account[rnd(state, bank->accounts)];
	int64_t amount = rnd(state, MONEY);
	struct account was[2];

	RVM(rvm_begin(v));
	was[0] = *a;
	was[1] = *b;
	change(a, -amount);
	change(b, amount);
	if (rnd(state, CHECK_EACH) == 0)
		check_bank();
	if (rnd(state, 8))
		commit();
	else
		abort_it(a, b, was);
}

static void *work(void *arg)
{
	uint64_t state = o.seed + (uintptr_t)arg;

	while (!time_is_over(&o) && !(o.limit && atomic_fetch_add(&rounds, 1) >= o.limit))
		transfer(&state);
	return NULL;
}

static void run(void)
{
	pthread_t *thread = calloc(o.threads, sizeof(*thread));

	if (!thread)
		VIOLATION("no memory");
	if (!o.seed && getrandom(&o.seed, sizeof(o.seed), 0) < 0)
		VIOLATION("getrandom: %s", strerror(errno));
	for (uint64_t i = 0; i < o.threads; i++)
		if (pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(i << 32)))
			VIOLATION("pthread_create failed");
	for (uint64_t i = 0; i < o.threads; i++)
		pthread_join(thread[i], NULL);
	free(thread);
	check_bank();
}

int main(int argc, char **argv)
{
	bool there;

	options_parse(argc, argv, &o);
	there = open_bank();
	if (there && !o.check)
		run();
	printf("stored %" PRIu64 "\n", there ? bank->committed : 0);
	if (v)
		memory_close(v);
	return 0;
}
