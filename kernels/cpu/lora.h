/*
 * The two passes of lora.h, for ops that run them in their own parallel region: first h, in units that any
 * thread takes; when all are done, the addition of h b to f32 tiles of outputs.
 */
#ifndef DT_KERNELS_CPU_LORA_H
#define DT_KERNELS_CPU_LORA_H

#include "kernels/lora.h"

#include "kernels/cpu/cpu.h"

struct dt_lora_down {
	struct dt_tensor x;
	const struct dt_lora_batch *p;
	float *h;
	int64_t tile;  /* maximum rows per unit */
	int64_t apart; /* lanes with units of their own: 1 or DT_LORA_LANES */
	int64_t units;
};

struct dt_lora_down dt_lora_down_of(struct dt_tensor x, struct dt_tensor room, const struct dt_lora_batch *p,
				    int threads);
void dt_lora_down(const struct dt_lora_down *d, int64_t unit);

/*
 * Adds the lanes' output to tile [rows, ld], which is rows row .. row + rows and columns col .. col + n, then
 * applies their gains. No panel of a lane may straddle col. shifts: adds the shifts too.
 */
void dt_lora_up(float *tile, int64_t ld, const float *h, const struct dt_lora_batch *p, int64_t row,
		int64_t rows, int64_t col, int64_t n, bool shifts);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
