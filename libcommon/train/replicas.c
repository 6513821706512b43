#include "train/trainer.h"

/* Kinds of what attention heads, or Mamba-2's, share: how many, and the ranks that hold the same one. */
static int64_t units(const struct trainer *t, int kind)
{
	return kind ? t->config.ssm_groups : dt_config_attends(&t->config) ? t->config.kv_heads : 0;
}

/* The ranks that hold the same part of a parameter; NULL: every rank has its own. */
static struct dt_comm *sharing(const struct trainer *t, const struct dt_param *p)
{
	if (p->cut != DT_CUT_KV)
		return NULL;
	return t->grads.shared[p->role >= DT_W_SSM_Z && p->role <= DT_W_SSM_OUT];
}

/* With fewer keys and values, or groups, than tensor-parallel ranks, neighbours hold the same one. */
int replicas_init(struct trainer *t, struct dt_err *err)
{
	const int tp = t->run.layout.tp;
	int rc = 0;

	for (int k = 0; k < 2 && rc == 0; k++) {
		const int n = (int)units(t, k);

		if (n && tp > n)
			rc = dt_comm_create(&t->grads.shared[k], t->world, k ? "groups" : "kv heads",
					    t->info.rank / tp * n + t->mesh.at.tp * n / tp, t->info.rank,
					    err);
	}
	return rc;
}

void replicas_release(struct trainer *t)
{
	for (int k = 0; k < 2; k++) {
		dt_comm_free(t->grads.shared[k]);
		t->grads.shared[k] = NULL;
	}
}

bool counts_along_tp(const struct trainer *t, const struct dt_local_param *lp)
{
	const struct dt_param *p = &t->table.p[lp->index];

	if (t->mesh.at.tp != 0 && p->cut == DT_CUT_NONE)
		return false;
	return !sharing(t, p) || dt_comm_rank(sharing(t, p)) == 0;
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

	if (!t->exec.seq_parallel && !t->grads.shared[0] && !t->grads.shared[1] &&
	    !((t->config.qk_norm || t->config.lora.rank || t->config.experts) && t->run.layout.tp > 1))
		return 0;
	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		const struct dt_param *p = &t->table.p[lp->index];
		struct dt_comm *c = of_rank(t, p) ? dt_mesh_comm(&t->mesh, DT_ON_TP) : sharing(t, p);

		if (lp->unit == unit && c && !p->frozen)
			rc = dt_all_reduce(c, t->grads.unit_g[unit] + (lp->flat - u->flat), NULL,
					   (size_t)lp->numel, DT_F32, DT_SUM,
					   "gradients of what tp ranks share", err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
