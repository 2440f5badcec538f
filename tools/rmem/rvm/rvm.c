// SPDX-License-Identifier: MIT
/*
 * The life of a memory. Its first transaction makes it, by writing the header to the reals. They are zeros until then, and a
 * process that finds zeros in place of a header makes the memory again. So the memory exists wholly or not at all.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "internal.h"

enum {
	TIMEOUT_MS = 60000,
	ADDRESSES = 64, /* that are tried */
};

/* Addresses at which neither the kernel nor a sanitizer puts anything by itself. */
#define ADDRESS_FIRST 0x680000000000ull
#define ADDRESS_SPACE 0x080000000000ull
#define ADDRESS_ALIGN 0x200000ull /* of a huge page */

/* FNV-1a */
static uint64_t hash(const void *data, size_t size)
{
	const uint8_t *p = data;
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < size; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

uint64_t header_checksum(const struct header *h)
{
	return hash(h, offsetof(struct header, checksum));
}

/* ------------------------------------------------------------------ what is there already */

static bool is_zero(const void *data, size_t size)
{
	const uint8_t *p = data;

	return !*p && !memcmp(p, p + 1, size - 1);
}

static bool header_good(const struct header *h, uint64_t tag, uint64_t size)
{
	return h->magic == RVM_MAGIC && h->version == RVM_VERSION && h->checksum == header_checksum(h) && h->tag == tag &&
	       h->size == size && h->addr && h->addr % RVM_PAGE == 0 && h->addr + size > h->addr;
}

/* Reads the header at the donor. -ENOENT: there is none; @size is the size of the region, if there is one. */
static int find_header(struct rmem *r, uint64_t tag, size_t *size, struct header *header)
{
	struct rmem_region region;
	uint8_t page[RVM_PAGE];
	int ret;

	*size = 0;
	if (rmem_find(r, tag, &region))
		return -ENOENT;
	if (region.size < 2 * RVM_PAGE || region.size % RVM_PAGE || region.size > SIZE_MAX / 2 || region.flags & RMEM_SLAB)
		return -EBADMSG;
	*size = region.size;
	ret = rmem_get(r, page, region.addr, sizeof(page));
	if (ret)
		return ret;
	if (is_zero(page, sizeof(page)))
		return -ENOENT;
	memcpy(header, page, sizeof(*header));
	return header_good(header, tag, region.size) ? 0 : -EBADMSG;
}

/* ------------------------------------------------------------------ local memory */

static int map_at(struct rvm *v, uintptr_t addr)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	void *p = mmap((void *)addr, v->size, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (p == MAP_FAILED)
		return errno == EEXIST ? -EADDRINUSE : -errno;
	if (p != (void *)addr) { /* a kernel that does not know the flag */
		munmap(p, v->size);
		return -EADDRINUSE;
	}
	/* A child would share pages that RDMA has pinned, and a transaction of its parent. */
	madvise(p, v->size, MADV_DONTFORK);
	v->mem = p;
	return 0;
}

static int map_anywhere(struct rvm *v)
{
	int ret = -EADDRINUSE;

	for (uint64_t i = 0; ret == -EADDRINUSE && i < ADDRESSES; i++) {
		uint64_t key[2] = { v->tag, i };

		ret = map_at(v, ADDRESS_FIRST + hash(key, sizeof(key)) % (ADDRESS_SPACE / ADDRESS_ALIGN) * ADDRESS_ALIGN);
	}
	return ret;
}

/* Memory that can't be registered goes through buffers of librmem. */
static void unmap(struct rvm *v)
{
	if (v->registered)
		rmem_unregister(v->r, v->mem);
	munmap(v->mem, v->size);
}

/* ------------------------------------------------------------------ init */

static int check_options(const struct rvm_options *o, bool there, const struct header *h, size_t size)
{
	if (!there && !o->size)
		return -ENOENT;
	if (size && o->size && o->size != size)
		return -EEXIST;
	if (there && o->addr && (uintptr_t)o->addr != h->addr)
		return -EEXIST;
	return 0;
}

static bool options_good(const struct rvm_options *o)
{
	return o->tag != UINT64_MAX && o->size % RVM_PAGE == 0 && o->size != RVM_PAGE && o->size <= SIZE_MAX / 2 &&
	       (uintptr_t)o->addr % RVM_PAGE == 0 && !(o->flags & ~(RVM_FAULTS | RVM_SIGNAL)) &&
	       sysconf(_SC_PAGESIZE) == (long)RVM_PAGE;
}

static int fill(struct rvm *v)
{
	struct transfer t;

	transfer_get(&t, v->r);
	transfer_add(&t, v->real, v->mem, v->size);
	return transfer_end(&t);
}

/*
 * The transaction that makes this memory, or takes it over. There is one attempt: after the connection has broken, another
 * process may have changed what was read.
 */
static int become_committer(struct rvm *v)
{
	struct header *h = rvm_header(v);
	int ret;

	if (getrandom(&v->committer, sizeof(v->committer), 0) != sizeof(v->committer))
		return -errno;
	rmem_txn_abort(v->r); /* discards what an earlier rvm_init() that broke has queued */
	rvm_begin(v);
	txn_touch(v, h, sizeof(*h));
	h->magic = RVM_MAGIC;
	h->version = RVM_VERSION;
	h->size = v->size;
	h->addr = (uintptr_t)v->mem;
	h->tag = v->tag;
	h->committer = v->committer;
	h->checksum = header_checksum(h);
	ret = commit_once(v);
	txn_end(v);
	return ret;
}

/*
 * rmem_find() knows only what the donor listed when the connection was made, but rmem_alloc() asks the donor. If the region that
 * rmem_alloc() returns is not as new, it belongs to a memory that exists, and that must not be made once more.
 */
static int check_new(struct rvm *v)
{
	struct header header;
	size_t size;
	int ret = find_header(v->r, v->tag, &size, &header);

	if (!ret)
		return -EAGAIN;
	return ret == -ENOENT ? 0 : ret;
}

/*
 * -EBADMSG: the region under @tag has the size of our memory, and the pages of another memory. Either they would be our shadows, or
 * our reals are the other memory's shadows. (Shadows also have a header, but with another tag.)
 */
static int check_other(struct rvm *v, uint64_t tag)
{
	struct header header;
	size_t size;
	int ret = find_header(v->r, tag, &size, &header);

	if (!ret)
		return size == v->size ? -EBADMSG : 0;
	return ret == -ENOENT || ret == -EBADMSG ? 0 : ret;
}

static int at_donor(struct rvm *v, bool there)
{
	int ret = rmem_alloc(v->r, v->tag, v->size, 0, &v->real);

	if (!ret && !there)
		ret = check_new(v);
	if (!ret && !there && v->tag)
		ret = check_other(v, v->tag - 1);
	if (!ret)
		ret = rmem_alloc(v->r, v->tag + 1, v->size, 0, &v->shadow);
	if (!ret)
		ret = check_other(v, v->tag + 1);
	if (!ret && there)
		ret = fill(v);
	if (!ret)
		ret = become_committer(v);
	return ret;
}

static int open_memory(struct rvm *v, const struct rvm_options *o)
{
	struct header header = { 0 };
	bool there;
	int ret;

	v->connection = rmem_connection(v->r);
	/* While another thread connects for the first time, rmem_find() knows of no region. */
	ret = rmem_poll(v->r);
	if (ret)
		return ret;
	ret = find_header(v->r, v->tag, &v->size, &header);
	there = !ret;
	if (ret && ret != -ENOENT)
		return ret;
	ret = check_options(o, there, &header, v->size);
	if (ret)
		return ret;
	if (!there)
		v->size = o->size;
	if (there || o->addr)
		ret = map_at(v, there ? header.addr : (uintptr_t)o->addr);
	else
		ret = map_anywhere(v);
	if (ret)
		return ret;
	ret = txn_open(v);
	if (ret)
		goto unmap;
	v->registered = !rmem_register(v->r, v->mem, v->size);
	ret = at_donor(v, there);
	if (!ret)
		ret = fault_open(v, o->flags);
	if (!ret)
		return 0;
	txn_close(v);
unmap:
	unmap(v);
	return ret;
}

struct rvm *rvm_init(struct rmem *r, const struct rvm_options *options)
{
	struct rvm *v;
	int ret;

	if (!options_good(options)) {
		errno = EINVAL;
		return NULL;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		return NULL;
	v->r = r;
	v->tag = options->tag;
	v->timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS;
	ret = open_memory(v, options);
	if (ret) {
		free(v);
		errno = -ret;
		return NULL;
	}
	return v;
}

/* ------------------------------------------------------------------ end */

void rvm_close(struct rvm *v)
{
	if (!v)
		return;
	if (atomic_load(&v->owner))
		rmem_txn_abort(v->r);
	fault_close(v);
	txn_close(v);
	unmap(v);
	free(v);
}

/* If the connection broke, the tags that exist after it show whether the regions were freed. */
static int free_regions(struct rvm *v)
{
	struct rmem_region region;
	int64_t until = 0;
	bool broke;
	int ret = still_ours(v);

	if (!ret)
		ret = rmem_free(v->r, v->tag);
	if (!ret)
		ret = rmem_free(v->r, v->tag + 1);
	if (!ret)
		ret = rmem_txn_go_on(v->r, v->connection);
	if (ret == -EREMCHG)
		ret = -ENOTCONN;
	broke = connection_broke(ret);
	if (broke) {
		connect_anew(v, &until);
		if (rmem_find(v->r, v->tag, &region) == -ENOENT)
			ret = 0;
	}
	if (ret || broke)
		rmem_txn_abort(v->r);
	return ret;
}

int rvm_destroy(struct rvm *v)
{
	int ret;

	if (atomic_load(&v->owner))
		rmem_txn_abort(v->r);
	ret = v->stale ? -ESTALE : free_regions(v);
	rvm_close(v);
	return ret;
}

/* ------------------------------------------------------------------ what a program may know */

void *rvm_base(struct rvm *v)
{
	return v->mem + RVM_PAGE;
}

size_t rvm_size(struct rvm *v)
{
	return v->size - RVM_PAGE;
}

void *rvm_root(struct rvm *v)
{
	return rvm_header(v)->root;
}

int rvm_set_root(struct rvm *v, void *root)
{
	struct header *h = rvm_header(v);

	if (!txn_mine(v))
		return -EPERM;
	txn_touch(v, h, sizeof(*h));
	h->root = root;
	h->checksum = header_checksum(h);
	return 0;
}
