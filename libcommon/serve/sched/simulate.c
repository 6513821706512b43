#include "serve/sched/simulate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct flight { /* a step in flight */
	struct dt_sched_item *items;
	int n;
	double done_s; /* when the last stage has computed it */
};

enum doing { IDLE, COMPUTES, TAKES }; /* newest step's first stage; oldest step's results */

struct server {
	struct dt_kvpool pool;
	struct dt_sched sched;
	struct flight flight[DT_FLOW_STAGES];
	int oldest, nflight;
	enum doing doing;
	double until; /* when that ends */
	double free_s[DT_FLOW_STAGES];
	int unfinished, had;
};

struct request {
	struct dt_seq seq;    /* first member: a pointer to an item's sequence is one to its request */
	struct request *next; /* in the list of requests in transit from a prefill server */
	const struct dt_sim_ask *ask;
	struct dt_sim_answer *answer;
	struct server *home, *helper; /* helper: prefill server that computes the prompt now */
	double there_s;		      /* when its blocks arrive */
	int32_t *tokens;
	int outputs;
	bool moved;
};

struct sim {
	const struct dt_sim_params *p;
	struct server *server; /* [servers + prefill] */
	int nserver, stages;
	struct request *moving;
	const struct dt_sim_ask *ask;
	struct dt_sim_answer *answer;
	struct dt_sim_report *r;
};

static struct server *emptiest(struct server *s, int n)
{
	struct server *best = s;

	for (int i = 1; i < n; i++)
		if (s[i].unfinished < best->unfinished ||
		    (s[i].unfinished == best->unfinished && s[i].had < best->had))
			best = &s[i];
	best->unfinished++;
	best->had++;
	return best;
}

/* Sets all tokens: those of a block with an id depend on the id only, others on the request. */
static int make_tokens(struct request *q, uint64_t number)
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

static void drop(struct request *q)
{
	free(q->tokens);
	free(q);
}

/* Submits q to s; a helper (prefill server) computes only the prompt. */
static int submit(struct request *q, struct server *s, struct dt_err *err)
{
	bool helper = s == q->helper;

	q->seq = (struct dt_seq){.tokens = q->tokens,
				 .known = q->ask->prompt,
				 .max_rows = q->ask->prompt + (helper ? 0 : q->ask->output - 1)};
	return dt_sched_submit(&s->sched, &q->seq, err);
}

static int refuse(struct sim *m, struct request *q)
{
	q->answer->first_s = q->answer->end_s = -1;
	q->home->unfinished--;
	if (q->helper)
		q->helper->unfinished--;
	m->r->refused++;
	drop(q);
	return 0;
}

static int arrive(struct sim *m, int i, struct dt_err *err)
{
	const struct dt_sim_params *p = m->p;
	struct request *q = calloc(1, sizeof(*q));
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
		drop(q);
		return dt_err_sys(err, rc, "cannot simulate");
	}
	if (dt_kvpool_blocks(&q->home->pool, q->ask->prompt + q->ask->output - 1) > p->nblocks)
		return refuse(m, q);
	return submit(q, q->helper ? q->helper : q->home, err);
}

/* The blocks of its prompt have arrived: its own server continues. */
static int hand_over(struct sim *m, struct request *q, struct dt_err *err)
{
	struct dt_kvpool *pool = &q->home->pool;
	struct dt_kvplace at = dt_kvpool_seek(pool, q->seq.salt, q->tokens, q->ask->prompt - 1);
	int32_t b;

	while ((at.n + 1) * pool->block_size <= q->ask->prompt - 1 &&
	       dt_kvpool_adopt(pool, &at, q->seq.salt, q->tokens, &b) >= 0)
		;
	q->helper = NULL;
	return submit(q, q->home, err);
}

/* Its helper has computed the last n tokens of its prompt. */
static void leave_helper(struct sim *m, struct request *q, int n, double now)
{
	m->r->prefix_hits += q->seq.cached;
	dt_sched_remove(&q->helper->sched, &q->seq);
	q->helper->unfinished--;
	q->moved = true;
	q->there_s = now + m->p->move_s(m->p->arg, n);
	q->next = m->moving;
	m->moving = q;
}

static void finish(struct sim *m, struct request *q, double now)
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
	drop(q);
}

/* Ends the oldest step in flight: each sequence that has caught up gets a token. */
static void end_step(struct sim *m, struct server *s)
{
	const struct flight *f = &s->flight[s->oldest];

	s->oldest = (s->oldest + 1) % m->stages;
	s->nflight--;
	for (int i = 0; i < f->n; i++) {
		struct dt_sched_item it = f->items[i];
		struct request *q = (struct request *)it.seq;

		q->seq.busy = false;
		q->seq.computed += it.n;
		dt_sched_computed(&s->sched, &q->seq, it.n);
		if (q->seq.computed < q->seq.known)
			continue;
		if (s == q->helper) {
			leave_helper(m, q, it.n, s->until);
			continue;
		}
		if (q->outputs++ == 0)
			q->answer->first_s = s->until;
		if (q->outputs == q->ask->output)
			finish(m, q, s->until);
		else
			q->seq.known++;
	}
}

static double busy(const struct dt_flow *t)
{
	double sum = 0;

	for (int i = 0; i < t->parts; i++)
		for (int p = 0; p < t->stages; p++)
			sum += t->part_s[i][p];
	return sum / t->stages;
}

/* Begins a step. 1: it has begun; 0: nothing to do. */
static int begin_step(struct sim *m, struct server *s, double now, struct dt_err *err)
{
	struct flight *f = &s->flight[(s->oldest + s->nflight) % m->stages];
	struct dt_flow t;
	int rc;

	f->n = dt_sched_step(&s->sched, f->items);
	if (f->n < 0)
		return dt_err_sys(err, f->n, "cannot plan");
	if (f->n == 0)
		return 0;
	rc = m->p->step_s(m->p->arg, s >= m->server + m->p->servers, f->items, f->n, &t, err);
	if (rc < 0)
		return rc;
	f->done_s = dt_flow_run(&t, now, s->free_s);
	if (t.stages != m->stages || !(s->free_s[0] > now))
		return dt_err_set(err, -EINVAL, "a step takes no time");
	s->nflight++;
	s->doing = COMPUTES;
	s->until = s->free_s[0];
	m->r->busy_s += busy(&t);
	m->r->steps++;
	return 1;
}

static void take(struct server *s, double now)
{
	s->doing = TAKES;
	s->until = fmax(now, s->flight[s->oldest].done_s);
}

/* Ends what the server was doing until now. */
static void end_doing(struct sim *m, struct server *s, double now)
{
	if (s->doing == COMPUTES) {
		s->doing = IDLE;
		if (s->nflight == m->stages)
			take(s, s->until);
	}
	if (s->doing == TAKES && s->until <= now) {
		s->doing = IDLE;
		end_step(m, s);
	}
}

static int go_on(struct sim *m, struct server *s, double now, struct dt_err *err)
{
	const int began = begin_step(m, s, now, err);

	if (began == 0 && s->nflight > 0)
		take(s, now);
	return began < 0 ? began : 0;
}

static double next_event(const struct sim *m, double arrival)
{
	for (int i = 0; i < m->nserver; i++)
		if (m->server[i].doing != IDLE)
			arrival = fmin(arrival, m->server[i].until);
	for (const struct request *q = m->moving; q; q = q->next)
		arrival = fmin(arrival, q->there_s);
	return arrival;
}

static int take_moved(struct sim *m, double now, struct dt_err *err)
{
	int rc = 0;

	for (struct request **at = &m->moving, *q; (q = *at) && rc == 0;) {
		if (q->there_s > now) {
			at = &q->next;
			continue;
		}
		*at = q->next;
		rc = hand_over(m, q, err);
	}
	return rc;
}

static int go(struct sim *m, int n, struct dt_err *err)
{
	int next = 0, rc = 0;

	for (;;) {
		double now = next_event(m, next < n ? m->ask[next].at_s : INFINITY);

		if (isinf(now))
			return 0;
		for (int i = 0; i < m->nserver; i++)
			if (m->server[i].doing != IDLE && m->server[i].until <= now)
				end_doing(m, &m->server[i], now);
		rc = take_moved(m, now, err);
		while (rc == 0 && next < n && m->ask[next].at_s <= now)
			rc = arrive(m, next++, err);
		for (int i = 0; i < m->nserver && rc == 0; i++)
			if (m->server[i].doing == IDLE)
				rc = go_on(m, &m->server[i], now, err);
		if (rc < 0)
			return rc;
	}
}

static int open_server(const struct dt_sim_params *p, struct server *s, int stages, struct dt_err *err)
{
	int rc = dt_kvpool_init(&s->pool, p->nblocks, p->block_size, true);

	if (rc < 0)
		return dt_err_set(err, rc, "cannot simulate a cache of %d blocks", p->nblocks);
	rc = dt_sched_init(&s->sched, &s->pool, p->max_seqs, p->max_tokens, NULL, 1, err);
	s->sched.window = p->window;
	s->sched.depth = stages;
	for (int i = 0; i < stages && rc == 0; i++)
		if (!(s->flight[i].items = calloc((size_t)p->max_seqs, sizeof(struct dt_sched_item))))
			rc = dt_err_sys(err, -ENOMEM, "cannot simulate");
	return rc;
}

/* Frees the requests that are left when the simulation fails. */
static void drop_all(struct server *s)
{
	struct dt_seq_list *lists[] = {&s->sched.running, s->sched.tenant ? &s->sched.tenant->waiting : NULL};

	for (int i = 0; i < 2 && s->sched.tenant; i++)
		for (struct dt_seq *q; (q = TAILQ_FIRST(lists[i]));) {
			dt_sched_remove(&s->sched, q);
			drop((struct request *)q);
		}
}

static void close_server(struct server *s)
{
	drop_all(s);
	if (s->sched.tenant)
		dt_sched_release(&s->sched);
	dt_kvpool_release(&s->pool);
	for (int i = 0; i < DT_FLOW_STAGES; i++)
		free(s->flight[i].items);
}

int dt_simulate(const struct dt_sim_params *p, const struct dt_sim_ask *ask, int n,
		struct dt_sim_answer *answer, struct dt_sim_report *ret, struct dt_err *err)
{
	struct sim m = {.p = p,
			.ask = ask,
			.answer = answer,
			.nserver = p->servers + p->prefill,
			.stages = p->stages > 1 ? p->stages : 1,
			.r = ret};
	int rc = 0;

	*ret = (struct dt_sim_report){0};
	if (p->servers < 1 || p->prefill < 0)
		return dt_err_set(err, -EINVAL, "at least one server must answer");
	if (m.stages > DT_FLOW_STAGES)
		return dt_err_set(err, -EINVAL, "servers are simulated over at most %d stages",
				  DT_FLOW_STAGES);
	for (int i = 0; i < n; i++)
		if (ask[i].prompt < 1 || ask[i].output < 1 || (i > 0 && ask[i].at_s < ask[i - 1].at_s))
			return dt_err_set(err, -EINVAL, "request %d is out of order or empty", i);
	m.server = calloc((size_t)m.nserver, sizeof(*m.server));
	if (!m.server)
		return dt_err_sys(err, -ENOMEM, "cannot simulate");
	for (int i = 0; i < m.nserver && rc == 0; i++)
		rc = open_server(p, &m.server[i], m.stages, err);
	rc = rc < 0 ? rc : go(&m, n, err);
	rc = rc < 0 ? rc : dt_sim_percentiles(ask, answer, n, ret, err);
	for (struct request *q; (q = m.moving);) {
		m.moving = q->next;
		drop(q);
	}
	for (int i = 0; i < m.nserver; i++) {
		ret->preemptions += m.server[i].sched.preemptions;
		close_server(&m.server[i]);
	}
	free(m.server);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
