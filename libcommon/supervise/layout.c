#include "supervise/priv.h"

#include "plan/search.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Describes a cluster of machines like this one, or that of the file, for so many ranks. */
static int describe(const char *file, int ranks, int per_node, struct dt_cluster *c, struct dt_err *err)
{
	int rc = dt_cluster_device("cpu", c, err);
	json_t *o = NULL;

	if (rc == 0)
		dt_cluster_this_machine(c);
	if (rc == 0 && file) {
		rc = dt_json_load(file, 64 << 20, &o, err);
		if (rc == 0 && (rc = dt_cluster_from_json(o, c, err)) < 0)
			dt_err_prefix(err, "'%s'", file);
		json_decref(o);
	}
	return rc < 0 ? rc : dt_cluster_arrange(c, ranks, per_node, DT_TOPO_FAT_TREE, 0, 1, 16, err);
}

/* Finds the fastest layout that fits, with this microbatch; 0: with any. */
static int search(const struct dt_run *run, const struct dt_cluster *cluster, const struct dt_config *config,
		  int64_t microbatch, int64_t batch, struct sup_choice *ret, struct dt_err *err)
{
	int here = cluster->gpus < cluster->gpus_a_node ? cluster->gpus : cluster->gpus_a_node;
	struct dt_plan_query q = {.cluster = cluster,
				  .stack = &dt_stack_dt,
				  .fit = {.run = *run, .account = DT_ACCOUNT_DT},
				  .recompute = (int)run->recompute.mode,
				  .room = (uint64_t)(0.95 * dt_cluster_rank_device(cluster, here).mem_bytes),
				  .dt_train = true};
	struct dt_plan p;
	int rc;

	q.fit.run.config = config;
	q.fit.run.on_card = !cluster->cores;
	q.fit.run.microbatch = microbatch;
	q.fit.run.global_batch = batch;
	q.fit.run.accumulation = 0;
	q.fit.run.layout = (struct dt_layout){0};
	q.fit.precision = (enum dt_weight_format)q.fit.run.compute; /* both enums begin with f32, bf16, f16 */
	rc = dt_plan_search(&q, 1, &p, err);
	if (rc < 0)
		return rc;
	if (p.n) {
		ret->layout = p.best[0].layout;
		ret->microbatch = p.best[0].microbatch;
	} else {
		rc = dt_err_set(err, -ENOSPC, "no layout of %d ranks is valid and fits in memory",
				cluster->gpus);
	}
	dt_plan_release(&p);
	return rc;
}

int sup_choose(const struct sup_command *c, const char *cluster, int ranks, int per_node,
	       struct sup_choice *ret, struct dt_err *err)
{
	struct dt_run_options o = c->o;
	struct dt_cluster machines;
	struct dt_config config;
	int rc = dt_run_options_finish(&o, err);

	if (rc < 0)
		return rc;
	*ret = (struct sup_choice){ranks, o.run.layout, o.run.microbatch, o.run.global_batch};
	if (o.run.watch.elastic ||
	    (!o.run.layout.dp &&
	     !o.run.global_batch)) /* dt-train's default: data parallel, one microbatch per rank */
		ret->layout = (struct dt_layout){
			.dp = ranks, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .zero = o.run.layout.zero};
	if (!ret->global_batch)
		ret->global_batch = ret->microbatch * ret->layout.dp;
	if (ret->layout.dp && dt_layout_world(&ret->layout) == ranks)
		return 0;
	if (!o.run.model)
		return dt_err_set(err, -EINVAL, "dt-train needs --model, so that dt-run can choose a layout");
	if ((rc = dt_config_load(o.run.model, &config, err)) < 0 ||
	    (rc = dt_config_set_vocab(&config, o.run.vocab, err)) < 0 ||
	    (rc = dt_run_adapt(&o.run, &config, err)) < 0 ||
	    (rc = describe(cluster, ranks, per_node, &machines, err)) < 0)
		return rc;
	rc = search(&o.run, &machines, &config, o.run.microbatch, ret->global_batch, ret, err);
	if (rc == -EINVAL || rc == -ENOSPC)
		rc = search(&o.run, &machines, &config, 0, ret->global_batch, ret, err);
	dt_cluster_release(&machines);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
