#include "kernels/cpu/draws.h"

/* n elements, from number `first` of the stream on. */
static DT_SIMD void noise_part(char *y, enum dt_dtype t, int64_t n, uint64_t first, float width,
			       const struct dt_philox_stream *stream)
{
	float by[DT_CHUNK], z[DT_CHUNK];
	uint16_t narrow[DT_CHUNK];
	const float *old = dt_load(by, y, t, n);
	float *sum = dt_stage(by, y, t);
	uint32_t room[DT_DRAWS];
	const uint32_t *draw = dt_draws(room, stream, first, n);

	for (int64_t j = 0; j < n; j++)
		z[j] = width * dt_noise_of(draw[j]);
	if (t != DT_F32) {
		dt_store((char *)narrow, t, z, n);
		memcpy(z, dt_load(z, (const char *)narrow, t, n), (size_t)n * sizeof *z);
	}
	for (int64_t j = 0; j < n; j++)
		sum[j] = old[j] + z[j];
	dt_store(y, t, sum, n);
}

int dt_cpu_noise(struct dt_dev *dev, struct dt_tensor y, const struct dt_noise *p)
{
	const int64_t rows = dt_rows(y), n = dt_cols(y);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < n; j += DT_CHUNK)
			noise_part(dt_at(y, i * n + j), y.dtype, dt_min64(DT_CHUNK, n - j),
				   (uint64_t)(p->token[i] * n + j), p->width[i], &p->stream);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
