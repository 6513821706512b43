/* Prints what a run says before its first step: model, layout, batch and memory. */
#include "train/trainer.h"

#include "base/units.h"
#include "plan/context.h"
#include "plan/objective.h"
#include "plan/rounds.h"

/* Prints how the sequence is split over ranks, how attention works across them, and what that sends. */
static void announce_context(struct trainer *t)
{
	static const char *const name[] = {"auto", "gather", "ring", "ulysses"};
	const struct dt_run *r = &t->run;
	enum dt_cp_comm how = dt_context_comm(r);
	int64_t c = r->seq / (2 * r->layout.cp), cp = r->layout.cp;
	char sent[3][32];

	dt_log_msg(&t->root_log,
		   "cp%lld: of the %lld tokens of a sequence rank 0 has %lld .. %lld and %lld .. %lld, rank "
		   "%lld has %lld .. %lld",
		   (long long)cp, (long long)r->seq, 0LL, (long long)(c - 1), (long long)(r->seq - c),
		   (long long)(r->seq - 1), (long long)(cp - 1), (long long)((cp - 1) * c),
		   (long long)((cp + 1) * c - 1));
	for (int k = 0; k < 3; k++)
		dt_format_size((uint64_t)dt_context_bytes(r, (enum dt_cp_comm)(DT_CP_GATHER + k)), sent[k],
			       sizeof(sent[k]));
	dt_log_msg(&t->root_log,
		   "attention over cp: %s%s; per layer and microbatch gather and ring send %s, ulysses sends "
		   "%s%s",
		   name[how], r->cp_comm == DT_CP_AUTO ? ", which sends the fewest bytes" : "", sent[0],
		   sent[2],
		   dt_context_can(r, DT_CP_ULYSSES) ? "" : " (not possible with these numbers of heads)");
}

/* Prints the global batch and the learning rate. */
static void announce_batch(struct trainer *t)
{
	const struct dt_run *r = &t->run;
	const struct dt_lr *l = &r->lr;
	const char *what = dt_config_is_image(&t->config) ? "images" : "tokens";
	char count[32], warm[48] = "", made[96];

	if (l->warmup)
		snprintf(warm, sizeof(warm), " after %lld step%s of warmup", (long long)l->warmup,
			 l->warmup == 1 ? "" : "s");
	if (r->ramp.tokens)
		dt_log_msg(&t->root_log,
			   "the global batch grows from %lld samples in increments of %lld, over %s %s",
			   (long long)r->ramp.from, (long long)r->ramp.from,
			   dt_format_count((double)r->ramp.tokens, count, sizeof(count)), what);
	if (dt_objective_rule(r->objective.kind)->rewards) {
		dt_log_msg(
			&t->root_log,
			"%lld prompt%s per step, in as many microbatches of %lld sample%s as their answers "
			"need; learning rate %.4g%s",
			(long long)r->rl.batch, r->rl.batch == 1 ? "" : "s", (long long)r->microbatch,
			r->microbatch == 1 ? "" : "s", l->lr * l->scale, warm);
		return;
	}
	if (dt_config_is_image(&t->config) && dt_rounds_uneven(r))
		snprintf(made, sizeof(made), "in %lld round%s, divided unequally among the ranks",
			 (long long)r->accumulation, r->accumulation == 1 ? "" : "s");
	else
		snprintf(made, sizeof(made), "= microbatch %lld x accumulation %lld x dp %d",
			 (long long)r->microbatch, (long long)r->accumulation, r->layout.dp);
	dt_log_msg(&t->root_log, "global batch %lld samples %s, %lld %s per step; learning rate %.4g%s",
		   (long long)r->global_batch, made, (long long)(r->global_batch * r->seq), what,
		   l->lr * l->scale, warm);
	if (r->scale_lr)
		dt_log_msg(&t->root_log,
			   "peak learning rate %.4g = %.4g x %.4g for a batch of %lld samples (%s)%s",
			   l->lr * l->scale, l->lr, l->scale, (long long)r->global_batch, r->scale_lr,
			   r->ramp.tokens ? ", less for smaller batches" : "");
}

/* Options that synchronise data-parallel ranks, where there is one. A layout may have more later. */
static void announce_one_rank(struct trainer *t)
{
	const struct dt_run *r = &t->run;
	const bool sync = r->sync.kind == DT_SYNC_LOCAL || r->sync.kind == DT_SYNC_GOSSIP ||
			  r->sync.kind == DT_SYNC_BACKUP;

	if (r->layout.dp > 1)
		return;
	if (sync)
		dt_log_msg(&t->root_log, "--sync %s has no effect: there is one data-parallel rank",
			   r->sync.text);
	if (r->shares && strcmp(r->shares, "equal") != 0)
		dt_log_msg(&t->root_log, "--shares %s has no effect: there is one data-parallel rank",
			   r->shares);
}

void trainer_announce(struct trainer *t)
{
	char layout[64], mem[32], count[32], part[64] = "", few[32], again[400];
	int64_t params = dt_params_total(&t->table), trained = dt_params_trained(&t->table);

	if (trained < params)
		snprintf(part, sizeof(part), " (%s trained)",
			 dt_format_count((double)trained, few, sizeof(few)));
	dt_log_msg(&t->root_log, "%s, %s parameters%s; layout %s; per rank %d thread%s (%s) and %s of memory",
		   t->config.name, dt_format_count((double)params, count, sizeof(count)), part,
		   dt_layout_format(&t->run.layout, layout, sizeof(layout)), t->dev->nthreads,
		   t->dev->nthreads == 1 ? "" : "s", dt_dev_isa(t->dev),
		   dt_format_size(t->plan.arena_bytes + t->draws.bytes, mem, sizeof(mem)));
	announce_batch(t);
	if (trainer_labels(t))
		labelled_announce(t);
	if (t->run.layout.cp > 1)
		announce_context(t);
	announce_one_rank(t);
	outer_announce(t);
	backup_announce(t);
	servers_announce(t);
	compressed_announce(t);
	for (int i = 0; dt_mixture_parts(t->source.data) > 1 && i < dt_mixture_parts(t->source.data); i++) {
		struct dt_mixture_part p;

		dt_mixture_part(t->source.data, i, &p);
		dt_log_msg(&t->root_log,
			   "data set '%s': %.4g%% of the samples, one epoch of it is %lld samples", p.path,
			   p.share * 100, (long long)p.samples);
	}
	if (t->info.nodes > 1 &&
	    (t->run.layout.tp > t->info.local_size || t->info.local_size % t->run.layout.tp))
		dt_log_msg(&t->root_log,
			   "tensor-parallel groups of %d ranks span machines of %d ranks: every layer waits "
			   "for the network between the machines",
			   t->run.layout.tp, t->info.local_size);
	if (t->run.recompute.fit)
		dt_log_msg(&t->root_log, "--recompute auto recomputes: %s",
			   dt_keep_given_up(&t->plan.recompute, again, sizeof(again)));
	if (t->run.recompute.fit && t->run.offload.what & DT_OFFLOAD_ACTIVATIONS)
		dt_log_msg(&t->root_log, "--recompute auto offloads the activations of %d of %lld layers",
			   t->plan.away_layers, (long long)t->config.layers);
	if (t->run.fp8) {
		char in[64], out[64];
		int n, left;

		dt_stage_8_bits(&t->plan.stage, true, in, &n);
		dt_stage_8_bits(&t->plan.stage, false, out, &left);
		dt_log_msg(&t->root_log, "--fp8 computes in 8 bits: %s of every layer%s%s", in,
			   left ? "; not, because sizes are not multiples of 16: " : "", out);
	}
	if (t->report.matmul_rate > 0)
		dt_log_msg(&t->root_log, "matmul rate measured: %.1f GFLOP/s %s on all ranks together",
			   t->report.matmul_rate * 1e-9, dt_dtype_name(metrics_rate_type(t)));
	if (t->report.sheet_rate > 0)
		dt_log_msg(&t->root_log, "data sheet rate: %.1f GFLOP/s %s on all GPUs together",
			   t->report.sheet_rate * 1e-9, dt_dtype_name(metrics_rate_type(t)));
}

void trainer_say_noise(const struct trainer *t)
{
	if (noise_known(&t->noise))
		dt_log_msg(
			&t->root_log,
			"gradient noise scale: %.4g samples, batch: %lld; batches far above the noise scale "
			"save few steps, batches far below it save little data (McCandlish et al. 2018)",
			noise_scale(&t->noise), (long long)source_samples_of_step(t));
}
/* SPDX-License-Identifier: Apache-2.0 */
