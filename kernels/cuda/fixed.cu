/* Memory bound: fixed_add moves 20 bytes per element, fixed_get 12, round_random 6. */
#include "kernels/cuda/kernel.h"

__global__ void __launch_bounds__(256) fixed_add_kernel(int64_t *sum, const float *x, int64_t n, int32_t *out)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const float v = dt_ld1(x, DT_F32, i);

		dt_touch(sum + i, 8);
		if (fabsf(v) < DT_FIXED_LIMIT)
			sum[i] += llrint((double)v / DT_FIXED_UNIT);
		else
			*out = 1;
	}
}

int dt_cuda_fixed_add(struct dt_dev *dev, int *ret_out, struct dt_tensor sum, struct dt_tensor x)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(x);
	int32_t *out, got = 0;
	int rc;

	if (!c)
		return -ENODEV;
	out = (int32_t *)dt_cuda_scratch(dev, sizeof *out);
	if (!out)
		return -ENOMEM;
	rc = dt_gpu_set(out, 0, sizeof *out, c->stream);
	if (rc == 0 && n)
		rc = DT_LAUNCH(c, fixed_add_kernel, dt_blocks(c, n, 256), 256, 0, (int64_t *)sum.data,
			       (const float *)x.data, n, out);
	if (rc == 0)
		rc = dt_gpu_copy(&got, out, sizeof got, c->stream);
	if (rc == 0)
		rc = dt_gpu_stream_sync(c->stream);
	*ret_out = got;
	return rc;
}

__global__ void __launch_bounds__(256) fixed_join_kernel(int64_t *sum, const int64_t *other, int64_t n)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		dt_touch(sum + i, 8);
		dt_touch(other + i, 8);
		sum[i] += other[i];
	}
}

int dt_cuda_fixed_join(struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor other)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(sum);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, fixed_join_kernel, dt_blocks(c, n, 256), 256, 0, (int64_t *)sum.data,
			 (const int64_t *)other.data, n);
}

__global__ void __launch_bounds__(256) fixed_get_kernel(float *y, const int64_t *sum, int64_t n)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		dt_touch(sum + i, 8);
		dt_st1(y, DT_F32, i, (float)((double)sum[i] * DT_FIXED_UNIT));
	}
}

int dt_cuda_fixed_get(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(y);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, fixed_get_kernel, dt_blocks(c, n, 256), 256, 0, (float *)y.data,
			 (const int64_t *)sum.data, n);
}

/* One block of four random numbers per thread; the first and the last may be partial. */
__global__ void __launch_bounds__(256)
	round_random_kernel(uint16_t *y, const float *x, int64_t n, struct dt_round p)
{
	const int64_t skip = (int64_t)(p.first % 4), blocks = (skip + n + 3) / 4;
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t b = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += step) {
		const struct dt_philox r = dt_philox_block(&p.stream, p.first / 4 + (uint64_t)b);

		DT_UNROLL
		for (int k = 0; k < 4; k++) {
			const int64_t i = 4 * b + k - skip;

			if (i < 0 || i >= n)
				continue;
			dt_touch(y + i, 2);
			y[i] = dt_round_one(dt_ld1(x, DT_F32, i), r.v[k]);
		}
	}
}

int dt_cuda_round_random(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_round *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(y);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, round_random_kernel, dt_blocks(c, dt_ceil_div(n, 4) + 1, 256), 256, 0,
			 (uint16_t *)y.data, (const float *)x.data, n, *p);
}
/* SPDX-License-Identifier: Apache-2.0 */
