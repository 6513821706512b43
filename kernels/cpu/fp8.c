/*
 * No CPU here multiplies 8-bit floats: operands are widened exactly and multiplied by oneDNN. This is the
 * reference for a card's products, and lets fp8 training run on CPUs; it is no faster than bf16.
 */
#include "kernels/fp8.h"
#include "kernels/cpu/cpu.h"

/* SIDE: of tiles to transpose; ROWS, COLS: blocks of tiles that stay in L2 */
enum { SIDE = 64, ROWS = 4 * SIDE, COLS = 8 * SIDE };

/* A block of x as fp8 codes, and one column of its tiles, transposed. */
struct block {
	uint8_t codes[ROWS][COLS], turned[SIDE][ROWS];
};
_Static_assert(sizeof(struct block) == DT_FP8_BLOCK, "scratch of fp8_quantize");

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

/* Converts n elements of x from i on, n <= DT_CHUNK. */
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

typedef uint64_t eights __attribute__((vector_size(SIDE)));

/*
 * Transposes eight rows of eight bytes, one row per word: swaps off-diagonal halves, then quarters, then
 * bytes.
 */
DT_INLINE void turn_eights(eights v[8])
{
	static const uint64_t low[] = {0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff};

	DT_FOR (3, int s = 2; s >= 0; s--)
		DT_FOR (8, int i = 0; i < 8; i++)
			if (!(i & 1 << s)) {
				const eights t = (v[i] >> (8 << s) ^ v[i + (1 << s)]) & low[s];

				v[i + (1 << s)] ^= t;
				v[i] ^= t << (8 << s);
			}
}

/* Transposes columns c .. c + SIDE of the codes, `rows` rows, into turned. */
static DT_SIMD void turn_tiles(struct block *b, int64_t rows, int64_t c)
{
	for (int64_t r = 0; r < rows; r += SIDE) {
		eights v[SIDE / 8][8]; /* v[i][j], word g: rows 8 i .. 8 i + 7 of column 8 g + j */

		for (int i = 0; i < SIDE / 8; i++) {
			for (int j = 0; j < 8; j++)
				memcpy(&v[i][j], &b->codes[r + 8 * i + j][c], SIDE);
			turn_eights(v[i]);
		}
		for (int j = 0; j < SIDE; j++)
			for (int i = 0; i < SIDE / 8; i++)
				memcpy(&b->turned[j][r + 8 * i], (uint64_t *)&v[i][j % 8] + j / 8, 8);
	}
}

/*
 * Converts the block of x from (r0, c0) on. Rows of yt are written four lines at a time: shorter pieces reach
 * half the memory bandwidth.
 */
static void narrow_block(struct block *b, struct dt_tensor y, struct dt_tensor yt, struct dt_tensor x,
			 int64_t r0, int64_t c0, float inverse)
{
	const int64_t rows = dt_rows(x), cols = dt_cols(x), nr = dt_min64(ROWS, rows - r0),
		      nc = dt_min64(COLS, cols - c0);

	if (nr % SIDE || nc % SIDE) /* padding of partial tiles is transposed, too */
		memset(b->codes, 0, sizeof b->codes);
	for (int64_t r = 0; r < nr; r++) {
		const int64_t at = (r0 + r) * cols + c0;

		narrow_to_fp8(b->codes[r], yt.dtype, x, at, nc, inverse);
		if (y.data)
			memcpy(dt_at(y, at), b->codes[r], (size_t)nc);
	}
	for (int64_t c = 0; c < nc; c += SIDE) {
		turn_tiles(b, nr, c);
		for (int64_t j = 0; j < dt_min64(SIDE, nc - c); j++)
			memcpy(dt_at(yt, (c0 + c + j) * rows + r0), b->turned[j], (size_t)nr);
	}
}

static int narrow_both(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor yt, struct dt_tensor x,
		       float inverse)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	struct block *room = dt_cpu_scratch(dev, dt_fp8_quantize_scratch(&on, true));

	if (!room)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) collapse(2) if (dt_numel(x) > DT_SERIAL)
	for (int64_t r = 0; r < dt_rows(x); r += ROWS)
		for (int64_t c = 0; c < dt_cols(x); c += COLS)
			narrow_block(room + omp_get_thread_num(), y, yt, x, r, c, inverse);
	return 0;
}

int dt_cpu_fp8_quantize(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor yt, float *scale,
			struct dt_tensor x)
{
	const int64_t n = dt_numel(x);
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
	return narrow_both(dev, y, yt, x, inverse);
}

/* y = x s for n elements from i on: exact, except for NaN. */
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
	const struct dt_product p = {.m = m, .n = n, .k = k, .out = c.dtype, .bias = bias.data != NULL};
	const struct dt_fp8_room of = dt_fp8_room(&p, bias.dtype == DT_F32);
	const bool half = c.dtype == DT_F16;
	const enum dt_dtype type = of.wide ? DT_F32 : DT_BF16;
	struct dt_tensor out = c, add = bias;
	char *room;
	int rc = 0;

	room = dt_cpu_scratch(dev, of.a + of.b + of.c);
	if (!room)
		return -ENOMEM;
	struct dt_tensor wa = dt_t2(room, type, m, k), wb = dt_t2(room + of.a, type, n, k);

	widen(dev, wa, a, *sa);
	widen(dev, wb, b, *sb);
	if (half) {
		out = dt_t2(room + of.a + of.b, DT_F32, m, n);
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
