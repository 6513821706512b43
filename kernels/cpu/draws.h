/* Numbers of a Philox stream, for loops over the elements of a row. */
#ifndef DT_KERNELS_CPU_DRAWS_H
#define DT_KERNELS_CPU_DRAWS_H

#include "kernels/cpu/cpu.h"
#include "kernels/philox.h"

#define DT_DRAWS (DT_CHUNK + 8) /* buffer size for DT_CHUNK numbers */

/* Generates numbers first .. first + n - 1, n <= DT_CHUNK, in blocks of four. */
static inline const uint32_t *dt_draws(uint32_t room[DT_DRAWS], const struct dt_philox_stream *stream,
				       uint64_t first, int64_t n)
{
	const int64_t skip = (int64_t)(first % 4), blocks = (skip + n + 3) / 4;

	for (int64_t b = 0; b < blocks; b++) {
		const struct dt_philox r = dt_philox_block(stream, first / 4 + (uint64_t)b);

		memcpy(room + 4 * b, r.v, sizeof r.v);
	}
	return room + skip;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
