/*
 * Names sorted by strcmp have each branch contiguous, so one pass builds the tree. Equal branches are found
 * by a hash of everything below a node, and then compared.
 */
#include "ckpt/internal.h"
#include "ckpt/look.h"
#include "ckpt/tensors.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct node {
	const char *label; /* points into a tensor's name */
	int len;	   /* without the separator after it */
	int tensor;	   /* -1: a branch */
	int order;	   /* the index of the first tensor in the branch */
	int64_t number;	   /* value of a numeric label, else -1 */
	int64_t npieces;
	uint64_t bytes, hash;
	struct node *child;
	int nchild;
	struct node **same; /* equal siblings by number, this one too; NULL: none, or another node has them */
	int nsame;
	bool hidden; /* shown as part of another node */
};

static bool is_sep(char c)
{
	return c == '.' || c == '/';
}

/* Bytes of the next part of a name, including its separator. */
static size_t segment(const char *s)
{
	size_t n = strcspn(s, "./");

	return s[n] ? n + 1 : n;
}

static int64_t number_of(const char *s, int n)
{
	int64_t x = 0;

	if (n < 1 || n > 9 || (n > 1 && s[0] == '0'))
		return -1;
	for (int i = 0; i < n; i++) {
		if (!isdigit((unsigned char)s[i]))
			return -1;
		x = 10 * x + (s[i] - '0');
	}
	return x;
}

static uint64_t mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *s, int n)
{
	for (int i = 0; i < n; i++)
		h = mix(h, (unsigned char)s[i]);
	return mix(h, (uint64_t)n);
}

/* Numbers first, by their value; the rest as in the manifest. */
static int by_order(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	if ((x->number < 0) != (y->number < 0))
		return x->number < 0 ? 1 : -1;
	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

static void make_leaf(const struct dt_tensor_desc *v, const struct dt_tensor_desc *t, struct node *e)
{
	e->tensor = e->order = (int)(t - v);
	e->npieces = t->npieces;
	e->bytes = t->bytes;
	e->hash =
		mix(mix(mix_text(1, t->type, (int)strlen(t->type)), (uint64_t)t->ndim), (uint64_t)t->npieces);
	for (int d = 0; d < t->ndim; d++)
		e->hash = mix(mix(e->hash, (uint64_t)t->shape[d]), t->regular ? (uint64_t)t->grid[d] : 0);
}

/* Builds the children of e from names[0..n), sorted, which are equal before `at`. */
static int build(const struct dt_tensor_desc *v, const struct dt_tensor_desc **names, int n, size_t at,
		 struct node *e)
{
	int k = 0, rc = 0;

	for (int i = 0; i < n; i++) { /* counts first, then creates */
		size_t len = segment(names[i]->name + at);

		k += i == 0 || strncmp(names[i]->name + at, names[i - 1]->name + at, len) != 0 ||
		     segment(names[i - 1]->name + at) != len;
	}
	e->child = calloc((size_t)k, sizeof(*e->child));
	if (!e->child)
		return -ENOMEM;
	for (int i = 0, j; i < n && rc == 0; i = j) {
		const char *s = names[i]->name + at;
		size_t len = segment(s);
		struct node *to = &e->child[e->nchild++];
		bool branch = len && is_sep(s[len - 1]);

		*to = (struct node){.label = s, .len = (int)len - branch, .tensor = -1};
		to->number = number_of(s, to->len);
		for (j = i + 1; j < n && segment(names[j]->name + at) == len &&
				strncmp(names[j]->name + at, s, len) == 0;)
			j++;
		if (branch)
			rc = build(v, names + i, j - i, at + len, to);
		else
			make_leaf(v, names[i], to);
	}
	qsort(e->child, (size_t)e->nchild, sizeof(*e->child), by_order);
	e->order = INT_MAX;
	e->hash = 2;
	for (int i = 0; i < e->nchild; i++) {
		const struct node *q = &e->child[i];

		e->order = q->order < e->order ? q->order : e->order;
		e->npieces += q->npieces;
		e->bytes += q->bytes;
		e->hash = mix_text(mix(e->hash, q->hash), q->label, q->len);
	}
	return rc;
}

static void release(struct node *e)
{
	for (int i = 0; i < e->nchild; i++)
		release(&e->child[i]);
	free(e->child);
	free(e->same);
}

static bool alike(const struct dt_tensor_desc *v, const struct node *a, const struct node *b)
{
	if (a->hash != b->hash || a->nchild != b->nchild || (a->tensor < 0) != (b->tensor < 0))
		return false;
	if (a->tensor >= 0) {
		const struct dt_tensor_desc *x = &v[a->tensor], *y = &v[b->tensor];
		size_t n = (size_t)x->ndim * sizeof(*x->shape);

		return !strcmp(x->type, y->type) && x->ndim == y->ndim && x->npieces == y->npieces &&
		       x->regular == y->regular && !memcmp(x->shape, y->shape, n) &&
		       (!x->regular || !memcmp(x->grid, y->grid, n));
	}
	for (int i = 0; i < a->nchild; i++)
		if (a->child[i].len != b->child[i].len ||
		    strncmp(a->child[i].label, b->child[i].label, (size_t)a->child[i].len) != 0 ||
		    !alike(v, &a->child[i], &b->child[i]))
			return false;
	return true;
}

static int by_hash(const void *a, const void *b)
{
	const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (x->number > y->number) - (x->number < y->number);
}

/* v: n equal siblings, by number; the first stands for all. */
static int join(struct node **v, int n)
{
	v[0]->same = malloc((size_t)n * sizeof(*v));
	if (!v[0]->same)
		return -ENOMEM;
	memcpy(v[0]->same, v, (size_t)n * sizeof(*v));
	v[0]->nsame = n;
	for (int i = 1; i < n; i++)
		v[i]->hidden = true;
	return 0;
}

static int fold(const struct dt_tensor_desc *all, struct node *e)
{
	struct node **v = malloc((size_t)(e->nchild + 1) * sizeof(*v));
	int n = 0, rc = v ? 0 : -ENOMEM;

	for (int i = 0; i < e->nchild && rc == 0; i++)
		if (e->child[i].number >= 0)
			v[n++] = &e->child[i];
	if (n)
		qsort(v, (size_t)n, sizeof(*v), by_hash);
	for (int i = 0, j; i < n && rc == 0; i = j) {
		for (j = i + 1; j < n && v[i]->number != v[j]->number && alike(all, v[i], v[j]);)
			j++;
		if (j - i > 1)
			rc = join(v + i, j - i);
	}
	free(v);
	for (int i = 0; i < e->nchild && rc == 0; i++)
		if (!e->child[i].hidden)
			rc = fold(all, &e->child[i]);
	return rc;
}

void dt_print_numbers(FILE *f, const int64_t *v, int n)
{
	for (int i = 0, j; i < n; i = j) {
		int64_t step = i + 1 < n ? v[i + 1] - v[i] : 0;

		for (j = i + 1; j < n && v[j] - v[j - 1] == step;)
			j++;
		if (j - i < 3 && step != 1)
			j = i + 1;
		fprintf(f, "%s%" PRId64, i ? "," : "", v[i]);
		if (j - i > 1)
			fprintf(f, "..%" PRId64, v[j - 1]);
		if (j - i > 1 && step != 1)
			fprintf(f, "..%" PRId64, step);
	}
}

static void put_numbers(FILE *f, struct node *const *same, int n)
{
	int64_t *v = malloc((size_t)n * sizeof(*v));

	for (int i = 0; v && i < n; i++)
		v[i] = same[i]->number;
	if (v)
		dt_print_numbers(f, v, n);
	free(v);
}

struct walk {
	void (*line)(void *arg, const struct dt_tree_line *l);
	void *arg;
};

static struct node *only_child(const struct node *e)
{
	struct node *found = NULL;

	for (int i = 0; i < e->nchild; i++) {
		if (e->child[i].hidden)
			continue;
		if (found)
			return NULL;
		found = &e->child[i];
	}
	return found;
}

static int show(const struct walk *w, const struct node *e, int64_t times, int depth)
{
	struct dt_tree_line l = {.depth = depth, .copies = 1};
	char *label = NULL;
	size_t n;
	FILE *f = open_memstream(&label, &n);
	int rc = 0;

	if (!f)
		return -ENOMEM;
	for (const struct node *next = e; next; next = only_child(e)) {
		if (next != e)
			fputc(e->label[e->len], f);
		e = next;
		if (e->nsame) {
			fputc('{', f);
			put_numbers(f, e->same, e->nsame);
			fputc('}', f);
			l.copies *= e->nsame;
		} else {
			fprintf(f, "%.*s", e->len, e->label);
		}
	}
	times *= l.copies;
	l.tensor = e->tensor;
	l.npieces = e->npieces * times;
	l.bytes = e->bytes * (uint64_t)times;
	if (fclose(f) == 0) {
		l.label = label;
		w->line(w->arg, &l);
	} else {
		rc = -ENOMEM;
	}
	free(label);
	for (int i = 0; i < e->nchild && rc == 0; i++)
		if (!e->child[i].hidden)
			rc = show(w, &e->child[i], times, depth + 1);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct dt_tensor_desc *const *)a)->name,
		      (*(const struct dt_tensor_desc *const *)b)->name);
}

int dt_tree(const struct dt_tensor_desc *v, int n, bool all,
	    void (*line)(void *arg, const struct dt_tree_line *l), void *arg, struct dt_err *err)
{
	const struct dt_tensor_desc **names = malloc(((size_t)n + 1) * sizeof(*names));
	struct node root = {.tensor = -1};
	const struct walk w = {line, arg};
	int rc = names ? 0 : -ENOMEM;

	for (int i = 0; i < n && rc == 0; i++)
		names[i] = &v[i];
	if (rc == 0 && n) {
		qsort(names, (size_t)n, sizeof(*names), by_name);
		rc = build(v, names, n, 0, &root);
	}
	if (rc == 0 && !all)
		rc = fold(v, &root);
	for (int i = 0; i < root.nchild && rc == 0; i++)
		if (!root.child[i].hidden)
			rc = show(&w, &root.child[i], 1, 0);
	release(&root);
	free(names);
	return rc < 0 ? dt_err_sys(err, rc, "cannot list the tensors") : 0;
}

int dt_ckpt_tree(const struct dt_ckpt *c, bool all, void (*line)(void *arg, const struct dt_tree_line *l),
		 void *arg, struct dt_err *err)
{
	int n = dt_ckpt_ntensors(c), rc;
	struct dt_tensor_desc *v = calloc((size_t)n + 1, sizeof(*v));

	if (!v)
		return dt_err_sys(err, -ENOMEM, "cannot list '%s'", c->path);
	for (int i = 0; i < n; i++)
		ck_describe(c, i, &v[i]);
	rc = dt_tree(v, n, all, line, arg, err);
	free(v);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
