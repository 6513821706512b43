#include "base/json.h"

#include "base/suggest.h"

#include <errno.h>
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

static int parse(const char *text, size_t n, const char *name, size_t flags, json_t **ret, struct dt_err *err)
{
	json_error_t je;
	json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &je);

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

int dt_json_load(const char *path, size_t max_bytes, json_t **ret, struct dt_err *err)
{
	size_t n;
	char *text;
	int rc = dt_read_file(path, max_bytes, &text, &n, err);

	if (rc < 0)
		return rc;
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
static int cannot_write(FILE *f, int code, struct dt_err *err)
{
	char link[32], path[400];
	ssize_t n;

	if (fileno(f) == STDOUT_FILENO)
		return dt_err_sys(err, code, "cannot write to standard output");
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fileno(f));
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return dt_err_sys(err, code, "cannot write JSON");
	path[n] = '\0';
	return dt_err_sys(err, code, "cannot write '%s'", path);
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

int dt_json_write_line(FILE *f, const json_t *v, struct dt_err *err)
{
	struct stat st = {0};
	const bool file = fflush(f) == 0 && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
	int rc;

	errno = 0;
	if (json_dumpf(v, f, JSON_COMPACT | JSON_ENCODE_ANY) >= 0 && fputc('\n', f) != EOF &&
	    fflush(f) != EOF)
		return 0;
	rc = cannot_write(f, errno ? -errno : -EIO, err);
	if (file)
		take_back(f, st.st_size);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
