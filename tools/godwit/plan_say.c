// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The parts of a plan name problems and notes. Each text is listed once.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan.h"
#include "text.h"

static void add(json_t *list, const char *format, va_list ap)
{
	char *raw, *text;

	if (vasprintf(&raw, format, ap) < 0)
		abort();
	text = text_clean(raw);
	free(raw);
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_array_get(list, i)), text)) {
			free(text);
			return;
		}
	json_array_append_new(list, json_string(text));
	free(text);
}

void plan_problem(struct plan *plan, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	add(plan->problems, format, ap);
	va_end(ap);
}

void plan_note(struct plan *plan, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	add(plan->notes, format, ap);
	va_end(ap);
}
