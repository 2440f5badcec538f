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
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin.h"

/*
 * CRIU is linked with libnftables, if it can lock by nftables at all, and the
 * plugin finds it there. Its interface is stable; no header is needed for this.
 */
struct nft_ctx;
extern struct nft_ctx *nft_ctx_new(uint32_t flags) __attribute__((weak));
extern void nft_ctx_free(struct nft_ctx *ctx) __attribute__((weak));
extern int nft_ctx_buffer_output(struct nft_ctx *ctx) __attribute__((weak));
extern int nft_ctx_buffer_error(struct nft_ctx *ctx) __attribute__((weak));
extern const char *nft_ctx_get_error_buffer(struct nft_ctx *ctx) __attribute__((weak));
extern int nft_run_cmd_from_buffer(struct nft_ctx *ctx, const char *commands)
	__attribute__((weak));

/* CRIU's own: "inet CRIU-" and the number of this run. */
extern int nftables_get_table(char *table, int n) __attribute__((weak));

#define TABLE	"inet godwit-rdma"

/*
 * 0xc114 is CRIU's mark (SOCCR_MARK). RoCEv2 is UDP, to port 4791 both ways. With
 * IPv6 a host that does not answer its neighbours is soon dead to them; ARP is
 * not CRIU's matter.
 */
#define RULES(chain)								\
	"chain " chain " {\n"							\
	"type filter hook " chain " priority filter - 1;\n"			\
	"udp dport 4791 meta mark set 0xc114\n"					\
	"icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } meta mark set 0xc114\n" \
	"}\n"

#define REMOVE	"delete table " TABLE "\n"
#define ADD	"add table " TABLE "\n" REMOVE "table " TABLE " {\n" RULES("output") RULES("input") "}\n"

static int netns = -1;		/* of the tree, if it is not CRIU's */

/* ------------------------------------------------------------------- nft -- */

/* The first line of what nft says is enough. */
static void note_why(struct nft_ctx *ctx, char why[128])
{
	const char *text = nft_ctx_get_error_buffer(ctx);

	snprintf(why, 128, "%s", text && *text ? text : "nftables do not say why");
	why[strcspn(why, "\n")] = '\0';
}

static int run_here(const char *commands, char why[128])
{
	struct nft_ctx *ctx;
	int ret = -1;

	ctx = nft_ctx_new(0);
	if (!ctx) {
		strcpy(why, "no memory");
		return -1;
	}
	if (nft_ctx_buffer_output(ctx) || nft_ctx_buffer_error(ctx))
		strcpy(why, "no memory");
	else if (nft_run_cmd_from_buffer(ctx, commands))
		note_why(ctx, why);
	else
		ret = 0;
	nft_ctx_free(ctx);
	return ret;
}

/* In a network namespace, as CRIU does it: it has one thread. */
static int run(int ns, const char *commands, char why[128])
{
	int own, ret = -1;

	if (!nft_ctx_new || !nft_ctx_free || !nft_ctx_buffer_output ||
	    !nft_ctx_buffer_error || !nft_ctx_get_error_buffer ||
	    !nft_run_cmd_from_buffer) {
		strcpy(why, "this CRIU was built without nftables");
		return -1;
	}
	own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (own < 0 || setns(ns, CLONE_NEWNET)) {
		snprintf(why, 128, "%s", strerror(errno));
	} else {
		ret = run_here(commands, why);
		/* (whoever was allowed to leave it may come back) */
		if (setns(own, CLONE_NEWNET))
			abort();
	}
	if (own >= 0)
		close(own);
	return ret;
}

/* ------------------------------------------------------------------ table -- */

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

/* By nftables, or by iptables that are made of them, as Debian's are. */
static bool is_locked(int ns)
{
	char table[64], command[96], why[128];

	if (nftables_get_table && !nftables_get_table(table, sizeof(table))) {
		snprintf(command, sizeof(command), "list table %s", table);
		if (!run(ns, command, why))
			return true;
	}
	return !run(ns, "list chain ip filter CRIU", why);
}

/* (a look is quick, and the tasks wait) */
static int remove_table(int ns, char why[128])
{
	return run(ns, "list table " TABLE, why) ? 0 : run(ns, REMOVE, why);
}

/* Before it is locked. Who has it dumped with GODWIT_HOLDS locks it otherwise. */
void pass_lock(pid_t root)
{
	char why[128];

	if (getenv("GODWIT_HOLDS"))
		return;
	netns = open_other_netns(root);
	if (netns < 0 || !run(netns, ADD, why))
		return;
	warn("CRIU's lock of the network drops RDMA's packets, too, so a peer that does not hear the first STOP may die: %s",
	     why);
	close(netns);
	netns = -1;
}

/* At the end of a checkpoint. Of a tree that lives on the lock has been lifted. */
void pass_lock_end(void)
{
	char why[128];

	if (netns < 0)
		return;
	if (!is_locked(netns) && remove_table(netns, why))
		warn("the table " TABLE " is left behind in the network namespace: %s",
		     why);
	close(netns);
	netns = -1;
}

/*
 * A restored tree's lock has been lifted. (godwit, which has the last word in
 * its restores, has had no such table made.)
 */
void forget_lock(pid_t root)
{
	int ns = commit_is_asked() ? -1 : open_other_netns(root);
	char why[128];

	if (ns < 0)
		return;
	remove_table(ns, why);
	close(ns);
}
