#include "serve/sched/simulate_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Counts requests that exceed a limit, as early as that is certain; seldom, as it takes a division. */
static void count_over(struct dt_sim *m, struct dt_sim_request *q, double now)
{
	const struct dt_sim_params *p = m->p;

	if (q->outputs == 1)
		m->late += p->ttft_s > 0 && now - q->ask->at_s > p->ttft_s;
	else if (!q->slow && p->tpot_s > 0)
		m->slow += q->slow = (now - q->answer->first_s) / (q->ask->output - 1) > p->tpot_s;
}

/* Ends the oldest step in flight: each sequence that has caught up gets a token. */
static void end_step(struct dt_sim *m, struct dt_sim_server *s)
{
	const struct dt_sim_flight *f = &s->flight[s->oldest];

	s->oldest = (s->oldest + 1) % m->stages;
	s->nflight--;
	for (int i = 0; i < f->n; i++) {
		struct dt_sched_item it = f->items[i];
		struct dt_sim_request *q = (struct dt_sim_request *)it.seq;

		q->seq.busy = false;
		q->seq.computed += it.n;
		dt_sched_computed(&s->sched, &q->seq, it.n);
		if (q->seq.computed < q->seq.known)
			continue;
		if (s == q->helper) {
			dt_sim_leave_helper(m, q, it.n, s->until);
			continue;
		}
		if (q->outputs++ == 0)
			q->answer->first_s = s->until;
		if (q->outputs % 16 == 1 || q->outputs == q->ask->output)
			count_over(m, q, s->until);
		if (q->outputs == q->ask->output)
			dt_sim_finish(m, q, s->until);
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
static int begin_step(struct dt_sim *m, struct dt_sim_server *s, double now, struct dt_err *err)
{
	struct dt_sim_flight *f = &s->flight[(s->oldest + s->nflight) % m->stages];
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
	s->doing = DT_SIM_COMPUTES;
	s->until = s->free_s[0];
	m->r->busy_s += busy(&t);
	m->r->steps++;
	return 1;
}

static void take(struct dt_sim_server *s, double now)
{
	s->doing = DT_SIM_TAKES;
	s->until = fmax(now, s->flight[s->oldest].done_s);
}

/* Ends what the server was doing until now. */
static void end_doing(struct dt_sim *m, struct dt_sim_server *s, double now)
{
	if (s->doing == DT_SIM_COMPUTES) {
		s->doing = DT_SIM_IDLE;
		if (s->nflight == m->stages)
			take(s, s->until);
	}
	if (s->doing == DT_SIM_TAKES && s->until <= now) {
		s->doing = DT_SIM_IDLE;
		end_step(m, s);
	}
}

static int go_on(struct dt_sim *m, struct dt_sim_server *s, double now, struct dt_err *err)
{
	const int began = begin_step(m, s, now, err);

	if (began == 0 && s->nflight > 0)
		take(s, now);
	return began < 0 ? began : 0;
}

static double next_event(const struct dt_sim *m, double arrival)
{
	arrival = fmin(arrival, dt_agenda_next(&m->agenda));
	for (const struct dt_sim_request *q = m->moving; q; q = q->next)
		arrival = fmin(arrival, q->there_s);
	return arrival;
}

void dt_sim_wake(struct dt_sim *m, struct dt_sim_server *s)
{
	if (!s->woken)
		m->woken[m->nwoken++] = (int)(s - m->server);
	s->woken = true;
}

static int ascending(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* The servers that wake are those that end something now, in their order. */
static void end_due(struct dt_sim *m, double now)
{
	while (dt_agenda_next(&m->agenda) <= now) {
		struct dt_sim_server *s = &m->server[dt_agenda_take(&m->agenda)];

		s->listed = false;
		dt_sim_wake(m, s);
	}
	qsort(m->woken, (size_t)m->nwoken, sizeof(*m->woken), ascending);
	for (int i = 0; i < m->nwoken; i++)
		end_doing(m, &m->server[m->woken[i]], now);
}

/* Woken servers that are idle begin a step if they can; an idle one that is not woken could not before. */
static int go_on_woken(struct dt_sim *m, double now, struct dt_err *err)
{
	int rc = 0;

	qsort(m->woken, (size_t)m->nwoken, sizeof(*m->woken), ascending);
	for (int i = 0; i < m->nwoken && rc == 0; i++) {
		struct dt_sim_server *s = &m->server[m->woken[i]];

		s->woken = false;
		if (s->doing == DT_SIM_IDLE)
			rc = go_on(m, s, now, err);
		if (s->doing != DT_SIM_IDLE && !s->listed) {
			s->listed = true;
			dt_agenda_put(&m->agenda, s->until, m->woken[i]);
		}
	}
	m->nwoken = 0;
	return rc;
}

static int go(struct dt_sim *m, int n, struct dt_err *err)
{
	int next = 0, rc = 0;

	for (;;) {
		double now = next_event(m, next < n ? m->ask[next].at_s : INFINITY);

		if (isinf(now) || m->late > m->may || m->slow > m->may)
			return 0;
		end_due(m, now);
		rc = dt_sim_take_moved(m, now, err);
		while (rc == 0 && next < n && m->ask[next].at_s <= now)
			rc = dt_sim_arrive(m, next++, err);
		rc = rc < 0 ? rc : go_on_woken(m, now, err);
		if (rc < 0)
			return rc;
	}
}

static int open_server(const struct dt_sim_params *p, struct dt_sim_server *s, int stages, struct dt_err *err)
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
static void drop_all(struct dt_sim_server *s)
{
	struct dt_seq_list *lists[] = {&s->sched.running, s->sched.tenant ? &s->sched.tenant->waiting : NULL};

	for (int i = 0; i < 2 && s->sched.tenant; i++)
		for (struct dt_seq *q; (q = TAILQ_FIRST(lists[i]));) {
			dt_sched_remove(&s->sched, q);
			dt_sim_drop((struct dt_sim_request *)q);
		}
}

static void close_server(struct dt_sim_server *s)
{
	drop_all(s);
	if (s->sched.tenant)
		dt_sched_release(&s->sched);
	dt_kvpool_release(&s->pool);
	for (int i = 0; i < DT_FLOW_STAGES; i++)
		free(s->flight[i].items);
}

/* The report of a simulation that has stopped; too long requests are refused whenever they arrive. */
static void report_stop(const struct dt_sim *m, int n)
{
	const struct dt_sim_params *p = m->p;
	struct dt_sim_report *r = m->r;

	r->stopped = true;
	r->ttft_p50 = r->ttft_p99 = r->tpot_p50 = r->tpot_p99 = INFINITY;
	r->refused = 0;
	for (int i = 0; i < n; i++)
		r->refused += dt_sim_too_long(p, &m->ask[i]);
}

int dt_simulate(const struct dt_sim_params *p, const struct dt_sim_ask *ask, int n,
		struct dt_sim_answer *answer, struct dt_sim_report *ret, struct dt_err *err)
{
	struct dt_sim m = {.p = p,
			   .ask = ask,
			   .answer = answer,
			   .nserver = p->servers + p->prefill,
			   .stages = p->stages > 1 ? p->stages : 1,
			   .may = n - (int)ceil(0.99 * n) + 1,
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
	m.woken = calloc((size_t)m.nserver, sizeof(*m.woken));
	if (dt_agenda_open(&m.agenda, m.nserver) < 0 || !m.server || !m.woken)
		rc = dt_err_sys(err, -ENOMEM, "cannot simulate");
	for (int i = 0; i < m.nserver && rc == 0; i++)
		rc = open_server(p, &m.server[i], m.stages, err);
	rc = rc < 0 ? rc : go(&m, n, err);
	if (rc == 0 && (m.late > m.may || m.slow > m.may))
		report_stop(&m, n);
	else
		rc = rc < 0 ? rc : dt_sim_percentiles(ask, answer, n, ret, err);
	for (struct dt_sim_request *q; (q = m.moving);) {
		m.moving = q->next;
		dt_sim_drop(q);
	}
	for (int i = 0; m.server && i < m.nserver; i++) {
		ret->preemptions += m.server[i].sched.preemptions;
		close_server(&m.server[i]);
	}
	dt_agenda_close(&m.agenda);
	free(m.woken);
	free(m.server);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
