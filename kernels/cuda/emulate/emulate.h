/*
 * Emulates the CUDA C++ used by the kernels here on the host: the same .cu files are compiled as C++. The
 * threads of a block are fibers that switch where they wait for each other; blocks run one after another, in
 * unspecified order. Undefined behaviour of a card is made to fail:
 *   - the host cannot access device memory outside launches and copies, nor a kernel past its end;
 *   - shared memory starts as NaN; a misaligned access ends the program;
 *   - so do a barrier or warp operation that not all threads reach, and a copy that is never waited for;
 *   - a tile copy completes only when no thread can continue without it (async.cc).
 */
#ifndef DT_KERNELS_CUDA_EMULATE_H
#define DT_KERNELS_CUDA_EMULATE_H

#include "kernels/cuda/gpu.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
	{
	}
};

struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};

struct alignas(8) uint2 {
	uint32_t x, y;
};
struct alignas(8) float2 {
	float x, y;
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

enum { DT_EMU_THREADS = 1024, DT_EMU_SHARED = 227 << 10 }; /* most threads and bytes of a block */
enum { DT_EMU_ARGUMENTS = 4096 };			   /* most bytes of a launch's arguments */

struct dt_emu_launch {
	void (*body)(void *); /* called once per thread */
	void *arg;
	void (*drop)(void *); /* frees arg after the launch; NULL: arg is not owned */
	dim3 grid, block;
	size_t smem, bytes; /* of shared memory; of arguments */
	const char *name;
};

/* -EINVAL: the launch would fail on a card too. */
int dt_emu_check(const struct dt_emu_launch *l);
/* Queues a launch on a stream (queue.cc), which runs it block by block. -ENOMEM. */
void dt_emu_give(void *stream, const struct dt_emu_launch *l);
int dt_emu_run(const struct dt_emu_launch *l);
char *dt_emu_shared(void);
/* Ends the program unless n bytes at p are aligned to n and lie in device or shared memory. */
void dt_emu_touch(const void *p, size_t n);

template <class F> void dt_emu_call(void *f)
{
	(*(F *)f)();
}

template <class F> void dt_emu_drop(void *f)
{
	delete (F *)f;
}

/* Whether launches are being recorded, with their arguments; and records one. */
bool dt_emu_recording(void);
void dt_emu_record(const struct dt_emu_launch *l);

template <class... P> constexpr size_t dt_emu_bytes(void)
{
	return (sizeof(P) + ... + 0);
}

template <class... P, class... A>
int dt_emu_start(void *stream, const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
		 A... a)
{
	auto body = [=] { kernel(a...); };
	struct dt_emu_launch l = {
		dt_emu_call<decltype(body)>, NULL, dt_emu_drop<decltype(body)>, grid, block, smem,
		dt_emu_bytes<P...>(),	     name};
	int rc = dt_emu_check(&l);

	if (rc < 0)
		return rc;
	l.arg = new decltype(body)(body);
	if (dt_emu_recording())
		dt_emu_record(&l);
	else
		dt_emu_give(stream, &l);
	return 0;
}

void dt_emu_barrier(void);
/* Each lane writes up to 64 bytes to its slot; then all lanes' data is returned, lane i's at i * 64. */
char *dt_emu_slot(void);
const char *dt_emu_meet(const char *what);

template <class T> const char *dt_emu_warp(const T &in, const char *what)
{
	static_assert(sizeof in <= 64, "a slot has 64 bytes");
	memcpy(dt_emu_slot(), &in, sizeof in);
	return dt_emu_meet(what);
}

static inline void __syncthreads(void)
{
	dt_emu_barrier();
}

/* A no-op: blocks run one after another and see each other's writes. */
static inline void __threadfence(void)
{
}

static inline void __syncwarp(void)
{
	(void)dt_emu_meet("__syncwarp");
}

template <class T> T dt_emu_shuffle(T v, int from, const char *what)
{
	const char *all = dt_emu_warp(v, what);

	memcpy(&v, all + from * 64, sizeof v);
	return v;
}

/* Number of the running thread in its block. */
static inline int dt_emu_thread(void)
{
	return (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

static inline int dt_emu_lane(void)
{
	return dt_emu_thread() % 32;
}

template <class T> T __shfl_xor_sync(unsigned mask, T v, int by)
{
	(void)mask;
	return dt_emu_shuffle(v, dt_emu_lane() ^ by, "__shfl_xor_sync");
}

template <class T> T __shfl_sync(unsigned mask, T v, int from)
{
	(void)mask;
	return dt_emu_shuffle(v, from & 31, "__shfl_sync");
}

static inline unsigned __ballot_sync(unsigned mask, int yes)
{
	const char *all = dt_emu_warp(yes, "__ballot_sync");
	unsigned r = 0;

	(void)mask;
	for (int i = 0; i < 32; i++) {
		memcpy(&yes, all + i * 64, sizeof yes);
		r |= (unsigned)(yes != 0) << i;
	}
	return r;
}

static inline int __popc(unsigned v)
{
	return __builtin_popcount(v);
}

/* Not atomic: the threads of a block take turns, and blocks run one after another. */
template <class T> T atomicAdd(T *p, T v)
{
	const T old = *p;

	*p = old + v;
	return old;
}

static inline float rsqrtf(float x)
{
	return 1.f / sqrtf(x);
}

/*
 * PTX ISA: cp.async of 16 (or 8) bytes, of which the last 16 - n are zeros; groups; ldmatrix; mma.m16n8k16,
 * and of signed bytes with k 16 or 32.
 */
void dt_emu_cp_async(void *to, const void *from, int n, int room = 16);
void dt_emu_cp_commit(void);
void dt_emu_cp_wait(int left);
/*
 * PTX ISA: mbarriers in shared memory, with arrivals and expected bytes; cp.async.bulk.tensor of 64 rows of
 * 64 16-bit elements, which signals them; atom.inc; named barriers of n threads.
 */
void dt_emu_mbar_init(uint64_t *bar, unsigned arrivals);
void dt_emu_mbar_expect(uint64_t *bar, unsigned bytes);
void dt_emu_mbar_wait(uint64_t *bar, unsigned parity);
void dt_emu_tile_copy(void *to, const struct dt_gpu_map &map, int col, int row, int head, int batch,
		      uint64_t *bar);
unsigned dt_emu_inc(unsigned *p, unsigned most);
void dt_emu_named(int id, int n, bool wait);
void dt_emu_ldmatrix(uint32_t r[4], const void *row, bool trans);
void dt_emu_mma(float d[4], const uint32_t a[4], const uint32_t b[2], float (*widen)(uint16_t));
void dt_emu_mma_s8(int d[4], const uint32_t *a, const uint32_t *b, int k, int c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
