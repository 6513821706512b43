/* Shared by the files of dt-eval: the job of its ranks, and its output. */
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

/* Opens the job and settles defaults: threads, types. Call eval_finish even after a failure. */
int eval_join(const struct dt_program *p, struct dt_err *err);
/* Ends the job. Returns its exit status; all ranks must agree on rc. */
int eval_finish(const struct dt_program *p, int rc, struct dt_err *err);
/* All ranks get the rc of the first that failed, which keeps its message in err. */
int eval_agree(int rc, struct dt_err *err);
/*
 * Gives the text of rank 0, n bytes and a NUL, to all ranks; on the others it is malloc'd. rc: whether rank 0
 * has it; as with eval_agree, all ranks return the same.
 */
int eval_share(int rc, char **text, size_t *n, struct dt_err *err);
/* Whether this rank prints output. */
bool eval_speaks(void);

void eval_show_start(const char *label, int64_t of);
void eval_show(void *arg, int64_t done, int64_t of);
/* Prints o as one line and releases it. o NULL: out of memory. */
int eval_print(json_t *o, struct dt_err *err);

bool eval_is_url(const char *s);
/* Options of the first of several models, which does not get the adapter. */
struct dt_eval_opts eval_of_first(void);

/* eval_tasks.c: evaluates one model on a task; or n models v, comparing the first with each of the others. */
int eval_task(const char *task, const char *model, struct dt_err *err);
int eval_compare_tasks(int n, char **v, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
