/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * A move of a container of podman's, at its source. podman makes the checkpoint, and its archive; the dump in it is ours, so
 * that the container's tasks stand still until the move is decided. README.md has who holds what when.
 */
#ifndef GODWIT_CONTAINER_H
#define GODWIT_CONTAINER_H

#include <jansson.h>
#include "godwit.h"

struct move;

struct container {
	const char *name;	/* as asked; NULL: a process moves */
	const char *parent;	/* of its interfaces there, or NULL: as here */
	json_t *inspected;	/* by podman */
	json_t *facts;		/* what the destination is told; see container_facts() */
	int pidfd;		/* of podman, while it works */
	int status;		/* and how it ended */
	char *bin;		/* the folder in which its runtime finds us in place of criu */
	int listener;		/* there */
	int relay;		/* who stands for criu; it waits for our word */
	int runtime;		/* speaks CRIU's protocol with us */
	char *dump, *work;	/* the folders that CRIU writes images and logs to ... */
	int work_fd;		/* ... and that of logs, which it opens by our descriptor */
};

#define CONTAINER_INIT { .pidfd = -1, .listener = -1, .relay = -1, .runtime = -1, .work_fd = -1 }

/* container.c: ask podman about it, and set m->pid. -1 with fault(). */
int container_find(struct move *m);
/*
 * What the destination is told, and asked: {"id", "name", "runtime", "runtime_version", "image", "image_id", "volumes":
 * [{"volume" | "path", "destination"}], "nodes": [{"device", "major", "minor", "any"}], "netns": see netns.h}. What can't be
 * moved is the plan's problem.
 */
void container_facts(struct move *m);
/* Of those the namespace that goes along, or NULL. */
json_t *container_netns(const struct move *m);

/* podman.c, in the order of a move: until CRIU was asked for the dump; the archive is made; it is podman's no more. */
int container_dump(struct move *m);
int container_archive(struct move *m);
void container_dump_end(struct move *m);
void container_forget_dump(struct move *m);	/* what podman leaves in its folders of one that was for nothing */
/* At its end here: podman kills it; and removes it, once CRIU has let go of it. -1 with fault(): it runs, or is there, still. */
int container_stop(struct move *m);
int container_remove(struct move *m);
/* container.c: its tasks run again, whoever froze them and died. */
void container_thaw(const struct move *m);
/* Do all of its tasks go along? -1 with fault() */
int container_is_whole(const struct move *m);

/* relay.c: we, by the name of criu. */
#define RELAY_SOCKET "criu.sock"

int cmd_relay(int argc, char **argv);

#endif /* GODWIT_CONTAINER_H */
