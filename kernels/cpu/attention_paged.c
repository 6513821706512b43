#include "kernels/cpu/cpu.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/vec.h"

#include <math.h>

/* Row of the cache that holds key j of sequence i. */
static int64_t cache_row(const struct dt_paged *g, int i, int64_t j)
{
	return (int64_t)g->block_table[(int64_t)i * g->max_blocks + j / g->block_size] * g->block_size +
	       j % g->block_size;
}

static DT_SIMD void paged_row(struct dt_tensor o, struct dt_tensor qkv, struct dt_tensor kc,
			      struct dt_tensor vc, const struct dt_attn *p, const struct dt_paged *g, int seq,
			      int64_t row, int64_t last, int64_t h, float *buf)
{
	const int64_t d = p->head_dim, kv = h / (p->heads / p->kv_heads), W = p->kv_heads * d;
	const int64_t first = p->window > 0 && last >= p->window ? last - p->window + 1 : 0;
	float *q = buf, *kb = q + d, *acc = kb + d, max = -INFINITY, sum = 0;
	const float *x = dt_load(q, dt_at(qkv, row * dt_cols(qkv) + h * d), qkv.dtype, d);

	memset(acc, 0, (size_t)d * 4);
	for (int64_t j = first; j <= last; j++) {
		const int64_t at = cache_row(g, seq, j) * W + kv * d;
		float s = p->scale * dt_dot(x, dt_load(kb, dt_at(kc, at), kc.dtype, d), d), e, f = 1;
		const float *v = dt_load(kb, dt_at(vc, at), vc.dtype, d);

		if (s > max) {
			f = dt_expf(max - s);
			max = s;
		}
		e = dt_expf(s - max);
		sum = sum * f + e;
		for (int64_t c = 0; c < d; c++)
			acc[c] = acc[c] * f + e * v[c];
	}
	for (int64_t c = 0; c < d; c++)
		acc[c] /= sum;
	if (o.dtype == DT_F32)
		memcpy(dt_at(o, row * p->heads * d + h * d), acc, (size_t)d * 4);
	dt_store(dt_at(o, row * p->heads * d + h * d), o.dtype, acc, d);
}

int dt_cpu_attention_paged(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			   struct dt_tensor kcache, struct dt_tensor vcache, const struct dt_attn *p,
			   const struct dt_paged *g)
{
	const int64_t d = p->head_dim, total = g->nseq ? g->q_start[g->nseq] : 0;
	float *buf;

	if (!dt_is_compute(qkv.dtype) || o.dtype != qkv.dtype || kcache.dtype != vcache.dtype ||
	    !dt_is_compute(kcache.dtype) || p->kv_heads <= 0 || p->heads % p->kv_heads ||
	    dt_cols(kcache) != p->kv_heads * d || dt_cols(vcache) != p->kv_heads * d ||
	    dt_rows(qkv) < total || dt_cols(qkv) != (p->heads + 2 * p->kv_heads) * d || g->block_size <= 0)
		return -EINVAL;
	for (int i = 0; i < g->nseq; i++)
		if (g->kv_len[i] < g->q_start[i + 1] - g->q_start[i] ||
		    g->kv_len[i] > (int64_t)g->max_blocks * g->block_size)
			return -EINVAL;
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * 3 * d) * 4);
	if (!buf)
		return -ENOMEM;
	for (int i = 0; i < g->nseq; i++) {
		const int64_t rows = g->q_start[i + 1] - g->q_start[i];

#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic, 4)
		for (int64_t u = 0; u < rows * p->heads; u++)
			paged_row(o, qkv, kcache, vcache, p, g, i, g->q_start[i] + u / p->heads,
				  g->kv_len[i] - rows + u / p->heads, u % p->heads,
				  buf + omp_get_thread_num() * 3 * d);
	}
	return 0;
}

static DT_SIMD void copy_row(struct dt_tensor cache, int64_t to, struct dt_tensor x, int64_t from, int64_t n)
{
	void *out = dt_at(cache, to);
	const void *in = dt_at(x, from);

	if (cache.dtype == x.dtype)
		memcpy(out, in, (size_t)(n * dt_dtype_size(x.dtype)));
	else
		dt_widen(out, in, n); /* a bf16 row into an f32 cache */
}

int dt_cpu_kv_write(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		    struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	const int64_t rows = dt_rows(qkv), n = p->kv_heads * p->head_dim, q = p->heads * p->head_dim;

	if (!dt_is_compute(qkv.dtype) || (kcache.dtype != qkv.dtype && kcache.dtype != DT_F32) ||
	    vcache.dtype != kcache.dtype || dt_cols(kcache) != n || dt_cols(vcache) != n ||
	    dt_rows(vcache) != dt_rows(kcache) || dt_cols(qkv) != q + 2 * n)
		return -EINVAL;
	for (int64_t i = 0; i < rows; i++)
		if (slot[i] < -1 || slot[i] >= dt_rows(kcache))
			return -EINVAL;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		if (slot[i] < 0)
			continue;
		copy_row(kcache, slot[i] * n, qkv, i * (q + 2 * n) + q, n);
		copy_row(vcache, slot[i] * n, qkv, i * (q + 2 * n) + q + n, n);
	}
	return 0;
}
