/*
 * Mixtures of experts over a step: counts of tokens per expert, their metrics, and the router biases that
 * move towards experts with few tokens (Wang et al. 2024, arXiv 2408.15664). A bias is a parameter without a
 * gradient: the optimizer leaves it alone, checkpoints have it. The router reads it in f32.
 */
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t numel(const struct trainer *t)
{
	return dt_config_blocks_all(&t->config) * t->config.experts;
}

/* Returns n: elements [*ret_first, *ret_first + n) of the unit are in both lp and this rank's shard. */
static int64_t own_part(const struct trainer *t, const struct dt_local_param *lp, int64_t *ret_first)
{
	int64_t lo = lp->flat - t->local.unit[lp->unit].flat, hi = lo + lp->numel,
		s = share_first(t, lp->unit), end = s + share_n(t, lp->unit);

	*ret_first = lo > s ? lo : s;
	return (hi < end ? hi : end) - *ret_first;
}

/* Copies biases between the masters, on the device, and the router's array. store: to the masters. */
static int copy_biases(struct trainer *t, bool store, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		const struct dt_param *p = &t->table.p[lp->index];
		int64_t first, n = own_part(t, lp, &first);
		float *master, *bias;

		if (p->role != DT_W_ROUTER_B || n <= 0)
			continue;
		master = flat_at(t, &t->store.master, lp->unit, first);
		bias = t->experts.bias + p->layer * t->config.experts +
		       (first - (lp->flat - t->local.unit[lp->unit].flat));
		rc = dt_dev_copy(t->dev, store ? master : bias, store ? bias : master,
				 (size_t)n * sizeof(*bias));
	}
	if (rc == 0)
		rc = dt_dev_sync(t->dev);
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy the router's biases") : 0;
}

/* Copies n bytes to or from the device. */
static int move(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err)
{
	int rc = dt_dev_copy(t->dev, to, from, n);

	if (rc == 0)
		rc = dt_dev_sync(t->dev);
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy the experts' counts") : 0;
}

/* Loads the biases from the masters; every rank gets every shard. */
static int load_biases(struct trainer *t, struct dt_err *err)
{
	struct dt_mixture *m = &t->exec.mixture;
	size_t n = (size_t)numel(t);
	int rc;

	if (!t->experts.bias)
		t->experts.bias = malloc(n * sizeof(*t->experts.bias));
	if (!t->experts.bias)
		return dt_err_sys(err, -ENOMEM, "cannot set up the router's biases");
	memset(t->experts.bias, 0, n * sizeof(*t->experts.bias));
	rc = copy_biases(t, false, err);
	if (rc == 0 && t->run.layout.zero)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), t->experts.bias, NULL, n, DT_F32,
				   DT_SUM, "biases of the router", err);
	m->biased = rc == 0;
	return rc < 0 ? rc : move(t, m->bias, t->experts.bias, n * sizeof(*m->bias), err);
}

int experts_begin(struct trainer *t, struct dt_err *err)
{
	struct dt_mixture *m = &t->exec.mixture;
	size_t n = (size_t)numel(t);
	int rc;

	if (!n)
		return 0;
	rc = dt_dev_clear(t->dev, m->count, (n + 3) * sizeof(*m->count)); /* and dropped tokens, losses */
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot count the choices of experts");
	memset(m->seen, 0, n * sizeof(*m->seen));
	m->exposed_s = 0;
	m->scale = t->optim.loss_scale / ((double)source_rows_computed(t) * (double)t->run.seq);
	if (!t->experts.sum) {
		t->experts.sum = calloc(n + 3, sizeof(*t->experts.sum));
		if (!t->experts.sum)
			return dt_err_sys(err, -ENOMEM, "cannot count the choices of experts");
	}
	return t->config.router_bias ? load_biases(t, err) : 0;
}

/* Moves biases towards experts with fewer tokens than the mean; at the mean a bias stays. */
static int move_biases(struct trainer *t, struct dt_err *err)
{
	int64_t experts = t->config.experts;

	for (int64_t l = 0; l < dt_config_blocks_all(&t->config); l++) {
		const double *count = t->experts.sum + l * experts;
		double total = 0;

		for (int64_t e = 0; e < experts; e++)
			total += count[e];
		for (int64_t e = 0; e < experts; e++) {
			double apart = total - count[e] * (double)experts;

			t->experts.bias[l * experts + e] +=
				(float)(t->run.mixture.bias_rate * ((apart > 0) - (apart < 0)));
		}
	}
	return copy_biases(t, true, err);
}

int experts_end(struct trainer *t, bool update, struct dt_err *err)
{
	const struct dt_mixture *m = &t->exec.mixture;
	size_t n = (size_t)numel(t);
	double *sum = t->experts.sum;
	int rc;

	if (!n)
		return 0;
	rc = move(t, sum, m->count, (n + 3) * sizeof(*sum), err);
	if (rc < 0)
		return rc;
	if (t->mesh.at.tp != 0) /* ranks along tp have the same counts: count once */
		memset(sum, 0, n * sizeof(*sum));
	sum[n + 1] = loss_part(t, sum[n + 1] * (double)t->config.experts);
	sum[n + 2] = loss_part(t, sum[n + 2]);
	rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), sum, NULL, n + 3, DT_F64, DT_SUM,
			   "choices of experts", err);
	if (rc == 0 && update && t->experts.bias && t->run.mixture.bias_rate > 0) {
		trainer_before_update(t);
		rc = move_biases(t, err);
	}
	return rc;
}

/* Of a layer: the entropy of the counts over a uniform one's; the largest count over the mean. */
static void look_at_layer(const double *count, int64_t experts, double *entropy, double *largest)
{
	double total = 0, h = 0, most = 0;

	for (int64_t e = 0; e < experts; e++)
		total += count[e];
	for (int64_t e = 0; e < experts && total > 0; e++) {
		double p = count[e] / total;

		h -= p > 0 ? p * log(p) : 0;
		most = p > most ? p : most;
	}
	*entropy = experts > 1 ? h / log((double)experts) : 1;
	*largest = most * (double)experts;
}

/* Adds to the line each layer's counts per expert, and summaries over all layers. */
void experts_metrics(const struct trainer *t, json_t *line)
{
	int64_t experts = t->config.experts, layers = 0;
	double *sum = t->experts.sum, all = 0, entropy = 0, largest = 0,
	       tokens = (double)source_rows_computed(t) * (double)t->run.seq;
	json_t *counts, *of_layer;

	if (!numel(t) || !sum)
		return;
	counts = json_array();
	for (int64_t l = 0; l < dt_config_blocks_all(&t->config); l++) {
		double h, most;

		if (!dt_layer_has_experts(&t->config, l))
			continue;
		of_layer = json_array();
		for (int64_t e = 0; e < experts; e++) {
			json_array_append_new(of_layer, json_integer((json_int_t)sum[l * experts + e]));
			all += sum[l * experts + e];
		}
		json_array_append_new(counts, of_layer);
		look_at_layer(sum + l * experts, experts, &h, &most);
		entropy += h;
		largest = most > largest ? most : largest;
		layers++;
	}
	json_object_set_new(line, "expert_entropy", json_real(layers ? entropy / (double)layers : 1));
	json_object_set_new(line, "expert_largest_load", json_real(largest));
	json_object_set_new(line, "expert_dropped", json_real(all > 0 ? sum[numel(t)] / all : 0));
	json_object_set_new(line, "balance_loss", json_real(sum[numel(t) + 1] / tokens));
	json_object_set_new(line, "z_loss", json_real(sum[numel(t) + 2] / tokens));
	if (t->exec.mixture.ep)
		json_object_set_new(line, "expert_exchange_s", json_real(t->exec.mixture.exposed_s));
	json_object_set_new(line, "expert_counts", counts);
}

void experts_release(struct trainer *t)
{
	free(t->experts.bias);
	free(t->experts.sum);
}
/* SPDX-License-Identifier: Apache-2.0 */
