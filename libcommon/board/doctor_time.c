/* Symptoms in step times. */
#include "board/doctor_rules.h"

#include "base/order.h"

#include <math.h>
#include <stdlib.h>

/* The key's share of the time of all steps after warm-up. */
static double share(const struct steps *s, const char *key)
{
	size_t n = steps_collect(s, key, s->settled, s->n);
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += s->a[i];
	return s->n >= s->settled + DT_DOCTOR_TIMES && s->seconds > 0 ? sum / s->seconds : 0;
}

static bool by_share(const struct steps *s, struct dt_finding *f, double v, double most, const char *what)
{
	f->gain = v;
	return v > most && doctor_say(f, "%.0f%% of the step time %s", 100 * v, what);
}

bool doctor_data_bound(const struct steps *s, struct dt_finding *f)
{
	return by_share(s, f, share(s, "data_s"), 0.1, "is spent waiting for samples");
}

bool doctor_comm_bound(const struct steps *s, struct dt_finding *f)
{
	double v = share(s, "comm_grads_s") + share(s, "comm_weights_s") + share(s, "comm_tensor_s");

	return by_share(s, f, v, 0.3,
			"is spent waiting for communication of gradients, weights or tensor parallelism");
}

bool doctor_bubble(const struct steps *s, struct dt_finding *f)
{
	return by_share(s, f, share(s, "comm_pipeline_s"), 0.25,
			"of rank 0 is spent waiting for other pipeline stages");
}

bool doctor_slow_saves(const struct steps *s, struct dt_finding *f)
{
	return by_share(s, f, share(s, "checkpoint_s"), 0.1, "is spent writing checkpoints");
}

/* All matrix products are slow: too little work in each. */
bool doctor_low_mfu(const struct steps *s, struct dt_finding *f)
{
	double mfu = s->n >= s->settled + DT_DOCTOR_TIMES ? steps_median_of(s, "mfu", s->settled, s->n) : NAN;
	double compute = share(s, "compute_s");

	return mfu < 0.12 && compute > 0.6 &&
	       doctor_say(f, "MFU is only %.1f%%, although %.0f%% of the step time is compute", 100 * mfu,
			  100 * compute);
}

/* Step time increases during the run. */
bool doctor_slows_down(const struct steps *s, struct dt_finding *f)
{
	size_t n = s->n - s->settled, q = n / 4;
	double first, last;

	if (s->n < s->settled + 4 * DT_DOCTOR_TIMES)
		return false;
	first = steps_median_of(s, "step_s", s->settled, s->settled + q);
	last = steps_median_of(s, "step_s", s->n - q, s->n);
	f->gain = last > first ? 1 - first / last : 0;
	return last > 1.3 * first &&
	       doctor_say(f,
			  "a step took %.3g s in the first quarter of the run and takes %.3g s in the last",
			  first, last);
}

bool doctor_uneven(const struct steps *s, struct dt_finding *f)
{
	size_t n = steps_collect(s, "step_s", s->settled, s->n);
	double mid, high;

	if (n < 100)
		return false;
	mid = steps_median(s->a, n);
	high = s->a[n - 1 - n / 20];
	return high > 2.5 * mid && share(s, "checkpoint_s") < 0.05 &&
	       doctor_say(f, "one step in 20 takes %.1f times the median or longer", high / mid);
}

/* A rank that computes longer than the others in most lines of details. */
bool doctor_straggler(const struct steps *s, struct dt_finding *f)
{
	size_t lines = json_array_size(s->r->details), ranks = 0, *times, worst = 0;
	double most = 0;

	for (size_t i = 0; i < lines; i++) {
		const json_t *d = json_object_get(json_array_get(s->r->details, i), "details");
		const json_t *v = json_object_get(json_object_get(d, "ranks"), "compute_s");

		ranks = json_array_size(v) > ranks ? json_array_size(v) : ranks;
	}
	times = ranks > 1 && ranks < 1u << 20 ? calloc(2 * ranks, sizeof(*times)) : NULL;
	for (size_t i = 0; times && i < lines; i++) {
		const json_t *d = json_object_get(json_array_get(s->r->details, i), "details");
		const json_t *v = json_object_get(json_object_get(d, "ranks"), "compute_s");
		size_t n = json_array_size(v), slow = 0;
		double *c = malloc((n + 1) * sizeof(*c)), mid;

		for (size_t k = 0; c && k < n; k++) {
			c[k] = json_number_value(json_array_get(v, k));
			slow = c[k] > c[slow] ? k : slow;
		}
		if (c && n) {
			double top = c[slow];

			qsort(c, n, sizeof(*c), dt_order_f64);
			mid = c[(n - 1) / 2];
			if (mid > 0 && top > 1.3 * mid) {
				times[slow]++;
				most = fmax(most, top / mid);
			}
		}
		free(c);
	}
	for (size_t k = 0; times && k < ranks; k++)
		worst = times[k] > times[worst] ? k : worst;
	lines = times && lines >= 3 && times[worst] * 3 >= lines * 2 ? times[worst] : 0;
	free(times);
	return lines && doctor_say(f,
				   "rank %zu has the longest compute time in %zu of %zu lines of "
				   "--details, up to %.1f times the median",
				   worst, lines, json_array_size(s->r->details), most);
}

/* SPDX-License-Identifier: Apache-2.0 */
