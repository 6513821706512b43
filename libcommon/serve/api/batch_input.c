#include "serve/api/batch_input.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- lines ---- */

static bool blank(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
			return false;
	return true;
}

int batch_input_next(struct batch_input *b, int64_t number, char **ret, size_t *ret_n, struct dt_err *err)
{
	if (b->used > 0) {
		memmove(b->buf, b->buf + b->used, b->n - b->used);
		b->n -= b->used;
		b->scanned = b->used = 0;
	}
	for (;;) {
		struct pollfd fds[2] = {{.fd = b->fd, .events = POLLIN},
					{.fd = b->stop_fd, .events = POLLIN}};
		char *nl = b->n > b->scanned ? memchr(b->buf + b->scanned, '\n', b->n - b->scanned) : NULL;
		ssize_t got;

		if (nl || (b->ended && b->n > 0)) {
			*ret = b->buf;
			*ret_n = nl ? (size_t)(nl - b->buf) : b->n;
			b->used = nl ? *ret_n + 1 : b->n;
			*ret_n = blank(*ret, *ret_n) ? 0 : *ret_n;
			return 1;
		}
		if (b->ended)
			return 0;
		b->scanned = b->n;
		if (b->n > DT_BATCH_MAX_LINE)
			return dt_err_set(err, -EFBIG, "line %lld has more than %d bytes", (long long)number,
					  DT_BATCH_MAX_LINE);
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
		got = read(b->fd, b->buf + b->n, b->cap - b->n);
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return dt_err_sys(err, -errno, "cannot read the input");
		b->ended = got == 0;
		b->n += got > 0 ? (size_t)got : 0;
	}
}

/* ---- answers of an earlier run ---- */

/* The key of a line: its id, or else its index. malloc'd. */
static char *key_of(const json_t *id, int64_t index)
{
	json_t *v = id ? NULL : json_integer(index);
	char *s = json_dumps(id ? id : v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS), *key = NULL;

	if (s && asprintf(&key, "%s%s", id ? "id " : "index ", s) < 0)
		key = NULL;
	free(s);
	json_decref(v);
	return key;
}

/*
 * Repairs an output file to which results will be appended: a killed run may have left a truncated line,
 * which is cut off; a complete line without a newline gets one.
 */
static int mend(const struct dt_batch_params *p, FILE *f, off_t last, bool whole, struct dt_err *err)
{
	struct stat was, out;
	int fd = fileno(p->out);

	if (fstat(fileno(f), &was) < 0 || fstat(fd, &out) < 0 || !S_ISREG(out.st_mode) ||
	    was.st_dev != out.st_dev || was.st_ino != out.st_ino)
		return 0;
	if (whole ? fputc('\n', p->out) == EOF : ftruncate(fd, last) < 0 || lseek(fd, 0, SEEK_END) < 0)
		return dt_err_sys(err, -errno, "cannot continue '%s'", p->skip_done);
	return 0;
}

int batch_done_read(const struct dt_batch_params *p, json_t **ret, struct dt_err *err)
{
	FILE *f = fopen(p->skip_done, "r");
	char *text = NULL;
	off_t at = 0, last = -1; /* offset of a last line without newline */
	bool whole = false;
	size_t cap = 0;
	ssize_t n;
	int rc = 0;

	if (!f)
		return errno == ENOENT ? 0 : dt_err_sys(err, -errno, "cannot open '%s'", p->skip_done);
	*ret = json_object();
	while (rc == 0 && (n = getline(&text, &cap, f)) > 0) {
		json_t *v = json_loadb(text, (size_t)n, JSON_ALLOW_NUL, NULL),
		       *id = json_object_get(v, "custom_id");
		json_t *status = json_object_get(json_object_get(v, "response"), "status_code");
		bool good = id ? json_integer_value(status) == 200 : json_object_get(v, "text") != NULL;
		char *key;

		if (!id)
			id = json_object_get(v, "id");
		key = good ? key_of(id, json_integer_value(json_object_get(v, "index"))) : NULL;
		if (good && (!key || json_object_set_new_nocheck(*ret, key, json_true()) < 0))
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", p->skip_done);
		free(key);
		if (text[n - 1] != '\n') {
			last = at;
			whole = v != NULL;
		}
		at += n;
		json_decref(v); /* a truncated line is not valid JSON, so it does not count as answered */
	}
	if (rc == 0 && ferror(f))
		rc = dt_err_sys(err, -EIO, "cannot read '%s'", p->skip_done);
	if (rc == 0 && last >= 0)
		rc = mend(p, f, last, whole, err);
	fclose(f);
	free(text);
	return rc;
}

bool batch_done_has(const json_t *done, const json_t *id, int64_t index)
{
	char *key = done ? key_of(id, index) : NULL;
	bool has = key && json_object_get(done, key);

	free(key);
	return has;
}
/* SPDX-License-Identifier: Apache-2.0 */
