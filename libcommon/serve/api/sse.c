/* A completion as server-sent events. */
#include "base/progress.h"
#include "serve/api/native.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>

int dt_sse_init(struct dt_sse *s, const struct dt_completion *c)
{
	*s = (struct dt_sse){.c = c};
	s->at = calloc((size_t)c->call->n, sizeof(*s->at));
	return s->at ? 0 : -ENOMEM;
}

void dt_sse_release(struct dt_sse *s)
{
	free(s->at);
	s->at = NULL;
}

#define MOST_SCORES 1024      /* log-probabilities of a choice in one event: bounds its memory */
#define MOST_BYTES  (1 << 20) /* of events, after which the other choices wait for the next call */

/* Number of the token up to which the next event of r goes, when those before `from` were sent. */
static int next_tokens(const struct dt_sse *s, const struct dt_serve_req *r, int from)
{
	const int all = s->c->native ? r->nout : r->scores.n;
	const int most = MOST_SCORES / (2 + (r->ask->logprobs > 0 ? r->ask->logprobs : 0));

	return all - from > most ? from + most : all;
}

static int emit(FILE *f, json_t *v)
{
	int rc;

	if (!v)
		return -ENOMEM;
	fputs("data: ", f);
	rc = json_dumpf(v, f, JSON_COMPACT);
	fputs("\n\n", f);
	json_decref(v);
	return rc < 0 ? -ENOMEM : 0;
}

static json_t *chunk(const struct dt_sse *s, int i, json_t *text, json_t *logprobs, const char *finish,
		     json_t *stop)
{
	const char *name = s->c->chat ? "delta" : "text";
	json_t *v;

	if (s->c->chat && !s->at[i].begun) {
		s->at[i].begun = true;
		text = json_pack("{s:s, s:o}", "role", "assistant", "content", text);
	} else if (s->c->chat) {
		text = json_string_length(text) ? json_pack("{s:o}", "content", text)
						: (json_decref(text), json_object());
	}
	v = dt_api_envelope(s->c, true,
			    json_pack("[{s:i, s:o, s:o, s:s?, s:o}]", "index", i, name, text, "logprobs",
				      logprobs, "finish_reason", finish, "stop_reason", stop));

	if (v && s->c->include_usage)
		json_object_set_new(v, "usage",
				    s->c->usage_each ? dt_completion_usage(s->c, true) : json_null());
	return v;
}

/* Sends the prompt as the first chunk, once its log-probabilities are there. */
static int begin(struct dt_sse *s, int i, FILE *f)
{
	const struct dt_completion *c = s->c;
	const struct dt_serve_req *r = &c->call->req[i];
	struct dt_sse_at *at = &s->at[i];
	json_t *lp;

	if (at->begun || !c->echo)
		return 0;
	at->begun = true;
	lp = dt_api_scores(c, r, true, 0, 0, &at->offset);
	return emit(f, chunk(s, i, json_stringn_nocheck(c->prompt[i / c->n].s, c->prompt[i / c->n].n), lp,
			     NULL, json_null()));
}

/* A chunk whose delta has a key other than content. */
static json_t *special(const struct dt_sse *s, int i, const char *key, json_t *value)
{
	json_t *v = chunk(s, i, json_string(""), json_null(), NULL, json_null());

	json_object_set_new(json_object_get(json_array_get(json_object_get(v, "choices"), 0), "delta"), key,
			    value);
	return v;
}

/*
 * The same for text that may contain tool calls: text, then each call in pieces, then the end. Call with the
 * call locked.
 */
static int tool_news(struct dt_sse *s, int i, json_t *logprobs, bool ended, FILE *f)
{
	const struct dt_serve_req *r = &s->c->call->req[i];
	struct dt_sse_at *at = &s->at[i];
	struct dt_tool_calls calls;
	size_t from;
	int rc = 0;

	dt_api_calls(s->c, i, &calls);
	if (calls.nthought > at->thought) {
		rc = emit(f, special(s, i, "reasoning_content",
				     dt_api_text(calls.thought + at->thought, calls.nthought - at->thought)));
		at->thought = calls.nthought;
	}
	from = at->sent > calls.from ? at->sent : calls.from;
	if (rc == 0 && (!at->begun || calls.content > from ||
			json_array_size(json_object_get(logprobs, "content")) > 0)) {
		size_t to = calls.content > from ? calls.content : from;

		rc = emit(f, chunk(s, i, dt_api_text(dt_detok_from(&r->detok, from), to - from), logprobs,
				   NULL, json_null()));
		at->sent = to > from ? to : at->sent;
	} else {
		json_decref(logprobs);
	}
	for (int k = at->calls > 0 ? at->calls - 1 : 0; k < calls.n && rc == 0; k++) {
		from = k == at->calls - 1 ? at->args : 0;

		if (calls.call[k].nargs == from)
			continue;
		rc = emit(f, special(s, i, "tool_calls",
				     json_pack("[o]", dt_api_call_json(s->c, i, k, &calls.call[k], from,
								       calls.call[k].nargs))));
		at->calls = k + 1;
		at->args = calls.call[k].nargs;
	}
	if (rc == 0 && ended) {
		at->done = true;
		rc = emit(f, chunk(s, i, json_string(""), json_null(), dt_api_finish(s->c, i, &calls),
				   dt_api_stop_reason(r)));
	}
	at->ready = r->detok.ready;
	return rc;
}

/* Upper bound of the memory of the next events of choice i, with `tokens` tokens. */
static size_t cost_of(const struct dt_sse *s, int i, int tokens)
{
	const struct dt_completion *c = s->c;
	const size_t cost = dt_completion_event_cost(c, &c->call->req[i], s->at[i].sent, tokens);

	if (c->responses)
		return cost + dt_responses_again(s);
	return cost + (c->echo && !s->at[i].begun ? 8 * c->prompt[i / c->n].n : 0);
}

/* Whether choice i failed, or the memory of an event with `tokens` tokens is refused; fills e. */
static bool failed(struct dt_sse *s, int i, int tokens, struct dt_api_error *e)
{
	const struct dt_serve_req *r = &s->c->call->req[i];

	if (dt_completion_failed(r, e))
		return true;
	if (!s->take || s->take(s->arg, cost_of(s, i, tokens)))
		return false;
	dt_api_fail(e, 503, "server_error", "server_busy",
		    "the memory for requests and answers (--http-mem) is used up");
	dt_call_cancel(s->c->call);
	for (int k = 0; k < s->c->call->n; k++)
		s->at[k].done = true;
	return true;
}

/* Writes the new part of choice i. Call with the call locked. */
static int news(struct dt_sse *s, int i, FILE *f)
{
	const struct dt_serve_req *r = &s->c->call->req[i];
	struct dt_sse_at *at = &s->at[i];
	const int from = s->c->native ? at->told : at->scored, to = next_tokens(s, r, from);
	const bool part = to < (s->c->native ? r->nout : r->scores.n);
	const bool ended = r->finish != DT_FINISH_NONE && !part;
	struct dt_api_error e;
	json_t *lp;
	int rc;

	if (at->done ||
	    (!ended && !part && r->detok.ready == (s->c->tools || s->c->thinks ? at->ready : at->sent)))
		return 0;
	if (failed(s, i, to - from, &e)) {
		at->done = s->failed = true;
		return emit(f, dt_api_error_json(&e));
	}
	if (s->c->native) {
		rc = emit(f, dt_native_event(s->c, r, at->sent, from, to));
		at->sent = r->detok.ready;
		at->told = to;
		at->done = ended;
		return rc;
	}
	rc = begin(s, i, f);
	if (rc < 0)
		return rc;
	lp = dt_api_scores(s->c, r, false, from, to, &at->offset);
	at->scored = to;
	if (s->c->tools || s->c->thinks)
		return tool_news(s, i, lp, ended, f);
	rc = emit(f, chunk(s, i, dt_api_text(dt_detok_from(&r->detok, at->sent), r->detok.ready - at->sent),
			   lp, ended ? dt_finish_name(r->finish) : NULL,
			   ended ? dt_api_stop_reason(r) : json_null()));
	at->sent = r->detok.ready;
	at->done = ended;
	return rc;
}

/* Writes the new part of a stream with named events, which has a single choice. */
static int events(struct dt_sse *s, FILE *f)
{
	const struct dt_serve_req *r = &s->c->call->req[0];
	struct dt_sse_at *at = &s->at[0];
	struct dt_api_error e;
	bool bad;

	if (at->done || (at->begun && r->finish == DT_FINISH_NONE && r->detok.ready == at->ready))
		return 0;
	bad = failed(s, 0, 0, &e);
	if (bad)
		at->done = s->failed = true;
	return s->c->messages ? dt_messages_news(s, bad ? &e : NULL, f)
			      : dt_responses_news(s, bad ? &e : NULL, f);
}

/* Whether events of a further choice fit in, without too much memory at a time. */
static bool has_room(const struct dt_sse *s, FILE *f)
{
	return ftell(f) == 0 || (s->c->call->ask.logprobs < 0 && ftell(f) < MOST_BYTES);
}

static int finale(struct dt_sse *s, FILE *f)
{
	json_t *v;

	s->ended = true;
	if (s->c->messages || s->c->responses || s->c->native) /* their last event tells the end */
		return 0;
	if (s->c->include_usage && !s->failed) {
		v = dt_api_envelope(s->c, true, json_array());
		if (!v || json_object_set_new(v, "usage", dt_completion_usage(s->c, true)) < 0)
			return -ENOMEM;
		if (emit(f, v) < 0)
			return -ENOMEM;
	}
	fputs("data: [DONE]\n\n", f);
	return 0;
}

int dt_sse_next(struct dt_sse *s, double seconds, char **ret, size_t *ret_n)
{
	struct dt_call *call = s->c->call;
	double end = dt_now() + seconds, left;
	char *buf = NULL;
	size_t n = 0;
	FILE *f;
	int rc = 0;

	if (s->ended)
		return 0;
	f = open_memstream(&buf, &n);
	if (!f)
		return -ENOMEM;
	pthread_mutex_lock(&call->mu);
	for (;;) {
		int open = 0, next = -1;

		for (int k = 0; k < call->n && rc == 0; k++) {
			const int i = (s->first + k) % call->n;

			if (has_room(s, f))
				rc = s->c->messages || s->c->responses ? events(s, f) : news(s, i, f);
			else if (next < 0)
				next = i;
			open += !s->at[i].done;
		}
		s->first = next < 0 ? 0 : next;
		if (rc == 0 && open == 0)
			rc = finale(s, f);
		left = end - dt_now();
		if (rc < 0 || ftell(f) > 0 || left <= 0)
			break;
		dt_call_wait_locked(call, left);
	}
	pthread_mutex_unlock(&call->mu);
	if (rc == 0 && ftell(f) == 0)
		fputs(": still here\n\n", f);
	if (fclose(f) == EOF)
		rc = -ENOMEM;
	if (rc < 0) {
		free(buf);
		return rc;
	}
	*ret = buf;
	*ret_n = n;
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
