/* Names of parameters in other formats, from the family's tables. */
#include "model/names.h"

#include "kernels/rope.h"
#include "model/family.h"

#include <stdio.h>
#include <string.h>

/* Rows in front of a parameter of Mamba-2 in a joined tensor that has x at `first`. */
static int64_t ssm_first(const struct dt_config *c, enum dt_role role, int64_t first)
{
	const int64_t inner = c->ssm_heads * c->ssm_head_dim, group = c->ssm_groups * c->ssm_state;

	switch (role) {
	case DT_W_SSM_X:
	case DT_W_SSM_CONV_X:
	case DT_W_SSM_CONV_X_B:
		return first;
	case DT_W_SSM_B:
	case DT_W_SSM_CONV_B:
	case DT_W_SSM_CONV_B_B:
		return first + inner;
	case DT_W_SSM_C:
	case DT_W_SSM_CONV_C:
	case DT_W_SSM_CONV_C_B:
		return first + inner + group;
	case DT_W_SSM_DT:
		return first + inner + 2 * group;
	default:
		return 0;
	}
}

/* Places a parameter in the joined tensor that contains it; ret->rows: those of the parameter. */
static void join(const struct dt_config *c, const struct dt_tensor_name *t, struct dt_place_in_file *ret)
{
	const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
	const int64_t inner = c->ssm_heads * c->ssm_head_dim, conv = inner + 2 * c->ssm_groups * c->ssm_state;
	const int part = t->role == DT_W_K || t->role == DT_W_K_B		    ? 1
			 : t->role == DT_W_V || t->role == DT_W_V_B		    ? 2
			 : t->role == DT_W_UP || t->role == DT_W_UP_B		    ? 1
			 : t->role == DT_W_EXPERT_UP || t->role == DT_W_EXPERT_UP_B ? 1
			 : t->role == DT_W_SHARED_UP				    ? 1
										    : 0;

	switch (t->joined) {
	case DT_JOINED_NONE:
		return;
	case DT_JOINED_QKV:
		ret->rows = q + 2 * kv;
		ret->first = part == 0 ? 0 : part == 1 ? q : q + kv;
		return;
	case DT_JOINED_GATE_UP:
		ret->first = part * ret->rows;
		ret->rows *= 2;
		return;
	case DT_JOINED_SSM:
		ret->first = ssm_first(c, t->role, inner);
		ret->rows = inner + conv + c->ssm_heads;
		return;
	case DT_JOINED_SSM_CONV:
		ret->first = ssm_first(c, t->role, 0);
		ret->rows = conv;
		return;
	case DT_JOINED_IN_TURNS:
		ret->run = 1;
		break;
	case DT_JOINED_EXPERTS:
		ret->run = c->expert_ffn;
		break;
	case DT_JOINED_HEADS:
		ret->run = c->head_dim;
		break;
	}
	ret->first = part * ret->run;
	ret->every = (t->joined == DT_JOINED_HEADS ? 3 : 2) * ret->run;
	ret->rows *= ret->every / ret->run;
}

/* Replaces %d and %e of a pattern; patterns come from our tables only. */
static void expand(const char *pattern, int layer, int64_t expert, char *out, size_t n)
{
	size_t k = 0;

	for (const char *s = pattern; *s && k + 1 < n; s++)
		if (*s != '%')
			out[k++] = *s;
		else
			k += (size_t)snprintf(out + k, n - k, "%lld",
					      *++s == 'e' ? (long long)expert : (long long)layer);
	out[k < n ? k : n - 1] = '\0';
}

/* NULL: no name in this scheme. */
static const struct dt_tensor_name *name_of(enum dt_names scheme, const struct dt_family *f,
					    enum dt_role role)
{
	const struct dt_tensor_name *const *tables = scheme == DT_NAMES_HF ? f->hf : f->gguf;

	for (int i = 0; tables[i]; i++)
		for (const struct dt_tensor_name *t = tables[i]; t->name; t++)
			if (t->role == role)
				return t;
	return NULL;
}

bool dt_names_place(enum dt_names scheme, const struct dt_config *c, const struct dt_param *p, int64_t expert,
		    struct dt_place_in_file *ret)
{
	const struct dt_family *f = dt_family_find(c->family);
	const struct dt_tensor_name *t = f ? name_of(scheme, f, p->role) : NULL;

	if (f && f->images && !f->hf[0] &&
	    scheme == DT_NAMES_HF) { /* our names are torchvision's and timm's */
		*ret = (struct dt_place_in_file){
			.rows = p->shape[0], .split = 1, .run = p->shape[0], .every = p->shape[0]};
		snprintf(ret->name, sizeof(ret->name), "%s", p->name);
		return true;
	}
	if (!t)
		return false;
	expand(t->name, p->layer, expert, ret->name, sizeof(ret->name));
	ret->split = strstr(t->name, "%e") ? p->experts : 1;
	ret->stack = scheme == DT_NAMES_GGUF || t->stacked ? p->experts : 0;
	ret->transposed = t->transposed;
	ret->first = 0;
	ret->rows = ret->run = ret->every = p->shape[0] / ret->split;
	join(c, t, ret);
	return true;
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with);
}

bool dt_names_is_buffer(enum dt_names scheme, const struct dt_config *c, const char *name)
{
	const struct dt_family *f = dt_family_find(c->family);

	if (f && f->images)
		return ends(name, ".running_mean") || ends(name, ".running_var") ||
		       ends(name, ".num_batches_tracked");
	if (scheme == DT_NAMES_GGUF)
		return !strcmp(name, "rope_freqs.weight") || !strcmp(name, "rope_factors_short.weight") ||
		       !strcmp(name, "rope_factors_long.weight");
	if (c->tower.hidden && !c->sees &&
	    (!strncmp(name, "vision_model.", 13) || !strncmp(name, "connector.", 10)))
		return true; /* of the tower, which is a model of its own */
	return (f && f->is_buffer && f->is_buffer(c, name)) || ends(name, ".rotary_emb.inv_freq") ||
	       (c->tied && !strcmp(name, "lm_head.weight"));
}

int64_t dt_rope_row(int64_t r, int64_t dim, int from, int to)
{
	int64_t head = r / dim * dim, i = r % dim, half = dim / 2;

	if (from == to)
		return r;
	if (to == DT_ROPE_ADJACENT)
		return head + (i % 2) * half + i / 2;
	return head + (i < half ? 2 * i : 2 * (i - half) + 1);
}

int dt_names_pairing(enum dt_names scheme, const struct dt_config *c)
{
	const struct dt_family *f = dt_family_find(c->family);
	const bool adjacent = f && (scheme == DT_NAMES_GGUF ? f->gguf_adjacent : f->hf_adjacent);

	return adjacent ? DT_ROPE_ADJACENT : DT_ROPE_HALF;
}

bool dt_param_is_rotary(const struct dt_config *c, const struct dt_param *p)
{
	/* families whose heads are rotated in part have one order in all formats */
	return c->pos == DT_POS_ROPE && !c->rope_dim &&
	       (p->role == DT_W_Q || p->role == DT_W_K || p->role == DT_W_Q_B || p->role == DT_W_K_B ||
		p->role == DT_W_Q_NORM || p->role == DT_W_K_NORM);
}
/* SPDX-License-Identifier: Apache-2.0 */
