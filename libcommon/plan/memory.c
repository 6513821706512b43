#include "plan/context.h"
#include "plan/memory_priv.h"
#include "plan/outer.h"
#include "plan/states.h"

#include "base/arena.h"
#include "base/units.h"
#include "plan/tiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *dt_mem_cat_name(enum dt_mem_cat c)
{
	static const char *const name[DT_MEM_CAT_N] = {"weights",   "master",	   "gradients",
						       "optimizer", "activations", "logits",
						       "workspace", "data",	   "communication"};

	return name[c];
}

const char *dt_phase_name(enum dt_phase p)
{
	static const char *const name[DT_PH_N] = {"forward", "loss", "backward", "step"};

	return name[p];
}

/* Room for one more of n elements in each of some arrays. */
static bool grow(struct dt_plan_builder *b, int n, int *cap, void **p, const size_t *size, int arrays)
{
	int more = *cap ? 2 * *cap : 256;

	if (b->failed || n < *cap)
		return !b->failed;
	for (int i = 0; i < arrays; i++) {
		void *bigger = realloc(*(void **)p[i], (size_t)more * size[i]);

		if (!bigger) {
			b->failed = true;
			return false;
		}
		*(void **)p[i] = bigger;
	}
	*cap = more;
	return true;
}

int dt_plan_item(struct dt_plan_builder *b, enum dt_mem_cat cat, int first, int last)
{
	void *p[] = {&b->item, &b->cat, &b->place};
	const size_t size[] = {sizeof(*b->item), sizeof(*b->cat), sizeof(*b->place)};

	if (!grow(b, b->nitem, &b->item_cap, p, size, 3))
		return 0;
	b->item[b->nitem] = (struct dt_item){.span = {{first, last}}, .nspan = 1};
	b->cat[b->nitem] = cat;
	b->place[b->nitem] = DT_PLACE_DEVICE;
	return b->nitem++;
}

struct dt_buf *dt_plan_put(struct dt_plan_builder *b, struct dt_buf d, const char *name, int item,
			   uint64_t inner)
{
	struct dt_memory_plan *p = b->plan;
	void *arrays[] = {&p->buf, &b->item_of, &b->inner};
	const size_t size[] = {sizeof(*p->buf), sizeof(*b->item_of), sizeof(*b->inner)};
	int64_t layers = b->r->config->layers;

	if (!grow(b, p->n, &b->cap, arrays, size, 3))
		return NULL;
	d.bytes = dt_align_up((uint64_t)d.numel * (uint64_t)dt_dtype_size(d.dtype));
	if (d.layer == layers)
		snprintf(d.name, sizeof(d.name), "final.%s", name);
	else
		dt_layer_name(d.name, sizeof(d.name), d.layer < layers ? d.layer : -1, name);
	if (d.slot > 0) {
		size_t at = strlen(d.name);

		snprintf(d.name + at, sizeof(d.name) - at, " #%d", d.slot);
	}
	b->item_of[p->n] = item;
	b->inner[p->n] = inner;
	p->buf[p->n] = d;
	return &p->buf[p->n++];
}

/* A buffer of the rank as a whole, with an item of its own. */
static struct dt_buf *put_flat(struct dt_plan_builder *b, enum dt_buf_id id, enum dt_mem_cat cat,
			       enum dt_dtype dtype, int64_t numel, enum dt_phase first, enum dt_phase last,
			       int which, const char *name, const char *formula)
{
	struct dt_buf d = {.id = id,
			   .cat = cat,
			   .which = which,
			   .layer = -2,
			   .dtype = dtype,
			   .numel = numel,
			   .first = first,
			   .last = last,
			   .formula = formula};
	struct dt_buf *r;
	int item;

	if (numel == 0)
		return NULL;
	item = dt_plan_item(b, cat, first == DT_PH_STEP ? b->end : 0,
			    last == DT_PH_STEP ? b->end : b->end - 1);
	r = dt_plan_put(b, d, name, item, 0);
	if (r)
		b->item[item].bytes = r->bytes;
	return r;
}

/* The same elsewhere than where it is computed with. */
static void put_away(struct dt_plan_builder *b, enum dt_place place, enum dt_buf_id id, enum dt_mem_cat cat,
		     int64_t bytes, const char *name, const char *formula)
{
	struct dt_buf *d = put_flat(b, id, cat, DT_U8, bytes, DT_PH_FORWARD, DT_PH_STEP, -1, name, formula);

	if (d) {
		d->place = place;
		b->place[b->item_of[d - b->plan->buf]] = place;
	}
}

/*
 * Optimizer states and master weights in tiles. Those under way are there during the update, which
 * may be behind backward.
 */
static void put_tiles(struct dt_plan_builder *b, const struct dt_tiles *t)
{
	const enum dt_phase from = dt_run_updates_behind(b->r) ? DT_PH_FORWARD : DT_PH_STEP;
	const char *name = !t->states	     ? "tiles of weights"
			   : t->weights >= 0 ? "tiles of states and weights"
					     : "tiles of states";
	int64_t each = (int64_t)dt_tiles_bytes(t), away = t->n - t->kept;
	char in_file[40];

	put_flat(b, DT_B_TILES, t->states ? DT_MEM_OPTIM : DT_MEM_WEIGHTS, DT_U8, t->kept * each,
		 DT_PH_FORWARD, DT_PH_STEP, -1, name, "tiles that stay x bytes of a tile");
	snprintf(in_file, sizeof(in_file), "%s in a file", name);
	put_away(b, DT_PLACE_DISK, DT_B_TILES_FILE, t->states ? DT_MEM_OPTIM : DT_MEM_WEIGHTS, away * each,
		 in_file, "offloaded tiles x bytes of a tile");
	put_flat(b, DT_B_TILE_RING, DT_MEM_WORKSPACE, DT_U8,
		 (away < DT_TILE_RING ? away : DT_TILE_RING) * each + (away ? 4096 : 0), from, DT_PH_STEP, -1,
		 "tiles under way", "4 tiles, and 4096 bytes to begin at a block");
	put_flat(b, DT_B_TILE_PIECE, DT_MEM_WORKSPACE, DT_U8, (int64_t)t->piece_bytes, DT_PH_STEP, DT_PH_STEP,
		 -1, "between tiles and checkpoints", "largest parameter, 64 MiB at most");
}

/* State i of the optimizer: with a value an element as parameters are, else in whole rows and columns. */
static void put_state(struct dt_plan_builder *b, struct dt_coords at, int i, const struct dt_optim_state *s,
		      int64_t numel, const char *formula)
{
	static const enum dt_buf_id id[DT_OPTIM_STATES] = {DT_B_OPTIM1, DT_B_OPTIM2};
	const struct dt_stage *stage = &b->plan->stage;
	const struct dt_states of = {&stage->graph.params, &stage->local, &b->r->layout, at};
	char name[40];

	snprintf(name, sizeof(name), "optimizer state %d", i + 1);
	if (s->shape == DT_STATE_EACH) {
		put_flat(b, id[i], DT_MEM_OPTIM, s->dtype, numel, DT_PH_FORWARD, DT_PH_STEP, -1, name,
			 formula);
		return;
	}
	put_flat(b, id[i], DT_MEM_OPTIM, DT_U8, dt_states_place(&of, s, NULL), DT_PH_FORWARD, DT_PH_STEP, -1,
		 name, "rows, columns or blocks of local parameters");
}

/*
 * Where muon makes the largest matrix of the stage orthogonal: it, its next, and two squares of its
 * short side.
 */
static void put_whole(struct dt_plan_builder *b)
{
	const struct dt_stage *stage = &b->plan->stage;
	int64_t most = 0;

	for (int k = 0; k < stage->local.n && b->r->optim.kind == DT_OPTIM_MUON; k++) {
		const struct dt_param *p = &stage->graph.params.p[stage->local.p[k].index];
		int64_t side = p->shape[0] < p->shape[1] ? p->shape[0] : p->shape[1],
			n = 2 * dt_param_numel(p) + 2 * side * side;

		if (dt_param_is_hidden(p) && !p->frozen && n > most)
			most = n;
	}
	put_flat(b, DT_B_WHOLE, DT_MEM_WORKSPACE, DT_F32, most, DT_PH_STEP, DT_PH_STEP, -1,
		 "matrix to make orthogonal", "2 rows x columns + 2 x shorter^2, largest");
}

/* The share of the rank before, which this one updates too. */
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
			put_flat(b, row[i].id, row[i].cat, DT_F32, l->share_trained, DT_PH_FORWARD,
				 DT_PH_STEP, -1, row[i].name, "trained parameters / dp, of the rank before");
}

/* What ZeRO leaves of parameters, in words. */
static const char *share_of(const struct dt_layout *l, bool trained)
{
	static const char *const text[3][2] = {
		{"local parameters / dp", "trained parameters / dp"},
		{"local parameters / (dp x cp)", "trained parameters / (dp x cp)"},
		{"local parameters / (dp x cp), experts x ep",
		 "trained parameters / (dp x cp), experts x ep"}};

	return text[l->ep > 1 ? 2 : l->cp > 1][trained];
}

/* Weights for an engine that answers, where a rank has only parts of them; no activation lives beside it. */
static void put_drawn(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	const bool cut = s->layout.tp > 1, shared = dt_run_cuts_weights(s);
	int64_t unit = 0;

	for (int u = 0; u < l->nunit && cut && shared; u++)
		unit = l->unit[u].numel > unit ? l->unit[u].numel : unit;
	if (s->rl.task && (cut || shared))
		put_flat(b, DT_B_DRAWN, DT_MEM_COMM, s->compute,
			 cut ? dt_params_total(&b->plan->stage.graph.params) + unit : l->numel, DT_PH_STEP,
			 DT_PH_STEP, -1, "weights to draw with",
			 cut ? "all parameters, largest unit" : "all parameters");
}

/* Of what is frozen there are weights alone. */
static void put_states(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l,
		       struct dt_coords at)
{
	const struct dt_optim_rule *rule = dt_optim_rule(s->optim.kind);
	const struct dt_tiles tiles = dt_tiles_of(s, l);
	int zero = s->layout.zero;
	const char *whole = "local parameters", *part = share_of(&s->layout, false);

#define STATE(id, cat, dtype, when, name, all, share)                                                        \
	put_flat(b, id, cat, dtype, zero >= (when) ? (share) : (all), DT_PH_FORWARD, DT_PH_STEP, -1, name,   \
		 zero >= (when) ? part : whole)
	if (!dt_run_streams(s))
		STATE(DT_B_WEIGHTS, DT_MEM_WEIGHTS, s->compute, 3, "weights", l->numel, l->share);
	put_flat(b, DT_B_PACKED, DT_MEM_WEIGHTS, DT_U8, l->packed_bytes, DT_PH_FORWARD, DT_PH_STEP, -1,
		 "weights in blocks", "frozen linears");
	if (l->trained < l->numel) {
		whole = "trained parameters";
		part = share_of(&s->layout, true);
	}
	if (s->compute != DT_F32 && s->no_master)
		put_flat(b, DT_B_ROUND, DT_MEM_WORKSPACE, DT_F32, DT_ROUND_NUMEL, DT_PH_STEP, DT_PH_STEP, -1,
			 "values being updated", "fixed");
	else if (dt_run_masters(s) && tiles.master < 0)
		STATE(DT_B_MASTER, DT_MEM_MASTER, DT_F32, 1, "master", l->trained, l->share_trained);
	STATE(DT_B_GRADS, DT_MEM_GRADS, DT_F32, 2, "gradients", l->trained, l->share_trained);
	if (tiles.n)
		put_tiles(b, &tiles);
	for (int i = 0; i < dt_optim_states(s->optim.kind) && !tiles.states; i++)
		put_state(b, at, i, &rule->state[i], l->share_trained, zero >= 1 ? part : whole);
	if (s->sync.kind == DT_SYNC_DILOCO) {
		put_flat(b, DT_B_OUTER, DT_MEM_OPTIM, DT_F32, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "weights as last merged", whole);
		put_flat(b, DT_B_OUTER_M, DT_MEM_OPTIM, DT_F32, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "outer momentum", whole);
		put_flat(b, DT_B_OUTER_WIRE, DT_MEM_COMM, DT_U8,
			 (int64_t)dt_outer_wire(&s->sync, l, s->layout.dp), DT_PH_FORWARD, DT_PH_STEP, -1,
			 "outer gradients to send", "largest fragment as it is sent");
	}
	if (s->sync.kind == DT_SYNC_GOSSIP)
		put_flat(b, DT_B_OUTER, DT_MEM_COMM, DT_F32, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "weights of a neighbour", whole);
	put_flat(b, DT_B_SUMS, DT_MEM_GRADS, DT_F32,
		 s->sync.kind == DT_SYNC_SSP ? (s->sync.ahead + 1) * l->share_trained : 0, DT_PH_FORWARD,
		 DT_PH_STEP, -1, "sums of gradients", "(ssp + 1) x trained parameters / dp");
	put_flat(b, DT_B_CLOCKS, DT_MEM_COMM, DT_U8,
		 dt_run_served(s) ? DT_CLOCKS_ALL + DT_CLOCKS_RANK * s->layout.dp : 0, DT_PH_FORWARD,
		 DT_PH_STEP, -1, "clocks of ranks", "by ranks");
	if (s->ema > 0)
		STATE(DT_B_EMA, DT_MEM_OPTIM, DT_F32, 1, "averaged weights", l->trained, l->share_trained);
	put_peer(b, s, l);
	if (dt_run_reference_weights(s))
		STATE(DT_B_REFERENCE, DT_MEM_WEIGHTS, s->compute, 3, "weights of the reference", l->numel,
		      l->share);
	put_drawn(b, s, l);
	put_whole(b);
#undef STATE
	if (s->reproducible)
		put_flat(b, DT_B_FIXED, DT_MEM_GRADS, DT_I64, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "gradient sums", "trained parameters, i64");
	if (s->grad_comm == DT_BF16 && zero < 2)
		put_flat(b, DT_B_WIRE, DT_MEM_COMM, DT_BF16, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "gradients to send", whole);
}

/* Compressed gradients: what each rank has not sent yet, factors and messages. */
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
	put_flat(b, DT_B_KEPT, DT_MEM_GRADS, DT_F32, l->trained, DT_PH_FORWARD, DT_PH_STEP, -1,
		 "gradients not sent yet", "trained parameters");
	put_flat(b, DT_B_COMPRESS, DT_MEM_COMM, DT_U8, (int64_t)w.bytes, DT_PH_FORWARD, DT_PH_STEP, -1,
		 "compressed gradients", "by method");
}

/* Weights that come from a file: a unit's, or this rank's share of them, which is gathered then. */
static void put_fetched(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l, int slot,
			const char *unit)
{
	const struct dt_tiles tiles = dt_tiles_of(s, l);
	const bool cut = dt_run_cuts_weights(s);
	char name[40];

	snprintf(name, sizeof(name), "fetched %s, %s", cut ? "share" : "weights", unit);
	put_flat(b, cut ? DT_B_UNIT_SHARE : DT_B_UNIT_W, DT_MEM_WORKSPACE, DT_U8,
		 (int64_t)dt_tiles_slot_bytes(&tiles, s, l, slot), DT_PH_FORWARD, DT_PH_BACKWARD, slot, name,
		 "largest unit in whole parts of tiles, and 4096 bytes to begin at a block");
}

/*
 * What comes together for as long as a unit computes: weights (z3, offloaded) and gradients (z2, z3).
 */
static void put_units(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	static const char *const names[DT_UNIT_SLOTS] = {
		"unit a",	    "unit b",		"experts a",	    "experts b",
		"embedding",	    "final unit",	"frozen a",	    "frozen b",
		"frozen experts a", "frozen experts b", "frozen embedding", "frozen final",
		"packed a",	    "packed b",		"packed experts a", "packed experts b"};
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
			put_flat(b, DT_B_UNIT_W, k >= DT_UNIT_SLOT_PACKED ? DT_MEM_WORKSPACE : DT_MEM_COMM,
				 s->compute, most[k], DT_PH_FORWARD, DT_PH_BACKWARD, k, name, "largest unit");
		snprintf(name, sizeof(name), "unit gradients, %s", names[k]);
		if (k >= DT_UNIT_SLOT_FROZEN)
			continue;
		if (s->layout.zero >= 2)
			put_flat(b, DT_B_UNIT_G, DT_MEM_COMM, DT_F32, most[k], DT_PH_FORWARD, DT_PH_STEP, k,
				 name, "largest unit, f32");
		snprintf(name, sizeof(name), "gradients to send, %s", names[k]);
		if (s->layout.zero >= 2 && s->grad_comm == DT_BF16)
			put_flat(b, DT_B_WIRE, DT_MEM_COMM, DT_BF16, most[k], DT_PH_FORWARD, DT_PH_STEP, k,
				 name, "largest unit");
	}
}

/* What a rank writes of a checkpoint: of every unit its equal part, rounded up, of each kind of value. */
static void put_snapshot(struct dt_plan_builder *b, const struct dt_run *s, const struct dt_local *l)
{
	int64_t n = 0, frozen = 0;

	for (int u = 0; u < l->nunit; u++)
		*(l->unit[u].frozen ? &frozen : &n) +=
			l->unit[u].numel / dt_unit_copies(&s->layout, &l->unit[u]) + 1;
	n += dt_params_total(&b->plan->stage.graph.buffers);
	n *= dt_run_snapshot_kinds(s);
	if (n && !s->config->lora.rank) /* a base beside adapters is in no checkpoint */
		n += (frozen * dt_dtype_size(s->compute) + 3) / 4;
	if (n && dt_run_compresses(s)) /* each rank has its own, and factors are fewer than elements */
		n += 2 * l->trained;
	put_flat(b, DT_B_SNAPSHOT, DT_MEM_DATA, DT_F32, n, DT_PH_FORWARD, DT_PH_STEP, -1,
		 "checkpoint snapshot", "local parameters / dp, of each kind");
}

/* The same of images, and the state of batch norms. */
static void put_images(struct dt_plan_builder *b, const struct dt_run *r)
{
	const struct dt_config *c = r->config;
	const struct dt_memory_plan *p = b->plan;
	const int64_t n = r->microbatch, buffers = dt_params_total(&p->stage.graph.buffers);
	static const struct {
		enum dt_buf_id id;
		enum dt_dtype dtype;
		const char *name;
	} row[] = {{DT_B_TARGETS, DT_I32, "classes"},
		   {DT_B_OTHERS, DT_I32, "second classes"},
		   {DT_B_SHARE, DT_F32, "first classes' weights"}};

	for (int i = 0; i < p->flight0[1]; i++) {
		put_flat(b, DT_B_PIXELS, DT_MEM_DATA, DT_F32, n * c->channels * c->image_size * c->image_size,
			 DT_PH_FORWARD, DT_PH_STEP, i, "pixels", "images x channels x height x width");
		for (int k = 0; k < 3; k++)
			put_flat(b, row[k].id, DT_MEM_DATA, row[k].dtype, n, DT_PH_FORWARD, DT_PH_STEP, i,
				 row[k].name, "images");
	}
	put_flat(b, DT_B_BUFFERS, DT_MEM_WEIGHTS, DT_F32, buffers, DT_PH_FORWARD, DT_PH_STEP, -1,
		 "running statistics", "2 x channels of all batch norms");
	put_flat(b, DT_B_BUFFER_SUMS, DT_MEM_WORKSPACE, DT_F32, buffers, DT_PH_FORWARD, DT_PH_STEP, -1,
		 "statistics of the step", "2 x channels of all batch norms");
}

/* What the host hands in for every microbatch in flight, and tables that all share. */
static void put_data(struct dt_plan_builder *b, const struct dt_run *r, struct dt_coords at)
{
	const struct dt_config *c = r->config;
	const struct dt_memory_plan *p = b->plan;
	int64_t t = r->microbatch * dt_run_local_seq(r), angles = r->seq * dt_rope_dim(c),
		top_k = r->teacher.top_k;
	const struct dt_params *g = &p->stage.graph.params;
	bool first = at.pp == 0, last = at.pp == r->layout.pp - 1;

	for (int k = 0; k < p->stage.nchunk; k++)
		for (int i = p->flight0[k]; i < p->flight0[k + 1]; i++) {
			if (dt_run_apart(r)) {
				put_flat(b, DT_B_DOC_POS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP,
					 i, "positions in documents", "tokens");
				put_flat(b, DT_B_FIRST, DT_MEM_DATA, DT_I32, dt_context_firsts(r),
					 DT_PH_FORWARD, DT_PH_STEP, i, "first tokens of documents", "tokens");
			}
			if (!(first && k == 0) && !(last && k == p->stage.nchunk - 1))
				continue;
			put_flat(b, DT_B_IDS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, i, "ids",
				 "tokens");
			put_flat(b, DT_B_TARGETS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, i,
				 "targets", "tokens");
			if (!top_k || !last || k != p->stage.nchunk - 1)
				continue;
			put_flat(b, DT_B_TEACHER, DT_MEM_DATA, DT_I32, t * top_k, DT_PH_FORWARD, DT_PH_STEP,
				 i, "teacher's columns", "tokens x top_k");
			put_flat(b, DT_B_TEACHER_P, DT_MEM_DATA, DT_F32, t * (top_k + 1), DT_PH_FORWARD,
				 DT_PH_STEP, i, "teacher's probabilities", "tokens x (top_k + 1)");
		}
	put_flat(b, DT_B_POS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, -1, "positions", "tokens");
	if (c->pos == DT_POS_ROPE)
		put_flat(b, DT_B_ROPE, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "rope table", "seq x rotated part of head_dim");
	if (c->rope_local_theta > 0)
		put_flat(b, DT_B_ROPE_LOCAL, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "local rope table", "seq x head_dim");
	if (c->tied && r->layout.pp > 1 && (first || last) &&
	    !g->p[dt_params_find(g, "embed.weight")].frozen) {
		const int64_t *table = p->stage.shape[p->stage.local_of[dt_params_find(g, "embed.weight")]];

		put_flat(b, DT_B_TIED, DT_MEM_COMM, r->reproducible ? DT_I64 : DT_F32, table[0] * table[1],
			 DT_PH_STEP, DT_PH_STEP, -1, "tied embedding's other gradient",
			 "vocab x hidden, as summed");
	}
}

static bool alive(const struct dt_item *item, int time)
{
	for (int k = 0; k < item->nspan; k++)
		if (item->span[k].first <= time && item->span[k].last >= time)
			return true;
	return false;
}

/* Microbatches in flight of every chunk, from the schedule. */
static int count_flights(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *p,
			 struct dt_err *err)
{
	struct dt_schedule sched = {0};
	int rc = dt_run_schedule(r, &sched, err);

	for (int k = 0; k < p->stage.nchunk && rc == 0; k++) {
		p->slots[k] = dt_schedule_in_flight(&sched, at.pp, k);
		p->flight0[k + 1] = p->flight0[k] + p->slots[k];
	}
	dt_schedule_release(&sched);
	return rc;
}

/* Activations that leave memory, and room to pass through. */
static void put_activations(struct dt_plan_builder *b)
{
	const struct dt_memory_plan *p = b->plan;

	if (!p->naway)
		return;
	put_away(b, DT_PLACE_DISK, DT_B_AWAY, DT_MEM_ACTIVATIONS, (int64_t)p->away_bytes,
		 "activations in a file", "kept values of layers, but of the last two");
	put_flat(b, DT_B_AWAY_RING, DT_MEM_WORKSPACE, DT_U8,
		 (p->naway < DT_AWAY_RING ? p->naway : DT_AWAY_RING) * (int64_t)p->away_most + 4096,
		 DT_PH_FORWARD, DT_PH_BACKWARD, -1, "activations on their way", "8 of the largest");
}

/* Addresses of what lies in one place: items by themselves. */
static int place_one(struct dt_plan_builder *b, enum dt_place place, uint64_t *ret_bytes, uint64_t *ret_bound)
{
	struct dt_item *some = malloc(((size_t)b->nitem + 1) * sizeof(*some));
	int n = 0, rc = some ? 0 : -ENOMEM;

	for (int i = 0; i < b->nitem && rc == 0; i++)
		if (b->place[i] == place)
			some[n++] = b->item[i];
	if (rc == 0)
		rc = dt_place_items(some, n, ret_bytes, ret_bound);
	for (int i = b->nitem; i-- > 0 && rc == 0;)
		if (b->place[i] == place)
			b->item[i].offset = some[--n].offset;
	free(some);
	return rc;
}

/* Adds the values of the programs, and gives everything its address. */
static int place_all(struct dt_plan_builder *b, struct dt_err *err)
{
	struct dt_memory_plan *p = b->plan;
	int rc = dt_plan_values(b, err);

	put_activations(b);
	for (int place = 0; place < DT_PLACE_N && rc == 0 && !b->failed; place++) {
		uint64_t bound = 0;

		rc = place_one(b, (enum dt_place)place, &p->place_bytes[place], &bound);
		if (place == DT_PLACE_DEVICE)
			p->bound_bytes = bound;
	}
	p->arena_bytes = p->place_bytes[DT_PLACE_DEVICE];
	if (rc < 0 || b->failed || (rc = plan_account(b)) < 0)
		return dt_err_sys(err, rc < 0 ? rc : -ENOMEM, "cannot build the memory plan");
	for (int i = 0; i < p->n; i++) {
		p->buf[i].offset = b->item[b->item_of[i]].offset + b->inner[i];
		p->buf[i].at_peak = !p->buf[i].place && alive(&b->item[b->item_of[i]], b->peak_time);
	}
	dt_plan_value_offsets(b);
	return 0;
}

static int build(struct dt_plan_builder *b, struct dt_coords at, struct dt_err *err)
{
	struct dt_memory_plan *p = b->plan;

	for (int k = 0; k < p->stage.nchunk; k++)
		b->end += p->stage.chunk[k].nstep;
	put_states(b, b->r, &p->stage.local, at);
	put_compress(b, b->r, &p->stage.local);
	put_units(b, b->r, &p->stage.local);
	put_snapshot(b, b->r, &p->stage.local);
	if (dt_config_is_image(b->r->config))
		put_images(b, b->r);
	else
		put_data(b, b->r, at);
	return place_all(b, err);
}

static void release(struct dt_plan_builder *b)
{
	free(b->item);
	free(b->cat);
	free(b->place);
	free(b->item_of);
	free(b->inner);
	for (int k = 0; k < DT_MAX_CHUNKS; k++)
		free(b->value_item[k]);
}

int dt_plan_exactly(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *ret,
		    struct dt_err *err)
{
	struct dt_plan_builder b = {.plan = ret, .r = r};
	int rc;

	memset(ret, 0, sizeof(*ret));
	if ((rc = dt_run_check(r, err)) < 0 || (rc = dt_stage_build(r, at, &ret->stage, err)) < 0)
		return rc;
	rc = count_flights(r, at, ret, err);
	if (rc == 0)
		rc = build(&b, at, err);
	release(&b);
	if (rc < 0)
		dt_memory_plan_release(ret);
	return rc;
}

int dt_memory_plan(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *ret,
		   struct dt_err *err)
{
	struct dt_run chosen = *r;
	int rc = r->recompute.fit ? dt_plan_choose(&chosen, at, err) : 0;

	if (rc == 0)
		rc = dt_plan_exactly(&chosen, at, ret, err);
	if (rc == 0) {
		ret->recompute = chosen.recompute;
		ret->stay = chosen.offload.stay;
	}
	return rc;
}

int dt_memory_plan_serving(const struct dt_serving *s, int64_t positions, struct dt_memory_plan *ret,
			   struct dt_err *err)
{
	const struct dt_config *c = s->config;
	const struct dt_run r = {.config = c};
	struct dt_plan_builder b = {.plan = ret, .r = &r};
	int64_t angles = c->pos == DT_POS_ROPE ? positions * dt_rope_dim(c) : 0;
	int rc;

	memset(ret, 0, sizeof(*ret));
	rc = dt_stage_build_serving(s, &ret->stage, err);
	if (rc < 0)
		return rc;
	ret->slots[0] = ret->flight0[1] = 1;
	b.end = ret->stage.chunk[0].nstep;
	put_flat(&b, DT_B_ROPE, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP, -1, "rope table",
		 "positions x rotated part of head_dim");
	if (c->rope_local_theta > 0)
		put_flat(&b, DT_B_ROPE_LOCAL, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "local rope table", "positions x head_dim");
	rc = place_all(&b, err);
	release(&b);
	if (rc < 0)
		dt_memory_plan_release(ret);
	return rc;
}

void dt_memory_plan_release(struct dt_memory_plan *p)
{
	for (int k = 0; k < DT_MAX_CHUNKS; k++)
		free(p->value[k]);
	free(p->buf);
	free(p->away);
	dt_stage_release(&p->stage);
	memset(p, 0, sizeof(*p));
}

const struct dt_buf *dt_memory_find(const struct dt_memory_plan *p, enum dt_buf_id id, int which)
{
	for (int i = 0; i < p->n; i++)
		if (p->buf[i].id == id && p->buf[i].which == which)
			return &p->buf[i];
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
