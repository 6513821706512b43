#include "eval/images.h"

#include "base/order.h"
#include "base/progress.h"
#include "data/image_loader.h"
#include "nn/classify.h"
#include "nn/device.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOSS, GIVEN, ABOVE, SHARE, ANSWERS }; /* per image; SHARE: probability of the given class */

struct job {
	const struct dt_images_query *q;
	const char *model;
	struct dt_source *src;
	struct dt_images *data;
	struct dt_images_info info;
	struct dt_dev *dev;
	struct dt_classifier *net;
	struct dt_image_loader *loader;
	int64_t n, batches;
	int part;	/* the largest number of a batch's images on this rank */
	double *answer; /* [ANSWERS, n]; 0 for other ranks' images */
	double *took;	/* [batches] seconds; 0 for other ranks' batches */
	float *logits;	/* [part, classes] */
	float *all;	/* [ranks, part, classes] of a batch divided over ranks; else NULL */
	float *view;	/* [part, channels, height, width] a view of the images; NULL without tta */
	float *other;	/* [part, classes] logits of a view */
};

static int same_classes(const struct job *j, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(j->src);
	const json_t *list = json_object_get(dt_source_images(j->src), "classes");
	const int n = (int)json_array_size(list);
	const char **name;
	int rc;

	if (!dt_config_is_image(c))
		return dt_err_set(err, -EINVAL, "'%s' is not an image classifier", j->model);
	if (c->channels != j->info.channels)
		return dt_err_set(err, -EINVAL,
				  "'%s' expects images with %lld channels, those of '%s' have %d", j->model,
				  (long long)c->channels, j->q->data, j->info.channels);
	if (c->vocab != j->info.classes)
		return dt_err_set(err, -EINVAL, "'%s' has %lld classes, '%s' has %d", j->model,
				  (long long)c->vocab, j->q->data, j->info.classes);
	if (!n)
		return 0;
	name = calloc((size_t)n, sizeof(*name));
	if (!name)
		return dt_err_sys(err, -ENOMEM, "cannot compare classes");
	for (int i = 0; i < n; i++)
		name[i] = json_string_value(json_array_get(list, (size_t)i));
	rc = dt_images_check_classes(j->data, n, name, j->model, err);
	free(name);
	return rc;
}

static int open_loader(struct job *j, struct dt_err *err)
{
	const struct dt_config *c = dt_classifier_config(j->net);
	struct dt_image_loader_options o = {
		.data = j->data,
		.augment = dt_augment_default((int)c->image_size, (int)c->image_size),
		.count = j->part,
		.every = j->q->split == DT_SPLIT_DATA ? j->q->batch : j->q->batch * j->q->size,
		.end = j->n,
		.workers = (int)j->q->workers};
	int rc = dt_classifier_normalisation(j->src, j->q->normalize, j->info.mean, j->info.deviation,
					     o.augment.mean, o.augment.deviation, err);

	dt_augment_whole(&o.augment, j->info.height, j->info.width);
	if (rc == 0)
		rc = dt_augment_check(&o.augment, err);
	if (rc == 0)
		rc = dt_augment_fits(&o.augment, j->info.min_height, j->info.min_width, err);
	return rc == 0 ? dt_image_loader_open(&o, &j->loader, err) : rc;
}

static int open_job(struct job *j, const struct dt_eval_opts *o, struct dt_err *err)
{
	const struct dt_images_query *q = j->q;
	const int ranks = q->split == DT_SPLIT_DATA ? q->size : 1;
	struct dt_classifier_params p = {
		.dtype = o->fp32 ? DT_F32 : DT_BF16, .image_size = q->image_size, .unfolded = q->unfolded};
	int rc = dt_source_open(j->model, DT_SOURCE_AUTO, "none", &j->src, err);

	if (rc == 0)
		rc = dt_source_at_size(&j->src, q->image_size, err);
	if (rc == 0)
		rc = dt_images_open(q->data, &j->data, err);
	if (rc < 0)
		return rc;
	dt_images_info(j->data, &j->info);
	j->n = q->limit && q->limit < j->info.images ? q->limit : j->info.images;
	j->batches = (j->n + q->batch - 1) / q->batch;
	j->part = (int)((q->batch + ranks - 1) / ranks);
	p.batch = j->part;
	rc = same_classes(j, err);
	if (rc == 0)
		rc = dt_nn_device_open(&j->dev, o->device, o->local_rank, (int)o->threads, err);
	if (rc == 0)
		rc = dt_classifier_open(&j->net, j->dev, j->src, &p, err);
	if (rc == 0)
		rc = open_loader(j, err);
	if (rc < 0)
		return rc;
	j->answer = calloc((size_t)(ANSWERS * j->n) + 1, sizeof(*j->answer));
	j->took = calloc((size_t)j->batches + 1, sizeof(*j->took));
	j->logits = calloc((size_t)(j->part * j->info.classes), sizeof(*j->logits));
	if (ranks > 1)
		j->all = calloc((size_t)(ranks * j->part * j->info.classes), sizeof(*j->all));
	if (q->tta) {
		const struct dt_config *c = dt_classifier_config(j->net);

		j->view = calloc((size_t)(j->part * c->channels * c->image_size * c->image_size),
				 sizeof(*j->view));
		j->other = calloc((size_t)(j->part * j->info.classes), sizeof(*j->other));
	}
	if (!j->answer || !j->took || !j->logits || (ranks > 1 && !j->all) ||
	    (q->tta && !(j->view && j->other)))
		return dt_err_sys(err, -ENOMEM, "cannot evaluate '%s'", j->model);
	return 0;
}

static void close_job(struct job *j)
{
	if (j->loader)
		dt_image_loader_close(j->loader);
	dt_classifier_close(j->net);
	if (j->dev)
		dt_dev_close(j->dev);
	if (j->data)
		dt_images_close(j->data);
	dt_source_close(j->src);
	free(j->answer);
	free(j->took);
	free(j->logits);
	free(j->all);
	free(j->view);
	free(j->other);
}

/* Records the result of image i, with logits l and class `label`. -EDOM: they are not finite. */
static int note(struct job *j, int64_t i, const float *l, int label, struct dt_err *err)
{
	const int k = j->info.classes;
	int best = 0, above = 0;
	double sum = 0;

	for (int c = 1; c < k; c++)
		best = l[c] > l[best] ? c : best;
	for (int c = 0; c < k; c++) {
		sum += exp((double)l[c] - (double)l[best]);
		above += l[c] > l[label] || (l[c] == l[label] && c < label);
	}
	j->answer[LOSS * j->n + i] = log(sum) + (double)l[best] - (double)l[label];
	j->answer[GIVEN * j->n + i] = best;
	j->answer[ABOVE * j->n + i] = above;
	j->answer[SHARE * j->n + i] = 1 / sum;
	return isfinite(j->answer[LOSS * j->n + i])
		       ? 0
		       : dt_err_set(err, -EDOM, "'%s' computes logits that are not finite", j->model);
}

/* The views of dt_tta, the original image first. */
static const struct view {
	bool mirrored;
	int shift; /* pixels down and right */
	float weight;
} views[][6] = {
	[DT_TTA_NONE] = {{false, 0, 1}},
	[DT_TTA_MIRROR] = {{false, 0, 0.5f}, {true, 0, 0.5f}},
	[DT_TTA_SHIFT] = {{false, 0, 0.25f},
			  {true, 0, 0.25f},
			  {false, -1, 0.125f},
			  {true, -1, 0.125f},
			  {false, 1, 0.125f},
			  {true, 1, 0.125f}},
};

/* Index i, reflected at the border if outside 0 .. n - 1. */
static int64_t reflected(int64_t i, int64_t n)
{
	i = i < 0 ? -i : i >= n ? 2 * n - 2 - i : i;
	return i < 0 || i >= n ? 0 : i;
}

static void see(const struct view *v, const float *pixels, int64_t planes, int64_t side, float *to)
{
	for (int64_t p = 0; p < planes; p++, pixels += side * side)
		for (int64_t y = 0; y < side; y++, to += side) {
			const float *row = pixels + reflected(y - v->shift, side) * side;

			for (int64_t x = 0; x < side; x++)
				to[v->mirrored ? side - 1 - x : x] = row[reflected(x - v->shift, side)];
		}
}

/* Computes the logits of `count` images; with tta the weighted mean over their views. */
static int classify(struct job *j, const float *pixels, int count, struct dt_err *err)
{
	const struct dt_config *c = dt_classifier_config(j->net);
	const int64_t n = (int64_t)count * j->info.classes;
	int rc = dt_classifier_run(j->net, pixels, count, j->logits, err);

	for (int64_t i = 0; i < n && j->view; i++)
		j->logits[i] *= views[j->q->tta][0].weight;
	for (int k = 1; k < 6 && j->view && rc == 0; k++) {
		const struct view *v = &views[j->q->tta][k];

		if (!(v->weight > 0))
			break;
		see(v, pixels, count * c->channels, c->image_size, j->view);
		rc = dt_classifier_run(j->net, j->view, count, j->other, err);
		for (int64_t i = 0; i < n; i++)
			j->logits[i] += v->weight * j->other[i];
	}
	return rc;
}

/* Runs this rank's images of batch b; none if the batch is another rank's. */
static int run_batch(struct job *j, int64_t b, struct dt_err *err)
{
	const struct dt_images_query *q = j->q;
	const bool cut = q->split == DT_SPLIT_DATA;
	const int64_t end = (b + 1) * q->batch < j->n ? (b + 1) * q->batch : j->n,
		      first = b * q->batch + (cut ? (int64_t)q->rank * j->part : 0);
	const int count = (int)(first >= end ? 0 : end - first < j->part ? end - first : j->part);
	struct dt_image_batch in;
	int rc = 0;
	double t0;

	if (!cut && b % q->size != q->rank)
		return 0;
	if (count)
		rc = dt_image_loader_get(j->loader, first, count, &in, err);
	t0 = dt_now();
	if (rc == 0 && count)
		rc = classify(j, in.pixels, count, err);
	if (j->all) { /* every rank gets all logits; failures are agreed on after the last batch */
		int sent = dt_all_gather(q->ranks, j->all, j->logits, (size_t)(j->part * j->info.classes),
					 DT_F32, "logits of a batch", rc < 0 ? NULL : err);

		rc = rc < 0 ? rc : sent;
	}
	j->took[b] = cut && q->rank > 0 ? 0 : dt_now() - t0;
	for (int i = 0; i < count && rc == 0; i++)
		rc = note(j, first + i, j->logits + (int64_t)i * j->info.classes, in.label[i], err);
	if (q->progress)
		q->progress(q->arg, end, j->n);
	return rc;
}

static double lowest_recall(const struct dt_images_result *r)
{
	double low = 1;

	for (int c = 0; c < r->classes; c++) {
		const int64_t *row = r->confusion + (int64_t)c * r->classes;
		int64_t all = 0;

		for (int k = 0; k < r->classes; k++)
			all += row[k];
		if (all && (double)row[c] / (double)all < low)
			low = (double)row[c] / (double)all;
	}
	return low;
}

/* Combines the answers of all ranks, in image order. */
static int sum_up(struct job *j, struct dt_images_result *r, struct dt_err *err)
{
	const int k = j->info.classes;
	int64_t right = 0, among5 = 0;
	double loss = 0;

	r->n = j->n;
	r->classes = k;
	r->confusion = calloc((size_t)k * (size_t)k, sizeof(*r->confusion));
	r->name = calloc((size_t)k, sizeof(*r->name));
	for (int c = 0; c < k && r->name; c++)
		r->name[c] = strdup(j->info.class_name[c]);
	if (!r->confusion || !r->name || (k && !r->name[k - 1]))
		return dt_err_sys(err, -ENOMEM, "cannot collect the results");
	for (int64_t i = 0; i < j->n; i++) {
		const double above = j->answer[ABOVE * j->n + i];

		loss += j->answer[LOSS * j->n + i];
		right += above < 1;
		among5 += above < 5;
		r->confusion[(int64_t)dt_images_label(j->data, i) * k +
			     (int64_t)j->answer[GIVEN * j->n + i]]++;
	}
	r->loss = loss / (double)j->n;
	r->top1 = (double)right / (double)j->n;
	r->top5 = (double)among5 / (double)j->n;
	r->top1_error = sqrt(r->top1 * (1 - r->top1) / (double)j->n);
	r->recall_of_worst_class = lowest_recall(r);
	qsort(j->took, (size_t)j->batches, sizeof(*j->took), dt_order_f64);
	r->batch_p50 = j->took[j->batches / 2];
	r->batch_p99 = j->took[(j->batches * 99 + 99) / 100 - 1];
	return 0;
}

static int write_predictions(const struct job *j, FILE *f, struct dt_err *err)
{
	int rc = 0;

	for (int64_t i = 0; i < j->n && f && rc == 0; i++) {
		const int given = (int)j->answer[GIVEN * j->n + i];
		json_t *o = json_pack("{s:I, s:s, s:s, s:f}", "image", (json_int_t)i, "class",
				      j->info.class_name[dt_images_label(j->data, i)], "given",
				      j->info.class_name[given], "probability", j->answer[SHARE * j->n + i]);

		rc = o ? dt_json_write_line(f, o, err) : dt_err_sys(err, -ENOMEM, "cannot write predictions");
		json_decref(o);
	}
	return rc;
}

int dt_images_run(const char *model, const struct dt_eval_opts *o, const struct dt_images_query *q,
		  struct dt_images_result *ret, struct dt_err *err)
{
	struct job j = {.q = q, .model = model};
	struct dt_images_result r = {0};
	double t0;
	int rc = dt_comm_agree(q->ranks, open_job(&j, o, err), NULL, err);

	t0 = dt_now();
	if (rc == 0) {
		int own = 0;

		for (int64_t b = 0; b < j.batches && (own == 0 || j.all); b++) {
			int one = run_batch(&j, b, own < 0 ? NULL : err);

			own = own < 0 ? own : one;
		}
		rc = dt_comm_agree(q->ranks, own, NULL, err);
	}
	r.seconds = dt_now() - t0;
	if (rc == 0)
		rc = dt_all_reduce(q->ranks, j.answer, NULL, (size_t)(ANSWERS * j.n), DT_F64, DT_SUM,
				   "answers", err);
	if (rc == 0)
		rc = dt_all_reduce(q->ranks, j.took, NULL, (size_t)j.batches, DT_F64, DT_SUM, "times", err);
	if (rc == 0)
		rc = sum_up(&j, &r, err);
	if (rc == 0 && q->rank == 0)
		rc = write_predictions(&j, q->predictions, err);
	close_job(&j);
	if (rc < 0)
		dt_images_result_release(&r);
	else
		*ret = r;
	return rc;
}

void dt_images_result_release(struct dt_images_result *r)
{
	for (int c = 0; c < r->classes && r->name; c++)
		free(r->name[c]);
	free(r->name);
	free(r->confusion);
	memset(r, 0, sizeof(*r));
}
/* SPDX-License-Identifier: Apache-2.0 */
