/* Shared by attention_backward.c and attention_gradients.c, which computes tiles. */
#ifndef DT_KERNELS_CPU_ATTENTION_BACKWARD_H
#define DT_KERNELS_CPU_ATTENTION_BACKWARD_H

#include "kernels/cpu/attention.h"

struct dt_attn_backward {
	struct dt_attn_in in;
	struct dt_tensor dq, dkv, dout, o;
	const float *lse;
};

/* What to compute. */
enum { DT_ATTN_DQ = 1, DT_ATTN_DKV = 2 };

/*
 * Working memory: of a key/value head up to k_depth, of a thread from there on. Rows: along the sequence;
 * words: along d; lanes and depth: see tile.h.
 */
struct dt_attn_space {
	float *dk, *dv;				 /* [tiles * 64, pad] */
	uint32_t *k_lanes, *v_lanes;		 /* one tile each: words x 64 */
	uint32_t *k_depth;			 /* depth x pad */
	uint32_t *q_rows, *g_rows;		 /* 64 x words; g is do */
	uint32_t *q_depth, *g_depth;		 /* depth x pad */
	uint32_t *p_cols, *ds_cols;		 /* p and ds packed along the queries: depth x 64 */
	uint32_t *ds_rows;			 /* packed along the keys: 64 x depth */
	float *s, *ds;				 /* [64, 64] */
	float *dq;				 /* [64, pad] */
	float lse[DT_TILE], dot[DT_TILE];	 /* per query row: log sum exp, do . o */
	int64_t lanes_n, value_lanes_n, depth_n; /* words per tile */
};

/*
 * attention_space.c. Whether all threads share each key/value head: if that takes at most about half the
 * time, as it costs 1.4 times the work.
 */
bool dt_attn_by_tiles(int threads, const struct dt_attn *p, int64_t tiles);
/* Lays out the part of a head, or of a thread, from base on; NULL only counts. Returns the words it takes. */
int64_t dt_attn_lay_head(struct dt_attn_space *w, const struct dt_attn_in *a, uint32_t *base);
int64_t dt_attn_lay_thread(struct dt_attn_space *w, const struct dt_attn_in *a, uint32_t *base);

/*
 * A tile of queries, from q0 on, of head h of sequence b, against those of the packed key tiles first ..
 * last - 1 that it sees. Stores dq with DT_ATTN_DQ, adds to w's dk and dv with DT_ATTN_DKV.
 */
void dt_attn_query_gradients(const struct dt_attn_backward *a, struct dt_attn_space *w, int64_t b, int64_t h,
			     int64_t q0, int64_t first, int64_t last, int what);

/* x [d] becomes row `to`, or is added to it. */
void dt_attn_store_row(void *to, enum dt_dtype type, const float *x, int64_t d, bool add);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
