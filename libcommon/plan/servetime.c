/* Rooflines of training and serving, and a server's pass times: sums over the program's nodes. */
#include "plan/stepcost.h"

int dt_train_intensity(const struct dt_config *m, int64_t microbatch, int64_t seq, struct dt_intensity *ret,
		       struct dt_err *err)
{
	const struct dt_run r = {.config = m,
				 .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
				 .microbatch = microbatch,
				 .seq = seq,
				 .compute = DT_BF16};
	struct dt_work w;
	int rc = dt_work_open(&r, &w, err);

	*ret = (struct dt_intensity){w.sum.flops, w.sum.bytes};
	dt_work_release(&w);
	return rc;
}

static int intensity(const struct dt_work_serving *s, struct dt_intensity *ret, struct dt_err *err)
{
	struct dt_work w;
	int rc = dt_work_open_serving(s, &w, err);

	*ret = (struct dt_intensity){w.sum.flops, w.sum.bytes};
	dt_work_release(&w);
	return rc;
}

/* One prompt, whose last token alone needs logits. */
static struct dt_work_serving prefill(const struct dt_config *m, int tp, int64_t tokens, double weight_bits)
{
	return (struct dt_work_serving){.config = m,
					.compute = DT_BF16,
					.tp = tp,
					.rows = tokens,
					.outputs = 1,
					.weight_bits = weight_bits};
}

static struct dt_work_serving decode(const struct dt_config *m, int tp, int64_t batch, int64_t context,
				     double weight_bits, double cache_bits)
{
	return (struct dt_work_serving){.config = m,
					.compute = DT_BF16,
					.tp = tp,
					.rows = batch,
					.outputs = batch,
					.context = context,
					.weight_bits = weight_bits,
					.cache_bits = cache_bits};
}

int dt_prefill_intensity(const struct dt_config *m, int64_t tokens, double weight_bits,
			 struct dt_intensity *ret, struct dt_err *err)
{
	const struct dt_work_serving s = prefill(m, 1, tokens, weight_bits);

	return intensity(&s, ret, err);
}

int dt_decode_intensity(const struct dt_config *m, int64_t batch, int64_t context, double weight_bits,
			double cache_bits, struct dt_intensity *ret, struct dt_err *err)
{
	const struct dt_work_serving s = decode(m, 1, batch, context, weight_bits, cache_bits);

	return intensity(&s, ret, err);
}

static int seconds(const struct dt_cluster *c, const struct dt_work_serving *s, double *ret,
		   struct dt_err *err)
{
	const struct dt_device d = dt_device_for(c, s->tp, s->compute);
	const struct dt_layout l = {.dp = 1, .tp = s->tp, .pp = 1, .cp = 1, .ep = 1};
	struct dt_work w;
	double sum = 0;
	int rc = dt_work_open_serving(s, &w, err);

	for (int64_t layer = -1; rc == 0 && layer <= s->config->layers; layer++) {
		const struct dt_work_unit *u = dt_work_unit(&w, layer);

		for (int i = u->first; i < u->first + u->n; i++)
			sum += w.node[i].cost.message ? dt_message_seconds(c, &w.node[i].cost, &l)
						      : dt_node_seconds(&d, &w.node[i].cost);
	}
	dt_work_release(&w);
	*ret = sum;
	return rc;
}

int dt_prefill_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t tokens,
		    double weight_bits, double *ret, struct dt_err *err)
{
	const struct dt_work_serving s = prefill(m, tp, tokens, weight_bits);

	return seconds(c, &s, ret, err);
}

int dt_decode_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t batch,
		   int64_t context, double weight_bits, double cache_bits, double *ret, struct dt_err *err)
{
	const struct dt_work_serving s = decode(m, tp, batch, context, weight_bits, cache_bits);

	return seconds(c, &s, ret, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
