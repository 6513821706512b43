/*
 * factor.h: columns are summed by groups of rows, as in groups.h, but in f64; rows one per block. The sums
 * are copied to the host, which waits for them.
 */
#include "kernels/cuda/groups.h"
#include "kernels/factor.h"

struct factor {
	float *g;
	int64_t n, rows, cols, first; /* elements first .. first + n of the matrix */
	double scale;
};

/* (scale g)^2 + 1e-30 of element i of the matrix; 0 if it is not among those given. */
DT_DEVICE double square(const struct factor &f, int64_t i)
{
	if (i < f.first || i >= f.first + f.n)
		return 0;
	const double d = (double)dt_ld1(f.g, DT_F32, i - f.first) * f.scale;

	return d * d + 1e-30;
}

__global__ void __launch_bounds__(256) rows_kernel(double *out, struct factor f)
{
	double s = 0;

	for (int64_t j = threadIdx.x; j < f.cols; j += 256)
		s += square(f, blockIdx.x * f.cols + j);
	s = dt_block_sum(s, (double *)dt_shared());
	if (threadIdx.x == 0)
		out[blockIdx.x] = s;
}

/* A block has 32 columns of `each` rows, each of its 8 warps every 8th row. */
__global__ void __launch_bounds__(256) cols_kernel(double *part, struct factor f, int64_t each)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t j = (int64_t)blockIdx.x * 32 + lane, first = blockIdx.y * each;
	double *s = (double *)dt_shared(), sum = 0;

	for (int64_t i = first + warp; i < dt_min64(first + each, f.rows) && j < f.cols; i += 8)
		sum += square(f, i * f.cols + j);
	s[warp * 32 + lane] = sum;
	__syncthreads();
	if (warp || j >= f.cols)
		return;
	for (int w = 1; w < 8; w++)
		sum += s[w * 32 + lane];
	part[blockIdx.y * f.cols + j] = sum;
}

__global__ void __launch_bounds__(128)
	groups_kernel(double *out, const double *part, int64_t groups, int64_t n)
{
	const int64_t j = (int64_t)blockIdx.x * 128 + threadIdx.x;
	double s = 0;

	for (int64_t i = 0; i < groups && j < n; i++)
		s += part[i * n + j];
	if (j < n)
		out[j] = s;
}

static struct factor factor_of(struct dt_tensor g, const struct dt_factor *f)
{
	return {(float *)g.data, dt_numel(g), f->rows, f->cols, f->first, (double)f->scale};
}

/* Sums by row, then by column, into out on the card. */
static int sums(const struct dt_cuda *c, double *out, const struct factor &f)
{
	const struct dt_row_groups g = dt_row_groups(f.rows);
	const dim3 grid((unsigned)dt_ceil_div(f.cols, 32), (unsigned)g.n);
	double *cols = out + f.rows, *part = cols + f.cols;
	int rc = DT_LAUNCH(c, rows_kernel, (unsigned)f.rows, 256, 256, out, f);

	if (rc == 0)
		rc = DT_LAUNCH(c, cols_kernel, grid, 256, 2048, part, f, g.rows);
	return rc < 0 ? rc
		      : DT_LAUNCH(c, groups_kernel, (unsigned)dt_ceil_div(f.cols, 128), 128, 0, cols,
				  (const double *)part, g.n, f.cols);
}

int dt_cuda_factor_sums(struct dt_dev *dev, double *rows, double *cols, struct dt_tensor g,
			const struct dt_factor *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct factor f = factor_of(g, p);
	const size_t n = (size_t)(f.rows + f.cols);
	double *host, *there;
	int rc;

	if (!c)
		return -ENODEV;
	there = (double *)dt_cuda_scratch(dev,
					  (n + (size_t)(dt_row_groups(f.rows).n * f.cols)) * sizeof *there);
	if (!there)
		return -ENOMEM;
	if ((rc = dt_gpu_host_alloc((void **)&host, n * sizeof *host)) < 0)
		return rc;
	rc = sums(c, there, f);
	if (rc == 0)
		rc = dt_gpu_copy(host, there, n * sizeof *host, c->stream);
	if (rc == 0)
		rc = dt_gpu_stream_sync(c->stream);
	for (int64_t i = 0; i < f.rows && rc == 0; i++)
		rows[i] += host[i];
	for (int64_t j = 0; j < f.cols && rc == 0; j++)
		cols[j] += host[f.rows + j];
	dt_gpu_host_free(host);
	return rc;
}

__global__ void __launch_bounds__(256)
	direction_kernel(struct factor f, const float *r, const float *c, double sum)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < f.n; i += step) {
		const int64_t at = f.first + i;
		const double of_row = f.scale * sqrt(sum / (double)dt_ld1(r, DT_F32, at / f.cols));
		const double g = (double)dt_ld1(f.g, DT_F32, i);

		dt_st1(f.g, DT_F32, i, (float)(g * of_row / sqrt((double)dt_ld1(c, DT_F32, at % f.cols))));
	}
}

int dt_cuda_factor_direction(struct dt_dev *dev, struct dt_tensor g, struct dt_tensor r, struct dt_tensor c,
			     const struct dt_factor *p)
{
	const struct dt_cuda *cu = dt_cuda_enter(dev);
	const struct factor f = factor_of(g, p);

	if (!cu)
		return -ENODEV;
	return DT_LAUNCH(cu, direction_kernel, dt_blocks(cu, f.n, 256), 256, 0, f, (const float *)r.data,
			 (const float *)c.data, p->sum);
}
/* SPDX-License-Identifier: Apache-2.0 */
