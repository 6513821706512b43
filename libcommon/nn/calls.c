/* The calls, by op: what each node of a program does on the device. */
#include "nn/call.h"

dt_call *const dt_calls[DT_OP_N] = {
	[DT_OP_EMBED] = dt_call_embed,
	[DT_OP_NORM] = dt_call_norm,
	[DT_OP_LINEAR] = dt_call_linear,
	[DT_OP_LINEAR_ACT] = dt_call_linear_act,
	[DT_OP_HEADS_NORM] = dt_call_heads_norm,
	[DT_OP_ROPE] = dt_call_rope,
	[DT_OP_ATTENTION] = dt_call_attention,
	[DT_OP_ACT] = dt_call_act,
	[DT_OP_GATED] = dt_call_gated,
	[DT_OP_LOSS] = dt_call_loss,
	[DT_OP_ENTER] = dt_call_enter,
	[DT_OP_LEAVE] = dt_call_leave,
	[DT_OP_ADD] = dt_call_add,
	[DT_OP_QUANTIZE] = dt_call_quantize,
	[DT_OP_LINEAR8] = dt_call_linear8,
	[DT_OP_DX8] = dt_call_dx8,
	[DT_OP_DW8] = dt_call_dw8,
	[DT_OP_EMBED_B] = dt_call_embed_b,
	[DT_OP_NORM_B] = dt_call_norm_b,
	[DT_OP_COLSUM] = dt_call_colsum,
	[DT_OP_DW] = dt_call_dw,
	[DT_OP_DX] = dt_call_dx,
	[DT_OP_DX_ACT] = dt_call_dx_act,
	[DT_OP_HEADS_NORM_B] = dt_call_heads_norm_b,
	[DT_OP_ROPE_B] = dt_call_rope_b,
	[DT_OP_ATTENTION_B] = dt_call_attention_b,
	[DT_OP_ACT_B] = dt_call_act_b,
	[DT_OP_GATED_B] = dt_call_gated_b,
};
/* SPDX-License-Identifier: Apache-2.0 */
