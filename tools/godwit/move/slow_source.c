// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Reading a large file, or waiting for a file system, can take longer than peers wait. A child does it, so that its parent can
 * ask them to wait for longer, and hears of signals and of the end of its time.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "move.h"

#define ANSWER_MAX	4200	/* a letter, and the text of a fault */

static void say(int sk, char what, const char *text)
{
	char *answer = xasprintf("%c%s", what, text);

	(void)!send(sk, answer, strlen(answer) + 1, MSG_NOSIGNAL);
	free(answer);
}

void slow_say(int sk, const char *text)
{
	say(sk, '+', text);
}

/*
 * The child may hang in the kernel. So it keeps open nothing that its parent closes, nor a pipe from which somebody reads the
 * output of godwit.
 */
static void child(struct move *m, slow_fn *work, const void *arg, int sk, pid_t parent)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_NAME, "godwit-slow"); /* whoever kills godwit by its name means the parent */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || null < 0)
		_exit(1);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	if (sk != 3 && dup2(sk, 3) < 0)
		_exit(1);
	close_range(4, ~0U, 0);
	if (work(m, arg, 3))
		say(3, '-', fault_text());
	_exit(0);
}

int slow_start(struct slow *slow, struct move *m, slow_fn *work, const void *arg)
{
	pid_t parent = getpid();
	int sk[2];

	*slow = SLOW_INIT;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return fault("socketpair: %s", strerror(errno));
	slow->pid = fork();
	if (slow->pid == 0)
		child(m, work, arg, sk[1], parent);
	close(sk[1]);
	slow->sk = sk[0];
	return slow->pid < 0 ? fault("fork: %s", strerror(errno)) : 0;
}

int slow_hear(struct slow *slow, struct move *m, char *text, size_t size)
{
	char answer[ANSWER_MAX];
	int ret = move_await(m, slow->sk, m->criu.pidfd);
	ssize_t n;

	if (ret)
		return ret < 0 ? -1 : fault(CRIU_WAS_KILLED);
	n = recv(slow->sk, answer, sizeof(answer) - 1, 0);
	if (n <= 0)
		return fault("a child of godwit was killed");
	answer[n] = '\0';
	if (answer[0] == '-')
		return fault("%s", answer + 1);
	snprintf(text, size, "%s", answer + 1);
	return 0;
}

/* We do not wait for a child that hangs in the kernel. It is gone when we are gone. */
void slow_end(struct slow *slow)
{
	if (slow->pid > 0) {
		kill(slow->pid, SIGKILL);
		waitpid(slow->pid, NULL, WNOHANG);
	}
	close_fd(&slow->sk);
	slow->pid = -1;
}
