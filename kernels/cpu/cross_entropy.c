#include "kernels/cpu/pair.h"
#include "kernels/cpu/vec.h"

#include <math.h>

#define LANES  64
#define PAIRS  128
#define STEP   16
#define LOG2_E 1.44269504f

struct range {
	float least, most;
};

/* Range of n bf16 numbers; least is at most 0. A NaN ends up in one of the two. */
DT_INLINE struct range half_range(const uint16_t *p, int64_t n)
{
	const int64_t even = n / LANES * LANES;
	int16_t most[LANES], m = INT16_MIN;
	uint16_t least[LANES], l = 0;

	for (int k = 0; k < LANES; k++) {
		most[k] = m;
		least[k] = l;
	}
	/* As signed integers the positive floats are in order, as unsigned ones the negative. */
	for (int64_t j = 0; j < even; j += LANES)
#pragma omp simd
		for (int k = 0; k < LANES; k++) {
			const int16_t v = (int16_t)p[j + k];

			most[k] = v > most[k] ? v : most[k];
			least[k] = p[j + k] > least[k] ? p[j + k] : least[k];
		}
	for (int64_t j = even; j < n; j++) {
		m = (int16_t)p[j] > m ? (int16_t)p[j] : m;
		l = p[j] > l ? p[j] : l;
	}
	for (int k = 0; k < LANES; k++) {
		m = most[k] > m ? most[k] : m;
		l = least[k] > l ? least[k] : l;
	}
	if (m < 0) /* all negative: the smallest bit pattern is the largest number */
		for (int64_t j = 0; j < n; j++)
			m = (int16_t)p[j] < m || !j ? (int16_t)p[j] : m;
	return (struct range){l & 0x8000 ? dt_bf16_to_f32(l) : 0, dt_bf16_to_f32((uint16_t)m)};
}

/* Buffer of PAIRS pairs: (x - base) log2 e of each element, clamped. */
struct powers {
	float lo[PAIRS], hi[PAIRS];
};

DT_INLINE void exponents(struct powers *e, const dt_pair *p, int64_t n, float base)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		const struct dt_two v = dt_pair_get(p[j]);

		e->lo[j] = dt_exp2f_bound((v.lo - base) * LOG2_E);
		e->hi[j] = dt_exp2f_bound((v.hi - base) * LOG2_E);
	}
}

DT_INLINE float two_exps(uint32_t pair, float base)
{
	const struct dt_two v = dt_pair_get(pair);

	return dt_exp2f_negative((v.lo - base) * LOG2_E) + dt_exp2f_negative((v.hi - base) * LOG2_E);
}

/*
 * Adds the exponentials of STEP pairs to the lanes; far: some exponents need clamping. Each operation is done
 * for all pairs before the next one, an order that compilers keep: operations do not wait for each other, and
 * four AVX2 vectors stay in registers. A vector takes 13 operations, 7 of them multiplications, and 1 in
 * half_range. Zen 3 starts two multiplications per cycle: 8 logits (16 bytes) take at least 3.5 cycles, one
 * thread's copy of as many bytes 1.5. Measured: 6.7 cycles.
 */
DT_INLINE void add_exps(float lane[STEP], const dt_pair *p, float base, bool far)
{
	float t[2 * STEP], n[2 * STEP], y[2 * STEP];

#pragma omp simd
	for (int k = 0; k < STEP; k++) {
		const struct dt_two v = dt_pair_get(p[k]);

		t[k] = v.lo - base;
		t[STEP + k] = v.hi - base;
	}
	for (int k = 0; far && k < 2 * STEP; k++)
		t[k] = dt_exp2f_bound(t[k] * LOG2_E);
#pragma omp simd
	for (int k = 0; k < 2 * STEP; k++)
		n[k] = t[k] * (far ? 1.f : LOG2_E) + DT_EXP2F_ROUND;
#pragma omp simd
	for (int k = 0; k < 2 * STEP; k++)
		t[k] = t[k] * (far ? 1.f : LOG2_E) - (n[k] - DT_EXP2F_ROUND);
#pragma omp simd
	for (int k = 0; k < 2 * STEP; k++)
		y[k] = dt_exp2f_terms[0] * t[k] + dt_exp2f_terms[1];
	DT_FOR (4, int i = 2; i < 6; i++)
#pragma omp simd
		for (int k = 0; k < 2 * STEP; k++)
			y[k] = y[k] * t[k] + dt_exp2f_terms[i];
#pragma omp simd
	for (int k = 0; k < 2 * STEP; k++)
		y[k] = dt_bits_f32(dt_f32_bits(y[k]) + (dt_f32_bits(n[k]) << 23));
#pragma omp simd
	for (int k = 0; k < STEP; k++)
		lane[k] += y[k] + y[STEP + k];
}

/* Sum of n lanes, a constant, by halves; the loop over k stays vectors. */
DT_INLINE float lanes_sum(float *lane, const int n)
{
	DT_FOR (6, int half = n / 2; half; half /= 2)
#pragma omp simd
		for (int k = 0; k < half; k++)
			lane[k] += lane[k + half];
	return lane[0];
}

/* Sum of exponentials over pairs; prefetches the chunk after them. */
DT_INLINE float pairs_sum(const dt_pair *p, int64_t pairs, float base, bool far)
{
	const int64_t even = pairs / (LANES / 2) * (LANES / 2);
	float lane[LANES / 2] = {0};

	for (int64_t j = 0; j < even; j += LANES / 2) {
		dt_prefetch(p + j + DT_CHUNK / 2, 2 * LANES);
		for (int k = 0; k < LANES / 2; k += STEP)
			add_exps(lane + k, p + j + k, base, far);
	}
	for (int64_t j = even; j < pairs; j++)
		lane[j - even] += two_exps(p[j], base);
	return lanes_sum(lane, LANES / 2);
}

/* The same for f32. Prefetches what dt_most reads next. */
DT_INLINE float floats_sum(const float *p, int64_t n, float base)
{
	const int64_t even = n / LANES * LANES;
	float lane[LANES] = {0};

	for (int64_t j = 0; j < even; j += LANES) {
		dt_prefetch(p + j + DT_CHUNK, 4 * LANES);
#pragma omp simd
		for (int k = 0; k < LANES; k++)
			lane[k] += dt_expf_bounded(p[j + k] - base);
	}
	for (int64_t j = even; j < n; j++)
		lane[j - even] += dt_expf_bounded(p[j] - base);
	return lanes_sum(lane, LANES);
}

static DT_SIMD void stats_row(float *rowmax, float *sumexp, struct dt_tensor l, int64_t row)
{
	const int64_t n = dt_cols(l);
	float buf[DT_CHUNK], max = -INFINITY, sum = 0;

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c), pairs = l.dtype == DT_BF16 ? w / 2 : 0;
		const dt_pair *two = dt_at(l, row * n + c);
		/* What is not in pairs: everything, or the last element of a row of odd length. */
		const float *p = dt_load(buf, dt_at(l, row * n + c + 2 * pairs), l.dtype, w - 2 * pairs);
		const struct range r = l.dtype == DT_BF16 ? half_range(dt_at(l, row * n + c), w)
							  : (struct range){-INFINITY, dt_most(p, w, max)};
		const float m = r.most;

		if (m > max) {
			sum = sum ? sum * dt_expf(max - m) : 0;
			max = m;
		}
		/* All are -Inf so far: avoids -Inf - -Inf, which would be NaN. */
		const float base = max == -INFINITY ? 0 : max;

		/* In most rows no exponent needs clamping. */
		sum += (base - r.least < 87 ? pairs_sum(two, pairs, base, false)
					    : pairs_sum(two, pairs, base, true)) +
		       (w > 2 * pairs ? floats_sum(p, w - 2 * pairs, base) : 0);
	}
	rowmax[row] = max;
	sumexp[row] = sum;
}

int dt_cpu_ce_stats(struct dt_dev *dev, float *rowmax, float *sumexp, float *target_logit,
		    struct dt_tensor logits, const int32_t *targets, int64_t vocab_first)
{
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		const int64_t t = targets[i] - vocab_first;
		float one;

		stats_row(rowmax, sumexp, logits, i);
		target_logit[i] = 0;
		if (targets[i] >= 0 && t >= 0 && t < n)
			target_logit[i] = *dt_load(&one, dt_at(logits, i * n + t), logits.dtype, 1);
	}
	return 0;
}

/* Gradient of n bf16 logits; out may alias p. target: the target column if it is among them. */
DT_INLINE void grad_pairs(uint16_t *out, const uint16_t *p, int64_t n, float k, float rowmax, int64_t target,
			  float scale)
{
	const bool hit = target >= 0 && target < n;
	const float there = hit ? dt_bf16_to_f32(p[target]) : 0;
	const dt_pair *in = (const dt_pair *)p;
	dt_pair *two = (dt_pair *)out;

	for (int64_t first = 0; first < n / 2; first += PAIRS) {
		const int64_t m = dt_min64(PAIRS, n / 2 - first);
		struct powers e;

		exponents(&e, in + first, m, rowmax);
#pragma omp simd
		for (int64_t j = 0; j < m; j++)
			two[first + j] =
				dt_pair_of(k * dt_exp2f_bounded(e.lo[j]), k * dt_exp2f_bounded(e.hi[j]));
	}
	if (n % 2)
		out[n - 1] =
			dt_f32_to_bf16(k * dt_exp2f_negative((dt_bf16_to_f32(p[n - 1]) - rowmax) * LOG2_E));
	if (hit)
		out[target] = dt_f32_to_bf16(k * dt_exp2f_negative((there - rowmax) * LOG2_E) - scale);
}

static DT_SIMD void grad_row(struct dt_tensor d, struct dt_tensor l, float rowmax, float sumexp,
			     int64_t target, float scale, int64_t row)
{
	const int64_t n = dt_cols(l);
	const float k = scale / sumexp;
	float buf[DT_CHUNK];

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);

		if (l.dtype == DT_BF16 && d.dtype == DT_BF16) {
			grad_pairs(dt_at(d, row * n + c), dt_at(l, row * n + c), w, k, rowmax, target - c,
				   scale);
			continue;
		}

		const float *p = dt_load(buf, dt_at(l, row * n + c), l.dtype, w);
		float *out = dt_stage(buf, dt_at(d, row * n + c), d.dtype);

#pragma omp simd
		for (int64_t j = 0; j < w; j++)
			out[j] = k * dt_expf(p[j] - rowmax);
		if (target >= c && target < c + w)
			out[target - c] -= scale;
		dt_store(dt_at(d, row * n + c), d.dtype, out, w);
	}
}

int dt_cpu_ce_grad(struct dt_dev *dev, struct dt_tensor dlogits, struct dt_tensor logits, const float *rowmax,
		   const float *sumexp, const int32_t *targets, const float *weight, float scale,
		   int64_t vocab_first)
{
	const int64_t rows = dt_rows(logits), n = dt_cols(logits);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++) {
		if (targets[i] < 0)
			memset(dt_at(dlogits, i * n), 0, (size_t)(n * dt_dtype_size(dlogits.dtype)));
		else
			grad_row(dlogits, logits, rowmax[i], sumexp[i], targets[i] - vocab_first,
				 weight ? scale * weight[i] : scale, i);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
