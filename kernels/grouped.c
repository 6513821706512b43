/* Argument checks of grouped.h. */
#include "kernels/check.h"

/* Rows per expert in w; 0 if w is absent; -1 if its rows do not divide by experts. */
static int64_t each(struct dt_tensor w, const struct dt_grouped *g)
{
	return !w.data ? 0 : dt_rows(w) % g->experts ? -1 : dt_rows(w) / g->experts;
}

static int check(struct dt_tensor y, struct dt_tensor x, struct dt_tensor w, struct dt_tensor w2,
		 const struct dt_grouped *g, enum dt_dtype weights)
{
	int64_t n, n2;

	if (g->experts < 1 || g->n < g->experts || g->n % g->experts)
		return -EINVAL;
	n = each(w, g);
	n2 = each(w2, g);
	if (n < 1 || n2 < 0 || !dt_is_compute(x.dtype) || y.dtype != x.dtype || w.dtype != weights ||
	    (w2.data && (w2.dtype != weights || dt_cols(w2) != dt_cols(x))) || dt_cols(w) != dt_cols(x) ||
	    dt_cols(y) != n + n2 || dt_rows(y) != dt_rows(x))
		return -EINVAL;
	return 0;
}

int dt_check_grouped_matmul(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			    struct dt_tensor w, struct dt_tensor w2, const struct dt_grouped *g)
{
	return check(y, x, w, w2, g, x.dtype);
}

int dt_check_grouped_matmul_dx(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			       struct dt_tensor w, struct dt_tensor w2, const struct dt_grouped *g)
{
	return check(dy, dx, w, w2, g, dx.dtype);
}

/* Biases of y's columns. */
static int check_biases(struct dt_tensor y, struct dt_tensor b, struct dt_tensor b2,
			const struct dt_grouped *g)
{
	const int64_t n = dt_numel(b), n2 = b2.data ? dt_numel(b2) : 0;

	if (g->experts < 1 || g->n < g->experts || g->n % g->experts || !dt_is_compute(y.dtype) ||
	    !dt_is_compute(b.dtype) || (b2.data && b2.dtype != b.dtype) || n < 1 || n % g->experts ||
	    n2 % g->experts || (n + n2) / g->experts != dt_cols(y))
		return -EINVAL;
	return dt_rows(y) ? 0 : DT_EMPTY;
}

int dt_check_grouped_bias(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor b,
			  struct dt_tensor b2, const struct dt_grouped *g)
{
	return check_biases(y, b, b2, g);
}

int dt_check_grouped_bias_backward(const struct dt_dev *dev, struct dt_tensor db, struct dt_tensor db2,
				   struct dt_tensor dy, const struct dt_grouped *g)
{
	return db.dtype != DT_F32 ? -EINVAL : check_biases(dy, db, db2, g);
}

int dt_check_grouped_matmul_dw(const struct dt_dev *dev, struct dt_tensor dw, struct dt_tensor dw2,
			       struct dt_tensor dy, struct dt_tensor x, const struct dt_grouped *g,
			       bool accumulate)
{
	return check(dy, x, dw, dw2, g, DT_F32);
}
/* SPDX-License-Identifier: Apache-2.0 */
