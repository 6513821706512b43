#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Where a row's parts begin, elements. */
struct parts {
	int64_t head, k, v; /* a head of q; keys and values in a row of qkv */
	int64_t kv;	    /* a head of kv */
	int64_t wide;	    /* a row of qkv */
};

static struct parts parts_of(const struct dt_latent *p)
{
	const int64_t head = p->rope + p->nope;

	return (struct parts){.head = head,
			      .k = p->heads * head,
			      .v = 2 * p->heads * head,
			      .kv = p->nope + p->value,
			      .wide = p->heads * (2 * head + p->value)};
}

struct operands {
	struct dt_tensor qkv, q, key, kv;
};

static void move(struct dt_tensor to, int64_t i, struct dt_tensor from, int64_t j, int64_t n)
{
	memcpy(dt_at(to, i), dt_at(from, j), (size_t)(n * dt_dtype_size(to.dtype)));
}

static void join_row(const struct operands *t, const struct dt_latent *p, int64_t row)
{
	const struct parts a = parts_of(p);
	const int64_t to = row * a.wide;

	for (int64_t h = 0; h < p->heads; h++) {
		const int64_t q = row * a.k + h * a.head, kv = (row * p->heads + h) * a.kv;
		const int64_t qh = to + h * a.head, kh = to + a.k + h * a.head;

		move(t->qkv, qh, t->q, q + p->nope, p->rope);
		move(t->qkv, qh + p->rope, t->q, q, p->nope);
		move(t->qkv, kh, t->key, row * p->rope, p->rope);
		move(t->qkv, kh + p->rope, t->kv, kv, p->nope);
		move(t->qkv, to + a.v + h * p->value, t->kv, kv + p->nope, p->value);
	}
}

/* key's gradient of a row: the sum over heads. */
static DT_SIMD void sum_heads(const struct operands *t, const struct dt_latent *p, int64_t row, int64_t first)
{
	const struct parts a = parts_of(p);
	float sum[DT_CHUNK], buf[DT_CHUNK];

	for (int64_t c = 0; c < p->rope; c += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, p->rope - c);

		float *out = dt_stage(sum, dt_at(t->key, row * p->rope + c), t->key.dtype);

		memset(out, 0, (size_t)n * 4);
		for (int64_t h = 0; h < p->heads; h++) {
			const float *x = dt_load(buf, dt_at(t->qkv, first + h * a.head + c), t->qkv.dtype, n);

#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				out[j] += x[j];
		}
		dt_store(dt_at(t->key, row * p->rope + c), t->key.dtype, out, n);
	}
}

static void part_row(const struct operands *t, const struct dt_latent *p, int64_t row)
{
	const struct parts a = parts_of(p);
	const int64_t from = row * a.wide;

	for (int64_t h = 0; h < p->heads; h++) {
		const int64_t q = row * a.k + h * a.head, kv = (row * p->heads + h) * a.kv;
		const int64_t qh = from + h * a.head, kh = from + a.k + h * a.head;

		move(t->q, q + p->nope, t->qkv, qh, p->rope);
		move(t->q, q, t->qkv, qh + p->rope, p->nope);
		move(t->kv, kv, t->qkv, kh + p->rope, p->nope);
		move(t->kv, kv + p->nope, t->qkv, from + a.v + h * p->value, p->value);
	}
	sum_heads(t, p, row, from + a.k);
}

int dt_cpu_latent_join(struct dt_dev *dev, struct dt_tensor qkv, struct dt_tensor q, struct dt_tensor key,
		       struct dt_tensor kv, const struct dt_latent *p)
{
	const struct operands t = {qkv, q, key, kv};
	const int64_t rows = dt_rows(qkv);

#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(qkv) > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		join_row(&t, p, i);
	return 0;
}

int dt_cpu_latent_join_backward(struct dt_dev *dev, struct dt_tensor dq, struct dt_tensor dkey,
				struct dt_tensor dkv, struct dt_tensor dqkv, const struct dt_latent *p)
{
	const struct operands t = {dqkv, dq, dkey, dkv};
	const int64_t rows = dt_rows(dqkv);

#pragma omp parallel for num_threads(dev->nthreads) if (dt_numel(dqkv) > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		part_row(&t, p, i);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
