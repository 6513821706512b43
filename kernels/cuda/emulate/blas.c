/* Emulation without cuBLASLt: only our own products. */
#include "kernels/cuda/cuda.h"

int dt_blas_open(struct dt_blas **ret)
{
	return -ENOTSUP;
}

void dt_blas_close(struct dt_blas *b)
{
}

size_t dt_blas_bytes(const struct dt_blas *b)
{
	return 0;
}

int dt_blas_matmul(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, bool ta,
		   struct dt_tensor w, bool tb, struct dt_tensor bias, bool accumulate, int64_t m, int64_t n,
		   int64_t k, const struct dt_blas_rows *ld)
{
	return -ENOTSUP;
}

int dt_blas_matmul_gelu(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor y,
			struct dt_tensor a, struct dt_tensor w, bool tb, struct dt_tensor bias,
			struct dt_tensor u, int64_t m, int64_t n, int64_t k)
{
	return -ENOTSUP;
}

int dt_blas_fp8(struct dt_blas *b, void *stream, struct dt_tensor c, struct dt_tensor a, const float *sa,
		struct dt_tensor w, const float *sb, struct dt_tensor bias, bool accumulate, int64_t m,
		int64_t n, int64_t k)
{
	return -ENOTSUP;
}
/* SPDX-License-Identifier: Apache-2.0 */
