// SPDX-License-Identifier: GPL-2.0
/*
 * CRIU's lock of the network. If a tree has a network namespace of its own,
 * CRIU drops all packets there, from a moment after CHECKPOINT_DEVICES on.
 * RDMA's packets must pass: while queue pairs are stopped, the driver repeats
 * STOP until peers answer, and answers peers with NAK_STOPPED. Otherwise a peer
 * that has not heard the first STOP uses up its retries.
 *
 * CRIU's lock, by nftables or iptables, has the priority of a filter, and lets
 * packets with CRIU's mark pass. So a table of ours marks RDMA's packets just
 * before. It is made before anything stops, so these packets are dropped at no
 * moment. It names nothing of CRIU's.
 *
 * If the tree is to live on, CRIU lifts its lock before the exit hook, and the
 * exit hook removes our table. If the tree dies, or CRIU is killed, the lock
 * stays, and so does our table: if somebody keeps the namespace, tombstones in
 * it answer peers. A restore into such a namespace lifts the lock before
 * RESUME_DEVICES_LATE, which removes our table. A restore that makes the
 * namespace from the image gets both tables from there, and removes them in the
 * same way.
 *
 * Trees that share a namespace may be dumped at the same time, so each run of
 * CRIU has a table of its own.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin.h"

/*
 * Gets the name of the table that CRIU makes if it locks by nftables: "inet
 * CRIU-" and the ID of the run. In a restore it is the ID of the run that made
 * the images.
 */
extern int nftables_get_table(char *table, int n) __attribute__((weak));

/* CRIU cuts the name off to fit this, and gives the table that name. */
#define CRIU_TABLE_SIZE	32
#define CRIU_PREFIX	"inet CRIU-"

/*
 * 0xc114 is CRIU's mark (SOCCR_MARK). RoCEv2 is UDP, to port 4791 both ways. A
 * host that does not answer IPv6's neighbour discovery is soon dead to its
 * neighbours. ARP needs no mark: CRIU does not drop it.
 */
#define CHAIN(hook)								\
	"chain " hook " {\n"							\
	"type filter hook " hook " priority filter - 1;\n"			\
	"udp dport 4791 meta mark set 0xc114\n"					\
	"icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } meta mark set 0xc114\n" \
	"}\n"

/*
 * Remove a table, if it is there. nft runs this and the commands after it as
 * one transaction.
 */
#define REMOVE	"add table %s\n" "delete table %s\n"

static int netns = -1;		/* of the tree, if it is not CRIU's */
static char criu_table[CRIU_TABLE_SIZE];
static char table[64];		/* ours */

/* ------------------------------------------------------------------- nft -- */

/*
 * Run nft in a network namespace. A child enters the namespace, so CRIU stays
 * where it is. CRIU handles no SIGCHLD at these moments. why gets the first
 * line of what nft says.
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

/*
 * Is CRIU's lock there? It may be of nftables, or of iptables that use
 * nftables, as Debian's do.
 */
static bool is_locked(int ns)
{
	char command[64], why[128];

	snprintf(command, sizeof(command), "list table %s", criu_table);
	return !run_nft(ns, command, why) ||
	       !run_nft(ns, "list chain ip filter CRIU", why);
}

/* ----------------------------------------------------------- checkpoint -- */

/*
 * Called before CRIU sets its lock. A program that sets GODWIT_HOLDS locks the
 * network itself, in another way.
 */
void pass_lock(pid_t root)
{
	char why[128] = "this CRIU does not name its tables";

	if (getenv("GODWIT_HOLDS"))
		return;
	if (open_other_netns(root, &netns) || netns < 0 ||
	    (!name_tables() && !add_table(netns, why)))
		return;
	warn("CRIU's lock of the network drops RDMA's packets, too, so a peer that does not hear the first STOP may die: %s",
	     why);
	close(netns);
	netns = -1;
}

/*
 * At the end of a checkpoint: remove our table if CRIU has lifted its lock, as
 * it does for a tree that lives on. Remove it also if no image of ours was
 * written, because the tree had closed all files of RDMA before it was frozen:
 * a restore would find no image, and leave the table.
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
 * CRIU has lifted the lock of a restored tree: remove our table. (Where the
 * commit is asked for, godwit moves the tree, and its dump made no table.)
 */
void forget_lock(pid_t root)
{
	int ns;

	if (commit_is_asked() || open_other_netns(root, &ns) || ns < 0)
		return;
	if (!name_tables())
		remove_table(ns);
	close(ns);
}
