/* Accounting: a JSON line for every request that reached a server or was refused, by tenant, for billing. */
#include "base/json.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "route/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAITING (64 << 10) /* bytes of lines that are kept until the next tick */

void dt_route_books_open(struct dt_router *r)
{
	struct dt_err err;

	dt_route_books_flush(r);
	if (r->books)
		fclose(r->books);
	r->books = NULL;
	r->books_torn = false;
	if (r->conf.books && dt_out_stream(r->conf.books, true, &r->books, &err) < 0) {
		dt_log_err(r->p.log, &err);
		r->books_failed = true;
	} else {
		r->books_failed = false;
	}
}

/*
 * Overwrites the n bytes that were appended last with spaces, in place: a reader of JSON Lines skips them,
 * the lines that other processes append stay, and a full disk has room for it. False if the file cannot be
 * overwritten.
 */
static bool blank(int fd, size_t n)
{
	off_t at = lseek(fd, 0, SEEK_CUR) - (off_t)n;
	int flags = fcntl(fd, F_GETFL);
	bool done = at >= 0 && flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_APPEND) == 0;

	for (; done && n > 0; n--)
		done = pwrite(fd, " ", 1, at++) == 1;
	if (flags >= 0)
		fcntl(fd, F_SETFL, flags);
	return done;
}

/* Writes the waiting lines. A line of which only a part was written is blanked, and waits again. */
static int write_lines(struct dt_router *r, struct dt_route_buf *b)
{
	int fd = fileno(r->books);

	if (r->books_torn && write(fd, "\n", 1) != 1)
		return -errno;
	r->books_torn = false;
	while (dt_route_buf_size(b) > 0) {
		const char *s = dt_route_buf_data(b), *end;
		ssize_t n = write(fd, s, dt_route_buf_size(b));
		size_t whole;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		end = memrchr(s, '\n', (size_t)n);
		whole = end ? (size_t)(end - s) + 1 : 0;
		r->books_torn = whole < (size_t)n && !blank(fd, (size_t)n - whole);
		dt_route_buf_take(b, r->books_torn ? (size_t)n : whole);
	}
	return 0;
}

/*
 * Writes the lines that wait, in one call: other processes may append to the same file, such as the one that
 * takes over the socket. After an error, which is reported once, the lines are lost.
 */
void dt_route_books_flush(struct dt_router *r)
{
	struct dt_route_buf *b = &r->books_out;
	int rc;

	if (dt_route_buf_size(b) == 0)
		return;
	rc = r->books ? write_lines(r, b) : -EBADF;
	if (rc < 0 && !r->books_failed)
		dt_log_msg(r->p.log, "cannot write '%s': %s; requests are not recorded", r->conf.books,
			   r->books ? strerror(-rc) : "it is not open");
	else if (rc == 0 && r->books_failed)
		dt_log_msg(r->p.log, "requests are recorded in '%s' again", r->conf.books);
	r->books_failed = rc < 0;
	for (; dt_route_buf_size(b) > 0; dt_route_buf_take(b, 1))
		r->stats.books_errors += *dt_route_buf_data(b) == '\n';
}

static json_t *text_or_null(const char *s)
{
	json_t *v = s && *s ? json_string(s) : NULL;

	return v ? v : json_null();
}

static void write_line(struct dt_route_x *x, int status, double prompt, double cached, double answer,
		       bool guessed)
{
	struct dt_router *r = x->r;
	double now = dt_now();
	struct timespec t;
	struct tm tm;
	char at[40], *text;
	json_t *v;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &t);
	gmtime_r(&t.tv_sec, &tm);
	n = strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(at + n, sizeof(at) - n, ".%03ldZ", t.tv_nsec / 1000000);
	v = json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:i,s:I,s:I,s:I,s:b,s:b,s:i,s:f,s:o}", "time", at, "id",
		      x->id, "tenant", text_or_null(r->tenant[x->tenant].name), "model",
		      text_or_null(x->asked), "served_model", text_or_null(x->model), "server",
		      text_or_null(x->by ? x->by->conf.url : NULL), "status", status, "prompt_tokens",
		      (json_int_t)prompt, "cached_tokens", (json_int_t)cached, "completion_tokens",
		      (json_int_t)answer, "estimated", guessed, "shadow", x->client == NULL, "tries",
		      x->tries, "seconds", now - x->begun, "first_s",
		      x->first > 0 ? json_real(x->first - x->begun) : json_null());
	text = v ? json_dumps(v, JSON_COMPACT) : NULL;
	if (!text || dt_route_buf_add(&r->books_out, text, strlen(text)) < 0 ||
	    dt_route_buf_add(&r->books_out, "\n", 1) < 0)
		r->stats.books_errors++;
	free(text);
	json_decref(v);
	if (dt_route_buf_size(&r->books_out) > WAITING)
		dt_route_books_flush(r);
}

void dt_route_books_add(struct dt_route_x *x, int status)
{
	struct dt_router *r = x->r;
	struct dt_route_tenant *t = &r->tenant[x->tenant];
	double prompt = 0, cached = 0, answer = 0;
	bool reached = x->by != NULL, guessed;

	if (reached)
		dt_route_answer_usage(x, &prompt, &cached, &answer);
	guessed = reached && (prompt < 0 || answer < 0) &&
		  (status < 400 || status == 499 || (status == 502 && x->events > 0));
	if (prompt < 0) /* estimated: a token per four bytes of the prompt, a token per event */
		prompt = guessed ? floor(x->guess) : 0;
	if (answer < 0)
		answer = guessed ? (double)x->events : 0;
	cached = cached > 0 ? cached : 0;
	if (x->client) { /* not a shadow copy */
		if (status < 600)
			r->stats.status[status]++;
		r->stats.errors += status >= 500;
		dt_route_bars_add(&r->stats.total, dt_now() - x->begun);
		r->stats.prompt += prompt;
		r->stats.cached += cached;
		r->stats.answer += answer;
		t->n_prompt += (uint64_t)prompt;
		t->n_cached += (uint64_t)cached;
		t->n_answer += (uint64_t)answer;
		t->served += (prompt - cached + answer) / t->weight;
		if (t->tokens.rate > 0)
			dt_quota_give(&t->tokens, x->quota - prompt - answer, dt_now());
	}
	if (r->conf.books)
		write_line(x, status, prompt, cached, answer, guessed);
}
/* SPDX-License-Identifier: Apache-2.0 */
