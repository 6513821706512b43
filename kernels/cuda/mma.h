/*
 * Warp-level tensor core operations and async copies (PTX ISA: mma.sync.m16n8k16, ldmatrix, cp.async; sm_80
 * and later). The 16 x 8 result of a warp: lane l has rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the
 * next, in d[0], d[1] and d[2], d[3].
 */
#ifndef DT_KERNELS_CUDA_MMA_H
#define DT_KERNELS_CUDA_MMA_H

#include "kernels/cuda/kernel.h"

struct dt_bf16 {
	enum { type = DT_BF16 };
};
struct dt_f16 {
	enum { type = DT_F16 };
};

/* Zeroes the sums. */
template <int N> DT_DEVICE void dt_zero(float (&d)[N][4])
{
	DT_UNROLL
	for (int i = 0; i < 4 * N; i++)
		d[i / 4][i % 4] = 0;
}

#ifdef __CUDACC__
DT_DEVICE unsigned dt_shared_address(const void *p)
{
	return (unsigned)__cvta_generic_to_shared(p);
}

/* Copies 16 bytes from global to shared memory; reads only the first n, the others become zero. */
DT_DEVICE void dt_cp_async(void *to, const void *from, int n)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dt_shared_address(to)), "l"(from),
		     "r"(n)
		     : "memory");
}
/* The same for 8 bytes. */
DT_DEVICE void dt_cp_async_8(void *to, const void *from)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(dt_shared_address(to)), "l"(from)
		     : "memory");
}
DT_DEVICE void dt_cp_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> DT_DEVICE void dt_cp_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Loads four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. */
DT_DEVICE void dt_ldmatrix(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(dt_shared_address(row))
		     : "memory");
}
DT_DEVICE void dt_ldmatrix_trans(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(dt_shared_address(row))
		     : "memory");
}

template <class T> DT_DEVICE void dt_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	if ((int)T::type == DT_BF16)
		asm volatile(
			"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
			"{%8,%9}, {%0,%1,%2,%3};"
			: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	else
		asm volatile(
			"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
			"{%8,%9}, {%0,%1,%2,%3};"
			: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d = c + the 16 x 8 products of signed bytes over 32 (16) of k; c is the same for all elements. */
DT_DEVICE void dt_mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int c)
{
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
		     "{%10,%10,%10,%10};"
		     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}
DT_DEVICE void dt_mma_s8(int (&d)[4], const uint32_t (&a)[2], uint32_t b, int c)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
		     "{%7,%7,%7,%7};"
		     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c));
}

/* lo and hi rounded to T, lo in the lower half. */
template <class T> DT_DEVICE uint32_t dt_pack(float lo, float hi)
{
	uint32_t r;

	if ((int)T::type == DT_BF16)
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	else
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}
#else
#define dt_cp_async  dt_emu_cp_async
#define dt_cp_commit dt_emu_cp_commit
static inline void dt_cp_async_8(void *to, const void *from)
{
	dt_emu_cp_async(to, from, 8, 8);
}
template <int LEFT> static inline void dt_cp_wait(void)
{
	dt_emu_cp_wait(LEFT);
}
static inline void dt_ldmatrix(uint32_t (&r)[4], const void *row)
{
	dt_emu_ldmatrix(r, row, false);
}
static inline void dt_ldmatrix_trans(uint32_t (&r)[4], const void *row)
{
	dt_emu_ldmatrix(r, row, true);
}
template <class T> static inline void dt_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	const uint32_t b[2] = {b0, b1};

	dt_emu_mma(d, a, b, (int)T::type == DT_BF16 ? dt_bf16_to_f32 : dt_f16_to_f32);
}
static inline void dt_mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int c)
{
	const uint32_t b[2] = {b0, b1};

	dt_emu_mma_s8(d, a, b, 32, c);
}
static inline void dt_mma_s8(int (&d)[4], const uint32_t (&a)[2], uint32_t b, int c)
{
	dt_emu_mma_s8(d, a, &b, 16, c);
}
template <class T> static inline uint32_t dt_pack(float lo, float hi)
{
	return (uint32_t)dt_narrow(hi, T::type) << 16 | dt_narrow(lo, T::type);
}
#endif

/*
 * A and B fragments of 16-bit tiles in shared memory with a row stride of `stride` elements (a multiple of 8,
 * and 8 more than a multiple of 64, to avoid bank conflicts).
 *   a:       rows row .. row + 15, columns col .. col + 15, as the first operand
 *   b:       the same rows as n, columns as k, of the second: n 0 .. 7 in r[0], r[1]; 8 .. 15 in r[2], r[3]
 *   b_trans: rows as k, columns as n
 */
DT_DEVICE void dt_fragment_a(uint32_t (&r)[4], const uint16_t *tile, int stride, int row, int col)
{
	const int lane = (int)threadIdx.x % 32;

	dt_ldmatrix(r, tile + (row + lane % 16) * stride + col + lane / 16 * 8);
}

DT_DEVICE void dt_fragment_a_trans(uint32_t (&r)[4], const uint16_t *tile, int stride, int row, int col)
{
	const int lane = (int)threadIdx.x % 32;

	/* The tile holds A transposed: its rows are k. */
	dt_ldmatrix_trans(r, tile + (col + lane % 8 + lane / 16 * 8) * stride + row + lane / 8 % 2 * 8);
}

DT_DEVICE void dt_fragment_b(uint32_t (&r)[4], const uint16_t *tile, int stride, int n, int k)
{
	const int lane = (int)threadIdx.x % 32;

	dt_ldmatrix(r, tile + (n + lane % 8 + lane / 16 * 8) * stride + k + lane / 8 % 2 * 8);
}

DT_DEVICE void dt_fragment_b_trans(uint32_t (&r)[4], const uint16_t *tile, int stride, int n, int k)
{
	const int lane = (int)threadIdx.x % 32;

	dt_ldmatrix_trans(r, tile + (k + lane % 16) * stride + n + lane / 16 * 8);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
