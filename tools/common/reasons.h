/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Why something can't be moved, and what to do, for reasons that ibv_record_refusal() can't know. The plugin and godwit, or godwit
 * at both hosts, use these texts. Each follows the name of the object.
 */
#ifndef COMMON_REASONS_H
#define COMMON_REASONS_H

#define WHY_OWNER_ENDED	"the process whose memory it is has ended, and it can't be registered again: deregister it before"
#define WHY_OWNER_STAYS	"its memory is that of process %d, which stays here: start both under one process"
/* The end of a reason that may be gone in a moment: godwit tries again. ibv_cm_id_refusal() has IBV_TRY_AGAIN for it. */
#define TRY_AGAIN	"try again"
#define WHY_UNMAPPED	"its memory is no longer mapped, and it can't be registered again: deregister it, or " TRY_AGAIN
#define WHY_PROTECTED	"mprotect() has taken access to its memory away, and it can't be registered again: give the access back, or deregister it"
#define WHY_NO_CONTEXT	"an event file whose context is closed can't be moved: close it before"
#define WHY_QP_ELSEWHERE "its queue pair %u is another process tree's"
#define WHY_OUTSIDER	"process %d has this %s, too, and stays here: end it, or start both under one process"
#define WHY_NO_RING	"0x%llx of %s is mapped, which is no ring of a context that the process has open: unmap it before"
#define WHY_GONE	"its device is gone: close it before"
#define WHY_DEVICE	"the device %s can't be moved: close it before"
#define WHY_OWN_NETNS	"netns is exclusive, so it can't be opened in the process's own network namespace: start the process in the host's"
#define LOAD_OURS	"load Godwit's rdma_rxe: modinfo -n rdma_rxe must print a path with /updates/"
#define WHY_VERSION	"the driver has version %u, and this program needs %u: install both from one release"

/* The end of each message about a missing key. */
#define OR_NO_KEY	"; or, on a network that you trust, write Y to /sys/module/rdma_rxe/parameters/allow_unsigned at all of them"

#endif /* COMMON_REASONS_H */
