// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Memory. A file of its own: text.c needs memory, and the faults of util.c need text.c.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "godwit.h"

static void no_memory(void)
{
	static const char text[] = "godwit: out of memory\n";

	if (write(STDERR_FILENO, text, sizeof(text) - 1)) { }
	abort();	/* the keeper of godwit migrate, or of the agent, goes on */
}

void *xrealloc(void *p, size_t size)
{
	p = realloc(p, size ? size : 1);
	if (!p)
		no_memory();
	return p;
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		no_memory();
	return p;
}

char *xstrdup(const char *s)
{
	char *p = strdup(s);

	if (!p)
		no_memory();
	return p;
}

char *xasprintf(const char *format, ...)
{
	va_list ap;
	char *p;

	va_start(ap, format);
	if (vasprintf(&p, format, ap) < 0)
		no_memory();
	va_end(ap);
	return p;
}
