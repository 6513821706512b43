/* The working memory of attention: how backward's is laid out, and the bytes of both. */
#include "kernels/cpu/attention_backward.h"

struct lay {
	uint32_t *base; /* NULL: only count words */
	int64_t used;
};

static uint32_t *take(struct lay *at, int64_t n)
{
	uint32_t *p = at->base ? at->base + at->used : NULL;

	at->used += n;
	return p;
}

static void tile_sizes(struct dt_attn_space *w, const struct dt_attn_in *a)
{
	w->lanes_n = DT_TILE * dt_tile_words(a->t, a->p->head_dim);
	w->value_lanes_n = DT_TILE * dt_tile_words(a->t, dt_attn_value_dim(a->p));
	w->depth_n = dt_tile_depth(a->t) * dt_attn_pad(a->p);
}

int64_t dt_attn_lay_head(struct dt_attn_space *w, const struct dt_attn_in *a, uint32_t *base)
{
	const int64_t tiles = dt_ceil_div(dt_attn_keys(a->s), DT_TILE);
	struct lay at = {base, 0};

	tile_sizes(w, a);
	w->dk = (float *)take(&at, tiles * DT_TILE * dt_attn_pad(a->p));
	w->dv = (float *)take(&at, tiles * DT_TILE * dt_attn_value_pad(a->p));
	w->k_lanes = take(&at, tiles * w->lanes_n);
	w->v_lanes = take(&at, tiles * w->value_lanes_n);
	w->k_depth = take(&at, tiles * w->depth_n);
	return at.used;
}

int64_t dt_attn_lay_thread(struct dt_attn_space *w, const struct dt_attn_in *a, uint32_t *base)
{
	const struct dt_tile *t = a->t;
	const int64_t pad = dt_attn_pad(a->p), vpad = dt_attn_value_pad(a->p), square = DT_TILE * DT_TILE;
	int64_t lanes, vlanes, depth;
	struct lay at = {base, 0};

	tile_sizes(w, a);
	lanes = w->lanes_n;
	vlanes = w->value_lanes_n;
	depth = w->depth_n;
	w->q_rows = take(&at, lanes);
	w->g_rows = take(&at, vlanes);
	w->q_depth = take(&at, depth);
	w->g_depth = take(&at, dt_tile_depth(t) * vpad);
	w->dq = (float *)take(&at, DT_TILE * pad);
	w->s = (float *)take(&at, square);
	w->ds = (float *)take(&at, square);
	/* Pairs: s, ds and ds_rows hold one band after another. With f32 words they are s and ds themselves,
	 * read transposed. */
	w->p_cols = t->pairs ? take(&at, square / 2) : (uint32_t *)w->s;
	w->ds_cols = t->pairs ? take(&at, square / 2) : (uint32_t *)w->ds;
	w->ds_rows = t->pairs ? take(&at, square / 2) : (uint32_t *)w->ds;
	return at.used;
}

bool dt_attn_by_tiles(int threads, const struct dt_attn *p, int64_t tiles)
{
	/* of few tiles the longest part is most of the work */
	return 3 * p->batch * p->kv_heads <= threads && tiles >= 4;
}

/* What the sizes depend on of the functions that multiply this type: dt_tile_with_amx. */
static struct dt_tile words_of(const struct dt_scratch_on *on, enum dt_dtype t)
{
	return (struct dt_tile){.pairs = t == DT_BF16 && on->pairs};
}

size_t dt_attention_forward_scratch(const struct dt_scratch_on *on, enum dt_dtype t, const struct dt_attn *p,
				    int64_t rows, int64_t keys)
{
	const struct dt_tile tile = words_of(on, t);

	return (size_t)(on->threads * dt_attn_forward_words(&tile, p, keys)) * 4;
}

size_t dt_attention_backward_scratch(const struct dt_scratch_on *on, enum dt_dtype t, const struct dt_attn *p,
				     int64_t rows, int64_t keys)
{
	const struct dt_tile tile = words_of(on, t);
	const struct dt_attn_span s = {.rows = rows, .nrun = 1, .run_keys = keys};
	const struct dt_attn_in in = {.t = &tile, .p = p, .s = &s};
	struct dt_attn_space unused;
	const int64_t head = dt_attn_lay_head(&unused, &in, NULL),
		      thread = dt_attn_lay_thread(&unused, &in, NULL),
		      heads = dt_attn_by_tiles(on->threads, p, dt_ceil_div(keys, DT_TILE))
				      ? p->batch * p->kv_heads
				      : on->threads;

	return (size_t)(heads * head + on->threads * thread) * 4;
}
/* SPDX-License-Identifier: Apache-2.0 */
