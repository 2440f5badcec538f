/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * A container of podman's that moves, at its source. podman makes the checkpoint and its archive. The dump in the archive is
 * ours, so that the tasks stay frozen until the move has ended. ../README.md has who freezes the tasks, and when.
 */
#ifndef GODWIT_CONTAINER_H
#define GODWIT_CONTAINER_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>
#include "godwit.h"

struct move;

struct container {
	const char *name;	/* as asked; NULL: a process moves */
	const char *parent;	/* of its interfaces there, or NULL: as here */
	json_t *inspected;	/* what podman says of it */
	json_t *facts;		/* what the destination is told; see container_facts() */
	int pidfd;		/* of podman, while it runs */
	int status;		/* how podman ended: as of waitpid(), or -1 */
	char *bin;		/* the folder in which the runtime finds us by the name of criu */
	int listener;		/* in that folder: relay_source.c connects */
	int relay;		/* to relay_source.c, which waits for our word */
	int runtime;		/* to the runtime, which takes us for CRIU */
	char *dump, *work;	/* the folders to which CRIU writes images, and logs */
	int work_fd;		/* work, for CRIU */
};

#define CONTAINER_INIT { .pidfd = -1, .listener = -1, .relay = -1, .runtime = -1, .work_fd = -1 }

/* container_source.c: ask podman about it, and set m->process.pid. -1 with fault(). */
int container_find(struct move *m);
/*
 * What the destination is told, and asked: {"id", "name", "runtime", "runtime_version", "image", "image_id", "volumes":
 * [{"volume", "source", "bytes" | "path", "destination"}], "secrets": [NAME], "nodes": [{"device", "major", "minor", "minors":
 * those of this major number that it may open, -1: all}] (without "device": librdmacm's), "netns": see netns.h, "network": the one
 * of podman's that it is in: {"name", "inspected", "addresses", "ports": [{"port", "protocol", "address", "inside"}]}, "restart": its
 * restart policy, "apparmor": its profile, or ""}. What can't be moved becomes the plan's problem.
 */
void container_facts(struct move *m);
/* volumes_source.c: those of the facts. container_volumes_size(): of those that are copied, in bytes. */
json_t *container_volumes(struct move *m);
uint64_t container_volumes_size(const struct move *m);
/*
 * witnesses_source.c: what would start it again here becomes the plan's problem. label: the systemd unit that the container's label
 * names, or "".
 */
void container_look_at_witnesses(struct move *m, pid_t conmon, const char *label);
/* network_source.c: the network namespace that goes along, or NULL. */
json_t *container_netns(const struct move *m);
/* The network of podman's that the container is in, or NULL. podman makes the namespace then, at both ends. */
json_t *container_network(const struct move *m);
/* As container_netns(), but NULL if it is gone: podman removes one that it has made as soon as the tasks are dead. */
json_t *container_netns_left(const struct move *m);
/*
 * network_source.c. container_look_at_network(): gives that network, and *netns. container_check_connections(), once the facts
 * are there: -1 with fault(): a TCP connection in that network, which can't move. container_tell_network(): where its ports are
 * after the move.
 */
json_t *container_look_at_network(struct move *m, json_t **netns);
int container_check_connections(const struct move *m);
void container_tell_network(const struct move *m);

/*
 * podman_source.c, in the order of a move. container_dump(): start podman, and ask CRIU for the dump. container_archive():
 * podman makes the archive, and tar one of each volume. container_dump_end(): podman is done with it. -1 with fault().
 */
int container_dump(struct move *m);
int container_archive(struct move *m);
/*
 * rootfs_source.c: add to this archive what the container has changed in its own file system. container_look_at_rootfs(): can
 * that be done? -1 with fault().
 */
int container_look_at_rootfs(struct move *m);
int container_archive_rootfs(struct move *m, const char *archive);
void container_dump_end(struct move *m);
void container_forget_dump(struct move *m);	/* remove what podman leaves of a dump that failed */
/* policy_source.c: podman takes the restart policy away; or gives it back, after a move that failed. -1 with fault(). */
int container_take_policy(struct move *m);
int container_give_policy_back(struct move *m);
/*
 * At the end. container_stop(): podman kills the container. container_remove(): podman removes it, once CRIU has let the tasks
 * go. -1 with fault().
 */
int container_stop(struct move *m);
int container_remove(struct move *m);
/*
 * container_source.c: let the tasks go that CRIU froze by their control group, and left frozen when it died. A container that
 * somebody has paused stays so.
 */
void container_thaw(const struct move *m);
/* Do all of its tasks go along? -1 with fault(). */
int container_is_whole(const struct move *m);
int container_is_paused(const struct move *m);	/* -1 with fault(): it is. Not while CRIU freezes it. */

/* relay_source.c: godwit by the name of criu. */
#define RELAY_SOCKET "criu.sock"

int cmd_relay(int argc, char **argv);

#endif /* GODWIT_CONTAINER_H */
