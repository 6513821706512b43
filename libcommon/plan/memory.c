#include "plan/memory.h"

#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *dt_mem_cat_name(enum dt_mem_cat c)
{
	static const char *const name[DT_MEM_CAT_N] = {"weights",     "master", "gradients", "optimizer",
						       "activations", "logits", "workspace", "data"};

	return name[c];
}

const char *dt_phase_name(enum dt_phase p)
{
	static const char *const name[DT_PH_N] = {"forward", "loss", "backward", "step"};

	return name[p];
}

struct builder {
	struct dt_memory_plan *plan;
	int cap;
	bool failed;
};

static void put(struct builder *b, enum dt_buf_id id, enum dt_mem_cat cat, int layer, int act,
		enum dt_dtype dtype, int64_t numel, enum dt_phase first, enum dt_phase last, const char *name,
		const char *formula)
{
	struct dt_memory_plan *p = b->plan;
	struct dt_buf *d;

	if (numel == 0 || b->failed)
		return;
	if (p->n == b->cap) {
		int cap = b->cap ? 2 * b->cap : 256;

		d = realloc(p->buf, (size_t)cap * sizeof(*d));
		if (!d) {
			b->failed = true;
			return;
		}
		p->buf = d;
		b->cap = cap;
	}
	d = &p->buf[p->n++];
	*d = (struct dt_buf){.id = id,
			     .cat = cat,
			     .layer = layer,
			     .act = act,
			     .dtype = dtype,
			     .numel = numel,
			     .first = first,
			     .last = last,
			     .formula = formula};
	d->bytes = dt_align_up((uint64_t)numel * (uint64_t)dt_dtype_size(dtype));
	if (layer >= 0)
		snprintf(d->name, sizeof(d->name), "layers.%d.%s", layer, name);
	else
		snprintf(d->name, sizeof(d->name), "%s", name);
}

static void put_states(struct builder *b, const struct dt_train_shape *s, int64_t numel)
{
	int states = dt_optim_states(s->optim);

	put(b, DT_B_WEIGHTS, DT_MEM_WEIGHTS, -1, -1, s->compute, numel, DT_PH_FORWARD, DT_PH_STEP, "weights",
	    "local parameters");
	if (s->compute != DT_F32)
		put(b, DT_B_MASTER, DT_MEM_MASTER, -1, -1, DT_F32, numel, DT_PH_FORWARD, DT_PH_STEP, "master",
		    "local parameters, f32");
	put(b, DT_B_GRADS, DT_MEM_GRADS, -1, -1, DT_F32, numel, DT_PH_FORWARD, DT_PH_STEP, "gradients",
	    "local parameters, f32");
	if (states >= 1)
		put(b, DT_B_OPTIM1, DT_MEM_OPTIM, -1, -1, DT_F32, numel, DT_PH_FORWARD, DT_PH_STEP,
		    "optimizer state 1", "local parameters, f32");
	if (states >= 2)
		put(b, DT_B_OPTIM2, DT_MEM_OPTIM, -1, -1, DT_F32, numel, DT_PH_FORWARD, DT_PH_STEP,
		    "optimizer state 2", "local parameters, f32");
}

static void put_activations(struct builder *b, const struct dt_train_shape *s, const struct dt_local_dims *d,
			    int first, int last)
{
	struct dt_activation act[DT_ACT_N];
	int64_t tokens = s->microbatch * s->seq;

	dt_activations(s->config, d, s->compute, act);
	for (int l = first; l < last; l++)
		for (int i = 0; i < DT_ACT_N; i++)
			if (dt_activation_saved(i, s->recompute))
				put(b, DT_B_ACT, DT_MEM_ACTIVATIONS, l, i, act[i].dtype,
				    tokens * act[i].per_token, DT_PH_FORWARD, DT_PH_BACKWARD, act[i].name,
				    "tokens x elements a token");
	for (int i = 0; i < DT_ACT_N; i++)
		if (!dt_activation_saved(i, s->recompute))
			put(b, DT_B_ACT_SHARED, DT_MEM_WORKSPACE, -1, i, act[i].dtype,
			    tokens * act[i].per_token, DT_PH_FORWARD, DT_PH_BACKWARD, act[i].name,
			    "tokens x elements a token, one layer");
}

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void put_workspace(struct builder *b, const struct dt_train_shape *s, const struct dt_local_dims *d,
			  bool embed, bool head)
{
	const struct dt_config *c = s->config;
	int64_t t = s->microbatch * s->seq, chunk = b->plan->loss_chunk;
	enum dt_dtype w = s->compute;

	put(b, DT_B_DELTA, DT_MEM_WORKSPACE, -1, -1, w, t * c->hidden, DT_PH_FORWARD, DT_PH_BACKWARD, "delta",
	    "tokens x hidden");
	put(b, DT_B_DRESID, DT_MEM_WORKSPACE, -1, -1, w, t * c->hidden, DT_PH_LOSS, DT_PH_BACKWARD, "d.resid",
	    "tokens x hidden");
	put(b, DT_B_DNORM, DT_MEM_WORKSPACE, -1, -1, w, t * c->hidden, DT_PH_LOSS, DT_PH_BACKWARD, "d.norm",
	    "tokens x hidden");
	put(b, DT_B_DSMALL, DT_MEM_WORKSPACE, -1, -1, w, t * max64(d->ffn, d->heads * c->head_dim),
	    DT_PH_BACKWARD, DT_PH_BACKWARD, "d.act, d.attn", "tokens x max(ffn, heads x head_dim)");
	put(b, DT_B_DLARGE, DT_MEM_WORKSPACE, -1, -1, w, t * max64((c->gated ? 2 : 1) * d->ffn, d->qkv),
	    DT_PH_BACKWARD, DT_PH_BACKWARD, "d.up, d.qkv", "tokens x max(up, qkv)");
	if (c->pos == DT_POS_ROPE)
		put(b, DT_B_ROPE, DT_MEM_WORKSPACE, -1, -1, DT_F32, s->seq * c->head_dim, DT_PH_FORWARD,
		    DT_PH_STEP, "rope table", "seq x head_dim");
	if (embed || head) {
		put(b, DT_B_IDS, DT_MEM_DATA, -1, -1, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, "ids", "tokens");
		put(b, DT_B_TARGETS, DT_MEM_DATA, -1, -1, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, "targets",
		    "tokens");
	}
	put(b, DT_B_POS, DT_MEM_DATA, -1, -1, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, "positions", "tokens");
	if (!head)
		return;
	put(b, DT_B_FINAL_RESID, DT_MEM_ACTIVATIONS, -1, -1, w, t * c->hidden, DT_PH_FORWARD, DT_PH_BACKWARD,
	    "final.resid", "tokens x hidden");
	put(b, DT_B_FINAL_NORM, DT_MEM_ACTIVATIONS, -1, -1, w, t * c->hidden, DT_PH_FORWARD, DT_PH_BACKWARD,
	    "final.norm", "tokens x hidden");
	if (c->norm == DT_NORM_LAYER)
		put(b, DT_B_FINAL_MEAN, DT_MEM_ACTIVATIONS, -1, -1, DT_F32, t, DT_PH_FORWARD, DT_PH_BACKWARD,
		    "final.mean", "tokens");
	put(b, DT_B_FINAL_RSTD, DT_MEM_ACTIVATIONS, -1, -1, DT_F32, t, DT_PH_FORWARD, DT_PH_BACKWARD,
	    "final.rstd", "tokens");
	put(b, DT_B_LOGITS, DT_MEM_LOGITS, -1, -1, DT_F32, chunk * d->vocab, DT_PH_LOSS, DT_PH_LOSS, "logits",
	    "chunk x vocab");
	if (w != DT_F32)
		put(b, DT_B_DLOGITS, DT_MEM_LOGITS, -1, -1, w, chunk * d->vocab, DT_PH_LOSS, DT_PH_LOSS,
		    "d.logits", "chunk x vocab");
	put(b, DT_B_CE_STATS, DT_MEM_LOGITS, -1, -1, DT_F32, 4 * chunk, DT_PH_LOSS, DT_PH_LOSS, "loss rows",
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
		{DT_PH_FORWARD, DT_PH_STEP, -1},     {DT_PH_FORWARD, DT_PH_BACKWARD, 0},
		{DT_PH_LOSS, DT_PH_BACKWARD, 1},     {DT_PH_LOSS, DT_PH_LOSS, 2},
		{DT_PH_BACKWARD, DT_PH_BACKWARD, 2},
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

static int check(const struct dt_train_shape *s, struct dt_err *err)
{
	if (s->microbatch < 1 || s->seq < 1)
		return dt_err_set(err, -EINVAL, "microbatch %lld and sequence length %lld must be at least 1",
				  (long long)s->microbatch, (long long)s->seq);
	if (s->microbatch > INT32_MAX / s->seq)
		return dt_err_set(err, -ERANGE, "a microbatch of %lld x %lld tokens is too large",
				  (long long)s->microbatch, (long long)s->seq);
	if (s->config->pos == DT_POS_LEARNED && s->seq > s->config->max_seq)
		return dt_err_set(err, -EINVAL, "sequence length %lld exceeds the model's %lld positions",
				  (long long)s->seq, (long long)s->config->max_seq);
	return 0;
}

int dt_memory_plan(const struct dt_train_shape *s, struct dt_memory_plan *ret, struct dt_err *err)
{
	const struct dt_config *c = s->config;
	struct builder b = {.plan = ret};
	struct dt_params table = {0};
	struct dt_local local = {0};
	struct dt_local_dims d;
	int first, last, rc;
	bool embed = s->at.pp == 0, head = s->at.pp == s->layout.pp - 1;

	memset(ret, 0, sizeof(*ret));
	rc = check(s, err);
	if (rc < 0)
		return rc;
	rc = dt_model_params(c, &table, err);
	if (rc < 0)
		return rc;
	rc = dt_local_build(&table, c, &s->layout, s->at, &local, err);
	if (rc < 0)
		goto out;
	dt_layout_stage(&s->layout, c, s->at.pp, &first, &last);
	dt_local_dims(c, s->layout.tp, s->at.tp, &d);
	ret->loss_chunk = s->loss_chunk > 0 ? s->loss_chunk : 512;
	if (ret->loss_chunk > s->microbatch * s->seq)
		ret->loss_chunk = s->microbatch * s->seq;
	put_states(&b, s, local.numel);
	put_activations(&b, s, &d, first, last);
	put_workspace(&b, s, &d, embed, head);
	if (b.failed)
		rc = dt_err_sys(err, -ENOMEM, "cannot build the memory plan");
	else
		place(ret);
out:
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

const struct dt_buf *dt_memory_find(const struct dt_memory_plan *p, enum dt_buf_id id, int layer, int act)
{
	for (int i = 0; i < p->n; i++)
		if (p->buf[i].id == id && p->buf[i].layer == layer && p->buf[i].act == act)
			return &p->buf[i];
	return NULL;
}
