/*
 * Attention over a paged cache: the keys of a row are split at fixed positions into parts of 256. Each part
 * has its own sums and maximum; they are merged in order. A row's result does not depend on other rows.
 */
#ifndef DT_KERNELS_CUDA_ATTENTION_PAGED_H
#define DT_KERNELS_CUDA_ATTENTION_PAGED_H

#include "kernels/cuda/attention.h"

#define PART 256

struct row {
	int32_t seq, first, last; /* range of keys it sees */
};

struct paged {
	const void *q, *k, *v;
	void *o;
	int tq, tk;
	int64_t heads, kv_heads, d, width, parts;
	int64_t dv, v_at; /* columns of values, and their offset in a head of v: a latent's last elements */
	int64_t each;	  /* q heads per block that share a key/value head */
	const int32_t *q_start, *kv_len, *table;
	int64_t rows;		     /* rows of q */
	int64_t first, nseq, window; /* first: the row of qkv that q begins with */
	int64_t max_blocks, block_size;
	float scale, cap; /* cap: softcap, or 0 */
	int tokens;	  /* tokens per tile of q: attention_tiles.cu */
	bool two;	  /* max is an exponent of 2: weights are exp2 */
	int lanes;	  /* lanes per key: enough for d with V elements each */
	const void *sink; /* [heads] of type ts; NULL: none */
	int ts;
	int tile;		 /* the first tile of this launch: attention_tiles.cu */
	float *max, *sum, *part; /* [rows, heads, parts] and [.., dv] */
};

/* 32-bit division: 64-bit takes several times the instructions, and every key waits for it. */
DT_DEVICE int64_t cache_row(const struct paged &a, int64_t seq, int64_t j)
{
	const uint32_t size = (uint32_t)a.block_size, block = (uint32_t)j / size;

	return (int64_t)a.table[seq * a.max_blocks + block] * size + ((uint32_t)j - block * size);
}

/* What the sink of head h adds to the sum of weights over max, all of them exponentials of base 2 or e. */
DT_DEVICE float sink_weight(const struct paged &a, int64_t h, float max)
{
	if (!a.sink)
		return 0;
	const float s = dt_ld1(a.sink, a.ts, h);

	return a.two ? exp2f(s * 1.44269504f - max) : expf(s - max);
}

/* The sequence of a row: the last one that begins at or before it. */
DT_DEVICE int find_seq(const struct paged &a, int32_t row)
{
	int lo = 0, hi = (int)a.nseq - 1;

	while (lo < hi) {
		const int mid = (lo + hi + 1) / 2;

		if (a.q_start[mid] <= row)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

/* The keys a row sees. */
DT_DEVICE struct row row_of(const struct paged &a, int seq, int32_t row)
{
	const int32_t last = a.kv_len[seq] - (a.q_start[seq + 1] - row);

	return {seq, a.window > 0 && last >= a.window ? (int32_t)(last - a.window + 1) : 0, last};
}

/*
 * Turns the scores of 64 keys, exponents of 2, into weights: s[n][2 h + e] of rows lane / 4 + 8 h of a warp's
 * products, and rescales the sums o. top: maximum of this lane's scores and of max, the previous maximum; sum
 * covers this lane's keys only.
 */
template <int N>
DT_DEVICE void weigh_half(float (&s)[8][4], float (&o)[N][4], float &max, float &sum, float top, int h)
{
	float base, shrink, add = 0;

	for (int by = 1; by <= 2; by++) {
		const float other = __shfl_xor_sync(DT_ALL, top, by);

		top = other > top ? other : top;
	}
	base = top == DT_NEGINF ? 0 : top; /* a row that sees none of these keys */
	shrink = exp2f(max - base);
	max = top;
	DT_UNROLL
	for (int i = 0; i < 16; i++) {
		float &v = s[i / 2][2 * h + i % 2];

		v = exp2f(v - base);
		add += v;
	}
	sum = fmaf(sum, shrink, add);
	DT_UNROLL
	for (int n = 0; n < N; n++) {
		o[n][2 * h] *= shrink;
		o[n][2 * h + 1] *= shrink;
	}
}

/* attention_tiles.cu: uses tensor cores; false: types or sizes are not supported. */
bool dt_paged_in_tiles(const struct paged *a);
int dt_paged_tiles(const struct dt_cuda *c, struct paged a);
/* attention_latent.cu: the same for latents. */
bool dt_latents_in_tiles(const struct paged *a);
int dt_latent_tiles(const struct dt_cuda *c, struct paged a);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
