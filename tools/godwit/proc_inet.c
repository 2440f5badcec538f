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

/* The sockets that some process has open, of all network namespaces of a tree, by rising inode. */
struct inet_table {
	struct proc_inet *socket;
	size_t n;
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

static bool parse_line(const char *text, struct proc_inet *s)
{
	char line[256], local[33], remote[33];
	unsigned int lport, rport;

	/* We copy the line, because sscanf() first measures all the text that it gets. */
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	if (sscanf(line, " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %*s %*s %*s %*s %*s %*s %lu",
		   local, &lport, remote, &rport, &s->inode) != 5)
		return false;
	s->local_port = lport;
	s->remote_port = rport;
	return parse_address(local, &s->local) && parse_address(remote, &s->remote);
}

static const char *next_line(const char *table)
{
	const char *line = table ? strchr(table, '\n') : NULL;

	return line && line[1] ? line + 1 : NULL;
}

/* A socket that is closed, or is not accepted yet, has no inode. */
static void read_table(struct inet_table *table, pid_t pid, uint64_t ns, size_t which)
{
	char *path = xasprintf("/proc/%d/net/%s", pid, table_names[which]), *text = read_file(path);

	for (const char *line = next_line(text); line; line = next_line(line)) {
		struct proc_inet s = { .udp = which >= FIRST_UDP, .netns = ns, .table = table };

		if (!parse_line(line, &s) || !s.inode)
			continue;
		GROW(table->socket, table->n);
		table->socket[table->n++] = s;
	}
	free(text);
	free(path);
}

static void add_netns(struct inet_table *table, pid_t pid)
{
	uint64_t ns = proc_ns(pid, "net");

	for (size_t i = 0; i < table->n; i++)
		if (table->socket[i].netns == ns)
			return;
	for (size_t i = 0; i < TABLES; i++)
		read_table(table, pid, ns, i);
}

static int by_inode(const void *a, const void *b)
{
	const struct proc_inet *x = a, *y = b;

	return (x->inode > y->inode) - (x->inode < y->inode);
}

static struct proc_inet *find(const struct inet_table *table, const struct proc_fd *fd)
{
	struct proc_inet key = { .inode = fd->st.st_ino };

	return S_ISSOCK(fd->st.st_mode) && table->n ? bsearch(&key, table->socket, table->n, sizeof(key), by_inode) : NULL;
}

/* Note that the tree has it open. */
static int note(const struct proc_fd *fd, void *arg)
{
	struct proc_inet *s = find(arg, fd);

	if (s)
		s->pid = fd->pid;
	return 0;
}

struct inet_walk {
	const struct inet_table *table;
	int (*each)(const struct proc_inet *, void *);
	void *arg;
};

static int inet_each_fd(const struct proc_fd *fd, void *arg)
{
	struct inet_walk *walk = arg;
	struct proc_inet *s = find(walk->table, fd);

	if (!s)
		return 0;
	s->pid = fd->pid;
	s->fd = fd->fd;
	return walk->each(s, walk->arg);
}

int proc_each_inet(const struct tree *tree, int (*each)(const struct proc_inet *, void *), void *arg)
{
	struct inet_table table = { 0 };
	int ret;

	for (size_t i = 0; i < tree->n; i++)
		add_netns(&table, tree->task[i].pid);
	if (table.n)
		qsort(table.socket, table.n, sizeof(*table.socket), by_inode);
	proc_each_fd(tree, note, &table);
	ret = proc_each_fd(tree, inet_each_fd, &(struct inet_walk){ &table, each, arg });
	free(table.socket);
	return ret;
}

const struct proc_inet *proc_inet_peer(const struct proc_inet *s)
{
	for (size_t i = 0; i < s->table->n; i++) {
		const struct proc_inet *other = &s->table->socket[i];

		if (other->netns == s->netns && other->udp == s->udp && other->local_port == s->remote_port &&
		    other->remote_port == s->local_port && IN6_ARE_ADDR_EQUAL(&other->local, &s->remote) &&
		    IN6_ARE_ADDR_EQUAL(&other->remote, &s->local))
			return other;
	}
	return NULL;
}
