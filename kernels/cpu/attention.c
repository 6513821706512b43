#include "kernels/cpu/cpu.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/vec.h"

#include <math.h>

static int64_t width(const struct dt_attn *p)
{
	return (p->heads + 2 * p->kv_heads) * p->head_dim;
}

static int64_t first_key(const struct dt_attn *p, int64_t i)
{
	return p->window > 0 && i >= p->window ? i - p->window + 1 : 0;
}

static DT_SIMD void forward_head(const struct dt_attn *p, struct dt_tensor o, float *lse,
				 struct dt_tensor qkv, int64_t b, int64_t h, float *buf)
{
	const int64_t d = p->head_dim, T = p->seq, kv = h / (p->heads / p->kv_heads), W = width(p);
	float *k = buf, *v = k + T * d, *s = v + T * d, *q = s + T, *acc = q + d;

	for (int64_t j = 0; j < T; j++) {
		const float *x = dt_load(q, dt_at(qkv, (b * T + j) * W + (p->heads + kv) * d), qkv.dtype, d);

		memcpy(k + j * d, x, (size_t)d * 4);
		x = dt_load(q, dt_at(qkv, (b * T + j) * W + (p->heads + p->kv_heads + kv) * d), qkv.dtype, d);
		memcpy(v + j * d, x, (size_t)d * 4);
	}
	for (int64_t i = 0; i < T; i++) {
		const float *x = dt_load(q, dt_at(qkv, (b * T + i) * W + h * d), qkv.dtype, d);
		int64_t at = (b * T + i) * p->heads * d + h * d;
		float max = -INFINITY, sum = 0;

		for (int64_t j = first_key(p, i); j <= i; j++) {
			s[j] = p->scale * dt_dot(x, k + j * d, d);
			max = s[j] > max ? s[j] : max;
		}
		memset(acc, 0, (size_t)d * 4);
		for (int64_t j = first_key(p, i); j <= i; j++) {
			float e = dt_expf(s[j] - max);

			sum += e;
			for (int64_t c = 0; c < d; c++)
				acc[c] += e * v[j * d + c];
		}
		for (int64_t c = 0; c < d; c++)
			acc[c] /= sum;
		if (o.dtype == DT_F32)
			memcpy(dt_at(o, at), acc, (size_t)d * 4);
		dt_store(dt_at(o, at), o.dtype, acc, d);
		lse[(b * p->heads + h) * T + i] = max + logf(sum);
	}
}

static bool shapes_fit(const struct dt_attn *p, struct dt_tensor qkv)
{
	return dt_is_compute(qkv.dtype) && p->kv_heads > 0 && p->heads % p->kv_heads == 0 &&
	       p->head_dim > 0 && dt_cols(qkv) == width(p);
}

int dt_cpu_attention_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			     struct dt_tensor qkv, const struct dt_attn *p)
{
	const int64_t rows = p->batch * p->seq, n = 2 * p->seq * p->head_dim + p->seq + 2 * p->head_dim;
	float *buf;

	if (!shapes_fit(p, qkv) || !dt_is(o, qkv.dtype, rows * p->heads * p->head_dim) ||
	    !dt_is(lse, DT_F32, rows * p->heads) || dt_rows(qkv) != rows)
		return -EINVAL;
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * n) * 4);
	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t i = 0; i < p->batch * p->heads; i++)
		forward_head(p, o, lse.data, qkv, i / p->heads, i % p->heads, buf + omp_get_thread_num() * n);
	return 0;
}

static DT_SIMD void backward_kv_head(const struct dt_attn *p, struct dt_tensor dqkv, struct dt_tensor dout,
				     struct dt_tensor o, const float *lse, struct dt_tensor qkv, int64_t b,
				     int64_t kv, float *buf)
{
	const int64_t d = p->head_dim, T = p->seq, W = width(p), group = p->heads / p->kv_heads;
	const int64_t OW = p->heads * d;
	float *k = buf, *v = k + T * d, *dk = v + T * d, *dv = dk + T * d, *qb = dv + T * d, *dob = qb + d,
	      *ob = dob + d, *dq = ob + d;

	memset(dk, 0, (size_t)(2 * T * d) * 4);
	for (int64_t j = 0; j < T; j++) {
		const float *x = dt_load(qb, dt_at(qkv, (b * T + j) * W + (p->heads + kv) * d), qkv.dtype, d);

		memcpy(k + j * d, x, (size_t)d * 4);
		x = dt_load(qb, dt_at(qkv, (b * T + j) * W + (p->heads + p->kv_heads + kv) * d), qkv.dtype,
			    d);
		memcpy(v + j * d, x, (size_t)d * 4);
	}
	for (int64_t h = kv * group; h < (kv + 1) * group; h++)
		for (int64_t i = 0; i < T; i++) {
			const int64_t at = (b * T + i) * OW + h * d;
			const float *q = dt_load(qb, dt_at(qkv, (b * T + i) * W + h * d), qkv.dtype, d);
			const float *g = dt_load(dob, dt_at(dout, at), dout.dtype, d);
			const float D = dt_dot(g, dt_load(ob, dt_at(o, at), o.dtype, d), d);
			const float l = lse[(b * p->heads + h) * T + i];

			memset(dq, 0, (size_t)d * 4);
			for (int64_t j = first_key(p, i); j <= i; j++) {
				float pij = dt_expf(p->scale * dt_dot(q, k + j * d, d) - l);
				float ds = p->scale * pij * (dt_dot(g, v + j * d, d) - D);

				for (int64_t c = 0; c < d; c++) {
					dv[j * d + c] += pij * g[c];
					dk[j * d + c] += ds * q[c];
					dq[c] += ds * k[j * d + c];
				}
			}
			if (dqkv.dtype == DT_F32)
				memcpy(dt_at(dqkv, (b * T + i) * W + h * d), dq, (size_t)d * 4);
			dt_store(dt_at(dqkv, (b * T + i) * W + h * d), dqkv.dtype, dq, d);
		}
	for (int64_t j = 0; j < T; j++)
		for (int64_t part = 0; part < 2; part++) {
			void *out = dt_at(dqkv, (b * T + j) * W + (p->heads + part * p->kv_heads + kv) * d);

			if (dqkv.dtype == DT_F32)
				memcpy(out, (part ? dv : dk) + j * d, (size_t)d * 4);
			dt_store(out, dqkv.dtype, (part ? dv : dk) + j * d, d);
		}
}

int dt_cpu_attention_backward(struct dt_dev *dev, struct dt_tensor dqkv, struct dt_tensor dout,
			      struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			      const struct dt_attn *p)
{
	const int64_t rows = p->batch * p->seq, n = 4 * p->seq * p->head_dim + 4 * p->head_dim;
	float *buf;

	if (!shapes_fit(p, qkv) || !dt_is(o, qkv.dtype, rows * p->heads * p->head_dim) ||
	    !dt_is(dout, qkv.dtype, rows * p->heads * p->head_dim) || !dt_is(lse, DT_F32, rows * p->heads) ||
	    dt_rows(qkv) != rows || !dt_is(dqkv, qkv.dtype, dt_numel(qkv)))
		return -EINVAL;
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * n) * 4);
	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t i = 0; i < p->batch * p->kv_heads; i++)
		backward_kv_head(p, dqkv, dout, o, lse.data, qkv, i / p->kv_heads, i % p->kv_heads,
				 buf + omp_get_thread_num() * n);
	return 0;
}
