/*
 * Log-probabilities of a step's rows of logits. Each row has its sum over the vocabulary, a sum of integers
 * (kernels/sample.h), so that no number of threads changes a bit.
 */
#include "serve/engine/priv.h"

/* Divides a row by the temperature of prompt log-probabilities. Nothing else reads the row. */
static void cool(float *logits, int vocab, double temperature)
{
	for (int i = 0; i < vocab; i++)
		logits[i] = (float)((double)logits[i] / temperature);
}

static void row_score(const struct dt_engine *e, int row)
{
	struct dt_engine_row *w = &e->out.row[row];
	const int vocab = e->p.model.vocab;
	float *logits = e->out.logits + (size_t)row * (size_t)vocab;

	if (w->temperature != 1)
		cool(logits, vocab, w->temperature);
	w->log_sum = dt_logprobs_top(logits, vocab, w->ntop, dt_engine_row_top(e, row));
	if (w->target >= 0)
		w->chosen = dt_logprobs_of(logits, vocab, w->target, w->log_sum);
}

static void score_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct dt_engine *e = arg;

	for (int64_t i = first; i < last; i++)
		row_score(e, e->out.todo[i]);
}

/* What is to be computed of row `at` of r; false: nothing. */
static bool row_plan(const struct dt_serve_req *r, int at, struct dt_engine_row *ret)
{
	if (dt_seq_scored(&r->seq, at) && at + 1 < r->nprompt) {
		*ret = (struct dt_engine_row){.target = r->tokens[at + 1],
					      .ntop = r->prompt_scores.ntop,
					      .temperature = r->ask->prompt_temperature};
		return at >= r->ask->score_from + r->prompt_scores.n; /* the others were scored before */
	}
	*ret = (struct dt_engine_row){.target = -1, .ntop = r->ask->logprobs, .temperature = 1};
	return r->ask->logprobs >= 0 && r->nout < r->max_tokens;
}

#define LOGIT_COST 8 /* an exponential beside an element of other ops */

void dt_engine_score_rows(struct dt_engine *e, const struct dt_sched_item *items, int n)
{
	int want = 0, todo = 0;

	if (e->step->batch.draw)
		return;
	for (int i = 0; i < n; i++)
		for (int at = items[i].first; at < items[i].first + items[i].n; at++) {
			if (!dt_engine_wanted(&items[i], at, false))
				continue;
			if (row_plan(dt_serve_req_of(items[i].seq), at, &e->out.row[want]))
				e->out.todo[todo++] = want;
			want++;
		}
	if (e->p.dev)
		dt_dev_rows(e->p.dev, todo, (int64_t)e->p.model.vocab * LOGIT_COST, score_some, e);
	else
		score_some(e, 0, 0, todo);
}
/* SPDX-License-Identifier: Apache-2.0 */
