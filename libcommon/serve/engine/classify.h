/*
 * A classifier of images behind a queue, over one or several ranks that each hold the whole net. Rank 0 takes
 * requests (of one image or more), hands them out and has the answers; the others follow.
 *
 *   DT_SPLIT_REQUESTS  a request goes whole to the rank with the fewest images waiting and under way
 *   DT_SPLIT_DATA      what waits, up to a batch, is cut over all ranks, when the last batch is done
 *
 * A rank computes up to `batch` of its images in one pass. Rank 0 computes on a thread of its own; messages
 * to the others are started and polled by another, the only one that uses the world. Answers do not depend
 * on what else is computed beside them, up to the order of sums.
 */
#ifndef DT_SERVE_CLASSIFY_H
#define DT_SERVE_CLASSIFY_H

#include "comm/comm.h"
#include "nn/classify.h"
#include "serve/engine/engine.h"

#include <stdio.h>

struct dt_classify;

struct dt_classify_params {
	const char *model;
	const char *normalize; /* dt_classifier_normalisation: "model" or a published name */
	const char *device;    /* nn/device.h */
	bool fp32;
	int64_t threads, image_size; /* 0: all processors; the model's */
	int64_t batch;		     /* images of a pass at most */
	int64_t queue;		     /* images that may wait; more are refused */
	int decoders;		     /* images that are decoded at a time */
	enum dt_image_split split;
	struct dt_world *world; /* of several ranks, which all call; NULL: one process */
	double beat_s;		/* seconds after which rank 0 tells a waiting rank of itself */
	double patience_s; /* after which nothing but a rank's answer is waited for: the watchdog sees it */
};

/* Every rank calls it; either all succeed or none. */
int dt_classify_open(struct dt_classify **ret, const struct dt_classify_params *p, struct dt_err *err);
/* The ranks that are not the first: computes what rank 0 sends until its end. */
int dt_classify_follow(struct dt_classify *c, struct dt_err *err);
/* What is queued is computed first, unless a rank was lost. */
void dt_classify_close(struct dt_classify *c);

struct dt_classify_info {
	const char *const *name; /* [classes] */
	int classes, channels, side, ranks;
	size_t row;	/* floats of an image */
	double seconds; /* it took to open */
	uint64_t weight_bytes, work_bytes;
};
struct dt_classify_info dt_classify_info(const struct dt_classify *c);

/* JPEG, PNG or PNM to normalised pixels [row], as dt-eval images makes them. Waits for a free decoder. */
int dt_classify_decode(struct dt_classify *c, const void *bytes, size_t n, float *pixels, struct dt_err *err);

/* A request. Memory is the caller's until left is 0; zero before it is filled. */
struct dt_classify_job {
	int n;
	const float *pixels;	 /* [n, row] */
	float *logits;		 /* [n, classes], written */
	int status;		 /* then: 0, or why there is no answer */
	void (*done)(void *arg); /* a thread of the queue, which it must not call; may be NULL */
	void *arg;
	/* of the queue */
	int left;
	double since;
	struct dt_classify_image *image; /* [n] */
};

/* -EAGAIN: the queue is full; -ESHUTDOWN: draining; -EIO: it has failed. */
int dt_classify_submit(struct dt_classify *c, struct dt_classify_job *j, struct dt_err *err);
/* Until the job is answered; its status. err: why not. */
int dt_classify_wait(struct dt_classify *c, struct dt_classify_job *j, struct dt_err *err);
void dt_classify_job_release(struct dt_classify_job *j);

/* No more jobs are taken. */
void dt_classify_drain(struct dt_classify *c);
enum dt_engine_state dt_classify_state(struct dt_classify *c);
void dt_classify_failure(struct dt_classify *c, struct dt_err *err);
/* An image that could not be read was refused. */
void dt_classify_refused(struct dt_classify *c);

/* Since it was opened. Latency: from submission to the answer, within 2%. */
struct dt_classify_stats {
	int64_t requests, images, refused, waiting; /* answered; refused: images that could not be read */
	double p50, p99;			    /* seconds */
	int64_t *by_rank;			    /* [ranks] images, passes; to be freed */
};
int dt_classify_stats(struct dt_classify *c, struct dt_classify_stats *ret);
/* In Prometheus' text format. */
int dt_classify_metrics(struct dt_classify *c, const char *model, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
