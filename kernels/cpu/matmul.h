/*
 * oneDNN's matmul behind a table of primitives by shape. Scratchpads are ours (one buffer for all), so that a
 * product of a shape seen before allocates no buffer.
 *
 * bf16 needs AVX-512 in oneDNN 2.6, and f16 is not there on any processor: the operands are then widened,
 * multiplied in f32, and the result rounded once. On arm64 it has loops that add in memory (four times the
 * instructions of tile.h's product), unless it is built with Arm's library: all products are tile.h's then.
 */
#ifndef DT_KERNELS_CPU_MATMUL_H
#define DT_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/cpu.h"

struct dt_matmul_key {
	int64_t m, n, k, lda; /* lda: elements between a's rows as they lie */
	int32_t nthreads;
	uint8_t ta, tb, in, out, bias, accumulate, pad[6];
};

struct dt_matmul_entry {
	struct dt_matmul_key key;
	bool used, widen; /* widen: oneDNN has no such product on this processor */
	bool tiles;	  /* tile.h's product is faster, or as fast and ready at once */
	bool invariant;	  /* rows do not depend on how many there are */
	dnnl_primitive_t prim;
	dnnl_memory_t mem[5]; /* by ARG_ of matmul_onednn.c */
	size_t scratch_n;
};

#define DT_MATMUL_SHAPES 1024 /* then the table starts over */

struct dt_matmul_cache {
	struct dt_matmul_entry slot[2 * DT_MATMUL_SHAPES];
	int used;
	void *scratch; /* the largest scratchpad so far */
	size_t scratch_n;
	void *wide; /* f32 copies of 16-bit operands */
	size_t wide_n;
	void *panel; /* a panel of b a thread, where rows may not depend on m */
	size_t panel_n;
};

/* Makes the cache where there is none; -ENOMEM. */
int dt_matmul_ready(struct dt_cpu *cpu);
/* At least n bytes at *p, which has *have; contents are not kept. -ENOMEM. */
int dt_matmul_grow(void **p, size_t *have, size_t n);
/* The entry of a shape, made where it is new; valid until the next call. -ENOMEM, -ENOTSUP, -EIO. */
int dt_matmul_find(struct dt_cpu *cpu, const struct dt_matmul_key *key, struct dt_matmul_entry **ret);
/*
 * matmul_rows.c: products by tile.h, in which a row of c has the same bits whatever the number of rows. Of
 * f32, and of bf16 with an even k where the processor has AMX. -ENOMEM.
 */
bool dt_matmul_rows_takes(const struct dt_matmul_key *key);
int dt_matmul_rows(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias);
/* c = a b + bias, as the entry's key says; only of an entry that is neither widen nor tiles. */
int dt_matmul_execute(struct dt_cpu *cpu, struct dt_matmul_entry *e, void *c, void *a, void *b, void *bias);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
