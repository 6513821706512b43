/* Writes the scheduler's decisions. */
#include "serve/sched/trace.h"

#include "base/jsonl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool on(const struct dt_schedtrace *t)
{
	return t && !t->failed;
}

static void put(struct dt_schedtrace *t, json_t *v)
{
	if (!v || dt_json_write_line(t->f, v, NULL) < 0)
		t->failed = true;
	json_decref(v);
}

static json_t *ids(const int32_t *tokens, int from, int to)
{
	json_t *a = json_array();

	for (int i = from; tokens && i < to; i++)
		json_array_append_new(a, json_integer(tokens[i]));
	return a;
}

void dt_schedtrace_begin(struct dt_schedtrace *t, const struct dt_sched *s)
{
	json_t *tenants = json_array();

	if (on(t)) {
		for (int i = 0; i < s->ntenants; i++)
			json_array_append_new(tenants,
					      json_pack("{s:f,s:i}", "weight", s->tenant[i].share.weight,
							"priority", s->tenant[i].share.priority));
		put(t, json_pack("{s:i,s:i,s:i,s:b,s:i,s:i,s:i,s:O}", "schema", 1, "blocks", s->pool->nblocks,
				 "block_size", s->pool->block_size, "share", s->pool->share, "max_seqs",
				 s->max_seqs, "max_tokens", s->max_tokens, "window", s->window, "tenants",
				 tenants));
	}
	json_decref(tenants);
}

void dt_schedtrace_submit(struct dt_schedtrace *t, struct dt_seq *q)
{
	json_t *v;

	if (!on(t))
		return;
	q->number = t->requests++;
	q->traced = q->known;
	v = json_pack("{s:I,s:i,s:i,s:i,s:I,s:I,s:i}", "submit", (json_int_t)q->number, "known", q->known,
		      "max_rows", q->max_rows, "score_end", q->score_end, "owner", (json_int_t)q->salt.owner,
		      "word", (json_int_t)q->salt.word, "tenant", q->tenant);
	if (q->tokens)
		json_object_set_new(v, "tokens", ids(q->tokens, 0, q->known));
	if (q->salt.adapter)
		json_object_set_new(v, "adapter", json_integer((json_int_t)q->salt.adapter));
	if (q->score_first)
		json_object_set_new(v, "score_first", json_integer(q->score_first));
	if (q->urgency)
		json_object_set_new(v, "urgency", json_integer(q->urgency));
	if (q->leader)
		json_object_set_new(v, "leader", json_integer(q->leader->number));
	put(t, v);
}

void dt_schedtrace_state(struct dt_schedtrace *t, const struct dt_sched *s)
{
	struct dt_seq *q;
	json_t *a;

	if (!on(t))
		return;
	a = json_array();
	TAILQ_FOREACH (q, &s->running, in_list) {
		json_array_append_new(a,
				      json_pack("[I,i,i,i,o,b]", (json_int_t)q->number, q->known, q->computed,
						q->draft, ids(q->tokens, q->traced, q->known), q->held));
		q->traced = q->known;
	}
	put(t, json_pack("{s:o}", "state", a));
}

json_t *dt_schedtrace_plan_json(const struct dt_sched_item *items, int n)
{
	json_t *a = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_pack("[I,i,i]", (json_int_t)items[i].seq->number,
						   items[i].first, items[i].n));
	return a;
}

void dt_schedtrace_plan(struct dt_schedtrace *t, const struct dt_sched *s, const struct dt_sched_item *items,
			int n)
{
	if (on(t))
		put(t, json_pack("{s:I,s:o,s:i,s:I}", "step", (json_int_t)t->steps++, "plan",
				 dt_schedtrace_plan_json(items, n), "waiting", s->waiting, "preemptions",
				 (json_int_t)s->preemptions));
}

void dt_schedtrace_computed(struct dt_schedtrace *t, const struct dt_seq *q, int n)
{
	if (on(t))
		put(t,
		    json_pack("{s:I,s:i,s:i}", "computed", (json_int_t)q->number, "to", q->computed, "n", n));
}

void dt_schedtrace_fork(struct dt_schedtrace *t, const struct dt_seq *child, bool ok)
{
	if (on(t))
		put(t, json_pack("{s:I,s:b}", "fork", (json_int_t)child->number, "ok", ok));
}

void dt_schedtrace_remove(struct dt_schedtrace *t, const struct dt_seq *q)
{
	if (on(t))
		put(t, json_pack("{s:I}", "remove", (json_int_t)q->number));
}
/* SPDX-License-Identifier: Apache-2.0 */
