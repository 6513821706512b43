#include "train/trainer.h"

#include "data/tokenizer.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_data(struct trainer *t, struct dt_err *err)
{
	struct dt_dataset_info eval;
	int rc = dt_dataset_open(t->run.data.train, &t->data, err);

	if (rc < 0)
		return rc;
	dt_dataset_info(t->data, &t->data_info);
	if (t->config.vocab < t->data_info.vocab) {
		dt_err_set(err, -EINVAL,
			   "model vocabulary %lld is smaller than the %d of the tokenizer of '%s'",
			   (long long)t->config.vocab, t->data_info.vocab, t->run.data.train);
		dt_err_hint(err, "choose a model with a larger vocabulary, or rebuild the dataset");
		return -EINVAL;
	}
	rc = dt_sampler_init(&t->sampler, t->data, t->run.seq, t->run.data.seed, true, err);
	if (rc < 0)
		return rc;
	if (!t->run.data.eval)
		return 0;
	rc = dt_dataset_open(t->run.data.eval, &t->eval_data, err);
	if (rc < 0)
		return rc;
	dt_dataset_info(t->eval_data, &eval);
	if (strcmp(eval.tokenizer_hash, t->data_info.tokenizer_hash))
		return dt_err_set(err, -EINVAL, "'%s' and '%s' were made with different tokenizers",
				  t->run.data.train, t->run.data.eval);
	return dt_sampler_init(&t->eval_sampler, t->eval_data, t->run.seq, t->run.data.seed, false, err);
}

/* Threads of this rank: what it is bound to, or an equal share of the machine. */
static int thread_count(struct trainer *t)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN), mine = online;
	cpu_set_t set;

	if (t->run.threads)
		return (int)t->run.threads;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		mine = CPU_COUNT(&set);
	if (mine == online)
		return (int)(online / t->info.local_size > 0 ? online / t->info.local_size : 1);
	if (mine * t->info.local_size < online)
		dt_log_msg(&t->root_log,
			   "each rank is bound to %ld of %ld cores; mpirun --bind-to none gives it %ld", mine,
			   online, online / t->info.local_size);
	return (int)mine;
}

/* Whether collectives work on this buffer: gradients, weights that are gathered, activations at the cuts. */
static bool travels(const struct trainer *t, const struct dt_buf *b)
{
	bool dp = t->run.layout.dp > 1;

	return b->message ||
	       (dp && (b->id == DT_B_GRADS || b->id == DT_B_UNIT_G || b->id == DT_B_UNIT_W ||
		       b->id == DT_B_WIRE || b->id == DT_B_FIXED)) ||
	       (dp && t->run.layout.zero && b->id == DT_B_WEIGHTS);
}

/* These lie in memory that the other ranks of the machine map; buffers on one page share a range. */
static int share_memory(struct trainer *t, struct dt_err *err)
{
	uint64_t page = 4096, from = 0, to = 0, next;
	int rc = 0;

	for (uint64_t at = 0; rc == 0; at = next) { /* by address: the plan is in no order */
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
	return rc == -ENOSPC ? 0 : rc; /* the others are copied */
}

static int bind_memory(struct trainer *t, struct dt_err *err)
{
	int rc = arena_open(t, err);

	if (rc == 0 && dt_dev_is_host(t->dev))
		rc = share_memory(t, err);
	if (rc < 0 || (rc = units_bind(t, err)) < 0)
		return rc;
	rc = dt_exec_open(&t->exec, &t->run, t->mesh.at, &t->plan, t->arena.base, t->mesh.tp, t->dev,
			  t->unit_w, t->unit_g, err);
	return rc < 0 ? rc : pipeline_init(t, err);
}

static int plan_memory(struct trainer *t, struct dt_err *err)
{
	int rc = dt_memory_plan(&t->run, t->mesh.at, &t->plan, err);
	if (rc < 0)
		return rc;
	if (t->run.mem_limit && t->plan.arena_bytes > t->run.mem_limit) {
		t->status = DT_EXIT_NO;
		dt_err_set(err, -ENOSPC, "the plan needs %llu bytes a rank, the limit is %llu",
			   (unsigned long long)t->plan.arena_bytes, (unsigned long long)t->run.mem_limit);
		dt_err_hint(err, "see dt-memest for what would make it fit");
		return -ENOSPC;
	}
	return 0;
}

enum dt_dtype trainer_rate_type(const struct trainer *t)
{
	return t->run.fp8 ? DT_E4M3 : t->run.compute;
}

/* The ceiling for MFU: every rank measures at the same time, as they will compute. */
static int measure_rate(struct trainer *t, struct dt_err *err)
{
	int rc;

	if (!t->run.measure_mfu)
		return 0;
	t->sheet_rate = dt_dev_sheet_rate(t->dev, trainer_rate_type(t)) * t->info.size;
	rc = dt_barrier(t->mesh.world, "start of the matmul measurement", err);
	if (rc < 0)
		return rc;
	t->matmul_rate = dt_dev_matmul_rate(t->dev, trainer_rate_type(t), 0.3);
	return dt_all_reduce(t->mesh.world, &t->matmul_rate, NULL, 1, DT_F64, DT_SUM, "matmul rate", err);
}

/* What each rank can find out alone. */
static int describe(struct trainer *t, struct dt_err *err)
{
	struct dt_run *r = &t->run;
	char layout[64];
	int rc = dt_config_load(r->model, &t->config, err), world;

	if (rc < 0)
		return rc;
	t->status = DT_EXIT_USAGE;
	if (!r->layout.dp) {
		r->layout = (struct dt_layout){.dp = t->info.size, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
		if (t->info.size > 1)
			dt_log_msg(&t->root_log, "%d ranks and no --layout: dp%d", t->info.size,
				   t->info.size);
	}
	world = dt_layout_world(&r->layout);
	if (world != t->info.size) {
		dt_err_set(err, -EINVAL, "layout '%s' is for %d ranks, but %d were started",
			   dt_layout_format(&r->layout, layout, sizeof(layout)), world, t->info.size);
		dt_err_hint(err, "start it with: mpirun -np %d dt-train ...", world);
		return -EINVAL;
	}
	if ((rc = dt_run_settle(r, err)) < 0 || (rc = dt_run_read_schedule(r, &t->file_sched, err)) < 0 ||
	    (rc = dt_run_check(r, err)) < 0)
		return rc;
	t->status = DT_EXIT_FAILED;
	rc = folder_check(t, err);
	return rc == 0 ? open_data(t, err) : rc;
}

static int allocate(struct trainer *t, struct dt_err *err)
{
	int rc;

	if ((rc = device_open(t, thread_count(t), err)) < 0)
		return rc;
	t->run.on_card = !dt_dev_is_host(t->dev);
	if ((rc = plan_memory(t, err)) < 0 || (rc = dt_model_params(&t->config, &t->table, err)) < 0 ||
	    (rc = dt_local_build(&t->table, &t->config, &t->run.layout, t->mesh.at, &t->local, err)) < 0)
		return rc;
	if ((rc = bind_memory(t, err)) < 0 || (rc = reduce_init(t, err)) < 0)
		return rc;
	return metrics_open(t, err);
}

/* The largest plan of all ranks, and of the first rank that has it what its bytes are for. */
static int largest_plan(struct trainer *t, struct dt_err *err)
{
	double mine = (double)t->arena.bytes, first;
	int rc;

	t->peak_bytes = mine;
	rc = dt_all_reduce(t->mesh.world, &t->peak_bytes, NULL, 1, DT_F64, DT_MAX, "memory plans", err);
	first = mine < t->peak_bytes ? 0 : t->info.size - t->info.rank;
	if (rc == 0)
		rc = dt_all_reduce(t->mesh.world, &first, NULL, 1, DT_F64, DT_MAX, "memory plans", err);
	for (int i = 0; i < DT_MEM_CAT_N; i++)
		t->cat_bytes[i] =
			(int)first == t->info.size - t->info.rank ? (double)t->plan.cat_bytes[i] : 0;
	if (rc == 0)
		rc = dt_all_reduce(t->mesh.world, t->cat_bytes, NULL, DT_MEM_CAT_N, DT_F64, DT_SUM,
				   "memory plans", err);
	return rc;
}

int trainer_init(struct trainer *t, const struct dt_run *r, struct dt_world *w, const struct dt_log *log,
		 struct dt_err *err)
{
	struct dt_layout flat = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	int rc;

	memset(t, 0, sizeof(*t));
	t->run = *r;
	t->run.config = &t->config;
	t->loss_scale = r->loss_scale != 0 ? r->loss_scale : r->loss_scale_start;
	t->world = w;
	t->log = log;
	t->status = DT_EXIT_FAILED;
	dt_world_info(w, &t->info);
	t->root_log = *log;
	t->root_log.rank = -1;
	if (t->info.rank != 0)
		t->root_log.f = NULL;
	flat.dp = t->info.size;
	if ((rc = dt_mesh_init(&t->everyone, w, &flat, err)) < 0 ||
	    (rc = trainer_agree(t, describe(t, err), err)) < 0 ||
	    (rc = dt_mesh_init(&t->mesh, w, &t->run.layout, err)) < 0 || (rc = replicas_init(t, err)) < 0 ||
	    (rc = trainer_agree(t, allocate(t, err), err)) < 0)
		return rc;
	rc = largest_plan(t, err);
	return rc < 0 ? rc : measure_rate(t, err);
}

void trainer_release(struct trainer *t)
{
	trainer_drop_save(t);
	folder_release(t);
	reduce_release(t);
	pipeline_release(t);
	units_release(t);
	dt_exec_close(&t->exec);
	arena_close(t);
	if (t->dev)
		dt_dev_close(t->dev);
	dt_memory_plan_release(&t->plan);
	dt_local_release(&t->local);
	dt_params_release(&t->table);
	dt_schedule_release(&t->file_sched);
	dt_comm_free(t->kv_group);
	dt_mesh_release(&t->mesh);
	dt_mesh_release(&t->everyone);
	if (t->data)
		dt_dataset_close(t->data);
	if (t->eval_data)
		dt_dataset_close(t->eval_data);
}
