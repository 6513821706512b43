/*
 * Admission: which sequence runs next (priority, then fairness of tenants), and on which replica (the one
 * with the longest cached prefix).
 */
#include "serve/sched/scheduler_priv.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Most tokens that q may find in the cache: the logits of the rows behind them are needed. */
static int sharable(const struct dt_seq *q)
{
	return q->score_end ? q->score_first : q->known - 1;
}

static bool shares(const struct dt_seq *q)
{
	return q->tokens && (q->score_end == 0 || q->score_first > 0);
}

/* ---- prompts that begin alike ---- */

/* Whether a replica has nothing to do: it computes a prefix rather than wait for another. */
static bool some_idle(const struct dt_sched *s)
{
	for (int i = 0; i < s->replicas; i++)
		if (s->running_on[i] == 0)
			return true;
	return false;
}

/* Tokens in whole blocks, at most n, with which the texts of q and r begin. */
static int alike(const struct dt_seq *q, const struct dt_seq *r, int n, int block_size)
{
	int same = 0;

	if (memcmp(&q->salt, &r->salt, sizeof(q->salt)) != 0)
		return 0;
	while (same + block_size <= n &&
	       !memcmp(q->tokens + same, r->tokens + same, (size_t)block_size * sizeof(*q->tokens)))
		same += block_size;
	return same;
}

/*
 * Whether replica r has room for q, of whose blocks it has `found`, `idle` of them used by nobody. One spare
 * block for each running sequence, or the new one would be preempted next.
 */
static bool fits(const struct dt_sched *s, const struct dt_seq *q, int r, int found, int idle)
{
	const struct dt_kvpool *pool = &s->pool[r];
	const int running = s->running_on[r];

	return running < s->max_seqs / s->replicas &&
	       pool->nfree - idle >= dt_kvpool_blocks(pool, q->known) - found + running;
}

/* Sets q->after to the running sequence that is about to compute most of what q lacks; false: none is. */
static bool find_after(struct dt_sched *s, struct dt_seq *q)
{
	const int block = s->pool->block_size;
	struct dt_seq *r;
	int idle;

	if (!s->pool->share || q->admitted || !shares(q) || some_idle(s))
		return false;
	q->until = 0;
	TAILQ_FOREACH (r, &s->running, in_list) {
		int most = sharable(q) < r->known ? sharable(q) : r->known;

		if (r->held || !r->tokens || r->computed + 2 * block > most)
			continue;
		most = alike(q, r, most, block);
		if (most > q->until && most >= r->computed + 2 * block) {
			q->until = most;
			q->after = r;
		}
	}
	if (q->after) {
		struct dt_kvpool *pool = dt_sched_pool(s, q->after);
		int found = dt_kvpool_match(pool, q->salt, q->tokens, sharable(q), &idle) * block;

		if (q->until - found < 2 * block || 2 * (q->until - found) < q->known - found ||
		    !fits(s, q, q->after->replica, q->until / block, 0))
			q->after = NULL;
		else
			q->after->followed = true;
	}
	return q->after;
}

/* Whether q had better wait for what a running sequence computes. */
static bool waits(struct dt_sched *s, struct dt_seq *q)
{
	if (q->leader || (q->after && !q->after->held && q->after->computed < q->until))
		return true;
	q->after = NULL;
	return find_after(s, q);
}

void dt_sched_unfollow(struct dt_sched *s, struct dt_seq *r)
{
	struct dt_seq *q;

	for (int i = 0; i < s->ntenants && r->followed; i++)
		TAILQ_FOREACH (q, &s->tenant[i].waiting, in_list)
			if (q->after == r)
				q->after = NULL;
	r->followed = false;
}

/* ---- admission ---- */

/* The tenant's first sequence that does not wait for another's prompt. */
static struct dt_seq *first_ready(struct dt_sched *s, const struct dt_sched_tenant *t)
{
	struct dt_seq *q;

	TAILQ_FOREACH (q, &t->waiting, in_list)
		if (!waits(s, q))
			break;
	return q;
}

static struct dt_seq *next_waiting(struct dt_sched *s)
{
	const struct dt_sched_tenant *best = NULL;
	struct dt_seq *ret = NULL;

	for (int i = 0; i < s->ntenants; i++) {
		const struct dt_sched_tenant *t = &s->tenant[i];
		struct dt_seq *q = first_ready(s, t);

		if (!q ||
		    (best && (t->share.priority < best->share.priority ||
			      (t->share.priority == best->share.priority && t->served >= best->served))))
			continue;
		best = t;
		ret = q;
	}
	return ret;
}

/* Mark i goes on the block that contains the last token of its prefix, if that block is published. */
void dt_sched_put_marks(struct dt_sched *s, struct dt_seq *q)
{
	struct dt_kvpool *pool = dt_sched_pool(s, q);

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

/* Number of cached blocks of q's prefix on its replica; -ENOSPC: no room for the others. */
static int find_room(struct dt_sched *s, const struct dt_seq *q, bool share)
{
	struct dt_kvpool *pool = dt_sched_pool(s, q);
	int found = 0, idle = 0;

	if (share) /* the last token is always computed, because its logits are needed */
		found = dt_kvpool_match(pool, q->salt, q->tokens, sharable(q), &idle);
	return fits(s, q, q->replica, found, idle) ? found : -ENOSPC;
}

/* Chooses the replica for q; returns the number of blocks cached there. */
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

/* Allocates the blocks of q. 0; -ENOSPC: it must wait. */
static int make_room(struct dt_sched *s, struct dt_seq *q)
{
	bool share = shares(q);
	int found = choose_replica(s, q, share), rc;
	struct dt_kvpool *pool = dt_sched_pool(s, q);

	if (found < 0)
		return found;
	if (share) {
		rc = dt_kvpool_attach(pool, &q->blocks, q->salt, q->tokens, sharable(q));
		if (rc < 0)
			return rc;
		q->marked = 0;
		dt_sched_put_marks(s, q);
	}
	q->computed = found * pool->block_size;
	rc = dt_kvpool_grow(pool, &q->blocks, dt_kvpool_blocks(pool, q->known));
	if (rc < 0)
		dt_kvpool_free(pool, &q->blocks);
	return rc;
}

void dt_sched_start(struct dt_sched *s, struct dt_seq *q)
{
	TAILQ_REMOVE(&dt_sched_tenant(s, q)->waiting, q, in_list);
	s->waiting--;
	q->state = DT_SEQ_RUNNING;
	q->turn = s->turn;
	TAILQ_INSERT_TAIL(&s->running, q, in_list);
	q->place = s->place[s->nrunning++];
	s->running_on[q->replica]++;
}

void dt_sched_stop(struct dt_sched *s, struct dt_seq *q)
{
	TAILQ_REMOVE(&s->running, q, in_list);
	s->place[--s->nrunning] = q->place;
	s->running_on[q->replica]--;
	dt_sched_unfollow(s, q);
}

int dt_sched_admit(struct dt_sched *s)
{
	struct dt_seq *q;

	while (s->nrunning < s->max_seqs && (q = next_waiting(s))) {
		int rc = make_room(s, q);

		if (rc == -ENOSPC)
			return 0;
		if (rc < 0)
			return rc;
		dt_sched_start(s, q);
		if (q->admitted)
			continue;
		q->admitted = true;
		q->cached = q->computed;
		s->prefix_queries += q->known;
		s->prefix_hits += q->cached;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
