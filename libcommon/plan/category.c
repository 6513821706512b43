/* What the categories of an estimate contain, and the formulas of their bytes. */
#include "plan/fit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *formula, *text;
	const char *images; /* formula for image classifiers; NULL: the same */
} categories[DT_EST_CAT_N] = {
	[DT_MEM_WEIGHTS] =
		{"parameters x bytes an element",
		 "Parameters of this rank, in the compute type. Tensor parallelism splits most of them, "
		 "a\n"
		 "pipeline gives each rank some of the layers, and ZeRO stage 3 shards the rest over dp."},
	[DT_MEM_MASTER] =
		{"parameters x 4 bytes",
		 "The f32 copy of 16-bit weights that the optimizer updates. ZeRO stage 1 shards it over\n"
		 "dp. Training in fp32 has none."},
	[DT_MEM_GRADS] =
		{"parameters x bytes an element of a gradient",
		 "Gradients of the rank's parameters, f32 in dt-train, kept over all microbatches of a\n"
		 "step. ZeRO stage 2 shards them over dp."},
	[DT_MEM_OPTIM] =
		{"parameters x 4 bytes x states of the optimizer",
		 "Optimizer states. For each parameter: two f32 numbers with adam and adamw, one with\n"
		 "momentum, rmsprop, adagrad, lion, lars and the matrices of muon, 2.03 bytes with\n"
		 "adamw8bit, almost none with adafactor, none with sgd. ZeRO stage 1 shards them over dp."},
	[DT_MEM_ACTIVATIONS] =
		{"kept for backward: tokens x elements a token x layers",
		 "Activations that forward keeps for backward. They grow with the microbatch and the\n"
		 "sequence. tp, cp and s1 split them, --recompute trades them for time.",
		 "kept for backward: images x output of each layer"},
	[DT_MEM_LOGITS] =
		{"rows computed at a time x vocabulary",
		 "Logits and their gradient, on the last stage only. dt-train computes them in chunks of\n"
		 "rows (--loss-chunk), so they do not grow with the batch.",
		 "images at a time x classes"},
	[DT_MEM_WORKSPACE] =
		{"tokens x widest tensors of one layer",
		 "Buffers that layers reuse one after another: gradients of activations, recomputed\n"
		 "activations, tables of the rotary embedding.",
		 "images x widest tensors of one layer"},
	[DT_MEM_DATA] = {"tokens x 4 bytes x 3", "Token ids, targets and positions of one microbatch.",
			 "images x channels x side x side x 4 bytes"},
	[DT_MEM_COMM] =
		{"whole units and messages in transit",
		 "Communication buffers: weights that ZeRO gathers for as long as a layer computes, and\n"
		 "activations that are being sent to the next stage."},
	[DT_MEM_SCRATCH] =
		{"of the operation that takes most",
		 "Memory that the device's operations work in: tiles of attention, converted operands,\n"
		 "partial sums. It is as large as the operation that takes most. On a processor it\n"
		 "depends on the instruction set and on --threads. Workspaces of oneDNN and cuDNN are\n"
		 "not part of it."},
	[DT_EST_CACHE] =
		{"sequences x (whole blocks x layers x a token's keys and values + states)",
		 "Keys and values of --max-seqs sequences of --max-len tokens, rounded up to whole "
		 "blocks.\n"
		 "Tensor parallelism splits the heads until each rank has one. A layer with a sliding\n"
		 "window needs no more than its window (dt-serve caches every token). Latent attention\n"
		 "caches latents only, one for all heads, on every tensor-parallel rank. A layer of\n"
		 "Mamba-2 has a state for each sequence in place of them, whatever its length."},
	[DT_EST_ADAPTERS] =
		{"rank x (in + out) x bytes of weight, when training also of states",
		 "LoRA adapters: two thin matrices for each adapted weight matrix, with their gradients\n"
		 "and optimizer states. The base weights are frozen and have neither."},
	[DT_EST_ROUNDING] =
		{"each tensor up to 512 bytes",
		 "PyTorch's caching allocator rounds each tensor of the states up to 512 bytes. Memory "
		 "that\n"
		 "it caches and fragmentation come on top and depend on the run. dt-train and dt-serve\n"
		 "round to 64 bytes inside their own buffers."},
	[DT_EST_FRAMEWORK] =
		{"as given by --framework-mem",
		 "The driver's context, buffers of libraries and rounding of an allocator. It depends on "
		 "the\n"
		 "machine, so it is 0 unless given. --margin is the other way to leave room for it."},
};

/* ---- formulas of training states ---- */

struct text {
	char *buf;
	size_t n, len;
};

static void say(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (t->len < t->n)
		t->len += (size_t)vsnprintf(t->buf + t->len, t->n - t->len, fmt, ap);
	va_end(ap);
}

/* Writes the bytes of the optimizer's states by its row of kernels/optim.list. */
static void say_states(struct text *t, enum dt_optim_kind kind, const char *each)
{
	const struct dt_optim_rule *rule = dt_optim_rule(kind);
	int n[DT_STATE_BLOCKS + 1] = {0};

	for (int i = 0; i < dt_optim_states(kind); i++)
		n[rule->state[i].shape]++;
	if (n[DT_STATE_EACH])
		say(t, " x %s x %d state%s", each, n[DT_STATE_EACH], n[DT_STATE_EACH] == 1 ? "" : "s");
	if (n[DT_STATE_BLOCKS])
		say(t, " x (1 byte + 4 for every %d) x %d states", DT_STATE_BLOCK, n[DT_STATE_BLOCKS]);
	if (n[DT_STATE_ROWS] + n[DT_STATE_COLS])
		say(t, ": %s for each row and each column", each);
	if (n[DT_STATE_REST])
		say(t, ", and another outside hidden matrices");
}

/* The ZeRO stage from which a category is divided; DeepSpeed's estimator divides gradients from stage 3. */
static int divided_from(int cat, enum dt_account account)
{
	if (cat == DT_MEM_WEIGHTS || (cat == DT_MEM_GRADS && account == DT_ACCOUNT_DEEPSPEED))
		return 3;
	return cat == DT_MEM_GRADS ? 2 : 1;
}

/* Prefix of the entries that a category is named after; NULL: not a category of states. */
static const char *named_for(int cat)
{
	return cat == DT_MEM_MASTER  ? "master"
	       : cat == DT_MEM_GRADS ? "gradients"
	       : cat == DT_MEM_OPTIM ? "optimizer state"
				     : NULL;
}

/* Describes the category's other entries; of tiles, which are all alike, only the formula. */
static void say_others(struct text *t, const struct dt_estimate *e, int cat, const char *after)
{
	const char *last = "";

	for (int i = 0; i < e->n; i++) {
		const struct dt_entry *b = &e->e[i];

		if (b->cat != cat || !b->at_peak || b->place != DT_PLACE_DEVICE ||
		    !strncmp(b->name, named_for(cat), strlen(named_for(cat))) || !strcmp(b->kind, last))
			continue;
		say(t, "%s%s", t->len ? after : "", t->len ? b->name : b->formula);
		last = b->kind;
	}
}

static bool has_named(const struct dt_estimate *e, int cat)
{
	for (int i = 0; i < e->n; i++)
		if (e->e[i].cat == cat && e->e[i].place == DT_PLACE_DEVICE &&
		    !strncmp(e->e[i].name, named_for(cat), strlen(named_for(cat))))
			return true;
	return false;
}

/* Describes a category of states: its own formula, then its other entries. */
static void say_trained(struct text *t, const struct dt_fit_query *q, const struct dt_estimate *e, int cat)
{
	const struct dt_run *r = &q->run;

	if (has_named(e, cat)) {
		say(t, "%sparameters", r->lora.rank || r->freeze ? "trained " : "");
		if (cat != DT_MEM_OPTIM)
			say(t, "%s", strchr(categories[cat].formula, ' '));
		else if (e->account == DT_ACCOUNT_DEEPSPEED)
			say(t, " x %d bytes: moments, and gradients in f32", r->layout.zero >= 3 ? 10 : 12);
		else
			say_states(t, r->optim.kind,
				   e->account == DT_ACCOUNT_BOOK ? "bytes an element" : "4 bytes");
		if (r->layout.zero >= divided_from(cat, e->account) && r->layout.dp * r->layout.cp > 1)
			say(t, " / ranks");
	}
	say_others(t, e, cat, "; ");
}

const char *dt_category_formula(const struct dt_fit_query *q, const struct dt_estimate *e, int cat, char *buf,
				size_t n)
{
	struct text t = {buf, n, 0};

	buf[0] = '\0';
	if (e->cat_bytes[cat] && !q->serve && named_for(cat))
		say_trained(&t, q, e, cat);
	if (!buf[0])
		say(&t, "%s",
		    dt_config_is_image(q->run.config) && categories[cat].images ? categories[cat].images
										: categories[cat].formula);
	if (cat == DT_MEM_WEIGHTS && !q->serve && q->run.layout.zero >= 3 &&
	    q->run.layout.dp * q->run.layout.cp > 1)
		say(&t, " / ranks");
	return buf;
}

const char *dt_category_text(int cat)
{
	return categories[cat].text;
}

enum dt_exactness dt_category_exactness(const struct dt_estimate *e, int cat)
{
	bool exact = true, modelled = false;

	for (int i = 0; i < e->n; i++) {
		exact &= e->e[i].cat != cat || e->e[i].exactness == DT_EXACT;
		modelled |= e->e[i].cat == cat && e->e[i].exactness == DT_MODELLED;
	}
	return exact ? DT_EXACT : modelled ? DT_MODELLED : DT_CALIBRATED;
}
/* SPDX-License-Identifier: Apache-2.0 */
