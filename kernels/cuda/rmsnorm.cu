#include "kernels/cuda/norm.h"

/* Contiguous vectors of n elements, one per row. */
static struct dt_norm_place rows_of(int64_t n)
{
	return {1, n, 0};
}

int dt_cuda_rmsnorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			    struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			    struct dt_tensor w, bool plus_one, float eps)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return dt_norm_forward_start<true>(c, {y.data, sum.data, NULL, (float *)rstd.data, x.data, delta.data,
					       w.data, NULL, x.dtype, rows, n, eps, w.dtype, rows_of(n),
					       plus_one, NULL, false});
}

int dt_cuda_settle(struct dt_cuda *c)
{
	const struct dt_late_norm a = c->late;

	if (!a.y)
		return 0;
	c->late.y = NULL;
	return dt_norm_forward_start<true>(c, {a.y, NULL, NULL, NULL, a.x, NULL, a.w, NULL, a.t, a.rows, a.n,
					       a.eps, a.tw, rows_of(a.n), a.plus_one, NULL, false});
}

int dt_cuda_heads_norm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			       struct dt_tensor raw, struct dt_tensor x, struct dt_tensor w, bool plus_one,
			       float eps, const struct dt_heads *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x) * p->heads, n = p->head_dim;

	if (!c)
		return -ENODEV;
	return dt_norm_forward_start<true>(c, {y.data,
					       NULL,
					       NULL,
					       (float *)rstd.data,
					       x.data,
					       NULL,
					       w.data,
					       NULL,
					       x.dtype,
					       rows,
					       n,
					       eps,
					       w.dtype,
					       {p->heads, dt_cols(x), p->first * n},
					       plus_one,
					       raw.data,
					       false,
					       (const float *)p->sums.data,
					       (float)p->over});
}

int dt_cuda_rmsnorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			     struct dt_tensor dy, struct dt_tensor dresid, struct dt_tensor x,
			     struct dt_tensor rstd, struct dt_tensor w, bool plus_one)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);

	if (!c)
		return -ENODEV;
	return dt_norm_backward_start<true>(dev, c,
					    {dx.data, (float *)dw.data, NULL, NULL, dy.data, dresid.data,
					     x.data, w.data, NULL, (const float *)rstd.data, x.dtype, rows, 0,
					     n, w.dtype, rows_of(n), rows_of(n), plus_one, false});
}

int dt_cuda_heads_norm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
				struct dt_tensor dy, struct dt_tensor x, struct dt_tensor rstd,
				struct dt_tensor w, bool plus_one, const struct dt_heads *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(dx) * p->heads, n = p->head_dim;
	const struct dt_norm_place at = {p->heads, dt_cols(dx), p->first * n};

	if (!c)
		return -ENODEV;
	return dt_norm_backward_start<true>(dev, c,
					    {dx.data,
					     (float *)dw.data,
					     NULL,
					     NULL,
					     dy.data,
					     NULL,
					     x.data,
					     w.data,
					     NULL,
					     (const float *)rstd.data,
					     dx.dtype,
					     rows,
					     0,
					     n,
					     w.dtype,
					     at,
					     dt_numel(x) == rows * n ? rows_of(n) : at,
					     plus_one,
					     false,
					     (const float *)p->sums.data,
					     (float)p->over});
}
struct sums {
	float *sums;
	const void *x, *dy, *w;
	const float *rstd;
	int t, tw;
	int64_t rows, n;
	struct dt_norm_place at, x_at; /* of dy, or of x without dy; of x with dy */
	bool plus_one;
};

/* One vector per block. */
static __global__ void __launch_bounds__(128) sums_kernel(struct sums a)
{
	float *scratch = (float *)dt_shared();

	for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
		const int64_t at = dt_norm_element(a.at, i, a.n), x_at = dt_norm_element(a.x_at, i, a.n);
		float s = 0;

		for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
			const float x = dt_ld1(a.x, a.t, x_at + j);

			s += a.dy ? dt_ld1(a.dy, a.t, at + j) *
					     (a.plus_one ? dt_ld1(a.w, a.tw, j) + 1.f
							 : dt_ld1(a.w, a.tw, j)) *
					     (x * dt_at(a.rstd, i))
				  : x * x;
		}
		s = dt_block_sum(s, scratch);
		if (threadIdx.x == 0)
			a.sums[i] = s;
	}
}

int dt_cuda_heads_sums(struct dt_dev *dev, struct dt_tensor sums, struct dt_tensor x, struct dt_tensor dy,
		       struct dt_tensor rstd, struct dt_tensor w, bool plus_one, const struct dt_heads *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dt_tensor in = dy.data ? dy : x;
	const int64_t rows = dt_rows(in) * p->heads, n = p->head_dim;
	const struct dt_norm_place at = {p->heads, dt_cols(in), p->first * n};
	struct sums a = {(float *)sums.data,
			 x.data,
			 dy.data,
			 w.data,
			 (const float *)rstd.data,
			 in.dtype,
			 w.dtype,
			 rows,
			 n,
			 at,
			 at,
			 plus_one};

	if (!c)
		return -ENODEV;
	if (dy.data && dt_numel(x) == rows * n)
		a.x_at = rows_of(n);
	return DT_LAUNCH(c, sums_kernel, dt_blocks(c, rows, 1), 128, 128, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
