#include "serve/sched/scheduler_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_sched_init(struct dt_sched *s, struct dt_kvpool *pool, int max_seqs, int max_tokens,
		  const struct dt_share *share, int ntenants, struct dt_err *err)
{
	memset(s, 0, sizeof(*s));
	if (max_seqs < 1)
		return dt_err_set(err, -EINVAL, "at least one sequence must be allowed to run");
	if (max_tokens < max_seqs)
		return dt_err_set(err, -EINVAL, "%d tokens per step are fewer than %d sequences", max_tokens,
				  max_seqs);
	s->pool = pool;
	s->replicas = s->depth = 1;
	s->max_seqs = max_seqs;
	s->max_tokens = max_tokens;
	s->ntenants = share ? ntenants : 1;
	TAILQ_INIT(&s->running);
	s->tenant = calloc((size_t)s->ntenants, sizeof(*s->tenant));
	s->copy = calloc((size_t)max_seqs, sizeof(*s->copy));
	s->place = calloc((size_t)max_seqs, sizeof(*s->place));
	if (!s->tenant || !s->copy || !s->place) {
		dt_sched_release(s);
		return dt_err_sys(err, -ENOMEM, "cannot start the scheduler");
	}
	for (int i = 0; i < max_seqs; i++)
		s->place[i] = i;
	for (int i = 0; i < s->ntenants; i++) {
		TAILQ_INIT(&s->tenant[i].waiting);
		s->tenant[i].share = share ? share[i] : (struct dt_share){.weight = 1};
	}
	return 0;
}

void dt_sched_release(struct dt_sched *s)
{
	free(s->tenant);
	free(s->copy);
	free(s->place);
	memset(s, 0, sizeof(*s));
}

/*
 * A tenant that was idle starts level with the active one that has had least, so that idle time gives no
 * credit.
 */
static void wake_tenant(struct dt_sched *s, struct dt_sched_tenant *t)
{
	const struct dt_sched_tenant *least = NULL;

	if (t->active++ > 0)
		return;
	for (int i = 0; i < s->ntenants; i++) {
		const struct dt_sched_tenant *o = &s->tenant[i];

		if (o != t && o->active > 0 && (!least || o->served < least->served))
			least = o;
	}
	if (least && least->served > t->served)
		t->served = least->served;
}

/* Inserts q behind those that are as urgent or more; preempted sequences keep the first places. */
static void queue_up(struct dt_seq_list *l, struct dt_seq *q)
{
	struct dt_seq *after = TAILQ_LAST(l, dt_seq_list);

	while (after && after->urgency < q->urgency && !after->admitted)
		after = TAILQ_PREV(after, dt_seq_list, in_list);
	if (after)
		TAILQ_INSERT_AFTER(l, after, q, in_list);
	else
		TAILQ_INSERT_HEAD(l, q, in_list);
}

int dt_sched_submit(struct dt_sched *s, struct dt_seq *seq, struct dt_err *err)
{
	int need = dt_kvpool_blocks(s->pool, seq->max_rows);
	struct dt_sched_tenant *t = dt_sched_tenant(s, seq);

	if (need > s->pool->nblocks)
		return dt_err_set(err, -E2BIG, "the request needs %d cache blocks, but there are only %d",
				  need, s->pool->nblocks);
	seq->computed = 0;
	seq->after = NULL;
	seq->followed = false;
	seq->state = DT_SEQ_WAITING;
	wake_tenant(s, t);
	queue_up(&t->waiting, seq);
	s->waiting++;
	return 0;
}

static void preempt(struct dt_sched *s, struct dt_seq *q)
{
	dt_sched_stop(s, q);
	dt_kvpool_free(dt_sched_pool(s, q), &q->blocks);
	q->computed = q->draft = 0;
	q->picked = q->held = false;
	q->state = DT_SEQ_WAITING;
	TAILQ_INSERT_HEAD(&dt_sched_tenant(s, q)->waiting, q, in_list);
	s->waiting++;
	s->preemptions++;
}

/*
 * The sequence to preempt on a replica: the cheapest to recompute of the lowest priority, the latest of equal
 * ones. Never the first one, nor one in a step in flight. NULL: there is none.
 */
static struct dt_seq *victim(struct dt_sched *s, int replica)
{
	struct dt_seq *best = NULL, *first = NULL, *q;

	TAILQ_FOREACH (q, &s->running, in_list) {
		int p = dt_sched_tenant(s, q)->share.priority, least;

		if (q->replica != replica || !first) {
			first = q->replica == replica ? q : first;
			continue;
		}
		if (q->busy)
			continue;
		least = best ? dt_sched_tenant(s, best)->share.priority : p;
		if (best && q->tenant == best->tenant && q->urgency != best->urgency) {
			best = q->urgency < best->urgency ? q : best;
			continue;
		}
		if (!best || p < least || (p == least && q->computed <= best->computed))
			best = q;
	}
	return best;
}

/* Allocates blocks for all known and draft tokens of q, and makes the block that it will write private. */
static int make_ready(struct dt_sched *s, struct dt_seq *q)
{
	struct dt_kvpool *pool = dt_sched_pool(s, q);
	int rc = dt_kvpool_grow(pool, &q->blocks, dt_kvpool_blocks(pool, q->known + q->draft));
	struct dt_block_copy *c = &s->copy[s->ncopy];
	int at = q->computed / pool->block_size;

	if (rc < 0 || q->computed % pool->block_size == 0)
		return rc;
	rc = dt_kvpool_own(pool, &q->blocks, at, &c->from);
	if (rc <= 0)
		return rc;
	c->to = q->blocks.b[at];
	c->replica = q->replica;
	s->ncopy++;
	return 0;
}

/* Whether a step in flight has a sequence of this replica. */
static bool any_busy(const struct dt_sched *s, int replica)
{
	const struct dt_seq *q;

	TAILQ_FOREACH (q, &s->running, in_list)
		if (q->busy && q->replica == replica)
			return true;
	return false;
}

/* Allocates blocks for the next step of every picked sequence; may preempt some. */
static int make_all_ready(struct dt_sched *s)
{
	struct dt_seq *q = TAILQ_FIRST(&s->running), *next, *v;

	for (; q; q = next) {
		int rc;

		next = TAILQ_NEXT(q, in_list);
		if (!q->picked)
			continue;
		while ((rc = make_ready(s, q)) == -ENOSPC && q->draft > 0)
			q->draft = 0;
		while (rc == -ENOSPC && (v = victim(s, q->replica)) && v != q) {
			preempt(s, v);
			rc = make_ready(s, q);
		}
		next = TAILQ_NEXT(q, in_list);
		if (rc == -ENOSPC && any_busy(s, q->replica))
			q->picked = false; /* until those in flight have their tokens and can be preempted */
		else if (rc == -ENOSPC)
			preempt(s, q);
		else if (rc < 0)
			return rc;
	}
	return 0;
}

static bool any_picked(const struct dt_sched *s)
{
	const struct dt_seq *q;

	TAILQ_FOREACH (q, &s->running, in_list)
		if (q->picked)
			return true;
	return false;
}

int dt_sched_step(struct dt_sched *s, struct dt_sched_item *items)
{
	int64_t preemptions = s->preemptions, before;
	int rc;

	s->ncopy = 0;
	s->turn++;
	do {
		before = s->preemptions;
		dt_sched_pick(s, false);
		rc = make_all_ready(s);
	} while (rc == 0 && s->preemptions > before && !any_picked(s)); /* all picked ones were preempted */
	if (rc == 0 && s->preemptions == preemptions)
		rc = dt_sched_admit(s);
	dt_sched_pick(s, true);
	return rc < 0 ? rc : dt_sched_plan(s, items);
}

void dt_sched_computed(struct dt_sched *s, struct dt_seq *seq, int n)
{
	struct dt_sched_tenant *t = dt_sched_tenant(s, seq);
	struct dt_kvpool *pool = dt_sched_pool(s, seq);

	t->served += n / t->share.weight;
	if (seq->tokens) {
		dt_kvpool_publish(pool, &seq->blocks, seq->salt, seq->tokens, seq->computed);
		dt_sched_put_marks(s, seq);
	}
	/* The next token, at position computed, attends back to the key at computed - window + 1. */
	if (s->window > 0 && seq->computed >= s->window)
		dt_kvpool_trim(pool, &seq->blocks, (seq->computed - s->window + 1) / pool->block_size);
}

bool dt_sched_fork(struct dt_sched *s, struct dt_seq *child)
{
	struct dt_seq *leader = child->leader;
	struct dt_kvpool *pool;
	int n = child->known;

	child->leader = NULL;
	if (child->state != DT_SEQ_WAITING || leader->state != DT_SEQ_RUNNING ||
	    s->running_on[leader->replica] >= s->max_seqs / s->replicas)
		return false;
	child->replica = leader->replica;
	pool = dt_sched_pool(s, child);
	if (dt_kvpool_fork(pool, &child->blocks, &leader->blocks, dt_kvpool_blocks(pool, n)) < 0)
		return false;
	dt_sched_start(s, child);
	child->computed = n;
	child->cached = n;
	child->admitted = true;
	return true;
}

void dt_sched_remove(struct dt_sched *s, struct dt_seq *seq)
{
	struct dt_sched_tenant *t = dt_sched_tenant(s, seq);

	if (seq->state == DT_SEQ_IDLE)
		return;
	if (seq->state == DT_SEQ_WAITING) {
		TAILQ_REMOVE(&t->waiting, seq, in_list);
		s->waiting--;
	} else {
		dt_sched_stop(s, seq);
	}
	seq->after = NULL;
	dt_kvpool_free(dt_sched_pool(s, seq), &seq->blocks);
	seq->state = DT_SEQ_IDLE;
	seq->busy = false;
	t->active--;
}
/* SPDX-License-Identifier: Apache-2.0 */
