#include "route/scale.h"

#include <math.h>

static int within(const struct dt_scale_rule *rule, double n)
{
	int least = rule->least > rule->spares ? rule->least : rule->spares;

	return (int)fmin(fmax(n, least), rule->most);
}

static void change(struct dt_scale *s, int wanted)
{
	s->wanted = wanted;
	s->above_since = s->below_since = -1;
}

void dt_scale_init(struct dt_scale *s, const struct dt_scale_rule *rule, int servers, double now)
{
	change(s, within(rule, servers));
	s->busy = now;
}

/* Scale up to the smallest number that the load required during up_after. */
static void go_up(struct dt_scale *s, const struct dt_scale_rule *rule, double load, double now)
{
	double n = fmax(s->wanted - rule->spares, 0);
	int to = within(rule, ceil(load / rule->requests) + rule->spares);

	if (load <= n * rule->requests * (1 + rule->band) || to <= s->wanted) {
		s->above_since = -1;
		return;
	}
	if (s->above_since < 0)
		s->above_since = now;
	else if (s->above_to < to)
		to = s->above_to;
	s->above_to = to;
	if (s->wanted == 0 || now - s->above_since >= rule->up_after)
		change(s, to);
}

/* Scale down, to 1 at least, to the largest number that the load required during down_after. */
static void go_down(struct dt_scale *s, const struct dt_scale_rule *rule, double load, double now)
{
	int to = within(rule, fmax(ceil(load / (rule->requests * (1 - rule->band))) + rule->spares, 1));

	if (to >= s->wanted) {
		s->below_since = -1;
		return;
	}
	if (s->below_since < 0)
		s->below_since = now;
	else if (s->below_to > to)
		to = s->below_to;
	s->below_to = to;
	if (now - s->below_since >= rule->down_after)
		change(s, to);
}

int dt_scale_step(struct dt_scale *s, const struct dt_scale_rule *rule, int load, double now)
{
	int allowed = within(rule, s->wanted);

	if (load > 0)
		s->busy = now;
	if (allowed != s->wanted) /* the rule has changed */
		change(s, allowed);
	go_up(s, rule, load, now);
	go_down(s, rule, load, now);
	if (load == 0 && s->wanted > 0 && now - s->busy >= rule->zero_after && within(rule, 0) == 0)
		change(s, 0);
	return s->wanted;
}
/* SPDX-License-Identifier: Apache-2.0 */
