/*
 * Capacity plans for image classification servers (serve/engine/classify.h). Each rank has the whole network;
 * the ranks share requests of one image each, or split every batch. Memory and pass times are derived from
 * the program; the latency comes from a simulation of the server's own queue over the requests.
 */
#ifndef DT_SERVE_CAPACITY_IMAGES_H
#define DT_SERVE_CAPACITY_IMAGES_H

#include "serve/capacity/plan.h"

enum { DT_IMAGE_BATCH = 128, DT_IMAGE_PLANS = 16 /* batches of powers of two, each shared in two ways */ };

struct dt_image_queue {
	int ranks, batch; /* batch: max images of a pass; if `data` is set, of a batch over all ranks */
	bool data;	  /* DT_SPLIT_DATA, else DT_SPLIT_REQUESTS */
	/*
	 * [batch + 1] seconds of a pass over that many images; seconds to send pixels to a rank other than 0
	 * and logits back.
	 */
	const double *pass_s, *send_s;
};

struct dt_image_report {
	double p50, p99, mean; /* seconds until the answer; percentiles by nearest rank */
	double end_s, busy_s;  /* time of the last answer; seconds of computation of all ranks */
	int64_t passes;
};

/* Simulates requests of one image that arrive at ask[i].at_s, ascending. -ENOMEM. */
int dt_image_simulate(const struct dt_image_queue *s, const struct dt_sim_ask *ask, int n,
		      struct dt_image_report *ret, struct dt_err *err);

struct dt_image_plan {
	bool data;
	int batch, ranks;
	double pass_s;	     /* seconds for a rank's part of a full batch */
	double images_per_s; /* of all ranks with full batches */
	uint64_t peak_bytes; /* of rank 0, which holds the pixels of all */
	bool fits, meets;    /* fits: in memory; meets: P99 of the latency within q->ttft_s */
	struct dt_image_report sim;
	char note[64];
};

/*
 * Makes one plan for each batch size and way of sharing (splitting a batch: with two ranks or more), with the
 * fewest ranks that answer q->rate requests a second within q->ttft_s. Order: fewest ranks first; plans that
 * miss the limit last. Returns their number.
 */
int dt_image_plans(const struct dt_serve_query *q, struct dt_image_plan ret[DT_IMAGE_PLANS],
		   struct dt_err *err);
int dt_image_plans_print(const struct dt_serve_query *q, const struct dt_image_plan *p, int n, bool json,
			 FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
