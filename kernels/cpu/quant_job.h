/* A product with packed weights (quant.c): its operands, and how its threads share it. */
#ifndef DT_KERNELS_CPU_QUANT_JOB_H
#define DT_KERNELS_CPU_QUANT_JOB_H

#include "kernels/cpu/lora.h"
#include "kernels/cpu/quant.h"

#include <stdatomic.h>

/* How many groups of panels of a share are taken; padded to a cache line. */
struct dt_quant_turn {
	_Alignas(64) atomic_llong taken;
};

struct dt_quant_job {
	struct dt_tensor y, x, bias;
	const struct dt_packed *w;	 /* the weight of all rows; for a set the first one */
	const struct dt_packed_set *set; /* NULL: no set */
	const struct dt_meet *meet;	 /* for a set: which weight each row uses */
	struct dt_quant_kernels kernel;
	int64_t m;
	/* [m, 32 blocks], with their struct dt_xblock; absent without quantised parts. Sixteen rows of one
	 * weight that are a tile may be in the tiles alone. */
	int8_t *q;
	struct dt_xblock *xb;
	struct dt_quant_tiles tiles; /* for AMX */
	uint16_t *h;		     /* [m, 32 blocks], absent without bf16 parts */
	float *f;		     /* likewise for f32 */
	int ranges;		     /* of rows, if threads share rows; 0: they share panels */
	atomic_int *state;	     /* [ranges], quant_share.c */
	struct dt_quant_turn *turn;  /* [weights with rows, parts, threads or ranges] */
	bool gated;		     /* packed_gated: pairs panels of the second part with those of the
				       * first */
	enum dt_act_fn act;
	const struct dt_lora_down *lora; /* adapters to add; NULL: none */
};

struct dt_quant_range {
	int64_t first, end;
};

/* Whether rows of x are quantised a tile at a time. In a set, rows of x go to several tiles. */
static inline bool dt_quant_by_tiles(const struct dt_quant_job *j)
{
	return j->kernel.tile && j->tiles.n && !j->set;
}
/* quant_operand.c: converts the rows of x from r on, at most DT_XTILE_ROWS; by tiles, r is a multiple of
 * it. */
void dt_quant_prepare(const struct dt_quant_job *j, int64_t r, int64_t rows);

/* quant.c: computes panels [p0, p0 + panels) of a part, at most dt_quant_group, for rows [r0, r0 + rows), at
 * most DT_QUANT_MANY; prefetches the panels at next. */
void dt_quant_task(const struct dt_quant_job *j, const struct dt_packed_part *part, int64_t p0,
		   int64_t panels, const uint8_t *next, int64_t r0, int64_t rows);
static inline int64_t dt_quant_group(const struct dt_quant_job *j)
{
	return j->gated ? DT_QUANT_GROUP / 2 : DT_QUANT_GROUP;
}

/* ---- scratch: inline, as streamed weights evict code from the caches ---- */

#define DT_QUANT_OWN  128 /* rows per thread from which threads share rows */
#define DT_QUANT_MOST 256 /* per range, about: others can help with a range once its rows are converted */

/* Number of ranges for m rows. */
static inline int dt_quant_ranges(int64_t m, int threads)
{
	return threads > 1 && m >= DT_QUANT_OWN * threads
		       ? threads * (int)dt_ceil_div(m, DT_QUANT_MOST * threads)
		       : 0;
}

/*
 * The most tiles that m rows of n weights fill (quant_tiles.c): a weight with rows in tiles has at least
 * DT_XTILES_FROM, and less than one tile is not full.
 */
static inline int64_t dt_quant_most_tiles(int64_t n, int64_t m)
{
	const int64_t weights = dt_min64(n, m / DT_XTILES_FROM);

	return weights ? (m + weights * (DT_XTILE_ROWS - 1)) / DT_XTILE_ROWS : 0;
}

static inline size_t dt_lines(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* Where each part of the scratch begins, and all of it. sets: 0, or the number of a set's weights. */
struct dt_quant_room {
	size_t state, tiles, f, h, q, xb, bytes;
};
static inline struct dt_quant_room dt_quant_room(int threads, bool tiled, const struct dt_packed_kind *w,
						 int sets, int64_t m)
{
	const int64_t blocks = dt_ceil_div(w->k, DT_QK), n = sets ? sets : 1;
	const int ranges = sets ? 0 : dt_quant_ranges(m, threads);
	const size_t cells = (size_t)(m * blocks),
		     turns = (size_t)(dt_min64(n, m) * w->parts * (ranges ? ranges : threads)),
		     tiles = w->quantised && tiled ? (size_t)(dt_quant_most_tiles(n, m) * dt_xtiles(blocks))
						   : 0;
	struct dt_quant_room r;

	r.state = turns * sizeof(struct dt_quant_turn);
	r.tiles = r.state + dt_lines((size_t)ranges * sizeof(atomic_int));
	r.f = r.tiles + (tiles ? tiles * sizeof(struct dt_xtile) + dt_lines((size_t)n * sizeof(int64_t)) : 0);
	r.h = r.f + (w->f32 ? cells * DT_QK * 4 : 0);
	r.q = r.h + (w->bf16 ? cells * DT_QK * 2 : 0);
	r.xb = r.q + (w->quantised ? dt_lines(cells * DT_QK) : 0);
	r.bytes = r.xb + (w->quantised ? cells * sizeof(struct dt_xblock) : 0);
	return r;
}

/* quant_share.c: the whole product. */
void dt_quant_run(struct dt_dev *dev, const struct dt_quant_job *j);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
