#include "data/text_source.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct reader {
	struct dt_text_source *s;
	dt_document_fn fn;
	void *ctx;
	const char *path;
};

static bool is_jsonl(const struct dt_text_source *s, const char *path)
{
	const char *dot = strrchr(path, '.');

	if (s->format != DT_TEXT_AUTO)
		return s->format == DT_TEXT_JSONL;
	return dot && (!strcmp(dot, ".jsonl") || !strcmp(dot, ".ndjson"));
}

int dt_text_source_open(struct dt_text_source *s, int n, const char *const *paths, struct dt_err *err)
{
	struct stat st;
	int rc = 0;

	s->path = paths;
	s->paths = n;
	s->total_bytes = s->read_bytes = 0;
	s->held = calloc((size_t)n, sizeof(*s->held));
	s->held_n = calloc((size_t)n, sizeof(*s->held_n));
	if (!s->held || !s->held_n)
		return dt_err_sys(err, -ENOMEM, "cannot read the input");
	for (int i = 0; i < n && rc == 0; i++) {
		bool regular = strcmp(paths[i], "-") && stat(paths[i], &st) == 0 && S_ISREG(st.st_mode);

		if (regular) {
			s->held_n[i] = (size_t)st.st_size;
		} else if (strcmp(paths[i], "-") && stat(paths[i], &st) < 0) {
			return dt_err_sys(err, -errno, "cannot open '%s'", paths[i]);
		} else if (s->eval_percent > 0) {
			rc = dt_read_file(paths[i], SIZE_MAX / 4, &s->held[i], &s->held_n[i], err);
		}
		s->total_bytes += s->held_n[i];
	}
	s->cut = UINT64_MAX;
	if (s->eval_percent > 0)
		s->cut = (uint64_t)floorl((long double)s->total_bytes * (100 - (long double)s->eval_percent) /
					  100);
	return rc;
}

void dt_text_source_close(struct dt_text_source *s)
{
	for (int i = 0; i < s->paths && s->held; i++)
		free(s->held[i]);
	free(s->held);
	free(s->held_n);
	s->held = NULL;
	s->held_n = NULL;
}

/* A document at byte at of the input, in two where the cut goes through it. */
static int give(const struct reader *r, const char *text, size_t n, uint64_t at, struct dt_err *err)
{
	uint64_t cut = r->s->cut;
	size_t head = cut <= at ? 0 : cut - at < n ? (size_t)(cut - at) : n;
	int rc = 0;

	while (head > 0 && head < n && ((unsigned char)text[head] & 0xc0) == 0x80)
		head--;
	if (head)
		rc = r->fn(r->ctx, text, head, false, at, err);
	if (rc >= 0 && head < n)
		rc = r->fn(r->ctx, text + head, n - head, true, at + head, err);
	return rc < 0 ? rc : 0;
}

static int read_plain(const struct reader *r, const char *text, size_t n, struct dt_err *err)
{
	const char *sep = r->s->separator, *end;
	uint64_t base = r->s->read_bytes;
	size_t at = 0, sep_n = sep ? strlen(sep) : 0;
	int rc = 0;

	while (at < n && rc == 0) {
		end = sep ? memmem(text + at, n - at, sep, sep_n) : NULL;
		if (!end)
			end = text + n;
		rc = give(r, text + at, (size_t)(end - text) - at, base + at, err);
		at = (size_t)(end - text) + sep_n;
	}
	r->s->read_bytes = base + n;
	return rc;
}

static int read_line(const struct reader *r, const char *line, size_t n, size_t number, struct dt_err *err)
{
	json_error_t je;
	json_t *o, *v;
	bool eval = r->s->read_bytes >= r->s->cut;
	int rc = 0;

	if (strspn(line, " \t\r\n") >= n)
		return 0;
	o = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!o)
		return dt_err_set(err, -EBADMSG, "'%s': line %zu: %s", r->path, number, je.text);
	v = json_object_get(o, r->s->field);
	if (!json_is_string(v)) {
		rc = dt_err_set(err, -EBADMSG, "'%s': line %zu has no text '%s'", r->path, number,
				r->s->field);
		dt_err_hint(err, "--field names the member that is the document.");
	} else if (json_string_length(v)) {
		rc = r->fn(r->ctx, json_string_value(v), json_string_length(v), eval, r->s->read_bytes, err);
	}
	json_decref(o);
	return rc < 0 ? rc : 0;
}

static int read_jsonl(const struct reader *r, FILE *f, struct dt_err *err)
{
	char *line = NULL;
	size_t cap = 0, number = 0;
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (errno = 0, n = getline(&line, &cap, f)) >= 0) {
		rc = read_line(r, line, (size_t)n, ++number, err);
		r->s->read_bytes += (uint64_t)n;
	}
	if (rc == 0 && ferror(f))
		rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot read '%s'", r->path);
	free(line);
	return rc;
}

static int read_jsonl_path(const struct reader *r, char *held, size_t n, struct dt_err *err)
{
	bool in = !strcmp(r->path, "-");
	FILE *f;
	int rc;

	if (held && !n)
		return 0;
	f = held ? fmemopen(held, n, "r") : in ? stdin : fopen(r->path, "re");
	if (!f)
		return dt_err_sys(err, -errno, "cannot open '%s'", r->path);
	rc = read_jsonl(r, f, err);
	if (f != stdin)
		fclose(f);
	return rc;
}

int dt_text_source_read(struct dt_text_source *s, dt_document_fn fn, void *ctx, struct dt_err *err)
{
	struct reader r = {.s = s, .fn = fn, .ctx = ctx};
	int rc = 0;

	for (int i = 0; i < s->paths && rc == 0; i++) {
		char *text = s->held[i];
		size_t n = s->held_n[i];

		r.path = s->path[i];
		if (is_jsonl(s, r.path)) {
			rc = read_jsonl_path(&r, text, n, err);
			continue;
		}
		if (!text)
			rc = dt_read_file(r.path, SIZE_MAX / 4, &text, &n, err);
		if (rc < 0)
			break;
		rc = read_plain(&r, text, n, err);
		free(text);
		s->held[i] = NULL;
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
