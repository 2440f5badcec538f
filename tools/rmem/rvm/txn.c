// SPDX-License-Identifier: MIT
/* One transaction at a time, of one thread. Everything here happens in local memory. */
#include <errno.h>
#include <unistd.h>

#include "internal.h"

int txn_open(struct rvm *v)
{
	int ret = pages_open(v);

	if (ret)
		return ret;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->ended, NULL);
	return 0;
}

void txn_close(struct rvm *v)
{
	pthread_cond_destroy(&v->ended);
	pthread_mutex_destroy(&v->lock);
	pages_close(v);
}

int rvm_begin(struct rvm *v)
{
	if (txn_mine(v))
		return -EDEADLK;
	pthread_mutex_lock(&v->lock);
	while (atomic_load(&v->owner))
		pthread_cond_wait(&v->ended, &v->lock);
	v->state = TXN_OPEN;
	atomic_store(&v->owner, gettid());
	pthread_mutex_unlock(&v->lock);
	return 0;
}

void txn_end(struct rvm *v)
{
	fault_protect(v);
	pages_clean(v);
	pthread_mutex_lock(&v->lock);
	v->state = TXN_NONE;
	v->half = false;
	atomic_store(&v->owner, 0);
	pthread_cond_signal(&v->ended);
	pthread_mutex_unlock(&v->lock);
}

void txn_touch(struct rvm *v, const void *p, size_t size)
{
	size_t offset = (const uint8_t *)p - v->mem;
	size_t first = offset / RVM_PAGE, last = (offset + size - 1) / RVM_PAGE;
	bool taken = false;

	for (size_t page = first; page <= last; page++)
		taken |= page_take(v, page);
	if (taken)
		fault_allow(v, first, last - first + 1);
}

int rvm_set_range(struct rvm *v, void *p, size_t size)
{
	uintptr_t from = (uintptr_t)p, base = (uintptr_t)v->mem + RVM_PAGE, end = (uintptr_t)v->mem + v->size;

	if (!txn_mine(v))
		return -EPERM;
	if (from < base || from > end || size > end - from)
		return -EINVAL;
	if (size)
		txn_touch(v, p, size);
	return 0;
}

int rvm_abort(struct rvm *v)
{
	if (!txn_mine(v))
		return -EPERM;
	/* If a commit took place, and memory were restored here, the next commit would mix the pages of both. */
	if (v->state == TXN_UNSURE || v->half)
		return -EINPROGRESS;
	pages_undo(v);
	txn_end(v);
	return 0;
}
