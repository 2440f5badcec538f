/* SPDX-License-Identifier: MIT */
/*
 * For tests that dump a context of another process, and make it again. Each function ends the process with a line if something is
 * wrong.
 */
#ifndef DUMPS_H
#define DUMPS_H

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <infiniband/migrate.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define CHECK(cond) ((cond) ? (void)0 : DIE("line %d: not so: %s", __LINE__, #cond))
#define IS(want, call) do { \
	int is_ = (call); \
	if (is_ != (want)) \
		DIE("line %d: %s gives %d (%s), not %d", __LINE__, #call, is_, strerror(is_), want); \
} while (0)

double now(void); /* in seconds, by CLOCK_MONOTONIC */

/* Opens the first device. */
struct ibv_context *open_device(void);

extern union ibv_gid gid;
extern int gid_index;

/* Finds the GID of an IPv4 address, or any GID if it is NULL. Sets the two variables above. */
void find_gid(struct ibv_context *ctx, const char *address);

/* Leads the QP from RESET through all states between to this one: INIT, RTR, RTS, SQD or ERR. */
void lead(struct ibv_qp *qp, struct ibv_qp_attr a, enum ibv_qp_state last);

/* ------------------------------------------------------------ contexts -- */

/* Makes objects, writes its cmd_fd to ready (an int), and never returns. */
typedef void own_fn(int ready);

/* Runs own() in a child process; returns the child's context, attached. */
struct ibv_context *start_owner(own_fn *own);
void end_owner(struct ibv_context *ctx);

uint32_t state_of(struct ibv_context *ctx);
void await_peers(struct ibv_context *ctx);

/* --------------------------------------------------------------- dumps -- */

struct dump {
	char  *buf;
	size_t size;
	int    count;
};

typedef int dump_fn(struct ibv_context *, int *, void *, size_t);

struct dump take(struct ibv_context *ctx, dump_fn *fn);
const struct rxe_migr_rec *next(const struct dump *d, const struct rxe_migr_rec *rec);
uint16_t type_of(const struct rxe_migr_rec *rec);
const struct rxe_migr_rec *first_of(const struct dump *d, int type);
int compare(const struct dump *a, const struct dump *b); /* how many records differ */

/* ------------------------------------------------------------- restore -- */

enum { HANDLES = 64 };

struct ibv_restored *create(struct ibv_context *ctx, const struct rxe_migr_rec *rec, int channel,
			    const union ibv_gid *sgid);

/* Destroys the object of this record, in the dumped context or in a context that was made from the dump. */
int destroy_recorded(struct ibv_context *ctx, const struct rxe_migr_rec *rec);

/*
 * Makes a context with everything in a dump, refilled and not resumed. Its memory regions belong to this process. sgid may be
 * NULL: as recorded.
 */
struct ibv_context *restore(const struct dump *d, const union ibv_gid *sgid);

#endif
