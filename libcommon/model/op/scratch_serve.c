/* The scratch of a server's program: the calls of nn/call_serve*.c. */
#include "kernels/quant.h"
#include "model/op/scratch_need.h"

enum { SHAPES = 4 }; /* of attention in a model: layers with a window, and others */

struct serving {
	struct dt_need w;
	const struct dt_serving_limits *most;
	const struct dt_node *seen[SHAPES]; /* attention that is counted */
	int nseen;
};

/* The matrices of n, packed together, for rows of k elements. */
static struct dt_packed_kind kind_of(const struct serving *s, const struct dt_node *n, int64_t k)
{
	const bool ends = n->op == DT_OP_EMBED || n->op == DT_OP_HEAD || n->op == DT_OP_LATENT_ABSORB ||
			  n->op == DT_OP_LATENT_VALUES;
	struct dt_packed_kind r = {.k = k}, others = {0};

	for (int i = 0; i < (ends ? 1 : 3); i++) {
		if (n->param[i] < 0)
			continue;
		dt_packed_kind_add(&r, s->most->format[n->param[i]]);
		if (s->most->others)
			dt_packed_kind_add(&others, s->most->others[n->param[i]]);
	}
	r.f32 |= others.f32;
	r.bf16 |= others.bf16;
	r.quantised |= others.quantised;
	return r;
}

static void embed(const struct serving *s, const struct dt_node *n)
{
	dt_need_op(&s->w, dt_packed_embed_scratch(s->w.on, dt_need_in(&s->w, n)));
}

static void product(const struct serving *s, const struct dt_node *n, int64_t rows)
{
	const struct dt_packed_kind kind = kind_of(s, n, dt_need_in(&s->w, n));

	dt_need_op(&s->w, dt_packed_matmul_scratch(s->w.on, &kind, rows));
}

/* A product of y = x w^T with the n weights of a set. */
static void of_set(const struct serving *s, const struct dt_node *node, int n, int y, int x)
{
	const struct dt_packed_kind kind = kind_of(s, node, dt_need_cols(&s->w, x));

	dt_need_op(&s->w, dt_packed_set_matmul_scratch(s->w.on, &kind, n, dt_need_rows(&s->w, y)));
}

static bool alike(const struct dt_attr *a, const struct dt_attr *b)
{
	return a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
	       a->latent_dim == b->latent_dim && a->window == b->window;
}

/* Of an encoder: one sequence of all keys, or as many as there are of one. */
static void attention_all(const struct serving *s, const struct dt_node *n, const struct dt_attn *of)
{
	const int64_t rows = dt_need_rows(&s->w, n->in[0]),
		      longest = s->most->keys < rows ? s->most->keys : rows;
	const enum dt_dtype t = dt_need_type(&s->w, n->in[0]);

	for (int64_t seq = longest; seq > 0; seq /= 2) {
		struct dt_attn a = *of;

		a.batch = rows / seq < s->most->seqs ? rows / seq : s->most->seqs;
		a.seq = seq;
		dt_need_op(&s->w, dt_attention_forward_scratch(s->w.on, t, &a, seq, seq));
	}
}

/* Finding the batch that takes most takes time: once for layers that are alike. */
static void attention(struct serving *s, const struct dt_node *n)
{
	const struct dt_attn a = {.heads = n->attr.heads,
				  .kv_heads = n->attr.kv_heads,
				  .head_dim = n->attr.head_dim,
				  .value_dim = n->attr.latent_dim,
				  .window = n->attr.window};
	const struct dt_paged_most most = {.seqs = s->most->seqs,
					   .rows = dt_need_rows(&s->w, n->in[0]),
					   .keys = s->most->keys,
					   .all_keys = s->most->all_keys};

	if (n->attr.all) {
		attention_all(s, n, &a);
		return;
	}
	for (int i = 0; i < s->nseen; i++)
		if (alike(&s->seen[i]->attr, &n->attr))
			return;
	if (s->nseen < SHAPES)
		s->seen[s->nseen++] = n;
	dt_need_op(&s->w, dt_attention_paged_scratch(s->w.on, dt_need_type(&s->w, n->in[0]), s->most->cache,
						     &a, &most));
}

static void one(struct serving *s, const struct dt_node *n)
{
	switch (n->op) {
	case DT_OP_EMBED:
		embed(s, n);
		break;
	case DT_OP_NORM:
		dt_need_norm(&s->w, n);
		break;
	case DT_OP_HEADS_NORM:
		dt_need_heads_norm(&s->w, n);
		break;
	case DT_OP_LINEAR:
	case DT_OP_LINEAR_GATED:
	case DT_OP_ROUTE:
		product(s, n, dt_need_rows(&s->w, n->in[0]));
		break;
	case DT_OP_HEAD:
		product(s, n, s->most->seqs);
		break;
	case DT_OP_SSM_CONV:
		dt_need_ssm_conv_step(&s->w, n);
		break;
	case DT_OP_SSM_SCAN:
		dt_need_ssm_scan_step(&s->w, n);
		break;
	case DT_OP_SSM_GATE:
		dt_need_ssm_gate(&s->w, n);
		break;
	case DT_OP_SSM_NORM:
		dt_need_ssm_norm(&s->w, n);
		break;
	case DT_OP_ATTENTION:
		attention(s, n);
		break;
	case DT_OP_LATENT_ABSORB:
	case DT_OP_LATENT_VALUES:
		of_set(s, n, (int)n->attr.heads, n->out[3], n->out[2]);
		break;
	case DT_OP_EXPERTS:
		of_set(s, n, (int)(n->attr.expert_n / (n->attr.owned ? s->w.s->ep : 1)), n->out[0], n->in[0]);
		break;
	default:
		break;
	}
}

void dt_serving_scratch(const struct dt_cost_site *site, const struct dt_scratch_on *on,
			const struct dt_serving_limits *most, struct dt_scratch *ret)
{
	struct serving s = {.w = {site, on, ret}, .most = most};

	for (int i = 0; i < site->p->nstep && on->threads; i++)
		one(&s, &site->p->step[i].n);
}
/* SPDX-License-Identifier: Apache-2.0 */
