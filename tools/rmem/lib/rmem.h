/* SPDX-License-Identifier: MIT */
/*
 * librmem: memory of another host, with transactions. The other host runs rmemd(8), the donor.
 *
 * After Ioanidis, Markatos and Sevaslidou, "On using network memory to improve the performance of transaction-based
 * systems", and the remote-memory server for recoverable virtual memory that followed from it; put and get are shaped
 * like those of librpma.
 *
 *	rmem_connect()                     a connection, known to the donor by the client's name and key
 *	rmem_alloc(tag, size)              a region, or the one that this tag already has
 *	rmem_put(), rmem_get()             one-sided: the donor's process takes no part, nothing is atomic
 *	rmem_cp(), rmem_free()             queued at the donor
 *	rmem_txn_go()                      all that is queued happens, wholly or not at all; or rmem_txn_abort()
 *	rmem_close()
 *
 * When the connection breaks, calls return -ENOTCONN. Then rmem_reconnect(), and rmem_txn_go() once more if it was the call
 * that broke: it says whether the transaction took place, and does it if it has not.
 *
 * Sizes and offsets are in bytes. A remote address is a number that only the donor knows the meaning of; it is the same after
 * a reconnection, and after a restart of a donor that persists. Calls return 0 or a negative errno value, each listed at its
 * call, unless it says otherwise. All calls may come from several threads at once, but rmem_close(). A client's name is for
 * one process at a time: the donor ends the connection of the one before.
 *
 * Data crosses the network in clear; the connection is authenticated, the data is not.
 */
#ifndef RMEM_H
#define RMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rmem;

struct rmem_options {
	const char *host;	/* the donor's name or address */
	const char *port;	/* NULL: "7471" */
	const char *client;	/* this client's name, as in the donor's rmemd.conf; at most 63 of [A-Za-z0-9._-] */
	const char *key_file;	/* 32 bytes in hexadecimal, readable by their owner alone */
	const char *device;	/* RDMA device; NULL: the one that has the address by which the donor is reached */
	/*
	 * Of connecting; 0: 10000. A request to the donor's process has the same, but at least 60000. The time in which the
	 * donor's host itself is silent is not counted: a donor that is being moved is waited for, one that has died is found
	 * out in seconds. Nor is the time in which this process stands still, because it is being moved or was stopped.
	 */
	unsigned int timeout_ms;
};

/*
 * Connects. The strings may go away afterwards. On failure NULL, errno is set, and *@reason (may be NULL) is a line that
 * says what happened, valid until this thread's next call.
 *	EACCES		the donor does not know this name and key, or does not know the key itself
 *	EPROTO		the donor speaks another version, or something else
 *	ENODEV		no RDMA device has the address by which the donor is reached
 *	EBUSY		the donor is being drained
 *	ENOMEM		it has no room for another client, or there is no memory here
 *	EINVAL		an option, or the file of the key
 *	and those of socket(2) and connect(2)
 */
struct rmem *rmem_connect(const struct rmem_options *options, const char **reason);

/*
 * Connects anew after -ENOTCONN or -ETIMEDOUT, with the same options; 0 at once if the connection is up, and if another thread
 * is in it, its result. What was queued and not gone is queued again by the next rmem_txn_go(). Remote addresses stay what
 * they were.
 *	-ESTALE		the donor has restarted. If it does not persist, all regions are gone, and so they are here; allocate and
 *			fill them anew. If it does, regions hold what was committed or flushed, and what was put since is lost;
 *			what was queued and not committed has been forgotten here. Either way the connection is up, and is
 *			as good as a new one; if it broke at once, the next call tells of this restart once more. After
 *			an rmem_txn_go() that broke, the next one still says what became of it: 0 if it is committed,
 *			-ENODATA if it has been forgotten. When anything is forgotten, nothing new is queued until
 *			rmem_txn_go() has told so, or rmem_txn_abort() was called.
 *	others as rmem_connect(); the connection remains down
 */
int rmem_reconnect(struct rmem *r);

/* Ends the connection; what is queued is discarded. Regions stay. No other call may be under way. NULL is ignored. */
void rmem_close(struct rmem *r);

/* What the last failure in this thread was, in one line. Never NULL. */
const char *rmem_error(void);

/* ------------------------------------------------------------------ regions */

enum {
	RMEM_SLAB = 1 << 0, /* may be evicted by the donor, is never persisted: a cache, or swap with a copy on disk */
};

struct rmem_region {
	uint64_t tag;
	uint64_t addr; /* remote */
	uint64_t size;
	uint32_t flags;
};

/*
 * Reserves @size bytes (rounded up to pages of 4096), zeroed, under @tag, and stores their remote address. A tag that there is
 * already keeps its memory: the same address again. Not part of a transaction; durable when it returns, at a donor that persists.
 *	-EEXIST		there is such a tag, of another size or other flags
 *	-ENOMEM		the donor has no room: its memory, its headroom, its disk, or this client's quota; or this client has 16384
 *			regions
 *	-EINVAL		@size is 0
 *	-EBUSY		the donor is being drained
 *	-ENOTCONN, -ETIMEDOUT
 */
int rmem_alloc(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr);

/* The region of @tag: 0, or -ENOENT. Asks nobody: the table is learnt when connecting. */
int rmem_find(struct rmem *r, uint64_t tag, struct rmem_region *region);

/* Calls @each for each region, in the order of tags, until it returns non-zero, which is returned. */
int rmem_each(struct rmem *r, int (*each)(const struct rmem_region *, void *), void *arg);

/* ------------------------------------------------------------------ one-sided */

/*
 * Registers local memory, so that put and get of it need no copy. Other memory works too, through buffers of the library.
 * -EBUSY when it overlaps what is registered, else those of ibv_reg_mr(3). rmem_unregister() wants the same @buf.
 */
int rmem_register(struct rmem *r, void *buf, size_t size);
int rmem_unregister(struct rmem *r, void *buf);

/*
 * Copies @len bytes to or from remote memory; blocking. A range must lie in one region. When rmem_put() returns, every later
 * rmem_get() by any means sees the bytes; they are not durable (rmem_flush()). A failure may leave a part of them written.
 *	-ERANGE		the range is not in a region of this client
 *	-ESTALE		the region was evicted (slabs alone)
 *	-ENOTCONN	also when the donor refused the access, since the slab was taken or the region is freed
 */
int rmem_put(struct rmem *r, uint64_t dst, const void *src, size_t len);
int rmem_get(struct rmem *r, void *dst, uint64_t src, size_t len);

/*
 * An 8-byte write that a reader sees wholly or not at all. @dst is a multiple of 8.
 * -EINVAL, -EOPNOTSUPP (a device without atomic writes), and as rmem_put().
 */
int rmem_put8(struct rmem *r, uint64_t dst, uint64_t value);

/*
 * The same without waiting. The memory, and @op, which the caller allocates, belong to the library until @op is done:
 * rmem_wait() returned what became of it, or rmem_test() something else than -EAGAIN. The order of operations that are under way
 * together is not defined. A return value other than 0 means that nothing was begun, and @op is not in use.
 */
struct rmem_op {
	int result;	/* of the operation, once it is done */
	bool done;
	unsigned int parts; /* the library's: work requests under way */
	struct rmem_op *next;
	void *user;	/* the caller's */
};

int rmem_put_async(struct rmem *r, uint64_t dst, const void *src, size_t len, struct rmem_op *op);
int rmem_get_async(struct rmem *r, void *dst, uint64_t src, size_t len, struct rmem_op *op);
int rmem_wait(struct rmem *r, struct rmem_op *op);
int rmem_test(struct rmem *r, struct rmem_op *op);

/*
 * Makes a range durable as it is now: all of it is in the donor's log when this returns. At a donor that does not persist it
 * only waits until earlier puts have arrived. Not part of a transaction; each page of 4096 bytes is durable wholly or not at all.
 *	-ENOMEM		the donor's disk has no room for it, or the range is longer than 1 GiB; nothing of it is durable
 *	-ERANGE, -EIO (the donor's disk), -ENOTCONN, -ETIMEDOUT
 */
int rmem_flush(struct rmem *r, uint64_t addr, size_t len);

/* ------------------------------------------------------------------ transactions */

/*
 * Queue a copy between two ranges of this client's regions, and the end of a region. Nothing happens before rmem_txn_go(); then
 * they happen in this order. One transaction at a time is being queued on a connection: threads share it.
 *	-ERANGE		a range that is not in a region of this client
 *	-ESTALE		a range in a slab that was evicted
 *	-EBUSY		an rmem_txn_go() broke, or the donor restarted and what was queued is forgotten: rmem_txn_go() for
 *			the answer, or rmem_txn_abort()
 *	-EINVAL		the ranges overlap, or are empty
 *	-ENOENT		no such tag
 *	-ENOTCONN, -ENOMEM
 */
int rmem_cp(struct rmem *r, uint64_t dst, uint64_t src, size_t len);
int rmem_free(struct rmem *r, uint64_t tag);

/*
 * All that is queued happens, atomically: even if this client dies once the donor has the message, and durably at a donor that
 * persists. When it returns 0 it has. The source of a copy must not be put to meanwhile.
 *	-ENODATA	nothing is queued, or it was forgotten when the donor restarted
 *	-ERANGE		a copy touches a region that an earlier entry of the queue frees; nothing happened, the queue is empty
 *	-EIO		the donor's log; it ends, see rmem_reconnect()
 *	-ENOMEM		the donor has no memory for the queue, or no room on its disk; or there are more than 1048576 entries, or
 *			copies of more than 1 GiB at a donor that persists; nothing happened, the queue is empty
 *	-ENOTCONN, -ETIMEDOUT	it may have happened or not: rmem_reconnect(), then call again for the answer, also after -ESTALE
 */
int rmem_txn_go(struct rmem *r);

/*
 * Discards what is queued. 0, also if nothing was.
 *	-EALREADY	an rmem_txn_go() broke, and it turned out after rmem_reconnect() that its transaction is committed
 *	-ENOTCONN	an rmem_txn_go() broke, and nobody knows yet: nothing is discarded; rmem_reconnect() first
 */
int rmem_txn_abort(struct rmem *r);

/* The number of this client's last committed transaction; 0 before the first. */
uint64_t rmem_last_txn(struct rmem *r);

/* ------------------------------------------------------------------ eviction */

/*
 * The donor wants a slab back. The library calls @evicted, from within any other call of it, once nothing of its own is under way
 * on the slab, and then tells the donor; from then on the slab's range is -ESTALE. The callback may not call the library,
 * nor wait for a lock that any thread holds around a call of the library.
 * A slab that is not given back in the donor's time of grace is taken; so are those that were evicted while there was no
 * connection: @evicted is called from within rmem_reconnect().
 */
void rmem_on_evict(struct rmem *r, void (*evicted)(const struct rmem_region *, void *), void *arg);

/*
 * For programs that have an event loop: readable when rmem_poll() has something to do, which never blocks. The descriptor
 * is the library's, and another one after rmem_reconnect(). Both: -ENOTCONN.
 */
int rmem_fd(struct rmem *r);
int rmem_poll(struct rmem *r);

#ifdef __cplusplus
}
#endif
#endif
