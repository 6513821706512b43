#include "base/json.h"

#include "base/signals.h"
#include "base/suggest.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether text of n bytes has only white space. */
static bool is_blank(const char *text, size_t n)
{
	size_t i = 0;

	while (i < n && memchr(" \t\r\n", text[i], 4))
		i++;
	return i == n;
}

#define DIGITS 18 /* that every int64_t has room for */

/*
 * A copy of a JSON text whose integers of more digits have ".0" behind them, so that they are read as reals.
 * NULL: no memory.
 */
static char *with_reals(const char *text, size_t n, size_t *ret_n)
{
	char *to = malloc(n + n / DIGITS * 2 + 1);
	bool in_string = false;
	size_t k = 0, digits;

	for (size_t i = 0; to && i < n;) {
		for (digits = 0;
		     !in_string && i + digits < n && text[i + digits] >= '0' && text[i + digits] <= '9';)
			digits++;
		if (digits) {
			memcpy(to + k, text + i, digits);
			k += digits;
			i += digits;
			if (digits > DIGITS && (i == n || !memchr(".eE", text[i], 3))) {
				memcpy(to + k, ".0", 2);
				k += 2;
			}
			continue;
		}
		if (in_string && text[i] == '\\' && i + 1 < n)
			to[k++] = text[i++];
		else if (text[i] == '"')
			in_string = !in_string;
		to[k++] = text[i++];
	}
	*ret_n = k;
	return to;
}

static json_t *load(const char *text, size_t n, size_t flags, json_error_t *je)
{
	json_t *v = json_loadb(text, n, flags, je);
	size_t more;
	char *reals;

	if (v || json_error_code(je) != json_error_numeric_overflow)
		return v;
	reals = with_reals(text, n, &more);
	if (reals)
		v = json_loadb(reals, more, flags, je);
	free(reals);
	return v;
}

static int parse(const char *text, size_t n, const char *name, size_t flags, json_t **ret, struct dt_err *err)
{
	json_error_t je;
	json_t *v = load(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &je);

	if (!v && is_blank(text, n))
		return dt_err_set(err, -EINVAL, "%s: empty, not JSON", name);
	if (!v)
		return dt_err_set(err, -EINVAL, "%s: line %d: %s", name, je.line, je.text);
	*ret = v;
	return 0;
}

int dt_json_parse(const char *text, size_t n, const char *name, json_t **ret, struct dt_err *err)
{
	return parse(text, n, name, 0, ret, err);
}

int dt_json_parse_texts(const char *text, size_t n, const char *name, json_t **ret, struct dt_err *err)
{
	return parse(text, n, name, JSON_ALLOW_NUL, ret, err);
}

char *dt_json_text(const char *s, size_t n)
{
	size_t nuls = 0, k = 0;
	char *to;

	for (size_t i = 0; i < n; i++)
		nuls += !s[i];
	to = malloc(n + 2 * nuls + 1);
	for (size_t i = 0; to && i < n; i++) {
		if (s[i]) {
			to[k++] = s[i];
		} else {
			memcpy(to + k, "\xef\xbf\xbd", 3);
			k += 3;
		}
	}
	if (to)
		to[k] = '\0';
	return to;
}

int dt_read_file(const char *path, size_t max_bytes, char **ret, size_t *ret_n, struct dt_err *err)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	const char *name = f == stdin ? "standard input" : path;
	size_t n = 0, cap = 65536, got;
	char *buf = NULL, *p;
	int rc;

	if (!f)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	for (;;) {
		p = realloc(buf, cap + 1);
		if (!p) {
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", name);
			goto fail;
		}
		buf = p;
		errno = 0;
		got = fread(buf + n, 1, cap - n, f);
		n += got;
		if (n > max_bytes) {
			rc = dt_err_set(err, -EFBIG, "'%s' is larger than %zu bytes", name, max_bytes);
			goto fail;
		}
		if (n < cap)
			break;
		cap *= 2;
	}
	if (ferror(f)) {
		rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot read '%s'", name);
		goto fail;
	}
	buf[n] = '\0';
	if (f != stdin)
		fclose(f);
	*ret = buf;
	*ret_n = n;
	return 0;
fail:
	free(buf);
	if (f != stdin)
		fclose(f);
	return rc;
}

/* Python's json writes the word: it becomes 1e308 where it is a value. */
static void without_infinity(char *text, size_t n)
{
	static const char word[] = "Infinity", number[] = "1e308   ";
	const size_t len = sizeof(word) - 1;
	bool in_string = false;

	for (size_t i = 0; i < n; i++) {
		if (in_string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			in_string = !in_string;
		else if (!in_string && n - i >= len && !memcmp(text + i, word, len))
			memcpy(text + i, number, len);
	}
}

int dt_json_load(const char *path, size_t max_bytes, json_t **ret, struct dt_err *err)
{
	size_t n;
	char *text;
	int rc = dt_read_file(path, max_bytes, &text, &n, err);

	if (rc < 0)
		return rc;
	without_infinity(text, n);
	rc = dt_json_parse(text, n, strcmp(path, "-") ? path : "standard input", ret, err);
	free(text);
	return rc;
}

static int lookup(const json_t *o, const char *key, bool required, const json_t **ret, struct dt_err *err)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v)) {
		if (required)
			return dt_err_set(err, -EINVAL, "key '%s' is missing", key);
		return 0;
	}
	*ret = v;
	return 1;
}

int dt_json_int(const json_t *o, const char *key, bool required, int64_t min, int64_t max, int64_t *ret,
		struct dt_err *err)
{
	const json_t *v = NULL;
	int rc = lookup(o, key, required, &v, err);
	int64_t x;

	if (rc <= 0)
		return rc;
	if (!json_is_integer(v))
		return dt_err_set(err, -EINVAL, "'%s' is not a whole number", key);
	x = json_integer_value(v);
	if (x >= min && x <= max) {
		*ret = x;
		return 1;
	}
	if (max == INT64_MAX)
		return dt_err_set(err, -EINVAL, "'%s' is out of range: %lld (at least %lld)", key,
				  (long long)x, (long long)min);
	return dt_err_set(err, -EINVAL, "'%s' is out of range: %lld (%lld to %lld)", key, (long long)x,
			  (long long)min, (long long)max);
}

int dt_json_real(const json_t *o, const char *key, bool required, double *ret, struct dt_err *err)
{
	const json_t *v = NULL;
	int rc = lookup(o, key, required, &v, err);

	if (rc <= 0)
		return rc;
	if (!json_is_number(v))
		return dt_err_set(err, -EINVAL, "'%s' is not a number", key);
	*ret = json_number_value(v);
	return 1;
}

int dt_json_bool(const json_t *o, const char *key, bool required, bool *ret, struct dt_err *err)
{
	const json_t *v = NULL;
	int rc = lookup(o, key, required, &v, err);

	if (rc <= 0)
		return rc;
	if (!json_is_boolean(v))
		return dt_err_set(err, -EINVAL, "'%s' is not true or false", key);
	*ret = json_is_true(v);
	return 1;
}

int dt_json_str(const json_t *o, const char *key, bool required, const char **ret, struct dt_err *err)
{
	const json_t *v = NULL;
	int rc = lookup(o, key, required, &v, err);

	if (rc <= 0)
		return rc;
	if (!json_is_string(v))
		return dt_err_set(err, -EINVAL, "'%s' is not a string", key);
	if (memchr(json_string_value(v), 0, json_string_length(v)))
		return dt_err_set(err, -EINVAL, "'%s' contains a NUL character", key);
	*ret = json_string_value(v);
	return 1;
}

/*
 * Removes a partly written line from a regular file, so that it ends with a complete line; drops buffered
 * output.
 */
static void take_back(FILE *f, off_t end)
{
	struct stat st;

	__fpurge(f);
	if (fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= end)
		return;
	if (ftruncate(fileno(f), end) == 0)
		lseek(fileno(f), end, SEEK_SET);
}

/* Writers of lines do not know the name of their file, but the kernel does. */
static const char *target(FILE *f, char *buf, size_t n)
{
	char link[32], path[400];
	ssize_t got;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fileno(f));
	got = fileno(f) == STDOUT_FILENO ? 0 : readlink(link, path, sizeof(path) - 1);
	path[got > 0 ? got : 0] = '\0';
	if (got > 0)
		snprintf(buf, n, "'%s'", path);
	else
		snprintf(buf, n, "%s", fileno(f) == STDOUT_FILENO ? "to standard output" : "JSON");
	return buf;
}

static int cannot_write(FILE *f, int code, struct dt_err *err)
{
	char name[420];

	return dt_err_sys(err, code, "cannot write %s", target(f, name, sizeof(name)));
}

static int unknown_key(const char *key, const char *const *known, struct dt_err *err)
{
	struct dt_suggest s = dt_suggest(key);
	char text[100];

	for (; *known; known++)
		dt_suggest_offer(&s, *known);
	return dt_err_set(err, -EINVAL, "unknown key '%.60s'%s", key,
			  dt_suggest_text(&s, "", text, sizeof(text)));
}

int dt_json_keys(const json_t *o, const char *const *known, struct dt_err *err)
{
	const char *key;
	json_t *v;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "this is not an object");
	json_object_foreach((json_t *)o, key, v)
	{
		int i = 0;

		while (known[i] && strcmp(known[i], key))
			i++;
		if (!known[i])
			return unknown_key(key, known, err);
	}
	return 0;
}

/*
 * Waits until a pipe has room for PIPE_BUF bytes. Once a signal has come that ends the program, it waits for
 * 5 s more at most (-EINTR), because a program that does not read can be stopped or wait for this one.
 */
static int wait_for_room(int fd)
{
	enum { EACH_MS = 200, MOST = 25 };

	for (int left = MOST; left > 0; left -= dt_signals_ending()) {
		struct pollfd p = {.fd = fd, .events = POLLOUT};

		if (poll(&p, 1, EACH_MS) > 0)
			return 0;
	}
	return -EINTR;
}

/* Writes to a pipe in parts that do not block. */
static int write_to_pipe(int fd, const char *text, size_t n)
{
	while (n > 0) {
		int rc = wait_for_room(fd);
		ssize_t done = rc < 0 ? 0 : write(fd, text, n < PIPE_BUF ? n : PIPE_BUF);

		if (rc < 0)
			return rc;
		if (done < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		text += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}

static int line_to_pipe(FILE *f, const json_t *v, struct dt_err *err)
{
	char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY), name[420];
	size_t n = text ? strlen(text) : 0;
	int rc = -ENOMEM;

	if (text) {
		text[n] = '\n'; /* in place of the terminating zero */
		rc = write_to_pipe(fileno(f), text, n + 1);
	}
	free(text);
	if (rc == -EINTR)
		return dt_err_set(err, rc,
				  "cannot write %s: a signal came, and the program that reads this pipe does "
				  "not read",
				  target(f, name, sizeof(name)));
	return rc < 0 ? cannot_write(f, rc, err) : 0;
}

int dt_json_write_line(FILE *f, const json_t *v, struct dt_err *err)
{
	struct stat st = {0};
	const bool known = fflush(f) == 0 && fstat(fileno(f), &st) == 0;
	const bool file = known && S_ISREG(st.st_mode);
	int rc;

	if (known && S_ISFIFO(st.st_mode))
		return line_to_pipe(f, v, err);
	errno = 0;
	if (json_dumpf(v, f, JSON_COMPACT | JSON_ENCODE_ANY) >= 0 && fputc('\n', f) != EOF &&
	    fflush(f) != EOF)
		return 0;
	rc = cannot_write(f, errno ? -errno : -EIO, err);
	if (file)
		take_back(f, st.st_size);
	return rc;
}

json_t *dt_json_number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}
int dt_json_floats(const json_t *o, const char *key, float *ret, size_t n, struct dt_err *err)
{
	const json_t *list = json_object_get(o, key), *v;
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > n)
		return dt_err_set(err, -EINVAL, "'%s' is not a list of at most %zu numbers", key, n);
	json_array_foreach(list, i, v)
	{
		ret[i] = (float)json_number_value(v);
		if (!(ret[i] > 0) || !isfinite(ret[i]))
			return dt_err_set(err, -EINVAL, "'%s' has something other than numbers above 0", key);
	}
	return (int)json_array_size(list);
}

double dt_json_short(float v)
{
	double r = (double)v;
	char text[32];

	for (int digits = 1; digits <= 9; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, (double)v);
		r = strtod(text, NULL);
		if ((float)r >= v && (float)r <= v)
			break;
	}
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
