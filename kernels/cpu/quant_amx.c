/*
 * Products of quant.h's panels by tiles (amx.h). Compiled with the instructions and, with AMX_PLAIN, with
 * what stands in for them, for QUANT_LANES 16 (AVX-512) or 8 (AVX2) around them; QUANT_NAME and
 * QUANT_BF16_NAME are the functions.
 *
 * A block of a panel is a tile as it lies there (bf16) or once its integers are signed bytes, which spares
 * each row of x an addition of their offset. Sums within a block of integers are exact and the f32 steps are
 * the contract's (kernels/quant.h), so that quant_mul.c's bits come out. Those of bf16 are their own: amx.h's
 * order within 32 elements, blocks then added in order of k.
 *
 * What an integer product by tiles costs is what follows it: for 16 x 16 sums 16 conversions, 16 products and
 * 16 additions of vectors, which these processors do one a cycle, half their rate, for some 450 cycles behind
 * any instruction of tiles (measured): 48 cycles for a block of 32. AVX-512 alone takes 64 and 24.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/quant_lanes.h"

#define VECS (DT_PANEL / QUANT_LANES) /* vectors of a panel's outputs */

/* Tiles of integer products: of one block, and of the next, which does not wait for those to be free. */
#define C_EVEN 0
#define C_ODD  1
#define A_EVEN 2
#define A_ODD  3
#define B_EVEN 4
#define B_ODD  5

#define RUN	 DT_XTILE_RUN
#define BLOCK	 512 /* bytes */
#define TOGETHER 4   /* panels that are held at a time, so that x is read from the first cache for most */

/* RUN blocks of some panels as tiles take them. */
struct stretch {
	vf scale[TOGETHER][RUN][2][VECS], min[TOGETHER][RUN][VECS];
	_Alignas(64) int8_t bytes[TOGETHER][RUN][BLOCK]; /* vectors of four elements of each output */
};

/* Panel p of a stretch: n blocks of a panel from block `first` on, then zeros. */
DT_INLINE void fill(struct stretch *s, int64_t p, const enum dt_format f, const uint8_t *panel,
		    int64_t blocks, int64_t first, int64_t n)
{
	const struct dt_quant_shape *shape = dt_quant_shape(f);
	const vi offset = V(set1_epi8)((char)shape->offset);

	if (n < RUN) {
		memset(s->bytes[p], 0, sizeof s->bytes[p]);
		memset(s->scale[p], 0, sizeof s->scale[p]);
		memset(s->min[p], 0, sizeof s->min[p]);
	}
	for (int64_t b = 0; b < n; b++)
		DT_FOR (2, int v = 0; v < VECS; v++) {
			const struct column c = column(f, panel, blocks, v * QUANT_LANES);
			vf scale[2];

			scales(scale, &s->min[p][b][v], f, &c, first + b);
			s->scale[p][b][0][v] = scale[0];
			s->scale[p][b][1][v] = scale[1];
			DT_FOR (4, int i = 0; i < 4; i++) {
				int8_t *to = s->bytes[p][b] + 128 * i + 4 * v * QUANT_LANES;
				vi w[2];

				unpack(w, f, c.quants + (first + b) * shape->quants, i);
				for (int e = 0; e < 2; e++) {
					w[e] = V(sub_epi8)(w[e], offset);
					memcpy(to + 64 * e, &w[e], sizeof w[e]);
				}
			}
		}
}

/* sum += what the integer sums of 16 rows mean; min: where the format has minima. */
DT_INLINE void add_block(vf (*sum)[VECS], int32_t (*c)[DT_PANEL], const vf *scale, const vf *min,
			 const struct dt_xtile *x)
{
	DT_FOR (16, int r = 0; r < DT_AMX_ROWS; r++)
		DT_FOR (2, int v = 0; v < VECS; v++) {
			const vf s = V(mul_ps)(scale[v], V(set1_ps)(x->scale[r]));
			vi acc;

			memcpy(&acc, c[r] + v * QUANT_LANES, sizeof acc);
			sum[r][v] = V(fmadd_ps)(s, V(cvtepi32_ps)(acc), sum[r][v]);
			if (min)
				sum[r][v] = V(fmadd_ps)(min[v], V(set1_ps)(x->sum[r]), sum[r][v]);
		}
}

/* Weights to be asked for while others are multiplied: step bytes a run. */
struct ahead {
	const uint8_t *at;
	int64_t step;
};

/* The blocks of one panel of a stretch, times 16 rows of x. */
struct run {
	const int8_t (*bytes)[BLOCK];
	const struct dt_xtile *x;
	const vf (*scale)[2][VECS], (*min)[VECS];
	float *tile; /* where their sums are */
};

/* Those of the first blocks begin with zeros. */
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

/* Products of a run: of blocks, or of half blocks, which have scales of their own. */
#define HALVES(f)   ((f) == DT_FMT_Q6_K ? 2 : 1)
#define PRODUCTS(f) (HALVES(f) * RUN)

/* What product t of a run reads. */
DT_INLINE void load(struct dt_amx_tiles *amx, const enum dt_format f, const struct run *r, const int t)
{
	const int b = t / HALVES(f), depth = DT_QK / HALVES(f), half = t % HALVES(f) * depth;

	if (t % 2) {
		tile_load(amx, B_ODD, r->bytes[b] + half * DT_PANEL, 64);
		tile_load(amx, A_ODD, r->x[b].q[0] + half, DT_QK);
	} else {
		tile_load(amx, B_EVEN, r->bytes[b] + half * DT_PANEL, 64);
		tile_load(amx, A_EVEN, r->x[b].q[0] + half, DT_QK);
	}
}

DT_INLINE void add(vf (*sum)[VECS], const enum dt_format f, const struct run *r, const int t,
		   int32_t (*c)[DT_AMX_ROWS][DT_PANEL])
{
	const bool minima = f == DT_FMT_Q4_1 || dt_is_k_min(f);
	const int b = t / HALVES(f);

	add_block(sum, c[t % 2], r->scale[b][t % HALVES(f)], minima ? r->min[b] : NULL, &r->x[b]);
}

/* What the runs of a stretch share. */
struct runs {
	struct dt_amx_tiles *amx;
	int64_t ld;
	bool first; /* blocks */
	_Alignas(64) int32_t c[2][DT_AMX_ROWS][DT_PANEL];
};

/*
 * Product t of a run, whose operands are there, begins; that before it is stored, the operands of the next
 * are loaded, and the last but one is added up. None waits for another, which these processors' order of
 * execution alone does not give. before: the run behind which this comes, NULL: none.
 */
DT_INLINE void step(struct runs *s, vf (*sum)[VECS], const enum dt_format f, const struct run *before,
		    const struct run *now, const struct run *next, const int t)
{
	const int n = PRODUCTS(f);
	struct dt_amx_tiles *amx = s->amx;

	if (t % 2) {
		tile_zero(amx, C_ODD);
		tile_dot_ss(amx, C_ODD, A_ODD, B_ODD);
		tile_store(amx, C_EVEN, s->c[0], 64);
	} else {
		tile_zero(amx, C_EVEN);
		tile_dot_ss(amx, C_EVEN, A_EVEN, B_EVEN);
		if (t > 0 || before)
			tile_store(amx, C_ODD, s->c[1], 64);
	}
	load(amx, f, t + 1 < n ? now : next, (t + 1) % n);
	if (t > 1)
		add(sum, f, now, t - 2, s->c);
	else if (before)
		add(sum, f, before, n - 2 + t, s->c);
	if (t == 1) {
		if (before)
			sums_store(before->tile, s->ld, sum);
		sums_load(sum, s->first ? zeros : now->tile, s->first ? 0 : s->ld);
	}
}

DT_INLINE void all_steps(struct runs *s, vf (*sum)[VECS], const enum dt_format f, const struct run *before,
			 const struct run *now, const struct run *next)
{
	_Static_assert(RUN == 4, "these steps");
	step(s, sum, f, before, now, next, 0);
	step(s, sum, f, before, now, next, 1);
	step(s, sum, f, before, now, next, 2);
	step(s, sum, f, before, now, next, 3);
	if (PRODUCTS(f) > 4) {
		step(s, sum, f, before, now, next, 4);
		step(s, sum, f, before, now, next, 5);
		step(s, sum, f, before, now, next, 6);
		step(s, sum, f, before, now, next, 7);
	}
}

/* Run i of a stretch: the panels of sixteen rows, then those of the next. */
DT_INLINE struct run run_at(const struct stretch *w, float *tile, int64_t ld, const struct dt_xtile *x,
			    int64_t blocks, int64_t panels, int64_t i)
{
	const int64_t p = i % panels, g = i / panels;

	return (struct run){w->bytes[p], x + g * blocks, w->scale[p], w->min[p],
			    tile + g * DT_AMX_ROWS * ld + p * DT_PANEL};
}

/* The products of m rows of x, in tiles of `blocks` blocks, with what is held of so many panels. */
DT_INLINE void stretch_of(struct dt_amx_tiles *amx, const struct stretch *w, struct ahead *ahead, float *tile,
			  int64_t ld, const enum dt_format f, int64_t panels, const struct dt_xtile *x,
			  int64_t m, int64_t blocks, bool first)
{
	const int64_t total = dt_ceil_div(m, DT_AMX_ROWS) * panels;
	struct runs s = {.amx = amx, .ld = ld, .first = first};
	struct run before = {0}, now = run_at(w, tile, ld, x, blocks, panels, 0);
	vf sum[DT_AMX_ROWS][VECS];

	load(amx, f, &now, 0);
	for (int64_t i = 0; i < total; i++) {
		const struct run next = i + 1 < total ? run_at(w, tile, ld, x, blocks, panels, i + 1) : now;

		for (int64_t k = 0; k < ahead->step; k += 64)
			dt_prefetch_ahead(ahead->at + k);
		ahead->at += ahead->step;
		if (i) /* the compiler's copies */
			all_steps(&s, sum, f, &before, &now, &next);
		else
			all_steps(&s, sum, f, NULL, &now, &next);
		before = now;
		now = next;
	}
	tile_store(amx, C_ODD, s.c[1], 64);
	add(sum, f, &before, PRODUCTS(f) - 2, s.c);
	add(sum, f, &before, PRODUCTS(f) - 1, s.c);
	sums_store(before.tile, ld, sum);
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

DT_INLINE void panels_of(float *tile, int64_t ld, const enum dt_format f, const uint8_t *w,
			 size_t panel_bytes, int64_t panels, const uint8_t *next, const struct dt_xtile *x,
			 int64_t m, int64_t blocks)
{
	const int64_t all = dt_xtiles(blocks), runs = dt_ceil_div(m, DT_AMX_ROWS) * all / RUN;
	struct ahead ahead = {next, next ? dt_ceil_div((int64_t)panel_bytes, 64 * runs) * 64 : 0};
	struct dt_amx_tiles amx;
	struct stretch held;

	configure(&amx, DT_QK / HALVES(f));
	for (int64_t first = 0; first < panels; first += TOGETHER)
		for (int64_t b = 0; b < blocks; b += RUN) {
			const int64_t n = dt_min64(TOGETHER, panels - first);

			for (int64_t p = 0; p < n; p++)
				fill(&held, p, f, w + (size_t)(first + p) * panel_bytes, blocks, b,
				     dt_min64(RUN, blocks - b));
			stretch_of(&amx, &held, &ahead, tile + first * DT_PANEL, ld, f, n, x + b, m, all,
				   b == 0);
		}
	tile_release(&amx);
}

DT_QUANT_MUL(QUANT_NAME)
{
	(void)xb;
	QUANT_BY_FORMAT(panels_of, tile, ld, f, w, panel_bytes, panels, next, xq, m, blocks);
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
