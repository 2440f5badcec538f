// SPDX-License-Identifier: MIT
/*
 * rmem-hello HOST CLIENT KEYFILE: leaves a line at the donor, or reads the line that an earlier run left there. The line is not
 * durable: see rmem_flush(3) for that.
 */
#include <stdio.h>
#include <string.h>
#include <rmem.h>

#define TAG 1

static int failed(void)
{
	fprintf(stderr, "rmem-hello: %s\n", rmem_error());
	return 1;
}

static int greet(struct rmem *r)
{
	struct rmem_region region;
	char line[64] = "hello from the run before";
	uint64_t addr;

	if (!rmem_find(r, TAG, &region)) {
		if (rmem_get(r, line, region.addr, sizeof(line)))
			return failed();
		line[sizeof(line) - 1] = '\0';
		printf("the donor has: %s\n", line);
		return 0;
	}
	if (rmem_alloc(r, TAG, sizeof(line), 0, &addr) || rmem_put(r, addr, line, sizeof(line)))
		return failed();
	printf("left a line at 0x%llx: run me again\n", (unsigned long long)addr);
	return 0;
}

int main(int argc, char **argv)
{
	struct rmem *r;
	int code;

	if (argc != 4) {
		fprintf(stderr, "usage: rmem-hello HOST CLIENT KEYFILE\n");
		return 2;
	}
	r = rmem_connect(&(struct rmem_options){ .host = argv[1], .client = argv[2], .key_file = argv[3] }, NULL);
	if (!r)
		return failed();
	code = greet(r);
	rmem_close(r);
	return code;
}
