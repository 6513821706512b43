/* Checks of model configurations, and values derived from them. */
#include "model/config.h"

#include "kernels/activation.h"
#include "kernels/class_loss.h"
#include "kernels/ssm.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_PARAMS 1e17

static int check_range(const char *what, int64_t v, int64_t min, int64_t max, struct dt_err *err)
{
	if (v >= min && v <= max)
		return 0;
	return dt_err_set(err, -EINVAL, "impossible model: %s is %lld (allowed: %lld to %lld)", what,
			  (long long)v, (long long)min, (long long)max);
}

static int check_sizes(const struct dt_config *c, struct dt_err *err)
{
	const bool ssm = c->ssm_heads > 0;
	const struct {
		const char *what;
		int64_t v, min, max;
	} sizes[] = {
		{"vocabulary", c->vocab, 1, 1 << 24},
		{"hidden size", c->hidden, 1, 1 << 20},
		{"feed-forward size", c->ffn, !ssm, 1 << 22},
		{"number of layers", c->layers, 1, 4096},
		{"number of heads", c->heads, 1, 4096},
		{"number of kv heads", c->kv_heads, 1, c->heads},
		{"head dimension", c->head_dim, 1, 1 << 14},
		{"longest sequence", c->max_seq, 1, 1 << 30},
		{"attention window", c->window, 0, 1 << 30},
		{"bos id", c->bos, -1, c->vocab - 1},
		{"eos id", c->eos, -1, c->vocab - 1},
		{"period of global layers", c->global_every, 0, 4096},
		{"dimension that scales scores", c->score_dim, 0, 1 << 20},
		{"number of experts", c->experts, 0, 4096},
		{"number of experts used", c->experts_used, c->experts > 0, c->experts},
		{"width of an expert", c->expert_ffn, c->experts > 0, 1 << 22},
		{"width of shared experts", c->shared_ffn, 0, 1 << 22},
		{"number of modules for further tokens", c->mtp_layers, 0, 1},
		{"number of dense layers", c->dense_layers, 0, c->layers},
		{"number of groups of experts", c->router_groups, 0, c->experts},
		{"number of groups used", c->router_groups_used, c->router_groups > 0, c->router_groups},
		{"rank of latent attention", c->kv_rank, 0, 1 << 16},
		{"rank of the queries", c->q_rank, 0, 1 << 16},
		{"rotated part of a head", c->rope_dim, c->kv_rank > 0, c->head_dim},
		{"width of a value head", c->v_dim, c->kv_rank > 0, 1 << 14},
		{"number of Mamba-2's heads", c->ssm_heads, 0, 4096},
		{"dimension of Mamba-2's heads", c->ssm_head_dim, ssm, 1 << 12},
		{"number of Mamba-2's groups", c->ssm_groups, ssm, c->ssm_heads},
		{"state of Mamba-2's heads", c->ssm_state, ssm, 1 << 12},
		{"width of Mamba-2's convolution", c->ssm_kernel, ssm, DT_SSM_KERNEL},
		{"number of token types", c->token_types, 0, 1 << 16},
		{"first position", c->pos_first, 0, 1 << 16},
		{"number of labels", c->labels, c->head == DT_ENCODER_CLASSES, 1 << 20},
		{"id of the mask token", c->mask_token, 0, c->vocab - 1},
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		rc = check_range(sizes[i].what, sizes[i].v, sizes[i].min, sizes[i].max, err);
	return rc;
}

/* Each size is possible, but together they may exceed what 64 bits count, as bytes of a training run. */
static int check_total(const struct dt_config *c, struct dt_err *err)
{
	const double wide = (double)c->ffn, experts = (double)c->experts * (double)c->expert_ffn,
		     mlp = 3 * fmax(wide, experts + (double)c->shared_ffn),
		     heads = (double)(2 * c->heads + 2 * c->kv_heads) * (double)c->head_dim +
			     (double)c->ssm_heads * (double)(3 * c->ssm_head_dim + 1) +
			     2 * (double)c->ssm_groups * (double)c->ssm_state,
		     total = (double)c->hidden *
			     (2 * (double)c->vocab + (double)dt_config_blocks_all(c) * (heads + mlp));

	return total <= MOST_PARAMS
		       ? 0
		       : dt_err_set(err, -EINVAL, "impossible model: it has %.2g parameters (at most %g)",
				    total, MOST_PARAMS);
}

static int check_longrope(const struct dt_config *c, struct dt_err *err)
{
	const int64_t half = dt_rope_dim(c) / 2;

	if (half > DT_ROPE_FACTORS || !(c->rope_mscale > 0) || !isfinite(c->rope_mscale))
		return dt_err_set(err, -EINVAL,
				  "impossible model: LongRoPE with heads of %lld elements and %g as the "
				  "factor of cos and sin",
				  (long long)dt_rope_dim(c), c->rope_mscale);
	for (int64_t i = 0; i < half; i++)
		if (!(c->rope_short[i] > 0) || !(c->rope_long[i] > 0) || !isfinite(c->rope_short[i]) ||
		    !isfinite(c->rope_long[i]))
			return dt_err_set(err, -EINVAL,
					  "impossible model: LongRoPE divides pair %lld by %g or %g",
					  (long long)i, (double)c->rope_short[i], (double)c->rope_long[i]);
	return 0;
}

static int check_rope(const struct dt_config *c, struct dt_err *err)
{
	if (c->head_dim % 2 || dt_rope_dim(c) % 2)
		return dt_err_set(err, -EINVAL,
				  "impossible model: rotary positions need an even head dimension, not %lld",
				  (long long)(c->head_dim % 2 ? c->head_dim : dt_rope_dim(c)));
	if (!(c->rope_theta > 1) || !isfinite(c->rope_theta))
		return dt_err_set(err, -EINVAL, "impossible model: rotary base (rope_theta) is %g",
				  c->rope_theta);
	if (c->rope_local_theta != 0 && (!(c->rope_local_theta > 1) || !isfinite(c->rope_local_theta)))
		return dt_err_set(err, -EINVAL, "impossible model: the windows' rotary base is %g",
				  c->rope_local_theta);
	if (c->rope_scaling == DT_ROPE_SCALING_NONE)
		return 0;
	if (!(c->rope_factor >= 1) || !isfinite(c->rope_factor))
		return dt_err_set(err, -EINVAL, "impossible model: rotary scaling factor is %g",
				  c->rope_factor);
	if (c->rope_scaling == DT_ROPE_SCALING_LINEAR || c->rope_scaling == DT_ROPE_SCALING_NTK)
		return 0;
	if (c->rope_scaling == DT_ROPE_SCALING_YARN &&
	    (!(c->rope_beta_slow > 0) || !(c->rope_beta_fast > c->rope_beta_slow) ||
	     !isfinite(c->rope_beta_fast) || !(c->rope_mscale > 0) || !isfinite(c->rope_mscale)))
		return dt_err_set(err, -EINVAL,
				  "impossible model: YaRN's betas are %g and %g (fast, slow), its factor of "
				  "cos and sin %g",
				  c->rope_beta_fast, c->rope_beta_slow, c->rope_mscale);
	if (c->rope_scaling == DT_ROPE_SCALING_LONGROPE && check_longrope(c, err) < 0)
		return -EINVAL;
	if (c->rope_scaling == DT_ROPE_SCALING_LLAMA3 &&
	    (!(c->rope_low_freq > 0) || !(c->rope_high_freq > c->rope_low_freq) ||
	     !isfinite(c->rope_high_freq)))
		return dt_err_set(err, -EINVAL,
				  "impossible model: rotary frequency factors are %g and %g (low, high)",
				  c->rope_low_freq, c->rope_high_freq);
	return check_range("rotary scaling's original length", c->rope_original_seq, 1, 1 << 30, err);
}

static int check_router(const struct dt_config *c, struct dt_err *err)
{
	if (!(c->router_scale >= 0) || c->router_scale > 1e6)
		return dt_err_set(err, -EINVAL, "impossible model: weights of experts are scaled by %g",
				  c->router_scale);
	if (c->router_groups && (c->experts % c->router_groups ||
				 c->router_groups_used * (c->experts / c->router_groups) < c->experts_used))
		return dt_err_set(err, -EINVAL,
				  "impossible model: the router cannot choose %lld of %lld experts from %lld "
				  "of %lld groups",
				  (long long)c->experts_used, (long long)c->experts,
				  (long long)c->router_groups_used, (long long)c->router_groups);
	return 0;
}

static int check_factors(const struct dt_config *c, struct dt_err *err)
{
	const double v[] = {c->embed_factor, c->score_factor, c->residual_factor, c->logit_divisor};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		if (v[i] != 0 && (!(v[i] >= 1e-6) || v[i] > 1e6))
			return dt_err_set(
				err, -EINVAL,
				"impossible model: embeddings, scores or residuals are multiplied, or "
				"logits divided, by %g",
				v[i]);
	if (c->residual_factor > 0 && (c->norm != DT_NORM_RMS || c->no_pre_norms))
		return dt_err_set(err, -EINVAL,
				  "impossible model: residuals are multiplied by %g without "
				  "RMSNorms of their sum",
				  c->residual_factor);
	return 0;
}

static int check_encoder(const struct dt_config *c, struct dt_err *err)
{
	const char *what = (c->pos != DT_POS_LEARNED && !c->sees) || c->norm != DT_NORM_LAYER
				   ? "other than learned "
				     "positions and LayerNorms"
			   : c->gated || c->experts ? "gates or experts"
			   : c->window		    ? "a window"
						    : NULL;

	return what ? dt_err_set(err, -EINVAL, "impossible model: an encoder with %s", what) : 0;
}

/* Patches and rows must fit: the tower's own checks are those of an encoder. */
static int check_tower(const struct dt_config *c, struct dt_err *err)
{
	const struct dt_tower *t = &c->tower;
	const struct {
		const char *what;
		int64_t v, min, max;
	} sizes[] = {
		{"size of the tower of vision", t->hidden, 1, 1 << 16},
		{"feed-forward size of the tower", t->ffn, 1, 1 << 20},
		{"number of layers of the tower", t->layers, 1, 4096},
		{"number of heads of the tower", t->heads, 1, 4096},
		{"side of a patch", t->patch, 1, 1 << 10},
		{"number of channels", t->channels, 3, 3},
		{"side of an image", t->side, t->patch, 1 << 14},
		{"number of patches that are joined", t->join, 1, 64},
		{"size of a row of an image", t->out, c->sees ? 1 : c->hidden, c->sees ? 1 << 20 : c->hidden},
		{"id of the image token", t->token, 0, c->sees ? INT32_MAX : c->vocab - 1},
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		rc = check_range(sizes[i].what, sizes[i].v, sizes[i].min, sizes[i].max, err);
	if (rc == 0 && t->hidden % t->heads)
		rc = dt_err_set(err, -EINVAL, "impossible model: %lld heads over %lld columns of a tower",
				(long long)t->heads, (long long)t->hidden);
	if (rc == 0 && (!(t->norm_eps > 0) || !(t->norm_eps < 1)))
		rc = dt_err_set(err, -EINVAL, "impossible model: the epsilon of the tower's norms is %g",
				t->norm_eps);
	return rc;
}

int64_t dt_config_ssm_layers(const struct dt_config *c, int64_t first, int64_t end)
{
	int64_t n = 0;

	for (int64_t l = first; c->ssm_heads && l < end; l++)
		n += dt_layer_is_ssm(c, l);
	return n;
}

/* Models with layers of Mamba-2, alone or beside layers with attention. */
static int check_ssm(const struct dt_config *c, struct dt_err *err)
{
	const char *what =
		c->norm != DT_NORM_RMS || c->pos == DT_POS_LEARNED ? "LayerNorms or learned positions"
		: c->pos != DT_POS_NONE && !dt_config_attends(c)   ? "positions, but no attention"
		: c->kv_rank || c->mtp_layers || c->encoder || c->dense_layers
			? "latents, modules for further tokens, dense layers or an encoder's head"
		: c->norm_plus_one || c->post_norms || c->no_pre_norms || c->parallel_residual || c->one_norm
			? "other norms or sums than one norm in front of mixer and MLP"
			: NULL;

	if (c->ssm_heads % c->ssm_groups)
		return dt_err_set(err, -EINVAL,
				  "impossible model: %lld heads of Mamba-2 cannot share %lld groups evenly",
				  (long long)c->ssm_heads, (long long)c->ssm_groups);
	return what ? dt_err_set(err, -EINVAL, "impossible model: Mamba-2 with %s", what) : 0;
}

/* The list of layers with attention. */
static int check_list(const struct dt_config *c, struct dt_err *err)
{
	for (int64_t l = 0; l < DT_LISTED_LAYERS; l++)
		if (dt_layer_is_listed(c, l) && (!c->ssm_heads || l >= c->layers))
			return dt_err_set(err, -EINVAL,
					  "impossible model: layer %lld is listed as one with attention, but "
					  "%s",
					  (long long)l,
					  c->ssm_heads ? "there are fewer layers" : "all layers have it");
	return 0;
}

int dt_config_check(const struct dt_config *c, struct dt_err *err)
{
	int rc = dt_config_is_image(c) ? dt_config_check_image(c, err) : check_sizes(c, err);

	if (rc < 0 || dt_config_is_image(c))
		return rc;
	if (c->kv_rank && c->kv_heads != c->heads)
		return dt_err_set(err, -EINVAL,
				  "impossible model: latent attention has a key for each of %lld heads, not "
				  "%lld",
				  (long long)c->heads, (long long)c->kv_heads);
	if (c->heads % c->kv_heads)
		return dt_err_set(err, -EINVAL,
				  "impossible model: %lld heads cannot share %lld kv heads evenly",
				  (long long)c->heads, (long long)c->kv_heads);
	if (!(c->norm_eps > 0) || !(c->norm_eps < 1))
		return dt_err_set(err, -EINVAL, "impossible model: the norm's epsilon is %g", c->norm_eps);
	if (!(c->init_std >= 0) || !(c->init_std < 100))
		return dt_err_set(err, -EINVAL, "impossible model: the initial standard deviation is %g",
				  c->init_std);
	if (!(c->score_cap >= 0) || !(c->logit_cap >= 0) || c->score_cap > 1e6 || c->logit_cap > 1e6)
		return dt_err_set(err, -EINVAL, "impossible model: scores are capped at %g, logits at %g",
				  c->score_cap, c->logit_cap);
	if (check_factors(c, err) < 0)
		return -EINVAL;
	if (c->one_norm && (!c->parallel_residual || c->no_pre_norms))
		return dt_err_set(
			err, -EINVAL,
			"impossible model: one norm for attention and MLP that do not read the same "
			"stream");
	if ((c->encoder && check_encoder(c, err) < 0) || (c->ssm_heads && check_ssm(c, err) < 0))
		return -EINVAL;
	if (c->tower.hidden && check_tower(c, err) < 0)
		return -EINVAL;
	if (c->act == DT_ACT_SILU_CLAMPED && !c->gated)
		return dt_err_set(err, -EINVAL, "impossible model: a clamped activation without gates");
	if (c->attn_sinks && c->kv_rank)
		return dt_err_set(err, -EINVAL, "impossible model: attention sinks beside latents");
	if (check_list(c, err) < 0 || check_router(c, err) < 0 || check_total(c, err) < 0)
		return -EINVAL;
	return c->pos == DT_POS_ROPE ? check_rope(c, err) : 0;
}

static int refuse(const struct dt_config *c, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -ENOTSUP, "'%s' has %s, which can only be estimated so far", c->name, what);
}

int dt_config_set_vocab(struct dt_config *c, int64_t vocab, struct dt_err *err)
{
	if (!vocab || vocab == c->vocab)
		return 0;
	c->vocab = vocab;
	c->mask_token = 0; /* another vocabulary has another */
	if (c->bos >= vocab)
		c->bos = -1;
	if (c->eos >= vocab)
		c->eos = -1;
	return dt_config_check(c, err);
}

int dt_config_servable(const struct dt_config *c, struct dt_err *err)
{
	const char *what = c->kv_rank && c->rope_dim == c->head_dim    ? "latent keys that are rotated whole"
			   : c->experts && !c->gated		       ? "experts without gates"
			   : c->post_norms && c->norm == DT_NORM_LAYER ? "norms with biases after attention"
								       : NULL;

	if (dt_config_is_image(c))
		return dt_err_set(err, -ENOTSUP, "'%s' is an image classifier: it generates no text",
				  c->name);
	if (c->encoder)
		return dt_err_set(err, -ENOTSUP, "'%s' is an encoder: it predicts no next token", c->name);
	return what ? refuse(c, what, err) : 0;
}

int dt_config_module(const struct dt_config *c, struct dt_config *ret, struct dt_err *err)
{
	struct dt_config m = *c;

	if (!c->mtp_layers)
		return dt_err_set(err, -EINVAL, "'%s' has no module for a further token", c->name);
	m.module = true;
	m.layers = 1;
	m.mtp_layers = 0;
	m.dense_layers = !dt_layer_has_experts(c, c->layers);
	m.value_head = false;
	*ret = m;
	return 0;
}

int dt_config_tower(const struct dt_config *c, struct dt_config *ret, struct dt_err *err)
{
	const struct dt_tower *t = &c->tower;
	const int64_t side = t->hidden ? t->side / t->patch : 0;
	struct dt_config m = {.vocab = side * side,
			      .hidden = t->hidden,
			      .ffn = t->ffn,
			      .layers = t->layers,
			      .heads = t->heads,
			      .kv_heads = t->heads,
			      .max_seq = 1 << 20,
			      .norm = DT_NORM_LAYER,
			      .norm_eps = t->norm_eps,
			      .pos = DT_POS_NONE, /* tokens are positions */
			      .act = t->act,
			      .qkv_bias = true,
			      .out_bias = true,
			      .mlp_bias = true,
			      .encoder = true,
			      .head = DT_ENCODER_NONE,
			      .bos = -1,
			      .eos = -1,
			      .init_std = 0.02,
			      .tower = *t,
			      .sees = true};
	int rc;

	if (!t->hidden)
		return dt_err_set(err, -EINVAL, "'%s' has no tower of vision", c->name);
	snprintf(m.name, sizeof(m.name), "%s", c->name);
	snprintf(m.family, sizeof(m.family), "siglip_tower");
	m.head_dim = m.hidden / m.heads;
	if ((rc = dt_config_check(&m, err)) < 0)
		return rc;
	*ret = m;
	return 0;
}

int dt_config_computable(const struct dt_config *c, struct dt_err *err)
{
	if (c->tower.hidden)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' reads images with a tower of vision, which is served but not trained",
				  c->name);
	if (c->encoder && c->head == DT_ENCODER_NONE) {
		dt_err_set(err, -ENOTSUP,
			   "'%s' has no head that predicts masked tokens, which training needs", c->name);
		dt_err_hint(err,
			    "a data set of 'dt-dataset labels', or --labels N, gives it one for classes");
		return -ENOTSUP;
	}
	if (dt_config_has_labels(c) && c->label_loss != DT_CLASS_LOSS_CE && c->labels != 1)
		return refuse(c, "a loss of scores over several classes", err);
	if (c->post_norms && c->norm == DT_NORM_LAYER)
		return refuse(c, "norms with biases after attention", err);
	return 0;
}

/* The multiple of step nearest to v, at least step. */
static int64_t nearest(double v, int64_t step)
{
	int64_t n = (int64_t)(v / (double)step + 0.5);

	return (n < 1 ? 1 : n) * step;
}

/*
 * The shape of a Llama-like model of about `params` parameters. Llama 2 has a width of 128 per layer at every
 * size and 12 h^2 parameters a layer, so P = 12 h^3 / 128 plus embeddings. The number of heads, and of layers
 * from 16 on, is a multiple of 8, so that tp and pp can divide it.
 */
static void shape_of_size(double params, struct dt_config *c)
{
	double width = cbrt(params * 128 / 12), h, layers, left;

	c->head_dim = width < 1024 ? 16 : width < 2048 ? 64 : 128;
	c->heads = c->kv_heads = nearest(width / (double)c->head_dim, 8);
	c->hidden = c->heads * c->head_dim;
	h = (double)c->hidden;
	left = params - 2 * (double)c->vocab * h - h;
	layers = left / (12 * h * h);
	c->layers = nearest(layers, layers >= 16 ? 8 : layers >= 6 ? 4 : 1);
	/* The width of the MLP compensates the rounding. */
	left -= (double)c->layers * (4 * h * h + 2 * h);
	c->ffn = nearest(left / (3 * h * (double)c->layers), 1);
}

int dt_config_of_size(double params, struct dt_config *ret, struct dt_err *err)
{
	struct dt_config c;

	if (!(params >= 1e6) || params > 1e15)
		return dt_err_set(err, -ERANGE, "%g parameters are out of range (1e6 to 1e15)", params);
	dt_config_find_preset("llama-2-7b", &c);
	if (params < 3e8)
		c.vocab = params < 1e7 ? 512 : 8192;
	shape_of_size(params, &c);
	c.max_seq = 131072;
	snprintf(c.name, sizeof(c.name), "a Llama of that size");
	if (dt_config_check(&c, err) < 0)
		return err ? err->code : -ERANGE;
	*ret = c;
	return 0;
}

double dt_score_scale(const struct dt_config *c)
{
	double all = c->score_mscale > 0 ? c->score_mscale : 1;

	if (c->score_factor > 0)
		return c->score_factor;
	return all * all / sqrt((double)(c->score_dim ? c->score_dim : c->head_dim));
}

double dt_embed_scale(const struct dt_config *c)
{
	const double own = c->embed_scaled ? sqrt((double)c->hidden) : dt_factor(c->embed_factor);

	return own / dt_factor(c->residual_factor);
}

double dt_stream_eps(const struct dt_config *c)
{
	return c->norm_eps / (dt_factor(c->residual_factor) * dt_factor(c->residual_factor));
}

double dt_logit_scale(const struct dt_config *c)
{
	return 1 / dt_factor(c->logit_divisor);
}
/* SPDX-License-Identifier: Apache-2.0 */
