/*
 * Checkpoints of nets that learnt in this process: dt-checkpoint(5). The policy's weights are model/NAME and
 * its rule's states m/NAME and v/NAME; those of a mixer mixer/NAME, mixer_m/NAME and mixer_v/NAME; numbers
 * that go on are control/scores and control/places, and "control" in the manifest.
 */
#ifndef DT_RL_KEEP_H
#define DT_RL_KEEP_H

#include "base/json.h"
#include "ckpt/ckpt.h"
#include "rl/net.h"

struct dt_kept {
	struct dt_net *net, *mixer; /* mixer: NULL where there is none */
	double *score, *place;	    /* [scores], [envs, per_env] */
	int scores, envs, per_env;
	char run_id[DT_CKPT_RUN_ID]; /* of the run that it belongs to, as of dt-train; given back */
	json_t *control;	     /* whatever else; kept and given back */
};

/* DIR/step-N, N being the number of updates. */
int dt_net_save(const struct dt_kept *k, const char *dir, int64_t step, struct dt_err *err);
/*
 * Into nets that are open, of the same shape and rule (-EINVAL otherwise), and score; into place where there
 * are as many environments, else it stays as it is. control is the caller's to release.
 */
int dt_net_resume(struct dt_kept *k, const char *path, struct dt_err *err);
/* Whether its rows say which agent it is; false too of one from before, or that cannot be read. */
bool dt_kept_ids(const char *path);
/* -EINVAL where the checkpoint has no policy. It does not learn: it has no rule of updates. */
int dt_net_load(struct dt_net **ret, const char *path, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
