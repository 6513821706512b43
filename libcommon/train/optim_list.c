#include "train/optim_list.h"

#include "nn/exec.h"

int optim_flush(struct optim_list *l, struct dt_err *err)
{
	const struct dt_optim_parts parts = {l->n, l->part};

	l->n = 0;
	return dt_kernel_check(l->dev->ops->optim_steps(l->dev, &l->o, &parts), "->optim_steps(", err);
}

int optim_add(struct optim_list *l, struct dt_tensor copy, struct dt_tensor p, struct dt_tensor g,
	      struct dt_tensor s1, struct dt_tensor s2, struct dt_err *err)
{
	l->part[l->n++] = (struct dt_optim_part){copy, p, g, s1, s2, l->o.lr, l->o.weight_decay, l->o.trust};
	return l->n == OPTIM_LIST ? optim_flush(l, err) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
