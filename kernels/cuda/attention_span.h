/*
 * Attention over spans of keys, where it differs from whole sequences, for the tiled kernels
 * (attention_mma.h) and those by rows.
 *
 * Positions of queries ascend, and so do the first positions that they see. So the first and the last row of
 * a block of queries bound what it sees, and the queries that see any key of a block are contiguous. A tile
 * of keys begins with a position that some query of the block sees, not with a multiple of 64, and has up to
 * 64 consecutive positions of a run; a tile of queries begins with one that sees a key of the block. Tiles
 * that no query sees are neither read nor multiplied.
 *
 * A tile of 64 queries and 64 keys of a head takes 2 * 64 * 64 * (d + v) flops forward, 2 * 64 * 64 * (2 d +
 * v) for dq and 2 * 64 * 64 * (2 d + 2 v) for dk and dv, d and v as padded. A document of n tokens that
 * begins at a block of queries takes t (t + 1) / 2 tiles, t = ceil(n / 64). One that begins elsewhere touches
 * one more block: n consecutive documents of 64 tokens are n tiles if they are aligned to blocks, else up to
 * 2 n + 1, from n + 1 blocks.
 */
#ifndef DT_KERNELS_CUDA_ATTENTION_SPAN_H
#define DT_KERNELS_CUDA_ATTENTION_SPAN_H

#include "kernels/cuda/attention_mma.h"

/* qkv, seq and width describe the matrix of queries; out is o. */
struct dt_span_args : dt_attn_args {
	const void *kv;
	void *dq, *dkv;
	const int32_t *pos, *first;
	int nrun, out_t, dq_t, dkv_t;
	bool add, all;
	int64_t dq_width, kv_width, run_keys, stride, k_col, v_col;
	struct dt_attn_run run[DT_ATTN_RUNS];
};

static inline struct dt_span_args dt_span_args(const struct dt_attn *p, const struct dt_attn_span *s,
					       struct dt_tensor q, struct dt_tensor kv, struct dt_tensor lse)
{
	struct dt_span_args a = {};

	(struct dt_attn_args &)a = dt_attn_args(p, q);
	a.seq = s->rows;
	a.lse = (float *)lse.data;
	a.kv = kv.data;
	a.pos = s->pos;
	a.first = s->first;
	a.nrun = s->nrun;
	a.add = s->add;
	a.all = s->all;
	a.kv_width = dt_cols(kv);
	a.run_keys = s->run_keys;
	a.stride = s->stride;
	a.k_col = s->k_col;
	a.v_col = s->v_col;
	a.fast = a.fast && a.kv_width % 8 == 0 && a.k_col % 8 == 0 && a.v_col % 8 == 0 && dt_aligned(kv.data);
	for (int i = 0; i < s->nrun; i++)
		a.run[i] = s->run[i];
	return a;
}

/* Range of positions that query i of sequence b sees: from .. to. */
struct dt_span_seen {
	int64_t from, to;
};

DT_DEVICE struct dt_span_seen dt_span_seen(const struct dt_span_args &a, int64_t b, int64_t i)
{
	const int64_t at = b * a.seq + i,
		      to = a.all   ? DT_ATTN_END
			   : a.pos ? dt_at(a.pos, at)
				   : i,
		      from = a.first ? dt_at(a.first, at) : 0, near = to - a.window + 1;

	return {a.window && near > from ? near : from, to};
}

/* The row of kv that holds position p of run r. */
DT_DEVICE int64_t dt_span_row(const struct dt_span_args &a, int64_t b, int r, int64_t p)
{
	return a.run[r].row + b * a.stride + p - a.run[r].pos;
}

/* The part of the positions `in` that is in run r. */
DT_DEVICE struct dt_span_seen dt_span_part(const struct dt_span_args &a, const struct dt_span_seen &in, int r)
{
	const int64_t first = a.run[r].pos, last = first + a.run_keys - 1;

	return {first > in.from ? first : in.from, last < in.to ? last : in.to};
}

/* Offset of a head of the keys, of the values in a row of kv. */
DT_DEVICE int64_t dt_span_key(const struct dt_span_args &a, int64_t row, int64_t kv)
{
	return row * a.kv_width + a.k_col + kv * a.d;
}

DT_DEVICE int64_t dt_span_value(const struct dt_span_args &a, int64_t row, int64_t kv)
{
	return row * a.kv_width + a.v_col + kv * a.v;
}

DT_DEVICE const uint16_t *dt_attn_k(const struct dt_span_args &a, int64_t b, int64_t kv)
{
	(void)b;
	return (const uint16_t *)a.kv + dt_span_key(a, 0, kv);
}

DT_DEVICE const uint16_t *dt_attn_v(const struct dt_span_args &a, int64_t b, int64_t kv)
{
	(void)b;
	return (const uint16_t *)a.kv + dt_span_value(a, 0, kv);
}

DT_DEVICE int64_t dt_attn_kv_width(const struct dt_span_args &a)
{
	return a.kv_width;
}

struct dt_span_walk {
	int64_t key;		      /* position of the tile's first key */
	int n, run;		      /* number of keys in the tile, 0: no tile; the run they are in */
	int64_t q0, b, last;	      /* first query of the block, its sequence, last query */
	int64_t all_from, all_to, to; /* range that all the block's queries see; last that any sees */
};

/* Number of queries of the block that see nothing from position p on. */
DT_DEVICE int dt_span_behind(const struct dt_span_args &a, const struct dt_span_walk &w, int64_t p)
{
	int n = 0;

	for (int64_t i = w.q0 + threadIdx.x % 32; i < w.q0 + DT_TILE; i += 32)
		n += __popc(__ballot_sync(DT_ALL, i <= w.last && dt_span_seen(a, w.b, i).to < p));
	return n;
}

/* Moves to the first tile from position p on with keys that are seen. */
DT_DEVICE void dt_span_find(const struct dt_span_args &a, struct dt_span_walk &w, int64_t p)
{
	w.n = 0;
	while (p <= w.to) {
		if (p > w.all_to) {
			const int64_t from = dt_span_seen(a, w.b, w.q0 + dt_span_behind(a, w, p)).from;

			p = from > p ? from : p;
		}
		while (w.run < a.nrun && a.run[w.run].pos + a.run_keys <= p)
			w.run++;
		if (w.run == a.nrun)
			return;
		if (a.run[w.run].pos <= p) {
			const int64_t end = a.run[w.run].pos + a.run_keys, all = end <= w.to ? end : w.to + 1;

			w.key = p;
			w.n = (int)(all - p < DT_TILE ? all - p : DT_TILE);
			return;
		}
		p = a.run[w.run].pos;
	}
}

DT_DEVICE struct dt_span_walk dt_attn_walk_of(const struct dt_span_args &a, int64_t b, int64_t q0)
{
	struct dt_span_walk w = {};

	w.q0 = q0;
	w.b = b;
	w.last = q0 + DT_TILE < a.seq ? q0 + DT_TILE - 1 : a.seq - 1;

	const struct dt_span_seen first = dt_span_seen(a, b, q0), last = dt_span_seen(a, b, w.last);

	w.all_from = last.from;
	w.all_to = first.to;
	w.to = last.to;
	dt_span_find(a, w, first.from);
	return w;
}

DT_DEVICE bool dt_attn_more(const struct dt_span_walk &w)
{
	return w.n > 0;
}

DT_DEVICE bool dt_attn_any(const struct dt_span_walk &w)
{
	return w.n > 0;
}

DT_DEVICE void dt_attn_step(const struct dt_span_args &a, struct dt_span_walk &w)
{
	dt_span_find(a, w, w.key + w.n);
}

DT_DEVICE bool dt_attn_edge(const struct dt_span_args &a, const struct dt_span_walk &w)
{
	(void)a;
	return w.n < DT_TILE || w.key < w.all_from || w.key + DT_TILE - 1 > w.all_to;
}

DT_DEVICE struct dt_attn_rows dt_attn_rows_of(const struct dt_span_args &a, const struct dt_span_walk &w)
{
	const int64_t row = dt_span_row(a, w.b, w.run, w.key);

	return {row, row + w.n};
}

/* Positions after the tile's keys may be in another run. */
DT_DEVICE struct dt_attn_range dt_attn_keys_seen(const struct dt_span_args &a, const struct dt_span_walk &w,
						 int64_t query)
{
	if (query >= a.seq)
		return {0, 0};
	const struct dt_span_seen s = dt_span_seen(a, w.b, query);
	const int64_t end = w.key + w.n;

	return dt_attn_range(s.from, s.to < end ? s.to + 1 : end, w.key);
}

/* Number of queries of sequence b before the first that sees position p or later, or (FROM) only later
 * ones. */
template <bool FROM> DT_DEVICE int64_t dt_span_before(const struct dt_span_args &a, int64_t b, int64_t p)
{
	int64_t n = 0, more = a.seq; /* the first n are known to precede it; `more` are left to search */

	while (more > 0) { /* 32 at a time */
		const int64_t each = dt_ceil_div(more, 32), last = (threadIdx.x % 32 + 1) * each - 1;
		bool before = last < more;

		if (before) {
			const struct dt_span_seen s = dt_span_seen(a, b, n + last);

			before = FROM ? s.from <= p : s.to < p;
		}
		const int64_t is = each * __popc(__ballot_sync(DT_ALL, before));

		n += is;
		more = more - is < each - 1 ? more - is : each - 1;
	}
	return n;
}

struct dt_span_block {
	int64_t key;		  /* position of the first key */
	struct dt_attn_rows rows; /* rows of kv */
	int64_t b, first, end;	  /* queries of sequence b that see any of the keys */
};

DT_DEVICE struct dt_span_block dt_attn_block_of(const struct dt_span_args &a)
{
	const int64_t tiles = dt_ceil_div(a.run_keys, DT_TILE), b = dt_attn_sequence(a);
	const int r = (int)(blockIdx.x / tiles);
	const int64_t at = blockIdx.x % tiles * DT_TILE, key = a.run[r].pos + at,
		      n = a.run_keys - at < DT_TILE ? a.run_keys - at : DT_TILE,
		      row = dt_span_row(a, b, r, key);
	const int64_t first = dt_span_before<false>(a, b, key), end = dt_span_before<true>(a, b, key + n - 1);

	return {key, {row, row + n}, b, first, end > first ? end : first};
}

DT_DEVICE bool dt_attn_any(const struct dt_span_block &k)
{
	return k.end > k.first;
}

DT_DEVICE int64_t dt_attn_last(const struct dt_span_args &a, const struct dt_span_block &k)
{
	(void)a;
	return k.end;
}

/* Keys past the end of the block are zero and not stored, so only the bounds of queries matter. */
DT_DEVICE bool dt_attn_edge(const struct dt_span_args &a, const struct dt_span_block &k, int64_t q0)
{
	return q0 + DT_TILE > k.end || dt_span_seen(a, k.b, q0).to < k.key + DT_TILE - 1 ||
	       dt_span_seen(a, k.b, q0 + DT_TILE - 1).from > k.key;
}

DT_DEVICE void dt_attn_meet(struct dt_attn_range *seen, const struct dt_span_args &a,
			    const struct dt_span_block &k, int64_t query)
{
	*seen = {0, 0};
	if (query < k.end) {
		const struct dt_span_seen s = dt_span_seen(a, k.b, query);

		*seen = dt_attn_range(s.from, s.to + 1, k.key);
	}
}

DT_DEVICE bool dt_attn_met(const struct dt_attn_range *seen, const struct dt_span_args &a,
			   const struct dt_span_block &k, int64_t q0, int j, int64_t key)
{
	(void)a, (void)q0;
	return dt_attn_in(seen[j], (int)(key - k.key));
}

DT_DEVICE struct dt_attn_to dt_attn_o(const struct dt_span_args &a, int64_t b, int64_t h)
{
	return {a.out, (b * a.seq * a.heads + h) * a.v, a.heads * a.v, a.out_t == DT_F32, false};
}

DT_DEVICE struct dt_attn_to dt_attn_dq(const struct dt_span_args &a, int64_t b, int64_t h)
{
	return {a.dq, b * a.seq * a.dq_width + h * a.d, a.dq_width, a.dq_t == DT_F32, a.add};
}

DT_DEVICE struct dt_attn_to dt_attn_dk(const struct dt_span_args &a, int64_t b, int64_t kv)
{
	(void)b;
	return {a.dkv, dt_span_key(a, 0, kv), a.kv_width, a.dkv_t == DT_F32, a.add};
}

DT_DEVICE struct dt_attn_to dt_attn_dv(const struct dt_span_args &a, int64_t b, int64_t kv)
{
	(void)b;
	return {a.dkv, dt_span_value(a, 0, kv), a.kv_width, a.dkv_t == DT_F32, a.add};
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
