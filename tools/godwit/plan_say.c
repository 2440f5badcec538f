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

/* known: the texts of the list, as keys: each of some thousand queue pairs may add a text of its own. */
static void add(json_t *list, json_t *known, const char *format, va_list ap)
{
	char *raw, *text;

	if (vasprintf(&raw, format, ap) < 0)
		abort();
	text = text_clean(raw);
	free(raw);
	if (!json_object_get(known, text)) {
		json_object_set_new(known, text, json_true());
		json_array_append_new(list, json_string(text));
	}
	free(text);
}

void plan_problem(struct plan *plan, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	add(plan->problems, plan->known_problems, format, ap);
	va_end(ap);
}

void plan_note(struct plan *plan, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	add(plan->notes, plan->known_notes, format, ap);
	va_end(ap);
}
