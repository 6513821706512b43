#include "board/run.h"
#include "base/crc.h"
#include "board/words.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES ((size_t)16 << 20)
#define READ_BYTES     ((size_t)1 << 20)

/* ---- columns ---- */

/*
 * Finds a column. Keys usually come in the same order on every line, so the column after the previous is
 * tried first.
 */
static int find_column(struct dt_board_run *r, const char *key, size_t n, int after)
{
	if (after + 1 < r->ncol && !strncmp(r->col[after + 1].key, key, n) && !r->col[after + 1].key[n])
		return after + 1;
	for (int i = 0; i < r->ncol; i++)
		if (!strncmp(r->col[i].key, key, n) && !r->col[i].key[n])
			return i;
	return -1;
}

static int add_column(struct dt_board_run *r, const char *key, size_t n)
{
	struct dt_board_column *c = &r->col[r->ncol];

	if (r->ncol == DT_BOARD_COLUMNS || n >= sizeof(c->key))
		return -1;
	c->v = malloc((r->room ? r->room : 1) * sizeof(*c->v));
	if (!c->v)
		return -1;
	for (size_t i = 0; i <= r->rows && i < r->room; i++)
		c->v[i] = NAN;
	memcpy(c->key, key, n);
	c->key[n] = '\0';
	return r->ncol++;
}

static bool another_row(struct dt_board_run *r)
{
	size_t room = r->room * 2 + 1024;
	uint32_t *of = r->rows < r->room ? r->of : realloc(r->of, room * sizeof(*of));

	if (!of)
		return false;
	r->of = of;
	r->of[r->rows] = 0;
	for (int i = 0; i < r->ncol && r->rows == r->room; i++) {
		double *grown = realloc(r->col[i].v, room * sizeof(*grown));

		if (!grown)
			return false;
		r->col[i].v = grown;
	}
	if (r->rows == r->room)
		r->room = room;
	for (int i = 0; i < r->ncol; i++)
		r->col[i].v[r->rows] = NAN;
	return true;
}

/* ---- parsing a line: only the numbers at the top level of its object ---- */

struct seen {
	bool step, more; /* more: the line needs the full JSON parser */
};

static bool is(const char *key, size_t n, const char *name)
{
	return n == strlen(name) && !memcmp(key, name, n);
}

/* Reads the value at p of a key; returns its end, NULL if it is not JSON. */
static const char *take_value(struct dt_board_run *r, const char *key, size_t n, const char *p,
			      const char *end, int *column, struct seen *seen)
{
	double v;
	char *stop;
	int c;

	if (*p == '{' || *p == '[') {
		seen->more |= is(key, n, "details") || is(key, n, "categories") || is(key, n, "answer") ||
			      is(key, n, "run");
		return dt_board_skip_nested(p, end);
	}
	if (*p == '"') {
		const char *after = dt_board_skip_string(p, end);

		if (after && is(key, n, "run_id"))
			r->of[r->rows] = dt_crc32(0, p, (size_t)(after - p));
		seen->more |= is(key, n, "event") || (is(key, n, "run_id") && !r->run_id[0]);
		return after;
	}
	if (!strncmp(p, "null", 4)) {
		/* a run whose losses are all NaN has a column of them, unlike one without losses */
		if (is(key, n, "loss") && find_column(r, key, n, *column) < 0)
			add_column(r, key, n);
		return p + 4;
	}
	if (!strncmp(p, "true", 4) || !strncmp(p, "false", 5)) {
		v = *p == 't';
		stop = (char *)p + (*p == 't' ? 4 : 5);
	} else {
		v = dt_board_parse_number(p, &stop);
		if (stop == p || stop > end)
			return NULL;
		if (isinf(v)) /* beyond 1.8e308, or "Infinity" */
			v = NAN;
	}
	if (n >= sizeof(r->col->key) || memchr(key, '\0', n))
		return stop;
	if (is(key, n, "update")) { /* dt-rl counts its steps under this key */
		key = "step";
		n = strlen(key);
	}
	c = find_column(r, key, n, *column);
	if (c < 0)
		c = add_column(r, key, n);
	if (c >= 0) {
		r->col[c].v[r->rows] = v;
		*column = c;
	}
	seen->step |= is(key, n, "step");
	return stop;
}

/* Fills a row from a line; false: it is not a JSON object. */
static bool scan(struct dt_board_run *r, const char *p, const char *end, struct seen *seen)
{
	int column = -1;

	p = dt_board_skip_blank(p);
	if (*p++ != '{')
		return false;
	for (p = dt_board_skip_blank(p); p < end && *p != '}'; p = dt_board_skip_blank(p)) {
		const char *key = p + 1, *stop;

		if (*p != '"' || !(stop = dt_board_skip_string(p, end)))
			return false;
		p = dt_board_skip_blank(stop);
		if (*p++ != ':')
			return false;
		p = take_value(r, key, (size_t)(stop - 1 - key), dt_board_skip_blank(p), end, &column, seen);
		if (!p)
			return false;
		p = dt_board_skip_blank(p);
		if (*p == ',')
			p++;
		else if (*p != '}')
			return false;
	}
	return p < end;
}

/* Appends o to a list, which keeps only the newest `most`. */
static void keep(json_t **list, json_t *o, size_t most)
{
	if (!*list)
		*list = json_array();
	json_array_append(*list, o);
	if (json_array_size(*list) > most)
		json_array_remove(*list, 0);
}

static void take_more(struct dt_board_run *r, const char *line, size_t n)
{
	json_t *o = json_loadb(line, n, 0, NULL);
	const char *id = json_string_value(json_object_get(o, "run_id"));

	if (!json_is_object(o)) {
		json_decref(o);
		return;
	}
	if (id)
		snprintf(r->run_id, sizeof(r->run_id), "%s", id);
	if (!r->categories)
		r->categories = json_incref(json_object_get(o, "categories"));
	if (!r->over)
		r->over = json_incref(json_object_get(o, "memory_over_step"));
	if (json_object_get(o, "run")) {
		json_decref(r->run);
		r->run = json_incref(json_object_get(o, "run"));
	}
	if (json_object_get(o, "details"))
		keep(&r->details, o, DT_BOARD_DETAILS);
	if (json_is_object(json_object_get(o, "answer"))) {
		json_object_set(json_object_get(o, "answer"), "step", json_object_get(o, "step"));
		keep(&r->answers, json_object_get(o, "answer"), DT_BOARD_ANSWERS);
	}
	if (json_object_get(o, "event"))
		keep(&r->events, o, DT_BOARD_EVENTS);
	json_decref(o);
}

void dt_board_run_take(struct dt_board_run *r, const char *line, size_t n)
{
	struct seen seen = {0};

	if (*dt_board_skip_blank(line) == '\n')
		return;
	if (!another_row(r))
		return;
	if (!scan(r, line, line + n, &seen)) {
		r->bad++;
		return;
	}
	if (seen.more)
		take_more(r, line, n);
	r->rows += seen.step;
}

/* ---- the file ---- */

static void forget(struct dt_board_run *r)
{
	for (int i = 0; i < r->ncol; i++)
		free(r->col[i].v);
	free(r->of);
	r->of = NULL;
	json_decref(r->categories);
	json_decref(r->over);
	json_decref(r->run);
	json_decref(r->answers);
	json_decref(r->details);
	json_decref(r->events);
	r->categories = r->over = r->run = r->answers = r->details = r->events = NULL;
	r->ncol = 0;
	r->rows = r->room = r->bad = r->n = 0;
	r->run_id[0] = '\0';
	r->at = 0;
}

int dt_board_run_open(struct dt_board_run *r, const char *path, const char *name, struct dt_err *err)
{
	*r = (struct dt_board_run){.fd = open(path, O_RDONLY | O_CLOEXEC)};
	if (r->fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	r->path = strdup(path);
	r->name = strdup(name);
	if (r->path && r->name)
		return 0;
	dt_board_run_close(r);
	return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
}

/* Whether the file still has the data that was read from it. */
static bool same_as_before(const struct dt_board_run *r, off_t size)
{
	size_t n = r->at < (off_t)sizeof(r->last) ? (size_t)r->at : sizeof(r->last);
	char now[sizeof(r->last)];

	return size >= r->at && pread(r->fd, now, n, r->at - (off_t)n) == (ssize_t)n &&
	       !memcmp(now, r->last, n);
}

/* Parses the complete lines of buf and keeps the rest. */
static void take_lines(struct dt_board_run *r)
{
	char *p = r->buf, *end = r->buf + r->n, *nl;

	while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
		dt_board_run_take(r, p, (size_t)(nl - p) + 1);
		p = nl + 1;
	}
	r->n = (size_t)(end - p);
	memmove(r->buf, p, r->n);
	if (r->n > LINE_MAX_BYTES) { /* too long for a line of metrics */
		r->n = 0;
		r->bad++;
	}
}

static void remember(struct dt_board_run *r)
{
	size_t n = r->at < (off_t)sizeof(r->last) ? (size_t)r->at : sizeof(r->last);

	if (pread(r->fd, r->last, n, r->at - (off_t)n) != (ssize_t)n)
		memset(r->last, 0, sizeof(r->last));
}

/* Opens the file again if its name belongs to another one: it was rotated, or removed and written anew. */
static void follow_name(struct dt_board_run *r)
{
	struct stat named, open_one;
	int fd;

	if (stat(r->path, &named) < 0 || fstat(r->fd, &open_one) < 0 || !S_ISREG(named.st_mode) ||
	    (named.st_ino == open_one.st_ino && named.st_dev == open_one.st_dev))
		return;
	fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return;
	close(r->fd);
	r->fd = fd;
	forget(r);
	r->renewed = true;
}

int dt_board_run_read(struct dt_board_run *r, size_t *left, struct dt_err *err)
{
	struct stat st;
	bool more;
	ssize_t got;

	follow_name(r);
	more = r->renewed;
	r->renewed = false;
	if (fstat(r->fd, &st) < 0)
		return dt_err_sys(err, -errno, "cannot read '%s'", r->path);
	if (!same_as_before(r, st.st_size)) {
		forget(r);
		more = true;
	}
	r->changed = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
	if (r->at == st.st_size)
		return more;
	for (got = 0; !left || *left;) {
		if (r->cap < r->n + READ_BYTES + 1) {
			char *grown = realloc(r->buf, r->n + READ_BYTES + 1);

			if (!grown)
				return dt_err_sys(err, -ENOMEM, "cannot read '%s'", r->path);
			r->buf = grown;
			r->cap = r->n + READ_BYTES + 1;
		}
		got = pread(r->fd, r->buf + r->n, READ_BYTES, r->at);
		if (got <= 0)
			break;
		r->at += got;
		r->n += (size_t)got;
		r->buf[r->n] = '\0';
		take_lines(r);
		more = true;
		if (left)
			*left -= (size_t)got < *left ? (size_t)got : *left;
	}
	remember(r);
	return got < 0 ? dt_err_sys(err, -errno, "cannot read '%s'", r->path) : more;
}

const double *dt_board_run_column(const struct dt_board_run *r, const char *key)
{
	for (int i = 0; i < r->ncol; i++)
		if (!strcmp(r->col[i].key, key))
			return r->col[i].v;
	return NULL;
}

double dt_board_run_newest(const struct dt_board_run *r, const char *key)
{
	const double *v = dt_board_run_column(r, key);

	for (size_t i = r->rows; v && i > 0; i--)
		if (!isnan(v[i - 1]))
			return v[i - 1];
	return NAN;
}

void dt_board_run_close(struct dt_board_run *r)
{
	forget(r);
	if (r->fd >= 0)
		close(r->fd);
	free(r->buf);
	free(r->path);
	free(r->name);
	*r = (struct dt_board_run){.fd = -1};
}
/* SPDX-License-Identifier: Apache-2.0 */
