/*
 * Optimizers that need whole tensors: this rank's parts of them, and the communication with the ranks that
 * hold the others.
 */
#include "train/trainer.h"
#include "train/whole_step.h"

#include <errno.h>
#include <stdlib.h>

/* All-reduces two sums per tensor of the table; each tensor has two places in the message. */
static int sum_norms(void *arg, struct whole_part *part, int n, struct dt_err *err)
{
	struct trainer *t = arg;
	double *v = calloc(2 * (size_t)t->table.n, sizeof(*v));
	int rc = v ? 0 : dt_err_sys(err, -ENOMEM, "cannot sum norms of %d tensors", t->table.n);

	for (int i = 0; i < n && rc == 0; i++)
		for (int k = 0; k < 2 && grads_counted(t, &t->local.p[i]); k++)
			v[2 * t->local.p[i].index + k] += part[i].sums[k];
	if (rc == 0)
		rc = dt_all_reduce(grads_holders(t), v, NULL, 2 * (size_t)t->table.n, DT_F64, DT_SUM,
				   "norms of tensors", err);
	for (int i = 0; i < n && rc == 0; i++)
		for (int k = 0; k < 2; k++)
			part[i].sums[k] = v[2 * t->local.p[i].index + k];
	free(v);
	return rc;
}

/* Whether a part's sums by row (k 0) or by column (k 1) are partial sums, to be added up over tp. */
static bool factor_cut(const struct whole_part *p, int k)
{
	return p->factors && p->cut == !k;
}

/* Copies partial sums to the message or, back, from it; replicas along tp send 0. Returns how many. */
static int64_t factors_cut(struct trainer *t, struct whole_part *part, int n, double *v, bool back)
{
	int64_t at = 0;

	for (int i = 0; i < n; i++)
		for (int k = 0; k < 2; k++) {
			double *f = part[i].factors ? part[i].factors + (k ? part[i].rows : 0) : NULL;
			int64_t m = k ? part[i].cols : part[i].rows;

			if (!factor_cut(&part[i], k))
				continue;
			for (int64_t j = 0; j < m && v; j++)
				if (back)
					f[j] = v[at + j];
				else
					v[at + j] = counts_along_tp(t, &t->local.p[i]) ? f[j] : 0;
			at += m;
		}
	return at;
}

/* All-reduces the sums over the ranks that share a box (ZeRO), then over tp. */
static int sum_factors(void *arg, struct whole_part *part, int n, struct dt_err *err)
{
	struct trainer *t = arg;
	int64_t all = 0, cut = factors_cut(t, part, n, NULL, false);
	double *first = NULL, *v;
	int rc = 0;

	for (int i = 0; i < n; i++) {
		if (!part[i].factors)
			continue;
		first = first ? first : part[i].factors;
		all += part[i].rows + part[i].cols;
	}
	if (t->run.layout.zero && all)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), first, NULL, (size_t)all, DT_F64,
				   DT_SUM, "squares by row and column", err);
	if (rc < 0 || !cut)
		return rc;
	v = malloc((size_t)cut * sizeof(*v));
	if (!v)
		return dt_err_sys(err, -ENOMEM, "cannot sum squares of gradients");
	factors_cut(t, part, n, v, false);
	rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_TP), v, NULL, (size_t)cut, DT_F64, DT_SUM,
			   "squares by row and column", err);
	if (rc == 0)
		factors_cut(t, part, n, v, true);
	free(v);
	return rc;
}

/* Copies elements [at, at + n) of the box, in one row or whole rows, from g to the whole matrix, or back. */
static int copy_box(struct trainer *t, const struct dt_local_param *lp, struct dt_tensor whole, float *g,
		    int64_t at, int64_t n, bool back)
{
	const int64_t cols = lp->shape[1], wide = n < cols ? n : cols, rows = n / wide;
	struct dt_tensor box = dt_t2((float *)whole.data + (lp->off[0] + at / cols) * whole.dim[1], DT_F32,
				     rows, whole.dim[1]),
			 part = dt_t2(g, DT_F32, rows, wide);

	return back ? t->dev->ops->columns(t->dev, part, 0, box, lp->off[1] + at % cols, wide, false)
		    : t->dev->ops->columns(t->dev, box, lp->off[1] + at % cols, part, 0, wide, false);
}

/* Copies all of a part's elements: the rest of a row, whole rows, the start of a row. */
static int copy_part(struct trainer *t, const struct dt_local_param *lp, struct dt_tensor whole,
		     const struct whole_part *p, bool back)
{
	const int64_t cols = lp->shape[1], n = dt_numel(p->g);
	int64_t at = p->first, end = p->first + n;
	int rc = 0;

	while (at < end && rc == 0) {
		int64_t m = at % cols ? cols - at % cols : (end - at) / cols * cols;

		m = m && m < end - at ? m : end - at;
		rc = copy_box(t, lp, whole, (float *)p->g.data + (at - p->first), at, m, back);
		at += m;
	}
	return rc;
}

/* All-reduces the direction of a matrix to each rank that has elements of it and orthogonalizes it. */
static int orthogonal(void *arg, struct whole_part *part, int i, struct dt_err *err)
{
	struct trainer *t = arg;
	const struct dt_local_param *lp = &t->local.p[i];
	const struct dt_param *p = &t->table.p[lp->index];
	float *room = dt_plan_address(&t->plan, t->arena.base, DT_B_WHOLE, -1);
	struct dt_tensor whole = dt_t2(room, DT_F32, p->shape[0], p->shape[1]);
	const bool apart = t->run.layout.zero && dt_layout_data(&t->run.layout) > 1;
	int rc = t->dev->ops->fill(t->dev, whole, 0);

	if (rc == 0 && part[i].p.data && (part[i].cut < 0 || counts_along_tp(t, lp)))
		rc = copy_part(t, lp, whole, &part[i], false);
	rc = dt_kernel_check(rc, "->columns(", err);
	if (rc == 0 && apart)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_DATA), room, NULL, (size_t)dt_numel(whole),
				   DT_F32, DT_SUM, "direction of a matrix", err);
	if (rc == 0 && part[i].cut >= 0)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_TP), room, NULL, (size_t)dt_numel(whole),
				   DT_F32, DT_SUM, "direction of a matrix", err);
	if (rc == 0)
		rc = whole_orthogonal(t->dev, whole, dt_whole_type(t->run.compute), room + dt_numel(whole),
				      err);
	if (rc == 0 && part[i].p.data)
		rc = dt_kernel_check(copy_part(t, lp, whole, &part[i], true), "->columns(", err);
	return rc;
}

/* Fills *ret. If directions have a buffer of their own, copies the gradient there. */
static int bind(struct trainer *t, int i, struct whole_part *ret, struct dt_err *err)
{
	static const struct flat none = {0};
	const struct dt_local_param *lp = &t->local.p[i];
	const struct dt_param *p = &t->table.p[lp->index];
	const struct flat *copy = store_rounds(t) ? &t->store.weights : &none;
	const int64_t start = lp->flat - t->local.unit[lp->unit].flat;
	const bool muon = t->run.optim.kind == DT_OPTIM_MUON;
	struct dt_tensor g;
	int64_t first, n;

	*ret = (struct whole_part){.rows = lp->shape[0],
				   .cols = lp->shape[1],
				   .cut = p->cut != DT_CUT_NONE && t->run.layout.tp > 1 ? p->cut_dim : -1,
				   .numel = dt_param_numel(p),
				   .longer = p->shape[0] > p->shape[1] ? p->shape[0] : p->shape[1],
				   .adapted = muon ? dt_param_is_hidden(p) && !p->frozen : p->ndim > 1,
				   .decay = p->decay ? t->run.optim.weight_decay : 0};
	if (p->frozen)
		return 0;
	for (int k = 0; k < DT_OPTIM_STATES; k++)
		ret->state[k] = optim_state(t, k, i);
	n = dt_states_share(&t->optim.of, i, &first);
	ret->first = first;
	if (!n)
		return 0;
	ret->p = flat_part(t, &t->store.master, lp->unit, start + first, n);
	ret->copy = flat_part(t, copy, lp->unit, start + first, n);
	ret->g = grad_part(t, lp->unit, start + first, n);
	if (!t->optim.direction.p)
		return 0;
	g = ret->g;
	ret->g = flat_part(t, &t->optim.direction, lp->unit, start + first, n);
	return dt_kernel_check(t->dev->ops->convert(t->dev, ret->g, g), "->convert(", err);
}

int whole_update(struct trainer *t, const struct dt_optim *o, struct dt_err *err)
{
	struct whole_part *part = calloc((size_t)t->local.n + 1, sizeof(*part));
	const struct whole_ranks ranks = {
		.arg = t, .norms = sum_norms, .factors = sum_factors, .orthogonal = orthogonal};
	int rc = part ? 0 : dt_err_sys(err, -ENOMEM, "cannot list the tensors to update");

	for (int i = 0; i < t->local.n && rc == 0; i++)
		rc = bind(t, i, &part[i], err);
	if (rc == 0)
		rc = whole_step(t->dev, o, part, t->local.n, &ranks, err);
	free(part);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
