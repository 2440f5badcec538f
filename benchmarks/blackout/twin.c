// SPDX-License-Identifier: MIT
/*
 * twin run MAP FDS HOST PORT: a process of the size and structure of another one, without RDMA.
 *
 * MAP has a line for each mapping that the other one has (guest makes it):
 *
 *	PAGES PERMISSIONS WRITTEN [PATH OFFSET]
 *
 * twin maps the same file for a mapping of a file, and anonymous memory for any other mapping, and writes to the first WRITTEN
 * pages of each. It opens FDS more descriptors. Then it uses a whole CPU, and twenty times a second sends a byte to HOST and
 * waits until the byte is back. It ends if that fails.
 *
 * twin serve PORT: sends the bytes back.
 */
#include <err.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

static void map(size_t pages, const char *permissions, size_t written, const char *path, off_t offset)
{
	int prot = (permissions[0] == 'r' ? PROT_READ : 0) | (permissions[1] == 'w' ? PROT_WRITE : 0) |
		   (permissions[2] == 'x' ? PROT_EXEC : 0);
	int fd = *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	/* One page more is mapped, and then given back. Without this gap the kernel makes one mapping of two neighbours. */
	char *at = mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | (*path ? 0 : MAP_ANONYMOUS), fd, offset);

	if (at == MAP_FAILED || munmap(at + pages * PAGE, PAGE))
		err(1, "%zu pages of %s", pages, *path ? path : "memory");
	for (size_t i = 0; i < written; i++)
		at[i * PAGE] = 1;
	if (mprotect(at, pages * PAGE, prot))
		err(1, "mprotect");
	if (fd >= 0)
		close(fd);
}

static void be_like(const char *name)
{
	FILE *file = fopen(name, "re");
	char line[512], permissions[8], path[256];
	unsigned long pages, written, offset;

	if (!file)
		err(1, "%s", name);
	while (fgets(line, sizeof(line), file)) {
		*path = '\0';
		offset = 0;
		if (sscanf(line, "%lu %7s %lu %255s %lu", &pages, permissions, &written, path, &offset) < 3)
			errx(1, "%s: %s", name, line);
		map(pages, permissions, written, path, offset);
	}
	fclose(file);
}

static struct addrinfo *look_up(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *found;
	int ret = getaddrinfo(host, port, &hints, &found);

	if (ret)
		errx(1, "%s: %s", host ?: port, gai_strerror(ret));
	return found;
}

static int serve(const char *port)
{
	struct addrinfo *a = look_up(NULL, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, peer;
	char byte;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 5))
		err(1, "port %s", port);
	signal(SIGCHLD, SIG_IGN);
	while ((peer = accept(fd, NULL, NULL)) >= 0) {
		if (fork()) {
			close(peer);
			continue;
		}
		while (read(peer, &byte, 1) == 1 && write(peer, &byte, 1) == 1)
			;
		return 0;
	}
	err(1, "accept");
}

static unsigned long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000UL + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	struct addrinfo *a;
	unsigned long last;
	char byte = 0;
	int fd;

	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc != 6 || strcmp(argv[1], "run"))
		errx(2, "twin run MAP FDS HOST PORT | twin serve PORT");
	be_like(argv[2]);
	for (int n = atoi(argv[3]); n > 0; n--)
		eventfd(0, 0);
	a = look_up(argv[4], argv[5]);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, a->ai_addr, a->ai_addrlen))
		err(1, "%s", argv[4]);
	puts("runs");
	fflush(stdout);
	for (;;) {
		if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
			err(1, "%s does not answer", argv[4]);
		/* Another host has another clock. If the clock jumps, either way, this loop ends. */
		for (last = now_ms(); now_ms() - last < 50;)
			;
	}
}
