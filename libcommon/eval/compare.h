/* Tables that compare several models with the first: dt-eval compare. */
#ifndef DT_EVAL_COMPARE_H
#define DT_EVAL_COMPARE_H

#include "base/table.h"
#include "eval/ppl.h"
#include "eval/score.h"

/* On a text. The first row is p->a, of the model at first; each call adds one for p->b. */
struct dt_table *dt_compare_texts_new(void);
void dt_compare_texts_first(struct dt_table *t, const char *first, const struct dt_ppl_pair *p);
void dt_compare_texts_row(struct dt_table *t, const char *model, const struct dt_ppl_pair *p);

/* On a task. */
struct dt_table *dt_compare_tasks_new(void);
void dt_compare_tasks_first(struct dt_table *t, const char *first, const struct dt_score *s);
void dt_compare_tasks_row(struct dt_table *t, const char *model, const struct dt_score *s,
			  const struct dt_score_pair *p);

/* Two models' answers to the same task, a the first's. */
json_t *dt_compare_tasks_json(const struct dt_task *t, const char *const model[2],
			      const struct dt_score *const score[2], const struct dt_score_pair *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
