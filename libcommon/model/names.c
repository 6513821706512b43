/* Names of parameters in other formats, from the family's tables. */
#include "model/names.h"

#include "kernels/rope.h"
#include "model/family.h"

#include <stdio.h>
#include <string.h>

/*
 * First row of a parameter in the joined tensor that contains it; *ret_rows: rows of the parameter, becomes
 * those of the whole tensor.
 */
static int64_t joined_row(const struct dt_config *c, const struct dt_tensor_name *at, int64_t *ret_rows)
{
	int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

	if (at->joined == DT_JOINED_IN_TURNS) {
		*ret_rows *= 2;
		return at->role == DT_W_EXPERT_UP || at->role == DT_W_EXPERT_UP_B;
	}
	if (at->joined == DT_JOINED_GATE_UP) {
		*ret_rows = 2 * c->ffn;
		return at->role == DT_W_UP || at->role == DT_W_UP_B ? c->ffn : 0;
	}
	*ret_rows = q + 2 * kv;
	switch (at->role) {
	case DT_W_K:
	case DT_W_K_B:
		return q;
	case DT_W_V:
	case DT_W_V_B:
		return q + kv;
	default:
		return 0;
	}
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
		*ret = (struct dt_place_in_file){.rows = p->shape[0], .split = 1, .step = 1};
		snprintf(ret->name, sizeof(ret->name), "%s", p->name);
		return true;
	}
	if (!t)
		return false;
	expand(t->name, p->layer, expert, ret->name, sizeof(ret->name));
	ret->split = strstr(t->name, "%e") ? p->experts : 1;
	ret->stack = scheme == DT_NAMES_GGUF || t->stacked ? p->experts : 0;
	ret->step = t->joined == DT_JOINED_IN_TURNS ? 2 : 1;
	ret->transposed = t->transposed;
	ret->first = 0;
	ret->rows = p->shape[0] / ret->split;
	if (t->joined)
		ret->first = joined_row(c, t, &ret->rows);
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
		return !strcmp(name, "rope_freqs.weight");
	return (f && f->is_buffer && f->is_buffer(name)) || ends(name, ".rotary_emb.inv_freq") ||
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

bool dt_param_is_rotary(const struct dt_config *c, const struct dt_param *p)
{
	/* families whose heads are rotated in part have one order in all formats */
	return c->pos == DT_POS_ROPE && !c->rope_dim &&
	       (p->role == DT_W_Q || p->role == DT_W_K || p->role == DT_W_Q_B || p->role == DT_W_K_B ||
		p->role == DT_W_Q_NORM || p->role == DT_W_K_NORM);
}
/* SPDX-License-Identifier: Apache-2.0 */
