/*
 * NF4 with double quantisation (Dettmers et al. 2023, QLoRA), stored as in bitsandbytes: blocks of 64 along
 * the flattened tensor, x = table[nibble] scale, two values per byte, the first in the high nibble. A block's
 * scale is its largest magnitude. Scales minus their mean are quantised to 8-bit dynamic codes in groups of
 * 256 with a second scale: scale = code[u8] group + offset. 4.127 bits per weight.
 */
#ifndef DT_KERNELS_NF4_H
#define DT_KERNELS_NF4_H

#include <stdint.h>

#define DT_NF4_BLOCK 64
#define DT_NF4_GROUP 256

extern const float dt_nf4_table[16];

/* scale[b] = largest magnitude of block b; n is a multiple of 64. */
void dt_nf4_scales(const float *x, int64_t n, float *scale);
/* Encodes n elements to n / 2 bytes with these scales. */
void dt_nf4_encode(const float *x, int64_t n, const float *scale, uint8_t *out);
/* The 256 values of the dynamic code, ascending. */
void dt_nf4_code(float code[256]);
/* The mean of n scales, the offset subtracted from them. Summed in f64. */
float dt_nf4_mean(const float *scale, int64_t n);
/* Quantises n scales minus offset to 8-bit codes, with group[(n + 255) / 256] second scales. Overwrites
 * scale. */
void dt_nf4_quantize_scales(float *scale, int64_t n, float offset, const float code[256], uint8_t *out,
			    float *group);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
