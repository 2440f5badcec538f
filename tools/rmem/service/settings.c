// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "settings.h"

int settings_wrong(struct parse *p, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (!p->why && vasprintf(&p->why, format, ap) < 0)
		p->why = xstrdup("there is no memory");
	va_end(ap);
	return -1;
}

/* ------------------------------------------------------------------ values */

int settings_number(const char *text, uint64_t *number, const char **end)
{
	char *rest;

	errno = 0;
	*number = strtoull(text, &rest, 10);
	*end = rest;
	return !isdigit((unsigned char)*text) || errno ? -1 : 0;
}

int settings_size(struct parse *p, const char *text, void *to)
{
	static const char suffixes[] = "KMG";
	uint64_t size;
	const char *end, *suffix;
	unsigned int shift = 0;

	if (settings_number(text, &size, &end))
		return settings_wrong(p, "'%s' is no size: give bytes, or a number with K, M or G", text);
	suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
	if (suffix) {
		shift = 10 * (suffix - suffixes + 1);
		end++;
	}
	if (*end || size > UINT64_MAX >> shift)
		return settings_wrong(p, "'%s' is no size: give bytes, or a number with K, M or G", text);
	*(uint64_t *)to = size << shift;
	return 0;
}

int settings_text(struct parse *p, const char *text, void *to)
{
	(void)p;
	free(*(char **)to);
	*(char **)to = xstrdup(text);
	return 0;
}

int settings_bool(struct parse *p, const char *text, void *to)
{
	if (strcmp(text, "yes") && strcmp(text, "no"))
		return settings_wrong(p, "'%s' is neither yes nor no", text);
	*(bool *)to = !strcmp(text, "yes");
	return 0;
}

int settings_port(struct parse *p, const char *text, void *to)
{
	uint64_t port;
	const char *end;

	if (settings_number(text, &port, &end) || *end || !port || port > UINT16_MAX)
		return settings_wrong(p, "'%s' is no port: give 1 to 65535", text);
	return settings_text(p, text, to);
}

int settings_key(struct parse *p, const char *text, void *to)
{
	char *why = NULL;

	if (!rmem_key_read(text, to, &why))
		return 0;
	settings_wrong(p, "%s", why ? why : text);
	free(why);
	return -1;
}

/* ------------------------------------------------------------------ lines */

static int set(struct parse *p, const char *name, const char *value)
{
	if (!p->settings)
		return settings_wrong(p, "'%s' is in no section: begin one by %s", name, p->sections);
	for (unsigned int i = 0; p->settings[i].name; i++) {
		if (strcmp(p->settings[i].name, name))
			continue;
		if (p->seen & 1u << i)
			return settings_wrong(p, "%s: it was set before in this section", name);
		p->seen |= 1u << i;
		if (!*value)
			return settings_wrong(p, "%s: it has no value", name);
		return p->settings[i].read(p, value, (char *)p->base + p->settings[i].offset);
	}
	return settings_wrong(p, "%s: there is no such setting of a %s", name, p->kind);
}

/* inih takes 0 for an error, and remembers the error's line. */
static int on_setting(void *arg, const char *section, const char *name, const char *value)
{
	(void)section;
	return set(arg, name, value) == 0;
}

const char *settings_named(const char *section, const char *kind)
{
	size_t length = strlen(kind);

	if (strncmp(section, kind, length) || section[length] != ' ')
		return NULL;
	return section + length + strspn(section + length, " ");
}

/* inih reads lines by this. Space at the start of a line is removed, since inih would take it for "the last value goes on". */
static char *next_line(char *line, int size, void *arg)
{
	struct parse *p = arg;
	char name[256], *text, *end;

	if (p->why || !fgets(line, size, p->file))
		return NULL;
	p->line++;
	if (!strchr(line, '\n') && !feof(p->file)) {
		settings_wrong(p, "the line is too long");
		return NULL;
	}
	/* An editor may have begun the file with a byte order mark. */
	text = line + (p->line == 1 && !strncmp(line, "\xef\xbb\xbf", 3) ? 3 : 0);
	text += strspn(text, " \t");
	memmove(line, text, strlen(text) + 1);
	end = *line == '[' ? strchr(line, ']') : NULL;
	if (end) {
		snprintf(name, sizeof(name), "%.*s", (int)(end - line - 1), line + 1);
		p->settings = NULL;
		p->seen = 0;
		p->begin(p, name);
	}
	return line;
}

void settings_read(struct parse *p)
{
	int ret;

	p->file = fopen(p->path, "re");
	if (!p->file) {
		settings_wrong(p, "%s", strerror(errno));
		return;
	}
	ret = ini_parse_stream(next_line, p, on_setting, p);
	if (!p->why && ferror(p->file))
		settings_wrong(p, "%s", strerror(errno));
	fclose(p->file);
	if (p->why || !ret)
		return;
	p->line = ret;
	settings_wrong(p, "it is neither a section nor name = value");
}

int settings_end(struct parse *p)
{
	if (!p->why)
		return 0;
	if (p->line)
		fault("%s:%d: %s", p->path, p->line, p->why);
	else
		fault("%s: %s", p->path, p->why);
	free(p->why);
	p->why = NULL;
	return -1;
}
