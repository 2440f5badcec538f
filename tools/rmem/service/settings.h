/* SPDX-License-Identifier: MIT */
/*
 * A file of settings has sections in brackets, and lines name = value. inih splits the lines. We find the sections ourselves,
 * since inih cuts their names, and does not report a section without lines.
 *
 *	struct parse p = { .path = ..., .begin = ..., .sections = ..., .arg = ... };
 *	settings_read(&p);
 *	(checks of the whole, which may call settings_wrong())
 *	ret = settings_end(&p);
 */
#ifndef RMEM_SETTINGS_H
#define RMEM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "../common/common.h"

struct parse;

struct setting {
	const char *name;
	int (*read)(struct parse *p, const char *text, void *to);
	size_t offset;
};

struct parse {
	const char *path;
	/* Called when a section begins. Sets settings, base and kind. Returns 0, or -1 after a call of settings_wrong(). */
	int (*begin)(struct parse *p, const char *name);
	const char *sections; /* which ones there may be, in words */
	void *arg;

	FILE *file;
	int line;
	const struct setting *settings; /* of the section; the last one has no name. NULL: no section has begun */
	void *base;			/* the offsets of settings count from here */
	const char *kind;		/* "donor" */
	unsigned int seen;		/* a bit for each setting that this section has had */
	char *why; /* the first reason; the rest of the file is not read then */
};

/* Keeps the first reason, and returns -1. */
int settings_wrong(struct parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void settings_read(struct parse *p);
/* Returns 0, or -1 after a message with the fault, the file and the line. */
int settings_end(struct parse *p);

/* The text after "KIND " in a section's name, or NULL. */
const char *settings_named(const char *section, const char *kind);

/*
 * settings_number() returns -1 if no number begins @text, and stores the end of the number in *@end. The others are for
 * setting.read, and @to points to:
 */
int settings_number(const char *text, uint64_t *number, const char **end);
int settings_size(struct parse *p, const char *text, void *to); /* uint64_t */
int settings_text(struct parse *p, const char *text, void *to); /* char *, which was NULL or is freed */
int settings_bool(struct parse *p, const char *text, void *to);
int settings_port(struct parse *p, const char *text, void *to); /* char * */
int settings_key(struct parse *p, const char *text, void *to);	/* uint8_t[RMEM_KEY_SIZE] */

#endif
