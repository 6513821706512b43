#include "serve/engine/classify.h"

#include "base/cond.h"
#include "base/progress.h"
#include "nn/device.h"
#include "serve/engine/classify_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_ROOM (8 << 20) /* largest decoded image, in bytes, whose memory is kept for the next one */

/* ---- opening ---- */

/* Class names: the source's, else their numbers. */
static int name_classes(struct dt_classify *c, struct dt_source *src)
{
	const json_t *list = json_object_get(dt_source_images(src), "classes");

	c->name = calloc((size_t)c->info.classes + 1, sizeof(*c->name));
	for (int i = 0; c->name && i < c->info.classes; i++) {
		const char *s = json_string_value(json_array_get(list, (size_t)i));
		char number[16];

		snprintf(number, sizeof(number), "%d", i);
		c->name[i] = strdup(s ? s : number);
		if (!c->name[i])
			return -ENOMEM;
	}
	c->info.name = (const char *const *)c->name;
	return c->name ? 0 : -ENOMEM;
}

static int make_lane(struct dt_classify *c, struct dt_classify_lane *l)
{
	const size_t n = (size_t)c->p.batch;

	TAILQ_INIT(&l->list);
	l->under = calloc(n, sizeof(struct dt_classify_image *));
	l->pixels = malloc(n * c->info.row * sizeof(float));
	l->logits = malloc(n * (size_t)c->info.classes * sizeof(float));
	return l->under && l->pixels && l->logits ? 0 : -ENOMEM;
}

static int make_lanes(struct dt_classify *c)
{
	const int n = c->rank == 0 ? c->ranks : 1;
	int rc = 0;

	c->lane = calloc((size_t)n, sizeof(*c->lane));
	c->decoder = calloc((size_t)c->p.decoders, sizeof(*c->decoder));
	if (!c->lane || !c->decoder)
		return -ENOMEM;
	for (int r = 0; r < n; r++)
		rc = rc < 0 ? rc : make_lane(c, &c->lane[r]);
	return rc;
}

static int open_net(struct dt_classify *c, int local_rank, struct dt_err *err)
{
	struct dt_classifier_params np = {.dtype = c->p.fp32 ? DT_F32 : DT_BF16,
					  .batch = (int)c->p.batch,
					  .image_size = c->p.image_size};
	const int64_t cores = sysconf(_SC_NPROCESSORS_ONLN), threads = c->p.threads	  ? c->p.threads
								       : cores > c->ranks ? cores / c->ranks
											  : 1;
	const struct dt_config *config;
	struct dt_source *src = NULL;
	int rc = dt_source_open(c->p.model, DT_SOURCE_AUTO, "none", &src, err);

	if (rc == 0)
		rc = dt_source_at_size(&src, c->p.image_size, err);
	if (rc == 0)
		rc = dt_nn_device_open(&c->dev, c->p.device, local_rank, (int)threads, err);
	if (rc == 0)
		rc = dt_classifier_open(&c->net, c->dev, src, &np, err);
	if (rc == 0) {
		config = dt_classifier_config(c->net);
		c->info.classes = (int)config->vocab;
		c->info.channels = (int)config->channels;
		c->info.side = (int)config->image_size;
		c->info.row = (size_t)(config->channels * config->image_size * config->image_size);
		c->augment = dt_augment_default(c->info.side, c->info.side);
		dt_classifier_bytes(c->net, &c->info.weight_bytes, &c->info.work_bytes);
		rc = dt_classifier_normalisation(src, c->p.normalize, NULL, NULL, c->augment.mean,
						 c->augment.deviation, err);
	}
	if (rc == 0 && (name_classes(c, src) < 0 || make_lanes(c) < 0))
		rc = dt_err_sys(err, -ENOMEM, "cannot serve '%s'", c->p.model);
	dt_source_close(src);
	return rc;
}

int dt_classify_open(struct dt_classify **ret, const struct dt_classify_params *p, struct dt_err *err)
{
	struct dt_classify *c = calloc(1, sizeof(*c));
	const double t0 = dt_now();
	struct dt_world_info w = {.size = 1};
	int rc = 0;

	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot serve '%s'", p->model);
	c->p = *p;
	pthread_mutex_init(&c->mu, NULL);
	dt_cond_init_monotonic(&c->work);
	pthread_cond_init(&c->done, NULL);
	TAILQ_INIT(&c->central);
	if (p->world)
		dt_world_info(p->world, &w);
	c->ranks = c->info.ranks = w.size;
	c->rank = w.rank;
	if (c->ranks > 1)
		rc = dt_comm_create(&c->all, p->world, "classify", 0, c->rank, err);
	if (rc == 0) {
		rc = open_net(c, w.local_rank, err);
		rc = c->all ? dt_comm_agree(c->all, rc, NULL, err) : rc;
	}
	if (rc == 0 && c->rank == 0)
		rc = dt_classify_start(c, err);
	if (rc < 0) {
		dt_classify_close(c);
		return rc;
	}
	c->info.seconds = dt_now() - t0;
	*ret = c;
	return 0;
}

void dt_classify_close(struct dt_classify *c)
{
	if (!c)
		return;
	dt_classify_stop(c);
	for (int r = 0; c->lane && r < (c->rank ? 1 : c->ranks); r++) {
		free(c->lane[r].under);
		free(c->lane[r].pixels);
		free(c->lane[r].logits);
	}
	for (int i = 0; c->decoder && i < c->p.decoders; i++) {
		dt_image_release(&c->decoder[i].image);
		dt_image_release(&c->decoder[i].scaled);
	}
	for (int i = 0; c->name && i < c->info.classes; i++)
		free(c->name[i]);
	free(c->name);
	free(c->lane);
	free(c->decoder);
	dt_classifier_close(c->net);
	if (c->dev)
		dt_dev_close(c->dev);
	if (c->all && !dt_world_broken(c->p.world))
		dt_comm_free(c->all);
	pthread_cond_destroy(&c->done);
	pthread_cond_destroy(&c->work);
	pthread_mutex_destroy(&c->mu);
	free(c);
}

struct dt_classify_info dt_classify_info(const struct dt_classify *c)
{
	return c->info;
}

/* ---- decoding ---- */

static struct dt_classify_decoder *take_decoder(struct dt_classify *c)
{
	struct dt_classify_decoder *d = NULL;

	pthread_mutex_lock(&c->mu);
	while (!d) {
		for (int i = 0; i < c->p.decoders && !d; i++)
			d = c->decoder[i].busy ? NULL : &c->decoder[i];
		if (!d)
			pthread_cond_wait(&c->done, &c->mu);
	}
	d->busy = true;
	pthread_mutex_unlock(&c->mu);
	return d;
}

int dt_classify_decode(struct dt_classify *c, const void *bytes, size_t n, float *pixels, struct dt_err *err)
{
	struct dt_classify_decoder *d = take_decoder(c);
	struct dt_augment a = c->augment;
	int rc = dt_image_decode(bytes, n, c->info.channels, true, &d->image, NULL, err);

	dt_augment_whole(&a, d->image.height, d->image.width);
	if (rc == 0)
		rc = dt_augment_apply(&a, 0, 0, &d->image, &d->scaled, pixels, err);
	if (d->image.room > KEEP_ROOM)
		dt_image_release(&d->image);
	if (d->scaled.room > KEEP_ROOM)
		dt_image_release(&d->scaled);
	pthread_mutex_lock(&c->mu);
	d->busy = false;
	pthread_cond_broadcast(&c->done);
	pthread_mutex_unlock(&c->mu);
	return rc;
}

/* ---- requests ---- */

int dt_classify_submit(struct dt_classify *c, struct dt_classify_job *j, struct dt_err *err)
{
	int rc = 0;

	j->image = calloc((size_t)j->n, sizeof(*j->image));
	if (!j->image || j->n < 1)
		return dt_err_sys(err, -ENOMEM, "cannot queue %d images", j->n);
	pthread_mutex_lock(&c->mu);
	if (c->failed)
		rc = dt_err_set(err, -EIO, "%s", c->why.msg);
	else if (c->draining || c->stop)
		rc = dt_err_set(err, -ESHUTDOWN, "the server is shutting down");
	else if (c->waiting > 0 && c->waiting + j->n > c->p.queue)
		rc = dt_err_set(err, -EAGAIN, "the queue is full: %lld images wait, the limit is %lld",
				(long long)c->waiting, (long long)c->p.queue);
	if (rc == 0) {
		j->left = j->n;
		j->status = 0;
		j->since = dt_now();
		c->waiting += j->n;
		for (int i = 0; i < j->n; i++) {
			j->image[i].job = j;
			TAILQ_INSERT_TAIL(&c->central, &j->image[i], in_list);
		}
		dt_classify_deal(c);
	}
	pthread_mutex_unlock(&c->mu);
	return rc;
}

int dt_classify_wait(struct dt_classify *c, struct dt_classify_job *j, struct dt_err *err)
{
	int rc;

	pthread_mutex_lock(&c->mu);
	while (j->left > 0)
		pthread_cond_wait(&c->done, &c->mu);
	rc = j->status;
	if (rc < 0)
		dt_err_set(err, rc, "%s", c->failed ? c->why.msg : "no answer");
	pthread_mutex_unlock(&c->mu);
	return rc;
}

void dt_classify_job_release(struct dt_classify_job *j)
{
	free(j->image);
	j->image = NULL;
}

/* ---- state ---- */

void dt_classify_drain(struct dt_classify *c)
{
	pthread_mutex_lock(&c->mu);
	c->draining = true;
	pthread_mutex_unlock(&c->mu);
}

enum dt_engine_state dt_classify_state(struct dt_classify *c)
{
	enum dt_engine_state s;

	pthread_mutex_lock(&c->mu);
	s = c->failed ? DT_ENGINE_FAILED : c->draining ? DT_ENGINE_DRAINING : DT_ENGINE_READY;
	pthread_mutex_unlock(&c->mu);
	return s;
}

void dt_classify_failure(struct dt_classify *c, struct dt_err *err)
{
	pthread_mutex_lock(&c->mu);
	*err = c->why;
	pthread_mutex_unlock(&c->mu);
}

void dt_classify_refused(struct dt_classify *c)
{
	pthread_mutex_lock(&c->mu);
	c->refused++;
	pthread_mutex_unlock(&c->mu);
}

static double quantile(const struct dt_classify *c, double share)
{
	int64_t below = 0;
	int i = 0;

	if (!c->requests)
		return 0;
	while (i < DT_CLASSIFY_BUCKETS - 1 && (double)(below += c->bucket[i]) < share * (double)c->requests)
		i++;
	return 1e-5 * pow(1.02, i + 0.5);
}

int dt_classify_stats(struct dt_classify *c, struct dt_classify_stats *ret)
{
	int64_t *by = calloc(2 * (size_t)c->ranks, sizeof(*by));

	if (!by)
		return -ENOMEM;
	pthread_mutex_lock(&c->mu);
	*ret = (struct dt_classify_stats){.requests = c->requests,
					  .images = c->images,
					  .refused = c->refused,
					  .waiting = c->waiting,
					  .p50 = quantile(c, 0.5),
					  .p99 = quantile(c, 0.99),
					  .by_rank = by};
	for (int r = 0; r < c->ranks; r++) {
		by[2 * r] = c->lane[r].images;
		by[2 * r + 1] = c->lane[r].passes;
	}
	pthread_mutex_unlock(&c->mu);
	return 0;
}

/* What rank 0 has allocated, by dt-memest's categories: its net, and pixels and logits of all ranks. */
static void write_memory(const struct dt_classify *c, const char *model, FILE *f)
{
	const uint64_t images = (uint64_t)c->ranks * (uint64_t)c->p.batch;
	const struct {
		const char *category;
		uint64_t bytes;
	} part[] = {{"weights", c->info.weight_bytes},
		    {"workspace", c->info.work_bytes},
		    {"data", images * c->info.row * sizeof(float)},
		    {"logits", images * (uint64_t)c->info.classes * sizeof(float)}};

	fprintf(f, "# HELP dt_serve_memory_bytes Bytes allocated, by dt-memest's categories.\n"
		   "# TYPE dt_serve_memory_bytes gauge\n");
	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
		fprintf(f, "dt_serve_memory_bytes{model_name=\"%s\",category=\"%s\"} %llu\n", model,
			part[i].category, (unsigned long long)part[i].bytes);
}

int dt_classify_metrics(struct dt_classify *c, const char *model, FILE *f)
{
	static const char *const name[] = {"requests", "images", "images_refused"},
				 *const help[] = {"Requests answered.", "Images classified.",
						  "Images that could not be decoded."};
	struct dt_classify_stats s;

	if (dt_classify_stats(c, &s) < 0)
		return -ENOMEM;
	for (int i = 0; i < 3; i++) {
		const int64_t n[] = {s.requests, s.images, s.refused};

		fprintf(f,
			"# HELP dt_serve_classify_%s_total %s\n# TYPE dt_serve_classify_%s_total counter\n",
			name[i], help[i], name[i]);
		fprintf(f, "dt_serve_classify_%s_total{model_name=\"%s\"} %lld\n", name[i], model,
			(long long)n[i]);
	}
	fprintf(f,
		"# HELP dt_serve_classify_images_waiting Images waiting or running.\n"
		"# TYPE dt_serve_classify_images_waiting gauge\n"
		"dt_serve_classify_images_waiting{model_name=\"%s\"} %lld\n",
		model, (long long)s.waiting);
	fprintf(f, "# HELP dt_serve_classify_rank_images_total Images that each rank has classified.\n"
		   "# TYPE dt_serve_classify_rank_images_total counter\n");
	for (int r = 0; r < c->ranks; r++)
		fprintf(f, "dt_serve_classify_rank_images_total{model_name=\"%s\",rank=\"%d\"} %lld\n", model,
			r, (long long)s.by_rank[2 * r]);
	fprintf(f,
		"# HELP dt_serve_classify_latency_seconds Time from a request to its answer.\n"
		"# TYPE dt_serve_classify_latency_seconds gauge\n"
		"dt_serve_classify_latency_seconds{model_name=\"%s\",percentile=\"50\"} %.6g\n"
		"dt_serve_classify_latency_seconds{model_name=\"%s\",percentile=\"99\"} %.6g\n",
		model, s.p50, model, s.p99);
	write_memory(c, model, f);
	free(s.by_rank);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
