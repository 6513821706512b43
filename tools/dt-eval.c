/* dt-eval: how good a model is: perplexity, tasks with known answers, and two models beside each other. */
#include "base/program.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/tmpfile.h"
#include "eval/compare.h"
#include "eval/ppl.h"
#include "eval/score.h"
#include "kernels/quant_formats.h"
#include "tools/eval_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TEXT   (1ull << 32)
#define MOST_MODELS 16

/* The job that the ranks are. */
static struct {
	struct dt_log log;
	struct dt_world *world;
	struct dt_comm *all;
	struct dt_world_info info;
	struct dt_progress bar;
} job;

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
	{"ppl", "MODEL", "Perplexity of a text", run_ppl, 1, 1},
	{"task", "TASK MODEL|URL", "Answer the questions of a task, and count", run_task, 2, 2},
	{"compare", "A B...", "A text or a task on several models, each beside the first", run_compare, 2,
	 MOST_MODELS},
	{"images", "DATA MODEL", "Classify the images of a data set, and count", run_images, 2, 2},
	{"teacher", "DATA MODEL", "Keep what a model gives a training set, for another to learn", run_teacher,
	 2, 2},
	{NULL, NULL, NULL, NULL, 0, 0},
};

static const struct dt_program program = {
	.name = "dt-eval",
	.summary = "measure how good models are",
	.examples = examples,
	.opts = eval_opts,
	.commands = commands,
	.isa = dt_cpu_isa,
};

/* ---- the job ---- */

static bool speaks(void)
{
	return job.info.rank == 0;
}

static int join_ranks(struct dt_err *err)
{
	char word[16];
	int rc;

	job.log = (struct dt_log){.f = stderr, .name = program.name, .rank = -1};
	rc = dt_world_init(&job.world, 3600, &job.log, err);
	if (rc < 0)
		return rc;
	dt_world_info(job.world, &job.info);
	rc = dt_comm_create(&job.all, job.world, "world", 0, job.info.rank, err);
	eval_args.model.fp32 = eval_args.precision == 1;
	eval_args.model.weights =
		eval_args.weights ? dt_format_parse(dt_opt_choice_name(EVAL_WEIGHTS, eval_args.weights, word,
								       sizeof(word)))
				  : -1;
	if (!eval_args.model.threads) {
		int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);

		eval_args.model.threads = cores > job.info.local_size ? cores / job.info.local_size : 1;
	}
	return rc;
}

/* rc of every rank becomes one: the first that failed keeps its message. */
static int agree(int rc, struct dt_err *err)
{
	return job.info.size > 1 ? dt_comm_agree(job.all, rc, NULL, err) : rc;
}

static int finish(int rc, int status, struct dt_err *err)
{
	if (rc < 0)
		status = dt_program_fail(&program, err);
	if (job.world) {
		dt_comm_free(job.all);
		dt_world_finalize(job.world);
	}
	return status;
}

static void show(void *arg, int64_t done, int64_t of)
{
	dt_progress_set(&job.bar, (uint64_t)done);
}

static void show_start(const char *label, int64_t of)
{
	dt_progress_start(&job.bar, speaks() ? stderr : NULL, label, (uint64_t)of, false);
}

static int print(json_t *o, struct dt_err *err)
{
	int rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "cannot print");

	json_decref(o);
	return rc;
}

/* ---- ppl ---- */

static int read_text(char **ret, struct dt_ppl_query *q, struct dt_err *err)
{
	int rc = dt_read_file(eval_args.text, MOST_TEXT, ret, &q->n, err);

	q->text = *ret;
	q->windows = (enum dt_windows)eval_args.windows;
	q->stride = eval_args.stride;
	q->limit = eval_args.limit;
	q->bos = eval_args.bos;
	q->ranks = job.all;
	q->rank = job.info.rank;
	q->size = job.info.size;
	return rc;
}

/* The bar's end is not known before the text is cut. */
static void show_window(void *arg, int64_t done, int64_t of)
{
	job.bar.total = (uint64_t)of;
	dt_progress_set(&job.bar, (uint64_t)done);
}

static void print_ppl(const struct dt_ppl *p)
{
	printf("perplexity %.4f: %.5f", dt_ppl_perplexity(p), p->nll);
	if (isfinite(p->error))
		printf(" +- %.5f", p->error);
	printf(" nats a token, %.4f bits a byte\n", p->nll * (double)p->tokens / (double)p->bytes / M_LN2);
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
	rc = join_ranks(&err);
	if (rc == 0)
		rc = agree((rc = read_text(&text, &q, &err)) < 0
				   ? rc
				   : dt_eval_model_open(&m, v[0], &eval_args.model, &err),
			   &err);
	if (rc == 0) {
		q.progress = show_window;
		show_start("reading", 1);
		rc = dt_ppl_run(&m, &q, &p, &err);
		dt_progress_end(&job.bar);
	}
	if (rc == 0 && speaks() && eval_args.json)
		rc = print(dt_ppl_json(&m, &p), &err);
	else if (rc == 0 && speaks())
		print_ppl(&p);
	dt_eval_model_close(&m);
	free(text);
	return finish(rc, DT_EXIT_OK, &err);
}

/* ---- task ---- */

static bool is_url(const char *s)
{
	return !strncmp(s, "http://", 7) || !strncmp(s, "https://", 8);
}

/* 0, or an exit status: models from number `first` on get an adapter, which servers do not take. */
static int check_servers(int n, char **v, int first)
{
	for (int i = first; i < n && eval_args.model.lora; i++)
		if (is_url(v[i]))
			return dt_opt_usage_error(&program, stderr,
						  "--lora: a server adds adapters itself, --model names one");
	return 0;
}

/* What the first of several models is opened with: an adapter is the others'. */
static struct dt_eval_opts of_first(void)
{
	struct dt_eval_opts o = eval_args.model;

	o.lora = NULL;
	return o;
}

/* One model's answers to the whole task. */
static int answer(const struct dt_task *t, const char *model, const struct dt_eval_opts *o, FILE *predictions,
		  struct dt_score *ret, struct dt_err *err)
{
	struct dt_score_query q = {.ranks = job.all,
				   .rank = job.info.rank,
				   .size = job.info.size,
				   .predictions = predictions,
				   .progress = show};
	struct dt_asker *asker = NULL;
	int rc = is_url(model) ? dt_asker_remote(model, eval_args.served, eval_args.key,
						 (int)eval_args.parallel, &asker, err)
			       : dt_asker_local(model, o, &asker, err);

	rc = agree(rc, err);
	if (rc == 0) {
		show_start("answering", t->n);
		rc = dt_score_run(t, asker, &q, ret, err);
		dt_progress_end(&job.bar);
	}
	dt_asker_close(asker);
	return rc;
}

static int open_predictions(FILE **ret, struct dt_err *err)
{
	char *path = NULL;
	int rc;

	if (!eval_args.predictions)
		return 0;
	if (!strcmp(eval_args.predictions, "-") && job.info.size == 1) {
		*ret = stdout;
		return 0;
	}
	rc = job.info.size > 1 ? asprintf(&path, "%s.%d", eval_args.predictions, job.info.rank)
			       : asprintf(&path, "%s", eval_args.predictions);
	rc = rc < 0 ? dt_err_sys(err, -ENOMEM, "cannot write predictions")
		    : dt_out_stream(path, false, ret, err);
	free(path);
	return rc;
}

static int run_task(int n, char **v)
{
	struct dt_task t = {0};
	struct dt_score s = {0};
	struct dt_err err = {0};
	FILE *predictions = NULL;
	int rc = check_servers(n, v, 1);

	if (rc)
		return rc;
	rc = join_ranks(&err);
	if (rc == 0)
		rc = agree((rc = dt_task_read(v[0], eval_args.limit, &t, &err)) < 0
				   ? rc
				   : open_predictions(&predictions, &err),
			   &err);
	if (rc == 0)
		rc = answer(&t, v[1], &eval_args.model, predictions, &s, &err);
	if (predictions && predictions != stdout && fclose(predictions) == EOF && rc == 0)
		rc = dt_err_sys(&err, -errno, "cannot write '%s'", eval_args.predictions);
	if (rc == 0 && speaks() && eval_args.json)
		rc = print(dt_score_json(&t, v[1], &s), &err);
	else if (rc == 0 && speaks())
		dt_score_print(&t, &s, stdout);
	dt_score_release(&s);
	dt_task_release(&t);
	return finish(rc, DT_EXIT_OK, &err);
}

/* ---- compare ---- */

static int compare_texts(int n, char **v, struct dt_err *err)
{
	struct dt_table *t = dt_compare_texts_new();
	struct dt_ppl_query q = {.progress = show_window};
	const struct dt_eval_opts base = of_first();
	struct dt_eval_model first = {0};
	char *text = NULL;
	int rc = read_text(&text, &q, err);

	if (rc == 0)
		rc = dt_eval_model_open(&first, v[0], &base, err);
	rc = agree(rc, err);
	for (int i = 1; i < n && rc == 0; i++) {
		struct dt_eval_model m = {0};
		struct dt_ppl_pair p;

		rc = agree(dt_eval_model_open(&m, v[i], &eval_args.model, err), err);
		show_start(v[i], 1);
		if (rc == 0)
			rc = dt_ppl_compare(&first, &m, &q, &p, err);
		dt_progress_end(&job.bar);
		if (rc == 0 && speaks() && eval_args.json)
			rc = print(dt_ppl_pair_json(&first, &m, &p), err);
		if (rc == 0 && i == 1)
			dt_compare_texts_first(t, v[0], &p);
		if (rc == 0)
			dt_compare_texts_row(t, v[i], &p);
		dt_eval_model_close(&m);
	}
	if (rc == 0 && speaks() && !eval_args.json)
		dt_table_print(t, stdout);
	dt_table_free(t);
	dt_eval_model_close(&first);
	free(text);
	return rc;
}

static int compare_tasks(int n, char **v, struct dt_err *err)
{
	struct dt_table *table = dt_compare_tasks_new();
	const struct dt_eval_opts base = of_first();
	struct dt_score first = {0};
	struct dt_task t = {0};
	int rc = agree(dt_task_read(eval_args.task, eval_args.limit, &t, err), err);

	for (int i = 0; i < n && rc == 0; i++) {
		struct dt_score s = {0};
		struct dt_score_pair p;

		rc = answer(&t, v[i], i ? &eval_args.model : &base, NULL, i ? &s : &first, err);
		if (rc < 0)
			break;
		if (i == 0) {
			dt_compare_tasks_first(table, v[0], &first);
			continue;
		}
		dt_score_compare(&first, &s, &p);
		dt_compare_tasks_row(table, v[i], &s, &p);
		if (speaks() && eval_args.json)
			rc = print(dt_compare_tasks_json(&t, (const char *const[]){v[0], v[i]},
							 (const struct dt_score *const[]){&first, &s}, &p),
				   err);
		dt_score_release(&s);
	}
	if (rc == 0 && speaks() && !eval_args.json)
		dt_table_print(table, stdout);
	dt_table_free(table);
	dt_score_release(&first);
	dt_task_release(&t);
	return rc;
}

static int run_compare(int n, char **v)
{
	struct dt_err err = {0};
	int rc;

	if (!eval_args.text == !eval_args.task)
		return dt_opt_usage_error(&program, stderr, "compare needs --text or --task%s",
					  eval_args.text ? ", not both" : "");
	if ((rc = check_servers(n, v, 1)))
		return rc;
	rc = join_ranks(&err);
	if (rc == 0)
		rc = eval_args.text ? compare_texts(n, v, &err) : compare_tasks(n, v, &err);
	return finish(rc, DT_EXIT_OK, &err);
}

/* ---- images ---- */

static int run_images(int n, char **v)
{
	struct dt_images_query *q = &eval_args.images;
	struct dt_images_result r = {0};
	struct dt_err err = {0};
	int rc = join_ranks(&err);

	if (rc == 0 && eval_args.predictions && speaks())
		rc = strcmp(eval_args.predictions, "-")
			     ? dt_out_stream(eval_args.predictions, false, &q->predictions, &err)
			     : (q->predictions = stdout, 0);
	q->data = v[0];
	q->split = (enum dt_image_split)eval_args.split;
	q->limit = eval_args.limit;
	q->unfolded = !eval_args.fold;
	q->ranks = job.all;
	q->rank = job.info.rank;
	q->size = job.info.size;
	q->progress = show_window;
	if (rc == 0 && (rc = agree(rc, &err)) == 0) {
		show_start("classifying", 1);
		rc = dt_images_run(v[1], &eval_args.model, q, &r, &err);
		dt_progress_end(&job.bar);
	}
	if (q->predictions && q->predictions != stdout && fclose(q->predictions) == EOF && rc == 0)
		rc = dt_err_sys(&err, -errno, "cannot write '%s'", eval_args.predictions);
	if (rc == 0 && speaks())
		rc = eval_args.json ? print(dt_images_result_json(v[1], q, &r), &err)
				    : dt_images_result_print(q, &r, stdout, &err);
	dt_images_result_release(&r);
	return finish(rc, DT_EXIT_OK, &err);
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
	int rc = check_servers(n, v, 1);

	if (rc)
		return rc;
	if (!q->out)
		return dt_opt_usage_error(&program, stderr, "teacher needs --out");
	rc = join_ranks(&err);
	q->data = v[0];
	q->seq = eval_args.model.seq;
	q->ranks = job.all;
	q->rank = job.info.rank;
	q->size = job.info.size;
	q->progress = show_window;
	if (rc == 0)
		rc = agree(dt_teacher_seq(q, &eval_args.model.seq, &err), &err);
	q->seq = eval_args.model.seq;
	if (rc == 0 && !is_url(v[1]))
		rc = agree(dt_eval_model_open(&m, v[1], &eval_args.model, &err), &err);
	if (rc == 0) {
		show_start("reading", 1);
		rc = is_url(v[1]) ? dt_teacher_ask(&server, q, &r, &err) : dt_teacher_run(&m, q, &r, &err);
		dt_progress_end(&job.bar);
	}
	if (rc == 0 && speaks() && eval_args.json)
		rc = print(dt_teacher_made_json(v[1], q, &r), &err);
	else if (rc == 0 && speaks())
		dt_teacher_made_print(q, &r, stdout);
	dt_eval_model_close(&m);
	return finish(rc, DT_EXIT_OK, &err);
}

int main(int argc, char **argv)
{
	dt_dev_spin_less(argv);
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
