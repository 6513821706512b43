/*
 * Starts a new process in place of a rank that an elastic run has lost (--replace). It is dt-train with the
 * job's options, without a launcher. It finds the job by the board of one of its ranks (comm/elastic.c),
 * joins between two steps and receives the state from the ranks. The job ends with the last of all its
 * processes, including these.
 */
#include "supervise/state.h"

#include "base/progress.h"

#include <math.h>
#include <stdlib.h>

/* Limit of the pause after replacements that trained no step, as a power of two. */
enum { PAUSES = 6 };

/* Whether the process has reported as a rank that trains. */
static bool is_rank(const struct sup_ranks *r, pid_t pid)
{
	for (int i = 0; i < r->n; i++)
		if (r->v[i].known && r->v[i].beat.pid == pid && r->v[i].beat.phase >= DT_BEAT_TRAIN)
			return true;
	return false;
}

/* The number of replacements that are not ranks yet. */
static int on_their_way(const struct sup *s)
{
	int n = 0;

	for (int i = 0; i < s->job.njoined; i++)
		n += !is_rank(&s->ranks, s->job.joined[i]);
	return n;
}

/* Whether a replacement has trained a step. */
static bool one_trains(const struct sup *s)
{
	for (int i = 0; i < s->ranks.n; i++) {
		const struct dt_beat *b = &s->ranks.v[i].beat;

		for (int k = 0; s->ranks.v[i].known && k < s->job.njoined; k++)
			if (b->pid == s->job.joined[k] && b->step > b->from)
				return true;
	}
	return false;
}

int sup_replace_missing(const struct sup_ranks *r, int want, int coming)
{
	uint32_t newest = 0;
	int ranks = 0;

	for (int i = 0; i < r->n; i++) {
		const struct dt_beat *b = &r->v[i].beat;

		if (!r->v[i].known || b->phase < DT_BEAT_TRAIN)
			continue;
		if (b->phase == DT_BEAT_END && (!b->status || b->status == DT_EXIT_PREEMPTED))
			return 0;
		ranks = b->epoch >= newest ? b->ranks : ranks;
		newest = b->epoch > newest ? b->epoch : newest;
	}
	return ranks && want > ranks + coming ? want - ranks - coming : 0;
}

/* The rank whose board is used: one on this machine that trains. */
static const struct dt_beat *host(const struct sup_ranks *r)
{
	for (int i = 0; i < r->n; i++) {
		const struct sup_rank *k = &r->v[i];

		if (k->known && k->local && !k->ended && k->beat.board >= 0 &&
		    k->beat.phase >= DT_BEAT_TRAIN && k->beat.phase != DT_BEAT_END)
			return &k->beat;
	}
	return NULL;
}

static void start_one(struct sup *s, const struct dt_beat *at, double now)
{
	struct sup_replace *p = &s->replace;
	struct sup_words w = {0};
	struct dt_err err = {0};
	char address[512], board[32];
	int rc;

	p->tried++;
	p->next = now + (p->tried > 1 ? ldexp(1, (p->tried < PAUSES ? p->tried : PAUSES) - 2) : 0);
	sup_command_words(s, &w);
	sup_ranks_address(&s->ranks, address, sizeof(address));
	snprintf(board, sizeof(board), "%d:%d", at->pid, at->board);
	rc = sup_job_join(&s->job, w.v, address, board, &err);
	sup_words_free(&w);
	if (rc < 0) {
		dt_log_err(s->log, &err);
		return;
	}
	dt_log_msg(s->log, "started process %d to replace a lost rank", rc);
	sup_event(s, "replacement", "{s:i}", "pid", rc);
}

void sup_replace_step(struct sup *s, double now)
{
	struct sup_replace *p = &s->replace;
	const struct dt_beat *at;

	if (!s->o->replace || !s->job.elastic || !s->job.running || s->ending != SUP_RUNS || s->trained <= 0)
		return;
	if (p->tried && one_trains(s))
		p->tried = 0;
	if (p->given_up || now < p->next || !sup_replace_missing(&s->ranks, p->want, on_their_way(s)) ||
	    !(at = host(&s->ranks)))
		return;
	if (p->tried < s->o->tries) {
		start_one(s, at, now);
		return;
	}
	p->given_up = true;
	dt_log_msg(s->log, "none of %d replacements trained a step: the run continues without them",
		   p->tried);
}
/* SPDX-License-Identifier: Apache-2.0 */
