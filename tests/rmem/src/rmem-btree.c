// SPDX-License-Identifier: MIT
/*
 * rmem-btree --host H --client C --key F [--keys N] [--seed N] [--seconds S | --operations N] [--faults | --signal] [--check]
 *
 * A B-tree in recoverable memory, each node allocated there. Operation number i inserts or removes a key. The number i and
 * the seed, which is stored with the tree, say which. A transaction is one to eight operations; one in eight is aborted,
 * and its operations are done again. Says "committed N" after each commit: N operations were done. N is stored, too.
 *
 *   --check   recovers, and says "stored N" (0 if there is no tree)
 *
 * Each check, also those now and then and at the end, asks whether the tree is a B-tree (order, depth, how full nodes are),
 * whether its nodes and entries are as many as are counted, and whether it holds what operations 1 to N leave in an array.
 * Exits with 1 and one line if not, with 75 if the donor cannot be asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "recoverable.h"

enum {
	LEAST = 9,		/* keys of a node other than the root */
	MOST = 2 * LEAST + 1,
	BATCH = 8,
	CHECK_EACH = 512,	/* transactions */
	DEPTH_MOST = 32,
};

struct node {
	uint32_t n;
	uint32_t leaf;
	uint64_t key[MOST];
	uint64_t value[MOST];
	struct node *child[MOST + 1];
};
_Static_assert(sizeof(struct node) <= 496, "512 bytes with its tags");

struct tree {
	uint64_t seed;
	uint64_t keys;	  /* 0 to keys - 1 */
	uint64_t done;	  /* operations */
	uint64_t entries;
	uint64_t nodes;	  /* allocated */
	struct node *root;
};

static struct options o = { .memory.tag = 1, .count = 5000, .threads = 1 };
static struct rvm *v;
static struct tree *tree;

/* ------------------------------------------------------------------ nodes */

static void change(struct node *x)
{
	set_range(v, x, sizeof(*x));
}

static struct node *node_new(bool leaf)
{
	struct node *x = rvm_alloc(v, sizeof(*x));

	if (!x)
		VIOLATION("rvm_alloc: %s, with %" PRIu64 " nodes", strerror(errno), tree->nodes);
	change(x);
	*x = (struct node){ .leaf = leaf };
	tree->nodes++;
	return x;
}

static void node_free(struct node *x)
{
	rvm_free(v, x);
	tree->nodes--;
}

/* The first key that is not less than @key. */
static uint32_t place(const struct node *x, uint64_t key)
{
	uint32_t i = 0;

	while (i < x->n && x->key[i] < key)
		i++;
	return i;
}

static bool is_at(const struct node *x, uint32_t i, uint64_t key)
{
	return i < x->n && x->key[i] == key;
}

/* @count entries, and as many children, from @from in @y to @to in @x. */
static void copy_entries(struct node *x, uint32_t to, const struct node *y, uint32_t from, uint32_t count)
{
	memmove(&x->key[to], &y->key[from], count * sizeof(*x->key));
	memmove(&x->value[to], &y->value[from], count * sizeof(*x->value));
}

static void copy_children(struct node *x, uint32_t to, const struct node *y, uint32_t from, uint32_t count)
{
	memmove(&x->child[to], &y->child[from], count * sizeof(*x->child));
}

static void copy_entry(struct node *x, uint32_t to, const struct node *y, uint32_t from)
{
	copy_entries(x, to, y, from, 1);
}

/* ------------------------------------------------------------------ insert: full nodes are split on the way down */

static void split(struct node *x, uint32_t i)
{
	struct node *y = x->child[i], *z = node_new(y->leaf);

	change(x);
	change(y);
	copy_entries(z, 0, y, LEAST + 1, LEAST);
	copy_children(z, 0, y, LEAST + 1, LEAST + 1);
	z->n = LEAST;
	y->n = LEAST;
	copy_entries(x, i + 1, x, i, x->n - i);
	copy_children(x, i + 2, x, i + 1, x->n - i);
	copy_entry(x, i, y, LEAST);
	x->child[i + 1] = z;
	x->n++;
}

static void insert_at(struct node *x, uint32_t i, uint64_t key, uint64_t value)
{
	change(x);
	copy_entries(x, i + 1, x, i, x->n - i);
	x->key[i] = key;
	x->value[i] = value;
	x->n++;
	tree->entries++;
}

static void insert(uint64_t key, uint64_t value)
{
	struct node *x = tree->root;
	uint32_t i;

	if (x->n == MOST) {
		struct node *root = node_new(false);

		root->child[0] = x;
		tree->root = root;
		split(root, 0);
		x = root;
	}
	for (;;) {
		i = place(x, key);
		if (is_at(x, i, key) || x->leaf)
			break;
		if (x->child[i]->n == MOST) {
			split(x, i);
			continue;
		}
		x = x->child[i];
	}
	if (!is_at(x, i, key)) {
		insert_at(x, i, key, value);
		return;
	}
	change(x);
	x->value[i] = value;
}

/* ------------------------------------------------------------------ remove: children are filled up on the way down */

static void remove_at(struct node *x, uint32_t i)
{
	change(x);
	copy_entries(x, i, x, i + 1, x->n - i - 1);
	x->n--;
}

/* Child i, the key after it, and child i + 1 become child i. */
static void merge(struct node *x, uint32_t i)
{
	struct node *y = x->child[i], *z = x->child[i + 1];

	change(x);
	change(y);
	copy_entry(y, y->n, x, i);
	copy_entries(y, y->n + 1, z, 0, z->n);
	copy_children(y, y->n + 1, z, 0, z->n + 1);
	y->n += z->n + 1;
	copy_children(x, i + 1, x, i + 2, x->n - i - 1);
	remove_at(x, i);
	node_free(z);
}

static void borrow_left(struct node *x, uint32_t i)
{
	struct node *y = x->child[i], *left = x->child[i - 1];

	change(x);
	change(y);
	change(left);
	copy_entries(y, 1, y, 0, y->n);
	copy_children(y, 1, y, 0, y->n + 1);
	copy_entry(y, 0, x, i - 1);
	y->child[0] = left->child[left->n];
	copy_entry(x, i - 1, left, left->n - 1);
	left->n--;
	y->n++;
}

static void borrow_right(struct node *x, uint32_t i)
{
	struct node *y = x->child[i], *right = x->child[i + 1];

	change(x);
	change(y);
	change(right);
	copy_entry(y, y->n, x, i);
	y->child[y->n + 1] = right->child[0];
	y->n++;
	copy_entry(x, i, right, 0);
	copy_children(right, 0, right, 1, right->n);
	remove_at(right, 0);
}

/* Child i gets more than LEAST keys; returns the node that has its keys then. */
static struct node *enter(struct node *x, uint32_t i)
{
	if (x->child[i]->n > LEAST)
		return x->child[i];
	if (i > 0 && x->child[i - 1]->n > LEAST) {
		borrow_left(x, i);
	} else if (i < x->n && x->child[i + 1]->n > LEAST) {
		borrow_right(x, i);
	} else {
		i = i < x->n ? i : i - 1;
		merge(x, i);
	}
	return x->child[i];
}

/* Takes the last or the first entry of the tree under @x away, and stores it in entry @i of @to. */
static void take_edge(struct node *x, bool last, struct node *to, uint32_t i)
{
	while (!x->leaf)
		x = enter(x, last ? x->n : 0);
	change(to);
	copy_entry(to, i, x, last ? x->n - 1 : 0);
	remove_at(x, last ? x->n - 1 : 0);
}

static void remove_key(uint64_t key)
{
	struct node *x = tree->root;
	uint32_t i;

	for (;;) {
		i = place(x, key);
		if (x->leaf)
			break;
		if (!is_at(x, i, key)) {
			x = enter(x, i);
		} else if (x->child[i]->n > LEAST) {
			take_edge(x->child[i], true, x, i);
			break;
		} else if (x->child[i + 1]->n > LEAST) {
			take_edge(x->child[i + 1], false, x, i);
			break;
		} else {
			merge(x, i);
			x = x->child[i];
		}
	}
	if (x->leaf && is_at(x, i, key))
		remove_at(x, i);
	else if (x->leaf)
		VIOLATION("key %" PRIu64 " is not where it was", key);
	tree->entries--;
}

static bool has(uint64_t key)
{
	const struct node *x = tree->root;

	for (;;) {
		uint32_t i = place(x, key);

		if (is_at(x, i, key))
			return true;
		if (x->leaf)
			return false;
		x = x->child[i];
	}
}

/* Only the root may have no key left: after its last two children have become one. */
static void remove_if_there(uint64_t key)
{
	struct node *root;

	if (!has(key))
		return;
	remove_key(key);
	root = tree->root;
	if (root->n == 0 && !root->leaf) {
		tree->root = root->child[0];
		node_free(root);
	}
}

/* ------------------------------------------------------------------ operations */

struct operation {
	bool insert;
	uint64_t key;
	uint64_t value;
};

/* Now more inserts, now more removals, so that the tree grows and shrinks. */
static struct operation operation(uint64_t i)
{
	uint64_t state = mix(tree->seed) + mix(i);
	uint64_t phase = i / (tree->keys * 2) % 2;

	return (struct operation){
		.insert = rnd(&state, 10) < (phase ? 3 : 7),
		.key = rnd(&state, tree->keys),
		.value = mix(state) | 1,
	};
}

static void operate(uint64_t i)
{
	struct operation op = operation(i);

	set_range(v, tree, sizeof(*tree));
	if (op.insert)
		insert(op.key, op.value);
	else
		remove_if_there(op.key);
	tree->done = i;
}

/* ------------------------------------------------------------------ check */

struct walk {
	uint64_t entries, nodes;
	uint64_t next;	/* least key that may come */
	uint64_t depth;	/* of all leaves; 0: none was seen */
	const uint64_t *model;
};

static void check_entry(struct walk *w, const struct node *x, uint32_t i)
{
	uint64_t key = x->key[i];

	if (key < w->next || key >= tree->keys)
		VIOLATION("key %" PRIu64 " is out of order, after %" PRIu64 " operations", key, tree->done);
	for (uint64_t k = w->next; k < key; k++)
		if (w->model[k])
			VIOLATION("key %" PRIu64 " is missing, after %" PRIu64 " operations", k, tree->done);
	if (w->model[key] != x->value[i])
		VIOLATION("key %" PRIu64 " has a wrong value, after %" PRIu64 " operations", key, tree->done);
	w->next = key + 1;
	w->entries++;
}

static void check_node(struct walk *w, const struct node *x, uint64_t depth)
{
	if (x->n > MOST || (x != tree->root && x->n < LEAST) || (!x->leaf && x->n == 0))
		VIOLATION("a node has %" PRIu32 " keys, after %" PRIu64 " operations", x->n, tree->done);
	if (depth > DEPTH_MOST || (x->leaf && w->depth && w->depth != depth))
		VIOLATION("leaves lie at two depths, after %" PRIu64 " operations", tree->done);
	w->nodes++;
	if (x->leaf)
		w->depth = depth;
	for (uint32_t i = 0; i < x->n; i++) {
		if (!x->leaf)
			check_node(w, x->child[i], depth + 1);
		check_entry(w, x, i);
	}
	if (!x->leaf)
		check_node(w, x->child[x->n], depth + 1);
}

/* What operations until tree->done leave. It goes on from the model of the last check. */
static const uint64_t *model_now(void)
{
	static uint64_t *model, done;

	if (!model || done > tree->done) {
		free(model);
		model = calloc(tree->keys, sizeof(*model));
		done = 0;
	}
	if (!model)
		VIOLATION("no memory for %" PRIu64 " keys", tree->keys);
	while (done < tree->done) {
		struct operation op = operation(++done);

		model[op.key] = op.insert ? op.value : 0;
	}
	return model;
}

static void check_tree(void)
{
	struct walk w = { .model = model_now() };

	check_node(&w, tree->root, 1);
	for (uint64_t k = w.next; k < tree->keys; k++)
		if (w.model[k])
			VIOLATION("key %" PRIu64 " is missing, after %" PRIu64 " operations", k, tree->done);
	if (w.nodes != tree->nodes)
		VIOLATION("%" PRIu64 " nodes are reached, %" PRIu64 " are allocated", w.nodes, tree->nodes);
	if (w.entries != tree->entries)
		VIOLATION("%" PRIu64 " entries are reached, %" PRIu64 " are counted", w.entries, tree->entries);
}

/* ------------------------------------------------------------------ the program */

static void make_tree(void)
{
	if (!o.seed && getrandom(&o.seed, sizeof(o.seed), 0) < 0)
		VIOLATION("getrandom: %s", strerror(errno));
	RVM(rvm_begin(v));
	tree = rvm_alloc(v, sizeof(*tree));
	if (!tree)
		VIOLATION("rvm_alloc: %s", strerror(errno));
	set_range(v, tree, sizeof(*tree));
	*tree = (struct tree){ .seed = o.seed, .keys = o.count };
	tree->root = node_new(true);
	RVM(rvm_set_root(v, tree));
	RVM(rvm_commit(v));
}

static bool open_tree(void)
{
	/* Each node is at least half full, except at most one, the root. */
	size_t size = (o.count / LEAST + 2) * 512 + (1 << 20);

	v = memory_open(&o, 0);
	if (!v && !o.check)
		v = memory_open(&o, size & ~(size_t)4095);
	if (!v)
		return false;
	tree = rvm_root(v);
	if (!tree && !o.check)
		make_tree();
	if (tree)
		check_tree();
	return tree;
}

static void transaction(uint64_t *state)
{
	uint64_t before = tree->done, count = 1 + rnd(state, BATCH);

	RVM(rvm_begin(v));
	for (uint64_t i = 1; i <= count; i++)
		operate(before + i);
	if (rnd(state, 8) == 0) {
		RVM(rvm_abort(v));
		if (tree->done != before)
			VIOLATION("a transaction was aborted and not undone, after %" PRIu64 " operations", tree->done);
		return;
	}
	RVM(rvm_commit(v));
	printf("committed %" PRIu64 "\n", tree->done);
	if (fflush(stdout))
		exit(EXIT_CANNOT_ASK);
}

static void run(void)
{
	uint64_t state, first = tree->done;

	if (getrandom(&state, sizeof(state), 0) < 0)
		VIOLATION("getrandom: %s", strerror(errno));
	for (uint64_t i = 1; !time_is_over(&o) && !(o.limit && tree->done - first >= o.limit); i++) {
		transaction(&state);
		if (i % CHECK_EACH == 0)
			check_tree();
	}
	check_tree();
}

int main(int argc, char **argv)
{
	bool there;

	options_parse(argc, argv, &o);
	there = open_tree();
	if (there && !o.check)
		run();
	printf("stored %" PRIu64 "\n", there ? tree->done : 0);
	if (v)
		memory_close(v);
	return 0;
}
