/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The destination's side of a move. One process for each move takes the images, runs `criu restore`, keeps the restored
 * tasks frozen until the source says commit, and undoes everything if the source says abort, or nothing.
 */
#ifndef GODWIT_AGENT_H
#define GODWIT_AGENT_H

#include "address.h"
#include "criu.h"
#include "images.h"
#include "rdma.h"
#include "state.h"
#include "wire.h"

/* How far a move is, at its destination. agent_set_stage() has which stage may follow which. */
enum stage {
	STAGE_IDLE,		/* nothing here to undo */
	STAGE_PREPARED,		/* images, addresses, files may be here */
	STAGE_RESTORING,
	STAGE_READY,		/* all tasks are restored, and frozen; only the source knows what becomes of them */
	STAGE_COMMITTED,	/* they are ours */
	STAGE_RUNNING,		/* and run, and their connections go on */
	STAGE_LOST,		/* they were let go, and have ended instead of running */
	STAGE_END,
};

struct agent {
	enum stage stage;
	const char *id;
	int lock;		/* state_lock() */
	struct wire wire;	/* -1: nobody is connected */
	int attached;		/* socket of the process that brought the wire, or -1 */
	int listener;
	int64_t patience;	/* s: for what the source does at its end */
	int64_t deadline;	/* an unfinished preparation is undone then */
	char *criu_trouble;	/* what speaks against CRIU here, or NULL */
	char *images;
	struct incoming incoming;
	struct addresses addresses;
	bool adding;		/* they are ours, or about to be */
	json_t *copied;		/* files that come along: files_dest.c */
	/*
	 * What the source says of a container that moves (container.h); NULL: it is processes. Of ours are in it:
	 * "has_netns", its network namespace is ours to remove; "begun", podman was told to restore it.
	 */
	json_t *container;
	struct criu criu;	/* of a container: podman, without a socket */
	/*
	 * Who keeps the restored tasks frozen: the CRIU plugin, which asks at commit_sk before their connections resume;
	 * or, without RDMA, CRIU itself, which waits for our answer (gate) before it lets them go.
	 */
	int commit_sk, plugin_sk;	/* our end and, until CRIU has it, the plugin's */
	int commit_listener;	/* where that of podman's CRIU connects; or -1 */
	bool gate;
	bool goes;		/* the plugin has taken the commit: tasks may have run */
	bool ran;		/* they have */
	pid_t root;
	struct proc_id criu_id, root_id;	/* for who goes on when we are killed */
	struct proc_id plugin_id;	/* of a container: CRIU */
	json_int_t want_processes, want_contexts;	/* that the source has stopped */
	json_t *want_creds;	/* of its threads: creds_collect() */
	struct tree tree;
	struct contexts contexts;
	int64_t committed_ns, running_ns;
	int64_t moving_ms;	/* after the commit, when all peers that were waited for were stopped themselves */
	int64_t told;		/* how often the source was told that peers are waited for */
	json_t *warnings;
	bool over;		/* there is nothing left to do, but for what is written down */
};

/*
 * state_dest.c: a->stage changes here alone: to enter a stage is to write it down, too. -1 with fault(): it could not be
 * written. What there is to undo or to settle is written down; and read again where the agent is gone.
 */
void agent_set_stage(struct agent *a, enum stage stage);
int agent_enter_stage(struct agent *a, enum stage stage);
int agent_save(struct agent *a);
int agent_load(struct agent *a);
void agent_linger(struct agent *a);	/* the source is waited for so long, from now on */
void agent_warn(struct agent *a, const char *text);

/* talk_dest.c: to the source, if it is connected; it is no more. */
void agent_tell(struct agent *a, json_t *message);
void agent_drop_connection(struct agent *a);

/* ops_dest.c: answers to what the source asks. 0 with *answer, or -1 with fault(). */
int agent_answer(struct agent *a, const char *op, json_t *message, json_t **answer);

/*
 * check_dest.c: would this host take the process? An array of strings that speak against it. digests: what files hold
 * here, by their paths, of which a look at them does not tell.
 */
json_t *agent_check(struct agent *a, json_t *message, json_t *digests);
json_t *agent_hello(struct agent *a);
/*
 * route_dest.c: does a connection, as plan_context_json() has it, find its peer from a device with these GIDs, and do its
 * packets get through? -1 with fault().
 */
int agent_flow(const struct addresses *moving, const char *device, json_t *gids, json_t *flow);

/*
 * check_container_dest.c: what is missing here is added to problems; later the network is made, the device files looked
 * at. -1 with fault().
 */
void agent_check_container(json_t *container, json_t *problems);
int agent_prepare_container(struct agent *a);

/* transfer_dest.c: answers, as agent_answer(); what follows on a failure has none, for the source sends on. */
int agent_take_addresses(struct agent *a, json_t *message, json_t **answer);
int agent_take_file(struct agent *a, json_t *message, json_t **answer);
int agent_end_file(struct agent *a, json_t *message, json_t **answer);
int agent_compare_file(struct agent *a, json_t *message, json_t **answer);
int agent_end_files(struct agent *a, json_t *message, json_t **answer);

/*
 * files_dest.c: the part of the check; a file that is not what the process left is a fault; the name under which a file
 * that comes along is to be written, to be freed, or NULL with fault(). All that came are put in their places, and taken
 * back, so that all is as it was; or kept, and what was there before is removed.
 */
void agent_check_files(json_t *message, json_t *list, json_t *digests);
int agent_compare(struct agent *a, json_t *file);
char *agent_copy(struct agent *a, const char *path);
int agent_place_copies(struct agent *a);
void agent_take_back_copies(struct agent *a);
void agent_keep_copies(struct agent *a);

/* restore_dest.c: until all is restored and the source knows; then CRIU and its plugin are heard until the end. */
int agent_set_environment(json_t *env);	/* what the source says to CRIU's plugin */
int agent_start_criu(struct agent *a);
int agent_restore(struct agent *a, json_t *message);
void agent_criu_event(struct agent *a);	/* CRIU has something to say */
void agent_plugin_event(struct agent *a);

/* commit_dest.c: it is written down first; then CRIU or its plugin hears of it, and the plugin takes it. */
int agent_commit(struct agent *a);
void agent_plugin_goes(struct agent *a);
void agent_resumed(struct agent *a);	/* have all connections been resumed? Then the source is told. */
void agent_tell_resumed(struct agent *a);
/* CRIU has ended, or was killed, after the commit: do what it left undone. */
void agent_criu_died_late(struct agent *a);
int agent_lost(void);	/* -1 with fault(): the tasks have not lived through that */
/* Go on where an agent was killed, from what it wrote down. */
void agent_take_over(struct agent *a);

/* abort_dest.c: as if nothing had ever come here; on a fault(), which the source is told. */
void agent_undo(struct agent *a);
void agent_failed(struct agent *a);

/* container_dest.c, in the order of a move. What the source says of it; podman is started; its CRIU's plugin connects. */
const char *container_fact(json_t *container, const char *key);	/* never NULL */
void podman_path(void);	/* what ssh starts may find neither criu nor ip */
int podman_exists(const char *kind, const char *name);	/* 1, 0, or -1 with fault(): podman can't tell */
int container_check_id(json_t *container);
int agent_restore_container(struct agent *a);
int agent_plugin_connects(struct agent *a);
/* All is restored. From now on the deadline is the time until which podman waits. -1 with fault(): that is over. */
int agent_limit_container(struct agent *a);
void agent_end_container_quiet(struct agent *a);
void agent_keep_container_quiet(struct agent *a);
void agent_announce_container(struct agent *a);
enum criu_event agent_podman_event(struct agent *a);	/* podman has ended */
/*
 * CRIU need not have, if podman was killed: until its plugin has said its last word; until it has ended, and podman, if
 * that is there.
 */
void agent_await_plugin(struct agent *a);
void agent_await_criu(struct agent *a);
/* Of an agent that was killed, its keeper gets the plugin's socket. */
void agent_inherit_plugin(struct agent *a);
/* podman has none of it any more, and nothing runs; then its network goes. */
void agent_undo_container(struct agent *a);
void agent_undo_netns(struct agent *a);

#endif /* GODWIT_AGENT_H */
