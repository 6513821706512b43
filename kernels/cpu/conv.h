/* Shared by the convolution files: conv.c chooses, conv_onednn.c and winograd.c compute. */
#ifndef DT_KERNELS_CPU_CONV_H
#define DT_KERNELS_CPU_CONV_H

#include "kernels/conv.h"
#include "kernels/cpu/cpu.h"

enum dt_conv_kind { DT_CONV_FORWARD, DT_CONV_BACKWARD, DT_CONV_WEIGHTS, DT_CONV_FORWARD_BIAS };

struct dt_conv_key {
	struct dt_conv p;
	int32_t nthreads;
	uint8_t kind, type;
	uint8_t adds, relu; /* DT_CONV_FORWARD_BIAS: add to the contents of y; apply ReLU to the sum */
};

struct dt_conv_operands {	 /* operands of one call */
	struct dt_tensor image;	 /* x or dx */
	struct dt_tensor weight; /* w or dw */
	struct dt_tensor result; /* y or dy */
	struct dt_tensor bias;
	bool accumulate; /* DT_CONV_WEIGHTS: add to the contents of dw */
};

/* Bytes of the f32 copies of operands of type t; weights: conv_weights, whose dw is f32 already. */
size_t dt_conv_wide_bytes(enum dt_dtype t, bool weights, const struct dt_conv *p);

/* Memory for oneDNN's convolutions, which only it can size: reordered weights and scratchpads. */
void *dt_cpu_conv_room(struct dt_dev *dev, size_t n);

/* oneDNN's direct convolution. Returns DT_CONV_WIDEN if oneDNN lacks the type on this processor, or is
 * slow. */
enum { DT_CONV_WIDEN = 1 };
int dt_conv_onednn(struct dt_dev *dev, const struct dt_conv_key *key, const struct dt_conv_operands *o);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
