// SPDX-License-Identifier: MIT
/*
 * beside KIND: a child holds something that CRIU does not dump: an io_uring, a perf event (perf), a socket of AF_ALG or of MPTCP,
 * memory of shmget() (sysv), or a Unix socket whose other end its parent holds (unix). Or it holds nothing of the kind (nothing),
 * or three huge pages, one of which is shared memory (huge). Says "child PID" when it holds it. Both run until the child is
 * killed.
 */
#include <linux/perf_event.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(cond) ((cond) ? (void)0 : (perror(#cond), exit(1)))

enum { HUGE = 2 << 20 };

static void take_huge(size_t length, int flags)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	MUST(at != MAP_FAILED);
	memset(at, 1, length);
}

static void take(const char *kind)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_CPU_CLOCK };
	struct io_uring_params params = { 0 };
	int id;

	if (!strcmp(kind, "io_uring")) {
		MUST(syscall(SYS_io_uring_setup, 4, &params) >= 0);
	} else if (!strcmp(kind, "perf")) {
		MUST(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) >= 0);
	} else if (!strcmp(kind, "AF_ALG")) {
		MUST(socket(AF_ALG, SOCK_SEQPACKET, 0) >= 0);
	} else if (!strcmp(kind, "MPTCP")) {
		MUST(socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP) >= 0);
	} else if (!strcmp(kind, "sysv")) {
		id = shmget(IPC_PRIVATE, 4096, 0600);
		MUST(id >= 0 && shmat(id, NULL, 0) != (void *)-1 && !shmctl(id, IPC_RMID, NULL));
	} else if (!strcmp(kind, "huge")) {
		take_huge(2 * HUGE, MAP_PRIVATE);
		take_huge(HUGE, MAP_SHARED);
	} else {
		MUST(!strcmp(kind, "unix") || !strcmp(kind, "nothing"));
	}
}

int main(int argc, char **argv)
{
	int pair[2];
	pid_t child;

	MUST(argc == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	child = fork();
	MUST(child >= 0);
	if (!child) {
		close(pair[0]);
		if (strcmp(argv[1], "unix"))
			close(pair[1]);
		take(argv[1]);
		printf("child %d\n", getpid());
		fflush(stdout);
		for (;;)
			pause();
	}
	close(pair[1]);
	MUST(waitpid(child, NULL, 0) == child);
	return 0;
}
