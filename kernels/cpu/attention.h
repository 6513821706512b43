/* What attention.c, attention_backward.c and attention_paged.c share. */
#ifndef DT_KERNELS_CPU_ATTENTION_H
#define DT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/tile.h"

static inline int64_t dt_attn_pad(const struct dt_attn *p)
{
	return (p->head_dim + 15) / 16 * 16;
}

/* The same of a row of values. */
static inline int64_t dt_attn_value_pad(const struct dt_attn *p)
{
	return (dt_attn_value_dim(p) + 15) / 16 * 16;
}

static inline int64_t dt_attn_width(const struct dt_attn *p)
{
	return (p->heads + 2 * p->kv_heads) * p->head_dim;
}

/* The rows of columns col .. col + head_dim, from row first on, as pointers; returns how many there are. */
static inline int64_t dt_attn_rows(const void *row[DT_TILE], struct dt_tensor t, int64_t first, int64_t last,
				   int64_t col)
{
	const int64_t n = dt_min64(DT_TILE, last - first);

	for (int64_t i = 0; i < n; i++)
		row[i] = dt_at(t, (first + i) * dt_cols(t) + col);
	return n;
}

/* Training's operands: queries in q, keys and values in kv, where s says. */
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

/* Self-attention as a span: queries, keys and values are columns of one matrix. */
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

/* The row of kv with key `key` of sequence b. Keys are counted along the runs. */
static inline int64_t dt_attn_key_row(const struct dt_attn_span *s, int64_t b, int64_t key)
{
	return s->run[key / s->run_keys].row + b * s->stride + key % s->run_keys;
}

/* As dt_attn_rows, of keys from `key` on. */
static inline int64_t dt_attn_key_rows(const void *row[DT_TILE], struct dt_tensor t,
				       const struct dt_attn_span *s, int64_t b, int64_t key, int64_t col)
{
	const int64_t n = dt_min64(DT_TILE, dt_attn_keys(s) - key),
		      step = dt_cols(t) * dt_dtype_size(t.dtype);

	for (int64_t i = 0, end; i < n; i = end) { /* a run's rows follow one another */
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

/* Keys at positions below pos. */
static inline int64_t dt_attn_before(const struct dt_attn_span *s, int64_t pos)
{
	int64_t n = 0;

	for (int i = 0; i < s->nrun && s->run[i].pos < pos; i++)
		n += dt_min64(s->run_keys, pos - s->run[i].pos);
	return n;
}

/* The keys that query i of sequence b sees: *first .. *last; last < first: none. */
static inline void dt_attn_sees(const struct dt_attn_in *a, int64_t b, int64_t i, int64_t *first,
				int64_t *last)
{
	const int64_t at = b * a->s->rows + i, pos = a->s->pos ? a->s->pos[at] : i, w = a->p->window;
	int64_t from = a->s->first ? a->s->first[at] : 0;

	if (w > 0 && pos - w + 1 > from)
		from = pos - w + 1;
	*first = dt_attn_before(a->s, from);
	*last = dt_attn_before(a->s, pos + 1) - 1;
}

/* Query row i of a tile: the first key it sees, and the last. Neither is less than that of row i - 1. */
struct dt_attn_row {
	int64_t first, last;
	float max;     /* of the online softmax so far; starts with -INFINITY */
	float sum[16]; /* of exp(s - max), by lanes; starts with 0 */
};

/*
 * Queries of a tile go through the products in bands, so that scores stay in the first cache. dt_attn_reach:
 * of the keys [key, key + DT_TILE) those in front of the first that none of n rows sees, a multiple of 16.
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

/* Scores s [rows, DT_TILE] of keys from `key` on become -Inf where a row does not see the key. */
void dt_attn_mask(float *s, const struct dt_attn_row *row, int64_t rows, int64_t key);

/* s [n], products q . k, become softcap tanh(scale s / softcap). */
void dt_attn_cap(float *s, int64_t n, const struct dt_attn *p);

/*
 * One tile of the online softmax (Milakov & Gimelshein 2018, algorithm 3). s [rows, DT_TILE] holds q . k for
 * keys from key on; with score = scale s, capped where p says so, it becomes exp(score - max) as words in pw
 * (s itself for f32 words). o [rows, pad], summed under the former maxima, is rescaled to the new ones.
 * weight [DT_TILE], NULL: 1: the words are multiplied by the weight of their key.
 */
void dt_attn_softmax(const struct dt_tile *t, uint32_t *pw, float *s, float *o, struct dt_attn_row *row,
		     int64_t rows, int64_t pad, int64_t key, const struct dt_attn *p, const float *weight);

/*
 * Between the products where words are pairs of bf16 (t->pairs): attention_bf16.c. DT_ATTN_PAIRS(t) is a
 * constant elsewhere. dt_attn_softmax_bf16 masks s [rows, DT_TILE] itself; s is capped already, with a scale
 * of 1.
 */
#ifdef __x86_64__
#define DT_ATTN_PAIRS(t) ((t)->pairs)
#else
#define DT_ATTN_PAIRS(t) false
#endif
void dt_attn_softmax_bf16(uint32_t *pw, const float *s, float *o, struct dt_attn_row *row, int64_t rows,
			  int64_t pad, int64_t key, float scale);
/* The same with AMX, whose bits differ: a row's maximum is looked for where its sums need another. */
void dt_attn_softmax_lazy(uint32_t *pw, const float *s, float *o, struct dt_attn_row *row, int64_t rows,
			  int64_t pad, int64_t key, float scale);
void dt_attn_finish_bf16(void *const *where, const float *o, const struct dt_attn_row *row, int64_t rows,
			 int64_t d, int64_t pad);

/* Words of a band from s [DT_BAND, DT_TILE] = q . k, capped where softcap > 0, and dp = do . v. */
struct dt_attn_slopes {
	const float *s, *dp, *lse, *dot; /* lse and dot of each query row */
	uint32_t *p_cols, *ds_cols;	 /* words of p and ds along the queries */
	uint32_t *ds_rows;		 /* words of ds along the keys */
	float scale, softcap;
};
void dt_attn_slopes_bf16(const struct dt_attn_slopes *w, const struct dt_attn_row *row, int64_t rows,
			 int64_t key);
float dt_attn_dot_bf16(const uint16_t *x, const uint16_t *y, int64_t d);

/* s [rows, DT_TILE] times weight [DT_TILE], column by column. */
void dt_attn_weigh(float *s, int64_t rows, const float *weight);

/* o / sum, rounded, to where[i]. */
void dt_attn_finish(const struct dt_tile *t, void *const *where, enum dt_dtype type, const float *o,
		    const struct dt_attn_row *row, int64_t rows, int64_t d, int64_t pad);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
