/* Checkpoints of nets that learnt in this process: dt-checkpoint(5), weights alone. */
#ifndef DT_RL_KEEP_H
#define DT_RL_KEEP_H

#include "rl/net.h"

/* DIR/step-N, N being the number of updates. */
int dt_net_save(const struct dt_net *net, const char *dir, int64_t step, struct dt_err *err);
/* -EINVAL where the checkpoint has no policy. It does not learn: it has no rule of updates. */
int dt_net_load(struct dt_net **ret, const char *path, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
