#include "eval/ppl.h"

#include "base/json.h"

#include <math.h>

json_t *dt_ppl_json(const struct dt_eval_model *m, const struct dt_ppl *p)
{
	return json_pack("{s:i, s:s, s:o, s:f, s:o, s:o, s:I, s:I, s:I}", "schema", 1, "model", m->path,
			 "perplexity", dt_json_number(dt_ppl_perplexity(p)), "nll", p->nll, "nll_stderr",
			 dt_json_number(p->error), "bits_per_byte",
			 dt_json_number(p->nll * (double)p->tokens / (double)p->bytes / M_LN2), "tokens",
			 (json_int_t)p->tokens, "bytes", (json_int_t)p->bytes, "windows",
			 (json_int_t)p->windows);
}

json_t *dt_ppl_pair_json(const struct dt_eval_model *a, const struct dt_eval_model *b,
			 const struct dt_ppl_pair *p)
{
	return json_pack("{s:i, s:o, s:o, s:f, s:o, s:f, s:f, s:f, s:f, s:f}", "schema", 1, "a",
			 dt_ppl_json(a, &p->a), "b", dt_ppl_json(b, &p->b), "nll_difference", p->difference,
			 "nll_difference_stderr", dt_json_number(p->error), "kl_mean", p->kl, "kl_median",
			 p->kl_median, "kl_p99", p->kl_99, "kl_max", p->kl_most, "same_top_1", p->same_top);
}
/* SPDX-License-Identifier: Apache-2.0 */
