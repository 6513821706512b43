#include "nn/embed_noise.h"

#include <errno.h>
#include <stdlib.h>

#define ROWS 64

void dt_noise_draw(const struct dt_rng *rng, int64_t token, float width, float *out, int64_t c)
{
	for (int64_t k = 0; k < c; k++)
		out[k] = width * (2 * dt_rng_uniform(rng, (uint64_t)(token * c + k)) - 1);
}

int dt_noise_add(struct dt_dev *dev, const struct dt_noise *n, struct dt_tensor y)
{
	int64_t rows = y.dim[0], c = y.dim[1], size = dt_dtype_size(y.dtype), m;
	float *drawn = malloc((size_t)(ROWS * c) * sizeof(*drawn) * 2);
	void *own = drawn + ROWS * c; /* in y's type */
	int rc = drawn ? 0 : -ENOMEM;

	for (int64_t r = 0; r < rows && rc == 0; r += m) {
		m = rows - r < ROWS ? rows - r : ROWS;
		struct dt_tensor part = dt_t1((char *)y.data + r * c * size, y.dtype, m * c),
				 noise = dt_t1(drawn, DT_F32, m * c);

		for (int64_t i = 0; i < m; i++)
			dt_noise_draw(&n->rng, n->token[r + i], n->width[r + i], drawn + i * c, c);
		if (y.dtype != DT_F32) {
			rc = dev->ops->convert(dev, dt_t1(own, y.dtype, m * c), noise);
			noise = dt_t1(own, y.dtype, m * c);
		}
		if (rc == 0)
			rc = dev->ops->add(dev, part, part, noise);
	}
	free(drawn);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
