/* SPDX-License-Identifier: MIT */
/* Messages of rmemd and rmemswap, and how both get memory and time. */
#ifndef RMEM_SAY_H
#define RMEM_SAY_H

#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

extern const char *say_as; /* the program's own name, which its main() sets first */

/* One line to stderr; @priority is one of syslog(3). Control characters are not printed. */
void say(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same as LOG_ERR, and -1. */
int fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* These end the program when memory does. */
void *xcalloc(size_t n, size_t size);
char *xstrdup(const char *text);
int64_t now_ms(void); /* CLOCK_MONOTONIC */

#endif
