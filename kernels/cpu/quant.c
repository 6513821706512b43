/* Products with packed weights: x is quantised or rounded once, then threads compute tiles of outputs. */
#include "kernels/cpu/quant.h"

#include "kernels/cpu/lora.h"
#include "kernels/moe.h"

#include <stdatomic.h>

#define GROUP  DT_QUANT_GROUP
#define ROWS   DT_QUANT_MANY /* rows per task: a multiple of the rows of every micro-kernel */
#define HALF   (GROUP / 2 * DT_PANEL)
#define LITTLE (1 << 16) /* multiply-adds below which one thread does everything */

/* Number of groups of a thread's share already taken; padded to a cache line. */
struct turn {
	_Alignas(64) atomic_llong taken;
};

struct job {
	struct dt_tensor y, x, bias;
	const struct dt_packed *w;	 /* the weight of all rows; for a set the first one */
	const struct dt_packed_set *set; /* NULL: no set */
	const struct dt_meet *meet;	 /* for a set: which weight each row uses */
	struct dt_quant_kernels kernel;
	int64_t m;
	int8_t *q; /* [m, 32 blocks], with their struct dt_xblock; absent without quantised parts */
	struct dt_xblock *xb;
	struct dt_quant_tiles tiles; /* of q and xb, for AMX */
	uint16_t *h;		     /* [m, 32 blocks], absent without bf16 parts */
	float *f;		     /* likewise for f32 */
	struct turn *turn;	     /* [weights with rows, parts, threads] */
	bool gated;		     /* packed_gated: pairs panels of the second part with those of the
				      * first */
	enum dt_act_fn act;
	const struct dt_lora_down *lora; /* adapters to add; NULL: none */
};

/* The rows of a weight. */
struct rows {
	int64_t first, end;
};

/* The rows of weight e. */
static struct rows rows_of(const struct job *j, int e)
{
	return j->set ? (struct rows){j->meet->first[e], j->meet->first[e + 1]} : (struct rows){0, j->m};
}

/* tile = panels [p0, p0 + panels) of a part times rows of x from r0 on; prefetches the panels at next. */
static void multiply_part(const struct job *j, const struct dt_packed_part *part, float *tile, int64_t p0,
			  int64_t panels, const uint8_t *next, int64_t r0, int64_t rows)
{
	const int64_t blocks = j->w->blocks,
		      tiled = dt_is_float(part->format) ? 0 : dt_quant_tiled(&j->tiles, rows);
	const int64_t at = (r0 + tiled) * blocks * DT_QK;
	const uint8_t *w = part->data + (size_t)p0 * part->panel_bytes;
	const void *x = part->format == DT_FMT_F32    ? (const void *)(j->f + at)
			: part->format == DT_FMT_BF16 ? (const void *)(j->h + at)
						      : j->q + at;
	dt_quant_mul_fn *mul = part->format == DT_FMT_F32    ? j->kernel.f32
			       : part->format == DT_FMT_BF16 ? j->kernel.bf16
							     : j->kernel.quants;

	if (tiled)
		j->kernel.tiled(tile, GROUP * DT_PANEL, part->format, w, part->panel_bytes, panels, next,
				dt_quant_tiles_at(&j->tiles, r0), NULL, tiled, blocks);
	if (tiled < rows)
		mul(tile + tiled * GROUP * DT_PANEL, GROUP * DT_PANEL, part->format, w, part->panel_bytes,
		    panels, tiled ? NULL : next, x, j->q ? j->xb + (r0 + tiled) * blocks : NULL, rows - tiled,
		    blocks);
}

/* Adds the adapters to those panels, n columns. */
static void adapt(const struct job *j, const struct dt_packed_part *part, float *tile, int64_t p0, int64_t n,
		  int64_t r0, int64_t rows)
{
	if (j->lora)
		dt_lora_up(tile, GROUP * DT_PANEL, j->lora->h, j->lora->p, r0, rows,
			   part->first + p0 * DT_PANEL, n, false);
}

/* Panels [p0, p0 + panels) of a part, rows [r0, r0 + rows), at most ROWS. */
static void task(const struct job *j, const struct dt_packed_part *part, int64_t p0, int64_t panels,
		 const uint8_t *next, int64_t r0, int64_t rows)
{
	const int64_t n = dt_min64(panels * DT_PANEL, part->rows - p0 * DT_PANEL);
	const int64_t col = part->first + p0 * DT_PANEL, at = r0 * dt_cols(j->y) + col;
	_Alignas(64) float tile[ROWS * GROUP * DT_PANEL];

	if (!j->gated) {
		multiply_part(j, part, tile, p0, panels, next, r0, rows);
		adapt(j, part, tile, p0, n, r0, rows);
		dt_quant_finish(j->y, at, tile, rows, j->bias, col, n);
		return;
	}
	multiply_part(j, part, tile, p0, panels, part[1].data + (size_t)p0 * part[1].panel_bytes, r0, rows);
	multiply_part(j, part + 1, tile + HALF, p0, panels, next, r0, rows);
	adapt(j, part, tile, p0, n, r0, rows);
	adapt(j, part + 1, tile + HALF, p0, n, r0, rows);
	dt_quant_finish_gated(j->y, at, tile, rows, j->bias, col, n, j->act);
}

/* First panel of the share of thread t of n: panels are assigned in pairs, as micro-kernels process pairs. */
static int64_t share_first(const struct dt_packed_part *part, int t, int n)
{
	return dt_min64(part->panels, 2 * ((part->panels + 1) / 2 * t / n));
}

/*
 * Thread t of n: computes its share of the panels, then steals from other shares what has not been started,
 * as a thread may be descheduled. after: its next work, to prefetch. If rows of a set are few, it takes more
 * panels at a time.
 */
static void share(const struct job *j, const struct dt_packed_part *part, struct rows rows, struct turn *turn,
		  const uint8_t *after, int t, int n)
{
	const int64_t many = j->set ? dt_min64(8, dt_ceil_div(32, rows.end - rows.first)) : 1;
	const int64_t group = j->gated ? GROUP / 2 : GROUP, take = group * many;

	for (int i = 0; i < n; i++) {
		const int whose = (t + i) % n;
		const int64_t first = share_first(part, whose, n), last = share_first(part, whose + 1, n);
		int64_t p;

		while ((p = first + take * atomic_fetch_add(&turn[whose].taken, 1)) < last)
			for (int64_t end = dt_min64(last, p + take); p < end; p += group) {
				const uint8_t *next =
					p + group < last
						? part->data + (size_t)(p + group) * part->panel_bytes
						: after;

				for (int64_t r = rows.first; r < rows.end; r += ROWS)
					task(j, part, p, dt_min64(group, last - p), next, r,
					     dt_min64(ROWS, rows.end - r));
			}
	}
}

/* Converts row r of x to row `to` of the operand. */
static void prepare_row(const struct job *j, int64_t r, int64_t to)
{
	const struct dt_packed *w = j->w;
	const void *x = dt_at(j->x, r * w->k);

	if (j->q)
		j->kernel.row(j->q + to * w->blocks * DT_QK, j->xb + to * w->blocks, x, j->x.dtype,
			      w->blocks);
	dt_quant_tiles_fill(&j->tiles, to, j->q, j->xb);
	if (j->f)
		dt_quant_widen_row(j->f + to * w->blocks * DT_QK, x, j->x.dtype, w->k, w->blocks);
	if (j->h)
		dt_quant_round_row(j->h + to * w->blocks * DT_QK, x, j->x.dtype, w->k, w->blocks);
}

static void copy_row(const struct job *j, int64_t from, int64_t to)
{
	const int64_t n = j->w->blocks * DT_QK;

	if (j->q) {
		memcpy(j->q + to * n, j->q + from * n, (size_t)n);
		memcpy(j->xb + to * j->w->blocks, j->xb + from * j->w->blocks,
		       (size_t)j->w->blocks * sizeof *j->xb);
	}
	dt_quant_tiles_fill(&j->tiles, to, j->q, j->xb);
	if (j->f)
		memcpy(j->f + to * n, j->f + from * n, (size_t)n * sizeof *j->f);
	if (j->h)
		memcpy(j->h + to * n, j->h + from * n, (size_t)n * sizeof *j->h);
}

/* Converts row r once for all the places it goes to. */
static void prepare(const struct job *j, int64_t r)
{
	const int64_t used = j->meet ? j->meet->used : 0;
	const int32_t *at = used ? j->meet->at + r * used : NULL;
	int32_t had = DT_MOE_AWAY;

	if (!at)
		prepare_row(j, r, r);
	for (int64_t i = 0; i < used; i++) {
		if (at[i] == DT_MOE_AWAY)
			continue;
		if (had == DT_MOE_AWAY)
			prepare_row(j, r, at[i]);
		else
			copy_row(j, had, at[i]);
		had = at[i];
	}
}

/* The first weight from e on that has rows. */
static int met_from(const struct job *j, int e)
{
	const int n = j->set ? j->set->n : 1;

	while (e < n && rows_of(j, e).first == rows_of(j, e).end)
		e++;
	return e < n ? e : -1;
}

/*
 * Thread t of n: its part of all products. There is no barrier between the products of a set, which write
 * different rows and columns.
 */
static void multiply(const struct job *j, int t, int n, int stride)
{
	struct turn *turn = j->turn;

	for (int e = met_from(j, 0), then; e >= 0; e = then) {
		const struct dt_packed *w = j->set ? j->set->w[e] : j->w;

		const int parts = j->gated ? 1 : w->nparts;

		then = met_from(j, e + 1);
		for (int i = 0; i < parts; i++, turn += stride) {
			const struct dt_packed_part *next = i + 1 < parts ? &w->part[i + 1]
							    : then >= 0	  ? &j->set->w[then]->part[0]
									  : NULL;

			share(j, &w->part[i], rows_of(j, e), turn,
			      next ? next->data + (size_t)share_first(next, t, n) * next->panel_bytes : NULL,
			      t, n);
		}
	}
}

static void run(struct dt_dev *dev, const struct job *j)
{
	const struct dt_packed *w = j->w;
	const int threads = j->m * w->rows * w->k < LITTLE ? 1 : dev->nthreads;
	/* A few rows are converted before the other threads wake. */
	const bool first = j->m * w->k < DT_SERIAL;
	const int64_t rows = dt_rows(j->x);

	for (int64_t r = 0; first && r < rows; r++)
		prepare(j, r);
#pragma omp parallel num_threads(threads)
	{
		if (j->lora)
#pragma omp for schedule(static) nowait
			for (int64_t i = 0; i < j->lora->units; i++)
				dt_lora_down(j->lora, i);
		if (!first || j->lora)
#pragma omp for schedule(static)
			for (int64_t r = first ? rows : 0; r < rows; r++)
				prepare(j, r);
		multiply(j, omp_get_thread_num(), omp_get_num_threads(), dev->nthreads);
	}
}

/* Allocates the working memory of run, for products with `weights` weights; -ENOMEM. */
static int place(struct dt_dev *dev, struct job *j, int64_t weights)
{
	const int64_t cells = j->m * j->w->blocks, turns = weights * j->w->nparts * dev->nthreads;
	bool quantized = false, has[DT_FMT_N] = {false};
	size_t tiles;
	char *at;

	for (int i = 0; i < j->w->nparts; i++) {
		quantized = quantized || !dt_is_float(j->w->part[i].format);
		has[j->w->part[i].format] = true;
	}
	if (quantized && j->kernel.tiled)
		j->tiles = (struct dt_quant_tiles){.n = j->set ? j->set->n : 1,
						   .m = j->m,
						   .first = j->set ? j->meet->first : NULL,
						   .blocks = j->w->blocks};
	tiles = dt_quant_tiles_bytes(&j->tiles);
	at = dt_cpu_scratch(dev, (size_t)turns * sizeof *j->turn + tiles +
					 (size_t)cells * (DT_QK * 7 + sizeof *j->xb));
	if (!at)
		return -ENOMEM;
	j->turn = (struct turn *)at;
	at += (size_t)turns * sizeof *j->turn;
	for (int64_t i = 0; i < turns; i++)
		atomic_init(&j->turn[i].taken, 0);
	dt_quant_tiles_lay(&j->tiles, at);
	at += tiles;
	j->f = has[DT_FMT_F32] ? (float *)at : NULL;
	j->h = has[DT_FMT_BF16] ? (uint16_t *)(at + cells * DT_QK * 4) : NULL;
	j->q = quantized ? (int8_t *)at + cells * DT_QK * 6 : NULL;
	j->xb = (struct dt_xblock *)(at + cells * DT_QK * 7);
	return 0;
}

/* Number of the n weights that m rows of y use, with choices of rows of x; -EINVAL: p is inconsistent. */
static int met(const struct dt_meet *p, int n, int64_t m, int64_t choices)
{
	int64_t here = 0;
	int some = 0;

	if (p->first[0] != 0 || p->first[n] != m)
		return -EINVAL;
	for (int i = 0; i < n; i++) {
		if (p->first[i] > p->first[i + 1])
			return -EINVAL;
		some += p->first[i] < p->first[i + 1];
	}
	for (int64_t i = 0; p->used && i < choices; i++) {
		if (p->at[i] != DT_MOE_AWAY && (p->at[i] < 0 || p->at[i] >= m))
			return -EINVAL;
		here += p->at[i] != DT_MOE_AWAY;
	}
	return p->used && here != m ? -EINVAL : some;
}

/* Computes y of j, gated if gate is not 0 (lora.h). */
static int run_one(struct dt_dev *dev, struct job *j, int64_t gate)
{
	int rc;

	j->kernel = dt_quant_kernels();
	j->m = dt_rows(j->x);
	j->gated = gate;
	j->act = gate ? (enum dt_act_fn)(gate - 1) : j->act;
	rc = place(dev, j, 1);
	if (rc == 0)
		run(dev, j);
	return rc;
}

int dt_cpu_packed_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_packed *w, struct dt_tensor bias)
{
	struct job j = {.y = y, .x = x, .bias = bias, .w = w};

	return run_one(dev, &j, 0);
}

int dt_cpu_packed_gated(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
			struct dt_tensor bias, enum dt_act_fn f)
{
	struct job j = {.y = y, .x = x, .bias = bias, .w = w};

	return run_one(dev, &j, 1 + (int)f);
}

int dt_cpu_packed_lora(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
		       struct dt_tensor bias, int64_t gate, struct dt_tensor room,
		       const struct dt_lora_batch *p)
{
	const struct dt_lora_down down = dt_lora_down_of(x, room, p, dev->nthreads);
	struct job j = {.y = y, .x = x, .bias = bias, .w = w, .lora = &down};

	return run_one(dev, &j, gate);
}

int dt_cpu_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			     const struct dt_packed_set *s, const struct dt_meet *p)
{
	struct job j = {.y = y,
			.x = x,
			.w = s->w[0],
			.set = s,
			.meet = p,
			.kernel = dt_quant_kernels(),
			.m = dt_rows(y)};
	int rc = met(p, s->n, j.m, dt_rows(x) * p->used);

	if (rc > 0)
		rc = place(dev, &j, rc);
	if (rc == 0)
		run(dev, &j);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
