/* What attention.c, attention_backward.c and attention_paged.c share. */
#ifndef DT_KERNELS_CPU_ATTENTION_H
#define DT_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/tile.h"

static inline int64_t dt_attn_pad(const struct dt_attn *p)
{
	return (p->head_dim + 15) / 16 * 16;
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

/* Query row i of a tile: the last key it sees, and the first. */
struct dt_attn_row {
	int64_t first, last;
	float max;     /* of the online softmax so far; starts with -INFINITY */
	float sum[16]; /* of exp(s - max), by lanes; starts with 0 */
};

static inline float dt_attn_sum(const struct dt_attn_row *row)
{
	float s[8];

	for (int k = 0; k < 8; k++)
		s[k] = row->sum[k] + row->sum[k + 8];
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

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

/* s [rows, DT_TILE] times weight [DT_TILE], column by column. */
void dt_attn_weigh(float *s, int64_t rows, const float *weight);

/* o / sum, rounded, to where[i]. */
void dt_attn_finish(void *const *where, enum dt_dtype type, const float *o, const struct dt_attn_row *row,
		    int64_t rows, int64_t d, int64_t pad);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
