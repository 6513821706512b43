/* Prints a classifier's evaluation, as JSON or as text. */
#include "base/opt.h"
#include "base/table.h"
#include "eval/images.h"

#include <errno.h>

#define MATRIX_MOST 100 /* classes up to which JSON has the full confusion matrix */
#define TABLE_MOST  40	/* classes up to which text lists each class */

/* Class c: its images, those found, how often it was predicted, and its commonest wrong prediction. */
static void of_class(const struct dt_images_result *r, int c, int64_t *images, int64_t *found, int64_t *given,
		     int *mistaken)
{
	const int64_t *row = r->confusion + (int64_t)c * r->classes;

	*images = *given = 0;
	*found = row[c];
	*mistaken = -1;
	for (int k = 0; k < r->classes; k++) {
		*images += row[k];
		*given += r->confusion[(int64_t)k * r->classes + c];
		if (k != c && row[k] && (*mistaken < 0 || row[k] > row[*mistaken]))
			*mistaken = k;
	}
}

static double share(int64_t a, int64_t b)
{
	return b ? (double)a / (double)b : 0;
}

json_t *dt_images_result_json(const char *model, const struct dt_images_query *q,
			      const struct dt_images_result *r)
{
	json_t *classes = json_array(), *matrix = json_array(), *o;
	char tta[16];

	for (int c = 0; c < r->classes; c++) {
		int64_t images, found, given;
		json_t *row = json_array();
		int mistaken;

		of_class(r, c, &images, &found, &given, &mistaken);
		json_array_append_new(classes, json_pack("{s:s, s:I, s:f, s:f}", "name", r->name[c], "images",
							 (json_int_t)images, "precision", share(found, given),
							 "recall", share(found, images)));
		for (int k = 0; k < r->classes && r->classes <= MATRIX_MOST; k++)
			json_array_append_new(
				row, json_integer((json_int_t)r->confusion[(int64_t)c * r->classes + k]));
		json_array_append_new(matrix, row);
	}
	o = json_pack("{s:i, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:i, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:o}",
		      "schema", 1, "model", model, "data", q->data, "images", (json_int_t)r->n, "top1",
		      r->top1, "top1_stderr", r->top1_error, "top5", r->top5, "loss", r->loss, "ranks",
		      q->size, "split", q->split == DT_SPLIT_DATA ? "data" : "requests", "tta",
		      dt_opt_choice_name(DT_TTA_CHOICES, q->tta, tta, sizeof(tta)), "batch",
		      (json_int_t)q->batch, "seconds", r->seconds, "images_per_s", (double)r->n / r->seconds,
		      "batch_s_p50", r->batch_p50, "batch_s_p99", r->batch_p99, "classes", classes);
	if (o && r->classes <= MATRIX_MOST)
		json_object_set(o, "confusion", matrix);
	json_decref(matrix);
	return o;
}

static const char *const tta_said[] = {[DT_TTA_NONE] = "",
				       [DT_TTA_MIRROR] = ", averaged with mirrored images",
				       [DT_TTA_SHIFT] = ", averaged with mirrored and shifted images"};

static int print_classes(const struct dt_images_result *r, FILE *f, struct dt_err *err)
{
	struct dt_table *t = dt_table_new("class|>images|>precision|>recall|most often confused with");

	if (!t)
		return dt_err_sys(err, -ENOMEM, "cannot print");
	for (int c = 0; c < r->classes; c++) {
		int64_t images, found, given;
		int mistaken;

		of_class(r, c, &images, &found, &given, &mistaken);
		dt_table_cell(t, "%s", r->name[c]);
		dt_table_cell(t, "%lld", (long long)images);
		dt_table_cell(t, "%.2f%%", 100 * share(found, given));
		dt_table_cell(t, "%.2f%%", 100 * share(found, images));
		if (mistaken < 0)
			dt_table_cell(t, "%s", "");
		else
			dt_table_cell(t, "%s (%lld)", r->name[mistaken],
				      (long long)r->confusion[(int64_t)c * r->classes + mistaken]);
	}
	dt_table_print(t, f);
	dt_table_free(t);
	return 0;
}

int dt_images_result_print(const struct dt_images_query *q, const struct dt_images_result *r, FILE *f,
			   struct dt_err *err)
{
	fprintf(f, "top-1 %.2f%% +- %.2f, top-5 %.2f%%, loss %.4f on %lld images%s\n", 100 * r->top1,
		100 * r->top1_error, 100 * r->top5, r->loss, (long long)r->n, tta_said[q->tta]);
	fprintf(f, "%.1f images/s; latency of a batch of %lld: median %.1f ms, 99th percentile %.1f ms\n",
		(double)r->n / r->seconds, (long long)(q->batch < r->n ? q->batch : r->n), 1e3 * r->batch_p50,
		1e3 * r->batch_p99);
	if (r->classes > TABLE_MOST) {
		fprintf(f, "%d classes; lowest recall %.2f%%\n", r->classes, 100 * r->recall_of_worst_class);
		return 0;
	}
	return print_classes(r, f, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
