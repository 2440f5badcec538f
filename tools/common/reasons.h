/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Why something can't be moved, and what to do, where verbs (ibv_record_refusal()) can't tell: the plugin and godwit say the
 * same. Each follows the name of the object.
 */
#ifndef COMMON_REASONS_H
#define COMMON_REASONS_H

#define WHY_OWNER_ENDED	"the process whose memory it is has ended, and it can't be registered again: deregister it before"
#define WHY_OWNER_STAYS	"its memory is that of process %d, which stays here: start both under one process"
/* (it may pass: see passing() in tools/godwit/move/freeze_source.c) */
#define WHY_UNMAPPED	"its memory is no longer mapped, and it can't be registered again: deregister it, or try again"
#define WHY_NO_CONTEXT	"an event file whose context is closed can't be moved: close it before"

/* The end of what is said about a key that is missing. */
#define OR_NO_KEY	"; or, on a network that you trust, write Y to /sys/module/rdma_rxe/parameters/allow_unsigned at all of them"

#endif /* COMMON_REASONS_H */
