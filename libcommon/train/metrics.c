#include "train/trainer.h"

#include "base/json.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "plan/run_options.h"
#include "plan/work.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int metrics_open(struct trainer *t, struct dt_err *err)
{
	if (t->info.rank != 0 || !t->run.metrics)
		return 0;
	if (!strcmp(t->run.metrics, "-")) {
		t->report.f = stdout;
		return 0;
	}
	return dt_out_stream(t->run.metrics, t->run.save.resume, &t->report.f, err);
}

bool metrics_wanted(const struct trainer *t)
{
	return t->report.f || export_any(t);
}

int metrics_write(struct trainer *t, json_t *line, struct dt_err *err)
{
	int rc = line ? 0 : dt_err_sys(err, -ENOMEM, "cannot write metrics");

	if (rc == 0 && t->report.f)
		rc = dt_json_write_line(t->report.f, line, err);
	if (rc == 0)
		rc = export_line(t, line, err);
	json_decref(line);
	return rc;
}

/*
 * Peak bytes by category. They do not change, so only the first line of a run has them. Scratch is what was
 * taken, if this rank's plan is the one reported.
 */
static json_t *categories(struct trainer *t)
{
	json_t *list = json_array();

	for (int c = 0; c < DT_EST_CAT_N; c++) {
		double n = t->report.memory.cat_bytes[c];

		if (c == DT_MEM_SCRATCH && n > 0 && t->report.memory_own)
			n = (double)(arena_lent(t) + t->draws.cat_bytes[c]);
		if (n > 0)
			json_array_append_new(list, json_pack("{s:s, s:I}", "name", dt_est_cat_name(c),
							      "bytes", (json_int_t)n));
	}
	t->report.memory_said = true;
	return list;
}

/* {"phase": [...], "bytes": {category: [...], ...}}, one element per point of the step. */
static json_t *over_step(const struct report_memory *m)
{
	json_t *phase = json_array(), *bytes = json_object();
	const int n = (int)m->points;

	for (int k = 0; k < n; k++)
		json_array_append_new(phase, json_string(dt_phase_name((enum dt_phase)m->phase[k])));
	for (int c = 0; c < DT_EST_CAT_N; c++) {
		json_t *list = json_array();
		double all = 0;

		for (int k = 0; k < n; k++) {
			all += m->over[k][c];
			json_array_append_new(list, json_integer((json_int_t)m->over[k][c]));
		}
		if (all > 0)
			json_object_set(bytes, dt_est_cat_name(c), list);
		json_decref(list);
	}
	return json_pack("{s:o, s:o}", "phase", phase, "bytes", bytes);
}

/*
 * Proportional set size (PSS) of this process in bytes: shared pages count in part, where RSS counts them
 * whole in every rank. 0: not known.
 */
static int64_t own_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	int64_t kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f) && !kib)
		if (!strncmp(line, "Pss:", 4))
			kib = strtoll(line + 4, NULL, 10);
	if (f)
		fclose(f);
	return kib * 1024;
}

static void put_memory(struct trainer *t, json_t *line)
{
	int64_t own = own_bytes();

	json_object_set_new(line, "categories", categories(t));
	json_object_set_new(line, "memory_over_step", over_step(&t->report.memory));
	if (own)
		json_object_set_new(line, "pss_bytes", json_integer((json_int_t)own));
}

/* Settings that a prediction of the step time starts from; not with rows from elsewhere (RL). */
static void put_run(struct trainer *t, json_t *line)
{
	if (!t->source.given.g)
		json_object_set_new(line, "run",
				    json_pack("{s:o, s:o, s:i, s:i, s:s}", "options",
					      dt_run_settings(&t->run), "model",
					      dt_config_to_json(&t->config), "ranks", t->info.size, "threads",
					      t->dev->nthreads, "device", t->run.on_card ? "cuda" : "cpu"));
}

/* The number of steps that a line covers. */
static double step_count(const struct trainer *t)
{
	return t->servers.on ? (double)t->servers.lines : 1;
}

static double step_tokens(const struct trainer *t)
{
	return source_tokens_of_step(t) * step_count(t);
}

/* The fields that every line has. NULL: out of memory. */
static json_t *new_line(const struct trainer *t, const struct step_result *r, double step_s)
{
	static const char *const kinds[TR_N] = {"comm_tensor_s", "comm_pipeline_s", "comm_grads_s",
						"comm_weights_s", "comm_other_s"};
	const bool images = dt_config_is_image(&t->config); /* an image has one target */
	struct rusage use;
	double comm = 0;
	json_t *line;

	getrusage(RUSAGE_SELF, &use);
	for (int k = 0; k < TR_N; k++)
		comm += t->t.comm[k];
	line = json_pack("{s:s, s:I, s:o, s:o, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}",
			 "run_id", t->save.run_id, "step", (json_int_t)t->loop.step, "loss",
			 dt_json_number(r->loss), "grad_norm", dt_json_number(r->grad_norm), "lr", r->lr,
			 images ? "images" : "tokens", (json_int_t)t->loop.tokens,
			 images ? "images_per_s" : "tokens_per_s", step_tokens(t) / step_s, "step_s", step_s,
			 "data_s", t->t.data, "compute_s", t->t.compute, "comm_exposed_s", comm,
			 "optimizer_s", t->t.optimizer, "checkpoint_s", t->t.checkpoint, "peak_bytes",
			 (json_int_t)t->report.peak_bytes, "rss_bytes", (json_int_t)use.ru_maxrss * 1024);
	for (int k = 0; k < TR_N && line; k++)
		json_object_set_new(line, kinds[k], json_real(t->t.comm[k]));
	return line;
}

/* Fields of parts of the trainer that the run uses. */
static void put_parts(struct trainer *t, json_t *line)
{
	if (t->exec.seq_parallel)
		json_object_set_new(line, "stream_s", json_real(t->exec.stream.exposed_s));
	experts_metrics(t, line);
	objective_metrics(t, line);
	taught_metrics(t, line);
	if (!t->report.memory_said) {
		put_memory(t, line);
		put_run(t, line);
	}
	offload_metrics(t, line);
	if (dt_config_is_image(&t->config))
		images_metrics(t, line);
	if (t->source.given.g)
		t->source.given.g->metrics(t->source.given.g->arg, line);
}

/* Fields that only some runs or steps have. */
static void put_rest(const struct trainer *t, const struct step_result *r, json_t *line)
{
	if (t->config.mtp_layers)
		json_object_set_new(line, "mtp_loss", dt_json_number(r->mtp_loss));
	if (t->run.loss_scale != 1)
		json_object_set_new(line, "loss_scale", json_real(r->loss_scale));
	if (t->run.noise_scale)
		json_object_set_new(line, "noise_scale",
				    noise_known(&t->noise) ? json_real(noise_scale(&t->noise)) : json_null());
	if (t->run.ramp.tokens)
		json_object_set_new(line, "global_batch", json_integer((json_int_t)t->run.global_batch));
	if (t->backup.a)
		backup_metrics(t, line);
	if (dt_run_unequal(&t->run))
		shares_metrics(t, line);
	if (t->servers.on)
		servers_metrics(t, line);
	if (dt_run_alone(&t->run))
		json_object_set_new(line, "merged", json_boolean(t->outer.one));
	if (r->skipped)
		json_object_set_new(line, "skipped", json_true());
	if (r->why)
		json_object_set_new(line, "why", json_string(r->why));
}

int metrics_step(struct trainer *t, const struct step_result *r, struct dt_err *err)
{
	const double step_s = dt_now() - t->t.start, flops_s = metrics_flops(t) * step_count(t) / step_s;
	json_t *line;

	if (!metrics_wanted(t))
		return 0;
	line = new_line(t, r, step_s);
	if (!line)
		return metrics_write(t, NULL, err);
	if (!r->passed) /* else they have computed nothing */
		put_parts(t, line);
	put_rest(t, r, line);
	json_object_set_new(line, "mfu",
			    t->report.matmul_rate > 0 ? json_real(flops_s / t->report.matmul_rate)
						      : json_null());
	if (t->details.line)
		json_object_set_new(line, "details", details_take(t));
	if (t->report.sheet_rate > 0)
		json_object_set_new(line, "mfu_data_sheet", json_real(flops_s / t->report.sheet_rate));
	return metrics_write(t, line, err);
}

int metrics_eval(struct trainer *t, const struct eval_result *r, double seconds, struct dt_err *err)
{
	const bool images = dt_config_is_image(&t->config);
	json_t *line;

	if (!metrics_wanted(t))
		return 0;
	line = json_pack("{s:s, s:I, s:f, s:I, s:f}", "run_id", t->save.run_id, "step",
			 (json_int_t)t->loop.step, "eval_loss", r->loss,
			 images		     ? "eval_images"
			 : trainer_labels(t) ? "eval_texts"
					     : "eval_tokens",
			 (json_int_t)r->targets, "eval_s", seconds);
	if (line && t->config.mtp_layers)
		json_object_set_new(line, "eval_mtp_loss", json_real(r->mtp_loss));
	if (line && t->run.ema > 0)
		json_object_set_new(line, "ema", json_true());
	if (line && trainer_classifies(t))
		json_object_set_new(line, "top1", json_real(r->top1));
	if (line && images)
		json_object_set_new(line, "top5", json_real(r->top5));
	return metrics_write(t, line, err);
}

int metrics_close(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (t->report.f && t->report.f != stdout && fclose(t->report.f) == EOF)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", t->run.metrics);
	t->report.f = NULL;
	return rc;
}

enum dt_dtype metrics_rate_type(const struct trainer *t)
{
	return t->run.fp8 ? DT_E4M3 : t->run.compute;
}

/* Measures the matmul rate, the ceiling for MFU, on all ranks at once. */
static int measure_rate(struct trainer *t, struct dt_err *err)
{
	int rc;

	if (!t->run.measure_mfu)
		return 0;
	t->report.sheet_rate = dt_dev_sheet_rate(t->dev, metrics_rate_type(t)) * t->info.size;
	rc = dt_barrier(dt_mesh_comm(&t->mesh, DT_ON_ALL), "start of the matmul measurement", err);
	if (rc < 0)
		return rc;
	t->report.matmul_rate = dt_dev_matmul_rate(t->dev, metrics_rate_type(t), 0.3);
	return dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), &t->report.matmul_rate, NULL, 1, DT_F64,
			     DT_SUM, "matmul rate", err);
}

/* The plan, and what samples answers beside it all the time. */
static void plan_to_report(const struct dt_memory_plan *p, const struct dt_draws *d, struct report_memory *m)
{
	m->points = p->nover;
	for (int k = 0; k < p->nover; k++)
		m->phase[k] = p->over[k].phase;
	for (int c = 0; c < DT_EST_CAT_N; c++) {
		const bool in_plan = c < DT_MEM_CAT_N;

		m->cat_bytes[c] = (double)(d->cat_bytes[c] + (in_plan ? p->cat_bytes[c] : 0));
		for (int k = 0; k < p->nover; k++)
			m->over[k][c] = (double)(d->cat_bytes[c] + (in_plan ? p->over[k].cat_bytes[c] : 0));
	}
}

/* The largest memory plan of all ranks, and its categories from the first rank that has it. */
static int largest_plan(struct trainer *t, struct dt_err *err)
{
	struct dt_comm *all = dt_mesh_comm(&t->mesh, DT_ON_ALL);
	struct report_memory *m = &t->report.memory;
	double mine = (double)(t->arena.bytes + t->draws.bytes), first;
	int rc;

	t->report.peak_bytes = mine;
	rc = dt_all_reduce(all, &t->report.peak_bytes, NULL, 1, DT_F64, DT_MAX, "memory plans", err);
	first = mine < t->report.peak_bytes ? 0 : t->info.size - t->info.rank;
	if (rc == 0)
		rc = dt_all_reduce(all, &first, NULL, 1, DT_F64, DT_MAX, "memory plans", err);
	memset(m, 0, sizeof(*m));
	t->report.memory_own = (int)first == t->info.size - t->info.rank;
	if (t->report.memory_own)
		plan_to_report(&t->plan, &t->draws, m);
	if (rc == 0)
		rc = dt_all_reduce(all, m, NULL, sizeof(*m) / sizeof(double), DT_F64, DT_SUM, "memory plans",
				   err);
	return rc;
}

double metrics_flops(const struct trainer *t)
{
	return t->report.sample_flops * (double)source_samples_of_step(t); /* microbatches may be partial */
}

int metrics_measure(struct trainer *t, struct dt_err *err)
{
	double flops = 0;
	int rc = dt_run_model_flops(&t->run, &flops, err);

	t->report.sample_flops =
		flops / ((double)t->run.accumulation * (double)(t->run.microbatch * t->run.layout.dp));

	if (rc == 0)
		rc = largest_plan(t, err);
	return rc < 0 ? rc : measure_rate(t, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
