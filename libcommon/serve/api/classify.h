/*
 * Image classification as JSON: turns a body or a line into a job of the queue, and a finished job into a
 * reply. No sockets here.
 */
#ifndef DT_SERVE_API_CLASSIFY_H
#define DT_SERVE_API_CLASSIFY_H

#include "base/log.h"
#include "serve/api/openai.h"
#include "serve/engine/classify.h"

#define DT_CLASSIFY_TOP	   5   /* classes in an answer if the request does not say */
#define DT_CLASSIFY_IMAGES 256 /* max images of one request */

struct dt_classification {
	struct dt_classify_job job;
	float *pixels, *logits; /* used by job */
	int top;
};

/*
 * Decodes the images of a request body: {"image": BASE64} or {"images": [BASE64, ...]}, also as "data:" URLs,
 * with "top_k" and "model". dt_classification_raw takes the bytes of one image; top: classes in the answer.
 * Images that cannot be decoded are counted in c. -EINVAL with e filled; call dt_classification_release in
 * every case.
 */
int dt_classification_parse(struct dt_classification *r, struct dt_classify *c, const json_t *body,
			    struct dt_api_error *e);
int dt_classification_raw(struct dt_classification *r, struct dt_classify *c, const void *bytes, size_t n,
			  int top, struct dt_api_error *e);
void dt_classification_release(struct dt_classification *r);
/* Number of classes in an answer; v NULL: DT_CLASSIFY_TOP. -EINVAL with e filled. */
int dt_classification_read_top(const json_t *v, int *ret, struct dt_api_error *e);

/* Submits the job and waits for it. -EINVAL with e filled. */
int dt_classification_run(struct dt_classification *r, struct dt_classify *c, struct dt_api_error *e);
/* [{"class", "index", "probability"}, ...] of image i, most probable first. */
json_t *dt_classification_top(const struct dt_classification *r, const struct dt_classify *c, int i);
/* {"object", "model", "data": [{"index", "predictions"}]} */
json_t *dt_classification_json(const struct dt_classification *r, const struct dt_classify *c,
			       const char *model);

/*
 * Classification of lines: each is an object with "image" (base64) or "path" (a file), "id" and "top_k", or
 * just a path. Each line gets a result, in order; an error object if the image could not be read. Returns the
 * number of errors, or a negative errno when input or output failed.
 */
struct dt_classify_batch {
	FILE *in, *out;
	int window;		  /* max lines in flight */
	const struct dt_log *log; /* receives the first reason of a failure */
};
int64_t dt_classify_batch_run(struct dt_classify *c, const struct dt_classify_batch *p, struct dt_err *err);
/* Calls dt_classify_open and logs the time and memory that it took. */
int dt_classify_load(struct dt_classify **ret, const struct dt_classify_params *p, const struct dt_log *log,
		     struct dt_err *err);
/* Logs totals over `seconds`: images a second, latency of an image, images of each rank. */
void dt_classify_tell(struct dt_classify *c, double seconds, const struct dt_log *log);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
