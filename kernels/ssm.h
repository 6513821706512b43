/*
 * Mamba-2's mixer between its two projections (Dao & Gu 2024, arXiv 2405.21060; Mamba: Gu & Dao 2023).
 *
 * Rows are the tokens of `batch` sequences of `seq`. With inner = heads head_dim and conv = inner + 2 groups
 * state, the projections of a row are z [inner], t [heads] and
 *   u [conv] = [x: inner | B: groups state | C: groups state]
 * Head h reads B and C of group h / (heads / groups).
 *
 * ssm_conv:    xbc[t] = silu(bias + sum over k < kernel of w[k] u[t - kernel + 1 + k]), for each channel on
 *              its own; tokens in front of the sequence, or of the row's document, count as 0.
 *              w [conv, kernel].
 * ssm_scan:    y_t = S_t C_t + D x_t;   S_t = exp(dt_t A) S_(t-1) + dt_t x_t B_t^T, S [head_dim, state] of
 *              each head;   dt = softplus(t + dt_bias), A = -exp(a_log). S is 0 in front of a document.
 *              Computed in chunks of DT_SSM_CHUNK tokens by products of matrices (section 6): within a chunk
 *              y = (L o C B^T) (dt x), L_ij = exp(sum of dt A over (j, i]), and what the state at its start
 *              adds.
 * ssm_gate:    y = x silu(z), elements.
 *
 * Backward of each: gradients of u, xbc, t, x and z are overwritten (=). Gradients of w, bias, dt_bias, a_log
 * and d are f32 and accumulate (+=); each may be absent. ssm_gate_backward's dx or dz may be dy, and dz may
 * be z. Saved for backward: u, xbc, t, the scan's y, z.
 *
 * ssm_conv_step, ssm_scan_step: the same in serving, for rows of several sequences whose earlier rows were in
 * earlier calls. What these leave is in the sequence's slot, read and replaced: the window, the last kernel -
 * 1 rows of u, and the states. A row at position 0 begins with an empty window and states of 0, whatever the
 * slot holds. The scan goes token by token: a row's bits do not depend on which rows of its sequence came in
 * one call. p->batch is 1, p->seq the rows of the call; first is not read.
 *
 * u, xbc, t, x, y, z and their gradients are of one compute type; w, bias, dt_bias, a_log and d of that type
 * or f32. bias may be absent. All sums are f32 and do not depend on the number of threads. A GPU multiplies
 * the scan's matrices of 16-bit types by tensor cores: it rounds L o C B^T, dt x, the states and rows times
 * their decay to that type.
 * first: as in dt_attn_span, the position in its sequence at which each row's document begins.
 */
#ifndef DT_KERNELS_SSM_H
#define DT_KERNELS_SSM_H

#include "kernels/device.h"
#include "kernels/scratch.h"

#define DT_SSM_CHUNK  128
#define DT_SSM_KERNEL 16 /* the widest convolution */

struct dt_ssm {
	int64_t batch, seq;
	int64_t heads, head_dim, groups, state, kernel;
	const int32_t *first; /* [batch * seq]; NULL: a sequence is one document */
};

struct dt_ssm_slots {
	int nseq;
	const int32_t *q_start; /* [nseq + 1] first row of each sequence */
	const int32_t *pos;	/* [rows] position in its sequence */
	const int32_t *slot;	/* [nseq] below slots */
	int64_t slots;
	float *base; /* [slots, dt_ssm_slot]: window [kernel - 1, conv], states [heads, state, head_dim] */
};

static inline DT_HOST_DEVICE int64_t dt_ssm_inner(const struct dt_ssm *p)
{
	return p->heads * p->head_dim;
}
/* Columns of u and xbc. */
static inline DT_HOST_DEVICE int64_t dt_ssm_conv(const struct dt_ssm *p)
{
	return p->heads * p->head_dim + 2 * p->groups * p->state;
}

static inline DT_HOST_DEVICE int64_t dt_ssm_window(const struct dt_ssm *p)
{
	return (p->kernel - 1) * dt_ssm_conv(p);
}
/* Elements of a slot. */
static inline DT_HOST_DEVICE int64_t dt_ssm_slot(const struct dt_ssm *p)
{
	return dt_ssm_window(p) + p->heads * p->state * p->head_dim;
}

DT_C size_t dt_ssm_conv_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p);
DT_C size_t dt_ssm_conv_backward_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p);
DT_C size_t dt_ssm_scan_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p);
DT_C size_t dt_ssm_scan_backward_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p);
DT_C size_t dt_ssm_conv_step_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p);
DT_C size_t dt_ssm_scan_step_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p);
DT_C size_t dt_ssm_gate_scratch(const struct dt_scratch_on *on, int64_t cols);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
