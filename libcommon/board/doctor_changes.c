/* Symptoms of a change within a run: its batch, its learning rate, its memory. */
#include "board/doctor_rules.h"

#include <math.h>

bool doctor_batch_changed(const struct steps *s, struct dt_finding *f)
{
	const char *key = dt_board_run_column(s->r, "tokens") ? "tokens" : "images";
	double each = NAN;

	for (size_t i = 1; i < s->n; i++) {
		double d = steps_get(s, "step", i) - steps_get(s, "step", i - 1),
		       t = steps_get(s, key, i) - steps_get(s, key, i - 1);

		if (!(d > 0) || isnan(t))
			continue;
		if (!isnan(each) && fabs(t / d - each) > 1e-9 * each)
			return doctor_say(f, "a step had %.0f %s until step %.0f, then %.0f", each, key,
					  steps_get(s, "step", i - 1), t / d);
		each = t / d;
	}
	return false;
}

bool doctor_rate_jumps(const struct steps *s, struct dt_finding *f)
{
	for (size_t i = s->n / 50 + 5; i < s->n; i++) {
		double before = steps_get(s, "lr", i - 1), now = steps_get(s, "lr", i);

		if (steps_get(s, "step", i) == steps_get(s, "step", i - 1) + 1 && before > 0 &&
		    (now > 1.8 * before || now < 0.3 * before) && now > 0)
			return doctor_say(f, "the learning rate changes from %.3g to %.3g at step %.0f",
					  before, now, steps_get(s, "step", i));
	}
	return false;
}

bool doctor_steps_missing(const struct steps *s, struct dt_finding *f)
{
	size_t gaps = 0, back = 0;

	for (size_t i = 1; i < s->n; i++) {
		double d = steps_get(s, "step", i) - steps_get(s, "step", i - 1);

		gaps += d > 1;
		back += d <= 0;
	}
	return gaps + back > 0 &&
	       doctor_say(f, "%zu gaps in the step numbers, %zu step numbers that repeat or go back", gaps,
			  back);
}

bool doctor_memory_grows(const struct steps *s, struct dt_finding *f)
{
	double half, last;

	if (s->n < 100 || isnan(steps_get(s, "rss_bytes", 0)))
		return false;
	half = steps_get(s, "rss_bytes", s->n / 2);
	last = steps_get(s, "rss_bytes", s->n - 1);
	return last > 1.15 * half && steps_get(s, "rss_bytes", 3 * s->n / 4) > 1.05 * half &&
	       doctor_say(f,
			  "peak resident memory of rank 0 was %.3g MiB half-way and is %.3g MiB at the end",
			  half / 0x1p20, last / 0x1p20);
}

bool doctor_experts_uneven(const struct steps *s, struct dt_finding *f)
{
	double load =
		s->n >= DT_DOCTOR_LOSSES ? steps_median_of(s, "expert_largest_load", s->n / 2, s->n) : NAN;

	return load > 4 &&
	       doctor_say(f, "one expert gets %.1f times an even share in the second half of the run", load);
}

/* SPDX-License-Identifier: Apache-2.0 */
