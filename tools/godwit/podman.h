/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What both ends of a container's move ask of podman.
 */
#ifndef GODWIT_PODMAN_H
#define GODWIT_PODMAN_H

#include <jansson.h>

const char *container_fact(json_t *container, const char *key);	/* of the facts of a container, or of a part of them; never NULL */
void podman_path(void);	/* complete PATH: what ssh starts may find neither criu nor ip */
/* -1 with fault(): it is not installed, or too old. where: "here" or "there", for the message. */
int podman_check(const char *where);
/*
 * Set its restart policy, as for --restart. container: what the destination is told of it (container_facts()), or NULL.
 * -1 with fault(). podman_give_policy(), at the destination: the one that it had before the move. If it has ended meanwhile, and
 * podman would have started it again, start it. 1 with fault(), which a person should hear of: it has the policy, and had ended.
 */
int podman_set_policy(json_t *container, const char *policy);
int podman_give_policy(json_t *container);
json_t *podman_network(const char *name);	/* what podman has of this network; NULL: there is none, or podman takes too long */
int podman_exists(const char *kind, const char *name);	/* 1, 0, or -1 with fault(): podman can't tell */

#endif /* GODWIT_PODMAN_H */
