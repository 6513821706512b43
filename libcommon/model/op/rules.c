/* The rules, by op. */
#include "model/op/rule.h"

const struct dt_op_rule dt_op_rules[DT_OP_N] = {
	[DT_OP_EMBED] = {dt_shape_embed, dt_back_embed},
	[DT_OP_NORM] = {dt_shape_norm, dt_back_norm},
	[DT_OP_LINEAR] = {dt_shape_linear, dt_back_linear},
	[DT_OP_LINEAR_ACT] = {dt_shape_linear_act, dt_back_linear_act},
	[DT_OP_LINEAR_GATED] = {dt_shape_linear_gated, NULL},
	[DT_OP_HEADS_NORM] = {dt_shape_heads_norm, dt_back_heads_norm},
	[DT_OP_ROPE] = {dt_shape_rope, dt_back_rope},
	[DT_OP_ATTENTION] = {dt_shape_attention, dt_back_attention},
	[DT_OP_ACT] = {dt_shape_act, dt_back_act},
	[DT_OP_GATED] = {dt_shape_gated, dt_back_gated},
	[DT_OP_LATENT_JOIN] = {dt_shape_latent_join, dt_back_latent_join},
	[DT_OP_ROUTE] = {dt_shape_route, dt_back_route},
	[DT_OP_EXPERTS] = {dt_shape_experts, dt_back_experts},
	[DT_OP_COMBINE] = {dt_shape_combine, dt_back_combine},
	[DT_OP_LOSS] = {dt_shape_loss, dt_back_loss},
	[DT_OP_HEAD] = {dt_shape_head, NULL},
	[DT_OP_ENTER] = {dt_shape_enter, dt_back_enter},
	[DT_OP_LEAVE] = {dt_shape_leave, dt_back_leave},
	[DT_OP_ADD] = {dt_shape_add, dt_back_add},
};
