// SPDX-License-Identifier: MIT
/* The last failure of each thread, in one line. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
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
	return fail(-ENOTCONN, "donor %s: no connection (%s): rmem_reconnect()", r->host, r->broken);
}

int answer_failed(struct rmem *r, const char *what, unsigned int status)
{
	int error;
	const char *text = rmem_status_text(status, &error);

	return fail(error, "donor %s: %s: %s", r->host, what, text);
}

int64_t now_ms(void)
{
	return rmem_now_ms();
}
