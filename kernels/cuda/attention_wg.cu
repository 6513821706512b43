/*
 * Forward. Scores of the next keys are computed while the softmax of these is, and o behind both. Keys and
 * values are read once for every 128 queries that see them.
 */
#include "kernels/cuda/attention_wg.h"

/* Keys at a time: scores are half as many registers in heads of 64, so that two blocks share an SM. */
template <int D> constexpr int keys = D == 64 ? 64 : 128;

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
	const struct dt_wg_tile<KEYS> kt[2] = {
		{room + DT_WG_ROWS * D},
		{
			room + (DT_WG_ROWS + KEYS) * D
		}
	};
	const struct dt_wg_tile<KEYS> vt[2] = {
		{room + (DT_WG_ROWS + 2 * KEYS) * D},
		{
			room + (DT_WG_ROWS + 3 * KEYS) * D
		}
	};
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = blockIdx.z;
	const int64_t q0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * DT_WG_ROWS; /* the longest first */
	const int64_t own = q0 + dt_wg_group() * 64, query = q0 + warp * 16 + lane / 4;
	const uint16_t *rows = (const uint16_t *)a.qkv + b * a.seq * a.width;
	const uint16_t *from = rows + dt_attn_keys(a, kv), *values = rows + dt_attn_values(a, kv);
	const int64_t first = a.window && q0 >= a.window ? (q0 - a.window + 1) / KEYS * KEYS : 0;
	const int tiles = (int)((dt_min64(q0 + DT_WG_ROWS, a.seq) - 1 - first) / KEYS) + 1;
	/* Of those, what the warpgroup's queries see. */
	const int mine = own < a.seq ? (int)((dt_min64(own + 64, a.seq) - 1 - first) / KEYS) + 1 : 0;
	float s[KEYS / 8][4], o[D / 8][4], max[2] = {DT_NEGINF, DT_NEGINF}, sum[2] = {0, 0}, shrink[2];
	uint32_t p[KEYS / 16][4];

	DT_UNROLL
	for (int i = 0; i < D / 2; i++)
		o[i / 4][i % 4] = 0;
	dt_wg_load<D>(q.t, rows + h * a.d, a.width, q0, a.seq, a.d);
	dt_wg_load<D>(kt[0], from, a.width, first, a.seq, a.d);
	dt_cp_commit();
	if (tiles > 1)
		dt_wg_load<D>(kt[1], from, a.width, first + KEYS, a.seq, a.d);
	dt_wg_load<D>(vt[0], values, a.width, first, a.seq, a.v);
	dt_cp_commit();
	dt_cp_wait<1>();
	dt_wg_written();
	__syncthreads();
	dt_wg_side_read(q);
	/* Values of tile j and keys of the next are there behind this; what was before has been used. */
	const auto turn = [&](int j) {
		const int64_t key = first + (int64_t)(j + 1) * KEYS; /* the next tile's */

		dt_cp_wait<0>();
		dt_wg_written();
		__syncthreads();
		if (j + 2 < tiles)
			dt_wg_load<D>(kt[j % 2], from, a.width, key + KEYS, a.seq, a.d);
		if (j + 1 < tiles)
			dt_wg_load<D>(vt[(j + 1) % 2], values, a.width, key, a.seq, a.v);
		dt_cp_commit();
	};
	const auto edge = [&](int64_t key) {
		return key + KEYS > own || (a.window && own + 64 - key > a.window);
	};

	if (mine) {
		dt_wg_begin();
		dt_wg_side_scores<T>(s, q, kt[0]);
		dt_wg_commit();
		dt_wg_wait<0>();
		dt_attn_soften(s, shrink, max, sum, a, query, first, edge(first));
		dt_wg_round<T>(p, s);
	}
	for (int j = 0; j < tiles; j++) {
		const int64_t key = first + (int64_t)(j + 1) * KEYS;

		turn(j);
		if (j + 1 < mine) {
			dt_wg_begin();
			dt_wg_side_scores<T>(s, q, kt[(j + 1) % 2]);
			dt_wg_commit();
			dt_wg_gather<T>(o, p, vt[j % 2]);
			dt_wg_commit();
			dt_wg_wait<1>();
			dt_attn_soften(s, shrink, max, sum, a, query, key, edge(key));
			dt_wg_wait<0>();
			dt_attn_shrink(o, shrink);
			dt_wg_round<T>(p, s);
		} else if (j + 1 == mine) {
			dt_wg_begin();
			dt_wg_gather<T>(o, p, vt[j % 2]);
			dt_wg_commit();
			dt_wg_wait<0>();
		}
	}
	__syncthreads(); /* keys and values have been used: their place is the results' */
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		sum[i] = dt_quad_sum(sum[i]);
		if (lane % 4 == 0 && query + 8 * i < a.seq)
			a.lse[(b * a.heads + h) * a.seq + query + 8 * i] = max[i] / DT_LOG2E + logf(sum[i]);
	}
	dt_attn_store<T, D>((uint16_t *)a.out + b * a.seq * a.heads * a.v + h * a.v, a.heads * a.v,
			    kt[0].p + warp * 16 * (D + 8), o, 1 / sum[0], 1 / sum[1], q0 + warp * 16, a.seq,
			    a.v, true);
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
