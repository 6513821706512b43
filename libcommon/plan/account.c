/* Memory of a training rank of other stacks, by published formulas. */
#include "plan/entries.h"

#include <errno.h>
#include <math.h>

/* PyTorch's caching allocator rounds a tensor up to a multiple of these bytes. */
#define ALLOCATOR_BLOCK 512.0

/* DeepSpeed's default reduce_bucket_size: 2-byte elements. */
#define DEEPSPEED_BUCKET 5e8

struct accounted { /* what the formulas need to know of one rank */
	const struct dt_run *s;
	struct dt_coords at;
	const struct dt_extras *x;
	enum dt_account account;
	double dense, expert;		    /* the rank's parameters: dense ones and those of experts */
	double dense_states, expert_states; /* bytes of their optimizer states */
	double frozen;			    /* bytes of a frozen base; 0: everything is trained */
	double rounding;		    /* bytes by which the allocator rounds up the tensors of states */
	double unit;			    /* parameters of the largest unit */
	double tokens;			    /* tokens of a microbatch on this rank */
	bool head;
	struct dt_local_dims d;
};

/*
 * Elements on a rank, divided over the ranks with copies of them if `on`. With ep an expert has fewer copies.
 */
static double divided(const struct accounted *a, double dense, double expert, bool on)
{
	const struct dt_layout *l = &a->s->layout;
	double n = (double)l->dp * l->cp;

	return on ? dense / n + expert / (n / l->ep) : dense + expert;
}

static struct dt_entry *put(const struct accounted *a, struct dt_estimate *t, int cat, double bytes,
			    enum dt_phase first, enum dt_phase last, const char *name, const char *formula,
			    bool offloaded)
{
	struct dt_entry *e = dt_entry_put(t, cat, bytes, first, last, name, formula);

	if (e && offloaded)
		e->place = a->s->offload.to;
	return e;
}

/* DeepSpeed's own estimators: stages 1 and 2: 4 bytes a parameter, plus 16 divided; stage 3: 18 divided. */
static void put_deepspeed(struct dt_estimate *t, const struct accounted *a)
{
	int zero = a->s->layout.zero;
	bool host = a->s->offload.what != 0, all = a->s->offload.what & DT_OFFLOAD_WEIGHTS;
	double whole = divided(a, a->dense, a->expert, zero >= 3),
	       part = divided(a, a->dense, a->expert, zero >= 1);

	put(a, t, DT_MEM_WEIGHTS, 2 * whole, DT_PH_FORWARD, DT_PH_STEP, "weights",
	    "2 bytes a parameter, DeepSpeed", all && zero >= 3);
	put(a, t, DT_MEM_GRADS, 2 * whole, DT_PH_FORWARD, DT_PH_STEP, "gradients",
	    "2 bytes a parameter, DeepSpeed", host);
	put(a, t, DT_MEM_MASTER, 4 * part, DT_PH_FORWARD, DT_PH_STEP, "master", "4 bytes a parameter / ranks",
	    host);
	put(a, t, DT_MEM_OPTIM, (zero >= 3 ? 10 : 12) * part, DT_PH_FORWARD, DT_PH_STEP, "optimizer states",
	    "moments, and gradients in f32, / ranks", host);
	if (zero >= 3)
		put(a, t, DT_MEM_COMM, 4 * a->unit, DT_PH_FORWARD, DT_PH_BACKWARD, "gathered units",
		    "4 bytes a parameter of the largest layer", false);
	else if (zero >= 1)
		put(a, t, DT_MEM_COMM, 2 * fmin(a->dense + a->expert, DEEPSPEED_BUCKET), DT_PH_BACKWARD,
		    DT_PH_BACKWARD, "reduce bucket", "reduce_bucket_size of 5e8 elements", false);
}

/* All states in the compute type: with Adam in 16 bits, 8 bytes a parameter. ZeRO divides them as usual. */
static void put_book(struct dt_estimate *t, const struct accounted *a)
{
	int zero = a->s->layout.zero;
	double w = dt_dtype_size(a->s->compute), f32 = dt_dtype_size(DT_F32);

	put(a, t, DT_MEM_WEIGHTS, w * divided(a, a->dense, a->expert, zero >= 3), DT_PH_FORWARD, DT_PH_STEP,
	    "weights", "parameters x element", false);
	put(a, t, DT_MEM_GRADS, w * divided(a, a->dense, a->expert, zero >= 2), DT_PH_BACKWARD, DT_PH_STEP,
	    "gradients", "parameters x element", false);
	put(a, t, DT_MEM_OPTIM, w / f32 * divided(a, a->dense_states, a->expert_states, zero >= 1),
	    DT_PH_FORWARD, DT_PH_STEP, "optimizer states", "parameters x element x states", false);
}

static void put_states(struct dt_estimate *t, const struct accounted *a)
{
	const struct dt_run *s = a->s;
	int zero = s->layout.zero;
	bool many = s->layout.dp * s->layout.cp > 1, megatron = a->account == DT_ACCOUNT_MEGATRON;
	bool host = a->s->offload.what != 0, all = a->s->offload.what & DT_OFFLOAD_WEIGHTS;
	double w = dt_dtype_size(s->compute), g = megatron ? 4 : w;
	enum dt_phase grads_from = megatron ? DT_PH_FORWARD : DT_PH_BACKWARD;

	put(a, t, DT_MEM_WEIGHTS, w * divided(a, a->dense, a->expert, zero >= 3), DT_PH_FORWARD, DT_PH_STEP,
	    "weights", zero >= 3 && many ? "parameters x element / ranks" : "parameters x element", all);
	if ((zero >= 3 && many) || all)
		put(a, t, DT_MEM_COMM, 2 * a->unit * w, DT_PH_FORWARD, DT_PH_BACKWARD, "gathered units",
		    "the unit in use and the next, whole", false);
	if (s->compute != DT_F32)
		put(a, t, DT_MEM_MASTER, 4 * divided(a, a->dense, a->expert, zero >= 1), DT_PH_FORWARD,
		    DT_PH_STEP, "master",
		    zero >= 1 && many ? "4 bytes a parameter / ranks" : "4 bytes a parameter", host);
	put(a, t, DT_MEM_GRADS, g * divided(a, a->dense, a->expert, zero >= 2), grads_from, DT_PH_STEP,
	    "gradients", zero >= 2 && many ? "parameters x element / ranks" : "parameters x element", host);
	if (host)
		put(a, t, DT_MEM_COMM, 2 * a->unit * g, DT_PH_BACKWARD, DT_PH_BACKWARD,
		    "gradients on their way", "the unit in use and the last, whole", false);
	put(a, t, DT_MEM_OPTIM, divided(a, a->dense_states, a->expert_states, zero >= 1), DT_PH_FORWARD,
	    DT_PH_STEP, "optimizer states",
	    zero >= 1 && many ? "4 bytes a state and parameter / ranks" : "4 bytes a state and parameter",
	    host);
}

/* LoRA: a frozen base, and states of the adapters only (a->dense and a->expert count these). */
static void put_adapters(struct dt_estimate *t, const struct accounted *a)
{
	const struct dt_layout *l = &a->s->layout;
	double n = l->zero >= 3 ? (double)l->dp * l->cp : 1, p = a->dense + a->expert;
	double each = dt_dtype_size(a->s->compute) +
		      (a->account == DT_ACCOUNT_GENERIC ? dt_dtype_size(a->s->compute) : 4) +
		      (a->s->compute != DT_F32 ? 4 : 0);

	put(a, t, DT_MEM_WEIGHTS, a->frozen / n, DT_PH_FORWARD, DT_PH_STEP, "frozen base",
	    n > 1 ? "local parameters x bits / 8 / ranks" : "local parameters x bits / 8",
	    a->s->offload.what & DT_OFFLOAD_WEIGHTS);
	if (n > 1)
		put(a, t, DT_MEM_COMM, 2 * a->unit * dt_weight_bits(a->x->base) / 8, DT_PH_FORWARD,
		    DT_PH_BACKWARD, "gathered units", "the unit in use and the next, whole", false);
	put(a, t, DT_EST_ADAPTERS, p * each + a->dense_states + a->expert_states, DT_PH_FORWARD, DT_PH_STEP,
	    "adapters", "rank x (in + out) x bytes of weight, gradient, master and moments",
	    a->s->offload.what != 0);
}

/*
 * Bytes per token of layer `number` in its chunk, by our activation table: kept values (kept), or the working
 * set that layers share.
 */
static double table_bytes(const struct accounted *a, const struct dt_local_dims *d, int number, bool kept)
{
	const struct dt_run *s = a->s;
	struct dt_activation act[DT_ACT_N];
	double sum = 0;

	dt_activations(s->config, d, s->compute, act);
	for (int i = 0; i < DT_ACT_N; i++) {
		double share = act[i].stream && s->layout.seq_parallel ? 1.0 / s->layout.tp : 1;

		if (dt_activation_saved(&act[i], s->recompute, number) == kept)
			sum += (double)act[i].per_token * dt_dtype_size(act[i].dtype) * share;
	}
	if (a->x->scores && kept == (s->recompute.mode == DT_RECOMPUTE_NONE))
		sum += (double)d->heads * (double)s->seq *
		       dt_score_bytes(s->config, (double)dt_dtype_size(s->compute));
	return sum;
}

static double layer_bytes(const struct accounted *a, int64_t layer, int number, enum dt_recompute mode,
			  bool kept)
{
	const struct dt_run *s = a->s;
	struct dt_local_dims d;

	if (a->account == DT_ACCOUNT_MEGATRON)
		return dt_megatron_layer_bytes(s->config, layer, (double)s->seq / s->layout.cp,
					       (double)s->microbatch, s->layout.tp, s->layout.seq_parallel,
					       !a->x->scores, mode);
	dt_layer_dims(s->config, layer, s->layout.tp, a->at.tp, &d);
	return a->tokens * table_bytes(a, &d, number, kept);
}

/* Sums over the stage's layers, each times its microbatches in flight; also finds the largest working set. */
static int sum_layers(const struct accounted *a, double *ret_kept, double *ret_work, struct dt_err *err)
{
	const struct dt_run *s = a->s;
	bool megatron = a->account == DT_ACCOUNT_MEGATRON;
	double chunk[DT_MAX_CHUNKS] = {0}; /* bytes for one microbatch */
	struct dt_schedule t;
	int rc = dt_run_stage_schedule(s, a->at.pp, &t, err), first, last;

	if (rc < 0)
		return rc;
	for (int k = 0; k < t.chunks; k++) {
		dt_layout_stage(&s->layout, s->config, k * s->layout.pp + a->at.pp, &first, &last);
		for (int i = first; i < last; i++) {
			enum dt_recompute mode = megatron ? DT_RECOMPUTE_NONE : s->recompute.mode;
			double work =
				layer_bytes(a, i, i - first, mode, megatron) * dt_keep_sets(s->recompute);

			chunk[k] += layer_bytes(a, i, i - first, s->recompute.mode, true);
			*ret_work = fmax(*ret_work, work);
		}
	}
	*ret_kept = dt_schedule_held(&t, a->at.pp, chunk);
	dt_schedule_release(&t);
	return 0;
}

static int put_activations(struct dt_estimate *t, const struct accounted *a, struct dt_err *err)
{
	const struct dt_run *s = a->s;
	const struct dt_config *c = s->config;
	bool megatron = a->account == DT_ACCOUNT_MEGATRON;
	double h = (double)c->hidden, e = dt_dtype_size(s->compute), kept = 0, work = 0;
	double up = (double)((c->gated ? 2 : 1) * a->d.ffn), width = (double)(a->d.heads * dt_value_dim(c));
	int rc = sum_layers(a, &kept, &work, err);

	if (rc < 0)
		return rc;
	put(a, t, DT_MEM_ACTIVATIONS, kept, DT_PH_FORWARD, DT_PH_BACKWARD, "layers",
	    megatron ? "Korthikanti et al. 2022 x layers x microbatches in flight"
		     : "activation table x tokens x layers x microbatches in flight",
	    false);
	if (!megatron)
		put(a, t, DT_MEM_WORKSPACE, work, DT_PH_FORWARD, DT_PH_BACKWARD, "not kept",
		    "activation table x tokens, one layer", false);
	else if (s->recompute.mode == DT_RECOMPUTE_FULL)
		put(a, t, DT_MEM_WORKSPACE, work, DT_PH_BACKWARD, DT_PH_BACKWARD, "layer run again",
		    "one layer's activations", false);
	put(a, t, DT_MEM_WORKSPACE,
	    a->tokens * e * (2 * h + fmax(up, (double)a->d.qkv) + fmax(width, (double)a->d.ffn)),
	    DT_PH_BACKWARD, DT_PH_BACKWARD, "activation gradients", "the widest tensors of one layer", false);
	if (a->head)
		put(a, t, DT_MEM_LOGITS, a->tokens * (double)a->d.vocab * (megatron ? 4 + 4 + e : 4 + e),
		    DT_PH_LOSS, DT_PH_LOSS, "logits",
		    megatron ? "tokens x vocabulary x (8 + element), not fused"
			     : "tokens x vocabulary x (4 + element), not chunked",
		    false);
	return 0;
}

static double rounded_by(double bytes)
{
	return ceil(bytes / ALLOCATOR_BLOCK) * ALLOCATOR_BLOCK - bytes;
}

/*
 * Rounding of a parameter of n elements in the states that are kept tensor by tensor; ZeRO's shares are one
 * piece.
 */
static double rounding_of(const struct accounted *a, double n)
{
	const struct dt_run *s = a->s;
	int zero = s->layout.zero;
	double w = dt_dtype_size(s->compute), sum = 0;

	if (zero < 3)
		sum += rounded_by(n * w);
	if (zero < 2)
		sum += rounded_by(n * (a->account == DT_ACCOUNT_MEGATRON ? 4 : w));
	if (zero < 1)
		sum += (w < 4 ? rounded_by(4 * n) : 0);
	for (int i = 0; zero < 1 && i < DT_OPTIM_STATES; i++)
		sum += rounded_by(
			(double)dt_optim_state_bytes(&dt_optim_rule(s->optim.kind)->state[i], 1, (int64_t)n));
	return sum;
}

/* Bytes of all optimizer states of a parameter, or of the n elements of its adapters. */
static double state_bytes(const struct accounted *a, const struct dt_local_param *lp, double n)
{
	enum dt_optim_kind kind = a->s->optim.kind;

	return (double)(a->x->lora_rank ? dt_optim_bytes(kind, 1, (int64_t)n)
					: dt_optim_bytes(kind, lp->shape[0], lp->shape[1]));
}

/* Sums the rank's parameters; with adapters, those of the adapters and the bytes of the frozen base. */
static void sum_params(const struct dt_params *table, const struct dt_local *local, struct accounted *a,
		       struct dt_estimate *t)
{
	const struct dt_extras *x = a->x;

	for (int i = 0; i < local->n; i++) {
		const struct dt_local_param *lp = &local->p[i];
		const struct dt_param *p = &table->p[lp->index];
		double n = (double)lp->numel;

		t->params += lp->numel;
		if (x->lora_rank) {
			a->frozen += dt_weight_bytes(a->s->config, p, n, p->layer < 0 ? DT_WF_BF16 : x->base);
			n = 0;
			if (dt_lora_target(p->role, x->targets) && p->experts == 0)
				n = (double)(x->lora_rank * (lp->shape[0] + lp->shape[1]));
			if (dt_lora_target(p->role, x->targets) && p->experts > 0) {
				double e = (double)p->experts / a->s->layout.ep;

				n = (double)x->lora_rank * ((double)lp->shape[0] + e * (double)lp->shape[1]);
			}
		}
		*(p->experts ? &a->expert : &a->dense) += n;
		*(p->experts ? &a->expert_states : &a->dense_states) += state_bytes(a, lp, n);
		a->rounding += rounding_of(a, n);
	}
	for (int i = 0; i < local->nunit; i++)
		a->unit = fmax(a->unit, (double)local->unit[i].numel);
}

static int local_params(const struct dt_run *s, struct dt_coords at, struct dt_params *table,
			struct dt_local *local, struct dt_err *err)
{
	struct dt_config base = *s->config; /* adapters are counted by formula */
	int rc;

	base.lora.rank = 0;
	rc = dt_model_params(&base, table, err);
	if (rc == 0)
		rc = dt_local_build(table, &base, &s->layout, at, local, err);
	return rc;
}

int dt_rank_params(const struct dt_run *s, struct dt_coords at, struct dt_estimate *t, struct dt_err *err)
{
	struct dt_params table = {0};
	struct dt_local local = {0};
	int rc = local_params(s, at, &table, &local, err);

	for (int i = 0; i < local.n; i++)
		t->params += local.p[i].numel;
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}

int dt_account_train(const struct dt_run *s, struct dt_coords at, enum dt_account account,
		     const struct dt_extras *x, struct dt_estimate *t, struct dt_err *err)
{
	static const struct dt_extras none = {0};
	struct accounted a = {.s = s, .at = at, .x = x ? x : &none, .account = account};
	struct dt_params table = {0};
	struct dt_local local = {0};
	int rc = local_params(s, at, &table, &local, err);

	if (rc == 0) {
		sum_params(&table, &local, &a, t);
		a.head = at.pp == s->layout.pp - 1;
		a.tokens = (double)(s->microbatch * s->seq) / s->layout.cp;
		dt_layer_dims(s->config, s->config->layers - 1, s->layout.tp, at.tp, &a.d);
		if (a.x->lora_rank)
			put_adapters(t, &a);
		else if (account == DT_ACCOUNT_DEEPSPEED)
			put_deepspeed(t, &a);
		else if (account == DT_ACCOUNT_BOOK)
			put_book(t, &a);
		else
			put_states(t, &a);
		put(&a, t, DT_EST_ROUNDING, a.rounding, DT_PH_FORWARD, DT_PH_STEP, "rounding of states",
		    "each tensor up to 512 bytes", false);
		rc = put_activations(t, &a, err);
	}
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
