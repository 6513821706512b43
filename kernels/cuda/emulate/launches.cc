/* What is checked and recorded of each launch. */
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/emulate/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static long launched;

long dt_emu_launches(void)
{
	return launched;
}

void dt_emu_note(const char *name)
{
	static const char *const path = getenv("DT_EMULATED_LAUNCHES");
	static FILE *const f = path ? fopen(path, "w") : NULL;

	launched++;
	if (path && (!f || fprintf(f, "%s\n", name) < 0 || fflush(f) != 0))
		dt_emu_die("DT_EMULATED_LAUNCHES cannot be written");
}

int dt_emu_check(const struct dt_emu_launch *l)
{
	const dim3 grid = l->grid, block = l->block;

	if (block.x * block.y * block.z <= DT_EMU_THREADS && (block.x * block.y * block.z) % 32 == 0 &&
	    grid.x && grid.y && grid.z && grid.y <= 65535 && grid.z <= 65535 && l->smem <= DT_EMU_SHARED)
		return 0;
	fprintf(stderr, "emulated kernel %s: grid %u %u %u, block %u %u %u, %zu bytes: no such launch\n",
		l->name, grid.x, grid.y, grid.z, block.x, block.y, block.z, l->smem);
	return -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
