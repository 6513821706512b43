/*
 * Ops that a card does not compute: each answers -ENOTSUP. A run that needs one is refused by name before
 * it starts (dt_run_check).
 */
#include "kernels/cuda/cuda.h"

#include <errno.h>

#define ABSENT(name, ...)                                                                                    \
	int dt_cuda_##name(struct dt_dev *dev, __VA_ARGS__)                                                  \
	{                                                                                                    \
		return -ENOTSUP;                                                                             \
	}
#define T struct dt_tensor

ABSENT(round_blocks, T w, enum dt_format f)
ABSENT(lora_add, T y, T x, T room, const struct dt_lora_batch *p)
ABSENT(dora_norms, T r, T w, T a, T b, float s)
ABSENT(dora_ratio, T r, T m)
ABSENT(dora_scale, T y, int64_t at, T g, T bias)
ABSENT(dora_backward, T dx, int64_t at, T dm, T u, T r, T bias)
ABSENT(distill_stats, float *kept, float *rest, float *dot, T logits, const float *rowmax,
       const int32_t *targets, const struct dt_distill *p)
ABSENT(distill_grad, T dlogits, T logits, const float *rowmax, const float *sumexp, const float *kept,
       const float *rest, const int32_t *targets, float scale, const struct dt_distill *p)
ABSENT(factor_sums, double *rows, double *cols, T g, const struct dt_factor *f)
ABSENT(factor_direction, T g, T r, T c, const struct dt_factor *f)
/* SPDX-License-Identifier: Apache-2.0 */
