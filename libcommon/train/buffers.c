#include "train/buffers.h"

#include "base/progress.h"
#include "ckpt/source.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Elements of all buffers; 0 where the model has none. */
static int64_t numel(const struct trainer *t)
{
	return t->exec.bn.buffers;
}

static const struct dt_params *table(const struct trainer *t)
{
	return &t->plan.stage.graph.buffers;
}

/* Groups data-parallel neighbours, which have consecutive samples, for batch norm statistics. */
int buffers_group(struct trainer *t, struct dt_err *err)
{
	const int ranks = dt_config_is_image(&t->config) ? dt_run_bn_ranks(&t->run) : 1;

	if (ranks == 1 || ranks == t->run.layout.dp)
		return 0;
	return dt_comm_create(&t->buffers.group, t->world, "batch norms", t->mesh.at.dp / ranks,
			      t->mesh.at.dp, err);
}

int buffers_bind(struct trainer *t, struct dt_err *err)
{
	const int ranks = dt_run_bn_ranks(&t->run);
	const size_t n = (size_t)numel(t);

	if (!dt_dev_is_host(t->dev) && n) {
		t->buffers.host = calloc(n, 2 * sizeof(float));
		if (!t->buffers.host)
			return dt_err_sys(err, -ENOMEM, "running statistics");
		t->exec.bn.running = t->buffers.host;
		t->exec.bn.sum = t->buffers.host + n;
	}

	t->exec.bn.comm = t->buffers.group;
	if (ranks > 1 && ranks == t->run.layout.dp)
		t->exec.bn.comm = dt_mesh_comm(&t->mesh, DT_ON_DATA);
	return 0;
}

void buffers_release(struct trainer *t)
{
	dt_comm_free(t->buffers.group);
	free(t->buffers.host);
}

int buffers_count(const struct trainer *t)
{
	return table(t)->n;
}

int buffers_init(struct trainer *t, struct dt_err *err)
{
	const struct dt_params *b = table(t);
	float *at = t->exec.bn.running;
	int rc = 0;

	for (int i = 0; i < b->n && rc == 0; i++) {
		int64_t n = b->p[i].shape[0];

		if (t->init)
			rc = dt_source_buffer(t->init, b->p[i].name, n, at, err);
		for (int64_t k = 0; k < n && !t->init; k++)
			at[k] = b->p[i].init == DT_INIT_ONES ? 1 : 0;
		at += n;
	}
	return rc;
}

void buffers_begin(struct trainer *t)
{
	if (numel(t))
		memset(t->exec.bn.sum, 0, (size_t)numel(t) * sizeof(float));
}

int buffers_update(struct trainer *t, struct dt_err *err)
{
	const struct dt_run *r = &t->run;
	const int64_t n = numel(t);
	const double batches = (double)(dt_run_bn_groups(r) * dt_run_accumulation(r)) * (double)r->layout.dp;
	const float share = (float)(r->bn_momentum > 0 ? r->bn_momentum : DT_BN_MOMENTUM);
	float *sum = t->exec.bn.sum, *running = t->exec.bn.running;
	double t0 = dt_now();
	int rc;

	if (n == 0)
		return 0;
	rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), sum, NULL, (size_t)n, DT_F32, DT_SUM,
			   "running statistics", err);
	for (int64_t i = 0; i < n && rc == 0; i++)
		running[i] += share * ((float)(sum[i] / batches) - running[i]);
	t->t.comm[TR_OTHER] += dt_now() - t0;
	return rc;
}

int buffers_pieces(const struct trainer *t, struct dt_piece *ret)
{
	const struct dt_params *b = table(t);
	float *at = t->exec.bn.running;

	if (t->info.rank != 0)
		return 0;
	for (int i = 0; i < b->n; i++) {
		ret[i] = (struct dt_piece){.dtype = DT_F32,
					   .ndim = 1,
					   .global = {b->p[i].shape[0]},
					   .shape = {b->p[i].shape[0]},
					   .data = at};
		snprintf(ret[i].name, sizeof(ret[i].name), "model/%s", b->p[i].name);
		at += b->p[i].shape[0];
	}
	return b->n;
}

int buffers_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	const struct dt_params *b = table(t);
	float *to = t->exec.bn.running;
	int rc = 0;

	for (int i = 0; i < b->n && rc == 0; i++) {
		const int64_t off = 0, n = b->p[i].shape[0];
		struct dt_ckpt_tensor have = {0};
		char name[80];
		int at;

		snprintf(name, sizeof(name), "model/%s", b->p[i].name);
		at = dt_ckpt_find(ck, name);
		if (at >= 0)
			dt_ckpt_tensor(ck, at, &have);
		if (at < 0 || have.ndim != 1 || have.shape[0] != n)
			return dt_err_set(err, -EINVAL, "checkpoint '%s' has no '%s' of %lld elements",
					  dt_ckpt_path(ck), name, (long long)n);
		rc = dt_ckpt_read(ck, at, &off, &n, DT_F32, to, err);
		to += n;
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
