#include "plan/tiles.h"

#define TILE_MOST                                                                                            \
	(512 * 1024)	/* elements: with AdamW and masters 6 MiB, which disks move at their full rate */
#define TILE_ALIGN 4096 /* elements: of any type whole blocks of a disk */
#define TILES	   16	/* of a small model: a share of it may be offloaded, and the pipeline is full */
#define PIECE_MOST ((uint64_t)64 << 20) /* what checkpoints write at a time */

static int64_t round_up(int64_t n)
{
	return (n + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
}

/* Bytes of the largest parameter that is trained, as f32. */
static uint64_t largest(const struct dt_local *l)
{
	int64_t most = 0;

	for (int i = 0; i < l->n; i++)
		if (!l->unit[l->p[i].unit].frozen && l->p[i].numel > most)
			most = l->p[i].numel;
	return (uint64_t)most * sizeof(float);
}

struct dt_tiles dt_tiles_of(const struct dt_run *r, const struct dt_local *l)
{
	const struct dt_optim_rule *rule = dt_optim_rule(r->optim.kind);
	struct dt_tiles t = {.master = -1};

	if (!(r->offload.what & DT_OFFLOAD_OPTIMIZER) || r->offload.to != DT_PLACE_DISK)
		return t;
	t.numel = l->share_trained;
	if (r->compute != DT_F32 && !r->no_master) {
		t.master = 0;
		t.dtype[t.segments++] = DT_F32;
	}
	for (int i = 0; i < dt_optim_states(r->optim.kind); i++)
		t.dtype[t.segments++] = rule->state[i].dtype;
	t.each = round_up(t.numel / TILES + 1);
	if (t.each > TILE_MOST)
		t.each = TILE_MOST;
	for (int i = 0; i < t.segments; i++)
		t.at[i + 1] = t.at[i] + (uint64_t)t.each * dt_dtype_size(t.dtype[i]);
	t.n = (t.numel + t.each - 1) / t.each;
	t.kept = (int64_t)((double)t.n * (1 - r->offload.fraction) + 1e-9);
	t.piece_bytes = largest(l) < PIECE_MOST ? largest(l) : PIECE_MOST;
	return t;
}
/* SPDX-License-Identifier: Apache-2.0 */
