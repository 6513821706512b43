/* The queue of a classifier. Private to serve/engine. */
#ifndef DT_SERVE_CLASSIFY_PRIV_H
#define DT_SERVE_CLASSIFY_PRIV_H

#include "data/augment.h"
#include "serve/engine/classify.h"

#include <pthread.h>
#include <sys/queue.h>

struct dt_classify_image { /* that waits or is computed */
	struct dt_classify_job *job;
	TAILQ_ENTRY(dt_classify_image) in_list;
};
TAILQ_HEAD(dt_classify_images, dt_classify_image);

struct dt_classify_lane { /* what a rank has to do */
	struct dt_classify_images list;
	int64_t load;			  /* images in the list and under way */
	struct dt_classify_image **under; /* [batch] under way, n of them */
	int n;
	float *pixels, *logits; /* [batch, row], [batch, classes] */
	int64_t images, passes;
	/* of a rank that is not the first */
	int64_t head;
	struct dt_comm_req *req[3];
	double since, spoke; /* the pass began; rank 0 told it something */
};

struct dt_classify_decoder {
	struct dt_image image, scaled;
	bool busy;
};

#define DT_CLASSIFY_BUCKETS 1024 /* of latencies, each 2% above the one before it, from 10 us */

struct dt_classify {
	struct dt_classify_params p;
	struct dt_classify_info info;
	struct dt_dev *dev;
	struct dt_classifier *net;
	struct dt_comm *all; /* NULL: one rank */
	char **name;
	struct dt_augment augment;
	int ranks, rank;

	pthread_mutex_t mu;
	pthread_cond_t work, done; /* something waits, or the end; a job is answered or a decoder free */
	struct dt_classify_lane *lane;
	struct dt_classify_images central; /* not handed out yet: DT_SPLIT_DATA */
	struct dt_classify_decoder *decoder;
	pthread_t computer, speaker;
	bool computes, speaks; /* the threads run */
	bool draining, stop;
	bool failed;
	struct dt_err why;
	int64_t waiting; /* images not answered */
	int64_t requests, images, refused;
	int64_t bucket[DT_CLASSIFY_BUCKETS];
};

/* classify_lanes.c: the threads of rank 0. */
int dt_classify_start(struct dt_classify *c, struct dt_err *err);
void dt_classify_stop(struct dt_classify *c);
/* Hands out what waits. Locked. */
void dt_classify_deal(struct dt_classify *c);
/* The queue fails: nothing more is computed, and all waiting requests fail. Locked. */
void dt_classify_fail(struct dt_classify *c, int rc, const struct dt_err *why);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
