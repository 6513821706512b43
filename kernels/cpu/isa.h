/* The instruction set that the CPU kernels use. */
#ifndef DT_KERNELS_CPU_ISA_H
#define DT_KERNELS_CPU_ISA_H

#include <stdbool.h>

enum dt_amx {
	DT_AMX_NONE,
	DT_AMX_PLAIN, /* the emulation in amx_plain.c */
	DT_AMX_TILES, /* the processor's tiles, for bf16 and int8 */
};

struct dt_isa {
	char name[32]; /* name for dt_dev_isa */
	bool avx2, avx2_vnni, avx512, vnni, bf16;
	bool dotprod; /* arm64: dot products of four bytes; NEON is always available */
	enum dt_amx amx;
	bool amx_onednn; /* oneDNN multiplies bf16 with AMX, whatever DT_AMX says */
};

/*
 * On x86-64 oneDNN reports the instruction set, so that ONEDNN_MAX_CPU_ISA limits both. AMX also needs the
 * kernel's permission, which is requested here, for the whole process. DT_AMX=plain emulates AMX on any
 * processor with AVX2: bf16 products then have the bits of a processor with AMX. Determined once.
 */
const struct dt_isa *dt_isa(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
