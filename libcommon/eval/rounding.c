#include "eval/rounding.h"

#include "base/json.h"
#include "eval/gptq.h"
#include "eval/prune.h"
#include "kernels/ops.h"
#include "kernels/quant_grid.h"
#include "model/program.h"
#include "nn/walk.h"
#include "plan/formulas.h"
#include "serve/api/served.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TEXT  ((size_t)1 << 30)
#define MOST_SITES 8 /* products of a layer */
#define BLOCK	   16

struct work {
	const struct dt_rounding *r;
	struct dt_source *s; /* replaced */
	struct dt_dev *dev;
	struct dt_infer *infer;
	struct dt_walk *walk;
	struct dt_tokenizer *tok;
	int32_t *ids; /* [nseq, len] */
	int64_t nseq, len;
	struct dt_site site[MOST_SITES]; /* of the layer */
	int nsite, matrices;
	struct dt_err *err;
};

/* ---- the text ---- */

static int read_text(struct work *w)
{
	const int64_t most = w->r->tokens ? w->r->tokens : DT_ROUNDING_TOKENS;
	const struct dt_config *c = dt_source_config(w->s);
	char *text = NULL;
	size_t n = 0, count = 0;
	int rc = dt_read_file(w->r->text, MOST_TEXT, &text, &n, w->err);

	if (rc == 0)
		rc = dt_tokenizer_encode(w->tok, text, n, false, &w->ids, &count, w->err);
	free(text);
	if (rc < 0)
		return rc;
	w->len = w->r->seq ? w->r->seq : c->max_seq < DT_ROUNDING_SEQ ? c->max_seq : DT_ROUNDING_SEQ;
	if (w->len > c->max_seq)
		return dt_err_set(w->err, -EINVAL, "windows of %lld tokens: the model was made for %lld",
				  (long long)w->len, (long long)c->max_seq);
	w->nseq = ((int64_t)count < most ? (int64_t)count : most) / w->len;
	if (w->nseq < 1)
		return dt_err_set(w->err, -EINVAL, "'%s' has %zu tokens, fewer than one window of %lld",
				  w->r->text, count, (long long)w->len);
	return 0;
}

static int open_model(struct work *w)
{
	struct dt_infer_params p = {
		.dtype = DT_F32, .cache = DT_F32, .weights = -1, .max_seqs = 1, .block_size = BLOCK};
	int rc = dt_config_servable(dt_source_config(w->s), w->err);

	if (rc == 0)
		rc = dt_served_tokenizer(w->s, w->r->tokenizer, &w->tok, w->err);
	if (rc == 0)
		rc = read_text(w);
	if (rc == 0 && (rc = dt_dev_open(&w->dev, DT_DEV_CPU, 0, 0)) < 0)
		dt_err_sys(w->err, rc, "cannot compute");
	if (rc < 0)
		return rc;
	p.max_tokens = p.max_len = (int)w->len;
	p.blocks = (int)((w->len + BLOCK - 1) / BLOCK);
	rc = dt_infer_open(&w->infer, w->dev, w->s, &p, w->err);
	return rc < 0 ? rc : dt_walk_open(&w->walk, w->infer, w->ids, w->nseq, w->len, w->err);
}

/* ---- a layer's products, and what their inputs are ---- */

static void release_sites(struct work *w)
{
	for (int i = 0; i < w->nsite; i++) {
		free(w->site[i].h);
		free(w->site[i].mean);
		free(w->site[i].most);
		free(w->site[i].scale);
	}
	w->nsite = 0;
}

/* gptq and awq need products of two inputs, the others squares alone. */
static bool needs_products(const struct work *w)
{
	return w->r->method == DT_ROUND_GPTQ || w->r->method == DT_ROUND_AWQ;
}

/* Whose results can be divided: the norm, or the rows of up, that makes the input of s for it alone. */
static void find_divided(const struct work *w, struct dt_site *s, const struct dt_prog *p, int first, int end)
{
	const int v = s->node.in[0];
	int readers = 0;

	s->norm[0] = s->norm[1] = s->up = -1;
	for (int k = 0; k < p->nstep; k++)
		for (int i = 0; i < DT_NODE_IN; i++)
			readers += p->step[k].n.in[i] == v;
	for (int k = first; k < end && readers == 1; k++) {
		const struct dt_node *n = &p->step[k].n;

		if (n->op == DT_OP_NORM && n->out[0] == v && n->param[0] >= 0) {
			s->norm[0] = dt_walk_param(w->walk, n->param[0]);
			s->norm[1] = dt_walk_param(w->walk, n->param[1]);
			s->plus_one = n->attr.plus_one;
		}
		if (n->op == DT_OP_LINEAR_GATED && n->out[1] == v && n->param[4] < 0)
			s->up = dt_walk_param(w->walk, n->param[1]);
	}
}

static int add_site(struct work *w, const struct dt_walk_seen *seen, struct dt_site **ret)
{
	const size_t k = (size_t)seen->x.dim[1];
	struct dt_site *s = &w->site[w->nsite];

	if (w->nsite == MOST_SITES)
		return dt_err_set(w->err, -ENOTSUP, "a layer of more than %d products", MOST_SITES);
	*s = (struct dt_site){.node = *seen->node, .k = (int64_t)k};
	memcpy(s->param, seen->param, sizeof(s->param));
	s->format = dt_export_format(dt_source_config(w->s), &dt_source_params(w->s)->p[s->param[0]],
				     w->r->format, w->r->packing);
	s->h = calloc(needs_products(w) ? k * k : k, sizeof(*s->h));
	s->mean = calloc(k, sizeof(*s->mean));
	s->most = calloc(k, sizeof(*s->most));
	w->nsite++;
	if (!s->h || !s->mean || !s->most)
		return dt_err_sys(w->err, -ENOMEM, "cannot sum up the inputs of '%s'", seen->node->name);
	*ret = s;
	return 0;
}

static int sum_up(void *arg, const struct dt_walk_seen *seen, struct dt_err *err)
{
	struct work *w = arg;
	const struct dt_tensor x = seen->x;
	struct dt_site *s = NULL;
	int rc = 0;

	for (int i = 0; i < w->nsite && !s; i++)
		if (!memcmp(w->site[i].param, seen->param, sizeof(seen->param)))
			s = &w->site[i];
	if (!s && (rc = add_site(w, seen, &s)) < 0)
		return rc;
#pragma omp parallel for schedule(static)
	for (int64_t j = 0; j < s->k; j++)
		for (int64_t i = 0; i < x.dim[0]; i++) {
			float v = ((const float *)x.data)[i * s->k + j];

			s->mean[j] += fabsf(v);
			s->most[j] = fmaxf(s->most[j], fabsf(v));
			if (!needs_products(w))
				s->h[j] += v * v;
		}
	s->rows += x.dim[0];
	if (needs_products(w))
		rc = w->dev->ops->matmul(w->dev, dt_t2(s->h, DT_F32, s->k, s->k), x, true, x, false, DT_NONE,
					 true);
	return rc < 0 ? dt_err_sys(err, rc, "cannot sum up the inputs of '%s'", seen->node->name) : 0;
}

/* From sums to means, per row of the text. */
static int finish_sites(struct work *w, int layer)
{
	for (int i = 0; i < w->nsite; i++) {
		struct dt_site *s = &w->site[i];
		const int64_t n = needs_products(w) ? s->k * s->k : s->k;
		double sum = 0;

		for (int64_t j = 0; j < n; j++)
			sum += (double)(s->h[j] /= (float)s->rows);
		for (int64_t j = 0; j < s->k; j++)
			s->mean[j] /= (float)s->rows;
		if (!isfinite(sum))
			return dt_err_set(w->err, -EDOM, "layer %d: inputs of '%s' are not finite", layer,
					  s->node.name);
	}
	return 0;
}

/* ---- matrices ---- */

/* Parameter i as numbers, with what the layer's scales have made of it. Malloc'd; NULL: err is set. */
static float *read_matrix(struct work *w, int i)
{
	const struct dt_param *p = &dt_source_params(w->s)->p[i];
	const int64_t off[2] = {0, 0}, cols = p->shape[1];
	float *x = malloc((size_t)dt_param_numel(p) * sizeof(*x));

	if (!x || dt_source_read(w->s, i, off, p->shape, DT_F32, x, w->err) < 0) {
		if (!x)
			dt_err_sys(w->err, -ENOMEM, "cannot round '%s'", p->name);
		free(x);
		return NULL;
	}
	for (int k = 0; k < w->nsite; k++) {
		const struct dt_site *s = &w->site[k];
		const bool columns = s->param[0] == i || s->param[1] == i || s->param[2] == i;

		if (!s->scale || (!columns && s->up != i))
			continue;
		for (int64_t r = 0; r < p->shape[0]; r++)
			for (int64_t j = 0; j < cols; j++)
				x[r * cols + j] *= columns ? s->scale[j] : 1 / s->scale[r];
	}
	return x;
}

static int scale_site(struct work *w, struct dt_site *s)
{
	float *x[3] = {NULL, NULL, NULL};
	int64_t rows[3] = {0, 0, 0};
	int rc = 0;

	for (int i = 0; i < 3 && rc == 0; i++) {
		if (s->param[i] < 0)
			continue;
		rows[i] = dt_source_params(w->s)->p[s->param[i]].shape[0];
		x[i] = read_matrix(w, s->param[i]);
		rc = x[i] ? 0 : w->err->code;
	}
	if (rc == 0)
		rc = dt_site_scale(s, w->r, w->dev, (const float *const *)x, rows, w->err);
	for (int i = 0; i < 3; i++)
		free(x[i]);
	return rc;
}

/* What makes the input of s gives it divided by the scale. */
static int divide_norm(struct work *w, const struct dt_site *s)
{
	const int64_t off = 0;
	int rc = 0;

	for (int i = 0; i < 2 && s->scale && rc == 0; i++) {
		float *x;

		if (s->norm[i] < 0)
			continue;
		x = malloc((size_t)s->k * sizeof(*x));
		rc = x ? dt_source_read(w->s, s->norm[i], &off, &s->k, DT_F32, x, w->err)
		       : dt_err_sys(w->err, -ENOMEM, "cannot scale a norm");
		for (int64_t j = 0; j < s->k && rc == 0; j++)
			x[j] = s->plus_one && i == 0 ? (1 + x[j]) / s->scale[j] - 1 : x[j] / s->scale[j];
		if (rc == 0)
			rc = dt_source_replace(w->s, s->norm[i], DT_FMT_F32, x, w->err);
		free(x);
	}
	return rc;
}

/* The factor of a product's inputs, for gptq. */
static int factor_of(struct work *w, const struct dt_site *s, int32_t **order, float **u)
{
	const size_t k = (size_t)s->k;

	*order = w->r->act_order ? malloc(k * sizeof(**order)) : NULL;
	*u = malloc(k * k * sizeof(**u));
	if (!*u || (w->r->act_order && !*order))
		return dt_err_sys(w->err, -ENOMEM, "cannot round '%s'", s->node.name);
	if (*order)
		dt_gptq_order(s->h, s->k, *order);
	return dt_gptq_factor(s->h, s->k, w->r->damping, *order, *u, w->err);
}

static int round_matrix(struct work *w, int i, const struct dt_gptq *g)
{
	const struct dt_param *p = &dt_source_params(w->s)->p[i];
	const enum dt_format f = g->format;
	const size_t row = dt_format_bytes(f, g->k);
	char *blocks = malloc((size_t)p->shape[0] * row);
	float *x = blocks ? read_matrix(w, i) : NULL;
	int rc = 0;

	if (!blocks)
		rc = dt_err_sys(w->err, -ENOMEM, "cannot round '%s'", p->name);
	else if (!x)
		rc = w->err->code;
	else if (g->u && dt_format_info(f)->dtype < 0)
		rc = dt_gptq_round(g, x, p->shape[0], blocks, w->err);
	else {
#pragma omp parallel for schedule(static)
		for (int64_t r = 0; r < p->shape[0]; r++)
			dt_quantize_weighted(f, x + r * g->k, g->k, g->importance, blocks + (size_t)r * row);
	}
	if (rc == 0)
		rc = dt_source_replace(w->s, i, f, blocks, w->err);
	w->matrices += rc == 0 && dt_format_info(f)->dtype < 0;
	free(x);
	free(blocks);
	return rc;
}

/* Parameter i without what counts least; root: of mean squares of the inputs, or NULL for magnitude. */
static int prune_matrix(struct work *w, int i, const float *root)
{
	const struct dt_param *p = &dt_source_params(w->s)->p[i];
	const int64_t rows = p->shape[0], k = p->shape[1];
	enum dt_format f = dt_source_format(w->s, i);
	float *x = read_matrix(w, i);
	int rc = x ? 0 : w->err->code;

	if (dt_format_info(f)->dtype < 0)
		f = DT_FMT_F32;
	if (rc == 0 && w->r->of && k % w->r->of)
		rc = dt_err_set(w->err, -EINVAL, "'%s' has rows of %lld, no multiple of %d", p->name,
				(long long)k, w->r->of);
	if (rc == 0 && !root && !w->r->of) {
		dt_prune_least(x, rows * k, NULL, (int64_t)((double)(rows * k) * w->r->sparsity));
	} else if (rc == 0) {
#pragma omp parallel for schedule(static)
		for (int64_t r = 0; r < rows; r++)
			if (w->r->of)
				dt_prune_pattern(x + r * k, k, root, w->r->keep, w->r->of);
			else
				dt_prune_least(x + r * k, k, root, (int64_t)((double)k * w->r->sparsity));
	}
	if (rc == 0) { /* in place: no type is wider than f32 */
		for (int64_t r = 0; f != DT_FMT_F32 && r < rows; r++)
			dt_quantize(f, x + r * k, k, (char *)x + (size_t)r * dt_format_bytes(f, k));
		rc = dt_source_replace(w->s, i, f, x, w->err);
	}
	w->matrices += rc == 0;
	free(x);
	return rc;
}

/* Those of all layers, without a text. */
static int prune_all(struct work *w)
{
	const struct dt_params *t = dt_source_params(w->s);
	int rc = 0;

	for (int i = 0; i < t->n && rc == 0; i++) {
		if (t->p[i].ndim == 2 && t->p[i].layer >= 0 && dt_lora_target(t->p[i].role, DT_LORA_ALL))
			rc = prune_matrix(w, i, NULL);
		if (rc == 0 && w->r->progress && !w->r->progress(w->r->arg, (uint64_t)i + 1, (uint64_t)t->n))
			rc = dt_err_sys(w->err, -ECANCELED, "stopped");
	}
	return rc;
}

static int prune_site(struct work *w, const struct dt_site *s)
{
	float *root = malloc((size_t)s->k * sizeof(*root));
	int rc = root ? 0 : dt_err_sys(w->err, -ENOMEM, "cannot prune '%s'", s->node.name);

	for (int64_t j = 0; j < s->k && rc == 0; j++)
		root[j] = sqrtf(s->h[j]);
	for (int i = 0; i < 3 && rc == 0; i++)
		if (s->param[i] >= 0)
			rc = prune_matrix(w, s->param[i], root);
	free(root);
	return rc;
}

/* The matrices of one product. */
static int round_site(struct work *w, const struct dt_site *s)
{
	float *importance = malloc((size_t)s->k * sizeof(*importance)), *u = NULL;
	struct dt_gptq g = {.format = s->format, .k = s->k, .importance = importance};
	int32_t *order = NULL;
	int rc = importance ? 0 : dt_err_sys(w->err, -ENOMEM, "cannot round '%s'", s->node.name);

	for (int64_t j = 0; j < s->k && rc == 0; j++) {
		float scale = s->scale ? s->scale[j] : 1;

		importance[j] = s->h[needs_products(w) ? j * s->k + j : j] / (scale * scale);
	}
	if (rc == 0 && w->r->method == DT_ROUND_GPTQ)
		rc = factor_of(w, s, &order, &u);
	g.u = u;
	g.order = order;
	for (int i = 0; i < 3 && rc == 0; i++)
		if (s->param[i] >= 0)
			rc = round_matrix(w, s->param[i], &g);
	free(importance);
	free(order);
	free(u);
	return rc;
}

static int round_layer(struct work *w, int unit)
{
	const int layer = dt_walk_layer(w->walk, unit);
	const bool prune = w->r->method == DT_ROUND_WANDA, again = prune || w->r->method == DT_ROUND_GPTQ;
	int rc = dt_walk_unit(w->walk, unit, !again, sum_up, w, w->err), first, end;
	const struct dt_prog *p = dt_walk_program(w->walk, unit, &first, &end);

	if (rc == 0)
		rc = finish_sites(w, layer);
	for (int i = 0; i < w->nsite && rc == 0; i++) {
		find_divided(w, &w->site[i], p, first, end);
		if (w->r->method == DT_ROUND_AWQ || w->r->method == DT_ROUND_SMOOTH)
			rc = scale_site(w, &w->site[i]);
	}
	for (int i = 0; i < w->nsite && rc == 0; i++)
		rc = divide_norm(w, &w->site[i]);
	for (int i = 0; i < w->nsite && rc == 0; i++)
		rc = prune ? prune_site(w, &w->site[i]) : round_site(w, &w->site[i]);
	release_sites(w);
	if (rc == 0 && again && (rc = dt_infer_reload_layer(w->infer, w->s, layer, w->err)) == 0)
		rc = dt_walk_unit(w->walk, unit, true, NULL, NULL, w->err);
	return rc;
}

static int round_all(struct work *w)
{
	const int n = dt_walk_units(w->walk);
	int rc = 0;

	for (int u = 0; u < n && rc == 0; u++) {
		const int layer = dt_walk_layer(w->walk, u);

		if (layer >= 0 && layer < dt_source_config(w->s)->layers)
			rc = round_layer(w, u);
		else if (layer < 0)
			rc = dt_walk_unit(w->walk, u, true, NULL, NULL, w->err);
		if (rc == 0 && w->r->progress && !w->r->progress(w->r->arg, (uint64_t)u + 1, (uint64_t)n))
			rc = dt_err_sys(w->err, -ECANCELED, "stopped");
	}
	return rc;
}

int dt_round_source(void *rounding, struct dt_source **s, struct dt_err *err)
{
	return dt_source_rounded(*s, rounding, s, err);
}

int dt_source_rounded(struct dt_source *s, struct dt_rounding *r, struct dt_source **ret, struct dt_err *err)
{
	struct work w = {.r = r, .err = err};
	int rc;

	if (!dt_rounding_prunes(r->method) && dt_format_info(r->format)->dtype >= 0) {
		dt_source_close(s);
		return dt_err_set(err, -EINVAL, "%s has no blocks to round to",
				  dt_format_info(r->format)->name);
	}
	rc = dt_source_replaced(s, r->near, &w.s, err);
	if (rc < 0)
		return rc;
	if (r->method == DT_ROUND_MAGNITUDE)
		rc = prune_all(&w);
	else if ((rc = open_model(&w)) == 0)
		rc = round_all(&w);
	dt_walk_close(w.walk);
	if (w.infer)
		dt_infer_close(w.infer);
	if (w.dev)
		dt_dev_close(w.dev);
	if (w.tok)
		dt_tokenizer_close(w.tok);
	release_sites(&w);
	free(w.ids);
	if (rc < 0) {
		dt_source_close(w.s);
		return rc;
	}
	r->read = w.nseq * w.len;
	r->matrices = w.matrices;
	*ret = w.s;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
