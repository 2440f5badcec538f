// SPDX-License-Identifier: GPL-2.0
/*
 * Memory and locks that CRIU makes before it forks the first task of a restore,
 * so that CRIU and all tasks have them. They are there until the last of these
 * processes ends.
 */
#include <errno.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <time.h>

#include "plugin.h"

#define PATIENCE 60	/* s, for another task to let go of a lock */

void *share(size_t size)
{
	void *at = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at != MAP_FAILED)
		return at;
	fail("no memory");
	return NULL;
}

int make_lock(sem_t *lock)
{
	return sem_init(lock, 1, 1) ? fail("no semaphore: %m") : 0;
}

int take_lock(sem_t *lock, const char *stuck)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	while (sem_timedwait(lock, &until))
		if (errno != EINTR)
			return fail("%s: %m", stuck);
	return 0;
}

void leave_lock(sem_t *lock)
{
	sem_post(lock);
}
