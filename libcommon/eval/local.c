/* A checkpoint in this process, queried like dt-serve: through the API's parser and the engine. */
#include "eval/asker.h"

#include "base/json.h"
#include "base/utf8.h"
#include "serve/api/openai.h"
#include "serve/api/served.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQS  32
#define QUEUE 224 /* SEQS + QUEUE questions are in the engine at a time */

/* A context as tokens. Its head is the beginning whose tokens do not depend on what follows it. */
struct context {
	const char *text; /* as in the question; NULL: none */
	size_t head;	  /* bytes */
	int32_t *ids;	  /* [n], of which the head's are the first nhead */
	size_t n, nhead;
};

struct local {
	struct dt_asker asker;
	struct dt_served served;
	struct dt_api_model api;
	struct context seen[DT_TURNS_AHEAD]; /* of the questions that are being asked */
	int next_seen;			     /* the oldest */
};

/* A question in the engine. */
struct asked {
	struct dt_completion c;
	int context; /* tokens of the context that are given */
	bool cut;    /* its first ones are left out */
};

static int append_ids(json_t *list, const int32_t *ids, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = json_array_append_new(list, json_integer(ids[i])) ? -ENOMEM : 0;
	return rc;
}

static size_t context_of(const struct local *l)
{
	return (size_t)l->api.engine->max_len;
}

/*
 * How many of `have` tokens are left out in front so that they and `more` tokens fit into `most`, as
 * lm-evaluation-harness does; 0 if even the last one would not: the engine then says what is too long.
 */
static size_t beyond(size_t most, size_t have, size_t more)
{
	return have + more > most && more < most ? have + more - most : 0;
}

static void forget(struct context *x)
{
	free(x->ids);
	*x = (struct context){0};
}

/* Appends the ids of the text behind the head. */
static int encode_behind(const struct dt_tokenizer *tok, struct context *x, size_t own, struct dt_err *err)
{
	int32_t *ids = NULL, *all;
	size_t n = 0;
	int rc = dt_tokenizer_encode(tok, x->text + x->head, own - x->head, true, &ids, &n, err);

	all = rc == 0 ? realloc(x->ids, (x->n + n + 1) * sizeof(*all)) : NULL;
	if (all) {
		memcpy(all + x->n, ids, n * sizeof(*all));
		x->ids = all;
		x->n += n;
	} else if (rc == 0) {
		rc = -ENOMEM;
	}
	free(ids);
	return rc;
}

/* The tokens of a context, found again for the further continuations of the same item. */
static int encode_once(struct local *l, const char *text, const struct context **ret, struct dt_err *err)
{
	const struct dt_tokenizer *tok = l->served.tok;
	const size_t own = dt_utf8_trimmed(text, strlen(text));
	struct context *x = &l->seen[l->next_seen];
	int rc;

	for (int i = 0; i < DT_TURNS_AHEAD; i++)
		if (l->seen[i].text == text) {
			*ret = &l->seen[i];
			return 0;
		}
	forget(x);
	x->head = dt_tokenizer_may_cut(tok, true) ? dt_tokenizer_last_cut(text, own) : 0;
	rc = dt_api_encode(tok, text, x->head ? x->head : own, false, &x->ids, &x->n, err);
	if (rc == 0 && x->head) {
		x->text = text;
		x->nhead = x->n;
		rc = encode_behind(tok, x, own, err);
	}
	if (rc < 0) {
		forget(x);
		return rc;
	}
	x->text = text;
	l->next_seen = (l->next_seen + 1) % DT_TURNS_AHEAD;
	*ret = x;
	return 0;
}

/* The tokens of context and continuation together, behind the context's head. */
static int encode_rest(struct local *l, const struct context *x, const struct dt_question *q, int32_t **ret,
		       size_t *ret_n, struct dt_err *err)
{
	const size_t n = strlen(q->context) - x->head, more = strlen(q->continuation);
	char *text = malloc(n + more + 1);
	int rc;

	if (!text)
		return -ENOMEM;
	memcpy(text, q->context + x->head, n);
	memcpy(text + n, q->continuation, more + 1);
	rc = x->head ? dt_tokenizer_encode(l->served.tok, text, n + more, true, ret, ret_n, err)
		     : dt_api_encode(l->served.tok, text, n + more, false, ret, ret_n, err);
	free(text);
	return rc;
}

/*
 * Tokenizes like lm-evaluation-harness: the tokens of the context alone, then those of context and
 * continuation together after as many. White space at the end of the context belongs to the continuation. If
 * a token spans the boundary, the result differs from the tokens of the whole text.
 */
static int encode_pair(struct local *l, const struct dt_question *q, json_t **ret, struct asked *a,
		       struct dt_err *err)
{
	const int32_t prefix = dt_tokenizer_prefix(l->served.tok);
	const struct context *x = &(struct context){0};
	size_t nwhole = 0, before, cut = 0;
	int32_t *rest = NULL;
	json_t *list = json_array();
	int rc = list ? encode_once(l, q->context, &x, err) : -ENOMEM;

	if (rc == 0)
		rc = encode_rest(l, x, q, &rest, &nwhole, err);
	nwhole += x->nhead;
	before = x->n == 0 && prefix >= 0;
	if (rc == 0 && before)
		rc = append_ids(list, &prefix, 1);
	if (rc == 0 && nwhole > x->n)
		cut = beyond(context_of(l) + 1, x->n, nwhole - x->n); /* the last token is not read */
	if (rc == 0)
		rc = append_ids(list, x->ids + cut, x->n - cut);
	if (rc == 0 && nwhole <= x->n)
		rc = dt_err_set(err, -EINVAL, "the continuation '%.40s' adds no token to its context",
				q->continuation);
	if (rc == 0)
		rc = append_ids(list, rest + (x->n - x->nhead), nwhole - x->n);
	if (rc == -ENOMEM)
		dt_err_sys(err, -ENOMEM, "cannot query the model for '%s'",
			   l->served.tok ? q->continuation : "");
	*ret = list;
	a->context = (int)(before + x->n - cut);
	a->cut = cut > 0;
	free(rest);
	return rc;
}

/* The last tokens of the context that leave room for max_tokens. */
static int encode_context(struct local *l, const struct dt_question *q, json_t **ret, struct asked *a,
			  struct dt_err *err)
{
	json_t *list = json_array();
	int32_t *ids = NULL;
	size_t n = 0, cut;
	int rc = dt_api_encode(l->served.tok, q->context, strlen(q->context), false, &ids, &n, err);

	if (rc == 0) {
		cut = beyond(context_of(l), n, (size_t)q->max_tokens);
		rc = append_ids(list, ids + cut, n - cut);
		a->cut = cut > 0;
	}
	if (rc == -ENOMEM)
		dt_err_sys(err, -ENOMEM, "cannot query the model for '%.40s'", q->context);
	*ret = list;
	free(ids);
	return rc;
}

static json_t *stop_list(const struct dt_question *q)
{
	json_t *list = json_array();

	for (int i = 0; i < q->nstop; i++)
		json_array_append_new(list, json_string(q->stop[i]));
	return list;
}

/* The row whose logits score the first token of the continuation. */
static int first_row(const struct asked *a)
{
	return a->context > 0 ? a->context - 1 : 0;
}

static int submit(struct local *l, const struct dt_question *q, struct asked *a, struct dt_err *err)
{
	struct dt_api_error e;
	json_t *body = NULL, *ids = NULL;
	int rc = 0;

	if (q->continuation) {
		rc = encode_pair(l, q, &ids, a, err);
		body = json_pack("{s:o, s:b, s:i, s:i, s:i}", "prompt", ids, "echo", true, "logprobs", 1,
				 "max_tokens", 0, "temperature", 0);
	} else {
		rc = encode_context(l, q, &ids, a, err);
		body = json_pack("{s:o, s:i, s:i}", "prompt", ids, "max_tokens", q->max_tokens, "temperature",
				 0);
		if (body && q->nstop)
			json_object_set_new(body, "stop", stop_list(q));
	}
	if (rc == 0 && dt_completion_parse(body, &l->api, &a->c, &e) < 0)
		rc = dt_err_set(err, -EINVAL, "%s", e.msg);
	json_decref(body);
	if (rc < 0)
		return rc;
	a->c.call->ask.score_from = first_row(a);
	return dt_engine_submit(l->served.engine, a->c.call, err);
}

static int take(const struct dt_question *q, const struct asked *a, struct dt_question *ret,
		struct dt_err *err)
{
	const struct dt_serve_req *r = &a->c.call->req[0];
	const struct dt_scores *s = &r->prompt_scores;
	struct dt_api_error e;

	ret->cut = a->cut;
	dt_call_wait_done(a->c.call);
	if (dt_completion_failed(r, &e))
		return dt_err_set(err, -EIO, "%s", e.msg);
	if (!q->continuation) {
		ret->text = dt_json_text(r->detok.text, r->detok.n);
		return ret->text ? 0 : dt_err_sys(err, -ENOMEM, "cannot keep an answer");
	}
	ret->logprob = 0;
	ret->greedy = true;
	ret->tokens = r->nprompt - a->context;
	for (int i = 0; i < s->n; i++) {
		ret->logprob += (double)s->chosen[i].logprob;
		ret->greedy &= s->chosen[i].logprob >= s->top[(size_t)i * (size_t)s->ntop].logprob;
	}
	return 0;
}

static int ask(struct dt_asker *asker, struct dt_question *q, int64_t n, struct dt_err *err)
{
	struct local *l = (struct local *)asker;
	struct asked *a = calloc(SEQS + QUEUE, sizeof(*a));
	int64_t *turn = dt_question_turns(q, n);
	int64_t sent = 0, got = 0;
	int rc = a && turn ? 0 : dt_err_sys(err, -ENOMEM, "cannot query the model");

	while (rc == 0 && got < n) {
		while (rc == 0 && sent < n && sent - got < SEQS + QUEUE) {
			struct asked *slot = &a[sent % (SEQS + QUEUE)];
			struct dt_question *now = &q[turn[sent]];

			*slot = (struct asked){0};
			rc = dt_question_error(now, submit(l, now, slot, err), err);
			sent++;
		}
		if (rc == 0) {
			struct asked *slot = &a[got % (SEQS + QUEUE)];
			struct dt_question *now = &q[turn[got]];

			rc = dt_question_error(now, take(now, slot, now, err), err);
			dt_completion_release(&slot->c);
			got++;
		}
	}
	for (; got < sent; got++) { /* after a failure */
		struct dt_call *c = a[got % (SEQS + QUEUE)].c.call;

		if (c)
			dt_engine_cancel(l->served.engine, c);
		dt_completion_release(&a[got % (SEQS + QUEUE)].c);
	}
	for (int i = 0; i < DT_TURNS_AHEAD; i++) /* their texts are the caller's */
		forget(&l->seen[i]);
	free(turn);
	free(a);
	return rc;
}

static void local_close(struct dt_asker *asker)
{
	struct local *l = (struct local *)asker;

	dt_served_close(&l->served);
	free(l);
}

int dt_asker_local(const char *path, const struct dt_eval_opts *o, struct dt_asker **ret, struct dt_err *err)
{
	struct dt_served_params p = dt_served_in_process(path, o->tokenizer, o->threads, o->seq, o->fp32);
	struct local *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	p.device = o->device ? o->device : p.device;
	p.local_rank = o->local_rank;
	p.invariant = true; /* scores must not depend on other questions in the batch, also on a GPU */
	p.weights_disk = o->weights_disk;
	p.weights_memory = o->weights_memory;
	p.seqs = SEQS;
	p.queue = QUEUE;
	p.weights = o->weights;
	p.merged = o->lora;
	p.any_base = o->any_base;
	l->asker = (struct dt_asker){ask, local_close};
	rc = dt_served_open(&l->served, &p, err);
	if (rc < 0) {
		local_close(&l->asker);
		return rc;
	}
	l->api = (struct dt_api_model){
		.engine = dt_engine_params(l->served.engine), .name = path, .batch = true};
	*ret = &l->asker;
	return 0;
}

void dt_asker_close(struct dt_asker *a)
{
	if (a)
		a->close(a);
}

int dt_asker_ask(struct dt_asker *a, struct dt_question *q, int64_t n, struct dt_err *err)
{
	return a->ask(a, q, n, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
