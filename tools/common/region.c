// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <stdio.h>
#include "reasons.h"
#include "region.h"
#include "walk.h"

enum region_fate region_fate(pid_t owner, bool owner_stays, unsigned int access, bool (*find)(unsigned int needs, void *arg),
			     void *arg, char why[REGION_WHY_LEN])
{
	const unsigned int shared = owner ? 0 : MEMORY_SHARED;

	if (owner_stays)
		snprintf(why, REGION_WHY_LEN, WHY_OWNER_STAYS, owner);
	else if (find(memory_needs(access) | shared, arg))
		return REGION_MOVES;
	else if (find(shared, arg))
		snprintf(why, REGION_WHY_LEN, WHY_PROTECTED);
	else if (!owner)
		snprintf(why, REGION_WHY_LEN, WHY_OWNER_ENDED);
	else {
		snprintf(why, REGION_WHY_LEN, WHY_UNMAPPED);
		return REGION_UNMAPPED;
	}
	return REGION_STAYS;
}
