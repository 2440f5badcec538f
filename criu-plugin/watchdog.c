// SPDX-License-Identifier: GPL-2.0
/*
 * A process that outlives CRIU, and lets contexts go on if nobody else does.
 *
 * CRIU tells a plugin neither what becomes of the tasks after a checkpoint nor
 * that CRIU itself is about to die. But both can be seen from outside:
 *
 *	tasks dead			the contexts are gone with them: done
 *	CRIU died before the end	its ptrace ended with it, so the tasks
 *					run: abort
 *	the same, tasks stopped		abort; but if GODWIT_HOLDS is set, wait:
 *					the program that stopped them decides
 *					about them, and a copy may have their
 *					peers by now. Wait, too, if contexts of
 *					the task were stopped before
 *	checkpoint done, tasks run	--leave-running, or a post-dump script
 *					said no: abort
 *	the same, tasks stopped		--leave-stopped: wait. SIGCONT alone
 *					brings a stopped tree back, contexts
 *					included.
 *
 *	checkpoint failed		the plugin has let its contexts go on.
 *					If some were stopped before, as by
 *					--leave-stopped: as after a good one
 *
 * Each task is looked at by itself. A context goes on with the last of the tasks
 * that have it open.
 *
 * Of the tasks it holds only pidfds.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dump.h"

enum word {
	WATCH,		/* a task whose contexts this dump stops */
	FOUND,		/* a task that has a context that was stopped before */
	STAY, LEAVE,
};

struct message {
	enum word	word;
	pid_t		pid;	/* WATCH, FOUND */
};

static int watchdog_socket = -1;

/* ---------------------------------------------------- the watchdog's side -- */

struct watched {
	pid_t	pid;
	int	pidfd;
	int	runs;		/* so many looks in a row have seen it run */
	bool	found_stopped;	/* FOUND was said of it */
	bool	seen_stopped;	/* by a look */
	bool	was_traced;	/* when it was last seen not to run */
	bool	done;		/* its contexts go on */
};

static struct watched *watched;
static int num_watched;

/*
 * A task that was stopped before it was traced is on its way back into its stop
 * when a killed CRIU lets go of it. It looks like one that runs, and on a busy host
 * others may have the CPU before it for many milliseconds.
 */
static int enough_looks(const struct watched *w)
{
	return w->was_traced && (w->found_stopped || w->seen_stopped) ? 200 : 3;
}

static bool runs_enough(const struct watched *w)
{
	return w->runs >= enough_looks(w);
}

static bool is_dead(const struct watched *w)
{
	struct pollfd pfd = { .fd = w->pidfd, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

/* False: it can't be watched. A task that is gone need not be. */
static bool watch(pid_t pid, bool found_stopped)
{
	struct watched *more;
	int i, pidfd;

	for (i = 0; i < num_watched; i++)
		if (watched[i].pid == pid && !is_dead(&watched[i])) {
			watched[i].found_stopped |= found_stopped;
			return true;
		}
	pidfd = syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return errno == ESRCH;
	more = realloc(watched, (num_watched + 1) * sizeof(*more));
	if (!more) {
		close(pidfd);
		return false;
	}
	watched = more;
	watched[num_watched++] = (struct watched){
		.pid = pid, .pidfd = pidfd, .found_stopped = found_stopped,
		.was_traced = true,	/* by CRIU, before the first look */
	};
	return true;
}

struct seen {
	bool	alive;
	bool	traced;		/* some thread is: CRIU is not done */
	bool	stops;		/* some thread is stopped, or will be */
	bool	dying;		/* some thread is, or will be */
};

#define SIGNAL_BIT(signal) (1ULL << ((signal) - 1))
#define STOP_SIGNALS							\
	(SIGNAL_BIT(SIGSTOP) | SIGNAL_BIT(SIGTSTP) |			\
	 SIGNAL_BIT(SIGTTIN) | SIGNAL_BIT(SIGTTOU))
#define PF_EXITING	0x4

/* A file of a thread, as text; "" if the thread is gone. */
static void read_thread(pid_t pid, const char *tid, const char *name,
			char text[4096])
{
	char path[96];
	size_t length = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/%s", pid, tid, name);
	file = fopen(path, "re");
	if (file) {
		length = fread(text, 1, 4095, file);
		fclose(file);
	}
	text[length] = '\0';
}

/* What follows a word at the beginning of a line, or "". */
static const char *find_line(const char *text, const char *word)
{
	const char *at = strstr(text, word);

	return at ? at + strlen(word) : "";
}

static void look_at_thread(pid_t pid, const char *tid, struct seen *seen)
{
	unsigned long long pending, blocked;
	unsigned long flags;
	char text[4096];
	const char *at;

	read_thread(pid, tid, "status", text);
	at = find_line(text, "\nState:\t");
	if (*at == 'T')
		seen->stops = true;
	if (atoi(find_line(text, "\nTracerPid:\t")))
		seen->traced = true;
	pending = strtoull(find_line(text, "\nSigPnd:\t"), NULL, 16) |
		  strtoull(find_line(text, "\nShdPnd:\t"), NULL, 16);
	blocked = strtoull(find_line(text, "\nSigBlk:\t"), NULL, 16);
	if (pending & ~blocked & STOP_SIGNALS)
		seen->stops = true;
	if (pending & SIGNAL_BIT(SIGKILL))
		seen->dying = true;

	/* The name of a thread may hold anything: count from its end. */
	read_thread(pid, tid, "stat", text);
	at = strrchr(text, ')');
	if (at && sscanf(at, ") %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 &&
	    flags & PF_EXITING)
		seen->dying = true;
}

/*
 * CRIU sends SIGSTOP or SIGKILL before it lets go of a task. The signal is
 * pending until it is delivered. From then on the thread that took it is
 * stopped, or dies. A look reads a thread's state first and its pending signals
 * afterwards, so of two looks one sees the signal or its effect.
 */
static void look(const struct watched *w, struct seen *seen)
{
	char path[64];
	struct dirent *de;
	DIR *dir;
	int i;

	*seen = (struct seen){};
	for (i = 0; i < 2 && !is_dead(w); i++) {
		snprintf(path, sizeof(path), "/proc/%d/task", w->pid);
		dir = opendir(path);
		if (!dir)
			continue;
		seen->alive = true;
		while ((de = readdir(dir)))
			if (isdigit(de->d_name[0]))
				look_at_thread(w->pid, de->d_name, seen);
		closedir(dir);
	}
}

static bool must_wait(const struct seen *seen, bool may_stop)
{
	/*
	 * A stopped task keeps us waiting only if may_stop. If CRIU was killed
	 * early, whoever killed it may have stopped the tasks, too: contexts go
	 * on then, except those that an earlier dump left stopped. A task that
	 * dies may already run at the destination, and its peers must not be
	 * called from here.
	 */
	return seen->traced || seen->dying || (may_stop && seen->stops);
}

/* Look at all tasks. Is there one whose contexts do not go on yet? */
static bool look_at_all(bool may_stop)
{
	struct watched *w;
	struct seen seen;
	bool left = false;

	for (w = watched; w < watched + num_watched; w++) {
		look(w, &seen);
		w->seen_stopped |= seen.stops;
		if (seen.traced || seen.stops)
			w->was_traced = seen.traced;
		w->runs = !seen.alive ||
			  must_wait(&seen, may_stop || w->found_stopped) ?
			  0 : w->runs + 1;
		left |= !is_dead(w) && !w->done;
	}
	return left;
}

static bool is_ready(const struct watched *w)
{
	return !w->done && runs_enough(w) && !is_dead(w);
}

/* --------------------------------------------------------- letting go on -- */

struct abort {
	uint64_t	since;	/* by the driver's clock */
	bool		again;	/* some context does not go on yet */
};

/* Other errors stay: the file is closed, or is not of our driver. */
static bool may_pass(int err)
{
	return err == ENOMEM || err == EMFILE || err == ENFILE ||
	       err == EAGAIN || err == EINTR;
}

static struct ibv_context *open_fd(pid_t pid, int fd, enum file_kind kind,
				   struct abort *a)
{
	struct ibv_context *ctx;
	int mine;

	if (kind != FILE_UVERBS)
		return NULL;
	mine = proc_get_fd(pid, fd);
	ctx = mine < 0 ? NULL : ibv_attach_context(mine);
	if (!ctx)
		a->again |= may_pass(errno);
	if (mine >= 0 && !ctx)
		close(mine);
	return ctx;
}

static int read_clock(pid_t pid, int fd, enum file_kind kind, const char *node,
		      void *arg)
{
	struct abort *a = arg;
	struct ibv_context *ctx = open_fd(pid, fd, kind, a);
	struct rxe_migr_query query;
	int err;

	(void)node;
	if (!ctx)
		return 0;
	err = ibv_query_migration(ctx, &query);
	if (!err)
		a->since = query.now_ns;
	a->again |= may_pass(err);
	ibv_detach_context(ctx);
	return a->since != 0;
}

/* False: ask again. If a->since stays 0, no task has a context any more. */
static bool driver_clock(struct abort *a)
{
	int i;

	for (i = 0; i < num_watched && !a->since; i++)
		if (!is_dead(&watched[i]) &&
		    for_each_fd(watched[i].pid, read_clock, a) < 0)
			a->again = true;
	return a->since || !a->again;
}

static int compare_fd(pid_t pid, int fd, enum file_kind kind, const char *node,
		      void *arg)
{
	const int *mine = arg;

	(void)node;
	return kind == FILE_UVERBS && proc_same_file(pid, fd, getpid(), *mine);
}

/* Does a task that has to wait have this context open, too? */
static bool must_stay(int mine)
{
	int i;

	for (i = 0; i < num_watched; i++)
		if (!runs_enough(&watched[i]) && !is_dead(&watched[i]) &&
		    for_each_fd(watched[i].pid, compare_fd, &mine))
			return true;
	return false;
}

static int abort_fd(pid_t pid, int fd, enum file_kind kind, const char *node,
		    void *arg)
{
	struct abort *a = arg;
	struct ibv_context *ctx = open_fd(pid, fd, kind, a);
	int err;

	(void)node;
	if (!ctx)
		return 0;
	/*
	 * EINVAL: the context is not stopped, or goes on already. ESTALE:
	 * another checkpoint has begun.
	 */
	err = must_stay(ctx->cmd_fd) ? EAGAIN :
	      ibv_abort_older_dump(ctx, a->since);
	a->again |= err == ESTALE || may_pass(err);
	ibv_detach_context(ctx);
	return 0;
}

/*
 * Let the contexts of tasks that run go on, unless these tasks wait again: another
 * checkpoint may have begun. If it begins after this look, the driver knows it by
 * its dump.
 */
static void let_go_on(bool may_stop)
{
	struct abort a = {};
	struct watched *w;

	if (!driver_clock(&a))
		return;
	look_at_all(may_stop);
	for (w = watched; w < watched + num_watched; w++) {
		if (!is_ready(w))
			continue;
		a.again = false;
		if (a.since && for_each_fd(w->pid, abort_fd, &a) < 0)
			a.again = true;
		w->done = !a.again;
	}
}

static void wait_and_see(bool may_stop)
{
	struct timespec pause = {};
	struct watched *w;
	bool ready, soon;
	int looks;

	for (looks = 0; look_at_all(may_stop); looks++) {
		ready = soon = false;
		for (w = watched; w < watched + num_watched; w++) {
			ready |= is_ready(w);
			soon |= w->runs && !runs_enough(w);
		}
		if (ready)
			let_go_on(may_stop);
		pause.tv_nsec = looks < 2000 || soon ? 1000000 : 50000000;
		nanosleep(&pause, NULL);
	}
}

/*
 * A name of its own, also for `pkill -f criu`: its arguments are a copy of CRIU's.
 * /proc/self/stat says where they are, in fields 48 and 49; state is field 3. If
 * CRIU is a runtime's, "criu swrk N", there is room for a part of the name only, and
 * CRIU may have written a title that ends behind them. They end in a zero now, so
 * nobody is shown what follows them.
 */
static void take_name(void)
{
	static const char name[] = "godwit-watchdog";
	unsigned long start, end;
	char tid[16], text[4096], *at;
	int field;

	prctl(PR_SET_NAME, name);
	snprintf(tid, sizeof(tid), "%d", getpid());
	read_thread(getpid(), tid, "stat", text);
	at = strrchr(text, ')');
	for (field = 2; at && field < 48; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, " %lu %lu", &start, &end) != 2 || end <= start)
		return;
	memset((char *)start, 0, end - start);
	snprintf((char *)start, end - start, "%s", name);
}

/*
 * It is in CRIU's control group. If memory runs out there, all processes may be
 * killed at once (memory.oom.group), but not those with this score.
 */
static void outlive_shortage(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	dprintf(fd, "-1000");
	close(fd);
}

static void watchdog(int sock)
{
	struct message msg;
	bool stay = false, begun = false;

	take_name();
	outlive_shortage();
	while (recv(sock, &msg, sizeof(msg), 0) == sizeof(msg)) {
		if (msg.word == LEAVE)
			return;
		if (msg.word == STAY) {
			stay = true;
			break;
		}
		/* Answer: no context must be stopped before it is watched. */
		if (!watch(msg.pid, msg.word == FOUND))
			msg.word = LEAVE;
		else
			begun |= msg.word == WATCH;
		send(sock, &msg, sizeof(msg), MSG_NOSIGNAL);
	}
	/*
	 * A dump that ends before it stops a context has changed nothing. It may
	 * know only some of the tasks that have a context that it found stopped.
	 */
	if (begun)
		wait_and_see(stay || getenv("GODWIT_HOLDS"));
}

/* Become a child of init, in a session of its own, with only sock open. */
static void become_watchdog(int sock)
{
	static const struct sigaction ignore = { .sa_handler = SIG_IGN };
	static const int signals[] = { SIGPIPE, SIGHUP, SIGINT, SIGTERM };
	sigset_t none;
	size_t i;

	setsid();
	if (fork())
		_exit(0);
	if (sock != 3)
		dup2(sock, 3);
	syscall(SYS_close_range, 4, ~0U, 0);
	syscall(SYS_close_range, 0, 2, 0);
	for (i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &ignore, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir("/"))
		_exit(1);
	watchdog(3);
	_exit(0);
}

/* ---------------------------------------------------------- CRIU's side -- */

int watchdog_start(void)
{
	int pair[2], status;
	pid_t pid;

	if (watchdog_socket >= 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return fail("no socket: %m");
	pid = fork();
	if (!pid)
		become_watchdog(pair[1]);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return fail("no process: %m");
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	watchdog_socket = pair[0];
	return 0;
}

int watchdog_watch(pid_t pid, bool found_stopped)
{
	struct message msg = { .word = found_stopped ? FOUND : WATCH, .pid = pid };

	if (send(watchdog_socket, &msg, sizeof(msg), MSG_NOSIGNAL) != sizeof(msg) ||
	    recv(watchdog_socket, &msg, sizeof(msg), 0) != sizeof(msg))
		return fail("the watchdog process has died");
	if (msg.word == LEAVE)
		return fail("process %d can't be watched: too little memory, or too many files", pid);
	return 0;
}

void watchdog_leave(bool stay)
{
	struct message msg = { .word = stay ? STAY : LEAVE };

	if (watchdog_socket < 0)
		return;
	send(watchdog_socket, &msg, sizeof(msg), MSG_NOSIGNAL);
	close(watchdog_socket);
	watchdog_socket = -1;
}
