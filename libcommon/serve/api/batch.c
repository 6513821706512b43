#include "serve/api/batch.h"

#include "base/log.h"
#include "base/progress.h"
#include "serve/api/batch_input.h"
#include "serve/api/responses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WAIT_MS 100 /* between attempts of a patient batch to submit */

struct line { /* a line in flight */
	bool busy;
	int64_t index, number; /* index: from 0, without empty lines; number: from 1, with them */
	json_t *id;	       /* "id", or "custom_id" */
	bool openai;	       /* in OpenAI's batch format */
	enum { TEXT, CHAT, EMBEDDING } kind;
	struct dt_completion c; /* c.call is NULL when the line could not be parsed */
	struct dt_api_error e;
};

struct batch {
	struct dt_engine *engine;
	const struct dt_batch_params *p;
	struct line *line; /* [window] */
	pthread_mutex_t mu;
	pthread_cond_t cond; /* a line was read, written or is done */
	int64_t next, lines; /* index of the next line; lines read, including empty ones */
	int busy;
	int64_t submitted, notified; /* submitted calls, and those whose on_done has run */
	bool eof;
	int stop_fd; /* readable once the writer has failed */
	int write_rc;
	struct dt_err write_err;
	int64_t failed;
	json_t *done; /* keys of lines that an earlier run has answered */
	struct batch_input in;
};

/* ---- the writer's thread ---- */

static json_t *plain_result(struct line *l)
{
	const struct dt_serve_req *r = l->c.call ? &l->c.call->req[0] : NULL;
	json_t *v = json_pack("{s:i, s:I}", "schema", 1, "index", (json_int_t)l->index), *lp;

	if (l->id)
		json_object_set(v, "id", l->id);
	if (!r || dt_completion_failed(r, &l->e)) {
		json_t *e = dt_api_error_json(&l->e);

		json_object_update(v, e);
		json_decref(e);
		return v;
	}
	json_object_set_new(v, "text", dt_completion_text(&l->c, 0));
	json_object_set_new(v, "finish_reason", json_string(dt_finish_name(r->finish)));
	json_object_set_new(v, "usage", dt_completion_usage(&l->c, false));
	lp = dt_completion_logprobs(&l->c, 0);
	if (json_is_null(lp))
		json_decref(lp);
	else
		json_object_set_new(v, "logprobs", lp);
	dt_completion_ids(&l->c, 0, v);
	return v;
}

/* A line of the output file in OpenAI's batch format. */
static json_t *openai_result(struct batch *b, struct line *l)
{
	json_t *body = NULL;
	char id[48];

	if (l->c.call && l->c.responses)
		body = dt_responses_json(&l->c, &l->e);
	else if (l->c.call && l->kind == EMBEDDING)
		body = dt_embedding_json(&l->c, (size_t)dt_engine_params(b->engine)->model.hidden, &l->e);
	else if (l->c.call)
		body = dt_completion_json(&l->c, &l->e);
	snprintf(id, sizeof(id), "batch_req_%lld", (long long)l->index);
	return json_pack("{s:s, s:O?, s:{s:i, s:s, s:o}, s:n}", "id", id, "custom_id", l->id, "response",
			 "status_code", body ? 200 : l->e.status, "request_id", id, "body",
			 body ? body : dt_api_error_json(&l->e), "error");
}

static void line_release(struct line *l)
{
	json_decref(l->id);
	dt_completion_release(&l->c);
	*l = (struct line){0};
}

static bool line_done(struct line *l)
{
	bool done;

	if (!l->c.call)
		return true;
	pthread_mutex_lock(&l->c.call->mu);
	done = l->c.call->open == 0;
	pthread_mutex_unlock(&l->c.call->mu);
	return done;
}

/*
 * The next line to write: the oldest in flight if it is done or, if unordered, the oldest one that is done.
 * Call with the lock held.
 */
static struct line *choose(struct batch *b)
{
	struct line *best = NULL;

	for (int i = 0; i < b->p->window; i++) {
		struct line *l = &b->line[i];

		if (l->busy && (!best || l->index < best->index) && (!b->p->unordered || line_done(l)))
			best = l;
	}
	return best && (b->p->unordered || line_done(best)) ? best : NULL;
}

static int write_line(struct batch *b, struct line *l, bool *ret_failed)
{
	json_t *v = l->openai ? openai_result(b, l) : plain_result(l);
	int rc = v ? dt_json_write_line(b->p->out, v, &b->write_err) : -ENOMEM;

	*ret_failed = l->e.status != 0;
	if (rc >= 0 && b->p->answered)
		b->p->answered(b->p->arg, *ret_failed);
	if (*ret_failed && b->failed == 0)
		dt_log_msg(b->p->log, "line %lld: %s", (long long)l->number, l->e.msg);
	json_decref(v);
	return rc;
}

static void *writer_main(void *arg)
{
	struct batch *b = arg;
	int rc = 0;

	pthread_mutex_lock(&b->mu);
	while (rc >= 0) {
		struct line *l;
		bool failed;

		while (!(l = choose(b)) && !(b->eof && b->busy == 0))
			pthread_cond_wait(&b->cond, &b->mu);
		if (!l)
			break;
		pthread_mutex_unlock(&b->mu);
		rc = write_line(b, l, &failed);
		pthread_mutex_lock(&b->mu);
		line_release(l);
		b->busy--;
		b->failed += failed;
		if (rc < 0) {
			b->write_rc = rc;
			eventfd_write(b->stop_fd, 1);
		}
		pthread_cond_broadcast(&b->cond);
	}
	pthread_mutex_unlock(&b->mu);
	return NULL;
}

/* Called by the engine's thread when a call has finished. */
static void on_done(void *arg)
{
	struct batch *b = arg;

	pthread_mutex_lock(&b->mu);
	b->notified++;
	pthread_cond_broadcast(&b->cond);
	pthread_mutex_unlock(&b->mu);
}

/* ---- the reader ---- */

typedef int parse_fn(const json_t *, const struct dt_api_model *, struct dt_completion *,
		     struct dt_api_error *);

static const struct route {
	const char *url;
	parse_fn *parse;
	int kind;
} routes[] = {{"/v1/completions", dt_completion_parse, TEXT},
	      {"/v1/chat/completions", dt_chat_parse, CHAT},
	      {"/v1/responses", dt_responses_parse, CHAT},
	      {"/v1/embeddings", dt_embedding_parse, EMBEDDING}};

static const struct route *find_route(const char *url)
{
	for (size_t i = 0; url && i < sizeof(routes) / sizeof(*routes); i++)
		if (!strcmp(url, routes[i].url))
			return &routes[i];
	return NULL;
}

bool dt_batch_answers(const char *url)
{
	return find_route(url) != NULL;
}

/* The parser for a line in OpenAI's format; NULL with e filled. */
static parse_fn *route_of(struct line *l, const json_t *v)
{
	const char *url = json_string_value(json_object_get(v, "url"));
	const char *method = json_string_value(json_object_get(v, "method"));
	const struct route *r = !method || !strcmp(method, "POST") ? find_route(url) : NULL;

	if (r) {
		l->kind = r->kind;
		return r->parse;
	}
	dt_api_fail(&l->e, 404, "invalid_request_error", "not_found", "unknown route '%.100s %.200s'",
		    method ? method : "POST", url ? url : "");
	return NULL;
}

static bool stopped(const struct batch *b)
{
	return b->p->stop && b->p->stop(b->p->arg);
}

/*
 * As dt_engine_submit, but a patient batch waits while the queue is full or the quota is used up. The time
 * limit counts from the attempt that succeeds.
 */
static int submit(struct batch *b, struct dt_call *c, struct dt_err *err)
{
	for (;; usleep(WAIT_MS * 1000)) {
		int rc;

		c->deadline = b->p->request_timeout > 0 ? dt_now() + b->p->request_timeout : 0;
		rc = dt_engine_submit(b->engine, c, err);
		if ((rc != -EAGAIN && (rc != -EDQUOT || c->retry_after == 0)) || !b->p->patient || stopped(b))
			return rc;
	}
}

/* Submits the line; an error goes to l->e and becomes its result. */
static void start_line(struct batch *b, struct line *l, const json_t *v)
{
	struct dt_api_model m = {.engine = dt_engine_params(b->engine),
				 .name = b->p->model_name,
				 .chat = b->p->chat,
				 .tenant = b->p->tenant,
				 .batch = true,
				 .defaults = b->p->defaults,
				 .seed = (uint64_t)l->index};
	parse_fn *parse = l->openai ? route_of(l, v) : dt_line_parse;
	struct dt_err err;
	int rc;

	if (!parse || parse(l->openai ? json_object_get(v, "body") : v, &m, &l->c, &l->e) < 0)
		return;
	if (l->c.call->ask.priority == 0)
		l->c.call->ask.priority = b->p->priority;
	l->c.call->on_done = on_done;
	l->c.call->arg = b;
	rc = submit(b, l->c.call, &err);
	if (rc < 0) {
		dt_api_fail_submit(&l->e, rc, &err, l->c.call->retry_after);
		dt_completion_release(&l->c);
		return;
	}
	b->submitted++;
}

static void take_line(struct batch *b, struct line *l, const char *s, size_t n)
{
	json_error_t je;
	json_t *v = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je), *custom;

	custom = json_object_get(v, "custom_id");
	if (batch_done_has(b->done, custom ? custom : json_object_get(v, "id"), b->next)) {
		b->next++;
		json_decref(v);
		return;
	}
	/* The rest is 0; busy is the writer's too. */
	l->index = b->next;
	l->number = b->lines;
	l->openai = custom != NULL;
	l->id = json_incref(custom ? custom : json_object_get(v, "id"));
	if (v)
		start_line(b, l, v);
	else
		dt_api_fail(&l->e, 400, "invalid_request_error", NULL, "the line is not JSON: column %d: %s",
			    je.column, je.text);
	json_decref(v);
	pthread_mutex_lock(&b->mu);
	l->busy = true;
	b->busy++;
	b->next++;
	pthread_cond_broadcast(&b->cond);
	pthread_mutex_unlock(&b->mu);
}

/* Waits for a free entry; NULL when the writer has failed. */
static struct line *wait_for_place(struct batch *b)
{
	struct line *l = NULL;

	pthread_mutex_lock(&b->mu);
	while (b->busy == b->p->window && b->write_rc == 0)
		pthread_cond_wait(&b->cond, &b->mu);
	for (int i = 0; i < b->p->window && b->write_rc == 0 && !l; i++)
		if (!b->line[i].busy)
			l = &b->line[i];
	pthread_mutex_unlock(&b->mu);
	return l;
}

static int read_all(struct batch *b, struct dt_err *err)
{
	struct line *l;
	size_t n = 0;
	char *s;
	int rc;

	while ((l = wait_for_place(b)) && !stopped(b)) {
		rc = batch_input_next(&b->in, b->lines + 1, &s, &n, err);
		if (rc <= 0)
			return rc;
		b->lines++;
		if (n)
			take_line(b, l, s, n);
	}
	return 0;
}

int64_t dt_batch_run(struct dt_engine *e, const struct dt_batch_params *p, struct dt_err *err)
{
	struct batch b = {.engine = e, .p = p, .stop_fd = -1};
	pthread_t writer;
	const struct dt_api_model m = {
		.engine = dt_engine_params(e), .name = p->model_name, .defaults = p->defaults};
	int64_t rc = dt_api_try_defaults(&m, err);

	if (rc < 0)
		return rc;
	rc = -ENOMEM;
	b.line = calloc((size_t)p->window, sizeof(*b.line));
	b.stop_fd = eventfd(0, EFD_CLOEXEC);
	b.in = (struct batch_input){.fd = p->fd, .stop_fd = b.stop_fd};
	pthread_mutex_init(&b.mu, NULL);
	pthread_cond_init(&b.cond, NULL);
	if (p->skip_done) {
		rc = batch_done_read(p, &b.done, err);
		if (rc < 0)
			goto out;
	}
	if (!b.line || b.stop_fd < 0 || pthread_create(&writer, NULL, writer_main, &b) != 0) {
		rc = dt_err_sys(err, -ENOMEM, "cannot start reading");
		goto out;
	}
	rc = read_all(&b, err);
	pthread_mutex_lock(&b.mu);
	b.eof = true;
	pthread_cond_broadcast(&b.cond);
	pthread_mutex_unlock(&b.mu);
	pthread_join(writer, NULL);
	if (b.write_rc < 0) {
		rc = b.write_rc;
		if (err)
			*err = b.write_err;
	}
	/* After a failed write: nobody reads what is still in flight. */
	for (int i = 0; i < p->window; i++) {
		struct line *l = &b.line[i];

		if (l->busy && l->c.call)
			dt_engine_cancel(e, l->c.call);
	}
	pthread_mutex_lock(&b.mu);
	while (b.notified < b.submitted) /* the engine still has calls that will use b */
		pthread_cond_wait(&b.cond, &b.mu);
	pthread_mutex_unlock(&b.mu);
	for (int i = 0; i < p->window; i++)
		line_release(&b.line[i]);
	if (rc == 0)
		rc = b.failed;
out:
	json_decref(b.done);
	pthread_cond_destroy(&b.cond);
	pthread_mutex_destroy(&b.mu);
	if (b.stop_fd >= 0)
		close(b.stop_fd);
	free(b.line);
	free(b.in.buf);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
