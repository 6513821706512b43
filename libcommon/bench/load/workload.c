#include "bench/load/workload.h"

#include "base/rng.h"
#include "base/room.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SUB_ARRIVE, SUB_INPUT, SUB_OUTPUT, SUB_PREFIX, SUB_CUT, SUB_CUT_WHEN };

int dt_load_add(struct dt_load *l, const struct dt_load_item *it)
{
	if (l->n > 1 << 28 || !DT_ROOM(l->item, l->n, l->cap, 256))
		return -ENOMEM;
	l->item[l->n++] = *it;
	return 0;
}

void dt_load_release(struct dt_load *l)
{
	free(l->item);
	free(l->names);
	*l = (struct dt_load){0};
}

void dt_load_choose_cut(struct dt_load *l, uint64_t seed, double share, double span)
{
	struct dt_rng which = dt_rng_make(seed, DT_RNG_SAMPLE, SUB_CUT);
	struct dt_rng when = dt_rng_make(seed, DT_RNG_SAMPLE, SUB_CUT_WHEN);

	for (int i = 0; i < l->n; i++)
		l->item[i].cut_s = dt_rng_uniform53(&which, (uint64_t)i) < share
					   ? dt_rng_uniform53(&when, (uint64_t)i) * span
					   : -1;
}

/*
 * Time of the s-th event of a process whose rate goes linearly from r0 to r1 while n events are expected: the
 * root of r0 t + (r1 - r0) t^2 / 2T = s, where T = 2n / (r0 + r1). After T the rate stays r1.
 */
static double when(double s, double r0, double r1, double n)
{
	double T = 2 * n / (r0 + r1), a = (r1 - r0) / (2 * T);

	if (s > n)
		return T + (s - n) / r1;
	if (fabs(a) * T < 1e-9 * r0)
		return s / r0;
	return 2 * s / (r0 + sqrt(fmax(0, r0 * r0 + 4 * a * s)));
}

static int length(const struct dt_load_shape *s, int sub, int mean, int i)
{
	struct dt_rng r = dt_rng_make(s->seed, DT_RNG_SAMPLE, (uint32_t)sub);
	double lo = mean * (1 - s->spread), hi = mean * (1 + s->spread);
	double v = floor(lo + 0.5 + dt_rng_uniform53(&r, (uint64_t)i) * (hi - lo));

	return v < 1 ? 1 : (int)v;
}

int dt_load_make(struct dt_load *l, const struct dt_load_shape *s, struct dt_err *err)
{
	struct dt_rng arrive = dt_rng_make(s->seed, DT_RNG_SAMPLE, SUB_ARRIVE);
	struct dt_rng which = dt_rng_make(s->seed, DT_RNG_SAMPLE, SUB_PREFIX);
	int talks = (s->requests + s->turns - 1) / s->turns,
	    group = s->arrival == DT_ARRIVE_BURST ? s->burst : 1;
	double r1 = s->ramp > 0 ? s->ramp : s->rate, sum = 0, at = 0;

	*l = (struct dt_load){0};
	for (int i = 0; i < s->requests; i++) {
		int talk = i / s->turns, turn = i % s->turns;
		struct dt_load_item it = {.turn = turn, .prefix = -1, .cut_s = -1};

		if (turn == 0 && s->rate > 0 && talk % group == 0) {
			at = when(sum, s->rate, r1, talks);
			sum += s->arrival == DT_ARRIVE_CONSTANT
				       ? 1
				       : -log1p(-dt_rng_uniform53(&arrive, (uint64_t)talk)) * group;
		}
		it.at_s = turn == 0 ? at : -1;
		it.input = length(s, SUB_INPUT, s->input, i);
		it.output = length(s, SUB_OUTPUT, s->output, i);
		if (s->prefix > 0 && turn == 0) {
			it.prefix = (int)dt_rng_below(&which, (uint64_t)talk, (uint64_t)s->prefixes);
			it.prefix_len = s->prefix;
			it.input += s->prefix;
		}
		if (dt_load_add(l, &it) < 0) {
			dt_load_release(l);
			return dt_err_sys(err, -ENOMEM, "cannot make %d requests", s->requests);
		}
	}
	dt_load_choose_cut(l, s->seed, s->cut, s->cut_span);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
