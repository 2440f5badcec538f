// SPDX-License-Identifier: MIT
#include "page.h"
#include <rvm.h>

struct list {
	struct list *next;
};

static int add(struct rvm *v)
{
#include "example"
}

int main(void)
{
	struct rmem *r = page_connect();
	const struct rvm_options options = { .tag = 20, .size = 1 << 20 };
	struct rvm *v = rvm_init(r, &options);
	struct list *first;

	if (!v || add(v) || add(v))
		errx(1, "%s", rmem_error());
	rvm_close(v);
	v = rvm_init(r, &options);
	first = v ? rvm_root(v) : NULL;
	if (!first || !first->next || first->next->next)
		errx(1, "it is not the list of two");
	rvm_close(v);
	rmem_close(r);
	return 0;
}
