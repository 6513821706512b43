/* The steps of a run in the form that the rules use. */
#include "board/doctor_rules.h"

#include "base/order.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

double steps_get(const struct steps *s, const char *key, size_t i)
{
	const double *v = dt_board_run_column(s->r, key);

	return v ? v[s->at[i]] : NAN;
}

bool doctor_say(struct dt_finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->evidence, sizeof(f->evidence), fmt, ap);
	va_end(ap);
	return true;
}

double steps_median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), dt_order_f64);
	return v[n / 2];
}

size_t steps_collect(const struct steps *s, const char *key, size_t first, size_t end)
{
	const double *v = dt_board_run_column(s->r, key);
	size_t n = 0;

	for (size_t i = first; v && i < end; i++)
		if (!isnan(v[s->at[i]]))
			s->a[n++] = v[s->at[i]];
	return n;
}

double steps_median_of(const struct steps *s, const char *key, size_t first, size_t end)
{
	return steps_median(s->a, steps_collect(s, key, first, end));
}

/*
 * Marks lines of work that was lost. A resumed run appends to its metrics and repeats the steps after the
 * checkpoint; earlier lines with the same or a later step do not count. The search stops at lines of another
 * run_id: two runs in one file are a finding.
 */
static void find_again(const struct steps *s)
{
	const double *step = dt_board_run_column(s->r, "step"), *step_s = dt_board_run_column(s->r, "step_s");
	double least = INFINITY;

	for (size_t i = s->r->rows; step && step_s && i > 0; i--) {
		uint32_t of = s->r->of[i - 1];

		if (!of || i == s->r->rows || of != s->r->of[i])
			least = INFINITY;
		s->again[i - 1] = step[i - 1] >= least;
		if (!isnan(step_s[i - 1]))
			least = fmin(least, step[i - 1]);
	}
}

int steps_of(struct steps *s, const struct dt_board_run *r)
{
	const double *step_s = dt_board_run_column(r, "step_s");

	*s = (struct steps){.r = r,
			    .again = calloc(r->rows + 1, sizeof(*s->again)),
			    .at = malloc((r->rows + 1) * sizeof(*s->at)),
			    .a = malloc((r->rows + 1) * sizeof(*s->a)),
			    .b = malloc((r->rows + 1) * sizeof(*s->b))};
	if (!s->again || !s->at || !s->a || !s->b)
		return -ENOMEM;
	find_again(s);
	for (size_t i = 0; step_s && i < r->rows; i++)
		if (!isnan(step_s[i]) && !s->again[i])
			s->at[s->n++] = i;
	/* Warm-up: cold files, first touch of pages. */
	s->settled = s->n / 20 > DT_DOCTOR_UNSETTLED ? s->n / 20 : DT_DOCTOR_UNSETTLED;
	s->settled = s->settled < s->n ? s->settled : s->n;
	for (size_t i = s->settled; i < s->n; i++)
		s->seconds += step_s[s->at[i]];
	return 0;
}

void steps_release(struct steps *s)
{
	free(s->again);
	free(s->at);
	free(s->a);
	free(s->b);
}

/* SPDX-License-Identifier: Apache-2.0 */
