/* dt-memest: memory that a model and a layout need, and whether it fits. */
#include "base/opt.h"
#include "base/program.h"
#include "base/scratch.h"
#include "base/tmpfile.h"
#include "kernels/unpack.h"
#include "model/file.h"
#include "plan/card.h"
#include "tools/memest_options.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SEQ 4096

static const char *const examples[] = {
	"dt-memest llama-2-7b --train --optimizer adamw --layout dp8.z3 --gpu-mem 80GiB && "
	"echo fits",
	"dt-memest --json llama-2-7b | jq .peak_bytes",
	"dt-memest llama-3-8b --serve --max-seqs 32 --max-len 8192 --gpu-mem 80GiB",
	NULL,
};

static struct memest_args *const a = &memest_args;
static struct dt_opt opts[DT_RUN_OPTS_MAX];

static const struct dt_program program = {
	.name = "dt-memest",
	.summary = "estimate the memory of training or serving a model, and whether it fits",
	.operands = "MODEL",
	.examples = examples,
	.opts = opts,
};

/* ---- printing ---- */

static int print_json(const struct dt_fit *f, const struct dt_solve *s, struct dt_err *err)
{
	json_t *o = dt_fit_json(&a->q, f, a->buffers);
	int rc;

	dt_room_json(&a->room, &a->q, f, s, o);
	if (a->file.tensors)
		json_object_set_new(o, "file",
				    json_pack("{s:s, s:i, s:I, s:I}", "kind", a->file.kind, "tensors",
					      a->file.tensors, "params", (json_int_t)a->file.params,
					      "weight_bytes", (json_int_t)a->file.weight_bytes));
	if (a->why) {
		struct dt_why w;

		rc = dt_why(&a->q, dt_room_budget(&a->room), (int)a->room.node, &w, err);
		if (rc < 0) {
			json_decref(o);
			return rc;
		}
		json_object_set_new(o, "why", dt_why_json(&w));
	}
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc;
}

static int write_svg(const struct dt_fit *f, struct dt_err *err)
{
	struct dt_tmpfile t;
	int rc = dt_tmpfile_open(&t, a->svg, err);

	if (rc < 0)
		return rc;
	dt_fit_svg(&a->q, dt_fit_worst(f), a->room.device ? dt_room_budget(&a->room) : 0, t.f);
	return dt_tmpfile_commit(&t, err);
}

/* ---- the program ---- */

/* Checks beyond the option table. Returns an exit status, or -1 if all is well. */
static int check_usage(int nargs)
{
	const char *dumb = getenv("TERM"), *complaint;
	static const enum dt_dtype plain[] = {DT_F32, DT_BF16, DT_F16};
	struct dt_err err = {0};
	int rc;

	if (nargs == 0 && a->list)
		return -1;
	if (nargs != (a->params ? 0 : 1) || a->list)
		return dt_opt_usage_error(&program, stderr,
					  a->list     ? "--list takes no model"
					  : a->params ? "--params takes no model"
					  : nargs     ? "one model at a time"
						      : "a model is missing");
	a->o.run.compute = a->precision < DT_WF_Q8_0 ? plain[a->precision] : DT_BF16;
	if (dt_run_options_finish(&a->o, &err) < 0)
		return dt_opt_usage_of(&program, stderr, NULL, &err);
	if ((complaint = dt_run_options_lonely(&a->o)))
		return dt_opt_usage_error(&program, stderr, "%s", complaint);
	a->q.run = a->o.run;
	if (!a->q.serve && a->precision >= DT_WF_Q8_0)
		return dt_opt_usage_error(&program, stderr, "a block format of --precision needs --serve");
	if (a->device && (rc = dt_card_free(a->device, &a->room.device, &err)) < 0)
		return rc == -EINVAL ? dt_opt_usage_of(&program, stderr, "device", &err)
				     : dt_program_fail(&program, &err);
	a->q.weights_host = a->device && !a->room.weights_dir;
	a->q.run.on_card = a->device || (a->q.run.offload.what && a->q.run.offload.to == DT_PLACE_HOST);
	if (a->q.serve && a->q.run.lora.dora) { /* adapters applied beside the base weights */
		a->q.loras_dora = true;
		a->q.run.lora.dora = false;
	}
	if (a->q.serve) {
		a->q.loras_whole = a->q.run.lora.modules_to_save;
		a->q.run.lora.modules_to_save = NULL;
	}
	if (a->q.serve && a->solve == DT_SOLVE_ZERO)
		return dt_opt_usage_error(&program, stderr, "--solve zero requires --train");
	if (!a->bars_given)
		a->bars = isatty(STDOUT_FILENO) && dumb && strcmp(dumb, "dumb");
	return -1;
}

/* Compares the estimate with a measurement. Returns an exit status. */
static int check_measured(const struct dt_fit *f, struct dt_err *err)
{
	int rc = dt_fit_check_file(f, a->check, a->constant, a->tolerance, a->json, stdout, err);

	return rc < 0 ? dt_program_fail(&program, err) : rc ? DT_EXIT_OK : DT_EXIT_NO;
}

/* Completes the query with facts that need both options and model. */
static void complete_query(void)
{
	struct dt_fit_query *q = &a->q;
	int64_t usual = a->config.max_seq < DEFAULT_SEQ ? a->config.max_seq : DEFAULT_SEQ;

	q->run.seq = q->run.seq ? q->run.seq : usual;
	q->max_len = q->max_len ? q->max_len : usual;
	q->precision = (enum dt_weight_format)a->precision;
	if (a->activations)
		q->run.compute = a->activations == 1 ? DT_BF16 : DT_F32;
	if (q->serve)
		q->cache_bits = dt_kv_bits(&a->config, a->kv);
	/* A file gives the bytes of its weights; with --precision another type was asked for. */
	q->weight_bytes = q->serve && !a->precision_given ? a->file.weight_bytes : 0;
	q->stored = a->precision_given ? NULL : a->file.format;
	q->extras.lora_rank = q->run.lora.rank;
	q->extras.base =
		a->base_given ? (enum dt_weight_format)a->base : (enum dt_weight_format)q->run.compute;
	q->extras.scores = a->attention;
	if (a->check) {
		a->constant = q->extras.framework_bytes;
		q->extras.framework_bytes = 0;
	}
	q->any_account = a->account == 0;
	q->account = a->account ? (enum dt_account)(a->account - 1) : DT_ACCOUNT_DT;
}

/* Reads --schedule-file, for the number of microbatches of a step. */
static int read_schedule(struct dt_err *err)
{
	struct dt_run *r = &a->q.run;
	int rc;

	if (!r->schedule_file)
		return 0;
	if (!r->accumulation && !r->global_batch)
		r->accumulation = 2 * r->layout.pp;
	rc = dt_run_settle(r, err);
	return rc < 0 ? rc : dt_run_read_schedule(r, &a->schedule, err);
}

/* The closed formulas know sets of matrices, not expressions; dt's own account uses the graph. */
static int set_targets(struct dt_err *err)
{
	const char *which = a->q.run.lora.targets;
	int i = dt_opt_choice_index(DT_LORA_CHOICES, which);

	if (!a->q.run.lora.rank)
		return 0;
	if (i < 0 && a->account > 1 + DT_ACCOUNT_DT)
		return dt_err_set(err, -EINVAL,
				  "--lora-targets '%s' needs --account dt, other accounts know %s", which,
				  DT_LORA_CHOICES);
	if (i < 0) {
		a->q.any_account = false;
		a->q.account = DT_ACCOUNT_DT;
	}
	a->q.extras.targets = i < 0 ? DT_LORA_ALL : (enum dt_lora_targets)i;
	return 0;
}

static int set_vocab(const char *model, struct dt_err *err)
{
	if (a->file.weight_bytes && a->o.run.vocab && a->o.run.vocab != a->config.vocab)
		return dt_err_set(err, -EINVAL, "--vocab %lld: '%s' holds weights for %lld tokens",
				  (long long)a->o.run.vocab, model, (long long)a->config.vocab);
	return dt_config_set_vocab(&a->config, a->o.run.vocab, err);
}

/* --classes and --channels, and --image-size of a model without images; dt_run_adapt applies the size. */
static int set_images(struct dt_err *err)
{
	const char *only = a->classes		 ? "classes"
			   : a->channels	 ? "channels"
			   : a->o.run.image.size ? "image-size"
						 : NULL;

	if (!only)
		return 0;
	if (!dt_config_is_image(&a->config))
		return dt_err_set(err, -EINVAL, "--%s is for classifiers of images, which '%s' is not", only,
				  a->config.name);
	a->config.vocab = a->classes ? a->classes : a->config.vocab;
	a->config.channels = a->channels ? a->channels : a->config.channels;
	return dt_config_check(&a->config, err);
}

/* The block format (--lora-base) of the frozen weights under --lora. */
static enum dt_block_kind base_blocks(void)
{
	if (!a->base_given || !a->q.run.lora.rank)
		return DT_BLOCKS_NONE;
	switch (a->base) {
#define BLOCKS_OF(NAME, name)                                                                                \
	case DT_WF_##NAME:                                                                                   \
		return DT_BLOCKS_##NAME;
		DT_BLOCK_FORMATS(BLOCKS_OF)
#undef BLOCKS_OF
	case DT_WF_NF4:
	case DT_WF_NF4_DQ:
		return DT_BLOCKS_NF4;
	default:
		return DT_BLOCKS_NONE;
	}
}

/* Scratch on this processor: with --threads, or those of the run that --check reads. */
static int set_scratch(struct dt_err *err)
{
	struct dt_measurement m = {0};
	int rc = a->check ? dt_measurement_read(a->check, a->constant, &m, err) : 0;

	if (a->o.run.threads)
		m.threads = a->o.run.threads;
	if (rc == 0 && m.threads)
		a->q.run.scratch = dt_scratch_here((int)m.threads);
	return rc;
}

/* Reads the model and completes the query with it. */
static int read_model(const char *model, struct dt_err *err)
{
	int rc;

	if ((rc = a->params ? dt_config_of_size((double)a->params, &a->config, err)
			    : dt_model_describe(model, &a->config, &a->file, err)) < 0 ||
	    (rc = set_vocab(model, err)) < 0 || (rc = set_images(err)) < 0)
		return rc;
	if (dt_config_is_image(&a->config) && (a->why || dt_solve_is_length((enum dt_solve_what)a->solve)))
		return dt_err_set(err, -EINVAL,
				  "'%s' is an image model: it has no sequences, and no layers to split",
				  model);
	a->q.run.config = &a->config;
	if (a->base_given || !a->q.run.lora.rank)
		a->q.run.lora.base = base_blocks();
	if ((rc = dt_run_adapt(&a->q.run, &a->config, err)) < 0)
		return rc;
	complete_query();
	if ((rc = set_targets(err)) < 0 || (rc = read_schedule(err)) < 0 || (rc = set_scratch(err)) < 0)
		return rc;
	return dt_room_dir(&a->room, &a->q)
		       ? dt_scratch_free(dt_room_dir(&a->room, &a->q), &a->room.disk_free, err)
		       : 0;
}

static int print_report(const struct dt_fit *f, const struct dt_solve *s, int cat, struct dt_err *err)
{
	const bool counts = a->q.run.scratch.threads || a->device || f->account != DT_ACCOUNT_DT ||
			    (a->q.serve && dt_config_is_image(&a->config));
	struct dt_fit_view v = {&a->q, &a->file, a->o.recompute, a->bars, a->timeline, !counts, stdout};
	const struct dt_estimate *worst = dt_fit_worst(f);

	if (a->explain) {
		dt_fit_print_category(&v, worst, cat);
		return 0;
	}
	dt_fit_print_heading(&v, f);
	dt_fit_print_categories(&v, worst);
	if (f->n > 1)
		dt_fit_print_stages(&v, f);
	if (a->buffers)
		dt_fit_print_buffers(&v, worst, -1);
	dt_room_print(&a->room, &a->q, f, s, a->why, stdout);
	return a->why ? dt_fit_print_why(&v, dt_room_budget(&a->room), (int)a->room.node, err) : 0;
}

/* Prints the requested answer. Returns an exit status. */
static int answer(const struct dt_fit *f, const struct dt_solve *s, int cat)
{
	int status = dt_room_fits(&a->room, &a->q, f) ? DT_EXIT_OK : DT_EXIT_NO;
	struct dt_err err = {0};

	if (a->svg && write_svg(f, &err) < 0)
		return dt_program_fail(&program, &err);
	if (a->check)
		return check_measured(f, &err);
	if ((a->json ? print_json(f, s, &err) : print_report(f, s, cat, &err)) < 0)
		return dt_program_fail(&program, &err);
	return status;
}

static int run(const char *model, int cat)
{
	struct dt_fit r;
	struct dt_err err = {0};
	struct dt_solve s = {(enum dt_solve_what)a->solve, &a->q, dt_room_budget(&a->room), false};
	int status;

	if (read_model(model, &err) < 0 || (a->solve && dt_solve(&s, &err) < 0) ||
	    dt_fit_estimate(&a->q, &r, &err) < 0) {
		status = dt_program_fail(&program, &err);
		if (err.code == -ENOSPC) /* more than --recompute auto or --weights-memory may take */
			status = DT_EXIT_NO;
	} else {
		if (a->params)
			dt_fit_guessed(&r);
		status = answer(&r, &s, cat);
		dt_fit_release(&r);
	}
	dt_model_file_release(&a->file);
	dt_schedule_release(&a->schedule);
	return status;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, cat = -1, nargs;

	dt_run_options_table(&a->o, memest_opts, opts);
	nargs = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	setlocale(LC_CTYPE, "");
	if (nargs >= 0) {
		status = check_usage(nargs);
		if (status < 0 && a->explain) {
			cat = dt_est_cat_find(a->explain);
			if (cat < 0)
				status = dt_opt_usage_error(&program, stderr,
							    "option '--explain': no category is called '%s'",
							    a->explain);
		}
		if (status < 0)
			status = a->list ? dt_fit_print_models(stdout), DT_EXIT_OK : run(argv[1], cat);
	}
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED)
		status = dt_program_fail(&program, &err);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
