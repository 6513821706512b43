#include "eval/rounding_sites.h"

#include "data/unpack.h"
#include "eval/gptq.h"
#include "eval/model.h"
#include "eval/prune.h"
#include "kernels/quant_grid.h"
#include "model/program.h"
#include "plan/formulas.h"
#include "plan/inferplan.h"
#include "serve/api/served.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TEXT ((size_t)1 << 30)
#define BLOCK	  16

/* ---- the text ---- */

static int read_text(struct dt_rounding_work *w)
{
	const int64_t most = w->r->tokens ? w->r->tokens : DT_ROUNDING_TOKENS;
	const struct dt_config *c = dt_source_config(w->s);
	char *text = NULL;
	size_t n = 0, count = 0;
	int rc = unpack_whole(w->r->text, MOST_TEXT, &text, &n, w->err);

	if (rc == 0)
		rc = dt_tokenizer_encode(w->tok, text, n, false, &w->ids, &count, w->err);
	free(text);
	if (rc < 0)
		return rc;
	w->len = w->r->seq ? w->r->seq : c->max_seq < DT_ROUNDING_SEQ ? c->max_seq : DT_ROUNDING_SEQ;
	if (w->len > dt_config_positions(c))
		return dt_err_set(w->err, -EINVAL,
				  "windows of %lld tokens exceed the %lld positions of the model",
				  (long long)w->len, (long long)dt_config_positions(c));
	w->nseq = ((int64_t)count < most ? (int64_t)count : most) / w->len;
	if (w->nseq < 1)
		return dt_err_set(w->err, -EINVAL, "'%s' has %zu tokens, fewer than one window of %lld",
				  w->r->text, count, (long long)w->len);
	return 0;
}

static int open_model(struct dt_rounding_work *w)
{
	struct dt_infer_params p = {
		.dtype = DT_F32, .cache = DT_F32, .weights = -1, .max_seqs = 1, .states = 1};
	int rc = dt_config_servable(dt_source_config(w->s), w->err);

	if (rc == 0)
		rc = dt_served_tokenizer(w->s, w->r->tokenizer, &w->tok, w->err);
	if (rc == 0)
		rc = read_text(w);
	if (rc == 0 && (rc = dt_dev_open(&w->dev, DT_DEV_CPU, 0, w->threads)) < 0)
		dt_err_sys(w->err, rc, "cannot compute");
	if (rc < 0)
		return rc;
	p.max_tokens = p.max_len = (int)w->len;
	p.block_size = (int)dt_infer_block(dt_source_config(w->s), BLOCK, w->len);
	p.blocks = (int)((w->len + p.block_size - 1) / p.block_size);
	rc = dt_infer_open(&w->infer, w->dev, w->s, &p, w->err);
	return rc < 0 ? rc : dt_walk_open(&w->walk, w->infer, w->ids, w->nseq, w->len, w->err);
}

/* ---- a layer's products and their inputs ---- */

/* ---- matrices ---- */

/* Reads parameter i in f32, multiplied by the layer's scales. Malloc'd; NULL: err is set. */
static float *read_matrix(struct dt_rounding_work *w, int i)
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

static int scale_site(struct dt_rounding_work *w, struct dt_site *s)
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

/* Divides the norm before s by the scale, so that the product's input is divided. */
static int divide_norm(struct dt_rounding_work *w, const struct dt_site *s)
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

/* Computes the factor (and order) of a product's inputs for GPTQ. */
static int factor_of(struct dt_rounding_work *w, const struct dt_site *s, int32_t **order, float **u)
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

static int round_matrix(struct dt_rounding_work *w, int i, const struct dt_gptq *g)
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

/* Zeroes the least important elements of parameter i; root: RMS of the inputs, NULL: by magnitude. */
static int prune_matrix(struct dt_rounding_work *w, int i, const float *root)
{
	const struct dt_param *p = &dt_source_params(w->s)->p[i];
	const int64_t rows = p->shape[0], k = p->shape[1];
	enum dt_format f = dt_source_format(w->s, i);
	float *x = read_matrix(w, i);
	int rc = x ? 0 : w->err->code;

	if (dt_format_info(f)->dtype < 0)
		f = DT_FMT_F32;
	if (rc == 0 && w->r->of && k % w->r->of)
		rc = dt_err_set(w->err, -EINVAL, "'%s' has rows of %lld elements, not a multiple of %d",
				p->name, (long long)k, w->r->of);
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
	if (rc == 0) { /* in place: no format is wider than f32 */
		for (int64_t r = 0; f != DT_FMT_F32 && r < rows; r++)
			dt_quantize(f, x + r * k, k, (char *)x + (size_t)r * dt_format_bytes(f, k));
		rc = dt_source_replace(w->s, i, f, x, w->err);
	}
	w->matrices += rc == 0;
	free(x);
	return rc;
}

/* Prunes the matrices of all layers, without a text. */
static int prune_all(struct dt_rounding_work *w)
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

static int prune_site(struct dt_rounding_work *w, const struct dt_site *s)
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

/* Rounds the matrices of one product. */
static int round_site(struct dt_rounding_work *w, const struct dt_site *s)
{
	float *importance = malloc((size_t)s->k * sizeof(*importance)), *u = NULL;
	struct dt_gptq g = {.format = s->format, .k = s->k, .importance = importance};
	int32_t *order = NULL;
	int rc = importance ? 0 : dt_err_sys(w->err, -ENOMEM, "cannot round '%s'", s->node.name);

	for (int64_t j = 0; j < s->k && rc == 0; j++) {
		float scale = s->scale ? s->scale[j] : 1;

		importance[j] = s->h[dt_sites_products(w) ? j * s->k + j : j] / (scale * scale);
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

static int round_layer(struct dt_rounding_work *w, int unit)
{
	const int layer = dt_walk_layer(w->walk, unit);
	const bool prune = w->r->method == DT_ROUND_WANDA, again = prune || w->r->method == DT_ROUND_GPTQ;
	int rc = dt_walk_unit(w->walk, unit, !again, dt_sites_sum_up, w, w->err), first, end;
	const struct dt_prog *p = dt_walk_program(w->walk, unit, &first, &end);

	if (rc == 0)
		rc = dt_sites_finish(w, layer);
	for (int i = 0; i < w->nsite && rc == 0; i++) {
		dt_site_find_divided(w, &w->site[i], p, first, end);
		if (w->r->method == DT_ROUND_AWQ || w->r->method == DT_ROUND_SMOOTH)
			rc = scale_site(w, &w->site[i]);
	}
	for (int i = 0; i < w->nsite && rc == 0; i++)
		rc = divide_norm(w, &w->site[i]);
	for (int i = 0; i < w->nsite && rc == 0; i++)
		rc = prune ? prune_site(w, &w->site[i]) : round_site(w, &w->site[i]);
	dt_sites_release(w);
	if (rc == 0 && again && (rc = dt_infer_reload_layer(w->infer, w->s, layer, w->err)) == 0)
		rc = dt_walk_unit(w->walk, unit, true, NULL, NULL, w->err);
	return rc;
}

static int round_all(struct dt_rounding_work *w)
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
	static const uint8_t no_block[256];
	struct dt_rounding_work w = {.r = r, .threads = dt_eval_threads(r->threads), .err = err};
	struct dt_grid grid;
	int rc;

	if (!dt_rounding_prunes(r->method) && dt_format_info(r->format)->dtype >= 0) {
		dt_source_close(s);
		return dt_err_set(err, -EINVAL, "%s is not a format of quantized blocks",
				  dt_format_info(r->format)->name);
	}
	if (r->method == DT_ROUND_GPTQ && !dt_grid_of(r->format, no_block, &grid)) {
		dt_source_close(s);
		return dt_err_set(err, -EINVAL,
				  "gptq rounds single weights, but %s codes several together: use another "
				  "method, such as rtn or awq",
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
	dt_sites_release(&w);
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
