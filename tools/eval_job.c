/* The distributed job of dt-eval's ranks. */
#include "tools/eval_job.h"

#include "tools/eval_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct eval_job eval_job;

bool eval_speaks(void)
{
	return eval_job.info.rank == 0;
}

int eval_join(const struct dt_program *p, struct dt_err *err)
{
	char word[16];
	int rc;

	eval_job.log = (struct dt_log){.f = stderr, .name = p->name, .rank = -1};
	rc = dt_world_init(&eval_job.world, 3600, &eval_job.log, err);
	if (rc < 0)
		return rc;
	dt_world_info(eval_job.world, &eval_job.info);
	rc = dt_comm_create(&eval_job.all, eval_job.world, "world", 0, eval_job.info.rank, err);
	eval_args.model.local_rank = eval_job.info.local_rank;
	eval_args.model.fp32 = eval_args.precision == 1;
	eval_args.model.weights =
		eval_args.weights ? dt_format_parse(dt_opt_choice_name(EVAL_WEIGHTS, eval_args.weights, word,
								       sizeof(word)))
				  : -1;
	if (!eval_args.model.threads) {
		int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);

		eval_args.model.threads =
			cores > eval_job.info.local_size ? cores / eval_job.info.local_size : 1;
	}
	return rc;
}

int eval_agree(int rc, struct dt_err *err)
{
	return eval_job.info.size > 1 ? dt_comm_agree(eval_job.all, rc, NULL, err) : rc;
}

int eval_share(int rc, char **text, size_t *n, struct dt_err *err)
{
	int64_t bytes = (int64_t)*n;

	rc = eval_agree(rc, err);
	if (rc < 0 || eval_job.info.size == 1)
		return rc;
	rc = dt_broadcast(eval_job.all, &bytes, 1, DT_I64, 0, "size of the text", err);
	if (rc == 0 && !eval_speaks() && !(*text = calloc((size_t)bytes + 1, 1)))
		rc = dt_err_sys(err, -ENOMEM, "cannot hold the text");
	*n = (size_t)bytes;
	rc = eval_agree(rc, err);
	return rc == 0 ? dt_broadcast(eval_job.all, *text, *n, DT_U8, 0, "text", err) : rc;
}

int eval_finish(const struct dt_program *p, int rc, struct dt_err *err)
{
	int status = rc < 0 ? dt_program_fail(p, err) : DT_EXIT_OK;

	if (eval_job.world) {
		dt_comm_free(eval_job.all);
		dt_world_finalize(eval_job.world);
	}
	return status;
}

void eval_show(void *arg, int64_t done, int64_t of)
{
	dt_progress_set(&eval_job.bar, (uint64_t)done);
}

void eval_show_start(const char *label, int64_t of)
{
	dt_progress_start(&eval_job.bar, eval_speaks() ? stderr : NULL, label, (uint64_t)of, false);
}

int eval_print(json_t *o, struct dt_err *err)
{
	int rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "cannot print");

	json_decref(o);
	return rc;
}

bool eval_is_url(const char *s)
{
	return !strncmp(s, "http://", 7) || !strncmp(s, "https://", 8);
}

struct dt_eval_opts eval_of_first(void)
{
	struct dt_eval_opts o = eval_args.model;

	o.lora = NULL;
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
