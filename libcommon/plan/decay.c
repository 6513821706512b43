/* Which parameters have no weight decay. */
#include "model/match.h"
#include "plan/run.h"

#include <stdlib.h>
#include <string.h>

static bool is_norm(const struct dt_param *p)
{
	return dt_param_is_scale(p) || p->role == DT_W_ATTN_NORM_B || p->role == DT_W_MLP_NORM_B ||
	       p->role == DT_W_FINAL_NORM_B || p->role == DT_W_BATCH_NORM_B || p->role == DT_W_EMBED_NORM_B ||
	       p->role == DT_W_MASKED_NORM_B;
}

/* Biases, including those of norms: every vector that is not a norm's scale. */
static bool is_bias(const struct dt_param *p)
{
	return p->ndim == 1 && !dt_param_is_scale(p);
}

enum { NORM = 1, BIAS = 2 };

/* Parses "norm", "bias", "norm,bias" or "none". False: s is an expression. */
static bool parse_words(const char *s, unsigned *ret)
{
	static const struct {
		const char *name;
		unsigned bit;
	} words[] = {{"norm", NORM}, {"bias", BIAS}, {"none", 0}};
	unsigned set = 0;

	for (const char *end;; s = end + 1) {
		size_t i = 0;

		end = strchrnul(s, ',');
		while (i < 3 && (strlen(words[i].name) != (size_t)(end - s) ||
				 strncmp(words[i].name, s, (size_t)(end - s))))
			i++;
		if (i == 3)
			return false;
		set |= words[i].bit;
		if (!*end)
			break;
	}
	*ret = set;
	return true;
}

int dt_run_decay(const struct dt_run *r, struct dt_params *t, struct dt_err *err)
{
	const char *s = r->no_decay ? r->no_decay : "norm,bias";
	unsigned set = 0;
	bool *spared;
	int rc;

	if (parse_words(s, &set)) {
		/* Biases of a router's choice are updated by a rule of their own. */
		for (int i = 0; i < t->n; i++)
			t->p[i].decay =
				t->p[i].role != DT_W_ROUTER_B &&
				!(((set & NORM) && is_norm(&t->p[i])) || ((set & BIAS) && is_bias(&t->p[i])));
		return 0;
	}
	rc = dt_match_params("--no-decay", s, t, r->config->name,
			     "use norm, bias, none, or an expression that matches a whole name, for example "
			     "'layers.*weight'",
			     &spared, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < t->n; i++)
		t->p[i].decay = !spared[i] && t->p[i].role != DT_W_ROUTER_B;
	free(spared);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
