#include "plan/context.h"

#include <errno.h>

static int64_t heads(const struct dt_run *r)
{
	return r->config->heads / r->layout.tp;
}

static int64_t kv_heads(const struct dt_run *r)
{
	return r->config->kv_heads >= r->layout.tp ? r->config->kv_heads / r->layout.tp : 1;
}

double dt_context_bytes(const struct dt_run *r, enum dt_cp_comm how)
{
	double e = dt_dtype_size(r->compute), s = (double)(r->microbatch * r->seq), g = (double)kv_heads(r);
	double d = (double)(r->config->head_dim + dt_value_dim(r->config)) / 2, cp = r->layout.cp;

	if (how == DT_CP_ULYSSES)
		return 2 * 2 * s / cp * d * ((double)heads(r) + (g > cp ? g : cp)) * e;
	return 2 * s * g * d * (2 * e + 4);
}

bool dt_context_can(const struct dt_run *r, enum dt_cp_comm how)
{
	int64_t cp = r->layout.cp, g = kv_heads(r);

	return how != DT_CP_ULYSSES || (heads(r) % cp == 0 && (g % cp == 0 || cp % g == 0));
}

enum dt_cp_comm dt_context_comm(const struct dt_run *r)
{
	if (r->cp_comm != DT_CP_AUTO)
		return r->cp_comm;
	return dt_context_can(r, DT_CP_ULYSSES) &&
			       dt_context_bytes(r, DT_CP_ULYSSES) < dt_context_bytes(r, DT_CP_GATHER)
		       ? DT_CP_ULYSSES
		       : DT_CP_GATHER;
}

int64_t dt_context_firsts(const struct dt_run *r)
{
	bool whole = r->layout.cp > 1 && dt_context_comm(r) == DT_CP_ULYSSES;

	return r->microbatch * (whole ? r->seq : dt_run_local_seq(r));
}

int dt_context_check(const struct dt_run *r, struct dt_err *err)
{
	int64_t cp = r->layout.cp, chunks = 2 * cp, below = r->seq / chunks * chunks;

	if (cp == 1)
		return 0;
	if (r->seq % chunks) {
		dt_err_set(
			err, -EINVAL,
			"cp%lld cuts a sequence into %lld equal chunks, but %lld tokens are not a multiple",
			(long long)cp, (long long)chunks, (long long)r->seq);
		if (below)
			dt_err_hint(err, "the nearest lengths are %lld and %lld", (long long)below,
				    (long long)(below + chunks));
		else
			dt_err_hint(err, "the nearest length is %lld", (long long)chunks);
		return -EINVAL;
	}
	if (!dt_context_can(r, r->cp_comm)) {
		dt_err_set(err, -EINVAL,
			   "--cp-comm ulysses: cp%lld does not divide the %lld heads and %lld kv heads of a "
			   "rank",
			   (long long)cp, (long long)heads(r), (long long)kv_heads(r));
		dt_err_hint(err, "gather and ring do not cut heads");
		return -EINVAL;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
