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
#include "peer.h"

/* Dead hosts are to be noticed well before the peers' patience with a stopped process ends. */
static const char default_ssh[] =
	"ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=2 -o ServerAliveCountMax=5";
#define HELLO_MS	30000
/* How long ssh may take to end when it has nobody to talk for, and again when it is told to. */
#define SSH_END_MS	2000

/* The words of command and then more. *words is what argv's strings lie in; free both. */
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
	/* a terminal's ^C is for godwit alone; without a terminal ssh asks no questions */
	setsid();
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "godwit: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int start(struct peer *peer, char **argv)
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
	peer->ssh = fork();
	if (peer->ssh == 0)
		exec_ssh(argv, to[0], from[1]);
	close(to[0]);
	close(from[1]);
	peer->wire = (struct wire){ .in = from[0], .out = to[1] };
	return peer->ssh < 0 ? fault("fork: %s", strerror(errno)) : 0;
}

/* Some wait for a host that does not answer, or for a person. */
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

/* Why did ssh end before the first word? It may have said so itself, on our stderr. */
static int no_hello(struct peer *peer)
{
	int status = 0;

	fault_clear();
	if (!wire_ready(&peer->wire, 0)) {
		kill(peer->ssh, SIGTERM);
		return fault("%s: godwit does not answer there", peer->host);
	}
	close_fd(&peer->wire.out);
	end_ssh(peer->ssh, &status);
	peer->ssh = -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return fault("%s: there is no godwit there, or no ssh here: install it", peer->host);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 255)
		return fault("%s: ssh can't reach it", peer->host);
	return fault("%s: godwit there ended with status %d", peer->host,
		     WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int peer_start(struct peer *peer, const char *host, const char *command, const char *id, bool attach)
{
	const char *const more[] = { host, "godwit", "agent", attach ? "--attach" : "--id", id, NULL };
	const char *const here[] = { "agent", "--attach", id, NULL };
	char *words, **argv = host ? split(command ?: default_ssh, more, &words) :
				     split("/proc/self/exe", here, &words);
	int ret;

	peer->host = host ?: "this host";
	ret = start(peer, argv);
	free(words);
	free(argv);
	return ret;
}

static int hello_ms(const struct peer *peer)
{
	int64_t left = (peer->until - now_ns()) / 1000000;

	if (!peer->until)
		return HELLO_MS;
	return left > 1000 ? left : 1000;
}

int peer_hello(struct peer *peer)
{
	if (wire_send(&peer->wire, json_pack("{s:s, s:i}", "op", "hello", "wire", WIRE_VERSION)) ||
	    wire_receive(&peer->wire, &peer->hello, NULL, NULL, hello_ms(peer)))
		return no_hello(peer);
	return peer_understand(peer, peer->hello);
}

int peer_connect(struct peer *peer, const char *host, const char *command, const char *id, bool attach)
{
	return peer_start(peer, host, command, id, attach) ?: peer_hello(peer);
}

int peer_ping(struct peer *peer)
{
	for (int i = 0; i < 5; i++) {
		int64_t begin = now_ns();
		json_t *pong = peer_ask(peer, json_pack("{s:s}", "op", "ping"), HELLO_MS);

		if (!pong)
			return -1;
		json_decref(pong);
		begin = now_ns() - begin;
		if (!peer->rtt_ns || begin < peer->rtt_ns)
			peer->rtt_ns = begin;
	}
	return 0;
}

void peer_close(struct peer *peer)
{
	close_fd(&peer->wire.out);
	close_fd(&peer->wire.in);
	if (peer->ssh > 0) {
		if (!peer->hello)
			kill(peer->ssh, SIGTERM);	/* it may be far from connected */
		end_ssh(peer->ssh, NULL);
	}
	peer->ssh = -1;
	json_decref(peer->hello);
	peer->hello = NULL;
}

int peer_understand(const struct peer *peer, json_t *answer)
{
	const char *error = json_string_value(json_object_get(answer, "failed"));

	return error ? fault("%s: %s", peer->host, error) : 0;
}

json_t *peer_ask(struct peer *peer, json_t *question, int timeout_ms)
{
	json_t *answer;

	if (wire_send(&peer->wire, question) ||
	    wire_receive(&peer->wire, &answer, NULL, NULL, timeout_ms))
		return NULL;
	if (peer_understand(peer, answer)) {
		json_decref(answer);
		return NULL;
	}
	return answer;
}
