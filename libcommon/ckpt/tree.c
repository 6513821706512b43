/*
 * The names sorted by strcmp have each branch in one piece, so the tree is built in one pass over them. What
 * is alike is found by a hash of everything below a node, and then compared.
 */
#include "ckpt/internal.h"
#include "ckpt/look.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct node {
	const char *label; /* in the name of a tensor */
	int len;	   /* without the separator behind it */
	int tensor;	   /* -1: a branch */
	int order;	   /* the first tensor here or below, in the manifest */
	int64_t number;	   /* that the label is, else -1 */
	int64_t npieces;
	uint64_t bytes, hash;
	bool regular;
	int64_t grid[DT_CKPT_MAX_DIM];
	struct node *child;
	int nchild;
	struct node **same; /* by number, this one among them; NULL: none, or another one has them */
	int nsame;
	bool hidden; /* another one stands for it */
};

static bool is_sep(char c)
{
	return c == '.' || c == '/';
}

/* Bytes of the next part of a name, its separator included. */
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

static void make_leaf(const struct dt_ckpt *c, const struct ck_tensor *t, struct node *e)
{
	e->tensor = e->order = (int)(t - c->m.tensor);
	e->npieces = t->npieces;
	e->bytes = t->bytes;
	e->regular = dt_ckpt_grid(c, e->tensor, e->grid);
	e->hash = mix(mix(mix(1, (uint64_t)t->dtype), (uint64_t)t->ndim), (uint64_t)t->npieces);
	for (int d = 0; d < t->ndim; d++)
		e->hash = mix(mix(e->hash, (uint64_t)t->shape[d]), e->regular ? (uint64_t)e->grid[d] : 0);
}

/* The children of e: names[0..n), which are alike before `at`. */
static int build(const struct dt_ckpt *c, const struct ck_tensor **names, int n, size_t at, struct node *e)
{
	int k = 0, rc = 0;

	for (int i = 0; i < n; i++) { /* counted, then made */
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
			rc = build(c, names + i, j - i, at + len, to);
		else
			make_leaf(c, names[i], to);
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

static bool alike(const struct dt_ckpt *c, const struct node *a, const struct node *b)
{
	if (a->hash != b->hash || a->nchild != b->nchild || (a->tensor < 0) != (b->tensor < 0))
		return false;
	if (a->tensor >= 0) {
		const struct ck_tensor *x = &c->m.tensor[a->tensor], *y = &c->m.tensor[b->tensor];
		size_t n = (size_t)x->ndim * sizeof(*x->shape);

		return x->dtype == y->dtype && x->ndim == y->ndim && x->npieces == y->npieces &&
		       a->regular == b->regular && !memcmp(x->shape, y->shape, n) &&
		       (!a->regular || !memcmp(a->grid, b->grid, n));
	}
	for (int i = 0; i < a->nchild; i++)
		if (a->child[i].len != b->child[i].len ||
		    strncmp(a->child[i].label, b->child[i].label, (size_t)a->child[i].len) != 0 ||
		    !alike(c, &a->child[i], &b->child[i]))
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

/* v: n children that are alike, by number; the first stands for them. */
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

static int fold(const struct dt_ckpt *c, struct node *e)
{
	struct node **v = malloc((size_t)(e->nchild + 1) * sizeof(*v));
	int n = 0, rc = v ? 0 : -ENOMEM;

	for (int i = 0; i < e->nchild && rc == 0; i++)
		if (e->child[i].number >= 0)
			v[n++] = &e->child[i];
	if (n)
		qsort(v, (size_t)n, sizeof(*v), by_hash);
	for (int i = 0, j; i < n && rc == 0; i = j) {
		for (j = i + 1; j < n && v[i]->number != v[j]->number && alike(c, v[i], v[j]);)
			j++;
		if (j - i > 1)
			rc = join(v + i, j - i);
	}
	free(v);
	for (int i = 0; i < e->nchild && rc == 0; i++)
		if (!e->child[i].hidden)
			rc = fold(c, &e->child[i]);
	return rc;
}

/* 0..11 or 0,2,5 or 0..22..2: rows of three or more with one step, or two neighbours. */
static void put_numbers(FILE *f, struct node *const *v, int n)
{
	for (int i = 0, j; i < n; i = j) {
		int64_t a = v[i]->number, step = i + 1 < n ? v[i + 1]->number - a : 0;

		for (j = i + 1; j < n && v[j]->number - v[j - 1]->number == step;)
			j++;
		if (j - i < 3 && step != 1)
			j = i + 1;
		fprintf(f, "%s%" PRId64, i ? "," : "", a);
		if (j - i > 1)
			fprintf(f, "..%" PRId64, v[j - 1]->number);
		if (j - i > 1 && step != 1)
			fprintf(f, "..%" PRId64, step);
	}
}

struct walk {
	void (*line)(void *arg, const struct dt_ckpt_line *l);
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
	struct dt_ckpt_line l = {.depth = depth, .copies = 1};
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

int dt_ckpt_tree(const struct dt_ckpt *c, bool all, void (*line)(void *arg, const struct dt_ckpt_line *l),
		 void *arg, struct dt_err *err)
{
	struct node root = {.tensor = -1};
	const struct walk w = {line, arg};
	int rc = c->m.ntensor ? build(c, c->m.by_name, c->m.ntensor, 0, &root) : 0;

	if (rc == 0 && !all)
		rc = fold(c, &root);
	for (int i = 0; i < root.nchild && rc == 0; i++)
		if (!root.child[i].hidden)
			rc = show(&w, &root.child[i], 1, 0);
	release(&root);
	return rc < 0 ? dt_err_sys(err, rc, "cannot list '%s'", c->path) : 0;
}
