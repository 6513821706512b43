/*
 * Both passes multiply few rows with panels of 16 columns: the sums of up to six rows stay in registers, over
 * k in order, DEPTH elements at a time. Widened elements of a or b are reused by all rows of a tile, those of
 * x by all lanes.
 */
#include "kernels/cpu/lora.h"
#include "kernels/cpu/team.h"

enum {
	L = 8,	     /* lanes of a vector */
	TILE = 6,    /* rows per tile: with two vectors each they take 12 of 16 registers */
	DEPTH = 512, /* columns of x widened at a time */
	COLS = 64    /* columns of y processed at a time */
};

typedef float vec __attribute__((vector_size(L * 4), aligned(4)));
typedef uint32_t words __attribute__((vector_size(L * 4), aligned(2)));
typedef uint16_t halves __attribute__((vector_size(L * 2), aligned(2)));

DT_INLINE float weight_at(const void *p, int64_t i, enum dt_dtype t)
{
	return t == DT_F32 ? ((const float *)p)[i] : dt_bf16_to_f32(((const uint16_t *)p)[i]);
}

/*
 * Both vectors of a panel column, or the only one of a narrow panel. Vectors are passed by address: as
 * arguments or results they would have another ABI on processors without them.
 */
DT_INLINE void weights_at(vec *ret, const void *p, int64_t i, const int vecs, enum dt_dtype t)
{
	if (t == DT_F32) {
		DT_FOR (2, int v = 0; v < vecs; v++)
			ret[v] = *(const vec *)((const float *)p + i + v * L);
	} else if (vecs == 2) {
		const words w = *(const words *)((const uint16_t *)p + i);

		ret[0] = (vec)(w << 16);
		ret[1] = (vec)(w & 0xffff0000u);
	} else {
		ret[0] = (vec)(__builtin_convertvector(*(const halves *)((const uint16_t *)p + i), words)
			       << 16);
	}
}

/* out [rows, ldo] += in [rows, ldi] w, w [k, wide] from element `at` on: one panel. */
struct panel {
	float *out;
	int64_t ldo;
	const float *in;
	int64_t ldi;
	const void *w;
	int64_t at, wide, k;
};

/* Computes its first vecs vectors. rows, vecs and t are constants. */
DT_INLINE void vectors(const struct panel *p, const int rows, const int vecs, enum dt_dtype t)
{
	vec sum[TILE][2];

	DT_FOR (TILE, int r = 0; r < rows; r++)
		DT_FOR (2, int v = 0; v < vecs; v++)
			sum[r][v] = (vec){0};
	for (int64_t i = 0; i < p->k; i++) {
		vec w[2];

		weights_at(w, p->w, p->at + i * p->wide, vecs, t);
		DT_FOR (TILE, int r = 0; r < rows; r++)
			DT_FOR (2, int v = 0; v < vecs; v++)
				sum[r][v] += p->in[r * p->ldi + i] * w[v];
	}
	DT_FOR (TILE, int r = 0; r < rows; r++)
		DT_FOR (2, int v = 0; v < vecs; v++)
			*(vec *)(p->out + r * p->ldo + v * L) += sum[r][v];
}

DT_INLINE void product(const struct panel *p, const int rows, enum dt_dtype t)
{
	if (p->wide == 2 * L) {
		vectors(p, rows, 2, t);
		return;
	}
	if (p->wide >= L)
		vectors(p, rows, 1, t);
	for (int64_t c = p->wide / L * L; c < p->wide; c++)
		for (int r = 0; r < rows; r++) {
			float sum = 0;

			for (int64_t i = 0; i < p->k; i++)
				sum += p->in[r * p->ldi + i] * weight_at(p->w, p->at + i * p->wide + c, t);
			p->out[r * p->ldo + c] += sum;
		}
}

DT_INLINE void product_of(const struct panel *p, int64_t rows, enum dt_dtype t)
{
	switch (rows) {
	case 1:
		product(p, 1, t);
		break;
	case 2:
		product(p, 2, t);
		break;
	case 3:
		product(p, 3, t);
		break;
	case 4:
		product(p, 4, t);
		break;
	case 5:
		product(p, 5, t);
		break;
	default:
		product(p, TILE, t);
	}
}

/* Panels that begin in rows [first, end) of a matrix of `rows` rows; out's first column is row `first`. */
static DT_SIMD void lora_panels(const struct panel *of, int64_t rows, int64_t first, int64_t end, int64_t all,
				int64_t cols, enum dt_dtype t)
{
	struct panel p = *of;

	for (int64_t c = first; c < end; c += DT_LORA_PANEL, p.out += DT_LORA_PANEL) {
		p.wide = dt_min64(DT_LORA_PANEL, all - c);
		p.at = c * cols + of->at * p.wide;
		if (t == DT_F32)
			product_of(&p, rows, DT_F32);
		else
			product_of(&p, rows, DT_BF16);
	}
}

static DT_SIMD void lora_widen(float *wide, struct dt_tensor x, int64_t row, int64_t rows, int64_t at,
			       int64_t n)
{
	for (int64_t r = 0; r < rows; r++) {
		const char *from = dt_at(x, (row + r) * dt_cols(x) + at);

		if (n == DEPTH) /* constant length: no remainder loop */
			dt_load(wide + r * DEPTH, from, x.dtype, DEPTH);
		else
			dt_load(wide + r * DEPTH, from, x.dtype, n);
	}
}

/* Offset in a row of room of h of lane i of a part. */
static int64_t room_at(const struct dt_lora_part *p, int i)
{
	int64_t at = 0;

	for (int k = 0; k < i; k++)
		at += p->lane[k].a ? p->lane[k].rank : 0;
	return at;
}

/* Computes h of rows [row, row + rows), at most TILE, for lanes [first, end) of a part. */
static void down(const struct dt_lora_down *d, const struct dt_lora_part *part, int64_t row, int64_t rows,
		 int first, int end)
{
	const int64_t k = dt_cols(d->x), ldh = d->p->rank;
	float wide[TILE * DEPTH], *h = d->h + row * ldh;

	for (int64_t r = 0; r < rows; r++)
		memset(h + r * ldh + room_at(part, first), 0,
		       (size_t)(room_at(part, end) - room_at(part, first)) * sizeof *h);
	for (int64_t j = 0; j < k; j += DEPTH) {
		const int64_t n = dt_min64(DEPTH, k - j);
		struct panel p = {.ldo = ldh, .in = wide, .ldi = DEPTH, .at = j, .k = n};

		if (d->x.dtype == DT_F32) {
			p.in = (const float *)d->x.data + row * k + j;
			p.ldi = k;
		} else {
			lora_widen(wide, d->x, row, rows, j, n);
		}
		for (int i = first; i < end; i++) {
			const struct dt_lora_lane *l = &part->lane[i];

			p.out = h + room_at(part, i);
			p.w = l->a;
			if (l->a)
				lora_panels(&p, rows, 0, l->rank, l->rank, k, d->p->type);
		}
	}
	for (int i = first; i < end; i++)
		for (int64_t r = 0; r < rows && part->lane[i].a; r++)
			for (int64_t c = 0; c < part->lane[i].rank; c++)
				h[r * ldh + room_at(part, i) + c] *= part->lane[i].scale;
}

static int64_t tiles_of(const struct dt_lora_part *p, int64_t tile)
{
	return dt_ceil_div(p->n, tile);
}

/* Tile i of all parts, split evenly within a part: returns its part, and its rows. */
static const struct dt_lora_part *tile_of(const struct dt_lora_batch *p, int64_t tile, int64_t i,
					  int64_t *row, int64_t *rows)
{
	const struct dt_lora_part *part = p->part;
	int64_t n;

	for (; i >= (n = tiles_of(part, tile)); part++)
		i -= n;
	*row = part->first + part->n * i / n;
	*rows = part->first + part->n * (i + 1) / n - *row;
	return part;
}

/* Splits h by rows if there are enough, else also by lanes. */
struct dt_lora_down dt_lora_down_of(struct dt_tensor x, struct dt_tensor room, const struct dt_lora_batch *p,
				    int threads)
{
	struct dt_lora_down d = {.x = x, .p = p, .h = room.data, .apart = 1};
	int64_t rows = 0;

	for (int64_t i = 0; i < p->n; i++)
		rows += p->part[i].n;
	d.tile = rows >= TILE * threads ? TILE : dt_ceil_div(rows + !rows, threads);
	for (int64_t i = 0; i < p->n; i++)
		d.units += tiles_of(&p->part[i], d.tile);
	if (d.units < 2 * threads) {
		d.apart = DT_LORA_LANES;
		d.units *= DT_LORA_LANES;
	}
	return d;
}

void dt_lora_down(const struct dt_lora_down *d, int64_t unit)
{
	const int lane = (int)(unit % d->apart);
	int64_t row, rows;
	const struct dt_lora_part *part = tile_of(d->p, d->tile, unit / d->apart, &row, &rows);

	down(d, part, row, rows, lane, d->apart == 1 ? DT_LORA_LANES : lane + 1);
}

/* Adds a lane's output to rows of a tile, from the lane's column c on. */
static void add_lane(float *tile, int64_t ld, const float *h, int64_t ldh, int64_t rows,
		     const struct dt_lora_lane *l, int64_t c, int64_t n, enum dt_dtype t, bool shifts)
{
	const int64_t tiles = dt_ceil_div(rows, TILE);

	for (int64_t i = 0; i < tiles; i++) {
		const int64_t r = rows * i / tiles, some = rows * (i + 1) / tiles - r;
		const struct panel p = {.out = tile + r * ld,
					.ldo = ld,
					.in = h + r * ldh,
					.ldi = ldh,
					.w = l->b,
					.k = l->rank};

		lora_panels(&p, some, c, c + n, l->cols, l->rank, t);
	}
	for (int64_t r = 0; r < rows && l->gain; r++)
		for (int64_t j = 0; j < n; j++)
			tile[r * ld + j] = l->gain[c + j] * tile[r * ld + j] +
					   (shifts && l->shift ? l->shift[c + j] : 0);
}

void dt_lora_up(float *tile, int64_t ld, const float *h, const struct dt_lora_batch *p, int64_t row,
		int64_t rows, int64_t col, int64_t n, bool shifts)
{
	for (int64_t k = 0; k < p->n && p->part[k].first < row + rows; k++) {
		const struct dt_lora_part *part = &p->part[k];
		const int64_t first = part->first > row ? part->first : row,
			      end = dt_min64(part->first + part->n, row + rows);

		for (int i = 0; i < DT_LORA_LANES && first < end; i++) {
			const struct dt_lora_lane *l = &part->lane[i];
			const int64_t from = l->at > col ? l->at : col,
				      to = dt_min64(col + n, l->at + l->cols);

			if (l->a && from < to)
				add_lane(tile + (first - row) * ld + from - col, ld,
					 h + first * p->rank + room_at(part, i), p->rank, end - first, l,
					 from - l->at, to - from, p->type, shifts);
		}
	}
}

/* Adds n columns of a lane, from its column c on, to rows of a part in y. */
static DT_SIMD void lora_add_to(struct dt_tensor y, const float *h, const struct dt_lora_batch *p,
				int64_t row, int64_t rows, int64_t col, int64_t n)
{
	float tile[TILE * COLS], wide[COLS];

	for (int64_t r = 0; r < rows; r++)
		memcpy(tile + r * COLS, dt_load(wide, dt_at(y, (row + r) * dt_cols(y) + col), y.dtype, n),
		       (size_t)n * sizeof *tile);
	dt_lora_up(tile, COLS, h, p, row, rows, col, n, true);
	for (int64_t r = 0; r < rows; r++) {
		void *to = dt_at(y, (row + r) * dt_cols(y) + col);

		if (y.dtype == DT_F32)
			memcpy(to, tile + r * COLS, (size_t)n * sizeof *tile);
		else
			dt_store(to, y.dtype, tile + r * COLS, n);
	}
}

/* Adds share i of n of the columns of each lane to a tile of rows. */
static void add_share(struct dt_tensor y, const float *h, const struct dt_lora_batch *p,
		      const struct dt_lora_part *part, int64_t row, int64_t rows, int64_t i, int64_t n)
{
	for (int k = 0; k < DT_LORA_LANES; k++) {
		const struct dt_lora_lane *l = &part->lane[k];
		const int64_t chunks = dt_ceil_div(l->cols, COLS);

		for (int64_t c = chunks * i / n; l->a && c < chunks * (i + 1) / n; c++)
			lora_add_to(y, h, p, row, rows, l->at + c * COLS, dt_min64(COLS, l->cols - c * COLS));
	}
}

struct adding {
	struct dt_tensor y;
	const struct dt_lora_batch *p;
	struct dt_lora_down d;
	int64_t tiles, shares; /* of rows; of each tile's columns */
};

static void add_some(void *arg, int t, int n)
{
	const struct adding *a = arg;
	const int64_t tasks = a->tiles * a->shares, units = a->d.units;

	for (int64_t i = units * t / n; i < units * (t + 1) / n; i++)
		dt_lora_down(&a->d, i);
	dt_cpu_meet();
	for (int64_t i = tasks * t / n; i < tasks * (t + 1) / n; i++) {
		int64_t row, rows;
		const struct dt_lora_part *part = tile_of(a->p, TILE, i % a->tiles, &row, &rows);

		add_share(a->y, a->d.h, a->p, part, row, rows, i / a->tiles, a->shares);
	}
}

int dt_cpu_lora_add(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor room,
		    const struct dt_lora_batch *p)
{
	struct adding a = {.y = y, .p = p, .d = dt_lora_down_of(x, room, p, dev->nthreads)};
	int64_t rows = 0;

	for (int64_t i = 0; i < p->n; i++) {
		a.tiles += tiles_of(&p->part[i], TILE);
		rows += p->part[i].n;
	}
	/* Threads split columns if few rows use the same b or there are few parts, else rows. */
	a.shares = p->n < 2 * dev->nthreads ? dev->nthreads : 1;
	dt_cpu_together(rows * (dt_cols(x) + dt_cols(y)) > DT_SERIAL ? dev->nthreads : 1, dev->steps,
			add_some, &a);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
