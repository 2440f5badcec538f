// SPDX-License-Identifier: MIT
/*
 * Every allocation of every call of the driver fails in turn. The program's own ioctl() takes the place of libc's, also in
 * libibverbs-migrate. It lets the first allocation of the call fail, then the second, and so on until the call succeeds, as it
 * must if each failure was undone. The kernel's fail-nth does that (Documentation/fault-injection).
 *
 * Some calls succeed although an allocation has failed, for example that of a tombstone. Such a call can't be made again for the
 * next allocation. So everything is done again in a new process, where the same call begins after that allocation, until no call
 * does that any more. The same call is the Nth call of its method.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/rxe_migrate.h>

#include "failing.h"

enum { MAX_CALLS = 4096, MAX_ROUNDS = 200 };

static int nth = -1; /* /proc/thread-self/fail-nth, if allocations are to fail */

/* Of all rounds: shared with the processes that do them. */
static struct {
	int failed, tolerated;
	int num_calls;
	struct call {
		uint32_t method;	/* the object's id is in the upper bits */
		uint32_t nth;		/* of this method in a round */
		unsigned int from;	/* its first allocation that is to fail; 0: all have */
	} calls[MAX_CALLS];
} *all;

/* How often each method was called in this round. */
static struct { uint32_t method, count; } methods[MAX_CALLS];

static void give_up(const char *what)
{
	fprintf(stderr, "failing allocations: %s\n", what);
	exit(1);
}

void fail_allocations(void)
{
	nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (nth < 0)
		give_up("this kernel has no fail-nth");
}

void spare_allocations(void)
{
	close(nth);
	nth = -1;
}

int allocations_failed(void)
{
	return all->failed;
}

int allocations_tolerated(void)
{
	return all->tolerated;
}

void sweep_allocations(void (*round)(void))
{
	int rounds = 0, before, status;
	pid_t pid;

	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		give_up("no memory");
	do {
		if (rounds++ == MAX_ROUNDS)
			give_up("they do not come to an end");
		before = all->tolerated;
		fflush(NULL);
		pid = fork();
		if (!pid) {
			round();
			exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			exit(1);
	} while (all->tolerated != before);
	printf("%d allocations have failed in %d rounds; calls went on without %d of them\n", all->failed, rounds,
	       all->tolerated);
}

static struct call *this_call(const struct ib_uverbs_ioctl_hdr *hdr)
{
	uint32_t method = (uint32_t)hdr->object_id << 16 | hdr->method_id;
	struct call *c;
	int i;

	for (i = 0; methods[i].method && methods[i].method != method; i++)
		;
	methods[i].method = method;
	methods[i].count++;
	for (c = all->calls; c < all->calls + all->num_calls; c++)
		if (c->method == method && c->nth == methods[i].count)
			return c;
	if (all->num_calls == MAX_CALLS)
		give_up("too many calls");
	all->num_calls++;
	*c = (struct call){ .method = method, .nth = methods[i].count, .from = 1 };
	return c;
}

static void arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(nth, text, len, 0) != len)
		give_up("fail-nth is not to be written");
}

/* Has the allocation failed that was to fail? */
static bool fired(void)
{
	char text[16] = "";

	return pread(nth, text, sizeof(text) - 1, 0) > 0 && !atoi(text);
}

/* The call after a hint uses the hint up, even if the call fails. A caller that makes the call again gives the hint again. */
static struct {
	bool given;
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr;
	} cmd;
	struct rxe_migr_hint hint;
} last;

static void note_hint(const struct ib_uverbs_ioctl_hdr *hdr, bool done)
{
	last.given = done && hdr->object_id == RXE_OBJECT_MIGR && hdr->method_id == RXE_METHOD_MIGR_HINT;
	if (!last.given)
		return;
	if (hdr->length != sizeof(last.cmd) || hdr->attrs[0].len != sizeof(last.hint))
		give_up("hints look otherwise");
	memcpy(&last.cmd, hdr, sizeof(last.cmd));
	memcpy(&last.hint, (const void *)(uintptr_t)hdr->attrs[0].data, sizeof(last.hint));
	last.cmd.attr.data = (uintptr_t)&last.hint;
}

static void give_hint_again(int fd)
{
	if (last.given && syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, &last.cmd))
		give_up("a hint is not taken again");
}

int ioctl(int fd, unsigned long request, ...)
{
	struct call *call;
	va_list args;
	void *arg;
	int ret, error;
	bool did;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (nth < 0 || request != RDMA_VERBS_IOCTL)
		return syscall(SYS_ioctl, fd, request, arg);
	call = this_call(arg);
	if (!call->from) {
		ret = syscall(SYS_ioctl, fd, request, arg);
		note_hint(arg, !ret);
		return ret;
	}
	for (unsigned int n = call->from;; n++) {
		arm(n);
		ret = syscall(SYS_ioctl, fd, request, arg);
		error = errno;
		did = fired();
		arm(0);
		all->failed += did;
		all->tolerated += did && !ret;
		if (!did || !ret) {
			call->from = did ? n + 1 : 0;
			break;
		}
		give_hint_again(fd);
		/* If there is no memory for a route, the error is ENOBUFS, and for a socket ENFILE. There are also calls whose
		 * answer is an error anyway, for example that a buffer is too small. */
		if (error != ENOMEM && error != EAGAIN && error != ENOBUFS && error != ENFILE &&
		    (!syscall(SYS_ioctl, fd, request, arg) || errno != error)) {
			fprintf(stderr, "allocation %u failed, and the call with: %s\n", n, strerror(error));
			exit(1);
		}
	}
	note_hint(arg, !ret);
	errno = error;
	return ret;
}
