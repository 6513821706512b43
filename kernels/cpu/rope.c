#include "kernels/cpu/pair.h"
#include "kernels/cpu/team.h"

#define PAIRS 256 /* pairs rotated at a time */

/* Pair i of a head is elements i and i + rot_dim / 2. */
static DT_SIMD void rotate_half(void *x, enum dt_dtype t, int64_t rot_dim, const float *c, const float *s,
				float sign, int64_t first, int64_t n)
{
	float lo[PAIRS], hi[PAIRS];
	char *a = (char *)x + first * dt_dtype_size(t), *b = a + rot_dim / 2 * dt_dtype_size(t);
	const float *u = dt_load(lo, a, t, n), *v = dt_load(hi, b, t, n);
	float *to[2] = {dt_stage(lo, a, t), dt_stage(hi, b, t)};

#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		const float sn = sign * s[first + i], cs = c[first + i], p = u[i], q = v[i];

		to[0][i] = p * cs - q * sn;
		to[1][i] = p * sn + q * cs;
	}
	dt_store(a, t, to[0], n);
	dt_store(b, t, to[1], n);
}

/* Pair i is elements 2 i and 2 i + 1. */
static DT_SIMD void rotate_pairs(void *x, enum dt_dtype t, const float *c, const float *s, float sign,
				 int64_t first, int64_t n)
{
	float buf[2 * PAIRS];
	char *a = (char *)x + 2 * first * dt_dtype_size(t);
	const float *u = dt_load(buf, a, t, 2 * n);
	float *to = dt_stage(buf, a, t);

#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		const float sn = sign * s[first + i], cs = c[first + i], p = u[2 * i], q = u[2 * i + 1];

		to[2 * i] = p * cs - q * sn;
		to[2 * i + 1] = p * sn + q * cs;
	}
	dt_store(a, t, to, 2 * n);
}

/* The same for bf16, whose pairs are words: no permutations. */
static DT_SIMD void rotate_words(dt_pair *x, const float *c, const float *s, float sign, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		const float sn = sign * s[i], cs = c[i];
		const struct dt_two v = dt_pair_get(x[i]);

		x[i] = dt_pair_of(v.lo * cs - v.hi * sn, v.lo * sn + v.hi * cs);
	}
}

static void rotate_row(struct dt_tensor x, const struct dt_rope *p, int64_t row, int32_t pos, float sign)
{
	const int64_t half = p->rot_dim / 2;
	const float *c = p->cos + pos * half, *s = p->sin + pos * half;

	for (int64_t head = 0; head < p->rot_heads; head++) {
		void *at = dt_at(x, row * dt_cols(x) + head * p->head_dim);

		if (p->pairing != DT_ROPE_HALF && x.dtype == DT_BF16) {
			rotate_words(at, c, s, sign, half);
			continue;
		}
		for (int64_t i = 0; i < half; i += PAIRS)
			if (p->pairing == DT_ROPE_HALF)
				rotate_half(at, x.dtype, p->rot_dim, c, s, sign, i,
					    dt_min64(PAIRS, half - i));
			else
				rotate_pairs(at, x.dtype, c, s, sign, i, dt_min64(PAIRS, half - i));
	}
}

struct turning {
	struct dt_tensor x;
	const struct dt_rope *p;
	const int32_t *pos;
	float sign;
};

static void rotate_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct turning *a = arg;

	(void)t;
	for (int64_t r = first; r < last; r++)
		rotate_row(a->x, a->p, r, a->pos[r], a->sign);
}

int dt_cpu_rope(struct dt_dev *dev, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		bool inverse)
{
	const int64_t rows = dt_rows(qkv);

	if (!dt_rope_has(p, pos, rows))
		return -EINVAL;
	dt_cpu_rows(dev, rows, p->rot_heads * p->rot_dim, rotate_some,
		    &(struct turning){qkv, p, pos, inverse ? -1.f : 1.f});
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
