#include "plan/estimate.h"

#include "base/arena.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dt_est_cat_name(int cat)
{
	return cat == DT_EST_CACHE ? "kv-cache" : dt_mem_cat_name(cat);
}

void dt_estimate_release(struct dt_estimate *e)
{
	free(e->e);
	memset(e, 0, sizeof(*e));
}

/* Appends an entry; cap < 0 afterwards: out of memory. */
static struct dt_entry *put(struct dt_estimate *t, int cat, double bytes, enum dt_phase first,
			    enum dt_phase last, const char *name, const char *formula)
{
	struct dt_entry *e;

	if (t->cap < 0 || bytes < 1)
		return NULL;
	if (t->n == t->cap) {
		int cap = t->cap ? 2 * t->cap : 64;

		e = realloc(t->e, (size_t)cap * sizeof(*e));
		if (!e) {
			t->cap = -1;
			return NULL;
		}
		t->e = e;
		t->cap = cap;
	}
	e = &t->e[t->n++];
	*e = (struct dt_entry){.cat = cat, .bytes = (uint64_t)ceil(bytes), .first = first, .last = last};
	e->formula = formula;
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->kind, sizeof(e->kind), "%s", name);
	return e;
}

/* Sums by phase and, in the largest phase, by category. Frees the list and fails when it is incomplete. */
static int finish(struct dt_estimate *t, struct dt_err *err)
{
	if (t->cap < 0) {
		dt_estimate_release(t);
		return dt_err_sys(err, -ENOMEM, "cannot estimate");
	}
	for (int i = 0; i < t->n; i++)
		for (int ph = t->e[i].first; ph <= (int)t->e[i].last; ph++)
			t->phase_bytes[ph] += t->e[i].bytes;
	for (int ph = 0; ph < DT_PH_N; ph++)
		if (t->phase_bytes[ph] > t->phase_bytes[t->peak])
			t->peak = ph;
	t->peak_bytes = t->phase_bytes[t->peak];
	for (int i = 0; i < t->n; i++)
		if (t->e[i].first <= t->peak && t->e[i].last >= t->peak)
			t->cat_bytes[t->e[i].cat] += t->e[i].bytes;
	return 0;
}

/* ---- our trainer ---- */

/* Bytes of one plan: all of it, or of one category. */
static int plan_bytes(const struct dt_train_shape *s, int cat, uint64_t *ret, struct dt_err *err)
{
	struct dt_memory_plan p;
	int rc = dt_memory_plan(s, &p, err);

	if (rc < 0)
		return rc;
	*ret = 0;
	for (int i = 0; i < p.n; i++)
		if (cat < 0 || (int)p.buf[i].cat == cat)
			*ret += p.buf[i].bytes;
	dt_memory_plan_release(&p);
	return 0;
}

/*
 * Whether the memory plan answers to an axis: it must give other bytes with it than without. An estimate that
 * ignores part of the layout it was asked about would be a wrong number with great confidence.
 */
static int check_axis(const struct dt_train_shape *s, const struct dt_layout *without, int cat,
		      const char *axis, struct dt_err *err)
{
	struct dt_train_shape other = *s;
	uint64_t with_bytes, without_bytes;
	int rc = plan_bytes(s, cat, &with_bytes, err);

	if (rc < 0)
		return rc;
	other.layout = *without;
	other.at = (struct dt_coords){.pp = s->at.pp};
	rc = plan_bytes(&other, cat, &without_bytes, err);
	if (rc < 0 || with_bytes != without_bytes)
		return rc < 0 ? rc : 0;
	dt_err_set(err, -ENOTSUP, "the trainer's memory plan does not take account of %s", axis);
	dt_err_hint(err, "--account generic estimates any layout");
	return -ENOTSUP;
}

static int check_covered(const struct dt_train_shape *s, struct dt_err *err)
{
	static const int zero_cat[] = {0, DT_MEM_OPTIM, DT_MEM_GRADS, DT_MEM_WEIGHTS};
	struct dt_train_shape at = *s;
	struct dt_layout l;
	char axis[40];
	int rc = 0;

	for (int z = 1; rc == 0 && z <= s->layout.zero && s->layout.dp > 1; z++) {
		int cat = zero_cat[z];

		if (z == 1 && dt_optim_states(s->optim) == 0)
			cat = DT_MEM_MASTER;
		if (cat == DT_MEM_MASTER && s->compute == DT_F32)
			continue; /* nothing that stage 1 could divide */
		at.layout.zero = z;
		l = at.layout;
		l.zero = z - 1;
		snprintf(axis, sizeof(axis), "ZeRO stage %d", z);
		rc = check_axis(&at, &l, cat, axis, err);
	}
	l = s->layout;
	l.cp = 1;
	if (rc == 0 && s->layout.cp > 1)
		rc = check_axis(s, &l, DT_MEM_ACTIVATIONS, "context parallelism (cp)", err);
	l = s->layout;
	l.seq_parallel = false;
	if (rc == 0 && s->layout.seq_parallel && s->layout.tp > 1)
		rc = check_axis(s, &l, DT_MEM_ACTIVATIONS, "sequence parallelism (s1)", err);
	return rc;
}

/* "layers.N.qkv" of "layers.12.qkv #3" */
static void set_kind(struct dt_entry *e, const struct dt_buf *b)
{
	const char *rest = b->name;
	int n;

	if (b->layer >= 0) {
		rest = strchr(strchr(rest, '.') + 1, '.');
		snprintf(e->kind, sizeof(e->kind), "layers.N%s", rest);
	}
	n = (int)strcspn(e->kind, "#");
	while (n > 0 && e->kind[n - 1] == ' ')
		n--;
	e->kind[n] = '\0';
}

static int train_plan(const struct dt_train_shape *s, struct dt_estimate *t, struct dt_err *err)
{
	struct dt_memory_plan p;
	int rc;

	if (s->compute != DT_F32 && s->compute != DT_BF16)
		return dt_err_set(err, -ENOTSUP, "the trainer computes in f32 or bf16, not in %s",
				  dt_dtype_name(s->compute));
	rc = check_covered(s, err);
	if (rc < 0)
		return rc;
	rc = dt_memory_plan(s, &p, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < p.n; i++) {
		const struct dt_buf *b = &p.buf[i];
		struct dt_entry *e = put(t, b->cat, (double)b->bytes, b->first, b->last, b->name, b->formula);

		if (e) {
			set_kind(e, b);
			e->exact = true;
		}
	}
	dt_memory_plan_release(&p);
	return 0;
}

/* ---- published formulas ---- */

struct accounted { /* what the formulas need of one rank */
	const struct dt_train_shape *s;
	double params, unit; /* of the rank; of its largest unit */
	double layers;	     /* of all microbatches in flight */
	bool head;
	struct dt_local_dims d;
};

static void put_states(struct dt_estimate *t, const struct accounted *a, enum dt_account account)
{
	const struct dt_train_shape *s = a->s;
	const struct dt_layout *l = &s->layout;
	double w = dt_dtype_size(s->compute), g = account == DT_ACCOUNT_MEGATRON ? 4 : w;
	double n = (double)l->dp * l->cp, p = a->params;
	enum dt_phase grads_from = account == DT_ACCOUNT_MEGATRON ? DT_PH_FORWARD : DT_PH_BACKWARD;

	put(t, DT_MEM_WEIGHTS, p * w / (l->zero >= 3 ? n : 1), DT_PH_FORWARD, DT_PH_STEP, "weights",
	    l->zero >= 3 && n > 1 ? "parameters x element / ranks" : "parameters x element");
	if (l->zero >= 3 && n > 1)
		put(t, DT_MEM_COMM, 2 * a->unit * w, DT_PH_FORWARD, DT_PH_BACKWARD, "gathered units",
		    "the unit in use and the next, whole");
	if (s->compute != DT_F32)
		put(t, DT_MEM_MASTER, p * 4 / (l->zero >= 1 ? n : 1), DT_PH_FORWARD, DT_PH_STEP, "master",
		    l->zero >= 1 && n > 1 ? "4 bytes a parameter / ranks" : "4 bytes a parameter");
	put(t, DT_MEM_GRADS, p * g / (l->zero >= 2 ? n : 1), grads_from, DT_PH_STEP, "gradients",
	    l->zero >= 2 && n > 1 ? "parameters x element / ranks" : "parameters x element");
	put(t, DT_MEM_OPTIM, p * 4 * dt_optim_states(s->optim) / (l->zero >= 1 ? n : 1), DT_PH_FORWARD,
	    DT_PH_STEP, "optimizer states",
	    l->zero >= 1 && n > 1 ? "4 bytes a state and parameter / ranks"
				  : "4 bytes a state and parameter");
}

/* Bytes a token of one layer by our activation table: kept ones, or those of the shared working set. */
static double table_bytes(const struct accounted *a, bool kept)
{
	struct dt_activation act[DT_ACT_N];
	double sum = 0;

	dt_activations(a->s->config, &a->d, a->s->compute, act);
	for (int i = 0; i < DT_ACT_N; i++) {
		double share =
			dt_activation_on_stream(i) && a->s->layout.seq_parallel ? 1.0 / a->s->layout.tp : 1;

		if (dt_activation_saved(i, a->s->recompute, 0) == kept)
			sum += (double)act[i].per_token * dt_dtype_size(act[i].dtype) * share;
	}
	return sum;
}

static void put_activations(struct dt_estimate *t, const struct accounted *a, enum dt_account account)
{
	const struct dt_train_shape *s = a->s;
	const struct dt_config *c = s->config;
	double tokens = (double)(s->microbatch * s->seq) / s->layout.cp, h = (double)c->hidden;
	double n = a->layers, e = dt_dtype_size(s->compute), layer;
	double up = (double)((c->gated ? 2 : 1) * a->d.ffn), width = (double)(a->d.heads * c->head_dim);

	if (account == DT_ACCOUNT_MEGATRON) {
		layer = dt_megatron_activation_bytes(h, (double)c->heads, (double)s->seq / s->layout.cp,
						     (double)s->microbatch, s->layout.tp,
						     s->layout.seq_parallel, true, s->recompute.mode);
		put(t, DT_MEM_ACTIVATIONS, n * layer, DT_PH_FORWARD, DT_PH_BACKWARD, "layers",
		    "Korthikanti et al. 2022, flash attention, x layers x microbatches in flight");
		if (s->recompute.mode == DT_RECOMPUTE_FULL)
			put(t, DT_MEM_WORKSPACE,
			    dt_megatron_activation_bytes(h, (double)c->heads, (double)s->seq / s->layout.cp,
							 (double)s->microbatch, s->layout.tp,
							 s->layout.seq_parallel, true, DT_RECOMPUTE_NONE),
			    DT_PH_BACKWARD, DT_PH_BACKWARD, "layer run again", "one layer's activations");
	} else {
		put(t, DT_MEM_ACTIVATIONS, n * tokens * table_bytes(a, true), DT_PH_FORWARD, DT_PH_BACKWARD,
		    "layers", "activation table x tokens x layers x microbatches in flight");
		put(t, DT_MEM_WORKSPACE, tokens * table_bytes(a, false), DT_PH_FORWARD, DT_PH_BACKWARD,
		    "not kept", "activation table x tokens, one layer");
	}
	put(t, DT_MEM_WORKSPACE,
	    tokens * e *
		    (2 * h + (up > (double)a->d.qkv ? up : (double)a->d.qkv) +
		     (width > (double)a->d.ffn ? width : (double)a->d.ffn)),
	    DT_PH_BACKWARD, DT_PH_BACKWARD, "activation gradients", "the widest tensors of one layer");
	if (a->head)
		put(t, DT_MEM_LOGITS,
		    tokens * (double)a->d.vocab * (account == DT_ACCOUNT_MEGATRON ? 4 + 4 + e : 4 + e),
		    DT_PH_LOSS, DT_PH_LOSS, "logits",
		    account == DT_ACCOUNT_MEGATRON ? "tokens x vocabulary x (8 + element), not fused"
						   : "tokens x vocabulary x (4 + element), not chunked");
}

/* Layers of a stage, each counted for every microbatch it has in flight. */
static int layers_in_flight(const struct dt_train_shape *s, double *ret, struct dt_err *err)
{
	struct dt_schedule t;
	int rc = dt_shape_schedule(s, &t, err), first, last;

	if (rc < 0)
		return rc;
	for (int k = 0; k < t.chunks; k++) {
		dt_layout_stage(&s->layout, s->config, k * s->layout.pp + s->at.pp, &first, &last);
		*ret += (double)(last - first) * dt_schedule_in_flight(&t, s->at.pp, k);
	}
	dt_schedule_release(&t);
	return 0;
}

int dt_estimate_train(const struct dt_train_shape *s, enum dt_account account, struct dt_estimate *ret,
		      struct dt_err *err)
{
	struct dt_estimate t = {0};
	struct accounted a = {.s = s};
	struct dt_params table = {0};
	struct dt_local local = {0};
	int rc;

	if (s->microbatch < 1 || s->seq < 1)
		return dt_err_set(err, -EINVAL, "microbatches and sequences hold at least one token");
	if (s->config->pos == DT_POS_LEARNED && s->seq > s->config->max_seq)
		return dt_err_set(err, -EINVAL, "sequence length %lld exceeds the %lld positions of '%s'",
				  (long long)s->seq, (long long)s->config->max_seq, s->config->name);
	rc = dt_model_params(s->config, &table, err);
	if (rc < 0)
		return rc;
	if ((rc = dt_local_build(&table, s->config, &s->layout, s->at, &local, err)) < 0 ||
	    (rc = layers_in_flight(s, &a.layers, err)) < 0)
		goto out;
	for (int i = 0; i < local.n; i++)
		t.params += local.p[i].numel;
	for (int i = 0; i < local.nunit; i++)
		a.unit = fmax(a.unit, (double)local.unit[i].numel);
	a.params = (double)t.params;
	a.head = s->at.pp == s->layout.pp - 1;
	dt_local_dims(s->config, s->layout.tp, s->at.tp, &a.d);
	if (account == DT_ACCOUNT_DT) {
		rc = train_plan(s, &t, err);
	} else {
		put_states(&t, &a, account);
		put_activations(&t, &a, account);
	}
	if (rc == 0)
		rc = finish(&t, err);
	if (rc == 0)
		*ret = t;
	else
		dt_estimate_release(&t);
out:
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}

/* ---- serving ---- */

static void put_serving(struct dt_estimate *t, const struct dt_serve_shape *s, double weights,
			const struct dt_local_dims *d, bool exact)
{
	const struct dt_config *c = s->config;
	struct dt_activation act[DT_ACT_N];
	double e = dt_dtype_size(s->compute), rows = (double)s->max_tokens, h = (double)c->hidden, work = 0;
	double kv_row = (double)(2 * c->layers * d->kv_heads * c->head_dim) * e;
	double blocks = (double)s->max_seqs * (double)((s->max_len + s->block - 1) / s->block);

	dt_activations(c, d, s->compute, act);
	for (int i = 0; i < DT_ACT_N; i++)
		work += (double)dt_align_up(
			(uint64_t)(s->max_tokens * act[i].per_token * dt_dtype_size(act[i].dtype)));
	put(t, DT_MEM_WEIGHTS, weights, DT_PH_FORWARD, DT_PH_FORWARD, "weights",
	    "local parameters x bits / 8");
	put(t, DT_EST_CACHE, blocks * (double)s->block * kv_row, DT_PH_FORWARD, DT_PH_FORWARD, "kv cache",
	    "sequences x whole blocks of the longest x 2 layers kv_heads head_dim");
	put(t, DT_MEM_WORKSPACE, work, DT_PH_FORWARD, DT_PH_FORWARD, "layer working set",
	    "batched tokens x activation table, one layer");
	put(t, DT_MEM_WORKSPACE, 3 * rows * h * e + (double)s->max_seqs * h * e + 8 * rows, DT_PH_FORWARD,
	    DT_PH_FORWARD, "streams", "(3 x batched tokens + sequences) x hidden, two statistics");
	if (c->pos == DT_POS_ROPE)
		put(t, DT_MEM_WORKSPACE, (double)(c->max_seq * c->head_dim) * 4, DT_PH_FORWARD, DT_PH_FORWARD,
		    "rope table", "positions x head_dim, f32");
	put(t, DT_MEM_LOGITS, (double)s->max_seqs * (double)d->vocab * 4, DT_PH_FORWARD, DT_PH_FORWARD,
	    "logits", "sequences x vocabulary, f32");
	for (int i = 0; i < t->n; i++)
		t->e[i].exact = exact || t->e[i].cat != DT_MEM_WEIGHTS;
}

int dt_estimate_serve(const struct dt_serve_shape *s, struct dt_estimate *ret, struct dt_err *err)
{
	const struct dt_config *c = s->config;
	struct dt_estimate t = {0};
	struct dt_params table = {0};
	struct dt_local local = {0};
	struct dt_local_dims d;
	struct dt_coords at = {.tp = s->tp_rank};
	double weights = 0;
	bool plain = s->weights < DT_WF_Q8_0;
	int rc;

	if (s->layout.pp > 1 || s->layout.cp > 1 || s->layout.zero > 0)
		return dt_err_set(err, -ENOTSUP, "serving is laid out over tp and dp only");
	if (s->max_seqs < 1 || s->max_len < 1 || s->block < 1 || s->max_tokens < 1)
		return dt_err_set(err, -EINVAL,
				  "a server has room for at least one sequence, token and block");
	if (c->pos == DT_POS_LEARNED && s->max_len > c->max_seq)
		return dt_err_set(err, -EINVAL, "length %lld exceeds the %lld positions of '%s'",
				  (long long)s->max_len, (long long)c->max_seq, c->name);
	rc = dt_model_params(c, &table, err);
	if (rc < 0)
		return rc;
	rc = dt_local_build(&table, c, &s->layout, at, &local, err);
	if (rc < 0)
		goto out;
	for (int i = 0; i < local.n; i++) {
		t.params += local.p[i].numel;
		weights +=
			dt_weight_bytes(c, &table.p[local.p[i].index], (double)local.p[i].numel, s->weights);
	}
	if (plain) /* one flat buffer, alignment included */
		weights = (double)local.numel * dt_weight_bits(s->weights) / 8;
	dt_local_dims(c, s->layout.tp, s->tp_rank, &d);
	put_serving(&t, s, weights, &d, plain);
	rc = finish(&t, err);
	if (rc == 0)
		*ret = t;
out:
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}
