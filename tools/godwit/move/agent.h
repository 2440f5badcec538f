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
#include "mntns.h"
#include "rdma.h"
#include "state.h"
#include "wire.h"

/* How far a move is, at its destination. agent_set_stage() has which stage may follow which. */
enum stage {
	STAGE_IDLE,		/* nothing is here to undo */
	STAGE_REMOVING,		/* all is undone but a network namespace, volumes and images, which are to be removed */
	STAGE_PREPARED,		/* images, addresses, files may be here */
	STAGE_RESTORING,	/* CRIU, or podman, restores the process */
	STAGE_READY,		/* all tasks are restored, and frozen; only the source knows what becomes of them */
	STAGE_COMMITTED,	/* the copy is the only one: the tasks may run */
	STAGE_RUNNING,		/* they run, and their connections have resumed, or we wait no longer for that */
	STAGE_LOST,		/* they were let go, and have ended with CRIU */
	STAGE_END,		/* the agent ends */
};

/* What the tasks have done so far. This stands beside the stage, since the source sees STAGE_COMMITTED in all three. */
enum tasks {
	TASKS_FROZEN,
	TASKS_GO,		/* CRIU, or its plugin, has taken the commit: they may have run */
	TASKS_RAN,		/* CRIU has ended: they have run. This alone is written down */
};

struct agent {
	enum stage stage;
	enum tasks tasks;
	const char *id;
	int lock;		/* state_lock() */
	struct wire wire;	/* -1: nobody is connected */
	int attached;		/* a socket to the process that brought the wire, or -1 */
	int listener;
	int64_t patience;	/* seconds beyond LINGER_S: the source may have to read long files */
	int64_t deadline;	/* at this time what is not committed is undone */
	char *criu_trouble;	/* what speaks against CRIU here, or NULL */
	char *images;
	struct incoming incoming;
	struct addresses addresses;
	bool adding;		/* we have added the addresses, or are about to; no stage, since not each move has addresses */
	json_t *copied;		/* copied files that came: files_dest.c */
	/*
	 * What the source says of a container that moves (container.h); NULL: processes move. We add "has_netns": its
	 * network namespace is ours to remove; "made" of a volume: that, too, and "place", where it is; "begun": podman was
	 * told to restore it; and "policy_back": podman has its restart policy again.
	 */
	json_t *container;
	json_t *mntns;		/* what differs in the mount namespace of the process (mntns.h); or NULL */
	struct mntns_made made;	/* such a namespace, until its files are in it */
	struct criu criu;	/* for a container: podman, without a socket */
	/*
	 * Who keeps the restored tasks frozen: the CRIU plugin, which asks at commit_sk before their connections resume;
	 * or, without RDMA, CRIU itself, which waits for our answer before it lets them go (criu_asks: it waits now).
	 */
	int commit_sk, plugin_sk;	/* our end, and the plugin's until CRIU has it */
	int commit_listener;	/* the plugin in podman's CRIU connects here; or -1 */
	bool criu_asks;
	pid_t root;
	struct proc_id criu_id, root_id;	/* for whoever goes on when we are killed */
	struct proc_id plugin_id;	/* for a container: the CRIU that podman's runtime started */
	int plugin_pidfd;		/* the same, until it is undone; or -1 */
	json_int_t want_processes, want_contexts;	/* how many the source has frozen */
	json_t *restored;	/* the processes that were restored, for whoever goes on when we are killed; or NULL */
	json_t *want_creds;	/* of the threads at the source: creds_collect() */
	struct tree tree;
	struct contexts contexts;
	int64_t committed_ns, running_ns;
	int64_t moving_ms;	/* when, in ms after the commit, all peers without an answer were last seen stopped */
	int64_t told;		/* the last TELL_MS period after the commit in which the source was told that we wait */
	json_t *warnings;
};

/*
 * state_dest.c: a->stage, a->tasks, a->adding and a->criu_asks change here alone. agent_set_adding(true) belongs to
 * STAGE_PREPARED, and agent_set_criu_asks(true) to STAGE_RESTORING. agent_enter_stage() also writes the stage down; at
 * STAGE_IDLE and STAGE_END it removes what was written down. agent_save() writes down what must be undone or settled, and
 * agent_load() reads it when the agent is gone. -1 with fault(). agent_note_restored(): what is below a->root was restored, and
 * is written down with the next stage. agent_restored(): the nth of these processes. agent_stage_in(): the stage in a state that
 * was written down; STAGE_IDLE: it is of a source.
 */
void agent_set_stage(struct agent *a, enum stage stage);
int agent_enter_stage(struct agent *a, enum stage stage);
void agent_set_tasks(struct agent *a, enum tasks tasks);
void agent_set_adding(struct agent *a, bool adding);
void agent_set_criu_asks(struct agent *a, bool asks);
int agent_save(struct agent *a);
int agent_load(struct agent *a);
void agent_note_restored(struct agent *a);
struct proc_id agent_restored(const struct agent *a, size_t n);
enum stage agent_stage_in(const json_t *state);
void agent_linger(struct agent *a);	/* from now on we wait for the source for LINGER_S */
void agent_warn(struct agent *a, const char *text);

/*
 * talk_dest.c: tell the source, if it is connected; forget a connection that broke. agent_is_called(): does somebody want to talk
 * to us? We wait for that for so long.
 */
void agent_tell(struct agent *a, json_t *message);
void agent_drop_connection(struct agent *a);
bool agent_is_called(const struct agent *a, int timeout_ms);

/* ops_dest.c: answers to what the source asks. 0 with *answer, or -1 with fault(). */
int agent_answer(struct agent *a, const char *op, json_t *message, json_t **answer);

/*
 * check_dest.c: would this host take the process? Gives an array of texts that speak against it. digests: gets, by path, the
 * digests of files here for which size and time are not enough.
 */
json_t *agent_check(struct agent *a, json_t *message, json_t *digests);
json_t *agent_hello(struct agent *a);
/* The keys that this host has now: the source compares them with its own. */
json_t *agent_keys(void);
/* A device of this host, while contexts that would come to it are checked. */
struct device_here {
	const char *name;
	struct ibv_context *ctx;	/* or NULL */
	char own[16];			/* the interface that it lies on, as by rdma_netdev() */
	json_t *gids;
};

/*
 * route_dest.c: does a connection, as plan_context_json() has it, find its peer from a device, and do its packets get through? -1
 * with fault().
 */
int agent_flow(const struct addresses *moving, const struct device_here *d, json_t *flow);
/*
 * Can this host ask for the MAC address of each peer of librdmacm, as a restore does? For IPv4 the kernel asks from an address in
 * the peer's subnet, and one that moves along is quiet until the commit. (For IPv6 it asks from a link-local one.)
 */
void agent_check_neighbours(const struct addresses *moving, json_t *peers, json_t *problems);

/* room_dest.c. layer: the folder of a layer in podman's storage; it is cut off at the storage. -1 with fault(). */
void agent_check_room(json_t *message, const char *base, json_t *problems);
int agent_check_storage(json_t *message, char *layer);

/*
 * check_container_dest.c: what is missing here is added to problems. At "prepare", make the network namespace, and look at
 * the device files; -1 with fault().
 */
void agent_check_container(json_t *message, json_t *problems);
int agent_prepare_container(struct agent *a);
/* nodes_dest.c: can the container open these device files, or all that it has open? -1 with fault(). */
int agent_check_node(json_t *node);
int agent_check_nodes(struct agent *a);
/*
 * network_dest.c. agent_check_network(): would this host take the container into this network of podman's? agent_make_netns(): make
 * its namespace, or fill the one that is there. agent_lay_netns(): if podman has made the namespace, fill it, and check the device
 * files; criu: the process that is to begin. -1 with fault().
 */
void agent_check_network(json_t *network, json_t *problems);
int agent_make_netns(struct agent *a);
int agent_lay_netns(struct agent *a, pid_t criu);

/*
 * transfer_dest.c: answers, as of agent_answer(). After a failure they do nothing: the source goes on sending until it listens.
 */
int agent_take_addresses(struct agent *a, json_t *message, json_t **answer);
int agent_take_file(struct agent *a, json_t *message, json_t **answer);
int agent_end_file(struct agent *a, json_t *message, json_t **answer);
int agent_compare_file(struct agent *a, json_t *message, json_t **answer);
int agent_end_files(struct agent *a, json_t *message, json_t **answer);

/* check_names_dest.c: addresses of sockets, names of Unix sockets, and folders. */
void agent_check_names(json_t *message, json_t *list);
/* check_cm_dest.c: ids of librdmacm. */
void agent_check_cm(json_t *message, json_t *list);
/*
 * files_dest.c. agent_check_files(): the files' part of the check. agent_compare(): -1 with fault() if a file is not what the
 * process left. agent_new_file(): the name under which a copied file is to be written, to be freed; NULL with fault().
 * agent_place_files(): put the copied files into their places. Then agent_take_back_files(): all is as it was; or
 * agent_keep_files(): remove the files that were there.
 */
void agent_check_files(json_t *message, json_t *list, json_t *digests);
int agent_compare(struct agent *a, json_t *file);
char *agent_new_file(struct agent *a, const char *path);
int agent_place_files(struct agent *a);
void agent_take_back_files(struct agent *a);
void agent_keep_files(struct agent *a);

/* restore_dest.c: restore, and tell the source when all is ready. CRIU and its plugin are heard here until they end. */
int agent_set_environment(json_t *env);	/* settings that the source has for the CRIU plugin */
int agent_make_mntns(struct agent *a, json_t *outside);	/* before CRIU starts. CRIU gets the files opened outside, too */
int agent_start_criu(struct agent *a);
int agent_restore(struct agent *a, json_t *message);
void agent_criu_event(struct agent *a);	/* CRIU has something to say */
void agent_plugin_died(struct agent *a);	/* the plugin's CRIU has ended before all was restored */
void agent_plugin_event(struct agent *a);

/*
 * commit_dest.c. agent_commit(): write the commit down, and let the tasks go. agent_plugin_goes(): the plugin has taken the
 * commit.
 */
int agent_commit(struct agent *a);
void agent_plugin_goes(struct agent *a);
void agent_resumed(struct agent *a);	/* if all connections have resumed, tell the source */
void agent_tell_resumed(struct agent *a);
/* CRIU was killed after the commit, or has failed: finish, or undo, what it left. */
void agent_criu_died_late(struct agent *a);
int agent_lost(void);	/* gives -1, with the fault() that the tasks have ended with CRIU */
/* Go on in the place of an agent that was killed, from what it wrote down. */
void agent_take_over(struct agent *a);

/*
 * abort_dest.c. agent_undo_copy(): nothing of the copy is here any more but a quiet network namespace and files, which may take
 * long to remove (STAGE_REMOVING). agent_remove_files(): remove them; or, polite, only until somebody wants to talk to us: 1, not
 * all are removed yet. agent_undo(): both. agent_failed(), after a fault(): undo the copy unless that is too late, and tell the
 * source.
 */
void agent_undo_copy(struct agent *a);
int agent_remove_files(struct agent *a, bool polite);
void agent_undo(struct agent *a);
void agent_failed(struct agent *a);

/*
 * volumes_dest.c. agent_make_volumes(): at "prepare", podman makes those that are copied. agent_fill_volumes(): put their content
 * into them, before podman restores the container. agent_check_volume(): does another move, which is not over, have this one here?
 * -1 with fault(). agent_remove_volumes(): remove those that were made. polite: until somebody wants to talk to us; 1: not all are
 * removed yet.
 */
int agent_make_volumes(struct agent *a);
int agent_fill_volumes(const struct agent *a);
int agent_check_volume(const char *name, const char *id);
int agent_remove_volumes(struct agent *a, bool polite);

/* container_dest.c, in the order of a move. */
int container_check_id(json_t *container);
int agent_restore_container(struct agent *a);
/* The plugin connects twice: when CRIU begins, and when all is restored. 1: CRIU has died. -1 with fault() */
int agent_plugin_connects(struct agent *a);
/* CRIU fails. podman removes a namespace that it has made, and what keeps that quiet: take the interfaces down before. */
void agent_take_container_down(struct agent *a);
/* CRIU has died. If it has failed, podman ends soon, and says why; if not, podman is killed. */
bool agent_podman_ends(struct agent *a);
/* All is restored: the deadline is now the time until which podman waits. -1 with fault(): that time is over. */
int agent_limit_container(struct agent *a);
void agent_end_container_quiet(struct agent *a);
void agent_keep_container_quiet(struct agent *a);
void agent_announce_container(struct agent *a);
enum criu_event agent_podman_event(struct agent *a);	/* podman has ended */
/*
 * podman was killed, and CRIU may live. agent_await_plugin(): wait until the plugin has said its last word. agent_await_criu():
 * wait until CRIU and podman have ended.
 */
void agent_await_plugin(struct agent *a);
void agent_await_criu(struct agent *a);
void agent_give_policy(struct agent *a);	/* its restart policy, when the source has heard that it runs here */
/* In the keeper of an agent that was killed: take the plugin's socket. */
void agent_inherit_plugin(struct agent *a);
/*
 * agent_undo_container(): have podman remove the container, and end what runs of it. agent_undo_netns(), after that: remove the
 * network namespace. polite: until somebody wants to talk to us; 1: it is not removed yet.
 */
void agent_undo_container(struct agent *a);
int agent_undo_netns(struct agent *a, bool polite);

#endif /* GODWIT_AGENT_H */
