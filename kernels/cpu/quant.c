/*
 * Products with packed weights: x is quantised or rounded once (quant_operand.c), then threads compute tiles
 * of outputs (quant_share.c).
 */
#include "kernels/cpu/quant_job.h"

#include "kernels/moe.h"

#define GROUP DT_QUANT_GROUP
#define ROWS  DT_QUANT_MANY /* a multiple of the rows of every micro-kernel */
#define HALF  (GROUP / 2 * DT_PANEL)

/* tile = panels [p0, p0 + panels) of a part times rows of x from r0 on; prefetches the panels at next. */
static void multiply_part(const struct dt_quant_job *j, const struct dt_packed_part *part, float *tile,
			  int64_t p0, int64_t panels, const uint8_t *next, int64_t r0, int64_t rows)
{
	const int64_t blocks = j->w->blocks,
		      tiled = dt_is_float(part->format) ? 0 : dt_quant_tiled(&j->tiles, r0, rows);
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
static void adapt(const struct dt_quant_job *j, const struct dt_packed_part *part, float *tile, int64_t p0,
		  int64_t n, int64_t r0, int64_t rows)
{
	if (j->lora)
		dt_lora_up(tile, GROUP * DT_PANEL, j->lora->h, j->lora->p, r0, rows,
			   part->first + p0 * DT_PANEL, n, false);
}

void dt_quant_task(const struct dt_quant_job *j, const struct dt_packed_part *part, int64_t p0,
		   int64_t panels, const uint8_t *next, int64_t r0, int64_t rows)
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

/* Allocates the working memory of run, for products with `weights` weights; -ENOMEM. */
static int place(struct dt_dev *dev, struct dt_quant_job *j, int64_t weights)
{
	struct dt_packed_kind kind = {.k = j->w->k};
	struct dt_quant_room room;
	char *at;

	for (int i = 0; i < j->w->nparts; i++)
		dt_packed_kind_add(&kind, j->w->part[i].format);
	if (kind.quantised && j->kernel.tiled)
		j->tiles = (struct dt_quant_tiles){.n = j->set ? j->set->n : 1,
						   .m = j->m,
						   .first = j->set ? j->meet->first : NULL,
						   .blocks = j->w->blocks};
	j->ranges = j->set ? 0 : dt_quant_ranges(j->m, dev->nthreads);
	room = dt_quant_room(dev->nthreads, j->kernel.tiled, &kind, j->set ? j->set->n : 0, j->m);
	at = dt_cpu_scratch(dev, room.bytes);
	if (!at)
		return -ENOMEM;
	j->turn = (struct dt_quant_turn *)at;
	for (int64_t i = 0; i < weights * j->w->nparts * (j->ranges ? j->ranges : dev->nthreads); i++)
		atomic_init(&j->turn[i].taken, 0);
	j->state = (atomic_int *)(at + room.state);
	for (int i = 0; i < j->ranges; i++)
		atomic_init(&j->state[i], 0);
	dt_quant_tiles_lay(&j->tiles, at + room.tiles);
	j->f = kind.f32 ? (float *)(at + room.f) : NULL;
	j->h = kind.bf16 ? (uint16_t *)(at + room.h) : NULL;
	j->q = kind.quantised ? (int8_t *)at + room.q : NULL;
	j->xb = (struct dt_xblock *)(at + room.xb);
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
static int run_one(struct dt_dev *dev, struct dt_quant_job *j, int64_t gate)
{
	int rc;

	j->kernel = dt_quant_kernels();
	j->m = dt_rows(j->x);
	j->gated = gate;
	j->act = gate ? (enum dt_act_fn)(gate - 1) : j->act;
	rc = place(dev, j, 1);
	if (rc == 0)
		dt_quant_run(dev, j);
	return rc;
}

int dt_cpu_packed_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_packed *w, struct dt_tensor bias)
{
	struct dt_quant_job j = {.y = y, .x = x, .bias = bias, .w = w};

	return run_one(dev, &j, 0);
}

int dt_cpu_packed_gated(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
			struct dt_tensor bias, enum dt_act_fn f)
{
	struct dt_quant_job j = {.y = y, .x = x, .bias = bias, .w = w};

	return run_one(dev, &j, 1 + (int)f);
}

int dt_cpu_packed_lora(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
		       struct dt_tensor bias, int64_t gate, struct dt_tensor room,
		       const struct dt_lora_batch *p)
{
	const struct dt_lora_down down = dt_lora_down_of(x, room, p, dev->nthreads);
	struct dt_quant_job j = {.y = y, .x = x, .bias = bias, .w = w, .lora = &down};

	return run_one(dev, &j, gate);
}

int dt_cpu_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			     const struct dt_packed_set *s, const struct dt_meet *p)
{
	struct dt_quant_job j = {.y = y,
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
		dt_quant_run(dev, &j);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
