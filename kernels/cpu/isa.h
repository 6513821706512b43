/* The instruction set that the processor's kernels use. */
#ifndef DT_KERNELS_CPU_ISA_H
#define DT_KERNELS_CPU_ISA_H

#include <stdbool.h>

enum dt_amx {
	DT_AMX_NONE,
	DT_AMX_PLAIN, /* amx_plain.c's functions in place of the instructions */
	DT_AMX_TILES, /* the processor's, of bf16 and int8 */
};

struct dt_isa {
	char name[32]; /* dt_dev_isa's */
	bool avx2, avx2_vnni, avx512, vnni, bf16;
	bool dotprod; /* arm64's sums of four products of bytes; NEON is always there */
	enum dt_amx amx;
	bool amx_onednn; /* oneDNN multiplies bf16 by AMX, whatever DT_AMX says */
};

/*
 * On x86-64 oneDNN's word is taken, so that its variable ONEDNN_MAX_CPU_ISA bounds both. AMX also needs the
 * kernel's permission, which is asked for here, for the whole process. DT_AMX=plain puts functions in its
 * place, on any processor with AVX2: other bits of bf16 products, those of a processor with AMX. Determined
 * once.
 */
const struct dt_isa *dt_isa(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
