/* Shared by attention.c, attention_backward.c and attention_paged.c. */
#ifndef DT_KERNELS_CPU_ATTENTION_H
#define DT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/tile.h"

static inline int64_t dt_attn_pad(const struct dt_attn *p)
{
	return (p->head_dim + 15) / 16 * 16;
}

/* Row length of values, padded likewise. */
static inline int64_t dt_attn_value_pad(const struct dt_attn *p)
{
	return (dt_attn_value_dim(p) + 15) / 16 * 16;
}

/* Sets pointers to columns col .. col + head_dim of rows first, first + 1, ...; returns their number. */
static inline int64_t dt_attn_rows(const void *row[DT_TILE], struct dt_tensor t, int64_t first, int64_t last,
				   int64_t col)
{
	const int64_t n = dt_min64(DT_TILE, last - first);

	for (int64_t i = 0; i < n; i++)
		row[i] = dt_at(t, (first + i) * dt_cols(t) + col);
	return n;
}

/* Operands of training: queries in q, keys and values in kv, located by s. */
struct dt_attn_in {
	const struct dt_tile *t;
	const struct dt_attn *p;
	const struct dt_attn_span *s;
	struct dt_tensor q, kv;
};

static inline int64_t dt_attn_keys(const struct dt_attn_span *s)
{
	return s->nrun * s->run_keys;
}

/* Words of a thread's working memory in forward: o, s and p of a tile, q, and all key and value tiles. */
static inline int64_t dt_attn_forward_words(const struct dt_tile *t, const struct dt_attn *p, int64_t keys)
{
	const int64_t tiles = dt_ceil_div(keys, DT_TILE), pad = dt_attn_value_pad(p);
	const int64_t words = dt_tile_words(t, p->head_dim);

	return DT_TILE * (tiles * (words + pad) + words + pad + 2 * DT_TILE);
}

/* Self-attention as a span: queries, keys and values are columns of the same matrix. */
static inline struct dt_attn_span dt_attn_self(const struct dt_attn *p)
{
	static const struct dt_attn_run from_0 = {0, 0};

	return (struct dt_attn_span){.rows = p->seq,
				     .nrun = 1,
				     .run = &from_0,
				     .run_keys = p->seq,
				     .stride = p->seq,
				     .k_col = p->heads * p->head_dim,
				     .v_col = (p->heads + p->kv_heads) * p->head_dim};
}

/* The row of kv that holds key number `key` of sequence b, counted along the runs. */
static inline int64_t dt_attn_key_row(const struct dt_attn_span *s, int64_t b, int64_t key)
{
	return s->run[key / s->run_keys].row + b * s->stride + key % s->run_keys;
}

/* Like dt_attn_rows, for keys from `key` on. */
static inline int64_t dt_attn_key_rows(const void *row[DT_TILE], struct dt_tensor t,
				       const struct dt_attn_span *s, int64_t b, int64_t key, int64_t col)
{
	const int64_t n = dt_min64(DT_TILE, dt_attn_keys(s) - key),
		      step = dt_cols(t) * dt_dtype_size(t.dtype);

	for (int64_t i = 0, end; i < n; i = end) { /* rows of a run are contiguous */
		const char *at = dt_at(t, dt_attn_key_row(s, b, key + i) * dt_cols(t) + col);

		end = dt_min64(n, i + s->run_keys - (key + i) % s->run_keys);
		for (int64_t e = i; e < end; e++, at += step)
			row[e] = at;
	}
	return n;
}

/* Prefetches rows. */
static inline void dt_attn_ask(const void *const *row, int64_t n, int64_t bytes)
{
	for (int64_t i = 0; i < n; i++)
		dt_prefetch(row[i], bytes);
}

/* Number of keys at positions below pos. */
static inline int64_t dt_attn_before(const struct dt_attn_span *s, int64_t pos)
{
	int64_t n = 0;

	for (int i = 0; i < s->nrun && s->run[i].pos < pos; i++)
		n += dt_min64(s->run_keys, pos - s->run[i].pos);
	return n;
}

/* Range of keys that query i of sequence b sees: *first .. *last; empty if last < first. */
static inline void dt_attn_sees(const struct dt_attn_in *a, int64_t b, int64_t i, int64_t *first,
				int64_t *last)
{
	const int64_t at = b * a->s->rows + i, w = a->p->window,
		      pos = a->s->all	? DT_ATTN_END
			    : a->s->pos ? a->s->pos[at]
					: i;
	int64_t from = a->s->first ? a->s->first[at] : 0;

	if (w > 0 && pos - w + 1 > from)
		from = pos - w + 1;
	*first = dt_attn_before(a->s, from);
	*last = dt_attn_before(a->s, pos + 1) - 1;
}

/* Query row i of a tile: the first and the last key it sees, both non-decreasing in i. */
struct dt_attn_row {
	int64_t first, last;
	float max;     /* running maximum of the online softmax, initially -INFINITY */
	float sum[16]; /* running sum of exp(s - max) per lane, initially 0 */
};

/*
 * The queries of a tile are multiplied in bands, so that the scores stay in L1. dt_attn_reach: how many of
 * the keys [key, key + DT_TILE) any of n rows sees, rounded up to a multiple of 16.
 */
#define DT_BAND 16
static inline int64_t dt_attn_reach(const struct dt_attn_row *row, int64_t n, int64_t key)
{
	const int64_t end = row[n - 1].last + 1 - key;

	return end <= 0 ? 0 : dt_min64(DT_TILE, (end + 15) / 16 * 16);
}

static inline float dt_attn_sum(const struct dt_attn_row *row)
{
	float s[8];

	for (int k = 0; k < 8; k++)
		s[k] = row->sum[k] + row->sum[k + 8];
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* Sets scores s [rows, DT_TILE], of keys from `key` on, to -Inf where a row does not see the key. */
void dt_attn_mask(float *s, const struct dt_attn_row *row, int64_t rows, int64_t key);

/* Softcap: s [n] = softcap tanh(scale s / softcap), s being the products q . k. */
void dt_attn_cap(float *s, int64_t n, const struct dt_attn *p);

/*
 * One tile of the online softmax (Milakov & Gimelshein 2018, algorithm 3). s [rows, DT_TILE] holds q . k for
 * keys from `key` on. With score = scale s, capped if p says so, exp(score - max) is stored as words in pw
 * (in s itself for f32 words). o [rows, pad], the sums so far, is rescaled to the new maxima. weight
 * [DT_TILE], or NULL for 1: a factor per key for the stored words.
 */
void dt_attn_softmax(const struct dt_tile *t, uint32_t *pw, float *s, float *o, struct dt_attn_row *row,
		     int64_t rows, int64_t pad, int64_t key, const struct dt_attn *p, const float *weight);

/*
 * The steps between the products, where words are pairs of bf16 (t->pairs): attention_bf16.c.
 * DT_ATTN_PAIRS(t) is a constant elsewhere. dt_attn_softmax_bf16 applies the mask to s [rows, DT_TILE]
 * itself; if s is capped, it is so already, with a scale of 1.
 */
#ifdef __x86_64__
#define DT_ATTN_PAIRS(t) ((t)->pairs)
#else
#define DT_ATTN_PAIRS(t) false
#endif
void dt_attn_softmax_bf16(uint32_t *pw, int64_t ldp, const float *s, float *o, struct dt_attn_row *row,
			  int64_t rows, int64_t pad, int64_t key, float scale);

/*
 * The softmax of a band in the middle of the products of its next tile, next [DT_BAND, DT_TILE] = q . k: the
 * processor adds and scales while it multiplies. pw: rows of DT_TILE words. The rows have maxima (max is not
 * -INFINITY). Returns false, and changes no row, if a sum is too large for its row's maximum: then
 * dt_attn_softmax_bf16 is called instead; next is there. words is a multiple of 4. Without AMX.
 */
#define DT_ATTN_BETWEEN(t) (DT_ATTN_PAIRS(t) && !(t)->begin)
bool dt_attn_between_bf16(float *next, const uint32_t *q, const uint32_t *k, int64_t words, uint32_t *pw,
			  const float *s, struct dt_attn_row *row, int64_t key, float scale);
void dt_attn_finish_bf16(void *const *where, const float *o, const struct dt_attn_row *row, int64_t rows,
			 int64_t d, int64_t pad);

/* Computes the words of p and ds of a band from s [DT_BAND, DT_TILE] = q . k, capped if softcap > 0, and
 * dp. */
struct dt_attn_slopes {
	const float *s, *dp, *lse, *dot; /* per query row: lse and do . o */
	uint32_t *p_cols, *ds_cols;	 /* p and ds packed along the queries */
	uint32_t *ds_rows;		 /* ds packed along the keys */
	float scale, softcap;
};
void dt_attn_slopes_bf16(const struct dt_attn_slopes *w, const struct dt_attn_row *row, int64_t rows,
			 int64_t key);
float dt_attn_dot_bf16(const uint16_t *x, const uint16_t *y, int64_t d);

/* Multiplies column j of s [rows, DT_TILE] by weight[j]. */
void dt_attn_weigh(float *s, int64_t rows, const float *weight);

/* Stores o / sum, rounded, in where[i]. */
void dt_attn_finish(const struct dt_tile *t, void *const *where, enum dt_dtype type, const float *o,
		    const struct dt_attn_row *row, int64_t rows, int64_t d, int64_t pad);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
