/*
 * An image classifier behind a request queue, on one or several ranks. Each rank holds the whole network.
 * Rank 0 accepts requests (of one or more images), distributes them and collects the answers; the other ranks
 * follow.
 *
 *   DT_SPLIT_REQUESTS  a whole request goes to the rank with the fewest queued and running images
 *   DT_SPLIT_DATA      up to a batch of queued images is split over all ranks, after the last batch
 *
 * A rank computes up to `batch` of its images in one forward pass. Rank 0 computes on a thread of its own. A
 * second thread, the only one that uses the world, starts and polls messages to the other ranks. Answers do
 * not depend on what else is in the batch, up to the order of sums.
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
	int64_t threads, image_size; /* 0: all processors; 0: the model's size */
	int64_t batch;		     /* max images in one forward pass */
	int64_t queue;		     /* max images that may wait; requests beyond it are refused */
	int decoders;		     /* images decoded at the same time */
	enum dt_image_split split;
	struct dt_world *world; /* several ranks, all of which call; NULL: one process */
	double beat_s;		/* seconds after which rank 0 sends a heartbeat to an idle rank */
	double patience_s; /* seconds after which a late pass is waited for, so that the watchdog fires */
};

/* Collective: every rank calls it, and either all succeed or all fail. */
int dt_classify_open(struct dt_classify **ret, const struct dt_classify_params *p, struct dt_err *err);
/* Called by all ranks but rank 0: computes what rank 0 sends until rank 0 ends. */
int dt_classify_follow(struct dt_classify *c, struct dt_err *err);
/* Computes the queued images first, unless a rank was lost. */
void dt_classify_close(struct dt_classify *c);

struct dt_classify_info {
	const char *const *name; /* [classes] */
	int classes, channels, side, ranks;
	size_t row;	/* floats per image */
	double seconds; /* seconds that opening took */
	uint64_t weight_bytes, work_bytes;
};
struct dt_classify_info dt_classify_info(const struct dt_classify *c);

/*
 * Decodes JPEG, PNG or PNM to normalised pixels [row], in the same way as dt-eval images. Waits for a free
 * decoder.
 */
int dt_classify_decode(struct dt_classify *c, const void *bytes, size_t n, float *pixels, struct dt_err *err);

/*
 * A request. The caller zeroes it before filling it in, and owns all memory; it must stay valid until left is
 * 0.
 */
struct dt_classify_job {
	int n;
	const float *pixels;	 /* [n, row] */
	float *logits;		 /* [n, classes], written */
	int status;		 /* set when left is 0: 0, or a negative errno */
	void (*done)(void *arg); /* called by a thread of the queue; must not call it; may be NULL */
	void *arg;
	/* used by the queue */
	int left;
	double since;
	struct dt_classify_image *image; /* [n] */
};

/* Queues a job. -EAGAIN: the queue is full; -ESHUTDOWN: draining; -EIO: the classifier has failed. */
int dt_classify_submit(struct dt_classify *c, struct dt_classify_job *j, struct dt_err *err);
/* Waits until the job is answered and returns its status. err: the reason of a failure. */
int dt_classify_wait(struct dt_classify *c, struct dt_classify_job *j, struct dt_err *err);
void dt_classify_job_release(struct dt_classify_job *j);

/* Refuses new jobs from now on. */
void dt_classify_drain(struct dt_classify *c);
enum dt_engine_state dt_classify_state(struct dt_classify *c);
void dt_classify_failure(struct dt_classify *c, struct dt_err *err);
/* Counts an image that was refused because it could not be decoded. */
void dt_classify_refused(struct dt_classify *c);

/* Totals since the classifier was opened. Latency is measured from submission to the answer, within 2%. */
struct dt_classify_stats {
	int64_t requests, images, refused, waiting; /* answered; refused: images that could not be decoded */
	double p50, p99;			    /* seconds */
	int64_t *by_rank;			    /* [ranks] images, [ranks] passes; the caller frees it */
};
int dt_classify_stats(struct dt_classify *c, struct dt_classify_stats *ret);
/* Writes metrics in the Prometheus text format. */
int dt_classify_metrics(struct dt_classify *c, const char *model, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
