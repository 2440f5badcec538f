// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/common.h"
#include "say.h"

const char *say_as;

static void say_line(int priority, const char *format, va_list ap)
{
	char line[1024];
	bool journal = getenv("JOURNAL_STREAM") || getenv("NOTIFY_SOCKET");
	int start = journal ? sprintf(line, "<%d>", priority) : snprintf(line, sizeof(line), "%s: ", say_as);
	int n = vsnprintf(line + start, sizeof(line) - start - 1, format, ap);
	size_t end = start + (n < 0 ? 0 : n);

	if (end > sizeof(line) - 2)
		end = sizeof(line) - 2;
	for (size_t i = start; i < end; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[end++] = '\n';
	if (write(STDERR_FILENO, line, end) < 0)
		return; /* there is no other place for messages */
}

void say(int priority, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say_line(priority, format, ap);
	va_end(ap);
}

int fault(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say_line(LOG_ERR, format, ap);
	va_end(ap);
	return -1;
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (p)
		return p;
	say(LOG_CRIT, "memory: there is none left");
	_exit(EXIT_FAILURE);
}

char *xstrdup(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(xcalloc(1, size), text, size);
}

int64_t now_ms(void)
{
	return rmem_now_ms();
}
