#include "train/trainer.h"

#include "base/progress.h"
#include "base/prom.h"
#include "plan/run_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVERY_S 1.0 /* the shortest time between two updates of the files */

enum kind {
	NEWEST,
	COUNT, /* already a total over the run */
	SUM,
	TRUE_SUM, /* the number of lines where the key is true */
};

/*
 * The values of a line that are exported to Prometheus. Rows of one metric are consecutive, and differ by
 * their label.
 */
static const struct row {
	const char *key, *name;
	enum kind kind;
	const char *label, *of, *help;
} rows[] = {
	{"step", "dt_train_steps_total", COUNT, NULL, NULL,
	 "Steps completed, including those before the run was resumed."},
	{"tokens", "dt_train_tokens_total", COUNT, NULL, NULL, "Tokens trained on."},
	{"images", "dt_train_images_total", COUNT, NULL, NULL, "Images trained on."},
	{"skipped", "dt_train_skipped_steps_total", TRUE_SUM, NULL, NULL, "Steps whose update was skipped."},
	{"rollback", "dt_train_rollbacks_total", TRUE_SUM, NULL, NULL, "Rollbacks to an earlier checkpoint."},
	{"loss", "dt_train_loss_nats", NEWEST, NULL, NULL, "Mean loss over the labels of the global batch."},
	{"eval_loss", "dt_train_eval_loss_nats", NEWEST, NULL, NULL, "Mean loss of the evaluation set."},
	{"top1", "dt_train_eval_top1_ratio", NEWEST, NULL, NULL, "Top-1 accuracy on the evaluation set."},
	{"grad_norm", "dt_train_gradient_norm", NEWEST, NULL, NULL,
	 "2-norm of the gradient before clipping."},
	{"lr", "dt_train_learning_rate", NEWEST, NULL, NULL, "Learning rate of the step."},
	{"loss_scale", "dt_train_loss_scale", NEWEST, NULL, NULL, "Loss scale of the step."},
	{"tokens_per_s", "dt_train_tokens_per_second", NEWEST, NULL, NULL,
	 "Tokens per second in the last step."},
	{"images_per_s", "dt_train_images_per_second", NEWEST, NULL, NULL,
	 "Images per second in the last step."},
	{"mfu", "dt_train_mfu_ratio", NEWEST, NULL, NULL,
	 "Model FLOP/s over the measured rate of matrix products."},
	{"step_s", "dt_train_step_seconds", NEWEST, NULL, NULL, "Time of the last step."},
	{"data_s", "dt_train_section_seconds_total", SUM, "section", "data",
	 "Time of rank 0 in each section of the steps."},
	{"compute_s", "dt_train_section_seconds_total", SUM, "section", "compute", NULL},
	{"comm_tensor_s", "dt_train_section_seconds_total", SUM, "section", "comm_tensor", NULL},
	{"comm_pipeline_s", "dt_train_section_seconds_total", SUM, "section", "comm_pipeline", NULL},
	{"comm_grads_s", "dt_train_section_seconds_total", SUM, "section", "comm_grads", NULL},
	{"comm_weights_s", "dt_train_section_seconds_total", SUM, "section", "comm_weights", NULL},
	{"comm_other_s", "dt_train_section_seconds_total", SUM, "section", "comm_other", NULL},
	{"optimizer_s", "dt_train_section_seconds_total", SUM, "section", "optimizer", NULL},
	{"checkpoint_s", "dt_train_section_seconds_total", SUM, "section", "checkpoint", NULL},
	{"eval_s", "dt_train_section_seconds_total", SUM, "section", "evaluation", NULL},
	{"peak_bytes", "dt_train_memory_plan_bytes", NEWEST, NULL, NULL,
	 "Peak of the memory plan of the largest rank."},
	{"rss_bytes", "dt_train_resident_memory_max_bytes", NEWEST, NULL, NULL,
	 "Largest resident size of rank 0."},
};
#define NROWS ((int)(sizeof(rows) / sizeof(*rows)))
_Static_assert(sizeof(rows) / sizeof(*rows) <= EXPORT_VALUES, "value[] is too short");

static double wall(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- TensorBoard ---- */

static const char *group_of(const char *key)
{
	size_t n = strlen(key);

	if (!strncmp(key, "eval_", 5) || !strncmp(key, "top", 3))
		return "eval";
	if (n > 6 && !strcmp(key + n - 6, "_per_s"))
		return "speed";
	if (n > 6 && !strcmp(key + n - 6, "_bytes"))
		return "memory";
	return n > 2 && !strcmp(key + n - 2, "_s") ? "seconds" : "train";
}

static void scalar(struct trainer *t, const char *group, const char *key, const char *of, const json_t *v)
{
	char tag[160];

	if (!json_is_number(v))
		return;
	snprintf(tag, sizeof(tag), "%s/%s%s%s", group, key, *of ? "/" : "", of);
	dt_tfevents_scalar(t->export.events, wall(), t->loop.step, tag, json_number_value(v));
}

static void events_details(struct trainer *t, const json_t *d)
{
	static const char *const group[] = {"ranks", "usage"};
	const char *key;
	json_t *v, *list, *x;
	char of[32];
	size_t i;

	json_object_foreach(json_object_get(d, "step_s"), key, v) scalar(t, "step_s", key, "", v);
	for (int k = 0; k < 2; k++)
		json_object_foreach(json_object_get(d, group[k]), key, list) json_array_foreach(list, i, v)
		{
			snprintf(of, sizeof(of), "%zu", i);
			scalar(t, group[k], key, of, v);
		}
	json_array_foreach(json_object_get(d, "units"), i, v)
	{
		const char *unit = json_string_value(json_object_get(v, "unit"));

		json_object_foreach(v, key, x) scalar(t, "units", key, unit, x);
	}
}

/* An answer as a block of preformatted text, so that its lines are not read as Markdown. */
static void events_answer(struct trainer *t, const json_t *a)
{
	const json_t *reward = json_object_get(a, "reward");
	char *text = NULL;

	if (asprintf(&text, "```\n%s%s\n```\nreward %g", json_string_value(json_object_get(a, "prompt")),
		     json_string_value(json_object_get(a, "text")),
		     json_is_number(reward) ? json_number_value(reward) : (double)NAN) >= 0)
		dt_tfevents_text(t->export.events, wall(), t->loop.step, "answer", text);
	free(text);
}

static void events_line(struct trainer *t, const json_t *line)
{
	const char *key, *event = json_string_value(json_object_get(line, "event"));
	json_t *v;

	if (event)
		dt_tfevents_restart(t->export.events, wall(), t->loop.step + 1);
	json_object_foreach((json_t *)line, key, v) if (strcmp(key, "step") != 0)
		scalar(t, group_of(key), key, "", v);
	if (json_object_get(line, "answer"))
		events_answer(t, json_object_get(line, "answer"));
	events_details(t, json_object_get(line, "details"));
}

/* The run's settings, as text. */
static void events_run(struct trainer *t)
{
	json_t *run = dt_run_to_json(&t->run);
	char *text = json_dumps(run, JSON_INDENT(2)), *block = NULL;

	if (text && asprintf(&block, "```\n%s\n```", text) >= 0)
		dt_tfevents_text(t->export.events, wall(), t->loop.step, "run", block);
	free(block);
	free(text);
	json_decref(run);
}

/* ---- Prometheus ---- */

static void take(struct trainer *t, const json_t *line)
{
	const char *event = json_string_value(json_object_get(line, "event"));
	double *value = t->export.value;
	json_t *details = json_object_get(line, "details");

	for (int i = 0; i < NROWS; i++) {
		const json_t *v = json_object_get(line, rows[i].key);
		double x = json_is_number(v) ? json_number_value(v) : NAN;

		if (rows[i].kind == TRUE_SUM)
			x = json_is_true(v) || (event && !strcmp(event, rows[i].key));
		if (rows[i].kind >= SUM)
			x = (isnan(value[i]) ? 0 : value[i]) + (isnan(x) ? 0 : x);
		if (!isnan(x) || (json_is_null(v) && rows[i].kind == NEWEST))
			value[i] = x;
	}
	if (details) {
		json_decref(t->export.details);
		t->export.details = json_incref(details);
	}
}

static void page_units(struct dt_prom *p, const json_t *units)
{
	static const char *const metric[][3] = {
		{"grad_norm", "dt_train_unit_gradient_norm", "2-norm of a unit's gradient before clipping."},
		{"weight_norm", "dt_train_unit_weight_norm", "2-norm of a unit's trained weights."},
		{"activation_max", "dt_train_unit_activation_max",
		 "Largest magnitude of a unit's activations."},
		{"activation_grad_max", "dt_train_unit_activation_gradient_max",
		 "Largest magnitude of the gradients of a unit's activations."},
	};
	json_t *u;
	size_t i;

	for (size_t k = 0; k < sizeof(metric) / sizeof(*metric); k++) {
		if (!json_object_get(json_array_get(units, 0), metric[k][0]))
			continue;
		dt_prom_metric(p, metric[k][1], "gauge", metric[k][2]);
		json_array_foreach((json_t *)units, i, u)
		{
			const json_t *v = json_object_get(u, metric[k][0]);

			dt_prom_value(p, metric[k][1], json_is_number(v) ? json_number_value(v) : NAN, "unit",
				      json_string_value(json_object_get(u, "unit")), NULL);
		}
	}
}

/* A metric for each usage value that some rank knows. */
static void page_usage(struct dt_prom *p, const json_t *usage)
{
	const struct usage_row *row;
	json_t *v;
	char rank[24];
	size_t r;

	for (int i = 0; (row = usage_row(i)); i++) {
		json_t *list = json_object_get(usage, row->key);

		if (list)
			dt_prom_metric(p, row->name, "gauge", row->help);
		json_array_foreach(list, r, v)
		{
			snprintf(rank, sizeof(rank), "%zu", r);
			if (json_is_number(v))
				dt_prom_value(p, row->name, json_number_value(v), "rank", rank, NULL);
		}
	}
}

static void page_details(struct dt_prom *p, const json_t *d)
{
	/* The label is not "quantile", which the format reserves for metrics of type summary. */
	static const char *const percentile[][2] = {
		{"p50", "50"}, {"p90", "90"}, {"p99", "99"}, {"max", "100"}};
	const char *name = "dt_train_step_seconds_percentile", *key;
	json_t *list, *v;
	char rank[24];
	size_t r;

	dt_prom_metric(p, name, "gauge", "Percentiles of step times since the previous details.");
	for (int i = 0; i < 4; i++)
		dt_prom_value(
			p, name,
			json_number_value(json_object_get(json_object_get(d, "step_s"), percentile[i][0])),
			"percentile", percentile[i][1], NULL);
	name = "dt_train_rank_section_seconds";
	dt_prom_metric(p, name, "gauge",
		       "Mean time of a rank in a section of a step since the previous details.");
	json_object_foreach(json_object_get(d, "ranks"), key, list) json_array_foreach(list, r, v)
	{
		char section[32];

		snprintf(section, sizeof(section), "%.*s", (int)strlen(key) - 2, key); /* without _s */
		snprintf(rank, sizeof(rank), "%zu", r);
		dt_prom_value(p, name, json_number_value(v), "rank", rank, "section", section, NULL);
	}
	page_usage(p, json_object_get(d, "usage"));
	page_units(p, json_object_get(d, "units"));
}

static int publish(struct trainer *t, struct dt_err *err)
{
	struct dt_prom p;
	char layout[64];
	int rc = dt_prom_begin(&p, err);

	if (rc < 0)
		return rc;
	dt_prom_metric(&p, "dt_train_run_info", "gauge", "The run; its value is 1.");
	dt_prom_value(&p, "dt_train_run_info", 1, "run_id", t->save.run_id, "model", t->config.name, "layout",
		      dt_layout_format(&t->run.layout, layout, sizeof(layout)), NULL);
	dt_prom_one(&p, "dt_train_updated_timestamp_seconds", "gauge", "When this page was written.", wall());
	for (int i = 0; i < NROWS; i++) {
		const struct row *r = &rows[i];
		const char *type = r->kind == NEWEST ? "gauge" : "counter";

		if (r->help && (!isnan(t->export.value[i]) || r->label))
			dt_prom_metric(&p, r->name, type, r->help);
		if (isnan(t->export.value[i]))
			continue;
		if (r->label)
			dt_prom_value(&p, r->name, t->export.value[i], r->label, r->of, NULL);
		else
			dt_prom_value(&p, r->name, t->export.value[i], NULL);
	}
	if (t->export.details)
		page_details(&p, t->export.details);
	t->export.published = dt_now();
	return dt_prom_publish(&p, t->export.page, err);
}

/* ---- both ---- */

int export_open(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (t->info.rank != 0)
		return 0;
	for (int i = 0; i < EXPORT_VALUES; i++)
		t->export.value[i] = NAN;
	t->export.page = t->run.prometheus;
	if (t->run.tensorboard)
		rc = dt_tfevents_open(t->run.tensorboard, wall(), &t->export.events, err);
	if (rc == 0 && t->export.events) {
		if (t->loop.step > 0)
			dt_tfevents_restart(t->export.events, wall(), t->loop.step + 1);
		events_run(t);
		rc = dt_tfevents_flush(t->export.events, err);
	}
	return rc == 0 && t->export.page ? publish(t, err) : rc;
}

bool export_any(const struct trainer *t)
{
	return t->export.events || t->export.page;
}

/* Rewrites the page. A failure does not end the run; it is logged once. */
static void renew(struct trainer *t)
{
	struct dt_err err = {0};

	if (publish(t, &err) < 0 && !t->export.stale) {
		dt_log_msg(&t->root_log, "--prometheus: the page is not updated: %s", err.msg);
		t->export.stale = true;
	}
}

int export_line(struct trainer *t, const json_t *line, struct dt_err *err)
{
	struct export *e = &t->export;
	double now = dt_now();
	int rc = 0;

	if (e->events)
		events_line(t, line);
	if (e->events && now > e->flushed + EVERY_S) {
		e->flushed = now;
		rc = dt_tfevents_flush(e->events, err);
	}
	if (e->page)
		take(t, line);
	if (e->page && now > e->published + EVERY_S)
		renew(t);
	return rc;
}

int export_close(struct trainer *t, struct dt_err *err)
{
	struct export *e = &t->export;
	int rc = e->events ? dt_tfevents_flush(e->events, err) : 0;

	if (e->page)
		renew(t);
	dt_tfevents_close(e->events);
	json_decref(e->details);
	*e = (struct export){0};
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
