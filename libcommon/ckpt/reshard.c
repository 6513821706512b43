/*
 * Writes a checkpoint as another layout would have. First every rank's pieces are listed from the parameter
 * table, then each shard is written with its elements read from the source one piece at a time.
 */
#include "ckpt/internal.h"

#include "base/tmpfile.h"
#include "plan/layout.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct reshard {
	struct dt_ckpt *src;
	const struct dt_layout *l;
	struct dt_config config;
	struct dt_params params;
	struct dt_local *local; /* [pp * ep * tp]: of dp and cp only which experts are held depends */
	struct {
		struct dt_piece *v;
		int n, cap;
		uint64_t bytes;
	} * rank;
	bool (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	const struct dt_ckpt_team *team; /* NULL: alone */
	int part, parts;		 /* of the shards: this process writes every parts-th from part on */
	char tmp[CK_PATH];
	bool compress;
	json_t **lists;
	pthread_mutex_t lock; /* over what follows and progress */
	uint64_t done, total;
	int next, failed; /* the next rank to write; the first failure */
	struct dt_err err;
};

struct worker {
	struct reshard *r;
	void *buf;
	size_t buf_bytes;
};

static uint64_t piece_bytes(const struct dt_piece *p)
{
	return (uint64_t)ck_numel(p->ndim, p->shape) * (uint64_t)dt_dtype_size(p->dtype);
}

static int give(struct reshard *r, int rank, const struct dt_piece *p)
{
	struct dt_piece *grown;
	int want = r->rank[rank].cap ? 2 * r->rank[rank].cap : 16;

	if (r->rank[rank].n == r->rank[rank].cap) {
		grown = realloc(r->rank[rank].v, (size_t)want * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		r->rank[rank].v = grown;
		r->rank[rank].cap = want;
	}
	r->rank[rank].v[r->rank[rank].n++] = *p;
	r->rank[rank].bytes += piece_bytes(p);
	return 0;
}

/* Ranks by their number among dp x cp: n of them from first on, each step-th. */
struct among {
	int first, step, n;
};

/* Those that have a tensor, or the range that part i of it is: experts that ep divides are on each ep-th. */
static struct among holders(const struct reshard *r, bool experts, int e)
{
	const int n = dt_layout_data(r->l);

	return experts ? (struct among){e, r->l->ep, n / r->l->ep} : (struct among){0, 1, n};
}

static struct among holders_of_range(const struct reshard *r, bool experts, int e, int i)
{
	return experts ? (struct among){e + i * r->l->ep, 1, 1} : (struct among){i * r->l->cp, 1, r->l->cp};
}

/* The rank with the least to write among those at (pp, tp). */
static int least(const struct reshard *r, int pp, int tp, struct among a)
{
	int best = -1;

	for (int k = 0; k < a.n; k++) {
		int d = a.first + k * a.step;
		int i = dt_layout_rank(
			r->l, (struct dt_coords){.dp = d / r->l->cp, .tp = tp, .pp = pp, .cp = d % r->l->cp});

		if (best < 0 || r->rank[i].bytes < r->rank[best].bytes)
			best = i;
	}
	return best;
}

/* The same among all ranks. */
static int least_of_all(const struct reshard *r)
{
	int best = 0;

	for (int i = 1; i < dt_layout_world(r->l); i++)
		if (r->rank[i].bytes < r->rank[best].bytes)
			best = i;
	return best;
}

/* The flat range of a unit that rank i of n keeps: equal parts of whole 64-byte lines, the last may be
 * short. */
static void zero_range(const struct dt_local_unit *u, int n, int i, int64_t *lo, int64_t *hi)
{
	int64_t part = (u->numel / 32 + n - 1) / n * 32;

	*lo = u->flat + (part * i < u->numel ? part * i : u->numel);
	*hi = u->flat + (part * (i + 1) < u->numel ? part * (i + 1) : u->numel);
}

static int give_ranges(struct reshard *r, const struct dt_piece *box, const struct dt_local *lo,
		       const struct dt_local_param *lp, int pp, int e, int tp)
{
	const bool experts = lo->unit[lp->unit].experts;
	const int ranges = experts ? holders(r, true, e).n : r->l->dp;
	struct dt_piece part[2 * DT_CKPT_MAX_DIM + 1];
	int rc = 0;

	for (int i = 0; i < ranges && rc == 0; i++) {
		int64_t a, b;
		int n, to;

		zero_range(&lo->unit[lp->unit], ranges, i, &a, &b);
		a = a > lp->flat ? a : lp->flat;
		b = b < lp->flat + lp->numel ? b : lp->flat + lp->numel;
		n = dt_pieces_of_range(box, a - lp->flat, b - a, part);
		to = least(r, pp, tp, holders_of_range(r, experts, e, i));
		for (int k = 0; k < n && rc == 0; k++)
			rc = give(r, to, &part[k]);
	}
	return rc;
}

static bool same_box(const struct dt_local_param *a, const struct dt_local_param *b)
{
	return !memcmp(a->off, b->off, sizeof(a->off)) && !memcmp(a->shape, b->shape, sizeof(a->shape));
}

/*
 * Parameter index in the local table, NULL: not held. A second copy of a tied embedding is not the holder's.
 */
static const struct dt_local_param *held(const struct reshard *r, const struct dt_local *lo, int index)
{
	for (int i = 0; i < lo->n; i++)
		if (lo->p[i].index == index && lo->unit[lo->p[i].unit].layer == r->params.p[index].layer)
			return &lo->p[i];
	return NULL;
}

/*
 * The box that the ranks at (pp, tp) with the experts of e have of a tensor. Ranks of the tp axis that hold
 * the same box are candidates for it; the least loaded is taken. Under ZeRO its flat ranges come with it,
 * since the others may lie differently.
 */
static int cut_box(struct reshard *r, const struct dt_piece *whole, int index, bool flat, int pp, int e,
		   int tp)
{
	const struct dt_local *row = &r->local[(pp * r->l->ep + e) * r->l->tp];
	const struct dt_local_param *lp = held(r, &row[tp], index), *q;
	struct dt_piece box = *whole;
	struct among a;
	int best, best_tp = tp;
	bool first = lp && lp->numel;

	for (int k = 0; k < tp && first; k++) /* taken by an earlier rank's turn */
		first = !(q = held(r, &row[k], index)) || !same_box(q, lp);
	if (!first)
		return 0;
	a = holders(r, row[tp].unit[lp->unit].experts, e);
	best = least(r, pp, tp, a);
	for (int k = tp + 1; k < r->l->tp; k++) {
		int other = least(r, pp, k, a);

		q = held(r, &row[k], index);
		if (q && same_box(q, lp) && r->rank[other].bytes < r->rank[best].bytes) {
			best = other;
			best_tp = k;
		}
	}
	for (int d = 0; d < r->params.p[index].ndim; d++) {
		box.off[d] = lp->off[d];
		box.shape[d] = lp->shape[d];
	}
	if (!flat)
		return give(r, best, &box);
	return give_ranges(r, &box, &row[best_tp], held(r, &row[best_tp], index), pp, e, best_tp);
}

/* The boxes of one tensor, each once. */
static int cut_tensor(struct reshard *r, const struct dt_piece *whole, int index, bool flat)
{
	const int turns = r->params.p[index].experts ? r->l->ep : 1;
	int rc = 0;

	for (int pp = 0; pp < r->l->pp; pp++)
		for (int e = 0; e < turns; e++)
			for (int tp = 0; tp < r->l->tp && rc == 0; tp++)
				rc = cut_box(r, whole, index, flat, pp, e, tp);
	return rc;
}

static int cut_all(struct reshard *r, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < r->src->m.ntensor && rc == 0; i++) {
		const struct ck_tensor *t = &r->src->m.tensor[i];
		const char *name = strchr(t->name, '/') + 1;
		int index = dt_params_find(&r->params, name);
		bool state = !strncmp(t->name, "m/", 2) || !strncmp(t->name, "v/", 2);
		bool flat = (state && r->l->zero >= 1) || (!strncmp(t->name, "model/", 6) && r->l->zero == 3);
		struct dt_piece p = {.dtype = t->dtype, .ndim = t->ndim};

		snprintf(p.name, sizeof(p.name), "%s", t->name);
		memcpy(p.global, t->shape, sizeof(p.global));
		memcpy(p.shape, t->shape, sizeof(p.shape));
		if (index >= 0) {
			const struct dt_param *q = &r->params.p[index];

			if (q->ndim != t->ndim ||
			    memcmp(q->shape, t->shape, (size_t)q->ndim * sizeof(*q->shape)))
				return dt_err_set(err, -EINVAL,
						  "tensor '%s' has another shape than the model says",
						  t->name);
			rc = cut_tensor(r, &p, index, flat && r->l->dp > 1);
		} else {
			rc = give(r, least_of_all(r), &p);
		}
	}
	for (int i = r->part; i < dt_layout_world(r->l); i += r->parts)
		r->total += r->rank[i].bytes;
	return rc < 0 ? dt_err_sys(err, rc, "cannot recut '%s'", r->src->path) : 0;
}

/* Counts bytes done; a failure of another worker stops this one too. */
static int advance(struct reshard *r, uint64_t bytes, struct dt_err *err)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	r->done += bytes;
	rc = r->failed;
	if (rc == 0 && r->progress && !r->progress(r->arg, r->done, r->total))
		rc = dt_err_sys(err, -ECANCELED, "cannot recut '%s'", r->src->path);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

static int fill(void *arg, const struct dt_piece *p, const void **ret, struct dt_err *err)
{
	struct worker *w = arg;
	struct dt_ckpt *src = w->r->src;
	size_t bytes = piece_bytes(p);
	int rc;

	if (bytes > w->buf_bytes) {
		free(w->buf);
		w->buf_bytes = 0;
		w->buf = malloc(bytes);
		if (!w->buf)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", p->name);
		w->buf_bytes = bytes;
	}
	rc = dt_ckpt_read(src, dt_ckpt_find(src, p->name), p->off, p->shape, p->dtype, w->buf, err);
	*ret = w->buf;
	return rc < 0 ? rc : advance(w->r, bytes, err);
}

/* Writes shards, one rank after the other, until there are none. */
static void *work(void *arg)
{
	struct worker w = {.r = arg};
	struct reshard *r = arg;

	for (;;) {
		struct dt_err err = {0};
		int i, rc;

		pthread_mutex_lock(&r->lock);
		i = r->failed || r->next >= dt_layout_world(r->l) ? -1 : r->next;
		r->next += r->parts;
		pthread_mutex_unlock(&r->lock);
		if (i < 0)
			break;
		rc = dt_ckpt_write_shard_from(r->tmp, i, r->rank[i].v, r->rank[i].n, r->compress, fill, &w,
					      &r->lists[i], &err);
		if (rc == 0)
			continue;
		pthread_mutex_lock(&r->lock);
		if (r->failed == 0) {
			r->failed = rc;
			r->err = err;
		}
		pthread_mutex_unlock(&r->lock);
	}
	free(w.buf);
	return NULL;
}

static int write_shards(struct reshard *r, int workers, struct dt_err *err)
{
	pthread_t id[64];
	int n = 0;

	while (n < workers - 1 && n < 64 && n < dt_layout_world(r->l) - 1 &&
	       pthread_create(&id[n], NULL, work, r) == 0)
		n++;
	work(r); /* this thread works too, so that none is not fatal */
	while (n > 0)
		pthread_join(id[--n], NULL);
	if (r->failed && err)
		*err = r->err;
	return r->failed;
}

static int prepare(struct reshard *r, struct dt_err *err)
{
	const json_t *model = json_object_get(r->src->m.meta, "model");
	const int tp = r->l->tp, ep = r->l->ep, n = r->l->pp * ep * tp;
	int rc;

	if (!json_is_object(model))
		return dt_err_set(err, -EINVAL, "'%s' does not say which model it is of", r->src->path);
	rc = dt_config_from_json(model, &r->config, err);
	if (rc == 0)
		rc = dt_model_params(&r->config, &r->params, err);
	if (rc < 0)
		return rc;
	r->local = calloc((size_t)n, sizeof(*r->local));
	r->rank = calloc((size_t)dt_layout_world(r->l), sizeof(*r->rank));
	if (!r->local || !r->rank)
		return dt_err_sys(err, -ENOMEM, "cannot recut '%s'", r->src->path);
	for (int i = 0; i < n && rc == 0; i++) {
		const int d = i / tp % ep; /* a rank among dp x cp that has these experts */
		const struct dt_coords at = {
			.pp = i / tp / ep, .dp = d / r->l->cp, .tp = i % tp, .cp = d % r->l->cp};

		rc = dt_local_build(&r->params, &r->config, r->l, at, &r->local[i], err);
	}
	return rc;
}

static int agree(const struct reshard *r, int rc, struct dt_err *err)
{
	return r->team ? r->team->agree(r->team->arg, rc, err) : rc;
}

/* Rank 0 makes the folder; its name is known to all. */
static int begin(struct reshard *r, const char *root, struct dt_err *err)
{
	char name[32], *tmp = NULL;
	int rc = 0;

	ck_step_name(name, sizeof(name), r->src->m.step);
	if ((size_t)snprintf(r->tmp, sizeof(r->tmp), "%s/%s.tmp", root, name) >= sizeof(r->tmp))
		rc = dt_err_sys(err, -ENAMETOOLONG, "cannot write '%s'", root);
	if (rc == 0 && r->part == 0)
		rc = dt_ckpt_begin(root, r->src->m.step, &tmp, err);
	free(tmp);
	return agree(r, rc, err);
}

/* The lists of the shards others wrote: one array of lists a process, in the order of its shards. */
static int take_lists(struct reshard *r, const char *texts, const size_t *lens, struct dt_err *err)
{
	int rc = 0;

	for (int p = 0; p < r->parts && rc == 0; texts += lens[p++]) {
		json_t *theirs = NULL;

		rc = p == r->part ? 0 : dt_json_parse(texts, lens[p], "piece lists", &theirs, err);
		for (int i = p, k = 0; theirs && i < dt_layout_world(r->l); i += r->parts)
			r->lists[i] = json_incref(json_array_get(theirs, (size_t)k++));
		json_decref(theirs);
	}
	return rc;
}

static int gather_lists(struct reshard *r, struct dt_err *err)
{
	json_t *mine = json_array();
	char *text, *texts = NULL;
	size_t *lens = NULL;
	int rc;

	for (int i = r->part; i < dt_layout_world(r->l); i += r->parts)
		json_array_append(mine, r->lists[i]);
	text = json_dumps(mine, JSON_COMPACT);
	rc = agree(r, text ? 0 : dt_err_sys(err, -ENOMEM, "cannot recut '%s'", r->src->path), err);
	if (rc == 0)
		rc = r->team->gather(r->team->arg, text, strlen(text), &texts, &lens, err);
	if (rc == 0 && r->part == 0)
		rc = take_lists(r, texts, lens, err);
	json_decref(mine);
	free(text);
	free(texts);
	free(lens);
	return agree(r, rc, err);
}

static int commit(struct reshard *r, const char *root, struct dt_err *err)
{
	json_t *meta = json_deep_copy(r->src->m.meta);
	char layout[64];
	int rc;

	if (!meta)
		return dt_err_sys(err, -ENOMEM, "cannot recut '%s'", r->src->path);
	json_object_del(meta, "format");
	json_object_del(meta, "version");
	json_object_set_new(meta, "layout", json_string(dt_layout_format(r->l, layout, sizeof(layout))));
	rc = dt_ckpt_commit(root, r->src->m.step, meta, r->lists, dt_layout_world(r->l), 0, err);
	json_decref(meta);
	return rc;
}

static int write_out(struct reshard *r, const char *root, int workers, struct dt_err *err)
{
	int world = dt_layout_world(r->l), rc;

	r->lists = calloc((size_t)world, sizeof(*r->lists));
	rc = agree(r, r->lists ? 0 : dt_err_sys(err, -ENOMEM, "cannot recut '%s'", r->src->path), err);
	if (rc == 0)
		rc = begin(r, root, err);
	if (rc == 0)
		rc = agree(r, write_shards(r, workers, err), err);
	if (rc == 0 && r->team)
		rc = gather_lists(r, err);
	if (rc == 0)
		rc = agree(r, r->part == 0 ? commit(r, root, err) : 0, err);
	if (rc < 0 && r->part == 0 && r->tmp[0])
		dt_remove_tree(r->tmp, NULL);
	for (int i = 0; r->lists && i < world; i++)
		json_decref(r->lists[i]);
	free(r->lists);
	return rc;
}

int dt_ckpt_reshard(struct dt_ckpt *src, const struct dt_layout *layout, const char *root, bool compress,
		    int workers, const struct dt_ckpt_team *team,
		    bool (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct dt_err *err)
{
	struct reshard r = {.src = src,
			    .l = layout,
			    .compress = compress,
			    .team = team,
			    .part = team ? team->rank : 0,
			    .parts = team ? team->size : 1,
			    .progress = progress,
			    .arg = arg};
	int rc = prepare(&r, err);

	pthread_mutex_init(&r.lock, NULL);
	r.next = r.part;
	if (rc == 0)
		rc = cut_all(&r, err);
	rc = agree(&r, rc, err);
	if (rc == 0)
		rc = write_out(&r, root, workers, err);
	for (int i = 0; r.local && i < layout->pp * layout->ep * layout->tp; i++)
		dt_local_release(&r.local[i]);
	for (int i = 0; r.rank && i < dt_layout_world(layout); i++)
		free(r.rank[i].v);
	dt_params_release(&r.params);
	free(r.local);
	free(r.rank);
	pthread_mutex_destroy(&r.lock);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
