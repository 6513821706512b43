#include "train/whole_step.h"

#include "train/optim_list.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define LARS_ETA       0.001
#define ADAFACTOR_EPS2 1e-3

/* Adds a part to the list, with its weight decay. copy: receives p rounded, if p changes. */
static int add(struct optim_list *l, const struct whole_part *p, struct dt_tensor copy, struct dt_err *err)
{
	l->o.weight_decay = p->decay;
	return p->p.data ? optim_add(l, copy, p->p, p->g, p->state[0], p->state[1], err) : 0;
}

/* Replaces the gradient g of every part by its update direction. */
static int directions(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
		      struct dt_err *err)
{
	struct optim_list l = {.dev = dev, .o = *o};
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++)
		rc = add(&l, &part[i], DT_NONE, err);
	return rc == 0 ? optim_flush(&l, err) : rc;
}

static int norms(struct dt_dev *dev, struct whole_part *part, int n, const struct whole_ranks *ranks,
		 struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		part[i].sums[0] = part[i].sums[1] = 0;
		if (!part[i].p.data)
			continue;
		rc = dev->ops->sumsq(dev, &part[i].sums[0], part[i].p);
		if (rc == 0)
			rc = dev->ops->sumsq(dev, &part[i].sums[1], part[i].g);
	}
	rc = dt_kernel_check(rc, "->sumsq(", err);
	return rc == 0 && ranks->norms ? ranks->norms(ranks->arg, part, n, err) : rc;
}

/* A list that steps p -= rate (g + decay p), where g is the update direction. */
static struct optim_list moves(struct dt_dev *dev)
{
	return (struct optim_list){.dev = dev, .o = {.kind = DT_OPTIM_SGD, .grad_scale = 1, .t = 1}};
}

static int add_move(struct optim_list *l, const struct whole_part *p, double rate, double decay,
		    struct dt_err *err)
{
	l->o.lr = (float)rate;
	l->o.weight_decay = (float)decay;
	return p->p.data ? optim_add(l, p->copy, p->p, p->g, DT_NONE, DT_NONE, err) : 0;
}

static double lamb_ratio(const struct dt_optim *o, const struct whole_part *p)
{
	if (!p->adapted)
		return 1;
	if (o->trust > 0)
		return (double)o->trust;
	return p->sums[0] > 0 && p->sums[1] > 0 ? sqrt(p->sums[0] / p->sums[1]) : 1;
}

static int lamb(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
		const struct whole_ranks *ranks, struct dt_err *err)
{
	struct optim_list l = moves(dev);
	int rc = directions(dev, o, part, n, err);

	if (rc == 0 && !(o->trust > 0))
		rc = norms(dev, part, n, ranks, err);
	for (int i = 0; i < n && rc == 0; i++)
		rc = add_move(&l, &part[i], (double)o->lr * lamb_ratio(o, &part[i]), 0, err);
	return rc == 0 ? optim_flush(&l, err) : rc;
}

static double lars_ratio(const struct dt_optim *o, const struct whole_part *p)
{
	const double w = sqrt(p->sums[0]), g = sqrt(p->sums[1]) * (double)o->grad_scale;

	if (!p->adapted)
		return 1;
	if (o->trust > 0)
		return (double)o->trust;
	return w > 0 && g > 0 ? LARS_ETA * w / (g + (double)p->decay * w) : 1;
}

static int lars(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
		const struct whole_ranks *ranks, struct dt_err *err)
{
	struct optim_list l = {.dev = dev, .o = *o};
	int rc = o->trust > 0 ? 0 : norms(dev, part, n, ranks, err);

	for (int i = 0; i < n && rc == 0; i++) {
		l.o.trust = (float)lars_ratio(o, &part[i]);
		rc = add(&l, &part[i], part[i].copy, err);
	}
	return rc == 0 ? optim_flush(&l, err) : rc;
}

/* Moving averages R or C [n] of the step's sums; *ret: their sum. room [n]: host copy for a device. */
static int average(struct dt_dev *dev, struct dt_tensor state, const double *factors, int64_t n, double keep,
		   float *room, double *ret)
{
	float *r = dt_dev_is_host(dev) ? state.data : room;
	const size_t bytes = (size_t)n * sizeof(*r);
	int rc = 0;

	if (r == room && (rc = dt_dev_copy(dev, r, state.data, bytes)) == 0)
		rc = dt_dev_sync(dev);
	*ret = 0;
	for (int64_t i = 0; i < n && rc == 0; i++)
		*ret += (double)(r[i] = (float)(keep * (double)r[i] + (1 - keep) * factors[i]));
	if (r == room && rc == 0 && (rc = dt_dev_copy(dev, state.data, r, bytes)) == 0)
		rc = dt_dev_sync(dev);
	return rc;
}

/* Sums of squares by row and by column of whole matrices, into each part's factors. */
static int sum_factors(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
		       const struct whole_ranks *ranks, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		const struct dt_factor f = {part[i].rows, part[i].cols, part[i].first, o->grad_scale, 0};

		if (part[i].p.data)
			rc = dev->ops->factor_sums(dev, part[i].factors, part[i].factors + part[i].rows,
						   part[i].g, &f);
	}
	rc = dt_kernel_check(rc, "->factor_sums(", err);
	return rc == 0 && ranks->factors ? ranks->factors(ranks->arg, part, n, err) : rc;
}

static int adafactor_directions(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
				float *room, struct dt_err *err)
{
	const double keep = 1 - pow((double)o->t, -0.8);
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		const struct whole_part *p = &part[i];
		struct dt_factor f = {p->rows, p->cols, p->first, o->grad_scale, 0};
		double rows, cols;

		if (!p->factors)
			continue;
		if ((rc = average(dev, p->state[0], p->factors, p->rows, keep, room, &rows)) < 0 ||
		    (rc = average(dev, p->state[1], p->factors + p->rows, p->cols, keep, room, &cols)) < 0)
			break;
		f.sum = p->cut == 0 ? cols : rows; /* the sum over the whole matrix */
		if (p->p.data)
			rc = dev->ops->factor_direction(dev, part[i].g, part[i].state[0], part[i].state[1],
							&f);
	}
	return dt_kernel_check(rc, "->factor_direction(", err);
}

static int adafactor(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
		     const struct whole_ranks *ranks, struct dt_err *err)
{
	const double rho = fmin((double)o->lr, 1 / sqrt((double)o->t));
	struct optim_list l = moves(dev);
	int64_t room = 0;
	double *sums;
	int rc;

	for (int i = 0; i < n; i++)
		room += part[i].state[0].data ? part[i].rows + part[i].cols : 0;
	sums = calloc(2 * (size_t)room + 1, sizeof(*sums)); /* twice: also host copies of device states */
	if (!sums)
		return dt_err_sys(err, -ENOMEM, "cannot sum squares of gradients");
	room = 0;
	for (int i = 0; i < n; i++) {
		if (!part[i].state[0].data)
			continue;
		part[i].factors = sums + room;
		room += part[i].rows + part[i].cols;
	}
	rc = sum_factors(dev, o, part, n, ranks, err);
	if (rc == 0)
		rc = adafactor_directions(dev, o, part, n, (float *)(sums + room), err);
	if (rc == 0)
		rc = norms(dev, part, n, ranks, err);
	for (int i = 0; i < n && rc == 0; i++) {
		const double size = (double)part[i].numel, rms = sqrt(part[i].sums[1] / size);
		const double alpha = fmax(ADAFACTOR_EPS2, sqrt(part[i].sums[0] / size)) * rho / fmax(1, rms);

		rc = add_move(&l, &part[i], alpha, (double)part[i].decay * (double)o->lr / alpha, err);
	}
	if (rc == 0)
		rc = optim_flush(&l, err);
	free(sums);
	return rc;
}

/* x [rows, cols] as y, whose rows are the shorter side; or y back as x. */
static int turn(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, bool tall)
{
	return tall ? dev->ops->transpose(dev, y, x) : dev->ops->convert(dev, y, x);
}

int whole_orthogonal(struct dt_dev *dev, struct dt_tensor x, enum dt_dtype t, void *room, struct dt_err *err)
{
	const int64_t rows = x.dim[0], cols = x.dim[1], k = rows < cols ? rows : cols, n = rows + cols - k;
	const bool wide = t == DT_F32, tall = rows > cols;
	char *at = room, *squares = at + k * n * 4; /* after one iterate in f32, or two in bf16 */
	struct dt_tensor from = dt_t2(at, t, k, n), to = dt_t2(wide ? x.data : at + k * n * 2, t, k, n), swap,
			 turned = dt_t2(room, t, rows, cols), a = dt_t2(squares, t, k, k),
			 b = dt_t2(squares + k * k * dt_dtype_size(t), t, k, k);
	const struct dt_ops *op = dev->ops;
	double sq;
	int rc = op->sumsq(dev, &sq, x);

	if (rc == 0)
		rc = op->scale(dev, x, (float)(1 / (sqrt(sq) + 1e-7)));
	if (rc == 0)
		rc = turn(dev, from, x, tall);
	for (int i = 0; i < 5 && rc == 0; i++) {
		/* A = X X^T, B = 3.4445 I - 4.7750 A + 2.0315 A A, X = B X */
		if ((rc = op->gram(dev, a, from, 1, DT_NONE, 0, 0)) < 0 ||
		    (rc = op->gram(dev, b, a, 2.0315f, a, -4.7750f, 3.4445f)) < 0 ||
		    (rc = op->matmul(dev, to, b, false, from, false, DT_NONE, false)) < 0)
			break;
		swap = from;
		from = to;
		to = swap;
	}
	/* In f32 the result is in x after an odd number of steps; its sides may still be exchanged. */
	if (rc == 0 && !wide)
		rc = turn(dev, x, from, tall);
	if (rc == 0 && wide && tall)
		rc = op->transpose(dev, turned, from);
	if (rc == 0 && wide && tall)
		rc = op->convert(dev, x, turned);
	return dt_kernel_check(rc, "->gram(", err);
}

/* Matrices (adapted) are orthogonalized; other parameters take AdamW's step. */
static int muon(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
		const struct whole_ranks *ranks, struct dt_err *err)
{
	struct optim_list matrices = {.dev = dev, .o = *o}, rest = matrices, moved = moves(dev);
	int rc = 0;

	rest.o.kind = DT_OPTIM_ADAMW;
	for (int i = 0; i < n && rc == 0; i++)
		rc = part[i].adapted ? add(&matrices, &part[i], DT_NONE, err)
				     : add(&rest, &part[i], part[i].copy, err);
	if (rc == 0)
		rc = optim_flush(&matrices, err);
	if (rc == 0)
		rc = optim_flush(&rest, err);
	for (int i = 0; i < n && rc == 0; i++) {
		const struct whole_part *p = &part[i];
		const double scale = 0.2 * sqrt((double)p->longer);

		if (!p->adapted)
			continue;
		rc = ranks->orthogonal(ranks->arg, part, i, err);
		if (rc == 0)
			rc = add_move(&moved, p, (double)o->lr * scale, (double)p->decay / scale, err);
	}
	return rc == 0 ? optim_flush(&moved, err) : rc;
}

int whole_step(struct dt_dev *dev, const struct dt_optim *o, struct whole_part *part, int n,
	       const struct whole_ranks *ranks, struct dt_err *err)
{
	switch (o->kind) {
	case DT_OPTIM_LARS:
		return lars(dev, o, part, n, ranks, err);
	case DT_OPTIM_LAMB:
		return lamb(dev, o, part, n, ranks, err);
	case DT_OPTIM_ADAFACTOR:
		return adafactor(dev, o, part, n, ranks, err);
	case DT_OPTIM_MUON:
		return muon(dev, o, part, n, ranks, err);
	default:
		return dt_err_set(err, -EINVAL, "%s does not look at whole tensors",
				  dt_optim_rule(o->kind)->name);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
