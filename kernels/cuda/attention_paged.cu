/*
 * Inference. The keys of a row are cut at fixed positions into parts of 256; a block has one part of one row
 * for the q heads that share a key/value head, so each key and value is read once for all of them, and a
 * second kernel joins the parts in order. Nothing a row computes depends on the rows beside it.
 */
#include "kernels/cuda/attention.h"

#define PART	256
#define THREADS 128

struct row {
	int32_t seq, first, last; /* keys it sees */
};

struct paged {
	const void *q, *k, *v;
	void *o;
	int tq, tk;
	int64_t heads, kv_heads, d, width, parts;
	const int32_t *q_start, *kv_len, *table;
	int64_t first, nseq, window; /* first: row of qkv that q begins with */
	int64_t max_blocks, block_size;
	float scale;
	int lanes;		 /* that share a key: enough for d, V elements each */
	float *max, *sum, *part; /* [rows, heads, parts] and [.., d] */
};

DT_DEVICE int64_t cache_row(const struct paged &a, int64_t seq, int64_t j)
{
	return (int64_t)a.table[seq * a.max_blocks + j / a.block_size] * a.block_size + j % a.block_size;
}

/* Where a head of int8 starts: d integers, and their scale behind them (attention.h). */
DT_DEVICE const int8_t *int8_head(const void *cache, const struct paged &a, int64_t head)
{
	return (const int8_t *)cache + head * (a.d + 4);
}

DT_DEVICE float int8_scale(const void *cache, const struct paged &a, int64_t head)
{
	const int8_t *at = int8_head(cache, a, head) + a.d;
	float scale;

	for (int i = 0; i < 4; i++)
		dt_touch(at + i, 1);
	memcpy(&scale, at, 4); /* need not be aligned */
	return scale;
}

/* V elements from column c of a head of the cache; int8 without their scale. */
template <int V>
DT_DEVICE void load(float (&r)[V], const void *cache, const struct paged &a, int64_t head, int64_t c)
{
	if (a.tk != DT_I8) {
		dt_ld<V>(r, cache, a.tk, head * a.d + c);
		return;
	}
	const int8_t *at = int8_head(cache, a, head) + c;
	int8_t b[V];

	if constexpr (V == 1) {
		dt_touch(at, 1);
		b[0] = *at;
	} else {
		dt_touch(at, 4);
		dt_touch(at + 4, 4);
		const uint32_t w[2] = {((const uint32_t *)at)[0], ((const uint32_t *)at)[1]};

		memcpy(b, w, 8);
	}
	DT_UNROLL
	for (int e = 0; e < V; e++)
		r[e] = b[e];
}

/* What row `at` of q sees. Its sequence is the last one that begins no later. */
DT_DEVICE struct row find_row(const struct paged &a, int64_t at)
{
	const int32_t row = (int32_t)(a.first + at);
	int lo = 0, hi = (int)a.nseq - 1;

	while (lo < hi) {
		const int mid = (lo + hi + 1) / 2;

		if (a.q_start[mid] <= row)
			lo = mid;
		else
			hi = mid - 1;
	}
	const int32_t last = a.kv_len[lo] - (a.q_start[lo + 1] - row);

	return {lo, a.window > 0 && last >= a.window ? (int32_t)(last - a.window + 1) : 0, last};
}

/* s[g][j] = scale q_g . k_j; PART keys from `base` on. */
template <int V>
DT_DEVICE void scores(const struct paged &a, const struct row &r, const float *q, float *s, int64_t base,
		      int64_t kv)
{
	const int64_t group = a.heads / a.kv_heads;
	const int each = THREADS / a.lanes, sub = (int)threadIdx.x % a.lanes;

	for (int j = (int)threadIdx.x / a.lanes; j < PART; j += each) {
		const int64_t key = base + j;
		const bool sees = key >= r.first && key <= r.last;
		const int64_t head = sees ? cache_row(a, r.seq, key) * a.kv_heads + kv : 0;
		const float unit = a.tk == DT_I8 && sees ? int8_scale(a.k, a, head) * a.scale : a.scale;

		for (int64_t g = 0; g < group; g++) {
			float sum = 0, k[V];

			for (int64_t c = sub * V; sees && c < a.d; c += a.lanes * V) {
				load<V>(k, a.k, a, head, c);
				for (int e = 0; e < V; e++)
					sum += k[e] * q[g * a.d + c + e];
			}
			for (int by = a.lanes / 2; by; by >>= 1)
				sum += __shfl_xor_sync(DT_ALL, sum, by);
			if (sub == 0)
				s[g * PART + j] = sees ? sum * unit : DT_NEGINF;
		}
	}
}

/* Sums of values for one q head: threads are columns, V each, and share out the keys where columns are few.
 */
template <int V>
DT_DEVICE void values(const struct paged &a, const struct row &r, const float *s, float *room, float *out,
		      int64_t base, int64_t kv)
{
	const int cols = (int)dt_ceil_div(a.d, V), turns = cols < THREADS ? THREADS / cols : 1;

	for (int c0 = 0; c0 < cols; c0 += THREADS) {
		const int c = c0 + (int)threadIdx.x % (cols < THREADS ? cols : THREADS),
			  turn = (int)threadIdx.x / (cols < THREADS ? cols : THREADS);
		float sum[V], v[V];

		for (int e = 0; e < V; e++)
			sum[e] = 0;
		for (int j = turn; turn < turns && c < cols && j < PART; j += turns) {
			const int64_t key = base + j;

			if (key < r.first || key > r.last)
				continue;
			const int64_t head = cache_row(a, r.seq, key) * a.kv_heads + kv;
			const float w = a.tk == DT_I8 ? s[j] * int8_scale(a.v, a, head) : s[j];

			load<V>(v, a.v, a, head, (int64_t)c * V);
			for (int e = 0; e < V; e++)
				sum[e] += w * v[e];
		}
		__syncthreads();
		for (int e = 0; e < V; e++)
			room[threadIdx.x * V + e] = sum[e];
		__syncthreads();
		if (turn == 0 && c < cols)
			for (int e = 0; e < V; e++) {
				float all = 0;

				for (int t = 0; t < turns; t++)
					all += room[(threadIdx.x + t * cols) * V + e];
				dt_st1(out, DT_F32, (int64_t)c * V + e, all);
			}
	}
}

template <int V> __global__ void __launch_bounds__(THREADS) paged_kernel(struct paged a)
{
	const int64_t part = blockIdx.x, at = blockIdx.y, kv = blockIdx.z, group = a.heads / a.kv_heads;
	const struct row r = find_row(a, at);
	const int64_t base = part * PART;
	float *q = (float *)dt_shared(), *s = q + group * a.d, *room = s + group * PART;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

	if (base > r.last || base + PART <= r.first)
		return;
	for (int64_t i = threadIdx.x; i < group * a.d; i += THREADS)
		q[i] = dt_ld1(a.q, a.tq, at * a.width + kv * group * a.d + i);
	__syncthreads();
	scores<V>(a, r, q, s, base, kv);
	__syncthreads();
	for (int64_t g = warp; g < group; g += THREADS / 32) {
		const int64_t to = (at * a.heads + kv * group + g) * a.parts + part;
		float max = DT_NEGINF, sum = 0;

		for (int j = lane; j < PART; j += 32)
			max = s[g * PART + j] > max ? s[g * PART + j] : max;
		max = dt_warp_max(max);
		for (int j = lane; j < PART; j += 32)
			sum += s[g * PART + j] = expf(s[g * PART + j] - max);
		sum = dt_warp_sum(sum);
		if (lane == 0) {
			dt_st1(a.max, DT_F32, to, max);
			dt_st1(a.sum, DT_F32, to, sum);
		}
	}
	__syncthreads();
	for (int64_t g = 0; g < group; g++)
		values<V>(a, r, s + g * PART, room,
			  a.part + ((at * a.heads + kv * group + g) * a.parts + part) * a.d, base, kv);
}

__global__ void __launch_bounds__(THREADS) join_kernel(struct paged a)
{
	const int64_t i = (int64_t)blockIdx.x * a.heads + blockIdx.y;
	const struct row r = find_row(a, blockIdx.x);
	const int64_t first = r.first / PART, last = r.last / PART;
	float max = DT_NEGINF, sum = 0;

	for (int64_t p = first; p <= last; p++) {
		const float m = dt_ld1(a.max, DT_F32, i * a.parts + p);

		max = m > max ? m : max;
	}
	for (int64_t p = first; p <= last; p++)
		sum += dt_ld1(a.sum, DT_F32, i * a.parts + p) *
		       expf(dt_ld1(a.max, DT_F32, i * a.parts + p) - max);
	for (int64_t c = threadIdx.x; c < a.d; c += THREADS) {
		float v = 0;

		for (int64_t p = first; p <= last; p++)
			v += dt_ld1(a.part, DT_F32, (i * a.parts + p) * a.d + c) *
			     expf(dt_ld1(a.max, DT_F32, i * a.parts + p) - max);
		dt_st1(a.o, a.tq, i * a.d + c, v / sum);
	}
}

/* Keys of the longest sequence. */
static int64_t longest_of(const struct dt_paged *g)
{
	int64_t n = g->longest;

	for (int i = 0; i < g->nseq; i++)
		n = g->q_start[i + 1] > g->q_start[i] && g->kv_len[i] > n ? g->kv_len[i] : n;
	return n;
}

/* Rows at a time: what their parts take stays within this. */
#define SCRATCH ((int64_t)256 << 20)

static int start(struct dt_dev *dev, const struct dt_cuda *c, struct paged a, int64_t first, int64_t rows)
{
	const int64_t heads = rows * a.heads * a.parts, group = a.heads / a.kv_heads;
	const size_t smem = (size_t)(group * (a.d + PART) + THREADS * 8) * 4,
		     size = (size_t)dt_dtype_size((enum dt_dtype)a.tq);
	const dim3 grid((unsigned)a.parts, (unsigned)rows, (unsigned)a.kv_heads);
	int rc;

	a.max = (float *)dt_cuda_scratch(dev, (size_t)(heads * (a.d + 2)) * 4);
	if (!a.max)
		return -ENOMEM;
	a.sum = a.max + heads;
	a.part = a.sum + heads;
	a.first += first;
	a.q = (const char *)a.q + (size_t)(first * a.width) * size;
	a.o = (char *)a.o + (size_t)(first * a.heads * a.d) * size;
	a.lanes = 1;
	while (a.lanes < 32 && a.lanes * 8 < a.d)
		a.lanes *= 2;
	if (dt_by_8(a.d, a.k, a.v)) {
		rc = DT_LAUNCH(c, paged_kernel<8>, grid, THREADS, smem, a);
	} else {
		a.lanes = 32;
		rc = DT_LAUNCH(c, paged_kernel<1>, grid, THREADS, smem, a);
	}
	return rc < 0 ? rc
		      : DT_LAUNCH(c, join_kernel, dim3((unsigned)rows, (unsigned)a.heads), THREADS, 0, a);
}

int dt_cuda_attention_paged(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			    struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			    const struct dt_paged *g)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = g->nseq < 1 ? 0 : g->q_start[g->nseq] - g->q_start[0];
	struct dt_table t[3];
	int64_t longest, most;
	int rc;

	if (g->nseq < 1)
		return 0;
	rc = g->q_start[0] < 0 ? -EINVAL : dt_paged_check(o, qkv, kcache, vcache, p, g, 64);
	if (rc < 0 || !rows)
		return rc;
	if (!c)
		return -ENODEV;
	longest = longest_of(g);
	t[0] = {g->q_start, (size_t)(g->nseq + 1) * sizeof *g->q_start, NULL};
	t[1] = {g->kv_len, (size_t)g->nseq * sizeof *g->kv_len, NULL};
	t[2] = {g->block_table, (size_t)g->nseq * (size_t)g->max_blocks * sizeof *g->block_table, NULL};
	rc = dt_cuda_tables(dev, t, 3);
	const size_t size = (size_t)dt_dtype_size(qkv.dtype), skip = (size_t)g->q_start[0];
	const struct paged a = {(const char *)qkv.data + skip * (size_t)dt_cols(qkv) * size,
				kcache.data,
				vcache.data,
				(char *)o.data + skip * (size_t)dt_cols(o) * size,
				qkv.dtype,
				kcache.dtype,
				p->heads,
				p->kv_heads,
				p->head_dim,
				dt_cols(qkv),
				dt_ceil_div(longest, PART),
				(const int32_t *)t[0].ret,
				(const int32_t *)t[1].ret,
				(const int32_t *)t[2].ret,
				g->q_start[0],
				g->nseq,
				p->window,
				g->max_blocks,
				g->block_size,
				p->scale,
				0,
				NULL,
				NULL,
				NULL};

	most = SCRATCH / (a.parts * a.heads * (a.d + 2) * 4);
	most = most < 1 ? 1 : most > 65535 ? 65535 : most;
	for (int64_t i = 0; i < rows && rc == 0; i += most)
		rc = start(dev, c, a, i, dt_min64(most, rows - i));
	return rc;
}

struct write {
	void *k, *v;
	const void *x;
	int tc, tx;
	int64_t rows, n, q; /* columns of k, and of q before them */
	const int64_t *slot;
};

template <int V> __global__ void __launch_bounds__(256) write_kernel(struct write a)
{
	const int64_t each = a.n / V, step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.rows * 2 * each; i += step) {
		const int64_t row = i / each / 2, part = i / each % 2, j = i % each * V, to = a.slot[row];
		float r[V];

		if (to < 0)
			continue;
		dt_ld<V>(r, a.x, a.tx, row * (a.q + 2 * a.n) + a.q + part * a.n + j);
		dt_st<V>(part ? a.v : a.k, a.tc, to * a.n + j, r);
	}
}

/* A warp for each head of a row's k and v: integers to nearest even, and max / 127 behind them. */
__global__ void __launch_bounds__(256) write_int8_kernel(struct write a, int64_t d)
{
	const int64_t heads = a.n / d, lane = threadIdx.x % 32, step = (int64_t)gridDim.x * blockDim.x / 32;
	const int64_t width = heads * (d + 4);

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; i < a.rows * 2 * heads;
	     i += step) {
		const int64_t row = i / heads / 2, part = i / heads % 2, h = i % heads, to = a.slot[row];
		const int64_t from = row * (a.q + 2 * a.n) + a.q + part * a.n + h * d;
		int8_t *out = (int8_t *)(part ? a.v : a.k) + to * width + h * (d + 4);
		uint32_t max = 0; /* as bits, of which those of NaN and Inf are the largest */

		if (to < 0)
			continue;
		for (int64_t c = lane; c < d; c += 32) {
			const float x = fabsf(dt_ld1(a.x, a.tx, from + c));
			uint32_t u;

			memcpy(&u, &x, 4);
			max = u > max ? u : max;
		}
		for (int by = 16; by; by >>= 1) {
			const uint32_t o = __shfl_xor_sync(DT_ALL, max, by);

			max = o > max ? o : max;
		}
		const bool zero = max < 0x0d800000u, bad = max >= 0x7f800000u; /* zero: below 2^-100 */
		float most, scale;

		memcpy(&most, &max, 4);
		scale = zero ? 0 : most / 127.f;
		for (int64_t c = lane; c < d; c += 32) {
			dt_touch(out + c, 1);
			out[c] =
				zero || bad ? 0 : (int8_t)rintf(dt_ld1(a.x, a.tx, from + c) * (127.f / most));
		}
		if (lane == 0) {
			if (bad)
				max = 0x7fc00000u;
			else
				memcpy(&max, &scale, 4);
			for (int k = 0; k < 4; k++)
				dt_touch(out + d + k, 1);
			memcpy(out + d, &max, 4);
		}
	}
}

int dt_cuda_kv_write(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		     struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(qkv), n = p->kv_heads * p->head_dim, q = p->heads * p->head_dim;
	struct dt_table t = {slot, (size_t)rows * sizeof *slot, NULL};
	int rc;

	if (!dt_is_compute(qkv.dtype) ||
	    (kcache.dtype != qkv.dtype && kcache.dtype != DT_F32 && kcache.dtype != DT_I8) ||
	    vcache.dtype != kcache.dtype || dt_cols(kcache) != dt_kv_row(p, kcache.dtype) ||
	    dt_cols(vcache) != dt_cols(kcache) || dt_rows(vcache) != dt_rows(kcache) ||
	    dt_cols(qkv) != q + 2 * n)
		return -EINVAL;
	for (int64_t i = 0; i < rows; i++)
		if (slot[i] < -1 || slot[i] >= dt_rows(kcache))
			return -EINVAL;
	if (!c)
		return -ENODEV;
	if (!rows || !n)
		return 0;
	rc = dt_cuda_tables(dev, &t, 1);
	if (rc < 0)
		return rc;
	const struct write a = {kcache.data, vcache.data, qkv.data, kcache.dtype,	   qkv.dtype,
				rows,	     n,		  q,	    (const int64_t *)t.ret};

	if (kcache.dtype == DT_I8)
		return DT_LAUNCH(c, write_int8_kernel, dt_blocks(c, rows * 2 * p->kv_heads, 8), 256, 0, a,
				 p->head_dim);
	if (n % 8 == 0 && dt_by_8(q, kcache.data, vcache.data, qkv.data))
		return DT_LAUNCH(c, write_kernel<8>, dt_blocks(c, rows * 2 * n / 8, 256), 256, 0, a);
	return DT_LAUNCH(c, write_kernel<1>, dt_blocks(c, rows * 2 * n, 256), 256, 0, a);
}
