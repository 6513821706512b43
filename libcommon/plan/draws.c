#include "plan/draws.h"

#include "plan/entries.h"

uint64_t dt_draws_handed(const struct dt_params *table, enum dt_dtype compute)
{
	uint64_t n = 0;

	for (int i = 0; i < table->n; i++)
		n += ((uint64_t)dt_param_numel(&table->p[i]) * dt_dtype_size(compute) + 63) & ~63ull;
	return (n + 4095) & ~4095ull;
}

/* Of one engine: so many, and what weights are handed over in. */
static int put_actors(const struct dt_run *r, struct dt_estimate *e, struct dt_err *err)
{
	const uint64_t n = (uint64_t)r->rl.actors;
	struct dt_params table;
	struct dt_entry *handed;
	int rc = dt_model_params(r->config, &table, err);

	for (int i = 0; i < e->n && rc == 0; i++)
		e->e[i].bytes *= n;
	for (int i = 0; i < DT_EST_CAT_N && rc == 0; i++)
		e->cat_bytes[i] *= n;
	if (rc == 0) {
		const uint64_t bytes = 2 * dt_draws_handed(&table, r->compute);

		handed = dt_entry_put(e, DT_MEM_COMM, (double)bytes, DT_PH_FORWARD, DT_PH_STEP,
				      "weights handed over", "2 x all parameters");
		if (handed)
			handed->exactness = DT_EXACT;
		e->cat_bytes[DT_MEM_COMM] += bytes;
		e->peak_bytes = n * e->peak_bytes + bytes;
		dt_params_release(&table);
	} else {
		dt_estimate_release(e);
	}
	return rc;
}

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

	int rc;

	c.lora = (struct dt_lora){0}; /* adapters are added to the copy */
	rc = dt_estimate_serve(&s, ret, err);
	return rc == 0 && r->rl.actors ? put_actors(r, ret, err) : rc;
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
