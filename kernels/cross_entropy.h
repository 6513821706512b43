/*
 * Cross-entropy over a vocabulary that may be cut over ranks (Shoeybi et al., Megatron-LM, 2019, section 3):
 * the ranks exchange three numbers per row, never the logits.
 *
 * ce_stats: logits [rows, n] of a compute type are columns vocab_first .. vocab_first + n of the whole row.
 *   rowmax[i] = max_j l_ij;  sumexp[i] = sum_j exp(l_ij - rowmax[i]);
 *   target_logit[i] = the target's logit if this shard holds it, else 0.                 all overwritten
 *   Over shards: M = max rowmax; S = sum of sumexp exp(rowmax - M); T = sum of target_logit;
 *   loss_i = log S + M - T.
 * ce_grad: dlogits_ij = scale w_i (exp(l_ij - rowmax[i]) / sumexp[i] - [j + vocab_first == targets[i]])
 *   with the M and S of the whole row; w_i = weight[i], of either sign, or 1 where weight is NULL.
 *   dlogits [rows, n] of a compute type, overwritten.
 * A target of -1 is ignored: dlogits row zero, target_logit 0 (rowmax and sumexp are still filled).
 *
 * On cards logits and dlogits may have row strides (device.h). ce_grad then zeroes the padding between the
 * columns of dlogits and its stride, as matmul.h requires.
 *
 * dlogits may alias logits if types and strides are equal; otherwise they may not overlap (-EINVAL).
 * Sums are f32 over 2048 columns at a time, then over those in order. Rows are independent of each other and
 * of the number of threads. A row with NaN has sumexp NaN and an unspecified rowmax.
 */
#ifndef DT_KERNELS_CROSS_ENTROPY_H
#define DT_KERNELS_CROSS_ENTROPY_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
