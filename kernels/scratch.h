/*
 * Scratch memory: what the CPU device keeps for the ops it runs. It is a few buffers, each as large as the
 * most that an op asks of it. An op that takes scratch has a function beside its contract, NAME_scratch,
 * that returns the bytes for its operands: the op asks for just that much, and a memory plan calls the
 * function for the ops of a program. A function that takes a struct dt_scratch raises its buffers; one that
 * returns bytes is about DT_SCRATCH_OP. Not counted are the workspaces of oneDNN, whose sizes only the
 * library knows. Cards have no such functions.
 */
#ifndef DT_KERNELS_SCRATCH_H
#define DT_KERNELS_SCRATCH_H

#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define DT_C extern "C" /* of a function that C++ calls */
#else
#define DT_C
#endif

enum dt_scratch_buffer {
	DT_SCRATCH_OP,	   /* an op's own: partial sums, tiles, converted operands */
	DT_SCRATCH_WIDE,   /* f32 copies of a product's or a convolution's 16-bit operands */
	DT_SCRATCH_PANELS, /* operand panels of a product by tiles, transformed data of Winograd's */
	DT_SCRATCH_N,
};
const char *dt_scratch_name(enum dt_scratch_buffer b);

struct dt_scratch {
	size_t bytes[DT_SCRATCH_N];
};

static inline void dt_scratch_raise(struct dt_scratch *s, enum dt_scratch_buffer b, size_t bytes)
{
	s->bytes[b] = bytes > s->bytes[b] ? bytes : s->bytes[b];
}

/* What the bytes depend on besides operands. threads 0: no device is known, nothing is asked of it. */
struct dt_scratch_on {
	int threads;
	bool batch_invariant;
	/* of the processor */
	bool pairs;	 /* multiplies bf16 in pairs: AVX512_BF16 */
	bool amx;	 /* tiles for bf16: AMX */
	bool amx_int8;	 /* tiles for int8 */
	bool brgemm;	 /* oneDNN multiplies by its brgemm: AVX-512 */
	bool amx_onednn; /* with AMX */
	bool tiles_only; /* f32 products are by tiles, not oneDNN's */
};

/*
 * Whether products of this type are computed from f32 copies: oneDNN 2.6 has no f16, and without instructions
 * for bf16 its bf16 products take 2.5 times as long as f32 (AVX-512), or do not exist.
 */
static inline bool dt_scratch_widens(const struct dt_scratch_on *on, enum dt_dtype t)
{
	return t == DT_F16 || (t == DT_BF16 && !on->pairs);
}

/*
 * This machine's processor with so many threads: what the CPU device takes, unless ONEDNN_MAX_CPU_ISA limits
 * it. Without oneDNN, so that programs that only plan can ask.
 */
struct dt_scratch_on dt_scratch_here(int threads);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
