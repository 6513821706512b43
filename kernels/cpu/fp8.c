/*
 * No processor here multiplies 8-bit floats: the operands are widened, exactly, and multiplied by oneDNN. So
 * this is what a card's products are held to, and a way to try them out; it is no faster than bf16.
 */
#include "kernels/fp8.h"
#include "kernels/cpu/cpu.h"

#define SIDE 64 /* of the tiles that are turned around */

static DT_SIMD uint32_t amax_chunk(struct dt_tensor x, int64_t i, int64_t n)
{
	float buf[DT_CHUNK];

	return dt_largest(dt_load(buf, dt_at(x, i), x.dtype, n), n);
}

static uint32_t amax_of(struct dt_dev *dev, struct dt_tensor x)
{
	const int64_t total = dt_numel(x);
	uint32_t most = 0;

#pragma omp parallel for num_threads(dev->nthreads) reduction(max : most) if (total > DT_SERIAL)
	for (int64_t i = 0; i < total; i += DT_CHUNK) {
		const uint32_t m = amax_chunk(x, i, dt_min64(DT_CHUNK, total - i));

		most = m > most ? m : most;
	}
	return most;
}

/* n elements of x from i on, n at most DT_CHUNK. */
static DT_SIMD void narrow_to_fp8(uint8_t *y, enum dt_dtype t, struct dt_tensor x, int64_t i, int64_t n,
				  float inverse)
{
	float buf[DT_CHUNK];
	const float *p = dt_load(buf, dt_at(x, i), x.dtype, n);

	if (t == DT_E4M3) {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = dt_f32_to_e4m3(p[j] * inverse);
	} else {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = dt_f32_to_e5m2(p[j] * inverse);
	}
}

/*
 * Up to SIDE rows of x from r0 on: y's rows, and columns r0 .. of yt. The next tile is asked for: pieces of
 * rows are no stream.
 */
static void narrow_rows(struct dt_tensor y, struct dt_tensor yt, struct dt_tensor x, int64_t r0,
			float inverse)
{
	const int64_t rows = dt_rows(x), cols = dt_cols(x), nr = dt_min64(SIDE, rows - r0);
	const enum dt_dtype t = y.data ? y.dtype : yt.dtype;
	uint8_t tile[SIDE][SIDE];

	for (int64_t c0 = 0; c0 < cols; c0 += SIDE) {
		const int64_t nc = dt_min64(SIDE, cols - c0);

		for (int64_t r = 0; r < nr; r++) {
			dt_prefetch(dt_at(x, (r0 + r) * cols + c0 + SIDE), SIDE * dt_dtype_size(x.dtype));
			narrow_to_fp8(tile[r], t, x, (r0 + r) * cols + c0, nc, inverse);
			if (y.data)
				memcpy(dt_at(y, (r0 + r) * cols + c0), tile[r], (size_t)nc);
		}
		for (int64_t c = 0; yt.data && c < nc; c++) {
			uint8_t *to = dt_at(yt, (c0 + c) * rows + r0);

			for (int64_t r = 0; r < nr; r++)
				to[r] = tile[r][c];
		}
	}
}

int dt_cpu_fp8_quantize(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor yt, float *scale,
			struct dt_tensor x)
{
	const int64_t rows = dt_rows(x), n = dt_numel(x);
	const enum dt_dtype t = y.data ? y.dtype : yt.dtype;
	float inverse;

	*scale = dt_fp8_scale(amax_of(dev, x), t);
	inverse = 1 / *scale;
	if (!yt.data) {
#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
		for (int64_t i = 0; i < n; i += DT_CHUNK)
			narrow_to_fp8(dt_at(y, i), t, x, i, dt_min64(DT_CHUNK, n - i), inverse);
		return 0;
	}
#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t r = 0; r < rows; r += SIDE)
		narrow_rows(y, yt, x, r, inverse);
	return 0;
}

/* n elements of x from i on times s, in y's type: exact, but for NaN. */
static DT_SIMD void widen_chunk(struct dt_tensor y, struct dt_tensor x, float s, int64_t i, int64_t n)
{
	float buf[DT_CHUNK], *out = dt_stage(buf, dt_at(y, i), y.dtype);
	const uint8_t *in = dt_at(x, i);

	if (x.dtype == DT_E4M3) {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			out[j] = dt_e4m3_to_f32(in[j]) * s;
	} else {
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			out[j] = dt_e5m2_to_f32(in[j]) * s;
	}
	dt_store(dt_at(y, i), y.dtype, out, n);
}

static void widen(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, float s)
{
	const int64_t total = dt_numel(x);

#pragma omp parallel for num_threads(dev->nthreads) if (total > DT_SERIAL)
	for (int64_t i = 0; i < total; i += DT_CHUNK)
		widen_chunk(y, x, s, i, dt_min64(DT_CHUNK, total - i));
}

int dt_cpu_fp8_matmul(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, const float *sa,
		      struct dt_tensor b, const float *sb, struct dt_tensor bias, bool accumulate)
{
	const int64_t m = dt_rows(a), k = dt_cols(a), n = dt_rows(b);
	/* bf16 holds the operands exactly, but its product takes no other bias and gives no f16. */
	const bool half = c.dtype == DT_F16, wide = half || (bias.data && bias.dtype == DT_F32);
	const size_t each = wide ? 4 : 2, na = ((size_t)(m * k) * each + 63) / 64 * 64,
		     nb = ((size_t)(n * k) * each + 63) / 64 * 64;
	struct dt_tensor out = c, add = bias;
	char *room;
	int rc = 0;

	room = dt_cpu_scratch(dev, na + nb + (half ? (size_t)(m * n + n) * 4 : 0));
	if (!room)
		return -ENOMEM;
	struct dt_tensor wa = dt_t2(room, wide ? DT_F32 : DT_BF16, m, k),
			 wb = dt_t2(room + na, wide ? DT_F32 : DT_BF16, n, k);

	widen(dev, wa, a, *sa);
	widen(dev, wb, b, *sb);
	if (half) {
		out = dt_t2(room + na + nb, DT_F32, m, n);
		rc = accumulate ? dt_cpu_convert(dev, out, c) : 0;
		if (rc == 0 && bias.data) {
			add = dt_t1((float *)out.data + m * n, DT_F32, n);
			rc = dt_cpu_convert(dev, add, bias);
		}
	}
	rc = rc < 0 ? rc : dt_cpu_matmul(dev, out, wa, false, wb, true, add, accumulate);
	return rc == 0 && half ? dt_cpu_convert(dev, c, out) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
