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
	 "--loader-threads more, for images; the data set on a local disk; images smaller or decoded before"},
	{"communication-bound", doctor_comm_bound,
	 "dt-plan for another layout; --grad-comm bf16; more microbatches a step (--global-batch); tp inside "
	 "a machine alone",
	 fewer_messages},
	{"pipeline-bubble", doctor_bubble,
	 "more microbatches a step; --pipeline interleaved:V or zb-h1; fewer stages; dt-plan compares them",
	 fuller_pipeline},
	{"slow-checkpoints", doctor_slow_saves,
	 "--save-async; --save-every less often; a faster disk; no --compress"},
	{"low-mfu", doctor_low_mfu,
	 "a larger --microbatch; --threads; fewer tp ranks; dt-plan roofline says what bounds it",
	 larger_products},
	{"slows-down", doctor_slows_down,
	 "look for other jobs and for clocks that are lowered for heat; --details 10 says which rank it is"},
	{"uneven-steps", doctor_uneven,
	 "other processes on the machines; --trace of some steps shows what waits for what"},
	{"straggler", doctor_straggler,
	 "that rank's machine: its clocks, its neighbours, its disk; dt-run --slow and --evict-slow leave it "
	 "out"},
	{"not-finite", doctor_not_finite,
	 "a lower --lr, longer --warmup, --clip; --nan-skips K leaves such updates out; bf16 for fp16"},
	{"overflow", doctor_overflow, "bf16 instead of fp16; a smaller --loss-scale; a lower --lr"},
	{"diverges", doctor_diverges,
	 "a lower --lr, longer --warmup, --clip 1; go on from a checkpoint before it: --on-spike rollback:N"},
	{"learns-nothing", doctor_learns_nothing,
	 "a higher --lr; the data and its tokenizer: dt-dataset sample shows them"},
	{"gradient-spikes", doctor_spikes,
	 "--clip 1; --on-spike skip; a lower --lr; the samples of those steps"},
	{"not-shuffled", doctor_not_shuffled,
	 "a data set in an order of its own: shuffle before dt-dataset build, or train with another --seed"},
	{"repeated-samples", doctor_repeats,
	 "duplicates in the data: dt-dataset build --dedup near; a source that gives the same batch again"},
	{"overfits", doctor_overfits,
	 "more data or fewer epochs; --weight-decay; stop at the smallest evaluation loss"},
	{"batch-changed", doctor_batch_changed,
	 "the --global-batch that the run began with; a change on purpose wants another --lr too"},
	{"rate-jumps", doctor_rate_jumps,
	 "the --steps, --warmup and schedule that the run began with: --resume keeps them"},
	{"steps-missing", doctor_steps_missing,
	 "one metrics file a run: --resume appends to it, another run does not belong there"},
	{"memory-grows", doctor_memory_grows, "report it with the command: a plan's memory does not grow"},
	{"experts-uneven", doctor_experts_uneven,
	 "a larger --balance-loss, --balance-over batch, or --capacity-factor"},
};
#define NRULES ((int)(sizeof(rules) / sizeof(*rules)))
_Static_assert(sizeof(rules) / sizeof(*rules) <= DT_DOCTOR_MAX, "ret[] is too short");

const char *dt_doctor_rule(int i)
{
	return i < NRULES ? rules[i].name : NULL;
}

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
	return rc < 0 ? dt_err_sys(err, rc, "cannot look at '%s'", r->name) : n;
}
/* SPDX-License-Identifier: Apache-2.0 */
