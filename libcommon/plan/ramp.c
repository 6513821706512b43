#include "plan/ramp.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOST_SAMPLES (1 << 30)
#define MOST_TOKENS  1000000000000000LL

static int form_of(const char *text, struct dt_err *err)
{
	dt_err_set(err, -EINVAL, "--global-batch '%.60s' is neither SAMPLES nor FROM..TO:TOKENS", text);
	dt_err_hint(err, "32..512:4G starts with 32 samples and reaches 512 after 4e9 tokens");
	return -EINVAL;
}

static int one_size(const char *text, struct dt_ramp *ret, int64_t *ret_batch, struct dt_err *err)
{
	int64_t n;
	int rc = dt_parse_int(text, 1, MOST_SAMPLES, &n, err);

	if (rc < 0) {
		dt_err_prefix(err, "option '--global-batch'");
		return rc;
	}
	*ret = (struct dt_ramp){0};
	*ret_batch = n;
	return 0;
}

int dt_ramp_parse(const char *text, struct dt_ramp *ret, int64_t *ret_batch, struct dt_err *err)
{
	const char *dots = strstr(text, ".."), *colon = strchr(text, ':');
	char first[32], second[32];
	struct dt_ramp r;

	if (!dots && !colon)
		return one_size(text, ret, ret_batch, err);
	if (!dots || !colon || colon < dots || dots - text >= (int)sizeof(first) ||
	    colon - dots - 2 >= (int)sizeof(second))
		return form_of(text, err);
	snprintf(first, sizeof(first), "%.*s", (int)(dots - text), text);
	snprintf(second, sizeof(second), "%.*s", (int)(colon - dots - 2), dots + 2);
	if (dt_parse_int(first, 1, MOST_SAMPLES, &r.from, NULL) < 0 ||
	    dt_parse_int(second, 1, MOST_SAMPLES, &r.to, NULL) < 0 ||
	    dt_parse_int(colon + 1, 1, MOST_TOKENS, &r.tokens, NULL) < 0)
		return form_of(text, err);
	if (r.to <= r.from || r.to % r.from) {
		dt_err_set(err, -EINVAL, "--global-batch %s: %lld is not a multiple of %lld", text,
			   (long long)r.to, (long long)r.from);
		dt_err_hint(err, "the batch grows in steps of its first size");
		return -EINVAL;
	}
	*ret = r;
	*ret_batch = r.to;
	return 0;
}

int64_t dt_ramp_at(const struct dt_ramp *r, int64_t token)
{
	const int64_t increments = r->to / r->from - 1;

	if (token >= r->tokens)
		return r->to;
	return r->from * (1 + (int64_t)((__int128)increments * token / r->tokens));
}

const char *dt_ramp_format(const struct dt_ramp *r, int64_t batch, char *buf, size_t n)
{
	if (r->tokens)
		snprintf(buf, n, "%lld..%lld:%lld", (long long)r->from, (long long)r->to,
			 (long long)r->tokens);
	else
		snprintf(buf, n, "%lld", (long long)batch);
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
