/*
 * Integer products of quant.h's panels. Compiled once for each instruction set, with QUANT_NAME the function,
 * QUANT_LANES 16 (AVX-512 VNNI), 8 (AVX2, and AVX-VNNI where QUANT_VNNI is set) or 4 (NEON, and its products
 * of four bytes where the compiler may use them).
 *
 * A tile of ROWS rows of x by VECS vectors of outputs stays in registers: two panels with 16 lanes, one with
 * 8 or 4. All sums within a block are exact, and the f32 steps are quant.h's (the contract), so all of these
 * and quant_plain.c agree bit for bit.
 */
#include "kernels/cpu/quant_lanes.h"

#if QUANT_LANES == 16
#define ROWS 6
#define VECS 2
#elif QUANT_LANES == 8
#define ROWS 4
#define VECS 2
#else
#define ROWS 4
#define VECS 4
#endif

/* Weights to be asked for while others are multiplied: `step` bytes a block from `at` on. */
struct ahead {
	const uint8_t *at;
	int64_t step;
};

/*
 * AVX2 multiplies bytes and adds them by pairs in 16 bits. NARROW: sums stay in 16 bits for RUN pairs of chunks,
 * each of which adds at most 4 x 127 times the largest weight: 15, 24 (MXFP4), 31 or 63. Of Q8_0 none stays.
 */
#if QUANT_LANES == 8 && !defined(QUANT_VNNI)
#define NARROW(f) ((f) != DT_FMT_Q8_0)
#else
#define NARROW(f) false
#endif
#define RUN(f) ((f) == DT_FMT_MXFP4 || (f) == DT_FMT_Q5_K ? 2 : (f) == DT_FMT_Q6_K ? 1 : 4)

/* acc += neighbours of narrow sums. */
DT_INLINE vi widen(vi acc, vi run)
{
#if QUANT_LANES == 8
	return _mm256_add_epi32(acc, _mm256_madd_epi16(run, _mm256_set1_epi16(1)));
#else
	(void)run;
	return acc;
#endif
}

/* acc += w . x by fours, narrow sums by twos; w unsigned, x signed. */
DT_INLINE vi dot(vi acc, vi w, vi x, const enum dt_format f)
{
#if QUANT_LANES == 16
	return _mm512_dpbusd_epi32(acc, w, x);
#elif defined(QUANT_VNNI)
	return _mm256_dpbusd_avx_epi32(acc, w, x);
#elif QUANT_LANES == 4
	const int8x16_t bytes = vreinterpretq_s8_s32(w);

	return neon_dot(acc, f == DT_FMT_Q8_0 ? veorq_s8(bytes, vdupq_n_s8(-128)) : bytes,
			vreinterpretq_s8_s32(x));
#else
	if (f == DT_FMT_Q8_0) { /* for w - 128: 128 x 127 x 2 stays within 16 bits, 255 x 127 x 2 does not */
		w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
		acc = widen(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)));
	} else {
		acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x));
	}
	__asm__("" : "+x"(acc)); /* else gcc keeps the products in memory, to add them at the end */
	return acc;
#endif
}

DT_INLINE vi start(const enum dt_format f, const struct dt_xblock *x, const int half)
{
#if QUANT_LANES < 16 && !defined(QUANT_VNNI)
	if (f == DT_FMT_Q8_0) /* dot takes the offset off by itself */
		return V(set1_epi32)(0);
#endif
	return V(set1_epi32)(offset_sum(f, x, half));
}

/*
 * sum += scale x's scale times acc, and minimum times x's sum where the format has minima and min is
 * given.
 */
DT_INLINE void add_up(vf sum[VECS], const vi acc[VECS], vf (*scale)[2], const int half, const vf *min,
		      const struct dt_xblock *x, const int vecs)
{
	DT_FOR (VECS, int v = 0; v < vecs; v++) {
		const vf s = V(mul_ps)(scale[v][half], V(set1_ps)(x->scale));

		sum[v] = V(fmadd_ps)(s, V(cvtepi32_ps)(acc[v]), sum[v]);
		if (min)
			sum[v] = V(fmadd_ps)(min[v], V(set1_ps)(x->sum), sum[v]);
	}
}

/* rows and vecs are constants where this is inlined. x is rows of 32 blocks bytes, xb of blocks. */
DT_INLINE void block(float *tile, int64_t ld, const enum dt_format f, const struct column *c,
		     struct ahead *next, const int8_t *x, const struct dt_xblock *xb, int64_t blocks,
		     const int rows, const int vecs)
{
	const int quants = f == DT_FMT_Q8_0 ? 512 : f == DT_FMT_Q6_K ? 384 : f == DT_FMT_Q5_K ? 320 : 256;
	const int run = RUN(f);
	const bool narrow = NARROW(f), two = f == DT_FMT_Q6_K, minima = f == DT_FMT_Q4_1 || dt_is_k_min(f);
	vf sum[ROWS][VECS];

	DT_FOR (8, int r = 0; r < rows; r++)
		DT_FOR (VECS, int v = 0; v < vecs; v++)
			sum[r][v] = V(setzero_ps)();
	for (int64_t b = 0; b < blocks; b++) {
		vf scale[VECS][2], min[VECS];
		vi acc[ROWS][VECS], part[ROWS][VECS];

		/* The processor's own prefetching does not cross panels, and stops where rows repeat them. */
		for (int64_t i = 0; i < next->step; i += 64)
			dt_prefetch_ahead(next->at + i);
		next->at += next->step;
		DT_FOR (VECS, int v = 0; v < vecs; v++)
			scales(scale[v], &min[v], f, &c[v], b);
		DT_FOR (4, int i = 0; i < 4; i++) { /* pairs of chunks; a half is two */
			vi w[VECS][2];

			DT_FOR (VECS, int v = 0; v < vecs; v++)
				unpack(w[v], f, c[v].quants + b * quants, i);
			DT_FOR (8, int r = 0; r < rows; r++)
				DT_FOR (VECS, int v = 0; v < vecs; v++) {
					if (i == 0 || (two && i == 2))
						acc[r][v] = start(f, &xb[r * blocks + b], i / 2);
					if (narrow && i % run == 0)
						part[r][v] = V(set1_epi32)(0);
				}
			DT_FOR (2, int e = 0; e < 2; e++)
				DT_FOR (8, int r = 0; r < rows; r++) {
					int32_t word;

					memcpy(&word, x + (r * blocks + b) * 32 + 8 * i + 4 * e, 4);
					DT_FOR (VECS, int v = 0; v < vecs; v++) {
						vi *to = narrow ? &part[r][v] : &acc[r][v];

						*to = dot(*to, w[v][e], V(set1_epi32)(word), f);
					}
				}
			DT_FOR (8, int r = 0; r < rows; r++) {
				DT_FOR (VECS, int v = 0; v < vecs; v++)
					if (narrow && i % run == run - 1)
						acc[r][v] = widen(acc[r][v], part[r][v]);
				if (i == 3 || (two && i == 1))
					add_up(sum[r], acc[r], scale, i / 2, minima ? min : NULL,
					       &xb[r * blocks + b], vecs);
			}
		}
	}
	DT_FOR (8, int r = 0; r < rows; r++)
		DT_FOR (VECS, int v = 0; v < vecs; v++)
			V(storeu_ps)(tile + r * ld + v * QUANT_LANES, sum[r][v]);
}

/* Rows that the next call of block takes: sixes, then fours, which take a remainder of 2 or 3 along. */
DT_INLINE int64_t together(int64_t m)
{
#if ROWS > 2
	if (m >= ROWS && m != 8 && m != 9)
		return ROWS;
	if (m >= 4)
		return 4;
#endif
	return m >= 2 ? 2 : 1;
}

/* next_bytes: of weights that will be wanted after these. Their reading is spread over the blocks. */
DT_INLINE void all_rows(float *tile, int64_t ld, const enum dt_format f, const struct column *c,
			const uint8_t *next_at, size_t next_bytes, const int8_t *x,
			const struct dt_xblock *xb, int64_t m, int64_t blocks, const int vecs)
{
	struct ahead next = {next_at, 0};
	int64_t calls = 0, n;

	for (int64_t r = 0; r < m; r += together(m - r))
		calls++;
	next.step = (int64_t)(next_bytes / 64) / (calls * blocks) * 64 + (next_bytes ? 64 : 0);
	for (int64_t r = 0; r < m; r += n) {
		float *to = tile + r * ld;
		const int8_t *row = x + r * blocks * 32;
		const struct dt_xblock *rb = xb + r * blocks;

		n = together(m - r);
#if ROWS > 2
		if (n == ROWS)
			block(to, ld, f, c, &next, row, rb, blocks, ROWS, vecs);
		else if (n == 4)
			block(to, ld, f, c, &next, row, rb, blocks, 4, vecs);
		else
#endif
			if (n == 2)
			block(to, ld, f, c, &next, row, rb, blocks, 2, vecs);
		else
			block(to, ld, f, c, &next, row, rb, blocks, 1, vecs);
	}
}

DT_INLINE void panels_of(float *tile, int64_t ld, const enum dt_format f, const uint8_t *w,
			 size_t panel_bytes, int64_t panels, const uint8_t *next, const int8_t *x,
			 const struct dt_xblock *xb, int64_t m, int64_t blocks)
{
	struct column c[VECS];
	int64_t p = 0;

#if QUANT_LANES == 16
	for (; p + 2 <= panels; p += 2) {
		const uint8_t *then = p + 2 < panels ? w + (size_t)(p + 2) * panel_bytes : next;

		c[0] = column(f, w + (size_t)p * panel_bytes, blocks, 0);
		c[1] = column(f, w + (size_t)(p + 1) * panel_bytes, blocks, 0);
		all_rows(tile + p * DT_PANEL, ld, f, c, then, then ? 2 * panel_bytes : 0, x, xb, m, blocks,
			 2);
	}
	for (; p < panels; p++) {
		c[0] = column(f, w + (size_t)p * panel_bytes, blocks, 0);
		all_rows(tile + p * DT_PANEL, ld, f, c, next, next ? panel_bytes : 0, x, xb, m, blocks, 1);
	}
#else
	for (; p < panels; p++) {
		const uint8_t *then = p + 1 < panels ? w + (size_t)(p + 1) * panel_bytes : next;

		DT_FOR (VECS, int v = 0; v < VECS; v++)
			c[v] = column(f, w + (size_t)p * panel_bytes, blocks, v * QUANT_LANES);
		all_rows(tile + p * DT_PANEL, ld, f, c, then, then ? panel_bytes : 0, x, xb, m, blocks, VECS);
	}
#endif
}

DT_QUANT_MUL(QUANT_NAME)
{
	QUANT_BY_FORMAT(panels_of, tile, ld, f, w, panel_bytes, panels, next, xq, xb, m, blocks);
}

#if QUANT_LANES == 16
DT_INLINE __m512 load_16(const void *x, enum dt_dtype type, int64_t i)
{
	if (type == DT_F32)
		return _mm512_loadu_ps((const float *)x + i);
	if (type == DT_F16)
		return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)((const uint16_t *)x + i)));
	return _mm512_castsi512_ps(_mm512_slli_epi32(
		_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)((const uint16_t *)x + i))), 16));
}

DT_INLINE __m512i larger_bits(const void *x, enum dt_dtype type, int64_t i)
{
	const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
	const __m512 v0 = load_16(x, type, i), v1 = load_16(x, type, i + 16);

	return _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
				_mm512_and_si512(_mm512_castps_si512(v1), magnitude));
}

/* The largest of each of four blocks, in each quarter of the result that of a quarter of their elements. */
DT_INLINE __m512i largest_4(const void *x, enum dt_dtype type, int64_t i)
{
	const __m512i a = larger_bits(x, type, i), b = larger_bits(x, type, i + DT_QK),
		      c = larger_bits(x, type, i + 2 * DT_QK), d = larger_bits(x, type, i + 3 * DT_QK);
	const __m512i ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
	const __m512i cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));

	return _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Of each of sixteen blocks, as bits. */
DT_INLINE __m512i largest_16(const void *x, enum dt_dtype type, int64_t i)
{
	__m512i q[4], t[2];

	DT_FOR (4, int k = 0; k < 4; k++)
		q[k] = largest_4(x, type, i + 4 * k * DT_QK);
	DT_FOR (2, int k = 0; k < 2; k++)
		t[k] = _mm512_max_epu32(_mm512_shuffle_i32x4(q[2 * k], q[2 * k + 1], 0x88),
					_mm512_shuffle_i32x4(q[2 * k], q[2 * k + 1], 0xdd));
	return _mm512_max_epu32(_mm512_shuffle_i32x4(t[0], t[1], 0x88),
				_mm512_shuffle_i32x4(t[0], t[1], 0xdd));
}

/* A block rounded, where it is kept; its sums by fours, those of its first half in the lower half. */
DT_INLINE __m256i round_block(int8_t *q, const void *x, enum dt_dtype type, int64_t i, bool keep,
			      float inverse)
{
	const __mmask16 k = keep ? 0xffff : 0;
	const __m512 by = _mm512_set1_ps(inverse);
	const __m128i lo =
		_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_maskz_mul_ps(k, load_16(x, type, i), by)));
	const __m128i hi = _mm512_cvtepi32_epi8(
		_mm512_cvtps_epi32(_mm512_maskz_mul_ps(k, load_16(x, type, i + 16), by)));
	const __m256i both = _mm256_set_m128i(hi, lo);

	_mm256_storeu_si256((__m256i *)q, both);
	return _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), both);
}

/* Sums of each half of sixteen blocks: half[0] and half[1], in the blocks' order. */
DT_INLINE void add_halves(int32_t half[2][16], const __m256i *fours)
{
	DT_FOR (2, int k = 0; k < 2; k++) {
		_Alignas(64) int32_t part[16];
		__m512i v[4], t[2], sum;

		DT_FOR (4, int i = 0; i < 4; i++)
			v[i] = _mm512_inserti64x4(_mm512_castsi256_si512(fours[8 * k + 2 * i]),
						  fours[8 * k + 2 * i + 1], 1);
		t[0] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
		t[1] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
		sum = _mm512_add_epi32(_mm512_unpacklo_epi64(t[0], t[1]), _mm512_unpackhi_epi64(t[0], t[1]));
		/* Quarters: first and second halves of even blocks, then of odd ones. */
		_mm512_store_si512(part, sum);
		for (int i = 0; i < 4; i++) {
			half[0][8 * k + 2 * i] = part[i];
			half[1][8 * k + 2 * i] = part[4 + i];
			half[0][8 * k + 2 * i + 1] = part[8 + i];
			half[1][8 * k + 2 * i + 1] = part[12 + i];
		}
	}
}

DT_INLINE void describe(struct dt_xblock *xb, float scale, int32_t first, int32_t second)
{
	xb->scale = scale;
	xb->sum = scale * (float)(first + second);
	xb->start8 = -128 * (first + second);
	xb->start4 = -8 * (first + second);
	xb->start6[0] = -32 * first;
	xb->start6[1] = -32 * second;
}

DT_INLINE void row_16(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t i)
{
	const __m512 most = _mm512_set1_ps(127.f);
	const __m512i bits = largest_16(x, type, i);
	const __m512 largest = _mm512_castsi512_ps(bits);
	const __mmask16 zero = _mm512_cmplt_epu32_mask(bits, _mm512_set1_epi32(DT_X_ZERO));
	const __mmask16 bad = _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(0x7f800000));
	const unsigned keep = ~(unsigned)(zero | bad);
	_Alignas(64) float inverse[16], scale[16];
	int32_t half[2][16];
	__m256i fours[16];

	_mm512_store_ps(inverse, _mm512_div_ps(most, largest));
	_mm512_store_ps(scale, _mm512_mask_mov_ps(_mm512_maskz_div_ps((__mmask16)~zero, largest, most), bad,
						  _mm512_set1_ps(__builtin_nanf(""))));
	for (int b = 0; b < 16; b++)
		fours[b] = round_block(q + b * DT_QK, x, type, i + b * DT_QK, keep >> b & 1, inverse[b]);
	add_halves(half, fours);
	for (int b = 0; b < 16; b++)
		describe(&xb[b], scale[b], half[0][b], half[1][b]);
}

DT_INLINE void row_1(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t i)
{
	const uint32_t max = _mm512_reduce_max_epu32(larger_bits(x, type, i));
	const bool zero = max < DT_X_ZERO, bad = max >= 0x7f800000u;
	float largest;
	__m256i sums;

	memcpy(&largest, &max, 4);
	sums = round_block(q, x, type, i, !zero && !bad, 127.f / largest);
	sums = _mm256_hadd_epi32(sums, sums);
	sums = _mm256_hadd_epi32(sums, sums);
	describe(xb,
		 zero  ? 0
		 : bad ? __builtin_nanf("")
		       : largest / 127.f,
		 _mm_cvtsi128_si32(_mm256_castsi256_si128(sums)),
		 _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)));
}

DT_INLINE void row_of(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t blocks)
{
	int64_t b = 0;

	for (; b + 16 <= blocks; b += 16)
		row_16(q + b * DT_QK, xb + b, x, type, b * DT_QK);
	for (; b < blocks; b++)
		row_1(q + b * DT_QK, xb + b, x, type, b * DT_QK);
}

/* The same as quant.c's, step by step; sixteen blocks at a time. */
DT_QUANT_ROW(dt_quant_row_vnni)
{
	if (type == DT_BF16)
		row_of(q, xb, x, DT_BF16, blocks);
	else if (type == DT_F16)
		row_of(q, xb, x, DT_F16, blocks);
	else
		row_of(q, xb, x, DT_F32, blocks);
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
