/*
 * Plans of servers that classify images (serve/engine/classify.h): each rank has the whole net, and they
 * share requests of one image each, or every batch. What a rank holds and how long its passes take come
 * from the program; whether the answers come in time, from the server's own queue, run over the requests
 * on paper.
 */
#ifndef DT_SERVE_CAPACITY_IMAGES_H
#define DT_SERVE_CAPACITY_IMAGES_H

#include "serve/capacity/plan.h"

enum { DT_IMAGE_BATCH = 128, DT_IMAGE_PLANS = 16 /* batches of powers of two, each shared in two ways */ };

struct dt_image_queue {
	int ranks, batch; /* images of a pass; with data, of a batch over all ranks */
	bool data;	  /* DT_SPLIT_DATA, else DT_SPLIT_REQUESTS */
	/* [batch + 1] seconds of a pass over so many images; and of pixels and logits on their way to a rank
	 * that is not the first, and back. */
	const double *pass_s, *send_s;
};

struct dt_image_report {
	double p50, p99, mean; /* seconds until the answer; ranks nearest */
	double end_s, busy_s;  /* the last answer; seconds that ranks compute together */
	int64_t passes;
};

/* Requests of one image at ask[i].at_s, ascending. -ENOMEM. */
int dt_image_simulate(const struct dt_image_queue *s, const struct dt_sim_ask *ask, int n,
		      struct dt_image_report *ret, struct dt_err *err);

struct dt_image_plan {
	bool data;
	int batch, ranks;
	double pass_s;	     /* of all images that a rank has of a full batch */
	double images_per_s; /* of all ranks with full batches */
	uint64_t peak_bytes; /* of the first rank, which holds the pixels of all */
	bool fits, meets;    /* memory; q->ttft_s, until the answer, at P99 */
	struct dt_image_report sim;
	char note[64];
};

/*
 * One plan for every batch and way to share (of a batch that is cut, over two ranks and more), with the
 * fewest ranks that answer q->rate requests a second within q->ttft_s; fewest ranks first, those that
 * miss it last. Returns their number.
 */
int dt_image_plans(const struct dt_serve_query *q, struct dt_image_plan ret[DT_IMAGE_PLANS],
		   struct dt_err *err);
int dt_image_plans_print(const struct dt_serve_query *q, const struct dt_image_plan *p, int n, bool json,
			 FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
