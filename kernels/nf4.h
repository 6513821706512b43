/*
 * NF4 with double quantisation (Dettmers et al. 2023, QLoRA), as bitsandbytes stores it: blocks of 64 along
 * the flattened tensor, x = table[nibble] scale, two values a byte, the first in the high nibble. A block's
 * scale is its largest magnitude; scales less their mean are 8-bit numbers of a dynamic code in blocks of
 * 256, each with a scale of its own: scale = code[u8] group + offset. 4.127 bits a weight.
 */
#ifndef DT_KERNELS_NF4_H
#define DT_KERNELS_NF4_H

#include <stdint.h>

#define DT_NF4_BLOCK 64
#define DT_NF4_GROUP 256

extern const float dt_nf4_table[16];

/* Largest magnitude of each block of n elements, a multiple of 64. */
void dt_nf4_scales(const float *x, int64_t n, float *scale);
/* n elements as n / 2 bytes, by these scales. */
void dt_nf4_encode(const float *x, int64_t n, const float *scale, uint8_t *out);
/* The 256 values of the dynamic code, ascending. */
void dt_nf4_code(float code[256]);
/* The mean of n scales, which is taken off them: summed in f64. */
float dt_nf4_mean(const float *scale, int64_t n);
/* Quantises n scales less offset: a code each, and group[(n + 255) / 256]. scale is overwritten. */
void dt_nf4_quantize_scales(float *scale, int64_t n, float offset, const float code[256], uint8_t *out,
			    float *group);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
