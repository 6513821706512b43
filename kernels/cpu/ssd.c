/* The chunked scan, forward, and what backward shares with it. */
#include "kernels/cpu/ssd.h"
#include "kernels/cpu/tile.h"

#include <math.h>

/* ---- small products ---- */

/* One row and n < 16 columns. */
DT_INLINE void mul_rest(float *c, const float *a, int64_t ak, const float *b, int64_t ldb, int64_t n,
			int64_t k, bool add)
{
	float sum[16];

	for (int64_t j = 0; j < n; j++)
		sum[j] = add ? c[j] : 0;
	for (int64_t l = 0; l < k; l++)
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			sum[j] += a[l * ak] * b[l * ldb + j];
	for (int64_t j = 0; j < n; j++)
		c[j] = sum[j];
}

static DT_SIMD void ssd_mul_rest(float *c, int64_t ldc, const float *a, int64_t ai, int64_t ak,
				 const float *b, int64_t ldb, int64_t m, int64_t n, int64_t k, bool add)
{
	for (int64_t i = 0; i < m; i++)
		mul_rest(c + i * ldc, a + i * ai, ak, b, ldb, n, k, add);
}

void dt_ssd_mul(float *c, int64_t ldc, const float *a, int64_t ai, int64_t ak, const float *b, int64_t ldb,
		int64_t m, int64_t n, int64_t k, bool add)
{
	const int64_t even = n / 16 * 16;

	if (even)
		dt_tile(DT_F32)->mul(c, ldc, (const uint32_t *)(const void *)a, ai, ak,
				     (const uint32_t *)(const void *)b, ldb, m, even, k, add);
	if (even < n)
		ssd_mul_rest(c + even, ldc, a, ai, ak, b + even, ldb, m, n - even, k, add);
}

static DT_SIMD void ssd_get(float *to, struct dt_tensor t, int64_t wide, int64_t row, int64_t n, int64_t at,
			    int64_t cols)
{
	for (int64_t i = 0; i < n; i++) {
		const void *from = dt_at(t, (row + i) * wide + at);
		const float *f = dt_load(to + i * cols, from, t.dtype, cols);

		if (f != to + i * cols)
			memcpy(to + i * cols, f, (size_t)cols * sizeof(*to));
	}
}

void dt_ssd_get(float *to, struct dt_tensor t, int64_t wide, int64_t row, int64_t n, int64_t at, int64_t cols)
{
	ssd_get(to, t, wide, row, n, at, cols);
}

static DT_SIMD void ssd_put(struct dt_tensor t, int64_t wide, int64_t row, int64_t n, int64_t at,
			    int64_t cols, const float *from)
{
	for (int64_t i = 0; i < n; i++) {
		void *to = dt_at(t, (row + i) * wide + at);

		if (t.dtype == DT_F32)
			memcpy(to, from + i * cols, (size_t)cols * sizeof(*from));
		dt_store(to, t.dtype, from + i * cols, cols);
	}
}

void dt_ssd_put(struct dt_tensor t, int64_t wide, int64_t row, int64_t n, int64_t at, int64_t cols,
		const float *from)
{
	ssd_put(t, wide, row, n, at, cols, from);
}

void dt_ssd_turn(float *to, int64_t ldt, const float *from, int64_t rows, int64_t cols)
{
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j++)
			to[j * ldt + i] = from[i * cols + j];
}

static DT_SIMD void ssd_scale(float *x, const float *f, int64_t n, int64_t cols)
{
	for (int64_t i = 0; i < n; i++)
#pragma omp simd
		for (int64_t j = 0; j < cols; j++)
			x[i * cols + j] *= f[i];
}

void dt_ssd_scale(float *x, const float *f, int64_t n, int64_t cols)
{
	ssd_scale(x, f, n, cols);
}

void dt_ssm_vector(float *to, struct dt_tensor t, int64_t n)
{
	dt_ssd_get(to, t, n, 0, 1, 0, n);
}

void dt_ssm_vectors(float *to, int64_t heads, struct dt_tensor a_log, struct dt_tensor dt_bias,
		    struct dt_tensor d)
{
	dt_ssm_vector(to, a_log, heads);
	dt_ssm_vector(to + heads, dt_bias, heads);
	dt_ssm_vector(to + 2 * heads, d, heads);
	for (int64_t h = 0; h < heads; h++)
		to[h] = -expf(to[h]);
}

/* ---- a chunk ---- */

struct dt_ssd_chunk dt_ssd_chunk(const struct dt_ssd *s, int64_t batch, int64_t chunk)
{
	struct dt_ssd_chunk c = {.at = chunk * DT_SSM_CHUNK};

	c.row = batch * s->p->seq + c.at;
	c.n = dt_min64(DT_SSM_CHUNK, s->p->seq - c.at);
	for (int64_t i = 0; i < c.n; i++) {
		const int64_t first = s->p->first ? s->p->first[c.row + i] : 0;

		c.low[i] = first < c.at ? -1 : first - c.at;
	}
	return c;
}

float dt_ssd_factors(const struct dt_ssd *s, const struct dt_ssd_chunk *c, int64_t batch, int64_t head,
		     float *e, float *w)
{
	const int64_t at = (batch * s->p->heads + head) * s->p->seq + c->at, last = c->n - 1;
	const float *cs = s->cs + at;

	for (int64_t i = 0; i < c->n; i++) {
		e[i] = c->low[i] < 0 ? expf(cs[i]) : 0;
		w[i] = i >= c->low[last] ? expf(cs[last] - cs[i]) : 0;
	}
	return e[last];
}

static DT_SIMD void ssd_mask(float *m, const float *g, const float *cs, const float *dt,
			     const struct dt_ssd_chunk *c)
{
	const int64_t q = DT_SSM_CHUNK;

	for (int64_t i = 0; i < c->n; i++) {
		const int64_t low = c->low[i] < 0 ? 0 : c->low[i];
		float *row = m + i * q;

		memset(row, 0, (size_t)c->n * sizeof(*m));
#pragma omp simd
		for (int64_t j = low; j <= i; j++)
			row[j] = dt_expf_bounded(cs[i] - cs[j]);
		if (g)
#pragma omp simd
			for (int64_t j = low; j <= i; j++)
				row[j] *= g[i * q + j] * dt[j];
	}
}

void dt_ssd_mask(float *m, const float *g, const struct dt_ssd *s, const struct dt_ssd_chunk *c,
		 int64_t batch, int64_t head)
{
	const int64_t at = (batch * s->p->heads + head) * s->p->seq + c->at;

	ssd_mask(m, g, s->cs + at, s->dt + at, c);
}

/* ---- steps and states ---- */

float dt_ssm_softplus(float v)
{
	return v > 20 ? v : log1pf(expf(v));
}

/* dt of a sequence's head, and its sums with A within each chunk. */
static void steps(const struct dt_ssd *s, int64_t batch, int64_t head)
{
	const struct dt_ssm *p = s->p;
	const int64_t to = (batch * p->heads + head) * p->seq;
	double sum = 0;

	for (int64_t i = 0; i < p->seq; i++) {
		float v, dt;

		dt_ssd_get(&v, s->t, p->heads, batch * p->seq + i, 1, head, 1);
		v += s->bias[head];
		dt = dt_ssm_softplus(v);
		sum = i % DT_SSM_CHUNK ? sum : 0;
		sum += (double)dt * (double)s->a[head];
		s->dt[to + i] = dt;
		s->cs[to + i] = (float)sum;
	}
}

/* The state in front of each chunk of a sequence's head. */
static void states(const struct dt_ssd *s, int64_t batch, int64_t head, float *own)
{
	const struct dt_ssm *p = s->p;
	const int64_t q = DT_SSM_CHUNK, n = p->state, d = p->head_dim, wide = dt_ssm_conv(p),
		      group = head / (p->heads / p->groups);
	const float *dt = s->dt + (batch * p->heads + head) * p->seq;
	float *b = own, *x = b + q * n, *e = x + q * d, *w = e + q;

	memset(dt_ssd_state(s, s->states, batch, 0, head), 0, (size_t)(n * d) * sizeof(*own));
	for (int64_t k = 0; k + 1 < s->chunks; k++) {
		const struct dt_ssd_chunk c = dt_ssd_chunk(s, batch, k);
		const float *from = dt_ssd_state(s, s->states, batch, k, head),
			    keep = dt_ssd_factors(s, &c, batch, head, e, w);
		float *to = dt_ssd_state(s, s->states, batch, k + 1, head);

		dt_ssd_get(b, s->xbc, wide, c.row, c.n, dt_ssm_inner(p) + group * n, n);
		dt_ssd_get(x, s->xbc, wide, c.row, c.n, head * d, d);
		for (int64_t i = 0; i < c.n; i++)
			w[i] *= dt[c.at + i];
		dt_ssd_scale(x, w, c.n, d);
		for (int64_t i = 0; i < n * d; i++)
			to[i] = keep * from[i];
		dt_ssd_mul(to, d, b, 1, n, x, d, n, d, c.n, true);
	}
}

float *dt_ssd_open(struct dt_dev *dev, struct dt_ssd *s, float *room, struct dt_tensor dt_bias,
		   struct dt_tensor a_log, struct dt_tensor d, bool backward)
{
	const struct dt_ssm *p = s->p;
	const int64_t all = p->batch * p->heads;

	s->chunks = dt_ssd_chunks(p);
	s->own_each = dt_ssd_own(p, backward);
	s->a = room;
	s->bias = s->a + p->heads;
	s->d = s->bias + p->heads;
	s->dt = s->d + p->heads;
	s->cs = s->dt + all * p->seq;
	s->states = s->cs + all * p->seq;
	s->own = s->states + dt_ssd_state_size(p);
	dt_ssm_vectors(s->a, p->heads, a_log, dt_bias, d);
#pragma omp parallel for num_threads(dev->nthreads) if (all * p->seq * p->head_dim > DT_SERIAL)
	for (int64_t i = 0; i < all; i++) {
		steps(s, i / p->heads, i % p->heads);
		states(s, i / p->heads, i % p->heads, s->own + omp_get_thread_num() * s->own_each);
	}
	return s->own + dev->nthreads * s->own_each;
}

/* ---- the scan ---- */

/* y of a head's chunk: b, c, g: of its group. */
static void head_chunk(const struct dt_ssd *s, struct dt_tensor y, const struct dt_ssd_chunk *k,
		       int64_t batch, int64_t chunk, int64_t head, const float *c, const float *g, float *own)
{
	const struct dt_ssm *p = s->p;
	const int64_t q = DT_SSM_CHUNK, n = p->state, d = p->head_dim;
	float *m = own, *x = m + q * q, *o = x + q * d, *e = o + q * d, *w = e + q;

	dt_ssd_factors(s, k, batch, head, e, w);
	dt_ssd_mask(m, g, s, k, batch, head);
	dt_ssd_get(x, s->xbc, dt_ssm_conv(p), k->row, k->n, head * d, d);
	dt_ssd_mul(o, d, c, n, 1, dt_ssd_state(s, s->states, batch, chunk, head), d, k->n, d, n, false);
	for (int64_t i = 0; i < k->n; i++)
		for (int64_t j = 0; j < d; j++)
			o[i * d + j] = e[i] * o[i * d + j] + s->d[head] * x[i * d + j];
	dt_ssd_mul(o, d, m, q, 1, x, d, k->n, d, k->n, true);
	dt_ssd_put(y, dt_ssm_inner(p), k->row, k->n, head * d, d, o);
}

static void chunk_forward(const struct dt_ssd *s, struct dt_tensor y, int64_t batch, int64_t chunk,
			  float *own)
{
	const struct dt_ssm *p = s->p;
	const struct dt_ssd_chunk k = dt_ssd_chunk(s, batch, chunk);
	const int64_t q = DT_SSM_CHUNK, n = p->state, inner = dt_ssm_inner(p), each = p->heads / p->groups;
	float *b = own, *c = b + q * n, *bt = c + q * n, *g = bt + q * n, *rest = g + q * q;

	for (int64_t i = 0; i < p->groups; i++) {
		dt_ssd_get(b, s->xbc, dt_ssm_conv(p), k.row, k.n, inner + i * n, n);
		dt_ssd_get(c, s->xbc, dt_ssm_conv(p), k.row, k.n, inner + (p->groups + i) * n, n);
		dt_ssd_turn(bt, q, b, k.n, n);
		dt_ssd_mul(g, q, c, n, 1, bt, q, k.n, k.n, n, false);
		for (int64_t h = i * each; h < (i + 1) * each; h++)
			head_chunk(s, y, &k, batch, chunk, h, c, g, rest);
	}
}

int dt_cpu_ssm_scan(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc, struct dt_tensor t,
		    struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
		    const struct dt_ssm *p)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	struct dt_ssd s = {.p = p, .xbc = xbc, .t = t};
	float *room = dt_cpu_scratch(dev, dt_ssm_scan_scratch(&on, p));

	if (!room)
		return -ENOMEM;
	dt_ssd_open(dev, &s, room, dt_bias, a_log, d, false);
#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(y) > DT_SERIAL)
	for (int64_t i = 0; i < p->batch * s.chunks; i++)
		chunk_forward(&s, y, i / s.chunks, i % s.chunks, s.own + omp_get_thread_num() * s.own_each);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
