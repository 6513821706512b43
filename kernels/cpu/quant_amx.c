/*
 * Products of quant.h's panels by tiles (amx.h). Compiled with the instructions and, with AMX_PLAIN, with
 * what stands in for them, for QUANT_LANES 16 (AVX-512) or 8 (AVX2) around them; QUANT_NAME and
 * QUANT_BF16_NAME are the functions.
 *
 * A block of a panel is a tile as it lies there (bf16) or once its integers are signed bytes, which spares
 * each row of x an addition of their offset. Sums within a block of integers are exact and the f32 steps are
 * the contract's (kernels/quant.h), so that quant_mul.c's bits come out. Those of bf16 are their own: amx.h's
 * order within 32 elements, blocks then added in order of k.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/quant_lanes.h"

#define VECS (DT_PANEL / QUANT_LANES) /* vectors of a panel's outputs */
#define HELD 32			      /* blocks of a panel that are bytes at a time */

/* Tiles of integer products: of one block, and of the next, which does not wait for those to be free. */
#define C_EVEN 0
#define C_ODD  1
#define A_EVEN 2
#define A_ODD  3
#define B_EVEN 4
#define B_ODD  5

/* Some blocks of a panel as tiles take them. */
struct stretch {
	vf scale[HELD][2][VECS], min[HELD][VECS];
	_Alignas(64) int8_t bytes[HELD][512]; /* vectors of four elements of each output */
};

DT_INLINE void fill(struct stretch *s, const enum dt_format f, const uint8_t *panel, int64_t blocks,
		    int64_t first, int64_t n)
{
	const struct dt_quant_shape *shape = dt_quant_shape(f);
	const vi offset = V(set1_epi8)((char)shape->offset);

	for (int64_t b = 0; b < n; b++)
		DT_FOR (2, int v = 0; v < VECS; v++) {
			const struct column c = column(f, panel, blocks, v * QUANT_LANES);
			vf scale[2];

			scales(scale, &s->min[b][v], f, &c, first + b);
			s->scale[b][0][v] = scale[0];
			s->scale[b][1][v] = scale[1];
			for (int i = 0; i < 4; i++) {
				int8_t *to = s->bytes[b] + 128 * i + 4 * v * QUANT_LANES;
				vi w[2];

				unpack(w, f, c.quants + (first + b) * shape->quants, i);
				for (int e = 0; e < 2; e++) {
					w[e] = V(sub_epi8)(w[e], offset);
					memcpy(to + 64 * e, &w[e], sizeof w[e]);
				}
			}
		}
}

/* c = the rows of x of a tile times a tile of weights, in one set of tiles or in the other. */
DT_INLINE void product(struct dt_amx_tiles *amx, int32_t (*c)[DT_PANEL], const int8_t *weights,
		       const int8_t *x, int64_t stride, bool odd)
{
	if (odd) {
		tile_zero(amx, C_ODD);
		tile_load(amx, B_ODD, weights, 64);
		tile_load(amx, A_ODD, x, stride);
		tile_dot_ss(amx, C_ODD, A_ODD, B_ODD);
		tile_store(amx, C_ODD, c, 64);
	} else {
		tile_zero(amx, C_EVEN);
		tile_load(amx, B_EVEN, weights, 64);
		tile_load(amx, A_EVEN, x, stride);
		tile_dot_ss(amx, C_EVEN, A_EVEN, B_EVEN);
		tile_store(amx, C_EVEN, c, 64);
	}
}

/* sum += what a row of integer sums means; min: where the format has minima. */
DT_INLINE void add_row(vf *sum, const int32_t *c, const vf *scale, const vf *min, const struct dt_xblock *x)
{
	DT_FOR (2, int v = 0; v < VECS; v++) {
		const vf s = V(mul_ps)(scale[v], V(set1_ps)(x->scale));
		vi acc;

		memcpy(&acc, c + v * QUANT_LANES, sizeof acc);
		sum[v] = V(fmadd_ps)(s, V(cvtepi32_ps)(acc), sum[v]);
		if (min)
			sum[v] = V(fmadd_ps)(min[v], V(set1_ps)(x->sum), sum[v]);
	}
}

/* Weights to be asked for while others are multiplied: step bytes a block. */
struct ahead {
	const uint8_t *at;
	int64_t step;
};

/*
 * rows rows of x times n blocks of a panel, on top of tile unless they are the first. The integers of a block
 * become numbers while those of the next are multiplied.
 */
DT_INLINE void blocks_of(struct dt_amx_tiles *amx, float *tile, int64_t ld, const enum dt_format f,
			 const struct stretch *s, struct ahead *next, const int8_t *x,
			 const struct dt_xblock *xb, int64_t blocks, int64_t n, int64_t rows, bool first,
			 const bool full)
{
	const bool minima = f == DT_FMT_Q4_1 || dt_is_k_min(f);
	const int halves = f == DT_FMT_Q6_K ? 2 : 1, depth = DT_QK / halves;
	const int64_t stride = blocks * DT_QK, m = full ? DT_AMX_ROWS : rows;
	_Alignas(64) int32_t c[2][DT_AMX_ROWS][DT_PANEL];
	vf sum[DT_AMX_ROWS][VECS];

	DT_FOR (16, int64_t r = 0; r < DT_AMX_ROWS; r++)
		DT_FOR (2, int v = 0; v < VECS; v++)
			sum[r][v] = first || r >= m ? V(setzero_ps)()
						    : V(loadu_ps)(tile + r * ld + v * QUANT_LANES);
	product(amx, c[0], s->bytes[0], x, stride, false);
	for (int64_t t = 0; t < n * halves; t++) {
		const int64_t b = t / halves, half = t % halves, then = (t + 1) * depth;
		const struct dt_xblock *at = xb + b;

		for (int64_t i = 0; i < next->step; i += 64)
			dt_prefetch_ahead(next->at + i);
		next->at += next->step;
		if (t + 1 < n * halves)
			product(amx, c[(t + 1) & 1], s->bytes[0] + then * DT_PANEL, x + then, stride,
				(t + 1) & 1);
		DT_FOR (16, int64_t r = 0; r < m; r++) {
			add_row(sum[r], c[t & 1][r], s->scale[b][half], minima ? s->min[b] : NULL, at);
			at += blocks; /* rather than an address computed for each row */
		}
	}
	DT_FOR (16, int64_t r = 0; r < m; r++)
		DT_FOR (2, int v = 0; v < VECS; v++)
			V(storeu_ps)(tile + r * ld + v * QUANT_LANES, sum[r][v]);
}

DT_INLINE void shape(struct dt_amx_config *config, int tile, int64_t rows, int64_t bytes)
{
	config->rows[tile] = (uint8_t)rows;
	config->bytes[tile] = (uint16_t)(rows ? bytes : 0);
}

/* Tiles of rows rows of x, where they are not so already. depth: elements of a block, or of half a block. */
DT_INLINE void configure(struct dt_amx_tiles *amx, int64_t *have, int64_t rows, int64_t depth)
{
	struct dt_amx_config config = {.palette = 1};

	if (rows == *have)
		return;
	*have = rows;
	shape(&config, C_EVEN, rows, 64);
	shape(&config, C_ODD, rows, 64);
	shape(&config, A_EVEN, rows, depth);
	shape(&config, A_ODD, rows, depth);
	shape(&config, B_EVEN, depth / 4, 64);
	shape(&config, B_ODD, depth / 4, 64);
	tile_configure(amx, &config);
}

DT_INLINE void panels_of(float *tile, int64_t ld, const enum dt_format f, const uint8_t *w,
			 size_t panel_bytes, int64_t panels, const uint8_t *next, const int8_t *x,
			 const struct dt_xblock *xb, int64_t m, int64_t blocks)
{
	const int64_t halves = f == DT_FMT_Q6_K ? 2 : 1, depth = DT_QK / halves;
	const int64_t rest = m % DT_AMX_ROWS, tiles = m / DT_AMX_ROWS + (rest > 0);
	struct dt_amx_tiles amx;
	struct stretch s;
	int64_t have = 0;

	for (int64_t p = 0; p < panels; p++, tile += DT_PANEL, w += panel_bytes) {
		struct ahead ahead = {p + 1 < panels ? w + panel_bytes : next, 0};

		if (ahead.at)
			ahead.step = dt_ceil_div((int64_t)panel_bytes, 64 * tiles * blocks * halves) * 64;
		for (int64_t b = 0; b < blocks; b += HELD) {
			const int64_t n = dt_min64(HELD, blocks - b);
			int64_t r = 0;

			fill(&s, f, w, blocks, b, n);
			for (; r + DT_AMX_ROWS <= m; r += DT_AMX_ROWS) {
				configure(&amx, &have, DT_AMX_ROWS, depth);
				blocks_of(&amx, tile + r * ld, ld, f, &s, &ahead,
					  x + (r * blocks + b) * DT_QK, xb + r * blocks + b, blocks, n,
					  DT_AMX_ROWS, b == 0, true);
			}
			if (rest) {
				configure(&amx, &have, rest, depth);
				blocks_of(&amx, tile + r * ld, ld, f, &s, &ahead,
					  x + (r * blocks + b) * DT_QK, xb + r * blocks + b, blocks, n, rest,
					  b == 0, false);
			}
		}
	}
	tile_release(&amx);
}

DT_QUANT_MUL(QUANT_NAME)
{
	QUANT_BY_FORMAT(panels_of, tile, ld, f, w, panel_bytes, panels, next, xq, xb, m, blocks);
}

/* Tiles of bf16 products: C_ij is rows i times panel j. */
#define C_00 0
#define C_01 1
#define C_10 2
#define C_11 3
#define A_0  4
#define A_1  5
#define B_0  6
#define B_1  7

/*
 * The tile's rows of x, of two tiles of rows where tall is set, times one panel, or two where wide is. at: of
 * the weights, which each move by 1 KiB a block, as what is asked for does by `ahead` bytes.
 */
DT_INLINE void block_bf16(struct dt_amx_tiles *amx, float *tile, int64_t ld, const uint8_t *const w[2],
			  const uint8_t *next, int64_t ahead, const uint16_t *x, int64_t blocks,
			  const bool tall, const bool wide)
{
	const int64_t stride = blocks * DT_QK * 2;
	const uint8_t *row = (const uint8_t *)x, *below = row + DT_AMX_ROWS * stride;

	tile_zero(amx, C_00);
	if (wide)
		tile_zero(amx, C_01);
	if (tall)
		tile_zero(amx, C_10);
	if (tall && wide)
		tile_zero(amx, C_11);
	for (int64_t b = 0; b < blocks; b++, next += ahead) {
		for (int64_t i = 0; i < ahead; i += 64)
			dt_prefetch_ahead(next + i);
		tile_load(amx, A_0, row + 64 * b, stride);
		tile_load(amx, B_0, w[0] + 1024 * b, 64);
		tile_dot_bf16(amx, C_00, A_0, B_0);
		if (wide) {
			tile_load(amx, B_1, w[1] + 1024 * b, 64);
			tile_dot_bf16(amx, C_01, A_0, B_1);
		}
		if (tall) {
			tile_load(amx, A_1, below + 64 * b, stride);
			tile_dot_bf16(amx, C_10, A_1, B_0);
		}
		if (tall && wide)
			tile_dot_bf16(amx, C_11, A_1, B_1);
	}
	tile_store(amx, C_00, tile, 4 * ld);
	if (wide)
		tile_store(amx, C_01, tile + DT_PANEL, 4 * ld);
	if (tall)
		tile_store(amx, C_10, tile + DT_AMX_ROWS * ld, 4 * ld);
	if (tall && wide)
		tile_store(amx, C_11, tile + DT_AMX_ROWS * ld + DT_PANEL, 4 * ld);
}

/* All tiles of rows rows. */
static void configure_bf16(struct dt_amx_tiles *amx, int64_t rows)
{
	struct dt_amx_config config = {.palette = 1};

	for (int i = C_00; i <= A_1; i++)
		shape(&config, i, rows, 64);
	shape(&config, B_0, 16, 64);
	shape(&config, B_1, 16, 64);
	tile_configure(amx, &config);
}

/* All rows of x by one panel or two. have: the rows that tiles have. */
DT_INLINE void rows_bf16(struct dt_amx_tiles *amx, int64_t *have, float *tile, int64_t ld,
			 const uint8_t *const w[2], const uint8_t *next, size_t next_bytes, const uint16_t *x,
			 int64_t m, int64_t blocks, const bool wide)
{
	const int64_t calls =
		m / (2 * DT_AMX_ROWS) + (m % (2 * DT_AMX_ROWS) >= DT_AMX_ROWS) + (m % DT_AMX_ROWS > 0);
	const int64_t ahead = dt_ceil_div((int64_t)next_bytes, 64 * calls * blocks) * 64;

	for (int64_t r = 0, n; r < m; r += n, next += blocks * ahead) {
		const int64_t rows = dt_min64(DT_AMX_ROWS, m - r);

		n = m - r >= 2 * DT_AMX_ROWS ? 2 * DT_AMX_ROWS : rows;
		if (rows != *have)
			configure_bf16(amx, *have = rows);
		if (n > DT_AMX_ROWS)
			block_bf16(amx, tile + r * ld, ld, w, next, ahead, x + r * blocks * DT_QK, blocks,
				   true, wide);
		else
			block_bf16(amx, tile + r * ld, ld, w, next, ahead, x + r * blocks * DT_QK, blocks,
				   false, wide);
	}
}

DT_QUANT_MUL(QUANT_BF16_NAME)
{
	struct dt_amx_tiles amx;
	int64_t have = 0;

	for (int64_t p = 0; p < panels; p += 2) {
		const uint8_t *const from[2] = {w + (size_t)p * panel_bytes,
						w + (size_t)(p + 1) * panel_bytes};
		const uint8_t *then = p + 2 < panels ? from[1] + panel_bytes : next;

		if (p + 1 < panels)
			rows_bf16(&amx, &have, tile + p * DT_PANEL, ld, from, then,
				  then ? 2 * panel_bytes : 0, xq, m, blocks, true);
		else
			rows_bf16(&amx, &have, tile + p * DT_PANEL, ld, from, then, then ? panel_bytes : 0,
				  xq, m, blocks, false);
	}
	tile_release(&amx);
}
/* SPDX-License-Identifier: Apache-2.0 */
