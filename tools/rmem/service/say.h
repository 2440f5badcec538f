/* SPDX-License-Identifier: MIT */
/* Messages of rmemd and rmemswap, and how both get memory and time. */
#ifndef RMEM_SAY_H
#define RMEM_SAY_H

#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

extern const char *say_as; /* the program's own name, which its main() sets first */

/* Writes one line to stderr. @priority is one of syslog(3). Control characters become '?'. */
void say(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with LOG_ERR. Returns -1. */
int fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* These two end the program if there is no memory. */
void *xcalloc(size_t n, size_t size);
char *xstrdup(const char *text);
int64_t now_ms(void); /* CLOCK_MONOTONIC */

#endif
