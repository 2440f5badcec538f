// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The TCP and UDP sockets of a process tree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proc.h"

static const char *const table_names[] = { "tcp", "tcp6", "udp", "udp6" };
#define TABLES (sizeof(table_names) / sizeof(table_names[0]))
#define FIRST_UDP 2

struct inet_walk {
	int (*each)(const struct proc_inet *, void *);
	void *arg;
	pid_t pid;		/* whose tables these are */
	char *table[TABLES];	/* /proc/PID/net/tcp and the others */
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

static bool parse_line(const char *text, unsigned long *inode, struct proc_inet *s)
{
	char line[256], local[33], remote[33];
	unsigned int lport, rport, state;

	/* We copy the line, because sscanf() first measures all the text that it gets. */
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	if (sscanf(line, " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*s %*s %*s %*s %*s %lu",
		   local, &lport, remote, &rport, &state, inode) != 6)
		return false;
	s->state = state;
	s->local_port = lport;
	s->remote_port = rport;
	return parse_address(local, &s->local) && parse_address(remote, &s->remote);
}

static const char *next_line(const char *table)
{
	const char *line = table ? strchr(table, '\n') : NULL;

	return line && line[1] ? line + 1 : NULL;
}

static void read_tables(struct inet_walk *walk, pid_t pid)
{
	if (walk->pid == pid)
		return;
	walk->pid = pid;
	for (size_t i = 0; i < TABLES; i++) {
		char *path = xasprintf("/proc/%d/net/%s", pid, table_names[i]);

		free(walk->table[i]);
		walk->table[i] = read_file(path);
		free(path);
	}
}

static int inet_each_fd(const struct proc_fd *fd, void *arg)
{
	struct inet_walk *walk = arg;
	unsigned long inode, found;
	int ret = 0;

	if (sscanf(fd->link, "socket:[%lu]", &inode) != 1)
		return 0;
	read_tables(walk, fd->pid);
	for (size_t i = 0; !ret && i < TABLES; i++) {
		for (const char *line = next_line(walk->table[i]); !ret && line; line = next_line(line)) {
			struct proc_inet s = { .pid = fd->pid, .fd = fd->fd, .udp = i >= FIRST_UDP, .tables = walk->table };

			if (parse_line(line, &found, &s) && found == inode)
				ret = walk->each(&s, walk->arg);
		}
	}
	return ret;
}

int proc_each_inet(const struct tree *tree, int (*each)(const struct proc_inet *, void *), void *arg)
{
	struct inet_walk walk = { .each = each, .arg = arg };
	int ret = proc_each_fd(tree, inet_each_fd, &walk);

	for (size_t i = 0; i < TABLES; i++)
		free(walk.table[i]);
	return ret;
}

unsigned long proc_inet_peer(const struct proc_inet *s)
{
	unsigned long inode;

	for (size_t i = s->udp ? FIRST_UDP : 0; i < (s->udp ? TABLES : FIRST_UDP); i++) {
		for (const char *line = next_line(s->tables[i]); line; line = next_line(line)) {
			struct proc_inet other = { 0 };

			if (parse_line(line, &inode, &other) && other.local_port == s->remote_port &&
			    other.remote_port == s->local_port && IN6_ARE_ADDR_EQUAL(&other.local, &s->remote) &&
			    IN6_ARE_ADDR_EQUAL(&other.remote, &s->local))
				return inode;
		}
	}
	return 0;
}
