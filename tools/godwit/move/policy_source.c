// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The restart policy of a container that moves.
 *
 * If a host dies in the middle of a move, nothing of the move is known at its next boot. There podman-restart.service starts each
 * container that has such a policy: a second instance, if the container goes on at the other host. So podman takes the policy away
 * at the source before the container is frozen, and the archive has none either. The destination gives the policy back when the
 * source has heard that the container runs there, or when a person says so (settle.c); or the source does, if the container stays.
 * Until then the container does not move on from the destination (container_source.c).
 */
#include <stdio.h>
#include "move.h"
#include "podman.h"

int container_take_policy(struct move *m)
{
	const char *policy = json_string_value(json_object_get(m->container.facts, "restart"));

	if (!policy || !*policy)
		return 0;
	/* We save before we take the policy: to give back what was not taken does no harm. */
	json_object_set_new(m->container.facts, "policy_taken", json_true());
	return move_save(m) ?: podman_set_policy(m->container.facts, "no");
}

/* podman does not start again what has ended while it had no policy. Nor do we: the destination may run it. */
int container_give_policy_back(struct move *m)
{
	struct tree first = { .task = m->plan.tree.task, .n = m->plan.tree.n ? 1 : 0 };

	if (!json_object_get(m->container.facts, "policy_taken"))
		return 0;
	if (podman_set_policy(m->container.facts, container_fact(m->container.facts, "restart")))
		return -1;
	return tree_alive(&first) ? 0 : fault("container %s: it has ended: podman start %s", m->container.name, m->container.name);
}
