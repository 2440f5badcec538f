/* SPDX-License-Identifier: MIT */
/*
 * Frames between lab exec, labd and the guests' agent: a header, then len bytes.
 *
 * id names one command. labd gives it out; exec always says 0. Guest and host are of one byte order.
 */
#ifndef GODWIT_LAB_FRAME_H
#define GODWIT_LAB_FRAME_H

#include <stdint.h>

enum {
	F_HELLO,	/* agent → labd: ready; text: seconds since boot */
	F_EXEC,		/* → agent: arguments, each ended by a NUL */
	F_HANGUP,	/* → agent: nobody waits for this command any more */
	F_OUT,		/* agent →: bytes of stdout */
	F_ERR,		/* agent →: bytes of stderr */
	F_EXIT,		/* agent →: int32_t, an exit status as a shell gives it */
};

struct frame {
	uint32_t id;
	uint32_t type;
	uint32_t len;
};

#define FRAME_MAX (1 << 20)

#endif
