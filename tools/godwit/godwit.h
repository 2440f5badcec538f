/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What every part of godwit uses: exit codes, the one reason for a failure, memory.
 */
#ifndef GODWIT_H
#define GODWIT_H

#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Exit codes, as godwit(1) promises them. */
enum {
	EXIT_OK		= 0,
	EXIT_USAGE	= 1,
	EXIT_REFUSED	= 2,	/* before anything was stopped */
	EXIT_STAYED	= 3,	/* failed; the process runs at the source as before */
	EXIT_WARNED	= 4,	/* moved, but something was left undone */
	EXIT_LOST	= 5,	/* failed after the commit, or nobody knows where the process runs */
};

/*
 * fault() remembers why something failed: one line, "object: reason: what to do". The first call counts
 * until fault_clear(), so that the deepest reason wins. It returns -1. The text is clean (text.h).
 */
int fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *fault_text(void);	/* never NULL */
bool fault_is_set(void);
void fault_clear(void);

/* These end the program when there is no memory left. */
void *xrealloc(void *p, size_t size);
void *xcalloc(size_t n, size_t size);
char *xstrdup(const char *s);
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Room for one more in an array that doubles; n is how many it holds. */
#define GROW(array, n) do {						\
	if (((n) & ((n) - 1)) == 0)					\
		(array) = xrealloc((array), ((n) ? (n) * 2 : 1) * sizeof(*(array))); \
} while (0)

int64_t now_ns(void);		/* CLOCK_MONOTONIC */
void close_fd(int *fd);		/* and set it to -1 */
bool same_file(const struct stat *a, const struct stat *b);

/*
 * Send and receive n descriptors, at most two, over a Unix socket. -1: it failed, or another number came. flags: for recvmsg().
 */
int fds_send(int sk, const int *fd, size_t n);
int fds_receive(int sk, int *fd, size_t n, int flags);
/* Accept a connection from a process of root; else -1. *pid, unless pid is NULL: the number of that process. */
int accept_root(int listener, pid_t *pid);

/* The whole file as text, or NULL with errno. Free it. */
char *read_file(const char *path);
/* Run a program, stdin from text (or NULL), output to /dev/null or *output. Returns its exit code. */
int run(const char *const argv[], const char *text, char **output);
#define TIMED_OUT	124	/* what timeout(1) returns when the time is over; less than 0 if it had to kill the program */
/* The same. RUN_LATE: the program has neither ended nor said anything in this time. It goes on, and is not waited for. */
#define RUN_LATE	(-2)
int run_within(int limit_ms, const char *const argv[], char **output);
/* Run a program. If it fails: -1 with fault(), of this text and the last line that the program said. */
int run_or_fault(const char *const argv[], const char *format, ...) __attribute__((format(printf, 2, 3)));
void reap_children(int timeout_ms);	/* wait until all have ended, or the time is over */
/*
 * For a child of ours that becomes another program. The child gets a session of its own, so that ^C at a terminal reaches
 * godwit alone. Signals get their default actions, since the program would inherit ignored ones. output: a file for all that
 * the program says, or NULL.
 */
void stand_alone(const char *output);
/*
 * For a child of ours. The child gets a session of its own, which the scheduler (autogroup) favours over other sessions.
 * Without that a session has the share of one kernel worker, and rxe keeps one worker busy for each queue pair. Programs that
 * outlive the child, or whose children do (ssh, podman, a CRIU that restores), have sessions of their own, which are not
 * favoured.
 */
void go_first(void);
/* Run a program. Gives the JSON that it prints; NULL: it fails, or prints something else. */
json_t *run_json(const char *const argv[]);
/* SIGHUP, SIGINT and SIGTERM wait from now on. Gives the set of them. They still end the programs that we run. */
sigset_t block_signals(void);

/* Subcommands. */
int cmd_agent(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_link(int argc, char **argv);
int cmd_migrate(int argc, char **argv);
int cmd_settle(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_status(int argc, char **argv);

/* What those that have options take, by name: --help prints them. */
extern const struct option check_options[], dump_options[], link_options[], migrate_options[], show_options[], status_options[];

void print_usage(FILE *f);
void usage(void) __attribute__((noreturn));	/* print it, and end the program */
/* argv[0]: a command. If its arguments ask for help, print it. */
bool print_help(int argc, char **argv);
/* Print what is wrong with the command line, and end the program. */
void wrong_usage(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* The argument at this place, which must be there and be the last. what: "process", which follows "say which". */
const char *only_argument(int argc, char **argv, int at, const char *what);
/* Print the reason, as "godwit: ...", and give back code. */
int failed(int code);
/* The same; with --json also an object with it. */
int failed_as(bool json, int code);
/* A process id. If text is none, the program says so and ends. */
pid_t parse_pid(const char *text);
/* The same for a number of seconds. */
int parse_seconds(const char *text);

#endif /* GODWIT_H */
