/*
 * Value decomposition: the value of what agents do together, from the value that each gives its own action.
 *
 *   none   each agent learns by itself from the reward of all (independent Q-learning)
 *   sum    Q = sum of q_a (Sunehag et al. 2018, VDN)
 *   net    Q = |w2| . elu(|W1| q + b1) + v, monotonic in each q_a; W1 [agents, width], b1 [width],
 *          w2 [width] and v are outputs of another net that sees the whole state (Rashid et al. 2018, QMIX)
 */
#ifndef DT_RL_MIXER_H
#define DT_RL_MIXER_H

enum dt_mixer { DT_MIX_NONE, DT_MIX_SUM, DT_MIX_NET };

/* Numbers that the net's mixing needs a state. */
int dt_mix_outputs(int agents, int width);
/*
 * Q of q [agents] and the net's outputs h, in that order. dq [agents] and dh are its derivatives by them,
 * and are written; dh may be NULL.
 */
double dt_mix(int agents, int width, const float *h, const double *q, double *dq, double *dh);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
