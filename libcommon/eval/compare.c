#include "eval/compare.h"

#include "base/json.h"

#include <math.h>

/* "+0.0123 (+0.0100 to +0.0146)": a 95% interval of a normal distribution. */
static void cell_interval(struct dt_table *t, double x, double error)
{
	if (isfinite(error))
		dt_table_cell(t, "%+.4f (%+.4f to %+.4f)", x, x - 1.96 * error, x + 1.96 * error);
	else
		dt_table_cell(t, "%+.4f", x);
}

struct dt_table *dt_compare_texts_new(void)
{
	return dt_table_new("model|>perplexity|>NLL difference|>KL mean|>KL 99%|>same top-1");
}

void dt_compare_texts_first(struct dt_table *t, const char *first, const struct dt_ppl_pair *p)
{
	dt_table_cell(t, "%s", first);
	dt_table_cell(t, "%.4f", dt_ppl_perplexity(&p->a));
	dt_table_end_row(t);
}

void dt_compare_texts_row(struct dt_table *t, const char *model, const struct dt_ppl_pair *p)
{
	dt_table_cell(t, "%s", model);
	dt_table_cell(t, "%.4f", dt_ppl_perplexity(&p->b));
	cell_interval(t, p->difference, p->error);
	dt_table_cell(t, "%.5f", p->kl);
	dt_table_cell(t, "%.4f", p->kl_99);
	dt_table_cell(t, "%.2f%%", 100 * p->same_top);
}

struct dt_table *dt_compare_tasks_new(void)
{
	return dt_table_new("model|>accuracy|>difference|>only this right|>only first right|>p");
}

void dt_compare_tasks_first(struct dt_table *t, const char *first, const struct dt_score *s)
{
	dt_table_cell(t, "%s", first);
	dt_table_cell(t, "%.4f", s->acc);
	dt_table_end_row(t);
}

void dt_compare_tasks_row(struct dt_table *t, const char *model, const struct dt_score *s,
			  const struct dt_score_pair *p)
{
	dt_table_cell(t, "%s", model);
	dt_table_cell(t, "%.4f", s->acc);
	cell_interval(t, p->difference, p->error);
	dt_table_cell(t, "%lld", (long long)p->only_b);
	dt_table_cell(t, "%lld", (long long)p->only_a);
	dt_table_cell(t, "%.3g", p->p);
}

json_t *dt_compare_tasks_json(const struct dt_task *t, const char *const model[2],
			      const struct dt_score *const score[2], const struct dt_score_pair *p)
{
	return json_pack("{s:i, s:o, s:o, s:f, s:o, s:I, s:I, s:f}", "schema", 1, "a",
			 dt_score_json(t, model[0], score[0]), "b", dt_score_json(t, model[1], score[1]),
			 "difference", p->difference, "difference_stderr", dt_json_number(p->error), "only_a",
			 (json_int_t)p->only_a, "only_b", (json_int_t)p->only_b, "p", p->p);
}
/* SPDX-License-Identifier: Apache-2.0 */
