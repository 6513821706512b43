#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

/* Elements [c, c + n) of the sum over the heads of row i. */
static DT_SIMD void sum_heads(struct dt_tensor y, struct dt_tensor x, const struct dt_latent_heads *p,
			      int64_t i, int64_t c, int64_t n)
{
	const int64_t to = p->to.at + i * p->to.row + c, from = p->from.at + i * p->from.row + c;
	float sum[DT_CHUNK], buf[DT_CHUNK], *out = dt_stage(sum, dt_at(y, to), y.dtype);

	memset(out, 0, (size_t)n * 4);
	for (int64_t h = 0; h < p->heads; h++) {
		const float *in = dt_load(buf, dt_at(x, from + h * p->from.head), x.dtype, n);

#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			out[j] += in[j];
	}
	dt_store(dt_at(y, to), y.dtype, out, n);
}

struct latent {
	struct dt_tensor y, x;
	const struct dt_latent_heads *p;
};

static void latent_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct latent *a = arg;
	const struct dt_latent_heads *p = a->p;
	const size_t bytes = (size_t)(p->n * dt_dtype_size(a->y.dtype));

	for (int64_t i = first; i < last; i++) {
		for (int64_t c = 0; p->sum && c < p->n; c += DT_CHUNK)
			sum_heads(a->y, a->x, p, i, c, dt_min64(DT_CHUNK, p->n - c));
		for (int64_t h = 0; !p->sum && h < p->heads; h++)
			memcpy(dt_at(a->y, p->to.at + i * p->to.row + h * p->to.head),
			       dt_at(a->x, p->from.at + i * p->from.row + h * p->from.head), bytes);
	}
}

int dt_cpu_latent_heads(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			const struct dt_latent_heads *p)
{
	struct latent a = {y, x, p};

	dt_cpu_rows(dev, p->rows, p->heads * p->n, latent_some, &a);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
