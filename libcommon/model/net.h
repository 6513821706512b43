/*
 * Models that are not transformers, as far as they are estimated: ResNets (He et al. 2015, the torchvision
 * form on 224 x 224 x 3) and plain multi-layer perceptrons. Sums, not tables: nothing here cuts or runs them.
 */
#ifndef DT_MODEL_NET_H
#define DT_MODEL_NET_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct dt_net {
	char name[64];
	int64_t params;
	int64_t inputs, outputs; /* elements a sample */
	int64_t conv_outputs;	 /* elements a sample that convolutions and matmuls write */
	int64_t kept;	 /* elements a sample that backward reads: those, normalised ones, the input */
	int64_t largest; /* of one layer's outputs: its gradient is held beside what is kept */
	double macs;	 /* multiply-accumulates a sample, forward */
};

/* "resnet-18", "resnet-34", "resnet-50", "resnet-101", "mlp:784-512-10". 1: it is one; 0: no such name.
 * -EINVAL. */
int dt_net_parse(const char *name, struct dt_net *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
