/* dt-eval: evaluates models: perplexity, tasks with known answers, comparison of two models. */
#include "base/program.h"
#include "base/table.h"
#include "base/tmpfile.h"
#include "data/augment.h"
#include "data/unpack.h"
#include "eval/compare.h"
#include "eval/ppl.h"
#include "nn/device.h"
#include "tools/eval_job.h"
#include "tools/eval_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TEXT   (1ull << 32)
#define MOST_MODELS 16

static const char *const examples[] = {
	"dt-eval ppl run/latest --text heldout.txt",
	"dt-eval compare SmolLM2-135M smol-Q4_0.gguf --text heldout.txt",
	"mpirun -np 2 dt-eval task questions.jsonl run/latest",
	"mpirun -np 2 dt-eval images test.h5 run/latest",
	"dt-eval teacher train.h5 large/latest --seq 512 --out large.teacher",
	NULL,
};

static int run_ppl(int n, char **v);
static int run_task(int n, char **v);
static int run_compare(int n, char **v);
static int run_images(int n, char **v);
static int run_teacher(int n, char **v);

static const struct dt_command commands[] = {
	{"ppl", "MODEL", "Compute the perplexity of a text", run_ppl, 1, 1},
	{"task", "TASK MODEL|URL", "Evaluate a model on a task with known answers", run_task, 2, 2},
	{"compare", "A B...", "Compare models with the first one, on a text or a task", run_compare, 2,
	 MOST_MODELS},
	{"images", "DATA MODEL", "Evaluate an image classifier on a data set", run_images, 2, 2},
	{"teacher", "DATA MODEL", "Store a teacher's log-probabilities of a data set, for distillation",
	 run_teacher, 2, 2},
	{NULL, NULL, NULL, NULL, 0, 0},
};

static const struct dt_program program = {
	.name = "dt-eval",
	.summary = "evaluate and compare models; store teacher log-probabilities for distillation",
	.examples = examples,
	.opts = eval_opts,
	.commands = commands,
	.isa = dt_cpu_isa,
};

/* Checks the devices and weight types of the models. Returns 0 or an exit status. */
static int check_models(void)
{
	const struct dt_eval_opts *o = &eval_args.model;
	struct dt_err err = {0};

	return dt_nn_device_check(o->device, o->weights_memory, o->weights_disk, &err) < 0
		       ? dt_opt_usage_of(&program, stderr, NULL, &err)
		       : 0;
}

/*
 * Checks --seq and --stride against the models' positions. Returns 0 or an exit status. A model that cannot
 * be read is reported when it is opened.
 */
static int check_positions(int n, char **v)
{
	for (int i = 0; i < n; i++) {
		int64_t seq = eval_args.model.seq, usual, most;

		if (eval_is_url(v[i]) || dt_eval_positions(v[i], &usual, &most, NULL) < 0)
			continue;
		if (seq > most)
			return dt_opt_usage_error(&program, stderr,
						  "--seq %lld exceeds the %lld positions of '%s'",
						  (long long)seq, (long long)most, v[i]);
		if (eval_args.stride > (seq ? seq : usual))
			return dt_opt_usage_error(
				&program, stderr, "--stride %lld is larger than the window of %lld tokens",
				(long long)eval_args.stride, (long long)(seq ? seq : usual));
	}
	return 0;
}

/* No file is written that is read. */
static int check_outputs(int n, char **v)
{
	const char *const out[] = {eval_args.teacher.out, eval_args.predictions};

	for (int k = 0; k < 2; k++)
		for (int i = 0; i < n + 2 && out[k]; i++) {
			const char *in = i < n ? v[i] : i == n ? eval_args.text : eval_args.task;

			if (in && access(in, F_OK) == 0 && dt_out_is(out[k], in))
				return dt_opt_usage_error(&program, stderr,
							  "--%s would overwrite the input '%s'",
							  k ? "predictions" : "out", in);
		}
	return 0;
}

/*
 * Checks outputs, and models that are servers. Returns 0 or an exit status. Models from number `first` on get
 * the adapter, which servers do not accept. here: the metric needs logits computed by this program.
 */
static int check_servers(int n, char **v, int first, bool here)
{
	for (int i = 0; i < n; i++) {
		if (!eval_is_url(v[i]))
			continue;
		if (here)
			return dt_opt_usage_error(
				&program, stderr,
				"'%s' is a server: only task, compare --task and teacher accept one", v[i]);
		if (i >= first && eval_args.model.lora)
			return dt_opt_usage_error(
				&program, stderr,
				"--lora does not apply to a server: name its adapter with --model");
	}
	return check_outputs(n, v) ? DT_EXIT_USAGE : check_models();
}

/* Checks that some model reads each option. seq: only models in this process read --seq. */
static int check_unread(int n, char **v, bool seq)
{
	const char *option;
	int servers = 0;

	for (int i = 0; i < n; i++)
		servers += eval_is_url(v[i]);
	option = eval_unread(n, servers, seq);
	return option ? dt_opt_usage_error(&program, stderr, "--%s has no effect: %s", option,
					   servers ? "a server computes the answers" : "no model is a server")
		      : 0;
}

/* ---- ppl ---- */

/* 0, or an exit status. */
static int check_windows(void)
{
	return eval_args.stride && eval_args.windows == DT_WINDOWS_LLAMA
		       ? dt_opt_usage_error(
				 &program, stderr,
				 "--stride does not apply to --windows llama.cpp: they do not overlap")
		       : 0;
}

static int read_text(char **ret, struct dt_ppl_query *q, struct dt_err *err)
{
	/* Only rank 0 has the standard input of mpirun, and a command may print another text each time. */
	int rc = eval_speaks() ? unpack_whole(eval_args.text, MOST_TEXT, ret, &q->n, err) : 0;

	rc = eval_share(rc, ret, &q->n, err);
	q->text = *ret;
	q->windows = (enum dt_windows)eval_args.windows;
	q->stride = eval_args.stride;
	q->limit = eval_args.limit;
	q->bos = eval_args.bos;
	q->ranks = eval_job.all;
	q->rank = eval_job.info.rank;
	q->size = eval_job.info.size;
	return rc;
}

/* The number of windows is not known before the text is tokenized and cut. */
static void show_window(void *arg, int64_t done, int64_t of)
{
	eval_job.bar.total = (uint64_t)of;
	dt_progress_set(&eval_job.bar, (uint64_t)done);
}

static void print_ppl(const struct dt_ppl *p)
{
	printf("perplexity %.4f: NLL %.5f", dt_ppl_perplexity(p), p->nll);
	if (isfinite(p->error))
		printf(" +- %.5f", p->error);
	printf(" nats per token, %.4f bits per byte\n",
	       p->nll * (double)p->tokens / (double)p->bytes / M_LN2);
	printf("%lld of %lld tokens scored, in %lld window%s\n", (long long)p->tokens, (long long)p->count,
	       (long long)p->windows, p->windows == 1 ? "" : "s");
}

static int run_ppl(int n, char **v)
{
	struct dt_eval_model m = {0};
	struct dt_ppl_query q = {0};
	struct dt_ppl p;
	struct dt_err err = {0};
	char *text = NULL;
	int rc;

	if (!eval_args.text)
		return dt_opt_usage_error(&program, stderr, "ppl needs --text");
	if ((rc = check_windows()) || (rc = check_servers(n, v, 0, true)) || (rc = check_positions(n, v)))
		return rc;
	rc = eval_join(&program, &err);
	if (rc == 0)
		rc = eval_agree((rc = read_text(&text, &q, &err)) < 0
					? rc
					: dt_eval_model_open(&m, v[0], &eval_args.model, &err),
				&err);
	if (rc == 0) {
		q.progress = show_window;
		eval_show_start("scoring", 1);
		rc = dt_ppl_run(&m, &q, &p, &err);
		dt_progress_end(&eval_job.bar);
	}
	if (rc == 0 && eval_speaks() && eval_args.json)
		rc = eval_print(dt_ppl_json(&m, &p), &err);
	else if (rc == 0 && eval_speaks())
		print_ppl(&p);
	dt_eval_model_close(&m);
	free(text);
	return eval_finish(&program, rc, &err);
}

/* ---- task ---- */

static int run_task(int n, char **v)
{
	struct dt_err err = {0};
	int rc = check_servers(n, v, 1, false);

	if (rc || (rc = check_unread(1, v + 1, true)) || (rc = check_positions(1, v + 1)))
		return rc;
	rc = eval_join(&program, &err);
	if (rc == 0)
		rc = eval_task(v[0], v[1], &err);
	return eval_finish(&program, rc, &err);
}

/* ---- compare ---- */

static int compare_texts(int n, char **v, struct dt_err *err)
{
	struct dt_table *t = dt_compare_texts_new();
	struct dt_ppl_query q = {.progress = show_window};
	const struct dt_eval_opts base = eval_of_first();
	struct dt_eval_model first = {0};
	char *text = NULL;
	int rc = read_text(&text, &q, err);

	if (rc == 0)
		rc = dt_eval_model_open(&first, v[0], &base, err);
	rc = eval_agree(rc, err);
	for (int i = 1; i < n && rc == 0; i++) {
		struct dt_eval_model m = {0};
		struct dt_ppl_pair p;

		rc = eval_agree(dt_eval_model_open_like(&m, v[i], v[0], &eval_args.model, err), err);
		eval_show_start(v[i], 1);
		if (rc == 0)
			rc = dt_ppl_compare(&first, &m, &q, &p, err);
		dt_progress_end(&eval_job.bar);
		if (rc == 0 && eval_speaks() && eval_args.json)
			rc = eval_print(dt_ppl_pair_json(&first, &m, &p), err);
		if (rc == 0 && i == 1)
			dt_compare_texts_first(t, v[0], &p);
		if (rc == 0)
			dt_compare_texts_row(t, v[i], &p);
		dt_eval_model_close(&m);
	}
	if (rc == 0 && eval_speaks() && !eval_args.json)
		dt_table_print(t, stdout);
	dt_table_free(t);
	dt_eval_model_close(&first);
	free(text);
	return rc;
}

static int run_compare(int n, char **v)
{
	struct dt_err err = {0};
	int rc;

	if (!eval_args.text == !eval_args.task)
		return dt_opt_usage_error(&program, stderr, "compare needs --text or --task%s",
					  eval_args.text ? ", not both" : "");
	if (eval_args.task && (eval_args.stride || eval_args.windows || !eval_args.bos))
		return dt_opt_usage_error(&program, stderr, "--%s has no effect: a task has no windows",
					  eval_args.stride    ? "stride"
					  : eval_args.windows ? "windows"
							      : "no-bos");
	if ((rc = check_windows()) || (rc = check_servers(n, v, 1, eval_args.text != NULL)) ||
	    (rc = check_unread(n, v, true)) || (rc = check_positions(n, v)))
		return rc;
	rc = eval_join(&program, &err);
	if (rc == 0)
		rc = eval_args.text ? compare_texts(n, v, &err) : eval_compare_tasks(n, v, &err);
	return eval_finish(&program, rc, &err);
}

/* ---- images ---- */

static int run_images(int n, char **v)
{
	struct dt_images_query *q = &eval_args.images;
	struct dt_images_result r = {0};
	struct dt_err err = {0};
	float mean[3], deviation[3];
	int rc = check_servers(n, v, 1, true);

	if (rc)
		return rc;
	if (strcmp(q->normalize, "model") && strcmp(q->normalize, "data") &&
	    dt_augment_constants(q->normalize, mean, deviation) < 0)
		return dt_opt_usage_error(&program, stderr,
					  "--normalize '%.40s' is not model, data, cifar10, cifar100, mnist, "
					  "fashion-mnist or imagenet",
					  q->normalize);
	rc = eval_join(&program, &err);
	if (rc == 0 && eval_args.predictions && eval_speaks())
		rc = strcmp(eval_args.predictions, "-")
			     ? dt_out_stream(eval_args.predictions, false, &q->predictions, &err)
			     : (q->predictions = stdout, 0);
	q->data = v[0];
	q->split = (enum dt_image_split)eval_args.split;
	q->limit = eval_args.limit;
	q->unfolded = !eval_args.fold;
	q->tta = (enum dt_tta)eval_args.tta;
	q->ranks = eval_job.all;
	q->rank = eval_job.info.rank;
	q->size = eval_job.info.size;
	q->progress = show_window;
	if (rc == 0 && (rc = eval_agree(rc, &err)) == 0) {
		eval_show_start("classifying", 1);
		rc = dt_images_run(v[1], &eval_args.model, q, &r, &err);
		dt_progress_end(&eval_job.bar);
	}
	if (q->predictions && q->predictions != stdout && fclose(q->predictions) == EOF && rc == 0)
		rc = dt_err_sys(&err, -errno, "cannot write '%s'", eval_args.predictions);
	if (rc == 0 && eval_speaks())
		rc = eval_args.json ? eval_print(dt_images_result_json(v[1], q, &r), &err)
				    : dt_images_result_print(q, &r, stdout, &err);
	dt_images_result_release(&r);
	return eval_finish(&program, rc, &err);
}

/* ---- teacher ---- */

static int run_teacher(int n, char **v)
{
	struct dt_teacher_query *q = &eval_args.teacher;
	const struct dt_teacher_server server = {v[1], eval_args.served, eval_args.key,
						 (int)eval_args.parallel};
	struct dt_teacher_made r = {0};
	struct dt_eval_model m = {0};
	struct dt_err err = {0};
	int rc = check_servers(n, v, 1, false);

	if (rc || (rc = check_unread(1, v + 1, false)))
		return rc;
	if (!q->out)
		return dt_opt_usage_error(&program, stderr, "teacher needs --out");
	rc = eval_join(&program, &err);
	q->data = v[0];
	q->seq = eval_args.model.seq;
	q->ranks = eval_job.all;
	q->rank = eval_job.info.rank;
	q->size = eval_job.info.size;
	q->progress = show_window;
	if (rc == 0)
		rc = eval_agree(dt_teacher_seq(q, &eval_args.model.seq, &err), &err);
	q->seq = eval_args.model.seq;
	if (rc == 0 && !eval_is_url(v[1]))
		rc = eval_agree(dt_eval_model_open(&m, v[1], &eval_args.model, &err), &err);
	if (rc == 0) {
		eval_show_start("teacher", 1);
		rc = eval_is_url(v[1]) ? dt_teacher_ask(&server, q, &r, &err)
				       : dt_teacher_run(&m, q, &r, &err);
		dt_progress_end(&eval_job.bar);
	}
	if (rc == 0 && eval_speaks() && eval_args.json)
		rc = eval_print(dt_teacher_made_json(v[1], q, &r), &err);
	else if (rc == 0 && eval_speaks())
		dt_teacher_made_print(q, &r, stdout);
	dt_eval_model_close(&m);
	return eval_finish(&program, rc, &err);
}

int main(int argc, char **argv)
{
	dt_dev_spin_less(argv);
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
