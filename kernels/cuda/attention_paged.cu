/*
 * Paged attention for inference. attention_tiles.cu and attention_latent.cu handle 16-bit types with 16-bit
 * caches; this file handles the rest, f32 and int8 caches. A block has one part of one row for the q heads
 * that share a key/value head (for latents at most 16 of them), so that each key and value is read once for
 * all of them. A second kernel merges the parts.
 */
#include "kernels/cuda/attention_paged.h"

#define THREADS 128

/* Address of an int8 head: d integers followed by their scale (attention.h). */
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
	memcpy(&scale, at, 4); /* may be unaligned */
	return scale;
}

/* V elements from column c of a head of the cache; int8 without the scale. */
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

/* s[g][j] = scale q_g . k_j; PART keys from `base` on. */
template <int V>
DT_DEVICE void scores(const struct paged &a, const struct row &r, const float *q, float *s, int64_t base,
		      int64_t kv, int64_t group)
{
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
			sum = a.cap > 0 ? dt_softcap(sum * unit, a.cap) : sum * unit;
			if (sub == 0)
				s[g * PART + j] = sees ? sum : DT_NEGINF;
		}
	}
}

/*
 * Sums of values for one q head: each thread has V columns; if columns are few, threads also split the keys.
 */
template <int V>
DT_DEVICE void values(const struct paged &a, const struct row &r, const float *s, float *room, float *out,
		      int64_t base, int64_t kv)
{
	const int cols = (int)dt_ceil_div(a.dv, V), turns = cols < THREADS ? THREADS / cols : 1;

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

			load<V>(v, a.v, a, head, a.v_at + (int64_t)c * V);
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
	const int64_t shared = a.heads / a.kv_heads, chunks = (shared + a.each - 1) / a.each;
	const int64_t part = blockIdx.x, at = blockIdx.y, kv = blockIdx.z / chunks,
		      head = blockIdx.z % chunks * a.each,
		      group = head + a.each < shared ? a.each : shared - head, to = kv * shared + head;
	const struct row r = row_of(a, find_seq(a, (int32_t)(a.first + at)), (int32_t)(a.first + at));
	const int64_t base = part * PART;
	float *q = (float *)dt_shared(), *s = q + group * a.d, *room = s + group * PART;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

	if (base > r.last || base + PART <= r.first)
		return;
	for (int64_t i = threadIdx.x; i < group * a.d; i += THREADS)
		q[i] = dt_ld1(a.q, a.tq, at * a.width + to * a.d + i);
	__syncthreads();
	scores<V>(a, r, q, s, base, kv, group);
	__syncthreads();
	for (int64_t g = warp; g < group; g += THREADS / 32) {
		const int64_t i = (at * a.heads + to + g) * a.parts + part;
		float max = DT_NEGINF, sum = 0;

		for (int j = lane; j < PART; j += 32)
			max = s[g * PART + j] > max ? s[g * PART + j] : max;
		max = dt_warp_max(max);
		for (int j = lane; j < PART; j += 32)
			sum += s[g * PART + j] = expf(s[g * PART + j] - max);
		sum = dt_warp_sum(sum);
		if (lane == 0) {
			dt_st1(a.max, DT_F32, i, max);
			dt_st1(a.sum, DT_F32, i, sum);
		}
	}
	__syncthreads();
	for (int64_t g = 0; g < group; g++)
		values<V>(a, r, s + g * PART, room,
			  a.part + ((at * a.heads + to + g) * a.parts + part) * a.dv, base, kv);
}

/* Factor of a part whose maximum is not the row's. */
DT_DEVICE float weight(const struct paged &a, int64_t part, float max)
{
	const float less = dt_ld1(a.max, DT_F32, part) - max;

	return a.two ? exp2f(less) : expf(less);
}

__global__ void __launch_bounds__(THREADS) join_kernel(struct paged a)
{
	const int64_t i = (int64_t)blockIdx.x * a.heads + blockIdx.y;
	const struct row r =
		row_of(a, find_seq(a, (int32_t)(a.first + blockIdx.x)), (int32_t)(a.first + blockIdx.x));
	const int64_t first = r.first / PART, last = r.last / PART;
	float max = DT_NEGINF, sum = 0;

	for (int64_t p = first; p <= last; p++) {
		const float m = dt_ld1(a.max, DT_F32, i * a.parts + p);

		max = m > max ? m : max;
	}
	for (int64_t p = first; p <= last; p++)
		sum = fmaf(dt_ld1(a.sum, DT_F32, i * a.parts + p), weight(a, i * a.parts + p, max), sum);
	sum += sink_weight(a, blockIdx.y, max);
	for (int64_t c = threadIdx.x; c < a.dv; c += THREADS) {
		float v = 0;

		for (int64_t p = first; p <= last; p++)
			v = fmaf(dt_ld1(a.part, DT_F32, (i * a.parts + p) * a.dv + c),
				 weight(a, i * a.parts + p, max), v);
		dt_st1(a.o, a.tq, i * a.dv + c, v / sum);
	}
}

/* Number of keys of the longest sequence. */
static int64_t longest_of(const struct dt_paged *g)
{
	int64_t n = g->longest;

	for (int i = 0; i < g->nseq; i++)
		n = g->q_start[i + 1] > g->q_start[i] && g->kv_len[i] > n ? g->kv_len[i] : n;
	return n;
}

/* Limit of scratch for the parts, which bounds the number of rows at a time. */
#define SCRATCH ((int64_t)256 << 20)

static int start(struct dt_dev *dev, const struct dt_cuda *c, struct paged a, int64_t first, int64_t rows)
{
	const int64_t heads = rows * a.heads * a.parts, group = a.heads / a.kv_heads;
	const size_t smem = (size_t)(a.each * (a.d + PART) + THREADS * 8) * 4,
		     size = (size_t)dt_dtype_size((enum dt_dtype)a.tq);
	const dim3 grid((unsigned)a.parts, (unsigned)rows,
			(unsigned)(a.kv_heads * dt_ceil_div(group, a.each)));
	int rc;

	a.max = (float *)dt_cuda_scratch(dev, (size_t)(heads * (a.dv + 2)) * 4);
	if (!a.max)
		return -ENOMEM;
	a.sum = a.max + heads;
	a.part = a.sum + heads;
	a.first += first;
	a.q = (const char *)a.q + (size_t)(first * a.width) * size;
	a.o = (char *)a.o + (size_t)(first * a.heads * a.dv) * size;
	a.lanes = 1;
	while (a.lanes < 32 && a.lanes * 8 < a.d)
		a.lanes *= 2;
	a.rows = rows;
	const bool latents = dt_latents_in_tiles(&a);

	a.two = latents || dt_paged_in_tiles(&a);
	if (a.two) {
		rc = latents ? dt_latent_tiles(c, a) : dt_paged_tiles(c, a);
		if (a.parts == 1)
			return rc;
	} else if (dt_by_8(a.d, a.k, a.v) && a.dv % 8 == 0) {
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
	const int64_t rows = g->q_start[g->nseq] - g->q_start[0];
	struct dt_table t[3];
	int64_t longest, most;
	int rc;

	if (!c)
		return -ENODEV;
	longest = longest_of(g);
	t[0] = {g->q_start, (size_t)(g->nseq + 1) * sizeof *g->q_start, NULL};
	t[1] = {g->kv_len, (size_t)g->nseq * sizeof *g->kv_len, NULL};
	t[2] = {g->block_table, (size_t)g->nseq * (size_t)g->max_blocks * sizeof *g->block_table, NULL};
	rc = dt_cuda_tables(dev, t, 3);
	const size_t size = (size_t)dt_dtype_size(qkv.dtype), skip = (size_t)g->q_start[0];
	struct paged a = {};

	a.q = (const char *)qkv.data + skip * (size_t)dt_cols(qkv) * size;
	a.k = kcache.data;
	a.v = p->value_dim ? kcache.data : vcache.data;
	a.o = (char *)o.data + skip * (size_t)dt_cols(o) * size;
	a.tq = qkv.dtype;
	a.tk = kcache.dtype;
	a.heads = p->heads;
	a.kv_heads = p->kv_heads;
	a.d = p->head_dim;
	a.dv = dt_attn_value_dim(p);
	a.v_at = p->value_dim ? a.d - a.dv : 0;
	a.each = p->value_dim ? dt_min64(a.heads / a.kv_heads, 16) : a.heads / a.kv_heads;
	a.width = dt_cols(qkv);
	a.parts = dt_ceil_div(longest, PART);
	a.q_start = (const int32_t *)t[0].ret;
	a.kv_len = (const int32_t *)t[1].ret;
	a.table = (const int32_t *)t[2].ret;
	a.first = g->q_start[0];
	a.nseq = g->nseq;
	a.window = p->window;
	a.max_blocks = g->max_blocks;
	a.block_size = g->block_size;
	a.scale = p->scale;
	a.cap = p->softcap;
	a.sink = g->sink.data;
	a.ts = g->sink.dtype;
	most = SCRATCH / (a.parts * a.heads * (a.dv + 2) * 4);
	most = most < 1 ? 1 : most > DT_GRID_MOST ? DT_GRID_MOST : most;
	for (int64_t i = 0; i < rows && rc == 0; i += most)
		rc = start(dev, c, a, i, dt_min64(most, rows - i));
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
