/* The event loop of a run: one thread, one curl multi handle. */
#include "bench/load/run.h"
#include "base/listen.h"
#include "base/progress.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void launch(struct load_run *r, struct load_call *c, double due)
{
	double cut = r->l->item[c->item].cut_s, now = load_now(r);
	struct dt_load_result *res = &r->ret[c->item];

	*res = (struct dt_load_result){.due = due, .sent = now, .first = -1, .end = -1};
	c->cut_at = cut >= 0 ? now + cut : -1;
	c->place = r->ncall;
	r->call[r->ncall++] = c;
	if (curl_multi_add_handle(r->m, c->c) != CURLM_OK)
		r->nomem = true;
}

static void note_error(struct load_run *r, int status, const char *what)
{
	struct dt_load_errors *e = r->errors;
	int most = (int)(sizeof(e->kind) / sizeof(e->kind[0])), i = 0;

	while (i < e->n && (e->kind[i].status != status || (!status && strcmp(e->kind[i].what, what))))
		i++;
	if (i == e->n && e->n < most) {
		e->kind[e->n].status = status;
		snprintf(e->kind[e->n++].what, sizeof(e->kind[0].what), "%s", what);
	}
	if (i < most)
		e->kind[i].n++;
}

/* Why a call has failed. */
static const char *why(const struct load_call *c, CURLcode cc)
{
	if (c->in.failed)
		return c->in.what;
	if (c->no_socket == EMFILE || c->no_socket == ENFILE) /* the own limit is not the server's fault */
		return "dt-loadgen has too many open files, see ulimit -n";
	if (cc == CURLE_PARTIAL_FILE)
		return "the server closed the connection within an answer";
	if (cc == CURLE_UNSUPPORTED_PROTOCOL)
		return "the answer is not HTTP";
	return curl_easy_strerror(cc);
}

/* Sets the outcome of a finished call. */
static void judge(struct load_run *r, struct load_call *c, CURLcode cc)
{
	struct dt_load_result *res = &r->ret[c->item];
	char what[200];
	long status = 0;

	curl_easy_getinfo(c->c, CURLINFO_RESPONSE_CODE, &status);
	if (r->t->prompt == DT_LOAD_IMAGES && cc == CURLE_OK && status == 200)
		dt_load_end_classes(&c->in);
	res->status = (int)status;
	res->end = load_now(r);
	if (c->cut) {
		res->outcome = DT_LOAD_CUT;
	} else if (cc == CURLE_OPERATION_TIMEDOUT) {
		res->outcome = DT_LOAD_TIMEOUT;
		note_error(r, 0, "timeout");
	} else if (cc != CURLE_OK) {
		res->outcome = DT_LOAD_BROKEN;
		note_error(r, 0, why(c, cc));
	} else if (status != 200) {
		res->outcome = DT_LOAD_REFUSED;
		dt_load_refusal_text(c->c, c->other.s, what, sizeof(what));
		note_error(r, res->status, what);
	} else if (c->in.failed || !c->in.done) {
		res->outcome = DT_LOAD_BROKEN;
		note_error(r, 0,
			   c->in.failed	 ? c->in.what
			   : c->in.begun ? "the stream ended without [DONE]"
					 : "the answer is not a stream of events");
	} else {
		res->outcome = DT_LOAD_OK;
		res->uncounted = r->t->prompt != DT_LOAD_IMAGES && !c->in.counted;
	}
}

static void put_later(struct load_run *r, double at, int item, json_t *history)
{
	r->later[r->nlater++] = (struct load_later){at, item, history};
}

/* Ends a call: stores its result and schedules its successor. */
static void end_call(struct load_run *r, struct load_call *c, CURLcode cc)
{
	const struct dt_load *l = r->l;
	bool more = c->item + 1 < l->n && l->item[c->item + 1].turn > l->item[c->item].turn;
	double next;

	judge(r, c, cc);
	next = r->ret[c->item].end + r->p->think;
	curl_multi_remove_handle(r->m, c->c);
	r->call[c->place] = r->call[--r->ncall];
	r->call[c->place]->place = c->place;
	r->done++;
	if (more && r->ret[c->item].outcome == DT_LOAD_OK) {
		json_t *said = c->said;

		c->said = NULL;
		if (said)
			said = dt_load_reply(r->t, said, c->in.reply.s ? c->in.reply.s : "");
		r->nomem |= !said && r->t->prompt != DT_LOAD_TOKENS;
		put_later(r, next, c->item + 1, said);
	} else {
		for (int i = c->item + 1; i < l->n && l->item[i].turn > 0; i++)
			r->done++; /* turns of this conversation that will not be sent */
		if (r->p->users > 0)
			put_later(r, next, -1, NULL);
	}
	load_call_free(c);
}

static void cut(struct load_run *r, struct load_call *c)
{
	c->cut = true;
	end_call(r, c, CURLE_OK);
}

/* ---- time ---- */

static int skip_talk(const struct dt_load *l, int i)
{
	for (i++; i < l->n && l->item[i].turn > 0; i++)
		continue;
	return i;
}

/* Prepares the call of the next conversation ahead of time. */
static bool get_ready(struct load_run *r)
{
	if (!r->ready && r->next < r->l->n)
		r->ready = load_call_make(r, r->next, NULL);
	return r->ready != NULL;
}

static void launch_ready(struct load_run *r, double due)
{
	struct load_call *c = r->ready;

	r->ready = NULL;
	r->next = skip_talk(r->l, r->next);
	launch(r, c, due);
}

/* Starts all calls that are due; returns when the next one is, or INFINITY. */
static double start_due(struct load_run *r)
{
	double soonest = INFINITY;

	for (int i = 0; i < r->nlater;) {
		struct load_later w = r->later[i];
		struct load_call *c = NULL;

		if (w.at > load_now(r)) {
			soonest = fmin(soonest, w.at);
			i++;
			continue;
		}
		r->later[i] = r->later[--r->nlater];
		if (w.item < 0) {
			if (get_ready(r))
				launch_ready(r, w.at);
			continue;
		}
		c = load_call_make(r, w.item, w.history);
		json_decref(w.history);
		if (c)
			launch(r, c, w.at);
	}
	while (r->p->users == 0 && get_ready(r)) {
		double at = r->l->item[r->next].at_s;

		if (at > load_now(r))
			return fmin(soonest, at);
		launch_ready(r, at);
	}
	return soonest;
}

/* Cuts calls whose time has come; returns the time of the next cut. */
static double cut_due(struct load_run *r)
{
	double soonest = INFINITY, now = load_now(r), storm = r->p->storm;

	if (storm > 0 && now >= (double)(r->storms + 1) * storm) {
		struct dt_rng rng = dt_rng_make(r->t->seed, DT_RNG_TEST, (uint32_t)++r->storms);

		for (int i = 0; i < r->ncall; i++)
			if (dt_rng_uniform53(&rng, (uint64_t)r->call[i]->item) < r->p->storm_share)
				r->call[i]->cut_at = now;
	}
	for (int i = 0; i < r->ncall;) {
		struct load_call *c = r->call[i];

		if (c->cut_at >= 0 && c->cut_at <= now) {
			cut(r, c); /* another call takes its place */
			continue;
		}
		if (c->cut_at >= 0)
			soonest = fmin(soonest, c->cut_at);
		i++;
	}
	return storm > 0 ? fmin(soonest, (double)(r->storms + 1) * storm) : soonest;
}

static void take_ends(struct load_run *r)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(r->m, &left))) {
		char *c = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &c);
		end_call(r, (struct load_call *)(void *)c, msg->data.result);
	}
}

/* Waits for activity or until `at`; libcurl has a resolution of milliseconds. */
static void wait_until(struct load_run *r, double at)
{
	double left = at - load_now(r);
	int ms = left > 0.1 ? 100 : (int)(left * 1e3);

	if (left <= 0)
		return;
	if (ms == 0) {
		struct timespec t = {.tv_nsec = (long)(left * 1e9)};

		nanosleep(&t, NULL);
	} else {
		curl_multi_poll(r->m, NULL, 0, ms, NULL);
	}
}

static void loop(struct load_run *r)
{
	int running, done;

	while (r->done < r->l->n && !r->nomem && !(r->p->stop && *r->p->stop)) {
		double at = start_due(r);

		at = fmin(at, cut_due(r));
		if (curl_multi_perform(r->m, &running) != CURLM_OK)
			r->nomem = true;
		done = r->done;
		take_ends(r);
		if (r->p->progress)
			r->p->progress(r->p->arg, r->done);
		if (r->done == done) /* otherwise something may be due at once */
			wait_until(r, at);
	}
	while (r->ncall > 0) /* stopped */
		cut(r, r->call[0]);
}

int dt_load_run(const struct dt_load_target *t, const struct dt_load *load,
		const struct dt_load_run_params *p, struct dt_load_result *ret, struct dt_load_errors *errors,
		double *ret_s, struct dt_err *err)
{
	struct load_run r = {.t = t, .l = load, .p = p, .ret = ret, .errors = errors};
	int rc = 0;

	dt_raise_files(); /* one socket per call in flight */
	*errors = (struct dt_load_errors){0};
	r.m = curl_multi_init();
	r.call = calloc((size_t)load->n, sizeof(struct load_call *));
	r.later = calloc((size_t)load->n * 2 + (size_t)p->users, sizeof(*r.later));
	if (!r.m || !r.call || !r.later) {
		rc = dt_err_sys(err, -ENOMEM, "cannot start the run");
		goto out;
	}
	curl_multi_setopt(r.m, CURLMOPT_MAXCONNECTS, 16384L);
	get_ready(&r);
	r.t0 = dt_now();
	for (int i = 0; i < p->users; i++)
		put_later(&r, 0, -1, NULL);
	loop(&r);
	*ret_s = load_now(&r);
	if (r.nomem)
		rc = dt_err_sys(err, -ENOMEM, "the run ended early");
out:
	load_call_free(r.ready);
	for (int i = 0; i < r.nlater; i++)
		json_decref(r.later[i].history);
	free(r.later);
	free(r.call);
	curl_multi_cleanup(r.m);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
