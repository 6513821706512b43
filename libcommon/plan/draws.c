#include "plan/draws.h"

int dt_draws_estimate(const struct dt_run *r, struct dt_estimate *ret, struct dt_err *err)
{
	struct dt_config c = *r->config;
	const struct dt_serve_shape s = {.config = &c,
					 .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
					 .weights = r->compute == DT_F32 ? DT_WF_F32 : DT_WF_BF16,
					 .account = DT_ACCOUNT_DT,
					 .compute = r->compute,
					 .max_seqs = DT_DRAWS_SEQS,
					 .max_len = r->seq,
					 .block = DT_DRAWS_BLOCK,
					 .max_tokens = DT_DRAWS_TOKENS};

	c.lora = (struct dt_lora){0}; /* adapters are added to the copy */
	return dt_estimate_serve(&s, ret, err);
}

int dt_draws_bytes(const struct dt_run *r, uint64_t *ret, struct dt_err *err)
{
	struct dt_estimate e;
	int rc;

	*ret = 0;
	if (!r->rl.task)
		return 0;
	rc = dt_draws_estimate(r, &e, err);
	if (rc == 0) {
		*ret = e.peak_bytes;
		dt_estimate_release(&e);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
