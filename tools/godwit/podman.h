/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What both ends of a container's move ask of podman.
 */
#ifndef GODWIT_PODMAN_H
#define GODWIT_PODMAN_H

#include <jansson.h>

/*
 * 5.4 is the first whose update changes a restart policy and leaves the limits of the container as they are. (4.8 is the first
 * that gives its environment to the runtime.)
 */
#define PODMAN_MIN	504

/* 504 for 5.4; 0: it is not installed. */
int podman_version(void);
/*
 * Set its restart policy, as for --restart. container: what the destination is told of it (container_facts()), or NULL.
 * podman_give_policy(): the one that it had before the move. -1 with fault().
 */
int podman_set_policy(json_t *container, const char *policy);
int podman_give_policy(json_t *container);

#endif /* GODWIT_PODMAN_H */
