// SPDX-License-Identifier: MIT
#include "page.h"

int main(void)
{
	uint64_t addr;

#include "example"
	if (rmem_alloc(r, 1, 1, 0, &addr))
		errx(1, "%s", rmem_error());
	rmem_close(r);
	return 0;
}
