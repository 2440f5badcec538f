// SPDX-License-Identifier: MIT
#include "page.h"

int main(void)
{
	struct rmem *r = page_connect();
	char record[300], there[sizeof(record)];
	uint64_t real, shadow;
	int ret;

	memset(record, 'r', sizeof(record));
	if (rmem_alloc(r, 10, 4096, 0, &real) || rmem_alloc(r, 11, 4096, 0, &shadow))
		errx(1, "%s", rmem_error());
#include "example"
	if (ret || rmem_get(r, there, real, sizeof(there)))
		errx(1, "%d: %s", ret, rmem_error());
	if (memcmp(record, there, sizeof(record)))
		errx(1, "another record is there");
	rmem_close(r);
	return 0;
}
