#include "serve/sched/simulate_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static struct dt_sim_server *emptiest(struct dt_sim_server *s, int n)
{
	struct dt_sim_server *best = s;

	for (int i = 1; i < n; i++)
		if (s[i].unfinished < best->unfinished ||
		    (s[i].unfinished == best->unfinished && s[i].had < best->had))
			best = &s[i];
	best->unfinished++;
	best->had++;
	return best;
}

/* Sets all tokens: those of a block with an id depend on the id only, others on the request. */
static int make_tokens(struct dt_sim_request *q, uint64_t number)
{
	const struct dt_sim_ask *a = q->ask;
	int n = a->prompt + a->output;

	q->tokens = malloc((size_t)n * sizeof(*q->tokens));
	if (!q->tokens)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		int b = a->block ? i / a->block_len : 0;
		uint64_t of = i < a->prompt && b < a->nblock
				      ? dt_kvkey_mix((uint64_t)a->block[b], (uint64_t)(i % a->block_len))
				      : dt_kvkey_mix(~number, (uint64_t)i);

		q->tokens[i] = (int32_t)(of >> 33);
	}
	return 0;
}

void dt_sim_drop(struct dt_sim_request *q)
{
	free(q->tokens);
	free(q);
}

/*
 * Submits q to s; a helper (prefill server) computes only the prompt. A helper takes all blocks of a prompt
 * at once, so it preempts none, and finds tokens again only if requests share blocks.
 */
static int submit(struct dt_sim *m, struct dt_sim_request *q, struct dt_sim_server *s, struct dt_err *err)
{
	const bool helper = s == q->helper;

	dt_sim_wake(m, s);
	q->seq = (struct dt_seq){.tokens = helper && !q->ask->block ? NULL : q->tokens,
				 .known = q->ask->prompt,
				 .max_rows = q->ask->prompt + (helper ? 0 : q->ask->output - 1)};
	return dt_sched_submit(&s->sched, &q->seq, err);
}

static int refuse(struct dt_sim *m, struct dt_sim_request *q)
{
	q->answer->first_s = q->answer->end_s = -1;
	q->home->unfinished--;
	if (q->helper)
		q->helper->unfinished--;
	m->r->refused++;
	dt_sim_drop(q);
	return 0;
}

bool dt_sim_too_long(const struct dt_sim_params *p, const struct dt_sim_ask *a)
{
	return (a->prompt + a->output - 1 + p->block_size - 1) / p->block_size > p->nblocks;
}

int dt_sim_arrive(struct dt_sim *m, int i, struct dt_err *err)
{
	const struct dt_sim_params *p = m->p;
	struct dt_sim_request *q = calloc(1, sizeof(*q));
	int rc = 0;

	if (!q)
		return dt_err_sys(err, -ENOMEM, "cannot simulate");
	q->ask = &m->ask[i];
	q->answer = &m->answer[i];
	q->home = emptiest(m->server, p->servers);
	q->answer->server = (int)(q->home - m->server);
	if (p->prefill && q->ask->prompt >= p->prefill_min)
		q->helper = emptiest(m->server + p->servers, p->prefill);
	if (q->ask->block || q->helper)
		rc = make_tokens(q, (uint64_t)i);
	if (rc < 0) {
		dt_sim_drop(q);
		return dt_err_sys(err, rc, "cannot simulate");
	}
	if (dt_sim_too_long(p, q->ask))
		return refuse(m, q);
	return submit(m, q, q->helper ? q->helper : q->home, err);
}

/* The blocks of its prompt have arrived: its own server continues. */
static int hand_over(struct dt_sim *m, struct dt_sim_request *q, struct dt_err *err)
{
	struct dt_kvpool *pool = &q->home->pool;
	struct dt_kvplace at = dt_kvpool_seek(pool, q->seq.salt, q->tokens, q->ask->prompt - 1);
	int32_t b;

	while ((at.n + 1) * pool->block_size <= q->ask->prompt - 1 &&
	       dt_kvpool_adopt(pool, &at, q->seq.salt, q->tokens, &b) >= 0)
		;
	q->helper = NULL;
	return submit(m, q, q->home, err);
}

void dt_sim_leave_helper(struct dt_sim *m, struct dt_sim_request *q, int n, double now)
{
	m->r->prefix_hits += q->seq.cached;
	dt_sched_remove(&q->helper->sched, &q->seq);
	q->helper->unfinished--;
	q->moved = true;
	q->there_s = now + m->p->move_s(m->p->arg, n);
	q->next = m->moving;
	m->moving = q;
}

void dt_sim_finish(struct dt_sim *m, struct dt_sim_request *q, double now)
{
	m->r->prefix_hits += q->moved ? 0 : q->seq.cached;
	dt_sched_remove(&q->home->sched, &q->seq);
	q->home->unfinished--;
	q->answer->end_s = now;
	m->r->done++;
	m->r->end_s = fmax(m->r->end_s, now);
	m->r->moved += q->moved;
	m->r->prompt_tokens += q->ask->prompt;
	m->r->output_tokens += q->outputs;
	dt_sim_drop(q);
}

int dt_sim_take_moved(struct dt_sim *m, double now, struct dt_err *err)
{
	int rc = 0;

	for (struct dt_sim_request **at = &m->moving, *q; (q = *at) && rc == 0;) {
		if (q->there_s > now) {
			at = &q->next;
			continue;
		}
		*at = q->next;
		rc = hand_over(m, q, err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
