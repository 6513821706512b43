#include "train/trainer.h"

static bool kv_shared(const struct trainer *t, const struct dt_param *p)
{
	return p->cut == DT_CUT_KV && t->run.layout.tp > t->config.kv_heads;
}

/* With fewer key/value heads than tensor-parallel ranks, tp / kv_heads neighbours hold the same head. */
int replicas_init(struct trainer *t, struct dt_err *err)
{
	int kv = (int)t->config.kv_heads, tp = t->run.layout.tp;

	if (tp <= kv)
		return 0;
	return dt_comm_create(&t->grads.kv_group, t->world, "kv heads",
			      t->info.rank / tp * kv + t->mesh.at.tp * kv / tp, t->info.rank, err);
}

bool counts_along_tp(const struct trainer *t, const struct dt_local_param *lp)
{
	const struct dt_param *p = &t->table.p[lp->index];

	if (t->mesh.at.tp != 0 && p->cut == DT_CUT_NONE)
		return false;
	return !kv_shared(t, p) || dt_comm_rank(t->grads.kv_group) == 0;
}

bool counts(const struct trainer *t, const struct dt_local_param *lp)
{
	const struct dt_param *p = &t->table.p[lp->index];

	if (!counts_along_tp(t, lp))
		return false;
	/* The copy of an embedding on a last stage that is not the first does not count. */
	return p->role != DT_W_EMBED || holds_embed(t);
}

/*
 * Whether a parameter's gradient on this rank is partial: summed over tp. Norms see only this rank's rows
 * with sequence parallelism, head norms only its heads, routers only its experts. Of an adapter's two
 * matrices, the unsharded one sees only this rank's part of the other.
 */
static bool of_rank(const struct trainer *t, const struct dt_param *p)
{
	switch (p->role) {
	case DT_W_Q_NORM:
	case DT_W_K_NORM: /* unless sharded like the heads */
		return p->cut == DT_CUT_NONE && t->run.layout.tp > 1;
	case DT_W_ROUTER:
	case DT_W_ROUTER_SCORE_B: /* from the tokens of this rank's experts */
		return t->run.layout.tp > 1;
	case DT_W_ATTN_NORM:
	case DT_W_ATTN_NORM_B:
	case DT_W_MLP_NORM:
	case DT_W_MLP_NORM_B:
	case DT_W_FINAL_NORM:
	case DT_W_FINAL_NORM_B:
	case DT_W_POST_ATTN_NORM:
	case DT_W_POST_MLP_NORM:
	case DT_W_MTP_EMBED_NORM:
	case DT_W_MTP_HIDDEN_NORM:
	case DT_W_MTP_NORM:
	case DT_W_MTP_PROJ:
	case DT_W_EMBED_NORM:
	case DT_W_EMBED_NORM_B:
	case DT_W_MASKED:
	case DT_W_MASKED_B:
	case DT_W_MASKED_NORM:
	case DT_W_MASKED_NORM_B:
	case DT_W_Q_A:
	case DT_W_Q_A_NORM:
	case DT_W_KV_A:
	case DT_W_KV_A_NORM:
		return t->exec.seq_parallel;
	case DT_W_LORA_A:
	case DT_W_LORA_B:
	case DT_W_LORA_M:
		return p->partial || (p->cut == DT_CUT_NONE && t->exec.seq_parallel);
	default:
		return false;
	}
}

int replicas_sum(struct trainer *t, int unit, struct dt_err *err)
{
	const struct dt_local_unit *u = &t->local.unit[unit];
	int rc = 0;

	if (!t->exec.seq_parallel && !t->grads.kv_group &&
	    !((t->config.qk_norm || t->config.lora.rank || t->config.experts) && t->run.layout.tp > 1))
		return 0;
	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		const struct dt_param *p = &t->table.p[lp->index];
		struct dt_comm *c = of_rank(t, p)     ? dt_mesh_comm(&t->mesh, DT_ON_TP)
				    : kv_shared(t, p) ? t->grads.kv_group
						      : NULL;

		if (lp->unit == unit && c && !p->frozen)
			rc = dt_all_reduce(c, t->grads.unit_g[unit] + (lp->flat - u->flat), NULL,
					   (size_t)lp->numel, DT_F32, DT_SUM,
					   "gradients of what tp ranks share", err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
