/* Selects the fastest micro-kernels of packed products for this processor. */
#include "kernels/cpu/quant.h"

#include "kernels/cpu/isa.h"

struct dt_quant_kernels dt_quant_kernels(void)
{
	struct dt_quant_kernels k = {dt_quant_mul_plain,
				     dt_quant_mul_bf16_plain,
				     dt_quant_mul_f32_plain,
				     dt_quant_row_plain,
				     NULL,
				     NULL};
#ifdef __aarch64__
	k.quants = dt_isa()->dotprod ? dt_quant_mul_dotprod : dt_quant_mul_neon;
#endif
#ifdef __x86_64__
	const struct dt_isa *isa = dt_isa();

	if (isa->avx2)
		k = (struct dt_quant_kernels){dt_quant_mul_avx2,
					      dt_quant_mul_bf16_v3,
					      dt_quant_mul_f32_v3,
					      dt_quant_row_avx2,
					      NULL,
					      NULL};
	if (isa->avx2_vnni)
		k.quants = dt_quant_mul_avxvnni;
	if (isa->avx512) {
		k.quants = dt_quant_mul_v4;
		k.bf16 = dt_quant_mul_bf16_v4;
		k.f32 = dt_quant_mul_f32_v4;
	}
	if (isa->bf16)
		k.bf16 = dt_quant_mul_bf16_pairs;
	if (isa->vnni) {
		k.quants = dt_quant_mul_vnni;
		k.row = dt_quant_row_vnni;
		k.tile = dt_quant_tile_vnni;
	}
	if (isa->amx == DT_AMX_TILES) {
		k.tiled = dt_quant_mul_amx;
		k.bf16 = dt_quant_mul_bf16_amx;
	} else if (isa->amx == DT_AMX_PLAIN) {
		k.tiled = isa->avx512 ? dt_quant_mul_amx_plain_v4 : dt_quant_mul_amx_plain_v3;
		k.bf16 = isa->avx512 ? dt_quant_mul_bf16_amx_plain_v4 : dt_quant_mul_bf16_amx_plain_v3;
	}
#endif
	return k;
}
/* SPDX-License-Identifier: Apache-2.0 */
