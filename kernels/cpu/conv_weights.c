/*
 * Weights of oneDNN's convolutions, from and to our layout [out][channels][window], in the blocked layouts of
 * its kernels for AVX-512; its own reorders of these take three times as long. Words are transposed sixteen
 * rows at a time (tile.h). n is a block of outputs, w = kernel * kernel the places of a window.
 */
#include "kernels/cpu/conv_weights.h"
#include "kernels/cpu/tile.h"

enum { ROWS = 16, WORDS = 64 };

enum dt_conv_layout dt_conv_layout_of(const dnnl_memory_desc_t *md, bool gradient)
{
	const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
	const int64_t out = md->dims[0], channels = md->dims[1], w = md->dims[2] * md->dims[3];

	if (md->format_kind != dnnl_blocked || b->inner_nblks != 2 || w > WORDS || w % 2 == 0 ||
	    b->strides[2] != b->strides[3] * md->dims[3])
		return DT_CONV_OTHER;
	if (!gradient && md->data_type == dnnl_bf16 && b->inner_idxs[0] == 0 && b->inner_idxs[1] == 1 &&
	    b->inner_blks[0] % ROWS == 0 && b->inner_blks[1] == 2 && channels % 2 == 0 &&
	    b->strides[1] == b->inner_blks[0] * 2 && md->padded_dims[1] == channels)
		return DT_CONV_PAIRS;
	if (gradient && md->data_type == dnnl_f32 && b->inner_idxs[0] == 1 && b->inner_idxs[1] == 0 &&
	    b->inner_blks[0] == ROWS && b->inner_blks[1] == ROWS && out % ROWS == 0 && channels % ROWS == 0)
		return DT_CONV_SQUARES;
	return DT_CONV_OTHER;
}

/* Words [0, n) of 16 rows, ldf words apart, transposed: to[w * DT_TILE + row]. rows: those that exist. */
DT_INLINE void turn_rows(uint32_t *to, const uint32_t *from, int64_t ldf, int64_t n, int64_t rows)
{
	_Alignas(64) uint32_t part[ROWS * WORDS];

	for (int64_t r = 0; r < ROWS; r++) {
		const uint32_t *row = from + r * ldf;

		if (r >= rows)
			memset(part + r * WORDS, 0, (size_t)n * 4);
		else if (n == WORDS)
			memcpy(part + r * WORDS, row, WORDS * 4);
		else
			memcpy(part + r * WORDS, row, (size_t)n * 4);
	}
	dt_tile(DT_F32)->turn(to, part, n);
}

/*
 * Element e of sixteen rows and element e + w, which is the same place of the next channel, as pairs. Word i
 * of a row has the elements 2 i and 2 i + 1. w is odd.
 */
DT_INLINE void pair_up(uint32_t *to, const uint32_t *words, int64_t e, int64_t w)
{
	const uint32_t *a = words + e / 2 * DT_TILE, *b = words + (e + w) / 2 * DT_TILE;

	if (e % 2)
#pragma omp simd
		for (int i = 0; i < ROWS; i++)
			to[i] = a[i] >> 16 | b[i] << 16;
	else
#pragma omp simd
		for (int i = 0; i < ROWS; i++)
			to[i] = (a[i] & 0xffff) | (b[i] & 0xffff0000u);
}

/* Pairs [0, n) of the channels of 16 rows. ldt: words from one pair to the next; step: from one place. */
static DT_SIMD void pack_pairs(uint32_t *to, int64_t ldt, int64_t step, const uint32_t *from, int64_t ldf,
			       int64_t n, int64_t w, int64_t rows)
{
	_Alignas(64) uint32_t words[WORDS * DT_TILE];

	turn_rows(words, from, ldf, n * w, rows);
	for (int64_t k = 0; k < w; k++)
		for (int64_t i = 0; i < n; i++)
			if (w == 1)
				memcpy(to + i * ldt, words + i * DT_TILE, ROWS * 4);
			else
				pair_up(to + k * step + i * ldt, words, 2 * i * w + k, w);
}

void dt_conv_pack(int threads, void *to, const void *from, const dnnl_memory_desc_t *md)
{
	const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
	const int64_t out = md->dims[0], pairs = md->dims[1] / 2, w = md->dims[2] * md->dims[3],
		      n = b->inner_blks[0], each = WORDS / w;

	/* a block of outputs at a time, so that lines of it that are neighbours are written together */
#pragma omp parallel for collapse(2) num_threads(threads) if (out * pairs * w > DT_SERIAL)
	for (int64_t o = 0; o < out; o += n)
		for (int64_t i = 0; i < pairs; i += each)
			for (int64_t r = o; r < o + n; r += ROWS) {
				const uint32_t *at = (const uint32_t *)from + (r * pairs + i) * w;

				for (int64_t j = r; j < dt_min64(r + ROWS, out) && i + 2 * each <= pairs; j++)
					dt_prefetch((const char *)(at + ((j - r) * pairs + each) * w),
						    each * w * 4);
				pack_pairs((uint32_t *)to + o / n * b->strides[0] / 2 + i * n + r - o, n,
					   b->strides[3] / 2, at, pairs * w, dt_min64(each, pairs - i), w,
					   out - r);
			}
}

/* n elements, a multiple of ROWS, of sixteen rows, from words[16][DT_TILE]. */
DT_INLINE void put_rows(float *to, int64_t ldt, const float *words, int64_t n, bool add)
{
	for (int64_t r = 0; r < ROWS; r++)
		for (int64_t i = 0; i < n; i += ROWS)
			if (!add)
				memcpy(to + r * ldt + i, words + r * DT_TILE + i, ROWS * 4);
			else
#pragma omp simd
				for (int64_t j = i; j < i + ROWS; j++)
					to[r * ldt + j] += words[r * DT_TILE + j];
}

/* Sixteen rows: element c * w + k of each is in the vector of channel c and place k. */
static DT_SIMD void unpack_rows(float *to, const float *from, const dnnl_memory_desc_t *md, bool add)
{
	const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
	const int64_t w = md->dims[2] * md->dims[3], n = md->dims[1] * w;
	_Alignas(64) float part[ROWS * WORDS], words[ROWS * DT_TILE];
	int64_t c = 0, k = 0;

	for (int64_t first = 0; first < n; first += WORDS) {
		const int64_t here = dt_min64(WORDS, n - first);

		for (int64_t g = 0; g < here; g += ROWS) {
			for (int64_t i = 0; i < ROWS; i++) {
				memcpy(part + i * WORDS,
				       from + c / ROWS * b->strides[1] + k * b->strides[3] + c % ROWS * ROWS,
				       ROWS * 4);
				c += k + 1 == w;
				k = k + 1 == w ? 0 : k + 1;
			}
			dt_tile(DT_F32)->turn((uint32_t *)words + g, (const uint32_t *)part, ROWS);
		}
		put_rows(to + first, n, words, here, add);
	}
}

void dt_conv_unpack(int threads, float *to, const float *from, const dnnl_memory_desc_t *md, bool add)
{
	const int64_t out = md->dims[0], n = md->dims[1] * md->dims[2] * md->dims[3];

#pragma omp parallel for num_threads(threads) if (out * n > DT_SERIAL)
	for (int64_t r = 0; r < out; r += ROWS)
		unpack_rows(to + r * n, from + r / ROWS * md->format_desc.blocking.strides[0], md, add);
}
/* SPDX-License-Identifier: Apache-2.0 */
