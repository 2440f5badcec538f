/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What both ends of a container's move ask of podman.
 */
#ifndef GODWIT_PODMAN_H
#define GODWIT_PODMAN_H

#include <jansson.h>

/* -1 with fault(): it is not installed, or too old. where: "here" or "there", for the message. */
int podman_check(const char *where);
/*
 * Set its restart policy, as for --restart. container: what the destination is told of it (container_facts()), or NULL.
 * podman_give_policy(): the one that it had before the move. -1 with fault().
 */
int podman_set_policy(json_t *container, const char *policy);
int podman_give_policy(json_t *container);

#endif /* GODWIT_PODMAN_H */
