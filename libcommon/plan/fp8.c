#include "plan/fp8.h"

#include "kernels/fp8.h"

#include <stdio.h>
#include <string.h>

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

void dt_linear_widths(const struct dt_config *c, const struct dt_local_dims *d, int64_t in[DT_STASH_N],
		      int64_t out[DT_STASH_N])
{
	in[DT_S_DOWN] = d->ffn;
	in[DT_S_O] = d->heads * c->head_dim;
	in[DT_S_UP] = in[DT_S_QKV] = c->hidden;
	out[DT_S_DOWN] = out[DT_S_O] = c->hidden;
	out[DT_S_UP] = (c->gated ? 2 : 1) * d->ffn;
	out[DT_S_QKV] = d->qkv;
}

void dt_fp8_plan(const struct dt_run *r, struct dt_coords at, struct dt_fp8_plan *ret)
{
	int64_t tokens = r->microbatch * r->seq, in[DT_STASH_N], out[DT_STASH_N];
	struct dt_local_dims d;

	memset(ret, 0, sizeof(*ret));
	if (!r->fp8)
		return;
	for (int i = 0; i < DT_STASH_N; i++)
		ret->used[i] = true;
	for (int tp = 0; tp < r->layout.tp; tp++) { /* shares may differ by one head or column */
		dt_local_dims(r->config, r->layout.tp, tp, &d);
		dt_linear_widths(r->config, &d, in, out);
		for (int i = 0; i < DT_STASH_N; i++)
			ret->used[i] &= dt_fp8_fits(tokens, in[i], out[i]);
	}
	dt_local_dims(r->config, r->layout.tp, at.tp, &d);
	dt_linear_widths(r->config, &d, in, out);
	for (int i = 0; i < DT_STASH_N; i++) {
		if (!ret->used[i])
			continue;
		ret->nused++;
		ret->rows = max64(ret->rows, tokens * max64(in[i], out[i]));
		ret->turned = max64(ret->turned, tokens * out[i]);
		ret->weight = max64(ret->weight, in[i] * out[i]);
	}
}

const char *dt_fp8_names(const struct dt_fp8_plan *p, bool used, char *buf)
{
	static const enum dt_stash order[DT_STASH_N] = {DT_S_QKV, DT_S_O, DT_S_UP, DT_S_DOWN};
	static const char *const name[DT_STASH_N] = {"down", "up", "o", "qkv"};
	int left = used ? p->nused : DT_STASH_N - p->nused, n = 0;

	buf[0] = '\0';
	for (int i = 0; i < DT_STASH_N; i++) {
		if (p->used[order[i]] != used)
			continue;
		left--;
		n += snprintf(buf + n, (size_t)(32 - n), "%s%s", name[order[i]],
			      left > 1	  ? ", "
			      : left == 1 ? " and "
					  : "");
	}
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
