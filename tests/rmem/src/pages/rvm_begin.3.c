// SPDX-License-Identifier: MIT
#include "page.h"
#include <rvm.h>

struct account {
	long balance;
};

static int pay(struct rvm *v, struct account *account, int from, int to, long amount)
{
#include "example"
}

int main(void)
{
	struct rmem *r = page_connect();
	struct rvm *v = rvm_init(r, &(struct rvm_options){ .tag = 30, .size = 1 << 20 });
	struct account *account = v ? rvm_base(v) : NULL;

	if (!v || rvm_begin(v) || rvm_set_range(v, account, 2 * sizeof(*account)))
		errx(1, "%s", rmem_error());
	account[0].balance = 100;
	account[1].balance = 0;
	if (rvm_commit(v) || pay(v, account, 0, 1, 70) || pay(v, account, 0, 1, 31))
		errx(1, "%s", rmem_error());
	if (account[0].balance != 30 || account[1].balance != 70)
		errx(1, "the accounts have %ld and %ld", account[0].balance, account[1].balance);
	rvm_close(v);
	rmem_close(r);
	return 0;
}
