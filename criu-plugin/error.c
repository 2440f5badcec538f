// SPDX-License-Identifier: GPL-2.0
/*
 * One clear line for a failure. The process in which it happens writes it to
 * CRIU's log. The process that CRIU began as passes it on to the program that
 * started CRIU: most failures of a restore happen in the restored tasks, whose
 * file descriptor 2 is already the application's. Runtimes point their users to
 * the end of CRIU's log, so the line is also the last one there.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin.h"

struct first_line {
	atomic_int	state;		/* 0 none, 1 being written, 2 there */
	char		text[512];
};

static struct first_line own;
static struct first_line *first = &own;
static pid_t reported;		/* the process that has passed it on */

int error_share(void)
{
	struct first_line *shared = mmap(NULL, sizeof(*shared),
					 PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED)
		return fail("no memory");
	first = shared;
	return 0;
}

static void say(const char *text)
{
	print_on_level(LOG_ERROR, "Error (rdma): %s\n", text);
}

int fail(const char *format, ...)
{
	char text[sizeof(own.text)];
	int none = 0;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);

	say(text);
	if (atomic_compare_exchange_strong(&first->state, &none, 1)) {
		memcpy(first->text, text, sizeof(text));
		atomic_store(&first->state, 2);
	}
	return -1;
}

void error_report(void)
{
	const char *env = getenv("GODWIT_ERROR_FD");
	int there = 2, fd;

	if (!atomic_compare_exchange_strong(&first->state, &there, 0))
		return;
	reported = getpid();
	if (env) {
		dprintf(atoi(env), "%s\n", first->text);
		return;
	}
	fd = openat(criu_get_image_dir(), "rdma-error",
		    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	dprintf(fd, "%s\n", first->text);
	close(fd);
}

/*
 * Runs when CRIU ends and has said all that it has to say: the plugin is linked
 * with -z nodelete, so it stays loaded until then. CRIU's children end here,
 * too.
 */
static void __attribute__((destructor)) say_last(void)
{
	sigset_t all;

	if (!reported || reported != getpid())
		return;
	/* CRIU's signal handler would log each killed task after our line. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	say(first->text);
}
