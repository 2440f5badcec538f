/* SPDX-License-Identifier: MIT */
/*
 * Files of settings: sections in brackets, lines name = value. inih splits the lines; sections are our own business, since it
 * cuts their names and shows no empty ones.
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
	/* A section begins: sets settings, base and kind. Returns 0, or -1 after a call of settings_wrong(). */
	int (*begin)(struct parse *p, const char *name);
	const char *sections; /* what there may be, in words */
	void *arg;

	FILE *file;
	int line;
	const struct setting *settings; /* of the section, up to one without a name; NULL: no section has begun */
	void *base;			/* what their offsets count from */
	const char *kind;		/* "donor" */
	unsigned int seen;		/* settings of this section, a bit each */
	char *why; /* the first reason; the rest of the file does not matter then */
};

/* Keeps the first reason. -1. */
int settings_wrong(struct parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void settings_read(struct parse *p);
/* Returns 0, or -1 after a message with the fault, the file and the line. */
int settings_end(struct parse *p);

/* The text after "KIND " in a section's name, or NULL. */
const char *settings_named(const char *section, const char *kind);

/* Of struct setting; @to is what the name says. */
int settings_number(const char *text, uint64_t *number, const char **end);
int settings_size(struct parse *p, const char *text, void *to); /* uint64_t */
int settings_text(struct parse *p, const char *text, void *to); /* char *, which was NULL or is freed */
int settings_bool(struct parse *p, const char *text, void *to);
int settings_port(struct parse *p, const char *text, void *to); /* char * */
int settings_key(struct parse *p, const char *text, void *to);	/* uint8_t[RMEM_KEY_SIZE] */

#endif
