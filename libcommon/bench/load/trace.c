/* Reads traces of real services: CSV and JSON Lines, plain or gzip. */
#include "base/json.h"
#include "base/units.h"
#include "bench/load/workload.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <zlib.h>

enum { MOST_BYTES = 1 << 30, MOONCAKE_BLOCK = 512, COLUMNS = 32 };

struct reader {
	struct dt_load *l;
	const struct dt_trace_params *p;
	const char *path;
	int line;
	int at, in, out, ncol; /* column numbers of a CSV */
};

static int slurp(const char *path, char **ret, size_t *ret_n, struct dt_err *err)
{
	gzFile f = gzopen(path, "rb");
	size_t n = 0, cap = 1 << 16;
	char *buf = NULL;
	int got = 0, why = Z_OK, lost, rc;

	if (!f)
		return dt_err_sys(err, errno ? -errno : -ENOMEM, "cannot open '%s'", path);
	for (;;) {
		char *p = realloc(buf, cap);

		if (!p || cap > MOST_BYTES) {
			rc = p ? dt_err_set(err, -EFBIG, "'%s' is larger than 1 GiB", path)
			       : dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
			buf = p ? p : buf;
			goto fail;
		}
		buf = p;
		got = gzread(f, buf + n, (unsigned)(cap - n - 1));
		if (got <= 0)
			break;
		n += (size_t)got;
		if (n + 1 == cap)
			cap *= 2;
	}
	lost = errno;
	gzerror(f, &why);
	rc = gzclose(f);
	f = NULL;
	if (got < 0 || rc != Z_OK) {
		rc = dt_err_set(err, -EIO, "cannot read '%s': %s", path,
				why == Z_ERRNO	    ? strerror(lost)
				: rc == Z_BUF_ERROR ? "the file is cut short"
						    : "it is damaged");
		goto fail;
	}
	buf[n] = '\0';
	*ret = buf;
	*ret_n = n;
	return 0;
fail:
	if (f)
		gzclose(f);
	free(buf);
	return rc;
}

static int bad(const struct reader *r, struct dt_err *err, const char *what)
{
	return dt_err_set(err, -EINVAL, "'%s': line %d: %s", r->path, r->line, what);
}

static int scaled(const struct reader *r, double n)
{
	double v = floor(n * r->p->scale + 0.5), most = r->p->clip > 0 ? r->p->clip : INT_MAX / 2;

	v = v < 1 ? 1 : v;
	return (int)(v < most ? v : most);
}

static int add(struct reader *r, struct dt_load_item *it, double at, double in, double out,
	       struct dt_err *err)
{
	it->at_s = at / r->p->speed;
	if (!(in >= 0 && in <= 1e9 && out >= 0 && out <= 1e9 && isfinite(it->at_s)))
		return bad(r, err, "a time or a length is out of range");
	if (out == 0)
		return 0; /* the request had failed in the trace */
	if (in == 0)
		return bad(r, err, "a prompt without tokens has an answer");
	it->input = scaled(r, in);
	it->output = scaled(r, out);
	it->prefix = -1;
	return dt_load_add(r->l, it) < 0 ? dt_err_sys(err, -ENOMEM, "cannot read '%s'", r->path) : 0;
}

/* Splits a line at commas, in place; these traces have no quoted fields. */
static int split(char *line, char **field)
{
	int n = 0;

	for (char *p = line; p && n < COLUMNS; n++) {
		field[n] = strsep(&p, ",");
		field[n][strcspn(field[n], "\r")] = '\0';
	}
	return n;
}

static int header(struct reader *r, char *line, struct dt_err *err)
{
	char *f[COLUMNS];

	r->at = r->in = r->out = -1;
	r->ncol = split(line, f);
	for (int i = 0; i < r->ncol; i++) {
		if (!strcasecmp(f[i], "timestamp"))
			r->at = i;
		else if (!strcasecmp(f[i], "ContextTokens") || !strcasecmp(f[i], "Request tokens"))
			r->in = i;
		else if (!strcasecmp(f[i], "GeneratedTokens") || !strcasecmp(f[i], "Response tokens"))
			r->out = i;
	}
	if (r->at >= 0 && r->in >= 0 && r->out >= 0)
		return 0;
	bad(r, err, "no columns for time, prompt and answer");
	dt_err_hint(err, "known formats are the CSV of Azure and BurstGPT, and the JSON Lines of Mooncake");
	return err ? err->code : -EINVAL;
}

/* Parses seconds, or "2023-11-16 18:17:03.9799600" with or without a zero offset, or with a T. */
static int parse_time(const char *s, double *ret)
{
	struct tm tm = {0};
	const char *rest = strptime(s, "%Y-%m-%d", &tm);
	char *end;
	double sec;

	if (!rest)
		return dt_parse_real(s, 0, 1e18, ret, NULL);
	if (*rest != ' ' && *rest != 'T')
		return -EINVAL;
	rest = strptime(rest + 1, "%H:%M:", &tm);
	if (!rest)
		return -EINVAL;
	sec = strtod(rest, &end);
	if (end == rest || !(sec >= 0 && sec < 62) || (*end && strcmp(end, "Z") && strcmp(end, "+00:00")))
		return -EINVAL;
	*ret = (double)timegm(&tm) + sec;
	return 0;
}

static int csv_line(struct reader *r, char *line, struct dt_err *err)
{
	struct dt_load_item it = {0};
	char *f[COLUMNS];
	double at, in, out;

	if (split(line, f) != r->ncol)
		return bad(r, err, "the number of columns differs from the header");
	if (parse_time(f[r->at], &at) < 0)
		return bad(r, err, "the time cannot be read");
	if (dt_parse_real(f[r->in], 0, 1e9, &in, NULL) < 0 ||
	    dt_parse_real(f[r->out], 0, 1e9, &out, NULL) < 0)
		return bad(r, err, "a length is not a number");
	return add(r, &it, at, in, out, err);
}

static int take_blocks(struct reader *r, const json_t *ids, struct dt_load_item *it, struct dt_err *err)
{
	size_t n = json_array_size(ids);
	struct dt_load *l = r->l;

	if (!ids || n == 0)
		return 0;
	while (l->nnames + (int64_t)n > l->cap_names) {
		int64_t cap = l->cap_names ? 2 * l->cap_names : 4096;
		int64_t *p = realloc(l->names, (size_t)cap * sizeof(*p));

		if (!p)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", r->path);
		l->names = p;
		l->cap_names = cap;
	}
	it->nblock = (int)n;
	it->block_len = scaled(&(struct reader){.p = &(struct dt_trace_params){.scale = r->p->scale}},
			       MOONCAKE_BLOCK);
	for (size_t i = 0; i < n; i++) {
		if (!json_is_integer(json_array_get(ids, i)))
			return bad(r, err, "a hash id is not an integer");
		l->names[l->nnames++] = json_integer_value(json_array_get(ids, i));
	}
	return 0;
}

static int json_line(struct reader *r, const char *line, size_t n, struct dt_err *err)
{
	struct dt_load_item it = {0};
	double at = NAN, in = NAN, out = NAN;
	int n_before = r->l->n, rc;
	struct dt_err why;
	char where[300];
	json_t *v;

	snprintf(where, sizeof(where), "'%s': line %d", r->path, r->line);
	if (dt_json_parse(line, n, where, &v, err) < 0)
		return -EINVAL;
	if (json_object_get(v, "input_length")) {
		rc = dt_json_real(v, "timestamp", true, &at, &why) < 0 ||
		     dt_json_real(v, "input_length", true, &in, &why) < 0 ||
		     dt_json_real(v, "output_length", true, &out, &why) < 0;
		at /= 1e3;
	} else {
		rc = dt_json_real(v, "arrival_time_ns", true, &at, &why) < 0 ||
		     dt_json_real(v, "input_toks", true, &in, &why) < 0 ||
		     dt_json_real(v, "output_toks", true, &out, &why) < 0;
		at /= 1e9;
	}
	rc = rc ? bad(r, err, why.msg) : take_blocks(r, json_object_get(v, "hash_ids"), &it, err);
	json_decref(v);
	rc = rc < 0 ? rc : add(r, &it, at, in, out, err);
	if (n_before == r->l->n)
		r->l->nnames -= it.nblock; /* the item was skipped */
	return rc;
}

static int by_time(const void *a, const void *b)
{
	const struct dt_load_item *x = a, *y = b;

	return x->at_s != y->at_s ? (x->at_s < y->at_s ? -1 : 1) : (x->turn > y->turn) - (x->turn < y->turn);
}

/* Stable sort by time; shifts times so that the first is 0. */
static void arrange(struct dt_load *l, int most)
{
	const int64_t *names = l->names;
	double first;

	for (int i = 0; i < l->n; i++) { /* the array of names no longer moves */
		l->item[i].block = l->item[i].nblock ? names : NULL;
		names += l->item[i].nblock;
		l->item[i].turn = i;
	}
	qsort(l->item, (size_t)l->n, sizeof(*l->item), by_time);
	first = l->item[0].at_s;
	for (int i = 0; i < l->n; i++) {
		l->item[i].at_s -= first;
		l->item[i].turn = 0;
	}
	if (most > 0 && most < l->n)
		l->n = most;
}

int dt_load_read_trace(struct dt_load *l, const char *path, const struct dt_trace_params *p,
		       struct dt_err *err)
{
	struct reader r = {.l = l, .p = p, .path = path};
	char *text = NULL, *at, *line;
	size_t size = 0;
	int rc;

	*l = (struct dt_load){0};
	rc = slurp(path, &text, &size, err);
	if (rc < 0)
		return rc;
	if (strlen(text) != size) /* lines after it would be left out */
		rc = dt_err_set(err, -EINVAL, "'%s' is not a text: it has a NUL byte", path);
	at = text + (strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3); /* a byte order mark */
	while (rc == 0 && (line = strsep(&at, "\n"))) {
		r.line++;
		line += strspn(line, " \t");
		if (*line == '\0' || *line == '\r')
			continue;
		if (*line == '{')
			rc = json_line(&r, line, strlen(line), err);
		else if (r.ncol == 0)
			rc = header(&r, line, err);
		else
			rc = csv_line(&r, line, err);
	}
	free(text);
	if (rc == 0 && l->n == 0)
		rc = dt_err_set(err, -ENODATA, "'%s' has no requests", path);
	if (rc < 0) {
		dt_load_release(l);
		return rc;
	}
	arrange(l, p->most);
	dt_load_choose_cut(l, p->seed, p->cut, p->cut_span);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
