/* Opens an executor and its flights: parameters and tables get addresses in planned memory. */
#include "nn/call.h"

#include "plan/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *dt_plan_address(const struct dt_memory_plan *plan, char *base, enum dt_buf_id id, int which)
{
	const struct dt_buf *b = dt_memory_find(plan, id, which);

	return b ? base + b->offset : NULL;
}

void *dt_exec_value(const struct dt_exec *x, const struct dt_flight *f, int value)
{
	return value < 0 ? NULL : x->base + dt_memory_value(x->plan, f->chunk, f->slot, value);
}

static struct dt_tensor view(const struct dt_local_param *lp, const struct dt_param *p, int64_t unit_flat,
			     void *unit, enum dt_dtype dtype)
{
	void *data = (char *)unit + (lp->flat - unit_flat) * dt_dtype_size(dtype);

	return p->ndim == 1 ? dt_t1(data, dtype, lp->shape[0])
			    : dt_t2(data, dtype, lp->shape[0], lp->shape[1]);
}

/* Finds gradients that the first node to compute them overwrites; the last chunk's backward is first. */
static void find_overwritten(struct dt_exec *x, bool *met)
{
	for (int k = x->stage->nchunk - 1; k >= 0; k--) {
		const struct dt_prog *p = &x->stage->chunk[k];

		for (int i = p->start[DT_LIST_LOSS]; i < p->nstep; i++) {
			const struct dt_node *n = &p->step[i].n;
			unsigned flags = dt_node_op_flags(n->op);
			int most = dt_exec_gradients(n);

			for (int j = 0; j < most; j++) {
				int param = n->param[j];

				if (param < 0 || met[param])
					continue;
				met[param] = true;
				x->overwritten[param] = flags & DT_OPF_SETS;
			}
		}
	}
}

static int bind_params(struct dt_exec *x, void *const *weights, float *const *grads)
{
	const struct dt_local *l = &x->stage->local;
	bool *met = calloc((size_t)l->n + 1, sizeof(*met));

	x->w = calloc((size_t)l->n + 1, sizeof(*x->w));
	x->g = calloc((size_t)l->n + 1, sizeof(*x->g));
	x->overwritten = calloc((size_t)l->n + 1, sizeof(*x->overwritten));
	if (met && x->overwritten)
		find_overwritten(x, met);
	free(met);
	if (!met || !x->w || !x->g || !x->overwritten)
		return -ENOMEM;
	for (int i = 0; i < l->n; i++) {
		const struct dt_local_param *lp = &l->p[i];
		const struct dt_param *p = &x->stage->graph.params.p[lp->index];
		int64_t flat = l->unit[lp->unit].flat;

		x->w[i] = view(lp, p, flat, weights[lp->unit], x->dtype);
		if (grads && !p->frozen)
			x->g[i] = view(lp, p, flat, grads[lp->unit], DT_F32);
	}
	return 0;
}

/* Copies n bytes to p on the device, and waits. */
static int put(struct dt_dev *dev, void *p, const void *from, size_t n)
{
	int rc = dt_dev_copy(dev, p, from, n);

	return rc < 0 ? rc : dt_dev_sync(dev);
}

int dt_exec_bind_rope(struct dt_exec *x)
{
	float *rope = dt_plan_address(x->plan, x->base, DT_B_ROPE, -1),
	      *local = dt_plan_address(x->plan, x->base, DT_B_ROPE_LOCAL, -1), *table;
	int64_t half = x->positions * dt_rope_dim(x->c) / 2;
	int rc;

	if (!rope)
		return 0;
	table = malloc((size_t)half * 2 * sizeof(*table));
	if (!table)
		return -ENOMEM;
	dt_rope_table(x->c, x->positions, table, table + half);
	rc = put(x->dev, rope, table, (size_t)half * 2 * sizeof(*table));
	x->rope_cos = rope;
	x->rope_sin = rope + half;
	if (rc == 0 && local) {
		dt_rope_local_table(x->c, x->positions, table, table + half);
		rc = put(x->dev, local, table, (size_t)half * 2 * sizeof(*table));
		x->local_cos = local;
		x->local_sin = local + half;
	}
	free(table);
	return rc;
}

static int bind_positions(struct dt_exec *x)
{
	int64_t rows = x->batch * x->seq;
	int32_t *pos = malloc((size_t)rows * sizeof(*pos));
	int rc;

	x->pos = dt_plan_address(x->plan, x->base, DT_B_POS, -1);
	if (!x->pos) { /* image models have none */
		free(pos);
		return 0;
	}
	if (!pos)
		return -ENOMEM;
	x->host_pos = pos;
	for (int64_t i = 0; i < rows; i++) /* texts with labels are written backwards (train/labelled.h) */
		pos[i] = dt_config_has_labels(x->c)
				 ? (int32_t)(x->seq - 1 - i % x->seq)
				 : (int32_t)dt_zigzag(x->positions, x->cp_size, x->cp_rank, i % x->seq);
	rc = put(x->dev, x->pos, pos, (size_t)rows * sizeof(*pos));
	return rc;
}

static int bind_mixture(struct dt_exec *x, const struct dt_run *r)
{
	struct dt_mixture *m = &x->mixture;
	size_t n = (size_t)(dt_config_blocks_all(x->c) * x->c->experts);

	if (!n)
		return 0;
	m->balance = r->mixture.balance;
	m->z = r->mixture.z;
	m->over = r->mixture.over;
	m->rows = calloc(2 * (size_t)r->layout.ep, sizeof(*m->rows));
	m->under_way = calloc(2 * (size_t)r->layout.ep, sizeof(*m->under_way));
	m->sent = calloc((size_t)x->c->experts, sizeof(*m->sent));
	m->seen = calloc(n, sizeof(*m->seen));
	m->count = dt_plan_address(x->plan, x->base, DT_B_EXPERTS, -1);
	m->dropped = m->count + n;
	m->losses = m->dropped + 1;
	m->bias = (float *)(m->losses + 2);
	if (r->layout.ep > 1 && !dt_dev_is_host(x->dev)) {
		const size_t flights = (size_t)x->plan->flight0[x->stage->nchunk];
		const size_t each = 2 * (size_t)(x->c->experts + 1) * sizeof(*m->told);
		int rc = dt_dev_host_alloc(x->dev, (void **)&m->told,
					   flights * (size_t)dt_config_blocks_all(x->c) * each);

		if (rc < 0)
			return rc;
	}
	return m->rows && m->under_way && m->sent && m->seen ? 0 : -ENOMEM;
}

/* -ENOTSUP, with its name, for an op without a function. */
static int check(const struct dt_exec *x, struct dt_err *err)
{
	for (int k = 0; k < x->stage->nchunk; k++)
		for (int i = 0; i < x->stage->chunk[k].nstep; i++) {
			const struct dt_node *n = &x->stage->chunk[k].step[i].n;

			if (!dt_calls[n->op])
				return dt_err_set(err, -ENOTSUP, "model '%s': %s is not computed in training",
						  x->c->name, dt_node_op_name(n->op));
		}
	return 0;
}

int dt_exec_open(struct dt_exec *x, const struct dt_run *r, struct dt_coords at,
		 const struct dt_memory_plan *plan, char *base, struct dt_comm *tp, struct dt_dev *dev,
		 void *const *weights, float *const *grads, struct dt_err *err)
{
	int rc;

	*x = (struct dt_exec){.c = r->config,
			      .calls = dt_calls,
			      .stage = &plan->stage,
			      .plan = plan,
			      .base = base,
			      .dev = dev,
			      .tp = r->layout.tp > 1 ? tp : NULL,
			      .seq_parallel = r->layout.tp > 1 && r->layout.seq_parallel,
			      .dtype = r->compute,
			      .batch = r->microbatch,
			      .seq = dt_run_local_seq(r),
			      .cp_size = r->layout.cp,
			      .cp_rank = at.cp,
			      .firsts = dt_context_firsts(r),
			      .positions = r->seq,
			      .stream.splits = r->stream_overlap == DT_RUN_OVERLAP_ON,
			      .seed = r->data.seed,
			      .smoothing = (float)r->label_smoothing,
			      .ahead_weight = (float)r->mtp_weight,
			      .bn = {.running = dt_plan_address(plan, base, DT_B_BUFFERS, -1),
				     .sum = dt_plan_address(plan, base, DT_B_BUFFER_SUMS, -1),
				     .buffers = dt_params_total(&plan->stage.graph.buffers)}};
	rc = check(x, err);
	if (rc < 0)
		return rc;
	if ((rc = bind_mixture(x, r)) == 0 && (rc = bind_params(x, weights, grads)) == 0 &&
	    (rc = bind_positions(x)) == 0 &&
	    (rc = x->tp ? dt_stream_open(&x->stream, x->stage, r->layout.tp) : 0) == 0)
		rc = dt_exec_bind_rope(x);
	if (rc < 0) {
		dt_exec_close(x);
		return dt_err_sys(err, rc, "cannot bind the model");
	}
	return 0;
}

void dt_exec_close(struct dt_exec *x)
{
	free(x->pick.row);
	free(x->pick.targets);
	free(x->pick.weights);
	free(x->w);
	free(x->g);
	free(x->overwritten);
	free(x->mixture.rows);
	free(x->mixture.under_way);
	free(x->mixture.sent);
	if (x->mixture.told)
		dt_dev_host_free(x->dev, x->mixture.told);
	free(x->mixture.seen);
	free(x->host_pos);
	dt_stream_close(&x->stream);
	memset(x, 0, sizeof(*x));
}

/* Buffers of a flight that the host writes: the device's address, the host's, and the size. */
enum { INPUTS = 12 };
struct input {
	void *dev, **host;
	size_t n;
};

/* x NULL: without sizes. */
static void inputs(struct dt_flight *f, const struct dt_exec *x, struct input ret[INPUTS])
{
	const size_t each = x ? (size_t)(x->batch * x->seq) * sizeof(int32_t) : 0;
	const size_t k = x ? (size_t)x->teaching.k : 0, samples = x ? (size_t)x->batch * sizeof(int32_t) : 0;
	const struct input all[INPUTS] = {
		{f->ids, (void **)&f->host_ids, each},
		{f->targets, (void **)&f->host_targets, x && dt_config_has_labels(x->c) ? samples : each},
		{f->types, (void **)&f->host_types, each},
		{f->ids_ahead, (void **)&f->host_ids_ahead, each},
		{f->targets_ahead, (void **)&f->host_targets_ahead, each},
		{f->pos, (void **)&f->host_pos, each},
		{f->first, (void **)&f->host_first, x ? (size_t)x->firsts * sizeof(int32_t) : 0},
		{f->pixels, (void **)&f->host_pixels,
		 x ? each * (size_t)(x->c->channels * x->c->image_size * x->c->image_size) : 0},
		{f->others, (void **)&f->host_others, samples},
		{f->share, (void **)&f->host_share, samples},
		{f->columns, (void **)&f->host_columns, each * k},
		{f->probs, (void **)&f->host_probs, each * (k + 1)},
	};

	memcpy(ret, all, sizeof(all));
}

int dt_flight_open(struct dt_flight *f, const struct dt_exec *x, int chunk, int slot, struct dt_err *err)
{
	int number = x->plan->flight0[chunk] + slot, rc = 0;
	size_t each = (size_t)(x->batch * x->seq) * sizeof(int32_t);
	struct input in[INPUTS];

	*f = (struct dt_flight){.chunk = chunk,
				.slot = slot,
				.ids = dt_plan_address(x->plan, x->base, DT_B_IDS, number),
				.targets = dt_plan_address(x->plan, x->base, DT_B_TARGETS, number),
				.types = dt_plan_address(x->plan, x->base, DT_B_TYPES, number),
				.ids_ahead = dt_plan_address(x->plan, x->base, DT_B_IDS_AHEAD, number),
				.targets_ahead =
					dt_plan_address(x->plan, x->base, DT_B_TARGETS_AHEAD, number),
				.pixels = dt_plan_address(x->plan, x->base, DT_B_PIXELS, number),
				.others = dt_plan_address(x->plan, x->base, DT_B_OTHERS, number),
				.share = dt_plan_address(x->plan, x->base, DT_B_SHARE, number),
				.pos = dt_plan_address(x->plan, x->base, DT_B_DOC_POS, number),
				.first = dt_plan_address(x->plan, x->base, DT_B_FIRST, number),
				.columns = dt_plan_address(x->plan, x->base, DT_B_TEACHER, number),
				.probs = dt_plan_address(x->plan, x->base, DT_B_TEACHER_P, number)};
	inputs(f, x, in);
	for (int i = 0; i < INPUTS && rc == 0; i++)
		if (dt_dev_is_host(x->dev))
			*in[i].host = in[i].dev;
		else if (in[i].dev)
			rc = dt_dev_host_alloc(x->dev, in[i].host, in[i].n);
	if (rc == 0 && !dt_dev_is_host(x->dev))
		rc = dt_dev_host_alloc(x->dev, (void **)&f->host_ce,
				       (x->teaching.k ? DT_LOSS_ROWS_TAUGHT : DT_LOSS_ROWS) * each);
	if (rc == 0)
		return 0;
	dt_flight_close(f, x->dev);
	return dt_err_sys(err, rc, "cannot allocate the input buffers");
}

void dt_flight_close(struct dt_flight *f, struct dt_dev *dev)
{
	struct input in[INPUTS];

	inputs(f, NULL, in);
	for (int i = 0; i < INPUTS; i++)
		if (*in[i].host != in[i].dev)
			dt_dev_host_free(dev, *in[i].host);
	dt_dev_host_free(dev, f->host_ce);
	memset(f, 0, sizeof(*f));
}

int dt_flight_upload(const struct dt_flight *f, const struct dt_exec *x, struct dt_err *err)
{
	struct dt_flight copy = *f;
	struct input in[INPUTS];
	int rc = 0;

	if (dt_dev_is_host(x->dev))
		return 0;
	inputs(&copy, x, in);
	for (int i = 0; i < INPUTS && rc == 0; i++)
		if (in[i].dev)
			rc = dt_dev_copy(x->dev, in[i].dev, *in[i].host, in[i].n);
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy samples to the device") : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
