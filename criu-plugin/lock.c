// SPDX-License-Identifier: GPL-2.0
/*
 * CRIU's lock of the network. A tree with a network namespace of its own has
 * all packets dropped there from a moment after CHECKPOINT_DEVICES on. RDMA's
 * must pass: the driver holds the connections, and while they stand still it
 * says STOP again until it is answered, and answers peers with NAK_STOPPED.
 * Else a peer that has not heard the first STOP uses up its retries.
 *
 * CRIU's lock, be it by nftables or iptables, lets packets pass that have CRIU's
 * mark, and has the priority of a filter. So a table of ours marks RDMA's
 * packets just before. It is made before anything stops, so there is no moment
 * in which they are dropped, and it names nothing of CRIU's.
 *
 * CRIU lifts its lock before the exit hook, if the tree is to live on. Then our
 * table goes, too. If the tree dies, or CRIU is killed, the lock stays, and so
 * does ours: in a namespace that somebody keeps, tombstones answer peers. A
 * restore into such a namespace lifts the lock before RESUME_DEVICES_LATE. One
 * that has made the namespace from the image has both tables from there.
 *
 * Trees that share a namespace may be dumped at once, so each run has a table of
 * its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin.h"

/*
 * The name of CRIU's table, if it locks by nftables: "inet CRIU-" and the ID of
 * the run; in a restore, of the run that made the images.
 */
extern int nftables_get_table(char *table, int n) __attribute__((weak));

/* CRIU has the name cut off to fit this, and that is the table's name. */
#define CRIU_TABLE_SIZE	32
#define CRIU_PREFIX	"inet CRIU-"

/*
 * 0xc114 is CRIU's mark (SOCCR_MARK). RoCEv2 is UDP, to port 4791 both ways. With
 * IPv6 a host that does not answer its neighbours is soon dead to them; ARP is
 * not CRIU's matter.
 */
#define CHAIN(hook)								\
	"chain " hook " {\n"							\
	"type filter hook " hook " priority filter - 1;\n"			\
	"udp dport 4791 meta mark set 0xc114\n"					\
	"icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } meta mark set 0xc114\n" \
	"}\n"

/* One transaction with what follows it. No table of this name is no error. */
#define REMOVE	"add table %s\n" "delete table %s\n"

static int netns = -1;		/* of the tree, if it is not CRIU's */
static char criu_table[CRIU_TABLE_SIZE];
static char table[64];		/* ours */

/* ------------------------------------------------------------------- nft -- */

/*
 * In a network namespace: a process of its own enters it, so CRIU stays where it
 * is. CRIU handles no SIGCHLD at these moments. The first line of what nft says
 * is enough.
 */
static int run_nft(int ns, const char *commands, char why[128])
{
	int output, status = -1;
	ssize_t length;
	pid_t pid;

	snprintf(why, 128, "no memory");
	output = memfd_create("nft", 0);
	if (output < 0)
		return -1;
	pid = fork();
	if (!pid) {
		if (!setns(ns, CLONE_NEWNET) && dup2(output, 1) == 1 &&
		    dup2(output, 2) == 2)
			execlp("nft", "nft", commands, NULL);
		dprintf(output, "nft: %m");
		_exit(1);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	length = pid > 0 ? pread(output, why, 127, 0) : -1;
	if (length >= 0)
		why[length] = '\0';
	if (!length)
		snprintf(why, 128, "nft does not say why");
	why[strcspn(why, "\n")] = '\0';
	close(output);
	return status ? -1 : 0;
}

/* ------------------------------------------------------------------ table -- */

static int name_tables(void)
{
	if (!nftables_get_table || nftables_get_table(criu_table, sizeof(criu_table)) ||
	    strncmp(criu_table, CRIU_PREFIX, strlen(CRIU_PREFIX)))
		return -1;
	snprintf(table, sizeof(table), "inet godwit-rdma-%s", criu_table + strlen(CRIU_PREFIX));
	return 0;
}

static int add_table(int ns, char why[128])
{
	char commands[1024];

	snprintf(commands, sizeof(commands), REMOVE "table %s {\n" CHAIN("output") CHAIN("input") "}\n",
		 table, table, table);
	return run_nft(ns, commands, why);
}

static void remove_table(int ns)
{
	char commands[256], why[128];

	snprintf(commands, sizeof(commands), REMOVE, table, table);
	if (run_nft(ns, commands, why))
		warn("the table %s may be left behind in the network namespace: %s",
		     table, why);
}

/* By nftables, or by iptables that are made of them, as Debian's are. */
static bool is_locked(int ns)
{
	char command[64], why[128];

	snprintf(command, sizeof(command), "list table %s", criu_table);
	return !run_nft(ns, command, why) ||
	       !run_nft(ns, "list chain ip filter CRIU", why);
}

/* The network namespace of a process, or -1 if it is ours. */
static int open_other_netns(pid_t pid)
{
	struct stat own, its;
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (!stat("/proc/self/ns/net", &own) && !fstat(fd, &its) &&
	    (own.st_dev != its.st_dev || own.st_ino != its.st_ino))
		return fd;
	close(fd);
	return -1;
}

/* ----------------------------------------------------------- checkpoint -- */

/* Before it is locked. Who has it dumped with GODWIT_HOLDS locks it otherwise. */
void pass_lock(pid_t root)
{
	char why[128] = "this CRIU does not name its tables";

	if (getenv("GODWIT_HOLDS"))
		return;
	netns = open_other_netns(root);
	if (netns < 0 || (!name_tables() && !add_table(netns, why)))
		return;
	warn("CRIU's lock of the network drops RDMA's packets, too, so a peer that does not hear the first STOP may die: %s",
	     why);
	close(netns);
	netns = -1;
}

/*
 * At the end of a checkpoint. Of a tree that lives on the lock has been lifted.
 * A tree may have closed all files of RDMA before it was frozen: then a restore
 * finds no image of ours, and would not remove the table.
 */
void pass_lock_end(bool saved)
{
	if (netns < 0)
		return;
	if (!saved || !is_locked(netns))
		remove_table(netns);
	close(netns);
	netns = -1;
}

/* --------------------------------------------------------------- restore -- */

/*
 * A restored tree's lock has been lifted. (godwit, which has the last word in
 * its restores, has had no such table made.)
 */
void forget_lock(pid_t root)
{
	int ns = commit_is_asked() ? -1 : open_other_netns(root);

	if (ns < 0)
		return;
	if (!name_tables())
		remove_table(ns);
	close(ns);
}
