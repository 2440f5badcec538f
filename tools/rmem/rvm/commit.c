// SPDX-License-Identifier: MIT
/*
 * A commit takes place exactly once, whichever side dies at whatever moment. The transaction's state says what the donor may have
 * done:
 *
 *	state	step			the answer is yes	no answer		no
 *	OPEN	put to shadows		go on			connect, OPEN		fails, OPEN
 *	OPEN	queue the copies	UNSURE			connect, OPEN		fails, OPEN
 *	UNSURE	rmem_txn_go()		done			connect, UNSURE		fails, OPEN
 *
 * OPEN: the reals are as at rvm_begin(), since only a transaction changes them. Only the queued transaction reads the shadows. So
 * pages can be put once more, all or some of them, and nobody sees a change. Before copies are queued anew, the old queue is
 * discarded, so that no copy of an earlier attempt goes with them.
 *
 * UNSURE: the donor may have done the transaction. rmem_txn_go() asks it. The shadows stay as they are until it has answered:
 *	- The donor did not restart: it still has the shadows, and librmem sends the transaction again with the same number. If
 *	  this number is the donor's next one, the donor does the transaction. If it is the donor's last one, the donor only
 *	  answers. So the transaction is done once.
 *	- The donor restarted: puts are lost, so the same queue would copy something else. If the donor's last transaction is
 *	  this one, it was done and is durable, and librmem answers yes. Otherwise librmem has forgotten the queue, and says that
 *	  there is none. This one was not done and never will be, because the donor's process that could do it is dead. The state
 *	  is OPEN again.
 *
 * If rvm_commit() fails while the state is UNSURE, the program goes on with an open transaction, and may change more, also pages
 * that are dirty already. When a later call hears that the unsure transaction took place, it commits all dirty pages once more.
 * From then on the donor has what the first call was to commit, so rvm_abort() can't undo it any more (rvm.half).
 *
 * After each new connection, also one that another thread has made, the committer in the header is read. A transaction goes only
 * over the connection over which the committer was read. If there is another connection by then, nothing is sent. A transaction
 * that was to go for the first time is OPEN again, and its pages are put anew, since a donor that restarted has lost them. A
 * process that recovers this memory first connects, which ends our connection. Then it changes the committer. So a process that
 * was taken for dead can neither commit, nor take the transaction of the other process for its own.
 */
#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "internal.h"

enum {
	PAUSE_MS = 50, /* between two attempts */
};

bool connection_broke(int ret)
{
	/* -EIO: the donor's disk failed, and it ends itself. */
	return ret == -ENOTCONN || ret == -ETIMEDOUT || ret == -EIO;
}

/* ------------------------------------------------------------------ the connection */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static bool region_is(struct rvm *v, uint64_t tag, uint64_t addr)
{
	struct rmem_region region;

	return !rmem_find(v->r, tag, &region) && region.addr == addr && region.size == v->size;
}

static bool regions_there(struct rvm *v)
{
	return region_is(v, v->tag, v->real) && region_is(v, v->tag + 1, v->shadow);
}

int still_ours(struct rvm *v)
{
	unsigned int connection = rmem_connection(v->r); /* if it is not up, the next call says so */
	uint64_t committer;
	int ret;

	if (!regions_there(v))
		return -ESTALE;
	if (connection == v->connection)
		return 0;
	ret = rmem_get(v->r, &committer, v->real + offsetof(struct header, committer), sizeof(committer));
	if (ret)
		return ret;
	if (committer != v->committer)
		return -ESTALE;
	v->connection = connection;
	return 0;
}

static int connect_once(struct rvm *v)
{
	int ret;

	fault_suspend(v);
	ret = rmem_reconnect(v->r);
	fault_resume(v);
	/* -ESTALE: the donor restarted. Whether it still has our regions shows whether it persists. */
	return ret && ret != -ESTALE ? ret : still_ours(v);
}

static void pause_ms(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_MS * 1000000L }, NULL);
}

int connect_anew(struct rvm *v, int64_t *until)
{
	bool first = !*until;
	int ret = 0;

	if (first)
		*until = now_ms() + v->timeout_ms;
	for (; first || now_ms() < *until; first = false) {
		if (!first)
			pause_ms();
		/* the donor may have registered much memory for nothing, so it gets a longer pause */
		if (ret == -ENOMEM)
			nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
		ret = connect_once(v);
		if (!ret || ret == -ESTALE || ret == -EACCES || ret == -EPROTO)
			return ret;
	}
	return -ENOTCONN;
}

/* ------------------------------------------------------------------ the steps */

static int put_pages(struct rvm *v)
{
	struct transfer t;
	struct run run;

	transfer_put(&t, v->r);
	for (size_t at = 0; pages_run(v, at, &run); at = run.first + run.count)
		transfer_add(&t, v->shadow + run.first * RVM_PAGE, v->mem + run.first * RVM_PAGE, run.count * RVM_PAGE);
	return transfer_end(&t);
}

static void not_done(struct rvm *v)
{
	rmem_txn_abort(v->r);
	v->state = TXN_OPEN;
}

/*
 * All copies are queued, or none. -EBUSY: a transaction on the connection was lost, and its owner has not asked yet what became of
 * it. If a part of ours was queued before, the lost transaction is ours.
 */
static int queue_copies(struct rvm *v)
{
	bool queued = false;
	struct run run;
	int ret = 0;

	for (size_t at = 0; pages_run(v, at, &run); at = run.first + run.count) {
		ret = rmem_cp(v->r, v->real + run.first * RVM_PAGE, v->shadow + run.first * RVM_PAGE, run.count * RVM_PAGE);
		if (ret)
			break;
		queued = true;
	}
	if (!ret || !queued)
		return ret;
	not_done(v);
	return ret == -EBUSY ? -ENOTCONN : ret;
}

int commit_once(struct rvm *v)
{
	int ret = put_pages(v);

	if (!ret)
		ret = queue_copies(v);
	if (ret)
		return ret;
	v->state = TXN_UNSURE;
	ret = rmem_txn_go_on(v->r, v->connection);
	if (ret && !connection_broke(ret))
		not_done(v);
	return ret == -EREMCHG ? -ENOTCONN : ret;
}

/* Asks for the result of an unsure transaction. -EAGAIN: it was not done, and is open again. */
static int ask(struct rvm *v)
{
	int ret = rmem_txn_go_on(v->r, v->connection);

	if (ret == -EREMCHG)
		return -ENOTCONN;
	if (!ret || connection_broke(ret))
		return ret;
	not_done(v);
	return ret == -ENODATA ? -EAGAIN : ret;
}

/* @earlier: an earlier rvm_commit() has left an unsure transaction, and the program may have changed more since. */
static int attempt(struct rvm *v, bool *earlier)
{
	int ret = still_ours(v);

	if (ret)
		return ret;
	if (v->state == TXN_UNSURE) {
		ret = ask(v);
		if (ret != -EAGAIN && (ret || !*earlier))
			return ret;
		v->state = TXN_OPEN;
		v->half |= !ret;
	}
	*earlier = false;
	return commit_once(v);
}

/* Waits a moment, so that the owner of the lost transaction can ask what became of it. -EBUSY: the time is over. */
static int wait_for_other(struct rvm *v, int64_t *until)
{
	if (!*until)
		*until = now_ms() + v->timeout_ms;
	if (now_ms() >= *until)
		return -EBUSY;
	pause_ms();
	return 0;
}

int rvm_commit(struct rvm *v)
{
	int64_t until = 0;
	bool earlier;
	int ret;

	if (!txn_mine(v))
		return -EPERM;
	if (v->stale)
		return -ESTALE;
	earlier = v->state == TXN_UNSURE;
	ret = atomic_load(&v->taken) ? attempt(v, &earlier) : 0;
	while (connection_broke(ret) || ret == -EBUSY) {
		ret = ret == -EBUSY ? wait_for_other(v, &until) : connect_anew(v, &until);
		if (ret)
			break;
		ret = attempt(v, &earlier);
	}
	if (ret == -ESTALE) {
		v->stale = true;
		v->half = false; /* this process commits nothing more, so an abort can mix nothing */
		not_done(v);
	}
	if (!ret)
		txn_end(v);
	return ret;
}
