// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "godwit.h"
#include "text.h"

/* How many bytes this character has; 0: it is not UTF-8, or controls a terminal. */
static size_t good_bytes(const char *p)
{
	unsigned char first = p[0], second = first ? p[1] : 0;
	size_t n = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	json_t *json;

	if (first < 0x20 || first == 0x7f || (first == 0xc2 && second < 0xa0))
		return 0;
	if (n == 1)
		return 1;
	json = strnlen(p, n) == n ? json_stringn(p, n) : NULL;
	json_decref(json);
	return json ? n : 0;
}

static bool is_escape(const char *p)
{
	return p[0] == '\\' && p[1] == 'x' && isxdigit((unsigned char)p[2]) && isxdigit((unsigned char)p[3]);
}

static char *escape(const char *bytes, bool exact)
{
	char *text = xcalloc(strlen(bytes) + 1, strlen("\\xHH")), *to = text;

	while (*bytes) {
		size_t n = exact && is_escape(bytes) ? 0 : good_bytes(bytes);

		if (n)
			to = mempcpy(to, bytes, n);
		else
			to += sprintf(to, "\\x%02x", (unsigned char)*bytes);
		bytes += n ?: 1;
	}
	return text;
}

static json_t *escaped_json(const char *bytes, bool exact)
{
	char *text = escape(bytes, exact);
	json_t *json = json_string(text);

	free(text);
	return json;
}

char *text_clean(const char *bytes)
{
	return escape(bytes, false);
}

json_t *text_json(const char *bytes)
{
	return escaped_json(bytes, false);
}

json_t *path_json(const char *path)
{
	return escaped_json(path, true);
}

void path_json_set(json_t *object, const char *path, json_t *value)
{
	char *key = escape(path, true);

	json_object_set_new(object, key, value);
	free(key);
}

char *path_from_key(const char *key)
{
	char *path = xcalloc(1, strlen(key) + 1), *to = path;

	while (*key) {
		char digits[3] = "";

		if (!is_escape(key)) {
			*to++ = *key++;
			continue;
		}
		memcpy(digits, key + 2, 2);
		*to++ = strtol(digits, NULL, 16);
		key += 4;
	}
	return path;
}

char *path_from_json(const json_t *json)
{
	const char *text = json_string_value(json);

	return text ? path_from_key(text) : NULL;
}

const char *parse_text(const char *argument)
{
	char *clean = text_clean(argument);

	if (strcmp(clean, argument)) {
		fprintf(stderr, "godwit: '%s': it is not UTF-8, or has control characters: give another name\n", clean);
		exit(EXIT_USAGE);
	}
	free(clean);
	return argument;
}

char *text_last_line(char *text)
{
	char *line = text + strlen(text);

	while (line > text && line[-1] == '\n')
		*--line = '\0';
	line = strrchr(text, '\n');
	return line ? line + 1 : text;
}

const char *text_why(char *text)
{
	char *line = text ? text_last_line(text) : "";

	return *line ? line : "it does not say why";
}

bool is_one_of(const char *word, const char *list)
{
	size_t len = strlen(word);

	for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
		if (strcspn(at, " ") == len && !strncmp(at, word, len))
			return true;
	return !len;
}

void problem(json_t *list, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (json_array_size(list) < 100)
		json_array_append_new(list, text_json(text));
}
