/* dt-memest's printed query and answer. */
#include "plan/fit_print.h"

#include "base/table.h"
#include "base/units.h"

#include <langinfo.h>
#include <math.h>
#include <string.h>

static void print_bar(struct dt_table *t, double share)
{
	bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	char bar[100] = "";
	int n = (int)lround(share * 30);

	for (int i = 0; i < n && i < 30; i++)
		strcat(bar, utf8 ? "\342\226\210" : "#");
	dt_table_cell(t, "%s", bar);
}

void dt_fit_print_heading(const struct dt_fit_view *v, const struct dt_fit *r)
{
	const struct dt_fit_query *q = v->q;
	char layout[80], params[24], chosen[24];
	struct dt_params table;
	double total = 0, active = 0;

	if (dt_model_params(q->run.config, &table, NULL) == 0) {
		total = (double)dt_params_total(&table);
		active = (double)dt_params_active(q->run.config, &table);
		dt_params_release(&table);
	}
	fprintf(v->f, "%s, %s parameters", q->run.config->name,
		dt_format_count(total, params, sizeof(params)));
	if (active < total)
		fprintf(v->f, " (%s active)", dt_format_count(active, params, sizeof(params)));
	if (v->file->tensors)
		fprintf(v->f, ", %d tensors of %s in the %s file%s", v->file->tensors,
			dt_format_size(v->file->weight_bytes, params, sizeof(params)), v->file->kind,
			q->weight_bytes ? "" : " (converted to another type)");
	fprintf(v->f, ", %s on %s (%d rank%s)\n", q->serve ? "served" : "trained",
		dt_layout_format(&q->run.layout, layout, sizeof(layout)), dt_layout_world(&q->run.layout),
		dt_layout_world(&q->run.layout) == 1 ? "" : "s");
	fprintf(v->f, "%s, ", dt_opt_choice_name(DT_WEIGHT_CHOICES, q->precision, chosen, sizeof(chosen)));
	if (q->serve && dt_config_is_image(q->run.config)) {
		fprintf(v->f,
			"%lld images in a pass\n"
			"\n",
			(long long)q->max_seqs);
		return;
	}
	if (q->serve) {
		fprintf(v->f,
			"%lld sequences of %lld tokens, blocks of %lld, %lld tokens in a pass\n"
			"\n",
			(long long)q->max_seqs, (long long)q->max_len, (long long)q->block,
			(long long)q->max_tokens);
		return;
	}
	fprintf(v->f, "%s, ",
		dt_opt_choice_name(DT_OPTIM_CHOICES, q->run.optim.kind, chosen, sizeof(chosen)));
	if (dt_config_is_image(q->run.config))
		fprintf(v->f, "microbatch %lld, ", (long long)q->run.microbatch);
	else
		fprintf(v->f, "microbatch %lld x %lld tokens, ", (long long)q->run.microbatch,
			(long long)q->run.seq);
	fprintf(v->f, "%srecompute %s, ", q->run.fp8 ? "fp8, " : "", v->recompute);
	fprintf(v->f, "account %s%s\n\n",
		dt_opt_choice_name(DT_ACCOUNT_CHOICES, (int)r->account, chosen, sizeof(chosen)),
		q->any_account && r->account != DT_ACCOUNT_DT ? " (dt-train cannot run this yet)" : "");
}

static void print_phases(const struct dt_fit_view *v, const struct dt_estimate *e)
{
	char size[24];

	fprintf(v->f, "\nby phase:");
	for (int p = 0; p < DT_PH_N; p++)
		fprintf(v->f, "%s %s %s%s", p ? "," : "", dt_phase_name(p),
			dt_format_size(e->phase_bytes[p], size, sizeof(size)),
			p == (int)e->peak ? " (the peak)" : "");
	fputc('\n', v->f);
}

void dt_fit_print_categories(const struct dt_fit_view *v, const struct dt_estimate *e)
{
	struct dt_table *t = dt_table_new(v->bars ? "category|>bytes|>share|bar|kind|how"
						  : "category|>bytes|>share|kind|how");
	char size[24], kind[16], how[DT_FORMULA_LEN];

	for (int c = 0; c < DT_EST_CAT_N; c++) {
		double share = (double)e->cat_bytes[c] / (double)e->peak_bytes;

		if (e->cat_bytes[c] == 0)
			continue;
		dt_table_cell(t, "%s", dt_est_cat_name(c));
		dt_table_cell(t, "%s", dt_format_size(e->cat_bytes[c], size, sizeof(size)));
		dt_table_cell(t, "%.1f%%", 100 * share);
		if (v->bars)
			print_bar(t, share);
		dt_table_cell(t, "%s",
			      dt_opt_choice_name(DT_EXACTNESS_CHOICES, dt_category_exactness(e, c), kind,
						 sizeof(kind)));
		dt_table_cell(t, "%s", dt_category_formula(v->q, e, c, how, sizeof(how)));
	}
	dt_table_end_row(t);
	dt_table_cell(t, "peak");
	dt_table_cell(t, "%s", dt_format_size(e->peak_bytes, size, sizeof(size)));
	dt_table_cell(t, "100%%");
	dt_table_end_row(t);
	dt_table_print(t, v->f);
	dt_table_free(t);
	for (int p = DT_PLACE_HOST; p < DT_PLACE_N; p++)
		if (e->place_bytes[p])
			fprintf(v->f, "%s %s: %s\n",
				p == DT_PLACE_HOST ? "\nin addition, in host memory" : "\nin addition, on",
				p == DT_PLACE_HOST ? "of a rank" : "disk for a rank",
				dt_format_size(e->place_bytes[p], size, sizeof(size)));
	if (v->timeline && !v->q->serve) {
		fputc('\n', v->f);
		dt_fit_timeline(e, !strcmp(nl_langinfo(CODESET), "UTF-8"), v->f);
	} else if (!v->q->serve) {
		print_phases(v, e);
	}
	if (v->lacks_scratch)
		fprintf(v->f, "%snot counted: scratch memory of operations on a processor (--threads)\n",
			v->q->serve || v->timeline ? "\n" : "");
}

void dt_fit_print_stages(const struct dt_fit_view *v, const struct dt_fit *r)
{
	struct dt_table *t = dt_table_new(">stage|ranks|layers|>parameters|>peak|phase|note");
	char size[24], params[24], layers[128];

	for (int i = 0; i < r->n; i++) {
		const struct dt_fit_stage *s = &r->stage[i];

		dt_table_cell(t, "%d", i);
		dt_table_cell(t, "%d-%d", s->first_rank, s->first_rank + s->ranks - 1);
		dt_table_cell(t, "%s", dt_fit_layers(v->q, i, layers, sizeof(layers)));
		dt_table_cell(t, "%s", dt_format_count((double)s->est.params, params, sizeof(params)));
		dt_table_cell(t, "%s", dt_format_size(s->est.peak_bytes, size, sizeof(size)));
		dt_table_cell(t, "%s", dt_phase_name(s->est.peak));
		dt_table_cell(t, "%s", i == r->worst ? "worst" : "");
	}
	fputc('\n', v->f);
	dt_table_print(t, v->f);
	dt_table_free(t);
}

void dt_fit_print_buffers(const struct dt_fit_view *v, const struct dt_estimate *e, int cat)
{
	struct dt_table *t = dt_table_new("buffer|category|>count|>bytes each|>bytes|phases|kind|how");
	char size[24], kind[16];

	for (int i = 0; i < e->n; i++) {
		const struct dt_entry *b = &e->e[i];
		uint64_t bytes = 0;
		int count = 0, before = 0;

		for (int k = 0; k < e->n; k++) {
			if (strcmp(e->e[k].kind, b->kind) || e->e[k].cat != b->cat)
				continue;
			before += k < i;
			count++;
			bytes += e->e[k].bytes;
		}
		if ((cat >= 0 && b->cat != cat) || before)
			continue;
		dt_table_cell(t, "%s", b->kind);
		dt_table_cell(t, "%s", dt_est_cat_name(b->cat));
		dt_table_cell(t, "%d", count);
		dt_table_cell(t, "%s", dt_format_size(bytes / (uint64_t)count, size, sizeof(size)));
		dt_table_cell(t, "%s", dt_format_size(bytes, size, sizeof(size)));
		if (v->q->serve)
			dt_table_cell(t, "always");
		else if (b->first == b->last)
			dt_table_cell(t, "%s", dt_phase_name(b->first));
		else
			dt_table_cell(t, "%s-%s", dt_phase_name(b->first), dt_phase_name(b->last));
		dt_table_cell(t, "%s",
			      dt_opt_choice_name(DT_EXACTNESS_CHOICES, b->exactness, kind, sizeof(kind)));
		dt_table_cell(t, "%s", b->formula);
	}
	fputc('\n', v->f);
	dt_table_print(t, v->f);
	dt_table_free(t);
}

int dt_fit_print_why(const struct dt_fit_view *v, uint64_t room, int node, struct dt_err *err)
{
	struct dt_table *t = dt_table_new("question|layout|>a rank|answer");
	struct dt_why w;
	char size[24];
	int rc = dt_why(v->q, room, node, &w, err);

	for (int i = 0; i < w.n && rc == 0; i++) {
		const struct dt_why_step *s = &w.step[i];

		dt_table_cell(t, "%s", s->question);
		dt_table_cell(t, "%s", s->layout);
		dt_table_cell(t, "%s",
			      s->peak_bytes ? dt_format_size(s->peak_bytes, size, sizeof(size)) : "-");
		dt_table_cell(t, "%s",
			      i == w.taken    ? "yes (chosen)"
			      : s->fits	      ? "yes"
			      : s->peak_bytes ? "no"
					      : "impossible");
	}
	if (rc == 0) {
		fputc('\n', v->f);
		dt_table_print(t, v->f);
		fprintf(v->f, "\n%s\n", w.advice);
	}
	dt_table_free(t);
	return rc;
}

void dt_fit_print_category(const struct dt_fit_view *v, const struct dt_estimate *e, int cat)
{
	char how[DT_FORMULA_LEN];

	fprintf(v->f, "%s: %s\n\n%s\n", dt_est_cat_name(cat),
		dt_category_formula(v->q, e, cat, how, sizeof(how)), dt_category_text(cat));
	for (int i = 0; i < e->n; i++) {
		if (e->e[i].cat == cat) {
			dt_fit_print_buffers(v, e, cat);
			return;
		}
	}
	fprintf(v->f, "\nThis rank has none.\n");
}

void dt_fit_print_models(FILE *f)
{
	struct dt_table *t = dt_table_new("model|family|>parameters|>layers|>hidden|>positions");
	struct dt_params table;
	char params[24];

	for (int i = 0; dt_config_preset(i); i++) {
		const struct dt_config *c = dt_config_preset(i);

		if (dt_model_params(c, &table, NULL) < 0)
			continue;
		dt_table_cell(t, "%s", c->name);
		dt_table_cell(t, "%s", c->family);
		dt_table_cell(t, "%s",
			      dt_format_count((double)dt_params_total(&table), params, sizeof(params)));
		dt_table_cell(t, "%lld", (long long)c->layers);
		dt_table_cell(t, "%lld", (long long)c->hidden);
		dt_table_cell(t, "%lld", (long long)c->max_seq);
		dt_params_release(&table);
	}
	dt_table_print(t, f);
	dt_table_free(t);
}
/* SPDX-License-Identifier: Apache-2.0 */
