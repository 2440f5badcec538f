// SPDX-License-Identifier: MIT
/*
 * Every allocation of every call of the driver, failing in turn. The program's own ioctl() takes the place of libc's, also
 * in libibverbs-migrate: it lets the first allocation of the call fail, then the second, until the call succeeds, as it must
 * when each failure was undone. The kernel's fail-nth does that (Documentation/fault-injection).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <rdma/rdma_user_ioctl.h>

#include "failing.h"

static int nth = -1; /* /proc/thread-self/fail-nth, if allocations are to fail */
static int failed; /* how many have */

void fail_allocations(void)
{
	nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (nth < 0) {
		fprintf(stderr, "this kernel has no fail-nth\n");
		exit(1);
	}
}

int allocations_failed(void)
{
	return failed;
}

static void arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	if (pwrite(nth, text, len, 0) != len) {
		perror("fail-nth");
		exit(1);
	}
}

/* Whether the one that was to fail has. */
static bool fired(void)
{
	char text[16] = "";

	return pread(nth, text, sizeof(text) - 1, 0) > 0 && !atoi(text);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int ret, error;
	bool did;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (nth < 0 || request != RDMA_VERBS_IOCTL)
		return syscall(SYS_ioctl, fd, request, arg);
	for (unsigned int n = 1;; n++) {
		arm(n);
		ret = syscall(SYS_ioctl, fd, request, arg);
		error = errno;
		did = fired();
		arm(0);
		failed += did;
		if (!did || !ret)
			break;
		if (error != ENOMEM && error != EAGAIN) {
			fprintf(stderr, "allocation %u failed, and the call with: %s\n", n, strerror(error));
			exit(1);
		}
	}
	errno = error;
	return ret;
}
