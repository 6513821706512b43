#include "plan/lr.h"

#include "base/opt.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses "N[,N...][:FACTOR]". */
static int parse_drops(struct dt_lr *l, const char *s)
{
	char number[24], *end;

	l->factor = 0.1;
	l->drops = 0;
	for (size_t n; l->drops < DT_LR_DROPS; s += n + 1) {
		n = strcspn(s, ",:");
		if (n >= sizeof(number))
			return -EINVAL;
		snprintf(number, sizeof(number), "%.*s", (int)n, s);
		if (dt_parse_int(number, 1, INT64_MAX, &l->drop[l->drops], NULL) < 0 ||
		    (l->drops && l->drop[l->drops] <= l->drop[l->drops - 1]))
			return -EINVAL;
		l->drops++;
		if (!s[n])
			return 0;
		if (s[n] == ':') {
			l->factor = strtod(s + n + 1, &end);
			return end > s + n + 1 && !*end && l->factor > 0 && l->factor <= 1 ? 0 : -EINVAL;
		}
	}
	return -EINVAL;
}

int dt_lr_parse(struct dt_lr *l, struct dt_err *err)
{
	int i = l->text ? dt_opt_choice_index(DT_LR_WORDS, l->text) : (int)l->schedule;

	if (i < 0 && !strncmp(l->text, "step:", 5) && parse_drops(l, l->text + 5) == 0)
		i = DT_LR_STEP;
	if (i < 0) {
		dt_err_set(err, -EINVAL,
			   "--schedule '%.60s' is not one of constant, linear, cosine, wsd, polynomial, "
			   "step:STEP[,STEP...][:FACTOR]",
			   l->text);
		dt_err_hint(err,
			    "the steps of 'step' ascend, at most %d of them; FACTOR is above 0 and at most 1",
			    DT_LR_DROPS);
		return -EINVAL;
	}
	l->schedule = (enum dt_lr_schedule)i;
	return 0;
}

static double dropped(const struct dt_lr *l, int64_t step)
{
	double lr = l->lr;

	for (int i = 0; i < l->drops && step >= l->drop[i]; i++)
		lr *= l->factor;
	return lr;
}

static double rate(const struct dt_lr *l, int64_t step)
{
	int64_t start = l->warmup;
	double x;

	if (step < l->warmup)
		return l->lr * (double)(step + 1) / (double)l->warmup;
	if (l->schedule == DT_LR_CONSTANT)
		return l->lr;
	if (l->schedule == DT_LR_STEP)
		return dropped(l, step);
	if (l->schedule == DT_LR_WSD && l->steps - l->decay > start)
		start = l->steps - l->decay;
	if (step < start)
		return l->lr;
	if (step >= l->steps)
		return l->min_lr;
	x = (double)(step - start) / (double)(l->steps - start);
	if (l->schedule == DT_LR_COSINE)
		return l->min_lr + 0.5 * (l->lr - l->min_lr) * (1 + cos(M_PI * x));
	if (l->schedule == DT_LR_POLYNOMIAL)
		return l->min_lr + (l->lr - l->min_lr) * (1 - x) * (1 - x);
	return l->lr + (l->min_lr - l->lr) * x;
}

double dt_lr_at(const struct dt_lr *l, int64_t step)
{
	return rate(l, step) * (l->scale > 0 ? l->scale : 1);
}
/* SPDX-License-Identifier: Apache-2.0 */
