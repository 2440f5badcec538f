// SPDX-License-Identifier: MIT
/*
 * The last failure of each thread, in one line. Also enter() and leave(), since any call may find the connection down, which is a
 * failure.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include "internal.h"

static _Thread_local char line[512];

int fail(int ret, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	return ret;
}

const char *rmem_error(void)
{
	return line;
}

int connection_down(struct rmem *r)
{
	return fail(-ENOTCONN, "donor %s: no connection (%s): rmem_reconnect()", r->host, r->down_why);
}

int answer_failed(struct rmem *r, const char *what, unsigned int status)
{
	int error;
	const char *text = rmem_status_text(status, &error);

	return fail(error, "donor %s: %s: %s", r->host, what, text);
}

int message_wrong(struct rmem *r)
{
	return fail(-EPROTO, "donor %s: it sent an answer that makes no sense: use the same version on both sides", r->host);
}

int enter(struct rmem *r)
{
	int ret;

	pthread_mutex_lock(&r->lock);
	if (r->state == UP)
		return 0;
	ret = r->state == DOWN ? connection_down(r) : fail(-ENOTCONN, "donor %s: it is being connected", r->host);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int leave(struct rmem *r, int ret)
{
	pthread_mutex_unlock(&r->lock);
	return ret;
}

/* A look at the coarse clock costs nothing, and nobody here asks for less than a second. */
int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}
