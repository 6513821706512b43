#include "plan/again.h"

#include "model/flops.h"
#include "plan/stepcost.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

int dt_again_machine(const struct dt_run *r, struct dt_cluster *ret, struct dt_err *err)
{
	json_t *o = NULL;
	int rc = dt_cluster_device(r->on_card ? "H100" : "cpu", ret, err);

	if (rc < 0 || !r->ops)
		return rc;
	rc = dt_json_load(r->ops, 64 << 20, &o, err);
	if (rc == 0 && (rc = dt_cluster_set_ops(ret, o, err)) < 0)
		dt_err_prefix(err, "'%s'", r->ops);
	json_decref(o);
	return rc;
}

int dt_again_weigh(const struct dt_run *r, const struct dt_cluster *c, int ranks, struct dt_again_cost *ret,
		   struct dt_err *err)
{
	struct dt_run every = *r;
	struct dt_step_model m;
	struct dt_work w;
	int rc;

	every.recompute.layers = 1; /* then all layers are the same */
	every.recompute.steps = ranks;
	rc = dt_work_open_rank(&every, &w, err);
	*ret = (struct dt_again_cost){0};
	if (rc == 0) {
		dt_step_model_init(&m, c, &every, &dt_stack_dt, &w);
		ret->here = m.here;
		ret->device = m.dev;
		for (int64_t i = 0; i < w.layers; i++) {
			struct dt_layer_cost t = dt_layer_time(&m, (int)i);
			double n = dt_work_times(&w, i);

			ret->kept += n * w.unit[i + 1].kept;
			ret->again += n * t.again;
			ret->compute += n * (dt_cost_sum(&t.f) + dt_cost_sum(&t.b) + t.w);
		}
	}
	dt_work_release(&w);
	return rc;
}

/* Adds a value, next to those of the same memory (root), which form a group. */
static void add_value(struct dt_keep *k, int *group, int root, const struct dt_node *n, int out,
		      const char *what)
{
	int op = n->op == DT_OP_LINEAR8 ? DT_OP_LINEAR : (int)n->op, at = k->nvalue;

	for (int i = 0; i < k->nvalue; i++)
		if (k->value[i].op == op && k->value[i].out == out && !strcmp(k->value[i].name, n->name))
			return; /* already added for another layer */
	if (at == DT_KEEP_VALUES)
		return;
	while (at > 0 && group[at - 1] > root) /* keep groups together */
		at--;
	memmove(&k->value[at + 1], &k->value[at], (size_t)(k->nvalue - at) * sizeof(*k->value));
	memmove(&group[at + 1], &group[at], (size_t)(k->nvalue - at) * sizeof(*group));
	k->value[at] = (struct dt_keep_value){n->name, what, op, out, INT_MAX};
	group[at] = root;
	k->nvalue++;
}

/* Lists what layers keep without recomputation; values that share memory have the same group[i]. */
static int list_values(const struct dt_run *r, struct dt_keep *k, int group[DT_KEEP_VALUES],
		       struct dt_err *err)
{
	struct dt_config few;
	struct dt_stage s;
	int rc = dt_work_stage(r, &few, &s, err);
	const struct dt_prog *p = &s.chunk[0];

	if (rc < 0)
		return rc;
	for (int i = 0; i < p->start[DT_LIST_LOSS]; i++) {
		const struct dt_node *n = &p->step[i].n;

		for (int out = 0; out < DT_NODE_OUT; out++) {
			int root = n->out[out] < 0 ? -1 : dt_value_root(p, n->out[out]);

			if (root >= 0 && p->value[root].life == DT_LIFE_KEPT && n->unit >= 0 &&
			    n->unit < few.layers && !(n->entry && out == (n->op == DT_OP_NORM)))
				add_value(k, group, root, n, out, p->value[n->out[out]].name);
		}
	}
	dt_stage_release(&s);
	return 0;
}

static void set_rank(struct dt_keep *k, const int *group, int of, int rank)
{
	for (int i = 0; i < k->nvalue; i++)
		if (group[i] == of)
			k->value[i].rank = rank;
}

/* Whether a value may be recomputed with a split backward: only norms and activations of kept values. */
static bool allowed(const struct dt_run *r, const struct dt_keep_value *v)
{
	return !dt_run_splits(r) || (v->out == 0 && dt_node_op_flags((enum dt_op)v->op) & DT_OPF_CHEAP) ||
	       (v->out == 1 && v->op == DT_OP_LINEAR_ACT);
}

/* Finds the group that is best recomputed next; -1: none frees memory. */
static int next(struct dt_run *r, const struct dt_cluster *c, const int *group, int ranks,
		const struct dt_again_cost *now, struct dt_err *err, int *ret)
{
	struct dt_keep *k = &r->recompute;
	double best = 0;

	*ret = -1;
	for (int i = 0; i < k->nvalue; i++) {
		struct dt_again_cost then;
		double worth;
		int rc;

		if (k->value[i].rank != INT_MAX || (i > 0 && group[i] == group[i - 1]) ||
		    !allowed(r, &k->value[i]))
			continue;
		set_rank(k, group, group[i], ranks);
		rc = dt_again_weigh(r, c, ranks + 1, &then, err);
		set_rank(k, group, group[i], INT_MAX);
		if (rc < 0)
			return rc;
		worth = then.kept >= now->kept
				? 0
				: (now->kept - then.kept) /
					  (then.again > now->again ? then.again - now->again : 1e-15);
		if (worth > best) {
			best = worth;
			*ret = group[i];
		}
	}
	return 0;
}

int dt_again_order(struct dt_run *r, const struct dt_cluster *machine, int *ret_ranks, struct dt_err *err)
{
	int group[DT_KEEP_VALUES], ranks = 0, chosen = 0, rc;
	struct dt_keep *k = &r->recompute;
	struct dt_again_cost now;

	k->nvalue = 0;
	rc = list_values(r, k, group, err);
	while (rc == 0 && chosen >= 0) {
		rc = dt_again_weigh(r, machine, ranks, &now, err);
		if (rc == 0)
			rc = next(r, machine, group, ranks, &now, err, &chosen);
		if (rc == 0 && chosen >= 0)
			set_rank(k, group, chosen, ranks++);
	}
	for (int i = 0; rc == 0 && !dt_run_splits(r) && i < k->nvalue; i++)
		if (k->value[i].rank == INT_MAX) { /* frees nothing alone, but does with the others */
			k->value[i].rank = ranks;
			chosen = 0;
		}
	*ret_ranks = ranks + (chosen == 0);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
