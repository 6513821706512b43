#include "plan/plan_print.h"

#include "base/table.h"
#include "base/units.h"
#include "plan/offtime.h"
#include "plan/run_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DAY 86400.0

/* Rounds to two digits: predictions are accurate to a few percent. */
static double two_digits(double x)
{
	double unit = x > 0 ? pow(10, floor(log10(x)) - 1) : 1;

	return unit > 1 ? round(x / unit) * unit : x;
}

/* Cost of the whole run: without failures, or (failing) with the work that they lose. */
static struct dt_run_cost cost_of(const struct dt_plan_view *v, const struct dt_candidate *c, bool failing,
				  double *ret_save)
{
	const struct dt_cluster *k = v->q->cluster;
	struct dt_run_cost_query q = {.seconds = (double)v->tokens / c->t.tokens_per_s,
				      .devices = k->gpus,
				      .price = k->price_a_gpu_hour,
				      .power_w = k->device.power_w,
				      .mtbf_s = failing ? v->mtbf_hours * 3600 / k->gpus : 0,
				      .save_s = v->save_s,
				      .restart_s = v->restart_s,
				      .every_s = v->every_s};
	struct dt_params p;

	if (q.save_s <= 0 && dt_model_params(v->q->fit.run.config, &p, NULL) == 0) {
		q.save_s = (double)dt_params_total(&p) * 14 / 2e9 / ceil((double)k->gpus / k->gpus_a_node);
		dt_params_release(&p);
	}
	if (ret_save)
		*ret_save = q.save_s;
	return dt_run_cost_of(&q);
}

/* Formats a count with two digits, without zeros that would claim more: "25 k". */
static const char *count(double x, char *buf, size_t n)
{
	char all[24];
	size_t digits, keep;

	dt_format_count(two_digits(x), all, sizeof(all));
	digits = keep = strcspn(all, " ");
	if (memchr(all, '.', digits)) {
		while (all[keep - 1] == '0')
			keep--;
		keep -= all[keep - 1] == '.';
	}
	snprintf(buf, n, "%.*s%s", (int)keep, all, all + digits);
	return buf;
}

/* Formats a duration; long ones in days. */
static const char *long_time(double seconds, char *buf, size_t n)
{
	if (seconds < 2 * DAY)
		return dt_format_duration(seconds, buf, n);
	snprintf(buf, n, "%.0f days", two_digits(seconds / DAY));
	return buf;
}

/* Compares spot devices, which are cheaper but interrupted, with devices that are not. */
static void print_spot(const struct dt_plan_view *v, const struct dt_candidate *c)
{
	const struct dt_run_cost sure = cost_of(v, c, false, NULL), spot = cost_of(v, c, true, NULL);
	const double money = spot.money * (1 - v->spot);
	char t[24], n[24], m[24];

	fprintf(v->f, "spot devices at a price %g%% lower with these interruptions: %s, %s device hours",
		100 * v->spot, long_time(spot.seconds, t, sizeof(t)), count(spot.device_hours, n, sizeof(n)));
	fprintf(v->f, ", cost %s: %s %.0f%%\n", count(money, m, sizeof(m)),
		money < sure.money ? "saves" : "exceeds full price by", 100 * fabs(1 - money / sure.money));
}

/* What a classifier trains on, else tokens. */
static const char *unit_of(const struct dt_plan_view *v)
{
	return dt_config_is_image(v->q->fit.run.config) ? "images" : "tokens";
}

static void print_run(const struct dt_plan_view *v, const struct dt_candidate *c)
{
	const struct dt_cluster *k = v->q->cluster;
	double price = k->price_a_gpu_hour, save;
	char t[24], n[24];

	if (price > 0) {
		const double money = dt_plan_million(v->q, c).money;

		fprintf(v->f, "a million %s cost %.3g at %g a device hour; a price of 1 trains %s %s\n",
			unit_of(v), money, price, count(1e6 / money, n, sizeof(n)), unit_of(v));
	}
	if (v->tokens) {
		const struct dt_run_cost sure = cost_of(v, c, false, NULL);

		fprintf(v->f, "%s %s take about %s", dt_format_count((double)v->tokens, n, sizeof(n)),
			unit_of(v), long_time(sure.seconds, t, sizeof(t)));
		fprintf(v->f, ", %s device hours", count(sure.device_hours, n, sizeof(n)));
		if (price > 0)
			fprintf(v->f, ", cost %s at %g a device hour", count(sure.money, n, sizeof(n)),
				price);
		if (sure.energy_kwh > 0)
			fprintf(v->f, ", at most %.3g %s at %g W a device",
				two_digits(sure.energy_kwh) / (sure.energy_kwh < 1e3 ? 1 : 1e3),
				sure.energy_kwh < 1e3 ? "kWh" : "MWh", k->device.power_w);
		fputc('\n', v->f);
	}
	if (v->mtbf_hours > 0) {
		const struct dt_run_cost failing = cost_of(v, c, true, &save);

		fprintf(v->f, "a checkpoint (%s) every %s", dt_format_duration(save, t, sizeof(t)),
			dt_format_duration(failing.every_s, n, sizeof(n)));
		fprintf(v->f, " loses %s%.1f%% of the time\n",
			v->every_s > 0 ? "" : "the least: ", 100 * failing.lost);
	}
	if (v->spot > 0)
		print_spot(v, c);
}

/* The same as unformatted numbers. */
static void run_json(const struct dt_plan_view *v, const struct dt_candidate *c, json_t *o)
{
	const bool priced = v->q->cluster->price_a_gpu_hour > 0;
	struct dt_run_cost k = cost_of(v, c, false, NULL);
	double save;

	if (v->tokens) {
		json_object_set_new(o, "run_s", json_real(k.seconds));
		json_object_set_new(o, "device_hours", json_real(k.device_hours));
		if (priced)
			json_object_set_new(o, "cost", json_real(k.money));
		if (k.energy_kwh > 0)
			json_object_set_new(o, "energy_kwh_at_most", json_real(k.energy_kwh));
	}
	if (v->mtbf_hours <= 0)
		return;
	k = cost_of(v, c, true, &save);
	json_object_set_new(
		o, "checkpoint",
		json_pack("{s:f, s:f, s:f}", "every_s", k.every_s, "save_s", save, "lost", k.lost));
	if (v->spot > 0)
		json_object_set_new(o, "spot",
				    json_pack("{s:f, s:f, s:f}", "run_s", k.seconds, "device_hours",
					      k.device_hours, "cost", k.money * (1 - v->spot)));
}

static void table_row(const struct dt_plan_view *v, struct dt_table *t, const struct dt_candidate *c,
		      const char *name, const struct dt_candidate *best)
{
	static const char *const recompute[] = {"none", "selective", "full"};
	char layout[80], s[24], reason[200];

	dt_table_cell(t, "%s", name);
	dt_table_cell(t, "%s", dt_layout_format(&c->layout, layout, sizeof(layout)));
	dt_table_cell(t, "%lld x %lld", (long long)c->microbatch, (long long)c->accumulation);
	dt_table_cell(t, "%s", recompute[c->recompute]);
	dt_table_cell(t, "%s", dt_format_duration(c->t.step, s, sizeof(s)));
	dt_table_cell(t, "%s", dt_format_count(c->t.tokens_per_s * DAY, s, sizeof(s)));
	dt_table_cell(t, "%.1f%%", 100 * c->t.mfu);
	dt_table_cell(t, "%s%s", dt_format_size(c->peak_bytes, s, sizeof(s)),
		      c->fits ? "" : " (does not fit)");
	dt_table_cell(t, "%s", dt_plan_reason(v->q, c, best, reason, sizeof(reason)));
}

static void explain(const struct dt_plan_view *v, const struct dt_plan *p)
{
	const struct dt_step_time *t = &p->best[0].t;
	const struct {
		const char *name;
		double s;
	} rows[] = {
		{"matmuls, forward and backward", t->matmul},
		{"attention", t->attention},
		{"memory-bound operations", t->memory},
		{"embedding, head and loss", t->head},
		{"recomputation", t->recompute},
		{"tensor-parallel communication", t->tp},
		{"expert-parallel communication", t->ep},
		{"context-parallel communication", t->cp},
		{"pipeline bubble", t->bubble * t->makespan},
		{"exposed gradient communication", t->dp_exposed},
		{"optimizer", t->optimizer},
		{"exposed offloading", t->offload_exposed},
		{"fixed costs", t->fixed},
	};
	struct dt_table *table = dt_table_new("part of the best plan's step|>time|>share");
	char bound[16], s[24];

	fprintf(v->f,
		"\n%d ways to split the model were timed; of the fastest %d, whose memory was computed, %d "
		"do not fit.\n",
		p->cut, p->tried, p->too_large);
	for (int i = 0; i < p->nreason; i++)
		fprintf(v->f, "Rejected: %d like %s, %s.\n", p->reason[i].n, p->reason[i].layout,
			p->reason[i].text);
	fprintf(v->f, "The step is bound by %s.\n\n",
		dt_opt_choice_name(DT_BOUND_CHOICES, (int)t->bound, bound, sizeof(bound)));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].s / t->step < 0.0005)
			continue;
		dt_table_cell(table, "%s", rows[i].name);
		dt_table_cell(table, "%s", dt_format_duration(rows[i].s, s, sizeof(s)));
		dt_table_cell(table, "%.1f%%", 100 * rows[i].s / t->step);
	}
	dt_table_print(table, v->f);
	dt_table_free(table);
}

static void print_heading(const struct dt_plan_view *v)
{
	const struct dt_cluster *c = v->q->cluster;
	char mem[24], acc[16];

	fprintf(v->f, "%s on ", v->q->fit.run.config->name);
	for (int k = 0; k < c->nkind; k++)
		fprintf(v->f, "%s%d x %s", k ? " and " : "", c->kind[k].gpus, c->kind[k].device.name);
	if (!c->nkind)
		fprintf(v->f, "%d x %s%s", c->gpus, c->device.name, v->assumed ? " (assumed)" : "");
	fprintf(v->f, ", %d per machine, %s each%s\n", c->gpus_a_node,
		dt_format_size((uint64_t)(v->memory), mem, sizeof(mem)), v->links ? ", measured links" : "");
	fprintf(v->f, "global batch %lld ", (long long)v->q->fit.run.global_batch);
	if (!dt_config_is_image(v->q->fit.run.config))
		fprintf(v->f, "x %lld ", (long long)v->q->fit.run.seq);
	fprintf(v->f, "%s, account %s\n\n", unit_of(v),
		dt_opt_choice_name(DT_ACCOUNT_CHOICES, (int)v->q->fit.account, acc, sizeof(acc)));
}

/* With several kinds of devices: how many microbatches each rank computes in the first plan. */
static void print_shares(const struct dt_plan_view *v, const struct dt_candidate *c)
{
	char *shares = v->q->cluster->nkind ? dt_plan_shares(v->q, c) : NULL, *at = shares;
	const char *between = "\nmicrobatches in plan 1: ";

	while (at && *at) { /* runs of equal numbers */
		const long n = strtol(at, &at, 10);
		int ranks = 1;

		while (*at == ',' && strtol(at + 1, NULL, 10) == n) {
			ranks++;
			at++;
			at += strcspn(at, ",");
		}
		fprintf(v->f, "%s%ld on each of %d ranks", between, n, ranks);
		between = ", ";
		at += *at == ',';
	}
	if (shares)
		fprintf(v->f, " (--emit args: --shares)\n");
	else if (v->q->cluster->nkind)
		fprintf(v->f, "\nall ranks of plan 1 compute equally many microbatches\n");
	free(shares);
}

bool dt_plan_print(const struct dt_plan_view *v, const struct dt_plan *p, const struct dt_candidate *other)
{
	static const char
		of_text[] = ">#|layout|>microbatches|recompute|>step|>tokens/day|>mfu|>memory|time spent on",
		of_images[] =
			">#|layout|>microbatches|recompute|>step|>images/day|>mfu|>memory|time spent on";
	struct dt_table *t = dt_table_new(dt_config_is_image(v->q->fit.run.config) ? of_images : of_text);
	char need[24], layout[80], name[12];

	print_heading(v);
	if (p->n == 0 && !other) {
		fprintf(v->f, "nothing fits; %s needs the least, %s\n",
			dt_layout_format(&p->smallest.layout, layout, sizeof(layout)),
			dt_format_size(p->smallest.peak_bytes, need, sizeof(need)));
		dt_table_free(t);
		return false;
	}
	for (int i = 0; i < p->n; i++) {
		snprintf(name, sizeof(name), "%d", i + 1);
		table_row(v, t, &p->best[i], name, i ? &p->best[0] : NULL);
	}
	if (other)
		table_row(v, t, other, "?", p->n ? &p->best[0] : NULL);
	dt_table_print(t, v->f);
	dt_table_free(t);
	if (other && other->layout.tp > v->q->cluster->gpus_a_node)
		fprintf(v->f,
			"\ntp%d spans machines of %d devices: every layer waits for the network between "
			"them\n",
			other->layout.tp, v->q->cluster->gpus_a_node);
	if (p->n == 0)
		return false;
	if (p->best[0].t.offload_written > 0) {
		const struct dt_cluster *c = v->q->cluster;
		char text[300];

		fprintf(v->f, "\n%s\n",
			dt_offload_text(&v->q->fit.run, &p->best[0].t,
					c->gpus < c->gpus_a_node ? c->gpus : c->gpus_a_node, text,
					sizeof(text)));
	}
	print_shares(v, &p->best[0]);
	if (v->explain)
		explain(v, p);
	if (v->tokens || v->mtbf_hours > 0 || v->q->cluster->price_a_gpu_hour > 0)
		fputc('\n', v->f);
	print_run(v, &p->best[0]);
	return !other || other->fits;
}

json_t *dt_plan_json(const struct dt_plan_view *v, const struct dt_plan *p, const struct dt_candidate *other)
{
	json_t *plans = json_array(), *o;
	char acc[16];

	for (int i = 0; i < p->n; i++)
		json_array_append_new(plans, dt_candidate_json(v->q, &p->best[i]));
	o = json_pack("{s:i, s:s, s:o, s:I, s:I, s:s, s:i, s:i, s:i, s:i, s:o}", "schema", 1, "model",
		      v->q->fit.run.config->name, "cluster", dt_cluster_to_json(v->q->cluster),
		      "global_batch", (json_int_t)v->q->fit.run.global_batch, "seq_tokens",
		      (json_int_t)v->q->fit.run.seq, "account",
		      dt_opt_choice_name(DT_ACCOUNT_CHOICES, (int)v->q->fit.account, acc, sizeof(acc)),
		      "layouts_timed", p->cut, "layouts_passed_over", p->passed, "layouts_sized", p->tried,
		      "layouts_too_large", p->too_large, "plans", plans);
	if (other)
		json_object_set_new(o, "compared", dt_candidate_json(v->q, other));
	if (p->n)
		run_json(v, &p->best[0], o);
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
