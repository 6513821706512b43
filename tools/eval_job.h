/* For the files of dt-eval: the job that its ranks are, and what is shown on the way. */
#ifndef DT_TOOLS_EVAL_JOB_H
#define DT_TOOLS_EVAL_JOB_H

#include "base/program.h"
#include "base/progress.h"
#include "comm/comm.h"
#include "eval/model.h"

struct eval_job {
	struct dt_log log;
	struct dt_world *world;
	struct dt_comm *all;
	struct dt_world_info info;
	struct dt_progress bar;
};
extern struct eval_job eval_job;

/* Opens the job, and settles what options leave to it: threads, types. eval_finish closes it also then. */
int eval_join(const struct dt_program *p, struct dt_err *err);
/* The exit status of a job whose ranks agree on rc. */
int eval_finish(const struct dt_program *p, int rc, struct dt_err *err);
/* rc of every rank becomes one: the first that failed keeps its message. */
int eval_agree(int rc, struct dt_err *err);
/* Whether this rank prints. */
bool eval_speaks(void);

void eval_show_start(const char *label, int64_t of);
void eval_show(void *arg, int64_t done, int64_t of);
/* Prints o as one line and takes it; NULL: out of memory. */
int eval_print(json_t *o, struct dt_err *err);

bool eval_is_url(const char *s);
/* What the first of several models is opened with: an adapter is the others'. */
struct dt_eval_opts eval_of_first(void);

/* eval_tasks.c: one model's answers to a task; those of n models v, the first beside each of the others. */
int eval_task(const char *task, const char *model, struct dt_err *err);
int eval_compare_tasks(int n, char **v, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
