/* Scratch memory of the device. */
#include "kernels/cpu/cpu.h"

#include <stdlib.h>

void *dt_cpu_scratch(struct dt_dev *dev, size_t n)
{
	struct dt_cpu *cpu = dev->impl;

	if (n > cpu->scratch_n) {
		n = (n + 4095) / 4096 * 4096;
		free(cpu->scratch);
		cpu->scratch = aligned_alloc(64, n);
		cpu->scratch_n = cpu->scratch ? n : 0;
	}
	return cpu->scratch;
}
/* SPDX-License-Identifier: Apache-2.0 */
