#include "serve/scheduler.h"

#include <errno.h>
#include <string.h>

static void push_tail(struct dt_seq_list *l, struct dt_seq *q)
{
	q->next = NULL;
	q->prev = l->tail;
	*(l->tail ? &l->tail->next : &l->head) = q;
	l->tail = q;
	l->n++;
}

static void push_head(struct dt_seq_list *l, struct dt_seq *q)
{
	q->prev = NULL;
	q->next = l->head;
	*(l->head ? &l->head->prev : &l->tail) = q;
	l->head = q;
	l->n++;
}

static void unlink_seq(struct dt_seq_list *l, struct dt_seq *q)
{
	*(q->prev ? &q->prev->next : &l->head) = q->next;
	*(q->next ? &q->next->prev : &l->tail) = q->prev;
	q->prev = q->next = NULL;
	l->n--;
}

int dt_sched_init(struct dt_sched *s, struct dt_kvpool *pool, int max_seqs, int max_tokens,
		  struct dt_err *err)
{
	memset(s, 0, sizeof(*s));
	if (max_seqs < 1)
		return dt_err_set(err, -EINVAL, "at least one sequence must be allowed to run");
	if (max_tokens < max_seqs)
		return dt_err_set(err, -EINVAL, "%d tokens a step are fewer than %d sequences", max_tokens,
				  max_seqs);
	s->pool = pool;
	s->max_seqs = max_seqs;
	s->max_tokens = max_tokens;
	return 0;
}

int dt_sched_submit(struct dt_sched *s, struct dt_seq *seq, struct dt_err *err)
{
	int need = dt_kvpool_blocks(s->pool, seq->max_rows);

	if (need > s->pool->nblocks)
		return dt_err_set(err, -E2BIG, "the request needs %d cache blocks and there are %d", need,
				  s->pool->nblocks);
	seq->computed = 0;
	seq->state = DT_SEQ_WAITING;
	push_tail(&s->waiting, seq);
	return 0;
}

static void preempt(struct dt_sched *s, struct dt_seq *q)
{
	unlink_seq(&s->running, q);
	dt_kvpool_free(s->pool, &q->blocks);
	q->computed = 0;
	q->state = DT_SEQ_WAITING;
	push_head(&s->waiting, q);
	s->preemptions++;
}

struct budget {
	int tokens, rows;
};

/* Plans as much of q as fits, leaving one token and one row for each of the `behind` sequences after it. */
static struct dt_sched_item plan(struct dt_seq *q, struct budget *b, int behind)
{
	bool score = q->computed < q->score_end;
	int n = q->known - q->computed;

	if (n > b->tokens - behind)
		n = b->tokens - behind;
	if (score && n > b->rows - behind)
		n = b->rows - behind;
	b->tokens -= n;
	b->rows -= score ? n : 1;
	return (struct dt_sched_item){.seq = q, .first = q->computed, .n = n};
}

/* 0: the next waiting sequence has its blocks; -ENOSPC: it must wait. */
static int make_room(struct dt_sched *s, struct dt_seq *q)
{
	int need = dt_kvpool_blocks(s->pool, q->known);

	/* A spare block for each running one, or the newcomer would be the next victim. */
	if (s->running.n > 0 && s->pool->nfree < need + s->running.n)
		return -ENOSPC;
	return dt_kvpool_grow(s->pool, &q->blocks, need);
}

int dt_sched_step(struct dt_sched *s, struct dt_sched_item *items)
{
	struct budget b = {s->max_tokens, s->max_seqs};
	int64_t preemptions = s->preemptions;
	int n = 0, rc;

	for (struct dt_seq *q = s->running.head; q; q = q->next) {
		while ((rc = dt_kvpool_grow(s->pool, &q->blocks, dt_kvpool_blocks(s->pool, q->known))) < 0) {
			struct dt_seq *victim = s->running.tail;

			if (rc != -ENOSPC)
				return rc;
			preempt(s, victim);
			if (victim == q)
				return n;
		}
		items[n] = plan(q, &b, s->running.n - n - 1);
		n++;
	}
	while (s->preemptions == preemptions && s->waiting.head && n < s->max_seqs && b.tokens > 0 &&
	       b.rows > 0) {
		struct dt_seq *q = s->waiting.head;

		rc = make_room(s, q);
		if (rc == -ENOSPC)
			break;
		if (rc < 0)
			return rc;
		unlink_seq(&s->waiting, q);
		q->state = DT_SEQ_RUNNING;
		push_tail(&s->running, q);
		items[n++] = plan(q, &b, 0);
	}
	return n;
}

void dt_sched_remove(struct dt_sched *s, struct dt_seq *seq)
{
	if (seq->state == DT_SEQ_IDLE)
		return;
	unlink_seq(seq->state == DT_SEQ_RUNNING ? &s->running : &s->waiting, seq);
	dt_kvpool_free(s->pool, &seq->blocks);
	seq->state = DT_SEQ_IDLE;
}
