/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Text from outside, such as names of files and processes, and lines of other programs, may be any bytes. JSON takes UTF-8
 * only, and a terminal obeys control characters. So each byte that is not UTF-8, or controls a terminal, is written as \xHH.
 */
#ifndef GODWIT_TEXT_H
#define GODWIT_TEXT_H

#include <jansson.h>
#include <stdbool.h>

/* For people: a backslash stays as it is, so that clean text is not changed again. Free it. */
char *text_clean(const char *bytes);
json_t *text_json(const char *bytes);

/*
 * For the name of a file that the other end is to open: path_from_json() gives back the same bytes. Where the name itself
 * has what looks like \xHH, its backslash is written as \x5c; any other backslash stays.
 */
json_t *path_json(const char *path);
/* NULL if that is no string. Free it. */
char *path_from_json(const json_t *json);
/* The same, where the name is a key of an object. path_json_set() takes value over. */
void path_json_set(json_t *object, const char *path, json_t *value);
char *path_from_key(const char *key);

/* The last line: programs warn first, and say last what counts. The text is cut for that. */
char *text_last_line(char *text);
/* The same, for a message: why a program failed that said this, or nothing (also NULL). */
const char *text_why(char *text);

/* Is it one of the words in the list, with spaces between them? "" is. */
bool is_one_of(const char *word, const char *list);

/* Add a line that says why something can't be done. A hundred of them tell enough. */
void problem(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An argument that goes into messages as it is. If it is not clean, the program says so and ends. */
const char *parse_text(const char *argument);

#endif /* GODWIT_TEXT_H */
