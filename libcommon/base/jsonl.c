#include "base/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINE = 16 << 20, CHUNK = 65536 };

int dt_jsonl_open(struct dt_jsonl *j, const char *path, struct dt_err *err)
{
	bool is_stdin = !strcmp(path, "-");
	int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	*j = (struct dt_jsonl){.name = is_stdin ? "standard input" : path, .fd = fd};
	return 0;
}

void dt_jsonl_close(struct dt_jsonl *j)
{
	if (j->fd > STDIN_FILENO)
		close(j->fd);
	free(j->buf);
	*j = (struct dt_jsonl){.fd = -1};
}

static char *line_end(const struct dt_jsonl *j)
{
	return j->n > j->at ? memchr(j->buf + j->at, '\n', j->n - j->at) : NULL;
}

bool dt_jsonl_ready(const struct dt_jsonl *j, double timeout_s)
{
	struct pollfd in = {.fd = j->fd, .events = POLLIN};

	if (j->end || line_end(j))
		return true;
	return poll(&in, 1, timeout_s > 0 ? (int)(timeout_s * 1000) + 1 : 0) > 0;
}

/* Appends the result of one read(); sets end at the end of the input. */
static int fill(struct dt_jsonl *j, struct dt_err *err)
{
	ssize_t got;

	if (j->at > 0) {
		memmove(j->buf, j->buf + j->at, j->n - j->at);
		j->n -= j->at;
		j->at = 0;
	}
	if (j->n > MAX_LINE)
		return dt_err_set(err, -EFBIG, "%s:%zu: the line is longer than %d bytes", j->name,
				  j->line + 1, MAX_LINE);
	if (j->cap - j->n < CHUNK + 1) {
		size_t cap = 2 * j->cap + 2 * CHUNK;
		char *p = realloc(j->buf, cap);

		if (!p)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", j->name);
		j->buf = p;
		j->cap = cap;
	}
	do
		got = read(j->fd, j->buf + j->n, j->cap - j->n - 1);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return dt_err_sys(err, -errno, "cannot read '%s'", j->name);
	j->n += (size_t)got;
	j->end = got == 0;
	return 0;
}

/* The beginning of a line for a message: whole characters, control characters replaced. */
static const char *shown(const char *text, size_t n, char *buf, size_t cap)
{
	size_t k = n < cap ? n : cap - 4;

	while (k < n && k > 0 && ((unsigned char)text[k] & 0xc0) == 0x80)
		k--;
	for (size_t i = 0; i < k; i++)
		buf[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
	strcpy(buf + k, k < n ? "..." : "");
	return buf;
}

/* A hint about numbers that some programs write and JSON lacks (NaN, Infinity); NULL: another error. */
static const char *no_number(const char *text, const char *complaint)
{
	static const char *const words[] = {"NaN", "Infinity"};

	if (strstr(complaint, "number overflow"))
		return "A number is beyond 1.8e308, the largest that is read.";
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		for (const char *p = text; (p = strstr(p, words[i])); p++)
			if (p > text && strchr(":,[ -", p[-1]))
				return "NaN and Infinity are not JSON numbers, though Python's json.dumps "
				       "writes them; null is.";
	return NULL;
}

/* Whether the text begins an object and ends within it. */
static bool ends_within(const char *text)
{
	int depth = 0;
	bool quoted = false;

	for (const char *p = text + strspn(text, " \t"); *p; p++) {
		if (quoted && *p == '\\' && p[1])
			p++;
		else if (*p == '"')
			quoted = !quoted;
		else if (!quoted)
			depth += (*p == '{') - (*p == '}');
		if (depth == 0) /* not an object, or its end */
			return false;
	}
	return depth > 0;
}

/*
 * Parses the line of n bytes at j->at. last: it has no newline. Returns 1 with the object in *ret, 0 if it is
 * blank or skipped.
 */
static int take(struct dt_jsonl *j, size_t n, bool last, json_t **ret, struct dt_err *err)
{
	char *text = j->buf + j->at;
	char where[256], head[48];
	struct dt_err why = {0};
	const char *hint;
	json_t *v = NULL;

	text[n] = '\0';
	if (j->line++ == 0 && !strncmp(text, "\xef\xbb\xbf", 3)) { /* byte-order mark */
		text += 3;
		n -= 3;
	}
	if (strspn(text, " \t\r") == n)
		return 0;
	snprintf(where, sizeof(where), "%s:%zu", j->name, j->line);
	if ((j->texts ? dt_json_parse_texts : dt_json_parse)(text, n, where, &v, &why) == 0 &&
	    json_is_object(v)) {
		*ret = v;
		return 1;
	}
	json_decref(v);
	if (j->skip_cut && last && ends_within(text)) {
		j->cut = true;
		return 0;
	}
	if (j->skip_bad) {
		j->bad++;
		return 0;
	}
	dt_err_set(err, -EINVAL, "%s: not a JSON object: '%s'", where, shown(text, n, head, sizeof(head)));
	hint = no_number(text, why.msg);
	if (hint)
		dt_err_hint(err, "%s", hint);
	return -EINVAL;
}

int dt_jsonl_next(struct dt_jsonl *j, json_t **ret, struct dt_err *err)
{
	for (;;) {
		char *nl = line_end(j);
		size_t n = nl ? (size_t)(nl - (j->buf + j->at)) : j->n - j->at;
		int rc = 0;

		if (nl || (j->end && n > 0)) {
			rc = take(j, n, !nl, ret, err);
			j->at += n + (nl != NULL);
			if (rc)
				return rc;
		} else if (j->end) {
			return 0;
		} else if ((rc = fill(j, err)) < 0) {
			return rc;
		}
	}
}

void dt_jsonl_drain(struct dt_jsonl *j)
{
	struct stat st;
	char buf[4096];

	if (fstat(j->fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return;
	while (read(j->fd, buf, sizeof(buf)) > 0)
		;
}
/* SPDX-License-Identifier: Apache-2.0 */
