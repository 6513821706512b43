/*
 * Quantization-aware training: after weights are gathered from the masters, matrices are rounded to the
 * values that a file of the format would hold. Values in the compute type are rounded, in whole rows or in
 * multiples of a block, so that the result does not depend on the layout. Gradients go to the masters
 * unchanged (straight-through).
 */
#include "train/trainer.h"

int qat_round(struct trainer *t, int u, struct dt_err *err)
{
	int rc = 0;

	if (!t->run.qat || t->local.unit[u].frozen)
		return 0;
	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		const enum dt_format f =
			dt_param_format(&t->config, &t->table.p[lp->index], dt_run_qat(&t->run));

		if (lp->unit == u && dt_format_info(f)->dtype < 0)
			rc = dt_kernel_check(t->dev->ops->round_blocks(t->dev, t->exec.w[i], f),
					     "->round_blocks(", err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
