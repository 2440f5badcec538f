/* SPDX-License-Identifier: MIT */
/*
 * librvm: recoverable virtual memory on librmem. A range of this process's memory whose committed state lies at a donor,
 * where the next process finds it, at the same address.
 *
 * After Satyanarayanan et al., "Lightweight recoverable virtual memory" (begin, set_range, commit, abort), with remote memory in
 * place of a log on disk. Each local page has a real and a shadow page at the donor. A commit puts the changed pages to their
 * shadows, and has the donor copy shadows over reals in one transaction. So the reals change wholly or not at all, whichever side
 * dies at whatever moment.
 *
 *	rvm_init()	makes the memory, or recovers what there is under this tag; with size 0 only recovers
 *	rvm_begin()
 *	rvm_set_range()	before changing it (not with RVM_FAULTS, which finds out by itself)
 *	rvm_commit()	or rvm_abort(), after which memory is as at rvm_begin()
 *	rvm_close()
 *
 * There is one transaction at a time: rvm_begin() waits until the transaction of another thread has ended. Memory may be read at
 * any time. Calls return 0 or a negative errno value. rmem_error() says more if a call of librmem has failed.
 */
#ifndef RVM_H
#define RVM_H

#include <stddef.h>
#include <stdint.h>

#include "rmem.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rvm;

enum {
	RVM_FAULTS = 1 << 0, /* changes are found by write faults: userfaultfd's write protection, else mprotect and SIGSEGV */
	RVM_SIGNAL = 1 << 1, /* with RVM_FAULTS: by mprotect and SIGSEGV in any case */
};

struct rvm_options {
	uint64_t tag;	/* of the region at the donor; tags @tag (reals), @tag + 1 (shadows) are taken */
	size_t size;	/* of the memory, a multiple of 4096; when it is there already: 0, or the same */
	void *addr;	/* where; NULL: the library chooses. When it is there already: NULL, or the same */
	unsigned int flags;
	unsigned int timeout_ms; /* for how long rvm_commit() connects anew; 0: 60000 */
};

/*
 * The result belongs to the library, until rvm_close() or rvm_destroy(). @options need not live longer than the call.
 * Recovering takes the memory over: another process that still has it cannot commit any more. If the connection breaks, the call
 * fails, and may be made again.
 * On failure returns NULL and sets errno: ENOENT (@size is 0 and there is no such memory), EEXIST (the memory exists, with
 * another size or address), EADDRINUSE (its address is taken in this process), EBADMSG (the region under this tag is not of
 * librvm, or holds the shadows of another memory; or the next tag has another memory), EAGAIN (the memory exists, but the donor has
 * not listed it: call again), EINVAL, and the errors of rmem_alloc(), rmem_get() and rmem_txn_go(). @r has one recoverable memory
 * at a time, and must stay until rvm_close(). The program may also put and get on @r, and allocate, but must not call rmem_cp(),
 * rmem_free(), rmem_txn_go() and rmem_txn_abort(): a connection has one queue, and it is the memory's.
 */
struct rvm *rvm_init(struct rmem *r, const struct rvm_options *options);
/* Aborts an open transaction. The memory leaves this process, and the donor keeps it. */
void rvm_close(struct rvm *v);
/* Ends the memory at the donor, too, and closes it. On failure it is closed, and still exists at the donor. */
int rvm_destroy(struct rvm *v);

void *rvm_base(struct rvm *v);
size_t rvm_size(struct rvm *v); /* that programs may use; the first page is the library's */

/*
 * A block of the recoverable memory, aligned to 16 bytes and not zeroed. Both calls need a transaction, and are undone with it.
 * NULL: there is no free block, or no transaction. rvm_free() of NULL does nothing.
 */
void *rvm_alloc(struct rvm *v, size_t size);
void rvm_free(struct rvm *v, void *p);

/* One pointer that the next process finds; NULL at first. Set within a transaction. */
void *rvm_root(struct rvm *v);
int rvm_set_root(struct rvm *v, void *root);

/* -EDEADLK: this thread's own transaction is open */
int rvm_begin(struct rvm *v);
/* The range will be changed; ranges may overlap. -EINVAL: outside of the memory; -EPERM: no transaction of this thread */
int rvm_set_range(struct rvm *v, void *p, size_t size);
/*
 * When it returns 0, the changes are at the donor, and are durable if the donor persists. If the connection breaks, the call
 * tries for rvm_options.timeout_ms to connect again, and the commit goes on, even if a donor that persists has restarted. If
 * the call returns anything else, the transaction is still open: commit again, or abort. What is changed before the next call goes
 * with that call. After -ENOTCONN, -EACCES and -EPROTO the donor may have, or get, what this call was to commit, without what is
 * changed later.
 *	-EPERM		no transaction of this thread
 *	-ESTALE		for good: the donor has restarted and does not persist, or another process has recovered the
 *			memory since. The memory may still be read here
 *	-ENOMEM		no memory for the list of copies, here or at the donor; or no room on the donor's disk; or there are
 *			changes of more than 1 GiB; nothing of this call has happened at the donor
 *	-EBUSY		another transaction on this connection was lost, and for timeout_ms nobody has called rmem_txn_go() for
 *			its answer
 *	-ENOTCONN	and -EACCES, -EPROTO as rmem_connect()
 */
int rvm_commit(struct rvm *v);
/*
 * 	-EPERM		no transaction of this thread
 * 	-EINPROGRESS	rvm_commit() failed, and the donor may have what that call was to commit, or has it, without what was
 * 			changed since: call rvm_commit() again until it returns 0
 */
int rvm_abort(struct rvm *v);

#ifdef __cplusplus
}
#endif
#endif
