/* Tables that are filled once: rotary angles, initial values of parameters. */
#include "nn/exec.h"

#include "base/rng.h"

#include <math.h>

static void rope_table(const struct dt_config *c, double (*frequency)(const struct dt_config *, int64_t),
		       int64_t positions, double by, float *cos_out, float *sin_out)
{
	int64_t half = dt_rope_dim(c) / 2;

	for (int64_t i = 0; i < half; i++) {
		double freq = frequency(c, i);

		for (int64_t t = 0; t < positions; t++) {
			cos_out[t * half + i] = (float)(by * cos((double)t * freq));
			sin_out[t * half + i] = (float)(by * sin((double)t * freq));
		}
	}
}

void dt_rope_table(const struct dt_config *c, int64_t positions, float *cos_out, float *sin_out)
{
	struct dt_config as = *c;

	dt_rope_for_length(&as, positions);
	rope_table(&as, dt_rope_frequency, positions, dt_rope_mscale(&as), cos_out, sin_out);
}

void dt_rope_local_table(const struct dt_config *c, int64_t positions, float *cos_out, float *sin_out)
{
	rope_table(c, dt_rope_local_frequency, positions, 1, cos_out, sin_out);
}

/* Element i of a convolution [out, in kernel^2] initialized as a copy of its first channels. */
static float dirac(const struct dt_param *p, const struct dt_rng *rng, int64_t i)
{
	const int64_t window = p->kernel * p->kernel, in = p->shape[1] / window, row = i / p->shape[1];

	if (row < in)
		return i % p->shape[1] == row * window + window / 2 ? 1 : 0;
	return (float)p->init_std * (2 * dt_rng_uniform(rng, (uint64_t)i) - 1);
}

/* Element i of a vector of Mamba-2. */
static float of_mamba(enum dt_init init, const struct dt_rng *rng, int64_t i)
{
	const double u = (double)dt_rng_uniform(rng, (uint64_t)i), step = 0.001 * pow(100, u);

	/* softplus(y) = step for y = step + log(1 - exp(-step)) */
	return (float)(init == DT_INIT_SSM_STEP ? step + log(-expm1(-step)) : log(1 + 15 * u));
}

void dt_param_init(const struct dt_param *p, const struct dt_local_param *lp, uint64_t seed, int64_t first,
		   int64_t n, float *out)
{
	struct dt_rng rng = dt_rng_make(seed, DT_RNG_INIT, dt_hash_str(p->name));
	int64_t cols = p->ndim == 2 ? lp->shape[1] : lp->shape[0], stride = p->ndim == 2 ? p->shape[1] : 0;
	int64_t row0 = p->ndim == 2 ? lp->off[0] : 0, col0 = p->ndim == 2 ? lp->off[1] : lp->off[0];
	int64_t last = first + n;

	if (p->init == DT_INIT_ONES || p->init == DT_INIT_ZEROS) {
		for (int64_t i = 0; i < n; i++)
			out[i] = p->init == DT_INIT_ONES ? 1.0f : 0.0f;
		return;
	}
	if (p->init == DT_INIT_SSM_STEP || p->init == DT_INIT_SSM_DECAY) {
		for (int64_t i = 0; i < n; i++)
			out[i] = of_mamba(p->init, &rng, col0 + first + i);
		return;
	}
#pragma omp parallel for schedule(static)
	for (int64_t r = first / cols; r <= (last - 1) / cols; r++) {
		int64_t lo = r * cols > first ? r * cols : first,
			hi = (r + 1) * cols < last ? (r + 1) * cols : last;

		if (p->init == DT_INIT_UNIFORM || p->init == DT_INIT_DIRAC) {
			for (int64_t i = lo; i < hi; i++) {
				const int64_t at = (row0 + r) * stride + col0 + i - r * cols;

				out[i - first] =
					p->init == DT_INIT_DIRAC
						? dirac(p, &rng, at)
						: (float)p->init_std *
							  (2 * dt_rng_uniform(&rng, (uint64_t)at) - 1);
			}
			continue;
		}
		dt_rng_fill_normal(&rng, (uint64_t)((row0 + r) * stride + col0 + lo - r * cols),
				   out + (lo - first), (uint64_t)(hi - lo), 0.0f, (float)p->init_std);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
