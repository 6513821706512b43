/*
 * Tile copies by TMA (PTX ISA: cp.async.bulk.tensor, mbarrier; sm_90): one thread issues the copy of a tile,
 * and its readers wait at an mbarrier until the bytes have arrived. wgmma reads such tiles without a fence,
 * as both belong to the async proxy.
 *
 * A sequence of tiles shares SLOTS slots with one mbarrier each. There is no producer thread that waits for
 * free slots: the last of the warps that have used a tile issues the copy of the next tile for its slot, so
 * that warpgroups may be up to SLOTS tiles apart.
 */
#ifndef DT_KERNELS_CUDA_TMA_H
#define DT_KERNELS_CUDA_TMA_H

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/wgmma.h"

#ifdef __CUDACC__
/* A phase of bar ends with the `arrivals`th arrival and the last expected byte. Then call dt_wg_written. */
DT_DEVICE void dt_mbar_init(uint64_t *bar, unsigned arrivals)
{
	DT_WG_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(dt_shared_address(bar)), "r"(arrivals)
		  : "memory");
}

/* One arrival that expects this many bytes. */
DT_DEVICE void dt_mbar_expect(uint64_t *bar, unsigned bytes)
{
	DT_WG_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(dt_shared_address(bar)),
		  "r"(bytes)
		  : "memory");
}

/* Waits for the end of phase 0, 1, 0 ... */
DT_DEVICE void dt_mbar_wait(uint64_t *bar, unsigned parity)
{
	unsigned over = 0;

	while (!over)
		DT_WG_ASM("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
			  "selp.u32 %0, 1, 0, p;}"
			  : "=r"(over)
			  : "r"(dt_shared_address(bar)), "r"(parity)
			  : "memory");
}

/* Copies 64 rows from `row` on, columns col .. col + 63; signals 8192 bytes at bar. */
DT_DEVICE void dt_tile_copy(void *to, const struct dt_gpu_map &map, int col, int row, int head, int batch,
			    uint64_t *bar)
{
	DT_WG_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		  "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(dt_shared_address(to)),
		  "l"(&map), "r"(col), "r"(head), "r"(row), "r"(batch), "r"(dt_shared_address(bar))
		  : "memory");
}

/* Atomic: *p becomes *p + 1, or 0 if it was `most`; returns the old value. Orders this warp's reads before
 * it. */
DT_DEVICE unsigned dt_inc(unsigned *p, unsigned most)
{
	unsigned old = 0;

	DT_WG_ASM("atom.acq_rel.cta.shared::cta.inc.u32 %0, [%1], %2;"
		  : "=r"(old)
		  : "r"(dt_shared_address(p)), "r"(most)
		  : "memory");
	return old;
}

/*
 * Barrier ID, not 0, of N threads: waiters continue when N threads have arrived, waiting or not. A kernel
 * whose barrier numbers are not constants is given all 16 barriers.
 */
template <int ID, int N> DT_DEVICE void dt_named_wait(void)
{
	DT_WG_ASM("bar.sync %0, %1;" ::"n"(ID), "n"(N) : "memory");
}

template <int ID, int N> DT_DEVICE void dt_named_come(void)
{
	DT_WG_ASM("bar.arrive %0, %1;" ::"n"(ID), "n"(N) : "memory");
}
#else
#define dt_mbar_init   dt_emu_mbar_init
#define dt_mbar_expect dt_emu_mbar_expect
#define dt_mbar_wait   dt_emu_mbar_wait
#define dt_tile_copy   dt_emu_tile_copy
#define dt_inc	       dt_emu_inc
template <int ID, int N> static inline void dt_named_wait(void)
{
	dt_emu_named(ID, N, true);
}
template <int ID, int N> static inline void dt_named_come(void)
{
	dt_emu_named(ID, N, false);
}
#endif

/* The mbarriers and counts of a sequence of tiles, in shared memory. */
template <int SLOTS> struct dt_ring {
	uint64_t there[SLOTS];
	unsigned used[SLOTS];
};

/* Called by one thread; a barrier must follow before others use it. */
template <int SLOTS> DT_DEVICE void dt_ring_init(struct dt_ring<SLOTS> &r)
{
	DT_UNROLL
	for (int i = 0; i < SLOTS; i++) {
		dt_mbar_init(&r.there[i], 1);
		r.used[i] = 0;
	}
}

/* Waits for tile j, which is in slot j % SLOTS. */
template <int SLOTS> DT_DEVICE void dt_ring_wait(struct dt_ring<SLOTS> &r, int j)
{
	dt_mbar_wait(&r.there[j % SLOTS], (unsigned)(j / SLOTS % 2));
}

/*
 * Called when the warp has used tile j: returns to one of its threads how many warps did before, ~0 to the
 * others. The last of `warps` must copy tile j + SLOTS; this is tested later, so that nobody waits for the
 * count. Not called for tiles whose slot is not reused.
 */
template <int SLOTS> DT_DEVICE unsigned dt_ring_used(struct dt_ring<SLOTS> &r, int j, int warps)
{
	return threadIdx.x % 32 == 0 ? dt_inc(&r.used[j % SLOTS], (unsigned)warps - 1) : ~0u;
}

DT_DEVICE bool dt_ring_last(unsigned before, int warps)
{
	return before == (unsigned)warps - 1;
}

/* Copies rows [row, row + ROWS) and D columns, ROWS * D * 2 bytes at bar. One thread. */
template <int D, int ROWS>
DT_DEVICE void dt_bring(struct dt_wg_tile<ROWS> t, const struct dt_gpu_map &map, int row, int head, int batch,
			uint64_t *bar)
{
	DT_UNROLL
	for (int c = 0; c < D / 64; c++)
		DT_UNROLL
	for (int i = 0; i < ROWS / 64; i++)
		dt_tile_copy(t.p + (c * ROWS + i * 64) * 64, map, c * 64, row + i * 64, head, batch, bar);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
