// SPDX-License-Identifier: MIT
/*
 * LD_PRELOAD=build/tests/rmem-steps-kill.so: a step is a message that a process sends by RDMA, or a change of its disk.
 * rdma-core's rxe tells the kernel of each message by a write() of its own.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "steps.h"

static struct steps *steps;

static __attribute__((constructor)) void begin(void)
{
	const char *path = getenv(STEPS_ENV);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	steps = mmap(NULL, sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (steps == MAP_FAILED)
		abort();
	close(fd);
}

static void end(void)
{
	if (steps->mate)
		kill(steps->mate, SIGKILL);
	kill(getpid(), SIGKILL);
}

/* Called before a step. Returns whether the process ends after it. */
static bool step(void)
{
	uint64_t now = steps ? ++steps->taken : 0;
	bool here = steps && atomic_compare_exchange_strong(&steps->at, &now, STEPS_DIES);

	if (here && !steps->after)
		end();
	return here;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define STEP(name, ...) \
	({ \
		bool last = step(); \
		__auto_type result = NEXT(name)(__VA_ARGS__); \
		if (last) \
			end(); \
		result; \
	})

ssize_t write(int fd, const void *data, size_t size)
{
	const struct ib_uverbs_cmd_hdr *header = data;

	if (size >= sizeof(*header) && size <= 64 && header->command == IB_USER_VERBS_CMD_POST_SEND)
		return STEP(write, fd, data, size);
	return NEXT(write)(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
	return STEP(pwrite, fd, data, size, at);
}

int fsync(int fd)
{
	return STEP(fsync, fd);
}

int fdatasync(int fd)
{
	return STEP(fdatasync, fd);
}

int unlinkat(int dir, const char *name, int flags)
{
	return STEP(unlinkat, dir, name, flags);
}
