#include "serve/batch.h"

#include "base/log.h"
#include "base/progress.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct line { /* one slot of the ring */
	json_t *id;
	struct dt_completion c; /* c.call is NULL when the line could not be read */
	struct dt_api_error e;
};

struct batch {
	struct dt_engine *engine;
	const struct dt_batch_params *p;
	struct line *ring; /* [window] */
	pthread_mutex_t mu;
	pthread_cond_t cond;
	int64_t head, tail; /* lines written, lines read */
	bool eof;
	int stop_fd; /* readable once the writer has failed */
	int write_rc;
	struct dt_err write_err;
	int64_t failed;

	char *buf; /* input */
	size_t n, cap, scanned;
	bool input_ended;
};

/* ---- the writer's thread ---- */

static json_t *result(struct line *l, int64_t index)
{
	const struct dt_req *r = l->c.call ? &l->c.call->req[0] : NULL;
	json_t *v = json_pack("{s:i, s:I}", "schema", 1, "index", (json_int_t)index), *lp;

	if (l->id)
		json_object_set(v, "id", l->id);
	if (!r || dt_completion_failed(r, &l->e)) {
		json_t *e = dt_api_error_json(&l->e);

		json_object_update(v, e);
		json_decref(e);
		return v;
	}
	json_object_set_new(v, "text", dt_completion_text(r));
	json_object_set_new(v, "finish_reason", json_string(dt_finish_name(r->finish)));
	json_object_set_new(v, "usage", dt_completion_usage(&l->c, false));
	lp = dt_completion_logprobs(&l->c, 0);
	if (json_is_null(lp))
		json_decref(lp);
	else
		json_object_set_new(v, "logprobs", lp);
	return v;
}

static void line_release(struct line *l)
{
	json_decref(l->id);
	dt_completion_release(&l->c);
	*l = (struct line){0};
}

static void *writer_main(void *arg)
{
	struct batch *b = arg;

	for (;;) {
		struct line *l;
		json_t *v;
		bool failed;
		int rc;

		pthread_mutex_lock(&b->mu);
		while (b->head == b->tail && !b->eof)
			pthread_cond_wait(&b->cond, &b->mu);
		if (b->head == b->tail) {
			pthread_mutex_unlock(&b->mu);
			return NULL;
		}
		l = &b->ring[b->head % b->p->window];
		pthread_mutex_unlock(&b->mu);

		if (l->c.call)
			dt_call_wait_done(l->c.call);
		v = result(l, b->head);
		failed = json_object_get(v, "error") != NULL;
		if (failed && b->failed == 0)
			dt_log_msg(b->p->log, "line %lld: %s", (long long)b->head + 1, l->e.msg);
		rc = v ? dt_json_write_line(b->p->out, v, &b->write_err) : -ENOMEM;
		json_decref(v);
		line_release(l);

		pthread_mutex_lock(&b->mu);
		b->head++;
		b->failed += failed;
		if (rc < 0) {
			b->write_rc = rc;
			eventfd_write(b->stop_fd, 1);
		}
		pthread_cond_broadcast(&b->cond);
		pthread_mutex_unlock(&b->mu);
		if (rc < 0)
			return NULL;
	}
}

/* ---- the reader ---- */

/* The next line without its newline, inside b->buf until the next call. 1, 0 at the end, or an error. */
static int next_line(struct batch *b, char **ret, size_t *ret_n, size_t *used, struct dt_err *err)
{
	if (*used > 0) {
		memmove(b->buf, b->buf + *used, b->n - *used);
		b->n -= *used;
		b->scanned = *used = 0;
	}
	for (;;) {
		struct pollfd fds[2] = {{.fd = b->p->fd, .events = POLLIN},
					{.fd = b->stop_fd, .events = POLLIN}};
		char *nl = b->n > b->scanned ? memchr(b->buf + b->scanned, '\n', b->n - b->scanned) : NULL;
		ssize_t got;

		if (nl || (b->input_ended && b->n > 0)) {
			*ret = b->buf;
			*ret_n = nl ? (size_t)(nl - b->buf) : b->n;
			*used = nl ? *ret_n + 1 : b->n;
			return 1;
		}
		if (b->input_ended)
			return 0;
		b->scanned = b->n;
		if (b->n > DT_BATCH_MAX_LINE)
			return dt_err_set(err, -EFBIG, "line %lld has more than %d bytes",
					  (long long)b->tail + 1, DT_BATCH_MAX_LINE);
		if (b->n == b->cap) {
			size_t cap = b->cap ? 2 * b->cap : 65536;
			char *p = realloc(b->buf, cap);

			if (!p)
				return dt_err_sys(err, -ENOMEM, "cannot read the input");
			b->buf = p;
			b->cap = cap;
		}
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return dt_err_sys(err, -errno, "cannot wait for input");
		if (fds[1].revents)
			return 0;
		got = read(b->p->fd, b->buf + b->n, b->cap - b->n);
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return dt_err_sys(err, -errno, "cannot read the input");
		b->input_ended = got == 0;
		b->n += got > 0 ? (size_t)got : 0;
	}
}

static bool blank(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
			return false;
	return true;
}

/* Parses and submits; what goes wrong is in l->e and becomes the line's result. */
static void start_line(struct batch *b, struct line *l, const char *s, size_t n)
{
	struct dt_api_model m = {
		.engine = dt_engine_params(b->engine), .line = true, .seed = (uint64_t)b->tail};
	struct dt_err err;
	json_error_t je;
	json_t *v = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	int rc;

	if (!v) {
		dt_api_fail(&l->e, 400, "invalid_request_error", NULL, "the line is not JSON: column %d: %s",
			    je.column, je.text);
		return;
	}
	l->id = json_incref(json_object_get(v, "id"));
	rc = dt_completion_parse(v, &m, &l->c, &l->e);
	json_decref(v);
	if (rc < 0)
		return;
	l->c.call->deadline = b->p->request_timeout > 0 ? dt_now() + b->p->request_timeout : 0;
	rc = dt_engine_submit(b->engine, l->c.call, &err);
	if (rc < 0) {
		dt_api_fail_submit(&l->e, rc, &err, l->c.call->retry_after);
		dt_completion_release(&l->c);
	}
}

static int read_all(struct batch *b, struct dt_err *err)
{
	size_t n = 0, used = 0;
	char *s = NULL;
	int rc = 0;

	for (;;) {
		bool stop;

		pthread_mutex_lock(&b->mu);
		while (b->tail - b->head == b->p->window && b->write_rc == 0)
			pthread_cond_wait(&b->cond, &b->mu);
		stop = b->write_rc < 0;
		pthread_mutex_unlock(&b->mu);
		if (stop)
			return 0;
		rc = next_line(b, &s, &n, &used, err);
		if (rc <= 0)
			return rc;
		if (blank(s, n))
			continue;
		start_line(b, &b->ring[b->tail % b->p->window], s, n);
		pthread_mutex_lock(&b->mu);
		b->tail++;
		pthread_cond_broadcast(&b->cond);
		pthread_mutex_unlock(&b->mu);
	}
}

int64_t dt_batch_run(struct dt_engine *e, const struct dt_batch_params *p, struct dt_err *err)
{
	struct batch b = {.engine = e, .p = p, .stop_fd = -1};
	pthread_t writer;
	int64_t rc = -ENOMEM;

	b.ring = calloc((size_t)p->window, sizeof(*b.ring));
	b.stop_fd = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&b.mu, NULL);
	pthread_cond_init(&b.cond, NULL);
	if (!b.ring || b.stop_fd < 0 || pthread_create(&writer, NULL, writer_main, &b) != 0) {
		dt_err_sys(err, -ENOMEM, "cannot start reading");
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
	/* After a failed write: what is still in flight has no reader. */
	for (; b.head < b.tail; b.head++) {
		struct line *l = &b.ring[b.head % p->window];

		if (l->c.call)
			dt_engine_cancel(e, l->c.call);
		line_release(l);
	}
	if (rc == 0)
		rc = b.failed;
out:
	pthread_cond_destroy(&b.cond);
	pthread_mutex_destroy(&b.mu);
	if (b.stop_fd >= 0)
		close(b.stop_fd);
	free(b.ring);
	free(b.buf);
	return rc;
}
