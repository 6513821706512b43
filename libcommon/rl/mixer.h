/*
 * Value decomposition: the value of the agents' joint action, from each agent's value of its own action.
 *
 *   none   each agent learns by itself from the reward of all (independent Q-learning)
 *   sum    Q = sum of q_a (Sunehag et al. 2018, VDN)
 *   net    Q = |w2| . elu(|W1| q + b1) + v, monotonic in each q_a; W1 [agents, width], b1 [width],
 *          w2 [width] and v are outputs of another net that sees the whole state (Rashid et al. 2018, QMIX)
 */
#ifndef DT_RL_MIXER_H
#define DT_RL_MIXER_H

enum dt_mixer { DT_MIX_NONE, DT_MIX_SUM, DT_MIX_NET };

/* DT_MIX_NET: the number of outputs that the mixing net needs per state. */
int dt_mix_outputs(int agents, int width);
/*
 * Q from q [agents] and the mixing net's outputs h (W1, b1, w2, v in that order). Writes its derivatives dq
 * [agents] and dh with respect to them; dh may be NULL.
 */
double dt_mix(int agents, int width, const float *h, const double *q, double *dq, double *dh);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
