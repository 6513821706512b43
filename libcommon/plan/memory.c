#include "plan/memory.h"

#include "base/arena.h"
#include "plan/fp8.h"

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

struct builder {
	struct dt_memory_plan *plan;
	struct dt_coords at;
	int cap;
	bool failed;
};

/* Adds b's buffer d: name, bytes and place are worked out here. */
static void put(struct builder *b, struct dt_buf d, const char *name)
{
	struct dt_memory_plan *p = b->plan;

	if (d.numel == 0 || b->failed)
		return;
	if (p->n == b->cap) {
		int cap = b->cap ? 2 * b->cap : 256;
		struct dt_buf *bigger = realloc(p->buf, (size_t)cap * sizeof(*bigger));

		if (!bigger) {
			b->failed = true;
			return;
		}
		p->buf = bigger;
		b->cap = cap;
	}
	d.bytes = dt_align_up((uint64_t)d.numel * (uint64_t)dt_dtype_size(d.dtype));
	if (d.layer >= 0 && d.slot > 0)
		snprintf(d.name, sizeof(d.name), "layers.%d.%s #%d", d.layer, name, d.slot);
	else if (d.layer >= 0)
		snprintf(d.name, sizeof(d.name), "layers.%d.%s", d.layer, name);
	else if (d.slot > 0)
		snprintf(d.name, sizeof(d.name), "%s #%d", name, d.slot);
	else
		snprintf(d.name, sizeof(d.name), "%s", name);
	p->buf[p->n++] = d;
}

/* A buffer that belongs to no layer. */
static void put_flat(struct builder *b, enum dt_buf_id id, enum dt_mem_cat cat, enum dt_dtype dtype,
		     int64_t numel, enum dt_phase first, enum dt_phase last, int slot, const char *name,
		     const char *formula)
{
	put(b,
	    (struct dt_buf){.id = id,
			    .cat = cat,
			    .layer = -1,
			    .act = -1,
			    .slot = slot,
			    .dtype = dtype,
			    .numel = numel,
			    .first = first,
			    .last = last,
			    .formula = formula},
	    name);
}

static void put_states(struct builder *b, const struct dt_run *s, int64_t numel)
{
	int states = dt_optim_states(s->optim.kind), zero = s->layout.zero;
	int64_t share = zero ? numel / s->layout.dp : numel;
	const char *whole = "local parameters", *part = zero ? "local parameters / dp" : whole;

#define STATE(id, cat, dtype, when, name)                                                                    \
	put_flat(b, id, cat, dtype, zero >= (when) ? share : numel, DT_PH_FORWARD, DT_PH_STEP, -1, name,     \
		 zero >= (when) ? part : whole)
	STATE(DT_B_WEIGHTS, DT_MEM_WEIGHTS, s->compute, 3, "weights");
	if (s->compute != DT_F32 && s->no_master)
		put_flat(b, DT_B_ROUND, DT_MEM_WORKSPACE, DT_F32, DT_ROUND_NUMEL, DT_PH_STEP, DT_PH_STEP, -1,
			 "values being updated", "fixed");
	else if (s->compute != DT_F32)
		STATE(DT_B_MASTER, DT_MEM_MASTER, DT_F32, 1, "master");
	STATE(DT_B_GRADS, DT_MEM_GRADS, DT_F32, 2, "gradients");
	if (states >= 1)
		STATE(DT_B_OPTIM1, DT_MEM_OPTIM, DT_F32, 1, "optimizer state 1");
	if (states >= 2)
		STATE(DT_B_OPTIM2, DT_MEM_OPTIM, DT_F32, 1, "optimizer state 2");
#undef STATE
	if (s->reproducible)
		put_flat(b, DT_B_FIXED, DT_MEM_GRADS, DT_I64, numel, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "gradient sums", "local parameters, i64");
	if (s->grad_comm == DT_BF16 && zero < 2)
		put_flat(b, DT_B_WIRE, DT_MEM_COMM, DT_BF16, numel, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "gradients to send", "local parameters");
}

int dt_unit_slot(const struct dt_local *l, int u, int64_t layers)
{
	int layer = l->unit[u].layer;

	if (layer < 0)
		return DT_UNIT_SLOT_EMBED;
	if (layer == layers)
		return DT_UNIT_SLOT_FINAL;
	return (u - (l->unit[0].layer < 0)) % 2;
}

/* What ZeRO brings together for as long as a unit computes: weights (z3) and gradients (z2, z3). */
static void put_units(struct builder *b, const struct dt_run *s, const struct dt_local *l)
{
	static const char *const names[] = {"unit a", "unit b", "embedding", "final unit"};
	int64_t most[DT_UNIT_SLOTS] = {0};

	for (int u = 0; u < l->nunit; u++) {
		int slot = dt_unit_slot(l, u, s->config->layers);

		if (l->unit[u].numel > most[slot])
			most[slot] = l->unit[u].numel;
	}
	for (int k = 0; k < DT_UNIT_SLOTS; k++) {
		char name[40];

		snprintf(name, sizeof(name), "gathered weights, %s", names[k]);
		if (s->layout.zero >= 3)
			put(b,
			    (struct dt_buf){.id = DT_B_UNIT_W,
					    .cat = DT_MEM_COMM,
					    .layer = -1,
					    .act = k,
					    .slot = -1,
					    .dtype = s->compute,
					    .numel = most[k],
					    .first = DT_PH_FORWARD,
					    .last = DT_PH_BACKWARD,
					    .formula = "largest unit"},
			    name);
		snprintf(name, sizeof(name), "unit gradients, %s", names[k]);
		if (s->layout.zero >= 2)
			put(b,
			    (struct dt_buf){.id = DT_B_UNIT_G,
					    .cat = DT_MEM_COMM,
					    .layer = -1,
					    .act = k,
					    .slot = -1,
					    .dtype = DT_F32,
					    .numel = most[k],
					    .first = DT_PH_FORWARD,
					    .last = DT_PH_STEP,
					    .formula = "largest unit, f32"},
			    name);
		snprintf(name, sizeof(name), "gradients to send, %s", names[k]);
		if (s->layout.zero >= 2 && s->grad_comm == DT_BF16)
			put(b,
			    (struct dt_buf){.id = DT_B_WIRE,
					    .cat = DT_MEM_COMM,
					    .layer = -1,
					    .act = k,
					    .slot = -1,
					    .dtype = DT_BF16,
					    .numel = most[k],
					    .first = DT_PH_FORWARD,
					    .last = DT_PH_STEP,
					    .formula = "largest unit"},
			    name);
	}
}

/* What a rank writes of a checkpoint: of every unit its dp-th part, rounded up, of each kind of value. */
static void put_snapshot(struct builder *b, const struct dt_run *s, const struct dt_local *l)
{
	int64_t n = 0;

	for (int u = 0; u < l->nunit; u++)
		n += l->unit[u].numel / s->layout.dp + 1;
	put_flat(b, DT_B_SNAPSHOT, DT_MEM_DATA, DT_F32, n * dt_run_snapshot_kinds(s), DT_PH_FORWARD,
		 DT_PH_STEP, -1, "checkpoint snapshot", "local parameters / dp, of each kind");
}

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Tokens whose residual stream one rank holds. */
static int64_t stream_tokens(const struct dt_run *s)
{
	int64_t t = s->microbatch * s->seq;

	return s->layout.seq_parallel ? t / s->layout.tp : t;
}

static int64_t act_numel(const struct dt_run *s, const struct dt_activation *a)
{
	return (dt_activation_on_stream(a->id) ? stream_tokens(s) : s->microbatch * s->seq) * a->per_token;
}

void dt_linear_widths(const struct dt_config *c, const struct dt_local_dims *d, int64_t in[DT_STASH_N],
		      int64_t out[DT_STASH_N])
{
	in[DT_S_DOWN] = d->ffn;
	in[DT_S_O] = d->heads * c->head_dim;
	in[DT_S_UP] = in[DT_S_QKV] = c->hidden;
	out[DT_S_DOWN] = out[DT_S_O] = c->hidden;
	out[DT_S_UP] = (c->gated ? 2 : 1) * d->ffn;
	out[DT_S_QKV] = d->qkv;
}

/* number: of the layer in its chunk. */
static void put_layer(struct builder *b, const struct dt_run *s, const struct dt_local_dims *d, bool split,
		      int layer, int number, int slot)
{
	static const char *const stash[DT_STASH_N] = {"d.down", "d.up", "d.o", "d.qkv"};
	int64_t tokens = s->microbatch * s->seq, in[DT_STASH_N], width[DT_STASH_N];
	struct dt_activation act[DT_ACT_N];

	dt_linear_widths(s->config, d, in, width);
	dt_activations(s->config, d, s->compute, act);
	for (int i = 0; i < DT_ACT_N; i++)
		if (dt_activation_saved(i, s->recompute, number))
			put(b,
			    (struct dt_buf){.id = DT_B_ACT,
					    .cat = DT_MEM_ACTIVATIONS,
					    .layer = layer,
					    .act = i,
					    .slot = slot,
					    .dtype = act[i].dtype,
					    .numel = act_numel(s, &act[i]),
					    .first = DT_PH_FORWARD,
					    .last = DT_PH_BACKWARD,
					    .formula = "tokens x elements a token"},
			    act[i].name);
	for (int i = 0; i < DT_STASH_N && split; i++)
		put(b,
		    (struct dt_buf){.id = DT_B_STASH,
				    .cat = DT_MEM_ACTIVATIONS,
				    .layer = layer,
				    .act = i,
				    .slot = slot,
				    .dtype = s->compute,
				    .numel = tokens * width[i],
				    .first = DT_PH_FORWARD,
				    .last = DT_PH_BACKWARD,
				    .formula = "tokens x width, kept for W"},
		    stash[i]);
}

/* What each microbatch in flight holds besides its layers. */
static void put_slot(struct builder *b, const struct dt_run *s, int slot, bool embed, bool head, bool send)
{
	const struct dt_config *c = s->config;
	int64_t t = s->microbatch * s->seq, st = stream_tokens(s);
	enum dt_dtype w = s->compute;
	bool pipe = s->layout.pp > 1;

	put_flat(b, DT_B_DRESID, DT_MEM_WORKSPACE, w, st * c->hidden, pipe ? DT_PH_FORWARD : DT_PH_LOSS,
		 DT_PH_BACKWARD, slot, "d.resid", "tokens x hidden");
	if (send)
		put_flat(b, DT_B_OUT, DT_MEM_COMM, w, st * c->hidden, DT_PH_FORWARD, DT_PH_BACKWARD, slot,
			 "output", "tokens x hidden");
	if (embed || head) {
		put_flat(b, DT_B_IDS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, slot, "ids",
			 "tokens");
		put_flat(b, DT_B_TARGETS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, slot, "targets",
			 "tokens");
	}
	if (!head)
		return;
	put_flat(b, DT_B_FINAL_RESID, DT_MEM_ACTIVATIONS, w, st * c->hidden, DT_PH_FORWARD, DT_PH_BACKWARD,
		 slot, "final.resid", "tokens x hidden");
	put_flat(b, DT_B_FINAL_NORM, DT_MEM_ACTIVATIONS, w, st * c->hidden, DT_PH_FORWARD, DT_PH_BACKWARD,
		 slot, "final.norm", "tokens x hidden");
	if (c->norm == DT_NORM_LAYER)
		put_flat(b, DT_B_FINAL_MEAN, DT_MEM_ACTIVATIONS, DT_F32, st, DT_PH_FORWARD, DT_PH_BACKWARD,
			 slot, "final.mean", "tokens");
	put_flat(b, DT_B_FINAL_RSTD, DT_MEM_ACTIVATIONS, DT_F32, st, DT_PH_FORWARD, DT_PH_BACKWARD, slot,
		 "final.rstd", "tokens");
}

static void put_activations(struct builder *b, const struct dt_run *s, const struct dt_local_dims *d,
			    const struct dt_schedule *sched)
{
	int stage = b->at.pp, stages = s->layout.pp * sched->chunks;

	for (int k = 0; k < sched->chunks; k++) {
		int v = k * s->layout.pp + stage, first, last, slots = dt_schedule_in_flight(sched, stage, k);

		b->plan->slots[k] = slots;
		dt_layout_stage(&s->layout, s->config, v, &first, &last);
		for (int slot = 0; slot < slots; slot++) {
			for (int l = first; l < last; l++)
				put_layer(b, s, d, sched->split, l, l - first, slot);
			/* Slots of the chunks of a stage are numbered through. */
			put_slot(b, s, k * sched->microbatches + slot, v == 0, v == stages - 1,
				 v < stages - 1);
		}
	}
}

/* One linear's operands in 8 bits, and their scales. */
static void put_fp8(struct builder *b, const struct dt_run *s)
{
	struct dt_fp8_plan f;

	dt_fp8_plan(s, b->at, &f);
	if (!f.nused)
		return;
	put_flat(b, DT_B_FP8_ROWS, DT_MEM_WORKSPACE, DT_E4M3, f.rows, DT_PH_FORWARD, DT_PH_BACKWARD, -1,
		 "8-bit rows", "tokens x widest linear's columns");
	put_flat(b, DT_B_FP8_TURNED, DT_MEM_WORKSPACE, DT_E5M2, f.turned, DT_PH_BACKWARD, DT_PH_BACKWARD, -1,
		 "8-bit rows, transposed", "tokens x widest linear's output");
	put_flat(b, DT_B_FP8_WEIGHT, DT_MEM_WORKSPACE, DT_E4M3, f.weight, DT_PH_FORWARD, DT_PH_BACKWARD, -1,
		 "8-bit weight", "largest linear");
	put_flat(b, DT_B_FP8_SCALES, DT_MEM_WORKSPACE, DT_F32, 3, DT_PH_FORWARD, DT_PH_BACKWARD, -1,
		 "8-bit scales", "fixed");
}

static void put_workspace(struct builder *b, const struct dt_run *s, const struct dt_local_dims *d, bool head)
{
	const struct dt_config *c = s->config;
	int64_t t = s->microbatch * s->seq, chunk = b->plan->loss_chunk;
	enum dt_dtype w = s->compute;
	struct dt_activation act[DT_ACT_N];

	dt_activations(c, d, w, act);
	for (int set = 0; set < dt_keep_sets(s->recompute); set++)
		for (int i = 0; i < DT_ACT_N; i++)
			if (!dt_activation_saved(i, s->recompute, set))
				put(b,
				    (struct dt_buf){.id = DT_B_ACT_SHARED,
						    .cat = DT_MEM_WORKSPACE,
						    .layer = -1,
						    .act = i,
						    .slot = set ? set : -1,
						    .dtype = act[i].dtype,
						    .numel = act_numel(s, &act[i]),
						    .first = DT_PH_FORWARD,
						    .last = DT_PH_BACKWARD,
						    .formula = "tokens x elements a token, one layer"},
				    act[i].name);
	if (s->layout.seq_parallel && s->layout.tp > 1)
		put_flat(b, DT_B_GATHER, DT_MEM_COMM, w, t * c->hidden, DT_PH_FORWARD, DT_PH_BACKWARD, -1,
			 "gathered rows", "tokens x hidden");
	put_flat(b, DT_B_DELTA, DT_MEM_WORKSPACE, w, stream_tokens(s) * c->hidden, DT_PH_FORWARD,
		 DT_PH_BACKWARD, -1, "delta", "tokens x hidden");
	put_flat(b, DT_B_DNORM, DT_MEM_WORKSPACE, w, t * c->hidden, DT_PH_LOSS, DT_PH_BACKWARD, -1, "d.norm",
		 "tokens x hidden");
	put_flat(b, DT_B_DSMALL, DT_MEM_WORKSPACE, w, t * max64(d->ffn, d->heads * c->head_dim),
		 DT_PH_BACKWARD, DT_PH_BACKWARD, -1, "d.act, d.attn", "tokens x max(ffn, heads x head_dim)");
	put_flat(b, DT_B_DLARGE, DT_MEM_WORKSPACE, w, t * max64((c->gated ? 2 : 1) * d->ffn, d->qkv),
		 DT_PH_BACKWARD, DT_PH_BACKWARD, -1, "d.up, d.qkv", "tokens x max(up, qkv)");
	put_fp8(b, s);
	if (c->pos == DT_POS_ROPE)
		put_flat(b, DT_B_ROPE, DT_MEM_WORKSPACE, DT_F32, s->seq * c->head_dim, DT_PH_FORWARD,
			 DT_PH_STEP, -1, "rope table", "seq x head_dim");
	if (c->rope_local_theta > 0)
		put_flat(b, DT_B_ROPE_LOCAL, DT_MEM_WORKSPACE, DT_F32, s->seq * c->head_dim, DT_PH_FORWARD,
			 DT_PH_STEP, -1, "local rope table", "seq x head_dim");
	if (c->norm_plus_one)
		put_flat(b, DT_B_NORM_SCALE, DT_MEM_WORKSPACE, DT_F32,
			 c->hidden > c->head_dim ? c->hidden : c->head_dim, DT_PH_FORWARD, DT_PH_STEP, -1,
			 "norm scale", "hidden");
	put_flat(b, DT_B_POS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, -1, "positions", "tokens");
	if (c->tied && s->layout.pp > 1 && (head || b->at.pp == 0))
		put_flat(b, DT_B_TIED, DT_MEM_COMM, s->reproducible ? DT_I64 : DT_F32, d->vocab * c->hidden,
			 DT_PH_STEP, DT_PH_STEP, -1, "tied embedding's other gradient",
			 "vocab x hidden, as summed");
	if (!head)
		return;
	put_flat(b, DT_B_LOGITS, DT_MEM_LOGITS, DT_F32, chunk * d->vocab, DT_PH_LOSS, DT_PH_LOSS, -1,
		 "logits", "chunk x vocab");
	if (w != DT_F32)
		put_flat(b, DT_B_DLOGITS, DT_MEM_LOGITS, w, chunk * d->vocab, DT_PH_LOSS, DT_PH_LOSS, -1,
			 "d.logits", "chunk x vocab");
	put_flat(b, DT_B_CE_STATS, DT_MEM_LOGITS, DT_F32, 4 * chunk, DT_PH_LOSS, DT_PH_LOSS, -1, "loss rows",
		 "4 x chunk");
}

/*
 * Places buffers by the phases they live in: [forward, step] lies lowest, then [forward, backward], then on
 * top of those, over each other, what only one stretch of phases needs. With these few intervals the highest
 * address used equals the largest sum of live bytes.
 */
static void place(struct dt_memory_plan *p)
{
	static const struct {
		enum dt_phase first, last;
		int above; /* the interval it starts on top of */
	} order[] = {
		{DT_PH_FORWARD, DT_PH_STEP, -1},    {DT_PH_STEP, DT_PH_STEP, 0},
		{DT_PH_FORWARD, DT_PH_BACKWARD, 0}, {DT_PH_LOSS, DT_PH_BACKWARD, 2},
		{DT_PH_LOSS, DT_PH_LOSS, 3},	    {DT_PH_BACKWARD, DT_PH_BACKWARD, 3},
	};
	uint64_t top[sizeof(order) / sizeof(order[0])];

	for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++) {
		top[k] = order[k].above < 0 ? 0 : top[order[k].above];
		for (int i = 0; i < p->n; i++) {
			struct dt_buf *d = &p->buf[i];

			if (d->first != order[k].first || d->last != order[k].last)
				continue;
			d->offset = top[k];
			top[k] += d->bytes;
		}
		if (top[k] > p->arena_bytes)
			p->arena_bytes = top[k];
	}
	for (int i = 0; i < p->n; i++)
		for (int ph = p->buf[i].first; ph <= (int)p->buf[i].last; ph++)
			p->phase_bytes[ph] += p->buf[i].bytes;
	for (int ph = 0; ph < DT_PH_N; ph++)
		if (p->phase_bytes[ph] > p->phase_bytes[p->peak])
			p->peak = ph;
	for (int i = 0; i < p->n; i++)
		if (p->buf[i].first <= p->peak && p->buf[i].last >= p->peak)
			p->cat_bytes[p->buf[i].cat] += p->buf[i].bytes;
}

int dt_memory_plan(const struct dt_run *s, struct dt_coords at, struct dt_memory_plan *ret,
		   struct dt_err *err)
{
	const struct dt_config *c = s->config;
	struct builder b = {.plan = ret, .at = at};
	struct dt_params table = {0};
	struct dt_local local = {0};
	struct dt_schedule sched = {0};
	struct dt_local_dims d;
	int rc;

	memset(ret, 0, sizeof(*ret));
	if ((rc = dt_run_check(s, err)) < 0 || (rc = dt_model_params(c, &table, err)) < 0 ||
	    (rc = dt_local_build(&table, c, &s->layout, at, &local, err)) < 0 ||
	    (rc = dt_run_schedule(s, &sched, err)) < 0)
		goto out;
	dt_local_dims(c, s->layout.tp, at.tp, &d);
	ret->loss_chunk = s->loss_chunk > 0 ? s->loss_chunk : 512;
	if (ret->loss_chunk > s->microbatch * s->seq)
		ret->loss_chunk = s->microbatch * s->seq;
	put_states(&b, s, local.numel);
	put_units(&b, s, &local);
	put_snapshot(&b, s, &local);
	put_activations(&b, s, &d, &sched);
	put_workspace(&b, s, &d, at.pp == s->layout.pp - 1);
	if (b.failed)
		rc = dt_err_sys(err, -ENOMEM, "cannot build the memory plan");
	else
		place(ret);
out:
	dt_schedule_release(&sched);
	dt_local_release(&local);
	dt_params_release(&table);
	if (rc < 0)
		dt_memory_plan_release(ret);
	return rc;
}

void dt_memory_plan_release(struct dt_memory_plan *p)
{
	free(p->buf);
	memset(p, 0, sizeof(*p));
}

const struct dt_buf *dt_memory_find(const struct dt_memory_plan *p, enum dt_buf_id id, int layer, int act,
				    int slot)
{
	for (int i = 0; i < p->n; i++)
		if (p->buf[i].id == id && p->buf[i].layer == layer && p->buf[i].act == act &&
		    p->buf[i].slot == slot)
			return &p->buf[i];
	return NULL;
}
