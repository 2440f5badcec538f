/* SPDX-License-Identifier: MIT */
/*
 * tsc-khz: prints how fast this machine's TSC runs. Emulated guests see the same TSC, and a guest on a busy machine may fail to
 * measure it.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct moment {
	uint64_t tsc, ns, error;
};

/* Takes the tightest of some readings, since this process may be preempted between two of them. */
static struct moment now(void)
{
	struct moment best = { .error = UINT64_MAX };

	for (int i = 0; i < 50; i++) {
		struct timespec ts;
		uint64_t before = __rdtsc(), after;

		clock_gettime(CLOCK_MONOTONIC, &ts);
		after = __rdtsc();
		if (after - before < best.error)
			best = (struct moment){ before + (after - before) / 2,
						ts.tv_sec * 1000000000ull + ts.tv_nsec, after - before };
	}
	return best;
}

int main(void)
{
	struct moment from = now(), to;

	do {
		to = now();
	} while (to.ns - from.ns < 20000000);
	printf("%llu\n", (unsigned long long)((to.tsc - from.tsc) * 1000000 / (to.ns - from.ns)));
	return 0;
}
