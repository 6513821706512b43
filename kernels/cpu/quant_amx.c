/*
 * Integer products of quant.h's panels with AMX tiles (amx.h). Compiled with the instructions and, with
 * AMX_PLAIN, with their emulation; QUANT_LANES is 16 (AVX-512) or 8 (AVX2) for the code around them;
 * QUANT_NAME is the function.
 *
 * A block of a panel is a tile in place (Q8_0), or after conversion to signed bytes. Q8_0 is multiplied with
 * its offset, which is then subtracted from the sums: one integer addition per row, but no pass over the
 * weights. Sums within a block are exact and the f32 steps are the contract's (kernels/quant.h), so the bits
 * are those of quant_mul.c.
 *
 * The cost of a tile product is in what follows it: for 16 x 16 sums 16 conversions, 16 products and 16
 * additions of vectors, which these processors do one per cycle, half their rate, for some 450 cycles after
 * any tile instruction (measured): 48 cycles for a block of 32, and 67 to 72 are measured. AVX-512 alone
 * takes 64 and 24, and 118 are measured. bf16 tiles would give the same exact sums without conversions, but
 * loads, product and store of a tile follow one another and take 20 cycles more than with int8 (measured:
 * 0.8 to 0.9 of this rate, in Q6_K 1.15); four products in flight instead of two are slower, too.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/quant_lanes.h"

#define VECS (DT_PANEL / QUANT_LANES) /* vectors of a panel's outputs */

/* Tiles of integer products: one product, and the next, which need not wait for the first. */
#define C_EVEN 0
#define C_ODD  1
#define A_EVEN 2
#define A_ODD  3
#define B_EVEN 4
#define B_ODD  5

#define BLOCK 512 /* bytes */
#define HELD  24  /* blocks converted at a time: with 32 rows of x they fill L1 */

/* Products per block: one, or one per half, with separate scales or integer factors. */
#define HALVES(f) (dt_panel_halves(f) || dt_panel_joined(f) ? 2 : 1)
/* Blocks per pair of products. */
#define PAIR(f) (2 / HALVES(f))

/* Converted blocks of a panel; and storage for a pair's scales. */
struct held {
	struct factors by[HELD + 2][VECS];
	_Alignas(64) uint8_t bytes[HELD][BLOCK]; /* vectors of four elements of each output */
};

/* Converts block b of a panel to block `to`. */
DT_INLINE void hold_block(struct held *s, int64_t to, const enum dt_format f, const struct column *c,
			  const struct dt_quant_shape *shape, int64_t b)
{
	const vi offset = V(set1_epi8)((char)shape->offset);

	DT_FOR (2, int v = 0; v < VECS; v++) {
		factors_of(&s->by[to][v], f, &c[v], b);
		DT_FOR (4, int i = 0; i < 4; i++) {
			uint8_t *at = s->bytes[to] + 128 * i + 4 * v * QUANT_LANES;
			vi w[2];

			unpack(w, f, c[v].quants + b * shape->quants, i);
			for (int e = 0; e < 2; e++) {
				w[e] = V(sub_epi8)(w[e], offset);
				memcpy(at + 64 * e, &w[e], sizeof w[e]);
			}
		}
	}
}

/* Converts n blocks of a panel from block `first` on; pads an odd number with a block of zeros. */
DT_INLINE void hold(struct held *s, const enum dt_format f, const uint8_t *panel, int64_t blocks,
		    int64_t first, int64_t n)
{
	const struct dt_quant_shape *shape = dt_quant_shape(f);
	struct column c[VECS];

	for (int v = 0; v < VECS; v++)
		c[v] = column(f, panel, blocks, v * QUANT_LANES);
	for (int64_t b = 0; b < n; b++)
		hold_block(s, b, f, c, shape, first + b);
	if (n % 2) {
		memset(s->bytes[n], 0, BLOCK);
		memset(s->by[n], 0, sizeof s->by[n]);
	}
}

/* Blocks of a panel and of 16 rows of x for two products. */
struct pair {
	const uint8_t (*bytes)[BLOCK];
	const struct dt_xtile *x;
	const struct factors (*by)[VECS]; /* of the converted blocks */
	const uint8_t *half;		  /* scales of a panel that is read in place */
};

/* Copies the scales of a pair before they are overwritten. */
DT_INLINE void keep(struct held *s, const enum dt_format f, struct pair *p)
{
	memmove(s->by + HELD, p->by, PAIR(f) * sizeof *s->by);
	p->by = s->by + HELD;
}

/* Loads the operands of product t of a pair. */
DT_INLINE void load(struct dt_amx_tiles *amx, const enum dt_format f, const struct pair *p, const int t)
{
	const int b = t / HALVES(f), half = t % HALVES(f) * DT_QK / 2;

	if (t) {
		tile_load(amx, B_ODD, p->bytes[b] + half * DT_PANEL, 64);
		tile_load(amx, A_ODD, p->x[b].q[0] + half, DT_QK);
	} else {
		tile_load(amx, B_EVEN, p->bytes[b] + half * DT_PANEL, 64);
		tile_load(amx, A_EVEN, p->x[b].q[0] + half, DT_QK);
	}
}

/* sum += the integer sums of product t of a pair, scaled. */
DT_INLINE void add(vf (*sum)[VECS], const enum dt_format f, const bool direct, const struct pair *p,
		   const int t, int32_t (*c)[DT_PANEL])
{
	const int b = t / HALVES(f);
	const struct dt_xtile *x = p->x + b;

	DT_FOR (2, int v = 0; v < VECS; v++) {
		const vf scale = direct ? half_to_ps(p->half + 2 * (DT_PANEL * b + QUANT_LANES * v))
					: p->by[b][v].scale[t % HALVES(f)];

		DT_FOR (16, int r = 0; r < DT_AMX_ROWS; r++) {
			const vf s = V(mul_ps)(scale, V(set1_ps)(x->scale[r]));
			vi acc;

			memcpy(&acc, c[r] + v * QUANT_LANES, sizeof acc);
			if (direct)
				acc = V(add_epi32)(acc, V(set1_epi32)(x->start8[r]));
			sum[r][v] = V(fmadd_ps)(s, V(cvtepi32_ps)(acc), sum[r][v]);
			if (dt_panel_minimum(f))
				sum[r][v] = V(fmadd_ps)(p->by[b][v].min[0], V(set1_ps)(x->sum[r]), sum[r][v]);
		}
	}
}

/* sum += a block whose joined halves have the integer sums c[0] and c[1]. */
DT_INLINE void add_joined(vf (*sum)[VECS], const struct pair *p, int32_t (*c)[DT_AMX_ROWS][DT_PANEL])
{
	DT_FOR (2, int v = 0; v < VECS; v++) {
		const struct factors *w = &p->by[0][v];

		DT_FOR (16, int r = 0; r < DT_AMX_ROWS; r++) {
			const vf scale = V(set1_ps)(p->x->scale[r]);
			vi acc[2];
			vf q, m;

			memcpy(&acc[0], c[0][r] + v * QUANT_LANES, sizeof acc[0]);
			memcpy(&acc[1], c[1][r] + v * QUANT_LANES, sizeof acc[1]);
			q = V(fmadd_ps)(w->scale[1], V(cvtepi32_ps)(acc[1]),
					V(mul_ps)(w->scale[0], V(cvtepi32_ps)(acc[0])));
			m = V(fmadd_ps)(w->min[1], V(set1_ps)(p->x->half[1][r]),
					V(mul_ps)(w->min[0], V(set1_ps)(p->x->half[0][r])));
			sum[r][v] = V(fmadd_ps)(V(mul_ps)(w->d, scale), q, sum[r][v]);
			sum[r][v] = V(fmadd_ps)(V(mul_ps)(w->dmin, scale), m, sum[r][v]);
		}
	}
}

/* sum += product t of a pair; c[0] is overwritten before t 1, but c[1] is there at t 0. */
DT_INLINE void add_product(vf (*sum)[VECS], const enum dt_format f, const bool direct, const struct pair *p,
			   const int t, int32_t (*c)[DT_AMX_ROWS][DT_PANEL])
{
	if (!dt_panel_joined(f))
		add(sum, f, direct, p, t, c[t]);
	else if (t == 0)
		add_joined(sum, p, c);
}

/*
 * Starts the products of a pair, whose first operands are loaded. In each step it stores the sums of the
 * previous product, loads the next operands, and adds up the product before the previous. None waits for
 * another, which out-of-order execution alone does not achieve.
 */
DT_INLINE void step(struct dt_amx_tiles *amx, vf (*sum)[VECS], const enum dt_format f, const bool direct,
		    const struct pair *before, const struct pair *now, const struct pair *next,
		    int32_t (*c)[DT_AMX_ROWS][DT_PANEL])
{
	tile_zero(amx, C_EVEN);
	if (direct)
		tile_dot_su(amx, C_EVEN, A_EVEN, B_EVEN);
	else
		tile_dot_ss(amx, C_EVEN, A_EVEN, B_EVEN);
	tile_store(amx, C_ODD, c[1], 64);
	load(amx, f, now, 1);
	add_product(sum, f, direct, before, 0, c);
	tile_zero(amx, C_ODD);
	if (direct)
		tile_dot_su(amx, C_ODD, A_ODD, B_ODD);
	else
		tile_dot_ss(amx, C_ODD, A_ODD, B_ODD);
	tile_store(amx, C_EVEN, c[0], 64);
	load(amx, f, next, 0);
	add_product(sum, f, direct, before, 1, c);
}

/* Initial sums. */
static const float zeros[DT_PANEL];

DT_INLINE void sums_load(vf (*sum)[VECS], const float *from, int64_t ld)
{
	DT_FOR (16, int r = 0; r < DT_AMX_ROWS; r++)
		DT_FOR (2, int v = 0; v < VECS; v++)
			sum[r][v] = V(loadu_ps)(from + r * ld + v * QUANT_LANES);
}

DT_INLINE void sums_store(float *to, int64_t ld, vf (*sum)[VECS])
{
	DT_FOR (16, int r = 0; r < DT_AMX_ROWS; r++)
		DT_FOR (2, int v = 0; v < VECS; v++)
			V(storeu_ps)(to + r * ld + v * QUANT_LANES, sum[r][v]);
}

/*
 * Weights to prefetch during products: step bytes every ASK blocks. The processor handles few outstanding
 * lines; prefetching in each iteration of the loop over pairs costs registers (measured).
 */
#define ASK 4
struct ahead {
	const uint8_t *at;
	int64_t step;
};

DT_INLINE void ask(struct ahead *a)
{
	for (int64_t i = 0; i < a->step; i += 64)
		dt_prefetch_ahead(a->at + i);
	a->at += a->step;
}

/* Products in flight: those of the pair `before`; their sums go to *to; NULL: nowhere. */
struct begun {
	struct pair before;
	float *to;
};

DT_INLINE struct pair pair_after(const struct pair *p, const enum dt_format f, const bool direct)
{
	const int n = PAIR(f);

	if (direct)
		return (struct pair){
			.bytes = p->bytes + n, .x = p->x + n, .half = p->half + 2 * DT_PANEL * n};
	return (struct pair){p->bytes + n, p->x + n, p->by + n, NULL};
}

/*
 * n blocks of a panel, from `first` on, times `rows` times 16 rows of x, which have `all` blocks each.
 * begins: no blocks precede these, so sums start from zero, else from the tile.
 */
DT_INLINE void blocks_of(struct dt_amx_tiles *amx, vf (*sum)[VECS], const enum dt_format f, const bool direct,
			 struct begun *begun, const struct pair first, struct ahead *ahead, float *tile,
			 int64_t ld, bool begins, int64_t n, int64_t rows, int64_t all,
			 int32_t (*c)[DT_AMX_ROWS][DT_PANEL])
{
	struct pair now = first, next;

	load(amx, f, &now, 0);
	for (int64_t g = 0; g < rows; g++, tile += DT_AMX_ROWS * ld)
		for (int64_t i = 0, end; i < n;) {
			ask(ahead);
			for (end = dt_min64(n, i + ASK); i < end; i += PAIR(f)) {
				next = pair_after(&now, f, direct);
				if (i + PAIR(f) >= n) {
					next = first;
					next.x += g + 1 < rows ? (g + 1) * all : 0;
				}
				step(amx, sum, f, direct, &begun->before, &now, &next, c);
				if (i == 0) {
					if (begun->to)
						sums_store(begun->to, ld, sum);
					begun->to = tile;
					sums_load(sum, begins ? zeros : tile, begins ? 0 : ld);
				}
				begun->before = now;
				now = next;
			}
		}
}

DT_INLINE void shape(struct dt_amx_config *config, int tile, int64_t rows, int64_t bytes)
{
	config->rows[tile] = (uint8_t)rows;
	config->bytes[tile] = (uint16_t)bytes;
}

/* depth: elements of a block, or of half a block. */
DT_INLINE void configure(struct dt_amx_tiles *amx, int64_t depth)
{
	struct dt_amx_config config = {.palette = 1};

	for (int i = C_EVEN; i <= C_ODD; i++)
		shape(&config, i, DT_AMX_ROWS, 64);
	for (int i = A_EVEN; i <= A_ODD; i++)
		shape(&config, i, DT_AMX_ROWS, depth);
	for (int i = B_EVEN; i <= B_ODD; i++)
		shape(&config, i, depth / 4, 64);
	tile_configure(amx, &config);
}

/* direct: panels are read in place; their number of blocks must be even. */
DT_INLINE void panels_of(float *tile, int64_t ld, const enum dt_format f, const bool direct, const uint8_t *w,
			 size_t panel_bytes, int64_t panels, const uint8_t *next, const struct dt_xtile *x,
			 int64_t m, int64_t blocks)
{
	const int64_t all = dt_xtiles(blocks), rows = dt_ceil_div(m, DT_AMX_ROWS), most = direct ? all : HELD;
	const int64_t asks = rows * dt_ceil_div(all, ASK);
	struct ahead ahead = {next, next ? dt_ceil_div((int64_t)panel_bytes, 64 * asks) * 64 : 0};
	_Alignas(64) int32_t c[2][DT_AMX_ROWS][DT_PANEL] = {0};
	struct dt_amx_tiles amx;
	vf sum[DT_AMX_ROWS][VECS];
	struct held held;
	struct begun begun = {{NULL, x, held.by + HELD, w}, NULL};

	memset(held.by + HELD, 0, 2 * sizeof *held.by);
	sums_load(sum, zeros, 0);
	configure(&amx, DT_QK / HALVES(f));
	tile_zero(&amx, C_ODD);
	for (int64_t p = 0; p < panels; p++, w += panel_bytes, tile += DT_PANEL)
		for (int64_t b = 0; b < all; b += most) {
			const int64_t n = dt_min64(most, all - b);
			struct pair first = {held.bytes, x + b, held.by, NULL};

			if (direct) {
				first = (struct pair){(const void *)w, x, NULL, w + blocks * BLOCK};
			} else {
				keep(&held, f, &begun.before);
				hold(&held, f, w, blocks, b, dt_min64(n, blocks - b));
			}
			blocks_of(&amx, sum, f, direct, &begun, first, &ahead, tile, ld, b == 0, n, rows, all,
				  c);
		}
	tile_store(&amx, C_ODD, c[1], 64);
	add_product(sum, f, direct, &begun.before, 0, c);
	add_product(sum, f, direct, &begun.before, 1, c);
	sums_store(begun.to, ld, sum);
	tile_release(&amx);
}

#define QUANT_PANELS(format) panels_of(tile, ld, format, false, w, panel_bytes, panels, next, xq, m, blocks)
DT_PANEL_FORMATS(QUANT_FUNCTION)

DT_QUANT_MUL(QUANT_NAME)
{
	if (f == DT_FMT_Q8_0 && blocks % 2 == 0)
		panels_of(tile, ld, DT_FMT_Q8_0, true, w, panel_bytes, panels, next, xq, m, blocks);
	else
		switch (f) {
			DT_PANEL_FORMATS(QUANT_CASE)
		default:
			break;
		}
}
/* SPDX-License-Identifier: Apache-2.0 */
