#include "kernels/cpu/cpu.h"

#define PAIRS 256 /* rotated at a time */

/* Pairs first .. first + n of one head at x: f32, or 16 bits. */
static DT_SIMD void rotate(void *x, enum dt_dtype t, const struct dt_rope *p, const float *c, const float *s,
			   float sign, int64_t first, int64_t n)
{
	float lo[PAIRS], hi[PAIRS];
	const bool half = p->pairing == DT_ROPE_HALF;
	const int64_t a0 = half ? first : 2 * first, b0 = half ? first + p->rot_dim / 2 : 2 * first + 1;
	const int64_t step = half ? 1 : 2;
	float *f = x;
	uint16_t *h = x;

	for (int64_t i = 0; i < n; i++) {
		lo[i] = t == DT_F32    ? f[a0 + step * i]
			: t == DT_BF16 ? dt_bf16_to_f32(h[a0 + step * i])
				       : dt_f16_to_f32(h[a0 + step * i]);
		hi[i] = t == DT_F32    ? f[b0 + step * i]
			: t == DT_BF16 ? dt_bf16_to_f32(h[b0 + step * i])
				       : dt_f16_to_f32(h[b0 + step * i]);
	}
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float u = lo[i], v = hi[i], sn = sign * s[first + i], cs = c[first + i];

		lo[i] = u * cs - v * sn;
		hi[i] = u * sn + v * cs;
	}
	if (t == DT_F32) {
		for (int64_t i = 0; i < n; i++) {
			f[a0 + step * i] = lo[i];
			f[b0 + step * i] = hi[i];
		}
	} else {
		for (int64_t i = 0; i < n; i++) {
			h[a0 + step * i] = t == DT_BF16 ? dt_f32_to_bf16(lo[i]) : dt_f32_to_f16(lo[i]);
			h[b0 + step * i] = t == DT_BF16 ? dt_f32_to_bf16(hi[i]) : dt_f32_to_f16(hi[i]);
		}
	}
}

static void rotate_row(struct dt_tensor x, const struct dt_rope *p, int64_t row, int32_t pos, float sign)
{
	const int64_t half = p->rot_dim / 2;

	for (int64_t head = 0; head < p->rot_heads; head++)
		for (int64_t i = 0; i < half; i += PAIRS)
			rotate(dt_at(x, row * dt_cols(x) + head * p->head_dim), x.dtype, p,
			       p->cos + pos * half, p->sin + pos * half, sign, i, dt_min64(PAIRS, half - i));
}

int dt_cpu_rope(struct dt_dev *dev, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		bool inverse)
{
	const int64_t rows = dt_rows(qkv);

	if (!dt_is_compute(qkv.dtype) || p->rot_dim % 2 || p->rot_dim > p->head_dim ||
	    p->rot_heads * p->head_dim > dt_cols(qkv))
		return -EINVAL;
	for (int64_t r = 0; r < rows; r++)
		if (pos[r] < 0 || pos[r] >= p->positions)
			return -EINVAL;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * p->rot_heads * p->rot_dim > DT_SERIAL)
	for (int64_t r = 0; r < rows; r++)
		rotate_row(qkv, p, r, pos[r], inverse ? -1.f : 1.f);
	return 0;
}
