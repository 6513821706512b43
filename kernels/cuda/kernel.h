/*
 * Shared by the kernels: launches, rows of f32, bf16 or f16 read as f32, sums over warps and blocks. Compiled
 * by nvcc, or as C++ with emulate/emulate.h instead of a card.
 *
 * Element types are run-time values, not template parameters: every thread of a launch takes the same branch,
 * and these kernels are memory bound. V is the number of elements a thread moves at a time: 8 if all
 * addresses are 16-byte aligned, else 1.
 */
#ifndef DT_KERNELS_CUDA_KERNEL_H
#define DT_KERNELS_CUDA_KERNEL_H

#include "kernels/cuda/cuda.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>

/* clang-format off */
#define DT_LAUNCH(c, kernel, grid, block, smem, ...)                                                         \
	(dt_launch_room((const void *)(kernel), smem),                                                       \
	 (kernel)<<<grid, block, smem, (cudaStream_t)(c)->stream>>>(__VA_ARGS__),                            \
	 cudaGetLastError() == cudaSuccess ? 0 : -EIO)
/* clang-format on */
#define dt_touch(p, n)	((void)0)
#define DT_UNROLL	_Pragma("unroll")
#define DT_UNROLL_BY(n) DT_PRAGMA(unroll n)
#define DT_PRAGMA(p)	_Pragma(#p)

/* Requests more than the default 48 KiB of shared memory. */
static inline void dt_launch_room(const void *kernel, size_t smem)
{
	if (smem > 48 << 10)
		(void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
}

/*
 * A launch that may start, where `early` and in a recorded step on sm_90 or later, while the previous launch
 * of the stream still runs (programmatic dependent launch). Its kernel calls dt_wait_before before it reads
 * or writes memory that another launch of the step writes. No launch writes weights or the step's tables.
 */
template <class... P, class... A>
static inline int dt_launch_early(const struct dt_cuda *c, bool early, void (*kernel)(P...), dim3 grid,
				  unsigned block, size_t smem, const A &...args)
{
	cudaLaunchAttribute at = {};
	cudaLaunchConfig_t l = {};

	at.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	at.val.programmaticStreamSerializationAllowed = 1;
	l.gridDim = grid;
	l.blockDim = block;
	l.dynamicSmemBytes = smem;
	l.stream = (cudaStream_t)c->stream;
	l.attrs = &at;
	l.numAttrs = early && c->recording && c->info.major >= 9;
	dt_launch_room((const void *)kernel, smem);
	return cudaLaunchKernelEx(&l, kernel, args...) == cudaSuccess ? 0 : -EIO;
}
#define DT_LAUNCH_EARLY dt_launch_early

static __device__ __forceinline__ char *dt_shared(void)
{
	extern __shared__ uint4 dt_shared_memory[];

	return (char *)dt_shared_memory;
}
#else
#include "kernels/cuda/emulate/emulate.h"

#define DT_LAUNCH(c, kernel, grid, block, smem, ...)                                                         \
	dt_emu_start((c)->stream, #kernel, kernel, grid, block, smem, __VA_ARGS__)
#define DT_LAUNCH_EARLY(c, early, ...) DT_LAUNCH(c, __VA_ARGS__)
#define dt_touch		       dt_emu_touch
#define DT_UNROLL
#define DT_UNROLL_BY(n)
#define dt_shared dt_emu_shared
#endif

/* Rows of a step whose launches start early. Products of more rows are cuBLASLt's, which do not. */
#define DT_FEW_ROWS 4

#define DT_DEVICE static __device__ __forceinline__
#define DT_ALL	  0xffffffffu

/* In kernels of DT_LAUNCH_EARLY: waits until all earlier launches have ended and their writes are visible. */
DT_DEVICE void dt_wait_before(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next launch start, if it uses DT_LAUNCH_EARLY, once every block has called this or ended. */
DT_DEVICE void dt_let_next(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* dtype.h's conversions as single instructions. */
DT_DEVICE float dt_f16_wide(uint16_t h)
{
#ifdef __CUDA_ARCH__
	float f;

	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
#else
	return dt_f16_to_f32(h);
#endif
}

DT_DEVICE uint16_t dt_narrow(float f, int t)
{
#ifdef __CUDA_ARCH__
	uint16_t h;

	if (t == DT_BF16)
		asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
	else
		asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
#else
	return t == DT_BF16 ? dt_f32_to_bf16(f) : dt_f32_to_f16(f);
#endif
}

/* x as it will be read back after it is stored in type t. */
DT_DEVICE float dt_rounded(float x, int t)
{
	if (t == DT_F32)
		return x;
	const uint16_t h = dt_narrow(x, t);

	return t == DT_BF16 ? dt_bf16_to_f32(h) : dt_f16_wide(h);
}

/* Element i of an array in device memory. */
template <class T> DT_DEVICE T dt_at(const T *p, int64_t i)
{
	dt_touch(p + i, sizeof *p);
	return p[i];
}

/* V elements from element i of p on, of type t; V is 1 or 8, and 8 are aligned to 16 bytes. */
template <int V> DT_DEVICE void dt_ld(float (&r)[V], const void *p, int t, int64_t i)
{
	if (t == DT_F32) {
		const float *f = (const float *)p + i;

		if constexpr (V == 1) {
			dt_touch(f, 4);
			r[0] = *f;
		} else {
			DT_UNROLL
			for (int k = 0; k < V; k += 4) {
				dt_touch(f + k, 16);
				const uint4 u = *(const uint4 *)(f + k);

				memcpy(&r[k], &u, 16);
			}
		}
		return;
	}
	const uint16_t *h = (const uint16_t *)p + i;

	if constexpr (V == 1) {
		dt_touch(h, 2);
		r[0] = t == DT_BF16 ? dt_bf16_to_f32(*h) : dt_f16_wide(*h);
	} else {
		dt_touch(h, 16);
		const uint4 u = *(const uint4 *)h;
		const uint32_t w[4] = {u.x, u.y, u.z, u.w};

		DT_UNROLL
		for (int j = 0; j < 8; j++) {
			const uint16_t v = (uint16_t)(w[j / 2] >> (j % 2 * 16));

			r[j] = t == DT_BF16 ? dt_bf16_to_f32(v) : dt_f16_wide(v);
		}
	}
}

/* Stores 16 bytes to global memory in one instruction. */
DT_DEVICE void dt_put(void *p, const uint4 &u)
{
#ifdef __CUDA_ARCH__
	asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(u.x), "r"(u.y), "r"(u.z), "r"(u.w)
		     : "memory");
#else
	*(uint4 *)p = u;
#endif
}

/*
 * PUT: stores through dt_put. In a loop that steps p itself, nvcc 13.0 loses the alignment of p and emits
 * scalar stores, each of which touches 32 sectors. The machine code shows which: STG.E.128 or STG.E.
 */
template <int V, bool PUT = false> DT_DEVICE void dt_st(void *p, int t, int64_t i, const float (&r)[V])
{
	if (t == DT_F32) {
		float *f = (float *)p + i;

		if constexpr (V == 1) {
			dt_touch(f, 4);
			*f = r[0];
		} else {
			DT_UNROLL
			for (int k = 0; k < V; k += 4) {
				uint4 u;

				memcpy(&u, &r[k], 16);
				dt_touch(f + k, 16);
				if constexpr (PUT)
					dt_put(f + k, u);
				else
					*(uint4 *)(f + k) = u;
			}
		}
		return;
	}
	uint16_t *h = (uint16_t *)p + i;

	if constexpr (V == 1) {
		dt_touch(h, 2);
		*h = dt_narrow(r[0], t);
	} else {
		uint32_t w[4] = {0, 0, 0, 0};

		DT_UNROLL
		for (int j = 0; j < 8; j++)
			w[j / 2] |= (uint32_t)dt_narrow(r[j], t) << (j % 2 * 16);
		dt_touch(h, 16);
		if constexpr (PUT)
			dt_put(h, uint4{w[0], w[1], w[2], w[3]});
		else
			*(uint4 *)h = uint4{w[0], w[1], w[2], w[3]};
	}
}

/* Loads 16 bytes that are read once, bypassing L1. Not moved before dt_wait_before. */
DT_DEVICE uint4 dt_once(const void *p)
{
	dt_touch(p, 16);
#ifdef __CUDA_ARCH__
	uint4 u;

	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(u.x), "=r"(u.y), "=r"(u.z), "=r"(u.w)
		     : "l"(p));
	return u;
#else
	return *(const uint4 *)p;
#endif
}

DT_DEVICE float dt_ld1(const void *p, int t, int64_t i)
{
	float r[1];

	dt_ld<1>(r, p, t, i);
	return r[0];
}

DT_DEVICE void dt_st1(void *p, int t, int64_t i, float v)
{
	const float r[1] = {v};

	dt_st<1>(p, t, i, r);
}

/* a + b, never contracted with a product a. */
DT_DEVICE float dt_plus(float a, float b)
{
#ifdef __CUDA_ARCH__
	return __fadd_rn(a, b);
#else
	return a + b;
#endif
}

/*
 * In a launch over many parts, each with chunks from `first` on: the part that contains a chunk. No part is
 * empty.
 */
template <class P> DT_DEVICE int dt_part_of(const P *part, int n, int64_t chunk)
{
	int at = 0, end = n;

	while (end - at > 1) {
		const int mid = (at + end) / 2;

		if (part[mid].first <= chunk)
			at = mid;
		else
			end = mid;
	}
	return at;
}

template <class T> DT_DEVICE T dt_warp_sum(T v)
{
	for (int by = 16; by; by >>= 1)
		v += __shfl_xor_sync(DT_ALL, v, by);
	return v;
}

/* The maximum dt_magnitude over this many neighbouring lanes. */
DT_DEVICE uint32_t dt_warp_largest(uint32_t v, int lanes)
{
	for (int by = lanes / 2; by; by >>= 1) {
		const uint32_t o = __shfl_xor_sync(DT_ALL, v, by);

		v = o > v ? o : v;
	}
	return v;
}

DT_DEVICE float dt_warp_max(float v)
{
	for (int by = 16; by; by >>= 1) {
		const float o = __shfl_xor_sync(DT_ALL, v, by);

		v = o > v ? o : v;
	}
	return v;
}

/* Returns the sum over the block to every thread, in a fixed order; s: shared, one T per warp. */
template <class T> DT_DEVICE T dt_block_sum(T v, T *s)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;

	v = dt_warp_sum(v);
	__syncthreads(); /* the previous contents have been read */
	if (lane == 0)
		s[warp] = v;
	__syncthreads();
	return dt_warp_sum(lane < warps ? s[lane] : T(0));
}

/* cap tanh(x / cap), accurate to a few ulp; dt_softcap_fast to 1e-7 of cap, from exp2. */
DT_DEVICE float dt_softcap(float x, float cap)
{
	return cap * tanhf(x / cap);
}

DT_DEVICE float dt_softcap_fast(float x, float cap)
{
	return cap - 2.f * cap / (exp2f(x * (2.f * 1.4426950408889634f / cap)) + 1.f);
}

/* ---- host code ---- */

static inline bool dt_aligned(const void *p)
{
	return (uintptr_t)p % 16 == 0;
}

/* Whether contiguous rows of n elements at these addresses can be moved 8 elements at a time. */
template <class... P> bool dt_by_8(int64_t n, P... p)
{
	return n % 8 == 0 && (dt_aligned(p) && ...);
}

/* Number of blocks of `threads` threads for n threads' work: at most enough to fill the card, each then
 * loops. */
static inline unsigned dt_blocks(const struct dt_cuda *c, int64_t n, int64_t threads)
{
	const int64_t want = dt_ceil_div(n, threads), most = (int64_t)c->info.sms * 32;

	return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

static constexpr int64_t DT_GRID_MOST = 65535; /* most blocks of a grid in y, and in z */

/*
 * Launches a grid that may need more blocks than that in y or z, piece by piece: start(first, n) launches
 * blocks [first, first + n).
 */
template <class F> static inline int dt_in_pieces(int64_t all, const F &start)
{
	int rc = 0;

	for (int64_t first = 0; first < all && rc == 0; first += DT_GRID_MOST)
		rc = start(first, (unsigned)dt_min64(DT_GRID_MOST, all - first));
	return rc;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
