/* Weights of convolutions in the layouts that oneDNN's kernels for AVX-512 take. For conv_onednn.c. */
#ifndef DT_KERNELS_CPU_CONV_WEIGHTS_H
#define DT_KERNELS_CPU_CONV_WEIGHTS_H

#include <stdbool.h>

#include <oneapi/dnnl/dnnl.h>

enum dt_conv_layout {
	DT_CONV_OTHER,
	DT_CONV_PAIRS,	/* bf16 [out / n][window][channels / 2][n][2]; the last block is filled with zeros */
	DT_CONV_SQUARES /* f32 [out / 16][channels / 16][window][16 channels][16 outputs] */
};
/* gradient: the weights are a result. */
enum dt_conv_layout dt_conv_layout_of(const dnnl_memory_desc_t *md, bool gradient);
/* bf16 weights [out][channels][window] as DT_CONV_PAIRS. */
void dt_conv_pack(int threads, void *to, const void *from, const dnnl_memory_desc_t *md);
/* DT_CONV_SQUARES as [out][channels][window]; add: to what to has. */
void dt_conv_unpack(int threads, float *to, const float *from, const dnnl_memory_desc_t *md, bool add);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
