// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The TCP sockets of a process tree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proc.h"

struct tcp_walk {
	int (*each)(const struct proc_tcp *, void *);
	void *arg;
	pid_t pid;		/* whose tables these are */
	char *table[2];		/* /proc/PID/net/tcp, tcp6 */
};

static bool parse_address(const char *hex, struct in6_addr *addr)
{
	uint32_t word[4];

	*addr = in6addr_any;
	if (strlen(hex) == 8 && sscanf(hex, "%8x", &word[0]) == 1) {
		addr->s6_addr[10] = addr->s6_addr[11] = 0xff;
		memcpy(&addr->s6_addr[12], &word[0], 4);
		return true;
	}
	if (sscanf(hex, "%8x%8x%8x%8x", &word[0], &word[1], &word[2], &word[3]) != 4)
		return false;
	memcpy(addr, word, sizeof(*addr));
	return true;
}

static bool parse_tcp(const char *text, unsigned long wanted, struct proc_tcp *tcp)
{
	char line[256], local[33], remote[33];
	unsigned int lport, rport, state;
	unsigned long inode;

	/* We copy the line, because sscanf() first measures all the text that it gets. */
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	if (sscanf(line, " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*s %*s %*s %*s %*s %lu",
		   local, &lport, remote, &rport, &state, &inode) != 6 || inode != wanted)
		return false;
	tcp->state = state;
	tcp->local_port = lport;
	tcp->remote_port = rport;
	return parse_address(local, &tcp->local) && parse_address(remote, &tcp->remote);
}

static void tcp_tables(struct tcp_walk *walk, pid_t pid)
{
	static const char *const names[] = { "tcp", "tcp6" };

	if (walk->pid == pid)
		return;
	walk->pid = pid;
	for (int i = 0; i < 2; i++) {
		char *path = xasprintf("/proc/%d/net/%s", pid, names[i]);

		free(walk->table[i]);
		walk->table[i] = read_file(path);
		free(path);
	}
}

static int tcp_each_fd(const struct proc_fd *fd, void *arg)
{
	struct tcp_walk *walk = arg;
	unsigned long inode;
	int ret = 0;

	if (sscanf(fd->link, "socket:[%lu]", &inode) != 1)
		return 0;
	tcp_tables(walk, fd->pid);
	for (int i = 0; !ret && i < 2; i++) {
		char *line = walk->table[i];

		while (!ret && line && (line = strchr(line, '\n')) && *++line) {
			struct proc_tcp tcp = { .pid = fd->pid, .fd = fd->fd };

			if (parse_tcp(line, inode, &tcp))
				ret = walk->each(&tcp, walk->arg);
		}
	}
	return ret;
}

int proc_each_tcp(const struct tree *tree, int (*each)(const struct proc_tcp *, void *), void *arg)
{
	struct tcp_walk walk = { .each = each, .arg = arg };
	int ret = proc_each_fd(tree, tcp_each_fd, &walk);

	free(walk.table[0]);
	free(walk.table[1]);
	return ret;
}
