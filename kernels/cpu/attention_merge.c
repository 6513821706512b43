/* Joins attention over two sets of keys, as ring attention computes it. */
#include "kernels/cpu/attention.h"

#include <math.h>

static DT_SIMD void take_in(float *o, const float *part, float share, int64_t d)
{
#pragma omp simd
	for (int64_t j = 0; j < d; j++)
		o[j] += share * (part[j] - o[j]);
}

int dt_cpu_attention_merge(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			   struct dt_tensor part, struct dt_tensor part_lse)
{
	const int64_t batch = lse.dim[0], heads = lse.dim[1], rows = lse.dim[2];
	const int64_t d = dt_cols(o) / heads;
	float *l = lse.data;
	const float *pl = part_lse.data;

#pragma omp parallel for num_threads(dev->nthreads)
	for (int64_t i = 0; i < batch * heads * rows; i++) {
		const int64_t b = i / rows / heads,
			      at = ((b * rows + i % rows) * heads + i / rows % heads) * d;
		const float more = pl[i] - l[i];

		if (pl[i] == -INFINITY)
			continue;
		take_in((float *)o.data + at, (float *)part.data + at, 1 / (1 + expf(-more)), d);
		l[i] = more > 0 ? pl[i] + log1pf(expf(-more)) : l[i] + log1pf(expf(more));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
