/* Tasks: puts questions to models and servers, and compares models. */
#include "base/program.h"
#include "base/tmpfile.h"
#include "eval/compare.h"
#include "eval/score.h"
#include "tools/eval_job.h"
#include "tools/eval_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One model's answers to all questions of the task. */
static int answer(const struct dt_task *t, const char *model, const struct dt_eval_opts *o, FILE *predictions,
		  struct dt_score *ret, struct dt_err *err)
{
	struct dt_score_query q = {.ranks = eval_job.all,
				   .rank = eval_job.info.rank,
				   .size = eval_job.info.size,
				   .predictions = predictions,
				   .progress = eval_show};
	struct dt_asker *asker = NULL;
	int rc = eval_is_url(model) ? dt_asker_remote(model, eval_args.served, eval_args.key,
						      (int)eval_args.parallel, &asker, err)
				    : dt_asker_local(model, o, &asker, err);

	rc = eval_agree(rc, err);
	if (rc == 0) {
		eval_show_start("answering", t->n);
		rc = dt_score_run(t, asker, &q, ret, err);
		dt_progress_end(&eval_job.bar);
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
	if (!strcmp(eval_args.predictions, "-") && eval_job.info.size == 1) {
		*ret = stdout;
		return 0;
	}
	if (!strcmp(eval_args.predictions, "-")) {
		dt_err_set(err, -EINVAL, "--predictions -: each of %d ranks writes a file of its own",
			   eval_job.info.size);
		dt_err_hint(err, "with --predictions FILE they write FILE.0 and so on");
		return -EINVAL;
	}
	rc = eval_job.info.size > 1 ? asprintf(&path, "%s.%d", eval_args.predictions, eval_job.info.rank)
				    : asprintf(&path, "%s", eval_args.predictions);
	rc = rc < 0 ? dt_err_sys(err, -ENOMEM, "cannot write predictions")
		    : dt_out_stream(path, false, ret, err);
	free(path);
	return rc;
}

int eval_task(const char *task, const char *model, struct dt_err *err)
{
	struct dt_task t = {0};
	struct dt_score s = {0};
	FILE *predictions = NULL;
	int rc = dt_task_read(task, eval_args.limit, &t, err);

	rc = eval_agree(rc < 0 ? rc : open_predictions(&predictions, err), err);
	if (rc == 0)
		rc = answer(&t, model, &eval_args.model, predictions, &s, err);
	if (predictions && predictions != stdout && fclose(predictions) == EOF && rc == 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", eval_args.predictions);
	if (rc == 0 && eval_speaks() && eval_args.json)
		rc = eval_print(dt_score_json(&t, model, &s), err);
	else if (rc == 0 && eval_speaks())
		dt_score_print(&t, &s, stdout);
	dt_score_release(&s);
	dt_task_release(&t);
	return rc;
}

int eval_compare_tasks(int n, char **v, struct dt_err *err)
{
	struct dt_table *table = dt_compare_tasks_new();
	const struct dt_eval_opts base = eval_of_first();
	struct dt_score first = {0};
	struct dt_task t = {0};
	int rc = eval_agree(dt_task_read(eval_args.task, eval_args.limit, &t, err), err);

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
		if (eval_speaks() && eval_args.json)
			rc = eval_print(dt_compare_tasks_json(&t, (const char *const[]){v[0], v[i]},
							      (const struct dt_score *const[]){&first, &s},
							      &p),
					err);
		dt_score_release(&s);
	}
	if (rc == 0 && eval_speaks() && !eval_args.json)
		dt_table_print(table, stdout);
	dt_table_free(table);
	dt_score_release(&first);
	dt_task_release(&t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
