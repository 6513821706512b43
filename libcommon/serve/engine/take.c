/* Results of a step: prompt scores, and next tokens of requests that have caught up. */
#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Index of id among the stop ids, -1: not a stop id. */
static int find_stop_id(const struct dt_serve_req *r, int32_t id)
{
	for (int i = 0; i < r->ask->nstop_ids; i++)
		if (r->ask->stop_ids[i] == id)
			return i;
	return -1;
}

/* Appends a token to r. Call with the call locked. Returns an enum dt_finish or a negative errno. */
static int take_token(struct dt_serve_req *r, int32_t id, const struct dt_logprob *chosen,
		      const struct dt_logprob *top)
{
	int rc, stop;

	if (r->ask->logprobs >= 0) {
		rc = dt_scores_push(&r->scores, *chosen, top);
		if (rc < 0)
			return rc;
	}
	if (r->keys)
		r->keys[r->nprompt + r->nout] = id;
	dt_serve_req_out(r)[r->nout++] = id;
	r->seq.known++;
	stop = find_stop_id(r, id);
	if (r->nout > r->ask->min_tokens && stop >= 0) {
		r->stop_id = stop < r->ask->nasked ? id : -1;
		if (r->ask->include_stop) {
			rc = dt_detok_push(&r->detok, id);
			if (rc < 0)
				return rc;
		}
		return DT_FINISH_STOP;
	}
	r->detok.no_stop = r->nout <= r->ask->min_tokens;
	rc = dt_detok_push(&r->detok, id);
	if (rc < 0)
		return rc;
	if (rc > 0)
		return DT_FINISH_STOP;
	return r->nout == r->max_tokens ? DT_FINISH_LENGTH : DT_FINISH_NONE;
}

/* Scratch memory for one row of logits. */
static float *spare(const struct dt_engine *e)
{
	return e->out.logits + (size_t)e->p.max_seqs * (size_t)e->p.model.vocab;
}

/*
 * Draws r's next token; sets its log-probability if r asks for it, and the alternatives of the row if they
 * depend on the draw. Negative errno: failed.
 */
static int32_t draw(struct dt_engine *e, struct dt_serve_req *r, float *logits, int row,
		    struct dt_logprob *ret)
{
	struct dt_sampling s = dt_serve_req_sampling(r);
	struct dt_logprob drawn[1 + DT_LOGPROBS_MAX];
	const bool scored = r->ask->logprobs >= 0 && !r->ask->drawn_probs;
	float *raw = spare(e);
	int32_t id;

	s.mu = &r->mu;
	s.drawn = r->ask->drawn_probs ? drawn : NULL;
	s.ndrawn = r->ask->logprobs;
	if (r->nout < r->ask->min_tokens) {
		s.ban = r->ask->stop_ids;
		s.nban = r->ask->nstop_ids;
	}
	if (r->matcher && !r->dormant)
		s.allow = dt_constrain_mask(e, r);
	if (scored) /* the sampler overwrites the logits */
		memcpy(raw, logits, (size_t)e->p.model.vocab * sizeof(*raw));
	id = dt_sample(&e->sampler, &s, logits, r->tokens, (size_t)r->nprompt, dt_serve_req_out(r),
		       (size_t)r->nout);
	if (scored && id >= 0)
		*ret = dt_logprobs_of(raw, e->p.model.vocab, id, e->out.row[row].log_sum);
	if (s.drawn && id >= 0) {
		*ret = drawn[0];
		memcpy(dt_engine_row_top(e, row), drawn + 1, (size_t)s.ndrawn * sizeof(*drawn));
	}
	return id;
}

/* The same for a token that the model has drawn. */
static int32_t as_drawn(const struct dt_serve_req *r, const struct dt_drawn *d, struct dt_logprob *ret)
{
	if (r->ask->logprobs >= 0 && d->id >= 0)
		*ret = (struct dt_logprob){d->id, dt_drawn_logprob(d), 0};
	return d->id < 0 ? -EDOM : d->id;
}

/*
 * Appends the next token of r, from its last row, of which logits may be a copy. Returns it, or -1 when r has
 * ended.
 */
static int32_t next_token(struct dt_engine *e, struct dt_serve_req *r, float *logits, int row,
			  const struct dt_drawn *d)
{
	struct dt_logprob chosen = {0};
	struct dt_err err = {0};
	double now, gap;
	int32_t id;
	int rc;

	if (r->nout == r->max_tokens) { /* max_tokens 0: only the prompt was scored */
		dt_engine_retire(e, r, DT_FINISH_LENGTH);
		return -1;
	}
	id = d ? as_drawn(r, d, &chosen) : draw(e, r, logits, row, &chosen);
	if (id == -ENOMEM) {
		dt_err_set(&err, -ENOMEM, "cannot sample a token");
		dt_engine_retire_error(e, r, &err);
		return -1;
	}
	if (id < 0) {
		dt_err_set(&err, -EDOM,
			   r->matcher && !isnan(dt_sample_max(logits, e->p.model.vocab))
				   ? "no token fits the grammar of the response format at token %d"
				   : "the model's output at token %d is not a number",
			   r->seq.known);
		dt_engine_retire_error(e, r, &err);
		return -1;
	}
	now = dt_now();
	pthread_mutex_lock(&r->call->mu);
	gap = r->nout > 0 ? now - r->t_last : -1;
	if (r->nout == 0)
		r->t_first = now;
	r->t_last = now;
	rc = take_token(r, id, &chosen, dt_engine_row_top(e, row));
	if (rc == DT_FINISH_NONE)
		dt_teller_add(&e->teller, r->call);
	pthread_mutex_unlock(&r->call->mu);
	dt_metrics_token(&e->metrics, r, gap);
	if (rc == DT_FINISH_NONE && dt_constrain_tell(e, r, id))
		rc = DT_FINISH_STOP;
	if (rc == DT_FINISH_NONE)
		return id;
	if (rc < 0) {
		dt_err_sys(&err, rc, "cannot keep token %d", r->seq.known);
		dt_engine_retire_error(e, r, &err);
	} else {
		dt_engine_retire(e, r, (enum dt_finish)rc);
	}
	return -1;
}

/* Row `at` of a scored prompt predicts its token at + 1. */
static int score(struct dt_engine *e, struct dt_serve_req *r, int at, int row)
{
	int rc = 0;

	if (at + 1 >= r->nprompt || at != r->ask->score_from + r->prompt_scores.n)
		return 0; /* the last row is for sampling; a recomputed row was scored before */
	pthread_mutex_lock(&r->call->mu);
	rc = dt_scores_push(&r->prompt_scores, e->out.row[row].chosen, dt_engine_row_top(e, row));
	pthread_mutex_unlock(&r->call->mu);
	return rc;
}

/* Copies what is kept by place to one more choice of the leader's prompt; false: it has ended. */
static bool copy_state(struct dt_engine *e, const struct dt_serve_req *leader, struct dt_serve_req *r)
{
	const struct dt_engine_model *m = &e->p.model;
	int rc = m->copy_state ? m->copy_state(m->m, leader->seq.place, r->seq.place) : 0;
	struct dt_err err;

	if (rc == 0)
		return true;
	dt_err_sys(&err, rc, "cannot copy a state");
	dt_engine_retire_error(e, r, &err);
	return false;
}

/* The first token of one more choice, from a copy of the prompt's logits. */
static void begin_choice(struct dt_engine *e, struct dt_serve_req *r, const float *logits, int row)
{
	size_t vocab = (size_t)e->p.model.vocab;
	float *own = e->out.logits + ((size_t)e->p.max_seqs + 1) * vocab;

	if (!dt_constrain_ready(e, r)) {
		dt_constrain_hold(r);
	} else if (!dt_constrain_ends(e, r)) {
		memcpy(own, logits, vocab * sizeof(*own));
		next_token(e, r, own, row, NULL);
	}
}

/* Starts the other choices of a computed prompt: they share its blocks, or wait for room. */
static void fork_followers(struct dt_engine *e, struct dt_serve_req *leader, const float *logits, int row)
{
	struct dt_call *c = leader->call;

	for (int i = 0; i < c->n; i++) {
		struct dt_serve_req *r = &c->req[i];

		bool ok;

		if (r->seq.leader != &leader->seq)
			continue;
		ok = dt_sched_fork(&e->sched, &r->seq);
		dt_schedtrace_fork(e->p.trace, &r->seq, ok);
		if (!ok)
			continue;
		dt_serve_req_start(r, leader->t_start);
		dt_call_ref(c); /* ending r may free the call */
		if (copy_state(e, leader, r))
			begin_choice(e, r, logits, row);
		dt_call_drop(c);
	}
}

/*
 * Takes r's tokens: from its last known row, for which it is ready, and from the rows of accepted draft
 * tokens. Returns their number.
 */
static int take_tokens(struct dt_engine *e, struct dt_serve_req *r, int row)
{
	const struct dt_drawn *drawn = e->step->batch.draw ? e->out.drawn + row : NULL;
	size_t vocab = (size_t)e->p.model.vocab;
	float *logits = e->out.logits + (size_t)row * vocab;
	int guessed = r->seq.draft, n = 0, given = 0;
	int32_t id;

	r->seq.draft = 0;
	if (dt_constrain_ends(e, r))
		return 0;
	if (r->nout == 0 && !drawn)
		fork_followers(e, r, logits, row);
	for (;; n++) {
		int32_t guess = n < guessed ? r->tokens[r->seq.known] : -1;

		if (n > 0 && !dt_constrain_ready(e, r)) {
			dt_constrain_hold(r);
			break;
		}
		if (n > 0 && dt_constrain_ends(e, r))
			break;
		id = next_token(e, r, logits + (size_t)n * vocab, row + n, drawn ? drawn + n : NULL);
		given++;
		if (id < 0 || id != guess)
			break;
		r->seq.computed++;
	}
	if (guessed > 0)
		dt_metrics_guessed(&e->metrics, guessed, n);
	return given;
}

/* Copies new blocks of r's prompt for another server, before they are published or released. */
static void export_blocks(struct dt_engine *e, struct dt_serve_req *r)
{
	struct dt_kvout *o = r->call->out;
	int end = r->seq.computed / e->pool->block_size, next;
	bool failed = false;

	if (o->failed) /* only this thread sets it */
		return;
	end = end < o->from + o->n ? end : o->from + o->n;
	for (next = o->next; o->from + next < end && !failed; next += !failed) {
		const int32_t b = r->seq.blocks.b[o->from + next];

		failed = b < 0 || e->p.model.read_block(e->p.model.m, b, dt_kvout_block(o, next)) < 0;
	}
	if (next == o->next && !failed)
		return;
	dt_metrics_sent(&e->metrics, next - o->next);
	o->next = next;
	pthread_mutex_lock(&r->call->mu);
	o->ready = next;
	o->failed = failed;
	pthread_cond_broadcast(&r->call->cond);
	pthread_mutex_unlock(&r->call->mu);
}

/* The item's results begin at row *want; advances *want. Returns the number of tokens handed out. */
static int take_item(struct dt_engine *e, const struct dt_sched_item *it, int *want)
{
	struct dt_serve_req *r = dt_serve_req_of(it->seq);
	int known = it->seq->known, rc = 0, last = -1;
	int end = it->first + it->n < known ? it->first + it->n : known;

	for (int at = it->first; at < end; at++) {
		if (!dt_engine_wanted(it, at, false))
			continue;
		if (dt_seq_scored(it->seq, at) && rc == 0)
			rc = score(e, r, at, *want);
		if (at == known - 1)
			last = *want;
		(*want)++;
	}
	*want += it->first + it->n - end;
	it->seq->computed = end;
	if (last >= 0 && !dt_constrain_ready(e, r)) {
		dt_constrain_hold(r);
		last = -1;
	}
	if (r->call->out)
		export_blocks(e, r);
	dt_schedtrace_computed(e->p.trace, it->seq, it->n);
	dt_sched_computed(&e->sched, it->seq, it->n);
	if (rc < 0) {
		struct dt_err err;

		dt_err_sys(&err, rc, "cannot score the prompt");
		dt_engine_retire_error(e, r, &err);
	} else if (last >= 0) {
		return take_tokens(e, r, last);
	}
	return 0;
}

int dt_engine_take(struct dt_engine *e, const struct dt_sched_item *items, int n)
{
	int want = 0, given = 0;

	dt_engine_score_rows(e, items, n);
	for (int i = 0; i < n; i++)
		given += take_item(e, &items[i], &want);
	return given;
}
/* SPDX-License-Identifier: Apache-2.0 */
