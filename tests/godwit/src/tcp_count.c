// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * tcp_count server ADDRESS PORT: take one connection, send back each number that comes, in order.
 * tcp_count client ADDRESS PORT FROM COUNT PAUSE_US: from address FROM, send numbers and await each, until SIGINT or COUNT;
 * after SIGUSR1 or SIGHUP the next one is written to the beginning of descriptor 4, which is a file.
 * Both print how many they saw and the longest gap between two; 0 when all came once and in order.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop, note;

static void on_int(int sig)
{
	(void)sig;
	stop = 1;
}

static void on_usr1(int sig)
{
	(void)sig;
	note = 1;
}

static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (inet_pton(AF_INET, ip, &a.sin_addr) != 1)
		exit(2);
	return a;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static int report(uint64_t seen, int64_t gap)
{
	printf("%llu numbers, longest gap %lld us\n", (unsigned long long)seen, (long long)gap);
	return 0;
}

static int serve(char **arg)
{
	struct sockaddr_in a = address(arg[0], arg[1]);
	int one = 1, sk = socket(AF_INET, SOCK_STREAM, 0), fd;
	uint64_t number, seen = 0;
	int64_t last = 0, gap = 0, now;

	setsockopt(sk, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(sk, (void *)&a, sizeof(a)) || listen(sk, 1))
		die("listen");
	fd = accept(sk, NULL, NULL);
	if (fd < 0)
		die("accept");
	while (recv(fd, &number, 8, MSG_WAITALL) == 8) {
		if (number != seen++) {
			fprintf(stderr, "%llu came in place of %llu\n", (unsigned long long)number,
				(unsigned long long)seen - 1);
			return 1;
		}
		now = now_us();
		if (last && now - last > gap)
			gap = now - last;
		last = now;
		if (send(fd, &number, 8, MSG_NOSIGNAL) != 8)
			die("send");
	}
	return report(seen, gap);
}

static void write_down(uint64_t number)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%020llu\n", (unsigned long long)number);

	note = 0;
	if (pwrite(4, text, n, 0) != n)
		die("pwrite");
}

static int call(char **arg)
{
	struct sockaddr_in to = address(arg[0], arg[1]), from = address(arg[2], "0");
	uint64_t count = strtoull(arg[3], NULL, 0), number, back;
	int sk = socket(AF_INET, SOCK_STREAM, 0);
	int64_t last = 0, gap = 0, now;

	/* An interrupted call is begun again. */
	signal(SIGINT, on_int);
	signal(SIGUSR1, on_usr1);
	signal(SIGHUP, on_usr1);
	if (bind(sk, (void *)&from, sizeof(from)) || connect(sk, (void *)&to, sizeof(to)))
		die("connect");
	for (number = 0; number < count && !stop; number++) {
		if (send(sk, &number, 8, MSG_NOSIGNAL) != 8)
			die("send");
		if (recv(sk, &back, 8, MSG_WAITALL) != 8)
			die("recv");
		if (back != number)
			return 1;
		now = now_us();
		if (last && now - last > gap)
			gap = now - last;
		last = now;
		if (note)
			write_down(number);
		usleep(atoi(arg[4]));
	}
	return report(number, gap);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "server"))
		return serve(argv + 2);
	if (argc == 7 && !strcmp(argv[1], "client"))
		return call(argv + 2);
	return 2;
}
