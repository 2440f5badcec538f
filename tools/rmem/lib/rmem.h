/* SPDX-License-Identifier: MIT */
/*
 * librmem: memory of another host, with transactions. The other host runs rmemd(8), the donor.
 *
 * After Ioannidis, Markatos and Sevaslidou, "On using network memory to improve the performance of transaction-based
 * systems", and the remote-memory server for recoverable virtual memory that followed from it; put and get are shaped
 * like those of librpma.
 *
 *	rmem_connect()                     a connection, known to the donor by the client's name and key
 *	rmem_alloc(tag, size)              a region, or the one that this tag already has
 *	rmem_put(), rmem_get()             one-sided: the donor's process takes no part, nothing is atomic
 *	rmem_cp(), rmem_free()             queued in this process
 *	rmem_txn_go()                      all that is queued happens, wholly or not at all; or rmem_txn_abort()
 *	rmem_close()
 *
 * When the connection breaks, calls return -ENOTCONN. Then call rmem_reconnect(), and rmem_txn_go() once more if it was the call
 * that broke. It says whether the transaction took place, and does it if it has not.
 *
 * Sizes and offsets are in bytes. Only the donor knows the meaning of a remote address. The address is the same after a
 * reconnection, and after a restart of a donor that persists. Calls return 0 or one of the negative errno values that are listed
 * at the call, unless it says otherwise. Each call that asks the donor, except rmem_txn_go_on(), also has an asynchronous form
 * (struct rmem_op). All calls except rmem_close() may come from several threads at once. One process at a time may use a client's
 * name: a new connection of the name ends the old one.
 *
 * Data crosses the network in clear. The connection is authenticated, and the data is not.
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
struct rmem_op;

struct rmem_options {
	const char *host;	/* the donor's name or address */
	const char *port;	/* NULL: "7471" */
	const char *client;	/* this client's name, as in the donor's rmemd.conf; at most 63 of [A-Za-z0-9._-] */
	const char *key_file;	/* 32 bytes in hexadecimal, readable by their owner alone */
	const char *device;	/* RDMA device; NULL: the one that has the address by which the donor is reached */
	/*
	 * The time for connecting, in milliseconds; 0: 10000. A request to the donor's process has the same time, but at least
	 * 60000. The time in which the donor's host itself is silent does not count: calls wait for a donor that is being moved,
	 * and notice a donor that has died within seconds. The time in which this process stands still, because it is being moved
	 * or was stopped, does not count either.
	 */
	unsigned int timeout_ms;
};

/*
 * Connects. The strings need not live longer than the call. On failure returns NULL and sets errno and *@reason (which may be
 * NULL), a line that says what happened, valid until this thread's next call.
 *	EACCES		the donor does not know this name and key, or does not know the key itself
 *	EPROTO		the donor speaks another version, or something else
 *	ENODEV		no RDMA device has the address by which the donor is reached
 *	EBUSY		the donor is being drained
 *	ENOMEM		it has no room for another client, its device does not take a region of ours, or there is no memory here
 *	EINVAL		an option, or the file of the key
 *	and those of socket(2) and connect(2)
 */
struct rmem *rmem_connect(const struct rmem_options *options, const char **reason);

/*
 * The same, without a wait (see struct rmem_op): a thread of the library connects. If this returns NULL, errno and rmem_error()
 * say why (EINVAL, ENOMEM, EAGAIN), and nothing was begun. Otherwise rmem_wait() or rmem_test() give the result, 0 or a negative
 * number of those above, and what was returned belongs to the caller until rmem_close() in any case. There is no descriptor before
 * the connection is up, so a program with an event loop looks with rmem_test() from time to time.
 */
struct rmem *rmem_connect_async(const struct rmem_options *options, struct rmem_op *op);

/*
 * Connects again after -ENOTCONN or -ETIMEDOUT, with the same options. Returns 0 at once if the connection is up. If another
 * thread is in this call, returns the result of that thread. The library keeps the queue, and the next rmem_txn_go() sends it.
 * Remote addresses do not change.
 *	-ESTALE		the donor has restarted, and the connection is up, as good as a new one. If the donor does not persist,
 *			all regions are gone, here too: allocate and fill them anew. If it persists, regions hold what was
 *			committed or flushed, and later puts are lost. What was queued and not committed is forgotten here, and
 *			nothing new can be queued until rmem_txn_go() has said so, or rmem_txn_abort() was called. After an
 *			rmem_txn_go() that broke, the next one still says what became of it: 0 if it is committed, -ENODATA if
 *			it is forgotten. If the new connection broke at once, the next call reports this restart once more.
 *	-EPROTO		also: the donor does not have a transaction that was committed: it runs on an older copy of its folder, or
 *			has lost it. Nothing has changed here. With the right folder the next call succeeds; otherwise
 *			rmem_close(), and connect as a new client, which knows nothing of the past. Or an rmem_txn_go() broke,
 *			and another process of this name has committed since: the transaction that broke did not take place
 *	others as rmem_connect(); the connection remains down
 */
int rmem_reconnect(struct rmem *r);

/*
 * The same, without a wait: a thread of the library connects, and calls what rmem_on_evict() names.
 *	-EALREADY	it is being connected already
 *	-EAGAIN		no thread can be made
 */
int rmem_reconnect_async(struct rmem *r, struct rmem_op *op);

/*
 * A number that changes whenever a connection breaks or is made. If a restart of the donor has undone what a thread put, only the
 * threads in rmem_reconnect() are told so. Any other thread asks for this number before it puts, and again after its
 * rmem_flush(): if the number is the same, its bytes are durable; otherwise it puts and flushes them once more. For a transaction
 * there is rmem_txn_go_on().
 */
unsigned int rmem_connection(struct rmem *r);

/*
 * Ends the connection and all operations that are under way, and discards the queue. Regions stay. No other call may be under
 * way. If a thread of the library is connecting, this waits for its end. NULL is ignored.
 */
void rmem_close(struct rmem *r);

/* The last failure in this thread, in one line. Never NULL. */
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
 * Reserves @size bytes (rounded up to pages of 4096), zeroed, under @tag, and stores their remote address. If a region with this
 * tag exists, it keeps its memory and its address. Not part of a transaction. At a donor that persists the region is durable when
 * the call returns.
 *	-EEXIST		there is such a tag, of another size or other flags
 *	-ENOMEM		the donor has no room: its memory, its headroom, its disk, or this client's quota; or this client has
 *			16384 regions
 *	-EINVAL		@size is 0
 *	-EBUSY		the donor is being drained
 *	-ENOTCONN, -ETIMEDOUT
 */
int rmem_alloc(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr);

/*
 * The same, without a wait (see struct rmem_op). *@addr is written when @op is done. It waits only for room among the messages to
 * the donor's process, and while a transaction is under way that frees this tag. A slab may have been evicted already when @op is
 * done.
 */
int rmem_alloc_async(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr, struct rmem_op *op);

/* The region of @tag: 0, or -ENOENT. Asks nobody: the table was read when connecting. */
int rmem_find(struct rmem *r, uint64_t tag, struct rmem_region *region);

/* Calls @each for each region, in the order of tags, until @each returns non-zero. Returns that value. */
int rmem_each(struct rmem *r, int (*each)(const struct rmem_region *, void *), void *arg);

/* ------------------------------------------------------------------ one-sided */

/*
 * Registers local memory, so that put and get of it need no copy. Other memory works too, through buffers of the library. -EBUSY
 * if it overlaps registered memory, or the errors of ibv_reg_mr(3). rmem_unregister() needs the same @buf.
 */
int rmem_register(struct rmem *r, void *buf, size_t size);
int rmem_unregister(struct rmem *r, void *buf);

/*
 * Copies @len bytes to or from remote memory, and waits. A range must lie in one region. When rmem_put() returns, every later
 * rmem_get() sees the bytes. They are not durable (see rmem_flush()). A failure may leave a part of them written.
 *	-ERANGE		the range is not in a region of this client
 *	-ESTALE		the region was evicted (slabs alone)
 *	-ENOTCONN	also when the donor refused the access, since the slab was taken or the region is freed
 */
int rmem_put(struct rmem *r, uint64_t dst, const void *src, size_t len);
int rmem_get(struct rmem *r, void *dst, uint64_t src, size_t len);

/*
 * Writes 8 bytes. A get at the same time sees all of them or none; a flush or a transaction may see a part of them. @dst is a
 * multiple of 8. -EINVAL, -EOPNOTSUPP (a device without atomic writes), and the errors of rmem_put().
 */
int rmem_put8(struct rmem *r, uint64_t dst, uint64_t value);

/*
 * An operation that its caller does not wait for at once. @op, which the caller allocates, and the local memory belong to the
 * library until @op is done: until rmem_wait() has returned its result, or rmem_test() something other than -EAGAIN. The order of
 * operations that are under way together is not defined: wait for a put before its bytes are flushed or copied. If the call that
 * begins it returns anything but 0, nothing was begun, and @op is not in use. An operation, except connecting, goes on only while
 * a thread is in a call of the library: rmem_wait(), rmem_test(), rmem_poll(), or any other that waits.
 *
 * Usually each operation has an @op of its own, and so always a completion. If @on_error is set, one @op serves any number of
 * operations, of one thread: it is done when all of them are, and rmem_wait() or rmem_test() returns the result of the first that
 * failed. Then it can be used again. Set the rest of it to 0 before its first use.
 */
struct rmem_op {
	int result;	/* of the operation, once it is done. Of operations that share it: see the result of rmem_wait() */
	bool done;
	bool on_error;	/* the caller sets it in any case: no completion for each operation */
	unsigned int parts; /* the library's: work requests and messages under way */
	unsigned int status; /* the library's: with which the donor refused it */
	const char *refused; /* the library's */
	void *user;	/* the caller's */
};

int rmem_put_async(struct rmem *r, uint64_t dst, const void *src, size_t len, struct rmem_op *op);
int rmem_get_async(struct rmem *r, void *dst, uint64_t src, size_t len, struct rmem_op *op);
int rmem_put8_async(struct rmem *r, uint64_t dst, uint64_t value, struct rmem_op *op);
int rmem_wait(struct rmem *r, struct rmem_op *op);
int rmem_test(struct rmem *r, struct rmem_op *op);

/*
 * Makes a range durable as it is now: all of it is in the donor's log when this returns. At a donor that does not persist it only
 * waits until earlier puts have arrived. Not part of a transaction. Each page of 4096 bytes becomes durable wholly or not at all.
 *	-ENOMEM		the donor's disk has no room for it, or the range is longer than 1 GiB; nothing of it is durable
 *	-ERANGE, -EIO (the donor's disk), -ENOTCONN, -ETIMEDOUT
 */
int rmem_flush(struct rmem *r, uint64_t addr, size_t len);
int rmem_flush_async(struct rmem *r, uint64_t addr, size_t len, struct rmem_op *op);

/* ------------------------------------------------------------------ transactions */

/*
 * Queue a copy between two ranges of this client's regions, and the end of a region. Nothing happens before rmem_txn_go(). Then
 * the entries happen in this order. A connection queues one transaction at a time, and its threads share it.
 *	-ERANGE		a range that is not in a region of this client
 *	-ESTALE		a range in a slab that was evicted
 *	-EBUSY		an rmem_txn_go() broke, or the donor restarted and what was queued is forgotten: call rmem_txn_go()
 *			for the answer, or rmem_txn_abort()
 *	-EINVAL		the ranges overlap, or are empty
 *	-ENOENT		no such tag
 *	-ENOTCONN, -ENOMEM
 */
int rmem_cp(struct rmem *r, uint64_t dst, uint64_t src, size_t len);
int rmem_free(struct rmem *r, uint64_t tag);

/*
 * Everything that is queued happens, atomically, even if this client dies after the donor has got the message. At a donor that
 * persists the result is durable. It has happened when this returns 0. No thread may put to the source of a copy meanwhile.
 *	-ENODATA	nothing is queued, or it was forgotten when the donor restarted
 *	-ERANGE		a copy touches a region that an earlier entry of the queue frees; nothing happened, the queue is empty
 *	-EIO		the donor's log failed, and the donor ends: see rmem_reconnect()
 *	-ENOMEM		the donor has no memory for the queue, or no room on its disk; or there are copies of more than 1 GiB, or
 *			more than some 3.7 million; nothing happened, the queue is empty
 *	-ENOTCONN, -ETIMEDOUT	it may have happened or not: rmem_reconnect(), then call again for the answer, also after -ESTALE
 */
int rmem_txn_go(struct rmem *r);

/*
 * Begins the same, and waits only while another transaction is under way. Until @op is done, calls that queue, end or discard a
 * transaction wait for it. The result of @op is one of those above except -ENODATA. This call itself returns:
 *	-ENODATA	as above
 *	-ENOTCONN	the connection was down before: nothing was begun, and the queue stays
 *	-EINVAL		op->on_error is set: a transaction needs an op of its own, so that its result is known
 */
int rmem_txn_go_async(struct rmem *r, struct rmem_op *op);

/*
 * rmem_txn_go(), if the connection is up and still has this number of rmem_connection(). Then nothing that was put since this
 * number was asked for is lost. After -ENOTCONN and -ETIMEDOUT, rmem_txn_go() gives the answer.
 *	-EREMCHG	the connection is another one, or down, and nothing was sent: rmem_txn_abort(), then put and queue anew
 */
int rmem_txn_go_on(struct rmem *r, unsigned int connection);

/*
 * Discards the queue. Returns 0, also if it was empty.
 *	-EALREADY	an rmem_txn_go() broke, and it turned out after rmem_reconnect() that its transaction is committed
 *	-ENOTCONN	an rmem_txn_go() broke, and nobody knows yet: nothing is discarded; rmem_reconnect() first
 */
int rmem_txn_abort(struct rmem *r);

/* The number of this client's last committed transaction; 0 before the first. */
uint64_t rmem_last_txn(struct rmem *r);

/* ------------------------------------------------------------------ eviction */

/*
 * The donor wants a slab back. When no operation is under way on the slab, the library calls @evicted, from within any other call
 * of the library, and then tells the donor. From then on the slab's range is -ESTALE. The callback must not call the library, and
 * must not wait for a lock that any thread holds around a call of the library. If a slab is not given back in the donor's time of
 * grace, the donor takes it. For slabs that were taken while there was no connection, @evicted is called when it is made again; by
 * rmem_reconnect_async() in the library's thread.
 */
void rmem_on_evict(struct rmem *r, void (*evicted)(const struct rmem_region *, void *), void *arg);

/*
 * For programs that have an event loop. The descriptor is readable when something has come for rmem_poll(). rmem_poll() never
 * blocks. While a flush, an rmem_alloc_async() or a transaction is under way, call it also once a second, since nothing comes from
 * a donor's process that has ended. The descriptor belongs to the library, and is another one after each connection. Both may
 * return -ENOTCONN.
 */
int rmem_fd(struct rmem *r);
int rmem_poll(struct rmem *r);

#ifdef __cplusplus
}
#endif
#endif
