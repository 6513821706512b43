/*
 * The logits are read twice, for the maximum and for the weights, split over blocks in chunks of CHUNK; with
 * top_k or top_p a third time, for the few tokens in the bins of weights that may stay. Then one block per
 * row finds the token: among those few, or in the chunk of ids where the draw falls. Nothing is sorted. Rows
 * with argmax are read once; log-probabilities take two more passes. All sums are of integers, so their order
 * does not matter.
 *
 * A bin is 1/16 of an exponent. In the bin that contains the threshold, tokens are ordered by rank keys: the
 * logit's bits, larger first, then the id. The range of keys is narrowed in 256 parts at a time until few are
 * left.
 */
#include "kernels/cuda/sample_rank.h"

DT_DEVICE void warp_peak(float &m, int32_t &id, int &bad)
{
	for (int by = 16; by; by >>= 1) {
		const float m2 = __shfl_xor_sync(DT_ALL, m, by);
		const int32_t id2 = __shfl_xor_sync(DT_ALL, id, by);

		bad |= __shfl_xor_sync(DT_ALL, bad, by);
		better(m, id, m2, id2);
	}
}

template <int V> __global__ void __launch_bounds__(THREADS) peak_kernel(struct sample a, bool raw)
{
	const int64_t row = blockIdx.y, first = (int64_t)blockIdx.x * CHUNK,
		      part = row * a.chunks + blockIdx.x;
	const int64_t last = a.vocab - first < CHUNK ? a.vocab : first + CHUNK;
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float *m_of = (float *)dt_shared(), m = -INFINITY;
	int32_t *id_of = (int32_t *)(m_of + WARPS), id = INT32_MAX;
	int *bad_of = (int *)(id_of + WARPS), bad = 0;

	if (raw && !a.draw[row].score)
		return;
	for (int i = (int)threadIdx.x; !raw && blockIdx.x == 0 && i < BINS; i += THREADS) {
		a.bin_sum[row * BINS + i] = 0;
		a.bin_n[row * BINS + i] = 0;
		if (i == 0)
			a.bin_n[gridDim.y * (int64_t)BINS + row] = 0;
	}
	for (int64_t j = first + threadIdx.x * V; j < last; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.logits, DT_F32, row * a.vocab + j);
		for (int k = 0; k < V; k++) {
			bad |= r[k] != r[k];
			better(m, id, r[k], (int32_t)(j + k));
		}
	}
	warp_peak(m, id, bad);
	if (lane == 0) {
		m_of[warp] = m;
		id_of[warp] = id;
		bad_of[warp] = bad;
	}
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int w = 1; w < WARPS; w++) {
		better(m, id, m_of[w], id_of[w]);
		bad |= bad_of[w];
	}
	(raw ? a.raw_peak : a.peak)[part] = bad ? NAN : m;
	if (!raw)
		a.peak_id[part] = id;
}

/* The row's maximum, not finite if there is no valid token; computed by each warp. */
DT_DEVICE float row_peak(const float *peak, const int32_t *ids, int64_t row, int chunks, int32_t *ret_id)
{
	float m = -INFINITY;
	int32_t id = INT32_MAX;
	int bad = 0;

	for (int i = (int)threadIdx.x % 32; i < chunks; i += 32) {
		const float p = dt_ld1(peak, DT_F32, row * chunks + i);

		bad |= p != p;
		better(m, id, p, ids ? ids[row * chunks + i] : 0);
	}
	warp_peak(m, id, bad);
	if (ret_id)
		*ret_id = id;
	return bad ? NAN : m;
}

template <int V> __global__ void __launch_bounds__(THREADS) weigh_kernel(struct sample a, bool raw)
{
	const int64_t row = blockIdx.y, first = (int64_t)blockIdx.x * CHUNK,
		      part = row * a.chunks + blockIdx.x;
	const int64_t last = a.vocab - first < CHUNK ? a.vocab : first + CHUNK;
	const struct dt_draw d = a.draw[row];
	const float max = row_peak(raw ? a.raw_peak : a.peak, NULL, row, a.chunks, NULL);
	const uint64_t least = raw ? 1 : dt_sample_least(d.min_p);
	const double cold = raw ? 1 : d.cold;
	const bool ranks = !raw && dt_sample_by_rank(&d, a.vocab);
	uint32_t *low = (uint32_t *)dt_shared() + 2 * WARPS, *high = low + BINS, *n = high + BINS;
	uint64_t sum = 0;

	if ((raw ? !d.score : d.cold == 0) || !is_finite(max))
		return;
	for (int i = (int)threadIdx.x; ranks && i < BINS; i += THREADS)
		low[i] = high[i] = n[i] = 0;
	__syncthreads();
	for (int64_t j = first + threadIdx.x * V; j < last; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.logits, DT_F32, row * a.vocab + j);
		for (int k = 0; k < V; k++) {
			const double x = dt_sample_x(r[k], max, cold);
			const uint64_t w = dt_sample_weight(x);

			if (w < least)
				continue;
			sum += w;
			if (ranks) {
				add_wide(&low[bin_of(x)], &high[bin_of(x)], w);
				atomicAdd(&n[bin_of(x)], 1u);
			}
		}
	}
	sum = dt_block_sum(sum, (uint64_t *)dt_shared());
	if (threadIdx.x == 0)
		(raw ? a.raw_sum : a.sum)[part] = sum;
	for (int i = (int)threadIdx.x; ranks && i < BINS; i += THREADS)
		if (n[i]) {
			atomicAdd((unsigned long long *)&a.bin_sum[row * BINS + i],
				  (unsigned long long)of_wide(low, high, i));
			atomicAdd(&a.bin_n[row * BINS + i], n[i]);
		}
}

__global__ void __launch_bounds__(THREADS) edit_kernel(struct sample a)
{
	const int64_t row = blockIdx.x;
	const struct dt_draw d = a.draw[row];

	for (int i = d.first + (int)threadIdx.x; i < d.first + d.edits; i += THREADS) {
		const struct dt_edit e = a.edit[i];
		float *l = &a.logits[row * a.vocab + e.id];

		a.was[i] = *l;
		*l = dt_sample_edit(*l, &d, e);
	}
}

template <int V> __global__ void __launch_bounds__(THREADS) gather_kernel(struct sample a)
{
	const int64_t row = blockIdx.y, first = (int64_t)blockIdx.x * CHUNK;
	const int64_t last = a.vocab - first < CHUNK ? a.vocab : first + CHUNK;
	const struct dt_draw d = a.draw[row];
	const float max = row_peak(a.peak, NULL, row, a.chunks, NULL);
	const uint64_t least = dt_sample_least(d.min_p);
	uint32_t *count = &a.bin_n[gridDim.y * (int64_t)BINS + row];
	uint64_t n;

	if (d.cold == 0 || !is_finite(max) || !dt_sample_by_rank(&d, a.vocab))
		return;
	const int end = last_bin(a, row, d, (struct scan_shared *)dt_shared(), &n);

	if (n > LIST)
		return;
	for (int64_t j = first + threadIdx.x * V; j < last; j += THREADS * V) {
		float r[V];

		dt_ld<V>(r, a.logits, DT_F32, row * a.vocab + j);
		for (int k = 0; k < V; k++) {
			const double x = dt_sample_x(r[k], max, d.cold);

			/* Nearly all are decided by x, without computing the weight. */
			if (x >= DT_SAMPLE_LEAST && bin_of(x) <= end && dt_sample_weight(x) >= least)
				a.list[row * LIST + atomicAdd(count, 1u)] = (uint32_t)(j + k);
		}
	}
}

DT_DEVICE uint32_t pick_by_rank(const struct sample &a, int64_t row, const struct dt_draw &d, float max,
				struct pick_shared *shared)
{
	struct source s = {a.logits + row * a.vocab, NULL, a.vocab, max, d.cold, dt_sample_least(d.min_p)};
	struct cumulative mine = {0, 0}, all;
	uint64_t n;

	last_bin(a, row, d, &shared->scan, &n);
	if (n <= LIST) {
		s.list = a.list + row * LIST;
		s.n = (int64_t)n;
	}
	for (int i = (int)threadIdx.x; i < BINS; i += THREADS) {
		mine.n += bin(a, row, i).n;
		mine.sum += bin(a, row, i).sum;
	}
	before_me(mine.n, &shared->scan, &all.n);
	before_me(mine.sum, &shared->scan, &all.sum);
	if (d.top_k > 0 && d.top_k < a.vocab && (uint64_t)d.top_k < all.n)
		by_rank(a, row, s, (uint64_t)d.top_k, true, shared, &all.sum);
	if (d.top_p < 1)
		by_rank(a, row, s, dt_sample_share(d.top_p, all.sum), false, shared, &all.sum);
	/* The draw counts from the last rank to the first. */
	n = all.sum - dt_sample_below(&d, all.sum);
	return by_rank(a, row, s, n, false, shared, &all.sum);
}

/* All ids stay, in order: finds the chunk that the draw falls into, then a thread's ids in it, then the
 * id. */
DT_DEVICE uint32_t pick_by_id(const struct sample &a, int64_t row, const struct dt_draw &d, float max,
			      struct pick_shared *shared)
{
	const uint64_t least = dt_sample_least(d.min_p);
	const float *l = a.logits + row * a.vocab;
	const int each = CHUNK / THREADS;
	struct cumulative t = {0, 0};
	uint64_t total, s = (int)threadIdx.x < a.chunks ? a.sum[row * a.chunks + threadIdx.x] : 0;

	before_me(s, &shared->scan, &total);
	const uint64_t n = dt_sample_below(&d, total) + 1;
	const auto chunk = [&](int i) -> struct cumulative {
		return {0, i < a.chunks ? a.sum[row * a.chunks + i] : 0};
	};
	const int64_t first = (int64_t)find_part(chunk, THREADS, n, false, &t, &shared->scan) * CHUNK;
	const int64_t from = first + (int64_t)threadIdx.x * each;

	s = 0;
	for (int64_t i = from; i < from + each && i < a.vocab; i++) {
		const uint64_t w = dt_sample_weight(dt_sample_x(dt_ld1(l, DT_F32, i), max, d.cold));

		s += w < least ? 0 : w;
	}
	uint64_t at = t.sum + before_me(s, &shared->scan, &total);

	if (at < n && n <= at + s)
		for (int64_t i = from; at < n; i++) {
			const uint64_t w = dt_sample_weight(dt_sample_x(dt_ld1(l, DT_F32, i), max, d.cold));

			at += w < least ? 0 : w;
			shared->id = (uint32_t)i;
		}
	__syncthreads();
	return shared->id;
}

/* Data for the token's log-probability, by thread 0. */
DT_DEVICE void score(const struct sample &a, int64_t row, const struct dt_draw &d, struct dt_drawn *r)
{
	if (is_finite(r->max))
		for (int i = 0; i < a.chunks; i++)
			r->sum += a.raw_sum[row * a.chunks + i];
	if (r->id < 0)
		return;
	r->logit = dt_ld1(a.logits, DT_F32, row * a.vocab + r->id);
	for (int i = d.first; i < d.first + d.edits; i++)
		if (a.edit[i].id == r->id)
			r->logit = a.was[i];
}

__global__ void __launch_bounds__(THREADS) pick_kernel(struct sample a)
{
	const int64_t row = blockIdx.x;
	const struct dt_draw d = a.draw[row];
	struct pick_shared *shared = (struct pick_shared *)dt_shared();
	struct dt_drawn r = {-1, 0, 0, 0, 0};
	int32_t best;
	const float max = row_peak(a.peak, a.peak_id, row, a.chunks, &best);

	if (d.score)
		r.max = row_peak(a.raw_peak, NULL, row, a.chunks, NULL);
	if (is_finite(max))
		r.id = d.cold == 0			? best
		       : dt_sample_by_rank(&d, a.vocab) ? (int32_t)pick_by_rank(a, row, d, max, shared)
							: (int32_t)pick_by_id(a, row, d, max, shared);
	if (threadIdx.x)
		return;
	if (d.score)
		score(a, row, d, &r);
	a.out[row] = r;
}

/* ---- host code ---- */

struct cutter {
	char *at;
	size_t n;
};

template <class T> static void take(struct cutter *c, T **ret, int64_t n)
{
	*ret = c->at ? (T *)(c->at + c->n) : NULL;
	c->n += ((size_t)n * sizeof(T) + 15) / 16 * 16;
}

/* Lays out scratch from `at` on; NULL: returns the size only. */
static size_t lay_out(struct sample *a, char *at, int64_t rows, int64_t nedits)
{
	struct cutter c = {at, 0};
	const int64_t parts = rows * a->chunks;

	take(&c, &a->peak, parts);
	take(&c, &a->raw_peak, parts);
	take(&c, &a->peak_id, parts);
	take(&c, &a->sum, parts);
	take(&c, &a->raw_sum, parts);
	take(&c, &a->bin_sum, rows * BINS);
	take(&c, &a->bin_n, rows * BINS + rows);
	take(&c, &a->list, rows * LIST);
	take(&c, &a->was, nedits);
	return c.n;
}

template <int V>
static int start(const struct dt_cuda *c, const struct sample &a, unsigned rows, enum dt_draw_kind kind)
{
	const dim3 parts((unsigned)a.chunks, rows);
	const size_t words = WARPS * 2 + 3 * BINS;
	int rc = 0;

	if (kind == DT_DRAW_SCORED) {
		rc = DT_LAUNCH(c, peak_kernel<V>, parts, THREADS, WARPS * 12, a, true);
		if (rc == 0)
			rc = DT_LAUNCH(c, weigh_kernel<V>, parts, THREADS, words * 4, a, true);
	}
	if (rc == 0 && kind != DT_DRAW_GREEDY)
		rc = DT_LAUNCH(c, edit_kernel, rows, THREADS, 0, a);
	if (rc == 0)
		rc = DT_LAUNCH(c, peak_kernel<V>, parts, THREADS, WARPS * 12, a, false);
	if (rc == 0 && kind != DT_DRAW_GREEDY)
		rc = DT_LAUNCH(c, weigh_kernel<V>, parts, THREADS, words * 4, a, false);
	if (rc == 0 && kind != DT_DRAW_GREEDY)
		rc = DT_LAUNCH(c, gather_kernel<V>, parts, THREADS, sizeof(struct scan_shared), a);
	return rc == 0 ? DT_LAUNCH(c, pick_kernel, rows, THREADS, sizeof(struct pick_shared), a) : rc;
}

int dt_cuda_sample(struct dt_dev *dev, struct dt_drawn *out, struct dt_tensor logits, const struct dt_draw *d,
		   const struct dt_edit *edit, int64_t nedits)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(logits), vocab = dt_cols(logits);
	struct sample a = {out, (float *)logits.data, vocab, (int)dt_ceil_div(vocab, CHUNK)};
	struct dt_table t[] = {{d, (size_t)rows * sizeof *d, NULL},
			       {edit, (size_t)nedits * sizeof *edit, NULL}};
	char *scratch;
	int rc;

	if (!c)
		return -ENODEV;
	scratch = (char *)dt_cuda_scratch(dev, lay_out(&a, NULL, rows, nedits));
	if (!scratch)
		return -ENOMEM;
	lay_out(&a, scratch, rows, nedits);
	rc = dt_cuda_tables(dev, t, 2);
	if (rc < 0)
		return rc;
	a.draw = (const struct dt_draw *)t[0].ret;
	a.edit = (const struct dt_edit *)t[1].ret;
	if (dt_by_8(vocab, logits.data))
		return start<8>(c, a, (unsigned)rows, dt_draw_kind(d, rows));
	return start<1>(c, a, (unsigned)rows, dt_draw_kind(d, rows));
}
/* SPDX-License-Identifier: Apache-2.0 */
