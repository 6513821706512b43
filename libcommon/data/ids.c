#include "data/ids.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static int parse_binary(enum dt_ids_form form, const char *s, size_t n, int32_t **ret, size_t *ret_n,
			struct dt_err *err)
{
	size_t each = form == DT_IDS_U16 ? 2 : 4, count = n / each;
	const unsigned char *u = (const unsigned char *)s;
	int32_t *ids;

	if (n % each)
		return dt_err_set(err, -EINVAL,
				  "the input of %zu bytes is not a multiple of the size of an id", n);
	ids = malloc((count + 1) * sizeof(*ids));
	if (!ids)
		return dt_err_sys(err, -ENOMEM, "cannot decode");
	for (size_t i = 0; i < count; i++, u += each)
		ids[i] = each == 2 ? u[0] | u[1] << 8
				   : (int32_t)(u[0] | u[1] << 8 | u[2] << 16 | (uint32_t)u[3] << 24);
	*ret = ids;
	*ret_n = count;
	return 0;
}

static int parse_text(const char *s, size_t n, int32_t **ret, size_t *ret_n, struct dt_err *err)
{
	int32_t *ids = malloc((n / 2 + 1) * sizeof(*ids));
	size_t at = 0, count = 0;

	if (!ids)
		return dt_err_sys(err, -ENOMEM, "cannot decode");
	for (;;) {
		size_t from;
		int64_t v = 0;

		while (at < n && isspace((unsigned char)s[at]))
			at++;
		if (at == n)
			break;
		for (from = at; at < n && isdigit((unsigned char)s[at]) && v <= INT32_MAX; at++)
			v = 10 * v + (s[at] - '0');
		if (at == from || v > INT32_MAX || (at < n && !isspace((unsigned char)s[at]))) {
			while (at < n && at < from + 20 && isgraph((unsigned char)s[at]))
				at++;
			free(ids);
			return dt_err_set(err, -EINVAL, "'%.*s' is not an id", (int)(at - from), s + from);
		}
		ids[count++] = (int32_t)v;
	}
	*ret = ids;
	*ret_n = count;
	return 0;
}

int dt_ids_parse(enum dt_ids_form form, const char *s, size_t n, int32_t **ret, size_t *ret_n,
		 struct dt_err *err)
{
	return form == DT_IDS_TEXT ? parse_text(s, n, ret, ret_n, err)
				   : parse_binary(form, s, n, ret, ret_n, err);
}

void dt_ids_write(enum dt_ids_form form, const int32_t *ids, size_t n, FILE *f)
{
	for (size_t i = 0; i < n && form != DT_IDS_TEXT; i++) {
		unsigned char b[4] = {(unsigned char)ids[i], (unsigned char)(ids[i] >> 8),
				      (unsigned char)(ids[i] >> 16), (unsigned char)(ids[i] >> 24)};

		fwrite(b, 1, form == DT_IDS_U16 ? 2 : 4, f);
	}
	for (size_t i = 0; i < n && form == DT_IDS_TEXT; i++)
		fprintf(f, i ? " %d" : "%d", ids[i]);
	if (form == DT_IDS_TEXT)
		fputc('\n', f);
}
/* SPDX-License-Identifier: Apache-2.0 */
