#include "nn/classify.h"

#include "base/arena.h"
#include "data/augment.h"
#include "model/fold.h"
#include "nn/call.h"
#include "nn/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dt_classifier {
	struct dt_config config;
	struct dt_memory_plan plan;
	struct dt_arena work;
	struct dt_dev *dev;
	struct dt_exec x;
	char *weights;	/* all parameters, in the compute type */
	float *running; /* all buffers, f32 */
	int batch;
	/* What the device reads: one block of its own memory; on the CPU the host's. */
	char *there;
	void *weights_there;
	float *shifts, *pixels;
	int32_t *targets;
	float *host_ce; /* device: [2, batch] loss terms of a pass, unused */
};

static bool is_shift(const char *name)
{
	const size_t n = strlen(name), end = strlen(DT_FOLD_SHIFT);

	return n > end && !strcmp(name + n - end, DT_FOLD_SHIFT);
}

/* The index of a tensor in the source, by name: a folded net has fewer tensors than its file. */
static int number_of(const struct dt_source *src, const char *prefix, int n, const char *end)
{
	const struct dt_params *t = dt_source_params(src);
	char name[2 * sizeof(t->p->name)];

	snprintf(name, sizeof(name), "%.*s%s", n, prefix, end);
	for (int i = 0; i < t->n; i++)
		if (!strcmp(t->p[i].name, name))
			return i;
	return -1;
}

/* Reads the norm whose shift is buffer b: [4, channels], gamma first. */
static int read_norm(struct dt_source *src, const struct dt_param *b, float *to, struct dt_err *err)
{
	static const char *const weight[] = {".weight", ".bias"}, *const buffer[] = {".running_mean",
										     ".running_var"};
	const int64_t n = b->shape[0], off[2] = {0}, shape[2] = {n, 1};
	const int prefix = (int)(strlen(b->name) - strlen(DT_FOLD_SHIFT));
	char name[2 * sizeof(b->name)];
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++)
		rc = dt_source_read(src, number_of(src, b->name, prefix, weight[i]), off, shape, DT_F32,
				    to + i * n, err);
	for (int i = 0; i < 2 && rc == 0; i++) {
		snprintf(name, sizeof(name), "%.*s%s", prefix, b->name, buffer[i]);
		rc = dt_source_buffer(src, name, n, to + (2 + i) * n, err);
	}
	return rc;
}

/* Reads a convolution's weights multiplied by its norm's scale, and the shift. */
static int read_folded(struct dt_classifier *c, struct dt_source *src, const struct dt_node *node,
		       const struct dt_local_param *l, int number, struct dt_tensor to, struct dt_err *err)
{
	const struct dt_params *b = &c->plan.stage.graph.buffers;
	const int64_t rows = l->shape[0], cols = l->shape[1];
	float *w = malloc((size_t)(rows * (cols + 4)) * sizeof(*w)), *norm = w ? w + rows * cols : NULL;
	int64_t at = 0;
	int i = 0, rc;

	if (!w)
		return dt_err_sys(err, -ENOMEM, "cannot load '%s'", dt_source_path(src));
	while (at < node->attr.buffer)
		at += b->p[i++].shape[0];
	rc = dt_source_read(src, number, l->off, l->shape, DT_F32, w, err);
	if (rc == 0)
		rc = read_norm(src, &b->p[i], norm, err);
	for (int64_t r = 0; r < rows && rc == 0; r++)
		c->running[at + r] =
			dt_fold_row(w + r * cols, cols,
				    &(struct dt_fold){norm[r], norm[rows + r], norm[2 * rows + r],
						      norm[3 * rows + r], node->attr.eps});
	for (int64_t k = 0; k < rows * cols && rc == 0; k++)
		if (to.dtype == DT_F32)
			((float *)to.data)[k] = w[k];
		else
			((uint16_t *)to.data)[k] = dt_f32_to_bf16(w[k]);
	free(w);
	return rc;
}

/* The node of the convolution with weights t, if a norm was folded into it; NULL. */
static const struct dt_node *folded_into(const struct dt_graph *g, int t)
{
	for (int i = 0; i < g->nnode; i++)
		if (g->node[i].op == DT_OP_CONV_BIAS && g->node[i].param[0] == t)
			return &g->node[i];
	return NULL;
}

static int read_one(struct dt_classifier *c, struct dt_source *src, const struct dt_local_param *l,
		    enum dt_dtype type, struct dt_err *err)
{
	const struct dt_graph *g = &c->plan.stage.graph;
	const struct dt_param *p = &g->params.p[l->index];
	const struct dt_node *n = folded_into(g, l->index);
	const int number = number_of(src, p->name, (int)strlen(p->name), "");
	void *to = c->weights + l->flat * dt_dtype_size(type);

	return n ? read_folded(c, src, n, l, number, dt_t2(to, type, l->shape[0], l->shape[1]), err)
		 : dt_source_read(src, number, l->off, l->shape, type, to, err);
}

/* Reads all weights and buffers. */
static int read_all(struct dt_classifier *c, struct dt_source *src, enum dt_dtype type, struct dt_err *err)
{
	const struct dt_local *l = &c->plan.stage.local;
	const struct dt_params *b = &c->plan.stage.graph.buffers;
	const int64_t size = dt_dtype_size(type);
	float *to;
	int rc = 0;

	c->weights = calloc((size_t)l->numel + 1, (size_t)size); /* units are padded */
	c->running = to = calloc((size_t)dt_params_total(b) + 1, sizeof(float));
	if (!c->weights || !c->running)
		return dt_err_sys(err, -ENOMEM, "cannot load '%s'", dt_source_path(src));
	for (int i = 0; i < l->n && rc == 0; i++)
		rc = read_one(c, src, &l->p[i], type, err);
	for (int i = 0; i < b->n && rc == 0; to += b->p[i++].shape[0])
		if (!is_shift(b->p[i].name))
			rc = dt_source_buffer(src, b->p[i].name, b->p[i].shape[0], to, err);
	return rc;
}

/* Checks the tensors' shapes: a net for another image size may differ (perceptrons do). */
static int same_tensors(const struct dt_classifier *c, const struct dt_source *src, struct dt_err *err)
{
	const struct dt_params *a = &c->plan.stage.graph.params, *b = dt_source_params(src);

	for (int i = 0; i < a->n; i++) {
		const int k = number_of(src, a->p[i].name, (int)strlen(a->p[i].name), "");

		if (k < 0 || dt_param_numel(&a->p[i]) != dt_param_numel(&b->p[k]))
			return dt_err_set(err, -EINVAL,
					  "'%s' takes images of %lld pixels a side, not of %lld",
					  dt_source_path(src), (long long)dt_source_config(src)->image_size,
					  (long long)c->config.image_size);
	}
	return 0;
}

static int bind(struct dt_classifier *c, enum dt_dtype type, struct dt_err *err)
{
	const struct dt_run r = {.config = &c->config,
				 .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
				 .microbatch = c->batch,
				 .seq = 1,
				 .compute = type};
	const struct dt_local *l = &c->plan.stage.local;
	void **unit = calloc((size_t)l->nunit + 1, sizeof(*unit));
	int rc;

	if (!unit)
		return dt_err_sys(err, -ENOMEM, "cannot load a model");
	for (int u = 0; u < l->nunit; u++)
		unit[u] = (char *)c->weights_there + l->unit[u].flat * dt_dtype_size(type);
	rc = dt_exec_open(&c->x, &r, (struct dt_coords){0}, &c->plan, c->work.base, NULL, c->dev, unit, NULL,
			  err);
	free(unit);
	c->x.bn.running = c->running;
	c->x.bn.shifts = c->shifts;
	return rc;
}

static int64_t pixels_of(const struct dt_config *c)
{
	return c->channels * c->image_size * c->image_size;
}

/* Allocates memory for what a pass reads, and puts weights and shifts into it. */
static int place(struct dt_classifier *c, enum dt_dtype type, struct dt_err *err)
{
	const struct dt_graph *g = &c->plan.stage.graph;
	const size_t batch = (size_t)c->batch,
		     weights = (size_t)c->plan.stage.local.numel * (size_t)dt_dtype_size(type),
		     shifts = (size_t)dt_params_total(&g->buffers) * sizeof(float);
	struct {
		void **at;
		size_t n;
	} part[] = {{&c->weights_there, weights},
		    {(void **)&c->shifts, shifts},
		    {(void **)&c->pixels, batch * (size_t)pixels_of(&c->config) * sizeof(float)},
		    {(void **)&c->targets, batch * sizeof(int32_t)},
		    {(void **)&c->work.base, c->plan.arena_bytes}};
	size_t all = 0;
	int rc;

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
		all += (part[i].n + 255) / 256 * 256;
	if ((rc = dt_dev_alloc(c->dev, (void **)&c->there, all + 1)) < 0)
		return dt_err_sys(err, rc, "cannot allocate %zu bytes on the device", all);
	all = 0;
	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		*part[i].at = c->there + all;
		all += (part[i].n + 255) / 256 * 256;
	}
	c->work.bytes = c->plan.arena_bytes;
	if ((rc = dt_dev_copy(c->dev, c->weights_there, c->weights, weights)) < 0 ||
	    (rc = dt_dev_copy(c->dev, c->shifts, c->running, shifts)) < 0 ||
	    (rc = dt_dev_clear(c->dev, c->targets, batch * sizeof(*c->targets))) < 0 ||
	    (rc = dt_dev_sync(c->dev)) < 0)
		return dt_err_sys(err, rc, "cannot copy a model to the device");
	free(c->weights);
	c->weights = NULL;
	c->host_ce = malloc(2 * batch * sizeof(*c->host_ce));
	return c->host_ce ? 0 : dt_err_sys(err, -ENOMEM, "cannot load a model");
}

static int place_here(struct dt_classifier *c, struct dt_err *err)
{
	int rc = dt_arena_init(&c->work, c->plan.arena_bytes, err);

	c->weights_there = c->weights;
	c->shifts = c->running;
	c->targets = calloc((size_t)c->batch, sizeof(*c->targets));
	return rc < 0 || c->targets ? rc : dt_err_sys(err, -ENOMEM, "cannot load a model");
}

int dt_classifier_open(struct dt_classifier **ret, struct dt_dev *dev, struct dt_source *src,
		       const struct dt_classifier_params *p, struct dt_err *err)
{
	struct dt_classifier *c;
	struct dt_serving serving = {.compute = p->dtype,
				     .rows = p->batch,
				     .outputs = p->batch,
				     .fold = !p->unfolded,
				     .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1}};
	int rc;

	if (!dt_config_is_image(dt_source_config(src)))
		return dt_err_set(err, -EINVAL, "'%s' is not an image classifier", dt_source_path(src));
	if ((rc = dt_nn_device_convolves(dev, dt_source_config(src), err)) < 0)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot load '%s'", dt_source_path(src));
	c->dev = dev;
	c->batch = p->batch;
	c->config = *dt_source_config(src);
	c->config.image_size = p->image_size ? p->image_size : c->config.image_size;
	serving.config = &c->config;
	rc = dt_memory_plan_serving(&serving, 1, &c->plan, err);
	if (rc == 0)
		rc = same_tensors(c, src, err);
	if (rc == 0)
		rc = read_all(c, src, p->dtype, err);
	if (rc == 0)
		rc = dt_dev_is_host(dev) ? place_here(c, err) : place(c, p->dtype, err);
	if (rc == 0)
		rc = bind(c, p->dtype, err);
	if (rc < 0) {
		dt_classifier_close(c);
		return rc;
	}
	*ret = c;
	return 0;
}

void dt_classifier_close(struct dt_classifier *c)
{
	if (!c)
		return;
	dt_exec_close(&c->x);
	if (dt_dev_is_host(c->dev)) {
		dt_arena_release(&c->work);
		free(c->targets);
	} else if (c->there) {
		dt_dev_free(c->dev, c->there);
	}
	dt_memory_plan_release(&c->plan);
	free(c->weights);
	free(c->running);
	free(c->host_ce);
	free(c);
}

int dt_classifier_normalisation(const struct dt_source *src, const char *by, const float *of_mean,
				const float *of_deviation, float mean[3], float deviation[3],
				struct dt_err *err)
{
	const json_t *images = dt_source_images(src), *m = json_object_get(images, "mean"),
		     *d = json_object_get(images, "deviation");
	const int channels = (int)dt_source_config(src)->channels;
	const bool own = of_mean && !strcmp(by, "data");

	if (!own && strcmp(by, "model"))
		return dt_augment_constants(by, mean, deviation) == 0
			       ? 0
			       : dt_err_set(err, -EINVAL,
					    "--normalize '%.40s' is not model, %scifar10, cifar100, "
					    "mnist, fashion-mnist or imagenet",
					    by, of_mean ? "data, " : "");
	if (!own && !m) {
		dt_err_set(err, -EINVAL, "'%s' does not say how its pixels are normalised",
			   dt_source_path(src));
		dt_err_hint(err, "--normalize imagenet is what most published weights were trained with");
		return -EINVAL;
	}
	for (int c = 0; c < channels; c++) {
		mean[c] = own ? of_mean[c] : (float)json_number_value(json_array_get(m, (size_t)c));
		deviation[c] = own ? of_deviation[c] : (float)json_number_value(json_array_get(d, (size_t)c));
	}
	return 0;
}

void dt_classifier_bytes(const struct dt_classifier *c, uint64_t *weights, uint64_t *work)
{
	const struct dt_graph *g = &c->plan.stage.graph;

	*weights = (uint64_t)c->plan.stage.local.numel * (uint64_t)dt_dtype_size(c->x.dtype) +
		   (uint64_t)dt_params_total(&g->buffers) * sizeof(float);
	*work = c->plan.arena_bytes;
}

const struct dt_config *dt_classifier_config(const struct dt_classifier *c)
{
	return &c->config;
}

int dt_classifier_run(struct dt_classifier *c, const float *pixels, int n, float *logits, struct dt_err *err)
{
	const bool here = dt_dev_is_host(c->dev);
	const struct dt_flight f = {
		.pixels = here ? (float *)pixels : c->pixels, .targets = c->targets, .host_ce = c->host_ce};
	struct dt_prog *p = &c->plan.stage.chunk[0];
	const struct dt_node *end = &p->step[p->start[DT_LIST_LOSS]].n;
	int rc;

	if (n < 1 || n > c->batch)
		return dt_err_set(err, -EINVAL, "a batch of %d images: it must have 1 to %d", n, c->batch);
	p->rows[DT_ROWS_ALL] = p->rows[DT_ROWS_STREAM] = n;
	if (!here)
		TRY(dt_dev_copy(c->dev, c->pixels, pixels,
				(size_t)(n * pixels_of(&c->config)) * sizeof(*pixels)));
	rc = dt_exec_run(&c->x, &f, DT_LIST_FORWARD, NULL, err);
	if (rc == 0)
		rc = dt_exec_run(&c->x, &f, DT_LIST_LOSS, NULL, err);
	if (rc < 0)
		return rc;
	TRY(dt_dev_copy(c->dev, logits, dt_exec_value(&c->x, &f, end->out[1]),
			(size_t)(n * c->config.vocab) * sizeof(*logits)));
	TRY(dt_dev_sync(c->dev));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
