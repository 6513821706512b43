/* Buffers of a training run besides its program's values: weights, states, gradients, data. */
#include "plan/context.h"
#include "plan/memory_priv.h"
#include "plan/outer.h"
#include "plan/states.h"

#include "plan/tiles.h"

#include <stdlib.h>
#include <string.h>

/*
 * Adds optimizer states and master weights in tiles. Tiles in transfer exist during the update, which may
 * overlap later phases.
 */
static void put_tiles(struct dt_plan_builder *b, const struct dt_tiles *t)
{
	const enum dt_phase from = dt_run_updates_behind(b->r) ? DT_PH_FORWARD : DT_PH_STEP;
	const char *piece = "between tiles and checkpoints", *of_piece = "largest parameter, 64 MiB at most";
	const char *name = !t->states	     ? "tiles of weights"
			   : t->weights >= 0 ? "tiles of states and weights"
					     : "tiles of states";
	int64_t each = (int64_t)dt_tiles_bytes(t), away = t->n - t->kept;
	const int64_t ring = (away < DT_TILE_RING ? away : DT_TILE_RING) * each;
	char elsewhere[40];

	dt_plan_flat(b, DT_B_TILES, t->states ? DT_MEM_OPTIM : DT_MEM_WEIGHTS, DT_U8, t->kept * each,
		     DT_PH_FORWARD, DT_PH_STEP, -1, name, "tiles that stay x bytes of a tile");
	snprintf(elsewhere, sizeof(elsewhere), "offloaded %s", name);
	dt_plan_elsewhere(b, b->r->offload.to, DT_B_TILES_AWAY, t->states ? DT_MEM_OPTIM : DT_MEM_WEIGHTS,
			  away * each, elsewhere, "offloaded tiles x bytes of a tile");
	dt_plan_flat(b, DT_B_TILE_RING, DT_MEM_WORKSPACE, DT_U8, ring + (away ? 4096 : 0), from, DT_PH_STEP,
		     -1, "tiles under way", "4 tiles + 4096 bytes of alignment");
	dt_plan_pinned(b, ring);
	dt_plan_on_host(b, DT_B_TILE_PIECE, DT_MEM_WORKSPACE, DT_U8, (int64_t)t->piece_bytes, DT_PH_STEP,
			piece, of_piece);
}

/*
 * Bytes of an optimizer state kept by row, column or block, for the data-parallel rank that has most: share
 * boundaries decide how many rows a rank touches, and every rank reserves the maximum.
 */
static int64_t most_places(const struct dt_plan_builder *b, struct dt_coords at,
			   const struct dt_optim_state *s)
{
	const struct dt_stage *stage = &b->plan->stage;
	const struct dt_layout *l = &b->r->layout;
	int64_t most = 0;

	for (int i = 0; i < (l->zero ? l->dp * l->cp : 1); i++) {
		const struct dt_coords one = {.dp = i / l->cp, .cp = i % l->cp, .tp = at.tp, .pp = at.pp};
		const struct dt_states of = {&stage->graph.params, &stage->local, l, l->zero ? one : at};
		const int64_t n = dt_states_place(&of, s, NULL);

		most = n > most ? n : most;
	}
	return most;
}

/*
 * Adds optimizer state i: sharded like parameters if it has a value for each element, else in whole rows and
 * columns.
 */
static void put_state(struct dt_plan_builder *b, struct dt_coords at, int i, const struct dt_optim_state *s,
		      int64_t numel, const char *formula)
{
	static const enum dt_buf_id id[DT_OPTIM_STATES] = {DT_B_OPTIM1, DT_B_OPTIM2};
	char name[40];

	snprintf(name, sizeof(name), "optimizer state %d", i + 1);
	if (s->shape == DT_STATE_EACH && dt_run_served(b->r)) {
		dt_plan_on_host(b, id[i], DT_MEM_OPTIM, s->dtype, numel, DT_PH_FORWARD, name, formula);
		return;
	}
	if (s->shape == DT_STATE_EACH) {
		dt_plan_flat(b, id[i], DT_MEM_OPTIM, s->dtype, numel, DT_PH_FORWARD, DT_PH_STEP, -1, name,
			     formula);
		return;
	}
	dt_plan_flat(b, id[i], DT_MEM_OPTIM, DT_U8, most_places(b, at, s), DT_PH_FORWARD, DT_PH_STEP, -1,
		     name, "rows, columns or blocks of local parameters");
}

/* Adds muon's workspace: of the stage's matrix that takes most, with what makes it orthogonal. */
static void put_whole(struct dt_plan_builder *b)
{
	const struct dt_stage *stage = &b->plan->stage;
	const enum dt_dtype t = dt_whole_type(b->r->compute);
	int64_t most = 0;

	for (int k = 0; k < stage->local.n && b->r->optim.kind == DT_OPTIM_MUON; k++) {
		const struct dt_param *p = &stage->graph.params.p[stage->local.p[k].index];
		const int64_t n = dt_param_numel(p) + dt_whole_room(p->shape[0], p->shape[1], t) / 4;

		if (dt_param_is_hidden(p) && !p->frozen && n > most)
			most = n;
	}
	dt_plan_flat(b, DT_B_WHOLE, DT_MEM_WORKSPACE, DT_F32, most, DT_PH_STEP, DT_PH_STEP, -1,
		     "matrix to make orthogonal",
		     t == DT_F32 ? "2 rows x columns + 2 x shorter^2, largest"
				 : "2 rows x columns + shorter^2, largest");
}

/* Adds buffers for the previous rank's share, which this rank updates too. */
static void put_peer(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	const int states = dt_optim_states(s->optim.kind);
	const struct {
		enum dt_buf_id id;
		enum dt_mem_cat cat;
		bool kept;
		const char *name;
	} row[] = {{DT_B_PEER_GRADS, DT_MEM_GRADS, true, "peer's gradients"},
		   {DT_B_PEER_MASTER, DT_MEM_MASTER, true, "peer's master"},
		   {DT_B_PEER_OPTIM1, DT_MEM_OPTIM, states > 0, "peer's optimizer state 1"},
		   {DT_B_PEER_OPTIM2, DT_MEM_OPTIM, states > 1, "peer's optimizer state 2"}};

	for (int i = 0; i < 4 && dt_run_copies_peer(s); i++)
		if (row[i].kept)
			dt_plan_flat(b, row[i].id, row[i].cat, DT_F32, l->share_trained, DT_PH_FORWARD,
				     DT_PH_STEP, -1, row[i].name,
				     "trained parameters / dp, of the previous rank");
}

/* A rank's part of parameters under ZeRO, in words. */
static const char *share_of(const struct dt_layout *l, bool trained)
{
	static const char *const text[3][2] = {
		{"local parameters / dp", "trained parameters / dp"},
		{"local parameters / (dp x cp)", "trained parameters / (dp x cp)"},
		{"local parameters / (dp x cp), experts x ep",
		 "trained parameters / (dp x cp), experts x ep"}};

	return text[l->ep > 1 ? 2 : l->cp > 1][trained];
}

/*
 * Adds weights for an engine that samples answers, if a rank has only parts of them; activations do not
 * coexist with it.
 */
static void put_drawn(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	const bool cut = s->layout.tp > 1, shared = dt_run_cuts_weights(s);
	int64_t unit = 0;

	for (int u = 0; u < l->nunit && cut && shared; u++)
		unit = l->unit[u].numel > unit ? l->unit[u].numel : unit;
	if (s->rl.task && (cut || shared))
		dt_plan_flat(b, DT_B_DRAWN, DT_MEM_COMM, s->compute,
			     cut ? dt_params_total(&b->plan->stage.graph.params) + unit : l->numel,
			     DT_PH_STEP, DT_PH_STEP, -1, "weights to draw with",
			     cut ? "all parameters, largest unit" : "all parameters");
}

/* Adds diloco's outer gradients for sending; e3m0 is encoded on the CPU, unit by unit. */
static void put_outer(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	const bool e3m0 = s->sync.comm == DT_OUTER_E3M0;
	const int64_t bytes = (int64_t)dt_outer_wire(&s->sync, s->config, l, s->layout.dp);
	const char *name = "outer gradients to send", *formula = "largest fragment in the type it is sent in";
	int64_t most = 0;

	for (int u = 0; u < l->nunit && e3m0 && s->on_card; u++)
		if (!l->unit[u].frozen && l->unit[u].numel > most)
			most = l->unit[u].numel;
	if (e3m0)
		dt_plan_on_host(b, DT_B_OUTER_WIRE, DT_MEM_COMM, DT_U8, bytes, DT_PH_FORWARD, name, formula);
	else
		dt_plan_flat(b, DT_B_OUTER_WIRE, DT_MEM_COMM, DT_U8, bytes, DT_PH_FORWARD, DT_PH_STEP, -1,
			     name, formula);
	dt_plan_on_host(b, DT_B_ON_HOST, DT_MEM_COMM, DT_F32, most, DT_PH_STEP, "outer gradients of a unit",
			"largest unit");
}

/* Adds the servers' states and their messages; for GPUs these are in host memory. */
static void put_served(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	const char *share = "trained parameters / servers", *all = "trained parameters";

	dt_plan_on_host(b, DT_B_SUMS, DT_MEM_GRADS, DT_F32,
			s->sync.kind == DT_SYNC_SSP ? (s->sync.ahead + 1) * l->share_trained : 0,
			DT_PH_FORWARD, "sums of gradients", "(ssp + 1) x trained parameters / servers");
	dt_plan_on_host(b, DT_B_CLOCKS, DT_MEM_COMM, DT_U8, DT_CLOCKS_ALL + DT_CLOCKS_RANK * s->layout.dp,
			DT_PH_FORWARD, "clocks of ranks", "depends on the ranks");
	if (dt_run_served_by_messages(s)) {
		dt_plan_on_host(b, DT_B_GIVEN, DT_MEM_COMM, DT_F32, l->share_trained, DT_PH_FORWARD,
				"gradients from a rank", share);
		dt_plan_on_host(b, DT_B_ASKED, DT_MEM_COMM, s->compute, l->share_trained, DT_PH_FORWARD,
				"weights to a rank", share);
	}
	if (s->on_card) {
		dt_plan_on_host(b, DT_B_ON_HOST, DT_MEM_COMM, DT_F32, l->trained, DT_PH_FORWARD,
				"gradients of the GPU", all);
		dt_plan_on_host(b, DT_B_TO_CARD, DT_MEM_COMM, s->compute, l->trained, DT_PH_FORWARD,
				"weights to the GPU", all);
	}
}

static void put_sync(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l,
		     const char *whole)
{
	if (s->sync.kind == DT_SYNC_DILOCO) {
		dt_plan_flat(b, DT_B_OUTER, DT_MEM_OPTIM, DT_F32, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			     "weights as last merged", whole);
		dt_plan_flat(b, DT_B_OUTER_M, DT_MEM_OPTIM, DT_F32, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			     "outer momentum", whole);
		put_outer(b, s, l);
	}
	if (s->sync.kind == DT_SYNC_GOSSIP)
		dt_plan_flat(b, DT_B_OUTER, DT_MEM_COMM, DT_F32, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			     "weights of a neighbour", whole);
	if (dt_run_served(s))
		put_served(b, s, l);
}

/* Adds host memory for a re-forming trainer's old state, as a GPU has room for only one trainer. */
static void put_carried(struct dt_plan_builder *b)
{
	int64_t bytes = 0;

	for (int i = 0; i < b->plan->n; i++)
		for (int k = 0; k < DT_MEMORY_CARRIED; k++)
			bytes += b->plan->buf[i].id == dt_memory_carried[k] ? (int64_t)b->plan->buf[i].bytes
									    : 0;
	if (b->r->watch.elastic && b->r->on_card)
		dt_plan_elsewhere(b, DT_PLACE_HOST, DT_B_CARRIED, DT_MEM_WEIGHTS, bytes,
				  "state while ranks re-form", "weights, masters, states and copies");
}

/* Adds weights and their training states; frozen tensors have only weights. */
static void put_states(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l,
		       struct dt_coords at)
{
	const struct dt_optim_rule *rule = dt_optim_rule(s->optim.kind);
	const struct dt_tiles tiles = dt_tiles_of(s, l);
	int zero = s->layout.zero;
	const char *whole = "local parameters", *part = share_of(&s->layout, false);

#define STATE(id, cat, dtype, when, name, all, share)                                                        \
	dt_plan_flat(b, id, cat, dtype, zero >= (when) ? (share) : (all), DT_PH_FORWARD, DT_PH_STEP, -1,     \
		     name, zero >= (when) ? part : whole)
	if (!dt_run_streams(s))
		STATE(DT_B_WEIGHTS, DT_MEM_WEIGHTS, s->compute, 3, "weights", l->numel, l->share);
	dt_plan_flat(b, DT_B_PACKED, DT_MEM_WEIGHTS, DT_U8, l->packed_bytes, DT_PH_FORWARD, DT_PH_STEP, -1,
		     "weights in blocks", "frozen linears");
	if (l->trained < l->numel) {
		whole = "trained parameters";
		part = share_of(&s->layout, true);
	}
	if (s->compute != DT_F32 && s->no_master)
		dt_plan_flat(b, DT_B_ROUND, DT_MEM_WORKSPACE, DT_F32, DT_ROUND_NUMEL, DT_PH_STEP, DT_PH_STEP,
			     -1, "values being updated", "fixed");
	else if (dt_run_served(s))
		dt_plan_on_host(b, DT_B_MASTER, DT_MEM_MASTER, DT_F32, l->share_trained, DT_PH_FORWARD,
				"master", part);
	else if (dt_run_masters(s) && tiles.master < 0)
		STATE(DT_B_MASTER, DT_MEM_MASTER, DT_F32, 1, "master", l->trained, l->share_trained);
	STATE(DT_B_GRADS, DT_MEM_GRADS, DT_F32, 2, "gradients", l->trained, l->share_trained);
	if (tiles.n)
		put_tiles(b, &tiles);
	for (int i = 0; i < dt_optim_states(s->optim.kind) && !tiles.states; i++)
		put_state(b, at, i, &rule->state[i], l->share_trained, zero >= 1 ? part : whole);
	put_sync(b, s, l, whole);
	if (s->ema > 0)
		STATE(DT_B_EMA, DT_MEM_OPTIM, DT_F32, 1, "averaged weights", l->trained, l->share_trained);
	put_peer(b, s, l);
	if (dt_run_reference_weights(s))
		STATE(DT_B_REFERENCE, DT_MEM_WEIGHTS, s->compute, 3, "weights of the reference", l->numel,
		      l->share);
	put_drawn(b, s, l);
	put_whole(b);
	if (dt_run_parts_directions(s))
		STATE(DT_B_DIRECTION, DT_MEM_GRADS, DT_F32, 1, "update directions", l->trained,
		      l->share_trained);
	put_carried(b);
#undef STATE
	if (s->reproducible)
		dt_plan_flat(b, DT_B_FIXED, DT_MEM_GRADS, DT_I64, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			     "gradient sums", "trained parameters, i64");
	if (s->grad_comm == DT_BF16 && zero < 2)
		dt_plan_flat(b, DT_B_WIRE, DT_MEM_COMM, DT_BF16, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			     "gradients to send", whole);
}

/* Adds buffers of compressed gradients: each rank's unsent residual, factors and messages. */
static void put_compress(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	struct dt_compress_part *part =
		dt_run_compresses(s) ? malloc(((size_t)l->n + 1) * sizeof(*part)) : NULL;
	struct dt_compress_work w;

	if (!dt_run_compresses(s))
		return;
	b->failed |= !part;
	if (!part)
		return;
	dt_compress_work(&s->compress.o, part,
			 dt_compress_parts(&s->compress.o, &b->plan->stage.graph.params, l, part),
			 s->layout.dp, &w);
	free(part);
	dt_plan_on_host(b, DT_B_KEPT, DT_MEM_GRADS, DT_F32, l->trained, DT_PH_FORWARD,
			"gradients not sent yet", "trained parameters");
	dt_plan_on_host(b, DT_B_COMPRESS, DT_MEM_COMM, DT_U8, (int64_t)w.bytes, DT_PH_FORWARD,
			"compressed gradients", "depends on the method");
	if (s->on_card)
		dt_plan_on_host(b, DT_B_ON_HOST, DT_MEM_COMM, DT_F32, l->trained, DT_PH_FORWARD,
				"gradients of the GPU", "trained parameters");
}

/* Adds buffers for offloaded weights: a whole unit's, or this rank's share, which is then all-gathered. */
static void put_fetched(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l, int slot,
			const char *unit)
{
	const struct dt_tiles tiles = dt_tiles_of(s, l);
	const bool cut = dt_run_cuts_weights(s);
	const int64_t bytes = (int64_t)dt_tiles_slot_bytes(&tiles, s, l, slot);
	char name[40];

	snprintf(name, sizeof(name), "fetched %s, %s", cut ? "share" : "weights", unit);
	dt_plan_flat(b, cut ? DT_B_UNIT_SHARE : DT_B_UNIT_W, DT_MEM_WORKSPACE, DT_U8, bytes, DT_PH_FORWARD,
		     DT_PH_BACKWARD, slot, name,
		     "largest unit in whole tile parts + 4096 bytes of alignment");
	dt_plan_pinned(b, bytes);
}

/* Adds buffers for weights (z3, offload) and gradients (z2, z3) that are whole only while a unit computes. */
static void put_units(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	static const char *const names[DT_UNIT_SLOTS] = {"unit a",	     "unit b",
							 "experts a",	     "experts b",
							 "embedding",	     "final unit",
							 "final experts",    "frozen a",
							 "frozen b",	     "frozen experts a",
							 "frozen experts b", "frozen embedding",
							 "frozen final",     "frozen final experts",
							 "packed a",	     "packed b",
							 "packed experts a", "packed experts b"};
	int64_t most[DT_UNIT_SLOTS] = {0};

	for (int u = 0; u < l->nunit; u++) {
		int slot = dt_unit_slot(l, u, s->config->layers);

		if (l->unit[u].numel > most[slot])
			most[slot] = l->unit[u].numel;
	}
	for (int k = 0; k < DT_UNIT_SLOTS; k++) {
		char name[40];

		snprintf(name, sizeof(name), "gathered weights, %s", names[k]);
		if (k >= DT_UNIT_SLOT_PACKED)
			snprintf(name, sizeof(name), "unpacked weights, %s", names[k] + strlen("packed "));
		if (dt_run_streams(s) && k < DT_UNIT_SLOT_FROZEN)
			put_fetched(b, s, l, k, names[k]);
		if (dt_run_cuts_weights(s) || k >= DT_UNIT_SLOT_PACKED)
			dt_plan_flat(b, DT_B_UNIT_W,
				     k >= DT_UNIT_SLOT_PACKED ? DT_MEM_WORKSPACE : DT_MEM_COMM, s->compute,
				     most[k], DT_PH_FORWARD, DT_PH_BACKWARD, k, name, "largest unit");
		snprintf(name, sizeof(name), "unit gradients, %s", names[k]);
		if (k >= DT_UNIT_SLOT_FROZEN)
			continue;
		if (s->layout.zero >= 2)
			dt_plan_flat(b, DT_B_UNIT_G, DT_MEM_COMM, DT_F32, most[k], DT_PH_FORWARD, DT_PH_STEP,
				     k, name, "largest unit, f32");
		snprintf(name, sizeof(name), "gradients to send, %s", names[k]);
		if (s->layout.zero >= 2 && s->grad_comm == DT_BF16)
			dt_plan_flat(b, DT_B_WIRE, DT_MEM_COMM, DT_BF16, most[k], DT_PH_FORWARD, DT_PH_STEP,
				     k, name, "largest unit");
	}
}

/*
 * Adds the buffer of a checkpoint write: this rank's equal part of each unit, rounded up, for each kind of
 * value.
 */
static void put_snapshot(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	int64_t n = 0, frozen = 0;

	for (int u = 0; u < l->nunit; u++)
		*(l->unit[u].frozen ? &frozen : &n) +=
			l->unit[u].numel / dt_unit_copies(&s->layout, &l->unit[u]) + 1;
	n += dt_params_total(&b->plan->stage.graph.buffers);
	n *= dt_run_snapshot_kinds(s);
	if (n && !s->config->lora.rank) /* with adapters the base is in no checkpoint */
		n += (frozen * dt_dtype_size(s->compute) + 3) / 4;
	if (n && dt_run_compresses(s)) /* each rank writes its own, and factors have fewer elements */
		n += 2 * l->trained;
	dt_plan_flat(b, DT_B_SNAPSHOT, DT_MEM_DATA, DT_F32, n, DT_PH_FORWARD, DT_PH_STEP, -1,
		     "checkpoint snapshot", "local parameters / dp, of each kind");
}

void dt_plan_run_buffers(struct dt_plan_builder *b, struct dt_coords at)
{
	const struct dt_local *l = &b->plan->stage.local;

	put_states(b, b->r, l, at);
	put_compress(b, b->r, l);
	put_units(b, b->r, l);
	put_snapshot(b, b->r, l);
	dt_plan_data_buffers(b, at);
}
/* SPDX-License-Identifier: Apache-2.0 */
