/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What migrate says while it works, and at its end. Steps go to stderr, if that is a terminal or --verbose is given; the
 * closing line, or JSON, goes to stdout.
 */
#ifndef GODWIT_REPORT_H
#define GODWIT_REPORT_H

#include <jansson.h>
#include "godwit.h"

/* Durations in nanoseconds, all on one host's clock; -1: not known. */
struct report {
	const char *host;
	pid_t pid;
	const char *container;	/* its name, or NULL */
	bool rdma;
	int64_t blackout, blackout_error;
	int64_t checkpoint, transfer, restore;
	uint64_t bytes;
	json_t *warnings;	/* strings */
	json_t *stock_peers;	/* GIDs, see struct plan; NULL: not known */
};

void report_start(bool verbose, bool json);
/* A step begins; the step before it is over. */
void report_step(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A better text for the step. */
void report_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* How far the step is, of a whole. */
void report_progress(uint64_t done, uint64_t whole);
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What the operator must know before the process is frozen. It is always shown. */
void report_beforehand(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_warn(struct report *report, const char *text);
void report_fault(struct report *report);	/* a fault(), if there is one, becomes a warning */

/* The closing line. Gives the exit code. */
int report_moved(const struct report *report, bool json);
int report_could(const struct report *report, bool json);	/* of --dry-run */
int report_failed(int code, const struct report *report, bool json);

#endif /* GODWIT_REPORT_H */
