/* Copies of a stream to the host whose data arrives late: once somebody waits for them (queue.h, early). */
#ifndef DT_KERNELS_CUDA_EMULATE_LATE_H
#define DT_KERNELS_CUDA_EMULATE_LATE_H

#include <stddef.h>
#include <stdint.h>

struct dt_emu_late_copy;
struct dt_emu_late {
	struct dt_emu_late_copy *first, **last;
	uint64_t sent, arrived;
};

/* Takes the n bytes at from, as they are now. */
void dt_emu_late_send(struct dt_emu_late *l, void *to, const void *from, size_t n);
/* Delivers copies in their order, until `upto` of all that were sent have arrived. */
void dt_emu_late_arrive(struct dt_emu_late *l, uint64_t upto);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
