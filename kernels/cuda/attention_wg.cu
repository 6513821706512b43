/*
 * Forward. Scores of the next keys are computed while the softmax of these is, and o behind both. Keys and
 * values are read once for every 128 queries that see them.
 */
#include "kernels/cuda/attention_wg.h"

/* Keys at a time: scores are half as many registers in heads of 64, so that two blocks share an SM. */
template <int D> constexpr int keys = D == 64 ? 64 : 128;

/* Exponents of 2 that weights may reach before what was added up is scaled anew. */
#define SLACK 8.f

/* Tile j of keys, of values: there is room for two of each behind the queries. */
template <int D> DT_DEVICE struct dt_wg_tile<keys<D>> keys_of(uint16_t *room, int j) {
	return {room + (DT_WG_ROWS + (j & 1) * keys<D>)*D};
}

template <int D>
DT_DEVICE struct dt_wg_tile<keys<D>> values_of(uint16_t *room, int j) {
	return {room + (DT_WG_ROWS + (2 + (j & 1)) * keys<D>)*D};
}

/*
 * Scores of two rows become weights 2^(k s - base). The base is the row's maximum when it last grew by more
 * than SLACK: then `by` is what was added up before is to be multiplied with; else 1. sum is of this lane's
 * columns.
 */
template <int N>
DT_DEVICE void soften(float (&s)[N][4], float (&by)[2], float (&base)[2], float (&sum)[2], float k)
{
	DT_UNROLL
	for (int h = 0; h < 2; h++) {
		float top = s[0][2 * h], add = 0, from;

		DT_UNROLL
		for (int i = 1; i < 2 * N; i++)
			top = fmaxf(top, s[i / 2][2 * h + i % 2]);
		top = dt_quad_max(top) * k;
		by[h] = 1;
		if (top > base[h] + SLACK) {
			by[h] = dt_exp2(base[h] - top);
			base[h] = top;
		}
		from = base[h] == DT_NEGINF ? 0 : base[h]; /* a row that has seen no key */
		DT_UNROLL
		for (int i = 0; i < 2 * N; i++)
			add += s[i / 2][2 * h + i % 2] = dt_exp2(fmaf(s[i / 2][2 * h + i % 2], k, -from));
		sum[h] = sum[h] * by[h] + add;
	}
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, D == 64 ? 2 : 1) wg_forward_kernel(struct dt_attn_args a)
{
	constexpr int KEYS = keys<D>;
	uint16_t *room = (uint16_t *)dt_wg_shared();
	struct dt_wg_side<D> q = {
		{room},
		{
		}
	};
	const struct dt_wg_queries w = dt_wg_queries(a, KEYS);
	const auto k = dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, dt_attn_keys(a, w.kv)), a.width,
				      a.seq, a.d);
	const auto v = dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, dt_attn_values(a, w.kv)), a.width,
				      a.seq, a.v);
	const float unit = a.scale * DT_LOG2E;
	float s[KEYS / 8][4], o[D / 8][4], base[2] = {DT_NEGINF, DT_NEGINF}, sum[2] = {0, 0}, by[2];
	uint32_t p[KEYS / 16][4];

	DT_UNROLL
	for (int i = 0; i < D / 2; i++)
		o[i / 4][i % 4] = 0;
	dt_wg_load(q.t, dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, w.h * a.d), a.width, a.seq, a.d),
		   w.q0);
	dt_wg_load(keys_of<D>(room, 0), k, w.first);
	dt_cp_commit();
	if (w.tiles > 1)
		dt_wg_load(keys_of<D>(room, 1), k, w.first + KEYS);
	dt_wg_load(values_of<D>(room, 0), v, w.first);
	dt_cp_commit();
	dt_cp_wait<1>();
	dt_wg_written();
	__syncthreads();
	dt_wg_side_read(q);
	/* Values of tile j and keys of the next are there behind this; what was before has been used. */
	const auto turn = [&](int j) {
		const int key = w.first + (j + 1) * KEYS; /* the next tile's */

		dt_cp_wait<0>();
		dt_wg_written();
		__syncthreads();
		if (j + 2 < w.tiles)
			dt_wg_load(keys_of<D>(room, j), k, key + KEYS);
		if (j + 1 < w.tiles)
			dt_wg_load(values_of<D>(room, j + 1), v, key);
		dt_cp_commit();
	};
	const auto weights = [&](int key) {
		if (dt_wg_edge(a, w, key, KEYS))
			dt_wg_mask(s, {dt_attn_keys_seen(a, w.query, key),
				       dt_attn_keys_seen(a, w.query + 8, key)});
		soften(s, by, base, sum, unit);
	};

	if (w.mine) {
		dt_wg_begin();
		dt_wg_side_scores<T>(s, q, keys_of<D>(room, 0));
		dt_wg_commit();
		dt_wg_wait<0>();
		weights(w.first);
		dt_wg_round<T>(p, s);
	}
	for (int j = 0; j < w.tiles; j++) {
		turn(j);
		if (j + 1 < w.mine) {
			dt_wg_begin();
			dt_wg_side_scores<T>(s, q, keys_of<D>(room, j + 1));
			dt_wg_commit();
			dt_wg_gather<T>(o, p, values_of<D>(room, j));
			dt_wg_commit();
			dt_wg_wait<1>();
			weights(w.first + (j + 1) * KEYS);
			dt_wg_wait<0>();
			if (__ballot_sync(DT_ALL, by[0] != 1 || by[1] != 1))
				dt_attn_shrink(o, by);
			dt_wg_round<T>(p, s);
		} else if (j + 1 == w.mine) {
			dt_wg_begin();
			dt_wg_gather<T>(o, p, values_of<D>(room, j));
			dt_wg_commit();
			dt_wg_wait<0>();
		}
	}
	__syncthreads(); /* keys and values have been used: their place is the results' */
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		sum[i] = dt_quad_sum(sum[i]);
		if (threadIdx.x % 4 == 0 && w.query + 8 * i < a.seq)
			a.lse[(w.b * a.heads + w.h) * a.seq + w.query + 8 * i] =
				base[i] / DT_LOG2E + logf(sum[i]);
	}
	const int row = (int)threadIdx.x / 32 * 16;

	dt_attn_store<T, D>((uint16_t *)a.out + w.b * a.seq * a.heads * a.v + w.h * a.v, a.heads * a.v,
			    keys_of<D>(room, 0).p + row * (D + 8), o, 1 / sum[0], 1 / sum[1], w.q0 + row,
			    a.seq, a.v, true);
}

int dt_attn_wg_forward(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t batch)
{
	const int64_t wide = dt_attn_wide(a), d = wide <= 64 ? 64 : 128;
	const dim3 grid((unsigned)dt_ceil_div(a.seq, DT_WG_ROWS), (unsigned)a.heads, (unsigned)batch);

	if (!dt_attn_wg(c, a))
		return -ENOTSUP;
	return DT_LAUNCH(c, DT_WG_PICK(wg_forward_kernel, a.t, wide), grid, DT_WG_THREADS,
			 1024 + (size_t)(DT_WG_ROWS + 4 * (d == 64 ? keys<64> : keys<128>)) * (size_t)d * 2,
			 a);
}
/* SPDX-License-Identifier: Apache-2.0 */
