// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdio.h>
#include "why.h"

int rmem_why(char **why, const char *format, ...)
{
	va_list ap;

	if (!why)
		return -1;
	va_start(ap, format);
	if (vasprintf(why, format, ap) < 0)
		*why = NULL;
	va_end(ap);
	return -1;
}
