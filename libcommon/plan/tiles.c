#include "plan/tiles.h"

#define TILE_MOST  (512 * 1024) /* elements: with AdamW and masters 6 MiB, enough for a disk's full rate */
#define TILE_ALIGN 4096		/* elements: whole disk blocks for any type */
#define UNIT_ALIGN 16384	/* elements, when units are read: a 16-bit segment is then whole blocks */
#define BLOCK	   4096
/* minimum of tiles of a small model, so that a share can be offloaded and the pipeline filled */
#define TILES	   16
#define PIECE_MOST ((uint64_t)64 << 20) /* most that checkpoints write at a time */

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

/* Bytes of the largest trained parameter, as f32. */
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
	const bool optim = r->offload.what & DT_OFFLOAD_OPTIMIZER, weights = dt_run_streams(r),
		   apart = dt_run_masters(r);
	struct dt_tiles t = {.master = -1, .weights = -1};

	if (!optim && !weights)
		return t;
	t.numel = l->share_trained;
	if (apart ? optim : weights) {
		t.master = 0;
		t.dtype[t.segments++] = apart ? DT_F32 : r->compute;
	}
	for (int i = 0; i < dt_optim_states(r->optim.kind) && optim; i++)
		t.dtype[t.segments++] = rule->state[i].dtype;
	t.states = optim;
	if (weights && !apart)
		t.weights = 0;
	if (weights && apart) {
		t.weights = t.segments;
		t.dtype[t.segments++] = r->compute;
	}
	t.each = round_up(t.numel / TILES + 1, weights ? UNIT_ALIGN : TILE_ALIGN);
	if (t.each > TILE_MOST)
		t.each = TILE_MOST;
	for (int i = 0; i < t.segments; i++)
		t.at[i + 1] = t.at[i] + (uint64_t)t.each * dt_dtype_size(t.dtype[i]);
	t.n = (t.numel + t.each - 1) / t.each;
	t.kept = (int64_t)((double)t.n * (1 - r->offload.fraction) + 1e-9);
	t.piece_bytes = largest(l) < PIECE_MOST ? largest(l) : PIECE_MOST;
	return t;
}

uint64_t dt_tiles_slot_bytes(const struct dt_tiles *t, const struct dt_run *r, const struct dt_local *l,
			     int slot)
{
	int64_t most = 0;

	for (int u = 0; u < l->nunit; u++) {
		const struct dt_local_unit *unit = &l->unit[u];
		int64_t from, to;

		if (unit->frozen || unit->packed || dt_unit_slot(l, u, r->config->layers) != slot)
			continue;
		dt_tiles_parts(t, r->layout.zero ? unit->share_trained : unit->trained,
			       r->layout.zero ? unit->share : unit->numel, &from, &to);
		most = to - from > most ? to - from : most;
	}
	return most ? (uint64_t)most * (uint64_t)dt_dtype_size(r->compute) + BLOCK : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
