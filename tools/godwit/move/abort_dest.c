// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Abort: all is undone, as if nothing had ever come here. The source waits with a frozen process until nothing of the copy can run
 * here. So the network namespace, which stays quiet, and files are removed only when it has been told. The state file then
 * names only these, since a new move may begin before they are removed.
 */
#include <stdlib.h>
#include "agent.h"
#include "host.h"

static void warn_of(struct agent *a, int failed)
{
	if (failed)
		agent_warn(a, fault_text());
	fault_clear();
}

void agent_undo_copy(struct agent *a)
{
	if (a->stage == STAGE_REMOVING)
		return;
	incoming_drop(&a->incoming);
	if (a->container)
		agent_undo_container(a);
	/* If an agent was killed, CRIU and the tasks need not be our children. */
	proc_kill_tree(&a->criu_id);
	proc_kill_tree(&a->root_id);
	proc_kill_descendants();
	criu_close(&a->criu);
	close_fd(&a->commit_sk);
	a->criu = (struct criu)CRIU_INIT;
	a->criu_id = a->root_id = (struct proc_id){ 0 };
	agent_set_criu_asks(a, false);
	agent_set_adding(a, false);
	agent_set_tasks(a, TASKS_FROZEN);
	fault_clear();
	/* Sockets of dead tasks go on sending, so we kill them while the addresses are still quiet. */
	warn_of(a, addresses_kill_sockets(&a->addresses));
	warn_of(a, addresses_del(&a->addresses, true));
	warn_of(a, addresses_end_quiet(&a->addresses, a->id));
	agent_take_back_files(a);
	json_decref(a->want_creds);
	a->want_creds = NULL;
	json_decref(a->restored);
	a->restored = NULL;
	json_decref(a->mntns);
	a->mntns = NULL;
	mntns_close(&a->made);
	addresses_free(&a->addresses);
	tree_free(&a->tree);
	contexts_free(&a->contexts);
	agent_enter_stage(a, a->container || a->images ? STAGE_REMOVING : STAGE_IDLE);
}

int agent_remove_files(struct agent *a, bool polite)
{
	if (a->container && (agent_undo_netns(a, polite) || agent_remove_volumes(a, polite)))
		return 1;
	if (a->images)
		warn_of(a, images_remove(a->images));
	free(a->images);
	a->images = NULL;
	json_decref(a->container);
	a->container = NULL;
	agent_enter_stage(a, STAGE_IDLE);
	return 0;
}

void agent_undo(struct agent *a)
{
	agent_undo_copy(a);
	if (a->stage == STAGE_REMOVING)
		agent_remove_files(a, false);
}

void agent_failed(struct agent *a)
{
	bool undo = a->stage < STAGE_COMMITTED;
	json_t *message = json_pack("{s:s, s:b, s:s}", "failed", fault_text(), "undone", undo, "boot", host_boot_id());

	fault_clear();
	if (undo)
		agent_undo_copy(a);
	agent_tell(a, message);
}
