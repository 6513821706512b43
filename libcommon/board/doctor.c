#include "board/doctor_rules.h"

#include <math.h>

static const struct dt_change fewer_messages[] = {
	{"layout", "any"}, {"global-batch", "x2"}, {"grad-comm", "bf16"}, {NULL, NULL}};
static const struct dt_change fuller_pipeline[] = {
	{"layout", "any"}, {"global-batch", "x2"}, {"pipeline", "zb-h1"}, {NULL, NULL}};
static const struct dt_change larger_products[] = {{"layout", "any"}, {"microbatch", "x2"}, {NULL, NULL}};

static const struct {
	const char *name;
	doctor_rule *look;
	const char *what_to_try;
	const struct dt_change *changes;
} rules[] = {
	{"data-bound", doctor_data_bound,
	 "more --loader-threads (images); the data set on a local disk; smaller or already decoded images"},
	{"communication-bound", doctor_comm_bound,
	 "another layout, from dt-plan; --grad-comm bf16; more microbatches per step (--global-batch); tp "
	 "only "
	 "inside a machine",
	 fewer_messages},
	{"pipeline-bubble", doctor_bubble,
	 "more microbatches per step; --pipeline interleaved:V or zb-h1; fewer stages; dt-plan compares them",
	 fuller_pipeline},
	{"slow-checkpoints", doctor_slow_saves,
	 "--save-async; a larger --save-every; a faster disk; no --compress"},
	{"low-mfu", doctor_low_mfu,
	 "a larger --microbatch; more --threads; fewer tp ranks; dt-plan roofline shows what limits it",
	 larger_products},
	{"slows-down", doctor_slows_down,
	 "check for other jobs and thermal throttling; --details 10 shows which rank slows down"},
	{"uneven-steps", doctor_uneven,
	 "check for other processes on the machines; --trace of a few steps shows what waits for what"},
	{"straggler", doctor_straggler,
	 "check that rank's machine: clocks, other jobs, disk; dt-run --slow reports it and --evict-slow "
	 "excludes it"},
	{"not-finite", doctor_not_finite,
	 "a lower --lr, a longer --warmup, --clip; --nan-skips K skips such updates; bf16 instead of fp16"},
	{"overflow", doctor_overflow, "bf16 instead of fp16; a smaller --loss-scale; a lower --lr"},
	{"diverges", doctor_diverges,
	 "a lower --lr, a longer --warmup, --clip 1; --on-spike rollback:N returns to an earlier checkpoint"},
	{"learns-nothing", doctor_learns_nothing,
	 "a higher --lr; check the data and its tokenizer with dt-dataset sample"},
	{"gradient-spikes", doctor_spikes,
	 "--clip 1; --on-spike skip; a lower --lr; check the samples of those steps"},
	{"not-shuffled", doctor_not_shuffled,
	 "the data set is in an order of its own: shuffle before dt-dataset build, or try another --seed"},
	{"repeated-samples", doctor_repeats,
	 "remove duplicates with dt-dataset build --dedup near; check whether a source repeats a batch"},
	{"overfits", doctor_overfits,
	 "more data or fewer epochs; --weight-decay; stop at the lowest evaluation loss"},
	{"batch-changed", doctor_batch_changed,
	 "use the --global-batch that the run began with; after an intended change adapt --lr"},
	{"rate-jumps", doctor_rate_jumps,
	 "use the --steps, --warmup and schedule that the run began with; --resume keeps them"},
	{"steps-missing", doctor_steps_missing,
	 "use one metrics file per run: --resume appends to it, other runs need their own"},
	{"memory-grows", doctor_memory_grows,
	 "report a bug, with the command line: the planned memory does not grow"},
	{"experts-uneven", doctor_experts_uneven,
	 "a larger --balance-loss, --balance-over batch, or --capacity-factor"},
};
#define NRULES ((int)(sizeof(rules) / sizeof(*rules)))
_Static_assert(sizeof(rules) / sizeof(*rules) <= DT_DOCTOR_MAX, "ret[] is too short");

double dt_doctor_step_s(const struct dt_board_run *r)
{
	struct steps s;
	double v = steps_of(&s, r) == 0 ? steps_median_of(&s, "step_s", s.settled, s.n) : NAN;

	steps_release(&s);
	return v;
}

int dt_doctor(const struct dt_board_run *r, struct dt_finding ret[DT_DOCTOR_MAX], struct dt_err *err)
{
	struct steps s;
	int n = 0, rc = steps_of(&s, r);

	for (int i = 0; i < NRULES && rc == 0 && s.n > 1; i++) {
		struct dt_finding f = {.name = rules[i].name,
				       .what_to_try = rules[i].what_to_try,
				       .changes = rules[i].changes};
		int at = n;

		if (!rules[i].look(&s, &f))
			continue;
		for (; at > 0 && ret[at - 1].gain < f.gain; at--)
			ret[at] = ret[at - 1];
		ret[at] = f;
		n++;
	}
	steps_release(&s);
	return rc < 0 ? dt_err_sys(err, rc, "cannot examine '%s'", r->name) : n;
}
/* SPDX-License-Identifier: Apache-2.0 */
