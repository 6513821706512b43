#include "plan/draws.h"

#include "plan/entries.h"

#include <string.h>

uint64_t dt_draws_handed_one(const struct dt_param *p, enum dt_dtype compute)
{
	return ((uint64_t)dt_param_numel(p) * dt_dtype_size(compute) + 63) & ~63ull;
}

uint64_t dt_draws_handed(const struct dt_params *table, enum dt_dtype compute)
{
	uint64_t n = 0;

	for (int i = 0; i < table->n; i++)
		n += dt_draws_handed_one(&table->p[i], compute);
	return (n + 4095) & ~4095ull;
}

/* Buffer for weights on their way to an engine: on the host for GPUs, or shared with actors. */
static void put_handed(const struct dt_run *r, struct dt_estimate *e, uint64_t bytes, const char *name,
		       const char *formula)
{
	struct dt_entry *handed =
		dt_entry_put(e, DT_MEM_COMM, (double)bytes, DT_PH_FORWARD, DT_PH_STEP, name, formula);

	if (handed) {
		handed->exactness = DT_EXACT;
		handed->place = r->on_card ? DT_PLACE_HOST : DT_PLACE_DEVICE;
	}
	e->place_bytes[DT_PLACE_HOST] += r->on_card ? bytes : 0;
	e->cat_bytes[DT_MEM_COMM] += r->on_card ? 0 : bytes;
	e->peak_bytes += r->on_card ? 0 : bytes;
}

/* Multiplies an engine's memory by the number of actors. */
static void multiply(struct dt_estimate *e, uint64_t n)
{
	for (int i = 0; i < e->n; i++)
		e->e[i].bytes *= n;
	for (int i = 0; i < DT_EST_CAT_N; i++)
		e->cat_bytes[i] *= n;
	e->peak_bytes *= n;
}

static int put_all_handed(const struct dt_run *r, struct dt_estimate *e, struct dt_err *err)
{
	struct dt_params table;
	uint64_t bytes;
	int rc = dt_model_params(r->config, &table, err);

	if (rc < 0) {
		dt_estimate_release(e);
		return rc;
	}
	bytes = dt_draws_handed(&table, r->compute);
	if (r->on_card)
		put_handed(r, e, bytes, "weights from the GPU", "all parameters");
	if (r->rl.actors)
		put_handed(r, e, 2 * bytes, "weights handed over", "2 x all parameters");
	dt_params_release(&table);
	return 0;
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
					 .max_tokens = DT_DRAWS_TOKENS,
					 .scratch = r->scratch}; /* each engine has a device of its own */

	int rc;

	c.lora = (struct dt_lora){0}; /* adapters are merged into the copy */
	rc = dt_estimate_serve(&s, ret, err);
	if (rc == 0 && r->rl.actors)
		multiply(ret, (uint64_t)r->rl.actors);
	return rc == 0 ? put_all_handed(r, ret, err) : rc;
}

int dt_draws_bytes(const struct dt_run *r, struct dt_draws *ret, struct dt_err *err)
{
	struct dt_estimate e;
	int rc;

	*ret = (struct dt_draws){0};
	if (!r->rl.task)
		return 0;
	rc = dt_draws_estimate(r, &e, err);
	if (rc == 0) {
		ret->bytes = e.peak_bytes;
		ret->host = e.place_bytes[DT_PLACE_HOST];
		memcpy(ret->cat_bytes, e.cat_bytes, sizeof(ret->cat_bytes));
		dt_estimate_release(&e);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
