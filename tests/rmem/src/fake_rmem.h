/* SPDX-License-Identifier: MIT */
/*
 * The calls of librmem that librvm makes, with a donor in this process in place of a network. What breaks, and what the donor has
 * done by then, is in struct fake. The donor persists: after a restart a region has what transactions copied to it.
 */
#ifndef FAKE_RMEM_H
#define FAKE_RMEM_H

#include <stdbool.h>
#include <stdint.h>

struct fake_region {
	uint64_t tag, addr, size;
	uint8_t *now, *durable;
	bool hidden; /* rmem_find() does not know it, until it is allocated again */
};

enum fake_break { BREAKS_NOT, BREAKS_IN_PUT, BREAKS_BEFORE_GO, BREAKS_AFTER_GO };

struct fake {
	enum fake_break breaks; /* the next call of this kind breaks the connection */
	bool away;     /* nobody can connect */
	bool restarts; /* the donor does, before the next connection */
	void (*meanwhile)(void); /* what another thread does right after the next connection; NULL: nothing */
	int refuses;   /* with this number the donor refuses the next transaction; 0: it does not */
};
extern struct fake fake;

/* NULL: there is no such region at the donor. */
struct fake_region *fake_region(uint64_t tag);

#endif
