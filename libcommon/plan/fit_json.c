/* dt-memest's answer as JSON: sizes in bytes, keys with their unit. */
#include "plan/fit.h"

#include <string.h>

/* Word i of "a|b|c". */
static json_t *word(const char *words, int i)
{
	while (i-- > 0)
		words = strchr(words, '|') + 1;
	return json_stringn(words, (size_t)(strchrnul(words, '|') - words));
}

/* Layer ranges [first, end) of a stage, one for each chunk. */
static json_t *layer_ranges(const struct dt_fit_query *q, int stage)
{
	json_t *list = json_array();
	int first, last;

	for (int c = 0; c < dt_layout_chunks(&q->run.layout); c++) {
		dt_layout_stage(&q->run.layout, q->run.config, c * q->run.layout.pp + stage, &first, &last);
		json_array_append_new(list, json_pack("[i,i]", first, last));
	}
	return list;
}

static json_t *stages(const struct dt_fit_query *q, const struct dt_fit *f)
{
	json_t *list = json_array();

	for (int i = 0; i < f->n; i++) {
		const struct dt_fit_stage *s = &f->stage[i];

		json_array_append_new(list, json_pack("{s:i, s:i, s:i, s:o, s:I, s:I, s:s}", "stage", i,
						      "first_rank", s->first_rank, "ranks", s->ranks,
						      "layer_ranges", layer_ranges(q, i), "params",
						      (json_int_t)s->est.params, "peak_bytes",
						      (json_int_t)s->est.peak_bytes, "peak_phase",
						      dt_phase_name(s->est.peak)));
	}
	return list;
}

static json_t *categories(const struct dt_estimate *e, const struct dt_fit_query *q)
{
	char how[DT_FORMULA_LEN];
	json_t *list = json_array();

	for (int c = 0; c < DT_EST_CAT_N; c++)
		if (e->cat_bytes[c])
			json_array_append_new(
				list, json_pack("{s:s, s:I, s:f, s:s, s:b, s:o}", "name", dt_est_cat_name(c),
						"bytes", (json_int_t)e->cat_bytes[c], "share",
						(double)e->cat_bytes[c] / (double)e->peak_bytes, "formula",
						dt_category_formula(q, e, c, how, sizeof(how)), "exact",
						dt_category_exactness(e, c) == DT_EXACT, "exactness",
						word(DT_EXACTNESS_CHOICES, dt_category_exactness(e, c))));
	return list;
}

static json_t *entries(const struct dt_estimate *e)
{
	json_t *list = json_array();

	for (int i = 0; i < e->n; i++) {
		const struct dt_entry *b = &e->e[i];

		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:b, s:b, s:o}", "name",
						b->name, "category", dt_est_cat_name(b->cat), "bytes",
						(json_int_t)b->bytes, "first_phase", dt_phase_name(b->first),
						"last_phase", dt_phase_name(b->last), "formula", b->formula,
						"exact", b->exactness == DT_EXACT, "at_peak", b->at_peak,
						"place", word(DT_PLACE_CHOICES, b->place)));
	}
	return list;
}

static json_t *phases(const struct dt_estimate *e)
{
	json_t *o = json_object();

	for (int p = 0; p < DT_PH_N; p++)
		json_object_set_new(o, dt_phase_name(p), json_integer((json_int_t)e->phase_bytes[p]));
	return o;
}

static void set_query(json_t *o, const struct dt_fit_query *q, const struct dt_fit *f)
{
	char layout[80], keep[24];
	struct dt_params table;

	json_object_set_new(o, "schema", json_integer(1));
	json_object_set_new(o, "model", json_string(q->run.config->name));
	if (dt_model_params(q->run.config, &table, NULL) == 0) {
		json_object_set_new(o, "params", json_integer(dt_params_total(&table)));
		dt_params_release(&table);
	}
	json_object_set_new(o, "mode", json_string(q->serve ? "serve" : "train"));
	json_object_set_new(o, "layout",
			    json_string(dt_layout_format(&q->run.layout, layout, sizeof(layout))));
	json_object_set_new(o, "world", json_integer(dt_layout_world(&q->run.layout)));
	json_object_set_new(o, "precision", word(DT_WEIGHT_CHOICES, q->precision));
	json_object_set_new(o, "account", word(DT_ACCOUNT_CHOICES, f->account));
	if (q->serve) {
		json_object_set_new(o, "max_seqs", json_integer(q->max_seqs));
		json_object_set_new(o, "max_len_tokens", json_integer(q->max_len));
		json_object_set_new(o, "block_tokens", json_integer(q->block));
		json_object_set_new(o, "max_tokens", json_integer(q->max_tokens));
		return;
	}
	json_object_set_new(o, "optimizer", word(DT_OPTIM_CHOICES, q->run.optim.kind));
	if (q->run.fp8)
		json_object_set_new(o, "fp8", json_true());
	json_object_set_new(o, "recompute",
			    json_string(dt_keep_format(q->run.recompute, keep, sizeof(keep))));
	json_object_set_new(o, "microbatch", json_integer(q->run.microbatch));
	json_object_set_new(o, "seq_tokens", json_integer(q->run.seq));
}

json_t *dt_fit_json(const struct dt_fit_query *q, const struct dt_fit *f, bool buffers)
{
	const struct dt_estimate *e = dt_fit_worst(f);
	json_t *o = json_object();

	set_query(o, q, f);
	json_object_set_new(o, "peak_bytes", json_integer((json_int_t)e->peak_bytes));
	if (!q->serve) {
		json_object_set_new(o, "peak_phase", json_string(dt_phase_name(e->peak)));
		json_object_set_new(o, "phase_bytes", phases(e));
	}
	json_object_set_new(o, "host_bytes", json_integer((json_int_t)e->place_bytes[DT_PLACE_HOST]));
	json_object_set_new(o, "disk_bytes", json_integer((json_int_t)e->place_bytes[DT_PLACE_DISK]));
	json_object_set_new(o, "categories", categories(e, q));
	json_object_set_new(o, "worst_stage", json_integer(f->worst));
	json_object_set_new(o, "ranks", stages(q, f));
	if (buffers)
		json_object_set_new(o, "buffers", entries(e));
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
