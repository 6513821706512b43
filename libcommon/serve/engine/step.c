#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool dt_engine_wanted(const struct dt_sched_item *it, int row, bool draft)
{
	if (draft)
		return it->seq->draft > 0 && row == it->first + it->n - 1;
	return row < it->seq->score_end || row >= it->seq->known - 1;
}

/* Puts the items into e->batch. draft: for the model that guesses. */
int dt_engine_build(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft)
{
	struct dt_infer_batch *b = &e->batch;
	int t = 0;

	b->nseq = n;
	b->nwant = 0;
	b->max_blocks = 1;
	for (int i = 0; i < n; i++)
		if (items[i].seq->blocks.n > b->max_blocks)
			b->max_blocks = items[i].seq->blocks.n;
	for (int i = 0; i < n; i++) {
		const struct dt_sched_item *it = &items[i];
		const struct dt_serve_req *r = dt_serve_req_of(it->seq);
		int32_t *row = e->table + (size_t)i * (size_t)b->max_blocks;

		e->q_start[i] = t;
		e->kv_len[i] = it->first + it->n;
		e->pool_to[i] = draft ? NULL : r->pooled;
		memcpy(row, it->seq->blocks.b, (size_t)it->seq->blocks.n * sizeof(*row));
		for (int k = it->seq->blocks.n; k < b->max_blocks; k++)
			row[k] = 0;
		for (int at = it->first; at < it->first + it->n; at++, t++) {
			e->ids[t] = r->tokens[at];
			e->pos[t] = at;
			e->slot[t] = dt_kvpool_slot(&e->pool, &it->seq->blocks, at);
			if (dt_engine_wanted(it, at, draft))
				e->want[b->nwant++] = t;
		}
	}
	e->q_start[n] = t;
	b->ntokens = t;
	return dt_engine_plan_draws(e, items, n, draft);
}

/* Which of the stop ids it is, -1: none. */
static int find_stop_id(const struct dt_serve_req *r, int32_t id)
{
	for (int i = 0; i < r->nstop_ids; i++)
		if (r->stop_ids[i] == id)
			return i;
	return -1;
}

static const char *token_bytes(const void *tok, int32_t id, size_t *ret_n)
{
	return dt_tokenizer_piece(tok, id, false, ret_n);
}

/* The tokens that r's grammar allows, and the end of text where the text may end. NULL: out of memory. */
static const uint32_t *allowed(struct dt_engine *e, const struct dt_serve_req *r)
{
	size_t words = ((size_t)e->p.model.vocab + 31) / 32;
	const uint32_t *mask;

	if (!e->order.token && dt_vocab_order_init(&e->order, e->p.model.vocab, token_bytes, e->p.tok) < 0)
		return NULL;
	if (!e->allow)
		e->allow = malloc(words * sizeof(*e->allow));
	mask = e->allow ? dt_matcher_mask(r->matcher, &e->order) : NULL;
	if (!mask)
		return NULL;
	memcpy(e->allow, mask, words * sizeof(*e->allow));
	for (int i = 0; i < r->nstop_ids && dt_matcher_complete(r->matcher); i++)
		e->allow[r->stop_ids[i] / 32] |= 1u << r->stop_ids[i] % 32;
	return e->allow;
}

/* Tells r's grammar of a token; true: nothing may follow. */
static bool tell_matcher(const struct dt_engine *e, struct dt_serve_req *r, int32_t id)
{
	size_t n = 0;
	const char *s = dt_tokenizer_piece(e->p.tok, id, false, &n);

	if (!r->matcher)
		return false;
	dt_matcher_push(r->matcher, s ? s : "", s ? n : 0);
	return dt_matcher_done(r->matcher);
}

/* Gives r the token id. Call locked. Returns why it ends, NONE, or a negative errno. */
static int take_token(struct dt_serve_req *r, int32_t id, const struct dt_logprob *chosen,
		      const struct dt_logprob *top)
{
	int rc, stop;

	if (r->logprobs >= 0) {
		rc = dt_scores_push(&r->scores, *chosen, top);
		if (rc < 0)
			return rc;
	}
	dt_serve_req_out(r)[r->nout++] = id;
	r->seq.known++;
	stop = find_stop_id(r, id);
	if (r->nout > r->min_tokens && stop >= 0) {
		r->stop_id = stop < r->nasked ? id : -1;
		if (r->include_stop) {
			rc = dt_detok_push(&r->detok, id);
			if (rc < 0)
				return rc;
		}
		return DT_FINISH_STOP;
	}
	rc = dt_detok_push(&r->detok, id);
	if (rc < 0)
		return rc;
	if (rc > 0)
		return DT_FINISH_STOP;
	return r->nout == r->max_tokens ? DT_FINISH_LENGTH : DT_FINISH_NONE;
}

/* The next token of r from its logits, and how likely it was where r asks for that. Negative: there is none.
 */
static int32_t draw(struct dt_engine *e, struct dt_serve_req *r, float *logits, struct dt_logprob *ret)
{
	struct dt_sampling s = r->sampling;
	float *raw = e->logits + (size_t)e->p.max_seqs * (size_t)e->p.model.vocab;
	int32_t id;

	if (r->nout < r->min_tokens) {
		s.ban = r->stop_ids;
		s.nban = r->nstop_ids;
	}
	if (r->matcher && !(s.allow = allowed(e, r)))
		return -ENOMEM;
	if (r->logprobs >= 0) /* the sampler overwrites the logits */
		memcpy(raw, logits, (size_t)e->p.model.vocab * sizeof(*raw));
	id = dt_sample(&e->sampler, &s, logits, r->tokens, (size_t)r->nprompt, dt_serve_req_out(r),
		       (size_t)r->nout);
	if (r->logprobs >= 0 && id >= 0)
		dt_logprobs(raw, e->p.model.vocab, id, ret, r->logprobs, e->top);
	return id;
}

/* Likewise where the model has drawn it. */
static int32_t as_drawn(const struct dt_serve_req *r, const struct dt_drawn *d, struct dt_logprob *ret)
{
	if (r->logprobs >= 0 && d->id >= 0)
		*ret = (struct dt_logprob){d->id, dt_drawn_logprob(d)};
	return d->id < 0 ? -EDOM : d->id;
}

/* Hands r the next token, which its last row gives. Returns it, or -1 when r has ended. */
static int32_t next_token(struct dt_engine *e, struct dt_serve_req *r, float *logits,
			  const struct dt_drawn *d)
{
	struct dt_logprob chosen = {0};
	struct dt_err err = {0};
	double now, gap;
	int32_t id;
	int rc;

	if (r->nout == r->max_tokens) { /* max_tokens 0: only the prompt was asked about */
		dt_engine_retire(e, r, DT_FINISH_LENGTH);
		return -1;
	}
	id = d ? as_drawn(r, d, &chosen) : draw(e, r, logits, &chosen);
	if (id == -ENOMEM) {
		dt_err_set(&err, -ENOMEM,
			   r->matcher ? "cannot follow the response's grammar" : "cannot draw a token");
		dt_engine_retire_error(e, r, &err);
		return -1;
	}
	if (id < 0) {
		dt_err_set(&err, -EDOM,
			   r->matcher ? "no token fits the response's grammar at token %d"
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
	rc = take_token(r, id, &chosen, e->top);
	if (rc == DT_FINISH_NONE)
		dt_teller_add(&e->teller, r->call);
	pthread_mutex_unlock(&r->call->mu);
	dt_metrics_token(&e->metrics, r, gap);
	if (rc == DT_FINISH_NONE && tell_matcher(e, r, id))
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
static int score(struct dt_engine *e, struct dt_serve_req *r, int at, const float *logits)
{
	struct dt_logprob chosen;
	int rc = 0;

	if (at + 1 >= r->nprompt || at != r->prompt_scores.n)
		return 0; /* the last row is sampled from; a recomputed row is already there */
	dt_logprobs(logits, e->p.model.vocab, r->tokens[at + 1], &chosen, r->logprobs, e->top);
	pthread_mutex_lock(&r->call->mu);
	rc = dt_scores_push(&r->prompt_scores, chosen, e->top);
	pthread_mutex_unlock(&r->call->mu);
	return rc;
}

/* The other choices of a prompt whose last row has come: they run on from it, or wait for a place. */
static void fork_followers(struct dt_engine *e, struct dt_serve_req *leader, const float *logits)
{
	struct dt_call *c = leader->call;
	size_t vocab = (size_t)e->p.model.vocab;
	float *own = e->logits + ((size_t)e->p.max_seqs + 1) * vocab;

	for (int i = 0; i < c->n; i++) {
		struct dt_serve_req *r = &c->req[i];

		bool ok;

		if (r->seq.leader != &leader->seq)
			continue;
		ok = dt_sched_fork(&e->sched, &r->seq);
		dt_schedtrace_fork(e->p.trace, &r->seq, ok);
		if (!ok)
			continue;
		r->t_start = leader->t_start;
		memcpy(own, logits, vocab * sizeof(*own));
		dt_call_ref(c); /* r's end may be the call's */
		next_token(e, r, own, NULL);
		dt_call_drop(c);
	}
}

/* The tokens of r from its last known row and, where guesses were right, from the rows behind it. */
static int take_tokens(struct dt_engine *e, struct dt_serve_req *r, int row)
{
	const struct dt_drawn *drawn = e->batch.draw ? e->drawn + row : NULL;
	size_t vocab = (size_t)e->p.model.vocab;
	float *logits = e->logits + (size_t)row * vocab;
	int guessed = r->seq.draft, n = 0;
	int32_t id;

	r->seq.draft = 0;
	if (r->nout == 0 && !drawn)
		fork_followers(e, r, logits);
	for (;; n++) {
		int32_t guess = n < guessed ? r->tokens[r->seq.known] : -1;

		id = next_token(e, r, logits + (size_t)n * vocab, drawn ? drawn + n : NULL);
		if (id < 0 || id != guess)
			break;
		r->seq.computed++;
	}
	if (guessed > 0)
		dt_metrics_guessed(&e->metrics, guessed, n);
	return n + 1;
}

/* Rows *want on of the results belong to the item. Returns the tokens it gave. */
static int take_item(struct dt_engine *e, const struct dt_sched_item *it, int *want)
{
	struct dt_serve_req *r = dt_serve_req_of(it->seq);
	int known = it->seq->known, score_end = it->seq->score_end, rc = 0, last = -1;
	int end = it->first + it->n < known ? it->first + it->n : known;

	for (int at = it->first; at < end; at++) {
		if (!dt_engine_wanted(it, at, false))
			continue;
		if (at < score_end && rc == 0)
			rc = score(e, r, at, e->logits + (size_t)*want * (size_t)e->p.model.vocab);
		if (at == known - 1)
			last = *want;
		(*want)++;
	}
	*want += it->first + it->n - end;
	it->seq->computed = end;
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

/* Guesses for every sequence that decodes; whether there are any to be made. */
static void guess(struct dt_engine *e)
{
	if (e->p.draft == 0 || e->sched.running.n == 0 || !dt_spec_on(&e->spec, e->sched.running.n))
		return;
	for (struct dt_seq *q = e->sched.running.head; q; q = q->next) {
		struct dt_serve_req *r = dt_serve_req_of(q);
		int most = r->max_tokens - r->nout - 1;

		if (q->known - q->computed != 1)
			continue;
		most = most < e->p.draft ? most : e->p.draft;
		if (most > 0)
			q->draft = e->p.drafter.m
					   ? most
					   : dt_spec_lookup(r->tokens, q->known, most, r->tokens + q->known);
	}
}

static void drop_guesses(struct dt_sched_item *it)
{
	it->n -= it->seq->draft;
	it->seq->draft = 0;
}

/* Every item decodes; *ret_guessed: tokens guessed. */
static bool is_decode(const struct dt_sched_item *items, int n, int *ret_guessed)
{
	*ret_guessed = 0;
	for (int i = 0; i < n; i++) {
		if (items[i].seq->known - items[i].first != 1)
			return false;
		*ret_guessed += items[i].seq->draft;
	}
	return true;
}

/* What sequences shared so far and one of them will write. */
static int copy_blocks(struct dt_engine *e, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < e->sched.ncopy && rc == 0; i++) {
		const struct dt_block_copy *c = &e->sched.copy[i];

		rc = e->p.model.copy_block(e->p.model.m, c->from, c->to);
		if (rc == 0 && e->p.drafter.m)
			rc = e->p.drafter.copy_block(e->p.drafter.m, c->from, c->to);
	}
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy a block of the cache") : 0;
}

void dt_engine_step(struct dt_engine *e)
{
	int n, want = 0, rc, guessed, given = 0;
	struct dt_err err = {0};
	double now = dt_now();
	bool decode;

	guess(e);
	dt_schedtrace_state(e->p.trace, &e->sched);
	n = dt_sched_step(&e->sched, e->items);
	if (n > 0)
		dt_schedtrace_plan(e->p.trace, &e->sched, e->items, n);
	if (n <= 0) { /* out of memory for a block table: everything in flight ends, nothing is half done */
		dt_err_sys(&err, n < 0 ? n : -EPROTO, "cannot plan a step");
		while (e->live.head)
			dt_engine_retire_error(e, e->live.head, &err);
		return;
	}
	for (int i = 0; i < n; i++) {
		struct dt_serve_req *r = dt_serve_req_of(e->items[i].seq);

		if (r->t_start == 0)
			r->t_start = now;
	}
	rc = copy_blocks(e, &err);
	if (e->p.drafter.m && rc == 0 && dt_engine_draft(e, n) < 0) /* guesses are not needed */
		for (int i = 0; i < n; i++)
			drop_guesses(&e->items[i]);
	if (rc == 0 && (rc = dt_engine_build(e, e->items, n, false)) < 0)
		dt_err_sys(&err, rc, "cannot plan a step");
	decode = is_decode(e->items, n, &guessed);
	dt_metrics_step(&e->metrics, &e->sched, e->batch.ntokens);
	if (rc == 0)
		rc = e->p.model.forward(e->p.model.m, &e->batch, e->logits, &err);
	if (rc == 0 && e->batch.draw)
		dt_metrics_drawn(&e->metrics);
	for (int i = 0; i < n; i++) {
		if (rc < 0)
			dt_engine_retire_error(e, dt_serve_req_of(e->items[i].seq), &err);
		else
			given += take_item(e, &e->items[i], &want);
	}
	dt_teller_go(&e->teller);
	if (decode && rc == 0)
		dt_spec_measured(&e->spec, n, guessed > 0, given, dt_now() - now);
}
