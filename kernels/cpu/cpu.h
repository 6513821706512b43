/*
 * Shared by the CPU ops: the device's state, parallel ranges, and rows of f32, bf16 or f16 read as f32.
 *
 * OpenMP outlines the body of a parallel region into a function that target_clones does not clone, so every
 * op is a parallel loop that calls a DT_SIMD function (simd.h) for a row or a chunk.
 */
#ifndef DT_KERNELS_CPU_H
#define DT_KERNELS_CPU_H

#include "kernels/ops.h"
#include "kernels/shape.h"
#include "kernels/simd.h"

#include <errno.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#define DT_CHUNK  2048 /* elements per elementwise chunk */
#define DT_GROUPS 64   /* number of row groups whose parameter gradients are summed separately */
#define DT_SERIAL 8192 /* elements below which a second thread does not pay */

struct dt_conv_cache;
struct dt_matmul_cache;
struct dt_ragged_prims;

struct dt_cpu {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct dt_matmul_cache *matmul;
	struct dt_conv_cache *conv;
	struct dt_ragged_prims *ragged;
};

/* scratch.c. What NAME_scratch is to be asked with for ops on this device. */
struct dt_scratch_on dt_cpu_scratch_on(const struct dt_dev *dev);
/*
 * A buffer of scratch of at least n bytes, 64-byte aligned, contents undefined, valid until the next call for
 * this buffer. NULL: out of memory. dt_cpu_scratch: DT_SCRATCH_OP.
 */
void *dt_cpu_scratch_of(struct dt_dev *dev, enum dt_scratch_buffer b, size_t n);
void *dt_cpu_scratch(struct dt_dev *dev, size_t n);
int dt_cpu_scratch_reserve(struct dt_dev *dev, const struct dt_scratch *s);
/* Memory of whole pages, huge ones if it is large; *n: bytes, raised to that. NULL: out of memory. */
void *dt_cpu_room(size_t *n);

void dt_cpu_matmul_release(struct dt_cpu *cpu);
size_t dt_cpu_matmul_bytes(const struct dt_cpu *cpu);
bool dt_cpu_matmul_rows_apart(struct dt_dev *dev, enum dt_dtype dtype, int64_t m, int64_t k, int64_t n,
			      bool tb, bool bias);
int dt_cpu_columns_matmul(struct dt_dev *dev, const struct dt_columns_product *p);
void dt_cpu_conv_release(struct dt_cpu *cpu);
size_t dt_cpu_conv_bytes(const struct dt_cpu *cpu);

/* c [m, n] f32 = (accumulate ? c : 0) + op(a) op(b), a and b bf16 with row strides lda, ldb as stored;
 * only where !dt_cpu_widens(DT_BF16). */
struct dt_ragged {
	float *c;
	const void *a, *b;
	int64_t m, n, k, lda, ldb, ldc;
	bool ta, tb, accumulate;
};
int dt_cpu_ragged(struct dt_dev *dev, const struct dt_ragged *r);
void dt_cpu_ragged_release(struct dt_cpu *cpu);

#define DT_OP(name, params, args, memory) int dt_cpu_##name(struct dt_dev *dev, DT_LIST params);
#include "kernels/ops.list"

/* dt_scratch_widens of this processor. */
bool dt_cpu_widens(enum dt_dtype t);

/*
 * Gives oneDNN's primitives, which are made for n threads, exactly n: one that gets fewer
 * leaves out their parts, as under OMP_DYNAMIC. Returns the number before, for omp_set_num_threads.
 */
static inline int dt_cpu_set_threads(int n)
{
	const int before = omp_get_max_threads();

	omp_set_dynamic(0);
	omp_set_num_threads(n);
	return before;
}

/* x = f(x) times x of `up` columns further: n columns of each row, ld apart. Fastest for 32 columns. */
void dt_cpu_gate(float *x, int64_t ld, int64_t up, int64_t rows, int64_t n, enum dt_act_fn f);

DT_INLINE void dt_widen(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_bf16_to_f32(x[i]);
}

DT_INLINE void dt_narrow(uint16_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_f32_to_bf16(x[i]);
}

DT_INLINE void dt_widen_half(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_f16_to_f32(x[i]);
}

DT_INLINE void dt_narrow_half(uint16_t *y, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = dt_f32_to_f16(x[i]);
}

/* The n elements at p (type t) as f32: p itself, or converted into buf. */
DT_INLINE const float *dt_load(float *buf, const void *p, enum dt_dtype t, int64_t n)
{
	if (t == DT_F32)
		return p;
	if (t == DT_F16)
		dt_widen_half(buf, p, n);
	else
		dt_widen(buf, p, n);
	return buf;
}

/* Where to write f32 results for p (type t): p itself, or buf, which dt_store then rounds into p. */
DT_INLINE float *dt_stage(float *buf, void *p, enum dt_dtype t)
{
	return t == DT_F32 ? p : buf;
}

DT_INLINE void dt_store(void *p, enum dt_dtype t, const float *buf, int64_t n)
{
	if (t == DT_F16)
		dt_narrow_half(p, buf, n);
	else if (t != DT_F32)
		dt_narrow(p, buf, n);
}

/* Whether dt_prefetch_ahead is faster through L1 on this processor (isa.c). */
extern bool dt_prefetch_near;

/*
 * Prefetches the line at p, which the next block of work reads, into L2: beside the current operands L1 has
 * no room for it, and takes few lines at a time from memory. On Zen 4 one token's attention reads 20 GB/s
 * this way and 12 GB/s through L1; four rows times Q4_0 take 0.6 of the time that they take with lines that
 * skip L2 (nta). On Zen 5 it is the other way round: one row times Q8_0 reads 80 GB/s through L1 and 67 GB/s
 * this way, where plain loads read 90.
 */
DT_INLINE void dt_prefetch_ahead(const void *p)
{
	if (dt_prefetch_near)
		__builtin_prefetch(p, 0, 3);
	else
		__builtin_prefetch(p, 0, 2);
}

/* The same for n bytes at p. The empty statement has an effect, as far as the compiler knows: gcc removes
 * calls of functions that only prefetch. */
DT_INLINE void dt_prefetch_lines(const void *p, int64_t n)
{
	for (int64_t i = 0; i < n; i += 64)
		dt_prefetch_ahead((const char *)p + i);
	__asm__ volatile("");
}

/*
 * Prefetches the line at p for writing. If another core owns the line, a store has to wait for it, and a
 * prefetch for reading does not change that. x86's instruction is a no-op on processors without it.
 */
DT_INLINE void dt_prefetch_write(void *p)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" ::"m"(*(char *)p));
#else
	__builtin_prefetch(p, 1, 3);
#endif
}

/*
 * Writes a byte to each line of n bytes at p, all of which the caller then overwrites. If another core has
 * read the lines, each must be taken from it first. Waiting stores are kept in a queue of about 64: stores
 * of results fill it with a few lines, these with 64. As many dt_prefetch_write gain nothing. Where cores are
 * far apart (Zen 4, a busy host), rows are quantised in half of the time.
 */
DT_INLINE void dt_own_lines(void *p, int64_t n)
{
	for (int64_t i = 0; i < n; i += 64)
		*((volatile char *)p + i) = 0;
}

/* Reads each line of n bytes at p: at the memory's full rate, where of many prefetches at once some are
 * dropped. */
DT_INLINE void dt_fetch_lines(const void *p, int64_t n)
{
	for (int64_t i = 0; i < n; i += 64)
		(void)*((const volatile char *)p + i);
}

/* Prefetches n bytes at p, which may end past their array. */
DT_INLINE void dt_prefetch(const void *p, int64_t n)
{
	for (int64_t i = 0; i < n; i += 64)
		__builtin_prefetch((const char *)p + i);
}

/* The largest dt_magnitude of n numbers. */
DT_INLINE uint32_t dt_largest(const float *x, int64_t n)
{
	uint32_t most = 0;

#pragma omp simd reduction(max : most)
	for (int64_t i = 0; i < n; i++) {
		const uint32_t u = dt_magnitude(x[i]);

		most = u > most ? u : most;
	}
	return most;
}

/*
 * The maximum of m and n numbers, ignoring NaN. OpenMP's max reduction starts from the lowest finite number
 * on some compilers, not from -Inf.
 */
DT_INLINE float dt_most(const float *p, int64_t n, float m)
{
	enum { MAXIMA = 64 };
	const int64_t even = n / MAXIMA * MAXIMA;
	float lane[MAXIMA];

	for (int k = 0; k < MAXIMA; k++)
		lane[k] = m;
	for (int64_t j = 0; j < even; j += MAXIMA)
#pragma omp simd
		for (int k = 0; k < MAXIMA; k++)
			lane[k] = p[j + k] > lane[k] ? p[j + k] : lane[k];
	for (int k = 0; k < MAXIMA; k++)
		m = lane[k] > m ? lane[k] : m;
	for (int64_t j = even; j < n; j++)
		m = p[j] > m ? p[j] : m;
	return m;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
