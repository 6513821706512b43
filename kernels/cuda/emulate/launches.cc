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

/* Bytes a block can opt in to, by compute capability: CUDA C++ Programming Guide. */
static size_t shared_most(void)
{
	struct dt_gpu_info i;

	if (dt_gpu_info(0, &i) < 0)
		return 48 << 10;
	return (i.major >= 9 ? 227 : i.major == 8 && (i.minor == 0 || i.minor == 7) ? 163 : 99) << 10;
}

/* The same: threads of a block, blocks of a grid, and bytes of arguments that every driver accepts. */
int dt_emu_check(const struct dt_emu_launch *l)
{
	static const size_t most = shared_most();
	const dim3 grid = l->grid, block = l->block;
	const uint64_t threads = (uint64_t)block.x * block.y * block.z;

	if (threads && threads <= DT_EMU_THREADS && block.z <= 64 && threads % 32 == 0 && grid.x && grid.y &&
	    grid.z && grid.x <= INT32_MAX && grid.y <= 65535 && grid.z <= 65535 && l->smem <= most &&
	    l->bytes <= DT_EMU_ARGUMENTS)
		return 0;
	fprintf(stderr,
		"emulated kernel %s: grid %u %u %u, block %u %u %u, %zu bytes shared, %zu of arguments: no "
		"such launch\n",
		l->name, grid.x, grid.y, grid.z, block.x, block.y, block.z, l->smem, l->bytes);
	return -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
