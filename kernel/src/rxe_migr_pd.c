// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Protection domains. The verb makes one, and nothing is left to refill. */

#include "rxe_migr_loc.h"

void rxe_migr_dump_pd(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	rxe_migr_put(sink, RXE_MIGR_REC_PD, uobj->id,
		     sizeof(struct rxe_migr_rec_pd));
}
