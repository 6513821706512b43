#include "plan/enough.h"

#include "base/table.h"
#include "base/units.h"
#include "plan/fit.h"

#define SEQ   2048 /* training: tokens a sample */
#define LEN   4096 /* serving: tokens a sequence */
#define BLOCK 16

struct way {
	const char *text;
	bool serve, full; /* full: full recomputation */
	enum dt_weight_format weights;
	int64_t seqs;
};

static const struct way ways[] = {
	{"trained, AdamW", false, false, DT_WF_BF16, 0},
	{"trained, full recomputation", false, true, DT_WF_BF16, 0},
	{"served in bf16, 8 sequences", true, false, DT_WF_BF16, 8},
	{"served in q8_0, 8 sequences", true, false, DT_WF_Q8_0, 8},
	{"served in q4_0, 8 sequences", true, false, DT_WF_Q4_0, 8},
};
#define NWAYS ((int)(sizeof(ways) / sizeof(*ways)))

struct found {
	const struct dt_config *config; /* NULL: nothing fits */
	double params;
	uint64_t bytes;
};

/*
 * Returns 1 if c fits this way, with its peak in ret; 0 if it does not, or cannot be estimated or run here.
 */
static int fits(const struct way *w, const struct dt_config *c, uint64_t room, uint64_t *ret)
{
	struct dt_fit_query q = {.run = {.config = c,
					 .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
					 .compute = DT_BF16,
					 .microbatch = 1,
					 .seq = c->max_seq < SEQ ? c->max_seq : SEQ,
					 .optim = {.kind = DT_OPTIM_ADAMW}},
				 .serve = w->serve,
				 .precision = w->weights,
				 .account = DT_ACCOUNT_DT,
				 .cache_bits = 16,
				 .max_seqs = w->seqs,
				 .max_len = c->max_seq < LEN ? c->max_seq : LEN,
				 .block = BLOCK,
				 .max_tokens = 512};
	struct dt_fit f;

	if (w->full)
		q.run.recompute.mode = DT_RECOMPUTE_FULL;
	if ((w->serve ? dt_config_servable(c, NULL) : dt_config_computable(c, NULL)) < 0 ||
	    dt_fit_estimate(&q, &f, NULL) < 0)
		return 0;
	*ret = dt_fit_worst(&f)->peak_bytes;
	dt_fit_release(&f);
	return *ret <= room;
}

static void find(const struct way *w, uint64_t room, struct found *ret)
{
	const struct dt_config *c;
	struct dt_params p;

	*ret = (struct found){0};
	for (int i = 0; (c = dt_config_preset(i)); i++) {
		uint64_t bytes;
		double n;

		if (dt_model_params(c, &p, NULL) < 0)
			continue;
		n = (double)dt_params_total(&p);
		dt_params_release(&p);
		if (n > ret->params && fits(w, c, room, &bytes))
			*ret = (struct found){c, n, bytes};
	}
}

void dt_enough_print(uint64_t room, FILE *f)
{
	struct dt_table *t = dt_table_new("largest model known by name|model|>parameters|>memory");
	char a[32], b[32];
	struct found one;

	for (int i = 0; i < NWAYS; i++) {
		find(&ways[i], room, &one);
		dt_table_cell(t, "%s", ways[i].text);
		if (!one.config) {
			dt_table_cell(t, "none");
			dt_table_end_row(t);
			continue;
		}
		dt_table_cell(t, "%s", one.config->name);
		dt_table_cell(t, "%s", dt_format_count(one.params, a, sizeof(a)));
		dt_table_cell(t, "%s", dt_format_size(one.bytes, b, sizeof(b)));
	}
	dt_table_print(t, f);
	dt_table_free(t);
}

json_t *dt_enough_json(uint64_t room)
{
	json_t *list = json_array();
	struct found one;

	for (int i = 0; i < NWAYS; i++) {
		find(&ways[i], room, &one);
		json_array_append_new(list, json_pack("{s:s, s:s?, s:I}", "way", ways[i].text, "model",
						      one.config ? one.config->name : NULL, "peak_bytes",
						      (json_int_t)one.bytes));
	}
	return list;
}
/* SPDX-License-Identifier: Apache-2.0 */
