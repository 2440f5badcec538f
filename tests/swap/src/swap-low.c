// SPDX-License-Identifier: MIT
/*
 * swap-low: looks some fifty times a second, until SIGTERM, at the largest memory zone. Does it have fewer free pages than the
 * kernel keeps for tasks that free memory, so that such tasks have used some? In the end prints how often that was so.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct zone {
	unsigned long free, min, managed;
};

static unsigned long number(const char *from, const char *word)
{
	const char *at = strstr(from, word);

	return at ? strtoul(at + strlen(word), NULL, 10) : 0;
}

/* The text has a part for each zone. */
static struct zone largest(char *text)
{
	struct zone best = { .managed = 0 }, zone;

	for (char *part = strstr(text, "\nNode"), *next; part; part = next) {
		next = strstr(part + 1, "\nNode");
		if (next)
			*next = 0;
		zone = (struct zone){ number(part + 1, "pages free"), number(part + 1, "\n        min"), number(part + 1, "managed") };
		if (zone.managed > best.managed)
			best = zone;
	}
	return best;
}

static struct zone look(int fd)
{
	static char text[32768] = "\n";
	ssize_t n = pread(fd, text + 1, sizeof(text) - 2, 0);

	text[1 + (n > 0 ? n : 0)] = 0;
	return largest(text);
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	unsigned long looks = 0, below = 0;
	struct zone zone, least = { .free = -1 };
	int fd = open("/proc/zoneinfo", O_RDONLY | O_CLOEXEC);
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	if (fd < 0 || mlockall(MCL_CURRENT | MCL_FUTURE)) {
		perror("swap-low");
		return 75;
	}
	while (sigtimedwait(&term, NULL, &pause) < 0) {
		zone = look(fd);
		looks++;
		below += zone.free < zone.min;
		if (zone.free < least.free)
			least = zone;
	}
	printf("swap-low: %lu looks, %lu times below; the least was %lu pages, of which %lu are kept\n", looks, below, least.free,
	       least.min);
	return 0;
}
