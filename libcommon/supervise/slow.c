#include "supervise/priv.h"

#include "base/order.h"

#include <stdlib.h>

void sup_slow_reset(struct sup_slow *s)
{
	free(s->v);
	*s = (struct sup_slow){0};
}

/* The lower median over the ranks of this rank's stage; 0: it is the only one. */
static double median(const double *v, const struct sup_ranks *r, int of)
{
	double *same = malloc((size_t)r->n * sizeof(*same)), m = 0;
	int n = 0;

	for (int i = 0; same && i < r->n; i++)
		if (r->v[i].known && r->v[i].beat.stage == r->v[of].beat.stage)
			same[n++] = v[i];
	if (n > 1) {
		qsort(same, (size_t)n, sizeof(*same), dt_order_f64);
		m = n % 2 ? same[n / 2] : same[n / 2 - 1];
	}
	free(same);
	return m;
}

/* Whether every live rank has made SUP_SLOW_STEPS steps since the last look. */
static bool due(const struct sup_slow *s, const struct sup_ranks *r)
{
	int n = 0;

	for (int i = 0; i < r->n; i++) {
		const struct dt_beat *b = &r->v[i].beat;

		if (!r->v[i].known)
			continue;
		if (s->v[i].pid != b->pid)
			s->v[i] = (struct sup_pace){.pid = b->pid, .step = b->from};
		if (b->phase < DT_BEAT_TRAIN || b->phase == DT_BEAT_END ||
		    b->step - s->v[i].step < SUP_SLOW_STEPS)
			return false;
		n++;
	}
	return n > 1;
}

/* Seconds of computing per step since the last look. */
static double take(struct sup_pace *p, const struct dt_beat *b)
{
	double each = (b->compute_s - p->compute_s) / (double)(b->step - p->step);

	p->step = b->step;
	p->compute_s = b->compute_s;
	return each;
}

int sup_slow_look(struct sup_slow *s, const struct sup_ranks *r, double limit)
{
	double *each = NULL;
	int named = -1;
	bool first = false;

	if (s->n != r->n) {
		sup_slow_reset(s);
		s->v = calloc((size_t)(r->n ? r->n : 1), sizeof(*s->v));
		s->n = s->v ? r->n : 0;
	}
	if (!s->n || !due(s, r) || !(each = calloc((size_t)r->n, sizeof(*each))))
		return -1;
	for (int i = 0; i < r->n; i++) {
		first |= r->v[i].known && s->v[i].compute_s <= 0;
		if (r->v[i].known)
			each[i] = take(&s->v[i], &r->v[i].beat);
	}
	for (int i = 0; i < r->n && !first; i++) {
		struct sup_pace *p = &s->v[i];
		double m;

		if (!r->v[i].known)
			continue;
		p->best = p->best > 0 && p->best < each[i] ? p->best : each[i];
		p->own = each[i] > 0 ? p->best / each[i] : 1;
		m = median(each, r, i);
		p->score = each[i] > 0 && m > 0 ? m / each[i] : 1;
		p->slow = p->score < limit ? p->slow + 1 : 0;
		if (p->slow == SUP_SLOW_TIMES && (named < 0 || p->score < s->v[named].score))
			named = i;
	}
	free(each);
	return named;
}
/* SPDX-License-Identifier: Apache-2.0 */
