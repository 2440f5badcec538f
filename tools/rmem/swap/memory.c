// SPDX-License-Identifier: MIT
/*
 * Memory may be short at any time, and this process's own memory may be swapped to its own device. The kernel never waits for
 * this process, so nothing here can stop the kernel. But a lost donor can come back soon only if this process's memory is there.
 * So all of it is locked, the heap and the stacks are allocated at the start and kept, and system calls start no write-back
 * (spare_memory()).
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "rmemswap.h"

#define HEAP_SIZE (2 << 20)
#define STACK_SIZE (256 * 1024) /* all of it is locked in memory */

void spare_memory(void)
{
	/* A kernel before 5.6, or a process without the capability, goes on without this. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
}

int lock_memory(void)
{
	void *heap;

	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, -1);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return fault("memory can't be locked: %s", strerror(errno));
	heap = xcalloc(1, HEAP_SIZE);
	free(heap);
	spare_memory();
	return 0;
}

/* The loop of the first thread handles signals, so no other thread takes one. */
int start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int ret;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	ret = pthread_create(thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return ret;
}
