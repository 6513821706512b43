/* What the files of convolutions share: conv.c chooses, conv_onednn.c and winograd.c compute. */
#ifndef DT_KERNELS_CPU_CONV_H
#define DT_KERNELS_CPU_CONV_H

#include "kernels/conv.h"
#include "kernels/cpu/cpu.h"

enum dt_conv_kind { DT_CONV_FORWARD, DT_CONV_BACKWARD, DT_CONV_WEIGHTS, DT_CONV_FORWARD_BIAS };

struct dt_conv_key {
	struct dt_conv p;
	int32_t nthreads;
	uint8_t kind, type;
	uint8_t adds, relu; /* DT_CONV_FORWARD_BIAS: to what y holds; the ReLU of that */
};

struct dt_conv_operands {	 /* of one call */
	struct dt_tensor image;	 /* x or dx */
	struct dt_tensor weight; /* w or dw */
	struct dt_tensor result; /* y or dy */
	struct dt_tensor bias;
	bool accumulate; /* DT_CONV_WEIGHTS: to what dw holds */
};

/* Memory of the convolutions of a device, as dt_cpu_scratch: it lasts through a call of any op but these. */
void *dt_cpu_conv_room(struct dt_dev *dev, size_t n);

/* oneDNN's direct convolution. DT_CONV_WIDEN: it has none of this type on this processor, or a slow one. */
enum { DT_CONV_WIDEN = 1 };
int dt_conv_onednn(struct dt_dev *dev, const struct dt_conv_key *key, const struct dt_conv_operands *o);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
