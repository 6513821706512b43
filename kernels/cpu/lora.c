/*
 * Two passes in one parallel region: h of tiles of up to four rows, then y. What is loaded and widened of a
 * or b is used by all rows of a tile. Where few adapters have the rows, threads have columns of y as in the
 * product in front; otherwise rows, so that each reads whole rows of b. Each element is one chain of sums.
 */
#include "kernels/cpu/cpu.h"

enum {
	L = 8,	      /* lanes of a vector */
	TILE = 4,     /* rows */
	RANKS = 16,   /* rows of a that a thread takes at a time */
	DEPTH = 1024, /* columns of x that are widened at a time */
	COLS = 1024,  /* columns of y likewise, at most */
	LINE = 32     /* columns that threads share no cache line of */
};

typedef float vec __attribute__((vector_size(L * 4), aligned(4)));
typedef uint32_t words __attribute__((vector_size(L * 4), aligned(4)));
typedef uint16_t halves __attribute__((vector_size(L * 2), aligned(2)));

DT_INLINE float weight_at(const void *p, int64_t i, enum dt_dtype t)
{
	return t == DT_F32 ? ((const float *)p)[i] : dt_bf16_to_f32(((const uint16_t *)p)[i]);
}

/* Vectors go by address: one as an argument or a result would be another ABI on processors without them. */
DT_INLINE void weights_at(vec *ret, const void *p, int64_t i, enum dt_dtype t)
{
	*ret = t == DT_F32 ? *(const vec *)((const float *)p + i)
			   : (vec)(__builtin_convertvector(*(const halves *)((const uint16_t *)p + i), words)
				   << 16);
}

DT_INLINE float sum_of(const vec *p)
{
	const vec v = *p;

	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* h[row][i] += the sum of n elements of x[row] times those at a + i k. rows, count and t are constants. */
DT_INLINE void dots(float h[TILE][RANKS], int64_t at, const float *const x[TILE], const void *a, int64_t from,
		    int64_t k, int64_t n, const int rows, const int count, enum dt_dtype t)
{
	vec sum[TILE][TILE];

	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (4, int i = 0; i < count; i++)
			sum[r][i] = (vec){0};
	for (int64_t j = 0; j < n / L * L; j += L)
		DT_FOR (4, int i = 0; i < count; i++) {
			vec w;

			weights_at(&w, a, from + i * k + j, t);
			DT_FOR (4, int r = 0; r < rows; r++)
				sum[r][i] += *(const vec *)(x[r] + j) * w;
		}
	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (4, int i = 0; i < count; i++)
			h[r][at + i] += sum_of(&sum[r][i]);
	for (int64_t j = n / L * L; j < n; j++)
		for (int r = 0; r < rows; r++)
			for (int i = 0; i < count; i++)
				h[r][at + i] += x[r][j] * weight_at(a, from + i * k + j, t);
}

/* Of count rows of a: eight sums in registers at a time, or fewer. */
DT_INLINE void dots_of(float h[TILE][RANKS], const float *const x[TILE], const void *a, int64_t from,
		       int64_t k, int64_t n, int64_t count, const int rows, enum dt_dtype t)
{
	const int step = rows > 2 ? 2 : 4;
	int64_t i = 0;

	for (; i + step <= count; i += step)
		dots(h, i, x, a, from + i * k, k, n, rows, step, t);
	for (; i < count; i++)
		dots(h, i, x, a, from + i * k, k, n, rows, 1, t);
}

/* call(..., ROWS, TYPE) with constants for rows and t. */
#define OF_ROWS(rows, t, call, ...)                                                                          \
	((rows) == 4   ? OF_TYPE(t, call, __VA_ARGS__, 4)                                                    \
	 : (rows) == 3 ? OF_TYPE(t, call, __VA_ARGS__, 3)                                                    \
	 : (rows) == 2 ? OF_TYPE(t, call, __VA_ARGS__, 2)                                                    \
		       : OF_TYPE(t, call, __VA_ARGS__, 1))
#define OF_TYPE(t, call, ...) ((t) == DT_F32 ? call(__VA_ARGS__, DT_F32) : call(__VA_ARGS__, DT_BF16))

/* h of rows `row` on and of count rows of a from `from` on; each row of h is ldh from the last. */
static DT_SIMD void lora_down(float *h, int64_t ldh, struct dt_tensor x, int64_t row, int64_t rows,
			      const struct dt_lora_lane *l, int64_t from, int64_t count, enum dt_dtype t)
{
	const int64_t k = dt_cols(x);
	float wide[TILE][DEPTH], sum[TILE][RANKS] = {{0}};
	const float *p[TILE];

	for (int64_t j = 0; j < k; j += DEPTH) {
		const int64_t n = dt_min64(DEPTH, k - j);

		for (int64_t r = 0; r < rows; r++)
			p[r] = dt_load(wide[r], dt_at(x, (row + r) * k + j), x.dtype, n);
		OF_ROWS(rows, t, dots_of, sum, p, l->a, from * k + j, k, n, count);
	}
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < count; i++)
			h[r * ldh + from + i] = sum[r][i] * l->scale;
}

/* y[row] += h[row] b of count rows of b, cols apart, n columns. rows, count and t are constants. */
DT_INLINE void sums(float *const y[TILE], const float *h, int64_t ldh, const void *b, int64_t from,
		    int64_t cols, int64_t n, const int rows, const int count, enum dt_dtype t)
{
	float f[TILE][TILE];

	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (4, int i = 0; i < count; i++)
			f[r][i] = h[r * ldh + i];
	for (int64_t j = 0; j < n / L * L; j += L) {
		vec w[TILE];

		DT_FOR (4, int i = 0; i < count; i++)
			weights_at(&w[i], b, from + i * cols + j, t);
		DT_FOR (4, int r = 0; r < rows; r++) {
			vec sum = *(const vec *)(y[r] + j);

			DT_FOR (4, int i = 0; i < count; i++)
				sum += f[r][i] * w[i];
			*(vec *)(y[r] + j) = sum;
		}
	}
	for (int64_t j = n / L * L; j < n; j++)
		for (int r = 0; r < rows; r++)
			for (int i = 0; i < count; i++)
				y[r][j] += f[r][i] * weight_at(b, from + i * cols + j, t);
}

/* Of all rows of b. */
DT_INLINE void sums_of(float *const y[TILE], const float *h, int64_t ldh, const void *b, int64_t from,
		       int64_t cols, int64_t n, int64_t rank, const int rows, enum dt_dtype t)
{
	const int step = rows > 2 ? 2 : 4;
	int64_t i = 0;

	for (; i + step <= rank; i += step)
		sums(y, h + i, ldh, b, from + i * cols, cols, n, rows, step, t);
	for (; i < rank; i++)
		sums(y, h + i, ldh, b, from + i * cols, cols, n, rows, 1, t);
}

/* n columns of those rows of y, from column c of the lane on. */
static DT_SIMD void lora_up(struct dt_tensor y, const float *h, int64_t ldh, int64_t row, int64_t rows,
			    const struct dt_lora_lane *l, int64_t c, int64_t n, enum dt_dtype t)
{
	float wide[TILE][COLS], *p[TILE];

	for (int64_t r = 0; r < rows; r++) {
		char *at = dt_at(y, (row + r) * dt_cols(y) + l->at + c);

		dt_load(wide[r], at, y.dtype, n);
		p[r] = dt_stage(wide[r], at, y.dtype);
	}
	OF_ROWS(rows, t, sums_of, p, h, ldh, l->b, c, l->cols, n, l->rank);
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t j = 0; l->gain && j < n; j++)
			p[r][j] = l->gain[c + j] * p[r][j] + (l->shift ? l->shift[c + j] : 0);
		dt_store(dt_at(y, (row + r) * dt_cols(y) + l->at + c), y.dtype, p[r], n);
	}
}

/* Where the h of lane i of a part begins in a row of the room. */
static int64_t room_at(const struct dt_lora_part *p, int i)
{
	int64_t at = 0;

	for (int k = 0; k < i; k++)
		at += p->lane[k].a ? p->lane[k].rank : 0;
	return at;
}

/* Tile i of all parts together: its part, and which of y's rows it has. */
static const struct dt_lora_part *tile_of(const struct dt_lora_batch *p, int64_t i, int64_t *row,
					  int64_t *rows)
{
	int64_t k = 0, tiles;

	while (i >= (tiles = dt_ceil_div(p->part[k].n, TILE))) {
		i -= tiles;
		k++;
	}
	*row = p->part[k].first + i * TILE;
	*rows = dt_min64(TILE, p->part[k].n - i * TILE);
	return &p->part[k];
}

/* Of a tile and a lane the rows of a from `from` on, RANKS of them at most. */
static void tile_down(float *h, struct dt_tensor x, const struct dt_lora_batch *p, int64_t tile, int lane,
		      int64_t from)
{
	int64_t row, rows;
	const struct dt_lora_part *part = tile_of(p, tile, &row, &rows);
	const struct dt_lora_lane *l = &part->lane[lane];

	if (l->a && from < l->rank)
		lora_down(h + row * p->rank + room_at(part, lane), p->rank, x, row, rows, l, from,
			  dt_min64(RANKS, l->rank - from), p->type);
}

/* Of a tile n columns of y from c on, in whichever lanes. */
static void tile_up(struct dt_tensor y, const float *h, const struct dt_lora_batch *p, int64_t tile,
		    int64_t c, int64_t n)
{
	int64_t row, rows;
	const struct dt_lora_part *part = tile_of(p, tile, &row, &rows);

	for (int i = 0; i < DT_LORA_LANES; i++) {
		const struct dt_lora_lane *l = &part->lane[i];
		const int64_t from = l->at > c ? l->at : c, to = dt_min64(c + n, l->at + l->cols);

		for (int64_t at = from; l->a && at < to; at += COLS)
			lora_up(y, h + row * p->rank + room_at(part, i), p->rank, row, rows, l, at - l->at,
				dt_min64(COLS, to - at), p->type);
	}
}

int dt_cpu_lora_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor room,
		    const struct dt_lora_batch *p)
{
	const int64_t n = dt_cols(y), blocks = dt_ceil_div(p->rank, RANKS);
	int64_t tiles = 0, rows = 0, wide = n, chunks;
	float *h = room.data;

	for (int64_t i = 0; i < p->n; i++) {
		tiles += dt_ceil_div(p->part[i].n, TILE);
		rows += p->part[i].n;
	}
	if (p->n < 2 * dev->nthreads) /* few read the same b, or few have work */
		wide = dt_ceil_div(n, dev->nthreads * LINE) * LINE;
	chunks = dt_ceil_div(n, wide);
#pragma omp parallel num_threads(dev->nthreads) if (rows * (dt_cols(x) + n) > DT_SERIAL)
	{
#pragma omp for schedule(static)
		for (int64_t i = 0; i < tiles * DT_LORA_LANES * blocks; i++)
			tile_down(h, x, p, i / blocks / DT_LORA_LANES, (int)(i / blocks % DT_LORA_LANES),
				  i % blocks * RANKS);
#pragma omp for schedule(static) nowait
		for (int64_t i = 0; i < tiles * chunks; i++)
			tile_up(y, h, p, i % tiles, i / tiles * wide, wide);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
