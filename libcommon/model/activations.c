#include "model/activations.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The share of n units that rank r of tp gets: the first n % tp ranks one more. */
static int64_t share(int64_t n, int tp, int r, int64_t *first)
{
	int64_t each = n / tp, more = n % tp;

	if (first)
		*first = r * each + (r < more ? r : more);
	return each + (r < more);
}

void dt_local_dims(const struct dt_config *c, int tp, int r, struct dt_local_dims *ret)
{
	ret->heads = share(c->heads, tp, r, NULL);
	ret->kv_heads = c->kv_heads >= tp ? share(c->kv_heads, tp, r, NULL) : 1;
	ret->ffn = share(c->ffn, tp, r, NULL);
	ret->vocab = share(c->vocab, tp, r, &ret->vocab_first);
	ret->qkv = (ret->heads + 2 * ret->kv_heads) * c->head_dim;
	if (c->kv_rank) /* as training computes it: keys and values of every head */
		ret->qkv = ret->heads * (2 * c->head_dim + c->v_dim);
	ret->routed = 0;
}

void dt_layer_dims(const struct dt_config *c, int64_t layer, int tp, int r, struct dt_local_dims *ret)
{
	dt_local_dims(c, tp, r, ret);
	ret->ffn = share(dt_layer_width(c, layer), tp, r, NULL);
	ret->routed = dt_layer_has_experts(c, layer) ? c->experts_used : 0;
}

void dt_activations(const struct dt_config *c, const struct dt_local_dims *d, enum dt_dtype compute,
		    struct dt_activation ret[DT_ACT_N])
{
	bool layernorm = c->norm == DT_NORM_LAYER;
	const struct dt_activation table[DT_ACT_N] = {
		{DT_A_RESID, "resid", c->hidden, compute},
		{DT_A_NORM1, "norm1", c->hidden, compute},
		{DT_A_NORM1_MEAN, "norm1.mean", layernorm, DT_F32},
		{DT_A_NORM1_RSTD, "norm1.rstd", 1, DT_F32},
		{DT_A_QKV_RAW, "qkv.raw", c->qk_norm ? (d->heads + d->kv_heads) * c->head_dim : 0, compute},
		{DT_A_QK_RSTD, "qk.rstd", c->qk_norm ? d->heads + d->kv_heads : 0, DT_F32},
		{DT_A_QKV, "qkv", d->qkv, compute},
		{DT_A_LSE, "lse", d->heads, DT_F32},
		{DT_A_ATTN, "attn", d->heads * dt_value_dim(c), compute},
		{DT_A_RESID2, "resid2", c->hidden, compute},
		{DT_A_NORM2, "norm2", c->hidden, compute},
		{DT_A_NORM2_MEAN, "norm2.mean", layernorm, DT_F32},
		{DT_A_NORM2_RSTD, "norm2.rstd", 1, DT_F32},
		{DT_A_UP, "up", (c->gated ? 2 : 1) * d->ffn, compute},
		{DT_A_ACT, "act", d->ffn, compute},
		{DT_A_LATENT, "latent", c->kv_rank ? 2 * (c->q_rank + c->kv_rank) + c->rope_dim : 0, compute},
		{DT_A_POST1, "post1", c->post_norms ? c->hidden : 0, compute},
		{DT_A_POST1_RSTD, "post1.rstd", c->post_norms, DT_F32},
		{DT_A_POST2, "post2", c->post_norms ? c->hidden : 0, compute},
		{DT_A_POST2_RSTD, "post2.rstd", c->post_norms, DT_F32},
		{DT_A_ROUTED, "routed", 2 * d->routed * c->hidden, compute},
	};

	for (int i = 0; i < DT_ACT_N; i++)
		ret[table[i].id] = table[i];
}

bool dt_activation_saved(enum dt_act id, struct dt_keep keep, int layer)
{
	switch (keep.mode) {
	case DT_RECOMPUTE_NONE:
		return true;
	case DT_RECOMPUTE_SELECTIVE:
		return id != DT_A_NORM1 && id != DT_A_NORM2 && id != DT_A_ACT && id != DT_A_ROUTED;
	case DT_RECOMPUTE_FULL:
		return id == DT_A_RESID && dt_keep_set(keep, layer) == 0;
	}
	return true;
}

static const char *const modes[] = {"none", "selective", "full"};

int dt_keep_parse(const char *s, struct dt_keep *ret, struct dt_err *err)
{
	char *end;
	long n;

	*ret = (struct dt_keep){DT_RECOMPUTE_FULL, 1};
	for (int i = 0; i < 3; i++)
		if (!strcmp(s, modes[i])) {
			ret->mode = (enum dt_recompute)i;
			return 0;
		}
	if (!strncmp(s, "every:", 6)) {
		n = strtol(s + 6, &end, 10);
		if (end != s + 6 && !*end && n >= 1 && n <= 1024) {
			ret->every = (int)n;
			return 0;
		}
	}
	if (!strncmp(s, "auto:", 5)) {
		*ret = (struct dt_keep){.mode = DT_RECOMPUTE_NONE, .every = 1};
		if (dt_parse_size(s + 5, &ret->fit, err) < 0)
			return dt_err_prefix(err, "recomputation '%s'", s);
		if (ret->fit)
			return 0;
	}
	return dt_err_set(err, -EINVAL, "recomputation '%s' is none of " DT_RECOMPUTE_CHOICES, s);
}

const char *dt_keep_format(struct dt_keep k, char *buf, size_t n)
{
	if (k.fit) /* to the byte, so that what is read back is the same */
		snprintf(buf, n, "auto:%lluB", (unsigned long long)k.fit);
	else if (dt_keep_sets(k) > 1)
		snprintf(buf, n, "every:%d", k.every);
	else
		snprintf(buf, n, "%s", modes[k.mode]);
	return buf;
}

bool dt_activation_on_stream(enum dt_act id)
{
	switch (id) {
	case DT_A_RESID:
	case DT_A_NORM1:
	case DT_A_NORM1_MEAN:
	case DT_A_NORM1_RSTD:
	case DT_A_RESID2:
	case DT_A_NORM2:
	case DT_A_NORM2_MEAN:
	case DT_A_NORM2_RSTD:
	case DT_A_POST1:
	case DT_A_POST1_RSTD:
	case DT_A_POST2:
	case DT_A_POST2_RSTD:
	case DT_A_LATENT:
	case DT_A_ROUTED:
		return true;
	default:
		return false;
	}
}
