// SPDX-License-Identifier: MIT
/* What went wrong, in one line for each thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include "internal.h"

static _Thread_local char line[512];

static const struct {
	enum rmem_status status;
	int error;
	const char *text;
} answers[] = {
	{ RMEM_BAD_MESSAGE, EPROTO, "it did not understand a message: use the same version on both sides" },
	{ RMEM_BAD_VERSION, EPROTO, "it speaks another version: use the same version on both sides" },
	{ RMEM_DENIED, EACCES, "it does not know this name with this key, or sees another address: see its log and rmemd.conf" },
	{ RMEM_FULL, ENOMEM, "it has no room: free regions, or raise its limits" },
	{ RMEM_DRAINING, EBUSY, "it is being drained: use another donor" },
	{ RMEM_NO_TAG, ENOENT, "there is no such tag" },
	{ RMEM_OTHER_SIZE, EEXIST, "the tag has another size or other flags" },
	{ RMEM_OUT_OF_RANGE, ERANGE, "a range is not in a region of this client" },
	{ RMEM_OVERLAP, EINVAL, "the ranges of a copy overlap" },
	{ RMEM_BAD_TXN, EPROTO, "it does not expect this transaction: let one process alone use a client's name" },
	{ RMEM_NOT_DURABLE, EIO, "its disk failed: start it with a good one" },
	{ RMEM_EMPTY, EINVAL, "the size is 0" },
};

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
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
		if (answers[i].status == status)
			return fail(-answers[i].error, "donor %s: %s: %s", r->host, what, answers[i].text);
	return fail(-EPROTO, "donor %s: %s: an unknown status %u", r->host, what, status);
}

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
