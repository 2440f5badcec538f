// SPDX-License-Identifier: MIT
/*
 * rmem-async HOST CLIENT KEYFILE: puts 64 blocks of registered memory to a shadow, all under way at once. Then it has the donor
 * copy them, and does something else until that is done. Then it compares what comes back.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rmem.h>

#define BLOCKS 64
#define BLOCK 65536

static unsigned char out[BLOCKS][BLOCK], in[BLOCKS][BLOCK];

static int failed(void)
{
	fprintf(stderr, "rmem-async: %s\n", rmem_error());
	return 1;
}

/* An operation that has begun must be waited for, also after another one's failure. */
static int wait_all(struct rmem *r, struct rmem_op *ops, int begun)
{
	int bad = 0;

	for (int i = 0; i < begun; i++)
		if (rmem_wait(r, &ops[i]))
			bad = failed();
	return bad || begun < BLOCKS;
}

/* The puts must have ended before their bytes are copied. */
static int write_all(struct rmem *r, struct rmem_op *ops, uint64_t real, uint64_t shadow)
{
	struct rmem_op commit = { 0 };
	int i, result;

	for (i = 0; i < BLOCKS && !rmem_put_async(r, shadow + (uint64_t)i * BLOCK, out[i], BLOCK, &ops[i]); i++)
		;
	if (wait_all(r, ops, i) || rmem_cp(r, real, shadow, sizeof(out)) || rmem_txn_go_async(r, &commit))
		return failed();
	while ((result = rmem_test(r, &commit)) == -EAGAIN)
		memset(in, 0, sizeof(in)); /* something else */
	return result ? failed() : 0;
}

/* Both at once, with one rmem_op. If only the first has begun, it must be waited for, too. */
static int get_regions(struct rmem *r, uint64_t *addr, uint64_t *shadow)
{
	struct rmem_op both = { .on_error = true };
	int result = rmem_alloc_async(r, 20, sizeof(out), 0, addr, &both);

	if (!result)
		result = rmem_alloc_async(r, 21, sizeof(out), 0, shadow, &both);
	return rmem_wait(r, &both) || result;
}

static int run(struct rmem *r)
{
	static struct rmem_op ops[BLOCKS];
	uint64_t addr, shadow;
	int i;

	if (get_regions(r, &addr, &shadow) || rmem_register(r, out, sizeof(out)) || rmem_register(r, in, sizeof(in)))
		return failed();
	for (i = 0; i < BLOCKS; i++)
		memset(out[i], i + 1, BLOCK);
	if (write_all(r, ops, addr, shadow))
		return 1;
	for (i = 0; i < BLOCKS && !rmem_get_async(r, in[i], addr + (uint64_t)i * BLOCK, BLOCK, &ops[i]); i++)
		;
	if (wait_all(r, ops, i))
		return failed();
	printf("%d blocks of %d bytes: %s\n", BLOCKS, BLOCK, memcmp(out, in, sizeof(out)) ? "they differ" : "the same came back");
	return 0;
}

int main(int argc, char **argv)
{
	struct rmem *r = NULL;
	int code;

	if (argc == 4)
		r = rmem_connect(&(struct rmem_options){ .host = argv[1], .client = argv[2], .key_file = argv[3] }, NULL);
	if (!r)
		return argc == 4 ? failed() : (fprintf(stderr, "usage: rmem-async HOST CLIENT KEYFILE\n"), 2);
	code = run(r);
	rmem_close(r);
	return code;
}
