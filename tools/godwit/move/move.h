/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * A move, as its source sees it. ../README.md has the calls in order, and where the process runs after which failure.
 */
#ifndef GODWIT_MOVE_H
#define GODWIT_MOVE_H

#include "address.h"
#include "connect.h"
#include "container.h"
#include "criu.h"
#include "images.h"
#include "plan.h"
#include "proc.h"
#include "report.h"

struct paths {
	char **path;
	size_t n;
};

/* How far a move is, at its source. move_set_stage() has which stage may follow which. */
enum move_stage {
	MOVE_RUNNING,		/* nothing was stopped */
	MOVE_FREEZING,		/* CRIU was started: something may be stopped */
	MOVE_FROZEN,		/* CRIU had all tasks frozen */
	MOVE_RESTORING,		/* the destination may hold a copy */
	MOVE_DECIDED,		/* the destination may have let its copy go: the process stays frozen here */
	MOVE_RAN,		/* the copy was let go: the process is to end here */
	MOVE_MOVED,		/* it has ended here; nothing is left to do */
	MOVE_STAYED,		/* it runs on here; nothing is left to do */
};

/* Memory that outlives the worker: the keeper goes on from here. */
struct move_shared {
	enum move_stage stage;
	pid_t criu;
	pid_t podman;		/* which leads a session; or -1 */
	bool stop_sent;		/* tree_send_stop() has sent its stop signals, or is about to */
	char boot[40];		/* the boot_id of the destination's host */
};

struct move {
	/* as asked */
	struct proc_id process;	/* of a container: its first one. .start is set when the move is written down */
	struct container container;
	struct paths volumes;	/* of a container, to take along */
	const char *host, *ssh, *images_base;
	struct addresses addresses;
	struct paths copy;	/* files to take along */
	struct paths share;	/* files, and folders of files, that both hosts share, as the operator says */
	json_t *devices_asked, *gids_asked;	/* {OLD: NEW}, or NULL */
	int limit_ms;
	bool json, leave_images, dry_run;
	/* as it goes */
	char id[80];
	char *images;
	struct plan plan;
	struct dest dest;
	struct criu criu;
	bool criu_asks;		/* CRIU waits for our answer */
	char *lock_table;	/* CRIU's nftables table, for a container in this host's network; or NULL */
	bool ended;		/* end_here() was called: the process runs at the destination */
	bool stuck;		/* podman could not stop the container here */
	bool synced;		/* files_sync() was called, or has been done for the digests */
	bool gids_change;
	int signals;		/* signalfd */
	int lock;		/* state_lock() */
	bool word;		/* a person says that the process runs there */
	int64_t deadline, heard_ns;
	int64_t renew_every, renew_ns;	/* peers are asked to wait on: the longest time between requests; when next */
	int64_t freeze_ns, stop_ns, dumped_ns, sent_ns, ready_ns, resumed_ns;
	struct report report;
	struct move_shared *shared;
};

#define MOVE_INIT {							\
	.container = CONTAINER_INIT, .images_base = IMAGES_DIR, .dest = DEST_INIT, .criu = CRIU_INIT, .signals = -1, .lock = -1, \
	.report = { .blackout = -1, .blackout_error = -1, .checkpoint = -1, .transfer = -1, .restore = -1 } }

/* ../migrate.c: give the move its ID, once its pid is known. */
void move_make_id(struct move *m);
/* --gid OLD=NEW; -1 with fault(). */
int move_gid(struct move *m, const char *text);
/* Are the values of --to and --images good? If not, the program says so and ends. */
void move_check_usage(const struct move *m);

/* steps_source.c: the whole move. Gives the exit code. */
int move_transact(struct move *m);

/*
 * check_source.c: what stands in a move's way. move_plan() looks here, and lists what it finds in m->plan's problems.
 * move_problems_there() asks the destination, after dest_start() of m->dest, and gives an array of texts. -1, or NULL, with
 * fault(): it could not look.
 */
int move_plan(struct move *m);
json_t *move_problems_there(struct move *m);
/* -1 with fault(): the process is in the middle of another move. */
int move_check_others(const struct move *m);
/* Check both hosts, and have the destination prepare. EXIT_OK, or the exit code with fault(). */
int move_check(struct move *m);

/*
 * gids_source.c: move_device() takes a --device OLD=NEW,...; -1 with fault(). Call the others, in this order, once the
 * destination has said hello. move_map_gids(): m->plan.gids gets what each GID becomes there. move_map_devices(): the contexts
 * of m->plan get the names of their devices there. move_plugin_env(): which of both change, as variables of the environment for
 * the CRIU plugin there.
 */
int move_device(struct move *m, const char *text);
void move_map_gids(struct move *m, json_t *problems);
void move_map_devices(struct move *m);
json_t *move_plugin_env(const struct move *m);

/* freeze_source.c. 1, with fault(): CRIU failed, and all runs as before. -1 with fault(). */
int move_freeze_and_dump(struct move *m);
/* m->stop_ns: when the driver stopped the first QP; without RDMA, when the freeze began. -1 with fault(). */
int move_find_stop_time(struct move *m);

/* transfer_source.c, restore_source.c: -1 with fault(). */
int move_transfer(struct move *m);
int move_restore(struct move *m);

/* decide_source.c: may the copy be the only one? -1 with fault(). */
#define AFTER_LIMIT_S	10	/* peers wait for so long at least after the decision: the copy has called them by then */
int move_may_decide(struct move *m);
/* The copy is the only one from now on. */
void move_decide(struct move *m);
/* Bring the move to its end, by commit if that is decided, else by abort. Gives the exit code. */
int move_end(struct move *m);

/*
 * commit_source.c, abort_source.c. Both give an exit code, or MOVE_TURNS, since the destination has the first word: it has
 * answered a commit with "the copy was never let go", or an abort with "the copy was let go". A fault() before an abort is the
 * reason of the failure, and stays set.
 */
#define MOVE_TURNS	(-1)
int move_commit(struct move *m);
int move_abort(struct move *m);
/* "prepare" has failed: if the destination said so, wait until nothing is left there, so that the move can be tried again at once. */
void move_take_back(struct move *m);

/*
 * files_source.c, in the order of a move. files_asked(): what speaks against --copy and --shared becomes the plan's problems.
 * files_drop_copied(): the plan drops files that are copied, as the destination need not have them. files_ask(): add to the
 * question what the destination is asked of files. files_judge(): add to problems what its digests show. files_compare(), in
 * the freeze: compare the files that were not settled.
 */
void move_path(struct paths *paths, const char *path);
bool paths_list(const struct paths *paths, const char *path);
bool paths_cover(const struct paths *paths, const char *path);	/* does it list path, or a folder that path is in? */
void files_asked(struct move *m);
void files_drop_copied(struct move *m);
void files_ask(struct move *m, json_t *question);
void files_judge(struct move *m, json_t *digests, json_t *problems);
uint64_t files_size(const struct move *m);	/* bytes that may have to be read for an answer */
int files_compare(struct move *m);
/* Sync shared file systems, so that what the tasks have written to them is there before the copy runs. -1 with fault(). */
int move_sync(struct move *m);
/* Sync shared file systems once, while peers are asked to go on waiting. -1 with fault(). */
int files_sync(struct move *m);
/*
 * Sync shared file systems before the check. An error may be an old one, of another program, that nobody was told of: so it
 * becomes a warning, and the move goes on. Then only a later error fails files_sync(). -1 with fault(): it takes too long, or a
 * signal came.
 */
int files_sync_early(struct move *m, int limit_ms);

/*
 * wait_source.c: wait until fd can be read. 1: criu, a pidfd or -1, has ended first. -1 with fault(): a signal came, or
 * time is up.
 */
int move_await(struct move *m, int fd, int criu);
/*
 * Call move_renew() now and then while peers wait. They wait only as long as we ask them to, so a source that hangs or dies
 * keeps them no longer than pause_timeout. move_renew_later(): peers wait until then; set when they are asked next.
 */
void move_renew(struct move *m);
void move_renew_later(struct move *m, int64_t until);

/*
 * mounts_source.c, for a mount namespace of the tree's own, in this order: have CRIU start in it; see that it has not changed
 * since the check; write the files of its tmpfs to the images. -1 with fault().
 */
int mounts_enter(struct move *m);
int mounts_compare(struct move *m);
int mounts_save(struct move *m);

/*
 * slow_source.c: a child does what may take long, while peers are asked to go on waiting. The child answers with texts, by
 * slow_say(), or fails with fault(). slow_hear() waits for the next text as move_await() does.
 */
struct slow {
	pid_t pid;
	int sk;
};

#define SLOW_INIT ((struct slow){ .pid = -1, .sk = -1 })

typedef int slow_fn(struct move *m, const void *arg, int sk);

int slow_start(struct slow *slow, struct move *m, slow_fn *work, const void *arg);
void slow_say(int sk, const char *text);
int slow_hear(struct slow *slow, struct move *m, char *text, size_t size);
void slow_end(struct slow *slow);

/* talk_source.c: say a word to the destination; hear its next word, which must have this key. -1 with fault(). */
int move_say(struct move *m, json_t *message);
int move_hear(struct move *m, const char *key);
/* Call this when the connection takes no more. What the destination said before it went away becomes the fault(). Gives -1. */
int move_say_why(struct move *m);

/*
 * The same at the end of the move: say a word; hear() hears the answer. When the connection breaks, the word is said again
 * over a new one, for so many seconds. NULL: nobody answers.
 */
json_t *move_insist(struct move *m, const char *op, json_t *(*hear)(struct move *m), int seconds);
/* Does the answer say that nothing is left there, and was its host not started anew since the move began? */
bool move_is_undone(const struct move *m, json_t *answer);
/* What the destination could not do becomes a warning. */
void move_take_warnings(struct move *m, json_t *answer);
/* The last word: the destination removes what it keeps of the move. */
void move_say_bye(struct move *m);

/*
 * criu_source.c. move_dump_log(): the path of CRIU's log, to be freed. move_answer_criu(): answer CRIU, if it waits for an
 * answer. move_end_criu(): hear CRIU until it ends; ok: it does its work, else it undoes it. move_kill_criu(): the tasks that
 * CRIU had frozen do not run. move_unlock_network(): remove the lock of TCP connections that CRIU leaves when it is killed or
 * its dump is accepted.
 */
char *move_dump_log(const struct move *m);
void move_answer_criu(struct move *m, bool ok);
void move_end_criu(struct move *m, bool ok);
void move_kill_criu(struct move *m);
void move_unlock_network(struct move *m);

/* state_source.c: m->shared->stage changes here alone. */
void move_set_stage(struct move *m, enum move_stage stage);
/* Write the move down, for the keeper and for a person who settles it; read it again. -1 with fault(). */
int move_save(struct move *m);
int move_load(struct move *m, json_t *state);
/* The stage in a state that was written down: MOVE_FROZEN, MOVE_DECIDED or MOVE_RAN. MOVE_RUNNING: it is of a destination. */
enum move_stage move_stage_in(const json_t *state);
/* From what was written down: which tasks a signal had stopped before the move. */
void move_remember_stopped(struct move *m, json_t *state);
/* The same: what podman has said of a container that moves. */
void move_remember_container(struct move *m, json_t *state);

#endif /* GODWIT_MOVE_H */
