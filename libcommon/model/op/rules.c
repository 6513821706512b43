/* The table of rules, by op. */
#include "model/op/rule.h"
#include "model/op/timed.h"

const struct dt_op_rule dt_op_rules[DT_OP_N] = {
	[DT_OP_EMBED] = {dt_shape_embed, dt_back_embed, dt_cost_embed, dt_timed_embed},
	[DT_OP_NORM] = {dt_shape_norm, dt_back_norm, NULL, dt_timed_norm},
	[DT_OP_LINEAR] = {dt_shape_linear, dt_back_linear, dt_cost_linear, dt_timed_linear},
	[DT_OP_LINEAR_ACT] = {dt_shape_linear_act, dt_back_linear_act, dt_cost_linear, dt_timed_linear},
	[DT_OP_LINEAR_GATED] = {dt_shape_linear_gated, NULL, dt_cost_linear},
	[DT_OP_HEADS_NORM] = {dt_shape_heads_norm, dt_back_heads_norm, dt_cost_heads_norm,
			      dt_timed_heads_norm},
	[DT_OP_ROPE] = {dt_shape_rope, dt_back_rope, NULL, dt_timed_rope},
	[DT_OP_ATTENTION] = {dt_shape_attention, dt_back_attention, dt_cost_attention, dt_timed_attention},
	[DT_OP_ACT] = {dt_shape_act, dt_back_act, NULL, dt_timed_act},
	[DT_OP_GATED] = {dt_shape_gated, dt_back_gated, NULL, dt_timed_gated},
	[DT_OP_LATENT_SPLIT] = {dt_shape_latent_split, dt_back_latent_split},
	[DT_OP_LATENT_JOIN] = {dt_shape_latent_join, dt_back_latent_join},
	[DT_OP_LATENT_ABSORB] = {dt_shape_latent_absorb, NULL, dt_cost_latent_absorb},
	[DT_OP_LATENT_VALUES] = {dt_shape_latent_values, NULL, dt_cost_latent_values},
	[DT_OP_JOIN] = {dt_shape_join, dt_back_join},
	[DT_OP_SSM_CONV] = {dt_shape_ssm_conv, dt_back_ssm_conv},
	[DT_OP_SSM_SCAN] = {dt_shape_ssm_scan, dt_back_ssm_scan, dt_cost_ssm_scan},
	[DT_OP_SSM_GATE] = {dt_shape_ssm_gate, dt_back_ssm_gate},
	[DT_OP_SSM_NORM] = {dt_shape_ssm_norm, dt_back_ssm_norm, dt_cost_ssm_norm, dt_timed_ssm_norm},
	[DT_OP_GIVEN] = {dt_shape_given, NULL},
	[DT_OP_ROUTE] = {dt_shape_route, dt_back_route, dt_cost_route, dt_timed_route},
	[DT_OP_EXPERTS] = {dt_shape_experts, dt_back_experts, dt_cost_experts, dt_timed_experts},
	[DT_OP_COMBINE] = {dt_shape_combine, dt_back_combine, dt_cost_combine},
	[DT_OP_LOSS] = {dt_shape_loss, dt_back_loss, dt_cost_loss, dt_timed_loss},
	[DT_OP_HEAD] = {dt_shape_head, NULL, dt_cost_head},
	[DT_OP_STATES] = {dt_shape_states, NULL},
	[DT_OP_ENTER] = {dt_shape_enter, dt_back_enter, dt_cost_enter},
	[DT_OP_LEAVE] = {dt_shape_leave, dt_back_leave, dt_cost_leave},
	[DT_OP_KV_GATHER] = {dt_shape_kv_gather, dt_back_kv_gather, dt_cost_kv_gather},
	[DT_OP_RING] = {dt_shape_ring, dt_back_ring, dt_cost_ring},
	[DT_OP_TO_HEADS] = {dt_shape_to_heads, dt_back_to_heads, dt_cost_exchange},
	[DT_OP_TO_TOKENS] = {dt_shape_to_tokens, dt_back_to_tokens, dt_cost_exchange},
	[DT_OP_ADD] = {dt_shape_add, dt_back_add, NULL, dt_timed_add},
	[DT_OP_PIXELS] = {dt_shape_pixels, dt_back_pixels},
	[DT_OP_CONV] = {dt_shape_conv, dt_back_conv, dt_cost_conv},
	[DT_OP_CONV_BIAS] = {dt_shape_conv_bias, NULL, dt_cost_conv},
	[DT_OP_BATCH_NORM] = {dt_shape_batch_norm, dt_back_batch_norm, dt_cost_batch_norm},
	[DT_OP_POOL_MAX] = {dt_shape_pool_max, dt_back_pool_max},
	[DT_OP_POOL_AVG] = {dt_shape_pool_avg, dt_back_pool_avg},
	[DT_OP_FLATTEN] = {dt_shape_flatten, dt_back_flatten},
	[DT_OP_TOKENS] = {dt_shape_tokens, dt_back_tokens},
	[DT_OP_CLASS_ROW] = {dt_shape_class_row, dt_back_class_row, dt_cost_class_row},
	[DT_OP_CLASSIFY] = {dt_shape_classify, dt_back_classify, dt_cost_classify},
	[DT_OP_DISPATCH] = {dt_shape_dispatch, dt_back_dispatch, dt_cost_dispatch},
	[DT_OP_EXCHANGE] = {dt_shape_exchange, dt_back_exchange, dt_cost_send_rows},
	[DT_OP_DROPOUT] = {dt_shape_dropout, dt_back_dropout, dt_cost_dropout},
	[DT_OP_LORA_DOWN] = {dt_shape_lora_down, dt_back_lora_down, dt_cost_lora_down},
	[DT_OP_LORA_UP] = {dt_shape_lora_up, dt_back_lora_up, dt_cost_lora_up},
	[DT_OP_LORA_NORM] = {dt_shape_lora_norm, NULL, dt_cost_lora_norm},
	[DT_OP_LORA_SCALE] = {dt_shape_lora_scale, dt_back_lora_scale, dt_cost_lora_scale},
	/* added by lowering only */
	[DT_OP_ENTER_WAIT] = {.cost = dt_cost_wait},
	[DT_OP_EXCHANGE_WAIT] = {.cost = dt_cost_wait},
	[DT_OP_CONV_DX] = {.cost = dt_cost_conv},
	[DT_OP_CONV_DW] = {.cost = dt_cost_conv},
	[DT_OP_TOKENS_B] = {.cost = dt_cost_move_add},
	[DT_OP_CLASS_ROW_B] = {.cost = dt_cost_class_row_b},
	[DT_OP_BATCH_NORM_B] = {.cost = dt_cost_batch_norm_b},
	[DT_OP_QUANTIZE] = {.cost = dt_cost_quantize},
	[DT_OP_LINEAR8] = {.cost = dt_cost_linear8},
	[DT_OP_DX8] = {.cost = dt_cost_dx8},
	[DT_OP_DW8] = {.cost = dt_cost_dw8},
	[DT_OP_EMBED_B] = {.cost = dt_cost_embed_b, .timed = dt_timed_embed_b},
	[DT_OP_NORM_B] = {.cost = dt_cost_move_add, .timed = dt_timed_norm_b},
	[DT_OP_COLSUM] = {.cost = dt_cost_colsum, .timed = dt_timed_colsum},
	[DT_OP_DW] = {.cost = dt_cost_dw, .timed = dt_timed_dw},
	[DT_OP_DX] = {.cost = dt_cost_dx, .timed = dt_timed_dx},
	[DT_OP_DX_ACT] = {.cost = dt_cost_dx, .timed = dt_timed_dx},
	[DT_OP_HEADS_NORM_B] = {.cost = dt_cost_heads_norm_b, .timed = dt_timed_heads_norm_b},
	[DT_OP_ROPE_B] = {.timed = dt_timed_rope},
	[DT_OP_KV_SCATTER] = {.cost = dt_cost_kv_scatter},
	[DT_OP_RING_B] = {.cost = dt_cost_ring_b},
	[DT_OP_SINK_B] = {.cost = dt_cost_move_add},
	[DT_OP_ATTENTION_B] = {.cost = dt_cost_attention_b, .timed = dt_timed_attention_b},
	[DT_OP_ACT_B] = {.timed = dt_timed_act_b},
	[DT_OP_GATED_B] = {.timed = dt_timed_gated_b},
	[DT_OP_SSM_CONV_B] = {.cost = dt_cost_move_add},
	[DT_OP_SSM_SCAN_B] = {.cost = dt_cost_ssm_scan_b},
	[DT_OP_SSM_NORM_B] = {.cost = dt_cost_ssm_norm_b, .timed = dt_timed_ssm_norm_b},
	[DT_OP_LORA_UP_B] = {.cost = dt_cost_lora_up_b},
	[DT_OP_LORA_DX] = {.cost = dt_cost_lora_dx},
	[DT_OP_LORA_SCALE_B] = {.cost = dt_cost_lora_scale},
	[DT_OP_DROPOUT_B] = {.cost = dt_cost_dropout},
	[DT_OP_ROUTE_B] = {.cost = dt_cost_route_b, .timed = dt_timed_route_b},
	[DT_OP_EXPERTS_DX] = {.cost = dt_cost_experts_dx, .timed = dt_timed_experts_dx},
	[DT_OP_EXPERTS_DW] = {.cost = dt_cost_experts_dw, .timed = dt_timed_experts_dw},
	[DT_OP_EXPERTS_DB] = {.cost = dt_cost_experts_db},
	[DT_OP_COMBINE_B] = {.cost = dt_cost_combine_b},
	[DT_OP_DISPATCH_B] = {.cost = dt_cost_dispatch_b},
};

struct dt_node_cost dt_step_cost(const struct dt_cost_site *s, const struct dt_step *step)
{
	dt_cost_of *of = dt_op_rules[step->n.op].cost;
	struct dt_node_cost r = of ? of(s, &step->n) : dt_cost_move(s, &step->n);

	if (step->again)
		r.model_flops = 0;
	r.begins = step->n.attr.begins && r.message;
	r.parts = step->n.attr.parts;
	r.sends = step->n.attr.sends;
	r.ends = step->n.op == DT_OP_LEAVE && step->n.in[1] >= 0;
	return r;
}

bool dt_step_timed(const struct dt_cost_site *s, const struct dt_step *step, struct dt_timed_list *ret)
{
	dt_timed_of *of = dt_op_rules[step->n.op].timed;

	ret->n = 0;
	if (of)
		of(s, &step->n, ret);
	return ret->n > 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
