/* Parts of parameters, collected so that the device updates up to OPTIM_LIST of them in one call. */
#ifndef DT_TRAIN_OPTIM_LIST_H
#define DT_TRAIN_OPTIM_LIST_H

#include "base/err.h"
#include "kernels/ops.h"

enum { OPTIM_LIST = 96 };

struct optim_list {
	struct dt_dev *dev;
	struct dt_optim o; /* its rate, decay and trust apply to the part that is added next */
	int n;
	struct dt_optim_part part[OPTIM_LIST];
};

/* Adds a part. Its memory must stay in place until it is updated. */
int optim_add(struct optim_list *l, struct dt_tensor copy, struct dt_tensor p, struct dt_tensor g,
	      struct dt_tensor s1, struct dt_tensor s2, struct dt_err *err);
/* Updates all parts that have been added. */
int optim_flush(struct optim_list *l, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
