/* Argument checks of rmsnorm.h. */
#include "kernels/rmsnorm.h"

#include "kernels/check.h"

static bool is_weight(struct dt_tensor w, enum dt_dtype type, int64_t n)
{
	return dt_is(w, type, n) || dt_is(w, DT_F32, n);
}

int dt_check_rmsnorm_forward(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			     struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			     struct dt_tensor w, bool plus_one, float eps)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!rows || !n)
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(y, x.dtype, rows * n) && is_weight(w, x.dtype, n) &&
			       dt_is_or_absent(delta, x.dtype, rows * n) &&
			       (!delta.data || dt_is(sum, x.dtype, rows * n)) &&
			       dt_is_or_absent(rstd, DT_F32, rows)
		       ? 0
		       : -EINVAL;
}

int dt_check_rmsnorm_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			      struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
			      struct dt_tensor rstd, struct dt_tensor w, bool plus_one)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!rows || !n)
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(dx, x.dtype, rows * n) && dt_is(dy, x.dtype, rows * n) &&
			       dt_is_or_absent(dresid, x.dtype, rows * n) && dt_is(rstd, DT_F32, rows) &&
			       is_weight(w, x.dtype, n) && dt_is_or_absent(dw, DT_F32, n)
		       ? 0
		       : -EINVAL;
}

/* Whether x is [rows, width] and wide enough for the heads of p. */
static bool has_heads(struct dt_tensor x, int64_t rows, const struct dt_heads *p)
{
	return dt_is_compute(x.dtype) && x.data && dt_rows(x) == rows && p->first >= 0 && p->heads >= 0 &&
	       p->head_dim >= 0 && (p->first + p->heads) * p->head_dim <= dt_cols(x);
}

/* Whether x can be backward's input: only the n elements of the heads, or a matrix as wide as dy. */
static bool is_operand(struct dt_tensor x, struct dt_tensor dy, int64_t n)
{
	return dt_is(x, dy.dtype, n) || (dt_is(x, dy.dtype, dt_numel(dy)) && dt_cols(x) == dt_cols(dy));
}

/* Whether p->sums is valid: absent, or sums over whole vectors of which these heads are a shard. */
static bool has_sums(const struct dt_heads *p, int64_t all)
{
	return !p->sums.data || (dt_is(p->sums, DT_F32, all) && p->over >= p->head_dim);
}

int dt_check_heads_sums(const struct dt_dev *dev, struct dt_tensor sums, struct dt_tensor x,
			struct dt_tensor dy, struct dt_tensor rstd, struct dt_tensor w, bool plus_one,
			const struct dt_heads *p)
{
	const struct dt_tensor in = dy.data ? dy : x;
	const int64_t rows = dt_rows(in), all = rows * p->heads;

	if (!all || !p->head_dim)
		return DT_EMPTY;
	return has_heads(in, rows, p) && dt_is(sums, DT_F32, all) &&
			       (!dy.data ||
				(dt_is(rstd, DT_F32, all) && is_weight(w, dy.dtype, p->head_dim) &&
				 is_operand(x, dy, all * p->head_dim)))
		       ? 0
		       : -EINVAL;
}

int dt_check_heads_norm_forward(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
				struct dt_tensor raw, struct dt_tensor x, struct dt_tensor w, bool plus_one,
				float eps, const struct dt_heads *p)
{
	const int64_t rows = dt_rows(x), all = rows * p->heads;

	if (!all || !p->head_dim)
		return DT_EMPTY;
	return has_heads(x, rows, p) && dt_is(y, x.dtype, dt_numel(x)) && dt_cols(y) == dt_cols(x) &&
			       dt_is_or_absent(rstd, DT_F32, all) &&
			       dt_is_or_absent(raw, x.dtype, all * p->head_dim) &&
			       is_weight(w, x.dtype, p->head_dim) && has_sums(p, all)
		       ? 0
		       : -EINVAL;
}

int dt_check_heads_norm_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
				 struct dt_tensor dy, struct dt_tensor x, struct dt_tensor rstd,
				 struct dt_tensor w, bool plus_one, const struct dt_heads *p)
{
	const int64_t rows = dt_rows(dx), all = rows * p->heads;

	if (!all || !p->head_dim)
		return DT_EMPTY;
	return has_heads(dx, rows, p) && dt_is(dy, dx.dtype, dt_numel(dx)) && dt_cols(dy) == dt_cols(dx) &&
			       is_operand(x, dx, all * p->head_dim) && has_sums(p, all) &&
			       dt_is(rstd, DT_F32, all) && is_weight(w, dx.dtype, p->head_dim) &&
			       dt_is_or_absent(dw, DT_F32, p->head_dim)
		       ? 0
		       : -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
