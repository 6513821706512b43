#include "serve/sched/scheduler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dt_sched_init(struct dt_sched *s, struct dt_kvpool *pool, int max_seqs, int max_tokens,
		  const struct dt_share *share, int ntenants, struct dt_err *err)
{
	memset(s, 0, sizeof(*s));
	if (max_seqs < 1)
		return dt_err_set(err, -EINVAL, "at least one sequence must be allowed to run");
	if (max_tokens < max_seqs)
		return dt_err_set(err, -EINVAL, "%d tokens a step are fewer than %d sequences", max_tokens,
				  max_seqs);
	s->pool = pool;
	s->replicas = s->depth = 1;
	s->max_seqs = max_seqs;
	s->max_tokens = max_tokens;
	s->ntenants = share ? ntenants : 1;
	TAILQ_INIT(&s->running);
	s->tenant = calloc((size_t)s->ntenants, sizeof(*s->tenant));
	s->copy = calloc((size_t)max_seqs, sizeof(*s->copy));
	if (!s->tenant || !s->copy) {
		dt_sched_release(s);
		return dt_err_sys(err, -ENOMEM, "cannot start the scheduler");
	}
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
	memset(s, 0, sizeof(*s));
}

static struct dt_kvpool *pool_of(struct dt_sched *s, const struct dt_seq *q)
{
	return &s->pool[q->replica];
}

static struct dt_sched_tenant *tenant_of(struct dt_sched *s, const struct dt_seq *q)
{
	return &s->tenant[q->tenant];
}

/* Who was idle starts level with the one that has had least: nobody saves up turns. */
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

/* Behind those that are as urgent or more; who was running before has the first place already. */
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
	struct dt_sched_tenant *t = tenant_of(s, seq);

	if (need > s->pool->nblocks)
		return dt_err_set(err, -E2BIG, "the request needs %d cache blocks and there are %d", need,
				  s->pool->nblocks);
	seq->computed = 0;
	seq->state = DT_SEQ_WAITING;
	wake_tenant(s, t);
	queue_up(&t->waiting, seq);
	s->waiting++;
	return 0;
}

static void preempt(struct dt_sched *s, struct dt_seq *q)
{
	TAILQ_REMOVE(&s->running, q, in_list);
	s->nrunning--;
	s->running_on[q->replica]--;
	dt_kvpool_free(pool_of(s, q), &q->blocks);
	q->computed = q->draft = 0;
	q->picked = false;
	q->state = DT_SEQ_WAITING;
	TAILQ_INSERT_HEAD(&tenant_of(s, q)->waiting, q, in_list);
	s->waiting++;
	s->preemptions++;
}

/*
 * Of those on a replica the cheapest of the lowest priority, the latest of equal ones; never the first, nor
 * one that is under way. NULL: there is no other.
 */
static struct dt_seq *victim(struct dt_sched *s, int replica)
{
	struct dt_seq *best = NULL, *first = NULL, *q;

	TAILQ_FOREACH (q, &s->running, in_list) {
		int p = tenant_of(s, q)->share.priority, least;

		if (q->replica != replica || !first) {
			first = q->replica == replica ? q : first;
			continue;
		}
		if (q->busy)
			continue;
		least = best ? tenant_of(s, best)->share.priority : p;
		if (best && q->tenant == best->tenant && q->urgency != best->urgency) {
			best = q->urgency < best->urgency ? q : best;
			continue;
		}
		if (!best || p < least || (p == least && q->computed <= best->computed))
			best = q;
	}
	return best;
}

/* Blocks for every known and guessed token of q, and none of those it will write shared. */
static int make_ready(struct dt_sched *s, struct dt_seq *q)
{
	struct dt_kvpool *pool = pool_of(s, q);
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

/* Whether a step with a sequence of this replica is under way. */
static bool any_busy(const struct dt_sched *s, int replica)
{
	const struct dt_seq *q;

	TAILQ_FOREACH (q, &s->running, in_list)
		if (q->busy && q->replica == replica)
			return true;
	return false;
}

/* Blocks for the next step of every sequence that is picked; some may have to go. */
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
			q->picked = false; /* until those have their tokens, and can go */
		else if (rc == -ENOSPC)
			preempt(s, q);
		else if (rc < 0)
			return rc;
	}
	return 0;
}

/* The tenant's first sequence that does not wait for another's prompt. */
static struct dt_seq *first_ready(const struct dt_sched_tenant *t)
{
	struct dt_seq *q;

	TAILQ_FOREACH (q, &t->waiting, in_list)
		if (!q->leader)
			break;
	return q;
}

static struct dt_seq *next_waiting(struct dt_sched *s)
{
	const struct dt_sched_tenant *best = NULL;
	struct dt_seq *ret = NULL;

	for (int i = 0; i < s->ntenants; i++) {
		const struct dt_sched_tenant *t = &s->tenant[i];
		struct dt_seq *q = first_ready(t);

		if (!q ||
		    (best && (t->share.priority < best->share.priority ||
			      (t->share.priority == best->share.priority && t->served >= best->served))))
			continue;
		best = t;
		ret = q;
	}
	return ret;
}

/* Its marks go on the blocks that can be found by now. Mark i is on the block with the last of its tokens. */
static void put_marks(struct dt_sched *s, struct dt_seq *q)
{
	struct dt_kvpool *pool = pool_of(s, q);

	for (; pool->marks && q->marked < q->nmarks; q->marked++) {
		int b = (int)(ceil((q->marked + 1) * q->mark_tokens / pool->block_size)) - 1;

		b = b < 0 ? 0 : b;
		if (b >= q->blocks.published)
			return;
		if (q->blocks.b[b] >= 0)
			dt_kvmarks_put(pool->marks, pool->marks_from + (size_t)q->blocks.b[b],
				       q->mark[q->marked]);
	}
}

/* Blocks of q that its replica has already; -ENOSPC: there is no room for the others. */
static int find_room(struct dt_sched *s, const struct dt_seq *q, bool share)
{
	struct dt_kvpool *pool = pool_of(s, q);
	int need = dt_kvpool_blocks(pool, q->known), found = 0, idle = 0, running = s->running_on[q->replica];

	if (running >= s->max_seqs / s->replicas)
		return -ENOSPC;
	if (share) /* the last token is computed in any case: its logits are wanted */
		found = dt_kvpool_match(pool, q->salt, q->tokens, q->known - 1, &idle);
	/* A spare block for each running one, or the newcomer would be the next victim. */
	return pool->nfree - idle < need - found + running ? -ENOSPC : found;
}

/* The replica for q, and what it has of it. */
static int choose_replica(struct dt_sched *s, struct dt_seq *q, bool share)
{
	int best = -ENOSPC, at = 0;

	for (q->replica = 0; q->replica < s->replicas; q->replica++) {
		int found = find_room(s, q, share);

		if (found < 0 || found < best ||
		    (found == best && s->running_on[q->replica] >= s->running_on[at]))
			continue;
		best = found;
		at = q->replica;
	}
	q->replica = at;
	return best;
}

/* 0: q has its blocks; -ENOSPC: it must wait. */
static int make_room(struct dt_sched *s, struct dt_seq *q)
{
	bool share = q->tokens && q->score_end == 0;
	int found = choose_replica(s, q, share), rc;
	struct dt_kvpool *pool = pool_of(s, q);

	if (found < 0)
		return found;
	if (share) {
		rc = dt_kvpool_attach(pool, &q->blocks, q->salt, q->tokens, q->known - 1);
		if (rc < 0)
			return rc;
		q->marked = 0;
		put_marks(s, q);
	}
	q->computed = found * pool->block_size;
	rc = dt_kvpool_grow(pool, &q->blocks, dt_kvpool_blocks(pool, q->known));
	if (rc < 0)
		dt_kvpool_free(pool, &q->blocks);
	return rc;
}

static void start(struct dt_sched *s, struct dt_seq *q)
{
	TAILQ_REMOVE(&tenant_of(s, q)->waiting, q, in_list);
	s->waiting--;
	q->state = DT_SEQ_RUNNING;
	q->turn = s->turn;
	TAILQ_INSERT_TAIL(&s->running, q, in_list);
	s->nrunning++;
	s->running_on[q->replica]++;
}

static int admit(struct dt_sched *s)
{
	struct dt_seq *q;

	while (s->nrunning < s->max_seqs && (q = next_waiting(s))) {
		int rc = make_room(s, q);

		if (rc == -ENOSPC)
			return 0;
		if (rc < 0)
			return rc;
		start(s, q);
		if (q->admitted)
			continue;
		q->admitted = true;
		q->cached = q->computed;
		s->prefix_queries += q->known;
		s->prefix_hits += q->cached;
	}
	return 0;
}

/*
 * Which sequences of a replica the step is for: of those that are not under way the ones that have waited
 * longest, an equal share of all for each step that can be under way. fresh: only those that this step has
 * admitted are looked at, in addition to what is picked.
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
			if (q->replica == replica && !q->busy && !q->picked &&
			    (fresh ? q->turn == s->turn : q->turn < least))
				least = q->turn;
		if (least == INT64_MAX)
			return;
		TAILQ_FOREACH (q, &s->running, in_list)
			if (q->replica == replica && !q->busy && !q->picked && q->turn == least && room > 0) {
				q->picked = true;
				room--;
			}
	}
}

static void pick(struct dt_sched *s, bool fresh)
{
	struct dt_seq *q;

	if (!fresh)
		TAILQ_FOREACH (q, &s->running, in_list)
			q->picked = false;
	for (int i = 0; i < s->replicas; i++)
		pick_on(s, i, fresh);
}

struct budget { /* left after one token and one row for everyone */
	int tokens, rows;
};

static int lacks(const struct dt_sched_item *it)
{
	return it->seq->known + it->seq->draft - it->first - it->n;
}

/* Its next token costs no further row of logits. */
static bool wants_no_row(const struct dt_sched_item *it)
{
	return it->first >= it->seq->score_end && it->seq->known > it->first + it->n;
}

/* Gives the item up to n tokens more, as far as the budget goes. */
static void extend(struct dt_sched_item *it, int n, struct budget *b)
{
	bool each = it->first < it->seq->score_end;	/* a row of logits for every token */
	int plain = it->seq->known - it->first - it->n; /* without those guessed, which want a row each too */

	n = n < lacks(it) ? n : lacks(it);
	n = n < b->tokens ? n : b->tokens;
	if (each && n > b->rows)
		n = b->rows;
	else if (!each && n - plain > b->rows)
		n = plain + b->rows;
	b->tokens -= n;
	b->rows -= each ? n : n > plain ? n - plain : 0;
	it->n += n;
}

/* The items of one replica. */
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
			    (b.rows > 0 || wants_no_row(&items[i])))
				least = &items[i];
		if (!least)
			break;
		extend(least, lacks(least), &b);
	}
	for (int i = 0; i < n; i++) { /* what was not planned of the guesses is forgotten */
		int guessed = items[i].first + items[i].n - items[i].seq->known;

		q = items[i].seq;
		if (q->draft > 0)
			q->draft = guessed > 0 ? guessed : 0;
	}
	return n;
}

static int plan(struct dt_sched *s, struct dt_sched_item *items)
{
	int n = 0;

	for (int i = 0; i < s->replicas; i++)
		n += plan_on(s, i, items + n);
	for (int i = 0; i < n && s->depth > 1; i++)
		items[i].seq->busy = true;
	return n;
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
		pick(s, false);
		rc = make_all_ready(s);
	} while (rc == 0 && s->preemptions > before && !any_picked(s)); /* those it picked had to go */
	if (rc == 0 && s->preemptions == preemptions)
		rc = admit(s);
	pick(s, true);
	return rc < 0 ? rc : plan(s, items);
}

void dt_sched_computed(struct dt_sched *s, struct dt_seq *seq, int n)
{
	struct dt_sched_tenant *t = tenant_of(s, seq);
	struct dt_kvpool *pool = pool_of(s, seq);

	t->served += n / t->share.weight;
	if (seq->tokens) {
		dt_kvpool_publish(pool, &seq->blocks, seq->salt, seq->tokens, seq->computed);
		put_marks(s, seq);
	}
	/* The next token, at position computed, sees the key at computed - window + 1. */
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
	pool = pool_of(s, child);
	if (dt_kvpool_fork(pool, &child->blocks, &leader->blocks, dt_kvpool_blocks(pool, n)) < 0)
		return false;
	start(s, child);
	child->computed = n;
	child->cached = n;
	child->admitted = true;
	return true;
}

void dt_sched_remove(struct dt_sched *s, struct dt_seq *seq)
{
	struct dt_sched_tenant *t = tenant_of(s, seq);

	if (seq->state == DT_SEQ_IDLE)
		return;
	if (seq->state == DT_SEQ_WAITING) {
		TAILQ_REMOVE(&t->waiting, seq, in_list);
		s->waiting--;
	} else {
		TAILQ_REMOVE(&s->running, seq, in_list);
		s->nrunning--;
		s->running_on[seq->replica]--;
	}
	dt_kvpool_free(pool_of(s, seq), &seq->blocks);
	seq->state = DT_SEQ_IDLE;
	seq->busy = false;
	t->active--;
}
/* SPDX-License-Identifier: Apache-2.0 */
