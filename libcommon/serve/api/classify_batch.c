/*
 * Classification of images from a pipe. The caller's thread reads lines and decodes them into entries of a
 * ring; the queue computes them; a writer's thread writes the oldest one when it is done.
 */
#include "base/tmpfile.h"
#include "base/units.h"
#include "serve/api/classify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE (64 << 20)
#define MAX_FILE (256 << 20)

struct line {
	int64_t index;
	json_t *id;
	char *path;
	struct dt_classification r;
	struct dt_api_error e;
	bool submitted, done; /* done: guarded by ring.mu */
	struct ring *ring;
};

struct ring {
	struct dt_classify *c;
	const struct dt_classify_batch *p;
	struct line *line; /* [window] */
	pthread_mutex_t mu;
	pthread_cond_t cond;
	int64_t read, written; /* lines */
	bool eof;
	int write_rc;
	struct dt_err write_err;
	int64_t failed;
};

/* ---- the writer's thread ---- */

static json_t *result(struct ring *g, struct line *l)
{
	json_t *v = json_pack("{s:i, s:I}", "schema", 1, "index", (json_int_t)l->index), *e;

	if (l->id)
		json_object_set(v, "id", l->id);
	if (l->path) { /* a path that is not valid UTF-8 is left out */
		json_t *path = json_string(l->path);

		if (path)
			json_object_set_new(v, "path", path);
	}
	if (l->submitted && l->r.job.status < 0) {
		struct dt_err err = {0};

		dt_classify_failure(g->c, &err);
		dt_api_fail(&l->e, 500, "server_error", NULL, "%s", err.msg[0] ? err.msg : "no answer");
	}
	if (!l->e.status) {
		json_object_set_new(v, "predictions", dt_classification_top(&l->r, g->c, 0));
		return v;
	}
	e = dt_api_error_json(&l->e);
	json_object_update(v, e);
	json_decref(e);
	return v;
}

static void release(struct line *l)
{
	json_decref(l->id);
	free(l->path);
	dt_classification_release(&l->r);
	*l = (struct line){.ring = l->ring};
}

static void *writer_main(void *arg)
{
	struct ring *g = arg;
	int rc = 0;

	pthread_mutex_lock(&g->mu);
	for (;;) {
		struct line *l = &g->line[g->written % g->p->window];
		json_t *v;

		while (g->written == g->read ? !g->eof : !l->done)
			pthread_cond_wait(&g->cond, &g->mu);
		if (g->written == g->read)
			break;
		pthread_mutex_unlock(&g->mu);
		v = result(g, l);
		if (rc == 0 && (rc = v ? dt_json_write_line(g->p->out, v, &g->write_err) : -ENOMEM) > 0)
			rc = 0;
		json_decref(v);
		if (l->e.status && g->failed++ == 0 && g->p->log)
			dt_log_msg(g->p->log, "line %lld: %s", (long long)l->index + 1, l->e.msg);
		release(l);
		pthread_mutex_lock(&g->mu);
		g->write_rc = rc;
		g->written++;
		pthread_cond_broadcast(&g->cond);
	}
	pthread_mutex_unlock(&g->mu);
	return NULL;
}

/*
 * Called by a thread of the queue, or by the reader for a line without a valid image: the line has its
 * answer.
 */
static void on_done(void *arg)
{
	struct line *l = arg;
	struct ring *g = l->ring;

	pthread_mutex_lock(&g->mu);
	l->done = true;
	pthread_cond_broadcast(&g->cond);
	pthread_mutex_unlock(&g->mu);
}

/* ---- the reader ---- */

static int bad(struct line *l, const char *why)
{
	return dt_api_fail(&l->e, 400, "invalid_request_error", NULL, "%s", why);
}

static int take_file(struct ring *g, struct line *l, int top)
{
	struct dt_err err = {0};
	char *bytes = NULL;
	size_t n;
	int rc = dt_read_file(l->path, MAX_FILE, &bytes, &n, &err);

	if (rc < 0) {
		dt_classify_refused(g->c);
		return dt_api_fail(&l->e, 400, "invalid_request_error", "bad_image", "%s", err.msg);
	}
	rc = dt_classification_raw(&l->r, g->c, bytes, n, top, &l->e);
	free(bytes);
	if (rc < 0) { /* prefix the error with the path */
		char why[sizeof(l->e.msg)];

		snprintf(why, sizeof(why), "%s", l->e.msg);
		snprintf(l->e.msg, sizeof(l->e.msg), "'%.200s': %.350s", l->path,
			 strstr(why, ": ") ? strstr(why, ": ") + 2 : why);
	}
	return rc;
}

static int take_object(struct ring *g, struct line *l, json_t *v)
{
	const json_t *path = json_object_get(v, "path"), *top_k = json_object_get(v, "top_k");
	int top;

	if (!json_is_object(v))
		return bad(l, "the line is not an object");
	l->id = json_incref(json_object_get(v, "id"));
	json_object_del(v, "id");
	if (!path)
		return dt_classification_parse(&l->r, g->c, v, &l->e);
	if (!json_is_string(path) || json_object_size(v) > (top_k ? 2u : 1u))
		return bad(l, "'path' must be a file name; only 'id' and 'top_k' may accompany it");
	if (dt_classification_read_top(top_k, &top, &l->e) < 0)
		return -EINVAL;
	l->path = strdup(json_string_value(path));
	return l->path ? take_file(g, l, top) : bad(l, "out of memory");
}

/* Decodes the image of a line; fills e if there is none. */
static int take(struct ring *g, struct line *l, const char *s, size_t n)
{
	json_error_t je;
	json_t *v;
	int rc;

	if (*s != '{') {
		l->path = strndup(s, n);
		return l->path ? take_file(g, l, DT_CLASSIFY_TOP) : bad(l, "out of memory");
	}
	v = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!v)
		return dt_api_fail(&l->e, 400, "invalid_request_error", NULL,
				   "the line is not JSON: column %d: %s", je.column, je.text);
	rc = take_object(g, l, v);
	json_decref(v);
	if (rc == 0 && l->r.job.n != 1)
		return bad(l, "a line must have exactly one 'image'");
	return rc;
}

static void start(struct ring *g, struct line *l, const char *s, size_t n)
{
	struct dt_err err = {0};
	int rc = take(g, l, s, n);

	if (rc == 0) {
		l->r.job.done = on_done;
		l->r.job.arg = l;
		l->submitted = true;
		rc = dt_classify_submit(g->c, &l->r.job, &err);
		if (rc == 0)
			return;
		l->submitted = false;
		dt_api_fail_submit(&l->e, rc, &err, 0);
	}
	on_done(l);
}

/* Waits for the next entry of the ring; NULL once the writer has failed. */
static struct line *place(struct ring *g)
{
	struct line *l = NULL;

	pthread_mutex_lock(&g->mu);
	while (g->read - g->written == g->p->window && g->write_rc == 0)
		pthread_cond_wait(&g->cond, &g->mu);
	if (g->write_rc == 0) {
		l = &g->line[g->read % g->p->window];
		*l = (struct line){.index = g->read, .ring = g};
	}
	pthread_mutex_unlock(&g->mu);
	return l;
}

static int read_all(struct ring *g, struct dt_err *err)
{
	struct line *l;
	char *s = NULL;
	size_t cap = 0;
	ssize_t n = 0;
	int rc = 0;

	while (rc == 0 && (l = place(g)) && (n = getline(&s, &cap, g->p->in)) > 0) {
		while (n > 0 && strchr(" \t\r\n", s[n - 1]))
			s[--n] = '\0';
		if (n == 0)
			continue;
		if (n > MAX_LINE)
			rc = dt_err_set(err, -EFBIG, "line %lld has more than %d bytes",
					(long long)g->read + 1, MAX_LINE);
		if (rc < 0)
			break;
		pthread_mutex_lock(&g->mu);
		g->read++;
		pthread_mutex_unlock(&g->mu);
		start(g, l, s, (size_t)n);
	}
	if (rc == 0 && n < 0 && ferror(g->p->in))
		rc = dt_err_sys(err, -EIO, "cannot read the input");
	free(s);
	return rc;
}

int64_t dt_classify_batch_run(struct dt_classify *c, const struct dt_classify_batch *p, struct dt_err *err)
{
	struct ring g = {.c = c, .p = p};
	pthread_t writer;
	int64_t rc;

	g.line = calloc((size_t)p->window, sizeof(*g.line));
	pthread_mutex_init(&g.mu, NULL);
	pthread_cond_init(&g.cond, NULL);
	if (!g.line || pthread_create(&writer, NULL, writer_main, &g) != 0) {
		rc = dt_err_sys(err, -ENOMEM, "cannot start reading");
	} else {
		rc = read_all(&g, err);
		pthread_mutex_lock(&g.mu);
		g.eof = true;
		pthread_cond_broadcast(&g.cond);
		pthread_mutex_unlock(&g.mu);
		pthread_join(writer, NULL);
		if (rc == 0 && g.write_rc < 0) {
			rc = g.write_rc;
			*err = g.write_err;
		}
		rc = rc == 0 ? g.failed : rc;
	}
	pthread_cond_destroy(&g.cond);
	pthread_mutex_destroy(&g.mu);
	free(g.line);
	return rc;
}

int dt_classify_load(struct dt_classify **ret, const struct dt_classify_params *p, const struct dt_log *log,
		     struct dt_err *err)
{
	const int rc = dt_classify_open(ret, p, err);
	struct dt_classify_info i;
	char text[2][32];

	if (rc < 0)
		return rc;
	i = dt_classify_info(*ret);
	dt_log_msg(log, "loaded '%s' in %.1f s: %d classes, %s of weights, %s of workspace", p->model,
		   i.seconds, i.classes, dt_format_size(i.weight_bytes, text[0], sizeof(text[0])),
		   dt_format_size(i.work_bytes, text[1], sizeof(text[1])));
	return 0;
}

void dt_classify_tell(struct dt_classify *c, double seconds, const struct dt_log *log)
{
	struct dt_classify_stats s;
	char ranks[256] = "";

	if (dt_classify_stats(c, &s) < 0)
		return;
	for (int r = 0, at = 0; r < dt_classify_info(c).ranks && at < (int)sizeof(ranks) - 64; r++)
		at += snprintf(ranks + at, sizeof(ranks) - (size_t)at, "%s%lld", r ? ", " : "",
			       (long long)s.by_rank[2 * r]);
	dt_log_msg(log,
		   "%lld images in %.2f s: %.1f images/s, latency P50 %.1f ms, P99 %.1f ms; "
		   "images per rank %s; %lld could not be decoded",
		   (long long)s.images, seconds, (double)s.images / seconds, 1e3 * s.p50, 1e3 * s.p99, ranks,
		   (long long)s.refused);
	free(s.by_rank);
}
/* SPDX-License-Identifier: Apache-2.0 */
