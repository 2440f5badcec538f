// SPDX-License-Identifier: MIT
/*
 * rmem-transaction HOST CLIENT KEYFILE: moves 1 from one account to another, both changes or none, whichever side dies meanwhile.
 * New values are put to a shadow. The transaction copies them to the real place.
 */
#include <errno.h>
#include <stdio.h>
#include <rmem.h>

struct accounts {
	int64_t a, b;
};

static int failed(void)
{
	fprintf(stderr, "rmem-transaction: %s\n", rmem_error());
	return 1;
}

/* After a break, the next connection says whether the transaction took place. */
static int go(struct rmem *r)
{
	int ret = rmem_txn_go(r);

	for (int i = 0; i < 5 && (ret == -ENOTCONN || ret == -ETIMEDOUT); i++) {
		int again = rmem_reconnect(r);

		if (!again || again == -ESTALE)
			ret = rmem_txn_go(r);
	}
	return ret;
}

static int pay(struct rmem *r)
{
	uint64_t real, shadow;
	struct accounts now;

	if (rmem_alloc(r, 10, sizeof(now), 0, &real) || rmem_alloc(r, 11, sizeof(now), 0, &shadow))
		return failed();
	if (rmem_get(r, &now, real, sizeof(now)))
		return failed();
	now.a--;
	now.b++;
	if (rmem_put(r, shadow, &now, sizeof(now)) || rmem_cp(r, real, shadow, sizeof(now)) || go(r))
		return failed();
	printf("transaction %llu: %lld, %lld\n", (unsigned long long)rmem_last_txn(r), (long long)now.a, (long long)now.b);
	return 0;
}

int main(int argc, char **argv)
{
	struct rmem *r;
	int code;

	if (argc != 4) {
		fprintf(stderr, "usage: rmem-transaction HOST CLIENT KEYFILE\n");
		return 2;
	}
	r = rmem_connect(&(struct rmem_options){ .host = argv[1], .client = argv[2], .key_file = argv[3] }, NULL);
	if (!r)
		return failed();
	code = pay(r);
	rmem_close(r);
	return code;
}
