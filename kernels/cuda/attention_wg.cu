/*
 * Forward. The scores of the next keys are computed during the softmax of the current ones, and o after both.
 * Keys and values are read once for every 128 queries that see them. The two warpgroups alternate in issuing
 * products, so that one computes exponentials while the other uses the tensor cores (FlashAttention-3,
 * section 3.1).
 */
#include "kernels/cuda/attention_wg.h"

/* Keys at a time: for heads of 64, scores take half the registers, so that two blocks share an SM. */
template <int D> constexpr int keys = D == 64 ? 64 : 128;
template <int D> constexpr int slots = D == 64 ? 4 : 3;

/* Weights may reach this exponent of 2 before the sums are rescaled. */
#define SLACK 8.f

/* Shared memory. Results reuse the memory of keys. */
template <int D> struct room {
	uint16_t q[DT_WG_ROWS * D], k[slots<D>][keys<D> * D], v[slots<D>][keys<D> * D];
	struct dt_ring<slots<D>> keys, values;
	uint64_t queries;
};

template <int D> DT_DEVICE struct dt_wg_tile<keys<D>> keys_of(struct room<D> &r, int j) {
	return {r.k[j % slots<D>]};
}

template <int D>
DT_DEVICE struct dt_wg_tile<keys<D>> values_of(struct room<D> &r, int j) {
	return {r.v[j % slots<D>]};
}

/* The queries; for heads of 64 they are kept in registers. */
template <int D>
struct queries {
	struct dt_wg_tile<DT_WG_ROWS> t;
	uint32_t f[D == 64 ? D / 16 : 1][4];
};

template <int D> DT_DEVICE void read(struct queries<D> &q)
{
	DT_UNROLL
	for (int k = 0; k < (D == 64 ? D / 16 : 0); k++)
		dt_wg_fragment(q.f[k], q.t, (int)threadIdx.x / 32 * 16, k * 16);
}

template <class T, int D, int N, int ROWS>
DT_DEVICE void products(float (&s)[N][4], const struct queries<D> &q, struct dt_wg_tile<ROWS> t)
{
	DT_UNROLL
	for (int k = 0; k < D / 16; k++)
		if constexpr (D == 64)
			dt_wg_rows<T>(s, q.f[k], t, k * 16, k > 0);
		else
			dt_wg_rows<T>(s, q.t, (int)threadIdx.x / 128 * 64, t, k * 16, k > 0);
}

/* Starts copying tile j of keys, of values. One thread. */
template <int D>
DT_DEVICE void bring_keys(struct room<D> &r, const struct dt_wg_maps &m, const struct dt_wg_queries &w, int j)
{
	uint64_t *there = &r.keys.there[j % slots<D>];

	dt_mbar_expect(there, keys<D> * D * 2);
	dt_bring<D>(keys_of<D>(r, j), m.qk, w.first + j * keys<D>, w.heads + w.kv, w.b, there);
}

template <int D>
DT_DEVICE void bring_values(struct room<D> &r, const struct dt_wg_maps &m, const struct dt_wg_queries &w,
			    int j)
{
	uint64_t *there = &r.values.there[j % slots<D>];

	dt_mbar_expect(there, keys<D> * D * 2);
	dt_bring<D>(values_of<D>(r, j), m.v, w.first + j * keys<D>, w.kv, w.b, there);
}

/* Starts copying the queries and as many tiles as fit; initialises the mbarriers. */
template <int D>
DT_DEVICE void bring_first(struct room<D> &r, const struct dt_wg_maps &m, const struct dt_wg_queries &w)
{
	if (threadIdx.x == 0) {
		dt_ring_init(r.keys);
		dt_ring_init(r.values);
		dt_mbar_init(&r.queries, 1);
		dt_wg_written();
		dt_mbar_expect(&r.queries, DT_WG_ROWS * D * 2);
		dt_bring<D>(dt_wg_tile<DT_WG_ROWS>{r.q}, m.qk, w.q0, w.h, w.b, &r.queries);
		DT_UNROLL
		for (int j = 0; j < slots<D>; j++)
			if (j < w.tiles) {
				bring_keys(r, m, w, j);
				bring_values(r, m, w, j);
			}
	}
	__syncthreads();
}

/*
 * Turns the scores of two rows into weights 2^(k s - base). base is the row's maximum when it last grew by
 * more than SLACK; `by` is then the factor for earlier sums, otherwise 1. sum covers this lane's columns.
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

/* Stores o / sum and lse of the warp's rows, once the keys are no longer used. */
template <class T, int D>
DT_DEVICE void finish(const struct dt_attn_args &a, const struct dt_wg_queries &w, struct room<D> &r,
		      const float (&o)[D / 8][4], const float (&base)[2], float (&sum)[2])
{
	const int row = (int)threadIdx.x / 32 * 16;

	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		sum[i] = dt_quad_sum(sum[i]);
		if (threadIdx.x % 4 == 0 && w.query + 8 * i < a.seq)
			a.lse[(w.b * a.heads + w.h) * a.seq + w.query + 8 * i] =
				base[i] / DT_LOG2E + logf(sum[i]);
	}
	dt_attn_store<T, D>((uint16_t *)a.out + w.b * a.seq * a.heads * a.v + w.h * a.v, a.heads * a.v,
			    r.k[0] + row * (D + 8), o, 1 / sum[0], 1 / sum[1], w.q0 + row, a.seq, a.v, true);
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, D == 64 ? 2 : 1)
	wg_forward_kernel(struct dt_attn_args a, const __grid_constant__ struct dt_wg_maps m)
{
	constexpr int KEYS = keys<D>, SLOTS = slots<D>;
	struct room<D> &r = *(struct room<D> *)dt_wg_shared();
	struct queries<D> q = {
		{r.q},
		{
		}
	};
	const struct dt_wg_queries w = dt_wg_queries(a, m, KEYS);
	const float unit = a.scale * DT_LOG2E;
	float s[KEYS / 8][4], o[D / 8][4], base[2] = {DT_NEGINF, DT_NEGINF}, sum[2] = {0, 0}, by[2];
	uint32_t p[KEYS / 16][4];
	const auto scores = [&](int j) {
		dt_ring_wait(r.keys, j);
		dt_wg_begin();
		products<T>(s, q, keys_of<D>(r, j));
		dt_wg_commit();
	};
	const auto gather = [&](int j) {
		dt_ring_wait(r.values, j);
		dt_wg_begin();
		dt_wg_gather<T>(o, p, values_of<D>(r, j));
		dt_wg_commit();
	};
	/* Called when the scores of tile j are complete, so its keys are no longer needed. */
	const auto weights = [&](int j) {
		const int key = w.first + j * KEYS;
		const unsigned before = j + SLOTS < w.tiles ? dt_ring_used(r.keys, j, w.warps) : ~0u;

		if (dt_wg_edge(a, w, key, KEYS))
			dt_wg_mask(s, {dt_attn_keys_seen(a, w.query, key),
				       dt_attn_keys_seen(a, w.query + 8, key)});
		soften(s, by, base, sum, unit);
		if (dt_ring_last(before, w.warps))
			bring_keys(r, m, w, j + SLOTS);
	};

	dt_zero(o);
	bring_first(r, m, w);
	dt_wg_turns_begin<D>(w);
	dt_mbar_wait(&r.queries, 0);
	read(q);
	if (w.mine) {
		scores(0);
		dt_wg_wait<0>();
		weights(0);
		dt_wg_round<T>(p, s);
	}
	for (int j = 0; j < w.mine; j++) {
		if (j + 1 == w.mine) {
			gather(j);
			dt_wg_wait<0>();
			break;
		}
		dt_wg_turn_take<D>(w);
		scores(j + 1);
		gather(j);
		dt_wg_turn_give<D>(w, j);
		dt_wg_wait<1>();
		weights(j + 1);
		dt_wg_wait<0>();
		const unsigned before = j + SLOTS < w.tiles ? dt_ring_used(r.values, j, w.warps) : ~0u;

		if (__ballot_sync(DT_ALL, by[0] != 1 || by[1] != 1))
			dt_attn_shrink(o, by);
		dt_wg_round<T>(p, s);
		if (dt_ring_last(before, w.warps))
			bring_values(r, m, w, j + SLOTS);
	}
	dt_wg_turns_end<D>(w);
	__syncthreads();
	finish<T, D>(a, w, r, o, base, sum);
}

int dt_attn_wg_forward(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t batch)
{
	const int64_t wide = dt_attn_wide(a);
	struct dt_wg_maps m;
	int rc;

	if (!dt_attn_wg(c, a))
		return -ENOTSUP;
	rc = dt_wg_maps(&m, a, batch);
	if (rc < 0)
		return rc;
	const dim3 grid = dt_wg_order(&m, a, a.heads, batch, 0);

	return DT_LAUNCH(c, DT_WG_PICK(wg_forward_kernel, a.t, wide), grid, DT_WG_THREADS,
			 1024 + (wide <= 64 ? sizeof(struct room<64>) : sizeof(struct room<128>)), a, m);
}
/* SPDX-License-Identifier: Apache-2.0 */
