// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * tap RULES COMMAND...: runs COMMAND (for example ssh to a host), passes its stdin and stdout on, and does something when a text
 * goes by. RULES is a file. Each line: to|from, TAB, TEXT, TAB, what to do once (a file RULES.N tells later taps that line N is
 * done):
 *	a shell command: it begins when all that comes before the text has gone on, and the text waits for its end;
 *	"flip N": change a bit of the Nth byte behind the text;
 *	"cut": kill COMMAND and end, before the text went by.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RULES	8

struct rule {
	int direction;	/* 0: to COMMAND */
	char text[128], what[512];
	size_t matched;
	long flip;	/* bytes until the one to be changed, or -1 */
	int done;
};

static struct rule rules[MAX_RULES];
static int num_rules;
static const char *rules_path;
static pid_t child;

static void read_rules(const char *path)
{
	char line[1024], *text, *what;
	FILE *f = fopen(path, "r");

	while (f && num_rules < MAX_RULES && fgets(line, sizeof(line), f)) {
		struct rule *r = &rules[num_rules++];

		line[strcspn(line, "\n")] = '\0';
		text = strchr(line, '\t');
		what = text ? strchr(text + 1, '\t') : NULL;
		if (!what) {
			fprintf(stderr, "tap: a rule is not whole: %s\n", line);
			exit(2);
		}
		*text++ = *what++ = '\0';
		r->direction = strcmp(line, "to") ? 1 : 0;
		snprintf(r->text, sizeof(r->text), "%s", text);
		snprintf(r->what, sizeof(r->what), "%s", what);
		r->flip = -1;
	}
	if (f)
		fclose(f);
}

static int first_time(const struct rule *r)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s.%d", rules_path, (int)(r - rules));
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	return fd >= 0 && close(fd) == 0;
}

static void act(struct rule *r)
{
	r->done = 1;
	if (!first_time(r))
		return;
	if (!strncmp(r->what, "flip ", 5)) {
		r->flip = atol(r->what + 5);
	} else if (!strcmp(r->what, "cut")) {
		kill(child, SIGKILL);
		exit(0);
	} else if (system(r->what)) {
		fprintf(stderr, "tap: failed: %s\n", r->what);
	}
}

/* A byte is about to go by. Returns the length of the longest text that it ends. */
static size_t look(int direction, char *byte)
{
	size_t ended = 0;

	for (int i = 0; i < num_rules; i++) {
		struct rule *r = &rules[i];

		if (r->direction != direction)
			continue;
		if (r->flip >= 0 && r->flip-- == 0)
			*byte ^= 4;
		if (r->done)
			continue;
		r->matched = *byte == r->text[r->matched] ? r->matched + 1 : *byte == r->text[0];
		if (!r->text[r->matched] && r->matched > ended)
			ended = r->matched;
	}
	return ended;
}

/* All rules whose texts have just ended, in their order. */
static void act_all(int direction)
{
	for (int i = 0; i < num_rules; i++)
		if (rules[i].direction == direction && !rules[i].done && !rules[i].text[rules[i].matched])
			act(&rules[i]);
}

static int put(int out, const char *buf, ssize_t n)
{
	while (n > 0) {
		ssize_t done = write(out, buf, n);

		if (done < 0)
			return -1;
		buf += done;
		n -= done;
	}
	return 0;
}

/* When a rule acts, everything before its text has been passed on. */
static int pass(int in, int out, int direction)
{
	static char buf[65536];
	ssize_t n = read(in, buf, sizeof(buf)), done = 0;

	if (n <= 0)
		return n < 0 && errno == EINTR ? 1 : 0;
	for (ssize_t i = 0; i < n; i++) {
		size_t ended = look(direction, &buf[i]);
		ssize_t before = ended ? i + 1 - (ssize_t)ended - done : 0;

		if (before > 0) {
			if (put(out, buf + done, before))
				return 0;
			done += before;
		}
		if (ended)
			act_all(direction);
	}
	return !put(out, buf + done, n - done);
}

int main(int argc, char **argv)
{
	int to[2], from[2], status;

	if (argc < 3 || pipe(to) || pipe(from))
		return 2;
	rules_path = argv[1];
	read_rules(argv[1]);
	signal(SIGPIPE, SIG_IGN);
	child = fork();
	if (child == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[0]);
		close(to[1]);
		close(from[0]);
		close(from[1]);
		signal(SIGPIPE, SIG_DFL);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	for (;;) {
		struct pollfd p[2] = { { to[1] < 0 ? -1 : 0, POLLIN, 0 }, { from[0], POLLIN, 0 } };

		poll(p, 2, -1);
		if (p[0].revents && !pass(0, to[1], 0)) {
			close(to[1]);
			to[1] = -1;
		}
		if (p[1].revents && !pass(from[0], 1, 1))
			break;
	}
	close(1);
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}
