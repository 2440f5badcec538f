/* SPDX-License-Identifier: MIT */
#ifndef SCENARIO_H
#define SCENARIO_H

#include "model.h"

/* What clients do: @turns times, a group of things and then a sync. Now and then the donor ends and comes again. */
struct scenario {
	struct shared *shared;
	const char *dir;
	uint64_t seed;
	unsigned int turns;
	bool restarts;
	uint64_t (*calls)(void), (*syncs)(void); /* of the disk; or NULL */
};

/* 0, 1: shared->violation, 2: the store has said that the disk failed, or would not open (its words are there, too) */
int scenario_run(const struct scenario *scenario);

/* Runs it, or ends with 75. */
void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Tries each kind of damage in this folder. Returns 0, or says what was not refused or not accepted and returns 1. */
int damage_run(struct shared *shared, const char *folder, uint64_t seed);

#endif
