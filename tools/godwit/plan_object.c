// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The RDMA objects that a plan lists, each with what becomes of it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan.h"
#include "text.h"

void plan_stays(struct plan *plan, json_t *object, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	plan_problem(plan, "%s", text);
	json_object_set_new(object, "moves", json_false());
	if (!json_object_get(object, "reason"))
		json_object_set_new(object, "reason", text_json(text));
}

void plan_moves_but(struct plan *plan, json_t *object, const char *format, ...)
{
	const char *before = json_string_value(json_object_get(object, "note"));
	char text[1024], *all;
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	plan_note(plan, "%s", text);
	all = xasprintf("%s%s%s", before ?: "", before ? "; " : "", text);
	json_object_set_new(object, "note", text_json(all));
	free(all);
}

json_t *plan_object(struct plan *plan, const char *what, const struct context *c, json_t *fields)
{
	json_t *object = json_pack("{s:s}", "object", what);

	if (c)
		json_object_update_new(object, json_pack("{s:o, s:i}", "device", text_json(c->device[0] ? c->device : "?"),
							 "context", c->ours ? (int)c->query.context : -1));
	json_object_update_new(object, fields);
	json_object_set_new(object, "moves", json_true());
	json_array_append_new(plan->objects, object);
	return object;
}

void plan_print_object(FILE *f, json_t *object)
{
	static const char *const apart[] = { "object", "device", "context", "moves", "reason", "note" };
	const char *device = json_string_value(json_object_get(object, "device"));
	const char *text = json_string_value(json_object_get(object, "note"));
	const char *name;
	json_t *value;

	if (device)
		fprintf(f, "%s/%d: ", device, (int)json_integer_value(json_object_get(object, "context")));
	fputs(json_string_value(json_object_get(object, "object")), f);
	json_object_foreach(object, name, value) {
		size_t i;

		for (i = 0; i < sizeof(apart) / sizeof(*apart); i++)
			if (!strcmp(name, apart[i]))
				break;
		if (i < sizeof(apart) / sizeof(*apart))
			continue;
		if (json_is_string(value))
			fprintf(f, " %s %s", name, json_string_value(value));
		else if (json_is_null(value))
			fprintf(f, " %s none", name);
		else
			fprintf(f, " %s %lld", name, (long long)json_integer_value(value));
	}
	if (!json_is_true(json_object_get(object, "moves")))
		fprintf(f, ": NO: %s\n", json_string_value(json_object_get(object, "reason")));
	else
		fprintf(f, ": moves%s%s\n", text ? ", but " : "", text ?: "");
}
