/* Products of plain matrices, by oneDNN or tile.h, whole or in parts. */
#include "kernels/cpu/thin.h"

#include <stdlib.h>

#define BLOCK DT_MATMUL_BLOCK
#define DEPTH DT_MATMUL_DEPTH

static struct dt_tensor wide_copy(char **at, struct dt_tensor t)
{
	struct dt_tensor w = t;

	if (!t.data || t.dtype == DT_F32)
		return t;
	w.dtype = DT_F32;
	w.data = *at;
	*at += (dt_numel(t) * 4 + 63) / 64 * 64;
	return w;
}

static int product(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias);

/* 16-bit operands are copied to f32. */
static int product_wide(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
			struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	char *at = dt_cpu_scratch_of(dev, DT_SCRATCH_WIDE, dt_matmul_wide_bytes(key));
	struct dt_matmul_key wide = *key;
	int r;

	if (!at)
		return -ENOMEM;
	struct dt_tensor wa = wide_copy(&at, a), wb = wide_copy(&at, b), wc = wide_copy(&at, c);
	struct dt_tensor wbias = wide_copy(&at, bias);

	wide.in = wide.out = DT_F32;
	r = dt_cpu_convert(dev, wa, a);
	r = r < 0 ? r : dt_cpu_convert(dev, wb, b);
	if (bias.data)
		r = r < 0 ? r : dt_cpu_convert(dev, wbias, bias);
	if (key->accumulate && wc.data != c.data)
		r = r < 0 ? r : dt_cpu_convert(dev, wc, c);
	r = r < 0 ? r : product(dev, &wide, wc, wa, wb, wbias);
	if (r == 0 && wc.data != c.data)
		r = dt_cpu_convert(dev, c, wc);
	return r;
}

/* Whether batch invariance is required and oneDNN's product lacks it. */
static bool is_bound(const struct dt_dev *dev, const struct dt_matmul_entry *e)
{
	return dev->batch_invariant && !e->invariant;
}

static int product(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_key as = *key;
	struct dt_matmul_entry *e;
	void *bs = b.data;
	int r;

	as.packed = dt_matmul_packs(key);
	r = dt_matmul_find(cpu, &as, &e);
	if (r < 0)
		return r;
	if (is_bound(dev, e) && dt_matmul_rows_takes(key))
		return dt_matmul_rows(dev, key, c, a, b, bias);
	if (e->widen || is_bound(dev, e))
		return product_wide(dev, key, c, a, b, bias);
	if (e->tiles)
		return dt_matmul_rows(dev, key, c, a, b, bias);
	if (e->packed)
		bs = dt_matmul_pack(dev, key, b);
	return bs ? dt_matmul_execute(cpu, e, c.data, a.data, bs, bias.data) : -ENOMEM;
}

static int product_blocks(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
			  struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias)
{
	int r = 0;

	/* Regardless of the number of threads, since blocks determine the order of accumulation. */
	for (int64_t i = 0; r == 0 && i < key->m; i += BLOCK) {
		struct dt_matmul_key block = *key;
		struct dt_matmul_entry *e;

		block.m = dt_min64(BLOCK, key->m - i);
		r = dt_matmul_find(dev->impl, &block, &e);
		if (r == 0 && (e->widen || is_bound(dev, e)))
			return product(dev, key, c, a, b, bias);
		if (r == 0)
			r = dt_matmul_execute(dev->impl, e, dt_at(c, i * key->n),
					      dt_at(a, key->ta ? i : i * key->k), b.data, bias.data);
	}
	return r;
}

static int product_deep(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
			struct dt_tensor a, struct dt_tensor b)
{
	float *sums = dt_cpu_scratch_of(dev, DT_SCRATCH_WIDE, dt_matmul_deep_bytes(key));
	int r = sums ? 0 : -ENOMEM;

	for (int64_t i = 0; r == 0 && i < key->m; i += BLOCK) {
		struct dt_matmul_key part = *key;

		part.m = dt_min64(BLOCK, key->m - i);
		part.out = DT_F32;
		for (int64_t k = 0; r == 0 && k < key->k; k += DEPTH) {
			struct dt_matmul_entry *e;

			part.k = dt_min64(DEPTH, key->k - k);
			part.accumulate = k > 0;
			r = dt_matmul_find(dev->impl, &part, &e);
			if (r == 0 && (e->widen || is_bound(dev, e)))
				return product(dev, key, c, a, b, DT_NONE);
			if (r == 0)
				r = dt_matmul_execute(dev->impl, e, sums, dt_at(a, i * key->k + k),
						      dt_at(b, k * key->n), NULL);
		}
		r = r < 0 ? r
			  : dt_cpu_convert(dev, dt_t2(dt_at(c, i * key->n), c.dtype, part.m, key->n),
					   dt_t2(sums, DT_F32, part.m, key->n));
	}
	return r;
}

/* k = 0: c = (accumulate ? c : 0) + bias */
static int product_empty(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor bias, bool accumulate)
{
	const int64_t n = dt_cols(c);
	int r = accumulate ? 0 : dt_cpu_fill(dev, c, 0);

	for (int64_t i = 0; bias.data && r == 0 && i < dt_rows(c); i++)
		r = dt_cpu_axpy(dev, dt_t1(dt_at(c, i * n), c.dtype, n), 1, bias);
	return r;
}

int dt_cpu_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, bool ta, struct dt_tensor b,
		  bool tb, struct dt_tensor bias, bool accumulate)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_key key = {.m = ta ? dt_cols(a) : dt_rows(a),
				    .k = ta ? dt_rows(a) : dt_cols(a),
				    .n = tb ? dt_rows(b) : dt_cols(b),
				    .lda = dt_cols(a),
				    .nthreads = dev->nthreads,
				    .ta = ta,
				    .tb = tb,
				    .in = (uint8_t)a.dtype,
				    .out = (uint8_t)c.dtype,
				    .bias = bias.data != NULL,
				    .accumulate = accumulate};
	int threads, r;

	if (!key.k)
		return product_empty(dev, c, bias, accumulate);
	if (dt_matmul_ready(cpu) < 0)
		return -ENOMEM;
	threads = dt_cpu_set_threads(dev->nthreads);
	if (dt_thin_is(dev, &key))
		r = dt_thin_matmul(dev, &key, c, a, b, bias);
	else if (dt_matmul_in_blocks(&key, dev->batch_invariant))
		r = product_blocks(dev, &key, c, a, b, bias);
	else if (dt_matmul_is_deep(&key))
		r = product_deep(dev, &key, c, a, b);
	else
		r = product(dev, &key, c, a, b, bias);
	omp_set_num_threads(threads);
	return r;
}

bool dt_cpu_matmul_rows_apart(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n,
			      bool tb, bool bias)
{
	struct dt_cpu *cpu = dev->impl;
	struct dt_matmul_key key = {.m = m,
				    .k = k,
				    .n = n,
				    .lda = k,
				    .nthreads = dev->nthreads,
				    .tb = tb,
				    .in = (uint8_t)dtype,
				    .out = (uint8_t)dtype,
				    .bias = bias};
	struct dt_matmul_entry *e;

	if (dev->batch_invariant || !m || !k || !n)
		return true;
	if (dt_matmul_ready(cpu) < 0 || dt_matmul_find(cpu, &key, &e) < 0)
		return false;
	if (e->widen) {
		key.in = key.out = DT_F32;
		if (dt_matmul_find(cpu, &key, &e) < 0)
			return false;
	}
	return e->invariant;
}
/* SPDX-License-Identifier: Apache-2.0 */
