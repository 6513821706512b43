#include "train/trainer.h"

int trainer_agree(struct trainer *t, int rc, struct dt_err *err)
{
	bool reached;
	int all = dt_comm_agree(dt_mesh_comm(&t->everyone, DT_ON_ALL), rc, &reached, err);

	t->agreed |= all < 0 && reached;
	return all;
}
/* SPDX-License-Identifier: Apache-2.0 */
