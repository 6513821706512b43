/* The time of the update from measured operations (plan/optimes.h): the passes that train/ makes. */
#include "plan/states.h"
#include "plan/stepcost.h"

#include "kernels/gram.h"

#include <errno.h>
#include <math.h>

static double op(const struct dt_step_model *m, enum dt_timed what, double n)
{
	return dt_op_seconds(m->c->ops, m->here, what, m->s->compute, n, 1, 1);
}

/* --qat: time to round a matrix to blocks after its weights are gathered. */
static int rounding(const struct dt_step_model *m, const struct dt_param *p, int64_t n, double *sum,
		    struct dt_err *err)
{
	const struct dt_format_info *f;
	enum dt_timed round;

	if (!m->s->qat || p->frozen)
		return 0;
	f = dt_format_info(dt_param_format(m->s->config, p, dt_run_qat(m->s)));
	if (f->dtype >= 0)
		return 0;
	round = dt_timed_round(f->name);
	if (round == DT_T_N || !dt_op_times_has(m->c->ops, round))
		return dt_err_set(err, -ENODATA,
				  "--qat: the operation times have no '" DT_TIMED_ROUND
				  "%s': measure them again (dt-calibrate)",
				  f->name);
	*sum += op(m, round, (double)n);
	return 0;
}

int dt_ops_update(const struct dt_step_model *m, int p, double *ret, struct dt_err *err)
{
	const struct dt_run *s = m->s;
	struct dt_params table = {0};
	struct dt_local local = {0};
	double sum = 0;
	enum dt_timed optim = (enum dt_timed)(DT_T_OPTIM0 + dt_optim_states(s->optim.kind));
	int rc = dt_model_params(s->config, &table, err);

	if (rc == 0)
		rc = dt_local_build(&table, s->config, &s->layout, (struct dt_coords){.pp = p}, &local, err);
	for (int i = 0; i < local.nunit; i++) /* checked for NaN before they are sent */
		sum += local.unit[i].frozen ? 0 : op(m, DT_T_SUMSQ, (double)local.unit[i].numel);
	for (int i = 0; i < local.n; i++) {
		const struct dt_local_unit *u = &local.unit[local.p[i].unit];
		double n = (double)local.p[i].numel * (double)u->share / (double)u->numel;

		if (rc == 0)
			rc = rounding(m, &table.p[local.p[i].index], local.p[i].numel, &sum, err);
		if (table.p[local.p[i].index].frozen)
			continue;
		sum += op(m, DT_T_SUMSQ, n) + op(m, optim, n);
		if (table.p[local.p[i].index].ndim == 1)
			sum += op(m, DT_T_FILL, n);
	}
	if (s->layout.zero && s->compute != DT_F32) /* from masters to the gathered weights */
		for (int i = 0; i < local.nunit; i++)
			sum += local.unit[i].frozen ? 0 : op(m, DT_T_CONVERT, (double)local.unit[i].share);
	dt_local_release(&local);
	dt_params_release(&table);
	if (rc == 0)
		*ret = sum;
	return rc;
}

/* A product [rows, k] [k, cols] of type t. */
static double product(const struct dt_step_model *m, enum dt_dtype t, int64_t rows, int64_t cols, int64_t k)
{
	const struct dt_device d = dt_device_for(m->c, m->here, t);

	if (m->measured)
		return dt_op_seconds(m->c->ops, m->here, DT_T_MUL, t, (double)rows, (double)cols, (double)k);
	return 2 * (double)rows * (double)cols * (double)k / (d.peak_flops * d.matmul_eff);
}

/* Five steps of Newton-Schulz; a CPU computes half of a symmetric product (kernels/gram.h). */
static double orthogonal(const struct dt_step_model *m, const struct dt_param *p)
{
	const int64_t k = p->shape[0] < p->shape[1] ? p->shape[0] : p->shape[1], n = dt_param_numel(p) / k;
	const enum dt_dtype t = dt_whole_type(m->s->compute);
	const double block = fmin(1, DT_GRAM_ROWS / (double)k), part = m->c->cores ? (1 + block) / 2 : 1;

	return 5 * (part * (product(m, t, k, k, n) + product(m, t, k, k, k)) + product(m, t, k, n, k));
}

int dt_ops_orthogonal(const struct dt_step_model *m, int p, double *ret, struct dt_err *err)
{
	struct dt_params table = {0};
	struct dt_local local = {0};
	int rc = dt_model_params(m->s->config, &table, err);

	*ret = 0;
	if (rc == 0)
		rc = dt_local_build(&table, m->s->config, &m->s->layout, (struct dt_coords){.pp = p}, &local,
				    err);
	for (int i = 0; i < local.n && rc == 0; i++) {
		const struct dt_param *of = &table.p[local.p[i].index];

		if (dt_param_is_hidden(of) && !of->frozen)
			*ret += orthogonal(m, of);
	}
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
