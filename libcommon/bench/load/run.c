/* The run itself: one thread, one multi handle. */
#include "base/progress.h"
#include "base/rng.h"
#include "bench/load/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { ERROR_BODY = 4096 };

struct call { /* a request from the moment its body is made */
	struct run *run;
	CURL *c;
	struct curl_slist *head;
	char *body;
	json_t *said;
	struct load_stream in;
	struct load_text other; /* a body that is no stream */
	double cut_at;		/* < 0: never */
	bool cut;
	int item, place; /* its place in run->call */
};

struct later { /* a turn, or a user's next conversation (item -1), that is due later */
	double at;
	int item;
	json_t *history;
};

struct run {
	const struct dt_load_target *t;
	const struct dt_load *l;
	const struct dt_load_run_params *p;
	struct dt_load_result *ret;
	struct dt_load_errors *errors;
	CURLM *m;
	struct call **call, *ready; /* [l->n] under way; the next one, made ahead of its time */
	int ncall, next;	    /* next: first item that has not been begun */
	struct later *later;	    /* [l->n + users] */
	int nlater, done;
	int64_t storms;
	double t0;
	bool nomem;
};

static double now_of(const struct run *r)
{
	return dt_now() - r->t0;
}

/* ---- one call ---- */

static void free_call(struct call *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->c);
	curl_slist_free_all(c->head);
	free(c->body);
	json_decref(c->said);
	free(c->in.line.s);
	free(c->in.reply.s);
	free(c->other.s);
	free(c);
}

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
	struct call *c = arg;
	struct dt_load_result *res = &c->run->ret[c->item];
	long status = 0;

	curl_easy_getinfo(c->c, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200) {
		if ((c->run->t->prompt == DT_LOAD_IMAGES ? dt_load_take_classes : dt_load_stream_push)(
			    &c->in, res, data, n, now_of(c->run)) == 0)
			return n;
		c->run->nomem = true;
		return 0;
	}
	if (c->other.n < ERROR_BODY && dt_load_text_add(&c->other, data, n) < 0)
		return 0;
	return n;
}

/* Where the call goes, and what with. False: no memory. */
static bool address(struct call *c, const struct dt_load_target *t, const json_t *history)
{
	static const char *const route[] = {"/v1/completions", "/v1/completions", "/v1/chat/completions",
					    "/v1/classify"};
	const struct dt_load_image *im = t->prompt == DT_LOAD_IMAGES ? &t->image[c->item % t->nimage] : NULL;
	char text[600];

	c->body = im ? NULL : dt_load_body(t, c->run->l, c->item, history, &c->said);
	c->in.keep = c->said != NULL;
	c->head = curl_slist_append(NULL, im ? "Content-Type: application/octet-stream"
					     : "Content-Type: application/json");
	if (!c->c || (!im && !c->body) || !c->head)
		return false;
	if (t->nkey > 0) {
		snprintf(text, sizeof(text), "Authorization: Bearer %s", t->key[c->item % t->nkey]);
		c->head = curl_slist_append(c->head, text);
	}
	snprintf(text, sizeof(text), "%s%s", t->url, route[t->prompt]);
	curl_easy_setopt(c->c, CURLOPT_URL, text);
	curl_easy_setopt(c->c, CURLOPT_POSTFIELDS, im ? im->data : c->body);
	curl_easy_setopt(c->c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(im ? im->n : strlen(c->body)));
	curl_easy_setopt(c->c, CURLOPT_HTTPHEADER, c->head);
	return true;
}

static struct call *make_call(struct run *r, int item, const json_t *history)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		goto fail;
	*c = (struct call){.run = r, .item = item, .cut_at = -1, .c = curl_easy_init()};
	if (!address(c, r->t, history))
		goto fail;
	curl_easy_setopt(c->c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c->c, CURLOPT_PROXY, "");
	curl_easy_setopt(c->c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->c, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(c->c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c->c, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->c, CURLOPT_PRIVATE, c);
	curl_easy_setopt(c->c, CURLOPT_TIMEOUT_MS, (long)(r->p->timeout * 1e3));
	return c;
fail:
	free_call(c);
	r->nomem = true;
	return NULL;
}

static void launch(struct run *r, struct call *c, double due)
{
	double cut = r->l->item[c->item].cut_s, now = now_of(r);
	struct dt_load_result *res = &r->ret[c->item];

	*res = (struct dt_load_result){.due = due, .sent = now, .first = -1, .end = -1};
	c->cut_at = cut >= 0 ? now + cut : -1;
	c->place = r->ncall;
	r->call[r->ncall++] = c;
	if (curl_multi_add_handle(r->m, c->c) != CURLM_OK)
		r->nomem = true;
}

static void note_error(struct run *r, int status, const char *what)
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

/* How it ended. */
static void judge(struct run *r, struct call *c, CURLcode cc)
{
	struct dt_load_result *res = &r->ret[c->item];
	char what[200];
	long status = 0;

	curl_easy_getinfo(c->c, CURLINFO_RESPONSE_CODE, &status);
	if (r->t->prompt == DT_LOAD_IMAGES && cc == CURLE_OK && status == 200)
		dt_load_end_classes(&c->in);
	res->status = (int)status;
	res->end = now_of(r);
	if (c->cut) {
		res->outcome = DT_LOAD_CUT;
	} else if (cc == CURLE_OPERATION_TIMEDOUT) {
		res->outcome = DT_LOAD_TIMEOUT;
		note_error(r, 0, "timeout");
	} else if (cc != CURLE_OK) {
		res->outcome = DT_LOAD_BROKEN;
		note_error(r, 0, curl_easy_strerror(cc));
	} else if (status != 200) {
		res->outcome = DT_LOAD_REFUSED;
		dt_load_error_text(c->other.s ? c->other.s : "", what, sizeof(what));
		note_error(r, res->status, what);
	} else if (c->in.failed || !c->in.done) {
		res->outcome = DT_LOAD_BROKEN;
		note_error(r, 0, c->in.failed ? c->in.what : "the stream ended without [DONE]");
	} else {
		res->outcome = DT_LOAD_OK;
	}
}

static void put_later(struct run *r, double at, int item, json_t *history)
{
	r->later[r->nlater++] = (struct later){at, item, history};
}

/* Ends a call: its result, and what follows from it. */
static void end_call(struct run *r, struct call *c, CURLcode cc)
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
			r->done++; /* turns that will not come */
		if (r->p->users > 0)
			put_later(r, next, -1, NULL);
	}
	free_call(c);
}

static void cut(struct run *r, struct call *c)
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

/* The call of the next conversation, made ahead. */
static bool get_ready(struct run *r)
{
	if (!r->ready && r->next < r->l->n)
		r->ready = make_call(r, r->next, NULL);
	return r->ready != NULL;
}

static void launch_ready(struct run *r, double due)
{
	struct call *c = r->ready;

	r->ready = NULL;
	r->next = skip_talk(r->l, r->next);
	launch(r, c, due);
}

/* Starts what is due and returns when something will be, or INFINITY. */
static double start_due(struct run *r)
{
	double soonest = INFINITY;

	for (int i = 0; i < r->nlater;) {
		struct later w = r->later[i];
		struct call *c = NULL;

		if (w.at > now_of(r)) {
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
		c = make_call(r, w.item, w.history);
		json_decref(w.history);
		if (c)
			launch(r, c, w.at);
	}
	while (r->p->users == 0 && get_ready(r)) {
		double at = r->l->item[r->next].at_s;

		if (at > now_of(r))
			return fmin(soonest, at);
		launch_ready(r, at);
	}
	return soonest;
}

/* Hangs up where it is time; returns when the next time is. */
static double cut_due(struct run *r)
{
	double soonest = INFINITY, now = now_of(r), storm = r->p->storm;

	if (storm > 0 && now >= (double)(r->storms + 1) * storm) {
		struct dt_rng rng = dt_rng_make(r->t->seed, DT_RNG_TEST, (uint32_t)++r->storms);

		for (int i = 0; i < r->ncall; i++)
			if (dt_rng_uniform53(&rng, (uint64_t)r->call[i]->item) < r->p->storm_share)
				r->call[i]->cut_at = now;
	}
	for (int i = 0; i < r->ncall;) {
		struct call *c = r->call[i];

		if (c->cut_at >= 0 && c->cut_at <= now) {
			cut(r, c); /* another takes its place */
			continue;
		}
		if (c->cut_at >= 0)
			soonest = fmin(soonest, c->cut_at);
		i++;
	}
	return storm > 0 ? fmin(soonest, (double)(r->storms + 1) * storm) : soonest;
}

static void take_ends(struct run *r)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(r->m, &left))) {
		char *c = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &c);
		end_call(r, (struct call *)(void *)c, msg->data.result);
	}
}

/* Until something comes or it is time; libcurl counts in milliseconds. */
static void wait_until(struct run *r, double at)
{
	double left = at - now_of(r);
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

static void loop(struct run *r)
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
		if (r->done == done) /* else something may be due at once */
			wait_until(r, at);
	}
	while (r->ncall > 0) /* stopped */
		cut(r, r->call[0]);
}

int dt_load_run(const struct dt_load_target *t, const struct dt_load *load,
		const struct dt_load_run_params *p, struct dt_load_result *ret, struct dt_load_errors *errors,
		double *ret_s, struct dt_err *err)
{
	struct run r = {.t = t, .l = load, .p = p, .ret = ret, .errors = errors};
	struct rlimit files;
	int rc = 0;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* a socket for each that is under way */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	*errors = (struct dt_load_errors){0};
	r.m = curl_multi_init();
	r.call = calloc((size_t)load->n, sizeof(struct call *));
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
	*ret_s = now_of(&r);
	if (r.nomem)
		rc = dt_err_sys(err, -ENOMEM, "the run ended early");
out:
	free_call(r.ready);
	for (int i = 0; i < r.nlater; i++)
		json_decref(r.later[i].history);
	free(r.later);
	free(r.call);
	curl_multi_cleanup(r.m);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
