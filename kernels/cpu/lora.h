/*
 * The two passes of lora.h, for ops that do them in a region of their own: h of units that any threads take,
 * then, when all are done, what h adds to tiles of outputs in f32.
 */
#ifndef DT_KERNELS_CPU_LORA_H
#define DT_KERNELS_CPU_LORA_H

#include "kernels/lora.h"

#include "kernels/cpu/cpu.h"

struct dt_lora_down {
	struct dt_tensor x;
	const struct dt_lora_batch *p;
	float *h;
	int64_t tile;  /* rows of a unit at most */
	int64_t apart; /* lanes that are units of their own: 1 or DT_LORA_LANES */
	int64_t units;
};

struct dt_lora_down dt_lora_down_of(struct dt_tensor x, struct dt_tensor room, const struct dt_lora_batch *p,
				    int threads);
void dt_lora_down(const struct dt_lora_down *d, int64_t unit);

/*
 * tile [rows, ld] += what lanes add to rows row .. row + rows and columns col .. col + n, then times their
 * gains. A panel of a lane that begins in front of col ends there; shifts: added too.
 */
void dt_lora_up(float *tile, int64_t ld, const float *h, const struct dt_lora_batch *p, int64_t row,
		int64_t rows, int64_t col, int64_t n, bool shifts);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
