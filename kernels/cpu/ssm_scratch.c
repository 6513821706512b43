/* The scratch of ssm.h's ops. */
#include "kernels/cpu/ssd.h"

/* Taps and bias as f32, and the rows of a thread. */
size_t dt_ssm_conv_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p)
{
	return (size_t)((p->kernel + 1 + on->threads * 2) * dt_ssm_conv(p)) * sizeof(float);
}

/* Also each thread's rows before their activation, and each block's share of the gradients. */
size_t dt_ssm_conv_backward_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p)
{
	const int64_t blocks = p->batch * dt_ceil_div(p->seq, DT_SSM_ROWS);

	return (size_t)((p->kernel + 1 + on->threads * (DT_SSM_ROWS + p->kernel + 1) +
			 blocks * (p->kernel + 1)) *
			dt_ssm_conv(p)) *
	       sizeof(float);
}

size_t dt_ssm_conv_step_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p)
{
	return dt_ssm_conv_scratch(on, p);
}

/* A thread's block of rows of a head: x, y, B, C, steps and what they leave of a state. */
size_t dt_ssm_scan_step_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p)
{
	return (size_t)(3 * p->heads + on->threads * DT_SSM_ROWS * (2 * p->head_dim + 2 * p->state + 2)) *
	       sizeof(float);
}

size_t dt_ssm_gate_scratch(const struct dt_scratch_on *on, int64_t cols)
{
	return (size_t)(on->threads * 3 * cols) * sizeof(float);
}

int64_t dt_ssd_own(const struct dt_ssm *p, bool backward)
{
	const int64_t q = DT_SSM_CHUNK, n = p->state, d = p->head_dim;

	return backward ? 6 * q * n + 4 * q * q + 5 * q * d + d * n + 4 * q + q * p->heads
			: 3 * q * n + 2 * q * q + 2 * q * d + 2 * q;
}

/* Backward: gradients of states, and each chunk's share of those of the three vectors. */
int64_t dt_ssd_extra(const struct dt_ssm *p, bool backward)
{
	return backward ? dt_ssd_state_size(p) + 3 * p->heads * p->batch * dt_ssd_chunks(p) : 0;
}

size_t dt_ssd_bytes(const struct dt_scratch_on *on, const struct dt_ssm *p, int64_t extra, int64_t own)
{
	return (size_t)(3 * p->heads + 2 * p->batch * p->seq * p->heads + dt_ssd_state_size(p) + extra +
			on->threads * own) *
	       sizeof(float);
}

size_t dt_ssm_scan_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p)
{
	return dt_ssd_bytes(on, p, dt_ssd_extra(p, false), dt_ssd_own(p, false));
}

size_t dt_ssm_scan_backward_scratch(const struct dt_scratch_on *on, const struct dt_ssm *p)
{
	return dt_ssd_bytes(on, p, dt_ssd_extra(p, true), dt_ssd_own(p, true));
}
/* SPDX-License-Identifier: Apache-2.0 */
