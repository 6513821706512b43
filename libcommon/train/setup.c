#include "train/init.h"
#include "train/outputs.h"
#include "train/trainer.h"

#include "base/units.h"
#include "data/tokenizer.h"
#include "nn/device.h"
#include "plan/draws.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The threads of this rank: the cores it is bound to, or an equal share of the node's. */
static int thread_count(struct trainer *t)
{
	int online = (int)sysconf(_SC_NPROCESSORS_ONLN), mine, n = dt_world_threads(&t->info, &mine);

	if (t->run.threads)
		return (int)t->run.threads;
	if (mine < online && mine * t->info.local_size < online)
		dt_log_msg(&t->root_log,
			   "each rank is bound to %d of %d cores; mpirun --bind-to none gives it %d", mine,
			   online, online / t->info.local_size);
	return n;
}

/* Whether collectives use this buffer: gradients, gathered weights, activations at layout boundaries. */
static bool travels(const struct trainer *t, const struct dt_buf *b)
{
	bool data = dt_layout_data(&t->run.layout) > 1;

	return b->message ||
	       (data && (b->id == DT_B_GRADS || b->id == DT_B_UNIT_G || b->id == DT_B_UNIT_W ||
			 b->id == DT_B_UNIT_SHARE || b->id == DT_B_WIRE || b->id == DT_B_FIXED)) ||
	       (data && t->run.layout.zero && b->id == DT_B_WEIGHTS) ||
	       (dt_run_served(&t->run) &&
		(b->id == DT_B_MASTER || b->id == DT_B_OPTIM1 || b->id == DT_B_OPTIM2 || b->id == DT_B_SUMS ||
		 b->id == DT_B_CLOCKS));
}

/* Shares these buffers with the other ranks of the node; buffers on the same page are one range. */
static int share_memory(struct trainer *t, struct dt_err *err)
{
	uint64_t page = 4096, from = 0, to = 0, next;
	int rc = 0;

	for (uint64_t at = 0; rc == 0; at = next) { /* by address: the plan's buffers are in no order */
		const struct dt_buf *first = NULL;

		for (int i = 0; i < t->plan.n; i++) {
			const struct dt_buf *b = &t->plan.buf[i];

			if (travels(t, b) && b->bytes && b->offset + b->bytes > at &&
			    (!first || b->offset < first->offset))
				first = b;
		}
		if (first && to && first->offset / page * page <= to) {
			next = first->offset + first->bytes;
			to = next > to ? next : to;
			continue;
		}
		if (to)
			rc = dt_buffer_share(t->world, t->arena.base + from, to - from, err);
		if (!first)
			break;
		from = first->offset;
		to = next = first->offset + first->bytes;
	}
	return rc == -ENOSPC ? 0 : rc; /* what is not shared is copied */
}

static int bind_memory(struct trainer *t, struct dt_err *err)
{
	int rc = arena_open(t, err);

	if (rc == 0 && dt_dev_is_host(t->dev))
		rc = share_memory(t, err);
	if (rc == 0)
		rc = servers_bind(t, err);
	if (rc < 0 || (rc = offload_bind(t, err)) < 0 || (rc = stash_bind(t, err)) < 0 ||
	    (rc = store_bind(t, err)) < 0 || (rc = grads_bind(t, err)) < 0 || (rc = optim_bind(t, err)) < 0)
		return rc;
	rc = outer_bind(t, err);
	peer_bind(t);
	ema_bind(t);
	beside_bind(t);
	if (rc == 0)
		rc = host_buffer(t, DT_B_CARRIED, &t->carried, err);
	if (rc == 0)
		rc = compressed_bind(t, err);
	if (rc == 0)
		rc = backup_open(t, err);
	if (rc == 0)
		rc = servers_open(t, err);
	if (rc == 0)
		rc = pace_open(t, err);
	if (rc < 0)
		return rc;
	rc = dt_exec_open(&t->exec, &t->run, t->mesh.at, &t->plan, t->arena.base,
			  dt_mesh_comm(&t->mesh, DT_ON_TP), t->dev, t->store.unit_w, t->grads.unit_g, err);
	t->exec.cp = dt_mesh_comm(&t->mesh, DT_ON_CP);
	t->exec.mixture.ep = t->run.layout.ep > 1 ? dt_mesh_comm(&t->mesh, DT_ON_EP) : NULL;
	t->exec.mixture.data = dt_mesh_comm(&t->mesh, DT_ON_DATA);
	if (rc < 0)
		return rc;
	rc = buffers_bind(t, err);
	behind_bind(t);
	if (rc == 0)
		rc = taught_start(t, err);
	return rc == 0 ? pipeline_init(t, err) : rc;
}

static int plan_memory(struct trainer *t, struct dt_err *err)
{
	int rc = dt_memory_plan(&t->run, t->mesh.at, &t->plan, err);
	char need[32], limit[32];
	uint64_t bytes;

	if (rc == -ENOSPC) /* it does not fit even with recomputation */
		t->status = DT_EXIT_NO;
	if (rc < 0)
		return rc;
	if ((rc = dt_draws_bytes(&t->run, &t->draws, err)) < 0)
		return rc;
	bytes = t->plan.arena_bytes + t->draws.bytes;
	if (t->run.mem_limit && bytes > t->run.mem_limit) {
		t->status = DT_EXIT_NO;
		dt_err_set(err, -ENOSPC, "the plan needs %llu bytes per rank (%s), the limit is %llu (%s)",
			   (unsigned long long)bytes, dt_format_size_up(bytes, need, sizeof(need)),
			   (unsigned long long)t->run.mem_limit,
			   dt_format_size(t->run.mem_limit, limit, sizeof(limit)));
		dt_err_hint(err, "see dt-memest for what would make it fit");
		return -ENOSPC;
	}
	return 0;
}

/* Everything that each rank can determine alone. */
static int describe(struct trainer *t, struct dt_err *err)
{
	struct dt_run *r = &t->run;
	char layout[64];
	int rc = init_open(t, err), world;

	if (rc == 0)
		rc = dt_config_load(r->model, &t->config, err);
	else if (rc == 1 && r->vocab && r->vocab != t->config.vocab)
		rc = dt_err_set(err, -EINVAL, "--vocab %lld: '%s' holds weights for %lld tokens",
				(long long)r->vocab, r->model, (long long)t->config.vocab);
	if (rc == 0)
		rc = dt_config_set_vocab(&t->config, r->vocab, err);
	if (rc < 0)
		return rc;
	rc = source_describe(t, err);
	if (rc < 0)
		return rc;
	t->status = DT_EXIT_USAGE;
	if ((rc = inject_open(t, err)) < 0 || (rc = dt_run_adapt(r, &t->config, err)) < 0 ||
	    (rc = init_name_base(t, err)) < 0)
		return rc;
	if (!r->layout.dp) {
		r->layout = (struct dt_layout){.dp = t->info.size, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
		if (t->info.size > 1)
			dt_log_msg(&t->root_log, "%d ranks without --layout: using dp%d", t->info.size,
				   t->info.size);
	}
	world = dt_layout_world(&r->layout);
	if (world != t->info.size) {
		dt_err_set(err, -EINVAL, "layout '%s' is for %d ranks, but %d %s started",
			   dt_layout_format(&r->layout, layout, sizeof(layout)), world, t->info.size,
			   t->info.size == 1 ? "was" : "were");
		dt_err_hint(err, "start it with: mpirun -np %d dt-train ...", world);
		return -EINVAL;
	}
	servers_choose(t);
	r->on_card = dt_nn_device_is_card(r->device);
	if (r->device && !strcmp(r->device, "auto")) /* dt_nn_device_is_card has tried it */
		r->device = r->on_card ? "cuda" : "cpu";
	if ((rc = dt_run_settle(r, err)) < 0 || (rc = dt_run_read_schedule(r, &t->file_sched, err)) < 0 ||
	    (rc = dt_run_check(r, err)) < 0)
		return rc;
	if (r->offload.to == DT_PLACE_DISK && r->offload.what && !r->offload.dir)
		return dt_err_set(err, -EINVAL, "--offload-to %s: give a folder, as disk:DIR",
				  r->offload.to_text);
	t->status = DT_EXIT_FAILED;
	rc = folder_check(t, err);
	if (rc == 0)
		rc = outputs_check(t, err);
	if (rc == 0)
		rc = shares_open(t, err);
	return rc == 0 ? source_open(t, err) : rc;
}

static int plan(struct trainer *t, struct dt_err *err)
{
	int rc;

	if ((rc = device_open(t, thread_count(t), err)) < 0)
		return rc;
	t->run.scratch = dt_dev_scratch_on(t->dev);
	if ((rc = plan_memory(t, err)) < 0 || (rc = dt_model_params(&t->config, &t->table, err)) < 0 ||
	    (rc = dt_run_decay(&t->run, &t->table, err)) < 0 ||
	    (rc = dt_run_rates(&t->run, &t->table, err)) < 0)
		return rc;
	return dt_local_build(&t->table, &t->config, &t->run.layout, t->mesh.at, &t->local, err);
}

static int allocate(struct trainer *t, struct dt_err *err)
{
	int rc = bind_memory(t, err);

	if (rc == 0)
		rc = drawn_open(t, err);
	if (rc == 0)
		rc = t->source.given.g ? given_start(t, err) : objective_open(t, err);
	if (rc == 0)
		rc = source_noise(t, err);
	return rc < 0 ? rc : reduce_init(t, err);
}

/* Makes every group of this layout, in the same order on all ranks. */
static int make_groups(struct trainer *t, struct dt_err *err)
{
	static const unsigned sets[] = {DT_ON_DATA, DT_ON_TP, DT_ON_PP, DT_ON_CP, DT_ON_MODEL};
	int rc = dt_mesh_init(&t->mesh, t->world, &t->run.layout, err);

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]) && rc == 0; i++)
		rc = dt_mesh_need(&t->mesh, sets[i], err);
	if (rc == 0 && t->run.layout.ep > 1)
		rc = dt_mesh_need(&t->mesh, DT_ON_EP, err);
	if (rc == 0 && t->run.layout.ep > 1)
		rc = dt_mesh_need(&t->mesh, DT_ON_EDP, err);
	return rc;
}

/* Agrees on the number of cores, so that the plan makes the same choice on all ranks. */
static int agree_cores(struct trainer *t, struct dt_err *err)
{
	double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
	int rc = 0;

	if (t->run.recompute.fit && t->run.offload.what & DT_OFFLOAD_ACTIVATIONS)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), &cores, NULL, 1, DT_F64, DT_MIN,
				   "cores of machines", err);
	t->run.offload.cores = (int)cores;
	return rc;
}

int trainer_init(struct trainer *t, const struct dt_run *r, const struct dt_given *given, struct dt_world *w,
		 const struct dt_log *log, struct dt_err *err)
{
	struct dt_layout flat = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	int rc;

	memset(t, 0, sizeof(*t));
	t->run = *r;
	t->run.config = &t->config;
	t->source.given.g = given;
	t->world = w;
	t->log = log;
	t->status = DT_EXIT_FAILED;
	t->save.newest = -1;
	dt_world_info(w, &t->info);
	t->born = t->info.rank;
	t->root_log = *log;
	t->root_log.rank = -1;
	if (t->info.rank != 0)
		t->root_log.f = NULL;
	flat.dp = t->info.size;
	if ((rc = dt_mesh_init(&t->everyone, w, &flat, err)) < 0 ||
	    (rc = trainer_agree(t, describe(t, err), err)) < 0 || (rc = make_groups(t, err)) < 0 ||
	    (rc = device_choose(t, err)) < 0 || (rc = replicas_init(t, err)) < 0 ||
	    (rc = buffers_group(t, err)) < 0 || (rc = compressed_choose(t, err)) < 0 ||
	    (rc = agree_cores(t, err)) < 0 || (rc = trainer_agree(t, plan(t, err), err)) < 0 ||
	    (rc = trainer_check_room(t, err)) < 0 || (rc = trainer_agree(t, allocate(t, err), err)) < 0 ||
	    (rc = offload_start(t, err)) < 0 || (rc = metrics_measure(t, err)) < 0)
		return rc;
	arena_lend(t);
	return trainer_agree(t, details_open(t, err), err);
}

void trainer_release(struct trainer *t)
{
	trainer_drop_save(t);
	folder_release(t);
	pipeline_release(t);
	compressed_release(t);
	backup_release(t);
	pace_release(t);
	grads_release(t);
	servers_release(t);
	shares_release(t);
	buffers_release(t);
	drawn_close(t);
	store_release(t);
	optim_release(t);
	experts_release(t);
	objective_release(t);
	details_release(t);
	offload_close(t);
	stash_close(t);
	dt_exec_close(&t->exec);
	init_close(t);
	arena_close(t);
	if (t->dev)
		dt_dev_close(t->dev);
	dt_memory_plan_release(&t->plan);
	dt_local_release(&t->local);
	dt_params_release(&t->table);
	dt_schedule_release(&t->file_sched);
	dt_mesh_release(&t->mesh);
	dt_mesh_release(&t->everyone);
	source_close(t);
	skips_release(t);
}
/* SPDX-License-Identifier: Apache-2.0 */
