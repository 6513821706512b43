/* Selects the sequences of a step, and distributes its tokens and rows of logits. */
#include "serve/sched/scheduler_priv.h"

#include <stdint.h>

static bool can_run(const struct dt_seq *q)
{
	return !q->busy && !q->held && !q->picked;
}

/*
 * Picks the sequences of a replica for the step: of those not in flight or held, the ones that have waited
 * longest; an equal share of all for each step that can be in flight. fresh: considers only sequences that
 * this step has admitted, in addition to those already picked.
 */
static void pick_on(struct dt_sched *s, int replica, bool fresh)
{
	int room = (s->running_on[replica] + s->depth - 1) / s->depth;
	struct dt_seq *q;

	TAILQ_FOREACH (q, &s->running, in_list)
		if (q->replica == replica)
			room -= q->picked;
	while (room > 0) {
		int64_t least = INT64_MAX;

		TAILQ_FOREACH (q, &s->running, in_list)
			if (q->replica == replica && can_run(q) &&
			    (fresh ? q->turn == s->turn : q->turn < least))
				least = q->turn;
		if (least == INT64_MAX)
			return;
		TAILQ_FOREACH (q, &s->running, in_list)
			if (q->replica == replica && can_run(q) && q->turn == least && room > 0) {
				q->picked = true;
				room--;
			}
	}
}

void dt_sched_pick(struct dt_sched *s, bool fresh)
{
	struct dt_seq *q;

	if (!fresh)
		TAILQ_FOREACH (q, &s->running, in_list)
			q->picked = false;
	for (int i = 0; i < s->replicas; i++)
		pick_on(s, i, fresh);
}

struct budget { /* what is left after one token and one row for each sequence */
	int tokens, rows;
};

static int lacks(const struct dt_sched_item *it)
{
	return it->seq->known + it->seq->draft - it->first - it->n;
}

/* The item's next tokens that need no further row of logits. */
static int without_rows(const struct dt_sched_item *it)
{
	const struct dt_seq *q = it->seq;
	int n = it->first < q->score_end ? q->score_first - it->first - it->n : q->known - it->first - it->n;

	return n > 0 ? n : 0;
}

/* Extends the item by up to n tokens, as far as the budget allows. */
static void extend(struct dt_sched_item *it, int n, struct budget *b)
{
	int plain = without_rows(it); /* the others, scored or draft tokens, need a row each */

	n = n < lacks(it) ? n : lacks(it);
	n = n < b->tokens ? n : b->tokens;
	n = n - plain > b->rows ? plain + b->rows : n;
	b->tokens -= n;
	b->rows -= n > plain ? n - plain : 0;
	it->n += n;
}

/* Plans the items of one replica. */
static int plan_on(struct dt_sched *s, int replica, struct dt_sched_item *items)
{
	struct budget b = {s->max_tokens / s->replicas, dt_sched_step_seqs(s)};
	struct dt_sched_item *first = NULL;
	struct dt_seq *q;
	int n = 0;

	TAILQ_FOREACH (q, &s->running, in_list) {
		if (q->replica != replica || !q->picked)
			continue;
		items[n] = (struct dt_sched_item){.seq = q, .first = q->computed, .n = 1};
		if (!first && lacks(&items[n]) > 0)
			first = &items[n];
		q->turn = s->turn;
		n++;
	}
	b.tokens -= n;
	b.rows -= n;
	if (first)
		extend(first, b.tokens / 4, &b);
	while (b.tokens > 0) {
		struct dt_sched_item *least = NULL;

		for (int i = 0; i < n; i++)
			if (lacks(&items[i]) > 0 && (!least || lacks(&items[i]) < lacks(least)) &&
			    (b.rows > 0 || without_rows(&items[i]) > 0))
				least = &items[i];
		if (!least)
			break;
		extend(least, lacks(least), &b);
	}
	for (int i = 0; i < n; i++) { /* drop draft tokens that were not planned */
		int guessed = items[i].first + items[i].n - items[i].seq->known;

		q = items[i].seq;
		if (q->draft > 0)
			q->draft = guessed > 0 ? guessed : 0;
	}
	return n;
}

/* Plans whole sequences of one replica, of which the one admitted first always fits. */
static int plan_whole(struct dt_sched *s, int replica, struct dt_sched_item *items)
{
	int left = s->max_tokens / s->replicas, n = 0;
	struct dt_seq *q;

	TAILQ_FOREACH (q, &s->running, in_list) {
		const int rows = q->known - q->computed;

		if (q->replica != replica || !q->picked || rows > left)
			continue;
		items[n++] = (struct dt_sched_item){.seq = q, .first = q->computed, .n = rows};
		q->turn = s->turn;
		left -= rows;
	}
	return n;
}

int dt_sched_plan(struct dt_sched *s, struct dt_sched_item *items)
{
	int n = 0;

	for (int i = 0; i < s->replicas; i++)
		n += (s->whole ? plan_whole : plan_on)(s, i, items + n);
	for (int i = 0; i < n && s->depth > 1; i++)
		items[i].seq->busy = true;
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
