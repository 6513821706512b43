/*
 * What is asked of a classifier of images, as JSON: a body or a line becomes a job of its queue, a job a
 * reply. No sockets here.
 */
#ifndef DT_SERVE_API_CLASSIFY_H
#define DT_SERVE_API_CLASSIFY_H

#include "base/log.h"
#include "serve/api/openai.h"
#include "serve/engine/classify.h"

#define DT_CLASSIFY_TOP	   5   /* classes of an answer where a request does not say */
#define DT_CLASSIFY_IMAGES 256 /* of one request at most */

struct dt_classification {
	struct dt_classify_job job;
	float *pixels, *logits; /* the job's */
	int top;
};

/*
 * The images of a body, decoded: {"image": BASE64} or {"images": [BASE64, ...]}, "data:" URLs too, with
 * "top_k" and "model"; or, raw, one image as it is, whose classes are top (0: the usual number). Images that
 * cannot be read are counted by c. -EINVAL with e filled; release in every case.
 */
int dt_classification_parse(struct dt_classification *r, struct dt_classify *c, const json_t *body,
			    struct dt_api_error *e);
int dt_classification_raw(struct dt_classification *r, struct dt_classify *c, const void *bytes, size_t n,
			  int top, struct dt_api_error *e);
void dt_classification_release(struct dt_classification *r);

/* Submits and waits. -EINVAL with e filled. */
int dt_classification_run(struct dt_classification *r, struct dt_classify *c, struct dt_api_error *e);
/* [{"class", "index", "probability"}, ...] of image i, the likeliest first. */
json_t *dt_classification_top(const struct dt_classification *r, const struct dt_classify *c, int i);
/* {"object", "model", "data": [{"index", "predictions"}]} */
json_t *dt_classification_json(const struct dt_classification *r, const struct dt_classify *c,
			       const char *model);

/*
 * Lines in, lines out. A line is an object with "image" (base64) or "path" (a file), "id" and "top_k", or
 * simply a path. Each has its result, in order, an error object where it could not be read. Returns the
 * number of those, or a negative errno where input or output failed.
 */
struct dt_classify_batch {
	FILE *in, *out;
	int window; /* lines in flight */
	int top;
	const struct dt_log *log; /* told the first reason */
};
int64_t dt_classify_batch_run(struct dt_classify *c, const struct dt_classify_batch *p, struct dt_err *err);
/* dt_classify_open, and what that has cost. */
int dt_classify_load(struct dt_classify **ret, const struct dt_classify_params *p, const struct dt_log *log,
		     struct dt_err *err);
/* Logs the totals of that time: images a second, latency of an image, images of each rank. */
void dt_classify_tell(struct dt_classify *c, double seconds, const struct dt_log *log);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
