/* What a run minimises: the cross-entropy, or what answers of the model itself are worth (rl/policy.h). */
#ifndef DT_PLAN_OBJECTIVE_H
#define DT_PLAN_OBJECTIVE_H

enum dt_objective_kind {
	DT_OBJECTIVE_NLL,
	DT_OBJECTIVE_GRPO,
	DT_OBJECTIVE_DRGRPO,
	DT_OBJECTIVE_DAPO,
	DT_OBJECTIVE_RLOO,
	DT_OBJECTIVE_REINFORCE,
	DT_OBJECTIVE_CISPO,
	DT_OBJECTIVE_GSPO,
	DT_OBJECTIVE_N,
};
#define DT_OBJECTIVES "nll|grpo|drgrpo|dapo|rloo|reinforce|cispo|gspo"

/* Whether it learns from scored answers: rollouts, or those to a task. */
static inline int dt_objective_rewards(int kind)
{
	return kind >= DT_OBJECTIVE_GRPO && kind <= DT_OBJECTIVE_GSPO;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
