/* SPDX-License-Identifier: MIT */
/* What the examples of pages stand in: tests/rmem/010-printed-examples puts each where its program includes "example". */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <rmem.h>

static inline struct rmem *page_connect(void)
{
	struct rmem *r = rmem_connect(&(struct rmem_options){ .host = "donor", .client = "web1",
							      .key_file = "/etc/rmem/web1.key" }, NULL);

	if (!r)
		errx(2, "%s", rmem_error());
	return r;
}
