/* Sets of the servers that may take a request; updated after each change of a server's state. */
#include "route/priv.h"

#include "base/progress.h"

#include <string.h>

void dt_route_server_changed(struct dt_route_server *s)
{
	struct dt_route_sets *t = &s->r->sets;
	const bool in = s->up && !s->drained && !s->gone && !s->off && s->asked != DT_ASKED_STOP,
		   timed = s->avoid_until > 0 || s->circuit != DT_CIRCUIT_CLOSED;

	dt_balance_set_bit(t->there, s->number, !s->gone);
	dt_balance_set_bit(t->unlisted, s->number, !s->gone && s->nmodels < 0 && s->conf.nmodels == 0);
	dt_balance_set_bit(t->prefills, s->number, s->role == DT_ROUTE_PREFILLS);
	dt_balance_set_bit(t->takes, s->number, in && !timed);
	dt_balance_set_bit(t->perhaps, s->number, in && timed);
}

static bool has(const struct dt_route_server *s, const char *model)
{
	for (int i = 0; i < s->conf.nmodels; i++)
		if (!strcmp(s->conf.model[i], model))
			return true;
	for (int i = 0; i < s->nmodels && s->conf.nmodels == 0; i++)
		if (!strcmp(s->model[i], model))
			return true;
	return false;
}

const struct dt_route_having *dt_route_having(struct dt_router *r, const char *model)
{
	const size_t n = strlen(model), slots = sizeof(r->having) / sizeof(r->having[0]);
	struct dt_route_having *h = &r->having[dt_prefix_hash(1, model, n) % slots];

	if (h->changes == r->changes && h->model[0] && !strcmp(h->model, model))
		return h;
	*h = (struct dt_route_having){.changes = r->changes};
	if (n < sizeof(h->model)) /* a longer name is not cached */
		memcpy(h->model, model, n);
	for (int i = 0; i < r->balance.n; i++)
		if (r->server[i] && has(r->server[i], model))
			h->has[i / 64] |= (uint64_t)1 << i % 64;
	return h;
}

/* Whether s accepts new requests now. */
static bool takes(struct dt_route_server *s, double now)
{
	if (!s->up || s->drained || s->gone || s->off || s->asked == DT_ASKED_STOP || now < s->avoid_until)
		return false;
	if (s->circuit == DT_CIRCUIT_OPEN && now - s->opened >= s->r->conf.circuit_open) {
		s->circuit = DT_CIRCUIT_HALF;
		s->successes = 0;
	}
	if (s->avoid_until > 0) {
		s->avoid_until = 0;
		dt_route_server_changed(s);
	}
	return s->circuit == DT_CIRCUIT_CLOSED || (s->circuit == DT_CIRCUIT_HALF && s->trials == 0);
}

void dt_route_server_pause(struct dt_route_server *s, double seconds)
{
	s->avoid_until = dt_now() + seconds;
	dt_route_server_changed(s);
}

/* Removes servers from set that take no requests now. */
static void keep_ready(struct dt_router *r, uint64_t *set, double now)
{
	uint64_t perhaps[DT_BALANCE_WORDS];

	for (int w = 0; w < DT_BALANCE_WORDS; w++) {
		perhaps[w] = set[w] & r->sets.perhaps[w];
		set[w] &= r->sets.takes[w];
	}
	for (int i = dt_balance_next(perhaps, 0); i >= 0; i = dt_balance_next(perhaps, i + 1))
		dt_balance_set_bit(set, i, takes(r->server[i], now));
}

enum dt_route_found dt_route_choice_mark(struct dt_route_x *x, double now)
{
	struct dt_router *r = x->r;
	const struct dt_route_sets *t = &r->sets;
	const struct dt_route_having *of = x->model ? dt_route_having(r, x->model) : NULL;
	uint64_t *set = r->balance.candidate, known = r->conf.neach > 0 && r->none_up, well = 0, room = 0;

	for (int w = 0; w < DT_BALANCE_WORDS; w++) {
		set[w] = of ? t->there[w] & of->has[w] : t->there[w];
		known |= set[w] | t->unlisted[w];
		set[w] &= ~(t->prefills[w] | x->tried[w]);
	}
	keep_ready(r, set, now);
	for (int w = 0; w < DT_BALANCE_WORDS; w++) {
		well |= set[w];
		set[w] &= ~r->balance.full[w];
		room |= set[w];
	}
	return room ? DT_ROUTE_FOUND : well ? DT_ROUTE_FULL : known ? DT_ROUTE_NONE : DT_ROUTE_UNKNOWN;
}

void dt_route_choice_mark_prefills(struct dt_route_x *x, double now)
{
	struct dt_router *r = x->r;
	const struct dt_route_having *of = x->model ? dt_route_having(r, x->model) : NULL;
	uint64_t *set = r->balance.candidate;

	for (int w = 0; w < DT_BALANCE_WORDS; w++)
		set[w] = r->sets.prefills[w] & (of ? of->has[w] : ~(uint64_t)0);
	keep_ready(r, set, now);
}
/* SPDX-License-Identifier: Apache-2.0 */
