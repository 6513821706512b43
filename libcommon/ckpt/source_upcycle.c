/*
 * A dense model as a mixture of experts (Komatsuzaki et al. 2022, sparse upcycling): every expert is a copy
 * of the MLP, the router is drawn from N(0, 0.02). The weights of a token's experts sum to 1, so the first
 * forward equals the dense model's.
 */
#include "ckpt/export.h"
#include "ckpt/source_internal.h"

#include "base/rng.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUTER_STD 0.02f

static const char *family_of(const struct dt_config *c)
{
	static const char *const families[][2] = {
		{"llama", "mixtral"}, {"mistral", "mixtral"}, {"qwen3", "qwen3_moe"}};

	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
		if (!strcmp(c->family, families[i][0]) && !c->mlp_bias && !c->qkv_bias && !c->out_bias)
			return families[i][1];
	return NULL;
}

static int describe(const struct dt_source *dense, int64_t experts, int64_t used, struct dt_config *ret,
		    struct dt_err *err)
{
	struct dt_config c = dense->config;
	const char *family = family_of(&c);

	if (!family)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' is a %s%s: only llama, mistral and qwen3 without biases can become "
				  "mixtures of experts",
				  dense->path, c.family, c.qkv_bias || c.mlp_bias ? " with biases" : "");
	if (used > experts)
		return dt_err_set(err, -EINVAL, "--top-k %lld is more than the %lld experts", (long long)used,
				  (long long)experts);
	snprintf(c.family, sizeof(c.family), "%s", family);
	c.experts = experts;
	c.experts_used = used;
	c.expert_ffn = c.ffn;
	*ret = c;
	return dt_config_check(&c, err);
}

static enum dt_role dense_role(enum dt_role r)
{
	return r == DT_W_EXPERT_GATE   ? DT_W_GATE
	       : r == DT_W_EXPERT_UP   ? DT_W_UP
	       : r == DT_W_EXPERT_DOWN ? DT_W_DOWN
				       : r;
}

/* The dense model's parameter that p copies; -1: none. */
static int origin(const struct dt_source *dense, const struct dt_param *p)
{
	for (int i = 0; i < dense->params.n; i++)
		if (dense->params.p[i].layer == p->layer && dense->params.p[i].role == dense_role(p->role))
			return i;
	return -1;
}

static void draw_router(const struct dt_source *s, const struct dt_param *p, const int64_t *off,
			const int64_t *shape, float *x)
{
	struct dt_rng r = dt_rng_make(s->seed, DT_RNG_INIT, dt_hash_str(p->name));

	for (int64_t i = 0; i < shape[0]; i++)
		dt_rng_fill_normal(&r, (uint64_t)((off[0] + i) * p->shape[1] + off[1]), x + i * shape[1],
				   (uint64_t)shape[1], 0, ROUTER_STD);
}

/* Reads a box of parameter i in f32; an expert's rows are the MLP's. */
static int read_box(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x,
		    struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	struct dt_source *dense = s->mean[0];
	int from = s->from[i], rc = 0;
	int64_t rows;

	if (p->role == DT_W_ROUTER) {
		draw_router(s, p, off, shape, x);
		return 0;
	}
	if (from < 0)
		return dt_err_set(err, -ENOTSUP, "'%s' has no tensor to make '%s' from", dense->path,
				  p->name);
	if (!p->experts)
		return dt_source_read(dense, from, off, shape, DT_F32, x, err);
	rows = p->shape[0] / p->experts;
	for (int64_t r = 0, n; r < shape[0] && rc == 0; r += n) {
		int64_t at[2] = {(off[0] + r) % rows, off[1]}, part[2] = {0, shape[1]};

		n = rows - at[0] < shape[0] - r ? rows - at[0] : shape[0] - r;
		part[0] = n;
		rc = dt_source_read(dense, from, at, part, DT_F32, x + r * shape[1], err);
	}
	return rc;
}

int dt_source_upcycle(struct dt_source *dense, int64_t experts, int64_t used, uint64_t seed,
		      struct dt_source **ret, struct dt_err *err)
{
	struct dt_source *s = calloc(1, sizeof(*s));
	int rc = s ? describe(dense, experts, used, &s->config, err) : -ENOMEM;

	if (rc == 0) {
		s->kind = DT_SOURCE_DT;
		s->seed = seed;
		s->path = strdup(dense->path);
		s->mean = malloc(sizeof(struct dt_source *));
		rc = s->path && s->mean ? dt_model_params(&s->config, &s->params, err) : -ENOMEM;
	}
	if (rc == 0 && !(s->from = malloc((size_t)s->params.n * sizeof(*s->from))))
		rc = -ENOMEM;
	if (rc < 0) {
		dt_source_close(dense);
		dt_source_close(s);
		return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot upcycle") : rc;
	}
	for (int i = 0; i < s->params.n; i++)
		s->from[i] = origin(dense, &s->params.p[i]);
	s->box = read_box;
	src_made_of(s, &dense, 1);
	*ret = s;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
