/*
 * Cross-entropy over a vocabulary that may be cut over ranks (Shoeybi et al., Megatron-LM, 2019, section 3):
 * the logits are never gathered, three numbers a row are.
 *
 * ce_stats: logits [rows, n] of a compute type are columns vocab_first .. vocab_first + n of the whole row.
 *   rowmax[i] = max_j l_ij;  sumexp[i] = sum_j exp(l_ij - rowmax[i]);
 *   target_logit[i] = the target's logit when this shard holds it, else 0.               all overwritten
 *   Over shards: M = max rowmax; S = sum of sumexp exp(rowmax - M); T = sum of target_logit;
 *   loss_i = log S + M - T.
 * ce_grad: dlogits_ij = scale w_i (exp(l_ij - rowmax[i]) / sumexp[i] - [j + vocab_first == targets[i]])
 *   with the M and S of the whole row; w_i = weight[i], of any sign, or 1 where weight is NULL.
 *   dlogits [rows, n] of a compute type, overwritten.
 * A target of -1 is ignored: its dlogits row is zero, its target_logit 0 (rowmax and sumexp are still
 * filled).
 *
 * On cards logits and dlogits may have row strides (device.h); what lies between the columns of dlogits and
 * its stride is then overwritten with zeros, as matmul.h wants it.
 *
 * dlogits may be logits itself when types and strides are equal; else they may not overlap (-EINVAL).
 * Sums are f32 over 2048 columns at a time, then over those in order; rows do not depend on each other nor on
 * the number of threads. NaN in a row gives NaN in its sumexp, and
 * any number in its rowmax.
 */
#ifndef DT_KERNELS_CROSS_ENTROPY_H
#define DT_KERNELS_CROSS_ENTROPY_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
