#include "data/marks.h"

#include "data/shard_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_marks_add(struct dt_marks *m, int64_t at)
{
	if (m->n && m->end[m->n - 1] == at) {
		m->end[m->n - 1]++;
		return 0;
	}
	if (m->n == m->cap) {
		int64_t cap = m->cap ? 2 * m->cap : 1024;
		int64_t *first = realloc(m->first, (size_t)cap * sizeof(*first)), *end;

		if (first)
			m->first = first;
		end = realloc(m->end, (size_t)cap * sizeof(*end));
		if (end)
			m->end = end;
		if (!first || !end)
			return -ENOMEM;
		m->cap = cap;
	}
	m->first[m->n] = at;
	m->end[m->n++] = at + 1;
	return 0;
}

void dt_marks_release(struct dt_marks *m)
{
	free(m->first);
	free(m->end);
	*m = (struct dt_marks){0};
}

int dt_marks_put(const struct dt_marks *m, hid_t f)
{
	if (!m->n)
		return 0;
	if (dt_h5_put_list(f, "target_starts", H5T_STD_I64LE, H5T_NATIVE_INT64, m->n, m->first, m->n > 512) <
		    0 ||
	    dt_h5_put_list(f, "target_ends", H5T_STD_I64LE, H5T_NATIVE_INT64, m->n, m->end, m->n > 512) < 0)
		return -EIO;
	return 0;
}

static int read_list(hid_t f, const char *path, const char *name, int64_t tokens, int64_t **ret,
		     int64_t *ret_n, struct dt_err *err)
{
	size_t bytes;
	hid_t list;
	int rc = dt_h5_open_list(f, path, name, H5T_INTEGER, &list, ret_n, &bytes, err);

	if (rc < 0)
		return rc;
	if (*ret_n < 1 || *ret_n > tokens || bytes != 8)
		rc = dt_err_set(err, -EBADMSG, "'%s': %s does not fit a dataset of %lld tokens", path, name,
				(long long)tokens);
	*ret = rc == 0 ? malloc((size_t)*ret_n * sizeof(**ret)) : NULL;
	if (rc == 0 && !*ret)
		rc = dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	if (rc == 0 && set_read_list(list, 0, *ret_n, H5T_NATIVE_INT64, *ret) < 0)
		rc = dt_h5_error(err, "cannot read '%s'", path);
	H5Dclose(list);
	return rc;
}

int dt_marks_read(struct dt_marks *m, hid_t f, const char *path, int64_t tokens, struct dt_err *err)
{
	int64_t ends = 0, last = -1;
	int rc;

	if (H5Lexists(f, "target_starts", H5P_DEFAULT) <= 0)
		return 0;
	rc = read_list(f, path, "target_starts", tokens, &m->first, &m->n, err);
	if (rc == 0)
		rc = read_list(f, path, "target_ends", tokens, &m->end, &ends, err);
	if (rc == 0 && ends != m->n)
		rc = dt_err_set(err, -EBADMSG, "'%s' has %lld target_starts and %lld target_ends", path,
				(long long)m->n, (long long)ends);
	for (int64_t i = 0; i < m->n && rc == 0; i++) {
		if (m->first[i] <= last || m->end[i] <= m->first[i] || m->end[i] > tokens)
			rc = dt_err_set(err, -EBADMSG,
					"'%s': targets %lld have an invalid range, tokens %lld to %lld", path,
					(long long)i, (long long)m->first[i], (long long)m->end[i]);
		last = m->end[i];
	}
	return rc;
}

/* The first run that ends after token at. */
static int64_t run_at(const struct dt_marks *m, int64_t at)
{
	int64_t lo = 0, hi = m->n;

	while (lo < hi) {
		int64_t mid = (lo + hi) / 2;

		if (m->end[mid] <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int64_t dt_marks_count(const struct dt_marks *m, int64_t at, int64_t n)
{
	int64_t sum = 0;

	if (!m->n)
		return n;
	for (int64_t i = run_at(m, at); i < m->n && m->first[i] < at + n; i++) {
		int64_t a = m->first[i] > at ? m->first[i] : at, b = m->end[i] < at + n ? m->end[i] : at + n;

		sum += b - a;
	}
	return sum;
}

void dt_marks_fill(const struct dt_marks *m, int64_t at, int64_t n, uint8_t *ret)
{
	memset(ret, m->n == 0, (size_t)n);
	for (int64_t i = run_at(m, at); i < m->n && m->first[i] < at + n; i++) {
		int64_t a = m->first[i] > at ? m->first[i] : at, b = m->end[i] < at + n ? m->end[i] : at + n;

		memset(ret + (a - at), 1, (size_t)(b - a));
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
