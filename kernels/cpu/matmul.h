/*
 * oneDNN matmul with a cache of primitives by shape. Scratchpads are ours (one buffer for all), so that a
 * product of a known shape allocates no buffer. Copies of operands and panels are the device's scratch.
 *
 * Operands of f16, and of bf16 where the processor has no such products (dt_cpu_widens), are widened and
 * multiplied in f32, and the result is rounded once. On arm64 its loops accumulate in memory (four times the
 * instructions of tile.h's product) unless it is built with Arm's library, so all products use tile.h there.
 */
#ifndef DT_KERNELS_CPU_MATMUL_H
#define DT_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/cpu.h"

struct dt_matmul_key {
	int64_t m, n, k, lda; /* lda: row stride of a as stored */
	int32_t nthreads;
	uint8_t ta, tb, in, out, bias, accumulate;
	uint8_t packed; /* b shall be in the order of dt_matmul_pack */
	uint8_t pad[5];
};

struct dt_matmul_entry {
	struct dt_matmul_key key;
	bool used, widen; /* widen: dt_cpu_widens */
	bool tiles;	  /* tile.h is faster, or as fast without setup time */
	bool packed;	  /* the key asks for it, and oneDNN has that order */
	bool invariant;	  /* a row's bits do not depend on the number of rows */
	dnnl_primitive_t prim;
	dnnl_memory_t mem[5]; /* indexed by ARG_ of matmul_onednn.c */
	size_t scratch_n;
};

#define DT_MATMUL_SHAPES 1024 /* number of shapes after which the cache is cleared */

struct dt_matmul_cache {
	struct dt_matmul_entry slot[2 * DT_MATMUL_SHAPES];
	int used;
	void *scratch; /* the largest scratchpad so far */
	size_t scratch_n;
};

/* Creates the cache if there is none; -ENOMEM. */
int dt_matmul_ready(struct dt_cpu *cpu);
/* Finds or creates the entry of a shape; valid until the next call. -ENOMEM, -ENOTSUP, -EIO. */
int dt_matmul_find(struct dt_cpu *cpu, const struct dt_matmul_key *key, struct dt_matmul_entry **ret);
/*
 * matmul_rows.c: products by tile.h, in which a row of c has the same bits whatever the number of rows. For
 * f32, and for bf16 with an even k if the processor has AMX. -ENOMEM.
 */
bool dt_matmul_rows_takes(const struct dt_matmul_key *key);
int dt_matmul_rows(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias);
/*
 * b in panels of 64 columns, words of two elements along k, as oneDNN's brgemm multiplies it. It copies a
 * plain b itself, every thread for itself, more slowly; the product has the same bits. For keys that
 * dt_matmul_packs takes. NULL: no memory.
 */
uint32_t *dt_matmul_pack(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor b);
/* c = a b + bias as described by the entry's key; only for an entry that is neither widen nor tiles. */
int dt_matmul_execute(struct dt_cpu *cpu, struct dt_matmul_entry *e, void *c, void *a, void *b, void *bias);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
