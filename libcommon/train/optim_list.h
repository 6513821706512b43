/* Parts of parameters that the device updates by one call, collected until there are as many as it takes. */
#ifndef DT_TRAIN_OPTIM_LIST_H
#define DT_TRAIN_OPTIM_LIST_H

#include "base/err.h"
#include "kernels/ops.h"

enum { OPTIM_LIST = 96 };

struct optim_list {
	struct dt_dev *dev;
	struct dt_optim o; /* rate, decay and trust: of the part that is added next */
	int n;
	struct dt_optim_part part[OPTIM_LIST];
};

/* Nothing may move the memory of what has been added until it is updated. */
int optim_add(struct optim_list *l, struct dt_tensor copy, struct dt_tensor p, struct dt_tensor g,
	      struct dt_tensor s1, struct dt_tensor s2, struct dt_err *err);
/* Updates what has been added. */
int optim_flush(struct optim_list *l, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
