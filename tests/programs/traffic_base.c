// SPDX-License-Identifier: MIT
/*
 * What all other files of traffic call: how it ends when something is wrong, and its clock.
 */
#include "traffic.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

_Noreturn void violation(const struct qp *q, const char *what, uint64_t seq, const char *fmt, ...)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	char line[512];
	va_list ap;

	if (atomic_flag_test_and_set(&said))
		for (;;)
			pause();	/* the thread that came first ends the process */
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (q)
		printf("violation: qp %u (0x%x) %s %" PRIu64 ": %s\n", q->idx, q->here.qpn, what, seq, line);
	else
		printf("violation: %s: %s\n", what, line);
	fflush(stdout);
	_exit(VIOLATION);
}

_Noreturn void unusable(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "traffic: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	_exit(UNUSABLE);
}

uint64_t now_ns(struct clk *clk)
{
	struct timespec t;
	int64_t mono, real, step;

	clock_gettime(CLOCK_MONOTONIC, &t);
	mono = t.tv_sec * 1000000000ll + t.tv_nsec;
	clock_gettime(CLOCK_REALTIME, &t);
	real = t.tv_sec * 1000000000ll + t.tv_nsec;
	if (clk->mono) {
		step = mono - clk->mono;
		if (step < 0 || llabs(step - (real - clk->real)) > 100000000)
			step = real > clk->real ? real - clk->real : 0;
		clk->now += step;
	} else {
		clk->now = mono;
	}
	clk->mono = mono;
	clk->real = real;
	return clk->now;
}
