// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "connect.h"

/* We must notice a dead host well before peers give up stopped queue pairs. */
static const char default_ssh[] =
	"ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=2 -o ServerAliveCountMax=5";
#define HELLO_MS	30000
/* How long ssh may take to end after its pipes are closed, and again after SIGTERM. */
#define SSH_END_MS	2000

/* argv: the words of command, then more. The strings of argv lie in *words. Free both. */
static char **split(const char *command, const char *const more[], char **words)
{
	char **argv = NULL, *word, *save;
	size_t n = 0;

	*words = xstrdup(command);
	for (word = strtok_r(*words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		GROW(argv, n);
		argv[n++] = word;
	}
	for (; *more; more++) {
		GROW(argv, n);
		argv[n++] = (char *)*more;
	}
	GROW(argv, n);
	argv[n] = NULL;
	return argv;
}

static void exec_ssh(char **argv, int in, int out)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* A terminal's ^C is for godwit alone, and without a terminal ssh asks no questions. */
	setsid();
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "godwit: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int start(struct dest *dest, char **argv)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC))
		return fault("pipe: %s", strerror(errno));
	if (pipe2(from, O_CLOEXEC)) {
		close(to[0]);
		close(to[1]);
		return fault("pipe: %s", strerror(errno));
	}
	fcntl(to[1], F_SETPIPE_SZ, 1 << 20);
	dest->ssh = fork();
	if (dest->ssh == 0)
		exec_ssh(argv, to[0], from[1]);
	close(to[0]);
	close(from[1]);
	dest->wire = (struct wire){ .in = from[0], .out = to[1] };
	return dest->ssh < 0 ? fault("fork: %s", strerror(errno)) : 0;
}

/* ssh may wait for a host that does not answer, or for a person. */
static void end_ssh(pid_t pid, int *status)
{
	int pidfd = pidfd_open(pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	if (poll(&p, 1, SSH_END_MS) != 1) {
		kill(pid, SIGTERM);
		if (poll(&p, 1, SSH_END_MS) != 1)
			kill(pid, SIGKILL);
	}
	close_fd(&pidfd);
	waitpid(pid, status, 0);
}

/* Why did ssh end before the first word? ssh may have said so itself, on our stderr. */
static int no_hello(struct dest *dest)
{
	int status = 0;

	fault_clear();
	if (!wire_ready(&dest->wire, 0)) {
		kill(dest->ssh, SIGTERM);
		return fault("%s: godwit does not answer there", dest->host);
	}
	close_fd(&dest->wire.out);
	end_ssh(dest->ssh, &status);
	dest->ssh = -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return fault("%s: there is no godwit there, or no ssh here: install it", dest->host);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 255)
		return fault("%s: ssh can't reach it", dest->host);
	return fault("%s: godwit there ended with status %d", dest->host,
		     WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int dest_start(struct dest *dest, const char *host, const char *command, const char *id, bool attach)
{
	const char *const more[] = { host, "godwit", "agent", attach ? "--attach" : "--id", id, NULL };
	const char *const here[] = { "agent", "--attach", id, NULL };
	char *words, **argv = host ? split(command ?: default_ssh, more, &words) :
				     split("/proc/self/exe", here, &words);
	int ret;

	dest->host = host ?: "this host";
	ret = start(dest, argv);
	free(words);
	free(argv);
	/* The destination looks at itself while we look here. (If this fails, dest_hello() says why.) */
	if (ret == 0 && wire_send(&dest->wire, json_pack("{s:s, s:i}", "op", "hello", "wire", WIRE_VERSION)))
		fault_clear();
	return ret;
}

static int hello_ms(const struct dest *dest)
{
	int64_t left = (dest->until - now_ns()) / 1000000;

	if (!dest->until)
		return HELLO_MS;
	return left > 1000 ? left : 1000;
}

int dest_hello(struct dest *dest)
{
	if (wire_receive(&dest->wire, &dest->hello, NULL, NULL, hello_ms(dest)))
		return no_hello(dest);
	return dest_understand(dest, dest->hello);
}

int dest_connect(struct dest *dest, const char *host, const char *command, const char *id, bool attach)
{
	return dest_start(dest, host, command, id, attach) ?: dest_hello(dest);
}

int dest_ping(struct dest *dest)
{
	for (int i = 0; i < 5; i++) {
		int64_t begin = now_ns();
		json_t *pong = dest_ask(dest, json_pack("{s:s}", "op", "ping"), HELLO_MS);

		if (!pong)
			return -1;
		json_decref(pong);
		begin = now_ns() - begin;
		if (!dest->rtt_ns || begin < dest->rtt_ns)
			dest->rtt_ns = begin;
	}
	return 0;
}

void dest_close(struct dest *dest)
{
	close_fd(&dest->wire.out);
	close_fd(&dest->wire.in);
	if (dest->ssh > 0) {
		if (!dest->hello)
			kill(dest->ssh, SIGTERM);	/* it may not even be connected */
		end_ssh(dest->ssh, NULL);
	}
	dest->ssh = -1;
	json_decref(dest->hello);
	dest->hello = NULL;
}

int dest_understand(const struct dest *dest, json_t *answer)
{
	const char *error = json_string_value(json_object_get(answer, "failed"));

	return error ? fault("%s: %s", dest->host, error) : 0;
}

json_t *dest_ask(struct dest *dest, json_t *question, int timeout_ms)
{
	json_t *answer;

	dest->refused = false;
	if (wire_send(&dest->wire, question) ||
	    wire_receive(&dest->wire, &answer, NULL, NULL, timeout_ms))
		return NULL;
	if (dest_understand(dest, answer)) {
		dest->refused = true;
		json_decref(answer);
		return NULL;
	}
	return answer;
}

json_t *dest_hear_aborted(struct dest *dest, int timeout_ms)
{
	json_t *answer;

	while (wire_receive(&dest->wire, &answer, NULL, NULL, timeout_ms) == 0) {
		if (json_object_get(answer, "aborted") || json_is_false(json_object_get(answer, "undone")))
			return answer;
		json_decref(answer);
	}
	return NULL;
}
