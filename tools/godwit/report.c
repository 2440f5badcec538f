// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "report.h"
#include "standard.h"
#include "text.h"

static bool shown, tty;
static int64_t phase_begin;
static char phase_name[16], phase_what[256];
static unsigned int percent;

void report_start(bool verbose, bool json)
{
	tty = isatty(STDERR_FILENO);
	shown = verbose || (tty && !json);
}

static void phase_end(void)
{
	if (!phase_name[0])
		return;
	if (shown)
		fprintf(stderr, "%s  %-9s %6.0f ms  %s%s\n", tty ? "\r" : "", phase_name,
			(now_ns() - phase_begin) / 1e6, phase_what, tty ? "\033[K" : "");
	phase_name[0] = '\0';
}

void report_step(const char *name, const char *format, ...)
{
	va_list ap;

	phase_end();
	va_start(ap, format);
	vsnprintf(phase_what, sizeof(phase_what), format, ap);
	va_end(ap);
	snprintf(phase_name, sizeof(phase_name), "%s", name);
	phase_begin = now_ns();
	percent = 0;
	if (shown && tty)
		fprintf(stderr, "  %-9s       ...  %s", phase_name, phase_what);
}

void report_detail(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(phase_what, sizeof(phase_what), format, ap);
	va_end(ap);
}

void report_progress(uint64_t done, uint64_t whole)
{
	unsigned int now = whole ? done * 100 / whole : 100;

	if (!shown || !tty || now == percent)
		return;
	percent = now;
	fprintf(stderr, "\r  %-9s     %3u %%  %s", phase_name, now > 99 ? 99 : now, phase_what);
}

static void line(const char *begin, const char *format, va_list ap)
{
	fprintf(stderr, "%s%s", shown && tty ? "\r\033[K" : "", begin);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
}

void report_note(const char *format, ...)
{
	va_list ap;

	if (!shown)
		return;
	va_start(ap, format);
	line("  ", format, ap);
	va_end(ap);
}

void report_beforehand(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	line("godwit: ", format, ap);
	va_end(ap);
}

void report_warn(struct report *report, const char *text)
{
	json_array_append_new(report->warnings, text_json(text));
}

void report_fault(struct report *report)
{
	if (fault_is_set())
		report_warn(report, fault_text());
	fault_clear();
}

static json_t *milliseconds(int64_t ns)
{
	return ns < 0 ? json_null() : json_real(ns / 1e6);
}

static void print_json(const struct report *report, const char *result, const char *reason)
{
	json_t *object = json_pack("{s:s, s:i, s:s*, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:O?, s:O}",
		"result", result, "pid", (int)report->pid, "container", report->container, "to", report->host,
		"blackout_ms", milliseconds(report->blackout),
		"blackout_error_ms", milliseconds(report->blackout_error),
		"checkpoint_ms", milliseconds(report->checkpoint),
		"transfer_ms", milliseconds(report->transfer),
		"restore_ms", milliseconds(report->restore),
		"bytes", (json_int_t)report->bytes, "stock_peers", report->stock_peers,
		"warnings", report->warnings);

	if (reason)
		json_object_set_new(object, "reason", json_string(reason));
	json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(object);
}

static void print_warnings(const struct report *report)
{
	json_t *text;
	size_t i;

	json_array_foreach(report->warnings, i, text)
		fprintf(stderr, "godwit: warning: %s\n", json_string_value(text));
}

static const char *what(const struct report *report)
{
	static char pid[16];

	snprintf(pid, sizeof(pid), "%d", report->pid);
	return report->container ?: pid;
}

static void print_closing_line(const struct report *report)
{
	json_t *gid;
	size_t i;

	json_array_foreach(report->stock_peers, i, gid)
		printf("godwit: the peer at %s has a driver without this protocol, or another key or none: it could not be told\n",
		       json_string_value(gid));
	printf("godwit: moved %s to %s", what(report), report->host);
	/* A keeper that took over knows no times. */
	if (report->blackout >= 0)
		printf(": blackout %.0f ms, checkpoint %.0f ms, transfer %.0f ms (%.1f MiB), restore %.0f ms",
		       report->blackout / 1e6, report->checkpoint / 1e6, report->transfer / 1e6,
		       report->bytes / 1048576.0, report->restore / 1e6);
	putchar('\n');
}

int report_moved(const struct report *report, bool json)
{
	phase_end();
	print_warnings(report);
	if (json)
		print_json(report, "moved", NULL);
	else
		print_closing_line(report);
	return json_array_size(report->warnings) ? EXIT_WARNED : EXIT_OK;
}

int report_could(const struct report *report, bool json)
{
	phase_end();
	print_warnings(report);
	if (json)
		print_json(report, "could", NULL);
	else
		printf("godwit: %s can move to %s; nothing was stopped\n", what(report), report->host);
	return end_output("godwit", EXIT_OK, EXIT_REFUSED);
}

int report_failed(int code, const struct report *report, bool json)
{
	static const char *const results[] = {
		[EXIT_REFUSED] = "refused", [EXIT_STAYED] = "stayed", [EXIT_LOST] = "lost",
	};
	static const char *const endings[] = {
		[EXIT_REFUSED] = "nothing was stopped",
		[EXIT_STAYED] = "it runs here as before",
		[EXIT_LOST] = "see godwit(1), AFTER A FAILURE",
	};

	if (shown && tty && phase_name[0])
		fputc('\n', stderr);
	phase_name[0] = '\0';
	print_warnings(report);
	if (json)
		print_json(report, results[code], fault_text());
	fprintf(stderr, "godwit: %s was not moved: %s (%s)\n", what(report), fault_text(), endings[code]);
	return code;
}
