// SPDX-License-Identifier: MIT
/*
 * When a connection has broken, all calls fail, one after the other. The first thread waits until no other thread is in a call,
 * and connects again. Then each thread checks its own regions before it goes on.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

/* A writer gets the lock before further readers do. Otherwise calls that still succeed could keep it out for ever. */
static pthread_rwlock_t calls = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static unsigned int connections, restarts; /* changed with the lock for writing */

unsigned int repair_enter(void)
{
	pthread_rwlock_rdlock(&calls);
	return connections;
}

void repair_leave(void)
{
	pthread_rwlock_unlock(&calls);
}

static void connect_anew(struct thread *t)
{
	time_t end = time(NULL) + options.patience;
	char before[sizeof(t->doing)];
	int result;

	memcpy(before, t->doing, sizeof(before));
	say(t, "reconnection after %s", before);
	while ((result = reconnect()) != 0 && result != -ESTALE) {
		if (time(NULL) > end)
			fail(t, "%s: %s", strerror(-result), rmem_error());
		usleep(100000);
	}
	connections++;
	if (result)
		restarts++;
}

void repair(struct thread *t, unsigned int connection)
{
	pthread_rwlock_wrlock(&calls);
	if (t->leaving == LEAVES) {
		leave(t);
		connections++;
		t->leaving = LEFT;
	} else if (connections == connection) {
		connect_anew(t);
	}
	pthread_rwlock_unlock(&calls);
}

bool repair_wanted(const struct thread *t)
{
	return t->again || t->restarts != restarts;
}

/* Settles a transaction whose answer was lost with the donor. */
static int settle_go(struct thread *t)
{
	uint64_t last;
	int result;

	say(t, "go after a restart, for the answer");
	result = rmem_txn_go(rmem);
	if (result && result != -ENODATA)
		return ask(t, result);
	t->again = NULL;
	if (!result) {
		committed(t);
		return 0;
	}
	last = rmem_last_txn(rmem);
	if (last != first_txn + commits)
		fail(t, "it is forgotten, but the last transaction is %llu; it must be %llu", (unsigned long long)last,
		     (unsigned long long)(first_txn + commits));
	pthread_mutex_unlock(&txn_lock);
	return 0;
}

static int look_at(struct thread *t, struct region *region, const struct part *flush)
{
	struct rmem_region there;
	int result;

	say(t, "look at tag %llu after a restart", (unsigned long long)region->tag);
	if (rmem_find(rmem, region->tag, &there))
		fail(t, "the region is gone");
	if (there.addr != region->addr || there.size != region->size)
		fail(t, "the region has another address or size");
	result = ask(t, rmem_get(rmem, t->buf, region->addr, region->size));
	if (!result)
		model_restart(t, region, t->buf, flush && flush->region == region ? flush : NULL);
	return result;
}

/* If the connection breaks again meanwhile, repair_go_on() calls this once more, from its beginning. */
static int after_restart(struct thread *t)
{
	const struct part *flush;
	unsigned int i;
	int result = 0;

	if (t->again == do_go)
		result = settle_go(t);
	flush = t->again == do_flush ? &t->parts[0] : NULL;
	for (i = 0; i < t->num_regions && !result; i++)
		result = look_at(t, t->regions[i], flush);
	if (!result)
		t->restarts = restarts;
	return result;
}

int repair_go_on(struct thread *t)
{
	int result = 0;

	if (t->restarts != restarts)
		result = after_restart(t);
	if (!result && t->again) {
		result = t->again(t);
		if (!result)
			t->again = NULL;
	}
	return result;
}

void repair_report(void)
{
	if (options.reconnect)
		printf("rmem-load: %u reconnections, %u restarts of the donor\n", connections, restarts);
}
