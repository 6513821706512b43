/* The queue of a classifier. Private to serve/engine. */
#ifndef DT_SERVE_CLASSIFY_PRIV_H
#define DT_SERVE_CLASSIFY_PRIV_H

#include "data/augment.h"
#include "serve/engine/classify.h"

#include <pthread.h>
#include <sys/queue.h>

struct dt_classify_image { /* an image that is queued or being computed */
	struct dt_classify_job *job;
	TAILQ_ENTRY(dt_classify_image) in_list;
};
TAILQ_HEAD(dt_classify_images, dt_classify_image);

struct dt_classify_lane { /* work of one rank */
	struct dt_classify_images list;
	int64_t load;			  /* images queued and being computed */
	struct dt_classify_image **under; /* [batch] images being computed, n of them */
	int n;
	float *pixels, *logits; /* [batch, row], [batch, classes] */
	int64_t images, passes;
	/* used for ranks other than rank 0 */
	int64_t head;
	struct dt_comm_req *req[3];
	double since, spoke; /* when the pass began; when rank 0 last sent a message to this rank */
};

struct dt_classify_decoder {
	struct dt_image image, scaled;
	bool busy;
};

#define DT_CLASSIFY_BUCKETS 1024 /* of the latency histogram, each 2% above the last, from 10 us */

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
	pthread_cond_t work, done; /* work: images queued, or the end; done: answered, or a decoder is free */
	struct dt_classify_lane *lane;
	struct dt_classify_images central; /* images not assigned to a rank yet: DT_SPLIT_DATA */
	struct dt_classify_decoder *decoder;
	pthread_t computer, speaker;
	bool computes, speaks; /* whether the threads run */
	bool draining, stop;
	bool failed;
	struct dt_err why;
	int64_t waiting; /* images without an answer */
	int64_t requests, images, refused;
	int64_t bucket[DT_CLASSIFY_BUCKETS];
};

/* classify_lanes.c: the threads of rank 0. */
int dt_classify_start(struct dt_classify *c, struct dt_err *err);
void dt_classify_stop(struct dt_classify *c);
/* Assigns queued images to ranks. Call with the lock held. */
void dt_classify_deal(struct dt_classify *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
